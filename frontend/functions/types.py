"""Types: what dtypes hold and which of them meet in which, under PyTorch's names.

In       dtypes, tensors, numbers
Out      finfo, iinfo, promote_types, result_type, can_cast
Next     ir/dtype.py (the formats, promotion)
"""

from __future__ import annotations

import math
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes, promote

# name -> bits of the mantissa behind the point, the least exponent of a normal number, the greatest number
_FLOATS = {
    "float64": (52, -1022, (2.0 - 2.0**-52) * 2.0**1023),
    "float32": (23, -126, (2.0 - 2.0**-23) * 2.0**127),
    "float16": (10, -14, 65504.0),
    "bfloat16": (7, -126, (2.0 - 2.0**-7) * 2.0**127),
    "fp8e4m3": (3, -6, 448.0),
    "fp8e5m2": (2, -14, 57344.0),
}


class finfo:
    """What a float dtype, float32 unless given, holds: bits, eps, max, min, tiny, smallest_normal, resolution.

    >>> finfo(dtypes.float16).max, finfo().eps == 2.0**-23
    (65504.0, True)
    """

    def __init__(self, type: DType = dtypes.float32) -> None:
        if not isinstance(type, DType) or type.name not in _FLOATS:
            raise UsageError(f"[finfo] {shown(type)}: give a float dtype, or use iinfo.")
        digits, least, self.max = _FLOATS[type.name]
        self.dtype, self.bits, self.min = type.name, 8 * type.itemsize, -self.max
        self.eps, self.tiny = 2.0**-digits, 2.0**least
        self.smallest_normal = self.tiny
        self.resolution = 10.0 ** -math.floor(digits * math.log10(2.0))

    def __repr__(self) -> str:
        return f"finfo({self.dtype}, eps={self.eps:g}, max={self.max:g}, tiny={self.tiny:g})"


class iinfo:
    """What a dtype of whole numbers holds: bits, min, max.

    >>> iinfo(dtypes.int8).min, iinfo(dtypes.int8).max
    (-128, 127)
    """

    def __init__(self, type: DType) -> None:
        if not isinstance(type, DType) or not type.is_integer:
            raise UsageError(f"[iinfo] {shown(type)}: give an integer dtype, or use finfo.")
        self.dtype, self.bits, self.min, self.max = type.name, 8 * type.itemsize, int(type.min), int(type.max)

    def __repr__(self) -> str:
        return f"iinfo({self.dtype}, min={self.min}, max={self.max})"


def promote_types(type1: DType, type2: DType) -> DType:
    """The dtype that tensors of two dtypes are computed in.

    >>> promote_types(dtypes.int32, dtypes.float16)
    dtypes.float16
    """
    if type1.is_complex or type2.is_complex:
        return result_type(Tensor.zeros(1, dtype=type1), Tensor.zeros(1, dtype=type2))
    return promote(type1, type2)


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """The dtype that an operation with these two, tensors or numbers, gives.

    >>> result_type(hcq.tensor([1]), 2.5), result_type(Tensor([1], dtype=dtypes.int8), 2)
    (dtypes.float32, dtypes.int8)
    """
    one: Any = tensor1 if isinstance(tensor1, Tensor) else Tensor(tensor1)
    if one is not tensor1 and isinstance(tensor2, Tensor):
        return result_type(tensor2, tensor1)
    both_bool = one.dtype.is_bool and getattr(tensor2, "dtype", None) is dtypes.bool
    return dtypes.bool if both_bool else (one * tensor2).dtype  # type: ignore[no-any-return]


def can_cast(from_: DType, to: DType) -> bool:
    """Whether a result of a dtype may be written into a tensor of another: not from floats to integers, nor to bool.

    >>> can_cast(dtypes.float64, dtypes.float16), can_cast(dtypes.float32, dtypes.int64)
    (True, False)
    """
    ranks = [
        3 if kind.is_complex else 2 if kind.is_float else 0 if kind.is_bool else 1 for kind in (from_, to)
    ]
    return ranks[0] <= ranks[1]
