"""Stand-ins: the tensors that a captured function gets in place of its arguments.

In       the arguments of a call, and the memory that stands for each of its tensors
Out      the same arguments, in which other tensors are: the same memory under other names
Next     watched_call.py (who calls the function on them)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hcq.frontend.core.base import live
from hcq.frontend.core.storage import Storage
from hcq.frontend.jit.pytree import Ref, mapped
from hcq.frontend.symbolic.variable import Bound, Leaf
from hcq.frontend.tensor import Tensor
from hcq.ir.node import Node
from hcq.ir.op import Op


class StandIn(NamedTuple):
    """One of them: a reference to it, the number of its argument, and what it is when the call begins."""

    ref: Ref
    number: int
    node: Node


def stand_ins(
    call: tuple[Any, Any], tensors: Sequence[Tensor], own: Sequence[Storage], known: dict[int, StandIn]
) -> tuple[Any, Any]:
    """The arguments with other tensors for its tensors; one that is given twice is one tensor.

    known  where they are noted, by id
    """
    made: dict[int, Tensor] = {}
    numbers = iter(range(len(tensors)))
    leaves: dict[Leaf, Leaf] = {}  # of bound variables: their numbers are the last tensors
    for storage in own:
        leaf = storage.number
        if leaf is not None:
            leaves[leaf] = Leaf(leaf.variable, leaf.now, storage)

    def stand_in(tensor: Any) -> Any:
        if isinstance(tensor, Bound):
            return tensor.with_leaves(lambda leaf: leaves[leaf])
        number = next(numbers)
        found = made.get(id(tensor))
        if found is None:
            node = own[number].node()
            if node.shape != tensor.node.shape:
                node = Node(Op.RESHAPE, node.dtype, (node,), tensor.node.shape)
            found = made[id(tensor)] = Tensor._of(node, tensor.device)
            known[id(found)] = StandIn(live.ref(found), number, node)
        return found

    args, kwargs = mapped(call, stand_in)
    return args, kwargs
