"""The instructions of a matrix unit with a memory of its own, as both roads to PTX write them: tcgen05.

In       what an instruction is, how the text around names operands
Out      PTX for inline assembly; the bits of an instruction descriptor
Next     nvptx_tensor_memory.py (in LLVM IR), cuda_tensor_memory.py (in CUDA C), ../linear/tensor_memory.py
Source   PTX ISA, "TensorCore 5th Generation Family Instructions": "Instruction descriptor", "Shared memory descriptor",
         "tcgen05.alloc", "tcgen05.mma", "tcgen05.commit", "tcgen05.ld", "tcgen05.fence"

An address of tensor memory is a column, and 65536 times a lane; a thread of warp w reads the lane of its number.
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.compiler.linear.program import Instruction
from hcq.ir.op import Op

TENSOR = frozenset(
    {Op.TENSOR_MEMORY, Op.TENSOR_HELD, Op.TENSOR_MATRIX, Op.TENSOR_COMMIT, Op.TENSOR_RESULT, Op.TENSOR_FREE}
)
GROUP = "cta_group::1"
ADDRESS_OFFSET = 8  # behind the mbarrier
WARP_SHIFT = 16 + 5  # of an address: 32 lanes
WORD = 4  # bytes
VERSION = 1 << 46  # of descriptors in shared memory, which are wgmma's otherwise
SUMS_F32, FORMATS = 1 << 4, {"f16": 0, "bf16": 1}
FORMAT_SHIFTS, TURNED_SHIFTS = (7, 10), (15, 16)
N_SHIFT, M_SHIFT = 17, 24
MEET = "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;"
Slot = Callable[[int], str]


def descriptor_bits(kind: str, rows: int, columns: int, turned: tuple[bool, bool]) -> int:
    """What tcgen05.mma multiplies: formats, sizes, and which operands lie along m or n."""
    bits = SUMS_F32 | columns >> 3 << N_SHIFT | rows >> 4 << M_SHIFT
    for shift in FORMAT_SHIFTS:
        bits |= FORMATS[kind] << shift
    for shift, is_turned in zip(TURNED_SHIFTS, turned, strict=True):
        bits |= int(is_turned) << shift
    return bits


def _at(address: str, warp: str, column: int) -> str:
    """The place of a warp's lanes, from a column on."""
    return f"shl.b32 at, {warp}, {WARP_SHIFT}; add.u32 at, at, {address}; add.u32 at, at, {column};"


def memory(it: Instruction, slot: Slot) -> str:
    """TENSOR_MEMORY: the address, then the place in shared memory, whether warp 0, whether thread 0, the warp."""
    wanted, width = it.arg
    zeros = ", ".join(["zero"] * width)
    place = slot(1)
    lines = [
        "{ .reg .pred warp, who; .reg .b32 at, zero; mov.b32 zero, 0;",
        f"setp.ne.u32 warp, {slot(2)}, 0; setp.ne.u32 who, {slot(3)}, 0;",
        f"@warp tcgen05.alloc.{GROUP}.sync.aligned.shared::cta.b32 [{place}+{ADDRESS_OFFSET}], {wanted};",
        f"@warp tcgen05.relinquish_alloc_permit.{GROUP}.sync.aligned;",
        f"@who mbarrier.init.shared::cta.b64 [{place}], 1; @who fence.proxy.async.shared::cta;",
        MEET,
        f"ld.shared.b32 {slot(0)}, [{place}+{ADDRESS_OFFSET}];",
    ]
    for column in range(0, wanted - width + 1, width):
        lines.append(_at(slot(0), slot(4), column))
        lines.append(f"tcgen05.st.sync.aligned.32x32b.x{width}.b32 [at], {{{zeros}}};")
    return " ".join([*lines, "tcgen05.wait::st.sync.aligned;", MEET, "}"])


def product(it: Instruction, slot: Slot) -> str:
    """TENSOR_MATRIX: operands are a's descriptor, unless a is in tensor memory, and b's, the address, who."""
    column, kind, rows, columns, adds, *where = it.arg
    is_held = it.src[0] is None
    turned = (False, where[1]) if is_held else (where[0], where[1])
    bits = descriptor_bits(kind, rows, columns, turned)
    b, address, who = (slot(number - is_held) for number in (1, 2, 3))
    a = (
        f".reg .b32 a; add.u32 a, {address}, {where[0]};"
        if is_held
        else f".reg .b64 a; or.b64 a, {slot(0)}, {VERSION};"
    )
    return " ".join(
        (
            "{ .reg .pred who, adds; .reg .b32 at, what; .reg .b64 b;",
            f"setp.ne.u32 who, {who}, 0; setp.{'eq' if adds else 'ne'}.u32 adds, 0, 0;",
            f"add.u32 at, {address}, {column}; mov.b32 what, {bits};",
            f"{a} or.b64 b, {b}, {VERSION};",
            f"@who tcgen05.mma.{GROUP}.kind::f16 [at], {'[a]' if is_held else 'a'}, b, what, adds; }}",
        )
    )


def held(it: Instruction, slot: Slot) -> str:
    """TENSOR_HELD: the address, the warp, then the registers."""
    count = words_of(it)
    registers = ", ".join([slot(2 + number) for number in range(count)])
    lines = [
        "{ .reg .b32 at; tcgen05.fence::after_thread_sync;",
        _at(slot(0), slot(1), it.arg),
        f"tcgen05.st.sync.aligned.32x32b.x{count}.b32 [at], {{{registers}}};",
    ]
    return " ".join([*lines, "tcgen05.wait::st.sync.aligned;", MEET, "}"])


def words_of(it: Instruction) -> int:
    """Registers of TENSOR_HELD, of 32 bits."""
    return sum(
        [value.dtype.lanes * value.dtype.itemsize // WORD for value in it.src[2:] if value is not None]
    )


def commit(slot: Slot) -> str:
    """TENSOR_COMMIT: operands are the mbarrier and who."""
    word = f"tcgen05.commit.{GROUP}.mbarrier::arrive::one.shared::cluster.b64"
    return f"{{ .reg .pred who; setp.ne.u32 who, {slot(1)}, 0; @who {word} [{slot(0)}]; }}"


def result(it: Instruction, slot: Slot) -> str:
    """TENSOR_RESULT: the registers, then the address and the warp."""
    held = it.dtype.lanes
    registers = ", ".join([slot(number) for number in range(held)])
    load = f"tcgen05.ld.sync.aligned.32x32b.x{held}.b32 {{{registers}}}, [at];"
    lines = [
        "{ .reg .b32 at; tcgen05.fence::after_thread_sync;",
        _at(slot(held), slot(held + 1), it.arg),
        load,
    ]
    return " ".join([*lines, "tcgen05.wait::ld.sync.aligned; }"])


def free(it: Instruction, slot: Slot) -> str:
    """TENSOR_FREE: operands are the address and whether warp 0."""
    give_back = f"@warp tcgen05.dealloc.{GROUP}.sync.aligned.b32 {slot(0)}, {it.arg};"
    return f"{{ .reg .pred warp; setp.ne.u32 warp, {slot(1)}, 0; {MEET} {give_back} }}"
