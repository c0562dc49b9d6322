"""Functions of CUDA's device runtime that kernels call and the vendor's driver supplies: vprintf, malloc, free.

In       a call: the .param variables that it passes, in each thread's local memory
Out      what ends the block that calls
Changes  sys.stdout, the heap, the results in local memory
Next     control.py (calls), device_heap.py, hcq/code/printf.py (formats)
Source   CUDA C++ Programming Guide, "Formatted Output", "Dynamic Global Memory Allocation and Operations";
         what nvrtc passes

A GPU keeps what kernels print in a buffer of 1 MiB until the host waits for it. Here it is printed when it comes, one
thread after the other, and so is there when the wait ends, and nothing is lost. Threads are served in the order of
their numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hcq.code.printf import formatted
from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.errors import BadAccess, KernelFault
from hcq.emu.nv.shader.syntax import Instruction

LONGEST_TEXT = 1 << 16
NO_FORMAT = -1


class Caller(NamedTuple):
    """A thread that calls, and where."""

    batch: Batch
    lane: int
    instruction: Instruction

    def fault(self, why: str) -> KernelFault:
        """The report of what it must not do."""
        block, thread = self.batch.place(self.lane)
        return KernelFault(
            f"kernel {self.batch.launch.kernel_name}, PTX line {self.instruction.line} `{self.instruction}`, thread "
            f"{thread} of block {block}: {why}.",
            self.instruction.line,
            [(block, thread)],
        )

    def bytes_at(self, va: int, size_bytes: int) -> bytes:
        """What it reads at a generic address. Raises KernelFault."""
        at = np.arange(va, va + size_bytes, dtype=np.uint64)
        try:
            found = spaces.GENERIC.load(self.batch, np.full(size_bytes, self.lane), at, np.uint8, 1)
        except BadAccess as bad:
            raise self.fault(f"printf reads {bad.address:#x}: {bad.why}") from None
        return bytes(found.tobytes())

    def text_at(self, va: int) -> str:
        """A string that ends with a zero."""
        found = bytearray()
        while len(found) < LONGEST_TEXT and (byte := self.bytes_at(va + len(found), 1)) != b"\0":
            found += byte
        return found.decode("utf-8", "replace")


class _Passed:
    """The arguments behind a format, as C lays out a structure of them."""

    def __init__(self, caller: Caller, at: int, texts: dict[int, str]) -> None:
        self.caller, self.at, self.texts = caller, at, texts
        self.count = 0

    def number(self, size_bytes: int) -> int:
        """The next one, aligned to its size."""
        self.at = -(-self.at // size_bytes) * size_bytes
        found = int.from_bytes(self.caller.bytes_at(self.at, size_bytes), "little")
        self.at += size_bytes
        self.count += 1
        return found

    def text(self) -> str:
        """The next one, the address of a string."""
        va = self.number(8)
        return _text(self.caller, va, self.texts) if va else "(null)"


def _text(caller: Caller, va: int, texts: dict[int, str]) -> str:
    known = texts.get(va)
    if known is None:
        known = caller.text_at(va)
        if spaces.is_global(caller.batch, va):
            texts[va] = known
    return known


def vprintf(caller: Caller, passed: list[int], texts: dict[int, str]) -> int:
    """Prints; returns how many arguments it printed, as CUDA's does."""
    form, at = passed
    if not form:
        return NO_FORMAT
    values = _Passed(caller, at, texts)
    sys.stdout.write(formatted(_text(caller, form, texts), values))
    return values.count


def malloc(caller: Caller, passed: list[int], texts: dict[int, str]) -> int:
    """Memory of the heap; 0 where there is none left."""
    va = caller.batch.memory.heap.allocate(passed[0])
    if va and caller.batch.unwritten is not None:
        caller.batch.unwritten.taken(va, passed[0])
    return va


def free(caller: Caller, passed: list[int], texts: dict[int, str]) -> int:
    """Gives memory back; nothing of 0."""
    if passed[0] and not caller.batch.memory.heap.give_back(passed[0]):
        raise caller.fault(f"free({passed[0]:#x}): malloc has given out no memory that begins there")
    return 0


Function = Callable[[Caller, list[int], dict[int, str]], int]
FUNCTIONS: dict[
    str, tuple[Function, tuple[int, ...], tuple[int, ...]]
] = {  # with bytes of arguments and results
    "vprintf": (vprintf, (8, 8), (4,)),
    "malloc": (malloc, (8,), (8,)),
    "free": (free, (8,), ()),
}
