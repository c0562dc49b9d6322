"""Unused: instructions whose value nobody reads are taken out of a program.

In       a Program
Out      the same with what it does, and all that this needs
Changes  the program it is given
Next     linearize.py (who asks, where loads have become copies that the GPU does by itself)
"""

from __future__ import annotations

from hcq.compiler.linear.program import Instruction, Program
from hcq.ir.op import ARITHMETIC, Op

_VALUES = ARITHMETIC | {Op.CONST, Op.LOAD, Op.BROADCAST, Op.VECTOR, Op.LANE}


def drop_unused(program: Program) -> None:
    """Keep what has an effect, and its sources."""
    needed: set[Instruction | None] = set()
    kept: list[Instruction] = []
    for it in reversed(program.instructions):
        if it.op not in _VALUES or it in needed:
            kept.append(it)
            needed.update(it.src)
    program.instructions = kept[::-1]
