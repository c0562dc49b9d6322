"""Roots: what has to run for a tensor, and who reads memory once it has run.

In       a tensor; nodes, and the leaves that they have become
Out      the node that has to be computed, none for a view of memory
Changes  `replace`: the nodes of live tensors
Next     realize.py and short.py (who ask), core/views.py (which tensors show the same), overwrites.py (writes)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hcq.frontend.core import known_later, views
from hcq.frontend.core.base import changed, live, watcher
from hcq.frontend.core.threads import are_threads
from hcq.frontend.run.overwrites import base_of
from hcq.ir.node import Node, substitute
from hcq.ir.op import Op

_BY_NUMBER = frozenset({Op.FIRST, Op.GATHER})  # parts, where a variable's number says which


def root_of(tensor: Any) -> Node | None:
    """What has to run for this tensor: where others are held that show the same, what they are all views of.

    In memory of its own, a view would not see what is written to the others, nor they what is written to it.
    """
    root = root_below(tensor.node)
    if root is None or not (root.op in views.STEPS or root.op in _BY_NUMBER):
        return root
    own = live.ref(tensor)
    if (own.whole is None and not own.views) or not views.is_family(tensor):
        return root
    # in a recording the number may be another one in each call
    by_number = known_later.in_use and watcher() is None
    return views.below_numbers(root) if by_number else views.core_of(root)


def root_below(node: Node) -> Node | None:
    """What has to run for this node: nothing for a view of memory, the assignment for a view of one."""
    if node.op is Op.BUFFER:
        return None
    base = base_of(node)
    while (
        base.op is Op.GATHER
        and known_later.in_use
        and watcher() is None
        and known_later.is_number(base.src[1])
    ):
        base = base_of(base.src[0])  # a part by a variable's number
    if base.op is Op.BUFFER:
        return None
    return base if base.op is Op.ASSIGN else node


def replace(in_memory: dict[Node, Node], device: str | None = None) -> None:
    """Let tensors, of one device or of all, read memory instead of computing again what has been computed.

    Those of this thread: memory that they had in common with another thread's would be in each other's way. But what
    has been written is not to be written again by anybody.
    """
    for_all = {node: new for node, new in in_memory.items() if node.op is Op.ASSIGN}
    if not are_threads():
        replace_in(live, in_memory, device)
    else:
        replace_in(live.own(), in_memory, device)
        if for_all:
            replace_in(live.others(), for_all, device)
    changed()


def replace_in(tensors: Iterable[Any], in_memory: dict[Node, Node], device: str | None) -> None:
    """The same for these tensors, of one device or of all."""
    lazy = []
    for tensor in tensors:
        node = tensor.node
        if node.op is Op.BUFFER or (device is not None and tensor.device != device):
            continue
        found = in_memory.get(node)
        if found is not None:
            tensor.node = found
        elif node.src:
            lazy.append(tensor)
    if lazy:
        for tensor, new in zip(lazy, substitute([tensor.node for tensor in lazy], in_memory), strict=True):
            tensor.node = new
