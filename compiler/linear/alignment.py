"""Alignment: by how many bytes the address of an access divides, whatever the thread and the step.

In       a LOAD or STORE of a linear program
Out      bytes, at most those of the access and of what every argument starts at
Next     render/gpu.py, render/cuda.py: a vector whose address divides by its size is one instruction;
         compiler/render/llvm_streams.py
"""

from __future__ import annotations

from math import gcd

from hcq.compiler.linear.program import Instruction
from hcq.ir.dtype import DType
from hcq.ir.op import Op

BUFFER_ALIGN = 16  # bytes: what every argument of a kernel starts at a multiple of


class Alignment:
    """What is known of the indices of one program, whose arguments start at multiples of `start` bytes."""

    def __init__(self, start: int = BUFFER_ALIGN) -> None:
        self.start = start
        self._multiples: dict[Instruction, int] = {}

    def bytes(self, it: Instruction, dtype: DType) -> int:
        """What divides the address of an access to `dtype`."""
        base = it.src[1]
        step = gcd(it.arg or 0, 0 if base is None else self._multiple(base)) * dtype.itemsize
        return gcd(dtype.itemsize * dtype.lanes, step, self.start)

    def alike(self, mask: Instruction) -> int:
        """Lanes of a condition that have one value, in groups that follow each other: a power of two."""
        lanes = mask.dtype.lanes
        if mask.op is Op.BROADCAST or lanes == 1:
            return lanes
        if mask.op in (Op.AND, Op.OR):
            return min(self.alike(mask.source(0)), self.alike(mask.source(1)))
        end = mask.source(1).number if mask.op is Op.CMPLT else None
        ramp = mask.source(0)
        if not isinstance(end, int) or ramp.op is not Op.ADD:
            return 1
        base, steps = ramp.source(0), ramp.source(1)
        counts = [s.number for s in steps.src if s is not None] if steps.op is Op.VECTOR else []
        if base.op is not Op.BROADCAST or counts != list(range(lanes)):
            return 1
        both = gcd(self._multiple(base.source(0)), end, lanes)
        return both & -both

    def _multiple(self, it: Instruction) -> int:
        """What divides an index; 0 where it is 0."""
        found = self._multiples.get(it)
        if found is None:
            found = self._multiples[it] = self._found(it)
        return found

    def _found(self, it: Instruction) -> int:
        sources = [s for s in it.src if s is not None]
        if it.op is Op.CONST:
            return abs(int(it.arg))
        if it.op is Op.MUL:
            return self._multiple(sources[0]) * self._multiple(sources[1])
        if it.op is Op.ADD:
            return gcd(self._multiple(sources[0]), self._multiple(sources[1]))
        if it.op is Op.XOR:  # the powers of two that divide both
            both = gcd(self._multiple(sources[0]), self._multiple(sources[1]))
            return both & -both
        if it.op is Op.MOD:  # by a number
            return gcd(self._multiple(sources[0]), self._multiple(sources[1]))
        if it.op is Op.WHERE:
            return gcd(self._multiple(sources[1]), self._multiple(sources[2]))
        return 1
