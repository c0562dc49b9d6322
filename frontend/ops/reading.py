"""Reading: the elements of a tensor on the host, as bytes, an array, lists or one number.

In       a tensor, which is computed now
Out      its elements; what Python asks of a value: bool, int, float, len, iteration, text
Changes  what realize() changes; waits for the device
Next     core/data.py (bytes to numbers), run/timed_out_work.py (reads past work that is late), printing.py (text)
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from hcq.frontend.core import data as formats
from hcq.frontend.core import known_later, sizes
from hcq.frontend.core.base import watcher
from hcq.frontend.core.device import is_group, members
from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.base import Methods, Self
from hcq.frontend.run import timed_out_work
from hcq.frontend.run.realize import storage_of, to_read
from hcq.ir.dtype import Scalar, struct_code
from hcq.ir.op import Op


class Reading(Methods):
    """numpy, tolist, item, and what Python's own functions ask for."""

    __slots__ = ()
    _are_functions: bool = False

    def as_memoryview(self) -> memoryview:
        """The elements on the host, copied, as a memoryview: row-major, in this shape where Python has the format.

        Where an axis is empty the shape is (0,), for memoryviews have no others without elements.

        >>> Tensor([[1, 2]], dtype=hcq.int32).as_memoryview().tolist()
        [[1, 2]]
        """
        raw = memoryview(self._bytes("as_memoryview"))
        code: Any = struct_code(self.dtype)
        if code is None or code == "e":
            return raw
        shape = self._shape_now()
        return raw.cast(code) if 0 in shape else raw.cast(code, shape)

    def _bytes(self, call: str) -> bytes:
        if self.node.op is Op.CONST:
            return formats.pack([self.node.arg], self.dtype)
        room = self.node.shape
        if not prod(room):
            return b""
        raw = bytearray(prod(room) * self.dtype.itemsize)
        timed_out_work.read(self._buffer(call), raw)
        if known_later.in_use and (now := sizes.shape_now(self.node)) != room:
            return formats.cut(raw, room, now, self.dtype.itemsize)
        return bytes(raw)

    def _shape_now(self) -> tuple[int, ...]:
        return sizes.shape_now(self.node) if known_later.in_use else self.node.shape

    def _buffer(self, call: str) -> Any:
        """The device memory that holds the elements in row-major order; computed now."""
        watching = watcher()
        if watching is not None:
            watching.forbids(
                call, "values are not known while a recording is made. Return the tensor and read it after"
            )
        if is_group(self.device):
            return self.to(members(self.device)[0])._buffer(call)
        storage = storage_of(to_read(self))
        if storage.buffer is not None and storage.buffer.device.dead:
            from hcq.frontend.core.device import check_values

            check_values(call, storage)
        return storage.buffer

    def numpy(self) -> Any:
        """The values as a NumPy array that owns its memory. Waits. Raises UsageError for a dtype that NumPy lacks.

        >>> hcq.tensor([[1, 2]]).numpy().shape
        (1, 2)
        """
        import numpy as np

        if struct_code(self.dtype) is None:
            raise UsageError(f"[numpy] NumPy has no {self.dtype.name}. Convert first: x.float().numpy().")
        array = np.empty(self.node.shape, dtype=self.dtype.name)
        if self.node.op is Op.CONST:
            array.fill(self.node.arg)
        elif array.size:
            timed_out_work.read(self._buffer("numpy"), array)
        if known_later.in_use and (now := sizes.shape_now(self.node)) != self.node.shape:
            array = array[tuple(map(slice, now))].copy()
        return array

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers; a number for shape (). Waits.

        >>> hcq.tensor([[1, 2], [3, 4]]).tolist(), hcq.tensor(5).tolist()
        ([[1, 2], [3, 4]], 5)
        """
        shape = self._shape_now()
        if 0 in shape:
            return _empty(shape)
        return formats.nested(formats.unpack(self._bytes("tolist"), self.dtype), shape)

    def item(self) -> Scalar:
        """The one value, as a Python number. Waits. Raises UsageError unless there is one element.

        >>> Tensor([[2.5]]).item()
        2.5
        """
        if self.numel() != 1:
            raise UsageError(
                f"[item] shape {self.shape} has {self.numel()} elements. Use tolist() or numpy()."
            )
        return formats.unpack(self._bytes("item"), self.dtype)[0]

    def allclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
        """True if every element is close: see `isclose`. Computes and reads back.

        >>> Tensor([1.0]).allclose(Tensor([1.000001])), Tensor([1.0]).allclose(Tensor([1.1]))
        (True, False)
        """
        return bool(self.isclose(other, rtol, atol, equal_nan).all())

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise UsageError(
                f"[bool] shape {self.shape} has {self.numel()} elements: its truth is unclear. Use any() or all()."
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_integer or self.numel() != 1:
            raise UsageError(
                f"[index] a {self.dtype.name} tensor of shape {self.shape} is no index. Use one integer."
            )
        return int(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise UsageError("[len] a tensor of shape () has no length. Use numel().")
        if isinstance(self.shape[0], known_later.KnownLater):
            raise UsageError(
                f"[len] axis 0 has the size {self.shape[0]}, which is known only when the work runs. "
                "Use x.shape[0], which stands for it."
            )
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        if not self.shape:
            raise UsageError("[iter] a tensor of shape () has no elements to walk through. Use item().")
        len(self)  # refuses a size that is not known yet
        return iter(self.unbind(0))

    def __contains__(self, value: Any) -> bool:
        return bool((self == self._operand("in", value)).any())

    def __repr__(self) -> str:
        node = self.node
        while node.op is Op.FIRST:
            node = node.src[0]
        state = "in memory" if node.op is Op.BUFFER else "constant" if node.op is Op.CONST else "lazy"
        flag = ", requires_grad" if self._requires_grad else ""
        return f"Tensor(shape={self.shape}, dtype={self.dtype.name}, device={self.device}, {state}{flag})"

    def __str__(self) -> str:
        """The numbers, computed now; in a recording, which does not know them, what repr says."""
        if watcher() is not None:
            return repr(self)
        from hcq.frontend.ops.printing import text

        return text(self)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)


def _empty(shape: tuple[int, ...]) -> Any:
    return [] if shape[0] == 0 else [_empty(shape[1:]) for _ in range(shape[0])]
