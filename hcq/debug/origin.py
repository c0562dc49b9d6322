"""Origin: which store wrote a byte, which instructions made what it stored, and from what, back to loads and arguments.

In       an address, or a register of a lane; a place in time
Out      Origin: lines of a tree, the youngest first
Changes  nothing; launches are run again, with the stores and the writers of a register watched
Next     timeline.py (running again), commands.py (who asks), moment.py (Access, and what an instruction reads)

A store is the last one before the place that touches the byte; of several lanes of one instruction the last one, as the
emulation stores them. A register's writer is the last instruction of the wave that writes it while the lane is on; what
it reads is followed in turn. A load is followed to the store of what it loads, in this launch or in an earlier one. An
instruction that adds to its own result, round after round, is followed as one.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hcq.debug.expression import of_lane
from hcq.debug.moment import Access, Moment, Site, Work
from hcq.debug.points import STORES, covers
from hcq.debug.timeline import History, Place
from hcq.errors import UsageError

MOST_NODES = 40
MOST_DEPTH = 16
MOST_LEFT = 12  # values that are named, and not followed
SELECTS = ("v_cndmask", "s_cselect", "selp")  # the condition is the last of their sources
SCALARS = ("s", "m0", "vcc", "exec", "scc", "ttmp")


@dataclass
class Node:
    """A value, and what made it.

    what     "byte 0x7f00 of C", "v3"
    value    its bits, where they were seen; None
    place    of the instruction that made it; None: nothing that is recorded did
    why      what there is to say in place of an instruction
    rounds   how often that instruction was followed
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
    sources: list[Node] = field(default_factory=list)


@dataclass
class _Hit:
    """What a run again has found last."""

    site: Site
    wave: int
    lane: int
    values: dict[str, int]
    access: Access | None = None
    data: str = ""
    loaded: list[tuple[str, int, int]] = field(default_factory=list)  # space, address, bytes of what it loads


class Origin:
    """One question. names: what an address is in, in words."""

    def __init__(self, history: History, names: Any = None) -> None:
        self.history, self.names = history, names
        self.nodes = 0
        self._seen: set[tuple[Place, str, int]] = set()
        self._todo: deque[tuple[Node, str, int | None, Callable[[], Node]]] = deque()

    def of_memory(
        self, address: int, size_bytes: int, before: Place, space: str = "global", block: int | None = None
    ) -> Node:
        """Where some bytes come from, as they are before a place. block: of shared memory."""
        return self._finish(self._memory(address, size_bytes, before, 0, space, block))

    def of_register(self, name: str, wave: int, lane: int, before: Place, value: int | None) -> Node:
        """Where a register of a lane comes from, which has this value at a place."""
        return self._finish(self._register(name, wave, lane, before, 0, value))

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
        self.nodes += 1
        known = self.names.buffer(address) if self.names is not None and space == "global" else ""
        inside = f"{space} memory of block {block}, " if space != "global" else ""
        node = Node(f"{inside}{address:#x}" + (f" in {known}" if known else ""), depth)
        hit: list[_Hit] = []

        def test(moment: Moment) -> str | None:
            for one in moment.accesses():
                if one.kind not in STORES or one.space != space:
                    continue
                touched = covers(one.address, one.size, address, size_bytes)
                if block is not None:
                    touched &= one.wave // moment.work.waves_per_block == block
                if touched.any():
                    at = int(np.flatnonzero(touched)[-1])
                    hit[:] = [_stored(moment, one, at, address)]
                    return ""
            return None

        page = address >> 12

        def keys(work: Work) -> frozenset[int]:
            if space == "global" and not any(
                page in one.written or not one.is_over for one in self.history.records if one.work is work
            ):
                return frozenset()
            return frozenset(site.key for site in work.sites() if site.kind in STORES)

        within = before.launch if space != "global" else None
        found = self.history.last(before, test, keys, within)
        if found is None or not hit:
            node.why = (
                "no store to it that is recorded: it is what the host, a copy or an earlier launch left there"
                if space == "global"
                else "nobody has stored there: it is what the memory began with"
            )
            return node
        self._made(node, found[0], hit[0])
        data = hit[0].data
        node.value = hit[0].values.get(data)
        if self._work(found[0]).loads_compute:
            self._loads(node, found[0], hit[0])
            self._follow(node, found[0], hit[0], [*hit[0].site.reads])
        elif data:
            self._follow(node, found[0], hit[0], [data])
        return node

    def _loads(self, node: Node, place: Place, hit: _Hit) -> None:
        """The stores of what an instruction loads."""
        for space, address, size in hit.loaded:
            if space in ("global", "shared"):
                block = hit.wave // self._work(place).waves_per_block if space == "shared" else None
                make = functools.partial(self._memory, address, size, place, node.depth + 1, space, block)
                self._later(node, f"{address:#x}", None, make)

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
    ) -> Node:
        """The instruction that wrote a register. but: not this one, which goes round and round."""
        self.nodes += 1
        node = Node(f"{name}, before the loop" if but else name, depth, value, wave=wave, lane=lane)
        found, hit = self._writer(name, wave, lane, before, but)
        if found is None or hit is None:
            node.why = "what the wave began with: an argument, an index of the launch, or nothing"
            return node
        self._made(node, found, hit)
        if (found, name, lane) in self._seen:
            node.why = "as above"
            return node
        self._seen.add((found, name, lane))
        self._loads(node, found, hit)
        if hit.loaded and not node.work.loads_compute:  # type: ignore[union-attr]
            return node
        rest = [*hit.site.reads]
        if name in rest:
            _, earlier = self._writer(name, wave, lane, found, 0)
            if earlier is not None and earlier.site.key == hit.site.key:
                node.rounds = 2
                rest.remove(name)
                key = hit.site.key
                make = functools.partial(self._register, name, wave, lane, found, depth + 1, None, key)
                self._later(node, f"{name}, before the loop", None, make)
        self._follow(node, found, hit, _chosen(hit.site, rest, hit.values, value))
        return node

    def _writer(
        self, name: str, wave: int, lane: int, before: Place, but: int
    ) -> tuple[Place | None, _Hit | None]:
        """The last instruction that wrote a register; but: not this one."""
        hit: list[_Hit] = []
        is_scalar = name.rstrip("0123456789") in SCALARS

        def test(moment: Moment) -> str | None:
            if name not in moment.site.writes or wave not in moment.waves:
                return None
            if not is_scalar and not (moment.on(wave)[lane] and not _is_guarded(moment, wave, lane)):
                return None
            hit[:] = [_computed(moment, wave, lane, name)]
            return ""

        def keys(work: Work) -> frozenset[int]:
            return frozenset(site.key for site in work.sites() if name in site.writes and site.key != but)

        found = self.history.last(before, test, keys, before.launch)
        return (found[0], hit[0]) if found is not None and hit else (None, None)

    # ------------------------------------------------------------ both

    def _work(self, place: Place) -> Work:
        record = self.history.record(place.launch)
        if record is None:
            raise UsageError(f"origin: launch {place.launch} is not kept any more.")
        return record.work

    def _made(self, node: Node, place: Place, hit: _Hit) -> None:
        node.place, node.site, node.wave, node.lane = place, hit.site, hit.wave, hit.lane
        node.work = self._work(place)

    def _later(self, node: Node, what: str, value: int | None, make: Callable[[], Node]) -> None:
        """Find a source of a node when its turn comes: those that are nearest to what was asked for come first."""
        self._todo.append((node, what, value, make))

    def _finish(self, root: Node) -> Node:
        """Find what is still to be found, as far as it goes."""
        left = MOST_LEFT
        while self._todo:
            node, what, value, make = self._todo.popleft()
            if node.depth + 1 < MOST_DEPTH and self.nodes < MOST_NODES:
                node.sources.append(make())
            elif left:
                left -= 1
                node.sources.append(Node(what, node.depth + 1, value, why="not followed further"))
        return root

    def _follow(self, node: Node, place: Place, hit: _Hit, reads: list[str]) -> None:
        for name in reads:
            if name in ("exec", "scc") or name.startswith(("%tid", "%ctaid", "%ntid")):
                continue
            value = hit.values.get(name)
            make = functools.partial(self._register, name, hit.wave, hit.lane, place, node.depth + 1, value)
            self._later(node, name, value, make)


def _chosen(site: Site, reads: list[str], values: dict[str, int], value: int | None) -> list[str]:
    """What an instruction's result is from: of one that selects, the source that it took, and the condition."""
    if value is None or not site.text.startswith(SELECTS):
        return reads
    same = [one for one in reads[:-1] if values.get(one) == value]
    return [same[0], reads[-1]] if same else reads


def _is_guarded(moment: Moment, wave: int, lane: int) -> bool:
    guarded = getattr(moment, "is_guarded", None)
    return bool(guarded is not None and guarded(wave, lane))


def _values(moment: Moment, wave: int, lane: int, names: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for name in names:
        try:
            found[name] = int(of_lane(moment.read(name, wave), lane))
        except UsageError:
            continue
    return found


def _stored(moment: Moment, one: Access, at: int, address: int) -> _Hit:
    wave, lane = int(one.wave[at]), int(one.lane[at])
    data = ""
    if one.data:
        each = max(1, one.size // len(one.data))
        data = one.data[min(len(one.data) - 1, max(0, address - int(one.address[at])) // each)]
    values = _values(moment, wave, lane, (*moment.site.reads, *one.data))
    return _Hit(moment.site, wave, lane, values, one, data, _loaded(moment, wave, lane, ""))


def _computed(moment: Moment, wave: int, lane: int, name: str) -> _Hit:
    values = _values(moment, wave, lane, moment.site.reads)
    return _Hit(moment.site, wave, lane, values, loaded=_loaded(moment, wave, lane, name))


def _loaded(moment: Moment, wave: int, lane: int, name: str) -> list[tuple[str, int, int]]:
    """What a lane loads. name: into this register; "": at all."""
    found = []
    is_scalar = name.rstrip("0123456789") in SCALARS
    for one in moment.accesses():
        if one.kind == "store":
            continue
        mine = np.flatnonzero((one.wave == wave) & ((one.lane == lane) | is_scalar))
        if not len(mine) or (name and one.data and name not in one.data):
            continue
        each = max(1, one.size // max(1, len(one.data)))
        offset = each * one.data.index(name) if name in one.data else 0
        found.append((one.space, int(one.address[mine[0]]) + offset, min(each, one.size)))
    return found
