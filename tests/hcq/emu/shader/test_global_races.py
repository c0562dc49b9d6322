"""Races in global memory against the definition: two accesses that no chain of what orders them leads between."""

from __future__ import annotations

import itertools
import random
from typing import NamedTuple

import numpy as np
import pytest

from hcq.emu.shader.checks import Checks
from hcq.emu.shader.global_races import SEVERAL, GlobalRaces
from hcq.emu.shader.marks import PAGE, Shadow
from hcq.emu.shader.order import BLOCK, DEVICE, PLAIN, Order

BLOCKS, WARPS = 3, 2
START, BYTES = 0x7_0000_0FF8, 16  # across the end of a page


class Event(NamedTuple):
    """Something that a warp did, as a program of this test has it. place: its number; level: see order.py.

    kind  load, store, atomic (plain ones have the level PLAIN); release, acquire: fences; barrier: of a block
    """

    place: int
    kind: str
    warp: int
    level: int = PLAIN
    at: int = 0
    size: int = 4


def drawn(seed: int, widths: tuple[int, ...]) -> list[Event]:
    """Some accesses of single warps, with fences, and barriers of a block."""
    rng = random.Random(seed)
    events = []
    for place in range(rng.randrange(6, 40)):
        warp, draw = rng.randrange(BLOCKS * WARPS), rng.random()
        if draw < 0.1:
            events.append(Event(place, "barrier", warp))
        elif draw < 0.4:
            level = rng.choice([BLOCK, DEVICE, DEVICE])
            events.append(Event(place, rng.choice(["release", "acquire"]), warp, level))
        elif draw < 0.7:  # on the first word alone, so that they meet
            level = rng.choice([BLOCK, DEVICE, DEVICE])
            events.append(Event(place, rng.choice(["load", "store", "atomic", "atomic"]), warp, level))
        else:
            size = rng.choice(widths)
            at = rng.randrange(0, BYTES - size + 1, size)
            events.append(Event(place, rng.choice(["load", "load", "store"]), warp, PLAIN, at, size))
    return events


class Knowledge:
    """By definition: sets of events. What is known, what fences have covered, what atomic operations have left."""

    def __init__(self) -> None:
        some = range(BLOCKS * WARPS)
        self.known: list[set[int]] = [set() for _ in some]
        self.covered: list[dict[int, set[int]]] = [{BLOCK: set(), DEVICE: set()} for _ in some]
        self.left: list[tuple[int, Event, dict[int, set[int]]]] = []  # of the one place
        self.read: list[list[tuple[int, int, set[int]]]] = [[] for _ in some]  # (level, whose block, what)

    def do(self, number: int, event: Event) -> None:
        warp, block = event.warp, event.warp // WARPS
        if event.kind == "barrier":
            mates = range(block * WARPS, block * WARPS + WARPS)
            known = set().union(*(self.known[mate] for mate in mates))
            covered = {
                level: set().union(*(self.covered[mate][level] for mate in mates))
                for level in (BLOCK, DEVICE)
            }
            for mate in mates:
                self.known[mate] = set(known)
                self.covered[mate] = {level: set(one) for level, one in covered.items()}
        elif event.kind == "release":
            for level in (BLOCK, DEVICE):
                if level <= event.level:
                    self.covered[warp][level] = set(self.known[warp])
        elif event.kind == "acquire":
            kept = []
            for level, home, what in self.read[warp]:
                if min(level, event.level) == DEVICE or home == block:
                    self.known[warp] |= what
                elif level == DEVICE:
                    kept.append((level, home, what))
            self.read[warp] = kept
        elif event.at == 0 and event.kind != "load" and event.level == PLAIN:
            self.left = []
        elif event.level:
            if event.kind != "store":
                for _, other, what in self.left:
                    home = other.warp // WARPS
                    reach = min(event.level, other.level)
                    if home == block or reach == DEVICE:
                        level = DEVICE if reach == DEVICE else BLOCK
                        self.read[warp].append((level, home, what[BLOCK if home == block else DEVICE]))
            if event.kind == "store":
                self.left = []
            if event.kind != "load" and any(self.covered[warp].values()):
                made = {level: self.covered[warp][level] | {number} for level in (BLOCK, DEVICE)}
                self.left.append((number, event, made))
        self.known[warp].add(number)


def by_definition(events: list[Event]) -> set[tuple[int, int, int]]:
    """(place, place, byte) of accesses that race."""
    state, before = Knowledge(), []
    for number, event in enumerate(events):
        before.append(set(state.known[event.warp]))
        state.do(number, event)
    found = set()
    for (i, one), (j, other) in itertools.combinations(enumerate(events), 2):
        kinds = {one.kind, other.kind}
        if one.warp == other.warp or not kinds <= {"load", "store", "atomic"} or kinds == {"load"}:
            continue
        if one.level and other.level:
            near = one.warp // WARPS == other.warp // WARPS
            if near or min(one.level, other.level) == DEVICE:
                continue
        if i not in before[j]:
            low, high = max(one.at, other.at), min(one.at + one.size, other.at + other.size)
            found |= {(one.place, other.place, byte) for byte in range(low, high)}
    return found


def told(events: list[Event]) -> set[tuple[int, int]]:
    """The same, as it is found."""
    checks = Checks(frozenset({"race"}))
    races = GlobalRaces(BLOCKS * WARPS, WARPS, lambda warp, lane: f"{warp}.{lane}", str, checks)
    order = Order(races.records, 0, BLOCKS, needs_fences=True)
    for event in events:
        warp = np.array([event.warp])
        if event.kind == "barrier":
            first = event.warp // WARPS * WARPS
            order.barrier(np.arange(first, first + WARPS))
        elif event.kind == "release":
            order.release(warp, event.level)
        elif event.kind == "acquire":
            order.acquire(warp, event.level)
        else:
            at = np.array([START + event.at], np.uint64)
            races.access(order, event.kind, warp, np.array([3]), at, event.size, event.place, event.level)
    return {(race.sites[0].place, race.sites[1].place) for race in checks.found.values()}


@pytest.mark.parametrize("widths", [(4,), (4, 8), (1, 2, 4)])
def test_what_is_found_races_by_definition_and_the_first_race_on_each_byte_is_found(
    widths: tuple[int, ...],
) -> None:
    some = 0
    for seed in range(250):
        events = drawn(seed, widths)
        wanted, found = by_definition(events), told(events)
        assert found <= {(one, other) for one, other, _ in wanted}, (seed, events)
        first = {byte: other for _, other, byte in sorted(wanted, key=lambda race: -race[1])}
        assert set(first.values()) <= {second for _, second in found}, (seed, events)
        some += bool(wanted)
    assert 50 < some


def test_a_page_is_remembered_by_words_until_somebody_touches_less() -> None:
    shadow = Shadow(2)
    ((pool, which, cells),) = shadow.locate(np.array([START & -PAGE, (START & -PAGE) + 8], np.uint64), 4)
    assert (pool.unit, which, cells.tolist(), shadow.cells) == (4, None, [0, 2], PAGE // 4)
    pool.stores.put(cells, np.array([5, 6]), np.array([1, 2]), 3, np.array([0, 1]), PLAIN)
    ((pool, _, cells),) = shadow.locate(np.array([(START & -PAGE) + 9], np.uint64), 1)
    assert (pool.unit, pool.address(int(cells[0])), shadow.cells) == (1, (START & -PAGE) + 9, PAGE)
    assert [(int(pool.stores.warp[at]), int(pool.stores.clock[at])) for at in (0, 3, 4, 9)] == [
        (5, 1),
        (5, 1),
        (-1, 0),
        (6, 2),
    ]


def test_pages_beyond_the_bound_are_left_out_and_those_before_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hcq.emu.shader.marks.MOST_CELLS", PAGE // 4)
    checks = Checks(frozenset({"race"}))
    races = GlobalRaces(2, 1, lambda warp, lane: "", str, checks)
    order = Order(races.records, 0, 2)
    for warp in range(2):
        at = np.array([START & -PAGE, (START & -PAGE) + PAGE], np.uint64)
        races.access(order, "store", np.array([warp, warp]), np.array([0, 1]), at, 4, warp)
    assert [(race.address, race.times) for race in checks.found.values()] == [(START & -PAGE, 1)]


def test_of_many_readers_those_of_two_blocks_are_kept() -> None:
    """So that whoever writes next races with one of them, and it is found, whichever block it is of."""
    for writer in range(8):
        checks = Checks(frozenset({"race"}))
        races = GlobalRaces(8, 4, lambda warp, lane: f"{warp}", str, checks)
        order = Order(races.records, 0, 2)
        every = np.arange(8)
        races.access(order, "load", every, every * 0, np.full(8, START, np.uint64), 4, 1)
        races.access(order, "store", np.array([writer]), np.zeros(1, int), np.array([START], np.uint64), 4, 2)
        (race,) = checks.found.values()
        assert race.sites[0].who != f"{writer}"


def test_what_earlier_blocks_did_is_known_when_later_ones_run() -> None:
    checks = Checks(frozenset({"race"}))
    races = GlobalRaces(4, 2, lambda warp, lane: f"{warp}", str, checks)
    one, at = np.zeros(1, int), np.array([START], np.uint64)
    races.access(Order(races.records, 0, 1), "store", one, one, at, 4, 1)
    races.access(Order(races.records, 1, 1), "load", one, one, at, 4, 2)
    (race,) = checks.found.values()
    assert [site.who for site in race.sites] == ["0", "2"]


def test_threads_of_a_warp_race_where_they_are_apart_until_they_have_met() -> None:
    def run(meets: tuple[int, ...], apart: bool = True) -> list[str]:
        checks = Checks(frozenset({"race"}))
        races = GlobalRaces(1, 1, lambda warp, lane: f"{lane}", str, checks)
        order = Order(races.records, 0, 1, needs_fences=True, lanes_are_apart=apart, lanes=4)
        lanes = np.arange(4)
        at = (START + 4 * lanes).astype(np.uint64)
        races.access(order, "store", lanes * 0, lanes, at, 4, 1)
        if meets:
            who = np.array(meets)
            order.meet(who * 0, who, np.full(len(who), sum(1 << one for one in meets)), np.array([4]))
        races.access(order, "load", lanes * 0, lanes, at[::-1], 4, 2)
        return [f"{race.rule} {race.times}" for race in checks.found.values()]

    assert run(()) == ["lane-race 4"] and run((), apart=False) == []
    assert run((0, 1, 2, 3)) == [] and run((0, 3)) == ["lane-race 2"]


def test_a_place_that_all_threads_of_a_warp_read_races_with_whichever_writes_it() -> None:
    for writer in range(4):
        checks = Checks(frozenset({"race"}))
        races = GlobalRaces(1, 1, lambda warp, lane: f"{lane}", str, checks)
        order = Order(races.records, 0, 1, needs_fences=True, lanes_are_apart=True, lanes=4)
        lanes, at = np.arange(4), np.full(4, START, np.uint64)
        races.access(order, "load", lanes * 0, lanes, at, 4, 1)
        assert races.shadow.pools[4].reads[0].lane[(START & (PAGE - 1)) // 4] == SEVERAL
        races.access(order, "store", np.zeros(1, int), np.array([writer]), at[:1], 4, 2)
        assert [race.rule for race in checks.found.values()] == ["lane-race"]


@pytest.mark.parametrize(("room", "rules"), [(1 << 21, ["global-race"]), (0, [])])
def test_a_writer_that_comes_after_two_readers_of_three_races_with_the_third_as_long_as_there_is_room(
    room: int, rules: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hcq.emu.shader.spilled.MOST_SPILLED", room)
    checks = Checks(frozenset({"race"}))
    races = GlobalRaces(4, 4, lambda warp, lane: f"{warp}", str, checks)
    order, at = Order(races.records, 0, 1), np.full(4, START, np.uint64)
    for warp in (1, 2, 3):
        races.access(order, "load", np.array([warp]), np.zeros(1, int), at[:1], 4, warp)
    order.barrier(np.array([0, 1, 2]))
    races.access(order, "store", np.zeros(1, int), np.zeros(1, int), at[:1], 4, 9)
    found = list(checks.found.values())
    assert [race.rule for race in found] == rules
    assert all([site.place for site in race.sites] == [3, 9] for race in found)


def test_when_there_is_no_room_for_what_atomics_make_known_they_make_everything_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which hides races, and invents none."""

    def found() -> int:
        checks = Checks(frozenset({"race"}))
        races = GlobalRaces(3, 1, lambda warp, lane: "", str, checks)
        order, one = Order(races.records, 0, 3, needs_fences=True), np.zeros(1, int)
        flag, data = np.array([START], np.uint64), np.array([START + 4], np.uint64)
        for place in (flag, *[data + np.uint64(4)] * 9):
            order.release(one, DEVICE)
            races.access(order, "store", one, one, place, 4, 1, DEVICE)
        races.access(order, "store", one + 2, one, data, 4, 2)
        races.access(order, "load", one + 1, one, flag, 4, 3, DEVICE)
        order.acquire(one + 1, DEVICE)
        races.access(order, "load", one + 1, one, data, 4, 4)
        return len(checks.found)

    assert found() == 1
    monkeypatch.setattr("hcq.emu.shader.order.MOST_RECORD_BYTES", 1000)
    assert found() == 0


@pytest.mark.parametrize("kind", ["load", "store"])
@pytest.mark.parametrize("is_native", [False, True])
def test_an_access_across_the_end_of_a_page_touches_the_page_behind_it_and_no_other(kind, is_native):
    found = []
    for other in (START + 8 + 4 * PAGE, START + 8):  # elsewhere, and right behind the end
        checks = Checks(frozenset({"race"}))
        races = GlobalRaces(2, 1, lambda warp, lane: f"{warp} {lane}", str, checks)
        if not is_native:
            races.native = None
        order = Order(races.records, 0, 2)
        here = np.array([START + 4], np.uint64)
        one = lane = np.array([0])
        races.access(order, "load", one, lane, here - np.uint64(64), 4, 0)
        races.access(
            order, "store", one, lane, np.array([other], np.uint64), 4, 1
        )  # the next page that is known
        races.access(order, kind, one + 1, lane, here, 16, 2)
        found.append([race.address for race in checks.found.values()])
    assert found[0] == []
    assert found[1] == [START + 8]
