"""Patches: functions of the C library that go to code of ours from their first instruction on.

In       names of functions, and what is to be called instead
Out      Patches: put in place, and taken away again
Changes  the first 12 or 16 bytes of each function, in this process alone
Next     attached.py (who calls this)
Source   Intel SDM, "MOV" and "JMP" of registers; Arm ARM, LDR (literal) and BR; proc(5): /proc/self/mem

The first instruction is changed, not the tables through which libraries find the function: so libraries that are
opened later, pointers from dlsym, and the C library's own calls (fopen, realpath) arrive as well. The old function is
never called again: it is one system call, which whoever is called instead makes. The bytes are written through
/proc/self/mem, so no page is writable and executable at once.

It must happen while no other thread is in one of these functions: before a program starts its threads.
"""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Callable, Mapping
from typing import Any

from hcq.errors import DriverError
from hcq.system import native

ALIGNMENT = 16  # of functions in the C library: so much of each may be overwritten
PROTOTYPE = "long(*)(long, long, long, long, long)"  # whatever a function takes, these are its registers
Replacement = Callable[[int, int, int, int, int], int]


def jump(target: int) -> bytes:
    """Code that goes to an address and changes no register that arguments or results are in."""
    if platform.machine() == "aarch64":
        return struct.pack("<IIQ", 0x58000050, 0xD61F0200, target)  # ldr x16, [pc + 8]; br x16
    return b"\x48\xb8" + struct.pack("<Q", target) + b"\xff\xe0"  # mov rax, target; jmp rax


class Patches:
    """Functions by name, and what stands in for them. A name that this C library has not is left out.

    failed   called with an exception that one of them raised; it says what the function returns then
    """

    def __init__(
        self,
        replacements: Mapping[str, Replacement],
        failed: Callable[[type[BaseException], BaseException, object], int],
    ) -> None:
        self._kept: list[Any] = []  # callbacks: a thread may be in one even after `undo`
        self._old: dict[int, bytes] = {}
        self._new: dict[int, bytes] = {}
        for name, replacement in replacements.items():
            va = native.address(native.libc().dlsym(native.pointer(0), name.encode()))
            if not va or va in self._new:
                continue
            if va % ALIGNMENT:
                raise DriverError(
                    f"{name} of this C library is at {va:#x}: not aligned, and so not ours to change."
                )
            made = native.callback(PROTOTYPE, replacement, failed)
            self._kept.append(made)
            self._new[va] = jump(native.address(made))
            self._old[va] = native.read(va, len(self._new[va]))

    def put(self) -> None:
        """From now on the functions are ours. Raises DriverError when the system keeps code as it is."""
        try:
            self._write(self._new)
        except OSError as error:
            self.undo()
            raise DriverError(
                f"/proc/self/mem: {error.strerror}: this system lets nobody change code, and so hcq.emu.attach cannot "
                "work here. Use `python -m hcq emulate`, where seccomp is allowed."
            ) from None

    def undo(self) -> None:
        """The functions are what they were."""
        try:
            self._write(self._old)
        except OSError:
            pass  # then they were never changed

    def _write(self, code: Mapping[int, bytes]) -> None:
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            for va, data in code.items():
                os.pwrite(memory.fileno(), data, va)
