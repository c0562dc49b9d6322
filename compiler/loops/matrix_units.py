"""Matrix units: the shapes that a GPU multiplies in one instruction, and which thread of a wave holds which element.

In       nothing
Out      `MatrixUnit`, `UNITS` by name; `units_of(arch)`
Next     loop_nest.py (`matrix`: three loops become one instruction), ../linear/fragments.py, ../render/
Source   PTX ISA, "Matrix Fragments for mma" (m16n8k16, m16n8k8 of tf32, m16n8k32 of bytes), "Register Fragments for
         wgmma.mma_async", "Data path layout organization" of tcgen05; AMD's ISA documents of CDNA 2 to 4 (MFMA) and of
         RDNA 3 and 4 (WMMA); Metal Shading Language Specification, "SIMD-group Matrix Functions", which does not say
         who holds what: that is taken from MLX, Apple's own library, whose products rely on it
         (mlx/backend/metal/kernels/steel/gemm/mma.h)

A thread's number in its wave is written as digits, the fastest first. A dimension of an operand is a list of parts,
outermost first: so many steps, counted by a digit of the thread's number or by the registers that one thread holds.
For D of mma.m16n8k16 that is m = (2 registers, 8 steps of digit 1) and n = (4 of digit 0, 2 registers).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from hcq.ir.block_scales import BLOCK
from hcq.ir.dtype import DType, dtypes

HELD = -1  # a part that registers count
Parts = tuple[tuple[int, int], ...]  # (steps, digit or HELD), outermost first
Order = tuple[tuple[str, int], ...]  # (dimension, which of its parts), outermost first


@dataclass(frozen=True)
class MatrixUnit:
    """D = A @ B + D for one wave; A is m x k, B is k x n.

    a, b, result   what it multiplies, and what it adds up in
    needs          a word that the target's flags must have: this unit rounds more than threads would
    order          which parts count a fragment's registers, outermost first: ("k", 0) is the outermost part of k
    has_row_loads  LOAD_ROWS of a linear program makes its fragments of shared memory (ldmatrix)
    b_k            the parts of B's k, where other threads count it than A's; else none
    reads_shared   both operands lie in shared memory, where the unit of four warps reads them: no thread holds them
    keeps_sums     in a memory of its own, while threads do other things: of these a thread has rows at the end
    columns_first  the parts of n count a result's registers around those of m, too
    made_k         the parts of k of an A that threads hold, of a unit that else reads both in shared memory
    blocks         the parts of k, as threads hold the exponents of its blocks; none where a unit takes no scales
    """

    name: str
    archs: tuple[str, ...]
    a: DType
    b: DType
    digits: tuple[int, ...]
    d_m: Parts
    d_n: Parts
    a_m: Parts
    b_n: Parts
    k: Parts
    has_row_loads: bool = False
    reads_shared: bool = False
    keeps_sums: bool = False
    needs: str = ""
    b_k: Parts = ()
    columns_first: bool = False
    made_k: Parts = ()
    blocks: Parts = ()

    @cached_property
    def result(self) -> DType:
        """What it adds up in: 32 bits of a kind."""
        return dtypes.float32 if self.a.is_float else dtypes.int32

    @cached_property
    def a_order(self) -> Order:
        """The registers of a fragment of A: its rows stand inside of the outermost part of k."""
        return _around("k", self.k_of_made, "m", self.a_m) if self.a_m else ()

    @cached_property
    def b_order(self) -> Order:
        """The registers of a fragment of B: its columns stand inside of the outermost part of k."""
        return () if self.reads_shared else _around("k", self.k_of_b, "n", self.b_n)

    @cached_property
    def d_order(self) -> Order:
        """The registers of a fragment of the result: columns stand inside of rows."""
        if self.columns_first:
            return _around("n", self.d_n, "m", self.d_m)
        return (*_held("m", self.d_m), *_held("n", self.d_n))

    @cached_property
    def held(self) -> int:
        """Registers of a fragment of the result in one thread."""
        return prod([size for size, digit in (*self.d_m, *self.d_n) if digit == HELD])

    @cached_property
    def registers(self) -> list[tuple[int, int]]:
        """Which places of a tile the registers of a fragment of the result are, as offsets in m and n."""
        return [(at["m"], at["n"]) for at in offsets(self.d_order, {"m": self.d_m, "n": self.d_n})]

    @property
    def rounds(self) -> bool:
        """Whether its factors are rounded to tf32 first."""
        return self.needs == "tf32"

    @property
    def k_of_b(self) -> Parts:
        """The parts of B's k."""
        return self.b_k or self.k

    @property
    def k_of_made(self) -> Parts:
        """The parts of k of an operand that threads have made."""
        return self.made_k or self.k

    @property
    def takes_runs(self) -> bool:
        """Whether a thread has runs of k that are as long as what it reads of shared memory at once."""
        steps, digit = self.k[-1]
        return digit == HELD and steps * self.a.itemsize >= HELD_BYTES

    @property
    def takes_made(self) -> bool:
        """Whether threads may hold an operand that they computed, rounded to its format: a float of 16 bits, no byte,
        nor an integer."""
        return self.a is self.b and self.a.is_float and self.a.itemsize == 2 and bool(self.a_m)

    def size(self, dimension: str) -> int:
        """How many values of "m", "n" or "k" it multiplies."""
        parts = {"m": self.d_m, "n": self.d_n, "k": self.k}[dimension]
        return prod([steps for steps, _ in parts])


def _held(name: str, parts: Parts) -> Order:
    return tuple([(name, place) for place, (_, digit) in enumerate(parts) if digit == HELD])


def _around(outer: str, parts: Parts, inner: str, inside: Parts) -> Order:
    """The registers that two dimensions count, the second inside of the outermost part of the first."""
    found = _held(outer, parts)
    return (*found[:1], *_held(inner, inside), *found[1:])


def strides_of(parts: Parts) -> list[int]:
    """How many values of its dimension a step of each part is worth."""
    return [prod([size for size, _ in parts[place + 1 :]]) for place in range(len(parts))]


def offsets(order: Sequence[tuple[str, int]], of: Mapping[str, Parts]) -> Iterator[dict[str, int]]:
    """Along each dimension, where the values are that registers hold in this order; `of` has the dimensions' parts."""
    strides = {name: strides_of(parts) for name, parts in of.items()}
    for steps in product(*[range(of[name][part][0]) for name, part in order]):
        at = dict.fromkeys(of, 0)
        for step, (name, part) in zip(steps, order):
            at[name] += step * strides[name][part]
        yield at


WARPGROUP_COLUMNS = (64, 128, 192, 256)
TENSOR_COLUMNS = (64, 128)  # more fill the registers of the threads that read them
AMPERE = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
# which multiply floats of 8 bits by mma.sync: for others ptxas makes them of halves
ADA = ("sm_89", "sm_120")


def _mma(name: str, operand: DType, k: Parts, needs: str = "") -> MatrixUnit:
    """mma.m16n8k16 of 16-bit floats, and mma.m16n8k8 of float32 that is rounded to 10 bits of fraction."""
    rows = ((2, HELD), (8, 1))
    return MatrixUnit(
        name, AMPERE, operand, operand, (4, 8), d_m=rows, d_n=((4, 0), (2, HELD)), a_m=rows, b_n=((8, 1),), k=k,
        has_row_loads=True, needs=needs,
    )  # fmt: skip


def _mma8(name: str, archs: tuple[str, ...], a: DType, b: DType, needs: str = "") -> MatrixUnit:
    """Two of mma.m16n8k32 of bytes, or of floats of 8 bits, side by side.

    Which row of A and which column of B is which is ours to say: here pairs of neighbours belong to one thread. Where
    memory has bytes along m or n, ldmatrix turns squares of such pairs, whose bytes a thread then sorts.
    """
    pairs = ((8, 1), (2, HELD))
    return MatrixUnit(
        name, archs, a, b, (4, 8), d_m=pairs, d_n=((4, 0), (4, HELD)), a_m=pairs, b_n=pairs,
        k=((2, HELD), (4, 0), (4, HELD)), has_row_loads=True, needs=needs,
    )  # fmt: skip


def _wgmma(columns: int, name: str, operand: DType) -> MatrixUnit:
    """wgmma.mma_async.m64nNk16 of 16-bit floats, sums in float32: a warpgroup, four warps of which each has 16 rows.

    A may be in registers: 16 columns of a result are such an A.
    """
    rows = ((4, 2), (2, HELD), (8, 1))
    return MatrixUnit(
        name, ("sm_90",), operand, operand, (4, 8, 4), d_m=rows, d_n=((columns // 8, HELD), (4, 0), (2, HELD)),
        a_m=rows, b_n=(), k=((16, HELD),), reads_shared=True, columns_first=True,
        made_k=((2, HELD), (4, 0), (2, HELD)),
    )  # fmt: skip


def _tcgen05(columns: int, name: str, operand: DType) -> MatrixUnit:
    """tcgen05.mma of kind f16 with 128 rows: sums lie in tensor memory, of which each warp reads 32 rows.

    A may lie there, too: each thread has a row of it.
    """
    rows = ((4, 1), (32, 0))
    return MatrixUnit(
        name, ("sm_100",), operand, operand, (32, 4), d_m=rows, d_n=((columns, HELD),), a_m=rows, b_n=(),
        k=((16, HELD),), reads_shared=True, keeps_sums=True,
    )  # fmt: skip


CDNA = ("gfx90a", "gfx942")
CDNA4 = ("gfx950",)  # which takes the operands of two instructions of theirs in one
RDNA3 = ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153")
RDNA4 = ("gfx1200", "gfx1201")
HELD_BYTES = 16  # of either operand in a thread of CDNA and RDNA 4: one load from shared memory


def _of_amd(
    name: str,
    archs: tuple[str, ...],
    a: DType,
    b: DType,
    digits: tuple[int, int],
    d_m: Parts,
    k: Parts,
    blocks: Parts = (),
) -> MatrixUnit:
    """A unit of AMD's: a thread has a row of A, a column of B, and a column of the result."""
    line = ((digits[0], 0),)
    return MatrixUnit(name, archs, a, b, digits, d_m=d_m, d_n=line, a_m=line, b_n=line, k=k, blocks=blocks)


def _mfma16(name: str, operand: DType, archs: tuple[str, ...]) -> MatrixUnit:
    """As many of v_mfma_f32_16x16x16 (or v_mfma_i32_16x16x32) as take 16 bytes of every operand from 64 threads: on
    CDNA 4 one of v_mfma_f32_16x16x32 (or v_mfma_i32_16x16x64).

    Which step of k is which does not matter to a sum, as long as both operands agree: each thread's first four (or
    eight bytes) are those of the first instruction.
    """
    k = ((4, 1), (HELD_BYTES // operand.itemsize, HELD))
    return _of_amd(name, archs, operand, operand, (16, 4), ((4, 1), (4, HELD)), k)


def _mfma32(name: str, operand: DType, archs: tuple[str, ...]) -> MatrixUnit:
    """The same of v_mfma_f32_32x32x8 and v_mfma_i32_32x32x16; on CDNA 4 v_mfma_f32_32x32x16 and v_mfma_i32_32x32x32."""
    k = ((2, 1), (HELD_BYTES // operand.itemsize, HELD))
    return _of_amd(name, archs, operand, operand, (32, 2), ((4, HELD), (2, 1), (4, HELD)), k)


def _mfma128(name: str, a: DType, b: DType) -> MatrixUnit:
    """v_mfma_f32_16x16x128_f8f6f4: of both halves of k, each of four groups of threads has 16 bytes.

    Their exponents are those of four blocks side by side, so a thread's are not those of what it holds.
    """
    k = ((2, HELD), (4, 1), (HELD_BYTES, HELD))
    return _of_amd(name, CDNA4, a, b, (16, 4), ((4, 1), (4, HELD)), k, ((4, 1), (BLOCK, HELD)))


def _mfma64(name: str, a: DType, b: DType) -> MatrixUnit:
    """v_mfma_f32_32x32x64_f8f6f4, of two groups of threads."""
    k = ((2, HELD), (2, 1), (HELD_BYTES, HELD))
    return _of_amd(name, CDNA4, a, b, (32, 2), ((4, HELD), (2, 1), (4, HELD)), k, ((2, 1), (BLOCK, HELD)))


def _wmma11(name: str, a: DType, b: DType) -> MatrixUnit:
    """v_wmma_f32_16x16x16 (or _i32_) of RDNA 3: both halves of a wave hold the operands, rows alternate."""
    return _of_amd(name, RDNA3, a, b, (16, 2), ((8, HELD), (2, 1)), ((16, HELD),))


def _wmma12(name: str, a: DType, b: DType) -> MatrixUnit:
    """v_wmma_f32_16x16x16 (two of bytes) of RDNA 4: half of k, and half of the rows, in each half of a wave."""
    return _of_amd(
        name, RDNA4, a, b, (16, 2), ((2, 1), (8, HELD)), ((2, 1), (HELD_BYTES // a.itemsize, HELD))
    )


APPLE = ("apple7", "apple8", "apple9")


def _simdgroup(name: str, operand: DType) -> MatrixUnit:
    """simdgroup_multiply_accumulate of 8 x 8 matrices, sums in float32.

    Of each matrix a thread has two neighbours of a row: A's k is counted by the threads that count columns, B's by
    those that count rows. float32 is multiplied as it is: only the order of sums is another one.
    """
    rows, columns = ((2, 4), (2, 2), (2, 1)), ((2, 3), (2, 0), (2, HELD))
    return MatrixUnit(
        name, APPLE, operand, operand, (2, 2, 2, 2, 2), d_m=rows, d_n=columns, a_m=rows, b_n=columns, k=columns,
        b_k=rows,
    )  # fmt: skip


_F16, _BF16, _S8, _U8 = dtypes.float16, dtypes.bfloat16, dtypes.int8, dtypes.uint8
_E4, _E5 = dtypes.fp8e4m3, dtypes.fp8e5m2
_FLOATS = {"e4m3": (_E4, _E4), "e5m2": (_E5, _E5), "e4m3e5m2": (_E4, _E5), "e5m2e4m3": (_E5, _E4)}
_BYTES = {"s8": (_S8, _S8), "u8": (_U8, _U8), "s8u8": (_S8, _U8), "u8s8": (_U8, _S8)}

UNITS = {
    unit.name: unit
    for unit in (
        _mma("mma.f16", _F16, ((2, HELD), (4, 0), (2, HELD))),
        _mma("mma.bf16", _BF16, ((2, HELD), (4, 0), (2, HELD))),
        _mma("mma.tf32", dtypes.float32, ((2, HELD), (4, 0)), "tf32"),
        *[_mma8(f"mma.{name}", AMPERE, a, b) for name, (a, b) in _BYTES.items()],
        *[_mma8(f"mma.{name}", ADA, a, b, "fp8") for name, (a, b) in _FLOATS.items()],
        *[_wgmma(n, f"wgmma{n}.f16", _F16) for n in WARPGROUP_COLUMNS],
        *[_wgmma(n, f"wgmma{n}.bf16", _BF16) for n in WARPGROUP_COLUMNS],
        *[_tcgen05(n, f"tcgen05x{n}.f16", _F16) for n in TENSOR_COLUMNS],
        *[_tcgen05(n, f"tcgen05x{n}.bf16", _BF16) for n in TENSOR_COLUMNS],
        _mfma32("mfma32.f16", _F16, CDNA),
        _mfma32("mfma32.bf16", _BF16, CDNA),
        _mfma32("mfma32.s8", _S8, ("gfx942",)),
        _mfma32("mfma32x8.s8", _S8, ("gfx90a",)),  # four instructions of 8 along k
        _mfma16("mfma16.f16", _F16, CDNA),
        _mfma16("mfma16.bf16", _BF16, CDNA),
        _mfma16("mfma16.s8", _S8, ("gfx942",)),
        _mfma16("mfma16x16.s8", _S8, ("gfx90a",)),  # of 16
        _mfma32("mfma32x16.f16", _F16, CDNA4),
        _mfma32("mfma32x16.bf16", _BF16, CDNA4),
        _mfma32("mfma32x32.s8", _S8, CDNA4),
        _mfma16("mfma16x32.f16", _F16, CDNA4),
        _mfma16("mfma16x32.bf16", _BF16, CDNA4),
        _mfma16("mfma16x64.s8", _S8, CDNA4),
        *[_mfma64(f"mfma32x64.{name}", a, b) for name, (a, b) in _FLOATS.items()],
        *[_mfma128(f"mfma16x128.{name}", a, b) for name, (a, b) in _FLOATS.items()],
        _wmma11("wmma11.f16", _F16, _F16),
        _wmma11("wmma11.bf16", _BF16, _BF16),
        *[_wmma11(f"wmma11.{name}", a, b) for name, (a, b) in _BYTES.items()],
        _wmma12("wmma12.f16", _F16, _F16),
        _wmma12("wmma12.bf16", _BF16, _BF16),
        *[_wmma12(f"wmma12.{name}", a, b) for name, (a, b) in (_BYTES | _FLOATS).items()],
        _simdgroup("simdgroup.f16", _F16),
        _simdgroup("simdgroup.bf16", _BF16),
        _simdgroup("simdgroup.f32", dtypes.float32),
    )
}


def units_of(
    arch: str,
    a: DType,
    b: DType | None = None,
    reads_shared: bool = False,
    flags: frozenset[str] = frozenset(),
) -> list[MatrixUnit]:
    """What an architecture multiplies operands with, in registers or in shared memory, largest first.

    b      where it is another format than a
    flags  the target's, which has words for units that round their factors
    """
    mine = [unit for unit in UNITS.values() if arch in unit.archs and unit.a is a and unit.b is (b or a)]
    return [unit for unit in mine if unit.reads_shared is reads_shared and unit.needs in ("", *flags)]


def widened(dtype: DType) -> DType:
    """The format as which units take a factor that they do not take as it is: every float of 8 bits is a float16."""
    return dtypes.float16 if dtype.is_storage_only else dtype


def units_for(
    arch: str, a: DType, b: DType, flags: frozenset[str], are_scaled: bool = False
) -> list[MatrixUnit]:
    """What multiplies factors of these formats: units that take them as they are, or else widened.

    are_scaled  their blocks have scales, which units take by themselves
    """
    if are_scaled:
        return [unit for unit in units_of(arch, a, b, flags=flags) if unit.blocks]
    return units_of(arch, a, b, flags=flags) or units_of(arch, widened(a), widened(b), flags=flags)


def scaled_formats(arch: str) -> list[DType]:
    """The formats whose blocks may have scales in an architecture's units."""
    return list(dict.fromkeys(unit.a for unit in UNITS.values() if arch in unit.archs and unit.blocks))


def narrow_formats(arch: str) -> list[DType]:
    """The 16-bit floats and bytes that an architecture's units multiply, none where it has no units."""
    return [operand for operand in (_F16, _BF16, _S8, _U8) if units_of(arch, operand)]
