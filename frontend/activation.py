"""Activations and special functions: what exponentials and short polynomials add up to.

In       tensors
Out      lazy tensors, elementwise; float16 and bfloat16 are computed in float32 and rounded once
Changes  nothing
Next     elementwise.py (what they are made of), normalisation.py (softmax)

Each function is written so that no branch overflows or divides by zero, chosen or not: a gradient flows through both
branches of a WHERE, and zero times infinity would be NaN.

erf and tanh are Chebyshev interpolations, computed with 60 digits: erf(x) = x + x P(x*x) below 1 and 1 - exp(Q(x))
above, tanh(x) = x + x*x*x T(x*x) below 0.625. Measured against 60 digits: float32 erf within 1e-7 and float64 erf
within 6e-16 of the true value; tanh's polynomial within one unit in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from hcq.frontend.elementwise import Elementwise
from hcq.frontend.errors import UsageError
from hcq.ir.dtype import dtypes

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

Method = TypeVar("Method", bound="Callable[..., Any]")

# polynomials in u = -1..1 over the interval, lowest power first
ERF_SMALL = (
    -0.0345312613, -0.140536097, 0.0198524971, -0.00228541954, 0.000217513542, -1.7669068e-05, 1.23060548e-06,
)  # fmt: skip
ERF_LARGE = (
    -7.80681527, -8.02902101, -2.12376083, -0.036647578, 0.0109618492, -0.00319030541, 0.000880397082,
    -0.000227499504, 4.19584001e-05,
)  # fmt: skip
ERF_SMALL_DOUBLE = (
    -0.0345312613301327, -0.1405360890227171, 0.019852496688983708, -0.0022854855611440673, 0.00021751715604160108,
    -1.7537169441492004e-05, 1.2233827383524026e-06, -7.511569160710623e-08, 4.115800597661665e-09,
    -2.03524938661036e-10, 9.167606748998164e-12, -3.7910973708931526e-13, 1.4548169783352384e-14,
    -5.16472878942302e-16,
)  # fmt: skip
ERF_LARGE_DOUBLE = (
    -14.112437402148174, -18.165248970913016, -6.042206592138926, -0.08165090971439136, 0.03412841107861726,
    -0.014384548419142522, 0.005953704505736826, -0.002373996216234013, 0.0008935762292845317,
    -0.0003078266389515353, 9.090329371139073e-05, -1.844578761685015e-05, -1.4873354701650487e-06,
    4.491179093423007e-06, -3.396241577904518e-06, 2.0451592141479466e-06, -9.579446644955513e-07,
    2.4376352916173845e-07, -8.379755694008993e-08, 1.228503072813145e-07, -3.453682785449283e-08,
    -3.6907860060516e-08, 1.7457528169557006e-08,
)  # fmt: skip
TANH = (
    -0.309199405, 0.022366107, -0.00163814501, 0.0001201393, -8.88385243e-06, 6.5163727e-07,
)  # fmt: skip
TANH_DOUBLE = (
    -0.30919940343634716, 0.022366106880724674, -0.0016381718893254224, 0.00012014127204549315,
    -8.812299776083873e-06, 6.46388815957696e-07, -4.741320310160554e-08, 3.477803434685169e-09,
    -2.5510009060597077e-10, 1.8709587619955826e-11, -1.3723655189380783e-12, 1.0245583684859068e-13,
    -7.515230189393391e-15,
)  # fmt: skip
TANH_LIMIT = 0.625


def in_float(method: Method) -> Method:
    """Compute at least in float32: integers become float32, narrow floats are rounded once, at the end."""

    @wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        have = self.node.dtype
        if have.is_float and have.itemsize >= 4:
            return method(self, *args, **kwargs)
        result = method(self.cast(dtypes.float32), *args, **kwargs)
        return result.cast(have) if have.is_float else result

    return wrapped  # type: ignore[return-value]


class Activation(Elementwise):
    """relu and its kin, sigmoid, tanh, erf, and logarithms near one."""

    __slots__ = ()

    def _polynomial(self, coefficients: Sequence[float], low: float, high: float) -> Self:
        """The polynomial whose coefficients are for u = -1..1, at x = low..high. Horner's order."""
        u = self * (2.0 / (high - low)) - (high + low) / (high - low)
        result = u * coefficients[-1] + coefficients[-2]
        for coefficient in reversed(coefficients[:-2]):
            result = result * u + coefficient
        return result

    @property
    def _is_double(self) -> bool:
        return self.node.dtype is dtypes.float64

    @in_float
    def erf(self) -> Self:
        """The error function."""
        inside = self.clamp(-1.0, 1.0)
        small = inside + inside * (inside * inside)._polynomial(
            ERF_SMALL_DOUBLE if self._is_double else ERF_SMALL, 0.0, 1.0
        )
        top = 6.0 if self._is_double else 4.0
        size = self.abs().clamp(1.0, top)
        rest = size._polynomial(ERF_LARGE_DOUBLE if self._is_double else ERF_LARGE, 1.0, top).exp()
        large = 1.0 - rest
        return (self.abs() < 1.0).where(small, (self < 0.0).where(-large, large))

    @in_float
    def tanh(self) -> Self:
        """Hyperbolic tangent."""
        inside = self.clamp(-TANH_LIMIT, TANH_LIMIT)
        square = inside * inside
        small = inside + inside * square * square._polynomial(
            TANH_DOUBLE if self._is_double else TANH, 0.0, TANH_LIMIT * TANH_LIMIT
        )
        size = self.abs()
        shrunk = (size * -2.0).exp()
        large = (1.0 - shrunk) / (1.0 + shrunk)
        return (size < TANH_LIMIT).where(small, (self < 0.0).where(-large, large))

    @in_float
    def sigmoid(self) -> Self:
        """1 / (1 + exp(-x))."""
        is_negative = self < 0.0
        small = is_negative.where(self, -self).exp()
        return is_negative.where(small, 1.0) / (small + 1.0)

    def relu(self) -> Self:
        """max(x, 0)."""
        return self.maximum(0)

    def relu6(self) -> Self:
        """Held between 0 and 6."""
        return self.clamp(0, 6)

    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """x, or its small multiple below zero."""
        return (self > 0).where(self, self * negative_slope)

    @in_float
    def elu(self, alpha: float = 1.0) -> Self:
        """x, or alpha * (exp(x) - 1) below zero."""
        return (self > 0.0).where(self, self.minimum(0.0).expm1() * alpha)

    def selu(self) -> Self:
        """The self-normalising elu."""
        alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
        return self.elu(alpha) * scale

    @in_float
    def gelu(self, approximate: str = "none") -> Self:
        """x times the normal distribution's integral: by erf ("none"), or by PyTorch's "tanh" formula."""
        if approximate == "tanh":
            return (
                0.5
                * self
                * (1.0 + (math.sqrt(2.0 / math.pi) * (self + 0.044715 * self * self * self)).tanh())
            )
        if approximate != "none":
            raise UsageError(f"[gelu] approximate={approximate!r} is unknown. Use 'none' or 'tanh'.")
        return 0.5 * self * (1.0 + (self * math.sqrt(0.5)).erf())

    @in_float
    def silu(self) -> Self:
        """x * sigmoid(x)."""
        return self * self.sigmoid()

    swish = silu

    @in_float
    def mish(self) -> Self:
        """x * tanh(softplus(x))."""
        return self * self.softplus().tanh()

    @in_float
    def softplus(self, beta: float = 1.0, threshold: float = 20.0) -> Self:
        """log(1 + exp(beta * x)) / beta; x itself where beta * x is beyond the threshold."""
        scaled = self * beta
        is_negative = scaled < 0.0
        soft = (scaled.maximum(0.0) + is_negative.where(scaled, -scaled).exp().log1p()) / beta
        return (scaled > threshold).where(self, soft)

    @in_float
    def logsigmoid(self) -> Self:
        """log(sigmoid(x)), without overflow."""
        is_negative = self < 0.0
        return self.minimum(0.0) - is_negative.where(self, -self).exp().log1p()

    def softsign(self) -> Self:
        """x / (1 + |x|)."""
        return self / (self.abs() + 1)

    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Self:
        """Held between two numbers."""
        return self.clamp(min_val, max_val)

    def hardsigmoid(self) -> Self:
        """relu6(x + 3) / 6."""
        return (self + 3).relu6() / 6

    def hardswish(self) -> Self:
        """x * relu6(x + 3) / 6."""
        return self * self.hardsigmoid()

    @in_float
    def log1p(self) -> Self:
        """log(1 + x), precise near zero: the error of 1 + x is divided out."""
        total = self + 1.0
        step = total - 1.0
        is_tiny = step == 0.0
        is_plain = is_tiny | ~total.isfinite() | (total <= 0.0)
        ratio = self / is_plain.where(1.0, step)
        return is_tiny.where(self, total.log() * is_plain.where(1.0, ratio))

    @in_float
    def expm1(self) -> Self:
        """exp(x) - 1, precise near zero, where it is a Taylor polynomial."""
        limit, terms = 0.5, 17 if self._is_double else 9
        inside = self.clamp(-limit, limit)
        small = inside * (1.0 / math.factorial(terms)) + 1.0 / math.factorial(terms - 1)
        for n in range(terms - 2, 0, -1):
            small = small * inside + 1.0 / math.factorial(n)
        return (self.abs() < limit).where(small * inside, self.exp() - 1.0)

    @in_float
    def sinh(self) -> Self:
        """Hyperbolic sine."""
        grown = self.abs().expm1()
        size = 0.5 * (grown + grown / (grown + 1.0))
        size = (self.abs() > 80.0).where(0.5 * self.abs().exp(), size)
        return (self < 0.0).where(-size, size)

    @in_float
    def cosh(self) -> Self:
        """Hyperbolic cosine."""
        return 0.5 * (self.exp() + (-self).exp())
