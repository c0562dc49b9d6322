"""Pairs: complex numbers in routines: two numbers, and two arrays, side by side.

In       numbers and arrays of a routine
Out      Pair, PairArray
Next     writer.py (the words), hessenberg.py, schur.py, householder_pairs.py, jacobi_pairs.py (complex matrices)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hcq.compiler.routines.writer import Array, Number, Variable, Writer


class Pair:
    """A complex number, or a vector of them."""

    __slots__ = ("imag", "real")

    def __init__(self, real: Number, imag: Number):
        self.real = real
        self.imag = imag

    def __iter__(self) -> Iterator[Number]:
        return iter((self.real, self.imag))

    def __add__(self, other: Pair) -> Pair:
        return Pair(self.real + other.real, self.imag + other.imag)

    def __sub__(self, other: Pair) -> Pair:
        return Pair(self.real - other.real, self.imag - other.imag)

    def __mul__(self, other: Pair | Number | float) -> Pair:
        if not isinstance(other, Pair):
            return Pair(self.real * other, self.imag * other)
        return Pair(
            self.real * other.real + -self.imag * other.imag, self.real * other.imag + self.imag * other.real
        )

    def __neg__(self) -> Pair:
        return Pair(-self.real, -self.imag)

    def conj(self) -> Pair:
        """The conjugate."""
        return Pair(self.real, -self.imag)

    def square(self) -> Number:
        """The square of its size."""
        return self.real * self.real + self.imag * self.imag

    def size(self) -> Number:
        """Its size; the longer part is taken out of the root, so that no square is out of range."""
        return hypot(self.real, self.imag)

    def over(self, other: Pair) -> Pair:
        """Its quotient by another, which is not zero."""
        w = self.real.writer
        one, two = other.real.size(), other.imag.size()
        long = w.where(one < two, two, one)
        unit = Pair(other.real / long, other.imag / long)
        square = unit.square() * long
        product = self * unit.conj()
        return Pair(product.real / square, product.imag / square)

    def root(self) -> Pair:
        """The square root whose real part is not negative."""
        w = self.real.writer
        half = ((self.size() + self.real.size()) * 0.5).sqrt()
        is_zero = half.equals(0.0)
        other = self.imag / (w.where(is_zero, 1.0, half) * 2.0)
        is_left = self.real < 0.0
        upward = w.where(self.imag < 0.0, -half, half)
        return Pair(w.where(is_left, other.size(), half), w.where(is_left, upward, other))


def hypot(a: Number, b: Number) -> Number:
    """The root of the sum of squares."""
    w = a.writer
    one, two = a.size(), b.size()
    long = w.where(one < two, two, one)
    is_zero = long.equals(0.0)
    unit = w.where(is_zero, 1.0, long)
    return ((a / unit) * (a / unit) + (b / unit) * (b / unit)).sqrt() * long


class PairArray:
    """Complex numbers in memory: an array of real parts and one of imaginary parts."""

    __slots__ = ("imag", "real")

    def __init__(self, real: Array, imag: Array):
        self.real = real
        self.imag = imag

    def __getitem__(self, key: object) -> Pair:
        return Pair(self.real[key], self.imag[key])

    def __setitem__(self, key: object, value: Pair) -> None:
        self.real[key] = value.real
        self.imag[key] = value.imag


class PairVariable(NamedTuple):
    """A complex number that changes while the routine runs."""

    real: Variable
    imag: Variable

    @property
    def value(self) -> Pair:
        """What it is here."""
        return Pair(self.real.value, self.imag.value)

    def set(self, value: Pair) -> None:
        """It is this from now on."""
        real, imag = value
        self.real.set(real)
        self.imag.set(imag)


def variable(w: Writer, value: Pair) -> PairVariable:
    """A complex number that will change, and begins as this."""
    return PairVariable(w.variable(value.real), w.variable(value.imag))


def planes(w: Writer, param: int, start: Number, n: int) -> PairArray:
    """A matrix of n rows and columns: its real parts, and behind them its imaginary ones."""
    return PairArray(w.array(param, start, n), w.array(param, start + n * n, n))


def line(w: Writer, param: int, start: Number, n: int) -> PairArray:
    """A vector of n elements: its real parts, and behind them its imaginary ones."""
    return PairArray(w.array(param, start), w.array(param, start + n))


def complex_reflection(w: Writer, alpha: Pair, rest: Number) -> tuple[Pair, Pair, Number]:
    """(tau, v0, beta) for a vector of first element alpha, the squares of whose other elements sum up to `rest`.

    I - tau * v @ v^H, v being the vector with v0 in its first place, takes the vector to beta, a real number, times the
    first axis.
    """
    is_done = rest.equals(0.0) & alpha.imag.equals(0.0)
    size = alpha.size()
    norm = (size * size + rest).sqrt()
    beta = w.where(alpha.real < 0.0, norm, -norm)
    inner = Pair(w.where(is_done, 1.0, norm * norm - beta * alpha.real), -beta * alpha.imag)
    tau = Pair(w.where(is_done, w.constant(0.0), 1.0), w.constant(0.0)).over(inner)
    return tau, Pair(alpha.real - beta, alpha.imag), w.where(is_done, alpha.real, beta)
