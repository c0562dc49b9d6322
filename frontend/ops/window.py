"""Windows: convolutions, as padding, windows and a sum of products; the windows that pooling reduces.

In       tensors shaped (batch, channels, *space) or (channels, *space), any number of spatial axes
Out      lazy tensors; WINDOW is a view, so no patch is ever copied
Next     pooling.py, product.py (the sum of products), normalisation.py, ir/op.py (WINDOW and its inverse, UNWINDOW)
"""

from __future__ import annotations

from collections.abc import Sequence

from hcq.frontend.core.base import thread_modes
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import expanded, padded, permuted, reshaped, shrunk, spread, sum_of_products
from hcq.frontend.core.sizes import counts_of
from hcq.frontend.ops.base import Methods, Self, narrowed, per_axis, rounded, widened
from hcq.ir.dtype import promote
from hcq.ir.node import Node
from hcq.ir.op import Op

Sizes = int | Sequence[int]


class Window(Methods):
    """conv1d/2d/3d and their transposes."""

    __slots__ = ()

    def conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
    ) -> Self:
        """Cross-correlation (batch, in, *space) * (out, in / groups, *window) -> (batch, out, *space').

        space' = (space + 2 * padding - dilation * (window - 1) - 1) // stride + 1. The weight says how many axes;
        batch may be left out.
        bias      (out,)
        padding   zeros on both sides of each spatial axis, or "same" (stride 1), or "valid"
        Raises    UsageError for channels that do not match, and for a window larger than what it moves over

        >>> Tensor([[[1.0, 2.0, 3.0]]]).conv1d(Tensor([[[1.0, 10.0]]]), padding=1).tolist()
        [[[10.0, 21.0, 32.0, 3.0]]]
        """
        x, w = self, weight
        if thread_modes:
            x, w, bias = narrowed(x, w, bias)
        rank = len(w.node.shape) - 2
        if rank < 1 or len(x.node.shape) not in (rank + 1, rank + 2):
            raise UsageError(
                f"[conv2d] input {x.node.shape}, weight {w.node.shape}: the input needs (batch, channels, "
                "*space), the weight (out, in / groups, *window), with as many spatial axes."
            )
        if len(x.node.shape) == rank + 1:
            return x.unsqueeze(0).conv2d(w, bias, stride, padding, dilation, groups).squeeze(0)
        batch, channels, *_space = x.node.shape
        out, inner, *window = w.node.shape
        if groups < 1 or channels != inner * groups or out % groups:
            raise UsageError(
                f"[conv2d] input {x.node.shape}, weight {w.node.shape}, groups={groups}: the input has {channels} "
                f"channels, the weight takes {inner} x {groups}. Match the weight's second size or groups."
            )
        if bias is not None and bias.node.shape != (out,):
            raise UsageError(
                f"[conv2d] bias {bias.node.shape}, weight {w.node.shape}: give a number for each of the {out} outputs."
            )
        x._same_device("conv2d", w)
        steps, dilations = per_axis("stride", stride, rank), per_axis("dilation", dilation, rank)
        x = x._surrounded("conv2d", _both_sides(padding, window, steps, dilations), window, dilations)
        windows = x._windows(window, steps, dilations).node  # (batch, channels, *o, *window)
        dtype = promote(windows.dtype, w.node.dtype)
        places = windows.shape[2 : 2 + rank]
        per_group = out // groups
        # (batch, groups, out/groups, *o, in, *window), summed over the last 1 + rank axes
        windows = reshaped(windows.cast(dtype), (batch, groups, inner, *places, *window))
        order = (0, 1, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
        windows = permuted(windows, order)
        full = (batch, groups, per_group, *places, inner, *window)
        left = expanded(reshaped(windows, (batch, groups, 1, *places, inner, *window)), full)
        weights = reshaped(w.node.cast(dtype), (1, groups, per_group, *(1,) * rank, inner, *window))
        right = expanded(weights, full)
        total = sum_of_products(left, right, tuple(range(3 + rank, 4 + 2 * rank)), bias is not None)
        result = x._like(reshaped(total, (batch, out, *places)))
        if bias is None:
            return result
        dtype = promote(dtype, bias.node.dtype)
        return rounded(result + widened(bias)._reshape((out, *(1,) * rank)), dtype)  # type: ignore[no-any-return]

    conv1d = conv2d
    conv3d = conv2d

    def conv_transpose2d(
        self,
        weight: Self,
        bias: Self | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
    ) -> Self:
        """The gradient of conv2d with respect to its input, as a layer: weight is (in, out / groups, *window).

        (batch, in, *space) -> (batch, out, *space'), where
        space' = (space - 1) * stride - 2 * padding + dilation * (window - 1) + output_padding + 1.

        >>> Tensor([[[1.0, 2.0]]]).conv_transpose1d(Tensor([[[1.0, 10.0]]]), stride=2).tolist()
        [[[1.0, 10.0, 2.0, 20.0]]]
        """
        x, w = self, weight
        if thread_modes:
            x, w, bias = narrowed(x, w, bias)
        rank = len(w.node.shape) - 2
        if rank < 1 or len(x.node.shape) not in (rank + 1, rank + 2):
            raise UsageError(
                f"[conv_transpose2d] input {x.node.shape}, weight {w.node.shape}: the input needs (batch, "
                "channels, *space), the weight (in, out / groups, *window)."
            )
        if len(x.node.shape) == rank + 1:
            return (
                x.unsqueeze(0)
                .conv_transpose2d(w, bias, stride, padding, output_padding, groups, dilation)
                .squeeze(0)
            )
        channels, per_group, *window = w.node.shape
        if groups < 1 or x.node.shape[1] != channels or channels % groups:
            raise UsageError(
                f"[conv_transpose2d] input {x.node.shape}, weight {w.node.shape}, groups={groups}: the "
                "weight's first size must be the input's channels, a multiple of groups."
            )
        steps, dilations = per_axis("stride", stride, rank), per_axis("dilation", dilation, rank)
        around, extra = per_axis("padding", padding, rank), per_axis("output_padding", output_padding, rank)
        # elements `stride` apart, surrounded, then an ordinary convolution with the window turned around
        for d in range(rank):
            x = x._like(spread(x.node, 2 + d, steps[d]))
        pads = []
        for d in reversed(range(rank)):
            reach = dilations[d] * (window[d] - 1)
            pads += [reach - around[d], reach - around[d] + extra[d]]
        x = x.pad(pads)
        turned = w.flip(*range(2, 2 + rank))._reshape((groups, channels // groups, per_group, *window))
        turned = turned.transpose(1, 2)._reshape((groups * per_group, channels // groups, *window))
        return x.conv2d(turned, bias, 1, 0, dilations, groups)

    conv_transpose1d = conv_transpose2d
    conv_transpose3d = conv_transpose2d

    # -- parts --

    def _surrounded(
        self,
        call: str,
        pads: Sequence[tuple[int, int]],
        window: Sequence[int],
        dilation: Sequence[int],
        value: float = 0.0,
    ) -> Self:
        """Padded on the last axes, after a check that every window fits."""
        shape, rank = self.node.shape, len(pads)
        if len(shape) < rank:
            raise UsageError(f"[{call}] shape {shape}: the window has {rank} axes. Use unsqueeze first.")
        for d, ((low, high), size, reach) in enumerate(zip(pads, window, dilation)):
            axis = len(shape) - rank + d
            if size < 1 or low < 0 or high < 0:
                raise UsageError(
                    f"[{call}] window {tuple(window)}, padding {tuple(pads)}: sizes are 1 or more, padding 0."
                )
            if shape[axis] + low + high < reach * (size - 1) + 1:
                raise UsageError(
                    f"[{call}] axis {axis} of size {shape[axis]} with padding {low, high} is smaller than the window "
                    f"({reach * (size - 1) + 1}). Pad more, or use a smaller window."
                )
        return self._like(padded(self.node, ((0, 0),) * (len(shape) - rank) + tuple(pads), value))

    def _windows(self, window: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Self:
        """(..., *space) -> (..., *places, *window)."""
        node, first = self.node, len(self.node.shape) - len(window)
        for d, (size, step, reach) in enumerate(zip(window, stride, dilation)):
            if size == step and reach == 1 and first + d not in dict(counts_of(node)):
                node = _tiles(node, first + d, size)
            else:
                node = Node(Op.WINDOW, node.dtype, (node,), (first + d, size, step, reach))
        return self._like(node)

    def _refuse_wide_padding(self, call: str, padding: Sequence[int], window: Sequence[int]) -> None:
        if any(p > size // 2 for p, size in zip(padding, window)):
            raise UsageError(
                f"[{call}] padding {tuple(padding)} is more than half the window {tuple(window)}. Pad less."
            )


def _tiles(node: Node, axis: int, size: int) -> Node:
    """Windows side by side are a reshape: simpler to index, above all in the gradient."""
    shape = node.shape
    count = shape[axis] // size
    node = shrunk(node, tuple([(0, count * size if a == axis else n, 1) for a, n in enumerate(shape)]))
    split = reshaped(node, (*shape[:axis], count, size, *shape[axis + 1 :]))
    last = (*range(axis + 1), *range(axis + 2, len(shape) + 1), axis + 1)
    return permuted(split, last)


def _both_sides(
    padding: Sizes | str, window: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    if padding == "valid":
        return [(0, 0)] * len(window)
    if padding == "same":
        if any(step != 1 for step in stride):
            raise UsageError(
                f"[conv2d] padding='same' with stride {tuple(stride)}: use stride 1, or give numbers."
            )
        total = [reach * (size - 1) for size, reach in zip(window, dilation)]
        return [(n // 2, n - n // 2) for n in total]
    if isinstance(padding, str):
        raise UsageError(f"[conv2d] padding={padding!r} is unknown. Use ints, 'same' or 'valid'.")
    return [(p, p) for p in per_axis("padding", padding, len(window))]
