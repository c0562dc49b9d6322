"""Weights: the tensors of a file, by name, each put on a device when it is asked for.

In       what a reader of a format found: an `Entry` for each tensor
Out      `Weights`, a mapping from names to tensors, as a state dict is
Changes  device memory, for each tensor that is asked for
Next     files.py (who makes them), mapped.py (where the bytes are), ../nn/module.py (load_state_dict takes it)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hcq.checks import shown
from hcq.frontend.core import device as devices
from hcq.frontend.core.errors import UnknownName
from hcq.frontend.core.storage import Storage
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType
from hcq.ir.node import Shape

PIECE_BYTES = 64 << 20  # copied at a time


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file.

    format      the file's own word for its numbers: "BF16", "Q4_K"
    dtype       of the tensor that one gets
    size_bytes  in the file
    place       puts it on a device: a tensor of this shape and dtype
    raw         its bytes, as they are in the file
    """

    name: str
    format: str
    dtype: DType
    shape: Shape
    size_bytes: int
    place: Callable[[str], Tensor] = field(repr=False)
    raw: Callable[[], Any] = field(repr=False)


class Weights(Mapping[str, Tensor]):
    """The tensors of a file. `weights["name"]` reads one, and each time anew; nothing else is read before.

    path      the file, or the first of several
    kind      "safetensors", "GGUF", "PyTorch", "npz", "npy"
    entries   name -> Entry: format, shape and size, without reading
    metadata  what else is in the file, by name
    device    where tensors are put
    parts     of a PyTorch file: what was saved under a name that is no tensor's, as the dict of a state, or a number
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: str,
        entries: Iterable[Entry],
        metadata: Mapping[str, Any],
        device: str | None = None,
        parts: Mapping[Any, Callable[[str], Any]] | None = None,
    ):
        self.parts = parts or {}
        self.path = os.fspath(path)
        self.kind = kind
        self.entries = {entry.name: entry for entry in entries}
        self.metadata = metadata
        self.device = devices.canonical(device)

    def __getitem__(self, name: str) -> Any:
        if name not in self.entries and name in self.parts:
            return self.parts[name](self.device)
        return self.entry(name).place(self.device)

    def __contains__(self, name: object) -> bool:
        return name in self.entries or name in self.parts

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def entry(self, name: str) -> Entry:
        """What is known of a tensor without reading it. Raises UnknownName for a name that is not there."""
        try:
            return self.entries[name]
        except (KeyError, TypeError):
            some = ", ".join(list(self.entries)[:4]) + (", ..." if len(self) > 4 else "")
            raise UnknownName(
                f"[load] {self.path} has no tensor {shown(name)}; it has {len(self)}: {some}."
            ) from None

    def raw(self, name: str) -> Any:
        """The bytes of a tensor as they are in the file, without a copy where the format allows that."""
        return self.entry(name).raw()

    @property
    def size_bytes(self) -> int:
        """Of all tensors, in the file."""
        return sum(entry.size_bytes for entry in self.entries.values())

    def __repr__(self) -> str:
        return f"Weights({self.path!r}: {self.kind}, {len(self)} tensors, {self.size_bytes:,} bytes)"


def uploaded(raw: Any, device: str, dtype: DType, shape: Shape, name: str = "weights") -> Tensor:
    """Bytes as a tensor in memory of a device, copied there piece by piece."""
    first = devices.members(device)[0]
    storage = Storage(first, dtype, shape)
    storage.buffer = devices.get(first).alloc(max(1, storage.size_bytes), name)
    for at in range(0, storage.size_bytes, PIECE_BYTES):
        storage.buffer.write(raw[at : at + PIECE_BYTES], at)
    tensor = Tensor._of(storage.node(), first)
    return tensor if first == device else tensor.to(device)


def plain_entry(name: str, word: str, dtype: DType, shape: Shape, raw: Callable[[], Any]) -> Entry:
    """An entry whose bytes are the tensor's own: row-major, little endian, of one dtype."""
    size = dtype.itemsize
    for length in shape:
        size *= length
    return Entry(
        name, word, dtype, shape, size, lambda device: uploaded(raw(), device, dtype, shape, name), raw
    )
