"""Answers: what the system calls of a program return that concern emulated hardware. All others are the kernel's.

In       notifications: calls with a path, fstat, fallocate, ioctls of GPUs' types
Out      results, errnos, descriptors; or "let it run"
Changes  memory and descriptors of the program; the emulated drivers
Next     hcq/emu/calls.py (calls on files), hcq/emu/kernel.py (the drivers), listener.py (how answers get there)
Source   ioctl(2), execve(2), seccomp_unotify(2)

A wait that a signal interrupts ends as in a kernel driver: the thread is told to make the call again behind the
signal's handler (ERESTARTSYS, which the thread sees as EINTR where the handler does not restart calls). Before Linux
5.19 any call can be interrupted while it is being answered. What a driver did by then has happened; so its answer is
kept, and given when the thread asks again.
"""

from __future__ import annotations

import errno
import os
import threading
import traceback
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from hcq.emu.backing import DeviceMemory
from hcq.emu.calls import MOST_FAILURES, NOT_OURS, Calls, Result, outcome, signed
from hcq.emu.kernel import File, Refusal
from hcq.emu.machine import Machine
from hcq.emu.supervisor.bpf import Abi
from hcq.emu.supervisor.keeper import Keeper
from hcq.emu.supervisor.listener import Listener, Notification
from hcq.emu.supervisor.processes import ForeignProcess, Processes, Reach

ERESTARTSYS = 512  # linux/errno.h: no program sees it


class Lost(NamedTuple):
    """An ioctl that was done, and whose answer found nobody: a signal came in between. The thread asks once more.

    call    descriptor and request; the address of the argument may be another one, on the caller's stack
    """

    process: ForeignProcess
    call: tuple[int, int]
    before: bytes
    after: bytes
    result: int


class Answers(Calls):
    """Answers calls, from any number of threads at once. `failures` is what went wrong here, as text."""

    def __init__(self, machine: Machine, listener: Listener, abi: Abi, keeper: Keeper) -> None:
        super().__init__(machine)
        self.listener, self.abi = listener, abi
        self.reach = Reach(abi)
        self.processes = Processes(self._new_process, self._lose, keeper.tell)
        self.failures: deque[str] = deque(maxlen=MOST_FAILURES)
        self._current = threading.local()
        self._lost: dict[int, Lost] = {}  # by thread, as what follows
        self._doing: dict[int, threading.Event] = {}
        self._methods: dict[int, Callable[..., Result]] = {
            number: getattr(self, f"_{name}") for number, name in abi.calls.items()
        }

    def may_block(self, call: Notification) -> bool:
        """Whether answering it may take a while: drivers' calls do, files do not."""
        return self.abi.calls.get(call.number) == "ioctl"

    def answer(self, call: Notification) -> None:
        """Answer one call."""
        self._current.call = call
        self._current.is_answered = False
        result = outcome(lambda: self._methods[call.number](*call.arguments), self.failures)
        if self._current.is_answered:
            return
        if result is NOT_OURS:
            self.listener.let_it_run(call.id)
        else:
            self.listener.answer(call.id, result)

    # ------------------------------------------------------------ the caller

    @property
    def _thread(self) -> int:
        call: Notification = self._current.call
        return call.thread

    def process(self) -> ForeignProcess:
        return self.processes.of_thread(self._thread)

    def proc(self) -> str:
        return f"/proc/{self._thread}"

    def read(self, va: int, size_bytes: int) -> bytes:
        return self.reach.read(self._thread, va, size_bytes)

    def write(self, va: int, data: bytes) -> None:
        self.reach.write(self._thread, va, data)

    def text(self, va: int) -> str:
        return self.reach.text(self._thread, va)

    def give(self, fd: int, flags: int) -> int:
        self._current.is_answered = True
        return 0 if self.listener.answer_descriptor(self._current.call.id, fd, flags) else -errno.EINTR

    def replace(self, fd: int, by: int, flags: int) -> None:
        try:
            self.listener.replace_descriptor(self._current.call.id, fd, by, flags)
        except OSError as error:
            raise Refusal(error.errno or errno.EBADF) from None

    # ------------------------------------------------------------ processes

    def _new_process(self, pid: int) -> ForeignProcess:
        return ForeignProcess(pid, self.reach, self._file_of, self._show, self._install, self._is_interrupted)

    def _lose(self, process: ForeignProcess) -> None:
        for position, one in list(self._files.items()):
            if one.process is process:
                del self._files[position]
        for inode, one in list(self._made.items()):
            if one.process is process:
                del self._made[inode]
        for kernel in self.machine.kernels:
            try:
                kernel.exit(process)
            except Exception:
                self.failures.append(traceback.format_exc())

    def _file_of(self, pid: int, fd: int) -> File | None:
        found = self.open_file(f"/proc/{pid}", fd)
        return found.file if found else None

    def _show(self, pid: int, fd: int, memory: DeviceMemory) -> None:
        self.show(f"/proc/{pid}", fd, memory)

    def _install(self, process: ForeignProcess, file: File, size_bytes: int, flags: int) -> int:
        def give(fd: int) -> int:
            try:
                return self.listener.add_descriptor(self._current.call.id, fd, flags & os.O_CLOEXEC)
            except OSError as error:
                gone = error.errno == errno.ENOENT  # the call was given up
                raise Refusal(errno.EINTR if gone else error.errno or errno.EIO) from None

        return self.make(file, process, size_bytes, give)

    def _is_interrupted(self) -> bool:
        call = getattr(self._current, "call", None)
        return call is not None and self.listener.is_interrupted(call)

    # ------------------------------------------------------------ exec

    def _execve(self, *_: int) -> Result:
        self.processes.executes(self._thread)
        return NOT_OURS

    def _execveat(self, *_: int) -> Result:
        return self._execve()

    # ------------------------------------------------------------ ioctl

    def _ioctl(self, fd: int, request: int, va: int, *_: int) -> Result:
        thread, request = self._thread, request & 0xFFFFFFFF
        opened = self.open_file(self.proc(), signed(fd))
        if opened is None:
            return -errno.EBADF if self.is_ours(self.proc(), signed(fd)) else NOT_OURS
        process = self.processes.of_thread(thread)
        given_up = self._doing.get(thread)
        done = self._doing[thread] = threading.Event()
        if given_up is not None:
            given_up.wait()  # a signal came: the thread asks again while its last call is still being answered
        try:
            return self._do_ioctl(opened.file, process, thread, (fd, request), va)
        finally:
            done.set()
            if self._doing.get(thread) is done:
                del self._doing[thread]

    def _do_ioctl(
        self, file: File, process: ForeignProcess, thread: int, call: tuple[int, int], va: int
    ) -> Result:
        request = call[1]
        size = file.argument_bytes(request)
        before = process.read(va, size) if size else b""
        if not self.listener.is_valid(self._current.call.id):
            return -errno.EINTR  # given up before it has begun: what was read may be anything
        lost = self._lost.pop(thread, None)
        if lost and (lost.process, lost.call) == (process, call) and before in (lost.before, lost.after):
            result, argument = lost.result, bytearray(lost.after)
        else:
            argument = bytearray(before)
            try:
                result = file.ioctl(request, argument, process)
            except Refusal as refusal:
                result = -refusal.number
        if result == -errno.EINTR and self.listener.holds_callers:
            result = -ERESTARTSYS
        id = self._current.call.id
        # a thread that has given up uses this memory for something else by now
        is_heard = self.listener.is_valid(id)
        if is_heard and argument != before:
            process.write(va, argument)
        self._current.is_answered = True
        if not (is_heard and self.listener.answer(id, result)) and result >= 0 and not process.is_gone:
            self._lost[thread] = Lost(process, call, before, bytes(argument), result)
        return result
