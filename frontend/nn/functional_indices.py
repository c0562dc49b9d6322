"""Pools that give indices, too, under the names by which PyTorch has them apart.

In       a tensor, sizes of windows
Out      max_pool1d_with_indices and those of other axes: (values, indices)
Changes  nothing
Next     functional.py (who asks), hcq/frontend/ops/pooling.py (the pools)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.ops.arguments import checked
from hcq.frontend.tensor import Tensor


@checked
def max_pool1d_with_indices(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = True,
) -> Any:  # fmt: skip
    """`max_pool1d` with return_indices=True.

    >>> [each.tolist() for each in max_pool1d_with_indices(Tensor([[1.0, 3.0, 2.0, 4.0]]), 2)]
    [[[3.0, 4.0]], [[1, 3]]]
    """
    return input.max_pool1d(kernel_size, stride, padding, dilation, ceil_mode, return_indices=True)


@checked
def max_pool2d_with_indices(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = True,
) -> Any:  # fmt: skip
    """`max_pool2d` with return_indices=True.

    >>> [each.tolist() for each in max_pool2d_with_indices(Tensor([[[1.0, 3.0], [2.0, 4.0]]]), 2)]
    [[[[4.0]]], [[[3]]]]
    """
    return input.max_pool2d(kernel_size, stride, padding, dilation, ceil_mode, return_indices=True)


@checked
def max_pool3d_with_indices(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = True,
) -> Any:  # fmt: skip
    """`max_pool3d` with return_indices=True.

    >>> [each.tolist() for each in max_pool3d_with_indices(Tensor([[[[1.0, 3.0], [2.0, 4.0]]]]), (1, 2, 2))]
    [[[[[4.0]]]], [[[[3]]]]]
    """
    return input.max_pool3d(kernel_size, stride, padding, dilation, ceil_mode, return_indices=True)


@checked
def adaptive_max_pool1d_with_indices(input: Tensor, output_size: Any, return_indices: bool = True) -> Any:
    """`adaptive_max_pool1d` with return_indices=True.

    >>> [each.tolist() for each in adaptive_max_pool1d_with_indices(Tensor([[1.0, 3.0, 2.0, 4.0]]), 1)]
    [[[4.0]], [[3]]]
    """
    return input.adaptive_max_pool1d(output_size, return_indices=True)


@checked
def adaptive_max_pool2d_with_indices(input: Tensor, output_size: Any, return_indices: bool = True) -> Any:
    """`adaptive_max_pool2d` with return_indices=True.

    >>> [each.tolist() for each in adaptive_max_pool2d_with_indices(Tensor([[[1.0, 3.0], [2.0, 4.0]]]), 1)]
    [[[[4.0]]], [[[3]]]]
    """
    return input.adaptive_max_pool2d(output_size, return_indices=True)


@checked
def adaptive_max_pool3d_with_indices(input: Tensor, output_size: Any, return_indices: bool = True) -> Any:
    """`adaptive_max_pool3d` with return_indices=True.

    >>> [each.tolist() for each in adaptive_max_pool3d_with_indices(Tensor([[[[1.0, 3.0], [2.0, 4.0]]]]), 1)]
    [[[[[4.0]]]], [[[[3]]]]]
    """
    return input.adaptive_max_pool3d(output_size, return_indices=True)
