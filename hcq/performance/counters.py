"""Counters: what one launch of a kernel asked of a GPU, as emulated shader cores count it, and its observers.

In       a launch that has ended; who wants to hear of launches
Out      Counters, one record for all vendors; `is_wanted`, asked once a launch; `tell`
Changes  the list of listeners
Next     emu/nv/shader/counters.py and emu/amd/shader/counters.py (who count), observe/counters.py (who listens),
         roofline.py (what follows for the time)

Instructions, sectors, conflicts, barriers and branches are counted and exact for the code that ran. What comes from L2
and DRAM is a model: caches that drop what came first, cold when the launch begins, blocks dealt out in turn. On NVIDIA
the code that ran is PTX, of which ptxas would make other instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from math import prod
from typing import Any

# of instructions: what unit of the GPU they need
CLASSES = (
    "float", "special", "matrix", "integer", "convert", "move", "scalar", "warp", "control", "barrier",
    "global load", "global store", "global atomic", "shared load", "shared store", "shared atomic",
    "constant load", "local", "wait",
)  # fmt: skip

Dim3 = tuple[int, int, int]


@dataclass
class Counters:
    """What launches of one kernel did; of several, the sums. A warp is what runs an instruction together: AMD's wave.

    arch, entry, kernel     the GPU; where the code begins in its memory, of a known program its entry; its name
    launches, blocks, warps    how many were counted
    grid_blocks             how many blocks the grids have: more than `blocks` where only a sample ran
    grid, block             of the last launch
    instructions            class -> how often a warp executed one
    thread_instructions     the same for all classes, times the threads that were active
    flops                   type -> operations of threads on floats; a fused multiply-add is two
    matrix_flops            type of the factors -> operations of matrix instructions: products and sums are one each
    sector_bytes            what global memory is asked for at once: 32 bytes on NVIDIA, a cache line on AMD
    load_sectors, store_sectors, atomic_sectors    those that warps asked for, each once for an instruction of a warp
    bytes_needed            of global memory that they named, each once for an instruction of a warp
    local_sectors           of local memory (scratch): of arrays that are no registers, of registers that spilled
    shared_passes           visits to shared memory (LDS): an instruction of a warp takes one for each 128 bytes
    bank_conflicts          those of the passes that only two words in one bank made necessary
    barriers                for each warp: those of its block that it came to, waits for mbarriers that it found over
    branches, divergent_branches    conditional ones that warps came to; those after which some threads of a warp wait
    registers, shared_bytes, local_bytes    of a thread, of a block, of a thread: as the launch says
    occupancy, limited_by   warps that an SM or CU can have of those that it has room for; what there is too little of
    l2_bytes                what L2 was asked for
    beyond_l2_bytes         what L2 asked for further on, and wrote there
    dram_read_bytes, dram_write_bytes    what no cache had; what has to be written back
    held_l2_bytes, held_beyond_l2_bytes, held_dram_bytes    of a sample: what as many blocks as the chip holds read of
                            L2 as they begin, and what of that comes from further on and from DRAM: the rest they share
    channel_share, held_channel_share    of what comes to L2, the part of the channel that most comes to: on average of
                            a block in its whole time; of as many blocks as the chip holds, as they begin. 0: not known
    uncounted               instruction -> how often one ran whose traffic is not modelled
    ops                     pipe -> instructions of machine code that warps issue there: of PTX, what ptxas makes of it
    waits                   what warps wait for -> "clocks" of arithmetic that follows from arithmetic; how many
                            loads are waited for one after the other ("global", "shared", "atomic", "copy")
    l1_requests, l1_lines   loads and stores of global memory by warps; lines of 128 bytes that they touch
    load_requests, l2_requests    loads of global memory by warps; those of which L1 did not have all when they came
    l1_clocks               how long a unit's first-level cache works for them
    atomic_words            of global memory that atomics change, each once for an instruction of a warp
    common_bytes            of a sample of four blocks and more: what each of them loads, as all others will
    awaited_blocks, awaited_window    blocks that look at words which another block of the launch stores for them, until
                            they are there; how many of these words a warp looks at together
    hot_words, hot_block_words    those of the line that most of them change: of all blocks, of the block that has most
    """

    arch: str = ""
    entry: int = 0
    kernel: str = ""
    launches: int = 1
    grid: Dim3 = (1, 1, 1)
    block: Dim3 = (1, 1, 1)
    blocks: int = 0
    grid_blocks: int = 0
    warps: int = 0
    warp_size: int = 32
    instructions: dict[str, int] = field(default_factory=dict)
    thread_instructions: int = 0
    flops: dict[str, int] = field(default_factory=dict)
    matrix_flops: dict[str, int] = field(default_factory=dict)
    sector_bytes: int = 32
    load_sectors: int = 0
    store_sectors: int = 0
    atomic_sectors: int = 0
    bytes_needed: int = 0
    local_sectors: int = 0
    shared_passes: int = 0
    bank_conflicts: int = 0
    barriers: int = 0
    branches: int = 0
    divergent_branches: int = 0
    registers: int = 0
    shared_bytes: int = 0
    local_bytes: int = 0
    occupancy: float = 1.0
    limited_by: str = ""
    l2_bytes: int = 0
    beyond_l2_bytes: int = 0
    dram_read_bytes: int = 0
    dram_write_bytes: int = 0
    held_l2_bytes: int = 0
    held_beyond_l2_bytes: int = 0
    held_dram_bytes: int = 0
    channel_share: float = 0.0
    held_channel_share: float = 0.0
    uncounted: dict[str, int] = field(default_factory=dict)
    ops: dict[str, int] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)
    l1_requests: int = 0
    l1_lines: int = 0
    load_requests: int = 0
    l2_requests: int = 0
    l1_clocks: float = 0.0
    atomic_words: int = 0
    hot_words: int = 0
    hot_block_words: int = 0
    common_bytes: int = 0
    awaited_blocks: int = 0
    awaited_window: int = 0

    @property
    def warp_instructions(self) -> int:
        """Instructions of all classes that warps executed."""
        return sum(self.instructions.values())

    @property
    def sectors(self) -> int:
        """All sectors that were asked for."""
        return self.load_sectors + self.store_sectors + self.atomic_sectors

    @property
    def dram_bytes(self) -> int:
        """Both ways."""
        return self.dram_read_bytes + self.dram_write_bytes

    @property
    def sector_ratio(self) -> float:
        """Bytes asked for to bytes needed: 1 is ideal. 1 where nothing was needed."""
        return self.sectors * self.sector_bytes / self.bytes_needed if self.bytes_needed else 1.0

    def add(self, other: Counters) -> None:
        """Become the sum with another launch of the kernel; what is no sum is the other's."""
        for one in fields(self):
            mine, its = getattr(self, one.name), getattr(other, one.name)
            if isinstance(mine, dict):
                setattr(self, one.name, {key: mine.get(key, 0) + its.get(key, 0) for key in {**mine, **its}})
            elif one.name in SUMMED:
                setattr(self, one.name, mine + its)
            else:
                setattr(self, one.name, its)

    def whole(self, grid: Dim3 | None = None) -> Counters:
        """As if all blocks had run, or those of another grid: each does what one of the counted did on average.

        Of what they read DRAM gives the part that blocks which the chip holds at once do not share, if that is known.

        >>> half = Counters(grid=(4, 1, 1), blocks=2, grid_blocks=4, instructions={"float": 10})
        >>> half.whole().instructions, half.whole((8, 8, 1)).blocks
        ({'float': 20}, 64)
        """
        wanted = self.grid_blocks if grid is None else prod(grid) * self.launches
        if not self.blocks or wanted in (0, self.blocks):
            return self
        factor = wanted / self.blocks
        made = Counters.from_fields(self.as_fields())
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, dict):
                setattr(made, one.name, {key: _times(count, factor) for key, count in value.items()})
            elif one.name in SUMMED - {"launches"} - HELD:
                setattr(made, one.name, _times(value, factor))
        if self.blocks > 1 and self.hot_words < SHARED_LINE * self.hot_block_words:
            made.hot_words = self.hot_words  # each block changes lines of its own
        # which all blocks find in a cache, but the first
        again = round(self.common_bytes * factor) - self.common_bytes
        made.dram_read_bytes -= min(again, made.dram_read_bytes)
        made.beyond_l2_bytes -= min(again, made.beyond_l2_bytes)
        if self.held_l2_bytes:
            read = max(0, made.l2_bytes - made.sector_bytes * made.store_sectors) / self.held_l2_bytes
            made.dram_read_bytes = min(made.dram_read_bytes, round(read * self.held_dram_bytes))
            beyond = round(read * self.held_beyond_l2_bytes) + made.dram_write_bytes
            made.beyond_l2_bytes = min(made.beyond_l2_bytes, beyond)
        made.grid, made.grid_blocks = self.grid if grid is None else grid, made.blocks
        return made

    def as_fields(self) -> dict[str, Any]:
        """Plain data, as a trace keeps it."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def from_fields(cls, found: Mapping[str, Any]) -> Counters:
        """From plain data. Unknown names are left out. Raises ValueError for a value of another kind.

        >>> Counters.from_fields({"blocks": 4, "of_a_later_version": 1}).blocks
        4
        """
        made = cls()
        for one in fields(cls):
            if one.name in found:
                setattr(made, one.name, _checked(one.name, found[one.name], getattr(made, one.name)))
        return made


SUMMED = frozenset(
    "launches blocks grid_blocks warps thread_instructions load_sectors store_sectors atomic_sectors bytes_needed "
    "shared_passes local_sectors bank_conflicts barriers branches divergent_branches l2_bytes beyond_l2_bytes "
    "dram_read_bytes dram_write_bytes held_l2_bytes held_beyond_l2_bytes held_dram_bytes l1_requests l1_lines "
    "l1_clocks load_requests l2_requests atomic_words hot_words awaited_blocks".split()
)


def _times(value: float, factor: float) -> float:
    """Whole numbers stay whole."""
    return round(value * factor) if isinstance(value, int) else round(value * factor, 3)


SHARED_LINE = 1.5  # a line that blocks share is changed more often than by the one that changes it most
LEAST = {"warp_size": 1, "sector_bytes": 1}
LARGEST = 1 << 80
HELD = frozenset({"held_l2_bytes", "held_beyond_l2_bytes", "held_dram_bytes"})


def _checked(name: str, value: Any, like: Any) -> Any:
    """A value of a file, as what the field holds."""
    if isinstance(like, str) and isinstance(value, str):
        return value
    if (
        isinstance(like, (int, float))
        and isinstance(value, (int, float))
        and LEAST.get(name, 0) <= value < LARGEST
    ):
        return type(like)(value)
    if isinstance(like, tuple) and isinstance(value, (list, tuple)) and len(value) == 3:
        return tuple(_checked(name, one, 1) for one in value)
    if isinstance(like, dict) and isinstance(value, dict):
        least = 0.0 if name == "waits" else 0
        return {str(key): _checked(name, one, least) for key, one in value.items()}
    raise ValueError(f"counters: {name} is {value!r}")


# ------------------------------------------------------------ who is told

# the process that launched, as the system numbers it; what its launch did
Listener = Callable[[int, Counters], None]

_listeners: tuple[tuple[Listener, int], ...] = ()


def listen(listener: Listener, blocks: int = 0) -> Callable[[], None]:
    """Hear of every launch on this process's emulated GPUs from now on. Returns what ends that.

    blocks   let only the first so many of each launch run, unless somebody else listens to all: what the kernels were
             to compute is wrong then, and what they do is counted in a part of the time. 0: all

    Launches that began before are not counted: their code was made ready without. Emulated GPUs call from threads of
    theirs, before the work counts as done.
    """
    global _listeners
    entry = listener, blocks
    _listeners = (*_listeners, entry)

    def end() -> None:
        global _listeners
        _listeners = tuple(one for one in _listeners if one is not entry)

    return end


def is_wanted() -> bool:
    """Whether anybody listens. An emulated GPU asks once a launch, and runs code that counts or code that does not."""
    return bool(_listeners)


def sample() -> int:
    """How many blocks of a launch run: the most that a listener asks for. 0: all."""
    wanted = [blocks for _, blocks in _listeners]
    return max(wanted) if wanted and all(wanted) else 0


@contextmanager
def count(blocks: int = 0) -> Iterator[list[Counters]]:
    """The launches of this process's emulated GPUs while a block of Python runs. blocks: see `listen`.

    Names are those that a GPU is told: an entry of PTX; none on AMD, where HCQ_PROFILE=counters knows the programs.

    >>> with count() as launches:
    ...     pass
    >>> launches
    []
    """
    found: list[Counters] = []
    end = listen(lambda pid, made: found.append(made), blocks)
    try:
        yield found
    finally:
        end()


def tell(pid: int, made: Counters) -> None:
    """A launch has ended."""
    for listener, _ in _listeners:
        listener(pid, made)
