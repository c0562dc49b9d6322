"""Pooling: the greatest element or the average of each window, of a given size or as many as are asked for.

In       tensors shaped (..., *space); kernel sizes, strides, or the sizes of the result
Out      lazy tensors over windows; where the greatest element was, if that is asked for
Next     window.py (the windows), rearranging.py (interpolation)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import constant, filled, iota, padded
from hcq.frontend.grad.function import Function
from hcq.frontend.ops.base import Methods, Self, in_float_together, per_axis
from hcq.frontend.ops.forwarded import of_rank
from hcq.ir.dtype import dtypes
from hcq.ir.elementwise.declaration import FLAT
from hcq.ir.node import Node
from hcq.ir.op import Op

Sizes = int | Sequence[int]
MOST = 1 << 16  # windows of an axis whose bounds are worked out one by one


class Pooling(Methods):
    """max_pool and avg_pool of one to three axes, adaptive ones, max_unpool."""

    __slots__ = ()

    # -- the greatest of each window --

    def _max_pool(
        self,
        call: str,
        rank: int,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        window = per_axis("kernel_size", kernel_size, rank)
        rank = len(window)
        steps = window if stride is None or stride in ([], ()) else per_axis("stride", stride, rank)
        dilations, around = per_axis("dilation", dilation, rank), per_axis("padding", padding, rank)
        self._refuse_wide_padding(call, around, window)
        pads = self._pads(call, window, steps, around, dilations, ceil_mode)
        windows = self._surrounded(call, pads, window, dilations, self.node.dtype.min)._windows(
            window, steps, dilations
        )
        axes = tuple(range(len(windows.node.shape) - rank, len(windows.node.shape)))
        values = windows._extreme(Op.MAX, call, axes)
        if not return_indices:
            return values
        if rank > 1:
            self._refuse_cut(call, len(self.node.shape) - rank)
        space = self.node.shape[-rank:]
        flat = self._like(iota(prod(space), 0, (prod(space),)))._reshape(space)
        places = flat._like(padded(flat.node, tuple(pads), -1))._windows(window, steps, dilations)
        return values, _first_place(windows, places, rank)

    max_pool1d = of_rank(
        "max_pool1d", _max_pool, 1,
        """The greatest element of each window over the last axis; see `max_pool2d`.

        >>> Tensor([[[1.0, 5.0, 2.0, 3.0, 4.0]]]).max_pool1d(2, ceil_mode=True).tolist()
        [[[5.0, 3.0, 4.0]]]
        """,
    )  # fmt: skip
    max_pool2d = of_rank(
        "max_pool2d", _max_pool, 2,
        """The greatest element of each window over the last axes (two, for an int); padding never wins.

        (..., *space) -> (..., *space'), where space' is that of conv2d; stride is the kernel's size unless given.
        ceil_mode        a last window that begins inside, and reaches beyond, counts
        return_indices   (values, indices): where in the flattened space each one was

        >>> x = Tensor([[[[1.0, 2.0], [4.0, 3.0]]]])
        >>> values, indices = hcq.nn.functional.max_pool2d(x, 2, return_indices=True)
        >>> values.item(), indices.item()
        (4.0, 2)
        """,
    )  # fmt: skip
    max_pool3d = of_rank(
        "max_pool3d", _max_pool, 3,
        """The greatest element of each window over the last three axes; see `max_pool2d`.

        >>> Tensor.zeros(1, 1, 4, 5, 6).max_pool3d(2).shape
        (1, 1, 2, 2, 3)
        """,
    )  # fmt: skip

    def _pads(
        self,
        call: str,
        window: Sequence[int],
        steps: Sequence[int],
        around: Sequence[int],
        dilations: Sequence[int],
        ceil_mode: bool,
    ) -> list[tuple[int, int]]:
        """What stands around each axis: the padding, and behind it what a last window needs."""
        pads = [(p, p) for p in around]
        space = self.node.shape[len(self.node.shape) - len(window) :]
        if ceil_mode:
            self._refuse_cut(call, len(self.node.shape) - len(window))
        if not ceil_mode or len(space) < len(window):
            return pads
        for d, (size, length, step, p, reach) in enumerate(zip(space, window, steps, around, dilations)):
            full = reach * (length - 1) + 1
            count = -(-(size + 2 * p - full) // step) + 1
            if (count - 1) * step >= size + p:
                count -= 1  # it would begin behind the last element
            pads[d] = (p, max(0, (count - 1) * step + full - size - p))
        return pads

    # -- the average of each window --

    def avg_pool1d(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """The average of each window over the last axis; see `avg_pool2d`.

        >>> Tensor([[[1.0, 3.0, 5.0]]]).avg_pool1d(2, stride=1).tolist()
        [[[2.0, 4.0]]]
        """
        return self._avg_pool("avg_pool1d", 1, kernel_size, stride, padding, ceil_mode, count_include_pad)

    @in_float_together
    def _avg_pool(
        self,
        call: str,
        rank: int,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Self:
        window = per_axis("kernel_size", kernel_size, rank)
        rank = len(window)
        steps = window if stride is None or stride in ([], ()) else per_axis("stride", stride, rank)
        around, ones = per_axis("padding", padding, rank), (1,) * rank
        self._refuse_wide_padding(call, around, window)
        if self.node.dtype.is_bool:
            raise UsageError(f"[{call}] bool has no averages. Cast first: x.float().")
        if divisor_override == 0:
            raise UsageError(f"[{call}] divisor_override=0: use another one.")
        pads = self._pads(call, window, steps, around, ones, ceil_mode)
        total = self._surrounded(call, pads, window, ones)._windows(window, steps, ones)
        axes = tuple(range(len(total.node.shape) - rank, len(total.node.shape)))
        summed = total._reduce(Op.ADD, axes, keepdim=False)
        if divisor_override is not None:
            return _shared(summed, divisor_override)
        is_plain = all(high <= p for (_, high), p in zip(pads, around))
        if is_plain and (count_include_pad or not any(around)):
            return _shared(summed, prod(window))
        shape = self.node.shape
        self._refuse_cut(call, len(shape) - rank)
        inner = shape[-rank:]
        if count_include_pad:  # what is padded counts, what a last window needs beyond it does not
            inner = tuple([size + 2 * p for size, p in zip(inner, around)])
            pads = [(0, max(0, high - p)) for (_, high), p in zip(pads, around)]
        inside = self._like(filled(1, (1,) * (len(shape) - rank) + inner, self.node.dtype))
        counted = inside._surrounded(call, pads, window, ones)._windows(window, steps, ones)
        counts = counted._reduce(Op.ADD, axes, keepdim=False)
        for d in range(len(shape) - rank, len(shape)):
            counts = counts._part(d, 0, summed.node.shape[d])
        return _shared(summed, counts)

    avg_pool2d = of_rank(
        "avg_pool2d", _avg_pool, 2,
        """The average of each window over the last axes (two, for an int); padding counts if count_include_pad.

        (..., *space) -> (..., *space'), as in max_pool2d. Of integers rounded towards zero. Raises UsageError for bool.
        divisor_override   what sums are divided by instead of their counts

        >>> x = Tensor.ones(1, 1, 2, 2)
        >>> x.avg_pool2d(2, padding=1).tolist(), x.avg_pool2d(2, padding=1, count_include_pad=False).tolist()
        ([[[[0.25, 0.25], [0.25, 0.25]]]], [[[[1.0, 1.0], [1.0, 1.0]]]])
        """,
    )  # fmt: skip
    avg_pool3d = of_rank(
        "avg_pool3d", _avg_pool, 3,
        """The average of each window over the last three axes; see `avg_pool2d`.

        >>> Tensor.ones(1, 1, 4, 4, 4).avg_pool3d(2, divisor_override=1).unique().tolist()
        [8.0]
        """,
    )  # fmt: skip

    # -- as many windows as are asked for --

    def adaptive_avg_pool1d(self, output_size: Any) -> Self:
        """Averages over the last axis, as many as are asked for; see `adaptive_avg_pool2d`.

        >>> Tensor([[[1.0, 2.0, 3.0, 4.0, 5.0]]]).adaptive_avg_pool1d(2).tolist()
        [[[2.0, 4.0]]]
        """
        return self._adaptive_average("adaptive_avg_pool1d", output_size, 1)

    def adaptive_avg_pool2d(self, output_size: Any) -> Self:
        """Averages over the last two axes, as many as are asked for: (..., h, w) -> (..., *output_size).

        Window i of n over a size s reaches from floor(i s / n) to ceil((i + 1) s / n). None leaves a size as it is.

        >>> Tensor.zeros(1, 8, 7, 5).adaptive_avg_pool2d((3, 1)).shape
        (1, 8, 3, 1)
        """
        return self._adaptive_average("adaptive_avg_pool2d", output_size, 2)

    def adaptive_avg_pool3d(self, output_size: Any) -> Self:
        """Averages over the last three axes, as many as are asked for; see `adaptive_avg_pool2d`.

        >>> Tensor.zeros(1, 8, 7, 5, 6).adaptive_avg_pool3d(2).shape
        (1, 8, 2, 2, 2)
        """
        return self._adaptive_average("adaptive_avg_pool3d", output_size, 3)

    @in_float_together
    def _adaptive_average(self, call: str, output_size: Any, rank: int) -> Self:
        if not self.node.dtype.is_float:
            raise UsageError(f"[{call}] {self.node.dtype.name} has no fractions. Cast first: x.float().")
        wanted, space = self._wanted(call, output_size, rank)
        if all(want and size % want == 0 for want, size in zip(wanted, space)):
            return self._avg_pool(call, rank, [size // want for size, want in zip(space, wanted)])
        windows, inside = self._adaptive_windows(wanted, space)
        axes = tuple(range(len(windows.node.shape) - rank, len(windows.node.shape)))
        total = inside.where(windows, 0.0)._reduce(Op.ADD, axes, keepdim=False)
        flat = tuple(range(rank, 2 * rank))
        counts = inside.cast(dtypes.int32)._reduce(Op.ADD, flat, keepdim=False)
        return total / counts.cast(self.node.dtype)

    def adaptive_max_pool1d(self, output_size: Any, return_indices: bool = False) -> Any:
        """The greatest elements over the last axis, as many as are asked for; see `adaptive_avg_pool2d`.

        >>> Tensor([[[1.0, 2.0, 3.0, 4.0, 5.0]]]).adaptive_max_pool1d(2).tolist()
        [[[3.0, 5.0]]]
        """
        return self._adaptive_greatest("adaptive_max_pool1d", output_size, 1, return_indices)

    def adaptive_max_pool2d(self, output_size: Any, return_indices: bool = False) -> Any:
        """The greatest elements over the last two axes, as many as are asked for; see `adaptive_avg_pool2d`.

        >>> Tensor([[[[1.0, 2.0], [3.0, 4.0]]]]).adaptive_max_pool2d((1, 2)).tolist()
        [[[[3.0, 4.0]]]]
        """
        return self._adaptive_greatest("adaptive_max_pool2d", output_size, 2, return_indices)

    def adaptive_max_pool3d(self, output_size: Any, return_indices: bool = False) -> Any:
        """The greatest elements over the last three axes, as many as are asked for; see `adaptive_avg_pool2d`.

        >>> Tensor.zeros(1, 2, 4, 5, 6).adaptive_max_pool3d((1, 2, 3)).shape
        (1, 2, 1, 2, 3)
        """
        return self._adaptive_greatest("adaptive_max_pool3d", output_size, 3, return_indices)

    def _adaptive_greatest(self, call: str, output_size: Any, rank: int, return_indices: bool) -> Any:
        wanted, space = self._wanted(call, output_size, rank)
        windows, inside = self._adaptive_windows(wanted, space)
        least = self._like(constant(call, self.node.dtype.min, self.node.dtype))
        windows = inside.where(windows, least)
        axes = tuple(range(len(windows.node.shape) - rank, len(windows.node.shape)))
        values = windows._extreme(Op.MAX, call, axes)
        if not return_indices:
            return values
        flat = self._like(iota(prod(space), 0, (prod(space),)))._reshape(space)
        places, _ = flat._adaptive_windows(wanted, space)
        return values, _first_place(windows, places, rank, inside)

    def _wanted(self, call: str, output_size: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        space = self.node.shape[-rank:]
        if len(self.node.shape) < rank:
            raise UsageError(f"[{call}] shape {self.node.shape}: give {rank} axes at least.")
        self._refuse_cut(call, len(self.node.shape) - rank)
        given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * rank
        if len(given) != rank or any(
            want is not None and (not isinstance(want, int) or not 1 <= want <= MOST) for want in given
        ):
            raise UsageError(
                f"[{call}] output_size={shown(output_size)}: give {rank} ints of 1 to {MOST}, or None."
            )
        if 0 in space:
            raise UsageError(f"[{call}] {space}: an empty axis has no windows.")
        return tuple([size if want is None else int(want) for size, want in zip(space, given)]), space

    def _adaptive_windows(self, wanted: Sequence[int], space: Sequence[int]) -> tuple[Self, Self]:
        """(..., *wanted, *window), as long as the longest, and which places of (*wanted, *window) belong to it."""
        rank, lead = len(wanted), len(self.node.shape) - len(wanted)
        x = self
        inside: Any = None
        lengths = []
        for d, (want, size) in enumerate(zip(wanted, space)):
            bounds = [(i * size // want, -(-(i + 1) * size // want)) for i in range(want)]
            length = max(high - low for low, high in bounds)
            lengths.append(length)
            index = [min(low + k, size - 1) for low, _ in bounds for k in range(length)]
            axis = lead + 2 * d
            x = x[(slice(None),) * axis + (index,)]
            x = x._reshape((*x.node.shape[:axis], want, length, *x.node.shape[axis + 1 :]))
            is_full = all(high - low == length for low, high in bounds)
            line = [[low + k < high for k in range(length)] for low, high in bounds]
            own = (
                self._like(constant("pool", True, dtypes.bool))
                if is_full
                else self._kind._made_of(line, device=self.device)
            )
            shape = [1] * (2 * rank)
            shape[d], shape[rank + d] = want, length
            part = own.expand((want, length))._reshape(tuple(shape))
            inside = part if inside is None else inside & part
        order = [*range(lead), *(lead + 2 * d for d in range(rank)), *(lead + 2 * d + 1 for d in range(rank))]
        return x.permute(order), inside.expand((*wanted, *lengths))

    # -- back --

    def _unpooled(
        self,
        call: str,
        rank: int,
        indices: Self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        output_size: Sequence[int] | None = None,
    ) -> Self:
        window = per_axis("kernel_size", kernel_size, rank)
        steps = window if stride is None or stride in ([], ()) else per_axis("stride", stride, rank)
        around = per_axis("padding", padding, rank)
        if len(self.node.shape) < rank or indices.node.shape != self.node.shape:
            raise UsageError(
                f"[{call}] {self.node.shape}, indices {indices.node.shape}: the shapes must be equal."
            )
        self._refuse_cut(call, len(self.node.shape) - rank)
        lead, space = self.node.shape[:-rank], self.node.shape[-rank:]
        natural = [(n - 1) * s - 2 * p + k for n, s, p, k in zip(space, steps, around, window)]
        wanted = tuple(output_size)[-rank:] if output_size is not None else tuple(natural)
        if any(abs(want - size) >= step for want, size, step in zip(wanted, natural, steps)):
            raise UsageError(f"[{call}] output_size={wanted}: sizes are within a stride of {tuple(natural)}.")
        rows = prod(lead)
        base = self._like(filled(0, (rows, prod(wanted)), self.node.dtype))
        flat = self._reshape((rows, prod(space)))
        index = indices._reshape(flat.node.shape)
        values = base.scatter(1, index, flat.detach())
        if self.node.dtype.is_float:
            values = self._like(UNPOOLED.of(values.node, flat.node, index.node))
        return values._reshape((*lead, *wanted))

    max_unpool1d = of_rank(
        "max_unpool1d", _unpooled, 1,
        """The inverse of max_pool1d: values at the indices that it gave, and zero elsewhere.

        >>> values, indices = hcq.nn.functional.max_pool1d(Tensor([[[1.0, 5.0, 2.0, 3.0]]]), 2, return_indices=True)
        >>> values.max_unpool1d(indices, 2).tolist()
        [[[0.0, 5.0, 0.0, 3.0]]]
        """,
    )  # fmt: skip
    max_unpool2d = of_rank(
        "max_unpool2d", _unpooled, 2,
        """The inverse of max_pool2d: values at the indices that it gave, and zero elsewhere.

        >>> x = Tensor([[[[1.0, 2.0], [4.0, 3.0]]]])
        >>> values, indices = hcq.nn.functional.max_pool2d(x, 2, return_indices=True)
        >>> values.max_unpool2d(indices, 2).tolist()
        [[[[0.0, 0.0], [4.0, 0.0]]]]
        """,
    )  # fmt: skip
    max_unpool3d = of_rank(
        "max_unpool3d", _unpooled, 3,
        """The inverse of max_pool3d: values at the indices that it gave, and zero elsewhere.

        >>> values, indices = hcq.nn.functional.max_pool3d(Tensor.ones(1, 1, 2, 2, 2), 2, return_indices=True)
        >>> values.max_unpool3d(indices, 2).sum().item()
        1.0
        """,
    )  # fmt: skip


def _shared(total: Any, count: Any) -> Any:
    """total / count, of integers rounded towards zero."""
    if total.node.dtype.is_float:
        return total / count
    return total.div(count, rounding_mode="trunc").cast(total.node.dtype)


def _slope_of_unpooled(node: Node, g: Node) -> Node:
    """What each value has become: where several met in one place, each of them gets its gradient, as in PyTorch."""
    return Node(Op.GATHER, g.dtype, (g, node.src[2]), 1)


UNPOOLED = Function("max_unpool", _slope_of_unpooled, FLAT)


def _first_place(windows: Any, places: Any, rank: int, inside: Any = None) -> Any:
    """Where the greatest element of each window is: of equal ones the first."""
    shape = windows.node.shape
    lead = shape[: len(shape) - rank]
    length = prod(shape[len(shape) - rank :])
    best = windows._reshape((*lead, length)).argmax(-1, True)
    places = places.expand(shape)._reshape((*lead, length))
    return places.gather(len(lead), best)._reshape(lead)
