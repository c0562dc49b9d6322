"""Laws of the model: more work never takes less, nothing is faster than the floor, each rate says where it is from."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.errors import UsageError
from hcq.performance import datasheets, roofline
from hcq.performance.counters import Counters
from hcq.performance.model.chips import RATES, rates_of
from hcq.performance.model.rates import NAMES
from hcq.performance.model.resources import load_of
from hcq.performance.model.time import BOUND_TOGETHER, estimate, together

WANTED = "a100 h100 h200 b200 rtx3090 a6000 rtx4090 rtx5090 mi250 mi300x mi355x rx7900xtx rx9070xt m1 m2 m3 m4".split()
GROWING = (
    "l2_bytes", "dram_read_bytes", "dram_write_bytes", "l1_clocks", "shared_passes", "bank_conflicts", "atomic_words",
    "hot_words",
)  # fmt: skip


def stream(arch: str = "sm_80", **changes: object) -> Counters:
    """A copy of 64 MiB by blocks of 256 threads, each of which loads and stores 16 bytes."""
    blocks, size = 1 << 14, 1 << 26
    warps = 8 * blocks
    made = Counters(
        arch=arch, kernel="copy", grid=(blocks, 1, 1), block=(256, 1, 1), blocks=blocks, grid_blocks=blocks,
        warps=warps,
        instructions={"global load": warps, "global store": warps, "integer": 8 * warps},
        ops={"memory": 2 * warps, "alu": 8 * warps}, waits={"clocks": 60.0 * warps, "global": float(warps)},
        load_sectors=size // 32, store_sectors=size // 32, bytes_needed=2 * size, l2_bytes=2 * size,
        beyond_l2_bytes=2 * size, dram_read_bytes=size, dram_write_bytes=size, registers=32, l1_requests=2 * warps,
        l1_lines=8 * warps, l1_clocks=8.0 * warps, load_requests=warps, l2_requests=warps,
    )  # fmt: skip
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", WANTED)
def test_every_chip_has_rates_each_with_its_source(name: str) -> None:
    rates = rates_of(datasheets.chip(name))
    assert set(NAMES) <= set(rates.sources)
    assert all(rates.sources.values())
    assert 0 < rates.l1 < rates.l2 < rates.dram
    assert 0 < rates.read_share <= 1 and 0 < rates.read_share - rates.mix_loss <= 1


def test_every_datasheet_has_rates_and_the_other_way_round() -> None:
    assert set(RATES) == set(datasheets.CHIPS)
    lone = dataclasses.replace(datasheets.chip("a100"), name="another")
    with pytest.raises(UsageError, match="no rates of another"):
        rates_of(lone)


@pytest.mark.parametrize("name", datasheets.CHIPS)
def test_no_kernel_is_faster_than_the_floor(name: str) -> None:
    chip = datasheets.chip(name)
    counted = stream(arch=chip.arch)
    found = roofline.predict(counted, chip)
    assert found.seconds >= found.floor_seconds > 0
    assert estimate(counted, chip).seconds >= roofline.roof(counted, chip).seconds * 0.95


@given(st.sampled_from(GROWING), st.integers(1, 1 << 40))
def test_more_work_never_takes_less_time(name: str, more: int) -> None:
    chip = datasheets.chip("a100")
    base = stream(atomic_sectors=1, hot_words=1, atomic_words=1, shared_passes=1 << 20)
    grown = dataclasses.replace(base, **{name: getattr(base, name) + more})
    assert estimate(grown, chip).seconds >= estimate(base, chip).seconds * (1 - 1e-9)


@given(st.integers(1, 64))
def test_longer_chains_never_take_less_time(times: int) -> None:
    chip, base = datasheets.chip("h100"), stream("sm_90")
    longer = stream("sm_90", waits={name: often * times for name, often in base.waits.items()})
    assert estimate(longer, chip).seconds >= estimate(base, chip).seconds


@pytest.mark.parametrize("chip", ["a100", "h100", "rtx4090"])
def test_fewer_warps_at_once_never_hide_more(chip: str) -> None:
    sheet = datasheets.chip(chip)
    times = [estimate(stream(sheet.arch, registers=one), sheet).seconds for one in (32, 64, 128, 255)]
    assert times == sorted(times) and times[-1] > times[0]


@pytest.mark.parametrize("clocks", [1e3, 1e5])
def test_a_block_that_has_a_unit_for_itself_takes_its_work_and_its_waits_one_after_the_other(
    clocks: float,
) -> None:
    chip = datasheets.chip("a100")
    blocks = chip.units
    alone = stream(
        blocks=blocks, grid_blocks=blocks, grid=(blocks, 1, 1), warps=8 * blocks, barriers=8 * blocks, registers=255,
        shared_bytes=160 << 10, ops={"alu": round(8 * blocks * clocks / 4)}, waits={"global": 8.0 * blocks},
        load_requests=8 * blocks, l2_requests=8 * blocks, l1_clocks=0.0, l2_bytes=0, beyond_l2_bytes=0,
        dram_read_bytes=0, dram_write_bytes=0,
    )  # fmt: skip
    found = estimate(alone, chip, launched_by="")
    own = dict(found.parts)["alu pipe"]
    rates = rates_of(chip)
    least = own + (found.latency + rates.block_clocks) / chip.clock_hz
    assert least <= found.seconds <= 1.1 * least + blocks * rates.begin_clocks / chip.clock_hz


@given(st.integers(1, 1 << 20))
def test_blocks_begin_one_after_another(blocks: int) -> None:
    chip = datasheets.chip("a40")

    def begin(count: int) -> float:
        counted = Counters(arch="sm_86", blocks=count, grid_blocks=count)
        return load_of(counted, chip, rates_of(chip), False).chip["the begin of blocks"]

    assert begin(2 * blocks) == pytest.approx(2 * begin(blocks))


def test_a_faster_chip_of_a_kind_takes_less_time() -> None:
    bound = stream("sm_90")
    times = [
        estimate(bound, datasheets.chip(name)).seconds for name in ("h200", "gh200", "h100", "h100-pcie")
    ]
    assert times == sorted(times)


def test_a_launch_costs_more_from_a_queue_than_in_a_graph_and_nothing_when_it_is_left_out() -> None:
    chip = datasheets.chip("a100")
    by = {how: estimate(stream(), chip, launched_by=how) for how in ("queue", "graph", "")}
    assert by["queue"].seconds > by["graph"].seconds > by[""].seconds
    assert by[""].launch == 0


def test_data_that_a_launch_before_left_in_l2_is_not_read_from_dram() -> None:
    chip = datasheets.chip("a100")
    fits = stream(dram_read_bytes=1 << 24, dram_write_bytes=1 << 23)
    assert estimate(fits, chip, is_warm=True).seconds < estimate(fits, chip).seconds
    too_much = stream(dram_read_bytes=1 << 30)
    names = [what for what, _ in estimate(too_much, chip, is_warm=True).parts]
    assert "DRAM" in names


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=6))
def test_what_goes_on_side_by_side_takes_as_long_as_the_longest_and_not_as_long_as_all(
    times: list[float],
) -> None:
    found = together(times, BOUND_TOGETHER)
    assert max(times) * (1 - 1e-9) <= found <= sum(times) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"l1_clocks": 32.0 * 8 * (1 << 20)}, "neighbouring threads"),
        ({"shared_passes": 1 << 30, "bank_conflicts": 7 << 27}, "bank conflicts"),
        ({"waits": {"clocks": 1e9, "global": 1e8}}, "before the first is used"),
        ({"waits": {"clocks": 1e12}}, "their own arithmetic"),
        ({"atomic_sectors": 1 << 20, "atomic_words": 1 << 30, "hot_words": 1 << 30}, "spread"),
        ({"ops": {"special": 1 << 32}}, "special functions"),
    ],
)
def test_what_takes_the_time_is_said_in_words_to_act_on(changes: dict[str, object], word: str) -> None:
    found = roofline.predict(stream(**changes), "a100")
    assert any(word in note for note in found.notes), (found.estimate.parts[:3], found.notes)


def test_a_tiny_kernel_is_said_to_be_mostly_its_launch() -> None:
    tiny = stream(
        blocks=1, grid_blocks=1, grid=(1, 1, 1), warps=8, dram_read_bytes=0, dram_write_bytes=0, l2_bytes=0,
        beyond_l2_bytes=0, l1_clocks=8.0, waits={"clocks": 400.0}, ops={"alu": 8}, l1_requests=16, load_requests=8,
        l2_requests=0, load_sectors=8, store_sectors=8,
    )  # fmt: skip
    assert any("launch" in note for note in roofline.predict(tiny, "a100").notes)


@pytest.mark.parametrize(
    ("block", "held", "slower"), [(1.0, 1.0, True), (1.0, 1 / 32, False), (1 / 32, 1.0, False)]
)
def test_a_channel_of_l2_is_crowded_where_a_block_and_its_neighbours_ask_the_same(
    block: float, held: float, slower: bool
) -> None:
    chip = datasheets.chip("mi210")
    spread = stream(arch="gfx90a", warp_size=64)
    crowded = dataclasses.replace(spread, channel_share=block, held_channel_share=held)
    found = estimate(crowded, chip)
    assert (found.bound_by == "an L2 channel") is slower
    assert (found.seconds > 1.5 * estimate(spread, chip).seconds) is slower


@pytest.mark.parametrize("name", datasheets.CHIPS)
def test_lanes_of_a_unit_are_what_the_datasheet_s_peaks_need(name: str) -> None:
    chip, lanes = datasheets.chip(name), rates_of(datasheets.chip(name)).lanes
    clocks = chip.units * chip.clock_hz
    if "f64" in chip.vector_flops:
        assert 2 * lanes["f64"] * clocks == pytest.approx(chip.vector_flops["f64"], rel=0.1)
    if chip.arch.startswith("sm_"):  # pairs of halves
        assert 4 * lanes["half"] * clocks == pytest.approx(chip.vector_flops["f16"], rel=0.1)
        assert 2 * lanes["fma"] * clocks <= 1.01 * chip.vector_flops["f32"]
