"""What a debugger sees: the moment before an instruction, and the launch that it belongs to, for all vendors alike.

In       what a vendor's part (amd.py, nv.py, metal.py) knows of its shader core
Out      Site, Access, Standing; Moment and Work, which each vendor fills in
Next     timeline.py (runs Works and stops at Moments), show.py (prints them), origin.py (follows Accesses)

Waves are numbered through the grid: those of block 0 first. A lane is one of a wave. A moment is *before* its
instruction: registers are what the instruction will read.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hcq.emu.shader.checks import Checks

Array = npt.NDArray[Any]
MOST_LINES = (1 << 20) - 1  # of a text; the key of an instruction has more above, where a line has several
COORDINATES = r" \((\d+), (\d+), (\d+)\)"
BLOCK = re.compile(f"(?:block|workgroup|threadgroup){COORDINATES}")  # as findings and faults name a lane
THREAD = re.compile(f"(?:thread|work-item){COORDINATES}")


class Site(NamedTuple):
    """An instruction of a kernel.

    key      its address; its line where the code is text, with a number above MOST_LINES where a line has several
    line     "PTX line 12"; "" for machine code, whose source lines are found by its address
    reads    registers, by name
    writes   registers, by name; memory is in the Accesses of a Moment
    kind     "", or "load", "store", "atomic" (of memory), "barrier", "end" (of the wave), "branch"
    """

    key: int
    text: str
    line: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    kind: str


class Access(NamedTuple):
    """What an instruction does with memory, an element for each lane that takes part.

    kind      load, store, atomic
    space     global, shared or local; addresses are counted in it
    wave      through the grid
    size      bytes of each lane, from its address on
    data      registers that are stored, or loaded into, by name, in order
    where     registers that the address is from, by name; (): all others that the instruction reads
    """

    kind: str
    space: str
    wave: Array
    lane: Array
    address: Array
    size: int
    data: tuple[str, ...]
    where: tuple[str, ...] = ()


class Standing(NamedTuple):
    """Waves that are at one place: their numbers, the lanes that are on in each, where, and what they wait for."""

    waves: Array
    lanes: Array
    site: Site | None
    waits_for: str


class Work(ABC):
    """A launch that can be run, and run again. `ranges` are what was mapped when it began.

    unit           what the vendor calls a wave: "wave", "warp", "SIMD group"
    shared_name    what it calls memory of a block: "LDS", "shared", "threadgroup"
    lanes          of a wave
    entry          where its code begins; 0 where it has no address
    loads_compute  an instruction that loads may also compute: then what it reads is not where it loads from
    is_text        its instructions are lines of a text, and have no addresses
    source         the text, where it is kept
    checks         what is looked for in it (HCQ_SANITIZE); None: nothing
    """

    vendor = unit = shared_name = source = ""
    is_text = loads_compute = False
    checks: Checks | None = None
    arch: str
    name: str
    entry: int
    lanes: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]

    def spelled(self, name: str) -> str:
        """A register of a site as the kernel's author knows it."""
        return name

    @property
    def waves_per_block(self) -> int:
        """Waves of a whole block."""
        return -(-self.block[0] * self.block[1] * self.block[2] // self.lanes)

    @property
    def blocks(self) -> int:
        """How many blocks the grid has."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @abstractmethod
    def run(self, probe: Any, memory: Any, state: Any = None) -> Any:
        """Run it to its end, or on from a saved state. `probe` hears of each instruction. Returns the core's report."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many instructions are known: more, when others have been reached."""

    @abstractmethod
    def sites(self) -> list[Site]:
        """Its instructions, in order, as far as they are known."""

    @abstractmethod
    def recorder(self, space: Any, pages: Any) -> Any:
        """Memory as the kernel uses it, which tells `pages` what is touched before it is."""

    @abstractmethod
    def private(self) -> Any:
        """An empty space that memory can be mapped in, of the kind that the kernel uses."""

    def thread(self, wave: int, lane: int) -> str:
        """A lane as the kernel's author knows it."""
        group, place = divmod(wave, self.waves_per_block)
        linear = place * self.lanes + lane
        x, y, _ = self.block
        gx, gy, _ = self.grid
        thread = (linear % x, linear // x % y, linear // (x * y))
        return f"block {(group % gx, group // gx % gy, group // (gx * gy))}, thread {thread}"

    def lane_named(self, text: str) -> tuple[int, int] | None:
        """(wave, lane) of a thread that a text names; None where it names none."""
        block, thread = BLOCK.search(text), THREAD.search(text)
        if block is None or thread is None:
            return None
        places = [[int(one) for one in found.groups()] for found in (block, thread)]
        group, linear = ((z * y + b) * x + a for (a, b, z), (x, y, _) in zip(places, (self.grid, self.block)))
        return group * self.waves_per_block + linear // self.lanes, linear % self.lanes


class Moment(ABC):
    """The state of a launch before an instruction that some of its waves are about to execute."""

    work: Work
    site: Site

    @property
    @abstractmethod
    def waves(self) -> Array:
        """The waves that execute it, ascending."""

    @abstractmethod
    def on(self, wave: int) -> Array:
        """(lanes,) booleans: which lanes of a resident wave execute."""

    def doing(self, wave: int) -> Array:
        """(lanes,) booleans: which of these do the instruction, where it has a condition of its own."""
        return self.on(wave)

    @abstractmethod
    def names(self) -> list[str]:
        """The registers that there are."""

    def spelled(self, name: str) -> str:
        """As the work spells it, where that names the same here."""
        return name

    @abstractmethod
    def read(self, name: str, wave: int) -> Array:
        """(lanes,) unsigned numbers; (1,) of a register that all lanes share. Raises UsageError for an unknown name."""

    @abstractmethod
    def accesses(self) -> list[Access]:
        """What the instruction is about to do with memory."""

    @abstractmethod
    def shared(self, block: int) -> Array:
        """Bytes of the memory that a resident block shares. Raises UsageError when it is not resident."""

    @abstractmethod
    def local(self, wave: int, lane: int) -> Array:
        """Bytes of a lane's own memory."""

    @abstractmethod
    def standing(self) -> list[Standing]:
        """All resident waves that have not ended; those of this instruction first."""

    def why(self, wave: int) -> str:
        """Why the lanes of a wave are on that are, in words."""
        on = self.on(wave)
        return f"{int(np.count_nonzero(on))} of {len(on)} lanes are on"


Test = Callable[[Moment], "str | None"]
