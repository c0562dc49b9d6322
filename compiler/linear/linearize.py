"""Linearize: a scheduled loop nest becomes a linear program.

In       a LoopNest
Out      a Program: every value once, at the outermost place where all it depends on is known
Next     context.py (what every lowering is given), ways.py (the lists of lowerings), reductions.py, staged_loops.py,
         stores.py, program.py (the instructions), ../render/llvm.py (their spelling)

Counted loops are opened in order, outputs outside reductions. A node is evaluated at *points*: combinations of the
steps of written-out loops. The result is placed in the scope of the innermost loop it depends on and remembered there,
so invariant code is hoisted and copies share work without a pass of their own. Where a range does not divide, the full
steps run without tests and the partial step is written a second time, with its own extent.

A reduction is emitted as soon as the output loops that it needs are open. A scan (scan.py) is emitted where the stores
are, its accumulators around the loops of its range. Operands that are staged are copied as a step of their loop begins.

For each of these there are several lowerings in a list, and the first one that takes the job writes it. A lowering is
given the context and the lowerings that it calls; none knows the others.
"""

from __future__ import annotations

from hcq.compiler.linear import ways
from hcq.compiler.linear.context import Context, Lowering
from hcq.compiler.linear.counted_loops import CountedLoops
from hcq.compiler.linear.memory import MOST_SHARED
from hcq.compiler.linear.program import Instruction, Program
from hcq.compiler.linear.reductions import Reductions, by_ranges
from hcq.compiler.linear.staged_loops import StagedLoops
from hcq.compiler.loops.loop import Loop
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import ScheduleError
from hcq.ir.node import Node, toposort
from hcq.ir.op import ARITHMETIC, Op


def linearize(nest: LoopNest, name: str, most_shared: int = MOST_SHARED, wave_copy_bytes: int = 0) -> Program:
    """The program of a nest. Raises ScheduleError where the schedule cannot be written down.

    most_shared      bytes of the memory that the threads of a group share, on GPUs
    wave_copy_bytes  where waves copy to it by themselves: the most of a lane; 0 where each thread does
    """
    return _Writer(Context(nest, most_shared), wave_copy_bytes).write(name)


class _Writer(Lowering):
    """The output loops of a kernel, and in them what each lowering writes."""

    def __init__(self, context: Context, wave_copy_bytes: int):
        super().__init__(context)
        self.context = context
        limits, dots = ways.limits_of(context), ways.dots_of(context)
        self.counted = CountedLoops(context, limits)
        copies = ways.copies_of(context, self.counted, dots, wave_copy_bytes)
        self.staged = StagedLoops(context, self.counted, copies)
        self.reductions = Reductions()
        self.reductions.ways = ways.reductions_of(context, self.staged, limits, dots, self.reductions)
        self.scans = ways.scans_of(context)
        self.stores = ways.stores_of(context, self.scans)
        reduced = sum(axis.bit for axis in self.nest.axes if axis.is_reduce)
        self.pending = by_ranges([node for node in self.nest.reduces if not self.nest.masks[node] & reduced])

    def write(self, name: str) -> Program:
        for axis in self.nest.axes:
            if axis.name in self.nest.whole and axis.counted:
                raise ScheduleError(
                    f"{axis.name} was fused, and {axis.counted[0].name} counts it: bind its loops to threads "
                    "and lanes, or write them out"
                )
        self.context.begin()
        outputs = [loop for loop in self.nest.order if not loop.axis.is_reduce]
        if self.nest.groups:
            self.counted.groups(self.nest.groups, lambda: self._outputs(outputs, 0))
        else:
            self._outputs(outputs, 0)
        listed = [(param.arg, param.dtype) for param in self.context.params]
        program = self.emitter.scopes[0].instructions
        digits, groups = tuple(self.nest.digits), self.nest.group_count
        made = Program(
            name, listed, program, self.memory.scratch_bytes, groups, digits, self.memory.shared_bytes
        )
        made.shared_align, made.tensor_maps = self.memory.shared_align, self.memory.tensor_maps
        made.producers = self.memory.producers
        if self.nest.pipelined:
            drop_unused(made)
        return made

    def _outputs(self, loops: list[Loop], at: int) -> None:
        """The output loops from number `at` inwards: operands packed here, reductions ready here, the rest inside."""
        self.staged.stage_at(loops[at - 1] if at else None)
        waiting = self.pending
        self._reduce_ready(loops[at:])
        if self.scans is not None and at == self.scans.begins_at(loops):
            self.scans.begin()
        if at < len(loops):
            self.counted.open(loops[at], lambda: self._outputs(loops, at + 1))
        else:
            next(way for way in self.stores if way.takes()).write()
        self.pending = waiting  # the next copy of this body computes them again

    def _reduce_ready(self, unopened_loops: list[Loop]) -> None:
        """Emit every reduction whose output loops are all open and that reads none that waits."""
        unopened = 0
        for loop in unopened_loops:
            unopened |= loop.axis.bit
        waiting: list[list[Node]] = []
        for group in self.pending:
            waits = any(self.ranges.masks[node] & unopened for node in group)
            waits = waits or (bool(unopened_loops) and any(node in self.ranges.volatile for node in group))
            if waits or (waiting and _reads(group, waiting)):
                waiting.append(group)
            else:
                self.reductions.write(group)
        self.pending = waiting


def _reads(group: list[Node], others: list[list[Node]]) -> bool:
    """Whether a reduction is computed from one of others."""
    found = {node for other in others for node in other}
    return any(node in found for node in toposort([source for node in group for source in node.src]))


# -- instructions whose value nobody reads are taken out of a program --------------------------------------------------


_VALUES = ARITHMETIC | {Op.CONST, Op.LOAD, Op.BROADCAST, Op.VECTOR, Op.LANE}


def drop_unused(program: Program) -> None:
    """Keep what has an effect, and its sources."""
    needed: set[Instruction | None] = set()
    kept: list[Instruction] = []
    for it in reversed(program.instructions):
        if it.op not in _VALUES or it in needed:
            kept.append(it)
            needed.update(it.src)
    program.instructions = kept[::-1]
