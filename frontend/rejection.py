"""Rejection: random numbers of the gamma and the Poisson distribution, by trying so often that one try is accepted.

In       shapes and rates, float32 or float64; a Generator or None
Out      a number for each, drawn now
Changes  the counter of the stream that is drawn from
Next     methods/drawing.py, distributions/gamma.py (who draws)
Source   Marsaglia and Tsang 2000, "A Simple Method for Generating Gamma Variables"; Hörmann 1993, "The transformed
         rejection method for generating Poisson random variables"

There is no loop that ends when all are accepted, which nothing on a device would know in time: all tries are made, and
the first that is accepted counts. A try of gamma is accepted with 0.95 or more, one of Poisson with 0.7 or more, so
that of as many as are made at least one is, but for one element in 10**12; that one takes its last try.
"""

from __future__ import annotations

import math
from typing import Any

GAMMA_TRIES, POISSON_TRIES = 10, 24
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
