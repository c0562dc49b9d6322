"""Doorbells: pages that the program must not write before somebody has looked at its rings.

In       a mapping of doorbells, at the end of the mmap that made it; a store to it, which faults
Out      the store, made at a second mapping of the same page, once `look` has returned
Changes  the program's memory: the mapping has no access, the second one has; one register, for one instruction
Next     process.py (who looks), ptrace.py

The first mapping stays closed for good, so that no store of another thread slips through while one is let through.
What is not a plain store by a base register is made with the page open: for that instruction, and for all threads.
"""

from __future__ import annotations

import functools
from typing import Any

from hcq.tools.trace.tracer import ptrace

PROT_NONE, PROT_READ, PROT_WRITE = 0, 1, 2
MAP_SHARED = 1
MAX_INSTRUCTION_BYTES = 15


class Doorbells:
    """One withheld mapping: [start, start + size_bytes), and where it is open."""

    def __init__(self, start: int, size_bytes: int, shadow: int) -> None:
        self.start, self.size_bytes, self.shadow = start, size_bytes, shadow

    def holds(self, va: int) -> bool:
        """Whether an address lies in it."""
        return self.start <= va < self.start + self.size_bytes


def withhold(thread: int, start: int, size_bytes: int, fd: int, offset: int) -> Doorbells | None:
    """Close a mapping that has just been made, and make the second one; None where that is refused."""
    access = PROT_READ | PROT_WRITE
    shadow = ptrace.inject(thread, ptrace.MMAP, 0, size_bytes, access, MAP_SHARED, fd, offset)
    if shadow < 0:
        return None
    if ptrace.inject(thread, ptrace.MPROTECT, start, size_bytes, PROT_NONE) < 0:
        ptrace.inject(thread, ptrace.MUNMAP, shadow, size_bytes)
        return None
    return Doorbells(start, size_bytes, shadow)


def let_through(thread: int, page: Doorbells, code: bytes, call_at: int) -> int:
    """Make the store that a thread stopped at. Returns the signal it then stopped with: SIGTRAP when all went well.

    call_at   behind an instruction of the program that makes system calls
    """
    before = ptrace.registers(thread)
    base = _base(code)
    if not base:
        return _with_open_page(thread, page, call_at)
    moved = before.copy()
    moved[base] = before[base] + page.shadow - page.start
    ptrace.set_registers(thread, moved)
    stopped = ptrace.step(thread)
    if stopped:
        after = ptrace.registers(thread)
        if after[base] == moved[base]:
            after[base] = before[base]
            ptrace.set_registers(thread, after)
    return stopped


def _with_open_page(thread: int, page: Doorbells, call_at: int) -> int:
    ptrace.inject(thread, ptrace.MPROTECT, page.start, page.size_bytes, PROT_READ | PROT_WRITE, at=call_at)
    stopped = ptrace.step(thread)
    if stopped:
        ptrace.inject(thread, ptrace.MPROTECT, page.start, page.size_bytes, PROT_NONE, at=call_at)
    return stopped


@functools.lru_cache(256)
def _base(code: bytes) -> str:
    """The register that the address of a store is reckoned from, where nothing else in the instruction reads it."""
    import capstone
    from capstone import x86

    reader = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    reader.detail = True
    one: Any = next(reader.disasm(code, 0, 1), None)
    if one is None:
        return ""
    memory = [each for each in one.operands if each.type == x86.X86_OP_MEM]
    others = [each.reg for each in one.operands if each.type == x86.X86_OP_REG]
    if len(memory) != 1 or not memory[0].mem.base:
        return ""
    name = str(one.reg_name(memory[0].mem.base))
    used = {str(one.reg_name(number)) for number in (*others, memory[0].mem.index) if number}
    return name if name in ptrace.NAMES and not used & _parts(name) and name != "rsp" else ""


def _parts(name: str) -> set[str]:
    """A register by all its names: rax, eax, ax, al; r8, r8d, r8w, r8b."""
    if name[1].isdigit():
        return {name, f"{name}d", f"{name}w", f"{name}b"}
    short = name[1:]
    return {name, f"e{short}", short, f"{short[0]}l", f"{short[0]}h", f"{short}l"}
