"""Context: what every lowering is given to write its part of a program.

In       a LoopNest
Out      the emitter, and the state of one kernel's writing in four parts
Next     linearize.py (the lists of lowerings); emitter.py, ranges.py, open_loops.py, lower_expr.py, memory.py (parts)

A lowering keeps to itself what only it needs, and calls another one only where it was given that one.
"""

from __future__ import annotations

from hcq.compiler.linear.emitter import Emitter
from hcq.compiler.linear.lower_expr import Values
from hcq.compiler.linear.memory import MOST_SHARED, Memory
from hcq.compiler.linear.open_loops import OpenLoops
from hcq.compiler.linear.ranges import Ranges
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.ir.dtype import dtypes
from hcq.ir.node import toposort
from hcq.ir.op import Op


class Context:
    """One kernel's program while it is written."""

    def __init__(self, nest: LoopNest, most_shared: int = MOST_SHARED):
        self.nest = nest
        self.emitter = Emitter()
        self.ranges = Ranges(nest)
        self.loops = OpenLoops(self.emitter, self.ranges)
        self.values = Values(self.emitter, self.ranges, self.loops)
        self.memory = Memory(self.emitter, most_shared)
        params = {node.arg.index: node for node in toposort((nest.sink,)) if node.op is Op.PARAM}
        self.params = [params[number] for number in sorted(params)]

    def begin(self) -> None:
        """Write the addresses of the arguments and the digits of the thread's number, for all that follows."""
        for node in toposort((self.nest.sink,)):
            if node.op is Op.PARAM:
                self.values.addresses[node] = self.emitter.emit(Op.PARAM, node.dtype, (), node.arg)
        self._threads()

    def _threads(self) -> None:
        """The digits of the thread's number, which count the loops that are threads."""
        nest = self.nest
        if not nest.digits:
            return
        number = self.loops.thread = self.emitter.emit(Op.SPECIAL, dtypes.index, (), "thread")
        below = 1
        for size in nest.digits:
            digit = number
            if below > 1:
                digit = self.emitter.quotient(digit, below)
            below *= size
            if below < nest.threads:
                digit = self.emitter.rest(digit, size)
            self.loops.digits.append(digit)
        for axis in nest.axes:
            for loop in axis.threads:
                self.loops.counters[loop] = self.loops.digits[loop.digit]
        self.loops.moved()


class Lowering:
    """One way to write a part of a program: the parts of its context under short names."""

    def __init__(self, context: Context):
        self.nest = context.nest
        self.emitter = context.emitter
        self.ranges = context.ranges
        self.loops = context.loops
        self.values = context.values
        self.memory = context.memory
