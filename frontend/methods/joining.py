"""Joining: several tensors become one.

In       sequences of tensors
Out      one lazy tensor, in the dtype they all promote to
Changes  nothing
Next     movement.py (how parts are placed side by side), indexing.py (taking apart again)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from hcq.frontend.core import Core
from hcq.frontend.errors import UsageError
from hcq.frontend.function import also_of
from hcq.frontend.methods.ordering import Ordering
from hcq.ir.dtype import promote

if TYPE_CHECKING:
    T = TypeVar("T", bound="Joining")


class Joining(Ordering):
    """cat and stack."""

    __slots__ = ()

    @staticmethod
    def cat(tensors: Sequence[T], dim: int = 0) -> T:
        """One after the other along an axis; the other sizes must agree."""
        parts = _checked("cat", tensors)
        first = parts[0]
        if not first.node.shape:
            raise UsageError("[cat] tensors of shape () have no axis to join. Use stack.")
        axis = first._axis("cat", dim)
        for place, part in enumerate(parts):
            a, b = first.node.shape, part.node.shape
            if len(a) != len(b) or a[:axis] + a[axis + 1 :] != b[:axis] + b[axis + 1 :]:
                raise UsageError(
                    f"[cat] item 0 has shape {a}, item {place} {b}: only axis {axis} may differ. Reshape one."
                )
        joined = first.cat_with(parts[1:], axis)
        # what has no elements is not in the graph, and yet has a gradient: zeros, of which there are none
        for part in parts:
            if 0 in part.node.shape and part.node.dtype.is_float and part.node is not joined.node:
                joined = also_of(part, joined)
        return joined

    @staticmethod
    def stack(tensors: Sequence[T], dim: int = 0) -> T:
        """Side by side along a new axis; the shapes must be equal."""
        parts = _checked("stack", tensors)
        for place, part in enumerate(parts):
            if part.node.shape != parts[0].node.shape:
                raise UsageError(
                    f"[stack] item 0 has shape {parts[0].node.shape}, item {place} "
                    f"{part.node.shape}: shapes must be equal."
                )
        axis = parts[0]._axis("stack", dim, extra=1)
        lifted = [part.unsqueeze(axis) for part in parts]
        return lifted[0].cat_with(lifted[1:], axis)


def _checked(call: str, tensors: Sequence[T]) -> list[T]:
    """The tensors in one dtype; refuses what is no sequence of tensors on one device."""
    if isinstance(tensors, Core) or not isinstance(tensors, Sequence):
        raise UsageError(f"[{call}] takes a list of tensors: Tensor.{call}([a, b], dim=0).")
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
    return [tensor.cast(dtype) for tensor in tensors]
