"""Matrix units: the shapes that a GPU multiplies in one instruction, and which thread of a wave holds which element.

In       nothing
Out      `MatrixUnit`, `UNITS` by name; `units_of(arch)`
Next     loop_nest.py (`matrix`: three loops become one instruction), ../linear/fragments.py, ../render/
Source   PTX ISA, "Matrix Fragments for mma", "Register Fragments for wgmma.mma_async"; AMD's ISA documents of CDNA 2
         and 3 (MFMA) and of RDNA 3 and 4 (WMMA)

A thread's number in its wave is written as digits, the fastest first. A dimension of an operand is a list of parts,
outermost first: so many steps, counted by a digit of the thread's number or by the registers that one thread holds.
For D of mma.m16n8k16 that is m = (2 registers, 8 steps of digit 1) and n = (4 of digit 0, 2 registers).
"""

from __future__ import annotations

from dataclasses import dataclass

from hcq.ir.dtype import DType, dtypes

HELD = -1  # a part that registers count
Parts = tuple[tuple[int, int], ...]  # (steps, digit or HELD), outermost first


@dataclass(frozen=True)
class MatrixUnit:
    """D = A @ B + D for one wave; A is m x k, B is k x n.

    order          which parts count a fragment's registers, outermost first: ("k", 0) is the outermost part of k
    has_row_loads  LOAD_ROWS of a linear program makes its fragments of shared memory (ldmatrix)
    reads_shared   both operands lie in shared memory, where the unit of four warps reads them: no thread holds them
    """

    name: str
    archs: tuple[str, ...]
    operand: DType
    result: DType
    digits: tuple[int, ...]
    d_m: Parts
    d_n: Parts
    a_m: Parts
    b_n: Parts
    k: Parts
    a_order: tuple[tuple[str, int], ...]
    b_order: tuple[tuple[str, int], ...]
    d_order: tuple[tuple[str, int], ...]
    has_row_loads: bool = False
    reads_shared: bool = False

    def size(self, dimension: str) -> int:
        """How many values of "m", "n" or "k" it multiplies."""
        parts = {"m": self.d_m, "n": self.d_n, "k": self.k}[dimension]
        count = 1
        for steps, _ in parts:
            count *= steps
        return count


WARPGROUP_COLUMNS = (64, 128, 192, 256)
AMPERE = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
_MMA_ORDER = {
    "a_order": (("k", 0), ("m", 0), ("k", 2)),
    "b_order": (("k", 0), ("k", 2)),
    "d_order": (("m", 0), ("n", 1)),
}


def _mma16(name: str, operand: DType) -> MatrixUnit:
    """mma.m16n8k16 of 16-bit floats, sums in float32."""
    return MatrixUnit(
        name,
        AMPERE,
        operand,
        dtypes.float32,
        (4, 8),
        d_m=((2, HELD), (8, 1)),
        d_n=((4, 0), (2, HELD)),
        a_m=((2, HELD), (8, 1)),
        b_n=((8, 1),),
        k=((2, HELD), (4, 0), (2, HELD)),
        **_MMA_ORDER,
        has_row_loads=True,
        reads_shared=False,
    )


def _wgmma(columns: int, name: str, operand: DType) -> MatrixUnit:
    """wgmma.mma_async.m64nNk16 of 16-bit floats, sums in float32: a warpgroup, four warps of which each has 16 rows."""
    return MatrixUnit(
        name,
        ("sm_90",),
        operand,
        dtypes.float32,
        (4, 8, 4),
        d_m=((4, 2), (2, HELD), (8, 1)),
        d_n=((columns // 8, HELD), (4, 0), (2, HELD)),
        a_m=(),
        b_n=(),
        k=((16, HELD),),
        a_order=(),
        b_order=(),
        d_order=(("n", 0), ("m", 1), ("n", 2)),
        reads_shared=True,
    )


CDNA = ("gfx90a", "gfx942", "gfx950")


def _mfma16(name: str, operand: DType) -> MatrixUnit:
    """Two of v_mfma_f32_16x16x16 of 16-bit floats: 64 threads, each of which has 16 bytes of every operand.

    Which step of k is which does not matter to a sum, as long as both operands agree: each thread's first four are
    those of the first instruction.
    """
    return MatrixUnit(
        name,
        CDNA,
        operand,
        dtypes.float32,
        (16, 4),
        d_m=((4, 1), (4, HELD)),
        d_n=((16, 0),),
        a_m=((16, 0),),
        b_n=((16, 0),),
        k=((4, 1), (8, HELD)),
        a_order=(("k", 1),),
        b_order=(("k", 1),),
        d_order=(("m", 1),),
    )


def _mfma32(name: str, operand: DType) -> MatrixUnit:
    """Two of v_mfma_f32_32x32x8 of 16-bit floats, as above."""
    return MatrixUnit(
        name,
        CDNA,
        operand,
        dtypes.float32,
        (32, 2),
        d_m=((4, HELD), (2, 1), (4, HELD)),
        d_n=((32, 0),),
        a_m=((32, 0),),
        b_n=((32, 0),),
        k=((2, 1), (8, HELD)),
        a_order=(("k", 1),),
        b_order=(("k", 1),),
        d_order=(("m", 0), ("m", 2)),
    )


def _wmma11(name: str, operand: DType) -> MatrixUnit:
    """v_wmma_f32_16x16x16 of RDNA 3: both halves of a wave hold the operands, rows alternate between them."""
    return MatrixUnit(
        name,
        ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"),
        operand,
        dtypes.float32,
        (16, 2),
        d_m=((8, HELD), (2, 1)),
        d_n=((16, 0),),
        a_m=((16, 0),),
        b_n=((16, 0),),
        k=((16, HELD),),
        a_order=(("k", 0),),
        b_order=(("k", 0),),
        d_order=(("m", 0),),
    )


def _wmma12(name: str, operand: DType) -> MatrixUnit:
    """v_wmma_f32_16x16x16 of RDNA 4: half of k, and half of the rows, in each half of a wave."""
    return MatrixUnit(
        name,
        ("gfx1200", "gfx1201"),
        operand,
        dtypes.float32,
        (16, 2),
        d_m=((2, 1), (8, HELD)),
        d_n=((16, 0),),
        a_m=((16, 0),),
        b_n=((16, 0),),
        k=((2, 1), (8, HELD)),
        a_order=(("k", 1),),
        b_order=(("k", 1),),
        d_order=(("m", 1),),
    )


UNITS = {
    unit.name: unit
    for unit in (
        _mma16("mma.f16", dtypes.float16),
        _mma16("mma.bf16", dtypes.bfloat16),
        *[_wgmma(n, f"wgmma{n}.f16", dtypes.float16) for n in WARPGROUP_COLUMNS],
        *[_wgmma(n, f"wgmma{n}.bf16", dtypes.bfloat16) for n in WARPGROUP_COLUMNS],
        _mfma32("mfma32.f16", dtypes.float16),
        _mfma32("mfma32.bf16", dtypes.bfloat16),
        _mfma16("mfma16.f16", dtypes.float16),
        _mfma16("mfma16.bf16", dtypes.bfloat16),
        _wmma11("wmma11.f16", dtypes.float16),
        _wmma11("wmma11.bf16", dtypes.bfloat16),
        _wmma12("wmma12.f16", dtypes.float16),
        _wmma12("wmma12.bf16", dtypes.bfloat16),
    )
}


def units_of(arch: str, operand: DType, reads_shared: bool = False) -> list[MatrixUnit]:
    """What an architecture multiplies operands of a dtype with, in registers or in shared memory, largest first."""
    mine = [unit for unit in UNITS.values() if arch in unit.archs and unit.operand is operand]
    return [unit for unit in mine if unit.reads_shared is reads_shared]


def narrow_formats(arch: str) -> list[DType]:
    """The 16-bit floats that an architecture's units multiply, none where it has no units."""
    return [operand for operand in (dtypes.float16, dtypes.bfloat16) if units_of(arch, operand)]
