"""A kernel in machine code: LLVM's of the text that groups.py writes, and its launch.

In       a kernel and its Code; then a grid and what is bound
Out      memory as the kernel leaves it; KernelFault for what a thread did, NotCompiled where there is no LLVM
Changes  what is bound; the disk cache, in which machine code is kept
Next     groups.py (the text), program.py (who decides whether a kernel is compiled), hcq/emu/compiled/assemble.py
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from hcq import config
from hcq.emu.compiled import assemble
from hcq.emu.metal.shader.errors import KernelFault, NotCompiled
from hcq.emu.metal.shader.groups import ARGUMENTS, FAULT, SCRATCH, TABLE, Code
from hcq.emu.metal.shader.machine import ACCESSES
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.pieces import SLOT_UNIT, Size
from hcq.emu.metal.shader.syntax import Function
from hcq.system import native
from hcq.system.cache import DiskCache

MARKS = "emu-metal-marks"  # kernels that were compiled once: another process does not wait until they are worth it
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


class Compiled:
    """One kernel, for groups of one size."""

    def __init__(self, kernel: Function, code: Code) -> None:
        if not assemble.is_installed():
            raise NotCompiled("llvmlite is not installed")
        self.name, self.block = kernel.name, code.block
        self.memories = [one.name for one in kernel.parameters if one.kind.space]
        self.shared = {name: size for name, (_, size) in kernel.shared.items()}
        self._code = code
        self._assembled = assemble.Assembled(code.text)

    def fits(self, block: Size, bound: Sequence[Any]) -> bool:
        """Whether it is for such groups and memories."""
        return block == self.block and all(len(one) < MOST_BYTES for one in bound)

    def run(self, grid: Size, bound: Sequence[Any]) -> None:
        """All threadgroups of a grid. bound: what each memory is. Raises KernelFault."""
        launch = np.zeros(TABLE + 2 * len(bound), np.int64)
        launch[: len(ARGUMENTS)] = (0, prod(grid), *grid)
        for number, data in enumerate(bound):
            launch[TABLE + 2 * number : TABLE + 2 * number + 2] = native.address_of(data), len(data)
        scratch = np.zeros(self._code.bytes + SLOT_UNIT, np.uint8)
        launch[SCRATCH] = -(-native.address_of(scratch) // SLOT_UNIT) * SLOT_UNIT
        self._assembled.run(native.address_of(launch))
        if launch[FAULT]:
            raise self._fault(int(launch[FAULT + 1]), int(launch[FAULT + 2]), bound)

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
