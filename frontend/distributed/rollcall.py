"""Roll call: a table in which every rank says where it is, so that those who wait know who has not come.

In       what each rank is about to do: the operation, its size, its number in the group
Out      `Table` and its rows; `missing` and `ended`, who has not arrived and who never will
Changes  shared memory of one machine, without a name in the file system once all ranks have it
Next     heartbeats.py (brings the rows of other machines here), group.py (who posts and asks), guardian.py

A row is words of 64 bits, each written by one store. Rank r alone writes row r: on its own machine directly, on another
one by the heartbeats that arrive there; and its guardian when the rank has ended.
"""

from __future__ import annotations

import mmap
import os
import time
from typing import Any

ROW_WORDS = 64
ROW_BYTES = 8 * ROW_WORDS
HEARD, PID, STARTED, STATE, STATUS, OPERATION, NUMBER, SIZE, GROUP, NODE, PEER, BLAMED = range(12)
COUNTS = 16  # from here on: key of a group, how many operations this rank has begun in it
MAX_GROUPS = (ROW_WORDS - COUNTS) // 2

ABSENT, RUNNING, LEFT, FAILED, KILLED = range(5)

OPERATIONS = (
    "nothing",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "barrier",
    "send",
    "recv",
    "close",
    "split",
    "compare",
    "clocks",
)
CODES = {name: code for code, name in enumerate(OPERATIONS)}


class Row:
    """What one rank says of itself."""

    __slots__ = ("words",)

    def __init__(self, words: Any) -> None:
        self.words = words

    @property
    def state(self) -> int:
        """ABSENT, RUNNING, LEFT, FAILED or KILLED."""
        return int(self.words[STATE])

    def set_end(self, state: int, status: int) -> None:
        """It has ended: how, and its exit status or the signal."""
        self.words[STATUS] = status
        self.words[STATE] = state

    def begin(self) -> None:
        """This process has the row from now on."""
        self.words[PID] = os.getpid()
        self.words[STARTED] = start_of(os.getpid())
        self.words[HEARD] = time.monotonic_ns()
        self.words[STATE] = RUNNING

    def post(
        self, operation: int, number: int, size_bytes: int, group: int, slot: int, peer: int = 0
    ) -> None:
        """About to do this; the count, by which others know that it came, is written last."""
        words = self.words
        words[OPERATION], words[SIZE], words[GROUP], words[PEER] = operation, size_bytes, group, peer
        words[NUMBER] = number
        words[HEARD] = time.monotonic_ns()
        if slot >= 0:
            words[COUNTS + 2 * slot] = group
            words[COUNTS + 2 * slot + 1] = number

    def count(self, group: int) -> int:
        """How many operations of a group it has begun."""
        words = self.words
        for slot in range(MAX_GROUPS):
            key = words[COUNTS + 2 * slot]
            if key == group:
                return int(words[COUNTS + 2 * slot + 1])
            if not key:
                break
        return 0

    def doing(self) -> str:
        """In words, the operation that it began last."""
        words = self.words
        name = OPERATIONS[words[OPERATION] % len(OPERATIONS)]
        if name == "nothing":
            return "no operation yet"
        where = f" with rank {words[PEER]}" if name in ("send", "recv") else ""
        size = f" of {words[SIZE]:,} bytes" if words[SIZE] else ""
        return f"{name} #{words[NUMBER]}{where}{size}"

    def is_gone(self) -> bool:
        """Whether its process on this machine is no more, though nobody has noted its end."""
        pid = int(self.words[PID])
        return bool(pid) and start_of(pid) != self.words[STARTED]

    @property
    def blamed(self) -> int | None:
        """The rank that it failed because of, as it says."""
        rank = int(self.words[BLAMED])
        return rank - 1 if rank else None

    def blame(self, rank: int) -> None:
        """It is about to fail because of that rank."""
        self.words[BLAMED] = rank + 1

    def end(self) -> str:
        """In words, how it ended; "" while it runs."""
        state, status = self.state, int(self.words[STATUS])
        if state == KILLED:
            return f"was killed by signal {status}"
        if state == FAILED:
            return f"ended with an error (status {status})" if status else "has failed"
        return "has left" if state == LEFT else ""


class Table:
    """One row for each rank of the job, in memory that the processes of this machine share."""

    def __init__(self, descriptor: int, ranks: int) -> None:
        self.descriptor = descriptor
        self.memory = mmap.mmap(descriptor, ranks * ROW_BYTES)
        words = memoryview(self.memory).cast("Q")
        self.rows = [Row(words[ROW_WORDS * n : ROW_WORDS * (n + 1)]) for n in range(ranks)]

    @staticmethod
    def made(ranks: int) -> Table:
        """A new one."""
        descriptor = os.memfd_create("hcq ranks", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, ranks * ROW_BYTES)
        return Table(descriptor, ranks)

    @staticmethod
    def opened(descriptor: int) -> Table:
        """The one behind a descriptor."""
        return Table(descriptor, os.fstat(descriptor).st_size // ROW_BYTES)

    @staticmethod
    def of_process(pid: int, descriptor: int) -> Table:
        """The one that another process of this user on this machine has made."""
        return Table.opened(os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC))


def start_of(pid: int) -> int:
    """When a process of this machine began, in ticks since boot; 0 when there is none, or it has only to be buried."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])
