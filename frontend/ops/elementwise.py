"""Elementwise arithmetic: the operators, after dtypes and shapes have met.

In       tensors and Python numbers
Out      lazy tensors; one node for an operator whose operands agree already, the usual case
Next     functions.py (what is built from these), ir/op.py (what each op means), ir/dtype.py (how dtypes meet)

Shapes broadcast from the right, as in NumPy; a number or a tensor of shape () meets any shape without a node.
"""

from __future__ import annotations

from typing import Any

from hcq.checks import shown
from hcq.frontend.core.base import Core
from hcq.frontend.core.errors import NotReal, UsageError
from hcq.frontend.core.known_later import KnownLater
from hcq.frontend.core.nodes import broadcast, constant, filled, met, scalar_dtype
from hcq.frontend.ops.base import Methods, Self, in_float_together
from hcq.frontend.ops.complex_arguments import in_complex
from hcq.ir.dtype import DType, Kind, Scalar, dtypes, promote, promote_scalar
from hcq.ir.node import Node
from hcq.ir.op import BINARY, Op

# operators spelled as users know them, for messages
_SIGNS = {op: op.name.lower() for op in BINARY} | {
    Op.ADD: "+", Op.MUL: "*", Op.DIV: "/", Op.FLOORDIV: "//", Op.MOD: "%", Op.MAX: "maximum", Op.MIN: "minimum",
    Op.AND: "&", Op.OR: "|", Op.XOR: "^", Op.SHL: "<<", Op.SHR: ">>",
    Op.CMPLT: "<", Op.CMPLE: "<=", Op.CMPEQ: "==", Op.CMPNE: "!=",
}  # fmt: skip


_COMPARISONS = frozenset({Op.CMPLT, Op.CMPLE, Op.CMPEQ, Op.CMPNE})


# what rounds once a number has gone in: others choose one of the two, or compare
_ROUNDED = frozenset({Op.ADD, Op.MUL, Op.DIV, Op.FLOORDIV, Op.MOD})


def _compares_whole(op: Op, a: Node, b: Node) -> bool:
    """Whether two integers are compared, which each are the number that they are."""
    return op in _COMPARISONS and not (a.dtype.is_float or b.dtype.is_float)


def _is_beside_one(a: Node, b: Node, dtype: DType) -> bool:
    """Whether one of no axes meets another in the other's dtype, a narrow float: it goes in as a number does."""
    return dtype.is_float and dtype.itemsize < 4 and (a.shape == ()) is not (b.shape == ())


class Elementwise(Methods):
    """Arithmetic, comparisons, bits, choice."""

    __slots__ = ()

    # -- how two operands meet --

    def _binary(self, op: Op, other: Any, reverse: bool = False, result: DType | None = None) -> Self:
        """`self op other` (or other op self) in the dtype both promote to, which is the result's unless given.

        A number beside a narrow float is not rounded to it first: where it does not fit, both are computed with in
        float32, and the result is rounded. A comparison and a choice are made in the narrow format, as in PyTorch.
        """
        a = self.node
        narrow: DType | None = None
        try:
            if isinstance(other, Core):
                b = other.node
                if other.device != self.device:
                    self._same_device(_SIGNS[op], other)
                if a.dtype is not b.dtype:
                    dtype = promote(a.dtype, b.dtype) if _compares_whole(op, a, b) else met(a, b)
                    if op in _ROUNDED and _is_beside_one(a, b, dtype):
                        narrow, dtype = dtype, dtypes.float32
                    a, b = a.cast(dtype), b.cast(dtype)
                shape = a._shape  # most have been asked for theirs
                if (shape is None or shape != b._shape) and a.shape != b.shape and a.shape and b.shape:
                    a, b = broadcast(_SIGNS[op], a, b)
            else:
                a, b = self._meet_scalar(_SIGNS[op], a, other, op in _ROUNDED)
                if a.dtype.itemsize > self.node.dtype.itemsize and self.node.dtype.is_float:
                    narrow = self.node.dtype
        except NotReal:
            return in_complex(_SIGNS[op], self, other, reverse=reverse)  # type: ignore[no-any-return]
        if a.dtype.rank == 1 and a.dtype.is_storage_only:
            a, b, narrow = a.cast(dtypes.float32), b.cast(dtypes.float32), a.dtype
        made = Node(op, result or a.dtype, (b, a) if reverse else (a, b))
        return self._like(made if narrow is None or result else made.cast(narrow))

    def _meet_scalar(self, call: str, a: Node, other: Any, is_whole: bool = False) -> tuple[Node, Node]:
        """A node and a number, or data, in the dtype that they meet in.

        is_whole   a number that a narrow float cannot hold is not rounded: the two meet in float32
        """
        kind = type(other)
        if kind is float or kind is int or kind is bool:
            dtype = a.dtype
            if (kind is float and dtype.kind is not Kind.FLOAT) or (kind is int and dtype.kind is Kind.BOOL):
                dtype = promote_scalar(dtype, other)
                a = a.cast(dtype)
            number = _number(call, other, dtype)
            if is_whole and dtype.itemsize < 4 and dtype.is_float and number.arg != other and other == other:
                return a.cast(dtypes.float32), _number(call, other, dtypes.float32)
            return a, number
        if isinstance(other, (bool, int, float)) or (
            hasattr(other, "item") and getattr(other, "shape", None) == ()
        ):
            # a NumPy number counts as a Python one
            return self._meet_scalar(call, a, _plain(other), is_whole)
        tensor = self._operand(call, other)
        b = tensor.node
        dtype = met(a, b)
        return broadcast(call, a.cast(dtype), b.cast(dtype))

    def _operand(self, call: str, other: Any) -> Self:
        """Anything a tensor can be made of, as a tensor on this device."""
        if isinstance(other, Core):
            return other  # type: ignore[return-value]
        if isinstance(other, (bool, int, float)):
            other = _plain(other)
            return self._like(constant(call, other, scalar_dtype(other)))
        if isinstance(other, KnownLater):
            return self._like(other.number(self.device))
        is_data = (
            isinstance(other, (list, tuple, complex))
            or hasattr(other, "__array__")
            or hasattr(other, "__index__")
        )
        if is_data and not isinstance(other, type):
            return self._kind._made_of(other, device=self.device)
        raise UsageError(
            f"[{call}] {shown(other)}: expected a Tensor, a number, a list or an array, got {type(other).__name__}."
        )

    def _compare(self, op: Op, other: Any, reverse: bool = False) -> Self:
        have = self.node.dtype
        if type(other) is int and have.is_integer and not have.min <= other <= have.max:
            # a number beyond the format compares as what it is: below, above, or unequal to every element
            above = other > have.max
            less = op in (Op.CMPLT, Op.CMPLE)
            truth = op is Op.CMPNE or (less and above is not reverse)
            return self._like(filled(truth, self.node.shape, dtypes.bool))
        return self._binary(op, other, reverse, dtypes.bool)

    def _unary(self, op: Op) -> Self:
        dtype = self.node.dtype
        if dtype.rank == 1 and dtype.is_storage_only:
            return self.cast(dtypes.float32)._unary(op).cast(dtype)
        return self._like(Node(op, dtype, (self.node,)))

    def _float(self) -> Self:
        """Itself if floating point, else as float32."""
        return self if self.node.dtype.is_float else self.cast(dtypes.float32)

    def _float_unary(self, op: Op) -> Self:
        node = self.node if self.node.dtype.is_float else self.node.cast(dtypes.float32)
        if node.dtype.rank == 1 and node.dtype.is_storage_only:
            return self._unary(op)
        return self._like(Node(op, node.dtype, (node,)))

    # -- arithmetic --

    def __add__(self, other: Any) -> Self:
        """self + other: shapes broadcast, dtypes promote.

        >>> (hcq.tensor([1, 2]) + hcq.tensor([[10], [20]])).tolist()
        [[11, 12], [21, 22]]
        """
        return self._binary(Op.ADD, other)

    def add(self, other: Any, alpha: Any = 1) -> Self:
        """self + alpha * other; shapes broadcast, dtypes promote.

        >>> hcq.tensor([1, 2]).add(hcq.tensor([10]), alpha=3).tolist()
        [31, 32]
        """
        if type(alpha) is int and alpha == 1:
            return self._binary(Op.ADD, other)
        return self._plus_weighed("add", other, alpha)

    @in_float_together
    def _plus_weighed(self, call: str, other: Any, alpha: Any) -> Self:
        other = self._weighed(call, other, alpha)
        return self + other if call == "add" else self - other

    def _weighed(self, call: str, other: Any, alpha: Any) -> Any:
        """alpha * other, which keeps its dtype; whole tensors have no fractions."""
        if type(alpha) is int and alpha == 1:
            return other
        other = self._operand(call, other)
        kinds = (self.node.dtype, other.node.dtype)
        if isinstance(alpha, float) and not any(dtype.is_float for dtype in kinds):
            raise UsageError(
                f"[{call}] alpha={alpha} for {kinds[0].name} and {kinds[1].name}: give a whole one."
            )
        dtype = met(self.node, other.node)
        if dtype.is_bool:
            return other & bool(alpha)
        # bools and integers are weighed as what they are added to
        if other.node.dtype.kind is not dtype.kind:
            other = other.cast(dtype)
        return other * alpha

    def __radd__(self, other: Any) -> Self:
        return self._binary(Op.ADD, other, reverse=True)

    def __sub__(self, other: Any) -> Self:
        """self - other: shapes broadcast, dtypes promote. Raises UsageError for two bools."""
        if type(other) is float or type(other) is int:
            self._refuse_bool("-")
            return self._binary(Op.ADD, -other)
        other = self._operand("-", other)
        if other.is_complex():
            return in_complex("-", self, other)  # type: ignore[no-any-return]
        if self.node.dtype.is_bool and other.node.dtype.is_bool:
            self._refuse_bool("-")
        if (
            other.node.dtype.rank < self.node.dtype.rank
            or other.node.dtype.is_unsigned
            or other.node.dtype.is_bool
        ):
            # negate in the dtype both meet in: -uint8(1) would be 255 in a wider sum
            other = other.cast(met(self.node, other.node))
        return self._binary(Op.ADD, other._unary(Op.NEG))

    def sub(self, other: Any, alpha: Any = 1) -> Self:
        """self - alpha * other; shapes broadcast, dtypes promote. Raises UsageError for two bools.

        >>> hcq.tensor([10, 20]).sub(hcq.tensor([1]), alpha=3).tolist()
        [7, 17]
        """
        if type(alpha) is int and alpha == 1:
            return self - other
        return self._plus_weighed("sub", other, alpha)

    def __rsub__(self, other: Any) -> Self:
        self._refuse_bool("-")
        if isinstance(other, (int, float)):
            wanted = promote_scalar(self.node.dtype, other)
            return self.cast(wanted)._unary(Op.NEG)._binary(Op.ADD, other, reverse=True)
        return self._operand("-", other) - self

    def __mul__(self, other: Any) -> Self:
        """self * other: shapes broadcast, dtypes promote.

        >>> hcq.tensor([1, 2]).mul(hcq.tensor([[1], [10]])).tolist(), hcq.tensor([3]).mul(0.5).tolist()
        ([[1, 2], [10, 20]], [1.5])
        """
        return self._binary(Op.MUL, other)

    mul = __mul__

    def __rmul__(self, other: Any) -> Self:
        return self._binary(Op.MUL, other, reverse=True)

    def __truediv__(self, other: Any) -> Self:
        """self / other: shapes broadcast; integers are divided as float32. By zero it is an infinity or NaN.

        >>> hcq.tensor([1, 2, 0]).true_divide(hcq.tensor([2, 0, 0])).tolist()
        [0.5, inf, nan]
        """
        return self._divide(other, reverse=False)

    def div(self, other: Any, rounding_mode: str | None = None) -> Self:
        """self / other; or the quotient rounded down ("floor": self // other), or towards zero ("trunc").

        >>> hcq.tensor([-7, 7]).div(2, rounding_mode="trunc").tolist()
        [-3, 3]
        """
        if rounding_mode is None:
            return self._divide(other, reverse=False)
        if rounding_mode == "floor":
            return self.__floordiv__(other)
        if rounding_mode != "trunc":
            raise UsageError(
                f"[div] rounding_mode={rounding_mode!r} is unknown. Use None, 'floor' or 'trunc'."
            )
        other = self._operand("div", other)
        if self.node.dtype.is_float or other.node.dtype.is_float:
            return self._divide(other, reverse=False).trunc()
        down, rest = self.__floordiv__(other), self.__mod__(other)
        return ((rest != 0) & (down < 0)).where(down + 1, down)

    true_divide = __truediv__

    def __rtruediv__(self, other: Any) -> Self:
        return self._divide(other, reverse=True)

    def _divide(self, other: Any, reverse: bool) -> Self:
        if self.node.dtype.is_float:
            return self._binary(Op.DIV, other, reverse)
        if isinstance(other, (bool, int, float)) or not self._operand("/", other).dtype.is_float:
            other = other if isinstance(other, (bool, int, float)) else self._operand("/", other)._float()
            return self.cast(dtypes.float32)._binary(Op.DIV, other, reverse)
        return self._binary(Op.DIV, other, reverse)

    def __neg__(self) -> Self:
        """-self; of unsigned integers it wraps. Raises UsageError for bool.

        >>> hcq.tensor([1, -2]).neg().tolist(), Tensor([1], dtype=hcq.uint8).neg().tolist()
        ([-1, 2], [255])
        """
        self._refuse_bool("-")
        return self._unary(Op.NEG)

    neg = __neg__

    def __pos__(self) -> Self:
        return self

    # -- comparisons: `==` compares elements, so tensors hash by identity --

    def __lt__(self, other: Any) -> Self:
        """self < other: bool; shapes broadcast.

        >>> hcq.tensor([1, 2, 3]).lt(2).tolist()
        [True, False, False]
        """
        return self._compare(Op.CMPLT, other)

    lt = __lt__

    def __le__(self, other: Any) -> Self:
        """self <= other: bool; shapes broadcast.

        >>> hcq.tensor([1, 2]).le(hcq.tensor([[1], [2]])).tolist()
        [[True, False], [True, True]]
        """
        return self._compare(Op.CMPLE, other)

    le = __le__

    def __gt__(self, other: Any) -> Self:
        """self > other: bool; shapes broadcast.

        >>> hcq.tensor([1, 2, 3]).gt(2).tolist()
        [False, False, True]
        """
        return self._compare(Op.CMPLT, other, reverse=True)

    gt = __gt__

    def __ge__(self, other: Any) -> Self:
        """self >= other: bool; shapes broadcast.

        >>> hcq.tensor([1, 2, 3]).ge(2).tolist()
        [False, True, True]
        """
        return self._compare(Op.CMPLE, other, reverse=True)

    ge = __ge__

    def __eq__(self, other: Any) -> Self:  # type: ignore[override]
        return NotImplemented if other is None or type(other) is str else self._compare(Op.CMPEQ, other)

    def eq(self, other: Any) -> Self:
        """self == other: bool; shapes broadcast.

        >>> Tensor([1.0, float("nan")]).eq(Tensor([1.0, float("nan")])).tolist()
        [True, False]
        """
        return self == other

    def __ne__(self, other: Any) -> Self:  # type: ignore[override]
        return NotImplemented if other is None or type(other) is str else self._compare(Op.CMPNE, other)

    def ne(self, other: Any) -> Self:
        """self != other: bool; shapes broadcast.

        >>> hcq.tensor([1, 2]).ne(1).tolist()
        [False, True]
        """
        return self != other

    __hash__ = object.__hash__

    # -- bits --

    def __and__(self, other: Any) -> Self:
        return self._bitwise(Op.AND, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Self:
        return self._bitwise(Op.OR, other)

    __ror__ = __or__

    def __xor__(self, other: Any) -> Self:
        return self._bitwise(Op.XOR, other)

    __rxor__ = __xor__

    def __lshift__(self, other: Any) -> Self:
        return self._shift(Op.SHL, other)

    def __rshift__(self, other: Any) -> Self:
        return self._shift(Op.SHR, other)

    def __invert__(self) -> Self:
        """Not, for bool; the bits inverted, for integers."""
        if self.node.dtype.is_float:
            raise UsageError(
                f"[~] {self.node.dtype.name} has no bits to invert. Use bitcast, or a comparison."
            )
        return self._unary(Op.NOT)

    def logical_not(self) -> Self:
        """True where the element is zero; bool.

        >>> Tensor([0.0, 0.5]).logical_not().tolist()
        [True, False]
        """
        return self._unary(Op.NOT) if self.node.dtype.is_bool else self == 0

    def logical_and(self, other: Any) -> Self:
        """True where both are not zero; bool. Shapes broadcast.

        >>> hcq.tensor([0, 1, 2]).logical_and(hcq.tensor([1, 0, 3])).tolist()
        [False, False, True]
        """
        return self.cast(dtypes.bool) & self._operand("logical_and", other).cast(dtypes.bool)

    def logical_or(self, other: Any) -> Self:
        """True where either is not zero; bool. Shapes broadcast.

        >>> hcq.tensor([0, 0, 2]).logical_or(hcq.tensor([0, 1, 0])).tolist()
        [False, True, True]
        """
        return self.cast(dtypes.bool) | self._operand("logical_or", other).cast(dtypes.bool)

    def logical_xor(self, other: Any) -> Self:
        """True where exactly one is not zero; bool. Shapes broadcast.

        >>> hcq.tensor([0, 1, 2]).logical_xor(hcq.tensor([0, 0, 3])).tolist()
        [False, True, False]
        """
        return self.cast(dtypes.bool) ^ self._operand("logical_xor", other).cast(dtypes.bool)

    def _bitwise(self, op: Op, other: Any) -> Self:
        if not isinstance(other, (Core, bool, int, float)):
            other = self._operand(_SIGNS[op], other)
        for side in (self, other):
            if isinstance(side, float) or (isinstance(side, Core) and side.node.dtype.is_float):
                raise UsageError(
                    f"[{_SIGNS[op]}] floating point has no bitwise operators. Cast to an integer or bool."
                )
        if type(other) is int and op in (Op.AND, Op.OR, Op.XOR):
            other = _same_bits(other, self.node.dtype)
        return self._binary(op, other)

    def _shift(self, op: Op, count: Any) -> Self:
        if not self.node.dtype.is_integer:
            raise UsageError(
                f"[{_SIGNS[op]}] {self.node.dtype.name} is not shifted. Cast to an integer dtype."
            )
        if isinstance(count, int) and count < 0:
            raise UsageError(f"[{_SIGNS[op]}] shift by {count}: use a count of 0 or more.")
        if isinstance(count, int) and count >= self.node.dtype.bits:
            count = self.node.dtype.bits - 1 if op is Op.SHR and not self.node.dtype.is_unsigned else count
            if count >= self.node.dtype.bits:
                return self * 0
        return self._bitwise(op, count)

    def _refuse_bool(self, call: str) -> None:
        if self.node.dtype.is_bool:
            raise UsageError(
                f"[{call}] bool tensors are not subtracted or negated. Use ~ or ^, or cast to an integer."
            )


def _plain(value: Any) -> Scalar:
    """A Python bool, int or float, of a NumPy number or of a subclass."""
    found = value.item() if hasattr(value, "item") else value
    if isinstance(found, complex):
        raise NotReal(f"[Tensor] {shown(value)} is complex. Take a real number, or numbers on both sides.")
    if not isinstance(found, (bool, int, float)):
        raise UsageError(f"[Tensor] {shown(value)} is no number. Give a number, or a tensor of numbers.")
    kind = bool if isinstance(found, bool) else int if isinstance(found, int) else float
    return kind(found)


def _same_bits(number: int, dtype: DType) -> int:
    """The number of a format that has the bits of this one: 0xFFFFFFFF is -1 in int32, -2 is 254 in uint8."""
    count = 1 << (8 * dtype.itemsize)
    if not dtype.is_integer or dtype.min <= number <= dtype.max or not -count // 2 <= number < count:
        return number
    return number + count if number < 0 else number - count


def _number(call: str, value: Scalar, dtype: DType) -> Node:
    """A Python number beside a tensor of that dtype."""
    if dtype.is_unsigned and value < 0 and call in "+*&|^" and -value <= dtype.max:
        value = int(value) & int(dtype.max)  # x - 1 is x + (-1): it wraps, and comes out right
    return constant(call, value, dtype)
