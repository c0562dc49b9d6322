"""Special functions: erf, tanh, sigmoid, logarithms near one, hyperbolic sines, as graphs of a float32 or float64 node.

In       a node of float32 or float64
Out      a FUNCTION node: a value of exponentials and short polynomials, and a slope of its own
Next     ops/smooth.py (the methods, for every dtype), grad/function.py (why slopes have rules of their own)

The polynomials are Chebyshev interpolations, computed with 60 digits: erf(x) = x + x P(x*x) below 1.5 and
1 - exp(Q(x)) above, tanh(x) = x + x*x*x T(x*x) below 0.625, log(1 + x) = x L(x) up to 1. Measured against 60 digits:
float32 erf is within 1e-7 and float64 erf within 3e-16 of the true value; the other two are within two units in the
last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hcq.frontend.core.nodes import (
    absolute,
    constant,
    divided,
    either,
    exponential,
    logarithm,
    minus,
    negated,
    reciprocal,
)
from hcq.frontend.grad.function import Function
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, const
from hcq.ir.op import Op

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


def number(value: float, x: Node) -> Node:
    """A number as x's format holds it."""
    return constant("float", value, x.dtype)


def root(x: Node) -> Node:
    """The square root."""
    return Node(Op.SQRT, x.dtype, (x,))


def polynomial(x: Node, singles: Sequence[float], doubles: Sequence[float], low: float, high: float) -> Node:
    """The polynomial whose coefficients are for u = -1..1, at x = low..high. Horner's order."""
    first, second, *rest = reversed(doubles if x.dtype is dtypes.float64 else singles)
    u = x * number(2.0 / (high - low), x) + number(-(high + low) / (high - low), x)
    result = u * number(first, x) + number(second, x)
    for coefficient in rest:
        result = result * u + number(coefficient, x)
    return result


def _clamped(x: Node, low: float, high: float) -> Node:
    """x between two numbers; NaN stays."""
    x = (x < low).where(const(low, x.dtype), x)
    return (x > high).where(const(high, x.dtype), x)


def erf(x: Node) -> Node:
    """The error function."""
    inside = _clamped(x, -ERF_LIMIT, ERF_LIMIT)
    small = polynomial(inside * inside, ERF_SMALL, ERF_SMALL_DOUBLE, 0.0, ERF_LIMIT * ERF_LIMIT)
    top = 6.0 if x.dtype is dtypes.float64 else 4.0
    size = absolute(x)
    rest = polynomial(_clamped(size, ERF_LIMIT, top), ERF_LARGE, ERF_LARGE_DOUBLE, ERF_LIMIT, top)
    large = negated(exponential(rest)) + 1.0
    value = (size < ERF_LIMIT).where(inside + inside * small, (x < 0.0).where(negated(large), large))
    return ERF.of(value, x)


def tanh(x: Node) -> Node:
    """Hyperbolic tangent."""
    inside = _clamped(x, -TANH_LIMIT, TANH_LIMIT)
    square = inside * inside
    small = inside * (square * polynomial(square, TANH, TANH_DOUBLE, 0.0, TANH_LIMIT * TANH_LIMIT) + 1.0)
    size = absolute(x)
    shrunk = exponential(size * -2.0)
    large = divided(negated(shrunk) + 1.0, shrunk + 1.0)
    value = (size < TANH_LIMIT).where(small, (x < 0.0).where(negated(large), large))
    return TANH_OF.of(value, x)


def _shrunk(x: Node) -> tuple[Node, Node]:
    """Where x is negative, and exp(-|x|), which never overflows."""
    is_negative = x < 0.0
    return is_negative, exponential(is_negative.where(x, negated(x)))


def silu(x: Node) -> Node:
    """x * sigmoid(x)."""
    return SILU.of(x * sigmoid(x), x)


def mish(x: Node) -> Node:
    """x * tanh(softplus(x))."""
    return MISH.of(x * tanh(softplus(x)), x)


def sigmoid(x: Node) -> Node:
    """1 / (1 + exp(-x))."""
    is_negative, small = _shrunk(x)
    return SIGMOID.of(divided(is_negative.where(small, 1.0), small + 1.0), x)


def logsigmoid(x: Node) -> Node:
    """log(sigmoid(x)), without overflow."""
    is_negative, small = _shrunk(x)
    return minus(is_negative.where(x, 0.0), _log1p_of_unit(small))


def softplus(x: Node, beta: float = 1.0, threshold: float = 20.0) -> Node:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is beyond the threshold."""
    scaled = x * number(beta, x)
    is_negative, small = _shrunk(scaled)
    soft = is_negative.where(const(0.0, x.dtype), scaled) + _log1p_of_unit(small)
    return (scaled > number(threshold, x)).where(x, divided(soft, number(beta, x)))


def _log1p_of_unit(x: Node) -> Node:
    """log(1 + x) for x = 0..1, precise near zero, without a logarithm or a division."""
    return LOG1P_OF.of(x * polynomial(x, LOG1P, LOG1P_DOUBLE, 0.0, 1.0), x)


def log1p(x: Node) -> Node:
    """log(1 + x): the error of 1 + x is divided out."""
    total = x + 1.0
    step = total + -1.0
    is_tiny = step.eq(0.0)
    is_finite = (total < 0.0).where(negated(total), total) < math.inf
    is_plain = either(either(is_tiny, Node(Op.NOT, dtypes.bool, (is_finite,))), total <= 0.0)
    ratio = divided(x, is_plain.where(const(1.0, x.dtype), step))
    value = is_tiny.where(x, logarithm(total) * is_plain.where(const(1.0, x.dtype), ratio))
    return LOG1P_OF.of(value, x)


def expm1(x: Node) -> Node:
    """exp(x) - 1: near zero a Taylor polynomial."""
    limit, terms = 0.5, 17 if x.dtype is dtypes.float64 else 9
    inside = _clamped(x, -limit, limit)
    small = inside * number(1.0 / math.factorial(terms), x) + number(1.0 / math.factorial(terms - 1), x)
    for n in range(terms - 2, 0, -1):
        small = small * inside + number(1.0 / math.factorial(n), x)
    return EXPM1.of((absolute(x) < limit).where(small * inside, exponential(x) + -1.0), x)


def sinh(x: Node) -> Node:
    """Hyperbolic sine."""
    is_negative = x < 0.0
    size = is_negative.where(negated(x), x)
    is_large = size > 80.0  # there the root of exp(x) is finite wherever the result is
    grown, root = expm1(is_large.where(const(0.0, x.dtype), size)), exponential(size * 0.5)
    size = is_large.where(root * 0.5 * root, (grown + divided(grown, grown + 1.0)) * 0.5)
    return SINH.of(is_negative.where(negated(size), size), x)


def cosh(x: Node) -> Node:
    """Hyperbolic cosine: by the root of exp(|x|), which is finite wherever the result is."""
    return COSH.of(_cosh(x), x)


def _cosh(x: Node) -> Node:
    root = exponential((x < 0.0).where(x * -0.5, x * 0.5))
    half = root * 0.5 * root
    return half + divided(const(0.25, x.dtype), half)


# -- derivatives: g times a graph of x ---------------------------------------------------------------------------------


def _bell(x: Node, width: float) -> Node:
    """4 * e / (1 + e) ** 2 for e = exp(-width * |x|): 1 at zero, and precise where 1 minus a square would cancel."""
    shrunk = exponential((x < 0.0).where(x * width, x * -width))
    above = shrunk + 1.0
    return divided(shrunk * 4.0, above * above)


def _mish(x: Node) -> Node:
    soft = softplus(x)
    return tanh(soft) + x * (_bell(soft, 2.0) * sigmoid(x))


def _slope(of: Callable[[Node], Node], name: str) -> Function:
    return Function(name, lambda node, g: g * of(node.src[1]))


TANH_OF = _slope(lambda x: _bell(x, 2.0), "tanh")
SIGMOID = _slope(lambda x: _bell(x, 1.0) * 0.25, "sigmoid")
ERF = _slope(lambda x: exponential(negated(x) * x) * (2.0 / math.sqrt(math.pi)), "erf")
LOG1P_OF = _slope(lambda x: reciprocal(x + 1.0), "log1p")
EXPM1 = _slope(exponential, "expm1")
SINH = _slope(_cosh, "sinh")
COSH = _slope(sinh, "cosh")
SILU = _slope(lambda x: sigmoid(x) + x * (_bell(x, 1.0) * 0.25), "silu")
MISH = _slope(_mish, "mish")
