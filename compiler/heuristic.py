"""Heuristic: choose a schedule for a kernel from its shape and the target's limits.

In       a fresh LoopNest, a Target
Out      the same nest with transforms applied; `nest.choice` tells which
Next     loop_nest.py (the transforms)
"""

from __future__ import annotations

from hcq.compiler.loop_nest import LoopNest
from hcq.compiler.target import Target


def choose(nest: LoopNest, target: Target) -> LoopNest:
    """Apply the schedule we believe in."""
    return nest
