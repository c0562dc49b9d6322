"""Conversion: the same values in another number format, or the same bits under another.

In       tensors and dtypes
Out      lazy tensors of CAST and BITCAST nodes
Next     elementwise.py (where dtypes meet), ir/dtype.py (the formats), docs/semantics.md (casts at the edges)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import expanded, iota, reduced, reshaped
from hcq.frontend.ops.base import Methods, Self
from hcq.frontend.ops.table import above
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node, binary
from hcq.ir.op import Op


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
        """The same bits read as another format; of another size, each element is several, or several are one.

        The last axis grows or shrinks with that; of an element's parts the lowest bits come first.
        Raises  UsageError for bool from other formats, and for a last axis that is no whole number of elements

        >>> hex(Tensor(1.0).bitcast(dtypes.int32).item())
        '0x3f800000'
        >>> Tensor([1.0]).bitcast(dtypes.uint8).tolist()
        [0, 0, 128, 63]
        """
        have = self.node.dtype
        if have.is_bool and not dtype.is_bool:
            return self.cast(dtypes.uint8).bitcast(dtype)
        if have.is_bool != dtype.is_bool:
            raise UsageError(f"[bitcast] {have.name} to bool: not every byte is one. Compare: x != 0.")
        if have.itemsize != dtype.itemsize:
            return self._bits_regrouped(dtype)
        return self if have is dtype else self._view(Node(Op.BITCAST, dtype, (self.node,)))

    def _bits_regrouped(self, dtype: DType) -> Self:
        have, shape = self.node.dtype, self.node.shape
        small, large = sorted((have.itemsize, dtype.itemsize))
        count = large // small
        if not shape or (have.itemsize < dtype.itemsize and shape[-1] % count):
            raise UsageError(
                f"[bitcast] {have.name} of shape {shape} to {dtype.name}: the last axis has to be "
                + ("there." if not shape else f"a multiple of {count}, as many as make one.")
            )
        part, whole = getattr(dtypes, f"uint{8 * small}"), getattr(dtypes, f"uint{8 * large}")
        bits = self.bitcast(whole if have.itemsize == large else part).node
        if have.itemsize == large:
            parts = (*shape, count)
            shift = (iota(count, len(shape), parts) * (8 * small)).cast(whole)
            wide = expanded(reshaped(bits, (*shape, 1)), parts)
            made = reshaped(binary(Op.SHR, wide, shift).cast(part), (*shape[:-1], shape[-1] * count))
        else:
            parts = (*shape[:-1], shape[-1] // count, count)
            shift = (iota(count, len(shape), parts) * (8 * small)).cast(whole)
            apart = binary(Op.SHL, reshaped(bits, parts).cast(whole), shift)
            made = reshaped(reduced(Op.ADD, apart, (len(shape),)), parts[:-1])
        return self._like(made).bitcast(dtype)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """`cast`; the dtype may be named as old programs do, by a constructor. Without one: the name that this one has.

        dtype   dtypes.float16, hcq.torch.FloatTensor, "torch.cuda.FloatTensor", ...

        >>> x = Tensor([1.5], device="CPU")
        >>> x.type(hcq.torch.LongTensor).tolist(), x.type(dtypes.int8).type(), x.type()
        ([1], 'torch.CharTensor', 'torch.FloatTensor')
        """
        if isinstance(dtype, DType):
            return self.cast(dtype)
        functions_older = above("older")
        if dtype is None:
            return functions_older.name_of(self)
        found: Any = functions_older.constructor_of(dtype)
        here: Any = self
        cast = here.cast(found.dtype)
        return cast.to(found.device) if getattr(found, "device", None) else cast

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

        >>> hcq.tensor([300, -1]).byte().tolist()
        [44, 255]
        """
        return self.cast(dtypes.uint8)

    def char(self) -> Self:
        """As int8.

        >>> hcq.tensor([300, 200]).char().tolist()
        [44, -56]
        """
        return self.cast(dtypes.int8)

    def short(self) -> Self:
        """As int16.

        >>> hcq.tensor([40000]).short().tolist()
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

        >>> hcq.tensor([16777217]).float().tolist()
        [16777216.0]
        """
        return self.cast(dtypes.float32)

    def double(self) -> Self:
        """As float64.

        >>> hcq.tensor([1, 2]).double().dtype
        dtypes.float64
        """
        return self.cast(dtypes.float64)
