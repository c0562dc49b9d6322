"""Relocations of host objects: what to write where, for x86-64 and aarch64. Pure functions on bytes.

In       memory being linked (a writable view at its base address), a place in it, and the values S, A, P, GOT
Out      that place rewritten
Changes  the view
Next     link.py (who lays the object out and calls this)
Source   x86-64 psABI table 4.9; ELF for the Arm 64-bit Architecture (AAELF64) tables 5.7.3 to 5.7.11

Notation of both documents: S is the symbol's address, A the addend, P the place's address, G the symbol's GOT entry.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from hcq.code import elf


class DoesNotFit(Exception):
    """The value is out of the relocation's range or alignment."""


class Kind(NamedTuple):
    """One relocation type: its name, the bytes it rewrites, what it needs, and how it writes."""

    name: str
    size_bytes: int
    uses: str  # "symbol", "got" (the address of the symbol's GOT entry), or "call" (the symbol, or a stub near by)
    write: Callable[[memoryview, int, int, int], None]  # (memory, at, S + A or G + A, P)
    is_absolute_32: bool = False  # the object must lie below 2 GiB (4 GiB)


def _pack(memory: memoryview, at: int, code: str, value: int) -> None:
    try:
        struct.pack_into(code, memory, at, value)
    except struct.error:
        raise DoesNotFit from None


def _absolute(code: str) -> Callable[[memoryview, int, int, int], None]:
    return lambda memory, at, value, place: _pack(memory, at, code, value)


def _absolute_64(memory: memoryview, at: int, value: int, place: int) -> None:
    _pack(memory, at, "<Q", value % 2**64)


def _relative(code: str) -> Callable[[memoryview, int, int, int], None]:
    return lambda memory, at, value, place: _pack(memory, at, code, value - place)


X86_64: dict[int, Kind] = {
    1: Kind("R_X86_64_64", 8, "symbol", _absolute_64),
    2: Kind("R_X86_64_PC32", 4, "call", _relative("<i")),
    4: Kind("R_X86_64_PLT32", 4, "call", _relative("<i")),
    9: Kind("R_X86_64_GOTPCREL", 4, "got", _relative("<i")),
    10: Kind("R_X86_64_32", 4, "symbol", _absolute("<I"), is_absolute_32=True),
    11: Kind("R_X86_64_32S", 4, "symbol", _absolute("<i"), is_absolute_32=True),
    24: Kind("R_X86_64_PC64", 8, "symbol", _relative("<q")),
    41: Kind("R_X86_64_GOTPCRELX", 4, "got", _relative("<i")),
    42: Kind("R_X86_64_REX_GOTPCRELX", 4, "got", _relative("<i")),
}


def _instruction(memory: memoryview, at: int, mask: int, bits: int) -> None:
    (old,) = struct.unpack_from("<I", memory, at)
    struct.pack_into("<I", memory, at, old & ~mask | bits & mask)


def _branch(width: int, low: int) -> Callable[[memoryview, int, int, int], None]:
    """A signed distance in words, `width` bits of it at bit `low`."""

    def write(memory: memoryview, at: int, value: int, place: int) -> None:
        distance = value - place
        if distance % 4 or not -(1 << width + 1) <= distance < 1 << width + 1:
            raise DoesNotFit
        _instruction(memory, at, (1 << width) - 1 << low, distance >> 2 << low)

    return write


def _adr(memory: memoryview, at: int, distance: int) -> None:
    if not -(1 << 20) <= distance < 1 << 20:
        raise DoesNotFit
    _instruction(memory, at, 0x60FFFFE0, (distance & 3) << 29 | (distance >> 2 & 0x7FFFF) << 5)


def _adr_page(memory: memoryview, at: int, value: int, place: int) -> None:
    _adr(memory, at, (value >> 12) - (place >> 12))


def _low_12(scale: int) -> Callable[[memoryview, int, int, int], None]:
    """The low 12 bits of an address as the immediate of an add (scale 0) or of a load of 1 << scale bytes."""

    def write(memory: memoryview, at: int, value: int, place: int) -> None:
        low = value & 0xFFF
        if low & (1 << scale) - 1:
            raise DoesNotFit
        _instruction(memory, at, 0xFFF << 10, low >> scale << 10)

    return write


def _move_wide(shift: int, checked: bool) -> Callable[[memoryview, int, int, int], None]:
    def write(memory: memoryview, at: int, value: int, place: int) -> None:
        if checked and not 0 <= value < 1 << shift + 16:
            raise DoesNotFit
        _instruction(memory, at, 0xFFFF << 5, (value >> shift & 0xFFFF) << 5)

    return write


AARCH64: dict[int, Kind] = {
    257: Kind("R_AARCH64_ABS64", 8, "symbol", _absolute_64),
    258: Kind("R_AARCH64_ABS32", 4, "symbol", _absolute("<I"), is_absolute_32=True),
    260: Kind("R_AARCH64_PREL64", 8, "symbol", _relative("<q")),
    261: Kind("R_AARCH64_PREL32", 4, "symbol", _relative("<i")),
    262: Kind("R_AARCH64_PREL16", 2, "symbol", _relative("<h")),
    263: Kind("R_AARCH64_MOVW_UABS_G0", 4, "symbol", _move_wide(0, True)),
    264: Kind("R_AARCH64_MOVW_UABS_G0_NC", 4, "symbol", _move_wide(0, False)),
    265: Kind("R_AARCH64_MOVW_UABS_G1", 4, "symbol", _move_wide(16, True)),
    266: Kind("R_AARCH64_MOVW_UABS_G1_NC", 4, "symbol", _move_wide(16, False)),
    267: Kind("R_AARCH64_MOVW_UABS_G2", 4, "symbol", _move_wide(32, True)),
    268: Kind("R_AARCH64_MOVW_UABS_G2_NC", 4, "symbol", _move_wide(32, False)),
    269: Kind("R_AARCH64_MOVW_UABS_G3", 4, "symbol", _move_wide(48, False)),
    273: Kind("R_AARCH64_LD_PREL_LO19", 4, "symbol", _branch(19, 5)),
    274: Kind("R_AARCH64_ADR_PREL_LO21", 4, "symbol", lambda m, at, v, p: _adr(m, at, v - p)),
    275: Kind("R_AARCH64_ADR_PREL_PG_HI21", 4, "symbol", _adr_page),
    276: Kind("R_AARCH64_ADR_PREL_PG_HI21_NC", 4, "symbol", _adr_page),
    277: Kind("R_AARCH64_ADD_ABS_LO12_NC", 4, "symbol", _low_12(0)),
    278: Kind("R_AARCH64_LDST8_ABS_LO12_NC", 4, "symbol", _low_12(0)),
    279: Kind("R_AARCH64_TSTBR14", 4, "call", _branch(14, 5)),
    280: Kind("R_AARCH64_CONDBR19", 4, "call", _branch(19, 5)),
    282: Kind("R_AARCH64_JUMP26", 4, "call", _branch(26, 0)),
    283: Kind("R_AARCH64_CALL26", 4, "call", _branch(26, 0)),
    284: Kind("R_AARCH64_LDST16_ABS_LO12_NC", 4, "symbol", _low_12(1)),
    285: Kind("R_AARCH64_LDST32_ABS_LO12_NC", 4, "symbol", _low_12(2)),
    286: Kind("R_AARCH64_LDST64_ABS_LO12_NC", 4, "symbol", _low_12(3)),
    299: Kind("R_AARCH64_LDST128_ABS_LO12_NC", 4, "symbol", _low_12(4)),
    311: Kind("R_AARCH64_ADR_GOT_PAGE", 4, "got", _adr_page),
    312: Kind("R_AARCH64_LD64_GOT_LO12_NC", 4, "got", _low_12(3)),
}

# of shared objects: everything else was done when they were linked
DYNAMIC: dict[int, dict[int, str]] = {
    elf.EM_X86_64: {1: "symbol", 6: "symbol", 7: "symbol", 8: "base"},  # 64, GLOB_DAT, JUMP_SLOT, RELATIVE
    elf.EM_AARCH64: {257: "symbol", 1025: "symbol", 1026: "symbol", 1027: "base"},
}
RELATIVE_TYPE = {elf.EM_X86_64: 8, elf.EM_AARCH64: 1027}

KINDS: dict[int, dict[int, Kind]] = {elf.EM_X86_64: X86_64, elf.EM_AARCH64: AARCH64}

# jump to the address in the GOT entry that stands `distance` bytes after the stub's own start
STUB_BYTES = 16


def stub(machine: int, distance: int) -> bytes:
    """Code that jumps through a GOT entry `distance` bytes away; for callees beyond a branch's reach."""
    if machine == elf.EM_X86_64:
        return b"\xff\x25" + struct.pack("<i", distance - 6) + b"\xcc" * 10  # jmp *[rip + distance - 6]
    # ldr x16, [pc, distance]; br x16: a literal load reaches 1 MiB
    if distance % 4 or not -(1 << 20) <= distance < 1 << 20:
        raise DoesNotFit
    return struct.pack(
        "<IIII", 0x58000010 | (distance >> 2 & 0x7FFFF) << 5, 0xD61F0200, 0xD503201F, 0xD503201F
    )
