"""Saved waves: the registers and LDS of each wave of a queue, from the context save area that the kernel driver filled.

In       the bytes of one XCC's slice of the area, from its header on; an architecture
Out      SavedWaves, the last one saved first; what each waits for and why it stopped, as far as registers say so
Changes  nothing: it reads memory that may be damaged, and no further than it goes
Next     abi/save_area.py (the layout and its sources), waves_off.py (who takes a queue off and reads it),
         tools/trace/rocm/gpu_core.py (who finds such areas in core files)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from hcq.amd.abi.kfd import ContextSaveAreaHeader
from hcq.amd.abi.save_area import (
    HWREGS,
    LDS_UNIT_BYTES,
    NO_VGPRS,
    PACKET_WORDS,
    PC_HIGH,
    TTMPS,
    Layout,
    RelaunchState9,
    RelaunchState10,
    RelaunchState90a,
    layout_of,
)
from hcq.errors import DriverError

HEADER_BYTES = 40
MOST_WAVES = 1 << 16
SAVED_SCALARS = 108  # with VCC, which is the last two of them
STATUS_EXCEPTIONS = ((8, "memory violation"), (11, "illegal instruction"), (28, "XNACK error"))
GFX12_EXCEPTIONS = ((4, "memory violation"), (6, "illegal instruction"), (12, "XNACK error"))
NUMBERS = (
    "invalid",
    "denormal",
    "division by 0",
    "overflow",
    "underflow",
    "inexact",
    "integer division by 0",
)


class Shape(NamedTuple):
    """What the waves of a dispatch have. accs and shared: vector registers of the second kind, by their lanes."""

    lanes: int
    vgprs: int
    accs: int
    shared: int
    sgprs: int
    lds_bytes: int


class SavedWave:
    """One wave. Vector registers and LDS are read when they are asked for.

    number      in the order in which waves were saved
    is_first    of its workgroup; `lds` is empty in the others
    registers   hardware registers by name: m0, status, trapsts, mode, ...; pc and exec whole
    scalars     s0, s1, ...; VCC is the last two on gfx9, s106 and s107 on later ones
    ttmps       trap temporaries
    group       the workgroup (x, y, z); None where they do not say it
    place       which wave of its workgroup it is
    """

    def __init__(
        self, layout: Layout, shape: Shape, word: Any, state: memoryview, number: int, where: int
    ) -> None:
        self.number, self.shape, self.shader_engine = number, shape, int(word.shader_engine)
        self.is_first, self.is_last = bool(word.first_wave), bool(word.last_wave)
        self.where = where  # of its state in the slice, for messages
        self._state = state
        sgprs_at = 4 * (shape.lanes * (shape.vgprs + shape.accs) + 32 * shape.shared)
        hwregs_at = sgprs_at + 4 * shape.sgprs
        self.scalars = _words(state, sgprs_at, min(shape.sgprs, SAVED_SCALARS))
        hwregs = _words(state, hwregs_at, HWREGS)
        self.ttmps = _words(state, hwregs_at + 4 * HWREGS, TTMPS)
        self._lds_at = hwregs_at + 4 * (HWREGS + TTMPS)
        found = {name: hwregs[index] for name, index in layout.registers.items()}
        self.pc = (found.pop("pc_hi") & PC_HIGH) << 32 | found.pop("pc_lo")
        high = found.pop("exec_hi")
        self.exec = found.pop("exec_lo") | (high << 32 if shape.lanes == 64 else 0)
        self.registers = found
        self.family = layout.family
        self.group: tuple[int, int, int] | None = None
        self.place: int | None = None
        if layout.has_ids:
            self.group, self.place = self._place()

    @property
    def vcc(self) -> int:
        """The condition mask."""
        low, high = self.scalars[-2:] or (0, 0)  # a wave without scalar registers has none
        return low | (high << 32 if self.shape.lanes == 64 else 0)

    @property
    def has_vectors(self) -> bool:
        """Whether its vector registers were its own still."""
        return self.family < 11 or not self.registers["status"] & NO_VGPRS

    def vector(self, number: int) -> tuple[int, ...]:
        """A vector register, lane by lane; those of the accumulation file count on behind the others."""
        lanes = self.shape.lanes
        return _words(self._state, 4 * lanes * number, lanes)

    @property
    def lds(self) -> bytes:
        """What its workgroup's LDS held; empty when another wave of the group has it."""
        size = self.shape.lds_bytes if self.is_first else 0
        return bytes(self._state[self._lds_at : self._lds_at + size])

    @property
    def stopped_by(self) -> str:
        """The exceptions that its registers name, in words; "" for none."""
        is_new = self.family >= 12
        word = self.registers["excp_flag_priv" if is_new else "trapsts"]
        numbers = self.registers["excp_flag_user"] if is_new else word
        found = [text for bit, text in (GFX12_EXCEPTIONS if is_new else STATUS_EXCEPTIONS) if word >> bit & 1]
        found += [text for bit, text in enumerate(NUMBERS) if numbers >> bit & 1]
        return ", ".join(found)

    @property
    def is_at_barrier(self) -> bool:
        """Whether it waits for the others of its workgroup: before gfx12 a bit says so."""
        return self.family < 12 and bool(self.registers["status"] >> 12 & 1)

    @property
    def is_halted(self) -> bool:
        """Whether it was stopped, by an exception or by a debugger, and not by being saved."""
        word, bit = ("state_priv", 14) if self.family >= 12 else ("status", 13)
        return bool(self.registers[word] >> bit & 1)

    def _place(self) -> tuple[tuple[int, int, int], int]:
        ttmps = self.ttmps
        if self.family >= 12:
            y, z = (ttmps[7] & 0xFFFF, ttmps[7] >> 16) if ttmps[8] >> 30 & 1 else (0, 0)
            return (ttmps[9], y, z), ttmps[8] >> 25 & 31
        return (ttmps[8], ttmps[9], ttmps[10]), ttmps[11] & 63


def waves_of(area: memoryview, arch: str) -> Iterator[SavedWave]:
    """The waves of one XCC, the last one saved first.

    area    its slice, from the header on
    Raises  DriverError for an architecture whose layout is not public, and for an area that does not fit it
    """
    layout = layout_of(arch)
    if layout is None:
        raise DriverError(f"waves of {arch}: the layout of its context save area is not public.")
    if len(area) < HEADER_BYTES:
        raise DriverError(f"waves of {arch}: a save area of {len(area)} bytes has no header.")
    header = ContextSaveAreaHeader.decode(_words(area, 0, HEADER_BYTES // 4))
    stack_at, stack_bytes = header.control_stack_offset, header.control_stack_size
    end = header.wave_state_offset
    start = end - header.wave_state_size
    if not stack_bytes:
        return
    if stack_at + stack_bytes != start or end > len(area) or stack_at < HEADER_BYTES:
        raise DriverError(
            f"waves of {arch}: the save area's header is damaged: a control stack of {stack_bytes} bytes at "
            f"{stack_at:#x}, waves from {start:#x} to {end:#x}, in {len(area)} bytes."
        )
    words = _words(area, stack_at, stack_bytes // 4)
    places = list(_placed(words, layout, end))
    for number, (word, shape, low, high) in enumerate(places):
        if low < start:
            raise DriverError(
                f"waves of {arch}: the save area is damaged: wave {number} from the last would begin at {low:#x}, "
                f"and the first one begins at {start:#x}."
            )
        yield SavedWave(layout, shape, word, area[low:high], len(places) - 1 - number, low)
    if places and places[-1][2] != start:
        raise DriverError(
            f"waves of {arch}: the save area is damaged: {places[-1][2] - start} bytes are of no wave."
        )


def _placed(words: tuple[int, ...], layout: Layout, end: int) -> Iterator[tuple[Any, Shape, int, int]]:
    """(its word, its shape, where its state begins and ends) of each wave."""
    shape: Shape | None = None
    at, count = PACKET_WORDS, 0
    while at < len(words):
        word = layout.wave.decode([words[at]])
        if word.is_event:
            at += 1
        elif word.is_state:
            size = layout.state.length_words
            shape = _shape(layout, layout.state.decode(words[at : at + size]))
            at += size
        else:
            if shape is None:
                raise DriverError("the save area is damaged: a wave comes before the state of its dispatch.")
            count += 1
            if count > MOST_WAVES:
                raise DriverError(f"the save area is damaged: it has more than {MOST_WAVES} waves.")
            high = end - layout.gap_bytes
            low = high - _bytes(shape, bool(word.first_wave))
            yield word, shape, low, high
            end = low
            at += 1


def _bytes(shape: Shape, is_first: bool) -> int:
    registers = shape.lanes * (shape.vgprs + shape.accs) + 32 * shape.shared + shape.sgprs + HWREGS + TTMPS
    return 4 * registers + (shape.lds_bytes if is_first else 0)


def _shape(layout: Layout, state: RelaunchState9 | RelaunchState10) -> Shape:
    lds = state.lds_size * LDS_UNIT_BYTES
    if isinstance(state, RelaunchState10):
        lanes = 32 if state.w32_en else 64
        return Shape(lanes, (state.vgprs + 1) * (256 // lanes), 0, 8 * state.shared_vgprs, 128, lds)
    sgprs = 16 * state.sgprs
    if isinstance(state, RelaunchState90a):
        own = 4 * (state.accum_offset + 1)
        return Shape(64, own, max(0, 8 * (state.vgprs + 1) - own), 0, sgprs, lds)
    own = 4 * (state.vgprs + 1)
    return Shape(64, own, own if layout.accs == "equal" else 0, 0, sgprs, lds)


def _words(data: memoryview, at: int, count: int) -> tuple[int, ...]:
    return struct.unpack_from(f"<{count}I", data, at)
