"""What asynchronous copies have yet to do in shared memory, and who touches it before somebody has waited.

In       copies as they are issued, groups, waits, fences, accesses of threads; lanes and bytes of the whole batch
Out      findings, in the Checks of the launch
Changes  itself
Next     shared_wait_steps.py, bulk_moves.py, async_races.py and tcgen05_ops.py (who tell it), global_waits.py (what
         bulk copies write to global memory), product_waits.py (the same for registers), copies.py and thread_copies.py
         (the copies themselves)
Source   PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy", "Asynchronous Operations", "Memory
         Consistency Model: Proxies"

Shared memory is remembered by words of 4 bytes, of which all copies are. Nothing here depends on when a copy is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hcq.emu.nv.shader.global_waits import GlobalWaits
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.checks import Checks
from hcq.events.kernel_faults import KernelFault, Site

if TYPE_CHECKING:
    from hcq.emu.nv.shader.tensor_waits import TensorWaits

WORD_BYTES = 4
BYTES_PER_WORD = 76  # that are remembered of each word
COPY_RULE, PROXY_RULE = "async-copy-not-waited", "proxy-fence"


class Names(NamedTuple):
    """How findings of a launch speak. text: an instruction by its line; thread: a lane of the batch."""

    text: Callable[[int], str]
    thread: Callable[[int], str]


class Brought(NamedTuple):
    """What one bulk copy brings to shared memory.

    lane, line  who issued it, and where
    mbarrier    the place of the object that counts it
    phase       of that object, when the copy was issued
    """

    lane: int
    line: int
    mbarrier: int
    phase: int


class Committed(NamedTuple):
    """A tcgen05.commit that arrives at an mbarrier.

    phase   of that object, when the commit was issued
    lane    who issued it
    number  of the commits of this thread
    """

    phase: int
    lane: int
    number: int


class Marks:
    """Of each word, who did something to it last, when, and in which line. The owner says what that is."""

    def __init__(self, words: int) -> None:
        self.who = np.full(words, -1, np.int32)
        self.when = np.zeros(words, np.int64)
        self.line = np.zeros(words, np.int32)

    def put(self, words: Lanes, who: Lanes | int, when: Lanes | int, line: int) -> None:
        """These words have a mark from now on."""
        self.who[words], self.when[words], self.line[words] = who, when, line

    def late(self, words: Lanes, until: Lanes) -> Lanes:
        """Which of them have one that is not done. until: by lane, which times are."""
        who = self.who[words]
        found: Lanes = (who >= 0) & (self.when[words] >= until[who])
        return found


class SharedWaits:
    """Of the blocks of a batch.

    size_bytes   of all their shared memory
    block_of     of each lane
    has_proxies  whether fences between proxies are looked for, too
    """

    def __init__(
        self, size_bytes: int, block_of: Lanes, names: Names, checks: Checks, has_proxies: bool = True
    ) -> None:
        self.has_proxies = has_proxies
        words, lanes, blocks = -(-size_bytes // WORD_BYTES), len(block_of), int(block_of[-1]) + 1
        self.names, self.checks, self.block_of = names, checks, block_of
        self.of_global = GlobalWaits(names.text, names.thread, checks)
        self.now = 0
        self.copied, self.taken, self.written = Marks(words), Marks(words), Marks(words)
        self.gathered = Marks(words)  # by tcgen05, for a thread's next commit
        self.committed, self.finished = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
        self.commits: dict[int, list[Committed]] = {}  # under way, by mbarrier
        self.of_tensor: TensorWaits | None = None  # once somebody touches tensor memory
        self.ended, self.waited = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)  # groups of cp.async
        self.bulk_ended, self.bulk_waited = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
        self.fenced = np.full(lanes, -1, np.int64)
        self.met = np.full(blocks, -1, np.int64)  # when threads of a block last waited for each other
        self.fenced_behind = np.full(
            blocks, -1, np.int64
        )  # what some thread's fence has behind it by such a wait
        self.of_bulk = np.full(words, -1, np.int32)  # which of `bulk` brings it
        self.bulk: list[Brought] = []
        self.is_here = np.zeros(64, np.bool_)  # of `bulk`: somebody has waited for it
        self.under_way: dict[int, list[int]] = {}  # by mbarrier

    # -- groups of threads

    def commit(self, lanes: Lanes) -> None:
        """These threads end a group of cp.async."""
        self.ended[lanes] += 1

    def wait(self, lanes: Lanes, pending: int | None) -> None:
        """These threads wait until so many groups are pending. None: for all copies, which ends a group."""
        if pending is None:
            self.ended[lanes] += 1
        self.waited[lanes] = np.maximum(self.waited[lanes], self.ended[lanes] - (pending or 0))

    def bulk_commit(self, lanes: Lanes) -> None:
        """These threads end a bulk group."""
        self.bulk_ended[lanes] += 1

    def bulk_wait(self, lanes: Lanes, pending: int, only_reads: bool = False) -> None:
        """These threads wait until so many bulk groups are pending, or (only_reads) have yet to read."""
        done = self.bulk_ended[lanes] - pending
        self.bulk_waited[lanes] = np.maximum(self.bulk_waited[lanes], done)
        if not only_reads and self.of_global.under_way:
            complete = np.full(len(self.bulk_ended), -1, np.int64)
            complete[lanes] = done
            self.of_global.wait(complete)

    # -- order between threads

    def meet(self, lanes: Lanes) -> None:
        """These threads have waited for each other."""
        self.now += 1
        self.met[self.block_of[lanes]] = self.now

    def fence(self, lanes: Lanes) -> None:
        """These threads execute fence.proxy.async."""
        self.now += 1
        self.fenced[lanes] = self.now
        blocks = self.block_of[lanes]
        self.fenced_behind[blocks] = self.met[blocks]

    def looked(self, lanes: Lanes, mbarriers: Lanes, phases: Lanes, is_over: Lanes) -> None:
        """These threads asked for a phase. phases: the object's, now."""
        for place, phase in set(zip(mbarriers[is_over].tolist(), phases[is_over].tolist())):
            numbers = self.under_way.get(place, [])
            over = [index for index, number in enumerate(numbers) if self.bulk[number].phase != phase]
            if over:
                here, self.under_way[place] = numbers[: over[-1] + 1], numbers[over[-1] + 1 :]
                self.is_here[here] = True
            commits = self.commits.get(place, [])
            for one in [one for one in commits if one.phase != phase]:
                self.finished[one.lane] = max(self.finished[one.lane], one.number)
                commits.remove(one)
        if is_over.any():
            self.meet(lanes[is_over])

    # -- matrices of tcgen05

    def gather(self, lane: int, places: Lanes, size_bytes: int, line: int) -> None:
        """An instruction of this thread reads these places until a commit behind it has arrived."""
        self.read_async(np.full(len(places), lane), places, size_bytes, line)
        for words in _words(places, size_bytes):
            self.gathered.put(words, lane, self.committed[lane], line)

    def commit_gathered(self, lane: int, mbarriers: dict[int, int]) -> None:
        """tcgen05.commit of this thread. mbarriers: the place of each to which it arrives, with its phase."""
        self.committed[lane] += 1
        for place, phase in mbarriers.items():
            self.commits.setdefault(place, []).append(Committed(phase, lane, int(self.committed[lane])))

    # -- copies

    def copy(self, lanes: Lanes, places: Lanes, size_bytes: int, line: int) -> None:
        """cp.async of these threads to these places, a store of the generic proxy."""
        self.access(lanes, places, size_bytes, line, stores=True)
        for words in _words(places, size_bytes):
            self.copied.put(words, lanes, self.ended[lanes], line)

    def bring(self, what: Brought, places: Lanes, size_bytes: int) -> None:
        """A bulk copy to these places, each of so many bytes."""
        if len(self.bulk) == len(self.is_here):
            self.is_here = np.concatenate([self.is_here, np.zeros_like(self.is_here)])
        number = len(self.bulk)
        self.bulk.append(what)
        self.under_way.setdefault(what.mbarrier, []).append(number)
        for words in _words(places, size_bytes):
            self._overwritten(np.full(len(words), what.lane), words, what.line)
            self.of_bulk[words] = number
            self.copied.who[words] = self.written.who[words] = -1

    def take(self, lane: int, places: Lanes, size_bytes: int, line: int) -> None:
        """A bulk copy of a thread from these places, in its bulk group."""
        self.read_async(np.full(len(places), lane), places, size_bytes, line)
        for words in _words(places, size_bytes):
            self.taken.put(words, lane, self.bulk_ended[lane], line)

    # -- who touches it

    def access(self, lanes: Lanes, places: Lanes, size_bytes: int, line: int, stores: bool) -> None:
        """Threads read or write these places themselves."""
        self.now += 1
        for words in _words(places, size_bytes):
            self._unfinished(lanes, words, line, "writes it" if stores else "reads it")
            if stores:
                self._overwritten(lanes, words, line)
                self.of_bulk[words] = -1
                self.written.put(words, lanes, self.now, line)

    def read_async(self, lanes: Lanes, places: Lanes, size_bytes: int, line: int) -> None:
        """The async proxy reads these places for these threads."""
        for words in _words(places, size_bytes):
            self._unfinished(lanes, words, line, "reads it")
            if not self.has_proxies:
                continue
            unfenced = self.written.late(words, self.fenced)
            unfenced &= self.written.when[words] > self.fenced_behind[self.block_of[lanes]]
            if unfenced.any():
                self._tell(
                    PROXY_RULE,
                    "the async proxy reads without a fence",
                    (self.written, "writes it"),
                    (lanes, "reads it"),
                    words,
                    unfenced,
                    line,
                    "with no fence.proxy.async between",
                )

    def _unfinished(self, lanes: Lanes, words: Lanes, line: int, verb: str) -> None:
        late = self.copied.late(words, self.waited)
        if late.any():
            self._tell(
                COPY_RULE,
                "a use before its copy is done of",
                (self.copied, "copies to it"),
                (lanes, verb),
                words,
                late,
                line,
                "with no cp.async.wait_group of the thread that copies, for that group, between",
            )
        numbers = self.of_bulk[words]
        late = (numbers >= 0) & ~self.is_here[numbers]
        if late.any():
            one = int(np.flatnonzero(late)[0])
            copy = self.bulk[int(numbers[one])]
            sites = (
                Site("copies to it", self.names.text(copy.line), copy.line, self.names.thread(copy.lane)),
                Site(verb, self.names.text(line), line, self.names.thread(int(lanes[one]))),
            )
            self._add(
                COPY_RULE,
                "a use before its copy is done of",
                int(words[one]),
                sites,
                "with no wait between that found the phase over in which its mbarrier counts the copy",
                int(np.count_nonzero(late)),
            )

    def _overwritten(self, lanes: Lanes, words: Lanes, line: int) -> None:
        late = self.taken.late(words, self.bulk_waited)
        if late.any():
            self._tell(
                COPY_RULE,
                "a store before a bulk copy has read from it to",
                (self.taken, "copies from it"),
                (lanes, "writes it"),
                words,
                late,
                line,
                "with no cp.async.bulk.wait_group.read of the thread that copies, for that group, between",
            )

        late = self.gathered.late(words, self.finished)
        if late.any():
            self._tell(
                COPY_RULE,
                "a store before a matrix instruction has read from it to",
                (self.gathered, "reads it"),
                (lanes, "writes it"),
                words,
                late,
                line,
                "with no wait between that found the phase over to which a tcgen05.commit behind it arrives",
            )

    def _tell(
        self,
        rule: str,
        what: str,
        first: tuple[Marks, str],
        second: tuple[Lanes, str],
        words: Lanes,
        which: Lanes,
        line: int,
        why: str,
    ) -> None:
        marks, lanes = first[0], second[0]
        for before in np.unique(marks.line[words[which]]).tolist():
            some = np.flatnonzero(which & (marks.line[words] == before))
            one = int(some[0])
            sites = (
                Site(
                    first[1], self.names.text(before), before, self.names.thread(int(marks.who[words[one]]))
                ),
                Site(second[1], self.names.text(line), line, self.names.thread(int(lanes[one]))),
            )
            self._add(rule, what, int(words[one]), sites, why, len(some))

    def _add(self, rule: str, what: str, word: int, sites: tuple[Site, ...], why: str, times: int) -> None:
        blocks = int(self.block_of[-1]) + 1
        offset = word % (len(self.of_bulk) // blocks) * WORD_BYTES
        fault = KernelFault(rule, what, "shared", offset, sites, why)
        self.checks.add((rule, *(site.place for site in sites)), times, partial(_known, fault))


def _known(fault: KernelFault) -> KernelFault:
    return fault


def _words(places: Lanes, size_bytes: int) -> Iterator[Lanes]:
    """The words of these places, as many at a time as there are places."""
    first = places.astype(np.int64) // WORD_BYTES
    for offset in range(max(1, size_bytes // WORD_BYTES)):
        yield first + offset
