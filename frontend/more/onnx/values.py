"""Values: what flows between operators, numbers on the host, a tensor on the device, or both.

In       NumPy arrays, tensors
Out      `Value`, with `host` and `tensor` made when they are asked for
Changes  device memory, for what was on the host; reading a tensor runs what it needs
Next     evaluate.py (who passes them), weights.py (arrays of dtypes that NumPy has not)

What is known before anything runs, constants and shapes and what is computed of them, is `known`: arithmetic with
shapes is done on the host, and an operator that needs numbers has them. Reading a value that is not known waits for
the device; the run notes it, since a call that does so cannot be recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.weights import bits_of
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import NAMED, DType, dtypes


class Value:
    """One tensor of a graph.

    load   gives its numbers when they are first needed: a weight that nothing uses is never read
    """

    __slots__ = ("dtype", "shape", "is_known", "origin", "_array", "_tensor", "_load")

    def __init__(
        self,
        dtype: DType,
        shape: tuple[int, ...],
        array: np.ndarray[Any, Any] | None = None,
        tensor: Tensor | None = None,
        load: Callable[[], np.ndarray[Any, Any]] | None = None,
        origin: str = "",
    ):
        self.dtype, self.shape, self.origin = dtype, shape, origin
        self._array, self._tensor, self._load = array, tensor, load
        self.is_known = tensor is None and not origin

    @property
    def size(self) -> int:
        """How many elements it has."""
        return int(np.prod(self.shape, dtype=object))

    def array(self) -> np.ndarray[Any, Any]:
        """Its numbers on the host, as bits where NumPy lacks the dtype. Waits for a tensor."""
        if self._array is None:
            if self._load is not None:
                self._array = self._load()
            else:
                assert self._tensor is not None
                self._array = read(self._tensor)
        return self._array

    def tensor(self, upload: Callable[[np.ndarray[Any, Any], DType], Tensor]) -> Tensor:
        """It on the device."""
        if self._tensor is None:
            self._tensor = upload(self.array(), self.dtype)
        return self._tensor


def of_array(array: Any, dtype: DType | None = None, origin: str = "") -> Value:
    """Numbers on the host as a value."""
    array = np.asarray(array)
    found = dtype or NAMED.get(array.dtype.name)
    if found is None or found is dtypes.index:
        raise UsageError(f"[OnnxModel] an array of {array.dtype.name}: there is no such dtype here.")
    return Value(found, tuple(map(int, array.shape)), array=array, origin=origin)


def of_tensor(tensor: Tensor, origin: str = "") -> Value:
    """A tensor as a value."""
    return Value(tensor.dtype, tensor.shape, tensor=tensor, origin=origin)


def read(tensor: Tensor) -> np.ndarray[Any, Any]:
    """A tensor's numbers on the host, as bits where NumPy lacks the dtype."""
    bits = bits_of(tensor.dtype)
    if bits.name == tensor.dtype.name:
        return np.asarray(tensor.numpy())
    return np.frombuffer(bytes(tensor.as_memoryview()), bits).reshape(tensor.shape)


def put(array: np.ndarray[Any, Any], dtype: DType, device: str) -> Tensor:
    """Numbers on the host as a tensor."""
    if array.ndim == 0 and array.dtype.name == dtype.name:
        return Tensor._made_of(array.item(), device, dtype)
    if array.dtype.name == dtype.name:
        return Tensor(array, device)
    raw = np.ascontiguousarray(array).tobytes()
    return Tensor._made_of(raw, device, dtype).reshape(tuple(array.shape))
