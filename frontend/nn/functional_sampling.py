"""Sampling: elements of images and volumes at places between their own, which a grid names.

In       (batch, channels, *space) of two or three axes, and a grid (batch, *places, axes) of numbers from -1 to 1
Out      (batch, channels, *places), with gradients of both
Next     functional.py (where they are found), ops/rearranging.py (interpolate: places at even steps)

A coordinate of -1 is one end of an axis and 1 the other, x (the last axis) first. A place outside of the image is zero
("zeros"), the nearest edge ("border"), or reflected until it is inside ("reflection"). Each result is a sum over the
elements around: the nearest alone, two of each axis for "bilinear", four for "bicubic".
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.base import in_float_together
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")
SHARPNESS = -0.75  # of the cubic, as in interpolate


@checked
@in_float_together
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """The elements of an image at the places of a grid: (n, c, h, w) and (n, h', w', 2), or (n, c, d, h, w) and 3.

    mode            "bilinear" (of a volume, too), "nearest", or "bicubic", of images alone
    padding_mode    what is outside: "zeros", "border" or "reflection"
    align_corners   True: -1 and 1 are the middles of the outermost elements; else their outer edges

    >>> grid_sample(Tensor([[[[1.0, 3.0]]]]), Tensor([[[[0.0, 0.0]]]])).tolist()
    [[[[2.0]]]]
    """
    rank = input.ndim - 2
    if (
        rank not in (2, 3)
        or grid.ndim != rank + 2
        or grid.shape[-1] != rank
        or grid.shape[0] != input.shape[0]
    ):
        raise UsageError(
            f"[grid_sample] input {input.shape}, grid {grid.shape}: give (batch, channels, *space) of 2 or 3 axes, and "
            "(batch, *places, axes)."
        )
    if mode not in MODES or padding_mode not in PADDINGS or (mode == "bicubic" and rank == 3):
        raise UsageError(
            f"[grid_sample] mode={shown(mode)}, padding_mode={shown(padding_mode)} of {rank} axes: use {MODES} "
            f"('bicubic' of images alone) and {PADDINGS}."
        )
    if 0 in input.shape[1:]:
        raise UsageError(f"[grid_sample] input {input.shape}: an empty image has no elements.")
    batch, channels, *space = input.shape
    places = grid.shape[1:-1]
    wide = grid if grid.dtype.itemsize >= 4 else grid.cast(dtypes.float32)
    align = bool(align_corners)
    flat = [wide[..., rank - 1 - axis].reshape(batch, prod(places)) for axis in range(rank)]
    at = [_place(line, size, align) for line, size in zip(flat, space)]
    if mode != "bicubic":
        at = [_inside(line, size, padding_mode, align) for line, size in zip(at, space)]
    choices = [_taps(line, mode) for line in at]
    image = input.reshape(batch, channels, prod(space))
    total: Any = None
    for taps in itertools.product(*choices):
        part = _picked(image, [tap for tap, _ in taps], space, padding_mode, align, mode)
        for _, weight in taps:
            part = part if weight is None else part * weight.cast(input.dtype).unsqueeze(1)
        total = part if total is None else total + part
    return total.reshape(batch, channels, *places)  # type: ignore[no-any-return]


def _place(x: Tensor, size: int, align: bool) -> Tensor:
    """-1 .. 1 as a place on an axis."""
    return (x + 1.0) * ((size - 1) / 2.0) if align else ((x + 1.0) * size - 1.0) * 0.5


def _inside(x: Tensor, size: int, padding: str, align: bool) -> Tensor:
    """A place on the axis, by what is done with places outside."""
    if padding == "reflection":
        low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
        if span <= 0.0:
            x = x * 0.0
        else:
            away = (x - low).abs()
            turns = (away.detach() / span).floor()
            rest = away - turns * span
            x = ((turns % 2.0) == 0.0).where(rest, span - rest) + low
    return x if padding == "zeros" else x.clamp(0.0, size - 1.0)


def _taps(x: Tensor, mode: str) -> list[tuple[Tensor, Tensor | None]]:
    """The elements around a place of one axis, and how much each counts."""
    if mode == "nearest":
        return [(x.detach().round(), None)]
    base = x.detach().floor()
    share = x - base
    if mode == "bilinear":
        return [(base, 1.0 - share), (base + 1.0, share)]
    a, rest = SHARPNESS, 1.0 - share

    def near(t: Tensor) -> Tensor:
        return ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0

    def far(t: Tensor) -> Tensor:
        return ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a

    weights = (far(share + 1.0), near(share), near(rest), far(rest + 1.0))
    return [(base + float(k - 1), weight) for k, weight in enumerate(weights)]


def _picked(
    image: Tensor, taps: list[Tensor], space: Sequence[int], padding: str, align: bool, mode: str
) -> Tensor:
    """(batch, channels, places): the elements at whole places of each axis; zero where they are outside."""
    index: Any = None
    inside: Any = None
    for tap, size in zip(taps, space):
        at = _inside(tap, size, padding, align) if mode == "bicubic" else tap
        is_there = (at >= 0.0) & (at <= size - 1.0)
        inside = is_there if inside is None else inside & is_there
        whole = is_there.where(at, 0.0).cast(dtypes.int64)
        index = whole if index is None else index * size + whole
    wide = index.unsqueeze(1).expand(image.shape[0], image.shape[1], index.shape[1])
    found = image.gather(2, wide)
    return inside.unsqueeze(1).where(found, 0.0)


@checked
def affine_grid(
    theta: Tensor, size: tuple[int, ...] | list[int], align_corners: bool | None = None
) -> Tensor:
    """The grid of affine maps for `grid_sample`: theta (n, 2, 3) of images of `size` (n, c, h, w), or (n, 3, 4).

    >>> theta = Tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> nn.functional.affine_grid(theta, (1, 1, 1, 2), align_corners=False).tolist()
    [[[[-0.5, 0.0], [0.5, 0.0]]]]
    """
    rank = len(size) - 2
    if rank not in (2, 3) or theta.shape != (size[0], rank, rank + 1) or any(n < 1 for n in size):
        raise UsageError(
            f"[affine_grid] theta {theta.shape}, size {tuple(size)}: give (n, 2, 3) and (n, c, h, w), or (n, 3, 4) and "
            "(n, c, d, h, w)."
        )
    space = tuple(size[2:])
    lines = []
    for axis in reversed(range(rank)):
        n = space[axis]
        reach = (1.0 if align_corners else (n - 1) / n) if n > 1 else 0.0
        line = Tensor.linspace(-reach, reach, n, device=theta.device).cast(theta.dtype)
        shape = [n if d == axis else 1 for d in range(rank)]
        lines.append(line.reshape(shape).expand(space))
    lines.append(lines[0].ones_like())
    base = Tensor.stack(lines, dim=-1).reshape(1, prod(space), rank + 1)
    return base.expand(size[0], prod(space), rank + 1).matmul(theta.mT).reshape(size[0], *space, rank)


@checked
def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` by its older name.

    >>> nn.functional.upsample(Tensor([[[1.0, 3.0]]]), scale_factor=2).tolist()
    [[[1.0, 1.0, 3.0, 3.0]]]
    """
    return input.interpolate(size, scale_factor, mode, align_corners)


@checked
def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` in the mode "nearest".

    >>> nn.functional.upsample_nearest(Tensor([[[[1.0, 3.0]]]]), size=(1, 4)).tolist()
    [[[[1.0, 1.0, 3.0, 3.0]]]]
    """
    return input.interpolate(size, scale_factor, "nearest")


@checked
def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` in the mode "bilinear", with the corners where they are.

    >>> nn.functional.upsample_bilinear(Tensor([[[[1.0, 4.0]]]]), size=(1, 4)).tolist()
    [[[[1.0, 2.0, 3.0, 4.0]]]]
    """
    return input.interpolate(size, scale_factor, "bilinear", True)


@checked
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`grid_sample`, whose modes are numbers: 0 bilinear, 1 nearest, 2 bicubic; 0 zeros, 1 border, 2 reflection.

    >>> hcq.grid_sampler(Tensor([[[[1.0, 3.0]]]]), Tensor([[[[0.0, 0.0]]]]), 0, 0, False).item()
    2.0
    """
    if interpolation_mode not in (0, 1, 2) or padding_mode not in (0, 1, 2):
        raise UsageError(f"[grid_sampler] modes {interpolation_mode} and {padding_mode}: use 0, 1 or 2.")
    return grid_sample(input, grid, MODES[interpolation_mode], PADDINGS[padding_mode], align_corners)


grid_sampler_2d = grid_sampler_3d = grid_sampler
