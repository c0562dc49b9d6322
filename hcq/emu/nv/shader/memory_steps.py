"""Steps that say which instruction touches memory, and memory that looks at each access first (HCQ_SANITIZE=memory).

In       a decoded block; then the groups of threads that run it
Out      the block with steps that say so: `named`; `Watched`: memory as it is, with a look at each access
Changes  the MemoryChecks of the batch; no register, no memory
Next     hcq/emu/shader/memory_checks.py (what comes of it), checks.py (who attaches both), copies.py (copies under way)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.copies import Copies, Work
from hcq.emu.nv.shader.counters import type_of
from hcq.emu.nv.shader.decode import Code, DecodedBlock, Lowering, Registers, Step
from hcq.emu.nv.shader.device_heap import START, Heap
from hcq.emu.nv.shader.flow import BasicBlock
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory import Memory
from hcq.emu.nv.shader.memory_ops import address_of, of_lanes, space_of, take_space, vector_of
from hcq.emu.nv.shader.spaces import PARAMS
from hcq.emu.nv.shader.syntax import Address, Instruction
from hcq.emu.nv.shader.types import TYPES, Lanes, Scalar
from hcq.emu.shader.access_faults import refused
from hcq.emu.shader.memory_checks import MemoryChecks

ATOMICS = {"atom", "red"}


def named(lowering: Lowering, block: BasicBlock, made: DecodedBlock) -> None:
    """Put around the steps of a block what says who runs. A retry loop has the same list."""
    made.steps[:] = [_around(lowering, one, step) for one, step in zip(block.body, made.steps)]


def _around(lowering: Lowering, instruction: Instruction, step: Step) -> Step:
    if not any(isinstance(one, Address) for one in instruction.operands):
        return step
    line, select = instruction.line, Code(lowering, instruction).select()
    is_atomic = instruction.opcode in ATOMICS
    arguments = _arguments(lowering, instruction)

    def says(registers: Registers, group: Group) -> None:
        watch = group.batch.watch
        if watch is not None:
            watch.site = line
            watch.name_of = names(group.batch, select(registers, group))
            watch.is_atomic = is_atomic
            if arguments is not None:
                arguments(registers, group)
        step(registers, group)

    return says


def _arguments(lowering: Lowering, instruction: Instruction) -> Step | None:
    """What looks whether a load of parameters stays inside of them: behind them the interpreter has zeros."""
    limit = lowering.function.param_bytes
    if instruction.opcode != "ld" or not lowering.function.is_entry:
        return None
    code = Code(lowering, instruction)
    if space_of(code, take_space(code), instruction.operands[1]) is not PARAMS:
        return None
    size = vector_of(code) * TYPES[type_of(instruction)].size_bytes
    at_of, select = address_of(code, instruction.operands[1]), code.select()

    def look(registers: Registers, group: Group) -> None:
        lanes = select(registers, group)
        at = of_lanes(at_of(registers), lanes, group.batch.count)
        watch = group.batch.watch
        if watch is not None and len(at) and limit < int(at.max()) + size <= -(-limit // 16) * 16:
            name = watch.name_of(int(at.argmax()), len(at))
            why = f"the kernel has {limit} bytes of them"
            refused(
                watch.checks,
                "arguments-overrun",
                "load",
                limit,
                str(instruction),
                instruction.line,
                name,
                why,
            )

    return look


def names(batch: Batch, lanes: Lanes | None) -> Callable[[int, int], str]:
    """(number among so many addresses of an access by these threads) -> the thread; "" where that is not said."""

    def name(number: int, count: int) -> str:
        who = batch.every_lane if lanes is None else lanes
        if len(who) != count:
            number = 0 if count == 1 else -1  # one address of all threads; or the rows of a matrix
        if number < 0:
            return ""
        block, thread = batch.place(int(who[number]))
        return f"thread {tuple(map(int, thread))} of block {tuple(map(int, block))}"

    return name


class Watched:
    """Memory as it is, whose accesses are looked at first."""

    def __init__(self, memory: Memory, watch: MemoryChecks) -> None:
        self.memory, self.watch = memory, watch
        self.places_of = memory.places_of

    @property
    def heap(self) -> Heap:
        """As Memory.heap."""
        found: Heap = self.memory.heap
        return found

    def load(self, addresses: Lanes, scalar: Scalar, count: int) -> Lanes:
        """As Memory.load."""
        kind, size = "atomic" if self.watch.is_atomic else "load", np.dtype(scalar).itemsize * count
        self.watch.look(kind, addresses, size)
        self._look_at_heap(kind, addresses, size)
        return self.memory.load(addresses, scalar, count)

    def store(self, addresses: Lanes, values: Lanes) -> None:
        """As Memory.store."""
        size = values.dtype.itemsize * (1 if values.ndim == 1 else values.shape[1])
        if not self.watch.is_atomic:  # which has loaded from there before
            self.watch.look("store", addresses, size)
            self._look_at_heap("store", addresses, size)
        self.memory.store(addresses, values)

    def _look_at_heap(self, kind: str, addresses: Lanes, size_bytes: int) -> None:
        """What malloc gave out is as good as a buffer."""
        if not len(addresses) or int(addresses.max()) < START:
            return
        heap = self.memory.heap
        outside = np.flatnonzero(heap.outside(addresses, size_bytes))
        if len(outside):
            at = int(addresses[outside[0]])
            self.watch.left_heap(kind, at, int(outside[0]), len(addresses), len(outside), heap.has_freed(at))


class NamedCopies(Copies):
    """Copies under way, which are done in the name of the instruction that issued them."""

    def __init__(self, watch: MemoryChecks) -> None:
        super().__init__()
        self.watch = watch

    def count(self, work: Work) -> None:
        super().count(self._named(work))

    def group(self, lane: int, work: Work) -> None:
        super().group(lane, self._named(work))

    def _named(self, work: Work) -> Work:
        watch = self.watch
        site, name_of = watch.site, watch.name_of

        def run() -> None:
            before = watch.site, watch.name_of, watch.is_atomic
            watch.site, watch.name_of, watch.is_atomic = site, name_of, False
            try:
                work()
            finally:
                watch.site, watch.name_of, watch.is_atomic = before

        return run
