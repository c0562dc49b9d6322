"""Writes to views: every tensor that shows the memory sees what is written to one of them.

In       a tensor, and values for it
Out      `write`: the tensor has the values, and so have all that view the same memory, as in PyTorch; `in_memory`: that
         memory, for who writes there from outside
Changes  the nodes of those tensors; where a part of what is in memory is written, that memory, now
Next     views.py (who shows the same), ops/in_place.py (x.add_), ops/index_writes.py (x[0] = y)

A write gives the core another value, and each of the family is the same view of it as before. What was computed from
one of them is not a view, and keeps the values from before.
"""

from __future__ import annotations

from math import prod
from threading import get_ident
from typing import Any

from hcq.frontend.core import known_later, sizes
from hcq.frontend.core.base import Core, changed, live, thread_modes, watcher
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import expanded, flipped, iota, permuted, reshaped
from hcq.frontend.core.structure import structure_of
from hcq.frontend.core.threads import lock, new_write, without_done
from hcq.frontend.core.views import (
    STEPS,
    WHOLE,
    below_numbers,
    core_of,
    is_part_by_number,
    lies,
    relatives,
    row_major,
    steps_to,
    strides_of_view,
)
from hcq.ir.dtype import DType
from hcq.ir.node import Node, const, substitute
from hcq.ir.op import Op

_SAME_PLACES = frozenset({Op.DETACH, Op.BITCAST, Op.FIRST})  # every element stays where it is


def write(call: str, tensor: Any, value: Core) -> None:
    """Give a tensor and its family the values of another one, which has its shape.

    Raises  UsageError for a leaf that requires a gradient, unless gradients are off or it is written by way of its
            detach(); for elements that share memory
    """
    with lock:
        without_done(tensor)
        core = core_of(tensor.node)
        if is_part_by_number(tensor):
            _write_at_numbers(call, tensor, value)
            return
        family = [one for one in relatives(tensor) if below_numbers(one.node) is core] or [tensor]
        steps = steps_to(tensor.node, core)
        is_apart = any(step.op is Op.DETACH for step in steps) and any(one._requires_grad for one in family)
        if call != "assign" and not is_apart:  # a leaf's .data is written as under no_grad()
            _refuse_leaf(call, family)
        node = expanded(value.node.cast(tensor.node.dtype), tensor.node.shape)
        if known_later.in_use:
            node = _of_its_sizes(call, tensor, node)
        del value
        flows = not is_apart and _gradients_are_on() and is_on_a_gradients_way(node, core)
        is_alone = len(family) == 1
        watching = watcher()
        if watching is not None and (memory := _memory(core)) is not None:
            watching.shows(memory)
        is_turned = all(step.op in WHOLE for step in steps) and _in_order(tensor.node) is not tensor.node
        if is_alone and steps and not is_turned:
            _become(family, {tensor.node: node})
        elif any(step.op is Op.EXPAND for step in steps):
            raise UsageError(
                f"[{call}] shape {tensor.shape}: several elements of this expanded tensor are one element in memory. "
                "Make it a tensor of its own first: x.clone()."
            )
        elif all(step.op in WHOLE for step in steps):
            is_kept = core.op in (Op.BUFFER, Op.ASSIGN) and not flows
            new = _inverse(steps, node)
            if is_kept and new is not core:
                new = new_write(Node(Op.ASSIGN, core.dtype, (core, new)))
                holder = None if any(one.node is core for one in family) else tensor._like(new)
                _become(family, {core: new})
                if holder is not None:  # nobody has all of the memory: the views have it written
                    holder.realize()
            elif new is not core:
                _become(family, {core: new})
        elif flows:
            if 0 not in tensor.node.shape:  # of nothing, nothing changes
                _become(family, {core: _scattered(steps, core, node)})
        else:
            _write_part(tensor, family, core, node)


def in_memory(tensor: Any) -> tuple[Any, list[int], int] | None:
    """The storage with a tensor's elements, made if it has none, their strides, and where they begin, in elements.

    Returns  None where they lie in no order of strides
    """
    tensor.realize()
    core = core_of(tensor.node)
    family = [one for one in relatives(tensor) if core_of(one.node) is core]
    known = {id(one) for one in family}
    # with an equal tensor, made apart, or a view of that
    is_shared = any(id(one) not in known and core_of(one.node) is core for one in live)
    if core.op is not Op.BUFFER or is_shared or hasattr(core.arg, "parts"):
        holder = tensor._like(Node(Op.CONTIGUOUS, core.dtype, (core,))).realize()
        _become(family, {core: holder.node})
        core = holder.node
    core.arg.is_lent = True
    strides, start = row_major(core.shape), 0
    for step in reversed(steps_to(tensor.node, core)):
        if step.op is Op.SHRINK:
            start += sum(stride * part[0] for stride, part in zip(strides, step.arg))
        elif step.op is Op.FLIP:
            start += sum(strides[axis] * (step.shape[axis] - 1) for axis in step.arg)
        moved = strides_of_view(step, strides)
        if moved is None or any(stride < 0 for stride in moved):
            return None
        strides = moved
    return core.arg, strides, start


def _inverse(steps: list[Node], node: Node) -> Node:
    """The core of which these views, which show every element, give the node."""
    for step in steps:
        if step.op is Op.RESHAPE:
            node = reshaped(node, step.src[0].shape)
        elif step.op is Op.PERMUTE:
            node = permuted(node, tuple(sorted(range(len(step.arg)), key=step.arg.__getitem__)))
        elif step.op is Op.FLIP:
            node = flipped(node, step.arg)
        elif step.op is Op.BITCAST:
            node = bits_as(step.src[0].dtype, node)
    return node


def _scattered(steps: list[Node], core: Node, node: Node) -> Node:
    """The core with other values where the views show it; a gradient flows through both."""
    size = prod(core.shape)
    places = reshaped(iota(size, 0, (size,)), core.shape)
    for step in reversed(steps):
        if step.op not in _SAME_PLACES:
            places = Node(step.op, places.dtype, (places,), step.arg)
    count = (prod(node.shape),)
    source = (reshaped(core, (size,)), reshaped(places, count), reshaped(bits_as(core.dtype, node), count))
    return reshaped(Node(Op.SCATTER, core.dtype, source, 0), core.shape)


def _of_its_sizes(call: str, tensor: Any, node: Node) -> Node:
    """A value of the sizes of the tensor that it is written into; refused where it has others."""
    for axis, (size, have) in enumerate(zip(sizes.sizes_of(tensor.node), sizes.sizes_of(node))):
        if have is not size and (isinstance(have, Node) or sizes.FREE not in (size, have)):
            raise UsageError(
                f"[{call}] shape {sizes.shape_of(node)} into {tensor.shape}: axis {axis} is of another size. "
                f"Cut the value as the part is cut."
            )
    return sizes.with_counts(node, sizes.counts_of(tensor.node))


def _write_at_numbers(call: str, tensor: Any, value: Core) -> None:
    """Write into what others show too, where bound variables say."""
    core = below_numbers(tensor.node)
    family = [one for one in relatives(tensor) if below_numbers(one.node) is core]
    if call != "assign":
        _refuse_leaf(call, family)
    node = expanded(value.node.cast(tensor.node.dtype), tensor.node.shape)
    node = _of_its_sizes(call, tensor, node)
    del value
    shape, total = tensor.node.shape, prod(core.shape)
    steps = steps_to(tensor.node, core)
    if any(step.op is Op.EXPAND for step in steps):
        raise UsageError(
            f"[{call}] shape {tensor.shape}: several elements of this expanded tensor are one element in memory. "
            "Make it a tensor of its own first: x.clone()."
        )
    places = reshaped(iota(total, 0, (total,)) + 1, core.shape)  # from 1 on: 0 is what is read outside
    for step in reversed(steps):
        if step.op is Op.GATHER:
            (index,) = sizes.without_counts([step.src[1]])
            places = Node(Op.GATHER, places.dtype, (places, index), step.arg)
        elif step.op not in _SAME_PLACES:
            places = Node(step.op, places.dtype, (places,), step.arg)
    for axis, count in sizes.counts_of(tensor.node):
        places = sizes.inside(shape, axis, count).where(places, 0)
    (node,) = sizes.without_counts([bits_as(core.dtype, node)])
    flat, line = reshaped(core, (total,)), (prod(shape),)
    new = Node(Op.SCATTER, core.dtype, (flat, reshaped(places + (-1), line), reshaped(node, line)), 0)
    if core.op not in (Op.BUFFER, Op.ASSIGN) or (_gradients_are_on() and is_on_a_gradients_way(node, core)):
        _become(family, {core: reshaped(new, core.shape)})
        return
    new = new_write(Node(Op.ASSIGN, core.dtype, (flat, new)))
    holder = None if any(one.node is core for one in family) else tensor._like(new)
    _become(family, {core: new})
    if holder is not None:
        holder.realize()


def _write_part(tensor: Any, family: list[Any], core: Node, node: Node) -> None:
    """Write what a view shows of the core into its memory, now."""
    holder = tensor._like(core)
    if core.op is not Op.BUFFER:
        kept = holder._like(Node(Op.CONTIGUOUS, core.dtype, (core,))) if core.op is not Op.ASSIGN else holder
        value = tensor._like(node)
        kept.realize()
        node = value.node.substitute({core: kept.node})
        _become(family, {core: kept.node})
        holder = kept
        del value
    nothing, memory = const(0, core.dtype), holder.node
    shown = [(one, one.node) for one in family]
    place = _without_bitcasts(tensor.node)
    node = bits_as(core.dtype, node)
    _note(family, core)
    for one in family:  # else each would be given a copy of what is overwritten
        one.node = nothing
    try:
        holder._write_view(place, tensor._like(node))
    finally:
        for one, view in shown:
            one.node = view if holder.node is memory else view.substitute({memory: holder.node})
        changed()


def _without_bitcasts(node: Node) -> Node:
    """The same part of what is viewed, in its own format."""
    steps = []
    while node.op in STEPS:
        steps.append(node)
        node = node.src[0]
    for step in reversed(steps):
        if step.op is not Op.BITCAST:
            node = Node(step.op, node.dtype, (node,), step.arg)
    return node


def _become(family: list[Any], mapping: dict[Node, Node]) -> None:
    """Have the same views of another core."""
    _note(family, next(iter(mapping)))
    mapping = {core: _in_order(new) for core, new in mapping.items()}
    for one, node in zip(family, substitute([one.node for one in family], mapping), strict=True):
        one.node = node
    changed()


def _in_order(node: Node) -> Node:
    """Values as they lie in a tensor that is written to, so that what is a view of it stays one."""
    core = core_of(node)
    if core is node:
        return node
    strides, start = lies(node)
    in_order = all(size == 1 or a == b for size, a, b in zip(node.shape, strides, row_major(node.shape)))
    if in_order and start == 0 and prod(core.shape) == prod(node.shape):
        return node
    return Node(Op.CONTIGUOUS, node.dtype, (node,))


def _note(family: list[Any], core: Node) -> None:
    """Tell who watches; a view of memory stays that view, and is in no need of memory of its own."""
    for one in family:
        live.take(one)
    watching = watcher()
    if watching is not None:
        for one in family:
            if one.node is core or _memory(core) is None:
                watching.writes(one, True)


def _memory(core: Node) -> Any:
    """The memory of a core that has some."""
    while core.op is Op.ASSIGN or core.op in STEPS:
        core = core.src[0]
    return core.arg if core.op is Op.BUFFER else None


def _gradients_are_on() -> bool:
    mode = thread_modes.get(get_ident()) if thread_modes else None
    return mode is None or not mode.no_grad_depth


def is_on_a_gradients_way(*nodes: Node) -> bool:
    """Whether a gradient flows through one of them, to a leaf that is in memory or is about to be written there."""
    found = structure_of(nodes)
    if any(found.tracked):
        return True
    return found.assigns and any(storage.tracked for storage in found.storages)


def _refuse_leaf(call: str, family: list[Any]) -> None:
    leaf = next((one for one in family if one._requires_grad), None)
    if leaf is not None and _gradients_are_on():
        raise UsageError(
            f"[{call}] a leaf of shape {leaf.shape} that requires a gradient, or a view of one, is not changed in "
            "place: its gradient would be of other numbers. Do it under no_grad(), or to x.clone()."
        )


def refuse_dtype(call: str, have: DType, given: DType) -> None:
    """A result is not written where its kind of number does not fit: floats not into integers, these not into bool."""
    ranks = [2 if kind.is_float else 0 if kind.is_bool else 1 for kind in (have, given)]
    if ranks[1] > ranks[0]:
        raise UsageError(
            f"[{call}] the result is {given.name}, which a {have.name} tensor does not hold. "
            f"Use x = x.{call.rstrip('_')}(...), or cast x first."
        )


def bits_as(dtype: DType, node: Node) -> Node:
    """The same bits as that format."""
    return node if node.dtype is dtype else Node(Op.BITCAST, dtype, (node,))
