"""Storage: the memory a tensor's values are in, as a leaf of the graph.

In       a device name, dtype, shape, maybe the values
Out      `Storage`, the argument of a BUFFER node; two storages are never equal, even with equal contents
Changes  device memory: allocated when first needed, given back when the last node that reads it is gone
Next     run/realize.py (who fills storages), hcq/memory.py (the buffers behind them)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from hcq.ir.dtype import DType
from hcq.ir.node import Node, Shape, unlisted
from hcq.ir.op import Op

if TYPE_CHECKING:
    from hcq.memory import Buffer


# `noted` of what a replay made: it was computed from tensors that gradients flow to, and keeps no history
REPLAYED = -1

MAX_KINDS = 4096
_kinds: dict[tuple[str, DType, Shape], object] = {}

_writes = 0  # in place, by all devices since the process began


def written_so_far() -> int:
    """The clock of writes in place."""
    return _writes


def next_write() -> int:
    """The clock, moved on by one write."""
    global _writes
    _writes += 1
    return _writes


class Storage:
    """`shape` elements of `dtype`, row-major, on one device.

    buffer   the device memory, None until something is written to it
    history  the graph that computed these values, kept while a gradient may still flow through it
    tracked  True when a gradient may flow into or through it: a leaf that requires one, or a storage with a history
    noted    when the history was noted, on the clock of writes in place; or REPLAYED
    is_lent  True when others than tensors know the memory, as NumPy: what is written is written there
    kind     one object for all storages alike in device, dtype and shape; None until asked for
    leaf     the node that stands for it, while somebody holds that
    number   the `Leaf` of symbolic/variable.py whose number it holds, None for all other memory
    version  when it was last written in place, on that clock: a gradient of values since overwritten is refused
    """

    __slots__ = (
        "buffer",
        "device",
        "dtype",
        "history",
        "is_lent",
        "kind",
        "leaf",
        "noted",
        "number",
        "shape",
        "size_bytes",
        "tracked",
        "version",
    )

    def __init__(self, device: str, dtype: DType, shape: Shape, buffer: Buffer | None = None):
        count = 1
        for size in shape:
            count *= size
        self.device = device
        self.dtype = dtype
        self.shape = shape
        self.size_bytes = count * dtype.itemsize
        self.buffer = buffer
        self.history: Node | None = None
        self.tracked = False
        self.is_lent = False
        self.kind: object = None
        self.leaf: ref[Node] | None = None
        self.noted = 0
        self.number: Any = None
        self.version = 0

    def node(self) -> Node:
        """The leaf that stands for this memory: one node for as long as somebody holds it."""
        leaf = self.leaf
        node = None if leaf is None else leaf()
        if node is None:
            node = unlisted(Op.BUFFER, self.dtype, self, self.shape)
            self.leaf = ref(node)
        return node

    def kind_of(self) -> object:
        """What this memory is apart from which memory it is, as an object to compare by identity."""
        self.kind = kind_of(self.device, self.dtype, self.shape)
        return self.kind

    def like(self, buffer: Any = None) -> Storage:
        """Another storage of the same shape in the same place: in that memory, or in none yet."""
        return Storage(self.device, self.dtype, self.shape, buffer)

    def buffers(self) -> list[Any]:
        """The memory it has, if any."""
        return [] if self.buffer is None else [self.buffer]

    def contents(self) -> bytes:
        """The bytes that are there. Waits."""
        return b"" if self.buffer is None else self.buffer.read(0, self.size_bytes)

    def restore(self, contents: bytes) -> None:
        """Put back what `contents` gave."""
        if self.buffer is not None:
            self.buffer.write(contents)

    def __repr__(self) -> str:
        return f"Storage({self.device}, {self.dtype.name}, {self.shape})"


def kind_of(device: str, dtype: DType, shape: Shape) -> object:
    """The kind of all storages like this."""
    key = device, dtype, shape
    kind = _kinds.get(key)
    if kind is None:
        if len(_kinds) >= MAX_KINDS:
            _kinds.clear()  # storages from before have kinds of their own then, which costs a look-up
        kind = _kinds.setdefault(key, object())
    return kind
