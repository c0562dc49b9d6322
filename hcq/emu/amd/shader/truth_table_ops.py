"""v_bitop3: any function of three bits, of all bits of three words.

In       a Context for one v_bitop3_b16 or v_bitop3_b32 instruction
Out      a step that runs it on a Batch; None for other instructions
Changes  VGPRs, when the step runs
Next     vector_operands.py (where results go), integer_ops.py (the usual functions)
Source   CDNA4 ISA document; the bits of the table: LLVM's assembler

The table's eight bits lie where other instructions have their modifiers: bit 4 a + 2 b + c of it is the result for
these three bits.
"""

from __future__ import annotations

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.operands import TYPES, Context, Step, source
from hcq.emu.amd.shader.vector_operands import Sources, destination
from hcq.emu.amd.shader.waves import Batch


def compile_truth_table(ctx: Context, name: str, operands: Sources) -> Step | None:
    """The step of such an instruction; None when it is none."""
    if not name.startswith("v_bitop3_"):
        return None
    fields = ctx.inst.fields
    kind = "u16" if name.endswith("b16") else "u32"
    halves = fields["opsel"] if kind == "u16" else 0
    readers = [source(ctx, operands.code(index), kind, halves >> index & 1) for index in range(3)]
    write = destination(ctx, name, kind)
    table = fields["omod"] << 6 | fields["abs"] << 3 | fields["neg"]
    rows = [row for row in range(8) if table >> row & 1]

    def run(b: Batch) -> None:
        words = [read(b) for read in readers]
        found: Array = TYPES[kind](0) & words[0]
        for row in rows:
            term = ~found.dtype.type(0)
            for place, word in zip((4, 2, 1), words):
                term = term & (word if row & place else ~word)
            found = found | term
        write(b, found)

    return run
