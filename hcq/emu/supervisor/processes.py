"""Processes that are not this one, as emulated drivers see them: memory, descriptors, and their end.

In       numbers of threads that make calls
Out      ForeignProcess: what a driver reads and writes, and whose files it finds; gone(...) when one has ended
Changes  memory of these processes; `lose` tells the drivers what to give back
Next     hcq/emu/kernel.py (Process), answers.py (who asks), mirror.py (pages for GPUs)
Source   process_vm_readv(2), pidfd_open(2), proc(5)

A process that executes another program keeps its number and loses its memory: it is another one from then on.
"""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any

from hcq.emu.backing import DeviceMemory
from hcq.emu.kernel import File, Process, Refusal, UserMemory
from hcq.emu.supervisor.bpf import Abi
from hcq.emu.supervisor.mirror import Mirror
from hcq.system import native

PAGE = 4096
PATH_BYTES = 4096
EXEC_SECONDS = 1.0  # so long execve may take


class Reach:
    """How memory of other processes is read and written."""

    def __init__(self, abi: Abi) -> None:
        self._read, self._write = abi.process_vm_readv, abi.process_vm_writev

    def read(self, pid: int, va: int, size_bytes: int) -> bytes:
        """As much as is mapped from there on, up to so many bytes. Raises Refusal (EFAULT) when nothing is."""
        data = bytearray(size_bytes)
        done = self._move(self._read, pid, va, data) if size_bytes else 0
        return bytes(data[:done])

    def write(self, pid: int, va: int, data: bytes | bytearray) -> None:
        """All of it. Raises Refusal (EFAULT)."""
        if data and self._move(self._write, pid, va, bytearray(data)) != len(data):
            raise Refusal(errno.EFAULT)

    def read_into(self, pid: int, va: int, data: Any) -> None:
        """Fill a buffer. Raises Refusal (EFAULT)."""
        if self._move(self._read, pid, va, data) != len(data):
            raise Refusal(errno.EFAULT)

    def write_from(self, pid: int, va: int, data: Any) -> None:
        """All of a buffer. Raises Refusal (EFAULT)."""
        if self._move(self._write, pid, va, data) != len(data):
            raise Refusal(errno.EFAULT)

    def _move(self, number: int, pid: int, va: int, data: Any) -> int:
        vectors = native.new("uint64_t[]", (native.address_of(data), len(data), va, len(data)))
        at = native.address(vectors)
        done = native.system_call(number, pid, at, 1, at + 16, 1)
        if done < 0:
            raise Refusal(errno.EFAULT if -done == errno.EFAULT else -done)
        return done

    def text(self, pid: int, va: int) -> str:
        """The zero-terminated text at an address: a path. Raises Refusal (EFAULT, ENAMETOOLONG)."""
        found = b""
        while len(found) <= PATH_BYTES:
            # most paths are short, and what lies behind the page may not be mapped
            piece = self.read(pid, va, min(256, PAGE - va % PAGE))
            end = piece.find(0)
            if end >= 0:
                return os.fsdecode(found + piece[:end])
            if not piece:
                raise Refusal(errno.EFAULT)
            found += piece
            va += len(piece)
        raise Refusal(errno.ENAMETOOLONG)


class ForeignProcess(Process):
    """A process under the supervisor.

    file_of   finds the emulated file behind a descriptor of a process
    show      makes its descriptor one of some memory
    install   gives the process whose call this thread answers a descriptor: of a file, so large, with these flags
    """

    def __init__(
        self,
        pid: int,
        reach: Reach,
        file_of: Callable[[int, int], File | None],
        show: Callable[[int, int, DeviceMemory], None],
        install: Callable[[ForeignProcess, File, int, int], int],
        is_interrupted: Callable[[], bool],
    ) -> None:
        self._pid, self._reach, self._file_of = pid, reach, file_of
        self._show, self._install, self._is_interrupted = show, install, is_interrupted
        self.image = image_of(pid)
        self.may_be_another = False  # it is about to execute another program
        self.is_gone = False

    @property
    def pid(self) -> int:
        return self._pid

    def read(self, va: int, size_bytes: int) -> bytes:
        data = self._reach.read(self._pid, va, size_bytes)
        if len(data) != size_bytes:
            raise Refusal(errno.EFAULT)
        return data

    def write(self, va: int, data: bytes | bytearray) -> None:
        self._reach.write(self._pid, va, data)

    def memory(self, va: int, size_bytes: int) -> UserMemory:
        for edge in (va, va + size_bytes - 1):
            self.read(edge, 1)  # raises where nothing is mapped
        return Mirror(va, size_bytes, self.read_into, self.write_from)

    def read_into(self, va: int, data: Any) -> None:
        """Fill a buffer of ours with its memory. Raises Refusal (EFAULT)."""
        self._reach.read_into(self._pid, va, data)

    def write_from(self, va: int, data: Any) -> None:
        """Change its memory to what a buffer of ours holds. Raises Refusal (EFAULT)."""
        self._reach.write_from(self._pid, va, data)

    def file(self, fd: int) -> File | None:
        return self._file_of(self._pid, fd)

    def show(self, fd: int, memory: DeviceMemory) -> None:
        self._show(self._pid, fd, memory)

    def install(self, file: File, size_bytes: int, flags: int) -> int:
        return self._install(self, file, size_bytes, flags)

    def is_interrupted(self) -> bool:
        return self.is_gone or self._is_interrupted()


class Processes:
    """The processes that have called an emulated driver.

    lose  called once for each that is gone
    tell  called with a descriptor of each, and of those that execute a program
    """

    def __init__(
        self,
        make: Callable[[int], ForeignProcess],
        lose: Callable[[ForeignProcess], None],
        tell: Callable[[int], None],
    ) -> None:
        self._make, self._lose, self._tell = make, lose, tell
        self._lock = threading.Lock()
        self._found: dict[int, ForeignProcess] = {}
        self._of_thread: dict[int, int] = {}
        self._pidfds: dict[int, int] = {}  # descriptor -> pid
        self._poll = select.epoll()
        threading.Thread(target=self._watch, name="ends of processes", daemon=True).start()

    def of_thread(self, thread: int) -> ForeignProcess:
        """The process of a thread that makes a call now. Raises Refusal (ESRCH) when it has died meanwhile."""
        pid = self._group(thread)
        found = self._found.get(pid)
        if found is not None and found.may_be_another and image_of(pid) != found.image:
            self._end(found)
            found = None
        return found if found is not None else self._first_call(pid)

    def _group(self, thread: int) -> int:
        if thread in self._found:
            return thread
        pid = self._of_thread.get(thread)
        # numbers are used again: is this one still a thread of that process?
        if pid not in self._found or not os.path.exists(f"/proc/{pid}/task/{thread}"):
            pid = self._of_thread[thread] = group_of(thread)
        return pid

    def _first_call(self, pid: int) -> ForeignProcess:
        with self._lock:
            found = self._found.get(pid)
            if found is None:
                try:
                    pidfd = os.pidfd_open(pid)
                except OSError:
                    raise Refusal(errno.ESRCH) from None
                self._tell(pidfd)
                found = self._found[pid] = self._make(pid)
                self._pidfds[pidfd] = pid
                self._poll.register(pidfd, select.EPOLLIN)
            return found

    def executes(self, thread: int) -> None:
        """A thread is about to execute another program. If that succeeds, its process is lost."""
        try:
            pid = self._group(thread)
            found = self._found.get(pid)
            if found is None:
                pidfd = os.pidfd_open(pid)
                self._tell(pidfd)
                os.close(pidfd)
        except (Refusal, OSError):
            return
        if found is not None and not found.may_be_another:
            found.may_be_another = True
            threading.Thread(target=self._look_again, args=(found,), daemon=True).start()

    def _look_again(self, process: ForeignProcess) -> None:
        """Until it has become another program, or the call has had its time: then it has failed."""
        end = time.monotonic() + EXEC_SECONDS
        while not process.is_gone and time.monotonic() < end:
            if image_of(process.pid) != process.image:
                self._end(process)
                return
            time.sleep(0.02)
        process.may_be_another = False

    def _watch(self) -> None:
        while True:
            for pidfd, _ in self._poll.poll():
                self._poll.unregister(pidfd)
                os.close(pidfd)
                found = self._found.get(self._pidfds.pop(pidfd))
                if found is not None:
                    self._end(found)

    def _end(self, process: ForeignProcess) -> None:
        with self._lock:
            if process.is_gone:
                return
            process.is_gone = True
            if self._found.get(process.pid) is process:
                del self._found[process.pid]
        self._lose(process)

    def end_all(self) -> None:
        """The supervisor ends: what its processes had is given back."""
        for process in list(self._found.values()):
            self._end(process)


def group_of(thread: int) -> int:
    """The process of a thread. Raises Refusal (ESRCH) when there is none any more."""
    try:
        with open(f"/proc/{thread}/status", "rb") as file:
            for line in file:
                if line.startswith(b"Tgid:"):
                    return int(line[5:])
    except OSError:
        pass
    raise Refusal(errno.ESRCH)


def image_of(pid: int) -> bytes:
    """What tells the program that a process executes from the one before: where the kernel put it, by chance."""
    try:
        with open(f"/proc/{pid}/auxv", "rb") as file:
            auxiliary = file.read()
        return auxiliary + os.fsencode(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return b""
