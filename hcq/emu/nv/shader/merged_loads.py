"""Merged loads: loads of neighbouring words of shared memory that ptxas makes one instruction of.

In       the basic blocks of a function; the alignment of its variables
Out      instruction (by identity) -> bytes that it loads: 8 or 16 for the first of a group, 0 for those that it
         takes in
Next     chains.py and counters.py (who count machine code's loads), sass_weights.py (the rest of what ptxas does)
Source   nvdisasm of kernels that read four words of a row in shared memory: LDS.128 where the row is aligned, LDS
         where not

Loads belong together where they name the same register, their offsets follow each other, nothing is stored between
them, and the address is known to be a multiple of what they load: variables are aligned, and sums and products keep
what they must.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import gcd

from hcq.emu.nv.shader.flow import BasicBlock
from hcq.emu.nv.shader.sass_weights import type_of
from hcq.emu.nv.shader.syntax import Address, Immediate, Instruction, Operand, Register, Symbol
from hcq.emu.nv.shader.types import TYPES

UNKNOWN = 1
EVERY = 1 << 16  # a multiple of everything that matters
PASSES = 4  # over the text: what goes round loops settles at once, or does not matter
WIDEST = 16
STOPS = ("st", "atom", "red", "bar", "barrier", "membar", "fence", "stmatrix", "cp")


def merged(blocks: Iterable[BasicBlock], alignment_of: Mapping[str, int]) -> dict[int, int]:
    """See the head. alignment_of: of variables, by name."""
    blocks = list(blocks)
    known = alignments(blocks, alignment_of)
    found: dict[int, int] = {}
    for block in blocks:
        groups: dict[tuple[str, int], dict[int, Instruction]] = {}
        for one in block.body:
            if one.opcode in STOPS:
                _close(groups, known, alignment_of, found)
                groups = {}
            place = _place(one)
            if place is not None:
                name, offset, size = place
                groups.setdefault((name, size), {}).setdefault(offset, one)
        _close(groups, known, alignment_of, found)
    return found


def _place(one: Instruction) -> tuple[str, int, int] | None:
    """(base, offset, bytes) of a scalar load of shared memory that may be merged."""
    words = {word.partition("::")[0] for word in one.modifiers}
    if one.opcode != "ld" or "shared" not in words or words & {"volatile", "v2", "v4", "relaxed", "acquire"}:
        return None
    address, size = one.operands[1], TYPES[type_of(one)].size_bytes
    if one.guard is not None or not isinstance(address, Address) or size not in (4, 8):
        return None
    base = address.base
    return (base.name, address.offset, size) if isinstance(base, (Register, Symbol)) else None


def _close(
    groups: dict[tuple[str, int], dict[int, Instruction]],
    known: Mapping[str, int],
    alignment_of: Mapping[str, int],
    found: dict[int, int],
) -> None:
    for (name, size), loads in groups.items():
        aligned = known.get(name, alignment_of.get(name, UNKNOWN))
        for width in (WIDEST, WIDEST // 2):
            for offset in sorted(loads):
                wanted = [offset + step for step in range(0, width, size)]
                ones = [loads.get(at) for at in wanted]
                if width == size or offset % width or aligned % width:
                    continue
                if all(one is not None and id(one) not in found for one in ones):
                    found.update((id(one), 0) for one in ones)
                    found[id(ones[0])] = width


def alignments(blocks: list[BasicBlock], alignment_of: Mapping[str, int]) -> dict[str, int]:
    """Register -> a number that its value is a multiple of."""
    known: dict[str, int] = {}

    def of(operand: Operand) -> int:
        if isinstance(operand, Register):
            return known.get(operand.name, EVERY)
        if isinstance(operand, Immediate):
            return gcd(operand.value, EVERY) if not operand.float_bytes else UNKNOWN
        if isinstance(operand, Symbol):
            return gcd(alignment_of.get(operand.name, UNKNOWN), operand.offset or EVERY)
        return UNKNOWN

    for _ in range(PASSES):
        changed = False
        for block in blocks:
            for one in block.body:
                if not one.operands or not isinstance(one.operands[0], Register):
                    continue
                name = one.operands[0].name
                value = gcd(known.get(name, EVERY), _value(one, of))
                changed |= known.get(name) != value
                known[name] = value
        if not changed:
            return known
    return {}


def _value(one: Instruction, of: Callable[[Operand], int]) -> int:
    opcode, given = one.opcode, one.operands[1:]
    align = [of(operand) for operand in given]
    if opcode in ("mov", "cvta", "cvt") and len(given) == 1:
        return align[0]
    if opcode in ("add", "sub", "or", "xor", "selp", "min", "max") and len(given) >= 2:
        return gcd(align[0], align[1])
    if opcode == "and" and len(given) == 2:
        return max(align)
    if opcode == "mul" and len(given) == 2:
        return gcd(align[0] * align[1], EVERY)
    if opcode == "mad" and len(given) == 3:
        return gcd(align[0] * align[1], align[2])
    if opcode == "shl" and len(given) == 2 and isinstance(given[1], Immediate):
        return gcd(align[0] << min(given[1].value, 16), EVERY)
    return UNKNOWN
