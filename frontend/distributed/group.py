"""Groups: some ranks that do operations together, in one order, and a wait that knows who is missing.

In       a communicator of MPI, the table of the roll call
Out      `Group`; inside `with group.operation(...) as op`, non-blocking messages and `op.wait`, which has a deadline
Changes  this rank's row of the table; what MPI sends
Next     sums.py and collectives.py (who use it), rollcall.py (who has arrived), meeting.py (the group of all ranks)

Ranks of a group must begin the same operations in the same order. A wait looks into the table meanwhile: a rank that
has ended is named at once, one that does something else at the same place in the order, too, and one that has not
arrived when the deadline passes. Under HCQ_VALIDATE=1 ranks also compare what they are about to do, dtypes and shapes
included.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from hcq import checks, config
from hcq.errors import HcqError, UsageError, WaitTimeout
from hcq.frontend.distributed.rollcall import (
    ABSENT,
    CODES,
    FAILED,
    GROUP,
    HEARD,
    LEFT,
    MAX_GROUPS,
    OPERATION,
    PID,
    RUNNING,
    SIZE,
    Row,
)

if TYPE_CHECKING:
    from typing_extensions import Self

SPINS = 50  # looks at a request without a pause
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 10e-6, 1e-3
GONE_S = 0.2  # a process that is no more: so long for its guardian to note how it ended
LOOK_S = 0.02  # between two looks into the table
UNHEARD_S = 1.5  # a rank elsewhere of which nothing was heard for so long is said to be out of reach
HEADER_BYTES = 160
NUMBERS = 1 << 12  # tags of messages repeat after so many operations


class RankLost(WaitTimeout):
    """A rank has ended, or is out of reach; the message names it, and what this rank did meanwhile.

    >>> issubclass(hcq.distributed.RankLost, hcq.WaitTimeout)
    True
    """


class Job:
    """What all groups of a process share: MPI, the table, its own number, and whether anything has failed."""

    def __init__(
        self, mpi: Any, rank: int, rows: Sequence[Row], hosts: Sequence[str], timeout_ms: float
    ) -> None:
        self.mpi, self.rank, self.rows, self.hosts, self.timeout_ms = mpi, rank, rows, hosts, timeout_ms
        self.groups = 0
        self.failed = ""
        self.is_validating = config.current().validate

    def fail(self, why: str) -> None:
        """From now on this rank is of no use to the others: they see it in the table."""
        self.failed = self.failed or why
        if self.rows[self.rank].state == RUNNING:
            self.rows[self.rank].set_end(FAILED, 0)

    def check(self, call: str) -> None:
        """Raises UsageError after a failure: ranks do not agree any more on what comes next."""
        if self.failed:
            raise UsageError(f"[{call}] this rank has failed before ({self.failed}). Start the job again.")


class Group:
    """Ranks that do collective operations together.

    rank, size  this process's number in the group, and how many there are
    ranks       their numbers in the job, in the group's order
    name        how messages call it

    >>> world = hcq.distributed.init()
    >>> evens = world.split(hcq.distributed.rank() % 2, "evens and odds")
    >>> isinstance(evens, hcq.distributed.Group), evens.size == (world.size + 1) // 2
    (True, True)
    """

    def __init__(self, job: Job, comm: Any, ranks: Sequence[int], name: str) -> None:
        if job.groups >= MAX_GROUPS:
            raise UsageError(
                f"[split] a rank can be in {MAX_GROUPS} groups, and is in all of them. Keep groups."
            )
        self.job, self.comm, self.name = job, comm, name
        self.ranks = tuple(ranks)
        self.rank, self.size = self.ranks.index(job.rank), len(self.ranks)
        self.slot = job.groups
        job.groups += 1
        self.key = _key(name, self.ranks)
        self.count = 0
        self.room: Any = (
            None  # of the host, for what arrives: memory that was used before costs no page faults
        )

    def operation(
        self,
        name: str,
        size_bytes: int = 0,
        what: str = "",
        timeout_ms: float | None = None,
        peer: int | None = None,
    ) -> Operation:
        """Begin the next operation of the group, or a message to or from one `peer`, which is outside of its order.

        what        what all ranks must agree on, in words: dtype, shape, root
        timeout_ms  deadline of the whole operation; default HCQ_TIMEOUT_MS
        """
        self.job.check(name)
        limit = self.job.timeout_ms if timeout_ms is None else checks.milliseconds(name, timeout_ms)
        return Operation(self, name, size_bytes, what, limit, peer)

    def split(self, color: int, name: str, timeout_ms: float | None = None) -> Group:
        """The ranks of this group that gave the same color as this one, in its order. All of them must call this.

        Raises  WaitTimeout naming who does not

        >>> world = hcq.distributed.init()
        >>> world.split(world.rank, "by itself").size
        1
        """
        color = checks.whole("split", "color", color, 0, (1 << 31) - 1)
        with self.operation("split", timeout_ms=timeout_ms) as op:
            op.wait([self.comm.Ibarrier()])  # Split itself waits without a deadline
            comm = self.comm.Split(color, self.rank)
            ranks = comm.allgather(self.job.rank)
        return Group(self.job, comm, ranks, name)

    def __repr__(self) -> str:
        return f"Group({self.name!r}, rank {self.rank} of {self.size})"


class Operation:
    """One operation of a group that is under way: its messages, its deadline, and its name in errors."""

    def __init__(
        self, group: Group, name: str, size_bytes: int, what: str, timeout_ms: float, peer: int | None
    ) -> None:
        self.group, self.job, self.name, self.what, self.peer = group, group.job, name, what, peer
        self.size_bytes, self.timeout_ms = size_bytes, timeout_ms
        self.rank, self.size = group.rank, group.size
        self.gone: dict[int, float] = {}  # processes that are no more, and since when
        self.started = time.monotonic()
        self.end = self.started + timeout_ms / 1000
        self.code = CODES[name]
        row = self.job.rows[self.job.rank]
        if peer is None:
            group.count += 1
            self.number = group.count
            row.post(self.code, self.number, size_bytes, group.key, group.slot)
            self.tag = self.number % NUMBERS
        else:
            self.number = 0
            row.post(self.code, 0, size_bytes, 0, -1, group.ranks[peer])
            self.tag = NUMBERS

    def __enter__(self) -> Self:
        if self.job.is_validating and self.peer is None and self.size > 1:
            try:
                self._compare()
            except BaseException as error:
                self.job.fail(str(error))
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.job.fail(str(error) or type(error).__name__)
            if isinstance(error, self.job.mpi.Exception):
                raise self._broken(error) from error

    def scratch(self, size_bytes: int) -> Any:
        """Bytes of the host to receive into; the next call may give the same ones."""
        import numpy as np

        if self.group.room is None or self.group.room.size < size_bytes:
            self.group.room = np.empty(size_bytes, np.uint8)
        return self.group.room[:size_bytes]

    # -- messages: ranks are numbers in the group --

    def send(self, array: Any, to: int) -> Any:
        """Begin to send a contiguous array; it must stay as it is until the request is done."""
        return self.group.comm.Isend(_bytes(array), to, self.tag)

    def receive(self, array: Any, source: int) -> Any:
        """Begin to receive into a contiguous array."""
        return self.group.comm.Irecv(_bytes(array), source, self.tag)

    def wait(self, requests: Sequence[Any]) -> None:
        """Return once all requests are done. Raises RankLost, WaitTimeout, UsageError, naming who is missing."""
        testall = self.job.mpi.Request.Testall
        began = looked = now = time.monotonic()
        tries = 0
        while not testall(requests):
            tries += 1
            if tries < SPINS:
                continue
            # a twentieth of the time that it took so far: little is lost, and the device has the core meanwhile
            time.sleep(min(max((now - began) / 20, SHORTEST_PAUSE_S), LONGEST_PAUSE_S))
            now = time.monotonic()
            if now - looked > LOOK_S:
                looked = now
                self.look()
                if now >= self.end:
                    self.late()

    # -- who is missing --

    def look(self) -> None:
        """Raises RankLost when a rank of the group has ended, UsageError when one does something else here."""
        ended = [place for place in self._awaited() if self._has_ended(place)]
        if ended:
            self._lost(ended)
        if self.peer is not None:
            return
        for place in self._awaited():
            row = self.job.rows[self.group.ranks[place]]
            if self._differs(row):
                raise UsageError(
                    f"{self}: rank {self._at(place)} is in {row.doing()} instead. Every rank of a group "
                    "must call the same operations in the same order, on equal sizes."
                )

    def _has_ended(self, place: int) -> bool:
        """Whether a rank will not take part in this operation any more."""
        rank = self.group.ranks[place]
        row = self.job.rows[rank]
        if row.state in (ABSENT, RUNNING):
            if not row.is_gone():
                return False
            # its guardian, if it has one, is about to note why
            if time.monotonic() - self.gone.setdefault(rank, time.monotonic()) < GONE_S:
                return False
            row.set_end(FAILED, 0)
        return row.state != LEFT or row.count(self.group.key) < self.number or self.peer is not None

    def _lost(self, ended: Sequence[int]) -> NoReturn:
        """Raise the RankLost that names the rank which is the reason: others may have ended because of it."""
        job = self.job
        places = sorted(ended, key=lambda place: job.rows[self.group.ranks[place]].blamed is not None)
        rank = self.group.ranks[places[0]]
        row = job.rows[rank]
        why = f"rank {self._who(rank)} {row.end()}, in {row.doing()}"
        blamed = row.blamed
        if blamed == job.rank:
            why = f"rank {self._who(rank)} has given up waiting for this rank, in {row.doing()}"
        elif blamed is not None:
            root = job.rows[blamed]
            fate = root.end() or "has not arrived"
            why = f"rank {self._who(blamed)} {fate}, in {root.doing()}; rank {rank} gave up because of it"
        job.rows[job.rank].blame(rank if blamed is None else blamed)
        raise RankLost(f"{self}: {why}. Start the job again from its last checkpoint.")

    def _awaited(self) -> list[int]:
        """The other places of the group, or the one peer."""
        if self.peer is not None:
            return [self.peer]
        return [place for place in range(self.size) if place != self.rank]

    def _differs(self, row: Row) -> bool:
        words, key, number = row.words, self.group.key, self.number
        if row.count(key) != number or words[GROUP] != key:
            return False
        operation, size = words[OPERATION], words[SIZE]
        differs = operation != self.code or size != self.size_bytes
        return differs and row.count(key) == number and words[GROUP] == key  # else it went on meanwhile

    def late(self) -> NoReturn:
        """Raise the WaitTimeout that says who has not arrived."""
        job, group, now = self.job, self.group, time.monotonic()
        absent: list[str] = []
        present: list[str] = []
        blamed: int | None = None
        for place in self._awaited():
            row = job.rows[group.ranks[place]]
            silent = now - row.words[HEARD] / 1e9
            unheard = (
                not row.words[PID] and silent > UNHEARD_S
            )  # of ranks here the process itself is looked at
            text = f"rank {self._who(group.ranks[place])} ({row.doing()}"
            text += f"; nothing heard of it for {silent:.1f} s)" if unheard else ")"
            has_come = self.peer is None and row.count(group.key) >= self.number
            (present if has_come and not unheard else absent).append(text)
            blamed = blamed if (has_come and not unheard) or blamed is not None else group.ranks[place]
        waited = f"{self}: waited {self.timeout_ms:g} ms"
        if absent:
            assert blamed is not None
            job.rows[job.rank].blame(blamed)
            raise WaitTimeout(
                f"{waited} for {', '.join(absent)}. Look there at what it does, or give it longer: HCQ_TIMEOUT_MS, or "
                "timeout_ms."
            )
        raise WaitTimeout(
            f"{waited} for the data of {', '.join(present)}, which have arrived. Is the network between them slow or "
            "cut? HCQ_TIMEOUT_MS, or timeout_ms, gives it longer."
        )

    def _at(self, place: int) -> str:
        return self._who(self.group.ranks[place])

    def _who(self, rank: int) -> str:
        pid = self.job.rows[rank].words[PID]
        return f"{rank} on {self.job.hosts[rank]}" + (f" (process {pid})" if pid else "")

    def _broken(self, error: Exception) -> HcqError:
        """What MPI refused, with the rank that is the reason where one is known."""
        try:
            self.look()
        except HcqError as why:
            return why
        return RankLost(f"{self}: MPI says {error}. Start the job again from its last checkpoint.")

    # -- agreement --

    def _compare(self) -> None:
        """Every rank tells the others what it is about to do, and all raise when two differ."""
        import numpy as np

        own = f"{self.name} {self.what}".encode()[:HEADER_BYTES]
        mine = np.zeros(HEADER_BYTES, np.uint8)
        mine[: len(own)] = np.frombuffer(own, np.uint8)
        all_of_them = np.zeros((self.size, HEADER_BYTES), np.uint8)
        self.wait([self.group.comm.Iallgather(mine, all_of_them)])
        for place in range(self.size):
            if (all_of_them[place] != mine).any():
                theirs = all_of_them[place].tobytes().rstrip(b"\0").decode(errors="replace")
                raise UsageError(
                    f"{self}: rank {self._at(place)} does {theirs!r}, and this one {own.decode()!r}. "
                    "Every rank must call the same operations on the same dtypes and shapes."
                )

    def __str__(self) -> str:
        number = f" #{self.number}" if self.number else ""
        with_whom = "" if self.peer is None else f" with rank {self.group.ranks[self.peer]}"
        what = f" ({self.what})" if self.what else ""
        return f"[{self.name}{number}] rank {self.job.rank} of group {self.group.name!r}{with_whom}{what}"


def _bytes(array: Any) -> Any:
    """An array as MPI takes it: plain bytes, whatever its dtype."""
    import numpy as np

    return array if array.dtype == np.uint8 else array.view(np.uint8)


def _key(name: str, ranks: Sequence[int]) -> int:
    """The same number, not 0, on every rank of a group."""
    import hashlib

    words = f"{name} {list(ranks)}".encode()
    return int.from_bytes(hashlib.sha256(words).digest()[:8], "little") | 1
