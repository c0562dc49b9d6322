"""Scalar memory of gfx9 beyond loads: stores through descriptors, scratch, and atomics of a wave as a whole.

In       a Context for one SMEM instruction of those
Out      a step that writes memory, and SGPRs of what an atomic found
Changes  memory, SGPRs
Next     scalar_memory_ops.py (loads, plain stores), atomic_ops.py (what an atomic makes of memory)
Source   Vega and CDNA3 ISA documents: scalar memory; Tensile's kernels (s_atomic_cmpswap_x2, s_atomic_dec)

An offset in a register counts 64 bytes for scratch. What is beyond a descriptor's range reads 0 and is not written.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.atomic_ops import Atomic, run_atomic
from hcq.emu.amd.shader.errors import PageFault
from hcq.emu.amd.shader.field_registers import returns
from hcq.emu.amd.shader.lane_access import Access, parse_access
from hcq.emu.amd.shader.operands import Context, Step, scalar32, scalar64, scalar_write
from hcq.emu.amd.shader.waves import Batch

Places = Callable[[Batch, int], "tuple[Array, Array]"]
OF_SCRATCH = np.uint64(64)


def compile_scalar_write(ctx: Context, offset: Callable[[Batch], Array]) -> Step | None:
    """The step of such an instruction; None for others. offset: immediate and register, as elsewhere."""
    name = ctx.inst.name
    kind = next((one for one in ("s_buffer_", "s_scratch_") if name.startswith(one)), "s_")
    access = parse_access(name.removeprefix(kind))
    if access is None or (access.verb == "load" and kind != "s_scratch_"):
        return None
    places = places_of(ctx, kind, _of_scratch(ctx) if kind == "s_scratch_" else offset)
    move = {"load": _load, "store": _store, "atomic": _modify}[access.verb](ctx, access)

    def run(b: Batch) -> None:
        addresses, inside = places(b, access.bits // 8)
        try:
            move(b, addresses, inside)
        except PageFault as fault:
            wave = int(np.argmax(addresses == np.uint64(fault.address)))
            raise fault.at(ctx.inst.pc, b.lane_names(wave, 0)) from None

    return run


def _of_scratch(ctx: Context) -> Callable[[Batch], Array]:
    fields = ctx.inst.fields
    immediate = np.uint64(ctx.offset & 0xFFFFFFFFFFFFFFFF) if fields["imm"] else np.uint64(0)
    if fields["imm"] and not fields["soffset_en"]:
        return lambda b: np.full(b.waves, immediate)
    register = scalar32(ctx, fields["soffset"] if fields["soffset_en"] else fields["offset"] & 127)
    return lambda b: register(b).astype(np.uint64) * OF_SCRATCH + immediate


def places_of(ctx: Context, kind: str, offset: Callable[[Batch], Array]) -> Places:
    """kind: s_, s_buffer_ or s_scratch_. (addresses of all waves, which of them are in the descriptor's range)."""
    first = 2 * ctx.inst.fields["sbase"]
    base = scalar64(ctx, first)

    def places(b: Batch, size: int) -> tuple[Array, Array]:
        start, at = base(b), offset(b)
        inside = np.ones(b.waves, np.bool_)
        if kind == "s_buffer_":
            start = start & np.uint64(0xFFFFFFFFFFFF)
            inside = at + np.uint64(size) <= b.s[:, first + 2]
        return (start + at) & ~np.uint64(3), inside

    return places


def _load(ctx: Context, access: Access) -> Callable[[Batch, Array, Array], None]:
    write = [scalar_write(ctx, ctx.inst.fields["sdata"] + word) for word in range(access.words)]

    def load(b: Batch, addresses: Array, inside: Array) -> None:
        for one, row in zip(write, b.residents.scalar_memory.gather(addresses, access.words)):
            one(b, row)

    return load


def _store(ctx: Context, access: Access) -> Callable[[Batch, Array, Array], None]:
    first = ctx.inst.fields["sdata"]

    def store(b: Batch, addresses: Array, inside: Array) -> None:
        rows = b.s[inside, first : first + access.words].T
        b.residents.scalar_memory.scatter(addresses[inside], rows)

    return store


def _modify(ctx: Context, access: Access) -> Callable[[Batch, Array, Array], None]:
    """One wave after the other."""
    atomic, first, words = access.atomic, ctx.inst.fields["sdata"], access.words
    assert atomic is not None
    write = [scalar_write(ctx, first + word) for word in range(words)] if returns(ctx.inst) else []

    def modify(b: Batch, addresses: Array, inside: Array) -> None:
        data = _numbers(b, atomic, first, words)[inside]
        second = _numbers(b, atomic, first + words, words)[inside] if atomic.takes_two else data
        found = np.zeros((b.waves, words), np.uint32)
        if inside.any():
            before = run_atomic(b.residents.scalar_memory, atomic, addresses[inside], data, second)
            found[inside] = np.ascontiguousarray(before).view(np.uint32).reshape(-1, words)
        for one, row in zip(write, found.T):
            one(b, row)

    return modify


def _numbers(b: Batch, atomic: Atomic, first: int, words: int) -> Array:
    found: Array = np.ascontiguousarray(b.s[:, first : first + words]).view(atomic.dtype)[:, 0]
    return found
