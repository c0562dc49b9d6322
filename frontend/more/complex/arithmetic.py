"""Arithmetic of complex tensors: operators, comparisons, choice, sums and products.

In       complex tensors beside real ones, numbers and arrays
Out      lazy tensors: complex ones, real ones of sizes and deviations, bool ones of comparisons
Next     functions.py (exp, sqrt, sin), products.py (matmul and related products)

A real operand stays real: that is half the multiplications, and an infinity in one part makes no NaN in the other.
"""

from __future__ import annotations

from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.complex.pair import Pair
from hcq.frontend.ops.base import Axes
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import ComplexDType, DType, dtypes
from hcq.ir.dtype import DType as AnyDType


class Arithmetic(Pair):
    """+ - * / ** == !=, where, and what reduces axes."""

    __slots__ = ()

    # -- operators --

    def _met(self, call: str, other: Any) -> Any:
        """The other operand as a tensor, real or complex, on the same device."""
        if isinstance(other, (bool, int, float)) and not hasattr(other, "dtype"):
            return other
        found = self._operand(call, other)
        if found.device != self.device:
            self._same_device(call, found)
        return found

    def __add__(self, other: Any) -> Any:
        """self + other: shapes broadcast, dtypes promote."""
        other = self._met("+", other)
        if isinstance(other, Pair):
            return self.of(self.real + other.real, self.imag + other.imag)
        real = self.real + other
        return self.of(real, self.imag.expand(real.shape))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        """self - other: shapes broadcast, dtypes promote."""
        other = self._met("-", other)
        if isinstance(other, Pair):
            return self.of(self.real - other.real, self.imag - other.imag)
        real = self.real - other
        return self.of(real, self.imag.expand(real.shape))

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def __mul__(self, other: Any) -> Any:
        """self * other: shapes broadcast, dtypes promote."""
        other = self._met("*", other)
        if not isinstance(other, Pair):
            return self.of(self.real * other, self.imag * other)
        (a, b), (c, d) = self.parts, other.parts
        return self.of(a * c - b * d, a * d + b * c)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        """self / other: shapes broadcast; of zero, infinities or NaN."""
        other = self._met("/", other)
        if not isinstance(other, Arithmetic):
            return self.of(self.real / other, self.imag / other)
        (a, b), ((c, d), scale, size) = self.parts, other._scaled()
        return self.of((a * c + b * d) / size / scale, (b * c - a * d) / size / scale)

    def __rtruediv__(self, other: Any) -> Any:
        other = self._met("/", other)
        if isinstance(other, Pair):
            return other / self
        (c, d), scale, size = self._scaled()
        return self.of(c * other / size / scale, -d * other / size / scale)

    def _scaled(self) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
        """Both parts by the larger of them, that, and the square of the size then: nothing overflows."""
        scale = self.real.abs().maximum(self.imag.abs()).detach()
        real, imag = self.real / scale, self.imag / scale
        return (real, imag), scale, real * real + imag * imag

    def __neg__(self) -> Any:
        """-self."""
        return self.of(-self.real, -self.imag)

    def __pow__(self, exponent: Any) -> Any:
        """self ** exponent: by multiplication for small whole numbers, else exp(exponent * log(self))."""
        if isinstance(exponent, (bool, int, float)) and float(exponent).is_integer() and abs(exponent) <= 32:
            return self._multiplied(int(exponent))
        other = self._met("**", exponent)
        power = (self.log() * other).exp()
        if isinstance(other, (bool, int, float)):
            other = self._operand("**", other)
        nothing = (other == 0).where(1.0, 0.0).cast(power.real.dtype)
        has_none = (self == 0).expand(power.shape)
        return self.of(
            has_none.where(nothing.expand(power.shape), power.real), has_none.where(0.0, power.imag)
        )

    def _multiplied(self, times: int) -> Any:
        if times < 0:
            return 1.0 / self._multiplied(-times)
        if times == 0:
            return self.ones_like()
        half = self._multiplied(times // 2) if times > 1 else None
        if half is None:
            return self
        return half * half * self if times % 2 else half * half

    def __rpow__(self, base: Any) -> Any:
        return self.of(self._operand("**", base)) ** self

    def add(self, other: Any, alpha: Any = 1) -> Any:
        """self + alpha * other."""
        return self + (other if alpha == 1 else self._met("add", other) * alpha)

    def sub(self, other: Any, alpha: Any = 1) -> Any:
        """self - alpha * other."""
        return self - (other if alpha == 1 else self._met("sub", other) * alpha)

    def mul(self, other: Any) -> Any:
        """self * other."""
        return self * other

    def div(self, other: Any, rounding_mode: str | None = None) -> Any:
        """self / other. Raises UsageError for a rounding_mode: complex numbers are not rounded."""
        if rounding_mode is not None:
            raise UsageError(
                f"[div] rounding_mode={rounding_mode!r}: complex numbers are not rounded. Leave it out."
            )
        return self / other

    def true_divide(self, other: Any) -> Any:
        """self / other."""
        return self / other

    def neg(self) -> Any:
        """-self."""
        return -self

    def pow(self, exponent: Any) -> Any:
        """self ** exponent."""
        return self**exponent

    def rsub(self, other: Any, alpha: Any = 1) -> Any:
        """other - alpha * self."""
        return self._met("rsub", other) - self * alpha

    def reciprocal(self) -> Any:
        """1 / self."""
        return 1.0 / self

    def square(self) -> Any:
        """self * self."""
        return self * self

    # -- comparisons and choice --

    def __eq__(self, other: Any) -> Any:
        if other is None or type(other) is str:
            return NotImplemented
        other = self._met("==", other)
        if isinstance(other, Pair):
            return (self.real == other.real) & (self.imag == other.imag)
        return (self.real == other) & (self.imag == 0.0)

    def __ne__(self, other: Any) -> Any:
        return NotImplemented if other is None or type(other) is str else ~(self == other)

    __hash__ = object.__hash__

    def equal(self, other: Any) -> bool:
        """True if shape and every element are equal."""
        return self.shape == other.shape and bool((self == other).all())

    def isclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
        """|self - other| <= atol + rtol * |other|, or equal."""
        other = self.of(self._operand("isclose", other))
        near = (self - other).abs() <= other.abs() * rtol + atol
        close = (self == other) | (near & other.isfinite() & self.isfinite())
        return close | (self.isnan() & other.isnan()) if equal_nan else close

    @classmethod
    def chosen(cls, condition: Tensor, if_true: Any, if_false: Any) -> Any:
        """`condition.where(if_true, if_false)` where one of them is complex."""
        sides = [
            cls.of(x if isinstance(x, Tensor) else Tensor(x, condition.device)) for x in (if_true, if_false)
        ]
        real, imag = ([side.parts[which] for side in sides] for which in (0, 1))
        return cls.of(condition.where(*real), condition.where(*imag))

    def where(self, if_true: Any = None, if_false: Any = None) -> Any:
        """`if_true` where this is not zero, else `if_false`; alone the indices of what is not zero."""
        return (self != 0).where(if_true, if_false)

    def isnan(self) -> Any:
        """True where either part is NaN."""
        return self.real.isnan() | self.imag.isnan()

    def isinf(self) -> Any:
        """True where either part is an infinity."""
        return self.real.isinf() | self.imag.isinf()

    def isfinite(self) -> Any:
        """True where both parts are finite."""
        return self.real.isfinite() & self.imag.isfinite()

    def isreal(self) -> Any:
        """True where the imaginary part is zero."""
        return self.imag == 0.0

    def logical_not(self) -> Any:
        """True where an element is zero."""
        return self == 0

    def any(self, dim: Axes = None, keepdim: bool = False) -> Any:
        """True where an element of the axes is not zero."""
        return (self != 0).any(dim, keepdim)

    def all(self, dim: Axes = None, keepdim: bool = False) -> Any:
        """True where no element of the axes is zero."""
        return (self != 0).all(dim, keepdim)

    def nonzero(self, as_tuple: bool = False) -> Any:
        """Where elements are not zero: see `Tensor.nonzero`."""
        return (self != 0).nonzero(as_tuple)

    def argwhere(self) -> Any:
        """Where elements are not zero."""
        return (self != 0).argwhere()

    # -- sums --

    def sum(self, dim: Axes = None, keepdim: bool = False, dtype: AnyDType | None = None) -> Any:
        """Sums over axes: see `Tensor.sum`."""
        z = self if dtype is None else self.cast(dtype)
        return z.of(z.real.sum(dim, keepdim), z.imag.sum(dim, keepdim))

    def mean(self, dim: Axes = None, keepdim: bool = False, dtype: AnyDType | None = None) -> Any:
        """Means over axes."""
        z = self if dtype is None else self.cast(dtype)
        return z.of(z.real.mean(dim, keepdim), z.imag.mean(dim, keepdim))

    def cumsum(self, dim: int, dtype: AnyDType | None = None) -> Any:
        """Sums of the elements up to each, along an axis."""
        z = self if dtype is None else self.cast(dtype)
        return z.of(z.real.cumsum(dim), z.imag.cumsum(dim))

    def prod(self, dim: Axes = None, keepdim: bool = False, dtype: AnyDType | None = None) -> Any:
        """Products of all elements, or along an axis: halves are multiplied with each other until one is left."""
        z = self if dtype is None else self.cast(dtype)
        if dim is None:
            return z.reshape(-1).prod(0) if z.ndim != 1 else z.prod(0)
        axes = z._axes("prod", dim)
        if len(axes) > 1:
            raise UsageError(f"[prod] dim={dim}: complex numbers are multiplied along one axis at a time.")
        axis = axes[0] if axes else 0
        if not z.ndim:
            return z
        while z.shape[axis] > 1:
            half = z.shape[axis] // 2
            product = (z.narrow(axis, 0, half) * z.narrow(axis, half, half)).contiguous()
            z = product if z.shape[axis] == 2 * half else product.cat(z.narrow(axis, 2 * half, 1), dim=axis)
        if not z.shape[axis]:
            z = z.of(z.real.prod(axis, True), z.real.sum(axis, True))
        return z if keepdim else z.squeeze(axis)

    def var(
        self,
        dim: Axes | bool = None,
        correction: float | bool | None = 1,
        keepdim: bool = False,
        unbiased: bool | None = None,
    ) -> Any:
        """The variance, a real number: that of the real and that of the imaginary parts together."""
        return self.real.var(dim, correction, keepdim, unbiased) + self.imag.var(
            dim, correction, keepdim, unbiased
        )

    def std(
        self,
        dim: Axes | bool = None,
        correction: float | bool | None = 1,
        keepdim: bool = False,
        unbiased: bool | None = None,
    ) -> Any:
        """The root of the variance, a real number."""
        return self.var(dim, correction, keepdim, unbiased).sqrt()

    def norm(
        self,
        p: float | str | None = 2.0,
        dim: Axes = None,
        keepdim: bool = False,
        dtype: AnyDType | None = None,
    ) -> Any:
        """A norm of the sizes of the elements: see `Tensor.norm`."""
        return self.abs().norm(p, dim, keepdim, dtype)

    def dist(self, other: Any, p: float = 2.0) -> Any:
        """The norm of the difference."""
        return (self - other).norm(p)

    # -- conversion and creation --

    def cast(self, dtype: AnyDType) -> Any:
        """In another complex dtype, or as bool. Raises UsageError for real dtypes, which would lose imaginary parts."""
        if isinstance(dtype, ComplexDType):
            return (
                self.of(self.real.cast(dtype.part), self.imag.cast(dtype.part))
                if dtype is not self.dtype
                else self
            )
        if dtype is dtypes.bool:
            return self != 0
        name = dtype.name if isinstance(dtype, DType) else shown(dtype)
        raise UsageError(
            f"[cast] {self.dtype.name} to {name} would lose the imaginary parts. Take z.real, z.imag or z.abs()."
        )

    type = cast  # type: ignore[assignment]
