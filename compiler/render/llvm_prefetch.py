"""Prefetch: a loop that sums along a large array of bytes, as products with quantised weights do, asks for it ahead.

In       a Program for an x86 CPU
Out      which of its loads come with prefetches, of how many lines
Next     llvm.py (who writes loads), llvm_streams.py (stores past the caches)
Source   LLVM Language Reference, `llvm.prefetch`

Bytes are widened before they are multiplied, so a line of them is dozens of instructions. What a processor looks ahead
by itself is then a few lines, and memory is waited for. Sums of floats need none of this: a line is two instructions.
A prefetch beyond the end of a buffer does nothing.
"""

from __future__ import annotations

from math import prod

from hcq.compiler.linear.program import Instruction, Program
from hcq.ir.op import Op

LINE_BYTES = 64
AHEAD_BYTES = 4096
LARGE_BYTES = 256 << 10  # what is smaller may be in a cache since it was last read
FUNCTION = "llvm.prefetch.p0"
ARGUMENTS = "i32 0, i32 3, i32 1"  # to be read, into every cache, as data


class Prefetches:
    """The loads of one program that come with prefetches: the first of each step of a sum along an array of bytes."""

    def __init__(self, program: Program) -> None:
        groups: dict[tuple[Instruction, Instruction], list[Instruction]] = {}
        open_loops: list[Instruction] = []
        found: dict[Instruction, int] = {}

        def close() -> None:
            """Look at the loads of the loop that ends."""
            loop = open_loops.pop()
            for (_, base), loads in groups.items() if loop.arg.carried else ():
                begin = min(it.arg for it in loads)
                size = max(it.arg + it.dtype.lanes for it in loads) - begin
                step = _step(base, loop)
                read = sum({it.arg: it.dtype.lanes for it in loads}.values())
                if 2 * read < size:  # rows that lie apart: most of those lines belong to other steps
                    continue
                if step is not None and LINE_BYTES <= size and 0 < step <= size + LINE_BYTES:
                    found[loads[0]] = size // LINE_BYTES + 1
            groups.clear()

        for it in program.instructions:
            if it.op is Op.LOOP:
                groups.clear()
                open_loops.append(it)
            elif it.op is Op.ENDLOOP:
                close()
            elif open_loops and _is_read_of_bytes(it):
                base = it.src[1]
                assert base is not None
                groups.setdefault((it.source(0), base), []).append(it)
        self._lines = found

    def lines(self, it: Instruction) -> int:
        """How many lines are asked for at a LOAD, `AHEAD_BYTES` behind its place; 0 for most."""
        return self._lines.get(it, 0)


def _is_read_of_bytes(it: Instruction) -> bool:
    """Whether it loads a vector of bytes from a large argument, unmasked, at a place that is computed."""
    if it.op is not Op.LOAD or it.dtype.lanes == 1 or it.dtype.scalar.itemsize != 1:
        return False
    array = it.source(0)
    is_plain = len(it.src) > 1 and it.src[1] is not None and (len(it.src) < 3 or it.src[2] is None)
    return is_plain and array.op is Op.PARAM and prod(array.arg.shape) >= LARGE_BYTES


def _step(base: Instruction, loop: Instruction) -> int | None:
    """What an index grows by in each round of a loop; None where that is no number."""
    if base is loop:
        return 1
    if base.op is Op.CONST or base.depth < loop.depth:
        return 0
    if base.op in (Op.ADD, Op.MUL):
        left, right = base.source(0), base.source(1)
        steps = _step(left, loop), _step(right, loop)
        if steps == (0, 0):
            return 0
        if base.op is Op.ADD:
            return None if steps[0] is None or steps[1] is None else steps[0] + steps[1]
        for step, other in zip(steps, (right, left), strict=True):
            if step is not None and other.op is Op.CONST:
                return step * int(other.arg)
    return None
