"""Parallel: many kernels are compiled by several processes at a time.

In       jobs: functions that make bytes, none of which needs another
Out      the bytes of each
Changes  starts processes by fork, and ends them; where one of them fails, its jobs are done here
Next     compile.py (whose jobs these are), hcq/system/guarded_child.py (one process for another reason: memory)

Half of a compilation is Python's and half LLVM's, which llvmlite lets in one thread at a time: threads would not help.
A fork has the graphs already, so nothing is written down for it. It makes bytes and ends: it touches no device.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import tempfile
import warnings
from collections.abc import Callable, Sequence
from typing import BinaryIO

ENOUGH = 6  # jobs: fewer are done before other processes have begun
NUMBER_BYTES = 8
PIPE_BYTES = 1 << 15  # fit a pipe at once; jobs beyond are done here

Job = Callable[[], bytes]


def run(jobs: Sequence[Job], workers: int) -> list[bytes]:
    """What each job makes, in their order.

    workers  processes at work together, this one included
    Raises   what a job raises
    """
    if workers < 2 or len(jobs) < ENOUGH or not hasattr(os, "fork"):
        return [job() for job in jobs]
    made: dict[int, bytes] = {}
    last = len(jobs) - 1
    made[last] = jobs[last]()  # what all of them import and set up, they inherit
    helpers: list[tuple[int, BinaryIO]] = []
    reads, writes = os.pipe()  # whoever is free takes the next number from here
    try:
        os.write(writes, b"".join(_number(i) for i in range(min(last, PIPE_BYTES // NUMBER_BYTES))))
        os.close(writes)
        writes = -1
        for _ in range(min(workers, len(jobs)) - 1):
            helper = _start(jobs, reads)
            if helper is None:
                break
            helpers.append(helper)
        while number := os.read(reads, NUMBER_BYTES):
            made[int.from_bytes(number, "little")] = jobs[int.from_bytes(number, "little")]()
        while helpers:
            pid, results = helpers[-1]
            with contextlib.suppress(ChildProcessError):  # where SIGCHLD is ignored they are gone already
                os.waitpid(pid, 0)
            helpers.pop()
            with results:
                made.update(_read(results))
    finally:
        os.close(reads)
        if writes >= 0:
            os.close(writes)
        for pid, results in helpers:  # something was raised here
            results.close()
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    return [made[i] if i in made else job() for i, job in enumerate(jobs)]


def _start(jobs: Sequence[Job], numbers: int) -> tuple[int, BinaryIO] | None:
    """Another process at work; None when the system has none to give."""
    results = tempfile.TemporaryFile()
    try:
        with warnings.catch_warnings():  # that other threads may hold locks: none that a compilation needs
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
    except OSError:
        results.close()
        return None
    if not pid:
        os._exit(_help(jobs, numbers, results))
    return pid, results


def _help(jobs: Sequence[Job], numbers: int, results: BinaryIO) -> int:
    """The life of a helper: jobs until there are no more."""
    gc.disable()  # nothing here is worth a destructor
    try:
        while number := os.read(numbers, NUMBER_BYTES):
            data = jobs[int.from_bytes(number, "little")]()
            results.write(number + _number(len(data)) + data)
            results.flush()  # what was done counts, whatever happens later
    except BaseException:
        return 1  # the job is done again where its error can be seen
    return 0


def _read(results: BinaryIO) -> dict[int, bytes]:
    """What a helper made, a result that is cut short left out."""
    results.seek(0)
    found = {}
    while len(head := results.read(2 * NUMBER_BYTES)) == 2 * NUMBER_BYTES:
        size = int.from_bytes(head[NUMBER_BYTES:], "little")
        data = results.read(size)
        if len(data) == size:
            found[int.from_bytes(head[:NUMBER_BYTES], "little")] = data
    return found


def _number(value: int) -> bytes:
    return value.to_bytes(NUMBER_BYTES, "little")
