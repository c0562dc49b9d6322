"""Resources: how long each part of a chip works for a launch, at the rate that it reaches.

In       Counters of a whole launch; a chip's datasheet and rates
Out      Load: clocks of a unit for one block, by part; seconds of what all units share
Next     waiting.py (latency), time.py (who puts them together), ../roofline.py (the same at peak rates)
Source   gpu-benches, gpu-strides: loads pass the same data path as shared memory on NVIDIA; rates: the rows
"""

from __future__ import annotations

from dataclasses import dataclass

from hcq.performance.counters import Counters
from hcq.performance.datasheets import Datasheet
from hcq.performance.model.rates import Rates

PORT_BYTES_PER_CLOCK = 64  # from L2 to a unit: NVIDIA A100 white paper; AMD CDNA 3 white paper
WARM_SHARE = 0.8  # of L2 that the data of a launch before is still in
FLOATS_IN_ALU = 32


@dataclass(frozen=True)
class Load:
    """What one launch asks of the parts of a chip.

    unit      part of a unit -> clocks that it works for one block, on average
    chip      part of the whole chip -> seconds
    """

    unit: dict[str, float]
    chip: dict[str, float]


def load_of(counted: Counters, chip: Datasheet, rates: Rates, is_warm: bool) -> Load:
    """Of one launch, on average. is_warm: whether a launch before left its data in L2, as far as they fit."""
    launches, blocks = max(1, counted.launches), max(1, counted.blocks)
    return Load(
        {name: clocks / blocks for name, clocks in _of_unit(counted, chip, rates).items() if clocks},
        {
            name: seconds / launches
            for name, seconds in _of_chip(counted, chip, rates, is_warm).items()
            if seconds
        },
    )


def _of_unit(counted: Counters, chip: Datasheet, rates: Rates) -> dict[str, float]:
    wide = counted.warp_size
    found = {
        f"{name} pipe": wide * count / rates.lanes.get(name, wide) for name, count in counted.ops.items()
    }
    found.pop("matrix pipe", None)
    issued = sum(counted.ops.values()) or counted.warp_instructions
    found["instruction issue"] = issued / chip.schedulers
    shared = counted.shared_passes * 128 / chip.shared_bytes_per_clock
    if chip.arch.startswith("sm_"):
        found["L1 and shared memory"] = counted.l1_clocks + shared
    else:
        found["L1"], found["LDS"] = counted.l1_clocks, shared
    for name, flops in counted.matrix_flops.items():
        if name in chip.matrix_flops:
            per_clock = chip.matrix_flops[name] * rates.matrix_share / (chip.units * chip.clock_hz)
            found["matrix units"] = found.get("matrix units", 0.0) + flops / per_clock
    found["port to L2"] = counted.l2_bytes / PORT_BYTES_PER_CLOCK
    return found


def _of_chip(counted: Counters, chip: Datasheet, rates: Rates, is_warm: bool) -> dict[str, float]:
    found = {"L2": counted.l2_bytes / (chip.l2_bytes_s * rates.l2_share)}
    # accesses meet in a channel only if those of a block do, and those of blocks that run together
    share = min(counted.channel_share, counted.held_channel_share)
    found["an L2 channel"] = counted.l2_bytes * share * chip.l2_channels / chip.l2_bytes_s
    read, written = counted.dram_read_bytes, counted.dram_write_bytes
    total = read + written
    if is_warm and total <= WARM_SHARE * chip.l2_bytes * chip.l2s * max(1, counted.launches):
        total = 0
    if total:
        part = written / (read + written)
        share = rates.read_share - 4 * rates.mix_loss * part * (1 - part)
        found["DRAM"] = total / (chip.dram_bytes_s * share)
    if chip.last_bytes_s:
        found["Infinity Cache"] = counted.beyond_l2_bytes / chip.last_bytes_s
    if counted.awaited_blocks:
        # one stores, and the next ones, as many as look at once, see it: twice to L2 and back
        hops = counted.awaited_blocks / max(1, counted.awaited_window)
        found["blocks that wait for each other"] = hops * 2 * rates.l2 / chip.clock_hz
    found["the begin of blocks"] = counted.blocks * rates.begin_clocks / chip.clock_hz
    if counted.atomic_words:
        spread = chip.l2_bytes_s * rates.l2_share / chip.sector_bytes / 2
        hottest = counted.hot_words / (rates.line_words * chip.clock_hz)
        found["atomics"] = max(counted.atomic_sectors / spread, hottest)
    return found
