"""Pools that are functions alone: those that give indices, too, and power averages.

In       a tensor whose last axes are places, sizes of windows
Out      max_pool1d_with_indices and those of other axes: (values, indices); lp_pool1d and those of other axes
Next     functional.py (who asks), hcq/frontend/ops/pooling.py (the pools)
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.functions.methods import called
from hcq.frontend.ops.base import in_float_together
from hcq.frontend.tensor import Tensor


def _with_indices(rank: int, doc: str) -> Callable[..., Any]:
    """`max_pool{rank}d` with return_indices=True, under the name by which PyTorch has it apart."""
    pool = f"max_pool{rank}d"

    @called(f"{pool}_with_indices", doc)
    def function(
        input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False, return_indices: bool = True,
    ) -> Any:  # fmt: skip
        return getattr(input, pool)(kernel_size, stride, padding, dilation, ceil_mode, return_indices=True)

    return function


def _adaptive_with_indices(rank: int, doc: str) -> Callable[..., Any]:
    pool = f"adaptive_max_pool{rank}d"

    @called(f"{pool}_with_indices", doc)
    def function(input: Tensor, output_size: Any, return_indices: bool = True) -> Any:
        return getattr(input, pool)(output_size, return_indices=True)

    return function


def _power_average(rank: int, doc: str) -> Callable[..., Tensor]:
    call = f"lp_pool{rank}d"

    @called(call, doc)
    def function(
        input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> Tensor:
        return _pooled(call, rank, input, norm_type, kernel_size, stride, ceil_mode)

    return function


@in_float_together
def _pooled(call: str, rank: int, x: Tensor, p: float, kernel: Any, stride: Any, ceil: bool) -> Tensor:
    if not p:
        raise UsageError(f"[{call}] norm_type={p}: give a number that is not zero.")
    sizes = (kernel,) * rank if isinstance(kernel, int) else tuple(kernel)
    average = getattr(x**p, f"avg_pool{rank}d")(kernel, stride, 0, ceil)
    total = average * prod(sizes * rank if len(sizes) == 1 else sizes)
    is_positive = total > 0.0
    # where a window adds up to nothing there is no slope
    return is_positive.where(is_positive.where(total, 1.0) ** (1.0 / p), 0.0)  # type: ignore[no-any-return]


max_pool1d_with_indices = _with_indices(
    1,
    """`max_pool1d` with return_indices=True.

    >>> [each.tolist() for each in max_pool1d_with_indices(Tensor([[1.0, 3.0, 2.0, 4.0]]), 2)]
    [[[3.0, 4.0]], [[1, 3]]]
    """,
)
max_pool2d_with_indices = _with_indices(
    2,
    """`max_pool2d` with return_indices=True.

    >>> [each.tolist() for each in max_pool2d_with_indices(Tensor([[[1.0, 3.0], [2.0, 4.0]]]), 2)]
    [[[[4.0]]], [[[3]]]]
    """,
)
max_pool3d_with_indices = _with_indices(
    3,
    """`max_pool3d` with return_indices=True.

    >>> [each.tolist() for each in max_pool3d_with_indices(Tensor([[[[1.0, 3.0], [2.0, 4.0]]]]), (1, 2, 2))]
    [[[[[4.0]]]], [[[[3]]]]]
    """,
)
adaptive_max_pool1d_with_indices = _adaptive_with_indices(
    1,
    """`adaptive_max_pool1d` with return_indices=True.

    >>> [each.tolist() for each in adaptive_max_pool1d_with_indices(Tensor([[1.0, 3.0, 2.0, 4.0]]), 1)]
    [[[4.0]], [[3]]]
    """,
)
adaptive_max_pool2d_with_indices = _adaptive_with_indices(
    2,
    """`adaptive_max_pool2d` with return_indices=True.

    >>> [each.tolist() for each in adaptive_max_pool2d_with_indices(Tensor([[[1.0, 3.0], [2.0, 4.0]]]), 1)]
    [[[[4.0]]], [[[3]]]]
    """,
)
adaptive_max_pool3d_with_indices = _adaptive_with_indices(
    3,
    """`adaptive_max_pool3d` with return_indices=True.

    >>> [each.tolist() for each in adaptive_max_pool3d_with_indices(Tensor([[[[1.0, 3.0], [2.0, 4.0]]]]), 1)]
    [[[[[4.0]]]], [[[[3]]]]]
    """,
)
lp_pool1d = _power_average(
    1,
    """(sum x ** norm_type) ** (1 / norm_type) of each window over the last axis, of negative sums 0.

    >>> lp_pool1d(Tensor([[3.0, 4.0]]), 2.0, 2).tolist()
    [[5.0]]
    """,
)
lp_pool2d = _power_average(
    2,
    """`lp_pool1d` over the last two axes.

    >>> lp_pool2d(Tensor([[[2.0, 2.0], [2.0, 2.0]]]), 2.0, 2).tolist()
    [[[4.0]]]
    """,
)
lp_pool3d = _power_average(
    3,
    """`lp_pool1d` over the last three axes.

    >>> lp_pool3d(Tensor([[[[1.0, 3.0]]]]), 1.0, (1, 1, 2)).tolist()
    [[[[4.0]]]]
    """,
)
