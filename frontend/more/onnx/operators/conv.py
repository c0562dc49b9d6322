"""Convolutions: windows over an image, their transposes, and windows that are moved.

In       tensors (batch, channels, *space); window, strides, dilations, pads as attributes
Out      tensors (batch, channels, *space)
Changes  table.py's table
Next     pool.py (extremes and averages of windows), quantize.py (convolutions of integers)
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.operators.math import same_dtype, whole
from hcq.frontend.more.onnx.operators.shape import padded
from hcq.frontend.more.onnx.table import operator
from hcq.frontend.tensor import Tensor

Pairs = list[tuple[int, int]]


class Windows(NamedTuple):
    """The attributes that all operators with windows have: how far these are apart, and their elements."""

    auto_pad: str = "NOTSET"
    dilations: Any = None
    pads: Any = None
    strides: Any = None

    def steps(self, rank: int) -> Any:
        """From one window to the next."""
        return self.strides or [1] * rank

    def reach(self, rank: int) -> Any:
        """From one element of a window to the next."""
        return self.dilations or [1] * rank

    def around(self, space: Any, window: Any) -> Pairs:
        """What stands before and behind each axis."""
        rank = len(window)
        if self.auto_pad in ("NOTSET", ""):
            given = self.pads or [0] * (2 * rank)
            return [(given[i], given[i + rank]) for i in range(rank)]
        if self.auto_pad == "VALID":
            return [(0, 0)] * rank
        if self.auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
            raise UsageError(f"auto_pad {self.auto_pad!r}; known are NOTSET, VALID, SAME_UPPER, SAME_LOWER")
        found = []
        for size, length, step, reach in zip(space, window, self.steps(rank), self.reach(rank)):
            full = max(0, (-(-size // step) - 1) * step + reach * (length - 1) + 1 - size)
            less, more = full // 2, full - full // 2
            found.append((less, more) if self.auto_pad == "SAME_UPPER" else (more, less))
        return found


def surrounded(x: Tensor, around: Pairs, filling: Any = 0) -> Tensor:
    """Its last axes with elements around."""
    if not any(a or b for a, b in around):
        return x
    return padded(x, [(0, 0)] * (x.ndim - len(around)) + around, "constant", filling)


@operator("Conv", since=1, windows=Windows)
def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    group: int = 1,
    kernel_shape: Any = None,
    windows: Windows,
) -> Any:
    """Cross-correlation with a window, zeros around."""
    steps, reach = windows.steps(w.ndim - 2), windows.reach(w.ndim - 2)
    around = windows.around(x.shape[2:], w.shape[2:])
    if all(a == b_ and 2 * a <= r * (n - 1) for (a, b_), n, r in zip(around, w.shape[2:], reach)):
        return same_dtype(x, x.conv2d(w, b, steps, [a for a, _ in around], reach, group))
    return same_dtype(x, surrounded(x, around).conv2d(w, b, steps, 0, reach, group))


@operator("ConvTranspose", since=1, windows=Windows)
def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    group: int = 1,
    kernel_shape: Any = None,
    output_padding: Any = None,
    output_shape: Any = None,
    windows: Windows,
) -> Any:
    """All that a window reaches, then cut by the pads: what is cut beyond the end stands there as zeros."""
    rank, auto_pad = w.ndim - 2, windows.auto_pad
    steps, reach = windows.steps(rank), windows.reach(rank)
    extra = output_padding or [0] * rank
    full = [
        (size - 1) * step + r * (n - 1) + 1 + more
        for size, step, r, n, more in zip(x.shape[2:], steps, reach, w.shape[2:], extra)
    ]
    if output_shape:
        over = [have - want for have, want in zip(full, output_shape[-rank:])]
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        over = [have - size * step for have, size, step in zip(full, x.shape[2:], steps)]
    else:
        over = []
    if over:  # half before and half behind, and the odd one before; behind for SAME_UPPER
        around = [(n - n // 2, n // 2) for n in over]
        if auto_pad == "SAME_UPPER":
            around = [(b_, a) for a, b_ in around]
    else:
        around = windows.around(x.shape[2:], w.shape[2:])
    found = x.conv_transpose2d(w, None, steps, 0, 0, group, reach)
    found = surrounded(found, [(-a, more - b_) for (a, b_), more in zip(around, extra)])
    return same_dtype(x, found if b is None else found + b.reshape(-1, *[1] * rank))


@operator("Col2Im", since=18, host="image block")
def col2im(
    x: Tensor, image: Any, block: Any, *, dilations: Any = None, pads: Any = None, strides: Any = None
) -> Any:
    """Windows put back where they were taken, and summed where they overlap."""
    space, window = whole(image), whole(block)
    windows_ = Windows(dilations=dilations, pads=pads, strides=strides)
    steps, reach = windows_.steps(len(space)), windows_.reach(len(space))
    around = windows_.around(space, window)
    sizes = [n + a + b for n, (a, b) in zip(space, around)]
    places = [(n - r * (k - 1) - 1) // s + 1 for n, r, k, s in zip(sizes, reach, window, steps)]
    batch, channels = x.shape[0], x.shape[1] // prod(window)
    windows = x.reshape(batch, channels, prod(window), *places)
    total: Any = None
    for i, offset in enumerate(product(*map(range, window))):
        part = spread(windows[:, :, i], steps)
        part = surrounded(
            part, [(o * r, n - o * r - m) for o, r, n, m in zip(offset, reach, sizes, part.shape[2:])]
        )
        total = part if total is None else total + part
    return surrounded(total, [(-a, -b) for a, b in around])


def spread(x: Tensor, steps: Any) -> Tensor:
    """The last axes with step - 1 zeros between elements."""
    first = x.ndim - len(steps)
    for d, step in enumerate(steps):
        if step > 1:
            axis = first + d
            size = x.shape[axis]
            shape = (*x.shape[:axis], size * step, *x.shape[axis + 1 :])
            x = x.unsqueeze(axis + 1).pad([0, 0] * (x.ndim - axis - 1) + [0, step - 1]).reshape(shape)
            x = x.narrow(axis, 0, (size - 1) * step + 1)
    return x


@operator("DeformConv", since=19)
def deform_conv(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    offset_group: int = 1,
    pads: Any = None,
    strides: Any = None,
    call: Any,
) -> Any:
    """Windows whose elements are read at places of their own, between pixels: 2-d. Outside is zero."""
    from hcq.frontend.more.onnx.operators.image import sampled

    if w.ndim != 4:
        raise UsageError(f"weight {w.shape}: it is computed for two axes of space")
    steps, reach = strides or [1, 1], dilations or [1, 1]
    around = Windows(pads=pads).around(x.shape[2:], w.shape[2:])
    batch, channels = x.shape[:2]
    out, _, kh, kw = w.shape
    oh, ow = offset.shape[2:]
    starts = [np.arange(n) * s - a for n, s, (a, _) in zip((oh, ow), steps, around)]
    base = np.zeros((kh, kw, oh, ow, 2), np.float32)
    base[..., 0] = (np.arange(kh) * reach[0])[:, None, None, None] + starts[0][:, None]
    base[..., 1] = (np.arange(kw) * reach[1])[None, :, None, None] + starts[1]
    moves = offset.reshape(batch, offset_group, kh, kw, 2, oh, ow).permute(0, 1, 2, 3, 5, 6, 4)
    places = (moves + call.constant(base)).reshape(batch * offset_group, kh * kw * oh * ow, 2)
    image = x.reshape(batch * offset_group, channels // offset_group, *x.shape[2:])
    columns = sampled(image, places, "linear", "zeros", True)
    columns = columns.reshape(batch, offset_group, channels // offset_group, kh * kw, oh * ow)
    if mask is not None:
        columns = columns * mask.reshape(batch, offset_group, 1, kh * kw, oh * ow)
    columns = columns.reshape(batch, group, channels // group * kh * kw, oh * ow)
    found = w.reshape(group, out // group, -1) @ columns
    found = found.reshape(batch, out, oh, ow)
    return same_dtype(x, found if b is None else found + b.reshape(-1, 1, 1))


@operator("CausalConvWithState", since=27)
def causal_conv_with_state(
    x: Tensor, w: Tensor, b: Tensor | None = None, past: Tensor | None = None, *, activation: str = "none"
) -> Any:
    """A convolution of each channel over what was before, and the last elements for the next call."""
    channels, _, length = w.shape
    if past is None:
        past = Tensor.zeros(x.shape[0], channels, length - 1, device=x.device, dtype=x.dtype)
    whole_line = Tensor.cat([past.cast(x.dtype), x], dim=2)
    found = whole_line.conv1d(w, b, groups=channels)
    if activation in ("silu", "swish"):
        found = found * found.sigmoid()
    elif activation != "none":
        raise UsageError(f"activation {activation!r}; known are none, silu, swish")
    state = whole_line.narrow(2, whole_line.shape[2] - (length - 1), length - 1)
    return same_dtype(x, found), state
