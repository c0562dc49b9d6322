"""Helper: a process that tries things which may hang, crash or take all memory, one at a time.

In       a function of bytes, or one made in the process; requests; how long each may take
Out      its answer, or a `Failed` that says what became of it
Changes  forks a process; kills it when a request is not answered in time, and forks another for the next one
Next     ../parallel.py (many compilations that are all expected to end well), frontend/search/ (what is tried here)

The process is a fork, so that a kernel's graph need not be written down for it. It ignores Ctrl-C, which is for its
parent, ends when its parent does, and has an alarm of its own: if the parent is killed, what hangs here does not stay.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import select
import signal
import time
import warnings
from collections.abc import Callable, Sequence

LENGTH_BYTES = 8
ANSWER, REFUSAL = b"\0", b"\1"  # the first byte of what comes back
ALARM_S = 5.0  # more than the parent allows: it is the one to say what happened
END_S = 0.2  # how long one that was killed may take to end, before it is looked after later
GONE_S = 10.0  # how long one that ends by itself may, before it is killed: a machine may be busy

Work = Callable[[bytes], bytes]

_unreaped: list[int] = []  # killed, and a kernel driver still has to take something away from them


class Failed(Exception):
    """A request that was not answered; says why."""


class Helper:
    """One process, started at the first request.

    make          called in the process: what answers requests. What it raises answers the first one
    memory_bytes  how much more address space it may take than its parent has; 0: no limit
    """

    def __init__(self, make: Callable[[], Work], memory_bytes: int = 0) -> None:
        self.make = make
        self.memory_bytes = memory_bytes
        self.starts = 0
        self._pid = 0
        self._to = self._from = -1
        self._since = 0.0
        self._limit_s = 0.0

    def ask(self, request: bytes, limit_s: float) -> bytes:
        """The answer to a request. Raises Failed when there is none in time, or the process has ended."""
        self.begin(request, limit_s)
        return self.answer()

    def begin(self, request: bytes, limit_s: float) -> None:
        """Hand over a request; `answer` comes next. Raises Failed where no process can be had."""
        if not self._pid:
            self._start()
        self._since, self._limit_s = time.monotonic(), limit_s
        head = len(request).to_bytes(LENGTH_BYTES, "little") + int(1000 * limit_s).to_bytes(
            LENGTH_BYTES, "little"
        )
        try:
            _write(self._to, head + request)
        except OSError as error:
            raise Failed(f"the process ended with {self.end(is_gone=True)}") from error

    def answer(self) -> bytes:
        """What came of the request that was begun."""
        end = self._since + self._limit_s
        head = self._read(1 + LENGTH_BYTES, end)
        data = self._read(int.from_bytes(head[1:], "little"), end)
        if head[:1] == REFUSAL:
            raise Failed(data.decode(errors="replace"))
        return data

    @property
    def is_answered(self) -> bool:
        """Whether `answer` would return or raise without waiting."""
        late = time.monotonic() > self._since + self._limit_s
        return late or bool(readable([self._from], 0))

    @property
    def output(self) -> int:
        """What becomes readable with the answer."""
        return self._from

    @property
    def deadline(self) -> float:
        """When the request that was begun is given up, on time.monotonic."""
        return self._since + self._limit_s

    def end(self, is_gone: bool = False) -> str:
        """End the process, now. Returns how it ended, in words. is_gone: it is ending by itself."""
        pid, self._pid = self._pid, 0
        if not pid:
            return "nothing"
        for descriptor in (self._to, self._from):
            os.close(descriptor)
        return _reap(pid, is_gone)

    def _read(self, count: int, end: float) -> bytes:
        data = b""
        while len(data) < count:
            left = end - time.monotonic()
            if not readable([self._from], left):
                self.end()
                raise Failed(f"no answer in {self._limit_s:.2f} s")
            part = os.read(self._from, min(count - len(data), 1 << 20))
            if not part:
                raise Failed(f"the process ended with {self.end(is_gone=True)}")
            data += part
        return data

    def _start(self) -> None:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        try:
            # that other threads may hold locks: a helper that waits for one is killed
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except OSError as error:
            for descriptor in (ours_in, theirs_out, theirs_in, ours_out):
                os.close(descriptor)
            raise Failed(f"fork() -> {error.strerror}") from error
        if not pid:
            try:
                os.close(ours_in)
                os.close(ours_out)
                _live(self.make, theirs_in, theirs_out, self.memory_bytes)
            finally:
                os._exit(0)
        os.close(theirs_in)
        os.close(theirs_out)
        self.starts += 1
        self._pid, self._from, self._to = pid, ours_in, ours_out


def ask_all(helpers: Sequence[Helper], requests: Sequence[bytes], limit_s: float) -> list[bytes | Failed]:
    """The answers to many requests by several helpers at a time, in the order of the requests."""
    answers: list[bytes | Failed] = [Failed("not asked")] * len(requests)
    waiting = list(range(len(requests)))[::-1]
    busy: dict[Helper, int] = {}
    free = list(helpers)
    while waiting or busy:
        while free and waiting:
            helper, number = free.pop(), waiting.pop()
            try:
                helper.begin(requests[number], limit_s)
                busy[helper] = number
            except Failed as failure:
                answers[number] = failure
                free.append(helper)
        if not busy:
            continue
        left = min(helper.deadline for helper in busy) - time.monotonic()
        readable([helper.output for helper in busy], left)
        for helper in [one for one in busy if one.is_answered]:
            number = busy.pop(helper)
            try:
                answers[number] = helper.answer()
            except Failed as failure:
                answers[number] = failure
            free.append(helper)
    return answers


def readable(descriptors: Sequence[int], timeout_s: float) -> list[int]:
    """Those that can be read without waiting, once there is one or the time is over. They may have any number."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(math.ceil(1000 * max(0.0, timeout_s)))]


# ------------------------------------------------------------ in the process


def _live(make: Callable[[], Work], requests: int, answers: int, memory_bytes: int) -> None:
    """Answer requests until there are no more."""
    import faulthandler

    gc.disable()  # nothing here is worth a destructor
    faulthandler.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    silent = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):  # LLVM prints pages about an end
        os.dup2(silent, descriptor)
    _limit(memory_bytes)
    work: Work | None = None
    while True:
        head = _all(requests, 2 * LENGTH_BYTES)
        request = _all(requests, int.from_bytes(head[:LENGTH_BYTES], "little"))
        limit_s = int.from_bytes(head[LENGTH_BYTES:], "little") / 1000
        signal.setitimer(signal.ITIMER_REAL, limit_s + ALARM_S)
        try:
            work = work or make()
            kind, data = ANSWER, work(request)
        except BaseException as problem:
            kind, data = REFUSAL, f"{type(problem).__name__}: {problem}".encode()
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write(answers, kind + len(data).to_bytes(LENGTH_BYTES, "little") + data)


def _limit(memory_bytes: int) -> None:
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not memory_bytes:
        return
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        if soft == resource.RLIM_INFINITY or used + memory_bytes < soft:
            resource.setrlimit(resource.RLIMIT_AS, (used + memory_bytes, hard))


def _all(descriptor: int, count: int) -> bytes:
    """So many bytes; SystemExit when the parent has gone."""
    data = b""
    while len(data) < count:
        part = os.read(descriptor, count - len(data))
        if not part:
            raise SystemExit
        data += part
    return data


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _reap(pid: int, is_gone: bool) -> str:
    """End a process and see how it ended. One that a kernel driver holds for longer is looked after later."""
    _unreaped[:] = [old for old in _unreaped if _status(old) is None]
    if not is_gone:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + (GONE_S if is_gone else END_S)
    while time.monotonic() < end:
        status = _status(pid)
        if status is not None:
            return status
        time.sleep(0.001)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    _unreaped.append(pid)
    return "SIGKILL"


def _status(pid: int) -> str | None:
    """How a process ended, in words; None while it has not."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # where SIGCHLD is ignored they are gone already
        return "no status"
    if not done:
        return None
    code = os.waitstatus_to_exitcode(status)
    return signal.Signals(-code).name if code < 0 else f"status {code}"
