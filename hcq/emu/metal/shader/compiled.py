"""A kernel in machine code: LLVM's of the text that groups.py writes, and its launch.

In       a kernel and its Code; then a grid and what is bound
Out      memory as the kernel leaves it; KernelFault for what a thread did, NotCompiled where there is no LLVM
Changes  what is bound; the disk cache, in which machine code is kept
Next     groups.py (the text), program.py (who decides whether a kernel is compiled), hcq/emu/compiled/assemble.py
"""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from hcq import config
from hcq.emu.compiled import assemble, threads
from hcq.emu.metal.shader.errors import KernelFault, NotCompiled
from hcq.emu.metal.shader.groups import FAULT, SCRATCH, STOP, STOPPED, TABLE, Code
from hcq.emu.metal.shader.machine import ACCESSES
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.pieces import SLOT_UNIT, Size
from hcq.emu.metal.shader.stopping import NEVER, Stop, Stopped
from hcq.emu.metal.shader.syntax import Function
from hcq.system import native
from hcq.system.cache import DiskCache

MARKS = "emu-metal-marks"  # kernels that were compiled once: another process does not wait until they are worth it
# statements times threads that one thread of the host runs alone: starting others takes as long as some
ALONE = 1 << 24
PIECES = 4  # of a grid, for each thread of the host: they do not take equally long
MOST_BYTES = 1 << 31  # of a memory: indices have 32 bits


def _mark(source: Source, kernel: Function, block: Size) -> str:
    return f"{hashlib.sha256(source.text.encode()).hexdigest()} {kernel.name} {block}"


def was_compiled(source: Source, kernel: Function, block: Size) -> bool:
    """Whether a process has compiled it, and the disk cache remembers that."""
    return DiskCache().get(MARKS, _mark(source, kernel, block)) is not None


def remember(source: Source, kernel: Function, block: Size) -> None:
    """It is compiled."""
    DiskCache().put(MARKS, _mark(source, kernel, block), b"compiled")


def say(kernel: Function, what: str) -> None:
    """HCQ_DEBUG=code names what is compiled, and what is interpreted and why."""
    if "code" in config.current().debug:
        sys.stderr.write(f"hcq: {kernel.name} is {what}\n")


class _Turns:
    """Pieces of a grid: so many groups in a row each, of which threads take one after the other."""

    def __init__(self, grid: Size, pieces: int) -> None:
        self.grid, self.pieces, self.groups = grid, pieces, prod(grid)
        self.numbers = itertools.count()
        self.is_over = False  # something went wrong: no piece begins any more


class _Job:
    """What one thread does of a launch. `found`: what stopped it, at `site` of its last piece; 0: nothing."""

    def __init__(
        self, assembled: assemble.Assembled, code: Code, turns: _Turns, bound: Sequence[Any], stop: Stop
    ) -> None:
        self._assembled, self._turns = assembled, turns
        self.found = self.site = self.index = self.piece = 0
        self._launch = np.zeros(TABLE + 2 * len(bound), np.int64)
        self._fields = fields = self._launch.data
        fields[2], fields[3], fields[4] = turns.grid
        for number, data in enumerate(bound):
            fields[TABLE + 2 * number], fields[TABLE + 2 * number + 1] = native.address_of(data), len(data)
        self._scratch = np.zeros(code.bytes + SLOT_UNIT, np.uint8)
        fields[SCRATCH] = -(-native.address_of(self._scratch) // SLOT_UNIT) * SLOT_UNIT
        self.is_used = False
        fields[STOP] = stop.address

    def run(self, instructions: int) -> int:
        """Piece after piece, as long as there are some."""
        turns, fields, address = self._turns, self._fields, native.address_of(self._fields)
        while not turns.is_over and (piece := next(turns.numbers)) < turns.pieces:
            fields[0] = turns.groups * piece // turns.pieces
            fields[1] = turns.groups * (piece + 1) // turns.pieces
            if self.is_used:
                self._scratch.fill(0)  # epochs begin again: who touched what before is forgotten
            self.is_used = True
            self._assembled.run(address)
            if fields[FAULT]:
                turns.is_over = True
                self.piece, self.found = piece, fields[FAULT]
                self.site, self.index = fields[FAULT + 1], fields[FAULT + 2]
                break
        return 0


class Compiled:
    """One kernel, for groups of one size."""

    def __init__(self, kernel: Function, code: Code) -> None:
        if not assemble.is_installed():
            raise NotCompiled("llvmlite is not installed")
        self.name, self.block = kernel.name, code.block
        self.memories = [one.name for one in kernel.parameters if one.kind.space]
        self.shared = {name: size for name, (_, size) in kernel.shared.items()}
        self._code = code
        # what an atomic operation finds shows who came before
        self.asks_in_order = "@atomic." in code.text
        self._assembled = assemble.Assembled(code.text)

    def fits(self, block: Size, bound: Sequence[Any]) -> bool:
        """Whether it is for such groups and memories."""
        return block == self.block and all(len(one) < MOST_BYTES for one in bound)

    def run(self, grid: Size, bound: Sequence[Any], stop: Stop = NEVER, steps: int = 1) -> None:
        """All threadgroups of a grid.

        bound   what each memory is
        stop    who may end it before
        steps   statements that a thread executes, by estimate
        Raises  KernelFault, Stopped
        """
        groups = prod(grid)
        most = threads.count() if not self.asks_in_order and steps * prod(self.block) * groups > ALONE else 1
        pieces = min(groups, most * PIECES) if most > 1 else 1
        turns = _Turns(grid, pieces)
        jobs = [_Job(self._assembled, self._code, turns, bound, stop) for _ in range(min(most, pieces))]
        threads.run(jobs, 0)
        for job in sorted(jobs, key=lambda one: one.piece):  # the first one of the grid counts
            if job.found == STOPPED:
                raise Stopped
            if job.found:
                raise self._fault(job.site, job.index, bound)

    def _fault(self, number: int, index: int, bound: Sequence[Any]) -> KernelFault:
        site = self._code.sites[number]
        count = 0
        if site.element_bytes:
            size = self.shared.get(site.memory)
            if size is None:
                size = len(bound[self.memories.index(site.memory)])
            count = size // site.element_bytes
        fault = KernelFault(f"{self.name}: {site.what.format(name=site.memory, index=index, count=count)}")
        fault.line = site.line
        fault.is_misaligned = site.what.endswith("multiple of its size.")
        if site.element_bytes and site.memory in self.shared:
            fault.shared_byte = max(0, index) * site.element_bytes
        elif site.element_bytes:
            memory = bound[self.memories.index(site.memory)]
            fault.access = ACCESSES.get(site.what.partition(" ")[0], "access")
            fault.size_bytes = site.element_bytes
            fault.address = native.address_of(memory) + index * site.element_bytes
        return fault
