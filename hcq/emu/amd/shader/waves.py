"""A batch of waves that share a program counter: registers as arrays over all their lanes.

In       waves set up by machine.py
Out      Batch: v (register, wave, lane), s (wave, register), scc, EXEC as bits and as a lane mask
Changes  itself
Next     operands.py (reads and writes through these views), machine.py (splits and joins batches)

VGPRs are one array of 32-bit words seen under several types. u32, i32, f32 are (register, wave, lane); u16, i16, f16
have one more axis for the low and high half. SGPRs are (wave, 128), numbered as in source operands. EXEC lives in
s[:, 126:128]; `lanes` is the same as booleans, and `all_lanes` says that no write needs a mask.

Most masks are written by one vector instruction and read by the next: they stay booleans until a scalar read asks for
their bits. `s` has the bits of all masks; `scalars`, the array under it, lacks those of `unpacked`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array, pack_lanes, unpack_lanes
from hcq.emu.amd.shader.registers import EXEC, VCC
from hcq.emu.amd.shader.residents import Residents

__all__ = ["EXEC", "VCC", "Batch"]


LINE = 64  # bytes of a cache line, where the registers of a wave that compiled code runs begin


def room_by_wave(registers: int, waves: int, lanes: int) -> Array:
    """(register, wave, lane) words of which those of a wave lie beside each other, as compiled code has them."""
    rows = registers | 1  # an odd number: the same register of many waves is not in the same part of a cache
    room = np.empty(waves * rows * lanes + LINE // 4, np.uint32)
    first = -room.ctypes.data % LINE // 4
    whole = room[first : first + waves * rows * lanes].reshape(waves, rows, lanes)
    found: Array = whole[:, :registers].swapaxes(0, 1)
    return found


def by_wave(v: Array) -> Array:
    """A copy that lies so."""
    found = room_by_wave(*v.shape)
    found[...] = v
    return found


class Batch:
    """Waves at one program counter. `ids` are their places among the resident waves, in order."""

    def __init__(
        self, residents: Residents, pc: int, mode: int, ids: Array, v: Array, s: Array, scc: Array
    ) -> None:
        self.residents, self.pc, self.mode = residents, pc, mode
        self.ids, self.scalars, self.scc = ids, s, scc
        self.mask_words = residents.wave_size // 32
        self.known: dict[int, Array] = {}  # mask registers as booleans; every write to them forgets
        self.unpacked: dict[int, Array] = {}  # those whose bits are not among the scalars yet
        # lanes whose DPP source exists, while such an instruction runs
        self.readable: Array = np.ones((1, 1), np.bool_)
        self.turn = 0  # when it last ran, so that none waits for ever
        self.is_stuck = False  # it has gone round a retry loop, and no lane has left
        self.answer: Callable[..., Array] | None = None  # what atomics find, where memory is not to be asked
        self.bind(v)
        self.exec_changed()

    def bind(self, v: Array) -> None:
        """Make the typed views of a new register array."""
        self.u32 = v
        # the registers of a wave lie beside each other, if there are several waves, and begin where a cache line does:
        # NumPy lays what it picks by an index that way, too, but anywhere
        self.is_by_wave = v.strides[1] > v.strides[0] and not v.__array_interface__["data"][0] % LINE
        self.i32, self.f32 = v.view(np.int32), v.view(np.float32)
        self.u16 = v.view(np.uint16).reshape(*v.shape, 2)
        self.i16, self.f16 = self.u16.view(np.int16), self.u16.view(np.float16)

    @property
    def waves(self) -> int:
        """How many waves are together."""
        return len(self.ids)

    @property
    def groups(self) -> Array:
        """The workgroup of each wave, by its place among the residents."""
        return self.residents.group_of[self.ids]

    @property
    def s(self) -> Array:
        """The scalar registers, (wave, 128), with the bits of all masks."""
        if self.unpacked:
            self.settle(0, self.scalars.shape[1])
        return self.scalars

    def scalar(self, register: int) -> Array:
        """(wave,) words of a scalar register."""
        if self.unpacked:
            self.settle(register, 1)
        return self.scalars[:, register]

    def scalar_pair(self, register: int) -> Array:
        """(wave,) uint64 of two scalar registers, the first of which is even."""
        if self.unpacked:
            self.settle(register, 2)
        return self.scalars.view(np.uint64)[:, register // 2]

    def settle(self, register: int, words: int) -> None:
        """Put the bits of masks that overlap these registers where they belong."""
        for mask in self.overlapping(register, words):
            self.scalars[:, mask : mask + self.mask_words] = pack_lanes(self.unpacked.pop(mask))

    def overlapping(self, register: int, words: int) -> list[int]:
        """The registers of such masks."""
        size = self.mask_words
        return [mask for mask in self.unpacked if mask < register + words and register < mask + size]

    def exec_changed(self) -> None:
        """EXEC's bits were written: the lane mask follows."""
        self.lanes = self.mask(EXEC)
        self.all_lanes = bool(self.lanes.all())

    def set_exec(self, mask: Array) -> None:
        """Set which lanes are on: (waves, lanes) of bool."""
        self.lanes = mask
        self.all_lanes = bool(mask.all())
        self.set_mask(EXEC, mask)

    def forget(self, register: int, words: int) -> None:
        """These SGPRs are about to be written: masks that overlap them are no longer known."""
        if self.unpacked:
            size = self.mask_words
            for mask in self.overlapping(register, words):
                if register <= mask and mask + size <= register + words:
                    del self.unpacked[mask]  # nobody has read it
                else:
                    self.settle(mask, size)
        known = self.known
        if known:
            known.pop(register, None)
            known.pop(register - 1, None)
            for one in range(register + 1, register + words):
                known.pop(one, None)

    def mask(self, register: int) -> Array:
        """A lane mask held in SGPRs, as booleans. Do not write to it."""
        known = self.known.get(register)
        if known is None:
            self.settle(register, self.mask_words)
            known = unpack_lanes(self.scalars[:, register : register + self.mask_words])
            self.known[register] = known
        return known

    def set_mask(self, register: int, mask: Array) -> None:
        """Write (wave, lane) booleans to a mask register. They are no longer the caller's to write to."""
        self.forget(register, self.mask_words)
        self.known[register] = self.unpacked[register] = mask

    def any_bit(self, register: int) -> Array:
        """(wave,) booleans: some lane of the mask in these SGPRs is set."""
        self.settle(register, self.mask_words)
        found: Array = np.logical_or.reduce(self.scalars[:, register : register + self.mask_words], axis=1)
        return found

    def pair(self, register: int, dtype: Any) -> Array:
        """Two consecutive vector registers as one 64-bit number per lane."""
        both = np.empty((self.waves, self.u32.shape[2], 2), np.uint32)
        both[..., 0] = self.u32[register]
        both[..., 1] = self.u32[register + 1]
        return both.view(dtype)[..., 0]

    def put_pair(self, register: int, x: Array, dtype: Any) -> None:
        """Write 64-bit numbers to two consecutive vector registers, where lanes are on."""
        full = x
        if x.shape != self.lanes.shape or x.dtype != dtype or not x.flags.c_contiguous:
            full = np.empty((self.waves, self.u32.shape[2]), dtype)
            full[...] = x
        words = full.view(np.uint32).reshape(*full.shape, 2)
        if self.all_lanes:
            self.u32[register] = words[..., 0]
            self.u32[register + 1] = words[..., 1]
        else:
            np.copyto(self.u32[register], words[..., 0], where=self.lanes)
            np.copyto(self.u32[register + 1], words[..., 1], where=self.lanes)

    def lane_names(self, wave: int, lane: int) -> str:
        """Which work-item a lane is, in words for reports."""
        return self.residents.name_of(int(self.ids[wave]), lane)

    def take(self, which: Array) -> Batch:
        """A batch of some of these waves, with copies of their registers."""
        v = by_wave(self.u32[:, which]) if self.is_by_wave else self.u32[:, which]
        return Batch(self.residents, self.pc, self.mode, self.ids[which], v, self.s[which], self.scc[which])

    @staticmethod
    def join(parts: list[Batch]) -> Batch:
        """One batch of all these waves, in order of their ids; they share pc and mode."""
        first = parts[0]
        if len(parts) == 1:
            return first
        ids = np.concatenate([part.ids for part in parts])
        order = np.argsort(ids, kind="stable")
        if any(part.is_by_wave for part in parts):
            v, place, at = room_by_wave(len(first.u32), len(ids), first.u32.shape[2]), np.argsort(order), 0
            for part in parts:
                v[:, place[at : at + part.waves]] = part.u32
                at += part.waves
        else:
            v = np.concatenate([part.u32 for part in parts], axis=1)[:, order]
        s = np.concatenate([part.s for part in parts])[order]
        scc = np.concatenate([part.scc for part in parts])[order]
        joined = Batch(first.residents, first.pc, first.mode, ids[order], v, s, scc)
        joined.turn = max(part.turn for part in parts)
        return joined
