"""Hidden arguments: which of those that a runtime has to serve a kernel's code really reads.

In       a linked object, one of its kernels
Out      the kinds of hidden arguments that it, or a function that it calls, loads: "hostcall_buffer", "heap_v1", ...
Next     module.py (who refuses what nobody serves), hostcall.py (what is served)
Source   LLVM AMDGPUUsage: "Code Object V5 Metadata" (offsets of implicit arguments), "Calling Convention"; encodings of
         s_load and s_getpc: AMD's ISA documents of gfx9 to gfx12

Metadata cannot say it: without optimisation, and for every kernel that calls a function, compilers list all arguments
there could be. So the code is looked at: scalar loads at the argument's place in the kernel's own arguments, and from
the pointer to the implicit ones, which a kernel adds up and functions are given. Both pointers are followed through
moves and the lanes of vector registers that compilers keep them in, word by word; branches are not. Loads through other
pointers are the program's own. Hostcalls cost little: a kernel that calls any function is given them, for a function
may find the place in ways that are not seen here.
"""

from __future__ import annotations

import functools
import struct
from bisect import bisect_right
from collections.abc import Sequence

from hcq.amd.link import GUARD_BYTES, Kernel, Linked
from hcq.amd.metadata import IMPLICIT_BYTES

OFFSETS_V5 = {
    "printf_buffer": 72,
    "hostcall_buffer": 80,
    "heap_v1": 96,
    "default_queue": 104,
    "completion_action": 112,
}
OFFSETS_V3 = {"printf_buffer": 24, "hostcall_buffer": 24, "default_queue": 32, "completion_action": 40}
V5 = 3  # ABI version of an ELF header
_IMPLICIT_POINTER = 8  # s[8:9]: where functions are given the address of implicit arguments
# what a register may hold the low or the high half of: the address of arguments
OWN, IMPLICIT = ("own", "implicit")
_S_GETPC = {9: 0x1C, 10: 0x1F, 11: 0x47, 12: 0x47}  # opcodes of SOP1
_S_SWAPPC = {9: 0x1E, 10: 0x21, 11: 0x49, 12: 0x49}
_S_MOV_B32 = {9: 0x00, 10: 0x03, 11: 0x00, 12: 0x00}
_SOP1, _LITERAL, _INLINE_ZERO, _INLINE_MOST = 0x17D, 0xFF, 0x80, 0xC0
_S_ADD, _S_ADDC = 0x00, 0x04  # opcodes of SOP2
_V_READLANE = {
    9: 0xD289,
    10: 0xD760,
    11: 0xD760,
    12: 0xD760,
}  # the upper half of VOP3's first word; writelane is next
_NEAR = 5  # words behind s_getpc within which the distance is added to it


def used(linked: Linked, kernel: Kernel) -> frozenset[str]:
    """Which of the arguments above the kernel's metadata lists and its code loads."""
    listed = {
        arg.value_kind.removeprefix("hidden_"): arg.offset
        for arg in (kernel.metadata.args if kernel.metadata else ())
    }
    size = kernel.descriptor.kernarg_size
    # no table says whether they are there: what costs nothing is given
    if not listed and size >= IMPLICIT_BYTES:
        listed = {"hostcall_buffer": size - IMPLICIT_BYTES + OFFSETS_V5["hostcall_buffer"]}
    offsets = OFFSETS_V5 if linked.object.image[8] >= V5 else OFFSETS_V3
    wanted = {kind: (listed[kind], offset) for kind, offset in offsets.items() if kind in listed}
    return _code_of(linked).loads(kernel, wanted) if wanted else frozenset()


@functools.lru_cache(maxsize=1)
def _code_of(linked: Linked) -> _Code:
    """For all kernels of an object, one after the other."""
    return _Code(linked)


class _Code:
    """The code of an object, in pieces that begin where something jumps to."""

    def __init__(self, linked: Linked) -> None:
        self.family = linked.chip.family
        memory = linked.place(0)
        end = (len(memory) - GUARD_BYTES) // 4 * 4
        self.words = struct.unpack_from(f"<{end // 4}I", memory)
        self.kernels = [one.entry_offset // 4 for one in linked.kernels.values()]
        self.calls = {at: target for at in range(len(self.words)) if (target := self._target(at)) >= 0}
        self.starts = sorted({*self.kernels, *self.calls.values()})

    def _target(self, at: int) -> int:
        """Which word a pair s_getpc, s_add at a place leads to; -1 where there is none."""
        word = self.words[at]
        if not self._is_sop1(at, _S_GETPC):
            return -1
        register = word >> 16 & 0x7F
        for near in range(at + 1, min(at + _NEAR, len(self.words) - 1)):
            add = self.words[near]
            is_add = add >> 30 == 2 and add >> 23 & 0x7F == 0 and add >> 8 & 0xFF == _LITERAL
            if is_add and add >> 16 & 0x7F == register and add & 0xFF == register:
                target = 4 * (at + 1) + self.words[near + 1] & 0xFFFFFFFF
                return target // 4 if target % 4 == 0 and target < 4 * len(self.words) else -1
        return -1

    def _is_sop1(self, at: int, opcodes: dict[int, int]) -> bool:
        word = self.words[at]
        return bool(word >> 23 == _SOP1 and word >> 8 & 0xFF == opcodes[self.family])

    def _piece(self, start: int) -> range:
        index = bisect_right(self.starts, start)
        return range(start, self.starts[index] if index < len(self.starts) else len(self.words))

    def loads(self, kernel: Kernel, wanted: dict[str, tuple[int, int]]) -> frozenset[str]:
        """wanted: kind -> (its offset in the arguments, and behind the pointer to implicit ones)."""
        first = kernel.entry_offset // 4
        own, implicit = next(iter(wanted.values()))
        found: set[str] = set()
        seen, left = {first}, [first]
        while left:
            start = left.pop()
            pointers = _Pointers(self.family, own - implicit)
            if start == first:
                pointers.hold(OWN, _argument_register(kernel))
            else:
                pointers.hold(IMPLICIT, _IMPLICIT_POINTER)
            for at in self._piece(start):
                if at in self.calls and self.calls[at] not in seen:
                    seen.add(self.calls[at])
                    left.append(self.calls[at])
                if "hostcall_buffer" in wanted and self._is_sop1(at, _S_SWAPPC):
                    found.add("hostcall_buffer")
                load = self._load(at)
                if load is None:
                    pointers.step(self.words, at)
                    continue
                register, offset, size, target = load
                pointer = pointers.at(register)
                for kind, (own, implicit) in wanted.items():
                    place = {OWN: own, IMPLICIT: implicit}.get(pointer)
                    if place is not None and offset <= place < offset + size:
                        found.add(kind)
                pointers.forget(target, size // 4)
        return frozenset(found)

    def _load(self, at: int) -> tuple[int, int, int, int] | None:
        """(register with the low half of the address, offset, bytes, first register that is loaded) of an s_load."""
        if at + 1 >= len(self.words):
            return None
        word, second = self.words[at], self.words[at + 1]
        if word >> 26 != (0x30 if self.family == 9 else 0x3D):
            return None
        opcode = word >> 13 & 0x3F if self.family == 12 else word >> 18 & 0xFF
        if opcode > 4:
            return None
        bits = 24 if self.family == 12 else 21
        return 2 * (word & 0x3F), second & (1 << bits) - 1, 4 << opcode, word >> 6 & 0x7F


class _Pointers:
    """Which scalar registers, and lanes of vector registers, hold a half of an address of arguments."""

    def __init__(self, family: int, base: int) -> None:
        """base: where the implicit arguments begin among the kernel's own."""
        self.family, self.base = family, base
        self.held: dict[int | tuple[int, int], tuple[str, int]] = {}

    def hold(self, what: str, register: int) -> None:
        if register >= 0:
            self.held |= {register: (what, 0), register + 1: (what, 1)}

    def at(self, register: int) -> str:
        low, high = self.held.get(register), self.held.get(register + 1)
        return low[0] if low and high and (low[1], high[1]) == (0, 1) and low[0] == high[0] else ""

    def forget(self, register: int, count: int = 1) -> None:
        for one in range(register, register + count):
            self.held.pop(one, None)

    def step(self, words: Sequence[int], at: int) -> None:
        """Follow the instruction at a word, if it moves a scalar register or adds to one."""
        word, second = words[at], words[at + 1] if at + 1 < len(words) else 0
        if word >> 23 == _SOP1:
            self._sop1(word)
        elif word >> 30 == 2 and word >> 23 & 0x7F in (_S_ADD, _S_ADDC):
            self._add(word, second)
        elif word >> 16 == _V_READLANE[self.family]:  # from a lane
            self._move(word & 0x7F, self.held.get((second & 0xFF, second >> 9 & 0x1FF)))
        elif word >> 16 == _V_READLANE[self.family] + 1:  # to a lane
            self._move((word & 0xFF, second >> 9 & 0x1FF), self.held.get(second & 0x1FF))

    def _move(self, target: int | tuple[int, int], value: tuple[str, int] | None) -> None:
        self.held.pop(target, None)
        if value is not None:
            self.held[target] = value

    def _sop1(self, word: int) -> None:
        opcode, target, source = word >> 8 & 0xFF, word >> 16 & 0x7F, word & 0xFF
        count = opcode - _S_MOV_B32[self.family] + 1  # s_mov_b64 follows s_mov_b32
        if count in (1, 2):
            values = [self.held.get(source + place) for place in range(count)]
            for place, value in enumerate(values):
                self._move(target + place, value)

    def _add(self, word: int, second: int) -> None:
        target, sources = word >> 16 & 0x7F, (word & 0xFF, word >> 8 & 0xFF)
        half = int(word >> 23 & 0x7F == _S_ADDC)
        value = None
        for register, other in (sources, sources[::-1]):
            if self.held.get(register) == (OWN, half):
                added = second if other == _LITERAL else other - _INLINE_ZERO
                is_number = other == _LITERAL or _INLINE_ZERO <= other <= _INLINE_MOST
                if is_number and added == (0 if half else self.base):
                    value = IMPLICIT, half
        self._move(target, value)


def _argument_register(kernel: Kernel) -> int:
    """The first of two scalar registers with the address of a kernel's arguments; -1 where it has none."""
    descriptor = kernel.descriptor
    before = (
        4 * descriptor.enable_sgpr_private_segment_buffer
        + 2 * descriptor.enable_sgpr_dispatch_ptr
        + 2 * descriptor.enable_sgpr_queue_ptr
    )
    return before if descriptor.enable_sgpr_kernarg_segment_ptr else -1
