"""Fractional pooling: the greatest elements of windows that begin at random, unequal steps.

In       (batch, channels, *space), or without batch; a window; how many windows, or their share of the space
Out      (batch, channels, *windows), and where each greatest element was, if that is asked for
Changes  the state of the random numbers, unless samples are given
Next     functional.py (where they are found), ops/pooling.py (windows at even steps)
Source   Graham 2014: windows begin at floor(a (i + u)) - floor(a u), of one random number u for each axis
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.functions.methods import called
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


def _pool(rank: int, gives_indices: bool, doc: str) -> Callable[..., Any]:
    """One of the four functions."""
    call = f"fractional_max_pool{rank}d" + "_with_indices" * gives_indices

    @called(call, doc)
    def pool(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = gives_indices,
        _random_samples: Tensor | None = None,
    ) -> Any:
        indices = gives_indices or return_indices
        return _pooled(call, rank, input, kernel_size, output_size, output_ratio, indices, _random_samples)

    return pool


fractional_max_pool2d = _pool(
    2,
    False,
    """The greatest elements of random windows over two axes; output_size or output_ratio (0 to 1) says how many.

    return_indices    (values, indices): where in the flattened space each one was
    _random_samples   (batch, channels, 2) numbers of 0 to 1 instead of random ones

    >>> nn.functional.fractional_max_pool2d(Tensor.ones(1, 2, 9, 9), 2, output_ratio=0.5).shape
    (1, 2, 4, 4)
    """,
)
fractional_max_pool3d = _pool(
    3,
    False,
    """The greatest elements of random windows over three axes; see `fractional_max_pool2d`.

    >>> nn.functional.fractional_max_pool3d(Tensor.ones(1, 2, 5, 5, 5), 2, output_size=3).shape
    (1, 2, 3, 3, 3)
    """,
)
fractional_max_pool2d_with_indices = _pool(
    2,
    True,
    """`fractional_max_pool2d` with return_indices=True.

    >>> nn.functional.fractional_max_pool2d_with_indices(Tensor.ones(1, 5, 5), 2, output_size=3)[1].shape
    (1, 3, 3)
    """,
)
fractional_max_pool3d_with_indices = _pool(
    3,
    True,
    """`fractional_max_pool3d` with return_indices=True.

    >>> nn.functional.fractional_max_pool3d_with_indices(Tensor.ones(1, 5, 5, 5), 2, output_size=3)[1].shape
    (1, 3, 3, 3)
    """,
)


def _pooled(
    call: str,
    rank: int,
    x: Tensor,
    kernel_size: Any,
    size: Any,
    ratio: Any,
    return_indices: bool,
    samples: Any,
) -> Any:
    if x.ndim == rank + 1:
        found = _pooled(call, rank, x.unsqueeze(0), kernel_size, size, ratio, return_indices, samples)
        return tuple(part.squeeze(0) for part in found) if return_indices else found.squeeze(0)
    if x.ndim != rank + 2:
        raise UsageError(
            f"[{call}] shape {x.shape}: give (batch, channels, *space) with {rank} axes of space."
        )
    if (size is None) == (ratio is None):
        raise UsageError(f"[{call}] give one of output_size and output_ratio.")
    batch, channels, *space = x.shape
    window = _numbers(call, "kernel_size", kernel_size, rank)
    if size is None:
        shares = _numbers(call, "output_ratio", ratio, rank)
        wanted = [int(n * share) for n, share in zip(space, shares)]
    else:
        wanted = [int(n) for n in _numbers(call, "output_size", size, rank)]
    if any(w < 1 or k < 1 or w + k - 1 > n for w, k, n in zip(wanted, window, space)):
        raise UsageError(
            f"[{call}] {wanted} windows of {tuple(window)} over {tuple(space)}: they do not fit."
        )
    if samples is None:
        samples = Tensor.rand(batch, channels, rank, device=x.device)
    index: Any = None
    for axis, (n, k, want) in enumerate(zip(space, window, wanted)):
        # PyTorch's first number is for the last axis of images, and for the first of volumes
        u = samples[:, :, rank - 1 - axis if rank == 2 else axis].unsqueeze(-1)
        starts = _starts(u, n, int(k), want)
        line = starts.unsqueeze(-1) + Tensor.arange(int(k), device=x.device)
        sides = [batch, channels, *[1] * (2 * rank)]
        sides[2 + axis], sides[2 + rank + axis] = want, int(k)
        part = line.reshape(sides)
        index = part if index is None else index * n + part
    shape = (batch, channels, *wanted, *(int(k) for k in window))
    length = prod(int(k) for k in window)
    index = index.expand(shape).reshape(batch, channels, prod(wanted) * length)
    found = x.reshape(batch, channels, prod(space)).gather(2, index).reshape(batch, channels, *wanted, length)
    best = found.argmax(-1, keepdim=True)
    values = found.gather(rank + 2, best).squeeze(-1)
    if not return_indices:
        return values
    places = index.reshape(batch, channels, *wanted, length).gather(rank + 2, best).squeeze(-1)
    return values, places


def _starts(u: Tensor, n: int, k: int, want: int) -> Tensor:
    """Where `want` windows of size k begin on an axis of size n; the last one ends with it."""
    if want == 1:
        return (u * 0.0).cast(dtypes.int64) + (n - k)
    step = (n - k) / (want - 1)
    line = Tensor.arange(want, device=u.device)
    starts = ((line.cast(u.dtype) + u) * step).cast(dtypes.int64) - (u * step).cast(dtypes.int64)
    return (line == want - 1).where(n - k, starts)


def _numbers(call: str, name: str, given: Any, rank: int) -> Sequence[Any]:
    found = tuple(given) if isinstance(given, (tuple, list)) else (given,) * rank
    if len(found) != rank or any(isinstance(n, bool) or not isinstance(n, (int, float)) for n in found):
        raise UsageError(f"[{call}] {name}={shown(given)}: give a number, or {rank} of them.")
    return found
