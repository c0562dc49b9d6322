"""Views: which tensors show the same memory, and where in it the elements of each lie.

In       a tensor, or its node
Out      `core_of`, what a node is a view of; `relatives`, the tensors that may show the same; strides
Next     view_writes.py (writing so that all of them see it), base.py (`_view`: who is a view of whom)

Tensors are a family when they view one another by PyTorch's rules: `x`, `x[0]`, `x.T`, `x.view(-1)` while its elements
lie in that order. Below the views of each is the same node, the core: memory, or what is to be computed.
"""

from __future__ import annotations

from math import prod
from typing import Any

from hcq.frontend.core import known_later
from hcq.frontend.core.base import live
from hcq.frontend.core.nodes import reshaped
from hcq.ir.node import Node, Shape
from hcq.ir.op import Op

# views that show every element once
WHOLE = frozenset({Op.RESHAPE, Op.PERMUTE, Op.FLIP, Op.DETACH, Op.BITCAST})
STEPS = WHOLE | {Op.SHRINK, Op.EXPAND}


def relatives(tensor: Any) -> list[Any]:
    """The tensor, and all that are held and were made as views of the same one."""
    own = live.ref(tensor)
    whole = own.whole or own
    if not whole.views:
        return [tensor]
    found = [ref for ref in live.refs() if ref is whole or ref.whole is whole]
    return [one for one in [ref() for ref in found] if one is not None]


def is_family(tensor: Any) -> bool:
    """Whether another tensor shows the same memory."""
    found = relatives(tensor)
    if len(found) == 1:
        return False
    core = below_numbers(tensor.node)
    return any(one is not tensor and below_numbers(one.node) is core for one in found)


def is_part_by_number(tensor: Any) -> bool:
    """Whether it shows a part, cut where a bound variable says, of what another tensor shows: x[:n], x[n]."""
    if not known_later.in_use or live.ref(tensor).whole is None:
        return False
    return below_numbers(tensor.node) is not core_of(tensor.node) and is_family(tensor)


def below_numbers(node: Node) -> Node:
    """What a node is a view of, through parts that bound variables cut, too."""
    core = core_of(node)
    while core.op is Op.FIRST or (core.op is Op.GATHER and known_later.is_number(core.src[1])):
        core = core_of(core.src[0])
    return core


def core_of(node: Node) -> Node:
    """What a node is a view of by PyTorch's rules: below every step that needs no copy there."""
    if node.op is Op.BUFFER:
        return node
    below = node
    chain = []
    while below.op in STEPS:
        chain.append(below)
        below = below.src[0]
    if below.op is Op.CONST and chain:  # a constant tensor is a number, expanded
        below = chain.pop()
        if below.op is Op.RESHAPE and chain and chain[-1].op is Op.EXPAND:
            below = chain.pop()
    found, strides = below, row_major(below.shape)
    for step in reversed(chain):
        moved = strides_of_view(step, strides)
        if moved is None:  # a reshape that PyTorch copies for, and a flip
            found, moved = step, row_major(step.shape)
        strides = moved
    return found


def lies(node: Node) -> tuple[list[int], int]:
    """The strides of a node in its memory, and where it begins there, in elements; a flip is a copy, as in PyTorch."""
    core = core_of(node)
    strides, start = row_major(core.shape), 0
    for step in reversed(steps_to(node, core)):
        if step.op is Op.SHRINK:
            start += sum(stride * part[0] for stride, part in zip(strides, step.arg))
        moved = None if step.op is Op.FLIP else strides_of_view(step, strides)
        if moved is None:
            moved, start = row_major(step.shape), 0
        strides = moved
    return strides, start


def begin_of(node: Node) -> tuple[Node, int]:
    """The core of a node, and which of its elements the node begins with."""
    core = core_of(node)
    strides, start = row_major(core.shape), 0
    for step in reversed(steps_to(node, core)):
        if step.op is Op.SHRINK:
            start += sum(stride * part[0] for stride, part in zip(strides, step.arg))
        moved = strides_of_view(step, strides)
        assert moved is not None
        strides = moved
    return core, start


def line_of(node: Node, place: tuple[int, ...], size: int) -> Node | None:
    """A view of so many elements from a place on, each a step further along every axis; None where it needs a copy."""
    core = core_of(node)
    if any(step.op not in (Op.RESHAPE, Op.PERMUTE, Op.SHRINK) for step in steps_to(node, core)):
        return None
    strides, start = lies(node)
    start += sum(at * stride for at, stride in zip(place, strides))
    step = sum(strides)
    flat = reshaped(core, (prod(core.shape),))
    return Node(Op.SHRINK, node.dtype, (flat,), ((start, start + (size - 1) * step + 1, step),))


def steps_to(node: Node, core: Node) -> list[Node]:
    """The views from a node down to its core, the outermost first."""
    steps = []
    while node is not core:
        steps.append(node)
        node = node.src[0]
    return steps


def row_major(shape: Shape) -> list[int]:
    """The strides, in elements, of a tensor whose last axis is the innermost in memory."""
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


def strides_of_view(step: Node, strides: list[int]) -> list[int] | None:
    """The strides of a view of what has those; None where its elements have no strides."""
    have = step.src[0].shape
    if step.op is Op.PERMUTE:
        return [strides[axis] for axis in step.arg]
    if step.op is Op.SHRINK:
        return [stride * part[2] for stride, part in zip(strides, step.arg)]
    if step.op is Op.EXPAND:
        return [stride if new == old else 0 for stride, old, new in zip(strides, have, step.shape)]
    if step.op is Op.RESHAPE:
        return _reshaped(have, strides, step.shape)
    return (
        strides
        if step.op is Op.DETACH or step.op is Op.BITCAST
        else [-s if a in step.arg else s for a, s in enumerate(strides)]
    )


def _reshaped(old: Shape, strides: list[int], new: Shape) -> list[int] | None:
    """Strides after a reshape: each run of axes that lie behind one another may be cut anew."""
    if 0 in old:
        return row_major(new)
    runs: list[list[int]] = []  # [elements, stride of the last]
    for size, stride in zip(old, strides):
        if size == 1:
            continue
        if runs and runs[-1][1] == size * stride:
            runs[-1] = [runs[-1][0] * size, stride]
        else:
            runs.append([size, stride])
    found: list[int] = []
    left = 1
    stride = 1
    for size in reversed(new):
        if size == 1:
            found.append(stride)
            continue
        if left == 1:
            left, stride = runs.pop()
        if left % size:
            return None
        found.append(stride)
        left, stride = left // size, stride * size
    return found[::-1]
