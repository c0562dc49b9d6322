"""Heuristic for GPUs: every element of the result is one thread.

In       a fresh LoopNest, a Target
Out      the same nest, every output range bound to groups; `nest.choice` says which
Next     heuristic.py (its sister for CPUs), render/gpu.py (what a group becomes)

Correct for every kernel and simple: no tiles in shared memory and no matrix instructions. Neighbouring threads take
neighbouring elements, so their loads and stores meet in the same cache lines.
"""

from __future__ import annotations

from hcq.compiler.loops.heuristic import merge_all
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.target import Target


def choose(nest: LoopNest, target: Target) -> LoopNest:
    """Apply the schedule we believe in."""
    merge_all(nest)
    if any(axis.size == 0 for axis in nest.axes):
        return nest
    for axis in list(nest.axes):
        if not axis.is_reduce and not axis.is_ordered and axis.size > 1:
            nest.parallel(axis.loops[0].name)
    return nest
