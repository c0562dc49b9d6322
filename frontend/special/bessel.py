"""Bessel's functions of order 0 and 1, J, Y and K, and Airy's Ai, as graphs of a node of float64.

In       a node of float64
Out      a FUNCTION node: Chebyshev series, logarithms and roots; its slope is the next Bessel function
Next     gamma.py (I), functions/special.py (the functions)

J and Y are series in x * x up to 8, and beyond it amplitude and phase: two series in 1 / x beside sine and cosine. K
is its power series up to 2, and exp(-x) / sqrt(x) times a series in 1 / x beyond. Ai is a series from -4 to 2, and
amplitude, phase and decay outside. Up to 1000 all are within 5e-14 of the greatest value around; J, Y and Ai cross
zero, so that next to a zero fewer digits are right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache

from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import absolute, divided, exponential, logarithm, minus, negated, reciprocal
from hcq.frontend.grad.function import Function
from hcq.frontend.special.elementary import root
from hcq.frontend.special.gamma import bessel_i, over_x
from hcq.ir.node import Node, const
from hcq.ir.op import Op


def chebyshev(x: Node, coefficients: Sequence[float], low: float, high: float) -> Node:
    """The sum of Chebyshev polynomials over low .. high, by Clenshaw's recurrence."""
    u = x * (2.0 / (high - low)) + (-(high + low) / (high - low))
    double = u + u
    *rest, last = coefficients
    newest, older = u * 0.0 + last, u * 0.0
    for coefficient in reversed(rest[1:]):
        newest, older = minus(double * newest, older) + coefficient, newest
    return minus(u * newest, older) + rest[0]


def _number(value: float, x: Node) -> Node:
    return const(value, x.dtype)


def _sin(x: Node) -> Node:
    return Node(Op.SIN, x.dtype, (x,))


def _cos(x: Node) -> Node:
    return Node(Op.COS, x.dtype, (x,))


# -- J and Y ----------------------------------------------------------------------------------------------------------


def _far(order: int, size: Node, is_second: bool) -> Node:
    """J, or Y, from 8 on: cos(x - s) is cos(x) cos(s) + sin(x) sin(s), where s is pi / 4, or 3 pi / 4."""
    z = divided(_number(64.0, size), size * size)
    p = chebyshev(z, (P0, P1)[order], 0.0, 1.0)
    q = divided(chebyshev(z, (Q0, Q1)[order], 0.0, 1.0), size)
    sine, cosine = _sin(size), _cos(size)
    along = minus(sine, cosine) if order else sine + cosine  # cos(x - s) * sqrt(2)
    across = negated(sine + cosine) if order else minus(sine, cosine)  # sin(x - s) * sqrt(2)
    wave = p * across + q * along if is_second else minus(p * along, q * across)
    return size.eq(math.inf).where(_number(0.0, size), divided(wave, root(size * math.pi)))


def bessel_j(order: int, x: Node) -> Node:
    """The Bessel function of the first kind, of order 0 or 1."""
    size = absolute(x)
    is_near = size <= 8.0
    inside = is_near.where(size, _number(8.0, x))
    near = chebyshev(inside * inside, (J0, J1)[order], 0.0, 64.0)
    far = _far(order, is_near.where(_number(8.0, x), size), False)
    if order:
        near, far = near * x, (x < 0.0).where(negated(far), far)
    return _function(f"bessel_j{order}").of(is_near.where(near, far), x)


def bessel_y(order: int, x: Node) -> Node:
    """The Bessel function of the second kind, of order 0 or 1: -inf at zero, NaN below."""
    is_near = x <= 8.0
    inside = is_near.where((x > 0.0).where(x, _number(1.0, x)), _number(8.0, x))
    square, log = inside * inside, logarithm(inside * 0.5) * (2.0 / math.pi)
    first = chebyshev(square, (J0, J1)[order], 0.0, 64.0)
    near = chebyshev(square, (Y0, Y1)[order], 0.0, 64.0) + log * first
    if order:
        near = minus(near * inside, reciprocal(inside) * (2.0 / math.pi))
    value = is_near.where(near, _far(order, is_near.where(_number(8.0, x), x), True))
    value = x.eq(0.0).where(_number(-math.inf, x), value)
    value = (x < 0.0).where(_number(math.nan, x), value)
    return _function(f"bessel_y{order}").of(value, x)


# -- K ----------------------------------------------------------------------------------------------------------------


@cache
def _power_series_of_k(order: int) -> tuple[float, ...]:
    """The factors of (x * x / 4) ** k in K + log(x / 2) * I: sums of 1 / n, over factorials."""
    gamma = Fraction("0.57721566490153286060651209008240243104215933593992")
    found, harmonic = [], Fraction(0)
    for k in range(14):
        if order == 0:  # (1 + 1/2 + ... + 1/k - gamma) / (k!) ** 2
            found.append(float((harmonic - gamma) / math.factorial(k) ** 2))
        else:  # -(psi(k + 1) + psi(k + 2)) / (4 k! (k + 1)!), of x
            both = 2 * harmonic - 2 * gamma + Fraction(1, k + 1)
            found.append(float(-both / (4 * math.factorial(k) * math.factorial(k + 1))))
        harmonic += Fraction(1, k + 1)
    return tuple(found)


def bessel_k(order: int, x: Node, is_scaled: bool) -> Node:
    """The modified Bessel function of the second kind, of order 0 or 1, times exp(x) if scaled: inf at 0, NaN below."""
    is_near = x <= 2.0
    inside = is_near.where((x > 0.0).where(x, _number(1.0, x)), _number(2.0, x))
    quarter = inside * inside * 0.25
    near = quarter * 0.0
    for factor in reversed(_power_series_of_k(order)):
        near = near * quarter + factor
    log = logarithm(inside * 0.5) * bessel_i(order, inside, False)
    near = reciprocal(inside) + log + near * inside if order else minus(near, log)
    beyond = is_near.where(_number(2.0, x), x)
    far = divided(chebyshev(divided(_number(2.0, x), beyond), (K0, K1)[order], 0.0, 1.0), root(beyond))
    if is_scaled:
        near = near * exponential(inside)
    else:
        far = far * exponential(negated(beyond))
    value = is_near.where(near, far)
    value = x.eq(0.0).where(_number(math.inf, x), value)
    value = x.eq(math.inf).where(_number(0.0, x), value)
    value = (x < 0.0).where(_number(math.nan, x), value)
    return _function(f"{'scaled_' if is_scaled else ''}modified_bessel_k{order}").of(value, x)


# -- Ai ---------------------------------------------------------------------------------------------------------------


def airy_ai(x: Node) -> Node:
    """Airy's function Ai; it has no derivative here."""
    is_high, is_low = x > 2.0, x < -4.0
    near = chebyshev(is_high.where(_number(2.0, x), is_low.where(_number(-4.0, x), x)), AI_NEAR, -4.0, 2.0)
    high = is_high.where(x, _number(2.0, x))
    angle = high * root(high) * (2.0 / 3.0)
    decay = chebyshev(divided(_number(2.0**2.5 / 3.0, x), angle), AI_FAR, 0.0, 1.0)
    far = divided(decay * exponential(negated(angle)), root(root(high)) * (2.0 * math.sqrt(math.pi)))
    low = is_low.where(negated(x), _number(4.0, x))
    turn = low * root(low) * (2.0 / 3.0)
    share = divided(_number(16.0 / 3.0, x), turn)
    p = chebyshev(share * share, AI_P, 0.0, 1.0)
    q = divided(chebyshev(share * share, AI_Q, 0.0, 1.0), turn)
    sine, cosine = _sin(turn), _cos(turn)
    wave = p * (sine + cosine) + q * minus(sine, cosine)
    below = divided(wave, root(root(low)) * math.sqrt(2.0 * math.pi))
    value = is_high.where(far, is_low.where(below, near))
    value = absolute(x).eq(math.inf).where(_number(0.0, x), value)
    return AIRY.of(value, x)


# -- derivatives ------------------------------------------------------------------------------------------------------


def no_slope(name: str) -> Callable[[Node, Node], Node]:
    """The rule of what has no derivative here."""

    def rule(node: Node, g: Node) -> Node:
        raise UsageError(f"[{name}] has no derivative here: take detach() of what it is given.")

    return rule


def _slope_of_k(order: int, is_scaled: bool) -> Callable[[Node, Node], Node]:
    def rule(node: Node, g: Node) -> Node:
        x = node.src[1]
        other = bessel_k(1 - order, x, is_scaled)
        slope = minus(negated(other), divided(node, x)) if order else negated(other)
        return g * (slope + node if is_scaled else slope)

    return rule


_RULES: dict[str, Callable[[Node, Node], Node]] = {
    "bessel_j0": lambda node, g: negated(g * bessel_j(1, node.src[1])),
    "bessel_j1": lambda node, g: g * minus(bessel_j(0, node.src[1]), over_x(node)),
    "bessel_y0": lambda node, g: negated(g * bessel_y(1, node.src[1])),
    "bessel_y1": lambda node, g: g * minus(bessel_y(0, node.src[1]), divided(node, node.src[1])),
    "modified_bessel_k0": _slope_of_k(0, False),
    "modified_bessel_k1": _slope_of_k(1, False),
    "scaled_modified_bessel_k0": _slope_of_k(0, True),
    "scaled_modified_bessel_k1": _slope_of_k(1, True),
}


@cache
def _function(name: str) -> Function:
    return Function(name, _RULES[name])


AIRY = Function("airy_ai", no_slope("airy_ai"))


# -- Bessel's functions of order 0 and 1, and Airy's Ai ----------------------------------------------------------------


# over x * x = 0 .. 64
J0 = (  # J0(x)
    0.15772797147489012, -0.008723442352852221, 0.2651786132033368, -0.37009499387264977, 0.15806710233209725,
    -0.034893769411408884, 0.004819180069467605, -0.00046062616620627504, 3.246032882100508e-05,
    -1.7619469077621507e-06, 7.608163592418782e-08, -2.679253530557673e-09, 7.848696314479465e-11,
    -1.9438346867370164e-12, 4.125320595634374e-14, -7.588508125447546e-16, 1.2218515873961411e-17,
)  # fmt: skip
J1 = (  # J1(x) / x
    0.08104484632565812, -0.1489751450676521, 0.1609992623572097, -0.08268049176681791, 0.022213639654966037,
    -0.003646940600769276, 0.0004050337728354822, -3.255554866857259e-05, 1.9858774049915165e-06,
    -9.521984756750436e-08, 3.687133759097148e-09, -1.178026622695885e-10, 3.160154580348003e-12,
    -7.221755239651773e-14, 1.4232144003513942e-15, -2.4441972916190464e-17,
)  # fmt: skip
Y0 = (  # Y0(x) - 2 / pi * log(x / 2) * J0(x)
    0.03645469809116044, -0.2783237094075825, 0.2960499990207148, 0.09825508408187864, -0.10755155280627783,
    0.031799074084414514, -0.005161397105810715, 0.0005498525320039012, -4.1996983149420134e-05,
    2.4290361107923793e-06, -1.1049969793472957e-07, 4.06651736597911e-09, -1.2374148898289854e-10,
    3.1685725528945945e-12, -6.926956032431002e-14, 1.3086308625876684e-15, -2.1586201986914482e-17,
)  # fmt: skip
Y1 = (  # (Y1(x) - 2 / pi * (log(x / 2) * J1(x) - 1 / x)) / x
    0.038300769852423776, -0.08182561412732826, -0.0248677076121964, 0.047967452752746984,
    -0.01852588451089802, 0.003680607687823511, -0.0004627254060293369, 4.06940026958087e-05,
    -2.6617695125295625e-06, 1.350602691325434e-07, -5.483524110336276e-09, 1.8245086841229007e-10,
    -5.070666636591129e-12, 1.1956162517587948e-13, -2.423162442712473e-15, 4.268126513072962e-17,
)  # fmt: skip

# over (8 / x) ** 2 = 0 .. 1, where J(x) = sqrt(2 / (pi x)) * (P cos(x - s) - Q sin(x - s)), Y likewise with sin and cos
P0 = (  # P of order 0
    0.9994603493475187, -0.0005365220468132117, 3.0751847875194745e-06, -5.1705945376060975e-08,
    1.6306464635151382e-09, -7.86409137723707e-11, 5.168262387349193e-12, -4.3045788699253914e-13,
    4.3265957431549404e-14, -5.069034095935236e-15, 6.748072215733873e-16, -1.0011513723467786e-16,
    1.6305919233744186e-17,
)  # fmt: skip
Q0 = (  # x * Q of order 0
    -0.12444683684269607, 0.0005470815954089319, -5.9315987288485175e-06, 1.4377965798375193e-07,
    -5.817532749493056e-09, 3.376097523734991e-10, -2.565397936797308e-11, 2.404916100281365e-12,
    -2.6690625482579414e-13, 3.4041800321963686e-14, -4.87994410531204e-15, 7.729703176242605e-16,
    -1.3348852171502517e-16, 2.4865952389390515e-17, -4.952892629886516e-18,
)  # fmt: skip
P1 = (  # P of order 1
    1.0009030408600137, 0.0008989898330859408, -3.987284300488908e-06, 6.177633960644299e-08,
    -1.8718907491063067e-09, 8.816898659582339e-11, -5.704863640395645e-12, 4.699195515230542e-13,
    -4.6842237839904895e-14, 5.452674896044717e-15, -7.221180842274018e-16, 1.0667689114335412e-16,
    -1.7312313216116335e-17,
)  # fmt: skip
Q1 = (  # x * Q of order 1
    0.3742222965562826, -0.0007702178839325664, 7.3108922063643636e-06, -1.676782510726674e-07,
    6.583354662120443e-09, -3.749090950541556e-10, 2.8121750359748866e-11, -2.61145253946232e-12,
    2.8774212663332235e-13, -3.649001916061838e-14, 5.206626366226707e-15, -8.215318025458595e-16,
    1.4141084390211833e-16, -2.626761589838529e-17, 5.2192649196714085e-18,
)  # fmt: skip

# over 2 / x = 0 .. 1
K0 = (  # sqrt(x) * exp(x) * K0(x)
    1.2201515410329777, -0.0314481013119645, 0.0015698838857300533, -0.00012849549581627802,
    1.39498137188765e-05, -1.8317555227191195e-06, 2.766813639445015e-07, -4.660489897687948e-08,
    8.574034017414225e-09, -1.6975345093890614e-09, 3.5773972814003283e-10, -7.957489244477396e-11,
    1.8559491149549264e-11, -4.514597883374519e-12, 1.1403405882073441e-12, -2.9800969231481784e-13,
    8.032890775068375e-14, -2.2275133267462965e-14, 6.340076476276646e-15, -1.848593377920907e-15,
    5.5120559994043335e-16, -1.6782311257549006e-16, 5.2103917776435543e-17, -1.6475805939842632e-17,
)  # fmt: skip
K1 = (  # sqrt(x) * exp(x) * K1(x)
    1.3603130952422213, 0.10392373657681724, -0.002857816859622779, 0.00019521551847135162,
    -1.936197974166083e-05, 2.406484947837217e-06, -3.5019606030878126e-07, 5.7410841254500495e-08,
    -1.0345762465678097e-08, 2.0150497551970347e-09, -4.1903547593419254e-10, 9.218315187605315e-11,
    -2.129967838427791e-11, 5.139639673482343e-12, -1.2891739609498229e-12, 3.348419666052243e-13,
    -8.976705182010146e-14, 2.4771544242195988e-14, -7.0198370892147685e-15, 2.038703166239861e-15,
    -6.057047270643018e-16, 1.8380935752430455e-16, -5.689462849193648e-17, 1.7940510478863572e-17,
)  # fmt: skip

# over x = -4 .. 2
AI_NEAR = (  # Ai(x)
    0.06078525685079726, 0.18996030881729123, -0.250924387032336, -0.09512014013503055, 0.20236324198370076,
    -0.06418728306305249, -0.026814703186039963, 0.024051904281273857, -0.00413259164974895,
    -0.0020196817905494225, 0.0011250768750654559, -0.00011697538709676606, -7.125499253060682e-05,
    2.8167833107042442e-05, -1.7594742389691562e-06, -1.4587201524168717e-06, 4.388747958436033e-07,
    -1.4627095866197506e-08, -1.9495992841846798e-08, 4.660552774163884e-09, -5.106245117904234e-11,
    -1.8343326708789198e-10, 3.5857642041278925e-11, 2.658241327479573e-13, -1.2805447574198059e-12,
    2.0885896604502407e-13, 4.8741837202287105e-15, -6.895080927885035e-15, 9.51965014570017e-16,
    3.5978991422145034e-17, -2.9502705833721254e-17,
)  # fmt: skip

# over t(2) / t = 0 .. 1, where t = 2 / 3 * x ** 1.5
AI_FAR = (  # 2 * sqrt(pi) * x ** 0.25 * exp(t) * Ai(x)
    0.9844053049171552, -0.014792784850104199, 0.0007327177465426715, -6.12595423417825e-05,
    6.83476697557269e-06, -9.237229735403982e-07, 1.436225340438052e-07, -2.489319422322096e-08,
    4.709793440054328e-09, -9.583863708112733e-10, 2.0745855483677591e-10, -4.737267332192277e-11,
    1.1336099808224236e-11, -2.827706782319351e-12, 7.320712095125598e-13, -1.9599793911089723e-13,
    5.4101162570683925e-14, -1.5356466802223836e-14, 4.472340393300025e-15, -1.3338094674756683e-15,
    4.066582046456231e-16, -1.265583225645289e-16, 4.015126334015871e-17, -1.2969972135960937e-17,
)  # fmt: skip

# over (t(4) / t) ** 2 = 0 .. 1, where Ai(-x) = (P cos(t - pi / 4) + Q sin(t - pi / 4)) / (sqrt(pi) * x ** 0.25)
AI_P = (  # P of Ai(-x)
    0.9993708890742778, -0.0006216836584374116, 7.181193774368645e-06, -2.316269813501758e-07,
    1.3216283888528755e-08, -1.0938736172758127e-09, 1.1794620737908535e-10, -1.5518841909929856e-11,
    2.386927411492466e-12, -4.16552889201035e-13, 8.071678110741467e-14, -1.708757321110567e-14,
    3.902945148540815e-15, -9.523976784907064e-16, 2.4632810885752603e-16, -6.709077463464858e-17,
    1.913939683718707e-17,
)  # fmt: skip
AI_Q = (  # t * Q of Ai(-x)
    0.06882170556308001, -0.0006089151840832694, 1.3174151014089972e-05, -6.014071912908298e-07,
    4.327537342298499e-08, -4.247731732954726e-09, 5.232285376834493e-10, -7.672290975115024e-11,
    1.2923809452698712e-11, -2.43852975710829e-12, 5.059047237872084e-13, -1.1378513792256329e-13,
    2.7441377308322258e-14, -7.03448211263258e-15, 1.9032114367198917e-15, -5.403040541409308e-16,
    1.6016711026585234e-16, -4.9375274403528065e-17, 1.5773435797781153e-17, -5.206129581838458e-18,
    1.7706787947400164e-18,
)  # fmt: skip
