"""Rearranging: channels to space and back, interpolation by neighbours, local response norm.

In       tensors shaped (batch, channels, *space)
Out      lazy tensors: views, and weighted sums of picked elements
Next     pooling.py (windows), movement.py (the views)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.base import Methods, Self, in_float_together
from hcq.ir.dtype import dtypes
from hcq.ir.op import Op

SPACES = {"linear": (1,), "bilinear": (2,), "bicubic": (2,), "trilinear": (3,)}
MOST = 1 << 16  # elements of an axis whose neighbours are worked out one by one
WIDTHS = {"bilinear": 1.0, "bicubic": 2.0}  # how far the kernels that antialias reach
SHARPNESS = -0.75  # of the cubic through four neighbours


class Rearranging(Methods):
    """pixel_shuffle, pixel_unshuffle, channel_shuffle, interpolate, local_response_norm."""

    __slots__ = ()

    def pixel_shuffle(self, upscale_factor: int) -> Self:
        """Channels become space: (..., c * r * r, h, w) -> (..., c, h * r, w * r).

        >>> Tensor.arange(4).reshape(4, 1, 1).pixel_shuffle(2).tolist()
        [[[0, 1], [2, 3]]]
        """
        shape, r = self.node.shape, upscale_factor
        if len(shape) < 3 or r < 1 or shape[-3] % (r * r):
            raise UsageError(
                f"[pixel_shuffle] shape {shape}, factor {r}: channels must be a multiple of {r * r}."
            )
        *lead, c, h, w = shape
        x = self._reshape((*lead, c // (r * r), r, r, h, w))
        n = len(lead)
        x = x.permute([*range(n), n, n + 3, n + 1, n + 4, n + 2])
        return x._reshape((*lead, c // (r * r), h * r, w * r))

    def pixel_unshuffle(self, downscale_factor: int) -> Self:
        """Space becomes channels: (..., c, h * r, w * r) -> (..., c * r * r, h, w).

        >>> Tensor.zeros(1, 3, 4, 6).pixel_unshuffle(2).shape
        (1, 12, 2, 3)
        """
        shape, r = self.node.shape, downscale_factor
        if len(shape) < 3 or r < 1 or shape[-1] % r or shape[-2] % r:
            raise UsageError(
                f"[pixel_unshuffle] shape {shape}, factor {r}: height and width must be multiples."
            )
        *lead, c, h, w = shape
        x = self._reshape((*lead, c, h // r, r, w // r, r))
        n = len(lead)
        x = x.permute([*range(n), n, n + 2, n + 4, n + 1, n + 3])
        return x._reshape((*lead, c * r * r, h // r, w // r))

    def channel_shuffle(self, groups: int) -> Self:
        """Channels dealt out: of each group the first, then of each the second, ...

        >>> Tensor.arange(4).reshape(1, 4, 1, 1).channel_shuffle(2).flatten().tolist()
        [0, 2, 1, 3]
        """
        shape = self.node.shape
        if len(shape) < 3 or groups < 1 or shape[1] % groups:
            raise UsageError(
                f"[channel_shuffle] shape {shape}, groups={groups}: they must divide the channels."
            )
        x = self._reshape((shape[0], groups, shape[1] // groups, *shape[2:]))
        return x.transpose(1, 2)._reshape(shape)

    @in_float_together
    def local_response_norm(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Self:
        """x / (k + alpha * the mean of squares of `size` neighbouring channels) ** beta.

        >>> print(Tensor([[[2.0], [4.0]]]).local_response_norm(1, alpha=1.0, beta=1.0, k=0.0).flatten())
        tensor([0.5000, 0.2500])
        """
        shape = self.node.shape
        if len(shape) < 3 or size < 1:
            raise UsageError(
                f"[local_response_norm] shape {shape}, size={size}: give (batch, channels, *space)."
            )
        if not self.numel():
            return self
        around = (0, 0) * (len(shape) - 2) + (size // 2, (size - 1) // 2)
        total = self.square().pad(around).unfold(1, size, 1)._reduce(Op.ADD, (len(shape),), keepdim=False)
        is_float = self.node.dtype.is_float  # of integers the mean is one, too, as in PyTorch
        mean = total / size if is_float else (total / size).trunc()
        return self / (mean * alpha + k) ** beta

    @in_float_together
    def interpolate(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
        antialias: bool = False,
    ) -> Self:
        """The space of (batch, channels, *space) in another size.

        size, scale_factor   one of them: what the sizes become, or how many times they grow
        mode                 "nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic" or "area"; but for
                             the nearest, of floats, and of uint8, which is rounded
        align_corners        the outermost elements stay where they are
        antialias            "bilinear" and "bicubic" average over what a smaller size leaves out

        >>> x = Tensor([[[1.0, 3.0]]])
        >>> x.interpolate(size=4).tolist(), x.interpolate(size=4, mode="linear", align_corners=False).tolist()
        ([[[1.0, 1.0, 3.0, 3.0]]], [[[1.0, 1.5, 2.5, 3.0]]])
        """
        call = "interpolate"
        self._refuse_cut(call, 2)
        space = self.node.shape[2:]
        rank = len(space)
        if not space or (size is None) == (scale_factor is None):
            raise UsageError(f"[{call}] shape {self.node.shape}: give (batch, channels, *space), and one of size and "
                             "scale_factor.")  # fmt: skip
        if antialias and mode not in WIDTHS:
            raise UsageError(f"[{call}] antialias of mode {shown(mode)}: it is for {tuple(WIDTHS)}.")
        if rank not in SPACES.get(mode, (rank,)):
            raise UsageError(f"[{call}] mode {shown(mode)} is not for {rank} axes of space.")
        scales: list[float | None] = [None] * rank
        if scale_factor is not None:
            given = scale_factor if isinstance(scale_factor, (tuple, list)) else [scale_factor] * rank
            if len(given) != rank or any(not isinstance(g, (int, float)) or not 0 < g < MOST for g in given):
                raise UsageError(f"[{call}] scale_factor={shown(scale_factor)}: give {rank} numbers above 0.")
            wanted = [math.floor(n * float(g)) for n, g in zip(space, given)]
            if not recompute_scale_factor:
                scales = [1.0 / float(g) for g in given]
        else:
            wanted = list(size) if isinstance(size, (tuple, list)) else [size] * rank
        if (
            len(wanted) != rank
            or any(not isinstance(n, int) or not 1 <= n <= MOST for n in wanted)
            or 0 in space
        ):
            raise UsageError(f"[{call}] {tuple(space)} to {shown(wanted)}: give {rank} sizes of 1 to {MOST}.")
        if mode == "area":
            return self._adaptive_average(call, tuple(wanted), rank)
        x = self
        is_exact = mode.startswith("nearest") or x.node.dtype.is_float
        if not is_exact:
            if x.node.dtype is not dtypes.uint8:
                raise UsageError(
                    f"[{call}] mode {shown(mode)} of {x.node.dtype.name}: means of neighbours are no whole numbers. "
                    "Convert first: x.float()."
                )
        for d, n, want, scale in reversed(list(zip(range(2, 2 + rank), space, wanted, scales))):
            if antialias:
                x = x._averaged(d, n, want, scale, mode, bool(align_corners))
            else:
                x = x._resized(d, n, want, scale, mode, bool(align_corners))
        return x

    def _averaged(self, axis: int, n: int, want: int, scale: float | None, mode: str, align: bool) -> Self:
        """One axis in another size, by a kernel as wide as what each new element stands for: a product of matrices."""
        step = (
            (n - 1) / (want - 1)
            if align and want > 1
            else 0.0
            if align
            else n / want
            if scale is None
            else scale
        )
        wide = max(step, 1.0)
        reach = WIDTHS[mode] * wide
        rows = []
        for i in range(want):
            middle = step * (i + 0.5)
            low, high = max(int(middle - reach + 0.5), 0), min(int(middle + reach + 0.5), n)
            weights = [_kernel(mode, (j - middle + 0.5) / wide) if low <= j < high else 0.0 for j in range(n)]
            total = sum(weights) or 1.0
            rows.append([weight / total for weight in weights])
        x = self.movedim(axis, -1)
        if self.node.dtype is dtypes.uint8:
            whole, bits = _whole_weights(rows)
            factors = self._kind(whole, device=self.device, dtype=dtypes.int32)
            return _bytes_of(x.cast(dtypes.int32).matmul(factors.mT), bits).movedim(-1, axis)
        matrix = self._kind(rows, device=self.device, dtype=self.node.dtype)
        return x.matmul(matrix.mT).movedim(-1, axis)

    def _resized(self, axis: int, n: int, want: int, scale: float | None, mode: str, align: bool) -> Self:
        """One axis in another size: each new element is a weighted sum of old ones."""
        step = n / want if scale is None else scale
        if mode in ("nearest", "nearest-exact"):
            offset = 0.5 if mode == "nearest-exact" else 0.0
            places = [min(int((i + offset) * _single(step)), n - 1) for i in range(want)]
            return self._taken(axis, places)
        if mode not in SPACES:
            raise UsageError(f"[interpolate] mode {shown(mode)} is unknown.")
        if align:
            places_at = [i * ((n - 1) / (want - 1)) if want > 1 else 0.0 for i in range(want)]
        else:
            places_at = [(i + 0.5) * step - 0.5 for i in range(want)]
        if mode == "bicubic":
            return self._weighed_neighbours(axis, n, places_at, _cubic, -1)
        places_at = [max(0.0, place) for place in places_at]
        return self._weighed_neighbours(axis, n, places_at, _linear, 0)

    def _weighed_neighbours(self, axis: int, n: int, places: Sequence[float], weigh: Any, first: int) -> Self:
        weights = [weigh(place - math.floor(place)) for place in places]
        shape = tuple([len(places) if a == axis else 1 for a in range(len(self.node.shape))])
        is_bytes = self.node.dtype is dtypes.uint8
        number, bits = self.node.dtype, 0
        taps = range(len(weights[0]))
        columns = [[min(max(math.floor(place) + first + k, 0), n - 1) for place in places] for k in taps]
        if is_bytes:
            rows = [_together(row, picked) for row, picked in zip(weights, zip(*columns))]
            weights, bits = _whole_weights(rows)
            number = dtypes.int32
        total: Any = None
        for k, picked in zip(taps, columns):
            factor = self._kind([row[k] for row in weights], device=self.device, dtype=number)
            part = self._taken(axis, picked).cast(number) * factor._reshape(shape)
            total = part if total is None else total + part
        return _bytes_of(total, bits) if is_bytes else total

    def _taken(self, axis: int, places: list[int]) -> Self:
        return self[(slice(None),) * axis + (places,)]


def _together(weights: Sequence[float], places: Sequence[int]) -> list[float]:
    """The weights with those of one place, beyond a border, added up at the first of them."""
    found = [0.0] * len(weights)
    for weight, place in zip(weights, places):
        found[places.index(place)] += weight
    return found


def _whole_weights(rows: Sequence[Sequence[float]]) -> tuple[list[list[int]], int]:
    """Weights in units of a power of two, and its exponent: as many bits as leave the largest below 2**15, 22 at most.

    PyTorch weighs bytes so: the means of an axis are whole numbers, rounded before the next axis.
    """
    largest = max(max(row) for row in rows)
    bits = 0
    while bits < 22 and math.floor(0.5 + largest * (2 << bits)) < 1 << 15:
        bits += 1
    return [[int(math.copysign(0.5, w) + w * (1 << bits)) for w in row] for row in rows], bits


def _bytes_of(total: Any, bits: int) -> Any:
    """Sums in units of 2**-bits as bytes: rounded to the nearest, what lies outside to the next."""
    return ((total + (1 << (bits - 1))) >> bits).clamp(0, 255).cast(dtypes.uint8)


def _single(step: float) -> float:
    """A number as float32 holds it: PyTorch counts places so."""
    import struct

    return float(struct.unpack("f", struct.pack("f", step))[0])


def _kernel(mode: str, x: float) -> float:
    """How much an element x away counts: a triangle, or Keys's cubic with its sharpness of a half."""
    x, a = abs(x), -0.5
    if mode == "bilinear":
        return max(0.0, 1.0 - x)
    if x < 1.0:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    return (((x - 5.0) * x + 8.0) * x - 4.0) * a if x < 2.0 else 0.0


def _linear(t: float) -> list[float]:
    return [1.0 - t, t]


def _cubic(t: float) -> list[float]:
    a = SHARPNESS

    def near(x: float) -> float:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0

    def far(x: float) -> float:
        return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]
