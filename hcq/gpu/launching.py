"""Launching: the dispatch part of a device whose programs are GpuPrograms (AMD, NVIDIA, Metal).

In       a program, its arguments, a grid and a block
Out      the program's packets; where an argument is in them
Next     program.py (who makes packets), device.py, ../metal/device.py (the devices)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq import checks
from hcq.base import Grid
from hcq.device import Device
from hcq.errors import UsageError
from hcq.gpu.program import GpuProgram
from hcq.program import Program, Slot


class LaunchingDevice(Device):
    """A device that leaves its launches to its programs."""

    def encode_dispatch(
        self, program: Program, args: Sequence[Any], grid: Grid, block: Grid, groups_per_claim: int
    ) -> tuple[bytes, tuple[int | float, ...]]:
        if self.dead:
            self.check_alive()
        if groups_per_claim != 0:  # for workers of a CPU; wrong ones are refused here, too
            checks.whole(f"dispatch {program.name}", "groups_per_claim", groups_per_claim, 0, 2**32 - 1)
        if not isinstance(program, GpuProgram) or program.device is not self:
            raise UsageError(f"dispatch: {program!r} is loaded on {program.device.name}, not on {self.name}.")
        return program.dispatch(args, grid, block)

    def argument_slot(self, program: Program, args: Sequence[Any], index: int) -> Slot:
        """In the packet, or in what a launch uploads."""
        if not isinstance(program, GpuProgram):
            raise UsageError(f"dispatch: {program!r} is not a program of {self.name}.")
        slot = program.shape(args).slots[index]
        return slot._replace(offset=program.params_at + slot.offset)
