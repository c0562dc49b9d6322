"""Joining: several tensors become one.

In       tensors: one with others behind it, or a list of them
Out      one lazy tensor, in the dtype they all promote to
Next     core/nodes.py (the node), indexing.py (taking apart again)

`a.cat(b, c, dim=1)` and `Tensor.cat([a, b, c], dim=1)` are one function: its first argument is a tensor or the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from hcq.checks import is_whole, shown
from hcq.frontend.core.base import Core
from hcq.frontend.core.errors import OutOfRange, UsageError
from hcq.frontend.core.nodes import joined
from hcq.frontend.grad.function import also_of
from hcq.frontend.ops.base import Methods
from hcq.ir.dtype import promote

T = TypeVar("T", bound=Methods)


class Joining(Methods):
    """cat and stack."""

    __slots__ = ()

    def cat(tensors: T | Sequence[T], *others: Any, dim: int = 0) -> T:
        """One after the other along an axis: `a.cat(b, c, dim=1)`, or `Tensor.cat([a, b, c], dim=1)`.

        Sizes of the other axes must agree: (2, 3) and (4, 3) along axis 0 give (6, 3). All promote to one dtype.

        >>> hcq.tensor([1, 2]).cat(Tensor([3.5])).tolist()
        [1.0, 2.0, 3.5]
        """
        parts, dim = _listed("cat", tensors, others, dim)
        everything = parts
        # (0,) joins anything, as in PyTorch
        parts = [part for part in parts if part.node.shape != (0,)] or parts
        first = parts[0]
        if not first.node.shape:
            raise OutOfRange("[cat] tensors of shape () have no axis to join. Use stack.")
        axis = first._axis("cat", dim)
        for place, part in enumerate(parts):
            a, b = first.node.shape, part.node.shape
            if len(a) != len(b) or a[:axis] + a[axis + 1 :] != b[:axis] + b[axis + 1 :]:
                raise UsageError(
                    f"[cat] item 0 has shape {a}, item {place} {b}: only axis {axis} may differ. Reshape one."
                )
        if len(everything) == 1:
            return first  # type: ignore[no-any-return]
        whole = first._like(joined([part.node for part in parts], axis))
        # what has no elements is not in the graph, and yet has a gradient: zeros, of which there are none
        for part in everything:
            if 0 in part.node.shape and part.node.dtype.is_float and part.node is not whole.node:
                whole = also_of(part, whole)
        return whole

    def stack(tensors: T | Sequence[T], *others: Any, dim: int = 0) -> T:
        """Side by side along a new axis: `a.stack(b, c, dim=1)`, or `Tensor.stack([a, b, c], dim=1)`.

        The shapes must be equal: three of (2, 4) along axis 1 give (2, 3, 4). The dtype is what all promote to.

        >>> a, b = hcq.tensor([1, 2]), hcq.tensor([3, 4])
        >>> Tensor.stack([a, b], dim=1).tolist()
        [[1, 3], [2, 4]]
        """
        parts, dim = _listed("stack", tensors, others, dim)
        for place, part in enumerate(parts):
            if part.node.shape != parts[0].node.shape:
                raise UsageError(
                    f"[stack] item 0 has shape {parts[0].node.shape}, item {place} "
                    f"{part.node.shape}: shapes must be equal."
                )
        axis = parts[0]._axis("stack", dim, extra=1)
        return parts[0]._like(joined([part.unsqueeze(axis).node for part in parts], axis))


def _listed(call: str, tensors: Any, others: tuple[Any, ...], dim: int) -> tuple[list[Any], int]:
    """The tensors in one dtype, and the axis; refuses what are no tensors on one device."""
    if others and not isinstance(others[-1], (Core, list, tuple)):  # Tensor.cat([a, b], 1)
        if dim != 0:
            raise UsageError(f"[{call}] dim={dim} and {shown(others[-1])}: give one axis.")
        others, dim = others[:-1], others[-1]
        if not is_whole(dim):
            raise UsageError(f"[{call}] dim={shown(dim)}: takes an int.")
        dim = dim.__index__()
    is_method = isinstance(tensors, Core)
    if bool(others) is not is_method or not isinstance(tensors, (Core, Sequence)):
        raise UsageError(f"[{call}] takes a list of tensors: Tensor.{call}([a, b], dim=0).")
    if isinstance(tensors, Core):
        is_list = len(others) == 1 and isinstance(others[0], (list, tuple))
        tensors = [tensors, *(others[0] if is_list else others)]
    if not tensors:
        raise UsageError(f"[{call}] the list is empty. Give one tensor at least.")
    for place, tensor in enumerate(tensors):
        if not isinstance(tensor, Core):
            raise UsageError(
                f"[{call}] item {place} is {type(tensor).__name__}, not a Tensor. Make it one first."
            )
    first = tensors[0]
    first._same_device(call, *tensors[1:])
    dtype = first.node.dtype
    for tensor in tensors[1:]:
        dtype = promote(dtype, tensor.node.dtype)
    return [tensor.cast(dtype) for tensor in tensors], dim
