"""Special functions under PyTorch's names: `hcq.torch.special.erfc(x)` is `x.erfc()`.

In       tensors
Out      the methods of Tensor that PyTorch has in torch.special, as functions; Bessel's and Airy's functions, zeta, and
         orthogonal polynomials, which are functions only
Next     __init__.py (how a method becomes a function), ops/special_values.py (the methods), special/bessel.py,
         special/polynomials.py, special/gamma.py (zeta)

What is no method is computed in float64 and rounded once, so a device without it refuses it; integers become float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.functions.methods import called, function_of
from hcq.frontend.grad.function import Function
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.base import meet_in_float
from hcq.frontend.special import bessel as special_bessel
from hcq.frontend.special import gamma as special_gamma
from hcq.frontend.special import polynomials as special_polynomials
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node

METHODS = (
    "digamma entr erf erfc erfcx erfinv exp2 expm1 i0 i0e i1 i1e log1p log_ndtr log_softmax logit logsumexp "
    "ndtr ndtri polygamma round sinc softmax xlog1py xlogy"
).split()
OTHER_NAMES = {
    "gammaln": "lgamma", "psi": "digamma", "expit": "sigmoid", "multigammaln": "mvlgamma",
    "gammainc": "igamma", "gammaincc": "igammac", "modified_bessel_i0": "i0", "modified_bessel_i1": "i1",
}  # fmt: skip


# what each function is at two or three places, for its docstring; of polynomials in the degree 3
_EXAMPLES = {
    "bessel_j0": ("[0.0, 1.0]", "[1.0000, 0.7652]"),
    "bessel_j1": ("[0.0, 1.0]", "[0.0000, 0.4401]"),
    "bessel_y0": ("[-1.0, 0.0, 1.0]", "[   nan,   -inf, 0.0883]"),
    "bessel_y1": ("[-1.0, 0.0, 1.0]", "[    nan,    -inf, -0.7812]"),
    "modified_bessel_k0": ("[-1.0, 0.0, 1.0]", "[   nan,    inf, 0.4210]"),
    "modified_bessel_k1": ("[-1.0, 0.0, 1.0]", "[   nan,    inf, 0.6019]"),
    "scaled_modified_bessel_k0": ("[1.0, 1000.0]", "[1.1445, 0.0396]"),
    "scaled_modified_bessel_k1": ("[1.0, 1000.0]", "[1.6362, 0.0396]"),
    "airy_ai": ("[0.0, 1.0]", "[0.3550, 0.1353]"),
    "chebyshev_polynomial_t": ("[0.5, 2.0]", "[-1., 26.]"),
    "chebyshev_polynomial_u": ("[0.5, 1.0]", "[-1.,  4.]"),
    "chebyshev_polynomial_v": ("[0.5, 1.0]", "[-1.,  1.]"),
    "chebyshev_polynomial_w": ("[0.5, 1.0]", "[-1.,  7.]"),
    "shifted_chebyshev_polynomial_t": ("[1.0, 1.5]", "[ 1., 26.]"),
    "shifted_chebyshev_polynomial_u": ("[1.0, 1.5]", "[ 4., 56.]"),
    "shifted_chebyshev_polynomial_v": ("[0.5, 1.0]", "[1., 1.]"),
    "shifted_chebyshev_polynomial_w": ("[0.5, 1.0]", "[-1.,  7.]"),
    "hermite_polynomial_h": ("[0.5, 1.0]", "[-5., -4.]"),
    "hermite_polynomial_he": ("[0.5, 1.0]", "[-1.3750, -2.0000]"),
    "laguerre_polynomial_l": ("[0.5, 1.0]", "[-0.1458, -0.6667]"),
    "legendre_polynomial_p": ("[0.5, 1.0]", "[-0.4375,  1.0000]"),
}


def _example(name: str, degree: str = "") -> str:
    at, value = _EXAMPLES[name]
    return f"\n\n>>> print(hcq.torch.special.{name}(Tensor({at}){degree}))\ntensor({value})"


def _of_one(name: str, doc: str, of: Callable[[Node], Node]) -> Callable[[Tensor], Tensor]:
    """A function of one tensor, element by element."""

    @called(name, doc + _example(name))
    def function(input: Tensor) -> Tensor:
        return input._in_double(of)

    return function


bessel_j0 = _of_one("bessel_j0", "Bessel's J of order 0.", lambda x: special_bessel.bessel_j(0, x))
bessel_j1 = _of_one("bessel_j1", "Bessel's J of order 1.", lambda x: special_bessel.bessel_j(1, x))
bessel_y0 = _of_one(
    "bessel_y0", "Bessel's Y of order 0: NaN below 0.", lambda x: special_bessel.bessel_y(0, x)
)
bessel_y1 = _of_one(
    "bessel_y1", "Bessel's Y of order 1: NaN below 0.", lambda x: special_bessel.bessel_y(1, x)
)
modified_bessel_k0 = _of_one(
    "modified_bessel_k0",
    "Bessel's K of order 0: NaN below 0.",
    lambda x: special_bessel.bessel_k(0, x, False),
)
modified_bessel_k1 = _of_one(
    "modified_bessel_k1",
    "Bessel's K of order 1: NaN below 0.",
    lambda x: special_bessel.bessel_k(1, x, False),
)
scaled_modified_bessel_k0 = _of_one(
    "scaled_modified_bessel_k0", "exp(x) * K of order 0.", lambda x: special_bessel.bessel_k(0, x, True)
)
scaled_modified_bessel_k1 = _of_one(
    "scaled_modified_bessel_k1", "exp(x) * K of order 1.", lambda x: special_bessel.bessel_k(1, x, True)
)
airy_ai = _of_one("airy_ai", "Airy's Ai. It has no derivative here.", special_bessel.airy_ai)


@checked
def spherical_bessel_j0(input: Tensor) -> Tensor:
    """sin(x) / x, and 1 at 0.

    >>> print(hcq.torch.special.spherical_bessel_j0(Tensor([0.0, 1.0])))
    tensor([1.0000, 0.8415])
    """
    wide = input.cast(dtypes.float64)
    have = input.dtype if input.dtype.is_float else dtypes.float32
    return (wide * (1.0 / 3.141592653589793)).sinc().cast(have)


def _meeting(call: str, x: Any, other: Any) -> tuple[Tensor, Tensor, Any]:
    """Two operands, one of which may be a number, in float64 and one shape; and the dtype of the result."""
    tensors = [each for each in (x, other) if isinstance(each, Tensor)]
    if not tensors:
        raise UsageError(f"[{call}] two numbers: give a tensor at least.")
    if not isinstance(x, Tensor):
        x = tensors[0]._operand(call, x)
    a, b, have = meet_in_float(call, x, other)
    shape = a.shape or b.shape
    left, right = (x._like(each).cast(dtypes.float64).expand(shape) for each in (a, b))
    return left, right, have


def zeta(input: Any, other: Any) -> Tensor:
    """Hurwitz's zeta function: the sum of (other + k) ** -input for k = 0, 1, 2, ...; shapes broadcast.

    NaN for an input below 1, infinite at 1 and where `other` is 0, -1, -2, ... It has no derivative here.

    >>> f"{zeta(2.0, Tensor([1.0])).item():.5f}"
    '1.64493'
    """
    s, q, have = _meeting("zeta", input, other)
    value = s._like(special_gamma.hurwitz(s.node, q.node))
    return s._like(NO_SLOPE["zeta"].of(value.node, s.node, q.node)).cast(have)


def _polynomial(name: str, x: Any, n: Any) -> Tensor:
    place, degree, have = _meeting(name, x, n)
    degree = degree.detach().trunc()
    if name in special_polynomials.RECURRENCES:
        first, step = special_polynomials.RECURRENCES[name]
        value = special_polynomials.recurrence(name, place, degree, first(place), step)
    else:
        shifted = 2.0 * place - 1.0 if name.startswith("shifted") else place
        value = special_polynomials.chebyshev(name[-1].upper(), shifted, degree)
    return place._like(NO_SLOPE[name].of(value.node, place.node, degree.node)).cast(have)


def _polynomials(name: str, doc: str) -> Callable[[Any, Any], Tensor]:
    what = f"{doc} of degree n, a number or a tensor that broadcasts; 0 for n below 0. No derivative."

    @called(name, what + _example(name, ", 3"))
    def function(input: Any, n: Any) -> Tensor:
        return _polynomial(name, input, n)

    return function


_KINDS = {
    **{f"chebyshev_polynomial_{kind}": f"Chebyshev's polynomial {kind.upper()}" for kind in "tuvw"},
    **{
        f"shifted_chebyshev_polynomial_{kind}": f"Chebyshev's polynomial {kind.upper()}, at 2 x - 1,"
        for kind in "tuvw"
    },
    "hermite_polynomial_h": "Hermite's polynomial of physics",
    "hermite_polynomial_he": "Hermite's polynomial of probability",
    "laguerre_polynomial_l": "Laguerre's polynomial",
    "legendre_polynomial_p": "Legendre's polynomial",
}
NO_SLOPE = {
    name: Function(name, special_bessel.no_slope(name), special_bessel.no_slope(name))
    for name in (*_KINDS, "zeta")
}
OWN = (
    "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 "
    "scaled_modified_bessel_k1 spherical_bessel_j0 zeta"
).split()


def __getattr__(name: str) -> Any:
    if name in _KINDS:
        function = globals()[name] = _polynomials(name, _KINDS[name])
        return function
    method = OTHER_NAMES.get(name, name)
    if method not in METHODS and name not in OTHER_NAMES:
        raise AttributeError(f"module 'hcq.torch.special' has no function {name!r}")
    function = globals()[name] = function_of(method)
    return function


def __dir__() -> list[str]:
    return sorted([*METHODS, *OTHER_NAMES, *OWN, *_KINDS])
