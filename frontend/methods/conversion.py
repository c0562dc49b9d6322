"""Conversion: the same values in another number format, or the same bits under another.

In       tensors and dtypes
Out      lazy tensors of CAST and BITCAST nodes
Changes  nothing
Next     elementwise.py (where dtypes meet), ir/dtype.py (the formats), docs/semantics.md (casts at the edges)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.frontend.errors import UsageError
from hcq.frontend.methods.base import Methods
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op

if TYPE_CHECKING:
    from typing_extensions import Self


class Conversion(Methods):
    """cast, bitcast and PyTorch's one-word casts."""

    __slots__ = ()

    def cast(self, dtype: DType) -> Self:
        """The same values in another format, of the same shape; a gradient flows through between floats.

        Floats become integers towards zero, what does not fit saturates, and NaN becomes 0; see docs/semantics.md.

        >>> Tensor([-1.5, 300.0]).cast(dtypes.uint8).tolist()
        [0, 255]
        """
        if not isinstance(dtype, DType):
            raise UsageError(f"[cast] {dtype!r} is not a dtype. Use one of hcq.dtypes, as dtypes.float32.")
        node = self.node
        return self if node.dtype is dtype else self._like(Node(Op.CAST, dtype, (node,)))

    def bitcast(self, dtype: DType) -> Self:
        """The same bits read as another format. Raises UsageError unless both have the same size.

        >>> hex(Tensor(1.0).bitcast(dtypes.int32).item())
        '0x3f800000'
        """
        have = self.node.dtype
        if have.itemsize != dtype.itemsize or have.is_bool != dtype.is_bool:
            raise UsageError(f"[bitcast] {have.name} to {dtype.name}: the sizes differ. Use cast for values.")
        return self if have is dtype else self._like(Node(Op.BITCAST, dtype, (self.node,)))

    type = cast

    def bool(self) -> Self:
        """As bool: True where an element is not zero.

        >>> Tensor([0.0, -0.5, float("nan")]).bool().tolist()
        [False, True, True]
        """
        return self.cast(dtypes.bool)

    def int(self) -> Self:
        """As int32.

        >>> Tensor([-1.9, 1.9]).int().tolist()
        [-1, 1]
        """
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """As int64.

        >>> Tensor([1.9, -1.9]).long().tolist()
        [1, -1]
        """
        return self.cast(dtypes.int64)

    def byte(self) -> Self:
        """As uint8.

        >>> Tensor([300, -1]).byte().tolist()
        [44, 255]
        """
        return self.cast(dtypes.uint8)

    def char(self) -> Self:
        """As int8.

        >>> Tensor([300, 200]).char().tolist()
        [44, -56]
        """
        return self.cast(dtypes.int8)

    def short(self) -> Self:
        """As int16.

        >>> Tensor([40000]).short().tolist()
        [-25536]
        """
        return self.cast(dtypes.int16)

    def half(self) -> Self:
        """As float16.

        >>> Tensor([70000.0, 1.0]).half().tolist()
        [inf, 1.0]
        """
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """As bfloat16.

        >>> Tensor([1.01]).bfloat16().item()
        1.0078125
        """
        return self.cast(dtypes.bfloat16)

    def float(self) -> Self:
        """As float32.

        >>> Tensor([16777217]).float().tolist()
        [16777216.0]
        """
        return self.cast(dtypes.float32)

    def double(self) -> Self:
        """As float64.

        >>> Tensor([1, 2]).double().dtype
        dtypes.float64
        """
        return self.cast(dtypes.float64)
