"""Typed buffer accesses: numbers in memory become those of registers as the descriptor or the instruction says.

In       a Context for a MUBUF or MTBUF instruction with `format` in its name
Out      a step that loads or stores up to four components for each active lane
Changes  VGPRs, memory
Next     memory_ops.py (descriptors, ranges), typed_numbers.py (the formats, and what numbers become)
Source   CDNA3 and RDNA3 ISA documents: buffer resources, typed buffers; LLVM's assembler (names of formats)

Inferences: what begins beyond the range reads 0 in all components; halves are rounded to the nearest; of integers a
half of a register has the low bits. A store into a format of more components than it has is refused, as is one whose
descriptor puts components elsewhere: no source says what memory has then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.lane_access import Access, active, located
from hcq.emu.amd.shader.memory_ops import Buffer
from hcq.emu.amd.shader.operands import Context, Step
from hcq.emu.amd.shader.typed_numbers import Element, element_of, element_of_gfx9, loaded, stored
from hcq.emu.amd.shader.waves import Batch

IN_ORDER = (4, 5, 6, 7)  # what selects X, Y, Z and W


class Typed(NamedTuple):
    """What a typed instruction moves. half: which one of its register, of a single component of 16 bits."""

    is_load: bool
    components: int
    is_short: bool
    half: int


def typed_of(name: str) -> Typed | None:
    """What an instruction's name says; None for one that has no format."""
    if re.match(r"t?buffer_(load|store)_.*format", name) is None:
        return None
    return Typed("_load_" in name, len(name.rpartition("_")[2]), "d16" in name, int("_hi_" in name))


def compile_typed(ctx: Context) -> Step | None:
    """The step of a typed access; None for another instruction."""
    fields, inst = ctx.inst.fields, ctx.inst
    typed = typed_of(inst.name)
    if typed is None:
        return None
    if fields.get("lds") or fields.get("tfe"):
        raise ctx.refuse("buffer accesses with lds or tfe do not run here")
    first = fields["vdata"] + (ctx.acc_offset if fields.get("acc") else 0)
    places = Places(ctx)

    def run(b: Batch) -> None:
        saved = b.lanes, b.all_lanes
        try:
            for lanes, inside, addresses, element, selects in places.of(b):
                b.lanes, b.all_lanes = inside, False
                reached = active(b, addresses)
                if typed.is_load:
                    rows = np.zeros((4, *b.lanes.shape), np.uint32)

                    def move() -> None:
                        rows[:, b.lanes] = _selected(b, element, selects, typed, reached)  # noqa: B023

                    located(inst.pc, b, reached, move)
                    _deliver(ctx, b, first, typed, lanes, rows)
                    continue
                if (
                    len(element.widths) != typed.components
                    or selects[: typed.components] != IN_ORDER[: typed.components]
                ):
                    what = f"it stores {typed.components} components as {len(element.widths)}, selected by {selects}"
                    raise ctx.refuse(f"{what}; only stores of all components in their order are emulated")
                words = stored(element, _components(b, first, typed), typed.is_short)
                located(inst.pc, b, reached, lambda: _scatter(b, element, reached, words))  # noqa: B023
        finally:
            b.lanes, b.all_lanes = saved

    return run


class Places:
    """Where a typed access goes."""

    def __init__(self, ctx: Context) -> None:
        self.ctx, self.formats = ctx, _Formats(ctx)
        self.buffers: dict[int, Buffer] = {}

    def of(self, b: Batch) -> Iterator[tuple[Array, Array, Array, Element, tuple[int, ...]]]:
        """For each format: (which lanes, which of them in the range, addresses of all lanes, element, components)."""
        active_lanes = b.lanes
        for waves, element, selects in self.formats.of(b):
            lanes = active_lanes & waves[:, None]
            if not lanes.any():
                continue
            size = element.size_bytes
            if size not in self.buffers:
                self.buffers[size] = Buffer(self.ctx, Access("load", 8 * size))
            if self.buffers[size].is_spread(b):
                raise self.ctx.refuse("typed accesses through swizzled descriptors are not emulated")
            addresses, room = self.buffers[size].reach(b)
            yield lanes, lanes & (room >= np.uint64(size)), addresses, element, selects


class _Formats:
    """The formats of a batch's waves: that of the instruction, or those of their descriptors."""

    def __init__(self, ctx: Context) -> None:
        self.refuse, self.is_gfx9 = ctx.refuse, ctx.is_gfx9
        self.generation = ctx.isa.generation
        fields = ctx.inst.fields
        self.place = (fields["srsrc"] if ctx.is_gfx12 else 4 * fields["srsrc"]) + 3
        self.own: int | None = None
        if ctx.inst.name.startswith("tbuffer"):
            self.own = fields["dfmt"] | fields["nfmt"] << 4 if ctx.is_gfx9 else fields["format"]

    def of(self, b: Batch) -> Iterator[tuple[Array, Element, tuple[int, ...]]]:
        """(which waves, their element, what each component is) for each format."""
        if self.own is not None:
            yield np.ones(b.waves, np.bool_), self._element(self.own), IN_ORDER
            return
        controls = b.s[:, self.place]
        for control in np.unique(controls).tolist():
            if self.is_gfx9:
                number = control >> 15 & 15 | (control >> 12 & 7) << 4
            else:
                number = control >> 12 & (127 if self.generation == 10 else 63)
            selects = tuple(control >> 3 * component & 7 for component in range(4))
            yield controls == control, self._element(number), selects

    def _element(self, number: int) -> Element:
        found = (
            element_of_gfx9(number & 15, number >> 4) if self.is_gfx9 else element_of(self.generation, number)
        )
        if found is None:
            raise self.refuse(f"format {number:#x} is none that buffers have")
        return found


def _selected(b: Batch, element: Element, selects: tuple[int, ...], typed: Typed, at: Array) -> Array:
    """(4, lanes) components of active lanes, as the descriptor orders them."""
    size = element.size_bytes
    memory = b.residents.memory
    words = memory.gather_bytes(at, size)[None] if size < 4 else memory.gather(at, size // 4)
    components = loaded(element, words, typed.is_short)
    zero = np.zeros(len(at), np.uint32)
    one = np.full(len(at), element.one(typed.is_short), np.uint32)
    return np.stack([zero if s == 0 else one if s == 1 else components[s - 4 & 3] for s in selects])


def _deliver(ctx: Context, b: Batch, first: int, typed: Typed, lanes: Array, rows: Array) -> None:
    """Put components into registers, two into one where they are short; gfx9 clears a half that is left."""
    if not typed.is_short:
        for component in range(typed.components):
            np.copyto(b.u32[first + component], rows[component], where=lanes)
        return
    for component in range(typed.components):
        register, half = first + component // 2, component & 1 or typed.half
        if ctx.is_gfx9 and component & 1 == 0:
            np.copyto(b.u32[register], np.uint32(0), where=lanes)
        np.copyto(b.u16[register, :, :, half], rows[component].astype(np.uint16), where=lanes)


def _components(b: Batch, first: int, typed: Typed) -> Array:
    """(count, lanes) bits of active lanes' components."""
    if not typed.is_short:
        return np.stack([active(b, b.u32[first + component]) for component in range(typed.components)])
    rows = []
    for component in range(typed.components):
        word = active(b, b.u32[first + component // 2])
        rows.append(word >> np.uint32(16) if component & 1 or typed.half else word & np.uint32(0xFFFF))
    return np.stack(rows)


def _scatter(b: Batch, element: Element, at: Array, words: Array) -> None:
    if element.size_bytes < 4:
        b.residents.memory.scatter_bytes(at, words[0], element.size_bytes)
    else:
        b.residents.memory.scatter(at, words)
