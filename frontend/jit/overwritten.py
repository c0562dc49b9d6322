"""Overwritten: tensor arguments that a recorded function writes to, as `x.add_(1)` and `x[0] = 5` do.

In       the tensors of a call, the memory that stands for each, and the numbers of those that it writes to
Out      the caller's tensors have the new values, and views of them show these, as after a call without jit
Changes  those tensors; what others still mean by the old values is computed before
Next     capture.py and replay.py (who ask), core/view_writes.py (how a write is seen), docs/jit.md

Where an argument is memory, as it mostly is, kernels write there. A part of another tensor is given to the function as
a copy, and what it has become is written to that part when the call is over.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from enum import Enum
from typing import Any, NoReturn

from hcq.errors import UsageError
from hcq.frontend.core import view_writes, views
from hcq.frontend.core.base import live
from hcq.frontend.core.storage import Storage, next_write
from hcq.frontend.run.realize import compute_readers, readers, unwatched
from hcq.frontend.tensor import Tensor
from hcq.ir.op import Op


class Writing(Enum):
    """How a function writes to an argument."""

    SHOWN = "in place"  # x.add_(1), x[0] = 5: seen in all views
    ASSIGNED = "by assign"  # views that there were keep what they showed
    BOTH = "in place, and then by assign"
    DONATED = "it is given away"


def refuse_shared(
    name: str,
    written: Mapping[int, Writing],
    reshaped: Container[int],
    tensors: Sequence[Tensor],
    storages: Sequence[Storage],
    outside: Container[int],
) -> None:
    """Refuse an argument that is written to and that the function, or a caller, knows in a way that would not show it.

    written    which arguments are written to, and how
    reshaped   those of which the function has reshaped views when it writes
    outside    ids of the buffers that it reaches from outside
    """
    cores = [views.core_of(tensor.node) for tensor in tensors]
    for number, how in written.items():
        tensor, storage, core = tensors[number], storages[number], cores[number]

        def refuse(
            why: str, about: str = f"{number} {tensor.shape}", is_donated: bool = how is Writing.DONATED
        ) -> NoReturn:
            verb = "is donated" if is_donated else "writes to"
            raise UsageError(f"[jit] {name} {verb} its tensor argument {about}, {why}")

        if storage.tracked:
            refuse("through which a gradient flows. Pass x.detach().clone(), or return the new values.")
        if id(storage.buffer) in outside or (core.op is Op.BUFFER and id(core.arg.buffer) in outside):
            refuse("whose memory it reaches from outside as well. Reach it one way, or pass x.clone().")
        if number in reshaped and not _is_row_major(tensor):
            refuse(
                "of which it has another shape: a view while elements lie in order, as these do not. "
                "Pass x.contiguous()."
            )
        if live.ref(tensor).whole is None and not live.ref(tensor).views:
            continue
        family = {id(one) for one in _family(tensor)}
        if how is Writing.BOTH and len(family) > 1:
            refuse("in place and then by assign, and there are views of it. Use copy_ instead of assign.")
        for other, one in enumerate(tensors):
            if one is not tensor and cores[other] is core and id(one) in family:
                refuse(
                    f"and its tensor argument {other} {one.shape} is a view of the same memory. Pass one of them, and "
                    "take views of it inside."
                )


def keep_others(
    written: Mapping[int, Writing], tensors: Sequence[Tensor], storages: Sequence[Storage]
) -> bool:
    """Before memory of arguments is overwritten: compute what needs the old values. True when something did."""
    nodes = set()
    owners = set()
    for number, how in written.items():
        tensor, node = tensors[number], storages[number].node()
        if views.core_of(tensor.node) is node:  # else it is a copy of a part: nobody else knows it
            nodes.add(node)
            shows = how is not Writing.ASSIGNED or _is_view(tensor)
            owners |= {id(one) for one in (_family(tensor) if shows else (tensor,))}
    found = readers(live, nodes, owners) if nodes else []
    if found:
        with unwatched():
            compute_readers(found)
    return bool(found)


def hand_back(tensor: Tensor, storage: Storage, how: Writing) -> None:
    """After memory that stands for an argument was written: the caller's tensor has the new values."""
    if views.core_of(tensor.node) is storage.node():
        storage.version = next_write()
        storage.history = None
    else:
        give(tensor, Tensor._of(storage.node(), storage.device), how)


def give(tensor: Tensor, value: Any, how: Writing) -> None:
    """Write values into a caller's tensor, now, as the function would."""
    value = value._reshape(tensor.node.shape)
    if how is Writing.ASSIGNED:
        tensor.assign(value)
    else:
        view_writes.write("copy_", tensor, value)
    tensor.realize()


def _is_view(tensor: Tensor) -> bool:
    """Whether assign is seen in what it is a view of."""
    return live.ref(tensor).whole is not None and views.is_family(tensor)


def _is_row_major(tensor: Tensor) -> bool:
    shape = tensor.node.shape
    strides, _ = views.lies(tensor.node)
    return all(size == 1 or have == want for size, have, want in zip(shape, strides, views.row_major(shape)))


def _family(tensor: Tensor) -> list[Any]:
    """The tensor, and all that view the same memory."""
    own = live.ref(tensor)
    if own.whole is None and not own.views:
        return [tensor]
    core = views.core_of(tensor.node)
    return [one for one in views.relatives(tensor) if views.core_of(one.node) is core]
