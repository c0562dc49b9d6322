"""Fit polynomials: where the coefficients of transcendental.py and trigonometry.py come from.

In       the functions below, each on its reduced interval
Out      coefficients that make the largest relative error least, rounded to the format; printed with that error
Next     compiler/passes/transcendental.py and trigonometry.py there (who use them)
Source   E. Remez, "Sur la determination des polynomes d'approximation de degre donnee" (1934): the exchange of points

Run it as `python tests/compiler/passes/fit_polynomials.py`; it takes some seconds and needs the standard library alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from typing import NamedTuple

DIGITS = 60
GRID = 400  # points that the error is looked at
EXCHANGES = 12
# closer to zero the functions are taken from their series: the closed form cancels
NEGLIGIBLE = Decimal("1e-12")
Function = Callable[[Decimal], Decimal]


class Fit(NamedTuple):
    """`function` times `weight` is approximated by a polynomial times `weight`, on [low, high]."""

    name: str
    terms: int
    single: bool  # rounded to float32, else to float64
    function: Function
    weight: Function  # the relative error that an error of 1 in the polynomial makes in the result
    low: Decimal
    high: Decimal


def sine_and_cosine(x: Decimal) -> tuple[Decimal, Decimal]:
    """By their series; for |x| up to a few units."""
    sums = [Decimal(0), Decimal(0)]
    term, n = Decimal(1), 0
    while abs(term) > Decimal(10) ** (-DIGITS - 5):
        sums[n % 2] += term if n % 4 < 2 else -term
        n += 1
        term = term * x / n
    return sums[1], sums[0]


def half_pi() -> Decimal:
    """The zero of the cosine near 1.57, by Newton's method."""
    x = Decimal("1.5707963267948966")
    for _ in range(4):
        sine, cosine = sine_and_cosine(x)
        x += cosine / sine
    return x


def solve(rows: list[list[Decimal]], right: list[Decimal]) -> list[Decimal]:
    """The solution of a square system, by elimination with the largest pivot."""
    n = len(rows)
    rows = [[*row, value] for row, value in zip(rows, right, strict=True)]
    for column in range(n):
        best = max(range(column, n), key=lambda row: abs(rows[row][column]))
        rows[column], rows[best] = rows[best], rows[column]
        for row in range(column + 1, n):
            factor = rows[row][column] / rows[column][column]
            rows[row] = [a - factor * b for a, b in zip(rows[row], rows[column], strict=True)]
    solution = [Decimal(0)] * n
    for row in reversed(range(n)):
        known = sum((rows[row][column] * solution[column] for column in range(row + 1, n)), Decimal(0))
        solution[row] = (rows[row][n] - known) / rows[row][row]
    return solution


def remez(fit: Fit) -> list[Decimal]:
    """Coefficients, lowest first; their error is equally large at one point more than there are coefficients."""
    middle, radius = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    pi = 2 * half_pi()
    grid = [middle - radius * sine_and_cosine(pi * k / GRID)[1] for k in range(GRID + 1)]
    wanted = [fit.function(x) for x in grid]
    weights = [fit.weight(x) for x in grid]
    count = fit.terms + 1
    points = [middle - radius * sine_and_cosine(pi * (2 * k + 1) / (2 * count))[1] for k in range(count)]
    coefficients: list[Decimal] = []
    for _ in range(EXCHANGES):
        rows = [
            [*(x**power for power in range(fit.terms)), (-1) ** i / fit.weight(x)]
            for i, x in enumerate(points)
        ]
        coefficients = solve(rows, [fit.function(x) for x in points])[:-1]
        errors = [
            weight * (value - evaluate(coefficients, x))
            for weight, value, x in zip(weights, wanted, grid, strict=True)
        ]
        extremes = alternating_extremes(errors, count)
        if len(extremes) < count:
            break
        points = [grid[k] for k in extremes]
    return coefficients


def alternating_extremes(errors: Sequence[Decimal], count: int) -> list[int]:
    """Where the error is largest between its changes of sign; the smaller end is dropped while there are too many."""
    found: list[int] = []
    for k, error in enumerate(errors):
        before, after = errors[max(k - 1, 0)], errors[min(k + 1, len(errors) - 1)]
        rises = abs(error) >= abs(before) or error * before < 0
        falls = abs(error) >= abs(after) or error * after < 0
        if not (rises and falls):
            continue
        if not found or errors[found[-1]] * error <= 0:
            found.append(k)
        elif abs(error) > abs(errors[found[-1]]):
            found[-1] = k
    while len(found) > count:
        found.pop(0 if abs(errors[found[0]]) < abs(errors[found[-1]]) else -1)
    return found


def evaluate(coefficients: Sequence[Decimal], x: Decimal) -> Decimal:
    """A polynomial at x; coefficients begin with the constant."""
    value = Decimal(0)
    for coefficient in reversed(coefficients):
        value = value * x + coefficient
    return value


def rounded(fit: Fit) -> tuple[list[float], float]:
    """The coefficients in the format, and the largest relative error they leave."""
    with localcontext() as context:
        context.prec = DIGITS
        numbers = [float(c) for c in remez(fit)]
        if fit.single:
            numbers = [struct.unpack("<f", struct.pack("<f", number))[0] for number in numbers]
        exact = [Decimal(number) for number in numbers]
        step = (fit.high - fit.low) / 1000
        samples = [fit.low + step * k for k in range(1001)]
        errors = [abs(fit.weight(x) * (fit.function(x) - evaluate(exact, x))) for x in samples]
        return numbers, float(max(errors))


# -- the functions -----------------------------------------------------------------------------------------------------


def fits() -> list[Fit]:
    """All fits, by the names of the constants that hold them."""
    with localcontext() as context:
        context.prec = DIGITS
        one, two = Decimal(1), Decimal(2)
        ln2, root = two.ln(), two.sqrt()
        tiny = Decimal("1e-30")
        half_ln2 = ln2 / 2 * Decimal("1.0001")
        low, high = (one / 2).sqrt() - 1, root - 1
        division_end = (high / (2 + high)) ** 2 * Decimal("1.0001")
        square_end = (half_pi() / 2) ** 2 * Decimal("1.0002")

        def exp(r: Decimal) -> Decimal:
            return (r.exp() - 1 - r) / r**2 if abs(r) > NEGLIGIBLE else one / 2 + r / 6

        def exp_weight(r: Decimal) -> Decimal:
            return r * r / r.exp() + tiny

        def exp2(r: Decimal) -> Decimal:
            return ((r * ln2).exp() - 1) / r if abs(r) > NEGLIGIBLE else ln2 + r * ln2**2 / 2

        def exp2_weight(r: Decimal) -> Decimal:
            return abs(r) / (r * ln2).exp() + tiny

        def log(f: Decimal) -> Decimal:
            return ((1 + f).ln() - f + f * f / 2) / f**3 if abs(f) > NEGLIGIBLE else one / 3 - f / 4

        def log_weight(f: Decimal) -> Decimal:
            return abs(f**3 / (1 + f).ln()) if abs(f) > NEGLIGIBLE else f * f + tiny

        def log2(f: Decimal) -> Decimal:
            return (((1 + f).ln() - f) / f**2 if abs(f) > NEGLIGIBLE else -one / 2 + f / 3) / ln2

        def log2_weight(f: Decimal) -> Decimal:
            return abs(f * f / (1 + f).ln() * ln2) if abs(f) > NEGLIGIBLE else abs(f) * ln2 + tiny

        def log_by_division(z: Decimal) -> Decimal:
            if abs(z) < NEGLIGIBLE:
                return two / 3 + 2 * z / 5
            s = z.sqrt()
            return (((1 + s) / (1 - s)).ln() / s - 2) / z

        def sine(z: Decimal) -> Decimal:
            r = z.sqrt()
            return (sine_and_cosine(r)[0] - r) / r**3 if abs(z) > NEGLIGIBLE else -one / 6 + z / 120

        def cosine(z: Decimal) -> Decimal:
            return (
                (sine_and_cosine(z.sqrt())[1] - 1 + z / 2) / z**2
                if abs(z) > Decimal("1e-9")
                else one / 24 - z / 720
            )

        return [
            Fit("exp float32", 5, True, exp, exp_weight, -half_ln2, half_ln2),
            Fit("exp float64", 10, False, exp, exp_weight, -half_ln2, half_ln2),
            Fit("exp2 float32", 6, True, exp2, exp2_weight, -one / 2, one / 2),
            Fit("exp2 float64", 12, False, exp2, exp2_weight, -one / 2, one / 2),
            Fit("log float32", 8, True, log, log_weight, low, high),
            Fit("log2 float32", 9, True, log2, log2_weight, low, high),
            Fit("log float64", 7, False, log_by_division, lambda z: z / 2 + tiny, Decimal(0), division_end),
            Fit("sin float32", 3, True, sine, lambda z: z + tiny, Decimal(0), square_end),
            Fit("sin float64", 6, False, sine, lambda z: z + tiny, Decimal(0), square_end),
            Fit("cos float32", 3, True, cosine, lambda z: z * z + tiny, Decimal(0), square_end),
            Fit("cos float64", 6, False, cosine, lambda z: z * z + tiny, Decimal(0), square_end),
        ]


def main() -> None:
    """Print every fit with its largest relative error."""
    for fit in fits():
        numbers, error = rounded(fit)
        print(f"{fit.name}: largest relative error {error:.2e}")
        print("   ", *numbers)


if __name__ == "__main__":
    main()
