"""What can stop an emulated kernel; each says where, in which instruction, and which lanes.

In       a program counter and what went wrong there
Out      UnknownInstruction, PageFault, IllegalOperation, Trapped, OutOfBudget
Next     memory.py (page faults), machine.py (budgets), hcq/errors.py (the tree above)
"""

from __future__ import annotations

from collections.abc import Sequence

from hcq.errors import DeviceFault
from hcq.events.waves import Wave


class ShaderFault(DeviceFault):
    """A kernel stopped. `pc` is the address of the instruction; `waves`: where all of them were."""

    pc: int = 0
    waves: tuple[Wave, ...] = ()


class UnknownInstruction(ShaderFault):
    """Words that no table names: never skipped."""

    def __init__(self, arch: str, pc: int, words: Sequence[int]) -> None:
        text = " ".join(f"{word:08x}" for word in words)
        super().__init__(f"pc {pc:#x}: {text or 'end of code'} is no {arch} instruction this emulator knows.")
        self.pc, self.words = pc, tuple(words)


class PageFault(ShaderFault):
    """An address that nothing is mapped at, or that may not be written."""

    def __init__(
        self, address: int, size_bytes: int, kind: str, why: str, pc: int = 0, where: str = ""
    ) -> None:
        self.address, self.size_bytes, self.kind, self.why, self.where = address, size_bytes, kind, why, where
        self.pc = pc
        at = f" at pc {pc:#x}" if pc else ""
        who = f" ({where})" if where else ""
        super().__init__(f"page fault: {kind} of {size_bytes} bytes at {address:#x}{at}{who}: {why}.")

    def at(self, pc: int, where: str) -> PageFault:
        """The same fault with the instruction and lane that made it."""
        return PageFault(self.address, self.size_bytes, self.kind, self.why, pc, where)


class IllegalOperation(ShaderFault):
    """An instruction that is known but cannot run here: a trap, a graphics operation, a mode that is not supported."""

    def __init__(self, pc: int, what: str) -> None:
        super().__init__(f"pc {pc:#x}: {what}")
        self.pc = pc


class Trapped(IllegalOperation):
    """A kernel that gave up by itself: s_trap, of an assertion or of llvm.trap."""


class OutOfBudget(ShaderFault):
    """A dispatch ran more instructions than it was given: an endless loop, or a wait for work that never comes."""

    def __init__(self, pc: int, what: str) -> None:
        super().__init__(f"pc {pc:#x}: {what}")
        self.pc = pc
