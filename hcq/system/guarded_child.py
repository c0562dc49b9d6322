"""Guarded child: where memory is limited, LLVM compiles in a child process, because it aborts when memory runs out.

In       a function that makes bytes with LLVM, and a description for the error
Out      its bytes; or a DriverError when the child ended without them
Changes  where `ulimit -v` or `ulimit -d` leaves little: starts a process for each call. Elsewhere the call is direct
Next     frontend/run/plan.py (the caller, which compiles)
Source   llvm/lib/Support/ErrorHandling.cpp: report_bad_alloc_error and a failed operator new end in abort()

LLVM cannot report that an allocation failed: it calls abort(), and no handler in this process may return from that.
Without a limit Linux grants the memory, so no child is needed. The same holds when the limit leaves more memory than
any kernel ever needed.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from hcq.errors import DriverError
from hcq.system.helper_forks import of_helpers

FAILED, NO_MEMORY = 1, 2  # exit codes of a child: an error of Python's own, a MemoryError
AMPLE_BYTES = 1 << 30  # LLVM loads in 130 MB, and the largest kernels took a tenth of the rest

_lock = threading.Lock()  # a child must not be forked while another thread is inside LLVM


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # in a child that another thread made


os.register_at_fork(after_in_child=_after_fork)


def limits() -> str:
    """The limits on this process's memory that leave little room, in words; "" when there is none."""
    import resource

    said = []
    for option, what, place in (("-v", resource.RLIMIT_AS, 0), ("-d", resource.RLIMIT_DATA, 5)):
        limit = resource.getrlimit(what)[0]
        if limit != resource.RLIM_INFINITY and limit - _used(place) < AMPLE_BYTES:
            said.append(f"ulimit {option} {limit >> 10}")
    return ", ".join(said)


def _used(place: int) -> int:
    """Bytes that count towards a limit: a field of statm. Source: proc(5)."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[place]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # no /proc here: assume the worst
        return 1 << 62


def run(make: Callable[[], bytes], what: str) -> bytes:
    """What `make` returns. Under a limit a child computes it; an error that it raises is raised here."""
    limit = limits()
    if not limit:
        return make()
    with _lock:
        code, data = _in_a_child(make, what, limit)
        if code == FAILED:
            return make()  # for its own error, which has everything in it
    if code:
        name = signal.Signals(-code).name if code < 0 else "a MemoryError"
        raise DriverError(
            f"{what}: the compiler ended with {name}. It wants more memory than {limit} leaves. Raise the limit, or "
            "run the program once without it: what is compiled then is kept in the cache."
        )
    return data


def _in_a_child(make: Callable[[], bytes], what: str, limit: str) -> tuple[int, bytes]:
    """The child's exit code, negative for a signal, and what it wrote."""
    reads, writes = os.pipe()
    try:
        with of_helpers():
            pid = os.fork()
    except OSError as error:
        os.close(reads)
        os.close(writes)
        raise DriverError(f"{what}: fork() -> {error.strerror}, under {limit}. Raise the limit.") from error
    if not pid:
        os._exit(_child(make, writes))
    os.close(writes)
    with open(reads, "rb") as pipe:
        data = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), data


def _child(make: Callable[[], bytes], writes: int) -> int:
    import faulthandler
    import resource

    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # LLVM and faulthandler print pages about an end
    try:
        with open(writes, "wb") as pipe:
            pipe.write(make())
    except MemoryError:
        return NO_MEMORY
    except BaseException:
        return FAILED
    return 0
