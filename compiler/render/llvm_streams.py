"""Streams: results so large that no cache holds them are stored past the caches, a whole line at a time.

In       a Program for an x86 CPU
Out      which of its stores stream; what they say in LLVM IR; what has to stand at the kernel's end
Next     llvm.py (who writes stores), ../linear/alignment.py (what divides an address)
Source   Intel SDM, volume 1, 10.4.6.2: non-temporal stores; LLVM Language Reference, `!nontemporal`

An ordinary store reads the line before it writes it: a quarter of what a sum of two tensors moves. A non-temporal store
of a whole line does not, and leaves the caches to what is read. Such stores are weakly ordered, so a fence comes before
the kernel returns and others learn that it has. Their addresses must divide by the line: arguments as large as this are
pages of their own (hcq/memory.py), and one that is none faults with the kernel's name.
"""

from __future__ import annotations

from math import prod

from hcq.compiler.linear.alignment import Alignment
from hcq.compiler.linear.program import Instruction, Program
from hcq.ir.dtype import DType
from hcq.ir.op import Op

LINE_BYTES = 64
STREAMED_BYTES = (
    32 << 20
)  # what processors keep for all cores: the beginning of more is gone when the end is written
STREAMED = f"align {LINE_BYTES}, !nontemporal !0"
FENCE = "llvm.x86.sse.sfence"
METADATA = "!0 = !{i32 1}"


class Streams:
    """The stores of one program that go past the caches: those of whole lines, to large results that it never reads."""

    def __init__(self, program: Program) -> None:
        self._known = Alignment(LINE_BYTES)
        read = {it.source(0) for it in program.instructions if it.op is Op.LOAD}
        written = {it.source(0) for it in program.instructions if it.op is Op.STORE}
        self._results = {
            it
            for it in written - read
            if it.op is Op.PARAM and prod(it.arg.shape) * it.dtype.itemsize >= STREAMED_BYTES
        }

    def takes(self, it: Instruction, dtype: DType) -> bool:
        """Whether a STORE without a mask, of a value of `dtype`, streams."""
        return it.source(0) in self._results and self._known.bytes(it, dtype) == LINE_BYTES
