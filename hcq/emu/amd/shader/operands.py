"""Operands: how the codes in an instruction's fields become arrays to read and places to write.

In       a Context (instruction, instruction set, mode) and a source code or register number
Out      readers Batch -> array, broadcastable to (wave, lane), and writers (Batch, array) that obey EXEC
Changes  registers, when a writer is called
Next     vector_ops.py and scalar_ops.py (compile instructions from these), waves.py (the arrays)

A kind is a type name: u32 i32 f32, u64 i64 f64, u16 i16 f16. Everything that can be decided from the instruction is
decided here once; what is returned runs for every execution of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array, unpack_lanes
from hcq.emu.amd.shader.errors import IllegalOperation
from hcq.emu.amd.shader.isa import Instruction, Isa
from hcq.emu.amd.shader.waves import EXEC, VCC, Batch

Reader = Callable[[Batch], Array]
Writer = Callable[[Batch, Array], None]
Step = Callable[[Batch], None]

TYPES: dict[str, Any] = {
    "u8": np.uint8,
    "u16": np.uint16,
    "i16": np.int16,
    "f16": np.float16,
    "u32": np.uint32,
    "i32": np.int32,
    "f32": np.float32,
    "u64": np.uint64,
    "i64": np.int64,
    "f64": np.float64,
}
FLOAT_CONSTANTS = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.15915494309189532)
SHARED_BASE, SHARED_LIMIT, PRIVATE_BASE, PRIVATE_LIMIT = 235, 236, 237, 238
VCCZ, EXECZ, SCC = 251, 252, 253

# where LDS and scratch appear in a flat address: the high word, as the emulated hardware reports it
SHARED_APERTURE, PRIVATE_APERTURE = 0x00010000, 0x00020000


@dataclass(frozen=True)
class Mode:
    """The MODE register's float part."""

    bits: int

    @property
    def round32(self) -> int:
        """How float32 is rounded."""
        return self.bits & 3

    @property
    def round64(self) -> int:
        """How float64 and float16 are rounded."""
        return (self.bits >> 2) & 3

    @property
    def flush32(self) -> int:
        """1 sources, 2 results."""
        return 3 & ~(self.bits >> 4)

    @property
    def flush64(self) -> int:
        """Which subnormals of float64 and float16 are zeros: 1 inputs, 2 results."""
        return 3 & ~(self.bits >> 6)

    @property
    def dx10_clamp(self) -> bool:
        """Whether clamping makes zero of a NaN."""
        return bool(self.bits >> 8 & 1)

    @property
    def ieee(self) -> bool:
        """Whether minimum and maximum treat NaNs as IEEE 754 says."""
        return bool(self.bits >> 9 & 1)

    def rounding(self, kind: str) -> int:
        """How a type is rounded."""
        return self.round32 if kind == "f32" else self.round64

    def flush(self, kind: str) -> int:
        """Which subnormals of a type are zeros: 1 inputs, 2 results."""
        return self.flush32 if kind == "f32" else self.flush64


@dataclass(frozen=True)
class Context:
    """What is known when an instruction is compiled."""

    isa: Isa
    inst: Instruction
    mode: Mode
    wave_size: int
    acc_offset: int

    @property
    def is_gfx9(self) -> bool:
        """Whether it is one of the CDNA generations."""
        return self.isa.is_gfx9

    @property
    def is_gfx12(self) -> bool:
        """Whether it is RDNA4."""
        return self.isa.generation == 12

    @property
    def offset(self) -> int:
        """The signed offset of a memory instruction."""
        width = 24 if self.is_gfx12 else 21 if self.inst.format == "SMEM" else self.isa.flat_offset_bits
        top = 1 << width - 1
        return (self.inst.fields["offset"] ^ top) - top

    @property
    def null(self) -> int:
        """The code of the null register; -1 where there is none."""
        return self.isa.null

    @property
    def m0(self) -> int:
        """The code of M0."""
        return self.isa.m0

    def refuse(self, why: str = "this emulator does not execute it") -> IllegalOperation:
        """The error for this instruction."""
        return IllegalOperation(self.inst.pc, f"{self.inst.name}: {why}")


def width_of(kind: str) -> int:
    """The bits of a type: "f32" -> 32."""
    return int(kind[1:])


def inline_constant(code: int, kind: str) -> Any:
    """The bits that inline constant `code` has in an operand of this kind, as a NumPy scalar of it, or None."""
    dtype = TYPES[kind]
    unsigned = TYPES[f"u{width_of(kind)}"]
    if 128 <= code <= 208:
        number = code - 128 if code <= 192 else 192 - code
        return np.array(number, np.int64).astype(unsigned).view(dtype)
    if 240 <= code <= 248:
        floating = {16: np.float16, 32: np.float32, 64: np.float64}[width_of(kind)]
        return np.array(FLOAT_CONSTANTS[code - 240], floating).view(dtype)
    return None


def literal_constant(literal: int, kind: str) -> Any:
    """A 32-bit literal in a 64-bit operand: the high half of a float64, else extended by the type's sign."""
    if kind == "f64":
        return np.array(literal << 32, np.uint64).view(np.float64)
    if kind == "i64":
        return np.array(literal, np.uint32).view(np.int32).astype(np.int64)
    unsigned = TYPES[f"u{width_of(kind)}"]
    return np.array(literal & ((1 << width_of(kind)) - 1), unsigned).view(TYPES[kind])


def constant(value: Any) -> Reader:
    """A reader that gives one value for all waves and lanes."""
    held = np.asarray(value).reshape(1, 1)
    return lambda b: held


def aperture(code: int) -> int:
    """What a source code for an aperture's base or limit reads as."""
    return {
        SHARED_BASE: SHARED_APERTURE,
        SHARED_LIMIT: SHARED_APERTURE,
        PRIVATE_BASE: PRIVATE_APERTURE,
        PRIVATE_LIMIT: PRIVATE_APERTURE,
    }[code]


def scalar64(ctx: Context, code: int) -> Callable[[Batch], Array]:
    """A 64-bit scalar source as (wave,) uint64."""
    inst = ctx.inst
    if code == ctx.null:
        return lambda b: np.zeros(b.waves, np.uint64)
    if code < 128:
        if code % 2 == 0:
            return lambda b: b.scalar_pair(code)
        return lambda b: (
            b.scalar(code).astype(np.uint64) | (b.scalar(code + 1).astype(np.uint64) << np.uint64(32))
        )
    if code == 255:
        value = literal_constant(inst.literal or 0, "u64")
        return lambda b: np.full(b.waves, value, np.uint64)
    if SHARED_BASE <= code <= PRIVATE_LIMIT:
        base = np.uint64(aperture(code) << 32 | (0xFFFFFFFF if code in (SHARED_LIMIT, PRIVATE_LIMIT) else 0))
        return lambda b: np.full(b.waves, base, np.uint64)
    if code in (VCCZ, EXECZ, SCC):
        narrow = scalar32(ctx, code)
        return lambda b: narrow(b).astype(np.uint64)
    value = inline_constant(code, "u64")
    if value is None:
        raise ctx.refuse(f"source code {code} names nothing")
    return lambda b: np.full(b.waves, value, np.uint64)


def scalar32(ctx: Context, code: int) -> Callable[[Batch], Array]:
    """A 32-bit scalar source as (wave,) uint32."""
    if code == ctx.null:
        return lambda b: np.zeros(b.waves, np.uint32)
    if code < 128:
        return lambda b: b.scalar(code)
    if code == 255:
        literal = np.uint32(ctx.inst.literal or 0)
        return lambda b: np.full(b.waves, literal, np.uint32)
    if SHARED_BASE <= code <= PRIVATE_LIMIT:
        # as a 32-bit source an aperture is the low word of its address: read as a pair to get the base
        low = np.uint32(0xFFFFFFFF if code in (SHARED_LIMIT, PRIVATE_LIMIT) else 0)
        return lambda b: np.full(b.waves, low, np.uint32)
    if code == SCC:
        return lambda b: b.scc.astype(np.uint32)
    if code in (VCCZ, EXECZ):
        first = VCC if code == VCCZ else EXEC
        return lambda b: (~b.any_bit(first)).astype(np.uint32)
    value = inline_constant(code, "u32")
    if value is None:
        raise ctx.refuse(f"source code {code} names nothing")
    return lambda b: np.full(b.waves, value, np.uint32)


def vector_pair(register: int, dtype: Any) -> Reader:
    """Two consecutive VGPRs as one 64-bit number per lane."""
    return lambda b: b.pair(register, dtype)


def vector_source(kind: str, register: int, half: int = 0) -> Reader:
    """A VGPR, its low or high half, or a pair of them."""
    if width_of(kind) == 64:
        return vector_pair(register, TYPES[kind])
    if width_of(kind) == 16:
        if kind == "u16":
            return lambda b: b.u16[register, :, :, half]
        if kind == "i16":
            return lambda b: b.i16[register, :, :, half]
        return lambda b: b.f16[register, :, :, half]
    if kind == "u32":
        return lambda b: b.u32[register]
    if kind == "i32":
        return lambda b: b.i32[register]
    return lambda b: b.f32[register]


def source(ctx: Context, code: int, kind: str, half: int = 0) -> Reader:
    """A source operand of a vector instruction: register, scalar or constant, before modifiers."""
    if code >= 256:
        return vector_source(kind, code - 256, half)
    dtype = TYPES[kind]
    if 128 <= code and code not in (VCCZ, EXECZ, SCC) and not SHARED_BASE <= code <= PRIVATE_LIMIT:
        value = literal_constant(ctx.inst.literal or 0, kind) if code == 255 else inline_constant(code, kind)
        if value is None:
            raise ctx.refuse(f"source code {code} names nothing")
        return constant(value)
    if width_of(kind) == 64:
        wide = scalar64(ctx, code)
        return lambda b: wide(b)[:, None].view(dtype)
    word = scalar32(ctx, code)
    if width_of(kind) == 16:
        shift = np.uint32(16 * half)
        return lambda b: (word(b)[:, None] >> shift).astype(np.uint16).view(dtype)
    return lambda b: word(b)[:, None].view(dtype)


def with_modifiers(read: Reader, neg: bool, absolute: bool) -> Reader:
    """abs, then neg."""
    if absolute and neg:
        return lambda b: -np.abs(read(b))
    if absolute:
        return lambda b: np.abs(read(b))
    if neg:
        return lambda b: -read(b)
    return read


def vector_write(kind: str, register: int, half: int = 0, zero_high: bool = False) -> Writer:
    """Write active lanes of a VGPR, half of one, or a pair. `zero_high` clears the other half of a 16-bit result."""
    dtype = TYPES[kind]
    if width_of(kind) == 64:
        return lambda b, x: b.put_pair(register, x, dtype)
    if width_of(kind) == 16 and zero_high:
        return lambda b, x: put(b, b.u32[register], raw16(x, dtype).astype(np.uint32))
    if width_of(kind) == 16:
        name = kind
        return lambda b, x: put(b, getattr(b, name)[register, :, :, half], x)
    if kind == "u32":
        return lambda b, x: put(b, b.u32[register], x)
    if kind == "i32":
        return lambda b, x: put(b, b.i32[register], x)
    return lambda b, x: put(b, b.f32[register], x)


def raw16(x: Array, dtype: Any) -> Array:
    """A value of 16 bits, as its bits."""
    return x.astype(dtype, copy=False).view(np.uint16)


def put(b: Batch, place: Array, x: Array) -> None:
    """Write where the active lanes are."""
    if b.all_lanes:
        place[...] = x
    else:
        np.copyto(place, x, where=b.lanes, casting="unsafe")


def scalar_write(ctx: Context, code: int, words: int = 1) -> Callable[[Batch, Array], None]:
    """Write one or two SGPRs with (wave,) numbers. NULL drops them; EXEC also changes the lane mask."""
    if code == ctx.null:
        return lambda b, x: None
    if words == 2:

        def write_pair(b: Batch, x: Array) -> None:
            b.forget(code, 2)
            b.scalars[:, code] = (x & np.uint64(0xFFFFFFFF)).astype(np.uint32)
            b.scalars[:, code + 1] = (x >> np.uint64(32)).astype(np.uint32)

        write: Callable[[Batch, Array], None] = write_pair
        if code % 2 == 0:
            half = code // 2

            def write_even(b: Batch, x: Array) -> None:
                b.forget(code, 2)
                b.scalars.view(np.uint64)[:, half] = x

            write = write_even
    else:

        def write_word(b: Batch, x: Array) -> None:
            b.forget(code, 1)
            b.scalars[:, code] = x

        write = write_word
    return write if code + words <= EXEC or code > EXEC + 1 else and_exec(write)


def and_exec(write: Callable[[Batch, Array], None]) -> Callable[[Batch, Array], None]:
    """A write to EXEC: the lane mask follows it."""

    def run(b: Batch, x: Array) -> None:
        write(b, x)
        b.exec_changed()

    return run


def lane_mask(ctx: Context, code: int) -> Callable[[Batch], Array]:
    """A mask operand (carry in, cndmask selector) as (wave, lane) booleans."""
    if code == ctx.null:
        return lambda b: np.zeros((1, 1), np.bool_)
    if code < 128:
        return lambda b: b.mask(code)
    wide = scalar64(ctx, code)
    words = ctx.wave_size // 32
    return lambda b: unpack_lanes(np.ascontiguousarray(wide(b)).view(np.uint32).reshape(-1, 2)[:, :words])


def write_lane_mask(ctx: Context, code: int) -> Callable[[Batch, Array], None]:
    """Write (wave, lane) booleans to a mask register; inactive lanes become 0."""
    if code == ctx.null:
        return lambda b, x: None
    if code + ctx.wave_size // 32 > 128:
        raise ctx.refuse(f"a mask of {ctx.wave_size} lanes does not fit at scalar register {code}")

    def write(b: Batch, x: Array) -> None:
        b.set_mask(code, x if b.all_lanes and x.shape == b.lanes.shape else x & b.lanes)

    return and_exec(write) if code in (EXEC, EXEC + 1) else write
