"""Roll call: a table in which every rank says where it is, so that those who wait know who has not come.

In       what each rank is about to do: the operation, what of it all must agree on, its number in the group
Out      `Table` and its rows: where a rank is, what its last operations were, how it ended
Changes  shared memory of one machine, without a name in the file system once all ranks have it
Next     heartbeats.py (brings the rows of other machines here), group.py (who posts and asks), guardian.py

A row is words of 64 bits, each written by one store. Rank r alone writes row r: on its own machine directly, on another
one by the heartbeats that arrive there; and its guardian when the rank has ended.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from typing import Any

HEAD_WORDS = 64
HEARD, PID, STARTED, STATE, STATUS, OPERATION, NUMBER, SIZE, GROUP, NODE, PEER, BLAMED = range(12)
COUNTS = 16  # from here on: key of a group, how many operations this rank has begun in it
MAX_GROUPS = (HEAD_WORDS - COUNTS) // 2
# behind the counts: the last operations that were begun in groups, and the last message; a datagram holds a row
TEXT_WORDS = 12
DIGEST, TEXT, KEY, PLACE = (
    0,
    1,
    1 + TEXT_WORDS,
    2 + TEXT_WORDS,
)  # of an entry; PLACE, its number, is written last
ENTRY_WORDS = PLACE + 1
ENTRIES = 6
MESSAGE = HEAD_WORDS + ENTRIES * ENTRY_WORDS
ROW_WORDS = MESSAGE + ENTRY_WORDS
ROW_BYTES = 8 * ROW_WORDS
PLACES = tuple(range(HEAD_WORDS + PLACE, ROW_WORDS, ENTRY_WORDS))

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
    "clocks",
    "exit",
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
        self,
        operation: int,
        number: int,
        size_bytes: int,
        group: int,
        slot: int,
        peer: int = 0,
        digest: int = 0,
        text: str = "",
    ) -> None:
        """About to do this; the count, by which others know that it came, is written last.

        digest, text   what all ranks must agree on, as a number and, perhaps cut short, in words
        """
        words = self.words
        at = MESSAGE if slot < 0 else HEAD_WORDS + number % ENTRIES * ENTRY_WORDS
        words[at + PLACE] = 0
        words[at + DIGEST], words[at + KEY] = digest, group
        data = text.encode()[: 8 * TEXT_WORDS].ljust(8 * TEXT_WORDS, b"\0")
        words[at + TEXT : at + TEXT + TEXT_WORDS] = memoryview(data).cast("Q")
        words[at + PLACE] = number + 1
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

    def did(self, group: int, number: int) -> tuple[int, str] | None:
        """The digest and the words of one of its last operations in a group; None where it is none of them."""
        for at in range(HEAD_WORDS, MESSAGE, ENTRY_WORDS):
            found = self._entry(at, group, number)
            if found is not None:
                return found
        return None

    def last_message(self) -> tuple[int, str] | None:
        """The digest and the words of the message to or from one rank that it began last."""
        return self._entry(MESSAGE, 0, 0)

    def _entry(self, at: int, group: int, number: int) -> tuple[int, str] | None:
        words = self.words
        if words[at + PLACE] != number + 1 or words[at + KEY] != group:
            return None
        digest, text = int(words[at + DIGEST]), bytes(words[at + TEXT : at + TEXT + TEXT_WORDS])
        if words[at + PLACE] != number + 1 or words[at + KEY] != group:
            return None  # it went on meanwhile
        return digest, text.rstrip(b"\0").decode(errors="replace")

    def hear(self, heard: Any, own: Sequence[int]) -> None:
        """Take another machine's copy of the row, but for these words."""
        words = self.words
        for place in PLACES:
            if words[place] != heard[place]:
                words[place] = 0  # until the entry is whole
        for place in range(ROW_WORDS):
            if place not in own:
                words[place] = heard[place]

    def doing(self) -> str:
        """In words, the operation that it began last."""
        words = self.words
        name = OPERATIONS[words[OPERATION] % len(OPERATIONS)]
        if name == "nothing":
            return "no operation yet"
        where = f" with rank {words[PEER]}" if name in ("send", "recv") else ""
        if name == "exit":
            return "no operation more, at the end of its program"
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

    def fate(self) -> str:
        """In words, why it does not come."""
        if self.words[OPERATION] == CODES["exit"] and self.state != KILLED:
            return "has come to the end of its program"
        return f"{self.end() or 'has not arrived'}, in {self.doing()}"


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
