"""NVIDIA GPUs in LLVM's words.

In       nothing
Out      the `Dialect` of gpu.py for nvptx64
Next     ../assemble/llvm_gpu.py (who makes the PTX)
Source   LLVM, "User Guide for NVPTX Back-end": kernel calling convention, special registers, shuffles, barriers
"""

from __future__ import annotations

from hcq.compiler.render import nvptx_bulk, nvptx_warpgroup, warpgroup
from hcq.compiler.render.byte_units import SORTED, are_floats, factors_of
from hcq.compiler.render.gpu import Dialect
from hcq.compiler.render.llvm import Text
from hcq.compiler.render.llvm_arithmetic import RenderError, register_type
from hcq.ir.dtype import DType

WARP = 32
ASM_OPERANDS = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)
MOST_DECLARED = 48 << 10  # ptxas refuses a kernel that declares more


def _exchange(text: Text, value: str, mask: int) -> str:
    arguments = [("i32", "-1"), ("i32", value), ("i32", str(mask)), ("i32", str(WARP - 1))]
    return text.call("i32", "llvm.nvvm.shfl.sync.bfly.i32", arguments)


def _matrix(text: Text, unit: str, a: str, b: str, d: str, exponents: list[str]) -> str:
    if exponents:
        raise RenderError(f"MATRIX {unit}: its blocks have no scales")
    kinds = factors_of(unit)
    if kinds is not None:
        return _matrix_of_bytes(text, kinds, a, b, d)
    if unit == "mma.tf32":
        return _matrix_of_floats(text, a, b, d)
    kind, half = ("float16", "half") if unit == "mma.f16" else ("bf16", "i16")
    word = f"<2 x {half}>" if kind == "float16" else "i32"
    arguments = []
    for fragment, count in ((a, 8), (b, 4)):
        for first in range(0, count, 2):
            picks = f"<2 x i32> <i32 {first}, i32 {first + 1}>"
            pair = text.let(
                f"shufflevector <{count} x {half}> {fragment}, <{count} x {half}> poison, {picks}"
            )
            arguments.append((word, pair if word != "i32" else text.let(f"bitcast <2 x i16> {pair} to i32")))
    suffix = "f32.f32" if kind == "float16" else "bf16"
    return _summed(text, f"llvm.nvvm.mma.m16n8k16.row.col.{suffix}", arguments, d)


def _matrix_of_floats(text: Text, a: str, b: str, d: str) -> str:
    """m16n8k8, of floats that ROUND_TF32 has rounded."""
    words = []
    for fragment, count in ((a, 4), (b, 2)):
        whole = text.let(f"bitcast <{count} x float> {fragment} to <{count} x i32>")
        for lane in range(count):
            words.append(("i32", text.let(f"extractelement <{count} x i32> {whole}, i64 {lane}")))
    return _summed(text, "llvm.nvvm.mma.m16n8k8.row.col.tf32", words, d)


def _round_tf32(text: Text, fragment: str, lanes: int) -> str:
    made = "poison"
    for lane in range(lanes):
        value = text.let(f"extractelement <{lanes} x float> {fragment}, i64 {lane}")
        bits = text.call("i32", "llvm.nvvm.f2tf32.rna", [("float", value)])
        value = text.let(f"bitcast i32 {bits} to float")
        made = text.let(f"insertelement <{lanes} x float> {made}, float {value}, i64 {lane}")
    return made


def _summed(text: Text, function: str, arguments: list[tuple[str, str]], d: str) -> str:
    """What an mma whose sums are four floats gives: `arguments` are its factors."""
    sums = [("float", text.let(f"extractelement <4 x float> {d}, i64 {lane}")) for lane in range(4)]
    four, made = "{ float, float, float, float }", "poison"
    found = text.call(four, function, [*arguments, *sums])
    for lane in range(4):
        value = text.let(f"extractvalue {four} {found}, {lane}")
        made = text.let(f"insertelement <4 x float> {made}, float {value}, i64 {lane}")
    return made


def _matrix_of_bytes(text: Text, kinds: tuple[str, str], a: str, b: str, d: str) -> str:
    """Two of m16n8k32: of B, columns with even numbers and columns with odd ones."""
    function = f"llvm.nvvm.mma.m16n8k32.row.col.{'.'.join(dict.fromkeys(kinds))}"
    words = [_words(text, fragment, 4) for fragment in (a, b)]
    kind = "float" if are_floats(kinds) else "i32"
    made, four = d, f"{{ {kind}, {kind}, {kind}, {kind} }}"
    for column in range(2):
        places = [4 * row + 2 * pair + column for row in range(2) for pair in range(2)]
        sums = [text.let(f"extractelement <8 x {kind}> {d}, i64 {place}") for place in places]
        factors = [("i32", word) for word in (*words[0], *words[1][column::2])]
        arguments = [*factors, *[(kind, lane) for lane in sums]]
        if are_floats(kinds):  # LLVM 22 has no intrinsic for these
            listed = ", ".join([f"{t} {value}" for t, value in arguments])
            found = text.let(f'call {four} asm "{_spelled(kinds)}", "{ASM_OPERANDS}"({listed}) convergent')
        else:
            found = text.call(four, function, arguments)
        for number, place in enumerate(places):
            value = text.let(f"extractvalue {four} {found}, {number}")
            made = text.let(f"insertelement <8 x {kind}> {made}, {kind} {value}, i64 {place}")
    return made


def _spelled(kinds: tuple[str, str]) -> str:
    """PTX of a product of 8-bit floats: sums, A, B, sums."""
    places = [
        [f"${place}" for place in places] for places in (range(4), range(4, 8), range(8, 10), range(10, 14))
    ]
    listed = ", ".join([f"{{{', '.join(part)}}}" for part in places])
    return f"mma.sync.aligned.m16n8k32.row.col.f32.{'.'.join(kinds)}.f32 {listed};"


def _words(text: Text, fragment: str, count: int) -> list[str]:
    """Bytes as registers."""
    whole = text.let(f"bitcast <{4 * count} x i8> {fragment} to <{count} x i32>")
    return [text.let(f"extractelement <{count} x i32> {whole}, i64 {word}") for word in range(count)]


def _load_rows(text: Text, pointer: str, dtype: DType, is_turned: bool) -> str:
    words = dtype.lanes * dtype.itemsize // 4
    function = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{words}{'.trans' if is_turned else ''}.b16.p3"
    several = f"{{ {', '.join(['i32'] * words)} }}"
    found = text.call(several, function, [("ptr addrspace(3)", pointer)])
    made = "poison"
    values = [text.let(f"extractvalue {several} {found}, {word}") for word in range(words)]
    if is_turned and dtype.itemsize == 1:
        pairs = [values[word - word % 2 : word - word % 2 + 2] for word in range(words)]
        values = [
            text.call("i32", "llvm.nvvm.prmt", [("i32", low), ("i32", high), ("i32", str(SORTED[word % 2]))])
            for word, (low, high) in enumerate(pairs)
        ]
    for word, value in enumerate(values):
        made = text.let(f"insertelement <{words} x i32> {made}, i32 {value}, i64 {word}")
    return text.let(f"bitcast <{words} x i32> {made} to {register_type(dtype)}")


def _copy(text: Text, to: str, source: str, size: int, on: str | None) -> None:
    """Pieces of 4, 8 or 16 bytes; smaller ones the thread copies."""
    if size < 4:
        value = text.let(f"load i{8 * size}, ptr addrspace(1) {source}, align {size}")
        if on is not None:
            value = text.let(f"select i1 {on}, i{8 * size} {value}, i{8 * size} 0")
        text.line(f"store i{8 * size} {value}, ptr addrspace(3) {to}, align {size}")
        return
    function = f"llvm.nvvm.cp.async.{'cg' if size == 16 else 'ca'}.shared.global.{size}"
    places = f"ptr addrspace(3) {to}, ptr addrspace(1) {source}"
    if on is None:
        text.declare(f"declare void @{function}(ptr addrspace(3), ptr addrspace(1))")
        text.line(f"call void @{function}({places})")
        return
    count = text.let(f"select i1 {on}, i32 {size}, i32 0")
    text.declare(f"declare void @{function}.s(ptr addrspace(3), ptr addrspace(1), i32)")
    text.line(f"call void @{function}.s({places}, i32 {count})")


def _wait(text: Text, batches: int) -> None:
    function = "llvm.nvvm.cp.async.commit.group" if batches < 0 else "llvm.nvvm.cp.async.wait.group"
    kind, argument = ("", "") if batches < 0 else ("i32", f"i32 {batches}")
    text.declare(f"declare void @{function}({kind})")
    text.line(f"call void @{function}({argument})")


DIALECT = Dialect(
    convention="ptx_kernel",
    block_id="llvm.nvvm.read.ptx.sreg.ctaid.x",
    thread_id="llvm.nvvm.read.ptx.sreg.tid.x",
    attributes=lambda program: f'nounwind "nvvm.maxntid"="{program.launched}"',
    registers={"half": "h", "float": "f", "double": "d"},
    extremes=frozenset({"half", "float"}),
    power="llvm.nvvm.ex2.approx.ftz.f",
    wave=lambda arch: WARP,
    exchange=_exchange,
    matrix=_matrix,
    load_rows=_load_rows,
    column=None,
    round_tf32=_round_tf32,
    copy=_copy,
    quotient="llvm.nvvm.div.full",  # an exact one calls a function: ptxas then lets no wgmma run beside another
    first=None,
    wait=_wait,
    warpgroup=nvptx_warpgroup.instruction,
    bulk=nvptx_bulk.instruction,
    shared_fence=lambda text: nvptx_warpgroup.statement(text, warpgroup.SHARED_FENCE),
    declared_shared=MOST_DECLARED,
    in_order="",
    bare_barrier=("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",),
    barrier=("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",),
    barrier_declarations=("declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32) convergent",),
)
