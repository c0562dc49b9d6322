"""Refused page: the table in docs/emulated-amd.md of the instructions that emulated AMD GPUs refuse (`make docs`).

In       the opcode tables of hcq/emu/amd/shader/, each instruction decoded and compiled
Out      `table`: what stands between the marks of the page
Next     pages.py (writes and checks it), tests/hcq/emu/amd/shader/test_coverage.py (the same for each format)

An instruction is tried with registers that every operand may name. What is refused for other operands only, such as
swizzled descriptors, is not in the table.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hcq.emu.amd.shader.isa import Isa

ARCHITECTURES = {  # one of each instruction set -> all that have it
    "gfx90a": "gfx90a",
    "gfx942": "gfx942",
    "gfx950": "gfx950",
    "gfx1030": "gfx1030",
    "gfx1100": "gfx1100, gfx1101, gfx1102",
    "gfx1151": "gfx1151",
    "gfx1201": "gfx1200, gfx1201",
}
KINDS = {  # what instructions are for, by names
    r"s_cbranch_(join|i_fork|g_fork)": "the stack of forks and joins, which no compiler makes",
    r"s_rfe.*|s_setkill|s_sendmsghalt": "returns from trap handlers, and halts until a debugger comes",
    r"s_barrier_.*|s_get_barrier_state": "barriers with numbers, which only gfx1250 has; -1, the workgroup's, runs",
    r"s_alloc_vgpr": "another number of registers while a wave runs that was started so; no descriptor asks for that",
    r"global_load_tr_.*": "transposing loads of which no source says which lane gets what; `_b128` only in waves of 64",
    r"ds_gws_sema_.*|ds_ordered_count|global_atomic_ordered_.*": "semaphores and orders of all waves",
    r"ds_(add|sub)_gs_reg_rtn|ds_bvh_.*": "counters of graphics, ray tracing",
    r"ds_condxchg32.*|buffer_store_lds_dword": "what no compiler makes",
}


@functools.cache
def table() -> str:
    """What is refused on each architecture, by what it is for."""
    from hcq.emu.amd.shader.architectures import ISAS

    lines = ["| refused | of | instructions |", "| --- | --- | --- |"]
    by_arch = {arch: set(refused(ISAS[arch])) for arch in ARCHITECTURES}
    for pattern, what in {**KINDS, ".*": "others"}.items():
        rows: dict[tuple[str, ...], list[str]] = {}
        for arch, names in by_arch.items():
            mine = {name for name in names if re.fullmatch(pattern, name)}
            names -= mine
            if mine:
                rows.setdefault(tuple(sorted(mine)), []).append(ARCHITECTURES[arch])
        for listed_names, archs in rows.items():
            listed = ", ".join(f"`{name}`" for name in listed_names)
            lines.append(f"| {what} | {', '.join(archs)} | {listed} |")
    return "\n".join(lines)


def refused(isa: Isa) -> Iterator[str]:
    """The names of instructions that a kernel may not have, in any wave that the architecture has."""
    from hcq.emu.amd.shader.control import compile_ending
    from hcq.emu.amd.shader.errors import IllegalOperation
    from hcq.emu.amd.shader.lane_ops import relative_moves
    from hcq.emu.amd.shader.operands import Context, Mode
    from hcq.emu.amd.shader.program import Program
    from hcq.emu.amd.shader.ways import some_instruction

    usual_mode, accumulators = 0x3F0, 256
    for form in isa.formats:
        for opcode in form.table.values():
            inst = some_instruction(isa, form, opcode)
            for size in (64,) if isa.is_gfx9 else (32, 64):
                context = Context(isa, inst, Mode(usual_mode), size, accumulators if isa.is_gfx9 else 0)
                try:
                    if compile_ending(context) is None and relative_moves(context, 0) is None:
                        Program.compile_step(Program.__new__(Program), context)
                except IllegalOperation:
                    yield opcode.name
                    break
