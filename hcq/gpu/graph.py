"""Graphs of GPUs: a recording is split over compute and copy queues where a small model of costs says that it pays.

In       recorded commands, and how much memory each of them uses
Out      a Split (work/hardware_queues.py), or None: in order
Next     hcq/work/hardware_queues.py (how waits are found), amd/graph.py and nv/graph.py (how lanes become packets),
         docs/graphs.md

The model is of orders of magnitude, for a wrong choice costs microseconds and never a result. A command takes what it
takes to start one and its memory once through: a kernel at the speed of device memory, a copy at a copy engine's. An
edge between queues takes a signal behind caches that are written back, and a poll that sees it.

Kernels stay on one queue: there those that nothing orders need no signal to run side by side, only that none waits for
the one before it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from hcq import command
from hcq.graph import EVERYWHERE, Graph
from hcq.signal import Signal
from hcq.work.dependences import Uses, uses_of
from hcq.work.hardware_queues import MAIN, Costs, Split, Step, choose

COMMAND_NS = 3_000  # the least that a command takes
KERNEL_BYTES_PER_NS, COPY_BYTES_PER_NS = 1_000, 100  # a terabyte, and a tenth of it, a second
SIGNAL_NS, WAIT_NS = 2_000, 2_000


class GpuGraph(Graph):
    """A recording for a device with a queue for kernels and one for copies."""

    device: Any  # a GPU of the vendor
    costs: ClassVar[Costs] = Costs(SIGNAL_NS, WAIT_NS)

    def split(self) -> Split | None:
        movable = [isinstance(what, (command.Copy, command.Fill)) for what in self.commands]
        if not any(movable):
            return None
        times = [
            time_ns(what, self._uses.get(number) if number in self._uses else uses_of(what))
            for number, what in enumerate(self.commands)
        ]
        return choose(self.dependences(), times, movable, self.costs)

    def overlaps(self, split: Split | None) -> dict[int, int]:
        """Dispatches that may start while those before them in their lane still run, and the one right before each.

        None of them needs anything that was started since all was last waited for, and no signal stands between.
        """
        behind, count = self.dependences().behind, len(self.commands)
        in_order = (Step(number, MAIN, (), 0) for number in range(count))
        found: dict[int, int] = {}
        running, last = 0, -1  # dispatches that nobody has waited for, as bits, and the last one
        for step in in_order if split is None else split.steps:
            if step.lane != MAIN:
                continue
            number = step.number
            is_dispatch = 0 <= number < count and isinstance(self.commands[number], command.Dispatch)
            if is_dispatch and running and not step.waits and not behind[number] & running:
                found[number] = last
            else:
                running = 0
            running, last = (running | 1 << number, number) if is_dispatch and not step.signal else (0, -1)
        return found

    def lane_signals(self, split: Split | None) -> list[Signal]:
        """A signal for each lane of one command buffer."""
        lanes = 0 if split is None else split.lanes
        return [self.device.signal(f"{self.name} lane {number}") for number in range(lanes)]


def time_ns(what: command.Command, uses: Uses) -> int:
    """How long a command takes, about. What nobody knows counts as nothing."""
    size = sum(use.high - use.low for use in uses or () if use.high != EVERYWHERE)
    speed = KERNEL_BYTES_PER_NS if isinstance(what, command.Dispatch) else COPY_BYTES_PER_NS
    return COMMAND_NS + size // speed
