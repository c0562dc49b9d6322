"""Reductions of some elements under PyTorch's names: `hcq.torch.masked.mean(x, 1, mask=m)` is of those where m holds.

In       tensors, and masks of bool that broadcast to them (None: every element)
Out      lazy tensors; of no elements at all what the operation gives for none: 0, 1, an infinity, or NaN
Next     ops/reduction.py and ops/statistics.py (the same of all elements)

What the mask leaves out is replaced by the number that does not change the result, and reduced like the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.base import Axes
from hcq.frontend.ops.table import above
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes

Fill = Callable[[DType], Any]


def _least(dtype: DType) -> Any:
    return False if dtype.is_bool else -math.inf if dtype.is_float else dtype.min


def _greatest(dtype: DType) -> Any:
    return True if dtype.is_bool else math.inf if dtype.is_float else dtype.max


def _mask(call: str, x: Tensor, mask: Tensor | None) -> Tensor | None:
    """The mask in the shape of the tensor."""
    if mask is None:
        return None
    if not mask.dtype.is_bool or mask.ndim > x.ndim:
        raise UsageError(
            f"[masked.{call}] a mask of {mask.dtype.name} {mask.shape} for a tensor of shape {x.shape}: give bool, "
            "in a shape that broadcasts to it."
        )
    return mask.expand(x.shape)


def _filled(call: str, x: Tensor, mask: Tensor | None, value: Any) -> Tensor:
    """The tensor, with one number where the mask does not hold."""
    mask = _mask(call, x, mask)
    return x if mask is None else mask.where(x, x._operand(call, value).cast(x.dtype))


def _axes(call: str, x: Tensor, dim: Axes) -> tuple[int, ...]:
    found: tuple[int, ...] = x._axes(call, dim)
    return found if found or not x.ndim else tuple(range(x.ndim))


def _count(call: str, x: Tensor, mask: Tensor | None, axes: tuple[int, ...]) -> Tensor:
    """How many elements are meant, with the reduced axes kept."""
    mask = _mask(call, x, mask)
    taken = x.ones_like(dtypes.int64) if mask is None else mask.cast(dtypes.int64)
    return taken.sum(axes, keepdim=True) if x.ndim else taken


def _without(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """Drop axes of size 1 that were reduced, unless they are kept."""
    if keepdim:
        return x
    return x.reshape([size for axis, size in enumerate(x.shape) if axis not in axes])


@checked
def sum(
    input: Tensor,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The sum over axes of the elements where the mask holds; 0 of none.

    >>> sum(Tensor([1.0, 2.0, 4.0]), mask=hcq.tensor([True, False, True])).item()
    5.0
    """
    return _filled("sum", input, mask, 0).sum(_axes("masked.sum", input, dim), keepdim, dtype)


@checked
def prod(
    input: Tensor,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The product over axes of the elements where the mask holds; 1 of none.

    >>> mask = hcq.tensor([[True, False], [False, False]])
    >>> hcq.torch.masked.prod(Tensor([[2.0, 9.0], [4.0, 3.0]]), 1, mask=mask).tolist()
    [2.0, 1.0]
    """
    result = _filled("prod", input, mask, 1)
    axes = _axes("masked.prod", input, dim)
    for axis in axes:  # one at a time, as Tensor.prod takes them; those after it stay where they are
        result = result.prod(axis, True, dtype)
    return _without(result if axes else result.prod(dtype=dtype), axes, keepdim)


@checked
def amax(
    input: Tensor,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The greatest element over axes where the mask holds; the least number of the dtype if there is none.

    >>> x, mask = Tensor([[1.0, 9.0], [4.0, 3.0]]), hcq.tensor([[True, False], [True, True]])
    >>> hcq.torch.masked.amax(x, 1, mask=mask).tolist()
    [1.0, 4.0]
    """
    x = input if dtype is None else input.cast(dtype)
    return _filled("amax", x, mask, _least(x.dtype)).amax(_axes("masked.amax", x, dim), keepdim)


@checked
def amin(
    input: Tensor,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The least element over axes where the mask holds; the greatest number of the dtype if there is none.

    >>> x, mask = Tensor([[1.0, 9.0], [4.0, 3.0]]), hcq.tensor([[False, True], [True, True]])
    >>> hcq.torch.masked.amin(x, 1, mask=mask).tolist()
    [9.0, 3.0]
    """
    x = input if dtype is None else input.cast(dtype)
    return _filled("amin", x, mask, _greatest(x.dtype)).amin(_axes("masked.amin", x, dim), keepdim)


@checked
def argmax(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Where the greatest element of those that the mask takes is, in the tensor's own dtype unless given.

    >>> hcq.torch.masked.argmax(Tensor([1.0, 9.0, 4.0]), 0, mask=hcq.tensor([True, False, True])).item()
    2.0
    """
    places = _filled("argmax", input, mask, _least(input.dtype)).argmax(dim, keepdim)
    return places.cast(dtype or input.dtype)


@checked
def argmin(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Where the least element of those that the mask takes is, in the tensor's own dtype unless given.

    >>> hcq.torch.masked.argmin(Tensor([1.0, 9.0, 4.0]), 0, mask=hcq.tensor([False, True, True])).item()
    2.0
    """
    places = _filled("argmin", input, mask, _greatest(input.dtype)).argmin(dim, keepdim)
    return places.cast(dtype or input.dtype)


@checked
def mean(
    input: Tensor,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The sum over axes divided by how many elements the mask takes; NaN of none.

    >>> x, mask = Tensor([[1.0, 9.0], [4.0, 3.0]]), hcq.tensor([[True, False], [False, False]])
    >>> hcq.torch.masked.mean(x, 1, mask=mask).tolist()
    [1.0, nan]
    """
    axes = _axes("masked.mean", input, dim)
    if mask is None:
        return input.mean(axes, keepdim, dtype)
    total = _filled("mean", input, mask, 0).sum(axes, True, dtype)
    return _without(total / _count("mean", input, mask, axes), axes, keepdim)


@checked
def median(
    input: Tensor,
    dim: int = -1,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The lower median along an axis of the elements where the mask holds; NaN of none. Of floats.

    >>> hcq.torch.masked.median(Tensor([1.0, 9.0, 4.0, 2.0]), 0, mask=hcq.tensor([True, False, True, True])).item()
    2.0
    """
    x = input if dtype is None else input.cast(dtype)
    if not x.dtype.is_float:
        raise UsageError(f"[masked.median] {x.dtype.name} has no NaN for what is left out. Cast: x.float().")
    if mask is None:
        return x.median(dim, keepdim).values  # type: ignore[no-any-return]
    return _filled("median", x, mask, math.nan).nanmedian(dim, keepdim).values  # type: ignore[no-any-return]


@checked
def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The norm over axes of the elements where the mask holds; see `linalg.vector_norm`.

    >>> hcq.torch.masked.norm(Tensor([3.0, 9.0, 4.0]), 2.0, 0, mask=hcq.tensor([True, False, True])).item()
    5.0
    """
    order = 2.0 if ord is None else float(ord)
    x = _filled("norm", input, mask, math.inf if order < 0 else 0)
    return above("linalg").vector_norm(
        x, order, _axes("masked.norm", x, dim) if x.ndim else None, keepdim, dtype
    )


@checked
def var(
    input: Tensor,
    dim: Axes = None,
    unbiased: bool | None = None,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The variance over axes of the elements where the mask holds: squares from their mean, over count - correction.

    >>> hcq.torch.masked.var(Tensor([1.0, 9.0, 3.0]), 0, True, mask=hcq.tensor([True, False, True])).item()
    2.0
    """
    less = correction if correction is not None else 0 if unbiased is False else 1
    x = input if dtype is None else input.cast(dtype)
    x = x if x.dtype.is_float else x.cast(dtypes.float32)
    axes = _axes("masked.var", x, dim)
    count = _count("var", x, mask, axes).cast(x.dtype)
    centred = x - _filled("var", x, mask, 0).sum(axes, True) / count
    total = _filled("var", centred * centred, mask, 0).sum(axes, True)
    return _without(total / (count - less).maximum(0), axes, keepdim)


@checked
def std(
    input: Tensor,
    dim: Axes = None,
    unbiased: bool | None = None,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The square root of `var`.

    >>> hcq.torch.masked.std(Tensor([1.0, 9.0, 3.0]), 0, False, mask=hcq.tensor([True, False, True])).item()
    1.0
    """
    return var(input, dim, unbiased, correction, keepdim, dtype, mask).sqrt()


@checked
def logsumexp(
    input: Tensor,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """log(sum(exp(x))) over axes of the elements where the mask holds; -inf of none.

    dtype   of the result: the tensor's own unless given, rounded towards zero if it is one of integers

    >>> print(hcq.torch.masked.logsumexp(Tensor([0.0, 9.0, 0.0]), 0, mask=hcq.tensor([True, False, True])))
    tensor(0.6931)
    """
    x = input if input.dtype.is_float else input.cast(dtypes.float32)
    axes = _axes("masked.logsumexp", x, dim)
    return _filled("logsumexp", x, mask, -math.inf).logsumexp(axes, keepdim).cast(dtype or input.dtype)


@checked
def logaddexp(
    input: Tensor,
    other: Tensor,
    dtype: DType | None = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    """log(exp(input) + exp(other)), each of them where its mask holds.

    >>> x, mask = Tensor([0.0, 0.0]), hcq.tensor([True, False])
    >>> print(hcq.torch.masked.logaddexp(x, x, input_mask=mask))
    tensor([0.6931, 0.0000])
    """
    x, y = (each if dtype is None else each.cast(dtype) for each in (input, other))
    return _filled("logaddexp", x, input_mask, -math.inf).logaddexp(
        _filled("logaddexp", y, other_mask, -math.inf)
    )


@checked
def cumsum(input: Tensor, dim: int, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The sums of each element and those before it along an axis, of those where the mask holds.

    >>> hcq.torch.masked.cumsum(Tensor([2.0, 9.0, 4.0]), 0, mask=hcq.tensor([True, False, True])).tolist()
    [2.0, 2.0, 6.0]
    """
    return _filled("cumsum", input, mask, 0).cumsum(dim, dtype)


@checked
def cumprod(input: Tensor, dim: int, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The products of each element and those before it along an axis, of those where the mask holds.

    >>> hcq.torch.masked.cumprod(Tensor([2.0, 9.0, 4.0]), 0, mask=hcq.tensor([True, False, True])).tolist()
    [2.0, 2.0, 8.0]
    """
    return _filled("cumprod", input, mask, 1).cumprod(dim, dtype)


@checked
def softmax(input: Tensor, dim: int, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """softmax along an axis of the elements where the mask holds; 0 at the others, NaN where it takes none.

    >>> hcq.torch.masked.softmax(Tensor([1.0, 9.0, 1.0]), 0, mask=hcq.tensor([True, False, True])).tolist()
    [0.5, 0.0, 0.5]
    """
    x = _in_floats(input, dtype)
    return _filled("softmax", x, mask, -math.inf).softmax(dim)


@checked
def log_softmax(input: Tensor, dim: int, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """log_softmax along an axis of the elements where the mask holds; -inf at the others.

    >>> print(hcq.torch.masked.log_softmax(Tensor([1.0, 9.0, 1.0]), 0, mask=hcq.tensor([True, False, True])))
    tensor([-0.6931,    -inf, -0.6931])
    """
    x = _in_floats(input, dtype)
    return _filled("log_softmax", x, mask, -math.inf).log_softmax(dim)


@checked
def softmin(input: Tensor, dim: int, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """softmax of -x along an axis of the elements where the mask holds.

    >>> hcq.torch.masked.softmin(Tensor([1.0, -9.0, 1.0]), 0, mask=hcq.tensor([True, False, True])).tolist()
    [0.5, 0.0, 0.5]
    """
    x = _in_floats(input, dtype)
    return _filled("softmin", x, mask, math.inf).softmin(dim)


@checked
def normalize(
    input: Tensor,
    ord: float,
    dim: int,
    eps: float = 1e-12,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Divided by their norm along an axis, or by eps where that is larger; 0 where the mask does not hold.

    >>> print(hcq.torch.masked.normalize(Tensor([3.0, 9.0, 4.0]), 2.0, 0, mask=hcq.tensor([True, False, True])))
    tensor([0.6000, 0.0000, 0.8000])
    """
    x = input if dtype is None else input.cast(dtype)
    return _filled("normalize", x, mask, 0) / norm(x, ord, dim, True, None, mask).maximum(eps)


def _in_floats(x: Tensor, dtype: DType | None) -> Tensor:
    x = x if dtype is None else x.cast(dtype)
    return x if x.dtype.is_float else x.cast(dtypes.float32)
