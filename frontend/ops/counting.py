"""Counting: how often values occur, and where a value belongs in an order.

In       tensors
Out      lazy tensors of counts, places and truths; what has a size that depends on its data is computed and read back
Next     ordering.py (sort), statistics.py (median, quantile)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.base import Methods, Self
from hcq.ir.dtype import dtypes


class Counting(Methods):
    """bincount, histc, searchsorted, bucketize, isin, unique."""

    __slots__ = ()

    def bincount(self, weights: Self | None = None, minlength: int = 0) -> Self:
        """How often each of 0, 1, 2, ... stands in a vector, or the sum of its weights. Reads the greatest back.

        >>> hcq.tensor([1, 3, 1]).bincount().tolist()
        [0, 2, 0, 1]
        """
        if len(self.node.shape) != 1 or not (self.node.dtype.is_integer or self.node.dtype.is_bool):
            raise UsageError(
                f"[bincount] {self.node.dtype.name} of shape {self.node.shape}: give whole numbers."
            )
        size = 0
        if self.numel():
            if int(self.amin().item()) < 0:
                raise UsageError("[bincount] a number is negative. Give numbers of 0 or more.")
            size = int(self.amax().item()) + 1
        size = max(size, minlength)
        index = self.cast(dtypes.int64)
        if weights is None:
            counted = self.full(self.node.shape, 1, dtypes.int64, self.device)
        else:
            counted = weights if weights.node.dtype.is_float else weights.cast(dtypes.float64)
        return self.full((size,), 0, counted.node.dtype, self.device).scatter_add(0, index, counted)

    def histc(self, bins: int = 100, min: float = 0, max: float = 0) -> Self:
        """How many elements lie in each of `bins` equal parts of min to max; of the elements' own, if both are 0.

        >>> Tensor([0.0, 1.0, 2.0, 9.0]).histc(bins=2, min=0, max=2).tolist()
        [1.0, 2.0]
        """
        if bins < 1 or min > max:
            raise UsageError(
                f"[histc] bins={bins}, min={min}, max={max}: use 1 or more bins, and min up to max."
            )
        line = self.flatten()
        low: Any = min
        high: Any = max
        if min == max == 0 and line.numel():
            low, high = float(line.amin().item()), float(line.amax().item())
        if low == high:
            low, high = low - 1, high + 1
        place = ((line.cast(dtypes.float64) - low) * (bins / (high - low))).floor()
        place = (line == high).where(bins - 1, place)
        inside = (line >= low) & (line <= high)
        index = inside.where(place.cast(dtypes.int64), -1)
        ones = self.full(line.node.shape, 1, self.node.dtype, self.device)
        return self.full((bins,), 0, self.node.dtype, self.device).scatter_add(0, index, ones)

    def searchsorted(
        self,
        values: Any,
        *,
        out_int32: bool = False,
        right: bool = False,
        side: str | None = None,
        sorter: Self | None = None,
    ) -> Self:
        """Where values belong in a sorted last axis so that it stays sorted: before equal ones, or behind if `right`.

        values   of any shape for a vector; else of the same leading sizes
        sorter   the indices that sort this tensor, where it is not sorted itself

        >>> hcq.tensor([1, 3, 5]).searchsorted(hcq.tensor([3, 4])).tolist()
        [1, 2]
        """
        if side not in (None, "left", "right"):
            raise UsageError(f"[searchsorted] side={side!r} is unknown. Use 'left' or 'right'.")
        right = right or side == "right"
        line = self if sorter is None else self.gather(-1, sorter)
        values = self._operand("searchsorted", values)
        shape = values.node.shape
        if len(line.node.shape) == 1:
            values = values._reshape((values.numel(),))
        elif not shape or not line.node.shape or shape[:-1] != line.node.shape[:-1]:
            raise UsageError(
                f"[searchsorted] values {shape} in {line.node.shape}: leading sizes must be equal."
            )
        size = line.node.shape[-1]
        place = self.full(values.node.shape, 0, dtypes.int64, self.device)
        step = 1 << (size.bit_length() - 1) if size else 0
        while step:  # each step asks whether so many more elements come before
            further = place + step
            element = line.gather(-1, (further - 1).clamp(0, size - 1))
            before = element <= values if right else element < values
            if values.node.dtype.is_float:
                before = before | (values.isnan() & (~element.isnan() | right))
            place = ((further <= size) & before).where(further, place)
            step >>= 1
        return place._reshape(shape).cast(dtypes.int32 if out_int32 else dtypes.int64)

    def bucketize(self, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Self:
        """Which of the parts between sorted boundaries each element lies in; see `searchsorted`.

        >>> x, edges = hcq.tensor([1, 3, 5]), hcq.tensor([1, 3])
        >>> x.bucketize(edges).tolist(), x.bucketize(edges, right=True).tolist()
        ([0, 1, 2], [1, 2, 2])
        """
        edges = self._operand("bucketize", boundaries)
        return edges.searchsorted(self, out_int32=out_int32, right=right)

    def isin(self, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Self:
        """True where an element is one of others; bool. assume_unique has no effect here.

        >>> hcq.tensor([1, 2, 3]).isin(hcq.tensor([3, 1])).tolist()
        [True, False, True]
        """
        others = self._operand("isin", test_elements).flatten()
        found = (self.unsqueeze(-1) == others).any(-1)
        return ~found if invert else found

    def unique(
        self,
        sorted: bool = True,
        return_inverse: bool = False,
        return_counts: bool = False,
        dim: int | None = None,
    ) -> Any:
        """The elements, or the slices along an axis, each once and in order. Computes and reads back.

        return_inverse   also where each element went; return_counts  also how often each was there

        >>> values, inverse = hcq.tensor([3, 1, 3]).unique(return_inverse=True)
        >>> values.tolist(), inverse.tolist()
        ([1, 3], [1, 0, 1])
        """
        return self._each_once(return_inverse, return_counts, dim)

    def _each_once(self, inverse: bool, counts: bool, dim: int | None) -> Any:
        import numpy as np

        axis = None if dim is None else self._axis("unique", dim)
        found = np.unique(self.numpy(), return_inverse=True, return_counts=True, axis=axis, equal_nan=False)
        values, places, often = found
        if axis is None:
            places = places.reshape(self.node.shape)
        return self._answers(
            values, places.reshape(-1) if axis is not None else places, often, inverse, counts
        )

    def _answers(self, values: Any, places: Any, often: Any, inverse: bool, counts: bool) -> Any:
        result = [self._kind._made_of(values, device=self.device)]
        result += [self._kind._made_of(places, device=self.device)] if inverse else []
        result += [self._kind._made_of(often, device=self.device)] if counts else []
        return tuple(result) if len(result) > 1 else result[0]

    def unique_consecutive(
        self, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
    ) -> Any:
        """The elements, or slices along an axis, without those equal to the one before. Computes and reads back.

        >>> values, counts = hcq.tensor([1, 1, 2, 1]).unique_consecutive(return_counts=True)
        >>> values.tolist(), counts.tolist()
        ([1, 2, 1], [2, 1, 1])
        """
        import numpy as np

        array = self.numpy()
        lines = (
            array.reshape(-1) if dim is None else np.moveaxis(array, self._axis("unique_consecutive", dim), 0)
        )
        rest = tuple(range(1, lines.ndim))
        differs = (lines[1:] != lines[:-1]).any(axis=rest) if rest else lines[1:] != lines[:-1]
        is_new = np.concatenate([np.ones(min(1, len(lines)), bool), differs])
        places = np.cumsum(is_new) - 1
        starts = np.flatnonzero(is_new)
        often = np.diff(np.append(starts, len(lines)))
        values = lines[is_new]
        if dim is not None:
            values = np.ascontiguousarray(np.moveaxis(values, 0, self._axis("unique_consecutive", dim)))
        else:
            places = places.reshape(self.node.shape)
        return self._answers(values, places, often.astype(np.int64), return_inverse, return_counts)
