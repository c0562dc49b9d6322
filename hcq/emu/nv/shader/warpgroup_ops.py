"""Matrix products of a warpgroup, four warps: wgmma.mma_async and what orders it; setmaxnreg.

In       Code; matrix descriptors of shared memory, fragments as lists of registers
Out      steps
Changes  nothing but registers
Next     shared_matrix.py (descriptors), matrix_ops.py (fragments and numbers), machine.py (four warps must meet here)
Source   PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": "Register Fragments", "wgmma.mma_async",
         "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group"; "setmaxnreg"

A product is done at once: the fence, the groups and the waits are claimed and change nothing, because ptxas, too, makes
a kernel right that touches accumulators early (it waits in between, and warns). It is computed in double precision and
rounded once; a GPU's last places differ, those of 8-bit floats most, whose sums have fewer bits there.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader import async_races, shared_matrix, sparse_matrix_ops
from hcq.emu.nv.shader.batch import WARP, WARPGROUP, Batch
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.errors import BadAccess, KernelFault
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.matrix_ops import LEAST, Fragment, a_fragment, from_numbers, in_order, to_numbers
from hcq.emu.nv.shader.syntax import Immediate, Instruction, Operand, Vector
from hcq.emu.nv.shader.types import TYPES, Lanes

RULES = Rules()
ZERO = np.zeros(1)
B32, U64 = TYPES["b32"], TYPES["u64"]
ROWS = 64
WARPS = WARPGROUP // WARP
SHAPE = re.compile(r"m64n(\d+)k(\d+)")
INPUT_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "b1": 1}
RESULTS = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "e4m3": ("f16", "f32"), "e5m2": ("f16", "f32"),
    "s8": ("s32",), "u8": ("s32",), "b1": ("s32",),
}  # fmt: skip
ALIKE = ({"f16"}, {"bf16"}, {"tf32"}, {"e4m3", "e5m2"}, {"s8", "u8"}, {"b1"})
MAX_COLUMNS = 256
A_REGISTERS = 4
REGISTER_COUNTS = range(24, 257, 8)  # of setmaxnreg
_PENDING_MAX = 7


@RULES.on("wgmma")
def wgmma(code: Code) -> Step:
    """`wgmma.mma_async`; `wgmma.fence`, `.commit_group` and `.wait_group`, which have nothing to wait for."""
    what = code.take("mma_async", "fence", "commit_group", "wait_group")
    if not what:
        raise code.refuse("expected wgmma.mma_async, .fence, .commit_group or .wait_group")
    if not (code.flag("sync") and code.flag("aligned")):
        raise code.refuse(f"wgmma.{what} needs .sync.aligned")
    if what == "mma_async":
        return _product(code)
    code.expect(1 if what == "wait_group" else 0)
    if what == "wait_group":
        pending = code.operands[0]
        if not isinstance(pending, Immediate) or not 0 <= pending.value <= _PENDING_MAX:
            raise code.refuse(f"the groups that may be pending are a number from 0 to {_PENDING_MAX}")
    return lambda registers, group: None


Metadata = Callable[[Registers, Group, Lanes, Lanes], "tuple[Lanes, Lanes]"]


class Form(NamedTuple):
    """Which product a `wgmma.mma_async` is.

    stored   the depth that A has in memory or registers: a half where it is sparse, with `metadata`
    sign     of A * B
    turned   whether A and B, where they are in shared memory, have rows contiguous rather than the depth
    """

    columns: int
    depth: int
    stored: int
    kinds: tuple[str, str]
    result: str
    saturates: bool
    in_registers: bool
    sign: int
    turned: tuple[bool, bool]
    metadata: Metadata | None


def form_of(code: Code) -> Form:
    """The words of a `wgmma.mma_async`, behind its name. Raises PtxError."""
    is_sparse = code.flag("sp")
    shape = next((found for found in map(SHAPE.fullmatch, code.rest) if found), None)
    if shape is None:
        raise code.refuse("the shape is m64nNkK")
    code.flag(shape[0])
    columns, depth = int(shape[1]), int(shape[2])
    saturates = code.flag("satfinite")
    result = code.type("f16", "f32", "s32").name
    kinds = code.take(*INPUT_BITS), code.take(*INPUT_BITS)
    if not all(kinds):
        raise code.refuse(f"the matrices' types are two of {', '.join(INPUT_BITS)}")
    stored = depth // 2 if is_sparse else depth  # of A
    _check_types(code, result, kinds, columns, stored)
    if kinds[0] == "b1" and (is_sparse or not code.flag("and") or not code.flag("popc")):
        raise code.refuse("products of bits are dense, with .and.popc")
    metadata = _metadata(code, kinds[0], depth) if is_sparse else None
    is_integer = result == "s32"
    if len(code.operands) < 4:
        raise code.refuse("expected accumulators, two matrices and whether to accumulate")
    in_registers = isinstance(code.operands[1], Vector)
    can_transpose = INPUT_BITS[kinds[0]] == 16
    # scale-d; two signs for floats; what of the matrices in shared memory is transposed, for elements of two bytes
    flags = 1 + 2 * (not is_integer) + can_transpose * (1 if in_registers else 2)
    code.expect(3 + flags)
    signs = (1, 1) if is_integer else tuple(_flag(code, code.operands[4 + i], (1, -1)) for i in range(2))
    turned = (
        [bool(_flag(code, operand, (0, 1))) for operand in code.operands[6:]]
        if can_transpose
        else [False] * 2
    )
    of_a = not in_registers and turned[0]
    sign = signs[0] * signs[1]
    return Form(
        columns,
        depth,
        stored,
        kinds,
        result,
        saturates and is_integer,
        in_registers,
        sign,
        (of_a, turned[-1]),
        metadata,
    )


def _product(code: Code) -> Step:
    form = form_of(code)
    columns, kinds, metadata = form.columns, form.kinds, form.metadata
    b_bytes = shared_matrix.DEPTH_BYTES * form.depth // form.stored
    b_matrix = _in_shared(code, code.operands[2], columns, kinds[1], form.turned[1], b_bytes)
    if form.in_registers:
        a_matrix = _in_registers(code, code.operands[1], kinds[0], form.stored)
    else:
        a_matrix = _in_shared(code, code.operands[1], ROWS, kinds[0], form.turned[0])
    accumulates = code.predicate(code.operands[3])
    accumulator = _accumulator(code, form.result, columns, form.saturates)
    sign, least = form.sign, LEAST.get(kinds[0], 0.0) * LEAST.get(kinds[1], 0.0)
    instruction = code.instruction

    def step(registers: Registers, group: Group) -> None:
        threads = _warpgroups(group, instruction)
        leaders = threads[::WARPGROUP]
        x = a_matrix(registers, group, threads)
        y = b_matrix(registers, group, threads)
        y = y.transpose(0, 2, 1)
        if metadata is None:
            found = in_order(least, x, y, ZERO)
        else:
            found = sparse_matrix_ops.total(least, *metadata(registers, group, threads, x), y, ZERO)
        if sign < 0:
            found = -found
        adds = of_threads(accumulates(registers), leaders, group.batch)
        if adds.all():
            found += accumulator.read(registers, threads, group.batch)
        elif adds.any():
            found = np.where(
                adds[:, None, None], found + accumulator.read(registers, threads, group.batch), found
            )
        accumulator.write(registers, group, threads, found)

    return step


def _metadata(code: Code, kind: str, depth: int) -> Metadata:
    """What makes A whole: the operands behind B are metadata and selector, as of mma.sp in each warp."""
    if len(code.operands) < 6:
        raise code.refuse(
            "expected accumulators, two matrices, metadata, their selector and whether to accumulate"
        )
    slot, selector = code.slot(code.operands[3], B32), sparse_matrix_ops.selector_of(code, code.operands[4])
    del code.operands[3:5]
    kept = sparse_matrix_ops.storage(INPUT_BITS[kind], depth, selector, False)
    if kept is None:
        raise code.refuse(f"no threads have the metadata of this product with the selector {selector}")

    def of(registers: Registers, group: Group, threads: Lanes, stored: Lanes) -> tuple[Lanes, Lanes]:
        words = of_threads(registers[slot], threads, group.batch).reshape(-1, WARP)
        codes = sparse_matrix_ops.chunks_of(words, kept)
        runs = np.ones(len(codes), bool)
        sparse_matrix_ops.check(code, group, codes, kept, threads[::WARP], runs)
        return sparse_matrix_ops.whole(stored, codes.reshape(len(stored), ROWS, -1), kept.unit)

    return of


def _check_types(code: Code, result: str, kinds: tuple[str, ...], columns: int, depth: int) -> None:
    bits = INPUT_BITS[kinds[0]]
    if not any(alike.issuperset(kinds) for alike in ALIKE) or result not in RESULTS[kinds[0]]:
        raise code.refuse(f"there is no product of .{kinds[0]} and .{kinds[1]} with a result of .{result}")
    if depth * bits != 8 * shared_matrix.DEPTH_BYTES:
        whole = 8 * shared_matrix.DEPTH_BYTES // bits
        raise code.refuse(f"products of .{kinds[0]} have k{whole}, sparse ones k{2 * whole}")
    is_even = columns % 16 == 0 or columns in (8, 24) or result != "s32"
    if columns % 8 or not 8 <= columns <= MAX_COLUMNS or not is_even:
        raise code.refuse(f"there is no product with {columns} columns")


def _flag(code: Code, operand: Operand, allowed: tuple[int, int]) -> int:
    if not isinstance(operand, Immediate) or operand.value not in allowed:
        raise code.refuse(f"a sign or a transposition is the number {allowed[0]} or {allowed[1]}")
    return operand.value


def _warpgroups(group: Group, instruction: Instruction) -> Lanes:
    """The threads that execute, in whole warpgroups."""
    batch = group.batch
    threads = batch.every_lane if group.mask is None else np.flatnonzero(group.mask)
    count = len(threads)
    places = batch.thread_of_lane[threads[::WARPGROUP]]
    if count % WARPGROUP or (places % WARPGROUP).any() or not _follow_each_other(threads):
        block, thread = group.first()
        raise KernelFault(
            f"kernel {batch.launch.kernel_name}, PTX line {instruction.line} `{instruction}`: not all four warps "
            f"of the warpgroup of thread {thread} of block {block} execute it. Let whole warpgroups, from a thread "
            f"whose number is a multiple of {WARPGROUP} on, come here together.",
            instruction.line,
            [(block, thread)],
        )
    return threads


def _follow_each_other(threads: Lanes) -> bool:
    rows = threads.reshape(-1, WARPGROUP)
    return bool((rows[:, -1] - rows[:, 0] == WARPGROUP - 1).all())


def of_threads(values: Lanes, threads: Lanes, batch: Batch) -> Lanes:
    """One value for each of these threads."""
    return np.broadcast_to(values, (batch.count,))[threads]


Matrix = Callable[
    [Registers, Group, Lanes], Lanes
]  # (registers, group, threads) -> (warpgroups, rows, depth)


def _in_shared(
    code: Code,
    operand: Operand,
    rows: int,
    kind: str,
    is_transposed: bool,
    depth_bytes: int = shared_matrix.DEPTH_BYTES,
) -> Matrix:
    slot = code.slot(operand, U64)
    numbers, instruction = to_numbers(kind), code.instruction
    is_first = operand is code.operands[1]

    def told(batch: Batch, threads: Lanes) -> Callable[[Lanes], None] | None:
        if batch.races is None and batch.waits is None:
            return None
        return lambda at: async_races.multiplied(batch, threads, instruction.line, at, is_first)

    def read(registers: Registers, group: Group, threads: Lanes) -> Lanes:
        batch, leaders = group.batch, threads[::WARPGROUP]
        bits = of_threads(registers[slot], threads, batch).reshape(-1, WARPGROUP)
        why = "" if (bits == bits[:, :1]).all() else "the threads of a warpgroup give different ones"
        matrix = None
        if not why:
            matrix, why = shared_matrix.read(bits[:, 0])
        if matrix is None:
            block, thread = batch.place(int(leaders[0]))
            raise KernelFault(
                f"kernel {batch.launch.kernel_name}, PTX line {instruction.line} `{instruction}`: the matrix "
                f"descriptor {int(bits[0, 0]):#x} by thread {thread} of block {block}: {why}.",
                instruction.line,
                [(block, thread)],
            )
        try:
            return shared_matrix.load(
                batch, leaders, matrix, rows, numbers, is_transposed, depth_bytes, told(batch, threads)
            )
        except BadAccess as bad:
            raise group.fault(bad, instruction, "load of a matrix", leaders) from None

    return read


def _in_registers(code: Code, operand: Operand, kind: str, depth: int) -> Matrix:
    """Matrix A as the fragments of mma.m16n8, 16 rows of each warp."""
    slots = [code.slot(register, B32) for register in code.parts(operand, A_REGISTERS)]
    place: Fragment = a_fragment(ROWS // WARPS, depth, INPUT_BITS[kind])
    numbers = to_numbers(kind)

    def read(registers: Registers, group: Group, threads: Lanes) -> Lanes:
        columns = [of_threads(registers[slot], threads, group.batch) for slot in slots]
        elements = numbers(np.stack(columns, axis=1)).reshape(-1, WARP, place.rows.shape[1])
        found = np.zeros((len(elements), ROWS // WARPS, depth))
        found[:, place.rows, place.columns] = elements
        return found.reshape(-1, ROWS, depth)

    return read


class _Accumulator:
    """D: 64 rows, 16 of each warp. A thread has pairs: two columns of a row, then 8 rows down, then 8 columns on."""

    def __init__(self, code: Code, kind: str, columns: int, saturates: bool) -> None:
        self.columns, self.kind = columns, kind
        # the registers that the last product of these accumulators wrote, and its matrix
        self.known: tuple[list[Lanes], Lanes] | None = None
        targets = code.parts(code.operands[0], columns // (4 if kind == "f16" else 2))
        self.slots = [code.destination(target, B32) for target in targets]
        self.writes = [code.writer(slot) for slot in self.slots]
        self.numbers = _integers if kind == "s32" else to_numbers(kind)
        self.pack = from_numbers(kind, saturates)

    def read(self, registers: Registers, threads: Lanes, batch: Batch) -> Lanes:
        """(warpgroups, 64, columns) numbers."""
        known = self.known
        if known is not None and all(map(operator.is_, known[0], map(registers.__getitem__, self.slots))):
            return known[1].astype(np.float64)  # nobody has touched what the last product left
        words = np.stack([of_threads(registers[slot], threads, batch) for slot in self.slots], axis=1)
        pairs = self.numbers(words).reshape(-1, WARPS, 8, 4, self.columns // 8, 2, 2)
        return pairs.transpose(0, 1, 5, 2, 4, 3, 6).reshape(-1, ROWS, self.columns)

    def write(self, registers: Registers, group: Group, threads: Lanes, found: Lanes) -> None:
        """The opposite."""
        self.known = None
        if self.kind == "f32" and len(threads) == group.batch.count:
            matrix = found.astype(np.float32)
            tiles = matrix.reshape(-1, WARPS, 2, 8, self.columns // 8, 4, 2).transpose(4, 2, 6, 0, 1, 3, 5)
            rows = list(np.ascontiguousarray(tiles).reshape(len(self.slots), -1).view(np.uint32))
            for value, write in zip(rows, self.writes):
                write(registers, group, value)
            if all(map(operator.is_, rows, map(registers.__getitem__, self.slots))):
                self.known = rows, matrix
            return
        tiles = found.reshape(-1, WARPS, 2, 8, self.columns // 8, 4, 2).transpose(0, 1, 3, 5, 4, 2, 6)
        words = self.pack(np.ascontiguousarray(tiles).reshape(len(threads), -1))
        count = group.batch.count
        for i, write in enumerate(self.writes):
            value = np.ascontiguousarray(words[:, i])
            if len(threads) < count:
                everywhere = np.zeros(count, value.dtype)
                everywhere[threads] = value
                value = everywhere
            write(registers, group, value)


def _accumulator(code: Code, kind: str, columns: int, saturates: bool) -> _Accumulator:
    """Products of the same registers have one in common."""
    made = _Accumulator(code, kind, columns, saturates)
    known: dict[tuple[str, tuple[int, ...]], _Accumulator] = code.lowering.accumulators
    return known.setdefault((kind, tuple(made.slots)), made)


def _integers(registers: Lanes) -> Lanes:
    return registers.view(np.int32).astype(np.float64)


@RULES.on("setmaxnreg")
def set_registers(code: Code) -> Step:
    """`setmaxnreg`: a warpgroup takes or gives registers, of which there are always enough here."""
    if not code.take("inc", "dec"):
        raise code.refuse("setmaxnreg needs .inc or .dec")
    code.flag("sync"), code.flag("aligned")
    code.type("u32")
    code.expect(1)
    count = code.operands[0]
    if not isinstance(count, Immediate) or count.value not in REGISTER_COUNTS:
        raise code.refuse("the number of registers is a multiple of 8 from 24 to 256")
    return lambda registers, group: None
