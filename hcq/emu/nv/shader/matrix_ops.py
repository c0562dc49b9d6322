"""Matrices of a warp: which thread has which element, what numbers elements are, and products of them.

In       Code; fragments as lists of registers
Out      steps
Changes  nothing but registers
Next     matrix_instructions.py (mma, ldmatrix, stmatrix, movmatrix)
Source   PTX ISA, "Matrix Fragments for mma.m16n8k4/k8/k16/k32", "ldmatrix"

A fragment is a rule that says which (row, column) the i-th element of a thread is. Here it is a pair of index arrays
(32 threads, elements), so that a fragment becomes a matrix by one scatter. Products are summed in double precision in
the order of k, C is added, and the sum rounded once. A GPU rounds in between, in ways it does not document; its
results differ in the last places. Products of doubles are fused multiply-adds, as documented, from the first column of
A to the last: that is a guess.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader import floats, spaces
from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.decode import Code, Registers, Step
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.syntax import Operand
from hcq.emu.nv.shader.types import TYPES, Lanes, Type
from hcq.emu.shader.exact_floats import fma64
from hcq.emu.shader.floats import widen_bf16
from hcq.emu.shader.small_floats import E4M3, E5M2

Combine = Callable[[Lanes, Lanes, Lanes], Lanes]  # A, B and C to what becomes D
Scales = Callable[[Registers, Group], Lanes]  # (warps, rows or columns, blocks of k)
B32 = TYPES["b32"]
_THREAD = np.arange(WARP)
_GROUP, _IN_GROUP = _THREAD >> 2, _THREAD & 3
INPUT_BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "s4": 4, "u4": 4, "b1": 1
}  # fmt: skip
MINIFLOATS = {"e4m3": E4M3, "e5m2": E5M2}


class Fragment(NamedTuple):
    """Element i of thread t is matrix[rows[t, i], columns[t, i]]."""

    rows: Lanes
    columns: Lanes


def per_register(bits: int) -> int:
    """Elements in a 32-bit register; 64-bit elements take a register of their own size."""
    return max(32 // bits, 1)


def a_fragment(rows: int, depth: int, bits: int) -> Fragment:
    """Matrix A: rows in groups of 8, columns in runs of one register."""
    run = per_register(bits)
    count = rows * depth // WARP
    i = np.arange(count)
    upper = (i // run) % (rows // 8)
    row = _GROUP[:, None] + 8 * upper[None, :]
    column = _IN_GROUP[:, None] * run + (i % run)[None, :] + (i // (run * (rows // 8)))[None, :] * 4 * run
    return Fragment(row, column)


def b_fragment(depth: int, columns: int, bits: int) -> Fragment:
    """Matrix B: what A's columns are, its rows are."""
    run = per_register(bits)
    i = np.arange(depth * columns // WARP)
    row = _IN_GROUP[:, None] * run + (i % run)[None, :] + (i // run)[None, :] * 4 * run
    return Fragment(row, np.broadcast_to(_GROUP[:, None], row.shape))


def c_fragment(rows: int, columns: int) -> Fragment:
    """The accumulator: two neighbours in a row, then 8 rows down."""
    i = np.arange(rows * columns // WARP)
    row = _GROUP[:, None] + 8 * (i // 2)[None, :]
    return Fragment(row, _IN_GROUP[:, None] * 2 + (i % 2)[None, :])


SHAPES = {
    "m16n8k4": (16, 8, 4),
    "m16n8k8": (16, 8, 8),
    "m16n8k16": (16, 8, 16),
    "m16n8k32": (16, 8, 32),
    "m8n8k4": (8, 8, 4),
    "m8n8k16": (8, 8, 16),
    "m8n8k32": (8, 8, 32),
    "m16n8k64": (16, 8, 64),
    "m8n8k128": (8, 8, 128),
    "m16n8k128": (16, 8, 128),
    "m16n8k256": (16, 8, 256),
}
DEPTHS = {
    "f16": (8, 16), "bf16": (8, 16), "tf32": (4, 8), "f64": (4, 8, 16), "s8": (16, 32), "u8": (16, 32),
    "e4m3": (16, 32), "e5m2": (16, 32), "s4": (32, 64), "u4": (32, 64), "b1": (128, 256),
}  # fmt: skip


def to_numbers(name: str) -> Callable[[Lanes], Lanes]:
    """Registers (n, r) of a fragment to doubles (n, elements)."""
    if name in ("s8", "u8"):
        octet = np.int8 if name == "s8" else np.uint8
        return lambda registers: registers.view(octet).astype(np.float64)
    if name in MINIFLOATS:
        table = MINIFLOATS[name].values.astype(np.float64)
        return lambda registers: table[registers.view(np.uint8)]
    if name == "f16":
        return lambda registers: registers.view(np.float16).astype(np.float64)
    if name == "bf16":
        return lambda registers: widen_bf16(registers.view(np.uint16)).astype(np.float64)
    if name == "tf32":
        return lambda registers: (registers & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if name == "b1":
        return lambda registers: np.unpackbits(registers.view(np.uint8), axis=1, bitorder="little").astype(
            np.float64
        )
    if name in ("s4", "u4"):
        return lambda registers: _nibbles(registers.view(np.uint8), name == "s4")
    scalar = TYPES[name].scalar
    return lambda registers: registers.view(scalar).astype(np.float64)


def _nibbles(octets: Lanes, is_signed: bool) -> Lanes:
    both = np.stack((octets & 15, octets >> 4), axis=2).reshape(len(octets), -1).astype(np.float64)
    return np.where(both > 7, both - 16, both) if is_signed else both


def from_numbers(name: str, saturates: bool) -> Callable[[Lanes], Lanes]:
    """Doubles (n, elements) to registers (n, r)."""
    if name == "f16":
        return lambda x: np.ascontiguousarray(floats.narrow_f16(x)).view(np.uint32)
    if name == "f32":
        return lambda x: x.astype(np.float32).view(np.uint32)
    if name == "f64":
        return lambda x: x.view(np.uint64)
    if saturates:
        return lambda x: np.clip(x, -(2.0**31), 2.0**31 - 1).astype(np.int64).astype(np.uint32)
    return lambda x: x.astype(np.int64).astype(np.uint32)


class Form(NamedTuple):
    """Which product an `mma` is: its sizes, the types of A, B, C and D, and how they become D."""

    sizes: tuple[int, int, int]
    kinds: tuple[str, str]
    c_type: Type
    d_type: Type
    saturates: bool
    combine: Combine


def form_of(code: Code) -> Form:
    """The words of an `mma` of dense matrices. Raises PtxError."""
    shape = code.take(*SHAPES)
    if not shape or not code.flag("row") or not code.flag("col"):
        raise code.refuse(f"supported are row.col products of {', '.join(SHAPES)}")
    saturates = code.flag("satfinite")
    d_type = code.type("f16", "f32", "f64", "s32")
    a_kind, b_kind = code.take(*INPUT_BITS), code.take(*INPUT_BITS)
    c_type = code.type("f16", "f32", "f64", "s32")
    bits = INPUT_BITS.get(a_kind, 0)
    are_alike = INPUT_BITS.get(b_kind) == bits and (a_kind in MINIFLOATS) == (b_kind in MINIFLOATS)
    if not bits or not are_alike or SHAPES[shape][2] not in DEPTHS[a_kind]:
        raise code.refuse(f"there is no {shape} product of .{a_kind} and .{b_kind}")
    if shape == "m8n8k4" and a_kind != "f64":
        raise code.refuse("m8n8k4 is for .f64 and .f16")
    combine: Combine = functools.partial(in_order, LEAST.get(a_kind, 0.0) * LEAST.get(b_kind, 0.0))
    if d_type.name == "f64":
        combine = functools.partial(fused, code.take("rn", "rz", "rm", "rp") or "rn")
    elif a_kind == "b1":
        combine = _bitwise(code)
    code.expect(4)
    return Form(SHAPES[shape], (a_kind, b_kind), c_type, d_type, saturates, combine)


# numbers of these types are multiples of so much: sums of few such products are exact in any order
LEAST = {
    "f16": 2.0**-24, "e4m3": 2.0**-9, "e5m2": 2.0**-16, "s8": 1.0, "u8": 1.0, "s4": 1.0, "u4": 1.0, "b1": 1.0
}  # fmt: skip


def in_order(least: float, x: Lanes, y: Lanes, z: Lanes) -> Lanes:
    """A * B in doubles, product after product in the order of k, and then + C.

    least  what all products are multiples of; 0 where nobody knows
    """
    depth = x.shape[2]
    if least and x.size and y.size:
        largest = max(x.max(), -x.min()) * max(y.max(), -y.min()) * depth
        if largest <= least * 2.0**53:  # any order gives the same sums
            total: Lanes = np.matmul(x, y)
            total += z
            return total
    total = np.zeros((x.shape[0], x.shape[1], y.shape[2]))
    for k in range(depth):
        total += x[:, :, k, None] * y[:, None, k, :]
    total += z
    return total


def times(x: Lanes, y: Lanes, z: Lanes) -> Lanes:
    """A * B + C in doubles."""
    return np.matmul(x, y) + z


def _bitwise(code: Code) -> Combine:
    """Products of bits: how many are set in a and b, or in one of them alone, is added to C."""
    what = code.take("and", "xor")
    if not what or not code.flag("popc"):
        raise code.refuse("products of bits are .and.popc or .xor.popc")
    if what == "and":
        return times
    return lambda x, y, z: x.sum(axis=2)[:, :, None] + y.sum(axis=1)[:, None, :] - 2 * np.matmul(x, y) + z


class Part(NamedTuple):
    """A matrix operand: the registers that hold it, what numbers they mean, and where these are in the matrix."""

    slots: list[int]
    numbers: Callable[[Lanes], Lanes]
    place: Fragment
    shape: tuple[int, int]

    def matrix(self, batch: Batch, registers: Registers) -> Lanes:
        """(warps, rows, columns) from the fragments of all threads."""
        columns = [np.broadcast_to(registers[slot], (batch.count,)) for slot in self.slots]
        elements = self.numbers(np.stack(columns, axis=1)).reshape(-1, WARP, self.place.rows.shape[1])
        found = np.zeros((len(elements), *self.shape))
        found[:, self.place.rows, self.place.columns] = elements
        return found


def part_of(
    code: Code, operand: Operand, kind: str, bits: int, place: Fragment, shape: tuple[int, int]
) -> Part:
    """The registers of a matrix with elements of this kind, as fragment_part has them."""
    holder = TYPES["b64"] if kind == "f64" else B32
    return fragment_part(code, operand, bits, to_numbers(kind), place, shape, holder)


def fragment_part(
    code: Code,
    operand: Operand,
    bits: int,
    numbers: Callable[[Lanes], Lanes],
    place: Fragment,
    shape: tuple[int, int],
    holder: Type = B32,
) -> Part:
    """A matrix operand whose elements have so many bits, and mean what `numbers` says."""
    registers = code.parts(operand, _register_count(bits, place))
    return Part([code.slot(register, holder) for register in registers], numbers, place, shape)


def product(
    code: Code,
    parts: list[Part],
    d_type: Type,
    place: Fragment,
    saturates: bool,
    combine: Combine = times,
    scales: tuple[Scales, Scales] | None = None,
) -> Step:
    """The first operand becomes what `combine` makes of the parts: A * B + C.

    scales   of the rows of A and of the columns of B, for as many blocks of k as there are
    """
    write = results(code, d_type, place, saturates)

    def step(registers: Registers, group: Group) -> None:
        x, y, z = (part.matrix(group.batch, registers) for part in parts)
        if scales is not None:
            x, y = scaled(registers, group, scales, x, y)
        write(registers, group, combine(x, y, z))

    return step


def results(
    code: Code, d_type: Type, place: Fragment, saturates: bool
) -> Callable[[Registers, Group, Lanes], None]:
    """What writes (warps, rows, columns) numbers to the first operand's fragments."""
    targets = code.parts(code.operands[0], _register_count(d_type.width, place))
    writes = [code.writer(code.destination(target, register_type(d_type))) for target in targets]
    pack = from_numbers(d_type.name, saturates)

    def write_all(registers: Registers, group: Group, found: Lanes) -> None:
        chosen = np.ascontiguousarray(found[:, place.rows, place.columns])
        packed = pack(chosen.reshape(group.batch.count, -1))
        for i, write in enumerate(writes):
            write(registers, group, np.ascontiguousarray(packed[:, i]))

    return write_all


def scaled(
    registers: Registers, group: Group, scales: tuple[Scales, Scales], x: Lanes, y: Lanes
) -> tuple[Lanes, Lanes]:
    """A and B times the scales of their blocks of k."""
    of_x, of_y = (read(registers, group) for read in scales)
    repeats = x.shape[2] // of_x.shape[2]
    return x * np.repeat(of_x, repeats, axis=2), y * np.repeat(of_y, repeats, axis=2).transpose(0, 2, 1)


def fused(mode: str, x: Lanes, y: Lanes, z: Lanes) -> Lanes:
    """Products of doubles are those of fma, one after the other along the shared axis."""
    for k in range(x.shape[2]):
        a, b = np.broadcast_arrays(x[:, :, k, None], y[:, None, k, :])
        if mode == "rn":
            z = fma64(a, b, z)
        else:
            z = floats.each_exactly("fma", mode, a.ravel(), b.ravel(), z.ravel()).reshape(z.shape)
    return z


def register_type(type_: Type) -> Type:
    """The type of the registers that hold a fragment of these elements."""
    return TYPES["b64"] if type_.name == "f64" else B32


def _register_count(bits: int, place: Fragment) -> int:
    return int(place.rows.shape[1]) // per_register(bits)


# -- 8x8 matrices of halfwords between shared memory and registers


def moves(code: Code) -> tuple[int, bool]:
    """The words of `ldmatrix` and `stmatrix`: how many matrices, and whether they are transposed."""
    code.flag("sync"), code.flag("aligned")
    if not code.flag("m8n8"):
        raise code.refuse("expected .m8n8 with .b16")
    count = int(code.take("x1", "x2", "x4")[1:] or 1)
    transposes = code.flag("trans")
    code.take("shared", "shared::cta")
    code.type("b16")
    code.expect(2)
    return count, transposes


def row_addresses(batch: Batch, at: Lanes, number: int) -> tuple[Lanes, Lanes]:
    """The threads that name the rows of matrix `number`, and their addresses, for all warps: (warps * 8,)"""
    threads = (np.arange(0, batch.count, WARP)[:, None] + 8 * number + np.arange(8)[None, :]).reshape(-1)
    return threads, np.broadcast_to(at, (batch.count,))[threads]


def only_live(batch: Batch, group: Group, threads: Lanes) -> Lanes:
    """Which of these threads execute; rows of warps that do not are left alone."""
    if group.mask is None:
        return np.ones(len(threads), bool)
    return group.mask[threads]


def shared_address(batch: Batch, at: Lanes) -> Lanes:
    """Without .shared the address is generic."""
    return spaces.shared_address(batch, at)
