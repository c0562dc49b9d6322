"""A kernel ready to run: what it is passed, what it takes of a group, and how a grid goes through it.

In       a parsed kernel; then a grid, a block and what is bound
Out      memory as the kernel leaves it
Changes  what is bound
Next     translate.py and machine.py (NumPy), compiled.py (machine code), ../commands.py (who checks and binds),
         standing.py (where its threads are, for reports)
Source   Metal Shading Language Specification, "Kernel Function Input Attributes"

A kernel is run by NumPy or by machine code, and tests hold the one against the other. To compile one takes longer than
to interpret it a few times on little data, so a kernel is compiled once its launches have come, by estimate, to what
that takes. Estimates are of the text and the launch, not of a clock: runs repeat.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import is_dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcq import config
from hcq.emu.metal.shader import compiled, syntax
from hcq.emu.metal.shader.compiled import Compiled
from hcq.emu.metal.shader.device_races import DeviceRaces
from hcq.emu.metal.shader.errors import KernelFault, MslError, NotCompiled
from hcq.emu.metal.shader.following import FollowingMachine, following
from hcq.emu.metal.shader.groups import Code, write
from hcq.emu.metal.shader.machine import SIMD, Machine, Memory, SharedMemory
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.race_stops import tell
from hcq.emu.metal.shader.standing import at_fault, look
from hcq.emu.metal.shader.stopping import NEVER, Stop
from hcq.emu.metal.shader.syntax import Function, Parameter
from hcq.emu.metal.shader.translate import file_name, translate
from hcq.emu.metal.shader.types import SIZES, Type
from hcq.emu.shader.checks import Checks
from hcq.events import kernel_debug, waves

BATCH = 1 << 16  # threads that take each step together
WAYS = ("interpreted", "compiled")  # how kernels are run, where it is not by cost
UNKNOWN_TIMES = 8  # a loop is taken to go round, where no number says
STEP_NS = 8000  # NumPy: a statement of a batch,
THREAD_NS = 5.0  # and of each thread in it
WRITTEN_NS = 200_000  # LLVM: a statement of the text, to write it as IR,
LINE_NS = 45_000  # each line of that, to assemble it
Size = tuple[int, int, int]
Binding = NDArray[np.uint8] | bytes


class Entry(NamedTuple):
    """One entry of the buffer argument table that a kernel reads. size_bytes: what has to be bound at least."""

    name: str
    is_pointer: bool
    size_bytes: int
    alignment: int


class Program:
    """A kernel. `table`: by index, what has to be bound; `text`: what it was translated to for NumPy.

    way   one of WAYS, or "" to compile what would take longer to interpret
    """

    def __init__(self, source: Source, kernel: Function, way: str = "") -> None:
        self.source, self.kernel, self.way = source, kernel, way
        self.compiled: Compiled | None = None
        is_off = way == "interpreted" or (not way and config.current().emu_compiled == "0")
        self.why_not = "interpreted, as was asked" if is_off else ""  # it is never compiled
        self._statements, self._steps = _count(kernel.body, source)
        self._spent_ns = 0.0
        self._code: Code | None = None
        self._asked_for: Size | None = None
        self._is_asked = False
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
        self.function, self.text, self.places = translate(source, kernel)
        self.file_name = file_name(kernel)

    def run(
        self, grid: Size, block: Size, bindings: dict[int, Binding], entry: int = 0, stop: Stop = NEVER
    ) -> None:
        """All threadgroups of a grid.

        entry   what reports know the kernel by
        stop    who may end it before
        Raises  KernelFault, Stopped
        """
        pid, thread = os.getpid(), threading.get_ident()
        with waves.running(pid, entry, self.kernel.name) as running:
            running.peek = lambda: look(self, thread)
            checks = Checks.of_launch(pid, entry)
            try:
                if kernel_debug.debugger is None:
                    self._run_once(grid, block, bindings, checks, stop)
                else:
                    kernel_debug.debugger.run_metal(self, grid, block, bindings, entry, checks=checks)
            except KernelFault as fault:
                found, line = at_fault(self, fault.__traceback__)
                fault.line = fault.line or line
                where = f"MSL line {fault.line} `{self.source.line(fault.line)}`: " if fault.line else ""
                kernel = waves.Kernel(entry, self.kernel.name, found)
                told = waves.Stop(kernel, f"{where}{fault}", fault.access, fault.address, fault.size_bytes)
                waves.stopped(pid, told)
                tell(pid, entry, fault, self.source.line(fault.line) if fault.line else "")
                raise
            finally:
                if checks is not None:
                    checks.tell()

    def _run_once(
        self, grid: Size, block: Size, bindings: dict[int, Binding], checks: Checks | None, stop: Stop
    ) -> None:
        if checks is not None and checks.words & {"race", "init"}:
            # machine code of the host tells nobody of its accesses
            make = self.following(grid, block, checks) if "init" in checks.words else Machine
            self.interpret(grid, block, bindings, self.races(grid, block, checks), make=make, stop=stop)
            return
        places = (_index(one) for one in self.kernel.parameters)
        bound = [bindings[index] for index in places if index is not None]
        if not self.why_not and (self.compiled is None or self.compiled.block != block):
            self._spend(prod(grid), block)
        if self.compiled is None or not self.compiled.fits(block, bound):
            self.interpret(grid, block, bindings, stop=stop)
            return
        self.compiled.run(grid, bound, stop, self._steps)

    def races(self, grid: Size, block: Size, checks: Checks | None) -> DeviceRaces | None:
        """Who is to be told of accesses to device memory in a launch; None: nobody."""
        if checks is None or "race" not in checks.words:
            return None
        has_fences = "atomic_thread_fence" in self.source.text
        return DeviceRaces(grid, block, self.file_name, self._line_of, self.source.line, checks, has_fences)

    def following(
        self, grid: Size, block: Size, checks: Checks, kind: type[FollowingMachine] = FollowingMachine
    ) -> Callable[[str, int, int, int], Any]:
        """What makes machines that follow what nobody wrote."""
        return following(grid, block, self.file_name, self._line_of, self.source.line, checks, kind)

    def _line_of(self, line: int) -> int:
        return self.places[line - 1][0]

    def _spend(self, groups: int, block: Size) -> None:
        """Compile the kernel if it would cost as much to go on as it was."""
        threads = prod(block)
        batches = -(-groups // max(1, BATCH // threads))
        self._spent_ns += self._steps * (STEP_NS * batches + THREAD_NS * groups * threads)
        try:
            if self._code is not None and self._code.block != block:
                self._code = None
            if self._asked_for != block:  # whether it is worth it is not asked again
                self._asked_for = block
                self._is_asked = (
                    self.way == "compiled"
                    or config.current().emu_compiled == "always"
                    or compiled.was_compiled(self.source, self.kernel, block)
                )
            if self._code is None and (self._is_asked or self._spent_ns > WRITTEN_NS * self._statements):
                self._code = write(self.source, self.kernel, block)
            if self._code is not None and (self._is_asked or self._spent_ns > LINE_NS * self._code.lines):
                self.compiled = Compiled(self.kernel, self._code)
                compiled.remember(self.source, self.kernel, block)
                compiled.say(
                    self.kernel, f"compiled for groups of {block[0]} x {block[1]} x {block[2]} threads"
                )
                self._spent_ns = 0.0
        except NotCompiled as problem:
            self.why_not = str(problem)
            compiled.say(self.kernel, f"interpreted: {self.why_not}")

    def interpret(
        self,
        grid: Size,
        block: Size,
        bindings: dict[int, Binding],
        races: DeviceRaces | None = None,
        run: Callable[..., None] | None = None,
        make: Callable[[str, int, int, int], Machine] = Machine,
        stop: Stop = NEVER,
    ) -> None:
        """The same by NumPy.

        races  who is told of accesses to device memory
        run    in the place of what the text was translated to; make: its machines
        """
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
                machine = make(self.kernel.name, count, threads, first)
                machine.stop = stop
                machine.look()
                if races is not None:
                    machine.races = races
                    races.begin(machine)
                if "M.simdgroup_barrier(" in self.text:
                    machine.keep_phases()
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
                (run or self.function)(machine, *given, *machine.shared)


def _count(it: object, source: Source) -> tuple[int, int]:
    """The statements of a tree, functions where they are called among them, and how many are executed."""
    if isinstance(it, list):
        found = [_count(one, source) for one in it]
        return sum(written for written, _ in found), sum(done for _, done in found)
    if not is_dataclass(it) or isinstance(it, Type):
        return 0, 0
    written, done = _count(list(vars(it).values()), source)
    if isinstance(it, syntax.For):
        low, condition = it.low, it.condition
        high = condition.right if isinstance(condition, syntax.Binary) else None
        times: float = UNKNOWN_TIMES
        if isinstance(low, syntax.Number) and isinstance(high, syntax.Number):
            times = max(0, high.value - low.value)
        done = int(done * times)
    if isinstance(it, syntax.Call) and it.name in source.functions:
        inside = _count(source.functions[it.name].body, source)
        written, done = written + inside[0], done + inside[1]
    is_statement = isinstance(it, syntax.Statement)
    return written + is_statement, done + is_statement


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
