"""Groups: some ranks that do operations together, in one order, and a wait that knows who is missing.

In       a communicator of MPI, the table of the roll call
Out      `Group`; inside `with group.operation(...) as op`, non-blocking messages and `op.wait`, which has a deadline
Changes  this rank's row of the table; what MPI sends
Next     sums.py and collectives.py (who use it), rollcall.py (who has arrived), job.py (the group of all ranks)

Ranks of a group must begin the same operations in the same order, on equal shapes and dtypes: a digest of what must be
equal is in the table, and in the tag of every message, so that a message of another operation never arrives. A wait
looks into the table meanwhile: a rank that has ended is named at once, one that does something else at the same place
in the order, too, and one that has not arrived when the deadline passes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from hcq import checks
from hcq.errors import HcqError, UsageError, WaitTimeout
from hcq.frontend.more.distributed.rollcall import (
    ABSENT,
    CODES,
    FAILED,
    GROUP,
    HEARD,
    LEFT,
    MAX_GROUPS,
    NUMBER,
    OPERATION,
    PEER,
    PID,
    RUNNING,
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
NUMBERS = 1 << 6  # operations under way at once whose tags differ; messages of one tag arrive in their order


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
        # how many digests tags can tell apart
        self.digests = max(1, mpi.COMM_WORLD.Get_attr(mpi.TAG_UB) // NUMBERS)

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
        is_exit: bool = False,
    ) -> Operation:
        """Begin the next operation of the group, or a message to or from one `peer`, which is outside of its order.

        what        what all ranks must agree on, in words: dtype, shape, root
        timeout_ms  deadline of the whole operation; default HCQ_TIMEOUT_MS
        is_exit     the program has come to its end
        """
        self.job.check(name)
        limit = self.job.timeout_ms if timeout_ms is None else checks.milliseconds(name, timeout_ms)
        return Operation(self, name, size_bytes, what, limit, peer, is_exit)

    def split(self, color: int, name: str, timeout_ms: float | None = None) -> Group:
        """The ranks of this group that gave the same color as this one, in its order. All of them must call this.

        Raises  WaitTimeout naming who does not

        >>> world = hcq.distributed.init()
        >>> world.split(world.rank, "by itself").size
        1
        """
        color = checks.whole("split", "color", color, 0, (1 << 31) - 1)
        with self.operation("split", timeout_ms=timeout_ms) as op:
            op.meet()  # Split itself waits without a deadline
            comm = self.comm.Split(color, self.rank)
            ranks = comm.allgather(self.job.rank)
        return Group(self.job, comm, ranks, name)

    def __repr__(self) -> str:
        return f"Group({self.name!r}, rank {self.rank} of {self.size})"


class Operation:
    """One operation of a group that is under way: its messages, its deadline, and its name in errors."""

    def __init__(
        self,
        group: Group,
        name: str,
        size_bytes: int,
        what: str,
        timeout_ms: float,
        peer: int | None,
        is_exit: bool,
    ) -> None:
        self.group, self.job, self.name, self.peer = group, group.job, name, peer
        self.size_bytes, self.timeout_ms = size_bytes, timeout_ms
        self.rank, self.size = group.rank, group.size
        self.gone: dict[int, float] = {}  # processes that are no more, and since when
        self.started = time.monotonic()
        self.end = self.started + timeout_ms / 1000
        self.is_exit = is_exit
        # what all ranks must agree on: of a message, what the other rank gives or takes
        self.text = f"{name} {what}".rstrip() if peer is None else what
        self.digest = _digest(f"{self.text} {size_bytes}")
        row = self.job.rows[self.job.rank]
        code = CODES["exit" if is_exit else name]
        if peer is None:
            group.count += 1
            self.number = group.count
            row.post(code, self.number, size_bytes, group.key, group.slot, 0, self.digest, self.text)
            self.tag = 1 + self.number % NUMBERS + NUMBERS * (self.digest % self.job.digests)
        else:
            self.number = 0
            row.post(code, 0, size_bytes, 0, -1, group.ranks[peer], self.digest, self.text)
            self.tag = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self.peer is None:
            try:
                self._check_alike()  # whoever only sends has waited for nobody
            except UsageError as unlike:
                self.job.fail(str(unlike))
                raise
        elif error is not None:
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

    def header(self) -> Any:
        """What a message says before its data: what it is, as a digest and in words, perhaps cut short."""
        import numpy as np

        data = self.digest.to_bytes(8, "little") + self.text.encode()
        return np.frombuffer(data[:HEADER_BYTES].ljust(HEADER_BYTES, b"\0"), np.uint8).copy()

    def check_header(self, header: Any) -> None:
        """Raises UsageError when the peer sends something else than what this rank takes."""
        data = header.tobytes()
        if int.from_bytes(data[:8], "little") != self.digest:
            assert self.peer is not None
            self._unlike(self.peer, data[8:].rstrip(b"\0").decode(errors="replace"))

    def send(self, array: Any, to: int) -> Any:
        """Begin to send a contiguous array; it must stay as it is until the request is done."""
        return self.group.comm.Isend(_bytes(array), to, self.tag)

    def receive(self, array: Any, source: int) -> Any:
        """Begin to receive into a contiguous array."""
        return self.group.comm.Irecv(_bytes(array), source, self.tag)

    def meet(self) -> None:
        """Return once all ranks of the group have begun this operation: each tells ranks 1, 2, 4, ... further on."""
        import numpy as np

        told, heard = np.zeros(1, np.uint8), np.zeros(1, np.uint8)
        distance = 1
        while distance < self.size:
            after, before = (self.rank + distance) % self.size, (self.rank - distance) % self.size
            self.wait([self.send(told, after), self.receive(heard, before)])
            distance *= 2

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
        """Raises UsageError when a rank does something else here, RankLost when one has ended, or is about to."""
        self._check_alike()
        ended = [place for place in self._awaited() if self._has_ended(place)]
        if ended:
            self._lost(ended)

    def _check_alike(self) -> None:
        """Raises where a rank does something else as this operation of the group, or did so and has ended."""
        for place in self._awaited():
            row = self.job.rows[self.group.ranks[place]]
            if self.is_exit or not self._is_leaving(row):
                theirs = row.did(self.group.key, self.number) if self.peer is None else self._refused(row)
                if theirs is not None and theirs[0] != self.digest:
                    self._unlike(place, theirs[1])

    def _is_leaving(self, row: Row) -> bool:
        """Whether a rank's program has come to its end without this operation."""
        words = row.words
        if words[OPERATION] != CODES["exit"] or self.name == "close":
            return False
        is_here = words[GROUP] == self.group.key and words[NUMBER] <= self.number
        return self.peer is not None or is_here or row.count(self.group.key) < self.number

    def _refused(self, row: Row) -> tuple[int, str] | None:
        """What the peer of a message would receive from this rank, if it has ended for that."""
        words = row.words
        is_ours = words[OPERATION] == CODES["recv"] and words[PEER] == self.job.rank
        return row.last_message() if self.name == "send" and is_ours and row.state == FAILED else None

    def _unlike(self, place: int, theirs: str) -> NoReturn:
        if self.is_exit:
            raise UsageError(
                f"{self}: this rank's program has come to its end, and rank {self._at(place)} is in {theirs}: let "
                "every rank come to the end after the same operations."
            )
        if self.peer is not None:
            verbs = ("sends", "takes") if self.name == "send" else ("takes", "sends")
            raise UsageError(
                f"{self} {verbs[0]} {self.text!r}, and rank {self._at(place)} {verbs[1]} {theirs!r}: give `receive` a "
                "tensor like the one that is sent."
            )
        raise UsageError(
            f"{self} calls {self.text!r}, and rank {self._at(place)} {theirs!r}: every rank of a group must call the "
            "same operations in the same order, on equal shapes and dtypes."
        )

    def _has_ended(self, place: int) -> bool:
        """Whether a rank will not take part in this operation any more."""
        rank = self.group.ranks[place]
        row = self.job.rows[rank]
        if self._is_leaving(row):  # what it sent may be on its way
            return time.monotonic() - self.gone.setdefault(rank, time.monotonic()) >= GONE_S
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
        why = f"rank {self._who(rank)} {row.fate()}"
        blamed = row.blamed
        if blamed == job.rank:
            why = f"rank {self._who(rank)} has given up waiting for this rank, in {row.doing()}"
        elif blamed is not None:
            root = job.rows[blamed]
            why = f"rank {self._who(blamed)} {root.fate()}; rank {rank} gave up because of it"
        job.rows[job.rank].blame(rank if blamed is None else blamed)
        raise RankLost(f"{self}: {why}. Start the job again from its last checkpoint.")

    def _awaited(self) -> list[int]:
        """The other places of the group, or the one peer."""
        if self.peer is not None:
            return [self.peer]
        return [place for place in range(self.size) if place != self.rank]

    def late(self) -> NoReturn:
        """Raise the WaitTimeout that says who has not arrived."""
        job, group, now = self.job, self.group, time.monotonic()
        absent: list[str] = []
        present: list[str] = []
        blamed: int | None = None
        for place in self._awaited():
            row = job.rows[group.ranks[place]]
            silent = now - row.words[HEARD] / 1e9
            # of ranks here the process itself is looked at
            unheard = not row.words[PID] and silent > UNHEARD_S
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

    def __str__(self) -> str:
        number = f" #{self.number}" if self.number else ""
        with_whom = "" if self.peer is None else f" with rank {self.group.ranks[self.peer]}"
        return f"[{self.name}{number}] rank {self.job.rank} of group {self.group.name!r}{with_whom}"


def _bytes(array: Any) -> Any:
    """An array as MPI takes it: plain bytes, whatever its dtype."""
    import numpy as np

    return array if array.dtype == np.uint8 else array.view(np.uint8)


def _digest(text: str) -> int:
    """The same number for the same words, on every rank."""
    import hashlib

    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _key(name: str, ranks: Sequence[int]) -> int:
    """The same number, not 0, on every rank of a group."""
    import hashlib

    words = f"{name} {list(ranks)}".encode()
    return int.from_bytes(hashlib.sha256(words).digest()[:8], "little") | 1
