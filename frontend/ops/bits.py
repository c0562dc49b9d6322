"""Bits: bitwise operators by name, and the divisors and multiples of whole numbers.

In       tensors of integers or bool, and Python integers
Out      lazy tensors, elementwise
Next     elementwise.py (the operators & | ^ ~ << >>)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.base import Methods, Self
from hcq.ir.op import Op


class Bits(Methods):
    """bitwise_and and its relatives, shifts, gcd, lcm."""

    __slots__ = ()

    def bitwise_and(self, other: Any) -> Self:
        """self & other, of integers or bool; shapes broadcast.

        >>> hcq.tensor([12, 10]).bitwise_and(6).tolist()
        [4, 2]
        """
        return self & other

    def bitwise_or(self, other: Any) -> Self:
        """self | other, of integers or bool; shapes broadcast.

        >>> hcq.tensor([12, 10]).bitwise_or(hcq.tensor([[1], [0]])).tolist()
        [[13, 11], [12, 10]]
        """
        return self | other

    def bitwise_xor(self, other: Any) -> Self:
        """self ^ other, of integers or bool; shapes broadcast.

        >>> hcq.tensor([12, 10]).bitwise_xor(6).tolist()
        [10, 12]
        """
        return self ^ other

    def bitwise_not(self) -> Self:
        """~self, of integers or bool.

        >>> hcq.tensor([0, 5]).bitwise_not().tolist(), hcq.tensor([True]).bitwise_not().tolist()
        ([-1, -6], [False])
        """
        return ~self

    def bitwise_left_shift(self, other: Any) -> Self:
        """self << other, of integers; shapes broadcast.

        >>> hcq.tensor([1, 3]).bitwise_left_shift(2).tolist()
        [4, 12]
        """
        return self << other

    def bitwise_right_shift(self, other: Any) -> Self:
        """self >> other, of integers, which keeps the sign; shapes broadcast.

        >>> hcq.tensor([8, -8]).bitwise_right_shift(1).tolist()
        [4, -4]
        """
        return self >> other

    def gcd(self, other: Any) -> Self:
        """The greatest whole number that divides both, 0 or more; of 0 and x it is |x|. Shapes broadcast.

        >>> hcq.tensor([12, 0, -6]).gcd(hcq.tensor([18, 5, 4])).tolist()
        [6, 5, 2]
        """
        a, b = self._whole_pair("gcd", other)
        a, b = a.abs(), b.abs()
        # Euclid's rests, of which Fibonacci's numbers need the most: 1.44 for every bit; a % 0 is 0
        for _ in range(-(-3 * a.node.dtype.bits // 2)):
            a, b = (b == 0).where(a, b), a._binary(Op.MOD, b)
        return a

    def lcm(self, other: Any) -> Self:
        """The least whole number that both divide, 0 or more; 0 if either is 0. Shapes broadcast.

        >>> hcq.tensor([4, 0]).lcm(hcq.tensor([6, 5])).tolist()
        [12, 0]
        """
        a, b = self._whole_pair("lcm", other)
        divisor = a.gcd(b)
        return (a._binary(Op.FLOORDIV, divisor) * b).abs()

    def _whole_pair(self, call: str, other: Any) -> tuple[Self, Self]:
        """Both in one integer dtype."""
        other = self._operand(call, other)
        x, y = self + other * 0, other + self * 0
        if not x.node.dtype.is_integer:
            raise UsageError(f"[{call}] {x.node.dtype.name}: give whole numbers. Cast to an integer first.")
        return x, y
