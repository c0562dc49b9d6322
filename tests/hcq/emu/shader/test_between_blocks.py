"""What blocks of a launch have in common, against sets; and what follows for the launch as a whole."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.emu.shader.between_blocks import LEAST_BLOCKS, Awaited, CommonReads
from hcq.emu.shader.traffic import Tally
from hcq.performance import datasheets
from hcq.performance.counters import Counters
from hcq.performance.model.chips import rates_of
from hcq.performance.model.resources import load_of

READS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=80)


@given(READS, st.integers(1, 7))
def test_common_is_what_the_sets_of_all_blocks_have_in_common(
    reads: list[tuple[int, int]], at_once: int
) -> None:
    found = CommonReads(LEAST_BLOCKS)
    for first in range(0, len(reads), at_once):
        some = reads[first : first + at_once]
        found.load(np.array([block for block, _ in some]), np.array([one for _, one in some], np.uint64))
    sets = [{one for block, one in reads if block == mine} for mine in range(LEAST_BLOCKS)]
    assert found.sectors() == len(set.intersection(*sets))


def test_a_sample_of_few_blocks_says_nothing_of_all() -> None:
    found = CommonReads(LEAST_BLOCKS - 1)
    found.load(np.arange(LEAST_BLOCKS - 1), np.zeros(LEAST_BLOCKS - 1, np.uint64))
    assert found.sectors() == 0


def test_a_table_that_all_blocks_read_comes_from_dram_once() -> None:
    sample = Counters(
        blocks=4,
        grid_blocks=400,
        dram_read_bytes=4 * 1000 + 96,
        beyond_l2_bytes=4 * 1000 + 96,
        common_bytes=96,
    )
    whole = sample.whole()
    assert whole.dram_read_bytes == whole.beyond_l2_bytes == 400 * 1000 + 96


def test_a_block_of_a_sample_has_of_l1_what_it_would_have_beside_the_others() -> None:
    def l1_sectors(grid: int, sample: int) -> int:
        return Tally("sm_80", 0, "k", (grid, 1, 1), (1024, 1, 1), 32, 32, 0, 0, sample).l1.sectors

    units = datasheets.chip("a100").units
    assert l1_sectors(4 * units, 2) == l1_sectors(4 * units, 0) // 2  # two of 1024 threads run at once
    assert l1_sectors(units, 2) == l1_sectors(units, 0)  # one would be alone anyway
    assert l1_sectors(4 * units, 2 * units) == l1_sectors(4 * units, 0)


def chain(blocks: int, window: int) -> Awaited:
    """Each block stores a word, and a warp of the next one looks at the last `window` of them."""
    found = Awaited()
    for block in range(blocks):
        if block:
            at = np.arange(max(0, block - window), block)
            found.load(np.full(len(at), block), np.full(len(at), block), at.astype(np.uint64))
        found.store(np.array([block]), np.array([block], np.uint64))
    return found


@pytest.mark.parametrize("window", [1, 4, 32])
def test_all_blocks_but_the_first_wait_for_a_neighbour(window: int) -> None:
    found = chain(40, window)
    assert (found.blocks(), found.window) == (39, window)


def test_a_word_that_a_block_stored_itself_is_not_awaited() -> None:
    found = Awaited()
    found.store(np.array([3]), np.array([64], np.uint64))
    found.load(np.array([0]), np.array([3]), np.array([64], np.uint64))
    assert found.blocks() == 0


def test_one_word_that_all_blocks_look_at_is_a_barrier_and_no_chain() -> None:
    found = Awaited()
    found.store(np.array([0]), np.array([64], np.uint64))
    for block in range(1, 20):
        found.load(np.array([0]), np.array([block]), np.array([64], np.uint64))
    assert found.blocks() == 0


@given(st.integers(1, 32), st.integers(1, 1 << 20))
def test_a_chain_of_blocks_takes_longer_the_longer_it_is_and_the_fewer_words_are_seen_at_once(
    window: int, blocks: int
) -> None:
    chip = datasheets.chip("h100")

    def seconds(**changes: int) -> float:
        base = Counters(arch="sm_90", blocks=blocks, awaited_blocks=blocks, awaited_window=window)
        changed = dataclasses.replace(base, **changes)  # type: ignore[arg-type]
        return load_of(changed, chip, rates_of(chip), False).chip["blocks that wait for each other"]

    assert seconds(awaited_blocks=2 * blocks) == pytest.approx(2 * seconds())
    assert seconds(awaited_window=2 * window) == pytest.approx(seconds() / 2)


def test_blocks_that_were_stopped_before_they_read_say_nothing_of_what_blocks_share() -> None:
    def sample() -> Tally:
        made = Tally("gfx1100", 0, "k", (4096, 1, 1), (32, 1, 1), 32, 32, 0, 0, 4)
        made.record.l2_bytes = 1 << 16
        return made

    for sectors, is_told in ((0.5, False), (2, True)):
        tally = sample()
        held = tally.held()
        assert held is not None
        held.record.l2_bytes = round(sectors * held.record.blocks * held.record.sector_bytes)
        tally.learn(held)
        assert bool(tally.record.held_l2_bytes) is is_told
