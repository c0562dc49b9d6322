"""Cases: one way to call a function, in our words and in PyTorch's, and the numbers where conventions differ.

In       nothing
Out      `Case`, ways to make one, and `numbers`, `pairs` and `rows` to ask it at
Next     number_table.py (the cases of every method), test_numbers.py (against PyTorch and C)

`ours(x, ...)` gets tensors of hcq, `theirs(x, ...)` tensors of PyTorch. Where PyTorch differs from C, or we from it on
purpose, `c` is the function in Python's floats, or `instead` says what we give at which points; docs/semantics.md has
the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

INF, NAN = math.inf, math.nan
LIMITS = {  # least subnormal, least normal, largest
    "float64": (2.0**-1074, 2.0**-1022, (2.0 - 2.0**-52) * 2.0**1023),
    "float32": (2.0**-149, 2.0**-126, (2.0 - 2.0**-23) * 2.0**127),
    "float16": (2.0**-24, 2.0**-14, (2.0 - 2.0**-10) * 2.0**15),
    "bfloat16": (2.0**-133, 2.0**-126, (2.0 - 2.0**-7) * 2.0**127),
}
SPACING = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
PLAIN = (0.0, 1.0, 0.5, 2.0, 2.5, 3.0, 0.75, 0.3125, 30.0, 100.0)


def numbers(dtype: str) -> np.ndarray:
    """Numbers where conventions differ, of both signs, in float64; all are of the format."""
    least, normal, largest = LIMITS[dtype]
    sizes = [*PLAIN, least, normal - least, normal, largest, INF]
    return np.array([*sizes, *[-size for size in sizes], NAN])


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of those numbers."""
    a, b = np.meshgrid(numbers(dtype), numbers(dtype), indexing="ij")
    return a.ravel(), b.ravel()


def rows(dtype: str) -> np.ndarray:
    """Rows of three: every choice from the numbers that reductions tell apart."""
    least, _, largest = LIMITS[dtype]
    few = np.array([0.0, -0.0, 1.0, -2.5, 0.3125, INF, -INF, NAN, largest, -largest, least])
    return np.stack([axis.ravel() for axis in np.meshgrid(few, few, few, indexing="ij")], 1)


def agree(
    got: np.ndarray,
    want: np.ndarray,
    dtype: str,
    units: float,
    zero_sign: bool,
    scale: float = 0,
    floor: float = 1,
) -> np.ndarray:
    """Where two arrays of numbers of a format are equal, to so many units of the last place."""
    with np.errstate(all="ignore"):
        allowed = units * (np.abs(want) + scale) * SPACING[dtype] + max(units, floor) * LIMITS[dtype][0]
        near = np.abs(got - want) <= allowed
        same = (got == want) | (np.isfinite(got) & np.isfinite(want) & near)
    if zero_sign:
        same &= ~((got == 0) & (want == 0) & (np.signbit(got) != np.signbit(want)))
    return same | (np.isnan(got) & np.isnan(want))


class Case(NamedTuple):
    """One way to call a function.

    units      of the last place that a value may be off; `slope_units` those of a gradient
    scale      sums of numbers of this size cancel on the way: that much of their last place is allowed, too
    floor      least subnormals that may be lost, where a factor is subnormal
    zero_sign  the sign of a zero is compared
    slope      gradients are compared
    over       which numbers it is asked at: "one", "two" (all pairs) or "rows"
    c          the function in Python's floats, which then is the only reference of the value
    c_slope    the derivative, where PyTorch's cancels
    instead    (arguments) -> what we give, or None where we do as the reference
    where      (arguments) -> True at points that are compared; its words say why not at the others
    narrow     asked in 16-bit formats, too; an operator with numbers is the same function as the one with tensors
    """

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    over: str = "one"
    units: float = 4
    slope_units: float = 16
    scale: float = 0
    floor: float = 1
    zero_sign: bool = True
    slope: bool = True
    c: Callable[..., float] | None = None
    c_slope: Callable[[float], float] | None = None
    instead: Callable[..., float | None] | None = None
    where: Callable[..., bool] | None = None
    narrow: bool = True


def torch() -> Any:
    import torch

    return torch


def functional() -> Any:
    return torch().nn.functional


def named(name: str, *arguments: Any, **options: Any) -> Case:
    """The function of that name, of one argument: torch.exp and Tensor.exp."""
    call = options.pop("call", {})
    label = name + "".join(f" {a}" for a in (*arguments, *call.values()))

    def theirs(x: Any) -> Any:
        function = getattr(torch(), name, None) or getattr(functional(), name)
        return function(x, *arguments, **call)

    return Case(label, lambda x: getattr(x, name)(*arguments, **call), theirs, **options)


def activation(name: str, **options: Any) -> Case:
    """A function that PyTorch keeps among its functionals."""
    call = options.pop("call", {})
    label = name + "".join(f" {a}" for a in call.values())
    return Case(
        label, lambda x: getattr(x, name)(**call), lambda x: getattr(functional(), name)(x, **call), **options
    )


def two(name: str, **options: Any) -> Case:
    """The function of that name, of two arguments."""
    return Case(
        name,
        lambda x, y: getattr(x, name)(y),
        lambda x, y: getattr(torch(), name)(x, y),
        over="two",
        **options,
    )


def both(name: str, function: Callable[..., Any], **options: Any) -> Case:
    """A function that is written the same for both."""
    return Case(name, function, function, **options)


def row(name: str, *arguments: Any, **options: Any) -> Case:
    """A reduction of rows, a method of both."""
    call = options.pop("call", {"dim": 1})
    label = name + "".join(f" {a}" for a in (*arguments, *[v for k, v in call.items() if k != "dim"]))
    method = lambda x: getattr(x, name)(*arguments, **call)  # noqa: E731
    return Case(label, method, method, over="rows", **options)


def loss(name: str, **options: Any) -> Case:
    """A loss of two tensors, element by element."""
    call = {"reduction": "none", **options.pop("call", {})}
    label = name + "".join(f" {v}" for k, v in call.items() if k != "reduction")
    options = {"zero_sign": False, "units": 8, "slope_units": 64, "floor": 64, **options}
    return Case(
        label,
        lambda x, y: getattr(x, name)(y, **call),
        lambda x, y: getattr(functional(), name)(x, y, **call),
        over="two",
        **options,
    )


# -- the functions in C ------------------------------------------------------------------------------------------------


def c_pow(x: float, y: float) -> float:
    """C's pow: Python's, and infinity where Python raises."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -INF if x < 0 and y % 2 == 1 else INF
    except ValueError:
        if x == 0.0:
            return math.copysign(INF, x) if y % 2 == 1 else INF
        return NAN


def c_fmod(x: float, y: float) -> float:
    """C's fmod."""
    return NAN if math.isinf(x) or y == 0.0 or x != x or y != y else math.fmod(x, y)


def c_remainder(x: float, y: float) -> float:
    """The rest with the sign of the divisor; a zero has that of the dividend, as in PyTorch."""
    rest = c_fmod(x, y)
    return rest + y if rest != 0.0 and (rest < 0.0) != (y < 0.0) else rest


def c_divide(x: float, y: float) -> float:
    """IEEE 754's division."""
    with np.errstate(all="ignore"):
        return float(np.float64(x) / np.float64(y))


def c_floor_divide(x: float, y: float) -> float:
    """Rounded down; by zero what / gives, and a zero has the sign of the quotient."""
    if y == 0.0:
        return c_divide(x, y)
    if math.isnan(x) or math.isnan(y) or math.isinf(x):
        return NAN
    if math.isinf(y):
        whole = -1 if x != 0.0 and (x < 0.0) != (y < 0.0) else 0
    else:
        whole = math.floor(Fraction(x) / Fraction(y))
    if whole == 0:
        return math.copysign(0.0, x) * math.copysign(1.0, y)
    try:
        return float(whole)
    except OverflowError:
        return INF if whole > 0 else -INF


# -- what we give instead ----------------------------------------------------------------------------------------------


def positive_zero(x: float) -> float | None:
    """A rectifier of -0.0 is 0.0: at most zero is cut off."""
    return 0.0 if x == 0.0 else None


def square_root(sign: float) -> Callable[[float], float | None]:
    """C's pow and not the square root, at -0.0 and -inf."""

    def at(x: float) -> float | None:
        if x == 0.0:
            return 0.0 if sign > 0 else INF
        return (INF if sign > 0 else 0.0) if x == -INF else None

    return at


def either_zero(x: float, y: float) -> bool:
    """MAX and MIN of 0.0 and -0.0 may give either: such points are not compared."""
    return not (x == 0.0 and y == 0.0)


def is_near(x: float, y: float) -> bool:
    """Quotients that float64 holds: rests of float64 are not exact beyond."""
    return y == 0.0 or not math.isfinite(x) or not math.isfinite(y) or abs(c_divide(x, y)) < 2.0**50


def is_ordinary(*point: float) -> bool:
    """Where no order of multiplying overflows: PyTorch's is another."""
    return all(not 1e3 < abs(x) < INF and (x == 0.0 or abs(x) > 1e-3) for x in point)


def within_one(x: Any) -> Any:
    """PyTorch refuses probabilities that are none; those points are not compared."""
    return torch().where((x >= 0) & (x <= 1), x, 0.5)


def has_squares(*row: float) -> bool:
    """Where no square overflows or vanishes: beyond, statistics and norms are infinite or zero, as their squares."""
    return all(size == 0.0 or 1e-4 < size < 1e4 or not size < INF for size in map(abs, row))


def has_sums(*row: float) -> bool:
    """Where no part of a sum or product overflows: they may be taken in any order."""
    return all(not 1e4 < abs(x) < INF for x in row)


def has_products(*row: float) -> bool:
    """Where no part of a product overflows or vanishes before all of it does: it may be taken in any order."""
    return all(x == 0.0 or 1e-4 < abs(x) < 1e4 or x != x for x in row)


def has_power(x: float, y: float) -> bool:
    """Not a large number ** 1, which overflows by the error of its logarithm; nor where y - 1 is rounded to -1."""
    return (abs(x) < 3e4 or y != 1.0) and not (x < 0.0 and 0.0 < abs(y) < 1e-3)


def bell(x: float) -> float:
    """exp(-|x|) / (1 + exp(-|x|)) ** 2, the slope of a sigmoid."""
    shrunk = math.exp(-abs(x))
    return shrunk / (1.0 + shrunk) ** 2


EXPONENTS = (0, 1, 2, 3, -1, -2, -3, 7, 0.5, -0.5, 1.5, -1.5, 2.5, 0.25, 33, -33, INF, -INF, NAN)
NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.5, -0.5, INF, -INF, NAN)

Cases = list[Case]


def with_numbers(
    name: str, function: Callable[[Any, float], Any], has_left: bool = True, **options: Any
) -> Cases:
    """An operator with a Python number on its right, and on its left unless it is a method."""
    found = []
    for number in NUMBERS:
        at: dict[str, Any] = {"narrow": False, **options}
        c, where = at.pop("c", None), at.pop("where", None)
        right = {**at, **({"c": lambda x, n=number, c=c: c(x, n)} if c else {})}
        left = {
            **at,
            "slope": at.get("slope", True) and name != "%",
            **({"c": lambda x, n=number, c=c: c(n, x)} if c else {}),
        }
        if where:
            right["where"] = lambda x, n=number, where=where: where(x, n)
            left["where"] = lambda x, n=number, where=where: where(n, x)
        found.append(both(f"x {name} {number}", lambda x, n=number: function(x, n), **right))
        if name == "/":  # PyTorch's multiplies by 1 / x, which may be infinite
            left["c_slope"] = lambda x, n=number: -c_divide(c_divide(n, x), x)
        if has_left:
            found.append(both(f"{number} {name} x", lambda x, n=number: function(n, x), **left))
    return found


def powers() -> Cases:
    found = []
    for exponent in EXPONENTS:
        options: dict[str, Any] = {"units": 64 if abs(exponent) > 8 else 8, "slope_units": 128}
        if abs(exponent) == 1.5:  # its slope has 0.5 as its exponent, a square root in PyTorch
            options |= {"where": lambda x: x != -INF}
        if abs(exponent) == 0.5:
            options |= {"instead": square_root(exponent), "where": lambda x: x > 0 or x != x}
        found.append(
            both(
                f"x ** {exponent}", lambda x, n=exponent: x**n, c=lambda x, n=exponent: c_pow(x, n), **options
            )
        )
    for base in NUMBERS:
        # PyTorch says NaN for 0 * log(0) where the power is not zero
        options = {"units": 64, "slope_units": 128}
        found.append(both(f"{base} ** x", lambda x, n=base: n**x, c=lambda x, n=base: c_pow(n, x), **options))
    return found


def operators(name: str, function: Callable[[Any, Any], Any], has_left: bool = True, **options: Any) -> Cases:
    """An operator of two tensors and with numbers."""
    two_tensors = both(f"x {name} y", function, over="two", **options)
    return [two_tensors, *with_numbers(name, function, has_left, **options)]


def rest(
    name: str, function: Callable[[Any, Any], Any], c: Callable[[float, float], float], **options: Any
) -> Cases:
    return operators(name, function, c=c, where=is_near, units=1, slope_units=1, **options)
