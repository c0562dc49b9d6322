"""What warps ask of memory, against the definitions written out slowly; and caches that drop what came first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.emu.shader.traffic import Cache, Tally, passes, units_of
from hcq.performance.counters import Counters

SIZES = st.sampled_from([1, 2, 4, 8, 16])


def tally(arch: str = "sm_80", blocks: int = 1) -> Tally:
    return Tally(arch, 0, "k", (blocks, 1, 1), (32, 1, 1), 32, 32, 0, 0)


def warp_of_32(addresses: list[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    count = len(addresses)
    return np.zeros(count, np.int64), np.arange(count), np.asarray(addresses, np.uint64)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=32), SIZES)
def test_passes_are_the_most_words_that_one_bank_has_to_give_in_each_group_of_threads(
    places: list[int], size: int
) -> None:
    addresses = [place * size for place in places]
    together = min(32, 128 // max(size, 4))
    expected = groups = 0
    for first in range(0, len(addresses), together):
        words: dict[int, set[int]] = {}
        for address in addresses[first : first + together]:
            for word in range(address // 4, (address + size - 1) // 4 + 1):
                words.setdefault(word % 32, set()).add(word)
        expected += max(len(found) for found in words.values())
        groups += 1
    assert passes(*warp_of_32(addresses), size) == (expected, expected - groups)


@given(st.lists(st.integers(0, 4000), min_size=1, max_size=64), SIZES)
def test_units_are_all_that_an_access_touches(addresses: list[int], size: int) -> None:
    which, units = units_of(np.array(addresses, np.uint64), size, 32)
    expected = {(i, byte // 32) for i, at in enumerate(addresses) for byte in range(at, at + size)}
    assert sorted(zip(which.tolist(), units.tolist())) == sorted(expected)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), max_size=200), st.integers(1, 16))
def test_a_cache_has_what_came_last_and_drops_what_came_first(
    accesses: list[tuple[int, int]], room: int
) -> None:
    cache = Cache(room * 32, 4, 32)
    cache.slots = np.uint64((1 << 12) - 1)  # so many slots that no two of these sectors meet in one
    cache.tags, cache.came = np.zeros(1 << 12, np.uint64), np.zeros(1 << 12, np.int64)
    cache.dirty = np.zeros(1 << 12, bool)
    held: list[list[int]] = [[], [], [], []]
    apart = 1 << 6
    for unit, sector in accesses:
        slot_apart = np.array([sector + unit * apart], np.uint64)
        missing = bool(cache.load(np.array([unit]), slot_apart)[0])
        assert missing == (sector not in held[unit])
        if missing:
            held[unit] = [*held[unit], sector][-room:]


@given(st.integers(0, 1 << 20), st.integers(-300, 300))
def test_a_cache_has_room_wherever_memory_lies(first: int, offset: int) -> None:
    """Two buffers of which each sector would be in a place that one of the other's is in, too."""
    cache = Cache(1024 * 32, 4, 32)
    one = np.arange(first, first + 400, dtype=np.uint64)
    other = one + cache.slots + np.uint64(1 + 300 + offset) - np.uint64(300)
    unit = np.zeros(400, np.int64)
    for sectors in (one, other):
        assert cache.load(unit, sectors).all()
    for sectors in (one, other):
        assert np.count_nonzero(cache.load(unit, sectors)) <= 40


@pytest.mark.parametrize(("arch", "line"), [("sm_90", 32), ("gfx1100", 128), ("gfx942", 128), ("gfx90a", 64)])
def test_a_warp_that_reads_neighbours_asks_for_each_sector_once(arch: str, line: int) -> None:
    one = tally(arch)
    warps, _, at = warp_of_32(np.arange(32) * 4 + 4096)
    one.memory("load", warps, warps, at, 4)
    assert one.record.load_sectors == 128 // line
    assert one.record.bytes_needed == one.record.dram_read_bytes == one.record.l2_bytes == 128


def test_what_was_loaded_comes_from_l1_and_what_was_stored_is_written_back_once() -> None:
    one = tally()
    warps, _, at = warp_of_32(np.arange(32) * 4)
    for _ in range(3):
        one.memory("load", warps, warps, at, 4)
        one.memory("store", warps, warps, at, 4)
    found = one.record
    assert (found.load_sectors, found.store_sectors) == (12, 12)
    assert found.l2_bytes == 128 + 3 * 128
    assert (found.dram_read_bytes, found.dram_write_bytes) == (128, 128)


def test_a_working_set_beyond_l2_comes_from_dram_again() -> None:
    one = tally("gfx1100")
    one.last = None
    step = 6 << 20
    at = np.arange(0, 2 * step, 128, dtype=np.uint64)
    warps = np.arange(4096) // 32
    for _ in range(2):
        for part in at.reshape(-1, 4096):
            one.memory("load", warps, warps, part, 4, by_l1=False)
    assert one.record.dram_read_bytes == 2 * 2 * step


def test_counters_that_are_written_down_read_the_same() -> None:
    made = Counters(arch="sm_90", grid=(2, 3, 4), instructions={"float": 5}, occupancy=0.5, kernel="k")
    assert Counters.from_fields(made.as_fields()) == made
    with pytest.raises(ValueError, match="blocks"):
        Counters.from_fields({"blocks": "many"})


def test_sums_add_what_is_a_sum_and_keep_the_last_of_the_rest() -> None:
    total = Counters(launches=0)
    for number in (1, 2):
        total.add(Counters(blocks=3, grid=(number, 1, 1), instructions={"float": number}, flops={"f32": 1}))
    assert (total.launches, total.blocks, total.grid) == (2, 6, (2, 1, 1))
    assert (total.instructions, total.flops) == ({"float": 3}, {"f32": 2})


def test_a_warp_finds_its_local_memory_where_the_one_before_it_had_its_own() -> None:
    one = Tally("sm_80", 0, "k", (10_000, 1, 1), (32, 1, 1), 32, 32, 0, 64)
    lanes, offsets = np.arange(32), np.full(32, 8, np.uint64)
    for block in (0, 1, one.slots, one.slots + 1):
        warps = np.full(32, block)
        one.private("store", warps, warps, lanes, offsets, 16)
    # four words of 32 threads, which are four sectors each
    assert one.record.local_sectors == 4 * 4 * 4
    assert one.record.l2_bytes == 32 * one.record.local_sectors
    assert one.record.dram_write_bytes == one.record.l2_bytes // 2
    assert (one.record.sectors, one.record.bytes_needed) == (0, 0)


@pytest.mark.parametrize(("stride", "share"), [(8192, 1.0), (4096, 0.5), (8192 + 256, 1 / 32)])
def test_rows_a_multiple_of_8_kilobytes_apart_are_all_in_one_channel_of_an_mi200(
    stride: int, share: float
) -> None:
    some, all_of_them = (
        Tally("gfx90a", 0, "k", (99, 1, 1), (64, 1, 1), 64, 32, 0, 0, sample) for sample in (1, 2)
    )
    lanes = np.arange(64, dtype=np.uint64)
    for made, blocks in ((some, 1), (all_of_them, 2)):
        for block in range(blocks):
            place = np.full(64, block, np.int64)
            made.memory("store", place, place, lanes * np.uint64(stride), 8)
    some.learn(all_of_them)
    assert some.record.channel_share == some.record.held_channel_share == pytest.approx(share, abs=0.001)


@pytest.mark.parametrize(("stored", "clocks"), [(0, 4.0), (4, 0.0)])
def test_what_goes_on_to_shared_memory_passes_the_data_path_once(stored: int, clocks: float) -> None:
    made, lanes = tally(), np.arange(32, dtype=np.uint64)
    made.memory(
        "load", np.zeros(32, np.int64), np.zeros(32, np.int64), lanes * np.uint64(16), 16, stored=stored
    )
    assert made.record.l1_clocks == clocks
