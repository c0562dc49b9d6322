"""Guardian: a process between the launcher and a rank, so that one rank's end does not end the others unheard.

In       a process that a launcher of the Hydra family started, before MPI is initialised
Out      the same program, going on in a child: that is the rank; its parent, the guardian, waits and does nothing else
Changes  forks once; the guardian never returns from `stand_between`
Next     job.py (who asks for it), rollcall.py (the table in which the guardian notes how its rank ended)
Source   mpich: src/pm/hydra/proxy (what a proxy does when a process of its ends or closes the descriptor PMI_FD)

When a process that MPICH's launcher started dies, the launcher kills all the others within milliseconds, and its way
not to (-disable-auto-cleanup) tells them by SIGUSR1, which kills them as well, or fails in the middle of a message. So
what the launcher sees is the guardian, which also keeps the rank's descriptor to the launcher open. When the rank
ends in an error, the guardian notes how, waits until the others have noticed and ended, and only then ends, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from typing import NoReturn

from hcq.frontend.more.distributed.rollcall import FAILED, KILLED, LEFT, RUNNING, Table
from hcq.system import native

LOOK_S = 0.05
EXTRA_S = 3.0  # beyond the deadline, for the others to say what they saw
PR_SET_PDEATHSIG = 1
SEGMENT = "/dev/shm/mpich_shm_"
MESSAGE_BYTES = 4096

_parent: socket.socket | None = None  # in the rank: how the guardian is told of the table


def is_wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the launcher is one that kills every rank when one ends: it left the descriptor of its protocol."""
    return "PMI_FD" in environ and hasattr(os, "fork") and sys.platform == "linux"


def stand_between() -> None:
    """Fork: return in the child, which is the rank from now on. The parent waits for it and ends as it did."""
    global _parent
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        theirs.close()
        _guard(child, ours)
    ours.close()
    _parent = theirs
    native.function(native.symbol("prctl"), "int(*)(int, unsigned long)")(PR_SET_PDEATHSIG, signal.SIGKILL)


def hand_over(table: Table, row: int, timeout_ms: float) -> None:
    """Give the guardian, if there is one, the table of ranks, the number of its own row, and the deadline of waits."""
    if _parent is not None:
        message = " ".join([f"{row} {timeout_ms}", *_segments()])[:MESSAGE_BYTES]
        socket.send_fds(_parent, [message.encode()], [table.descriptor])


def _segments() -> list[str]:
    """The files of shared memory that MPICH removes when it is left properly, and only then."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        names = {line.split()[-1] for line in file if SEGMENT in line}
    return sorted(name for name in names if name.startswith(SEGMENT))


def _guard(child: int, ours: socket.socket) -> NoReturn:
    status = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, lambda number, _: os.kill(child, number))
        # nothing when the rank ended before
        message, descriptors, _, _ = socket.recv_fds(ours, MESSAGE_BYTES, 1)
        _, how = os.waitpid(child, 0)
        status = os.waitstatus_to_exitcode(how)
        if descriptors:
            row, timeout_ms, *segments = message.decode().split()
            _note(Table.opened(descriptors[0]), int(row), status, float(timeout_ms) / 1000)
            for name in segments if status else ():
                with contextlib.suppress(OSError):  # the guardian of another rank was quicker
                    os.unlink(name)
    finally:
        os._exit(status if status >= 0 else 128 - status)


def _note(table: Table, row: int, status: int, patience_s: float) -> None:
    """Write down how the rank ended; when that was no good end, wait until all others have ended, too."""
    words = table.rows[row]
    if status < 0:
        words.set_end(KILLED, -status)
    elif status:
        words.set_end(FAILED, status)
    elif words.state == RUNNING:
        words.set_end(LEFT, 0)
    end = time.monotonic() + patience_s + EXTRA_S
    while status and time.monotonic() < end:
        if all(other.state != RUNNING for other in table.rows):
            break
        time.sleep(LOOK_S)
