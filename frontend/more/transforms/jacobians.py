"""Jacobians: every derivative of every result by every element of the arguments.

In       a function of tensors
Out      jacrev, jacfwd, hessian: functions that return tensors of shape (*result, *argument)
Next     reverse.py and forward.py (one direction), batching.py (all of them at once)

The function runs once. The gradient for one row is a graph with the row's weights as a leaf, and that graph is batched
over the rows of an identity matrix.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.core.nodes import filled, iota, joined, permuted, reshaped
from hcq.frontend.grad.derivatives import carrier
from hcq.frontend.more.transforms.batching import batched
from hcq.frontend.more.transforms.forward import pushed
from hcq.frontend.more.transforms.levels import example
from hcq.frontend.more.transforms.reverse import Run, one_or_tuple
from hcq.frontend.more.transforms.trees import chosen, floats_of, rebuilt
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node, Shape


def jacrev(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function that returns the Jacobian of `func`, by reverse mode: for fewer results than arguments.

    argnums     by which positional arguments: an int, or a tuple of ints for a tuple of Jacobians
    has_aux     func returns (result, aux); then (Jacobian, aux) is returned
    chunk_size  at most so many rows at a time, which takes less memory
    Returns     a tree like the result's, whose tensors are trees like the arguments', of shape (*result, *argument)
    Raises      UsageError for arguments and results that are no floats

    >>> hcq.func.jacrev(lambda x: x * x)(Tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """

    @functools.wraps(func)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        run = Run("jacrev", func, args, chosen("jacrev", argnums, args), kwargs, has_aux)
        floats_of("jacrev", run.result, "result")
        rows = []
        for at, y in enumerate(run.outputs):
            seeds = [filled(0.0, other.node.shape, carrier(other.dtype)) for other in run.outputs]
            seeds[at] = leaf = example("jacrev", carrier(y.dtype), y.node.shape)
            parts = _over_identity(run.gradients(seeds), leaf, chunk_size)
            found = [
                x._like(reshaped(part, (*y.node.shape, *x.node.shape))) for x, part in zip(run.inputs, parts)
            ]
            rows.append(one_or_tuple(argnums, tuple(rebuilt(run.tree, found))))
        jacobian = rebuilt(run.result, rows)
        return (jacobian, run.aux) if has_aux else jacobian

    return transformed


def jacfwd(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """As `jacrev`, by forward mode: for fewer arguments than results.

    >>> hcq.func.jacfwd(lambda x: x * x)(Tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """

    @functools.wraps(func)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        run = Run("jacfwd", func, args, chosen("jacfwd", argnums, args), kwargs, has_aux)
        floats_of("jacfwd", run.result, "result")
        columns: list[list[Tensor]] = [[] for _ in run.outputs]  # of each result, by argument
        for at, x in enumerate(run.inputs):
            directions = [filled(0.0, other.node.shape, other.node.dtype) for other in run.inputs]
            directions[at] = leaf = example("jacfwd", x.node.dtype, x.node.shape)
            parts = _over_identity(pushed(run, directions), leaf, chunk_size)
            for y, part, column in zip(run.outputs, parts, columns):
                rank = len(y.node.shape)
                last = permuted(part, (*range(1, rank + 1), 0))
                column.append(y._like(reshaped(last, (*y.node.shape, *x.node.shape))))
        jacobian = rebuilt(
            run.result, [one_or_tuple(argnums, tuple(rebuilt(run.tree, column))) for column in columns]
        )
        return (jacobian, run.aux) if has_aux else jacobian

    return transformed


def jacobian(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """`jacrev`, by the name that mathematics has for it.

    >>> hcq.func.jacobian(lambda x: x.sum())(Tensor([1.0, 2.0])).tolist()
    [1.0, 1.0]
    """
    return jacrev(func, argnums, has_aux=has_aux)


def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """A function that returns the second derivatives of `func`: forward mode over reverse mode.

    Returns  tensors of shape (*result, *argument, *argument)

    >>> hcq.func.hessian(lambda x: (x ** 3).sum())(Tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    return jacfwd(jacrev(func, argnums), argnums)


def _over_identity(parts: Sequence[Node], leaf: Node, chunk_size: int | None) -> list[Node]:
    """The graphs for every row of an identity matrix in the place of the leaf: (elements of the leaf, *part)."""
    shape, count = leaf.shape, prod(leaf.shape)
    if chunk_size is not None and (type(chunk_size) is not int or chunk_size < 1):
        raise UsageError(f"[jacrev] chunk_size={chunk_size!r}: takes an int of at least 1, or None.")
    step = max(1, count if chunk_size is None else chunk_size)
    pieces: list[list[Node]] = [[] for _ in parts]
    for start in range(0, max(count, 1), step):
        size = min(step, count - start)
        rows = _identity_rows(start, size, count, shape, leaf.dtype)
        for piece, part, found in zip(pieces, parts, batched(parts, {leaf: rows}, size)):
            piece.append(filled(0.0, (size, *part.shape), part.dtype) if found is None else found)
    return [joined(piece, 0) for piece in pieces]


def _identity_rows(start: int, size: int, count: int, shape: Shape, dtype: DType) -> Node:
    """Rows of the identity matrix of `count`, each as a value of that shape."""
    square = size, count
    row, column = iota(size, 0, square, dtypes.int64) + start, iota(count, 1, square, dtypes.int64)
    return reshaped(row.eq(column).where(filled(1.0, square, dtype), 0.0), (size, *shape))
