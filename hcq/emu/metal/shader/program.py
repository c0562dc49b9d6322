"""A kernel ready to run: what it is passed, what it takes of a group, and how a grid goes through it.

In       a parsed kernel; then a grid, a block and what is bound
Out      memory as the kernel leaves it
Changes  what is bound
Next     translate.py (what is run), machine.py (a batch), ../commands.py (who checks and binds)
Source   Metal Shading Language Specification, "Kernel Function Input Attributes"
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcq.emu.metal.shader.errors import MslError
from hcq.emu.metal.shader.machine import SIMD, Machine, Memory, SharedMemory
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.syntax import Function, Parameter
from hcq.emu.metal.shader.translate import translate
from hcq.emu.metal.shader.types import SIZES

BATCH = 1 << 16  # threads that take each step together
Size = tuple[int, int, int]
Binding = NDArray[np.uint8] | bytes


class Entry(NamedTuple):
    """One entry of the buffer argument table that a kernel reads. size_bytes: what has to be bound at least."""

    name: str
    is_pointer: bool
    size_bytes: int
    alignment: int


class Program:
    """A kernel. `table`: by index, what has to be bound; `text`: what it was translated to."""

    def __init__(self, source: Source, kernel: Function) -> None:
        self.kernel = kernel
        self.most_threads = kernel.most_threads
        self.shared_bytes = sum(-(-size // 16) * 16 for _, size in kernel.shared.values())
        self.table: dict[int, Entry] = {}
        for one in kernel.parameters:
            index = _index(one)
            if index is None:
                continue
            if index in self.table:
                raise MslError(f"{kernel.name}: {one.attribute} is given twice")
            is_pointer = one.kind.space == "device"
            size = SIZES[one.kind.scalar] * one.kind.lanes
            self.table[index] = Entry(one.name, is_pointer, size, SIZES[one.kind.scalar])
        self._run, self.text = translate(source, kernel)

    def run(self, grid: Size, block: Size, bindings: dict[int, Binding]) -> None:
        """All threadgroups of a grid. Raises KernelFault."""
        groups, threads = prod(grid), prod(block)
        at_once = max(1, BATCH // threads)
        memories = {}
        for one in self.kernel.parameters:
            index = _index(one)
            if index is not None:
                data = np.frombuffer(bindings[index], np.uint8)
                memories[index] = Memory(one.name, data, one.kind.space == "device" and not one.is_const)
        with np.errstate(all="ignore"):
            for first in range(0, groups, at_once):
                count = min(at_once, groups - first)
                machine = Machine(self.kernel.name, count, threads)
                machine.shared = [
                    SharedMemory(name, size, count) for name, (_, size) in self.kernel.shared.items()
                ]
                group = (machine.row + first).astype(np.int64)
                given = [
                    memories[index]
                    if (index := _index(one)) is not None
                    else _position(one, machine, group, grid, block)
                    for one in self.kernel.parameters
                ]
                self._run(machine, *given, *machine.shared)


def _index(one: Parameter) -> int | None:
    """The entry of the table that a parameter is; None for one that hardware gives."""
    if not one.attribute.startswith("buffer("):
        return None
    return int(one.attribute[len("buffer(") : -1])


def _position(one: Parameter, machine: Machine, group: Any, grid: Size, block: Size) -> Any:
    """A number, or three, that each thread has of itself."""
    own = machine.thread % machine.threads
    whole = {
        "thread_index_in_threadgroup": own,
        "thread_index_in_simdgroup": own % SIMD,
        "simdgroup_index_in_threadgroup": own // SIMD,
    }
    kind = one.kind.numpy
    if one.attribute in whole:
        return whole[one.attribute].astype(kind)
    inside, outside = _split(own, block), _split(group, grid)
    places = {
        "thread_position_in_threadgroup": inside,
        "threadgroup_position_in_grid": outside,
        "thread_position_in_grid": [a + b * size for a, b, size in zip(inside, outside, block)],
        "threads_per_threadgroup": [np.array(size)[()] for size in block],
        "threadgroups_per_grid": [np.array(size)[()] for size in grid],
    }
    if one.attribute not in places:
        raise MslError(f"[[{one.attribute}]] of {one.name} is not known here")
    found = [value.astype(kind) for value in places[one.attribute]]
    return found[0] if one.kind.lanes == 1 else found[: one.kind.lanes]


def _split(number: Any, sizes: Size) -> list[Any]:
    return [number % sizes[0], number // sizes[0] % sizes[1], number // (sizes[0] * sizes[1])]
