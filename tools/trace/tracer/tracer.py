"""The tracer: runs a program, stops its threads where they meet a GPU's driver, and tells an observer.

In       a command, an observer
Out      the program's end, as waitpid tells it
Changes  a new process and all that it starts: traced until they end
Next     process.py (what the stops mean), filter.py (which calls stop), hcq/observe/foreign/session.py (the observer)
Source   ptrace(2): syscall-stops, PTRACE_EVENT stops; a new thread begins with a stop by SIGSTOP
"""

from __future__ import annotations

import os
import platform
import signal
from collections.abc import Callable, Sequence

from hcq.errors import UsageError
from hcq.events.kernel_observer import KernelObserver
from hcq.tools.trace.tracer import doorbells, filter, ptrace
from hcq.tools.trace.tracer.process import MAP_SHARED, TracedProcess

NOT_FOUND = 127
PATH_BYTES = 4096
RESTARTS = range(-516, -511)  # ERESTARTSYS and its sisters: the call is made again, or ends as EINTR
Returned = Callable[[int], None]


class Tracer:
    """One program and all that it starts.

    stops_at_every_call   where another filter answers calls before ours
    process_of            what a process is: one that uses a certain driver
    """

    def __init__(
        self,
        observer: KernelObserver,
        stops_at_every_call: bool,
        process_of: Callable[[int, KernelObserver], TracedProcess] = TracedProcess,
    ) -> None:
        if platform.machine() != "x86_64":
            raise UsageError(
                f"record --foreign runs on x86_64; this machine is {platform.machine()}. Programs of this package"
                " record themselves anywhere: leave --foreign out."
            )
        self.observer, self.every, self.process_of = observer, stops_at_every_call, process_of
        self.processes: dict[int, TracedProcess] = {}
        self.threads: dict[int, int] = {}  # thread -> its process
        self.calls: dict[int, Returned | None] = {}  # threads in a system call -> what to do at its end
        self.stops = 0

    def run(self, command: Sequence[str]) -> int:
        """Run a command to its end, and whatever it leaves running. Returns its status. Raises UsageError."""
        child = self._start(command)
        before = {one: signal.signal(one, signal.SIG_IGN) for one in (signal.SIGINT, signal.SIGQUIT)}
        status = 0
        try:
            while True:
                try:
                    thread, now = os.waitpid(-1, ptrace.WALL)
                except ChildProcessError:
                    return status
                if os.WIFSTOPPED(now):
                    self._stopped(thread, now)
                else:
                    if thread == child:
                        status = now
                    self._ended(thread)
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
            for process in list(self.processes.values()):
                process.close()

    def _start(self, command: Sequence[str]) -> int:
        words = list(command)
        child = os.fork()
        if child == 0:
            try:
                for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
                    signal.signal(ignored, signal.SIG_DFL)
                ptrace.ptrace(ptrace.TRACEME, 0)
                os.kill(os.getpid(), signal.SIGSTOP)
                if self.every or filter.install() == 0:
                    os.execvp(words[0], words)
            except OSError as error:
                os.write(2, f"hcq-trace record: {words[0]}: {error.strerror}\n".encode())
            finally:
                os._exit(NOT_FOUND)
        _, now = os.waitpid(child, ptrace.WALL)
        if not os.WIFSTOPPED(now):
            raise UsageError(
                "record --foreign: ptrace is forbidden here (a container, or /proc/sys/kernel/yama). Allow it, or"
                " record with HCQ_TRACE where the program runs on emulated GPUs."
            )
        ptrace.ptrace(ptrace.SETOPTIONS, child, 0, ptrace.OPTIONS)
        self.threads[child] = child
        self._go_on(child)
        return child

    # ------------------------------------------------------------ stops

    def _stopped(self, thread: int, status: int) -> None:
        self.stops += 1
        number, event = os.WSTOPSIG(status), status >> 16
        if thread not in self.threads:
            self.threads[thread] = _number_of(thread)
            if number == signal.SIGSTOP:
                self._go_on(thread)
                return
        if number == ptrace.SYSCALL_STOP:
            self._at_call(thread)
        elif event == ptrace.EVENT_SECCOMP:
            self._begins(thread)
            ptrace.go_on(thread, ptrace.SYSCALL)
        elif event == ptrace.EVENT_EXEC:
            self._executes(thread)
            self._go_on(thread)
        elif event:
            self._go_on(thread)
        elif number == signal.SIGSEGV and self._is_doorbell(thread):
            return
        else:
            self._go_on(thread, number)

    def _go_on(self, thread: int, number: int = 0) -> None:
        ptrace.go_on(thread, ptrace.SYSCALL if self.every else ptrace.CONT, number)

    def _at_call(self, thread: int) -> None:
        if self.every and thread not in self.calls:
            self._begins(thread)
            ptrace.go_on(thread, ptrace.SYSCALL)
            return
        returned = self.calls.pop(thread, None)
        if returned is not None:
            result = ptrace.registers(thread).result
            if result not in RESTARTS:
                returned(result)
        self._go_on(thread)

    def _begins(self, thread: int) -> None:
        """A system call begins: what is to be done at its end."""
        at = ptrace.registers(thread)
        number, arguments = at["orig_rax"], at.arguments
        self.calls[thread] = None
        if number in (filter.OPEN, filter.OPENAT, filter.OPENAT2):
            process = self._process(thread)
            path = _text(process, arguments[0 if number == filter.OPEN else 1])
            if path.startswith("/dev/"):
                self.calls[thread] = lambda fd: process.opened(path, fd) if fd >= 0 else None
        elif number == filter.IOCTL:
            process = self._process(thread)
            process.call_at = at["rip"]
            self.calls[thread] = process.calls(
                arguments[0] & 0xFFFFFFFF, arguments[1] & 0xFFFFFFFF, arguments[2]
            )
        elif number == filter.MMAP and arguments[3] & MAP_SHARED:
            process = self._process(thread)
            _, size, _, _, fd, offset = arguments
            self.calls[thread] = lambda va: (
                process.mapped(thread, va, size, fd & 0xFFFFFFFF, offset) if va >= 0 else None
            )

    def _is_doorbell(self, thread: int) -> bool:
        """A store to a doorbell: made once the rings are read. False for what is the program's own fault."""
        process = self.processes.get(self.threads[thread])
        page = None if process is None else process.rung(ptrace.fault_address(thread))
        if process is None or page is None:
            return False
        code = process.read(ptrace.registers(thread)["rip"], doorbells.MAX_INSTRUCTION_BYTES)
        stopped = doorbells.let_through(thread, page, code, process.call_at)
        if stopped:
            self._go_on(thread, 0 if stopped == signal.SIGTRAP else stopped)
        return True

    # ------------------------------------------------------------ processes

    def _process(self, thread: int) -> TracedProcess:
        number = self.threads[thread]
        found = self.processes.get(number)
        if found is None:
            found = self.processes[number] = self.process_of(number, self.observer)
        return found

    def _executes(self, thread: int) -> None:
        """The process is another program now, and this its only thread."""
        for other in [one for one, number in self.threads.items() if number == thread and one != thread]:
            del self.threads[other]
            self.calls.pop(other, None)
        self._gone(thread)

    def _ended(self, thread: int) -> None:
        self.calls.pop(thread, None)
        if self.threads.pop(thread, None) == thread:
            self._gone(thread)

    def _gone(self, number: int) -> None:
        process = self.processes.pop(number, None)
        if process is not None:
            process.close()


def _number_of(thread: int) -> int:
    try:
        with open(f"/proc/{thread}/status", encoding="ascii", errors="replace") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Tgid:"))
    except (OSError, StopIteration):
        return thread


def _text(process: TracedProcess, va: int) -> str:
    """A path in memory: up to its end, or that of the page."""
    size = min(PATH_BYTES, 4096 - va % 4096)
    data = process.read(va, size)
    if b"\0" not in data:
        data += process.read(va + size, PATH_BYTES)
    return data.split(b"\0")[0].decode("utf-8", "replace")
