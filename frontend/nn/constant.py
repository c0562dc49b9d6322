"""Constant: a tensor of one number that has memory of its own, which may be written to.

In       a shape and a number
Out      a tensor: two of them never share memory
Changes  nothing but the memory that it gets
Next     init.py (parameters), optim/ (state that begins even)
"""

from __future__ import annotations

from math import prod

from hcq.frontend.core import device as devices
from hcq.frontend.devices.sharding.storage import stored
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes, to_bits
from hcq.ir.node import Shape


def constant(shape: Shape, value: float, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """A tensor of one number in memory of its own, float32 unless given."""
    where, kind = devices.canonical(device), dtype or dtypes.float32
    element = to_bits(value, kind).to_bytes(kind.itemsize, "little")
    storage = stored(where, kind, tuple(shape), element * prod(shape), "constant")
    return Tensor._of(storage.node(), where)
