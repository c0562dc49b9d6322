"""Short: one operation on memory, whose plan is known, is run without asking what the graph is.

In       a tensor whose node is one arithmetic operation on tensors in memory and numbers
Out      `realize_short`; the key of a plan: what it does, on memory of which kind; and that memory
Changes  device memory; the node of the tensor, and of others that show the same
Next     realize.py (who takes this way), plan.py (the plans by these keys), core/structure.py (any graph)

Eager programs run one small operation at a time. For those the general way, which numbers a graph, looks its plan
up and tells every live tensor, costs more than the launch. A key here is a handful of objects compared by identity.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

from hcq.frontend.core import names
from hcq.frontend.core.base import changed, live, thread_modes, watcher
from hcq.frontend.core.storage import Storage, kind_of, written_so_far
from hcq.frontend.core.threads import lock
from hcq.frontend.core.views import relatives
from hcq.frontend.run import plan as plans
from hcq.frontend.run import varying_numbers
from hcq.frontend.run.roots import replace
from hcq.ir.node import Node
from hcq.ir.op import ARITHMETIC, Op


def realize_short(tensor: Any) -> bool:
    """Compute one operation on memory whose plan is known: no graph is walked. False for anything else."""
    if tensor.node.op is Op.BUFFER:
        return True
    if thread_modes and watcher() is not None:
        return False
    with lock:
        only = getrefcount(tensor.node) == ALONE
        node = tensor.node
        is_cut = node.op is Op.DETACH
        if is_cut and len(relatives(tensor)) > 1:  # they may show the same
            return False
        step = node.src[0] if is_cut else node
        found = key_of(step)
        if found is None:
            return False
        key, storages = found
        plan = plans.short_plan(key)
        if plan is None:
            found = _with_number(step, storages)
            plan = None if found is None else plans.short_plan(found[0])
            if found is None or plan is None:
                return False
            storages = found[1]
        storage = plan.run_single(storages)
        if not is_cut:
            for source in storages:
                if source.tracked:
                    storage.history = node
                    storage.noted = written_so_far()  # nothing was written in place meanwhile
                    storage.tracked = True
                    break
        if only:
            tensor.node = storage.node()
            changed()
        else:
            live.take(tensor)
            replace({node: storage.node()})
    if names.unnamed:
        names.name_memory()
    return True


def _with_number(step: Node, storages: list[Storage]) -> tuple[tuple[Any, ...], list[Storage]] | None:
    """What `key_of` gives for the same operation with its number in memory; None where that is not known."""
    found = number_of(step)
    if found is None or not is_short(step):
        return None
    number, place = found
    (other,) = storages
    kinds = [other.kind, kind_of(other.device, number.dtype, ())]
    if place == 0:
        kinds.reverse()
    key = (step.op, step.dtype, *kinds)
    if plans.short_plan(key) is None or not varying_numbers.may_vary(step, place, number):
        return None
    kept = varying_numbers.stored(other.device, number.dtype, number.arg)
    return key, [other, kept] if place else [kept, other]


def key_of(node: Node) -> tuple[tuple[Any, ...], list[Storage]] | None:
    """A key that two nodes share only if one plan serves both, and the memory that the plan takes for this one.

    None for a node that is not one operation on memory.
    """
    src = node.src
    if len(src) == 2:
        a, b = src
        if a.op is Op.BUFFER:
            left = a.arg
            kind = left.kind or left.kind_of()
            if a is b:
                return (node.op, node.dtype, kind, 0), [left]
            if b.op is Op.BUFFER:
                right = b.arg
                return (node.op, node.dtype, kind, right.kind or right.kind_of()), [left, right]
            if b.op is Op.CONST:
                return (node.op, node.dtype, kind, b), [left]
        elif a.op is Op.CONST and b.op is Op.BUFFER:
            right = b.arg
            return (node.op, node.dtype, a, right.kind or right.kind_of()), [right]
    elif len(src) == 1 and src[0].op is Op.BUFFER:
        storage = src[0].arg
        return (node.op, node.dtype, storage.kind or storage.kind_of()), [storage]
    return None


def number_of(node: Node) -> tuple[Node, int] | None:
    """The number of an operation on memory and a number, and which source it is."""
    if len(node.src) == 2:
        a, b = node.src
        if a.op is Op.BUFFER and b.op is Op.CONST:
            return b, 1
        if a.op is Op.CONST and b.op is Op.BUFFER:
            return a, 0
    return None


def is_short(node: Node) -> bool:
    """Whether the keys of nodes like this one stand for plans; what moves elements says more in its argument."""
    return node.op in ARITHMETIC and node.arg is None


def is_alone(tensor: Any) -> bool:
    """Whether nothing but the tensor holds its node, so that nobody else has to be told that it has been computed.

    False is always safe, if slower: then all live tensors are asked.
    """
    return getrefcount(tensor.node) == ALONE


class _Sample:
    __slots__ = ("node",)

    def __init__(self) -> None:
        self.node = object()


def _count(holder: Any) -> int:
    """What `is_alone` counts, where a slot holds the only reference: it depends on Python's version."""
    return getrefcount(holder.node)


ALONE = _count(_Sample())
