"""Asked ahead: what a step of a loop loads for the next one stays before its products, and what becomes of it behind them.

In       the instructions of a kernel with matrix units, one by one, as they are to be written
Out      the same ones, those that only prepare what was loaded ahead put off until they are needed; where nothing may
         move across
Next     gpu.py (who writes them), amdgpu.py (whose compiler needs this), ../linear/sharing.py (who loads ahead)

LLVM's scheduler for AMD's GPUs puts loads among the products of a step, and the arithmetic that packs what they load
right behind them: the wave then waits for memory in the middle of its work, in every step.
"""

from __future__ import annotations

from collections.abc import Iterator

from hcq.compiler.linear.program import Instruction
from hcq.ir.meaning import MEANING
from hcq.ir.op import Op

PREPARES = frozenset(MEANING) | {Op.LANE, Op.VECTOR, Op.BROADCAST, Op.CAST, Op.BITCAST}


class AskedAhead:
    """The order of one kernel's instructions. None in it stands for: nothing moves across."""

    def __init__(self) -> None:
        self.open_loops = 0
        self.asked: set[Instruction] = set()  # loads, and what was made of them
        self.late: dict[Instruction, None] = {}  # put off, in order
        self.is_open = False  # loads stand here that nobody has used

    def take(self, it: Instruction) -> Iterator[Instruction | None]:
        """What is to be written now that this one has come."""
        uses = [source for source in it.src if source in self.asked]
        if uses and it.op in PREPARES:
            self.asked.add(it)
            self.late[it] = None
            return
        if it.op in (Op.LOOP, Op.ENDLOOP):
            yield from self._end()
            self.asked.clear()
            self.open_loops += 1 if it.op is Op.LOOP else -1
        elif any(source in self.late for source in uses):
            yield from self._end(it.op is not Op.MATRIX)
        if it.op is Op.MATRIX and self.is_open:
            if not uses:
                yield None
            self.is_open = False
        elif it.op is Op.BARRIER and self.late:
            yield None
        yield it
        if it.op is Op.LOAD and self.open_loops and it.source(0).op is Op.PARAM:
            self.asked.add(it)
            self.is_open = True

    def _end(self, apart: bool = True) -> Iterator[Instruction | None]:
        """Those that were put off."""
        if self.late and apart:
            yield None
        yield from self.late
        self.late.clear()
