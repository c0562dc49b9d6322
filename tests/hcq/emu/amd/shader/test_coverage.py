"""Which instructions run: all of both tables, but for those named here, which compute kernels have no use for."""

from __future__ import annotations

import re

import pytest

from hcq.emu.amd.shader.control import compile_ending
from hcq.emu.amd.shader.errors import IllegalOperation
from hcq.emu.amd.shader.isa import Format, Isa
from hcq.emu.amd.shader.lane_ops import relative_moves
from hcq.emu.amd.shader.operands import Context, Mode
from hcq.emu.amd.shader.program import Program
from hcq.emu.amd.shader.ways import COMPILED, some_instruction, ways
from hcq.tools import refused_page
from tests.hcq.emu.amd.shader.bench import ACC_OFFSET, ISAS

NOT_EXECUTED = re.compile(
    "|".join(
        [
            r"s_rfe.*|s_setkill|s_sendmsghalt",  # returns from traps, halts
            r"s_cbranch_(join|i_fork|g_fork)",  # the old fork and join stack
            r"s_barrier_(init|join|leave|signal.*)|s_get_barrier_state|s_alloc_vgpr",  # barriers of parts of workgroups
            r"s_barrier_wait",  # of a barrier that has no number
            r"global_load_tr_b64|global_atomic_ordered_.*",  # of which no source says what they do
            r"buffer_store_lds_dword",  # LDS to memory in one, which LLVM never makes
            r"ds_gws_sema_.*|ds_ordered_count|ds_(add|sub)_gs_reg_rtn|ds_bvh_.*|ds_condxchg32.*",  # global semaphores
        ]
    )
)
FORMATS = [
    pytest.param(isa, one, id=f"{arch}-{one.name}") for arch, isa in ISAS.items() for one in isa.formats
]


def compile_it(context: Context) -> None:
    if compile_ending(context) is None and relative_moves(context, 0) is None:
        Program.compile_step(Program.__new__(Program), context)


@pytest.mark.parametrize(("isa", "one"), FORMATS)
def test_every_instruction_is_executed_or_refused_by_name(isa: Isa, one: Format) -> None:
    for opcode in one.table.values():
        inst = some_instruction(isa, one, opcode)
        context = Context(isa, inst, Mode(0x3F0), 64 if isa.is_gfx9 else 32, ACC_OFFSET)
        if NOT_EXECUTED.fullmatch(opcode.name):
            with pytest.raises(IllegalOperation, match=opcode.name):
                compile_it(context)
        else:
            compile_it(context)


def test_the_page_says_of_every_refused_instruction_what_it_is_for() -> None:
    said = refused_page.table()
    assert "| others |" not in said
    for name in ("v_screen_partition_4se_b32", "v_swmmac_f32_16x16x32_f16", "ds_gws_barrier"):
        assert f"`{name}`" not in said


@pytest.mark.parametrize("arch", ISAS)
def test_three_quarters_of_the_instructions_are_compiled(arch: str) -> None:
    found = list(ways(ISAS[arch]).values())
    assert found.count(COMPILED) >= 0.75 * len(found)
