"""Steps that say which instruction touches memory, and memory that looks at each access first (HCQ_SANITIZE=memory).

In       instructions as a program compiles them; then the batches of waves that run them
Out      `Naming`: steps around those of the program; `Watched`: memory as it is, with a look at each access
Changes  the MemoryChecks of the resident waves; no register, no memory
Next     hcq/emu/shader/memory_checks.py (what comes of it), checks.py (who attaches both)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.memory import Memory
from hcq.emu.amd.shader.operands import Context, Step
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.shader.memory_checks import MemoryChecks

FORMATS = {"FLAT", "GLOBAL", "SCRATCH", "MUBUF", "SMEM"}


class Naming:
    """Makes the steps of one program say who runs. Their batches belong to Residents that have `watch`."""

    def around(self, ctx: Context, step: Step) -> Step:
        """The step of an instruction that touches memory, with its place told before."""
        if ctx.inst.format not in FORMATS:
            return step
        pc, is_scalar = ctx.inst.pc, ctx.inst.format == "SMEM"

        def named(b: Batch) -> None:
            watch = b.residents.watch
            if watch is not None:
                watch.site = pc
                watch.name_of = (lambda number, count: _wave(b, number)) if is_scalar else _lanes(b)
            step(b)

        return named

    def head(self, instructions: list[Context]) -> Step | None:
        """Nothing before a block."""
        return None


def _lanes(b: Batch) -> Callable[[int, int], str]:
    """Names of the lanes that are on."""

    def name(number: int, count: int) -> str:
        wave, lane = np.nonzero(b.lanes)
        if len(wave) != count:  # an atomic has been made of several lanes'
            return ""
        return b.lane_names(int(wave[number]), int(lane[number]))

    return name


def _wave(b: Batch, number: int) -> str:
    lanes = np.flatnonzero(b.lanes[number])
    return b.lane_names(number, int(lanes[0]) if len(lanes) else 0)


class Watched:
    """Memory as it is, whose accesses are looked at first. is_scalar: compilers read more than they need there."""

    def __init__(self, memory: Memory, watch: MemoryChecks, is_scalar: bool = False) -> None:
        self.memory, self.watch, self.is_scalar = memory, watch, is_scalar
        self.acquire = memory.acquire

    def read(self, address: int, size_bytes: int) -> bytes:
        """As Memory.read."""
        return self.memory.read(address, size_bytes)

    def gather(self, addresses: Array, words: int) -> Array:
        """As Memory.gather.

        LLVM loads 3, 5, 6 or 7 words as the next power of two, and a byte as a word, where the alignment says that
        what is read too much lies on the same page. So of a scalar load just over a half must be there.
        """
        self.watch.look("load", addresses, 2 * words + 1 if self.is_scalar else 4 * words)
        return self.memory.gather(addresses, words)

    def gather_bytes(self, addresses: Array, size_bytes: int) -> Array:
        """As Memory.gather_bytes."""
        self.watch.look("load", addresses, size_bytes)
        return self.memory.gather_bytes(addresses, size_bytes)

    def scatter(self, addresses: Array, data: Array) -> None:
        """As Memory.scatter."""
        self.watch.look("store", addresses, 4 * len(data))
        self.memory.scatter(addresses, data)

    def scatter_bytes(self, addresses: Array, data: Array, size_bytes: int) -> None:
        """As Memory.scatter_bytes."""
        self.watch.look("store", addresses, size_bytes)
        self.memory.scatter_bytes(addresses, data, size_bytes)

    def update(self, addresses: Array, dtype: Any, change: Callable[[Array], Array]) -> Array:
        """As Memory.update."""
        self.watch.look("atomic", addresses, np.dtype(dtype).itemsize)
        return self.memory.update(addresses, dtype, change)
