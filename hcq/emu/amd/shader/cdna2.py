"""CDNA2 (gfx90a): CDNA3 without what came later, and with what CDNA3 left out.

In       cdna3_opcodes.py
Out      CDNA2, an Isa
Changes  nothing
Next     cdna3.py (the sister), matrix_ops.py (what the matrix names mean), memory_ops.py (scratch through descriptors)
Source   CDNA2 shader ISA document; mnemonics and encodings checked against LLVM's assembler
"""

from __future__ import annotations

import re

from hcq.emu.amd.shader import cdna3, cdna3_opcodes
from hcq.emu.amd.shader.cdna3 import DS, MAI, SMEM, VOP3, VOP3P, VOP3SD
from hcq.emu.amd.shader.isa import Format, Isa, Opcode, opcodes, promoted
from hcq.emu.amd.shader.rdna3 import SOP1, SOP2, SOPC, SOPK, SOPP, VOP1, VOP2, VOPC
from hcq.layout import Packet, bits

LATER = re.compile(
    r"buffer_inv|(ds|flat|global)_(atomic_)?pk_add_(rtn_)?(f16|bf16)|flat_atomic_add_f32|(global|scratch)_load_lds_.*"
    r"|v_cvt_.*(fp8|bf8).*|v_fma[am]k_f32|v_lshl_add_u64|v_mov_b64"
)
KEPT = {"global_atomic_pk_add_f16"}
LEFT_OUT = {
    "VOP2": """
vdst:V32 src0:V32 vsrc1:V32
    22 v_mac_f32
vdst:V32 src0:V32 literal32 vsrc1:V32
    23 v_madmk_f32
vdst:V32 src0:V32 vsrc1:V32 literal32
    24 v_madak_f32
""",
    "VOP3": """
vdst:V32 src0:V32 src1:V32 src2:V32
    448 v_mad_legacy_f32  449 v_mad_f32
""",
    "MUBUF": """
-
    41 buffer_invl2  62 buffer_wbinvl1  63 buffer_wbinvl1_vol
srsrc:S128 soffset:S32
    61 buffer_store_lds_dword
""",
}
MATRIX = """
vdst:V1024 src0:V32 src1:V32 src2:V1024
    64 v_mfma_f32_32x32x1f32  80 v_mfma_i32_32x32x4i8  104 v_mfma_f32_32x32x2bf16
vdst:V512 src0:V32 src1:V32 src2:V512
    65 v_mfma_f32_16x16x1f32  68 v_mfma_f32_32x32x2f32  81 v_mfma_i32_16x16x4i8  84 v_mfma_i32_32x32x8i8
    105 v_mfma_f32_16x16x2bf16  108 v_mfma_f32_32x32x4bf16
vdst:V128 src0:V32 src1:V32 src2:V128
    66 v_mfma_f32_4x4x1f32  69 v_mfma_f32_16x16x4f32  82 v_mfma_i32_4x4x4i8  85 v_mfma_i32_16x16x16i8
    107 v_mfma_f32_4x4x2bf16  109 v_mfma_f32_16x16x8bf16
vdst:V1024 src0:V64 src1:V64 src2:V1024
    72 v_mfma_f32_32x32x4f16  99 v_mfma_f32_32x32x4bf16_1k
vdst:V512 src0:V64 src1:V64 src2:V512
    73 v_mfma_f32_16x16x4f16  76 v_mfma_f32_32x32x8f16  100 v_mfma_f32_16x16x4bf16_1k
    102 v_mfma_f32_32x32x8bf16_1k
vdst:V128 src0:V64 src1:V64 src2:V128
    74 v_mfma_f32_4x4x4f16  77 v_mfma_f32_16x16x16f16  101 v_mfma_f32_4x4x4bf16_1k
    103 v_mfma_f32_16x16x16bf16_1k
vdst:V256 src0:V64 src1:V64 src2:V256
    110 v_mfma_f64_16x16x4f64
vdst:V64 src0:V64 src1:V64 src2:V64
    111 v_mfma_f64_4x4x4f64
vdst:V32 src0:A32
    88 v_accvgpr_read_b32
vdst:A32 src0:V32
    89 v_accvgpr_write_b32
"""


class FLAT(Packet, words=2):
    encoding = bits(31, 26, default=55)
    scc = bits(25)
    op = bits(24, 18)
    slc = bits(17)
    glc = bits(16)
    encoding_segment = bits(15, 14, default=0)
    lds = bits(13)
    offset = bits(12, 0)
    vdst = bits(63, 56)
    acc = bits(55)
    saddr = bits(54, 48, default=127)
    data = bits(47, 40)
    addr = bits(39, 32)


class SCRATCH(FLAT):
    """With a scalar address there is no vector address."""

    encoding_segment = bits(15, 14, default=1)


class GLOBAL(FLAT):
    encoding_segment = bits(15, 14, default=2)


class MUBUF(Packet, words=2):
    encoding = bits(31, 26, default=56)
    op = bits(24, 18)
    slc = bits(17)
    lds = bits(16)
    scc = bits(15)
    glc = bits(14)
    idxen = bits(13)
    offen = bits(12)
    offset = bits(11, 0)
    soffset = bits(63, 56, default=128)
    acc = bits(55)
    srsrc = bits(52, 48)  # SGPR number / 4
    vdata = bits(47, 40)
    vaddr = bits(39, 32)


def before(name: str, table: str) -> dict[int, Opcode]:
    """A table of CDNA3 as it was in CDNA2."""
    kept = {
        number: opcode
        for number, opcode in opcodes(table).items()
        if opcode.name in KEPT or not LATER.fullmatch(opcode.name)
    }
    return {**kept, **(opcodes(LEFT_OUT[name]) if name in LEFT_OUT else {})}


VOP1_TABLE, VOP2_TABLE = before("VOP1", cdna3_opcodes.VOP1), before("VOP2", cdna3_opcodes.VOP2)
VOP3_TABLE = {
    **promoted(cdna3.VOPC_TABLE, 0),
    **promoted(VOP2_TABLE, 0x100),
    **promoted(VOP1_TABLE, 0x140),
    **before("VOP3", cdna3_opcodes.VOP3),
}
for number in cdna3.VOP3SD_TABLE:
    VOP3_TABLE.pop(number, None)

CDNA2 = Isa(
    "CDNA2",
    "gfx90a",
    [
        Format("SOP1", SOP1, opcodes(cdna3_opcodes.SOP1)),
        Format("SOPC", SOPC, opcodes(cdna3_opcodes.SOPC)),
        Format("SOPP", SOPP, opcodes(cdna3_opcodes.SOPP)),
        Format("SOPK", SOPK, opcodes(cdna3_opcodes.SOPK)),
        Format("SOP2", SOP2, opcodes(cdna3_opcodes.SOP2)),
        Format("VOP1", VOP1, VOP1_TABLE),
        Format("VOPC", VOPC, cdna3.VOPC_TABLE),
        Format("VOP2", VOP2, VOP2_TABLE),
        Format("VOP3P", VOP3P, opcodes(cdna3_opcodes.VOP3P)),
        Format("MAI", MAI, opcodes(MATRIX)),
        Format("VOP3SD", VOP3SD, cdna3.VOP3SD_TABLE),
        Format("VOP3", VOP3, VOP3_TABLE),
        Format("SMEM", SMEM, opcodes(cdna3_opcodes.SMEM)),
        Format("DS", DS, before("DS", cdna3_opcodes.DS)),
        Format("FLAT", FLAT, before("FLAT", cdna3_opcodes.FLAT)),
        Format("SCRATCH", SCRATCH, before("SCRATCH", cdna3_opcodes.SCRATCH)),
        Format("GLOBAL", GLOBAL, before("GLOBAL", cdna3_opcodes.GLOBAL)),
        Format("MUBUF", MUBUF, before("MUBUF", cdna3_opcodes.MUBUF)),
    ],
    vop3_literals=False,
    has_sdwa=True,
    generation=9,
    scratch_in_memory=True,
)
