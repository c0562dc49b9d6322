"""Races as machine code looks for them, against NumPy: the same findings in the same order, and the same marks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from hcq.emu.compiled import assemble
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.global_races import UNMARKED, GlobalRaces
from hcq.emu.shader.marks import FIELDS, NOBODY
from hcq.emu.shader.order import BLOCK, DEVICE, PLAIN, Order, Records
from hcq.emu.shader.shared_races import SharedRaces

pytestmark = pytest.mark.skipif(not assemble.is_installed(), reason="llvmlite is not installed")

BLOCKS, LANES = 3, 4
START = 0x7_0000_0F00  # some accesses are across the end of a page
SHARED_BYTES = 256


class Stream:
    """A program of some blocks, drawn from a seed: what it asks of `rng` never depends on what is found."""

    def __init__(self, seed: int) -> None:
        self.rng, self.arrays = random.Random(seed), np.random.default_rng(seed)
        self.lanes_are_apart, self.needs_fences = self.rng.random() < 0.5, self.rng.random() < 0.5
        self.is_racy, self.has_bytes = self.rng.random() < 0.5, seed % 3 == 0
        self.has_atomics = self.rng.random() < 0.4
        self.warps = self.rng.choice([1, 2, 3])  # of a block
        self.is_exact = seed % 2 == 0  # whether all readers are kept

    def order(self, records: Records, first_block: int) -> Order:
        return Order(
            records,
            first_block,
            BLOCKS,
            syncs=self.rng.random() < 0.7,
            needs_fences=self.needs_fences,
            lanes_are_apart=self.lanes_are_apart,
            lanes=LANES,
        )

    def synchronize(self, order: Order) -> bool:
        """Something that orders, or nothing."""
        rng, draw, count = self.rng, self.rng.random(), BLOCKS * self.warps
        if draw < 0.2:
            order.barrier(np.arange(count))
        elif draw < 0.25:
            fence = order.acquire if rng.random() < 0.5 else order.release
            fence(np.array([rng.randrange(count)]), rng.choice([BLOCK, DEVICE]))
        elif draw < 0.27:
            members = rng.choice([0b1111, 0b0110])
            lanes = np.array([lane for lane in range(LANES) if members >> lane & 1])
            warps = np.full(len(lanes), rng.randrange(count))
            order.meet(warps, lanes, np.full(len(lanes), members), np.full(count, LANES))
        return draw < 0.27

    def threads(self) -> tuple[np.ndarray, np.ndarray]:
        """Warps and lanes that take part."""
        warps = np.repeat(np.arange(BLOCKS * self.warps), LANES)
        lanes = np.tile(np.arange(LANES), BLOCKS * self.warps)
        if self.rng.random() < 0.5:
            kept = self.arrays.random(len(warps)) < self.rng.choice([0.1, 0.5, 0.9])
            warps, lanes = warps[kept], lanes[kept]
        return warps, lanes

    def kind(self) -> str:
        kinds = ["load", "load", "store"] + ["atomic"] * self.has_atomics
        return self.rng.choice(kinds)

    def size(self) -> int:
        return self.rng.choice([4, 4, 8, 16, 2, 1] if self.has_bytes else [4, 4, 8])

    def places(self, own: np.ndarray, lanes: np.ndarray, kind: str) -> np.ndarray:
        """Of which element each thread is: its own, the same for all, its lane's, its warp's, any."""
        each = own * LANES + lanes
        if kind == "store" and not self.is_racy:
            return each
        some = self.arrays.integers(0, self.rng.choice([2, 8, 16]), len(own))
        return self.rng.choice([each, np.zeros(len(own), np.int64), lanes, own, some])

    def level(self, kind: str) -> int:
        draw = self.rng.random()
        if kind == "atomic" or (self.has_atomics and draw < 0.2):
            return self.rng.choice([BLOCK, DEVICE])
        return UNMARKED if kind == "store" and not self.lanes_are_apart and draw < 0.6 else PLAIN


class Outcome(NamedTuple):
    """What is left of a stream."""

    keys: list[Any]
    faults: list[Any]
    marks: list[Any]
    quiet: Counter[bool]  # how many accesses machine code has done, or left to NumPy


def in_global_memory(seed: int, is_native: bool) -> Outcome:
    stream, checks = Stream(seed), Checks(frozenset({"race"}))
    warps = stream.warps
    names = lambda warp, lane: f"{warp} {lane}"  # noqa: E731
    races = GlobalRaces(2 * BLOCKS * warps, warps, names, str, checks, is_exact=stream.is_exact)
    quiet = _counted(races, is_native)
    for first in (0, BLOCKS):
        order = stream.order(races.records, first)
        for place in range(stream.rng.randrange(5, 40)):
            who = stream.threads()
            if stream.synchronize(order) or not len(who[0]):
                continue
            kind, size = stream.kind(), stream.size()
            at = START + stream.places(who[0], who[1], kind) * size + stream.rng.choice([0, 0, 512])
            races.access(order, kind, *who, at.astype(np.uint64), size, place, stream.level(kind))
    marks: list[Any] = []
    for pool in races.shadow.pools.values():
        for one in pool.marks:
            there = one.warp != NOBODY
            marks += [np.where(there, getattr(one, name), 0).tolist() for name in FIELDS] + [there.tolist()]
        marks += [pool.is_stored.tolist(), pool.record.tolist(), pool.pages]
        for more in (pool.more_reads, pool.more_changes):
            more.settle()
            marks += [more.cells.tolist(), *(column.tolist() for column in more.left)]
    return Outcome(list(checks.found), list(checks.found.values()), marks, quiet)


def in_shared_memory(seed: int, is_native: bool) -> Outcome:
    stream, checks = Stream(seed), Checks(frozenset({"race"}))
    warps = stream.warps
    order = stream.order(Records(BLOCKS * warps, warps), 0)
    races = SharedRaces(order, SHARED_BYTES, lambda warp, lane: f"{warp} {lane}", str, checks)
    quiet = _counted(races, is_native)
    for place in range(stream.rng.randrange(5, 60)):
        who = stream.threads()
        if stream.synchronize(order) or not len(who[0]):
            continue
        kind, size = stream.kind(), stream.size()
        at = stream.places(who[0] % warps, who[1], kind) * size + stream.rng.choice([0, 0, 0, 0, 2, 200])
        level = stream.level(kind)
        is_atomic = level in (BLOCK, DEVICE)
        races.access(kind, *who, at.astype(np.uint64), size, place, is_atomic, level if is_atomic else BLOCK)
    marks = [getattr(races, name).tolist() for name in ("writer", "write_clock", "write_site", "write_lane")]
    marks.append(races.record.tolist())
    for one in (races.reads, races.changes):
        if one is not None:
            marks += [one.clock.tolist(), one.site.tolist(), one.lane.tolist()]
    return Outcome(list(checks.found), list(checks.found.values()), marks, quiet)


def _counted(races: Any, is_native: bool) -> Counter[bool]:
    quiet: Counter[bool] = Counter()
    if not is_native:
        races.native = None
        return quiet
    access: Callable[..., bool] = races.native.access

    def counted(*arguments: Any) -> bool:
        is_done = access(*arguments)
        quiet[is_done] += 1
        return is_done

    races.native.access = counted
    return quiet


@pytest.mark.parametrize("run", [in_global_memory, in_shared_memory])
@pytest.mark.parametrize("seeds", [range(first, first + 25) for first in range(0, 100, 25)], ids=str)
def test_machine_code_finds_and_remembers_what_numpy_does(
    run: Callable[[int, bool], Outcome], seeds: range
) -> None:
    quiet: Counter[bool] = Counter()
    for seed in seeds:
        native, numpy = run(seed, True), run(seed, False)
        assert (seed, numpy[:3]) == (seed, native[:3])
        quiet += native.quiet
    assert min(quiet[True], quiet[False]) > 30


@pytest.mark.parametrize("run", [in_global_memory, in_shared_memory])
def test_what_is_found_is_found_by_numpy(run: Callable[[int, bool], Outcome]) -> None:
    racy = [run(seed, True) for seed in range(40)]
    assert any(one.keys for one in racy)
    assert all(one.quiet[False] for one in racy if one.keys)
