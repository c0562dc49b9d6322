"""The supervisor: an unmodified program, and all that it starts, sees emulated GPUs.

In       words of HCQ_EMULATE, a command line
Out      the program's end, as waitpid tells it; what the emulated drivers logged
Changes  processes are started, waited for, and ended with this one
Next     spawn.py (how a program starts), answers.py (what its calls return), command.py (the command line)

Threads take turns in asking for the next call, and answer it while the next one asks: a call that blocks (a wait for an
event) holds up nobody. The emulated GPUs have threads of their own here, in the supervisor's process.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from hcq import config
from hcq.emu.machine import Machine, kernels_for
from hcq.emu.supervisor.answers import Answers
from hcq.emu.supervisor.bpf import abi
from hcq.emu.supervisor.keeper import Keeper
from hcq.emu.supervisor.spawn import PR_SET_CHILD_SUBREAPER, spawn
from hcq.events import kernel_observer
from hcq.events.kernel_observer import KernelObserver
from hcq.system import native

IDLE_THREADS = 4  # so many wait for calls; more that have answered theirs end
POLL_MS = 500
OBSERVED_HERE = ("HCQ_TRACE", "HCQ_VALIDATE", "HCQ_SANITIZE", "HCQ_SANITIZE_IGNORE", "HCQ_SANITIZE_SCHEDULES")
GRACE_SECONDS = 2.0  # between SIGTERM and SIGKILL for processes that are left
SWITCH_SECONDS = 0.0005  # how long a GPU's thread may keep a call of the program waiting for the interpreter


class Supervisor:
    """Runs one program. It waits for all children of this process, so nothing else here may have any."""

    def __init__(self, words: Sequence[str], say: Callable[[str], None]) -> None:
        self.abi = abi()
        self.say = say
        kernels = kernels_for(words)
        self.watchers: list[KernelObserver] = []
        for kernel in kernels:
            watcher = kernel_observer.watcher()
            if watcher is not None:
                kernel.observe(watcher)
                self.watchers.append(watcher)
        self.keeper = (
            Keeper()
        )  # before there is a folder to be removed, and before orphans become children of ours
        try:
            self.machine = Machine(kernels, self.keeper.tell_folder)
        except BaseException:
            self.keeper.close()
            raise
        self.child = 0
        self.status: int | None = None
        self._turn = threading.Lock()
        self._count = threading.Lock()
        self._idle = 0
        self._is_over = False

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """The program's environment: what it was given, and what vendors' libraries need where it does not say."""
        found: dict[str, str] = {}
        for kernel in self.machine.kernels:
            found.update(kernel.environment)
            words = config.current().sanitize
            if "memory" in words:
                found.update(kernel.apart)
            if words & {"memory", "race"} and not any(name in given for name in kernel.logged):
                folder = self.machine.folder
                found.update((name, value.format(folder=folder)) for name, value in kernel.logged.items())
        # what these ask for is done here, for all that the program starts, also where that is a program of ours
        kept = {name: value for name, value in given.items() if name not in OBSERVED_HERE}
        return {**found, **kept}

    def run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run a program to its end, and whatever it leaves running. Returns the status that waitpid gave for it.

        Raises  UsageError where the system allows no supervisor, DriverError where it cannot do what one needs
        """
        native.system_call(self.abi.prctl, PR_SET_CHILD_SUBREAPER, 1)
        started = spawn(self.abi, arguments, self.environment(environment))
        self.child = started.pid
        # memory that NVIDIA's nodes show is a file for each allocation; the program's own limit is what it was
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        sys.setswitchinterval(SWITCH_SECONDS)
        for number in _signals():
            signal.signal(number, self._on_signal)
        try:
            started.listener.check()
            self.listener = started.listener
            self.answers = Answers(self.machine, started.listener, self.abi, self.keeper)
            self._more()
            self._wait()
        except BaseException:
            self._end_processes()
            raise
        finally:
            self._is_over = True
        self.answers.processes.end_all()
        failure = started.failure()
        if failure:
            self.say(f"{arguments[0]}: {os.strerror(failure)}.")
        assert self.status is not None
        return self.status

    def log(self) -> list[str]:
        """What the emulated drivers wrote into the kernel's log, and what failed in the supervisor."""
        lines = [line for kernel in self.machine.kernels for line in kernel.log()]
        return lines + [f"the supervisor failed: {text}" for text in self.answers.failures]

    def found(self) -> list[Mapping[str, Any]]:
        """What was found wrong in kernels (HCQ_SANITIZE)."""
        return [one for watcher in self.watchers for one in watcher.found()]

    def summary(self, is_verbose: bool) -> list[str]:
        """What is to be said when the program has ended."""
        return [line for watcher in self.watchers for line in watcher.summary(is_verbose)]

    def close(self) -> None:
        """Remove the emulated files. This process is to end, and as the program did: no further signal changes that."""
        for watcher in self.watchers:
            watcher.close()
        self.machine.close()
        self.keeper.close()
        if self.child:
            for number in _signals():  # Python's own handlers would be the default ones while it ends
                signal.signal(number, signal.SIG_IGN)

    # ------------------------------------------------------------ calls

    def _more(self) -> None:
        """One more thread that answers."""
        with self._count:
            self._idle += 1
        threading.Thread(target=self._serve, name="answers", daemon=True).start()

    def _serve(self) -> None:
        while True:
            with self._turn:
                call = None
                while call is None:
                    if self._is_over:
                        return
                    try:
                        call = self.listener.receive(POLL_MS)
                    except EOFError:
                        return
            is_last = False
            if self.answers.may_block(call):
                with self._count:
                    self._idle -= 1
                    is_last = self._idle == 0
                if is_last:
                    self._more()
                self.answers.answer(call)
                with self._count:
                    if self._idle >= IDLE_THREADS:
                        return
                    self._idle += 1
            else:
                self.answers.answer(call)

    # ------------------------------------------------------------ processes

    def _wait(self) -> None:
        """Until there is no child any more. What a process leaves behind when it ends becomes our child."""
        told_at = 0.0
        while True:
            is_program_gone = self.status is not None
            try:
                pid, status = os.waitpid(-1, os.WNOHANG if is_program_gone else 0)
            except ChildProcessError:
                return
            if pid == self.child:
                self.status = status
                told_at = time.monotonic() + 1
            elif pid == 0:
                if told_at and time.monotonic() > told_at:
                    told_at = 0
                    left = " ".join(map(str, _descendants()))
                    self.say(f"the program has ended; processes that it left running are waited for: {left}.")
                time.sleep(0.02)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C reaches the program by itself; what is for us alone is passed on to it, as long as it runs."""
        if self._is_over:
            return
        if self.status is not None:
            self._end_processes()
        elif number not in (signal.SIGINT, signal.SIGQUIT):
            with contextlib.suppress(ProcessLookupError):  # it has ended, and its status is not noted yet
                os.kill(self.child, number)

    def _end_processes(self) -> None:
        """End what is left, at first politely."""
        for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, GRACE_SECONDS)):
            for pid in _descendants():
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    return
                if pid == self.child:
                    self.status = status
                if not pid:
                    time.sleep(0.01)


def _signals() -> list[signal.Signals]:
    """What would end this process before it has cleaned up, unless whoever started us has it ignored."""
    asked = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in asked if signal.getsignal(number) is not signal.SIG_IGN]


def _descendants() -> list[int]:
    """The processes below this one."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]
