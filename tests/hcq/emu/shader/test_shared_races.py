"""Races in shared memory against the definition: two accesses that no chain of what orders them leads between."""

from __future__ import annotations

import itertools
import random
from typing import NamedTuple

import numpy as np
import pytest

from hcq.emu.shader.checks import Checks
from hcq.emu.shader.order import Order, Records
from hcq.emu.shader.shared_races import SharedRaces, blocks_at_once

WARPS, BYTES = 4, 16


class Event(NamedTuple):
    """Something that a warp did, as a program of this test has it. place: its number."""

    place: int
    kind: str  # load, store, atomic, or barrier
    warps: tuple[int, ...]
    at: int = 0
    size: int = 4


def order_of(blocks: int, warps: int) -> Order:
    """That of warps whose atomic operations need no fences."""
    return Order(Records(blocks * warps, warps), 0, blocks)


def drawn(seed: int, widths: tuple[int, ...]) -> list[Event]:
    """Some accesses of single warps, and barriers of all of them or of some."""
    rng = random.Random(seed)
    events = []
    for place in range(rng.randrange(4, 24)):
        if rng.random() < 0.25:
            some = rng.sample(range(WARPS), rng.randrange(2, WARPS + 1))
            events.append(Event(place, "barrier", tuple(sorted(some))))
        else:
            size = rng.choice(widths)
            at = rng.randrange(0, BYTES - size + 1, min(size, 4))
            kind = rng.choice(["load", "load", "store", "atomic"])
            events.append(Event(place, kind, (rng.randrange(WARPS),), at, size))
    return events


def by_definition(events: list[Event]) -> set[tuple[int, int, int]]:
    """(place, place, byte) of accesses that race. What is before an event: all that reaches it by edges of order."""
    before: list[set[int]] = []
    last: dict[int, int] = {}  # of a warp: its last event
    released: dict[int, set[int]] = {}  # of a byte: atomic operations on it
    for number, event in enumerate(events):
        edges = {last[warp] for warp in event.warps if warp in last}
        if event.kind == "atomic":
            for byte in range(event.at, event.at + event.size):
                edges |= released.get(byte, set())
                released.setdefault(byte, set()).add(number)
        before.append(edges.union(*(before[edge] for edge in edges)))
        last.update(dict.fromkeys(event.warps, number))
    found = set()
    for (i, one), (j, other) in itertools.combinations(enumerate(events), 2):
        if "barrier" in (one.kind, other.kind) or one.warps == other.warps:
            continue
        shared = range(max(one.at, other.at), min(one.at + one.size, other.at + other.size))
        writes = "store" in (one.kind, other.kind) or {one.kind, other.kind} == {"load", "atomic"}
        if writes and i not in before[j]:
            found |= {(one.place, other.place, byte) for byte in shared}
    return found


def told(events: list[Event]) -> tuple[set[tuple[int, int]], SharedRaces]:
    """The same, as it is found."""
    checks = Checks(frozenset({"race"}))
    races = SharedRaces(order_of(1, WARPS), BYTES, lambda warp, lane: f"{warp}.{lane}", str, checks)
    for event in events:
        if event.kind == "barrier":
            races.order.barrier(np.array(event.warps))
        else:
            warp, at = np.array(event.warps), np.array([event.at], np.uint64)
            races.access(event.kind, warp, np.array([3]), at, event.size, event.place)
    return {(race.sites[0].place, race.sites[1].place) for race in checks.found.values()}, races


@pytest.mark.parametrize("widths", [(4,), (4, 8, 16), (1, 2, 4)])
def test_what_is_found_races_by_definition_and_the_first_race_on_each_byte_is_found(
    widths: tuple[int, ...],
) -> None:
    """A byte remembers its last writer alone: behind its first race others may be hidden, until that one is mended."""
    some = 0
    for seed in range(400):
        events = drawn(seed, widths)
        wanted, (found, _) = by_definition(events), told(events)
        assert found <= {(one, other) for one, other, _ in wanted}, (seed, events)
        first = {byte: other for _, other, byte in sorted(wanted, key=lambda race: -race[1])}
        assert set(first.values()) <= {second for _, second in found}, (seed, events)
        some += bool(wanted)
    assert 50 < some < 400


def test_blocks_do_not_know_of_each_other() -> None:
    checks = Checks(frozenset({"race"}))
    races = SharedRaces(order_of(2, 2), 64, lambda warp, lane: "", str, checks)
    at = np.zeros(2, np.uint64)
    races.access("store", np.array([0, 2]), np.zeros(2, int), at, 4, 1)  # the first warp of either block
    races.order.barrier(np.array([0, 1]))
    races.access("load", np.array([1]), np.zeros(1, int), at[:1], 4, 2)
    assert not checks.found
    races.access("load", np.array([3]), np.zeros(1, int), at[:1], 4, 3)
    assert [(race.sites[0].place, race.sites[1].place) for race in checks.found.values()] == [(1, 3)]


def test_warps_that_store_to_one_place_by_one_instruction_race_and_lanes_of_one_warp_are_left_out() -> None:
    checks = Checks(frozenset({"race"}))
    races = SharedRaces(order_of(1, 2), 64, lambda warp, lane: f"{warp}.{lane}", str, checks)
    same = np.array([8, 8], np.uint64)
    races.access("store", np.array([0, 0]), np.array([0, 1]), same, 4, 1)
    assert not checks.found
    races.order.barrier(np.array([0, 1]))
    races.access("store", np.array([0, 1]), np.array([5, 6]), same, 4, 2)
    (race,) = checks.found.values()
    assert (race.sites[0].who, race.sites[1].who, race.address, race.times) == ("0.5", "1.6", 8, 1)


def test_a_race_that_comes_again_is_counted_and_the_first_is_kept() -> None:
    events = [Event(0, "store", (0,)), *(Event(1, "load", (1,)) for _ in range(5))]
    checks = Checks(frozenset({"race"}))
    races = SharedRaces(order_of(1, WARPS), BYTES, lambda warp, lane: "", str, checks)
    for event in events:
        races.access(
            event.kind, np.array(event.warps), np.zeros(1, int), np.zeros(1, np.uint64), 4, event.place
        )
    assert [race.times for race in checks.found.values()] == [5]


def test_what_lies_outside_is_left_to_others() -> None:
    checks = Checks(frozenset({"race"}))
    races = SharedRaces(order_of(1, 2), 6, lambda warp, lane: "", str, checks)
    for kind, warp in (("store", 0), ("load", 1)):
        races.access(kind, np.array([warp]), np.zeros(1, int), np.array([4], np.uint64), 4, 1)
    assert not checks.found


def test_memory_stays_bounded_by_running_fewer_blocks_at_a_time() -> None:
    assert blocks_at_once(0, 8) > 1000
    assert blocks_at_once(65536, 32) * 16384 * 32 <= 1 << 23
    assert blocks_at_once(1 << 30, 32) == 1
