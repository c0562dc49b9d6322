"""Who executes: groups of threads at one place, regions in which they part and meet again, activations of functions.

In       masks over the threads of a machine
Out      Group, Region, Activation
Changes  nothing by themselves
Next     machine.py (moves groups), decode.py (steps ask a group who executes)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hcq.emu.nv.shader.decode import Decoded, Registers
from hcq.emu.nv.shader.errors import BadAccess, KernelFault, MisalignedAccess, PageFault
from hcq.emu.nv.shader.syntax import Instruction
from hcq.emu.nv.shader.types import Lanes

if TYPE_CHECKING:
    from hcq.emu.nv.shader.machine import Machine


class Activation:
    """One call of a function: its registers, and where its local memory begins. `count` threads are in it."""

    def __init__(
        self, decoded: Decoded, registers: Registers, count: int, local_base: int, caller: Activation | None
    ) -> None:
        self.decoded = decoded
        self.registers = registers
        self.count = count
        self.local_base = local_base
        self.caller = caller
        self.depth: int = 0 if caller is None else caller.depth + 1


class Region:
    """Threads that parted and will meet at block `rejoin`. When the last of `pending` is there or gone, they go on.

    after    what the reunited threads do: go on at `rejoin`, or return to the caller
    """

    def __init__(
        self,
        parent: Region | None,
        activation: Activation,
        rejoin: int,
        mask: Lanes | None,
        count: int,
        after: Callable[[Group], None] | None,
        is_call: bool = False,
    ) -> None:
        self.parent = parent
        self.activation = activation
        self.rejoin = rejoin
        self.mask = mask
        self.count = count
        self.after = after
        self.is_call = is_call
        self.pending = 0
        self.groups: list[Group] = []
        self.arrived: Lanes | None = None
        self.arrived_count = 0
        self.depth: int = 0 if parent is None else parent.depth + 1


class Group:
    """Threads that execute together. mask: which (None: all of the machine); count: how many.

    is_whole   no other thread needs this activation's registers: results need not be mixed with old values
    waits_for  "" when it can run; else "barrier", "warp barrier" or "warp"
    free       which of its waiting threads may go on
    """

    __slots__ = (
        "machine", "region", "activation", "pc", "mask", "count", "is_whole", "_lanes", "waits_for", "free",
        "barrier", "expected", "members", "on_wake", "turns", "line",
    )  # fmt: skip

    def __init__(
        self, machine: Machine, region: Region, pc: int, mask: Lanes | None, count: int, turns: int
    ) -> None:
        self.machine = machine
        self.region = region
        self.activation = region.activation
        self.pc = pc
        self.mask = mask
        self.count = count
        self.is_whole = False
        self._lanes: Lanes | None = None
        self.waits_for = ""
        self.free: Lanes | None = None
        self.barrier = 0
        self.expected = 0
        self.members: Lanes | None = None
        self.on_wake: Callable[[Group], None] | None = None
        self.turns = turns
        self.line = 0

    @property
    def lanes(self) -> Lanes | None:
        """The numbers of the threads; None for all."""
        if self.mask is None:
            return None
        if self._lanes is None:
            self._lanes = np.flatnonzero(self.mask)
        return self._lanes

    @property
    def full_mask(self) -> Lanes:
        return self.machine.all_lanes if self.mask is None else self.mask

    def join(self, other: Group) -> None:
        """Take in the threads of another group."""
        self.mask = self.full_mask | other.full_mask
        self.count += other.count
        self.turns = max(self.turns, other.turns)
        self._lanes = None

    def fault(self, bad: BadAccess, instruction: Instruction, what: str, lanes: Lanes | None) -> KernelFault:
        """The report of a refused access. lanes: the threads that made it, in the order of their addresses."""
        machine = self.machine
        if lanes is None:
            lanes = self.lanes if self.lanes is not None else machine.every_lane
        lane = int(lanes[min(bad.index, len(lanes) - 1)])
        block, thread = machine.place(lane)
        kind = MisalignedAccess if bad.misaligned else PageFault
        error = kind(
            f"kernel {machine.kernel_name}, PTX line {instruction.line} `{instruction}`: {what} at {bad.address:#x}"
            f" by thread {thread} of block {block}: {bad.why}.",
            instruction.line,
            [(block, thread)],
        )
        error.address = bad.address
        return error
