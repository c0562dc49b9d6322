"""Fusion: which nodes of a lazy graph get memory of their own, and which of those share a kernel.

In       simplified roots
Out      a `Fusion`: the realized nodes, grouped into kernels, in an order that respects what each needs
Next     walk.py (which nodes are realized), groups.py (which share a kernel), schedule.py (groups to kernels over
         numbered values), docs/architecture.md ("what fuses with what")
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hcq.frontend.schedule.groups import group
from hcq.frontend.schedule.walk import MAX_ARGUMENTS, Use, Walk
from hcq.ir.dtype import DType
from hcq.ir.node import Node

FEW_NODES = 16  # of a graph: they are at most 32 operations each, which one kernel does


@dataclass
class Fusion:
    """The realized nodes, and the kernels (groups of them) in an order where sources come first."""

    realized: set[Node]
    groups: list[list[Node]]
    uses: dict[Node, dict[Node, Use]]  # node -> kernel (its first realized node) -> how it is used

    def is_aligned(self, node: Node, group: Sequence[Node]) -> bool:
        """True when every store of the group needs only the same element of `node`."""
        uses = self.uses.get(node, {})
        return all(uses[member].aligned for member in group if member in uses)


def _too_much(walk: Walk, most_arguments: int) -> frozenset[Node]:
    """What has to be in memory so that no kernel does or reads too much; see split.py."""
    if len(walk.order) <= min(FEW_NODES, most_arguments):
        return frozenset()
    from hcq.frontend.schedule.split import too_much

    return too_much(walk.order, walk.kernels_of, walk.is_in_memory, most_arguments)


def fuse(
    roots: Sequence[Node], most_arguments: int = MAX_ARGUMENTS, scaled: Collection[DType] = ()
) -> Fusion:
    """Choose the realized nodes and group them. `roots` are always realized, unless they are buffers already.

    most_arguments   how many buffers a kernel reads
    scaled           formats that the device's matrix units multiply with scales of blocks
    """
    walk = Walk(roots, most_arguments=most_arguments, scaled=scaled)
    walk.run()
    while True:
        if idle := walk.kept_for_no_reduction():
            walk = Walk(roots, walk.plain | idle, walk.cuts, walk.near, most_arguments, scaled)
        elif cuts := _too_much(walk, most_arguments) - walk.cuts:
            walk = Walk(roots, walk.plain, walk.cuts | cuts, walk.near, most_arguments, scaled)
        elif near := walk.ends_in_memory() - walk.near:
            walk = Walk(roots, walk.plain, walk.cuts, walk.near | near, most_arguments, scaled)
        else:
            break
        walk.run()
    groups = group(walk)
    return Fusion(set(walk.realized), groups, walk.uses)
