"""Targets: what the kernel of a realized node stores, and in whose memory.

In       a node that is put in memory
Out      the shape that is stored; the buffer or the value whose memory it is; whether its turns run in order
Next     walk.py, groups.py, schedule.py (who ask)
"""

from __future__ import annotations

from hcq.ir.node import Node
from hcq.ir.op import MOVEMENT, SCATTERS, Op

# a kernel of its own, whose turns along one axis run in order
ORDERED = SCATTERS | {Op.SCAN_AXIS, Op.BUCKET, Op.ROUTINE}


def is_ordered(node: Node) -> bool:
    """Whether its kernel runs in turns, one after the other."""
    return node.op in ORDERED or (node.op is Op.ASSIGN and node.arg is not None)


def is_renamed(node: Node) -> bool:
    """Whether a value is what its source's kernel writes: a scan in another shape, the first output of a launch."""
    if node.op is Op.ROUTINE:
        return getattr(node.arg, "index", None) == 0
    return node.op is Op.RESHAPE and node.src[0].op is Op.SCAN_AXIS


def stored_shape(node: Node) -> tuple[int, ...]:
    """The shape of what a realized node's kernel stores: for an assignment, that of what is written."""
    if node.op is Op.ASSIGN:
        return node.src[0].shape if node.arg is None else node.src[1].shape
    return node.shape


def written_version(node: Node) -> Node:
    """What an ASSIGN overwrites: a BUFFER, or the ASSIGN before it."""
    base = node.src[0]
    while base.op in MOVEMENT:
        base = base.src[0]
    return base


def target_base(node: Node) -> Node:
    """The BUFFER that an ASSIGN writes to, through views and earlier assignments."""
    while node.op is Op.ASSIGN or node.op in MOVEMENT:
        node = node.src[0]
    return node
