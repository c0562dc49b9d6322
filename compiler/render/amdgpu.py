"""AMD GPUs in LLVM's words.

In       nothing
Out      the `Dialect` of gpu.py for amdgcn
Next     ../assemble/llvm_gpu.py (who makes the object)
Source   LLVM, "User Guide for AMDGPU Backend": kernel calling convention, workgroup and workitem ids, attributes, the
         memory model of a workgroup; the ISA documents for ds_bpermute_b32, which reads another lane's register, and
         for s_waitcnt and global_load_lds (CDNA3, 4.4 and 10.3)
"""

from __future__ import annotations

from hcq.compiler.linear.program import Instruction, Program
from hcq.compiler.render.byte_units import are_floats, factors_of
from hcq.compiler.render.gpu import Dialect
from hcq.compiler.render.llvm import Text
from hcq.compiler.render.llvm_arithmetic import RenderError
from hcq.ir.dtype import DType
from hcq.ir.op import Op

MOST_DECLARED = 64 << 10  # bytes of LDS of a workgroup
COPIES = (4, 16)  # bytes that global_load_lds brings for a lane
# s_waitcnt of gfx9: vmcnt in bits 3:0 and 15:14, expcnt in 6:4, lgkmcnt in 11:8
MOST_COUNTED, NO_EXPORTS = 63, 7 << 4


def wave_size(arch: str) -> int:
    """Threads of a wave: 64 on the data-centre parts, 32 since gfx10."""
    return 64 if arch.startswith("gfx9") else 32


def _bulk(text: Text, it: Instruction) -> None:
    raise RenderError(f"{it.op.name}: AMD GPUs have no tensor maps")


def _warpgroup(text: Text, it: Instruction) -> str:
    raise RenderError(f"{it.op.name}: AMD GPUs have no warpgroups")


def _exchange(text: Text, value: str, mask: int) -> str:
    low = text.call("i32", "llvm.amdgcn.mbcnt.lo", [("i32", "-1"), ("i32", "0")])
    lane = text.call("i32", "llvm.amdgcn.mbcnt.hi", [("i32", "-1"), ("i32", low)])
    other = text.let(f"xor i32 {lane}, {mask}")
    place = text.let(f"shl i32 {other}, 2")
    return text.call("i32", "llvm.amdgcn.ds.bpermute", [("i32", place), ("i32", value)])


_MATRIX = {  # the intrinsic, the types of operands and of results, arguments behind them
    "mfma16.s8": ("llvm.amdgcn.mfma.i32.16x16x32.i8", "i64", "<4 x i32>", 3),
    "mfma16x16.s8": ("llvm.amdgcn.mfma.i32.16x16x16i8", "i32", "<4 x i32>", 3),
    "mfma32.s8": ("llvm.amdgcn.mfma.i32.32x32x16.i8", "i64", "<16 x i32>", 3),
    "mfma32x8.s8": ("llvm.amdgcn.mfma.i32.32x32x8i8", "i32", "<16 x i32>", 3),
    "mfma16x64.s8": ("llvm.amdgcn.mfma.i32.16x16x64.i8", "<4 x i32>", "<4 x i32>", 3),
    "mfma32x32.s8": ("llvm.amdgcn.mfma.i32.32x32x32.i8", "<4 x i32>", "<16 x i32>", 3),
    "mfma16.f16": ("llvm.amdgcn.mfma.f32.16x16x16f16", "<4 x half>", "<4 x float>", 3),
    "mfma16.bf16": ("llvm.amdgcn.mfma.f32.16x16x16bf16.1k", "<4 x i16>", "<4 x float>", 3),
    "mfma32.f16": ("llvm.amdgcn.mfma.f32.32x32x8f16", "<4 x half>", "<16 x float>", 3),
    "mfma32.bf16": ("llvm.amdgcn.mfma.f32.32x32x8bf16.1k", "<4 x i16>", "<16 x float>", 3),
    "mfma16x32.f16": ("llvm.amdgcn.mfma.f32.16x16x32.f16", "<8 x half>", "<4 x float>", 3),
    "mfma16x32.bf16": ("llvm.amdgcn.mfma.f32.16x16x32.bf16", "<8 x bfloat>", "<4 x float>", 3),
    "mfma32x16.f16": ("llvm.amdgcn.mfma.f32.32x32x16.f16", "<8 x half>", "<16 x float>", 3),
    "mfma32x16.bf16": ("llvm.amdgcn.mfma.f32.32x32x16.bf16", "<8 x bfloat>", "<16 x float>", 3),
    "wmma11.f16": ("llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v16f16", "<16 x half>", "<8 x float>", 0),
    "wmma11.bf16": ("llvm.amdgcn.wmma.f32.16x16x16.bf16.v8f32.v16i16", "<16 x i16>", "<8 x float>", 0),
    "wmma12.f16": ("llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v8f16", "<8 x half>", "<8 x float>", 0),
    "wmma12.bf16": ("llvm.amdgcn.wmma.f32.16x16x16.bf16.v8f32.v8i16", "<8 x i16>", "<8 x float>", 0),
}


def _matrix(text: Text, unit: str, a: str, b: str, d: str, exponents: list[str]) -> str:
    factors = factors_of(unit)
    if factors is not None and are_floats(factors) and unit.startswith("mfma"):
        return _matrix_of_floats(text, unit, factors, a, b, d, exponents)
    if factors is not None:
        return _matrix_of_bytes(text, unit, factors, a, b, d)
    function, operand, result, more = _MATRIX[unit]
    if not operand.startswith("<4"):  # one instruction takes all
        if operand == "<8 x bfloat>":
            a, b = (text.let(f"bitcast <8 x i16> {fragment} to {operand}") for fragment in (a, b))
        zeros = [("i32", "0")] * more
        return text.call(result, function, [(operand, a), (operand, b), (result, d), *zeros])
    whole = operand.replace("<4", "<8")
    for picks in ("i32 0, i32 1, i32 2, i32 3", "i32 4, i32 5, i32 6, i32 7"):
        halves = [
            text.let(f"shufflevector {whole} {fragment}, {whole} poison, <4 x i32> <{picks}>")
            for fragment in (a, b)
        ]
        arguments = [(operand, halves[0]), (operand, halves[1]), (result, d), *[("i32", "0")] * more]
        d = text.call(result, function, arguments)
    return d


BYTE_FLOATS = {
    "e4m3": "fp8",
    "e5m2": "bf8",
}  # AMD's words; on RDNA 4 they are the Open Compute Project's formats


def _matrix_of_bytes(text: Text, unit: str, factors: tuple[str, str], a: str, b: str, d: str) -> str:
    """One instruction after the other takes its part of the 16 bytes that a thread has of each operand."""
    is_wmma = unit.startswith("wmma")
    result = "<8 x i32>"
    if is_wmma:
        words = 4 if unit.startswith("wmma11") else 2
        operand = f"<{words} x i32>"
        function = f"llvm.amdgcn.wmma.i32.16x16x16.iu8.v8i32.v{words}i32"
        if are_floats(factors):
            kinds = ".".join([BYTE_FLOATS[factor] for factor in factors])
            function, result = f"llvm.amdgcn.wmma.f32.16x16x16.{kinds}.v8f32.v2i32", "<8 x float>"
    else:
        function, operand, result, _ = _MATRIX[unit]
        words = {"i32": 1, "i64": 2, "<4 x i32>": 4}[operand]
    signed = [("i1", str(int(factor == "s8"))) for factor in factors]
    parts = [_parts(text, fragment, operand, 4 // words) for fragment in (a, b)]
    for left, right in zip(*parts, strict=True):
        values = [(operand, left), (operand, right)]
        if are_floats(factors):
            arguments = [*values, (result, d)]
        elif is_wmma:  # each behind its sign; then the sum, which wraps around
            arguments = [signed[0], values[0], signed[1], values[1], (result, d), ("i1", "0")]
        else:
            arguments = [*values, (result, d), *[("i32", "0")] * 3]
        d = text.call(result, function, arguments)
    return d


# what CBSZ and BLGP call formats (CDNA4 ISA, 7.1.5)
_CODES = {"e4m3": 0, "e5m2": 1}


def _matrix_of_floats(
    text: Text, unit: str, factors: tuple[str, str], a: str, b: str, d: str, exponents: list[str]
) -> str:
    """v_mfma_scale_*_f8f6f4; where both scales are the number 0, LLVM makes v_mfma_*_f8f6f4 of it, which has none."""
    shape, result = (
        ("16x16x128", "<4 x float>") if unit.startswith("mfma16") else ("32x32x64", "<16 x float>")
    )
    operand = "<8 x i32>"
    words = [text.let(f"bitcast <32 x i8> {fragment} to {operand}") for fragment in (a, b)]
    codes = [("i32", str(_CODES[factor])) for factor in factors]
    function = f"llvm.amdgcn.mfma.scale.f32.{shape}.f8f6f4.v8i32.v8i32"
    bytes_of_scales = [("i32", value) for of in exponents or ("0", "0") for value in ("0", of)]
    arguments = [(operand, words[0]), (operand, words[1]), (result, d), *codes, *bytes_of_scales]
    return text.call(result, function, arguments)


def _parts(text: Text, fragment: str, kind: str, count: int) -> list[str]:
    """16 bytes as so many values of a kind."""
    if count == 1:
        return [text.let(f"bitcast <16 x i8> {fragment} to {kind}")]
    if kind.startswith("<"):
        whole = text.let(f"bitcast <16 x i8> {fragment} to <4 x i32>")
        picks = ("i32 0, i32 1", "i32 2, i32 3")
        return [
            text.let(f"shufflevector <4 x i32> {whole}, <4 x i32> poison, <2 x i32> <{pick}>")
            for pick in picks
        ]
    whole = text.let(f"bitcast <16 x i8> {fragment} to <{count} x {kind}>")
    return [text.let(f"extractelement <{count} x {kind}> {whole}, i64 {part}") for part in range(count)]


def _load_rows(text: Text, pointer: str, dtype: DType, is_turned: bool) -> str:
    raise RenderError("LOAD_ROWS: AMD GPUs load fragments element by element")


# v_perm_b32: bytes 0 to 3 are the second word's, 4 to 7 the first one's
_PAIRS = (0x05010400, 0x07030602)  # of two words: their bytes 0 and 1, or 2 and 3, side by side
_HALVES = (0x05040100, 0x07060302)  # of two such: the lower halves, the upper ones


def _column(text: Text, words: list[str], byte: int) -> str:
    """By three permutations, the first two of which the column beside it has as well: LLVM 22 shifts and masks."""

    def permuted(high: str, low: str, selector: int) -> str:
        return text.call("i32", "llvm.amdgcn.perm", [("i32", high), ("i32", low), ("i32", str(selector))])

    low, high = (permuted(words[i + 1], words[i], _PAIRS[byte // 2]) for i in (0, 2))
    return permuted(high, low, _HALVES[byte % 2])


def _round_tf32(text: Text, fragment: str, lanes: int) -> str:
    raise RenderError("ROUND_TF32: AMD GPUs multiply float32 as it is")


def _copy(text: Text, to: str, source: str, size: int, on: str | None) -> None:
    """A wave's lanes write side by side, from where its first thread copies to: LLVM keeps that in M0.

    LLVM is to know nothing of the address that they read: of addresses near each other LLVM 22 makes one and offsets
    of instructions (gfx90a), which are offsets in LDS as well (llvm/llvm-project, pull request 176816).
    """
    if size not in COPIES or on is not None:
        raise RenderError(f"COPY_SHARED: a wave copies {COPIES} bytes of a lane, without zeros, not {size}")
    spaces, counts = ("ptr addrspace(1)", "ptr addrspace(3)"), (size, 0, 0)
    text.declare(f"declare void @llvm.amdgcn.global.load.lds({', '.join([*spaces, 'i32', 'i32', 'i32'])})")
    source = text.let(f'call {spaces[0]} asm "", "=v,0"({spaces[0]} {source})')
    values = [f"{spaces[0]} {source}", f"{spaces[1]} {to}", *[f"i32 {count}" for count in counts]]
    text.line(f"call void @llvm.amdgcn.global.load.lds({', '.join(values)}){text.copy_facts}")


def _first(text: Text, thread: str) -> str:
    return text.call("i32", "llvm.amdgcn.readfirstlane.i32", [("i32", thread)])


def _wait(text: Text, left: int) -> None:
    """Until only so many vector memory instructions are under way, and LDS has what was stored there.

    A barrier behind it needs no fence of the workgroup then, for which LLVM 22 waits for all of them; this fence keeps
    accesses on their sides.
    """
    if left < 0:  # the end of a batch, which nothing marks
        return
    left = min(left, MOST_COUNTED)
    bits = left & 0xF | left >> 4 << 14 | NO_EXPORTS
    text.line('fence syncscope("wavefront") release')
    text.declare("declare void @llvm.amdgcn.s.waitcnt(i32)")
    text.line(f"call void @llvm.amdgcn.s.waitcnt(i32 {bits})")


def _attributes(program: Program) -> str:
    """A kernel of matrix units keeps its sums in ordinary registers, for which CDNA has room since gfx90a.

    Otherwise LLVM 22 keeps them in accumulation registers, and moves all of them twice in every step of a loop.
    """
    threads = program.launched
    words = f'nounwind "amdgpu-flat-work-group-size"="{threads},{threads}" "uniform-work-group-size"="true"'
    has_units = any(it.op is Op.MATRIX for it in program.instructions)
    return words + ' "amdgpu-agpr-alloc"="0"' * has_units


DIALECT = Dialect(
    convention="amdgpu_kernel",
    block_id="llvm.amdgcn.workgroup.id.x",
    thread_id="llvm.amdgcn.workitem.id.x",
    attributes=_attributes,
    registers={"half": "v", "float": "v", "double": "v"},
    extremes=frozenset(),
    power="llvm.amdgcn.exp2.f32",
    wave=wave_size,
    exchange=_exchange,
    matrix=_matrix,
    load_rows=_load_rows,
    column=_column,
    round_tf32=_round_tf32,
    copy=_copy,
    quotient="",
    first=_first,
    wait=_wait,
    warpgroup=_warpgroup,
    bulk=_bulk,
    shared_fence=lambda text: None,
    declared_shared=MOST_DECLARED,
    in_order="llvm.amdgcn.sched.barrier",
    bare_barrier=("call void @llvm.amdgcn.s.barrier()", 'fence syncscope("wavefront") acquire'),
    barrier=(
        'fence syncscope("workgroup") release',
        "call void @llvm.amdgcn.s.barrier()",
        'fence syncscope("workgroup") acquire',
    ),
    barrier_declarations=("declare void @llvm.amdgcn.s.barrier() convergent",),
)
