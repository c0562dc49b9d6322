"""Races in device memory: what the threads of a kernel tell of it, where somebody wants to know (HCQ_SANITIZE=race).

In       the Checks of a launch; the accesses and barriers of a batch, as the Machine comes to them
Out      faults in the Checks
Changes  itself
Next     machine.py (who tells), program.py (who makes it), hcq/emu/shader/global_races.py (what comes of it)
Source   Metal Shading Language Specification: "Threadgroup and SIMD-group Synchronization Functions", mem_flags

Threads of a SIMD group are ordered by barriers alone, like any others: their own, or the threadgroup's. A barrier
orders accesses to device memory where it has mem_flags::mem_device. Other threadgroups are reached by an
atomic_thread_fence, an atomic operation, another one that reads what that wrote, and a fence there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hcq.emu.shader.checks import Checks
from hcq.emu.shader.global_races import GlobalRaces
from hcq.emu.shader.order import BLOCK, DEVICE, PLAIN, Order
from hcq.system import native

if TYPE_CHECKING:
    from hcq.emu.metal.shader.machine import Machine, Memory

SIMD = 32
NO_BARRIER = "with no barrier between that has mem_flags::mem_device"
Size = tuple[int, int, int]


class DeviceRaces:
    """Those of one launch.

    file_name, line_of   of the text that NumPy runs: its name for Python, and a line of it -> the line of MSL
    text_of              that line, in words
    has_fences           whether anything but barriers may order threadgroups
    """

    def __init__(
        self,
        grid: Size,
        block: Size,
        file_name: str,
        line_of: Callable[[int], int],
        text_of: Callable[[int], str],
        checks: Checks,
        has_fences: bool = True,
    ) -> None:
        self.grid, self.block = grid, block
        self.file_name, self.line_of = file_name, line_of
        self.per_group = -(-block[0] * block[1] * block[2] // SIMD)
        groups = grid[0] * grid[1] * grid[2]
        self.races = GlobalRaces(
            groups * self.per_group, self.per_group, self._name_of, text_of, checks, is_exact=has_fences
        )
        self.races.no_warp_order = NO_BARRIER
        self.order = Order(self.races.records, 0, 1)

    def begin(self, machine: Machine) -> None:
        """These groups run now."""
        self.order = Order(
            self.races.records,
            machine.first,
            machine.groups,
            lanes_are_apart=True,
            needs_fences=True,
            lanes=SIMD,
        )

    def touched(
        self,
        machine: Machine,
        verb: str,
        mask: Any,
        memory: Memory,
        kind: str,
        index: Any,
        is_atomic: bool = False,
    ) -> None:
        """Numbers are about to be loaded or stored. index: of each thread, or one that all have."""
        who = machine.thread if mask is True else np.flatnonzero(mask)
        size = np.dtype(kind).itemsize
        own = who % machine.threads
        places = np.broadcast_to(np.asarray(index), (machine.size,))[who].astype(np.uint64)
        at = np.uint64(native.address_of(memory.data)) + places * np.uint64(size)
        warps = machine.row[who].astype(np.int64) * self.per_group + own // SIMD
        level = DEVICE if is_atomic else PLAIN
        self.races.access(self.order, verb, warps, own % SIMD, at, size, self._line(), level)

    def barrier(self, machine: Machine, mask: Any) -> None:
        """All threads of some groups are at a barrier that orders device memory."""
        rows = np.unique(machine.row if mask is True else machine.row[mask])
        self.order.barrier(
            (rows[:, None].astype(np.int64) * self.per_group + np.arange(self.per_group)).reshape(-1)
        )

    def simd_barrier(self, machine: Machine, mask: Any) -> None:
        """All threads of some SIMD groups are at a barrier of theirs that orders device memory."""
        own = machine.thread % machine.threads
        every = machine.row.astype(np.int64) * self.per_group + own // SIMD
        live = np.bincount(every, minlength=len(self.order.clock))
        who = machine.thread if mask is True else np.flatnonzero(mask)
        members = np.full(len(who), (1 << SIMD) - 1, np.uint32)
        self.order.meet(every[who], own[who] % SIMD, members, live)

    def fence(self, machine: Machine, mask: Any, reaches: bool) -> None:
        """atomic_thread_fence with mem_flags::mem_device. reaches: threads of other groups, too."""
        who = machine.thread if mask is True else np.flatnonzero(mask)
        own = who % machine.threads
        warps = np.unique(machine.row[who].astype(np.int64) * self.per_group + own // SIMD)
        level = DEVICE if reaches else BLOCK
        self.order.acquire(warps, level)
        self.order.release(warps, level)

    def _line(self) -> int:
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_code.co_filename != self.file_name:
            frame = frame.f_back
        return self.line_of(frame.f_lineno)

    def _name_of(self, warp: int, lane: int) -> str:
        group, thread = divmod(warp, self.per_group)
        return thread_name(thread * SIMD + lane, self.block, group, self.grid)


def thread_name(thread: int, block: Size, group: int, grid: Size) -> str:
    """Who that is, in words."""
    return f"thread {_split(thread, block)} of threadgroup {_split(group, grid)}"


def _split(number: int, sizes: Size) -> Size:
    return number % sizes[0], number // sizes[0] % sizes[1], number // (sizes[0] * sizes[1])
