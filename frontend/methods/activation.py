"""Activations and special functions: what exponentials and short polynomials add up to.

In       tensors
Out      lazy tensors, elementwise; float16 and bfloat16 are computed in float32 and rounded once
Changes  nothing
Next     functions.py (what they are made of), normalisation.py (softmax)

A function without a slope of its own is written so that no branch overflows or divides by zero, chosen or not: a
gradient flows through both branches of a WHERE, and zero times infinity would be NaN.

The polynomials are Chebyshev interpolations, computed with 60 digits: erf(x) = x + x P(x*x) below 1.5 and
1 - exp(Q(x)) above, tanh(x) = x + x*x*x T(x*x) below 0.625, log(1 + x) = x L(x) up to 1. Measured against 60 digits:
float32 erf is within 1e-7 and float64 erf within 3e-16 of the true value; the other two are within two units in the
last place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from hcq.frontend.derivatives import FLAT
from hcq.frontend.errors import UsageError
from hcq.frontend.function import Function
from hcq.frontend.methods.power import Power
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, binary, const
from hcq.ir.op import Op

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

Method = TypeVar("Method", bound="Callable[..., Any]")

# polynomials in u = -1..1 over the interval, lowest power first
ERF_SMALL = (
    -0.183163825, -0.225252541, 0.0659087932, -0.0162875958, 0.00338507239, -0.000601298015, 9.29996283e-05,
    -1.30993858e-05, 1.5922933e-06,
)  # fmt: skip
ERF_LARGE = (
    -9.20414041, -7.28316991, -1.48638553, -0.0174482703, 0.00416263699, -0.000976744424, 0.000219687696,
    -4.81863971e-05, 8.41816414e-06,
)  # fmt: skip
ERF_SMALL_DOUBLE = (
    -0.1831638252160808, -0.22525254703530073, 0.06590879382585493, -0.016287513685896374,
    0.003385064146382935, -0.0006015929077699525, 9.302926096053098e-05, -1.2707918383759878e-05,
    1.5529303865526946e-06, -1.7156358888642715e-07, 1.7287459552144963e-08, -1.6007393126267927e-09,
    1.3708008618510665e-10, -1.0916736667787404e-11, 8.122804244789699e-13, -5.6726822920392656e-14,
    3.793889128621108e-15, -2.354686638769092e-16,
)  # fmt: skip
ERF_LARGE_DOUBLE = (
    -15.989462741350012, -17.43840913857283, -4.912479535421998, -0.050539207612596004, 0.01820807955177775,
    -0.006651564473325547, 0.002401089665203146, -0.0008416387310764403, 0.0002816861806426225,
    -8.799804680147152e-05, 2.4621861121626683e-05, -5.5557532726882305e-06, 5.883544793565056e-07,
    3.4403842563436066e-07, -3.2990640231010754e-07, 1.833176363554484e-07, -7.537456688573687e-08,
    2.9256827471159658e-08, -1.5762161364704734e-08, 5.521590781531964e-09, 8.144448486980044e-10,
    -7.804952900512703e-10,
)  # fmt: skip
ERF_LIMIT = 1.5
TANH = (
    -0.309199405, 0.022366107, -0.00163814501, 0.0001201393, -8.88385243e-06, 6.5163727e-07,
)  # fmt: skip
TANH_DOUBLE = (
    -0.30919940343634716, 0.022366106880724674, -0.0016381718893254224, 0.00012014127204549315,
    -8.812299776083873e-06, 6.46388815957696e-07, -4.741320310160554e-08, 3.477803434685169e-09,
    -2.5510009060597077e-10, 1.8709587619955826e-11, -1.3723655189380783e-12, 1.0245583684859068e-13,
    -7.515230189393391e-15,
)  # fmt: skip
LOG1P = (
    0.81093022, -0.144263551, 0.0331522539, -0.00846102371, 0.00228970214, -0.000642599451, 0.000180901331,
    -5.30313824e-05, 2.05088698e-05, -6.20323636e-06,
)  # fmt: skip
LOG1P_DOUBLE = (
    0.8109302162163288, -0.14426354954966195, 0.03315243843855094, -0.008461080413870536,
    0.0022882409076902767, -0.0006421503724725223, 0.00018490300180466052, -5.426089824207432e-05,
    1.6156949099580387e-05, -4.866877333591529e-06, 1.4798682669311618e-06, -4.5354366598033807e-07,
    1.3990346886420576e-07, -4.331304783093553e-08, 1.3500470517435648e-08, -4.336548550414743e-09,
    1.363113923159679e-09, -3.420138797930341e-10, 1.0787232813120478e-10, -7.317042246170282e-11,
    2.330586809976668e-11,
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


class Activation(Power):
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
        inside = self.clamp(-ERF_LIMIT, ERF_LIMIT)
        small = inside + inside * (inside * inside)._polynomial(
            ERF_SMALL_DOUBLE if self._is_double else ERF_SMALL, 0.0, ERF_LIMIT * ERF_LIMIT
        )
        top = 6.0 if self._is_double else 4.0
        size = self.abs().clamp(ERF_LIMIT, top)
        rest = size._polynomial(ERF_LARGE_DOUBLE if self._is_double else ERF_LARGE, ERF_LIMIT, top).exp()
        large = 1.0 - rest
        value = (self.abs() < ERF_LIMIT).where(small, (self < 0.0).where(-large, large))
        return self._like(ERF.of(value.node, self.node))

    @in_float
    def tanh(self) -> Self:
        """Hyperbolic tangent."""
        inside = self.clamp(-TANH_LIMIT, TANH_LIMIT)
        square = inside * inside
        small = inside * (
            square
            * square._polynomial(TANH_DOUBLE if self._is_double else TANH, 0.0, TANH_LIMIT * TANH_LIMIT)
            + 1.0
        )
        size = self.abs()
        shrunk = (size * -2.0).exp()
        large = (1.0 - shrunk) / (1.0 + shrunk)
        value = (size < TANH_LIMIT).where(small, (self < 0.0).where(-large, large))
        return self._like(TANH_OF.of(value.node, self.node))

    @in_float
    def sigmoid(self) -> Self:
        """1 / (1 + exp(-x))."""
        is_negative = self < 0.0
        small = is_negative.where(self, -self).exp()
        value = is_negative.where(small, 1.0) / (small + 1.0)
        return self._like(SIGMOID.of(value.node, self.node))

    def relu(self) -> Self:
        """max(x, 0); at zero its slope is 0, as in PyTorch."""
        return (self <= 0).where(0, self)

    def relu6(self) -> Self:
        """Held between 0 and 6."""
        return self.hardtanh(0, 6)

    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """x, or its small multiple below zero."""
        return (self > 0).where(self, self * negative_slope)

    @in_float
    def elu(self, alpha: float = 1.0) -> Self:
        """x, or alpha * (exp(x) - 1) below zero."""
        value = (self > 0.0).where(self, self.expm1() * alpha)
        return self._like(ELU.of(value.node, self.node, const(alpha, self.node.dtype)))

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
        return self._like(SILU.of((self * self.sigmoid()).node, self.node))

    swish = silu

    @in_float
    def mish(self) -> Self:
        """x * tanh(softplus(x))."""
        return self._like(MISH.of((self * self.softplus().tanh()).node, self.node))

    @in_float
    def softplus(self, beta: float = 1.0, threshold: float = 20.0) -> Self:
        """log(1 + exp(beta * x)) / beta; x itself where beta * x is beyond the threshold."""
        scaled = self * beta
        is_negative = scaled < 0.0
        soft = (
            is_negative.where(0.0, scaled) + is_negative.where(scaled, -scaled).exp()._log1p_of_unit()
        ) / beta
        return (scaled > threshold).where(self, soft)

    @in_float
    def logsigmoid(self) -> Self:
        """log(sigmoid(x)), without overflow."""
        is_negative = self < 0.0
        return is_negative.where(self, 0.0) - is_negative.where(self, -self).exp()._log1p_of_unit()

    def softsign(self) -> Self:
        """x / (1 + |x|)."""
        return self / (self.abs() + 1)

    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Self:
        """Held between two numbers; unlike clamp, at them its slope is 0, as in PyTorch."""
        return (self <= min_val).where(min_val, (self >= max_val).where(max_val, self))

    def hardsigmoid(self) -> Self:
        """relu6(x + 3) / 6."""
        return (self + 3).relu6() / 6

    def hardswish(self) -> Self:
        """x * relu6(x + 3) / 6."""
        return self * self.hardsigmoid()

    def _log1p_of_unit(self) -> Self:
        """log(1 + x) for x = 0..1, precise near zero, without a logarithm or a division."""
        value = self * self._polynomial(LOG1P_DOUBLE if self._is_double else LOG1P, 0.0, 1.0)
        return self._like(LOG1P_OF.of(value.node, self.node))

    @in_float
    def log1p(self) -> Self:
        """log(1 + x), precise near zero: the error of 1 + x is divided out."""
        total = self + 1.0
        step = total - 1.0
        is_tiny = step == 0.0
        is_plain = is_tiny | ~total.isfinite() | (total <= 0.0)
        ratio = self / is_plain.where(1.0, step)
        value = is_tiny.where(self, total.log() * is_plain.where(1.0, ratio))
        return self._like(LOG1P_OF.of(value.node, self.node))

    @in_float
    def expm1(self) -> Self:
        """exp(x) - 1, precise near zero, where it is a Taylor polynomial."""
        limit, terms = 0.5, 17 if self._is_double else 9
        inside = self.clamp(-limit, limit)
        small = inside * (1.0 / math.factorial(terms)) + 1.0 / math.factorial(terms - 1)
        for n in range(terms - 2, 0, -1):
            small = small * inside + 1.0 / math.factorial(n)
        value = (self.abs() < limit).where(small * inside, self.exp() - 1.0)
        return self._like(EXPM1.of(value.node, self.node))

    @in_float
    def sinh(self) -> Self:
        """Hyperbolic sine."""
        is_negative = self < 0.0
        size = is_negative.where(-self, self)
        is_large = size > 80.0  # there the root of exp(x) is finite wherever the result is
        grown, root = is_large.where(0.0, size).expm1(), (0.5 * size).exp()
        size = is_large.where(0.5 * root * root, 0.5 * (grown + grown / (grown + 1.0)))
        return self._like(SINH.of(is_negative.where(-size, size).node, self.node))

    @in_float
    def cosh(self) -> Self:
        """Hyperbolic cosine."""
        return self._like(COSH.of(_cosh(self.node), self.node))


# -- derivatives: g times a graph of x ---------------------------------------------------------------------------------


def _exp(x: Node) -> Node:
    return Node(Op.EXP, x.dtype, (x,))


def _cosh(x: Node) -> Node:
    """By the root of exp(|x|), which is finite wherever the result is."""
    root = _exp((x < 0.0).where(x * -0.5, x * 0.5))
    half = root * 0.5 * root
    return half + binary(Op.DIV, const(0.25, x.dtype), half)


def _sinh(x: Node) -> Node:
    return Activation._of(x, "").sinh().node


def _bell(x: Node, width: float) -> Node:
    """4 * e / (1 + e) ** 2 for e = exp(-width * |x|): 1 at zero, and precise where 1 minus a square would cancel."""
    shrunk = _exp((x < 0.0).where(x * width, x * -width))
    above = shrunk + 1.0
    return binary(Op.DIV, shrunk * 4.0, above * above)


def _silu(x: Node) -> Node:
    return Activation._of(x, "").sigmoid().node + x * (_bell(x, 1.0) * 0.25)


def _mish(x: Node) -> Node:
    of = Activation._of(x, "")
    soft = of.softplus()
    return soft.tanh().node + x * (_bell(soft.node, 2.0) * of.sigmoid().node)


def _slope_of_elu(node: Node, g: Node) -> Node:
    _, x, alpha = node.src
    return g * (x > 0.0).where(const(1.0, x.dtype), _exp(x) * alpha)


def _slope(of: Callable[[Node], Node], name: str) -> Function:
    return Function(name, lambda node, g: g * of(node.src[1]))


TANH_OF = _slope(lambda x: _bell(x, 2.0), "tanh")
SIGMOID = _slope(lambda x: _bell(x, 1.0) * 0.25, "sigmoid")
ERF = _slope(lambda x: _exp(Node(Op.NEG, x.dtype, (x,)) * x) * (2.0 / math.sqrt(math.pi)), "erf")
LOG1P_OF = _slope(lambda x: binary(Op.DIV, const(1.0, x.dtype), x + 1.0), "log1p")
EXPM1 = _slope(_exp, "expm1")
SINH = _slope(_cosh, "sinh")
COSH = _slope(_sinh, "cosh")
SILU = _slope(_silu, "silu")
MISH = _slope(_mish, "mish")
ELU = Function("elu", _slope_of_elu, FLAT)
