"""wmma: the matrix instructions behind nvcuda::wmma, with fragments in a layout of our own.

In       Code; fragments as lists of registers
Out      steps
Changes  memory (wmma.store)
Next     matrix_ops.py (mma.sync, whose layouts are documented)
Source   PTX ISA, "wmma.load", "wmma.store", "wmma.mma": which element a thread holds is unspecified

Our layout: the elements of a fragment, thread after thread, are the matrix row by row; where a fragment has more room
than the matrix has elements, they repeat.
"""

from __future__ import annotations

import functools

import numpy as np

from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.matrix_ops import (
    Fragment,
    Part,
    fused,
    per_register,
    product,
    register_type,
    times,
    to_numbers,
)
from hcq.emu.nv.shader.memory_ops import address_of, check_alignment, take_space
from hcq.emu.nv.shader.syntax import Operand, Vector
from hcq.emu.nv.shader.types import TYPES, Lanes, Type

RULES = Rules()
SHAPES = {
    "m16n16k16": (16, 16, 16),
    "m32n8k16": (32, 8, 16),
    "m8n32k16": (8, 32, 16),
    "m16n16k8": (16, 16, 8),
    "m8n8k4": (8, 8, 4),
}
PIECE_BYTES, PIECES_AT_ONCE = 16, 8
ELEMENTS = ("f16", "bf16", "tf32", "f32", "f64", "s8", "u8", "s32")


def fragment(rows: int, columns: int, count: int) -> Fragment:
    """The fragment of a matrix in `count` elements per thread."""
    index = (np.arange(WARP)[:, None] * count + np.arange(count)[None, :]) % (rows * columns)
    return Fragment(index // columns, index % columns)


def _slots(code: Code, operand: Operand, type_: Type) -> list[int]:
    parts = operand.parts if isinstance(operand, Vector) else (operand,)
    return [code.slot(part, register_type(type_)) for part in parts]


def _elements(type_: Type) -> int:
    return per_register(8 * type_.size_bytes)


@RULES.on("wmma")
def wmma(code: Code) -> Step:
    """`wmma.load`, `wmma.store`, `wmma.mma`."""
    what = code.take("load", "store", "mma")
    code.flag("sync"), code.flag("aligned")
    if not what:
        raise code.refuse("expected wmma.load, wmma.store or wmma.mma")
    return {"load": _load, "store": _store, "mma": _mma}[what](code)


def _shape(code: Code) -> tuple[int, int, int]:
    shape = code.take(*SHAPES)
    if not shape:
        raise code.refuse(f"supported shapes are {', '.join(SHAPES)}")
    return SHAPES[shape]


def _sizes(code: Code, which: str, shape: tuple[int, int, int]) -> tuple[int, int]:
    m, n, k = shape
    return {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[which]


class MatrixAccess:
    """What wmma.load and wmma.store have in common: addresses of all elements of all threads."""

    def __init__(self, code: Code, address: Operand, registers: Operand) -> None:
        which = code.take("a", "b", "c", "d")
        self.by_column = code.take("row", "col") == "col"
        self.sizes = _sizes(code, which, _shape(code))
        self.space = take_space(code)
        self.where = spaces.BY_NAME[self.space]
        self.type = code.type(*ELEMENTS)
        self.at_of = address_of(code, address)
        self.parts = registers.parts if isinstance(registers, Vector) else (registers,)
        self.count = len(self.parts) * _elements(self.type)
        self.place = fragment(*self.sizes, self.count)
        self.stride = code.source(len(code.operands) - 1, TYPES["u32"]) if len(code.operands) == 3 else None

    def addresses(self, registers: Registers, group: Group) -> tuple[Lanes, Lanes]:
        """(threads, addresses), one pair for every element of every executing thread."""
        batch = group.batch
        lanes = batch.every_lane if group.lanes is None else group.lanes
        rows, columns = self.place.rows[lanes % WARP], self.place.columns[lanes % WARP]
        major, minor = (columns, rows) if self.by_column else (rows, columns)
        base, stride = self._starts(registers, lanes, batch)
        offsets = (major * stride + minor) * self.type.size_bytes
        at = base + offsets.astype(np.uint64)
        return np.repeat(lanes, self.count), at.reshape(-1)

    def _starts(self, registers: Registers, lanes: Lanes, batch: Batch) -> tuple[Lanes, Lanes]:
        """(address of the matrix, elements from one line to the next) of each of these threads, as columns."""
        default = np.full(1, self.sizes[0] if self.by_column else self.sizes[1])
        stride = default if self.stride is None else registers[self.stride].astype(np.int64)
        at = np.broadcast_to(self.at_of(registers), (batch.count,))
        return at[lanes][:, None], np.broadcast_to(stride, (batch.count,))[lanes][:, None]

    def pieces(self, registers: Registers, group: Group) -> Lanes:
        """(n, lines up to 8) addresses: 16 bytes of so many lines of a warp's matrix, as ldmatrix would read them."""
        batch = group.batch
        lanes = batch.every_lane if group.lanes is None else group.lanes
        base, stride = self._starts(registers, lanes[::WARP], batch)
        lines, length = self.sizes[::-1] if self.by_column else self.sizes
        line, at_once = np.arange(lines), min(PIECES_AT_ONCE, lines)
        starts = base + (line[None, :] * stride * self.type.size_bytes).astype(np.uint64)
        steps = PIECE_BYTES * np.arange(max(1, length * self.type.size_bytes // PIECE_BYTES), dtype=np.uint64)
        return (starts[:, None, :] + steps[None, :, None]).reshape(-1, at_once)


def _load(code: Code) -> Step:
    code.expect(2, 3)
    access = MatrixAccess(code, code.operands[1], code.operands[0])
    part = register_type(access.type)
    writes = [code.writer(code.destination(operand, part)) for operand in access.parts]
    instruction, bits = code.instruction, access.type.bits

    def step(registers: Registers, group: Group) -> None:
        lanes, at = access.addresses(registers, group)
        try:
            check_alignment(at, access.type.size_bytes)
            values = access.where.load(group.batch, lanes, at, bits, 1)
        except BadAccess as bad:
            raise group.fault(bad, instruction, "load of a matrix element", lanes) from None
        packed = values.reshape(-1, access.count).view(part.bits)
        for i, write in enumerate(writes):
            value = np.zeros(group.batch.count, part.bits)
            value[slice(None) if group.lanes is None else group.lanes] = packed[:, i]
            write(registers, group, value)

    return step


def _store(code: Code) -> Step:
    code.expect(2, 3)
    access = MatrixAccess(code, code.operands[0], code.operands[1])
    slots = _slots(code, code.operands[1], access.type)
    instruction, bits = code.instruction, access.type.bits

    def step(registers: Registers, group: Group) -> None:
        lanes, at = access.addresses(registers, group)
        columns = [np.broadcast_to(registers[slot], (group.batch.count,)) for slot in slots]
        values = np.stack(columns, axis=1)
        if group.lanes is not None:
            values = values[group.lanes]
        try:
            check_alignment(at, access.type.size_bytes)
            access.where.store(group.batch, lanes, at, np.ascontiguousarray(values).view(bits).reshape(-1))
        except BadAccess as bad:
            raise group.fault(bad, instruction, "store of a matrix element", lanes) from None

    return step


def _mma(code: Code) -> Step:
    """D = A * B + C; f16 products name only the types of D and C."""
    code.take("row", "col"), code.take("row", "col")  # how A and B lay in memory: our fragments are the same
    m, n, k = _shape(code)
    saturates = code.flag("satfinite")
    types = [code.type(*ELEMENTS)]
    while any(name in TYPES for name in code.rest):
        types.append(code.type(*ELEMENTS))
    if len(types) == 2:
        d_type, a_type, b_type, c_type = types[0], TYPES["f16"], TYPES["f16"], types[1]
    elif len(types) == 4:
        d_type, a_type, b_type, c_type = types
    else:
        raise code.refuse(f"{len(types)} types, not 2 or 4")
    code.expect(4)
    mode = code.take("rn", "rz", "rm", "rp")
    if mode and d_type.name != "f64":
        raise code.refuse(f"products that end in .{d_type.name} take no rounding")
    parts = []
    for operand, type_, sizes in zip(code.operands[1:], (a_type, b_type, c_type), ((m, k), (k, n), (m, n))):
        slots = _slots(code, operand, type_)
        place = fragment(*sizes, len(slots) * _elements(type_))
        parts.append(Part(slots, to_numbers(type_.name), place, sizes))
    combine = functools.partial(fused, mode or "rn") if d_type.name == "f64" else times
    return product(code, parts, d_type, fragment(m, n, m * n // WARP), saturates, combine)
