"""Asked ahead: what a step loads for the next one stays before its products, and what becomes of it behind them.

In       the instructions of a kernel with matrix units, one by one, as they are to be written
Out      the same ones, those that only prepare what was loaded ahead put off until they are needed; where nothing may
         move across
Next     gpu.py (who writes them), amdgpu.py (whose compiler needs this), ../linear/sharing.py (who loads ahead)

LLVM's scheduler for AMD's GPUs puts loads among the products of a step, and the arithmetic that packs what they load
right behind them: the wave then waits for memory in the middle of its work, in every step.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator

from hcq.compiler.linear.program import Instruction
from hcq.ir.meaning import MEANING
from hcq.ir.op import Op

PREPARES = frozenset(MEANING) | {Op.LANE, Op.VECTOR, Op.BROADCAST, Op.CAST, Op.BITCAST}
NAME = re.compile(r"%[\w.]+")


class Mark(enum.Enum):
    """What stands between instructions: nothing moves across; here comes what `parted` took from loads."""

    APART = enum.auto()
    REST = enum.auto()


def parted(lines: list[str]) -> tuple[list[str], list[str]]:
    """Lines of LLVM's text that load, and those that need what is loaded; no such where there are branches.

    >>> parted(["%a = load i32, ptr %p", "%b = select i1 %c, i32 %a, i32 0"])
    (['%a = load i32, ptr %p'], ['%b = select i1 %c, i32 %a, i32 0'])
    """
    if any(line.endswith(":") or line.lstrip().startswith("br ") for line in lines):
        return lines, []
    loaded: set[str] = set()
    first: list[str] = []
    rest: list[str] = []
    for line in lines:
        goal, _, value = line.strip().partition(" = ")
        needs = not loaded.isdisjoint(NAME.findall(value))
        if needs or value.startswith("load "):
            loaded.add(goal)
        (rest if needs else first).append(line)
    return first, rest


class AskedAhead:
    """The order of one kernel's instructions."""

    def __init__(self) -> None:
        self.open_loops = 0
        self.asked: set[Instruction] = set()  # loads, and what was made of them
        self.late: dict[Instruction, None] = {}  # put off, in order
        self.is_open = self.is_waiting = (
            False  # loads stand here before whose use no product has come, or nothing
        )

    def all(self, instructions: Iterable[Instruction]) -> Iterator[Instruction | Mark]:
        """A whole kernel."""
        for it in instructions:
            yield from self.take(it)

    def take(self, it: Instruction) -> Iterator[Instruction | Mark]:
        """What is to be written now that this one has come."""
        uses = [source for source in it.src if source in self.asked]
        if (
            uses
            and it.op in PREPARES
            and all(source is None or source.op is not Op.ACCUMULATOR for source in it.src)
        ):
            self.asked.add(it)
            self.late[it] = None
            self.is_waiting = True
            return
        if it.op in (Op.LOOP, Op.ENDLOOP):
            yield from self._end()
            self.asked.clear()
            self.open_loops += 1 if it.op is Op.LOOP else -1
        elif uses:
            yield from self._end(it.op is not Op.MATRIX)
        if it.op is Op.MATRIX and self.is_open:
            if not uses:
                yield Mark.APART
            self.is_open = False
        elif it.op is Op.BARRIER and self.is_waiting:
            yield Mark.APART
        yield it
        if self.is_ahead(it):
            self.asked.add(it)
            self.is_open = self.is_waiting = True

    def is_ahead(self, it: Instruction) -> bool:
        """Whether this loads from global memory in a loop."""
        return it.op is Op.LOAD and self.open_loops > 0 and it.source(0).op is Op.PARAM

    def _end(self, apart: bool = True) -> Iterator[Instruction | Mark]:
        """Those that were put off."""
        if not self.is_waiting:
            return
        if apart:
            yield Mark.APART
        yield Mark.REST
        yield from self.late
        self.late.clear()
        self.is_waiting = False
