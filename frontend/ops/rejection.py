"""Rejection: numbers of the gamma, Poisson, binomial and von Mises distributions, by trying until one is accepted.

In       shapes, rates, chances, float32 or float64; a Generator or None
Out      a number for each, drawn now
Changes  the counter of the stream that is drawn from
Next     drawing.py, more/distributions/gamma.py, more/distributions/counts.py, more/distributions/bounded.py
         (who draw)
Source   Marsaglia and Tsang 2000, "A Simple Method for Generating Gamma Variables"; Hörmann 1993, "The transformed
         rejection method for generating Poisson random variables" and "The generation of binomial random variates";
         Best and Fisher 1979, "Efficient Simulation of the von Mises Distribution"

There is no loop that ends when all are accepted, which nothing on a device would know in time: all tries are made, and
the first that is accepted counts. A try of gamma is accepted with 0.95 or more, the others with 0.65 or more, so
that of as many as are made at least one is, but for one element in 10**12; that one takes its last try.
"""

from __future__ import annotations

import math
from typing import Any

GAMMA_TRIES, POISSON_TRIES, BINOMIAL_TRIES, ANGLE_TRIES = 10, 24, 24, 26
FEW = 12.0  # events: below this rate each count's probability is added up
MOST_OF_FEW = 56  # more than so many have a probability below 1e-18 there


def first_accepted(values: Any, is_accepted: Any) -> Any:
    """Along axis 0 the first value that is accepted; the last where none is."""
    tries = values.shape[0]
    place = values._kind.arange(tries, device=values.device).reshape(tries, *(1,) * (values.ndim - 1))
    first = is_accepted.where(place, tries - 1).amin(0, keepdim=True)
    return (place == first).where(values, 0.0).sum(0)


def gamma(shape: Any, generator: Any) -> Any:
    """Numbers of the gamma distribution with these shapes and rate 1; NaN for a shape that is not above 0."""
    sizes = (GAMMA_TRIES, *shape.shape)
    is_small = shape < 1.0
    third = is_small.where(shape + 1.0, shape) - 1.0 / 3.0
    scale = (third * 9.0).rsqrt()
    bell = shape._numbers("randn", sizes, generator)
    unit = 1.0 - shape._numbers("rand", sizes, generator)
    cube = 1.0 + scale * bell
    cube = cube * cube * cube
    is_positive = cube > 0.0
    logarithm = is_positive.where(cube, 1.0).log()
    limit = bell * bell * 0.5 + third * (1.0 - cube + logarithm)
    found = first_accepted(third * cube, is_positive & (unit.log() < limit))
    # a shape below 1: of shape + 1, times a power of a uniform number
    unit = 1.0 - shape._numbers("rand", shape.shape, generator)
    smaller = (unit.log() / shape).exp()
    found = is_small.where(found * smaller, found)
    return (shape > 0.0).where(found, math.nan)


def poisson(rate: Any, generator: Any) -> Any:
    """How many events there are at these rates; NaN for a rate below 0."""
    found = (rate < FEW).where(_few(rate, generator), _many(rate, generator))
    return (rate >= 0.0).where(found, math.nan)


def _few(rate: Any, generator: Any) -> Any:
    """As many counts as have probabilities that together stay below a uniform number."""
    unit = rate._numbers("rand", rate.shape, generator)
    small = rate.clamp(1e-30, FEW)
    count = rate._kind.arange(MOST_OF_FEW, device=rate.device, dtype=rate.dtype)
    count = count.reshape(MOST_OF_FEW, *(1,) * rate.ndim)
    chances = (count * small.log() - small - (count + 1.0).lgamma()).exp()
    return (unit >= chances.cumsum(0)).cast(rate.dtype).sum(0)


def _many(rate: Any, generator: Any) -> Any:
    mean = rate.maximum(FEW)
    sizes = (POISSON_TRIES, *rate.shape)
    side, height = (rate._numbers("rand", sizes, generator) for _ in range(2))
    side, height = side - 0.5, 1.0 - height
    width = 0.931 + 2.53 * mean.sqrt()
    slope = -0.059 + 0.02483 * width
    inverse = 1.1239 + 1.1328 / (width - 3.4)
    edge = 0.5 - side.abs()
    count = ((2.0 * slope / edge + width) * side + mean + 0.43).floor()
    is_inside = (edge >= 0.07) & (height <= 0.9277 - 3.6224 / (width - 2.0))
    is_outside = (count < 0.0) | ((edge < 0.013) & (height > edge))
    left = height.log() + inverse.log() - (slope / (edge * edge) + width).log()
    is_below = left <= _log_chance(count.maximum(0.0), mean)
    return first_accepted(count, is_inside | (~is_outside & is_below))


def _log_chance(count: Any, mean: Any) -> Any:
    """log of mean**count * exp(-mean) / count!, without a difference of large numbers."""
    few = count.minimum(15.0)
    small = few * mean.log() - mean - (few + 1.0).lgamma()
    large = count.maximum(15.0)
    apart = (large - mean) / mean
    # Stirling's series of the factorial
    rest = 0.5 * (2.0 * math.pi * large).log() + (1.0 / 12.0 - 1.0 / (360.0 * large * large)) / large
    big = mean * (apart - (1.0 + apart) * apart.log1p()) - rest
    return (count < 15.5).where(small, big)


def binomial(count: Any, chance: Any, generator: Any) -> Any:
    """How many of `count` trials succeed, each with this chance; NaN for what is no chance, or no count."""
    is_right = (chance >= 0.0) & (chance <= 1.0) & (count >= 0.0)
    less = (chance > 0.5).where(1.0 - chance, chance)  # the rarer side is counted
    found = (count * less < FEW).where(_few_of(count, less, generator), _many_of(count, less, generator))
    found = (chance > 0.5).where(count - found, found)
    return is_right.where(found, math.nan)


def _few_of(count: Any, chance: Any, generator: Any) -> Any:
    """As many as have probabilities that together stay below a uniform number."""
    unit = count._numbers("rand", count.shape, generator)
    k = count._kind.arange(MOST_OF_FEW, device=count.device, dtype=count.dtype)
    k = k.reshape(MOST_OF_FEW, *(1,) * count.ndim)
    small = chance.clamp(1e-30, 0.5)
    # ratios of neighbours are exact where differences of lgamma of large counts are not
    ratios = ((count - k + 1.0).clamp(0.0) / k.maximum(1.0)).log() + small.log() - (-small).log1p()
    first = count * (-small).log1p()
    logs = first + (k == 0.0).where(0.0, ratios).cumsum(0)
    chances = (k <= count).where(logs.exp(), 0.0)
    return (unit >= chances.cumsum(0)).cast(count.dtype).sum(0).minimum(count)


def _many_of(count: Any, chance: Any, generator: Any) -> Any:
    count, chance = count.maximum(2.0 * FEW), chance.maximum(1e-30)
    chance = (count * chance < FEW).where(FEW / count, chance)
    sizes = (BINOMIAL_TRIES, *count.shape)
    side, height = (count._numbers("rand", sizes, generator) for _ in range(2))
    side, height = side - 0.5, 1.0 - height
    spread = (count * chance * (1.0 - chance)).sqrt()
    width = 1.15 + 2.53 * spread
    slope = -0.0873 + 0.0248 * width + 0.01 * chance
    edge = 0.5 - side.abs()
    k = ((2.0 * slope / edge + width) * side + count * chance + 0.5).floor()
    is_inside = (edge >= 0.07) & (height <= 0.92 - 4.2 / width)
    is_outside = (k < 0.0) | (k > count)
    held = k.clamp(0.0).minimum(count)
    left = height.log() + ((2.83 + 5.1 / width) * spread).log() - (slope / (edge * edge) + width).log()
    middle = ((count + 1.0) * chance).floor()
    is_below = left <= _log_ratio(count, chance, held, middle)
    return first_accepted(held, ~is_outside & (is_inside | is_below))


def _log_ratio(count: Any, chance: Any, k: Any, middle: Any) -> Any:
    """log of how likely k is beside `middle`, near the mean, without a difference of large numbers."""
    odds = chance / (1.0 - chance)
    first = (middle + 0.5) * ((middle + 1.0) / (odds * (count - middle + 1.0))).log()
    second = (count + 1.0) * ((k - middle) / (count - k + 1.0)).log1p()
    third = (k + 0.5) * (odds * (count - k + 1.0) / (k + 1.0)).log()
    rest = _stirling(middle) + _stirling(count - middle) - _stirling(k) - _stirling(count - k)
    return first + second + third + rest


def _stirling(k: Any) -> Any:
    """log(k!) less (k + 1/2) log(k + 1) - (k + 1) + log(2 pi) / 2."""
    more = k + 1.0
    small = more.lgamma() - ((k + 0.5) * more.log() - more + 0.5 * math.log(2.0 * math.pi))
    square = more * more
    series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 / square) / square) / more
    return (k < 9.5).where(small, series)


def angle(concentration: Any, generator: Any) -> Any:
    """Angles from -pi to pi of the von Mises distribution around 0; NaN for a concentration that is not above 0."""
    k = concentration.maximum(1e-6)
    root = 1.0 + (1.0 + 4.0 * k * k).sqrt()
    rho = (root - (2.0 * root).sqrt()) / (2.0 * k)
    # the quotient loses its digits where k is small, and the root where it is large
    rho = (k < 1e-2).where(k / 2.0, rho)
    bound = (1.0 + rho * rho) / (2.0 * rho)
    bound = (k > 100.0).where(1.0 + 1.0 / (2.0 * k), bound)
    first, second, third = (k._numbers("rand", (ANGLE_TRIES, *k.shape), generator) for _ in range(3))
    z = (math.pi * first).cos()
    f = (1.0 + bound * z) / (bound + z)
    c = k * (bound - f)
    second = 1.0 - second
    is_accepted = (c * (2.0 - c) > second) | ((c / second).log() + 1.0 - c >= 0.0)
    turned = (third < 0.5).where(-1.0, 1.0) * f.clamp(-1.0, 1.0).acos()
    found = first_accepted(turned, is_accepted)
    return (concentration > 0.0).where(found, math.nan)
