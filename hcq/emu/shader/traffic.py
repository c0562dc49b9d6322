"""Traffic: what warps ask of global and of shared memory, and what of it caches leave to L2 and DRAM.

In       the addresses of an instruction's active threads, warp by warp
Out      sectors, passes through shared memory, bank conflicts; bytes of L2 and of DRAM, in a Tally
Changes  the Tally of the launch
Next     hcq/performance/counters.py (the record), emu/nv/shader/counters.py and emu/amd/shader/counters.py (who
         ask), hcq/performance/datasheets.py
Source   32-byte sectors of NVIDIA: Nsight Compute's Kernel Profiling Guide, "Memory Tables"; lines of AMD: CDNA 3 white
         paper, RDNA 3 ISA; 32 banks of 4 bytes: CUDA C++ Programming Guide, "Shared Memory", and CDNA 3 ISA, "LDS";
         128 bytes in a pass, so that accesses of 8 and 16 bytes take half and quarter warps: ROCm, "Understanding AMD
         GPU LDS and Bank Conflicts", for stores of 16 bytes; for the others, and on NVIDIA, inferred

The caches are models: so many sectors, of which the one that came first leaves first, whatever its address. Each unit
has an L1 for loads, which stores and atomics pass by; L2 keeps what was stored until it has no room. All are empty when
a launch begins, and block n runs on unit n modulo the units, in the emulator's order, which runs many blocks in step.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcq.emu.shader.between_blocks import Awaited, CommonReads
from hcq.performance import datasheets
from hcq.performance.counters import Counters, Dim3
from hcq.performance.datasheets import Datasheet

Array = NDArray[Any]

BANKS, BANK_BYTES, PASS_BYTES = 32, 4, 128
LEAST_L1_BYTES = 16 << 10
PRIVATE_START = 1 << 57  # above every address of global memory
FILLED = np.uint64(1 << 63)
UNIT_SHIFT = 53  # above the number of any sector
SPREAD = 0x9E3779B1  # keeps the sectors of units apart in a table, and neighbours together
HASH, HASHED_SHIFT = (
    0x9E3779B97F4A7C15,
    24,
)  # multiplied by, and which bits of that are taken (Fibonacci hashing)
LARGEST_TABLE = 1 << 23
LEAST_STEPS = 500  # of blocks that are looked at only as they begin
HELD_THREADS = 1 << 16  # run together at most: their registers are in memory all at once


def distinct(groups: Array, numbers: Array) -> tuple[Array, Array]:
    """The different pairs of two arrays, in order of groups."""
    if len(groups) < 2:
        return groups, numbers
    order = np.lexsort((numbers, groups))
    groups, numbers = groups[order], numbers[order]
    keep = np.ones(len(groups), bool)
    keep[1:] = (groups[1:] != groups[:-1]) | (numbers[1:] != numbers[:-1])
    return groups[keep], numbers[keep]


def units_of(addresses: Array, size_bytes: int, unit: int) -> tuple[Array, Array]:
    """(which address, number of a unit): every unit of so many bytes that [address, address + size) touches."""
    first = addresses // np.uint64(unit)
    last = (addresses + np.uint64(size_bytes - 1)) // np.uint64(unit)
    which = np.arange(len(addresses))
    wheres, numbers = [which], [first]
    for step in range(1, int((last - first).max(initial=0)) + 1):
        more = first + np.uint64(step) <= last
        wheres.append(which[more])
        numbers.append(first[more] + np.uint64(step))
    return np.concatenate(wheres), np.concatenate(numbers)


def passes(warps: Array, lanes: Array, addresses: Array, size_bytes: int) -> tuple[int, int]:
    """How often shared memory is visited, and how many of the visits conflicts cause.

    warps, lanes   of each address: the warp; the thread's place in it
    """
    if not len(addresses):
        return 0, 0
    _, busy = visits(warps, lanes, addresses, size_bytes)
    needed = int(busy.sum())
    return needed, needed - len(busy)


def visits(warps: Array, lanes: Array, addresses: Array, size_bytes: int) -> tuple[Array, Array]:
    """(warp, how often memory is visited) of each group of threads whose data fit into one visit."""
    together = min(BANKS, PASS_BYTES // max(size_bytes, BANK_BYTES))  # threads of one visit
    phase = warps.astype(np.int64) * 64 + lanes // together
    which, words = units_of(addresses, size_bytes, BANK_BYTES)
    phase, words = distinct(phase[which], words)
    names, place = np.unique(phase, return_inverse=True)
    busy = np.bincount(
        place * BANKS + (words % np.uint64(BANKS)).astype(np.int64), minlength=len(names) * BANKS
    )
    return names // 64, busy.reshape(-1, BANKS).max(axis=1)


def _share_of_l1(size_bytes: int, chip: Datasheet, grid_blocks: int, blocks: int, resident: int) -> int:
    """Of each unit's L1, what is there for the blocks that run: of a sample, whose units have fewer than a launch gives
    them, the part that those have beside the others."""
    wanted = min(resident, -(-grid_blocks // chip.units))
    here = min(wanted, -(-blocks // chip.units))
    return size_bytes * here // max(1, wanted)


def _keys(units: Array, sectors: Array) -> Array:
    """A number for each pair."""
    keys: Array = sectors | units.astype(np.uint64) << np.uint64(UNIT_SHIFT)
    return keys


def busiest(came: Array) -> float:
    """Of all that came, by unit and channel, the part that came to each unit's busiest channel.

    >>> busiest(np.array([[4, 0], [2, 2]]))
    0.75
    """
    return round(float(came.max(axis=1).sum()) / max(1, int(came.sum())), 4)


class Cache:
    """Caches of one level, one for each unit: what came first leaves first.

    A table of tags stands for all of them. A sector has two places in it: one beside its neighbours', and one that a
    hash gives, for when another sector is in the first, which depends on where memory lies. Where both are taken,
    which is rare, one is forgotten early.
    """

    def __init__(self, size_bytes: int, units: int, sector_bytes: int) -> None:
        self.sectors = max(1, size_bytes // sector_bytes)
        size = min(LARGEST_TABLE, 1 << (4 * self.sectors * units - 1).bit_length())
        self.slots = np.uint64(size - 1)
        self.tags = np.zeros(size, np.uint64)  # the system gives pages of it as they are touched
        self.came = np.zeros(size, np.int64)
        self.dirty = np.zeros(size, bool)
        self.fills = np.zeros(units, np.int64)

    def find(self, units: Array, sectors: Array) -> tuple[Array, Array, Array]:
        """(slot, tag, whether it is there) of different sectors, in order of their units."""
        slots = ((sectors + units.astype(np.uint64) * np.uint64(SPREAD)) & self.slots).astype(np.int64)
        tags = sectors | units.astype(np.uint64) << np.uint64(UNIT_SHIFT) | FILLED
        there = (self.tags[slots] == tags) & self._is_kept(slots)
        absent = np.flatnonzero(~there)
        if len(absent):
            far = (tags[absent] * np.uint64(HASH) >> np.uint64(HASHED_SHIFT) & self.slots).astype(np.int64)
            is_far = (self.tags[far] == tags[absent]) & self._is_kept(far)
            there[absent] = is_far
            moved = is_far | self._is_kept(slots[absent])
            slots[absent[moved]] = far[moved]
        return slots, tags, there

    def _is_kept(self, slots: Array) -> Array:
        """Whether what was put there has not left since."""
        owners = ((self.tags[slots] & ~FILLED) >> np.uint64(UNIT_SHIFT)).astype(np.int64)
        kept: Array = (self.tags[slots] != 0) & (self.fills[owners] - self.came[slots] <= self.sectors)
        return kept

    def fill(self, units: Array, slots: Array, tags: Array) -> None:
        """They come, one after the other. units: in order."""
        place = np.arange(len(units)) - np.searchsorted(units, units)
        self.tags[slots], self.came[slots], self.dirty[slots] = tags, self.fills[units] + place, False
        self.fills += np.bincount(units, minlength=len(self.fills))

    def load(self, units: Array, sectors: Array) -> Array:
        """Which of these different sectors were not there; now they are."""
        slots, tags, there = self.find(units, sectors)
        missing = ~there
        self.fill(units[missing], slots[missing], tags[missing])
        return missing

    def store(self, units: Array, sectors: Array) -> int:
        """How many of these different sectors will have to be written back that would not have been before."""
        slots, tags, there = self.find(units, sectors)
        missing = ~there
        self.fill(units[missing], slots[missing], tags[missing])
        clean = ~self.dirty[slots]
        self.dirty[slots] = True
        return int(np.count_nonzero(clean))


class Tally:
    """What a launch has done so far, and the caches that it runs with. `end` gives the record.

    sample   how many blocks run, the first ones; 0: all
    """

    def __init__(
        self,
        arch: str,
        entry: int,
        kernel: str,
        grid: Dim3,
        block: Dim3,
        warp_size: int,
        registers: int,
        shared_bytes: int,
        local_bytes: int,
        sample: int = 0,
    ) -> None:
        self._remake = functools.partial(
            Tally, arch, entry, kernel, grid, block, warp_size, registers, shared_bytes, local_bytes
        )
        chip = datasheets.for_arch(arch)
        if chip is None:
            raise LookupError(f"no datasheet of {arch}: its launches are not counted")
        self.chip = chip
        threads = block[0] * block[1] * block[2]
        grid_blocks = grid[0] * grid[1] * grid[2]
        blocks = min(sample or grid_blocks, grid_blocks)
        share, tight, resident = datasheets.occupancy(chip, registers, shared_bytes, threads, warp_size)
        self.held_blocks = min(grid_blocks, chip.units * resident, max(1, HELD_THREADS // threads))
        self.warp_size, self.slots = warp_size, chip.units * resident * -(-threads // warp_size)
        self.record = Counters(
            arch=arch, entry=entry, kernel=kernel, grid=grid, block=block, blocks=blocks, grid_blocks=grid_blocks,
            warps=blocks * -(-threads // warp_size), warp_size=warp_size, sector_bytes=chip.sector_bytes,
            registers=registers, shared_bytes=shared_bytes, local_bytes=local_bytes, occupancy=round(share, 4),
            limited_by=tight,
        )  # fmt: skip
        l1 = chip.l1_bytes
        if warp_size == 32 and chip.arch.startswith("sm_"):
            l1 = max(LEAST_L1_BYTES, l1 - resident * shared_bytes)
        self.l1 = Cache(_share_of_l1(l1, chip, grid_blocks, blocks, resident), chip.units, chip.sector_bytes)
        self.l2 = Cache(chip.l2_bytes, chip.l2s, chip.sector_bytes)
        self.hot: dict[int, int] = {}  # line -> words of it that atomics changed
        self.hot_of_block: dict[tuple[int, int], int] = {}
        self.channels = np.zeros(
            (chip.units, chip.l2_channels), np.int64
        )  # unit, channel -> sectors that came to L2
        self.last = Cache(chip.last_bytes, 1, chip.sector_bytes) if chip.last_bytes else None
        self.common = CommonReads(blocks if blocks < grid_blocks else 0)
        self.awaited = Awaited()

    def end(self) -> Counters:
        """The record, with what is known when all blocks have ended."""
        self.record.common_bytes = self.record.sector_bytes * self.common.sectors()
        self.record.awaited_blocks, self.record.awaited_window = self.awaited.blocks(), self.awaited.window
        return self.record

    def held(self) -> Tally | None:
        """One for as many blocks as the chip holds at once, more than the sample that ran; None if there are none."""
        one = self.record
        is_sample = one.blocks < one.grid_blocks and one.blocks < self.held_blocks
        return self._remake(sample=self.held_blocks) if is_sample else None

    def learn(self, held: Tally) -> None:
        """What these blocks have read until they were stopped says how much blocks share.

        Those that have not asked for a sector each have not begun to read, and say nothing.
        """
        found = held.record
        if found.l2_bytes < found.blocks * found.sector_bytes:
            return
        written = found.dram_write_bytes
        self.record.held_l2_bytes = max(0, found.l2_bytes - found.sector_bytes * found.store_sectors)
        self.record.held_beyond_l2_bytes = max(0, found.beyond_l2_bytes - written)
        self.record.held_dram_bytes = found.dram_read_bytes
        if self.chip.l2_channels:
            self.record.channel_share = busiest(self.channels)
            self.record.held_channel_share = busiest(held.channels.sum(axis=0, keepdims=True))

    def instructions(self, classes: dict[str, int], warps: int, threads: int) -> None:
        """A run of instructions, so many of each class, executed by so many warps with so many threads."""
        found = self.record.instructions
        for name, count in classes.items():
            found[name] = found.get(name, 0) + count * warps
        self.record.thread_instructions += sum(classes.values()) * threads

    def flops(self, types: dict[str, int], threads: int) -> None:
        """So many operations of each type by each of these threads."""
        found = self.record.flops
        for name, count in types.items():
            found[name] = found.get(name, 0) + count * threads

    def matrix(self, name: str, flops: int, warps: int) -> None:
        """A matrix instruction that is so many operations for a warp."""
        self.record.matrix_flops[name] = self.record.matrix_flops.get(name, 0) + flops * warps

    def chain(self, ops: dict[str, int], waits: dict[str, float], warps: int) -> None:
        """A run of instructions by so many warps: what each issues by pipe, and what it waits for."""
        issued, waited = self.record.ops, self.record.waits
        for name, count in ops.items():
            issued[name] = issued.get(name, 0) + count * warps
        for name, often in waits.items():
            waited[name] = waited.get(name, 0.0) + often * warps

    def leave_out(self, instruction: str, warps: int) -> None:
        """An instruction whose traffic nobody models."""
        self.record.uncounted[instruction] = self.record.uncounted.get(instruction, 0) + warps

    def shared(self, warps: Array, lanes: Array, addresses: Array, size_bytes: int) -> None:
        """An access to shared memory."""
        visits, conflicts = passes(warps, lanes, addresses, size_bytes)
        self.record.shared_passes += visits
        self.record.bank_conflicts += conflicts

    def lines(self, size_bytes: int) -> None:
        """An access to shared memory by lines of 128 bytes, as copy engines make them: no two words meet in a bank."""
        self.record.shared_passes += -(-size_bytes // PASS_BYTES)

    def eights(self, addresses: Array) -> None:
        """Matrices in shared memory: (n, 8) addresses of pieces of 16 bytes, eight of which are read at once."""
        count, width = addresses.shape
        self.shared(
            np.repeat(np.arange(count), width), np.tile(np.arange(width), count), addresses.reshape(-1), 16
        )

    def private(
        self, kind: str, warps: Array, blocks: Array, lanes: Array, offsets: Array, size_bytes: int
    ) -> None:
        """An access to local memory or scratch that has no address: offsets in that of each thread.

        Words of a warp's threads lie beside each other; as many warps have a place as are resident, and others follow
        them there. warps are numbered over the grid.
        """
        slots = (warps % self.slots).astype(np.uint64) * np.uint64(-(-self.record.local_bytes // 4))
        words, width = max(1, size_bytes // BANK_BYTES), np.uint64(self.warp_size)
        at = np.concatenate([offsets + np.uint64(BANK_BYTES * n) for n in range(words)])
        row = np.tile(slots, words) + at // np.uint64(BANK_BYTES)
        place = (row * width + np.tile(lanes, words).astype(np.uint64)) * np.uint64(BANK_BYTES)
        place += np.uint64(PRIVATE_START) + at % np.uint64(BANK_BYTES)
        size = min(size_bytes, BANK_BYTES)
        self.memory(kind, np.tile(warps, words), np.tile(blocks, words), place, size, is_local=True)

    def memory(
        self,
        kind: str,
        warps: Array,
        blocks: Array,
        addresses: Array,
        size_bytes: int,
        by_l1: bool = True,
        is_local: bool = False,
        stored: int = 0,
    ) -> None:
        """An access to global memory, or what lies there: "load", "store" or "atomic".

        warps, blocks   of each address: the warp; the number of its block in the grid
        by_l1           whether a load may be answered there
        is_local        local memory or scratch: stores stay in L1, too, for the thread will load what it stored
        stored          visits to shared memory in which the data go there: they pass the data path once, not twice
        """
        if not len(addresses):
            return
        record, unit = self.record, self.chip.sector_bytes
        which, sectors = units_of(addresses, size_bytes, unit)
        # a block's warps are all on its unit: pairs of (warp, sector) first, then what is left of them for the unit
        all_sectors = sectors
        owner = warps[which].astype(np.int64) << 20 | (blocks[which] % self.chip.units).astype(np.int64)
        owner, sectors = distinct(owner, sectors)
        name = "local_sectors" if is_local else f"{kind}_sectors"
        setattr(record, name, getattr(record, name) + len(sectors))
        if not is_local:
            record.bytes_needed += size_bytes * len(distinct(warps, addresses)[0])
            self._l1_path(warps, addresses, size_bytes, stored)
        if kind == "atomic":
            self._contention(warps, blocks, addresses)
        places, asked = owner & (1 << 20) - 1, (owner, sectors)
        if is_local or (kind == "load" and by_l1):
            places, sectors = distinct(places, sectors)
            missing = self.l1.load(places, sectors)
            if kind == "load":
                places, sectors = places[missing], sectors[missing]
        if kind == "load" and not is_local:
            self._requests(*asked, places, sectors)
            self.common.load(blocks[which], all_sectors)
        self._below(kind, places, sectors)

    def _l1_path(self, warps: Array, addresses: Array, size_bytes: int, stored: int) -> None:
        """How long a unit's first-level cache is busy with this, on the chip that is emulated."""
        from hcq.performance.model import l1_path  # for launches that are counted alone

        if len(warps) > 1 and (warps[1:] < warps[:-1]).any():
            order = np.argsort(warps, kind="stable")
            warps, addresses = warps[order], addresses[order]
        record = self.record
        which, lines = units_of(addresses, size_bytes, l1_path.LINE_BYTES)
        owners, lines = distinct(warps[which], lines)
        names, counts = np.unique(owners, return_counts=True)
        record.l1_requests += len(names)
        record.l1_lines += len(lines)
        if not self.chip.arch.startswith("sm_"):
            record.l1_clocks = round(record.l1_clocks + l1_path.amd(warps, addresses, size_bytes), 2)
            return
        of_warp, busy = visits(warps, l1_path.rank_in(warps), addresses, size_bytes)
        clocks = np.bincount(np.searchsorted(names, of_warp), busy, minlength=len(names))
        own = max(0.0, l1_path.nvidia(clocks * (not stored), counts) - stored)
        record.l1_clocks = round(record.l1_clocks + own, 2)

    def _contention(self, warps: Array, blocks: Array, addresses: Array) -> None:
        """How many words atomics change, and how many of them lie in the line that is changed most."""
        from hcq.performance.model import l1_path

        owners, words = distinct(warps.astype(np.int64) << 24 | blocks.astype(np.int64), addresses)
        self.record.atomic_words += len(words)
        of_block = owners & (1 << 24) - 1
        for key, count in zip(*np.unique(words // np.uint64(l1_path.LINE_BYTES), return_counts=True)):
            self.hot[int(key)] = self.hot.get(int(key), 0) + int(count)
        pairs, counts = np.unique(
            np.stack((of_block.astype(np.uint64), words // np.uint64(l1_path.LINE_BYTES))),
            axis=1,
            return_counts=True,
        )
        for block, line, count in zip(*pairs, counts):
            own = int(block), int(line)
            self.hot_of_block[own] = self.hot_of_block.get(own, 0) + int(count)
        self.record.hot_words = max(self.hot.values())
        self.record.hot_block_words = max(self.hot_of_block.values())

    def _requests(self, owner: Array, sectors: Array, places: Array, missing: Array) -> None:
        """How many warps load, and how many wait for L2: also those that ask for what others ask for."""
        waits = np.isin(_keys(owner & (1 << 20) - 1, sectors), _keys(places, missing))
        self.record.load_requests += len(np.unique(owner))
        self.record.l2_requests += len(np.unique(owner[waits]))

    def scalar(self, warps: Array, blocks: Array, addresses: Array, size_bytes: int) -> None:
        """A load by a wave as a whole, through a cache of its own, which is modelled as the L1."""
        if not len(addresses):
            return
        which, sectors = units_of(addresses, size_bytes, self.chip.sector_bytes)
        places, sectors = distinct(blocks[which].astype(np.int64) % self.chip.units, sectors)
        missing = self.l1.load(places, sectors)
        self._below("load", places[missing], sectors[missing])

    def _below(self, kind: str, places: Array, sectors: Array) -> None:
        """What comes to L2 from units, and goes on from there."""
        record, unit = self.record, self.chip.sector_bytes
        record.l2_bytes += unit * len(sectors)
        if self.chip.l2_channels:
            channel = sectors * np.uint64(unit) // np.uint64(datasheets.CHANNEL_BYTES)
            np.add.at(
                self.channels, (places, (channel % np.uint64(self.chip.l2_channels)).astype(np.int64)), 1
            )
        homes, sectors = distinct(places % self.chip.l2s, sectors)
        if kind != "store":
            missing = sectors[self.l2.load(homes, sectors)]
            record.beyond_l2_bytes += unit * len(missing)
            record.dram_read_bytes += unit * self._unknown(missing)
        if kind != "load":
            written = unit * self.l2.store(homes, sectors)
            record.beyond_l2_bytes += written
            record.dram_write_bytes += written

    def _unknown(self, sectors: Array) -> int:
        """How many of these the cache behind L2, if there is one, does not have either."""
        if self.last is None:
            return len(sectors)
        sectors = np.unique(sectors)
        return int(np.count_nonzero(self.last.load(np.zeros(len(sectors), np.int64), sectors)))
