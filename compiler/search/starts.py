"""Starts: schedules to begin a search with, beside the heuristic's own.

In       a lowered kernel, its target
Out      texts of schedules: what the heuristic would choose on a machine with other limits
Next     beam.py (who begins), moves.py (what comes next), ../codegen.py (whose heuristic it is)

One move changes one decision, and a good schedule of another kind may be ten moves away. The heuristic knows several
kinds, and its choice between them rests on figures of the machine: with other figures it makes another one.
"""

from __future__ import annotations

from dataclasses import replace

from hcq.compiler.codegen import codegen
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.target import Target
from hcq.ir.node import Node


def starts(lowered: Node, target: Target) -> list[str]:
    """Different schedules, in one order."""
    choose = codegen(target).choose
    found = []
    for other in _other_machines(target):
        try:
            found.append(choose(LoopNest(lowered), other).choice)
        except ValueError:
            continue  # a machine that the heuristic has nothing for
    return list(dict.fromkeys(one for one in found if one))


def _other_machines(target: Target) -> list[Target]:
    if target.name != "cpu":
        return [replace(target, cores=max(1, target.cores * part // 16)) for part in (1, 4, 64)]
    return [
        replace(target, vector_bits=target.vector_bits // 2),
        replace(target, vector_bits=target.vector_bits // 4),
        replace(target, vector_registers=target.vector_registers // 2),
        replace(target, l2_bytes=target.l2_bytes // 4),
        replace(target, l2_bytes=target.l2_bytes * 4),
        replace(target, threads=1),
        replace(target, threads=target.threads * 4),
    ]
