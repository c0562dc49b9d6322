"""ptrace: threads of another process, stopped: their registers, and system calls made in their name.

In       thread numbers
Out      Registers; `inject`, a system call that a stopped thread makes for us; stops and how to go on
Changes  the traced threads
Next     tracer.py (who waits), doorbells.py (who steps)
Source   ptrace(2), sys/user.h: user_regs_struct (x86-64), asm/unistd_64.h
"""

from __future__ import annotations

import os
import signal
import struct

from hcq.errors import DriverError
from hcq.system import native
from hcq.system.port import refused

PTRACE = 101  # the system call, x86-64
TRACEME, CONT, SINGLESTEP, GETREGS, SETREGS, SYSCALL = 0, 7, 9, 12, 13, 24
SETOPTIONS, GETSIGINFO = 0x4200, 0x4202
SYSGOOD, FORK, VFORK, CLONE, EXEC, SECCOMP, EXITKILL = 0x1, 0x2, 0x4, 0x8, 0x10, 0x80, 0x100000
OPTIONS = SYSGOOD | FORK | VFORK | CLONE | EXEC | SECCOMP | EXITKILL
EVENT_FORK, EVENT_VFORK, EVENT_CLONE, EVENT_EXEC, EVENT_SECCOMP, EVENT_STOP = 1, 2, 3, 4, 7, 128
SYSCALL_STOP = signal.SIGTRAP | 0x80
WALL = 0x40000000  # wait for threads, too
MMAP, MPROTECT, MUNMAP = 9, 10, 11
NAMES = (
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi", "orig_rax",
    "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs",
)  # fmt: skip
_LAYOUT = struct.Struct(f"<{len(NAMES)}Q")
_PLACE = {name: place for place, name in enumerate(NAMES)}
SYSCALL_BYTES = 2  # the instruction's length


class Registers:
    """General registers of a stopped thread. Arguments of system calls are rdi, rsi, rdx, r10, r8, r9."""

    def __init__(self, values: list[int]) -> None:
        self.values = values

    def __getitem__(self, name: str) -> int:
        return self.values[_PLACE[name]]

    def __setitem__(self, name: str, value: int) -> None:
        self.values[_PLACE[name]] = value & 2**64 - 1

    def copy(self) -> Registers:
        """Registers that can be changed while these are kept."""
        return Registers(list(self.values))

    @property
    def arguments(self) -> tuple[int, ...]:
        """Of the system call that the thread is making."""
        return tuple(self[name] for name in ("rdi", "rsi", "rdx", "r10", "r8", "r9"))

    @property
    def result(self) -> int:
        """Of the system call that has returned; below zero, an errno."""
        value = self["rax"]
        return value - 2**64 if value >> 63 else value


def ptrace(request: int, thread: int, address: int = 0, data: int = 0) -> int:
    """The system call. Raises DriverError."""
    result = native.system_call(PTRACE, request, thread, address, data)
    if result < 0:
        raise refused(f"ptrace(request={request:#x}, thread={thread})", -result)
    return result


def go_on(thread: int, request: int, number: int = 0) -> None:
    """Let a thread run, with a signal; one that has died meanwhile needs none."""
    try:
        ptrace(request, thread, 0, number)
    except DriverError as error:
        if error.errno != 3:  # ESRCH
            raise


def registers(thread: int) -> Registers:
    """Those of a stopped thread."""
    buffer = bytearray(_LAYOUT.size)
    ptrace(GETREGS, thread, 0, native.address_of(buffer))
    return Registers(list(_LAYOUT.unpack(buffer)))


def set_registers(thread: int, values: Registers) -> None:
    """Change them."""
    buffer = bytearray(_LAYOUT.pack(*values.values))
    ptrace(SETREGS, thread, 0, native.address_of(buffer))


def fault_address(thread: int) -> int:
    """Of the SIGSEGV that a thread stopped with."""
    buffer = bytearray(128)
    ptrace(GETSIGINFO, thread, 0, native.address_of(buffer))
    return int(struct.unpack_from("<Q", buffer, 16)[0])


def inject(thread: int, number: int, *arguments: int, at: int = 0) -> int:
    """Make a system call in the name of a stopped thread. Returns its result, or -errno.

    at   behind an instruction that makes one; without, the thread has just stopped at the end of one of its own
    """
    before = registers(thread)
    at = at or before["rip"]
    made = before.copy()
    made["rax"], made["rip"] = number, at - SYSCALL_BYTES
    made["orig_rax"] = 2**64 - 1  # nothing to be made again
    for name, value in zip(("rdi", "rsi", "rdx", "r10", "r8", "r9"), arguments):
        made[name] = value
    set_registers(thread, made)
    after = before
    for _ in range(8):  # its entry and its end; a filter may stop it once more
        ptrace(SYSCALL, thread)
        _, status = os.waitpid(thread, WALL)
        if not os.WIFSTOPPED(status):
            raise DriverError(f"thread {thread} ended in the middle of a call of the tracer.")
        after = registers(thread)
        if after["rip"] == at and os.WSTOPSIG(status) == SYSCALL_STOP and after["rax"] != 2**64 - 38:
            break
    set_registers(thread, before)
    return after.result


def step(thread: int) -> int:
    """One instruction. Returns the signal that it stopped with: SIGTRAP when it was done."""
    ptrace(SINGLESTEP, thread)
    _, status = os.waitpid(thread, WALL)
    return os.WSTOPSIG(status) if os.WIFSTOPPED(status) else 0
