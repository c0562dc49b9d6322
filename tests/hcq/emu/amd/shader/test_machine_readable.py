"""Decoders beside AMD's machine-readable ISA description, in the tables that tinygrad (0.14) has made of its XML files.

A second source beside LLVM: opcode numbers, names, and where every field of a format lies. The files are those of RDNA
3.5 (so gfx1100 has a part of them), RDNA 4 and CDNA 4. They are at gpuopen.com, "AMD machine-readable GPU ISA
documentation"; none of them is here.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from hcq.emu.amd.shader.architectures import ISAS
from hcq.emu.amd.shader.isa import Format

pytest.importorskip("tinygrad", reason="its tables are of AMD's XML files: pip install tinygrad==0.14.0")

FOLDER = "tinygrad.runtime.autogen.amd"
DESCRIBED = {"gfx1100": "rdna3", "gfx1201": "rdna4", "gfx950": "cdna"}
RENAMED = {"FLAT": "VFLAT", "GLOBAL": "VGLOBAL", "SCRATCH": "VSCRATCH", "MUBUF": "VBUFFER"}  # RDNA 4's words
FORMATS = [
    pytest.param(arch, one, id=f"{arch}-{one.name}")
    for arch in DESCRIBED
    for one in ISAS[arch].formats
    if one.name not in ("SCALED", "MAI", "VOPD")  # two instructions, or a part of VOP3P there
]
# LLVM's name -> AMD's
NAMES = {
    "v_fma_mix_f32": "v_mad_mix_f32",
    "v_fma_mixlo_f16": "v_mad_mixlo_f16",
    "v_fma_mixhi_f16": "v_mad_mixhi_f16",
}
# what LLVM encodes and AMD's files leave out: longer forms, and dot products by an older name
LEFT_OUT = {
    *"v_pk_fmac_f16 v_swap_b32 v_swap_b16 v_swaprel_b32 v_permlane64_b32 v_dot2acc_f32_f16".split(),
    *"ds_gws_init ds_gws_sema_br ds_gws_barrier".split(),
}
# what LLVM does not have on gfx950; the first half of v_mfma_scale, a format of its own here
NOT_DECODED = {
    *"s_set_valu_coexec_mode v_mfma_f32_16x16x8_xf32 v_mfma_f32_32x32x4_xf32".split(),
    "v_mfma_ld_scale_b32",
}
# (architecture, format, field): there it has other bits. LLVM's VOP1 has eight bits of opcode, of which no instruction
# of RDNA 4 uses the last; offsets of FLAT without a segment have one bit less than those of the others, a sign
OTHER_BITS = {("gfx1201", "VOP1", "op"), ("gfx950", "FLAT", "offset")}


def theirs(arch: str, one: Format, ending: str = "") -> Any:
    """A class of their tables: a format's fields, or with Op its opcodes. None where it is another one's part."""
    module = importlib.import_module(f"{FOLDER}.{DESCRIBED[arch]}.{'enum' if ending else 'ins'}")
    return getattr(module, one.name + ending, None) or getattr(
        module, RENAMED.get(one.name, "") + ending, None
    )


@pytest.mark.parametrize("arch,one", FORMATS)
def test_every_opcode_has_the_number_and_the_name_that_amd_says(arch: str, one: Format) -> None:
    listed: dict[int, set[str]] = {}
    for member in theirs(arch, one, "Op"):
        name = member.name.lower()
        listed.setdefault(member.value, set()).update(
            (name, name.removesuffix("_e32"), name.removesuffix("_e64"))
        )
    compared = 0
    for number, opcode in one.table.items():
        if number in listed:
            assert NAMES.get(opcode.name, opcode.name) in listed[number] or opcode.name in listed[number]
            compared += 1
        else:
            assert opcode.name in LEFT_OUT
    assert compared >= 9


@pytest.mark.parametrize("arch,one", FORMATS)
def test_every_field_lies_where_amd_says(arch: str, one: Format) -> None:
    fields = vars(theirs(arch, one))
    compared = 0
    for name, part in one.layout.fields.items():
        there = fields.get(name)
        if there is None or (arch, one.name, name) in OTHER_BITS:
            continue
        assert (part.low, part.low + part.width - 1) == (there.lo, there.hi), name
        compared += 1
    assert compared >= 3


@pytest.mark.parametrize("arch", ["gfx1201", "gfx950"])
def test_all_that_amd_describes_is_in_our_tables_but_what_is_listed_here(arch: str) -> None:
    """RDNA 3.5 has instructions that RDNA 3 has not, so gfx1100 is left out."""
    formats = [one for one in ISAS[arch].formats if one.name not in ("SCALED", "VOPD")]
    known = {opcode.name for one in formats for opcode in one.table.values()} | set(NAMES.values())
    missing = set[str]()
    for one in formats:
        for member in theirs(arch, one, "Op") or ():
            name = member.name.lower()
            names = {name, f"{name}_b32", name.removesuffix("_e32"), name.removesuffix("_e64")}
            missing.update([] if names & known or name.startswith("tbuffer_") else [name])
    assert missing <= NOT_DECODED
