"""Where threads are: paths through the program, regions between divergence and reconvergence, calls of functions.

In       a Decoded function, the group of threads that is in it
Out      Path, Region, Activation
Changes  nothing by themselves
Next     machine.py (moves paths), control.py (splits them), groups.py (who executes)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.nv.shader.batch import MAX_LOCAL_BYTES, Batch
from hcq.emu.nv.shader.decode import LOCAL_ALIGNMENT, Decoded, Registers
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.sync_faults import Waiting
from hcq.emu.nv.shader.types import Lanes


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
        self.native: Any = None  # native.State, where it has run as machine code
        self.depth: int = 0 if caller is None else caller.depth + 1


class Region:
    """Threads that diverged and reconverge at block `rejoin`, when the last of `pending` paths has arrived or exited.

    back     of a call: what the threads do when they return. All others go on at `rejoin`
    """

    def __init__(
        self,
        parent: Region | None,
        activation: Activation,
        rejoin: int,
        mask: Lanes | None,
        count: int,
        back: Callable[[Path], None] | None = None,
    ) -> None:
        self.parent = parent
        self.activation = activation
        self.rejoin = rejoin
        self.mask = mask
        self.count = count
        self.back = back
        self.pending = 0
        self.paths: list[Path] = []
        self.arrived: Lanes | None = None
        self.arrived_count = 0
        self.depth: int = 0 if parent is None else parent.depth + 1


class Path(Group):
    """Threads that execute together, at block `pc` of a region.

    step       of that block: where it goes on, after it has left compiled code
    is_left    the interpreter must run something before compiled code can go on
    waits_for  "" when it can run; else "barrier", "cluster barrier", "warp barrier" or "warp"
    free       which of its waiting threads may go on
    """

    __slots__ = (
        "region", "activation", "pc", "step", "is_left", "waits_for", "free", "barrier", "expected", "members",
        "on_wake", "turns", "line",
    )  # fmt: skip

    def __init__(
        self, batch: Batch, region: Region, pc: int, mask: Lanes | None, count: int, turns: int
    ) -> None:
        super().__init__(batch, mask, count)
        self.region = region
        self.activation = region.activation
        self.pc = pc
        self.step, self.is_left = 0, False
        self.waits_for = ""
        self.free: Lanes = None
        self.barrier = 0
        self.expected = 0
        self.members: Lanes = None
        self.on_wake: Callable[[Path], None] | None = None
        self.turns = turns
        self.line = 0

    def join(self, other: Path) -> None:
        """Take in the threads of another path."""
        self.set_mask(self.full_mask | other.full_mask, self.count + other.count)
        self.turns = max(self.turns, other.turns)

    def seen(self) -> Waiting:
        """As findings name it while it waits."""
        first, is_block = int(np.argmax(self.full_mask)), self.waits_for in ("barrier", "cluster barrier")
        expected = self.expected if self.waits_for == "barrier" else 0
        return Waiting(self.line, first, self.count, is_block, expected)


def stack_end(caller: Activation, path: Path, least: int) -> int:
    """Behind all that the threads of a path have taken from their stacks."""
    taken = caller.registers[caller.decoded.stack or 0]
    if len(taken) > 1 and path.mask is not None:
        taken = taken[path.mask]
    top = min(int(taken.max()), MAX_LOCAL_BYTES + 1)
    return max(least, -(-top // LOCAL_ALIGNMENT) * LOCAL_ALIGNMENT)
