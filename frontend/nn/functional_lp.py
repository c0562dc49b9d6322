"""Power averages: the p-norm of each window, as a pool.

In       a tensor whose last axes are places
Out      lp_pool1d, lp_pool2d, lp_pool3d
Changes  nothing
Next     functional.py (who asks), hcq/frontend/ops/pooling.py (averages of windows)
"""

from __future__ import annotations

from math import prod
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.base import in_float_together
from hcq.frontend.tensor import Tensor


@checked
def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """(sum x ** norm_type) ** (1 / norm_type) of each window over the last axis, of negative sums 0.

    >>> lp_pool1d(Tensor([[3.0, 4.0]]), 2.0, 2).tolist()
    [[5.0]]
    """
    return _pooled("lp_pool1d", 1, input, norm_type, kernel_size, stride, ceil_mode)


@checked
def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """`lp_pool1d` over the last two axes.

    >>> lp_pool2d(Tensor([[[2.0, 2.0], [2.0, 2.0]]]), 2.0, 2).tolist()
    [[[4.0]]]
    """
    return _pooled("lp_pool2d", 2, input, norm_type, kernel_size, stride, ceil_mode)


@checked
def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """`lp_pool1d` over the last three axes.

    >>> lp_pool3d(Tensor([[[[1.0, 3.0]]]]), 1.0, (1, 1, 2)).tolist()
    [[[[4.0]]]]
    """
    return _pooled("lp_pool3d", 3, input, norm_type, kernel_size, stride, ceil_mode)


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
