"""vmap: a function of one example, over a batch of them.

In       a function, and which axis of each argument counts the examples
Out      a function of batches, computed at once: no loop, no call per example
Next     batching.py (what becomes of each operation), levels.py (`Example`)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from hcq.checks import is_whole, shown
from hcq.errors import UsageError
from hcq.frontend.core.base import mode_of_thread
from hcq.frontend.core.nodes import permuted
from hcq.frontend.more.transforms.batching import batched, repeated
from hcq.frontend.more.transforms.levels import Level, example
from hcq.frontend.more.transforms.trees import rebuilt, results_of, tensors_of
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType
from hcq.ir.node import Node, Shape

RANDOMNESS = "error", "same", "different"


class Batch(Level):
    """A call of the function on one example; what its leaves are for the whole batch.

    size         of the batch
    leaves       leaf of the example -> node with the batch's axis in front
    randomness   "error", "same" or "different": of numbers drawn inside, see `vmap`
    """

    def __init__(self, size: int, randomness: str):
        self.size = size
        self.leaves: dict[Node, Node] = {}
        self.randomness = randomness

    def one_of(self, node: Node, device: str) -> Node:
        """A leaf for one example of a node that has the batch's axis in front."""
        leaf = example("vmap", node.dtype, node.shape[1:], device)
        self.leaves[leaf] = node
        return leaf

    def drawn(self, kind: Any, shape: Shape, device: str, number: Any, dtype: DType, generator: Any) -> Node:
        """Random numbers for one example, where they are not the same for all; the rest as of `Random._draw`.

        They are drawn for the whole batch, as if outside of this transform and of those inside of it.
        """
        if self.randomness == "error":
            raise UsageError(
                "[vmap] the function draws random numbers. Say what is wanted: vmap(..., randomness='different') for "
                "each example its own, or 'same'."
            )
        mode = mode_of_thread()
        inside, mode.transforms = mode.transforms, mode.transforms[: self.depth]
        try:
            node = kind._draw((self.size, *shape), device, number, dtype, False, generator).node
        finally:
            mode.transforms = inside
        return self.one_of(node, device)


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function of batches, that gives for each example what `func` gives.

    func         of positional arguments that hold tensors (keyword arguments: the first axis of each tensor); may look
                 at shapes and not at values
    in_dims      which axis of the arguments counts the examples: an int for all, or a tuple with one for each argument,
                 nested as the arguments are; None for what every example gets whole
    out_dims     where that axis goes in the results: an int for all, or a tuple with one for each
    randomness   "error", "same" or "different": random numbers drawn inside are refused, or the same for all examples,
                 or each example's own
    chunk_size   at most so many examples at a time, which takes less memory
    Raises       UsageError for sizes that differ, axes that are not there, and functions that look at values

    >>> dot = lambda a, b: (a * b).sum()
    >>> hcq.vmap(dot)(Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([[1.0, 1.0], [2.0, 2.0]])).tolist()
    [3.0, 14.0]
    >>> hcq.vmap(dot, in_dims=(0, None))(Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1.0, 10.0])).tolist()
    [21.0, 43.0]
    """
    if randomness not in RANDOMNESS:
        raise UsageError(f"[vmap] randomness={shown(randomness)}: use 'error', 'same' or 'different'.")
    if chunk_size is not None and (not is_whole(chunk_size) or chunk_size < 1):
        raise UsageError(f"[vmap] chunk_size={shown(chunk_size)}: takes an int of at least 1, or None.")

    @functools.wraps(func)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        given = args, kwargs
        axes = [*_axes_of(in_dims, args), *[0] * len(tensors_of(kwargs))]
        tensors = tensors_of(given)
        places = [
            None if axis is None else _place(number, tensor, axis)
            for number, (tensor, axis) in enumerate(zip(tensors, axes))
        ]
        size = _size(tensors, places)
        nodes = [t.node if at is None else _front(t.node, at) for t, at in zip(tensors, places)]
        if chunk_size is None or size <= chunk_size:
            tree, results = _call(func, given, tensors, nodes, places, size, randomness)
        else:
            parts = []
            for start in range(0, size, chunk_size):
                stop = min(start + chunk_size, size)
                cut = [
                    n if at is None else t._like(n)._part(0, start, stop).node
                    for t, n, at in zip(tensors, nodes, places)
                ]
                parts.append(_call(func, given, tensors, cut, places, stop - start, randomness))
            tree = parts[0][0]
            results = [pieces[0].cat(list(pieces[1:]), dim=0) for pieces in zip(*[part[1] for part in parts])]
        outs = _out_axes(out_dims, tree, len(results))
        moved = [_back(number, result, axis) for number, (result, axis) in enumerate(zip(results, outs))]
        return rebuilt(tree, moved)

    return transformed


def _call(
    func: Callable[..., Any],
    given: Any,
    tensors: Sequence[Tensor],
    nodes: Sequence[Node],
    places: Sequence[int | None],
    size: int,
    randomness: str,
) -> tuple[Any, list[Tensor]]:
    """What the function returned for one example, and its tensors for the batch, its axis in front."""
    with Batch(size, randomness) as batch:
        ones = [
            tensor if at is None else Tensor._of(batch.one_of(node, tensor.device), tensor.device)
            for tensor, node, at in zip(tensors, nodes, places)
        ]
        args, kwargs = rebuilt(given, ones)
        tree = func(*args, **kwargs)
        made = results_of("vmap", tree)
        found = batched([tensor.node for tensor in made], batch.leaves, size)
    return tree, [y._like(repeated(y.node, size) if node is None else node) for y, node in zip(made, found)]


def _axes_of(in_dims: Any, args: Any) -> list[int | None]:
    """For each tensor of the arguments its axis of examples."""
    if in_dims is None or isinstance(in_dims, int):
        return [in_dims] * len(tensors_of(args))
    if isinstance(args, Tensor) or not isinstance(in_dims, (tuple, list, dict)):
        raise UsageError(
            f"[vmap] in_dims={shown(in_dims)}: an axis is an int, or None for what is not mapped."
        )
    items = list(args.values()) if isinstance(args, dict) else args
    if isinstance(in_dims, dict):
        in_dims = [in_dims.get(key, 0) for key in args] if isinstance(args, dict) else ()
    if not isinstance(args, (tuple, list, dict)) or len(in_dims) != len(items):
        raise UsageError(
            f"[vmap] in_dims={shown(in_dims)}: give one axis for all, or one for each of the "
            f"{len(items) if isinstance(args, (tuple, list, dict)) else 1} arguments, nested as they are."
        )
    return [axis for dims, item in zip(in_dims, items) for axis in _axes_of(dims, item)]


def _place(number: int, tensor: Tensor, axis: int) -> int:
    if isinstance(axis, bool) or not -tensor.ndim <= axis < tensor.ndim:
        raise UsageError(
            f"[vmap] in_dims: tensor {number} has shape {tensor.shape}, and no axis {axis} to count examples. "
            "Give None for what every example gets whole."
        )
    return axis % tensor.ndim


def _size(tensors: Sequence[Tensor], places: Sequence[int | None]) -> int:
    sizes = {t.node.shape[at] for t, at in zip(tensors, places) if at is not None}
    if len(sizes) != 1:
        shapes = [t.shape for t in tensors]
        what = "no argument is mapped" if not sizes else f"batches of {sorted(sizes)} examples"
        raise UsageError(f"[vmap] {what}: arguments of shapes {shapes}. All axes of in_dims need one size.")
    return sizes.pop()


def _front(node: Node, axis: int) -> Node:
    rest = [other for other in range(len(node.shape)) if other != axis]
    return permuted(node, (axis, *rest))


def _out_axes(out_dims: Any, tree: Any, count: int) -> list[int | None]:
    if out_dims is None or isinstance(out_dims, int):
        return [out_dims] * count
    if isinstance(tree, Tensor) and isinstance(out_dims, (tuple, list)) and len(out_dims) == 1:
        return list(out_dims)
    if (
        not isinstance(tree, (tuple, list))
        or not isinstance(out_dims, (tuple, list))
        or len(tree) != len(out_dims)
    ):
        raise UsageError(
            f"[vmap] out_dims={shown(out_dims)}: give one axis for all results, or one for each of those returned."
        )
    return [
        axis for dims, item in zip(out_dims, tree) for axis in _out_axes(dims, item, len(tensors_of(item)))
    ]


def _back(number: int, result: Tensor, axis: int | None) -> Tensor:
    if axis is None:
        raise UsageError(
            f"[vmap] out_dims=None: result {number} may differ from example to example. Give it an axis."
        )
    rank = result.ndim
    if not -rank <= axis < rank:
        raise UsageError(
            f"[vmap] out_dims: result {number} has shape {result.shape[1:]} for each example; "
            f"axis {axis} is not from {-rank} to {rank - 1}."
        )
    rest = list(range(1, rank))
    rest.insert(axis % rank, 0)
    return result._like(permuted(result.node, tuple(rest)))
