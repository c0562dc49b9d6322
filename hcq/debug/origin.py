"""Origin: which store wrote a byte, which instructions made what it stored, and from what, back to loads and arguments.

In       an address, or a register of a lane; a place in time
Out      Origin: a tree of values, the youngest first, and the lines of all that was found
Changes  nothing; launches are run again
Next     seen.py (what a block did, to look things up in), timeline.py (running again), looking.py (who asks), show.py

A store is the last one before the place that touches the byte; of several lanes of one instruction the last one, as the
emulation stores them. Where it stored is followed, too: a right value in a wrong place is as wrong. A register's writer
is the last instruction of the wave that writes it while the lane does it; what it reads is followed in turn. A load is
followed to the store of what it loads, in this launch or in an earlier one. An instruction that adds to its own result,
round after round, is shown as one, and each of its rounds is followed. What is nearest to the question is found first.
"""

from __future__ import annotations

import functools
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hcq.debug.moment import Moment, Site, Work
from hcq.debug.points import STORES
from hcq.debug.seen import Entry, Logs, entry_of, is_scalar, stored
from hcq.debug.timeline import History, Place
from hcq.errors import UsageError

MOST_SHOWN = 40  # values
MOST_NODES = 5000
MOST_SECONDS = 10.0
SELECTS = ("v_cndmask", "s_cselect", "selp")  # the condition is the last of their sources
SKIPPED = ("exec", "scc")
PLACES = ("%tid", "%ctaid", "%ntid", "%nctaid", "%laneid")  # what a thread is


@dataclass
class Node:
    """A value, and what made it.

    what     "byte 0x7f00 of C", "v3"
    value    its bits, where they were seen; None
    place    of the instruction that made it; None: nothing that is recorded did
    why      what there is to say in place of an instruction
    rounds   how often that instruction has added to its own result
    number   in the order in which they were found, from 1; 0: one of those rounds, which are not shown
    lanes    how many lanes of its block did it with this one
    """

    what: str
    depth: int
    value: int | None = None
    place: Place | None = None
    work: Work | None = None
    site: Site | None = None
    wave: int = 0
    lane: int = 0
    why: str = ""
    rounds: int = 1
    number: int = 0
    lanes: int = 0
    sources: list[Node] = field(default_factory=list)


class Maker(NamedTuple):
    """An instruction among all that a value came from. times: how many of the values; lanes: the fewest that did it."""

    work: Work
    site: Site
    launch: int
    times: int
    lanes: int


class Origin:
    """One question. names: what an address is in, in words. is_whole: everything that there was has been followed;
    most_shown: up to this number values are shown."""

    def __init__(self, history: History, names: Any = None) -> None:
        self.history, self.names = history, names
        self.logs = Logs(history)
        self.nodes = 0
        self.most_shown = MOST_SHOWN
        self.is_whole = True
        self._seen: set[tuple[Place, str, int]] = set()
        self._todo: deque[tuple[Node, Callable[[], Node]]] = deque()
        self._rounds: list[tuple[Node, Callable[[], Node]]] = []  # for later

    def of_memory(
        self, address: int, size_bytes: int, before: Place, space: str = "global", block: int | None = None
    ) -> Node:
        """Where some bytes come from, as they are before a place. block: of shared memory."""
        return self._finish(self._memory(address, size_bytes, before, 0, space, block))

    def of_register(self, name: str, wave: int, lane: int, before: Place, value: int | None) -> Node:
        """Where a register of a lane comes from, which has this value at a place."""
        return self._finish(self._register(name, wave, lane, before, 0, value))

    def makers(self, root: Node) -> list[Maker]:
        """The instructions of all values that were found: those that the fewest lanes did first."""
        times: Counter[tuple[int, int]] = Counter()
        first: dict[tuple[int, int], Node] = {}
        for node in _all(root):
            if node.site is None or node.place is None or node.why:
                continue
            key = node.place.launch, node.site.key
            times[key] += 1
            if key not in first or node.lanes < first[key].lanes:
                first[key] = node
        found = []
        for key, node in first.items():
            assert node.work is not None and node.site is not None
            found.append(Maker(node.work, node.site, key[0], times[key], node.lanes))
        return sorted(found, key=lambda one: (one.lanes, one.times))

    # ------------------------------------------------------------ memory

    def _memory(
        self,
        address: int,
        size_bytes: int,
        before: Place,
        depth: int = 0,
        space: str = "global",
        block: int | None = None,
    ) -> Node:
        """The store of some bytes."""
        known = self.names.buffer(address) if self.names is not None and space == "global" else ""
        inside = f"{space} memory of block {block}, " if space != "global" else ""
        node = self._node(f"{inside}{address:#x}" + (f" in {known}" if known else ""), depth)
        if block is None:
            entry = self._stored(address, size_bytes, before)
        else:
            entry = self.logs.storer(address, size_bytes, block, before)
        found = None if entry is None else stored(entry.accesses, address, size_bytes, space)
        if entry is None or found is None:
            node.why = (
                "no store to it that is recorded: it is what the host, a copy or an earlier launch left there"
                if space == "global"
                else "nobody has stored there: it is what the memory began with"
            )
            return node
        one, at = found
        wave, lane = int(one.wave[at]), int(one.lane[at])
        self._made(node, entry, wave, lane)
        data = ""
        if one.data:
            each = max(1, one.size // len(one.data))
            data = one.data[min(len(one.data) - 1, max(0, address - int(one.address[at])) // each)]
            node.value = entry.value(data, wave, lane)
        if self._is_again(node, f"{space} {address:#x}", lane):
            return node
        where = [*one.where] or [name for name in entry.site.reads if name not in one.data]
        loads_compute = self._work(entry.place).loads_compute
        if loads_compute:
            self._loads(node, entry, "")
        self._follow(node, entry, [*entry.site.reads] if loads_compute else [data] if data else [])
        if not depth:
            self._follow(node, entry, where, "its address: ")
        return node

    def _stored(self, address: int, size_bytes: int, before: Place) -> Entry | None:
        """The last store to some bytes of global memory, by any wave of any launch."""
        entries: list[Entry | None] = []

        def test(moment: Moment) -> str | None:
            found = stored(moment.accesses(), address, size_bytes, "global")
            if found is None:
                return None
            one, at = found
            entries[:] = [entry_of(moment, before, int(one.wave[at]) // moment.work.waves_per_block)]
            return ""

        page = address >> 12

        def keys(work: Work) -> frozenset[int]:
            if not any(
                page in one.written or not one.is_over for one in self.history.records if one.work is work
            ):
                return frozenset()
            return frozenset(site.key for site in work.sites() if site.kind in STORES)

        place = self.history.last(before, test, keys)
        entry = entries[0] if entries else None
        return None if place is None or entry is None else entry._replace(place=place[0])

    def _loads(self, node: Node, entry: Entry, name: str) -> bool:
        """The stores of what an instruction loads. False: it loads nothing."""
        loaded = entry.loaded(node.wave, node.lane, name)
        for space, address, size in loaded:
            if space in ("global", "shared"):
                block = node.wave // self._work(entry.place).waves_per_block if space == "shared" else None
                make = functools.partial(
                    self._memory, address, size, entry.place, node.depth + 1, space, block
                )
                self._todo.append((node, make))
        return bool(loaded)

    # ------------------------------------------------------------ registers

    def _register(
        self,
        name: str,
        wave: int,
        lane: int,
        before: Place,
        depth: int = 0,
        value: int | None = None,
        but: int = 0,
        words: str = "",
    ) -> Node:
        """The instruction that wrote a register. but: not this one, which goes round and round; words: what it is."""
        spelled = self._work(before).spelled(name) if depth else name
        node = self._node(words + (f"{spelled}, before the loop" if but else spelled), depth, value)
        node.wave, node.lane = wave, lane
        entry = self.logs.writer(name, wave, lane, before, but)
        if entry is None:
            node.why = "what the wave began with: an argument, an index of the launch, or nothing"
            return node
        self._made(node, entry, wave, lane)
        if self._is_again(node, name, -1 if is_scalar(name) else lane):
            return node
        if self._loads(node, entry, name) and not self._work(entry.place).loads_compute:
            return node
        rest = [*entry.site.reads]
        if name in rest:
            rounds, first = self._earlier(name, entry, wave, lane)
            if rounds:
                rest.remove(name)
                node.rounds += len(rounds)
                make = functools.partial(
                    self._register, name, wave, lane, first.place, depth + 1, None, entry.site.key
                )
                self._todo.append((node, make))
                self._rounds += [
                    (node, functools.partial(self._round, node, name, one, rest)) for one in rounds
                ]
        self._follow(node, entry, _chosen(entry, rest, wave, lane, value))
        return node

    def _earlier(self, name: str, entry: Entry, wave: int, lane: int) -> tuple[list[Entry], Entry]:
        """The rounds before one in which the same instruction wrote what it reads here; the first of all of them."""
        found: list[Entry] = []
        first = entry
        while len(found) < MOST_NODES:
            before = self.logs.writer(name, wave, lane, first.place)
            if before is None or before.site.key != entry.site.key:
                break
            found.append(before)
            first = before
        return found, first

    def _round(self, last: Node, name: str, entry: Entry, reads: list[str]) -> Node:
        """What an earlier round has added."""
        self.nodes += 1
        node = Node(name, last.depth + 1)
        self._made(node, entry, last.wave, last.lane)
        if not self._is_again(node, name, -1 if is_scalar(name) else last.lane):
            self._loads(node, entry, name)
            self._follow(node, entry, reads)
        return node

    # ------------------------------------------------------------ both

    def _node(self, what: str, depth: int, value: int | None = None) -> Node:
        self.nodes += 1
        return Node(what, depth, value, number=self.nodes)

    def _is_again(self, node: Node, what: str, lane: int) -> bool:
        """Whether this value was found before; then it says so."""
        assert node.place is not None
        key = node.place, what, -1 if lane < 0 else node.wave << 8 | lane
        if key in self._seen:
            node.why = "as above"
            return True
        self._seen.add(key)
        return False

    def _work(self, place: Place) -> Work:
        record = self.history.record(place.launch)
        if record is None:
            raise UsageError(f"origin: launch {place.launch} is not kept any more.")
        return record.work

    def _made(self, node: Node, entry: Entry, wave: int, lane: int) -> None:
        node.place, node.site, node.wave, node.lane = entry.place, entry.site, wave, lane
        node.work, node.lanes = self._work(entry.place), entry.lanes

    def _finish(self, root: Node) -> Node:
        """Find what is still to be found, as far as it goes."""
        end = time.monotonic() + MOST_SECONDS
        while (self._todo or self._rounds) and self.nodes < MOST_NODES and time.monotonic() < end:
            if not self._todo or self.nodes > self.most_shown:
                self._todo.extend(self._rounds)
                self._rounds.clear()
            node, make = self._todo.popleft()
            node.sources.append(make())
        self.is_whole = not (self._todo or self._rounds)
        return root

    def _follow(self, node: Node, entry: Entry, reads: list[str], words: str = "") -> None:
        for name in reads:
            if name in SKIPPED or name.startswith(PLACES):
                continue
            value = entry.value(name, node.wave, node.lane)
            make = functools.partial(
                self._register, name, node.wave, node.lane, entry.place, node.depth + 1, value, 0, words
            )
            self._todo.append((node, make))


def _all(root: Node) -> Iterator[Node]:
    todo = [root]
    while todo:
        node = todo.pop()
        yield node
        todo += node.sources


def _chosen(entry: Entry, reads: list[str], wave: int, lane: int, value: int | None) -> list[str]:
    """What an instruction's result is from: of one that selects, the source that it took, and the condition."""
    if value is None or not entry.site.text.startswith(SELECTS):
        return reads
    same = [one for one in reads[:-1] if entry.value(one, wave, lane) == value]
    return [same[0], reads[-1]] if same else reads
