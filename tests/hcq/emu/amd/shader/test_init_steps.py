"""What nobody wrote, followed through registers of AMD's machine code: what is told, and what is not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hcq.emu.amd.shader import disassembly
from hcq.emu.amd.shader.architectures import ISAS
from hcq.emu.amd.shader.errors import IllegalOperation
from hcq.emu.amd.shader.field_registers import use_of
from hcq.emu.amd.shader.isa import SDWA, Sdwa
from hcq.emu.amd.shader.memory import AddressSpace
from hcq.emu.amd.shader.run import ShaderCore, run_dispatch
from hcq.emu.amd.shader.wave_start import Launch
from hcq.emu.shader.checks import Checks
from hcq.events.kernel_faults import KernelFault
from tests.hcq.emu.amd.shader.assembler import assemble

OUT = 0x10000
Line = tuple[str, tuple[str | int | float, ...]]
ADDRESS: list[Line] = [
    ("v_lshlrev_b32", ("v2", 2, "v0")),
    ("v_mov_b32", ("v3", 0)),
    ("v_add_nc_u32", ("v2", OUT, "v2")),
]


def found(lines: Sequence[Line], vgprs: int = 16) -> list[KernelFault]:
    """What is found in a kernel of a wave of 32 work-items for gfx1100, whose v[2:3] are a place to store to."""
    isa, memory = ISAS["gfx1100"], AddressSpace()
    words = [word for name, operands in [*ADDRESS, *lines] for word in assemble(isa, name, operands)]
    memory.map(0x1000, np.array([*words, *isa.encode("s_endpgm")], np.uint32), name="code")
    memory.map(OUT, np.zeros(64, np.uint32), name="out")
    checks = Checks(frozenset(["init"]))
    run_dispatch(
        ShaderCore(isa, memory), Launch(0x1000, 32, vgprs=vgprs), (1, 1, 1), (32, 1, 1), checks=checks
    )
    return list(checks.found.values())


def stored(*lines: Line) -> list[str]:
    """What is said where v5 is stored at the end."""
    isa = ISAS["gfx1100"]
    assert isa.find("global_store_b32")
    return [fault.what for fault in found([*lines, ("global_store_b32", ("v[2:3]", "v5"))])]


def test_a_register_that_was_never_set_is_named() -> None:
    assert stored() == ["what nobody wrote is stored to memory: of register v5"]
    assert stored(("v_mov_b32", ("v5", 1))) == []


def test_a_scalar_register_that_was_never_set_is_named() -> None:
    assert stored(("v_mov_b32", ("v5", "s40"))) == ["what nobody wrote is stored to memory: of register s40"]
    assert stored(("s_mov_b32", ("s40", 3)), ("v_mov_b32", ("v5", "s40"))) == []


@pytest.mark.parametrize(
    "line",
    [
        ("v_mov_b32", ("v5", "v6")),
        ("v_add_nc_u32", ("v5", 1, "v6")),
        ("v_add_f32", ("v5", 1.0, "v6")),
        ("v_xor_b32", ("v5", "v0", "v6")),
        ("v_and_b32", ("v5", 1, "v6")),
        ("v_or_b32", ("v5", 1, "v6")),
        ("v_lshlrev_b32", ("v5", 3, "v6")),
        ("v_cvt_f32_u32", ("v5", "v6")),
    ],
)
def test_what_is_made_of_it_is_unwritten_too(line: Line) -> None:
    assert stored(line) == ["what nobody wrote is stored to memory: of register v6"]


@pytest.mark.parametrize(
    "lines",
    [
        [("v_and_b32", ("v5", 0, "v6"))],
        [("v_or_b32", ("v5", -1, "v6"))],
        [("v_and_b32", ("v5", 255, "v6")), ("v_lshrrev_b32", ("v5", 8, "v5"))],
        [("v_lshlrev_b32", ("v5", 8, "v6")), ("v_and_b32", ("v5", 255, "v5"))],
    ],
)
def test_bits_that_cannot_change_anything_are_written(lines: list[Line]) -> None:
    assert stored(*lines) == []


def test_only_lanes_that_are_on_count() -> None:
    half: list[Line] = [("s_mov_b32", ("exec_lo", 0xFFFF)), ("v_mov_b32", ("v5", 1))]
    assert stored(*half) == []
    assert len(stored(*half, ("s_mov_b32", ("exec_lo", -1)))) == 1


def test_a_choice_takes_the_shadow_of_what_it_chooses() -> None:
    choose: list[Line] = [
        ("v_mov_b32", ("v7", 1)),
        ("v_cmp_gt_u32", (64, "v0")),
        ("v_cndmask_b32", ("v5", "v6", "v7")),
    ]
    assert stored(*choose) == []
    assert len(stored(choose[0], ("v_cmp_gt_u32", (16, "v0")), choose[2])) == 1


def test_a_condition_that_was_computed_anew_is_written() -> None:
    isa = ISAS["gfx1100"]
    unwritten: Line = ("s_cmp_eq_u32", ("s40", 1))
    branch: Line = ("s_cbranch_scc1", (0,))
    assert isa.find("s_cbranch_scc1")
    assert len(found([unwritten, branch])) == 1
    assert found([unwritten, ("s_and_b32", ("s41", 1, 1)), branch]) == []
    assert len(found([unwritten, ("s_mov_b32", ("s41", 1)), branch])) == 1  # leaves SCC alone


def test_a_register_beyond_those_of_the_kernel_is_refused_as_ever() -> None:
    with pytest.raises(IllegalOperation, match="names a register"):
        found([("v_mov_b32", ("v17", 1))], vgprs=16)


def compared(word: Sdwa | None) -> list[str]:
    """What is said on gfx90a of a branch by s[24:25], behind a compare with an SDWA word."""
    isa, memory = ISAS["gfx90a"], AddressSpace()
    words = [] if word is None else list(isa.encode("v_cmp_eq_u16", "VOPC", None, word, src0=SDWA, vsrc1=0))
    words += [*assemble(isa, "s_and_saveexec_b64", ("s[22:23]", "s[24:25]")), *isa.encode("s_endpgm")]
    memory.map(0x1000, np.array(words, np.uint32), name="code")
    checks = Checks(frozenset(["init"]))
    launch = Launch(0x1000, 64, vgprs=16)
    run_dispatch(ShaderCore(isa, memory), launch, (1, 1, 1), (64, 1, 1), checks=checks)
    return [fault.what for fault in checks.found.values()]


def test_a_compare_with_an_sdwa_word_sets_the_mask_that_it_names() -> None:
    mask = 0x80 | 24  # bits 15 to 8 of the word
    named = Sdwa(src0=0, dst_sel=mask & 7, dst_unused=mask >> 3 & 3, clamp=mask >> 5 & 1, omod=mask >> 6)
    assert compared(named) == []
    assert "of register s24" in compared(Sdwa(src0=0))[0]  # which sets VCC
    assert "of register s24" in compared(None)[0]
    inst = ISAS["gfx90a"].decode(
        ISAS["gfx90a"].encode("v_cmp_eq_u16", "VOPC", None, named, src0=SDWA, vsrc1=3), 0
    )
    assert disassembly.text(ISAS["gfx90a"], inst) == "v_cmp_eq_u16 s[24:25], v0, v3 src0_sel:6 src1_sel:6"


def test_an_sdwa_word_may_name_scalar_sources() -> None:
    word = Sdwa(src0=7, s0=1, s1=1)
    inst = ISAS["gfx90a"].decode(
        ISAS["gfx90a"].encode("v_add_u32", "VOP2", None, word, vdst=2, src0=SDWA, vsrc1=9), 0
    )
    use = use_of(inst, 64, False)
    assert [(part.field, part.first) for part in use.reads] == [("src0", 7), ("vsrc1", 9)]
    assert disassembly.text(ISAS["gfx90a"], inst).startswith("v_add_u32 v2, s7, s9 ")
