"""Bits of tensors: a checksum that two equal tensors share.

In       tensors of any dtype
Out      uint64: the exclusive or of all elements' bits
Next     __init__.py (where it is found), ops/bits.py (operations on bits)
"""

from __future__ import annotations

from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.base import Axes
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


@checked
def hash_tensor(input: Tensor, dim: Axes = None, keepdim: bool = False, mode: int = 0) -> Tensor:
    """The exclusive or, over axes, of the elements as 64 bits: floats as float64, integers and bool as int64.

    mode   0, the only one

    >>> hcq.hash_tensor(hcq.tensor([5, 3])).item() == 5 ^ 3
    True
    """
    if mode != 0:
        raise UsageError(f"[hash_tensor] mode={mode}: use 0.")
    axes = input._axes("hash_tensor", dim)
    axes = axes or tuple(range(input.ndim))
    wide = input.cast(dtypes.float64 if input.dtype.is_float else dtypes.int64)
    bits = wide.bitcast(dtypes.int64)
    for axis in axes:
        while bits.shape[axis] > 1:
            half = bits.shape[axis] // 2
            both = bits.narrow(axis, 0, half) ^ bits.narrow(axis, half, half)
            rest = bits.narrow(axis, 2 * half, bits.shape[axis] - 2 * half)
            bits = Tensor.cat([both, rest], dim=axis) if rest.shape[axis] else both
        if not bits.shape[axis]:
            bits = bits.sum(axis, keepdim=True)
    if not keepdim:
        bits = bits.reshape([size for axis, size in enumerate(bits.shape) if axis not in axes])
    return bits.bitcast(dtypes.uint64)
