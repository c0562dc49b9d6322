"""What the devices of AMD and NVIDIA share: signals, memory of their own and of peers, recovery, how code is loaded.

In       what a driver fills in while it opens: `gpu_memory`, `clock`, `uploads`, the page of cells
Out      the part of a device that does not depend on its packets
Changes  allocations of the kernel driver
Next     hcq/device.py (what all devices share), amd/device.py, nv/device.py (the rest of the device)
"""

from __future__ import annotations

import functools
import sys
import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from hcq import checks
from hcq.base import Compared, Grid
from hcq.errors import DriverError, UsageError
from hcq.gpu.addresses import describe_address
from hcq.gpu.clock import Clock, Reading
from hcq.gpu.launching import LaunchingDevice
from hcq.gpu.memory import GpuMemory, Owned
from hcq.gpu.module import GpuModule
from hcq.gpu.queue import GpuQueue
from hcq.gpu.release import do_all, quietly
from hcq.gpu.staging import STAGE_BYTES, WORTH_BYTES, Stage
from hcq.gpu.uploads import Uploads
from hcq.memory import Buffer
from hcq.program import Program
from hcq.queue import ONE
from hcq.signal import CELL_BYTES, Signal, Timeline
from hcq.system import native

CLOCK_READINGS = 3  # of which the shortest counts
CELLS_BYTES = 64 << 10  # of signals and the driver's own cells


class GpuDevice(LaunchingDevice):
    """One GPU behind a kernel driver. The cells of signals outlive it: completions that were kept still read them."""

    shares_memory = True
    has_plain_signals = True
    runs_side_by_side = True
    # a row of a tensor that starts inside a line of memory (128 bytes on either vendor's GPUs, two of them fetched
    # together at most) costs one line more for each warp that reads along it
    alignment = 256
    stage_place: ClassVar[Any]  # where a staging buffer is: memory of the host
    process: Any  # what the driver keeps for the process; buffers reach other GPUs of the same one
    spin_ns: ClassVar[int]  # how long the host looks at a signal before it sleeps
    clock: Clock
    gpu_memory: GpuMemory[Any]  # its allocations
    uploads: Uploads  # what work in flight reads beside its rings
    _cells: Owned
    _fault = ""  # what it stopped on, until it is recovered
    _abandoned = False  # its queues are ended; nothing may be submitted before it is recovered

    # ------------------------------------------------------------ what a driver provides

    @property
    @abstractmethod
    def peer_id(self) -> Any:
        """What another device maps memory for, when this one is to see it."""

    @property
    @abstractmethod
    def is_slow_to_read(self) -> bool:
        """Whether the host sees buffers through the PCIe window, so that long reads are better copied."""

    @abstractmethod
    def stopped_on(self) -> str:
        """What the GPU or its kernel driver says that it stopped on, or ""."""

    @abstractmethod
    def end_queues(self) -> None:
        """End the queues, and with them whatever they wait for. Also of half an opened device, and a second time."""

    @abstractmethod
    def make_queues(self) -> None:
        """New queues with nothing in them. Raises DriverError when the kernel driver gives none."""

    @abstractmethod
    def leave_queues(self) -> None:
        """In a child of fork: forget the queues without a call; their memory is the parent's, perhaps not mapped."""

    @abstractmethod
    def commit(self) -> None:
        """Show the GPU what was written into its rings."""

    @abstractmethod
    def end_rest(self) -> None:
        """Once the queues are ended: give back what is neither queue nor memory."""

    @abstractmethod
    def has_event(self) -> bool:
        """Whether a wait may never end: the GPU or its kernel driver has reported something. Asked often."""

    @abstractmethod
    def pause(self, left_ns: int, pauses: int) -> None:
        """Sleep for a while, at most so long, or until something happens; `pauses`: how often already in this wait."""

    @abstractmethod
    def load_module(self, image: bytes, name: str, entry: str | None = None) -> GpuModule:
        """A code object in the GPU's memory. entry: the only one that is wanted of it; None for all."""

    # ------------------------------------------------------------ memory of its own

    def _own(self, size_bytes: int, place: Any) -> Any:
        """Memory for the driver itself, given back when the device closes."""
        self._owned.append(self.gpu_memory.alloc(size_bytes, place))
        return self._owned[-1]

    def _own_region(self, size_bytes: int, place: Any) -> Any:
        """The same where work may read or write, which rules and reports know then."""
        area = self._own(size_bytes, place)
        self.memory.regions[area.va] = area.size_bytes
        return area

    def host_memory(self, size_bytes: int, name: str) -> Buffer:
        made = self.memory.alloc_apart(size_bytes, name, self._map_host_memory)
        made.is_pinned = True
        return made

    def _map_host_memory(self, size_bytes: int) -> int:
        return int(self.gpu_memory.alloc(size_bytes, self.stage_place).va)

    def mapped_ranges(self, access: str) -> list[tuple[int, int]]:
        return [(what.va, what.size_bytes) for what in list(self.gpu_memory.live.values())]

    def _begin_uploads(self, size_bytes: int, place: Any, alignment: int) -> None:
        self.uploads = Uploads(self._own_region(size_bytes, place).va, size_bytes, alignment)

    def _wait_for_uploads(self, value: int) -> int:
        self.commit()
        self.drain(value)
        return self.timeline.value

    def _give_back_owned(self) -> None:
        def give_back(what: Owned) -> None:
            self.memory.regions.pop(what.va, None)
            self.gpu_memory.free(what)
            for observer in self.observers:
                observer.unmapped(what.va, what.size_bytes)

        do_all(functools.partial(give_back, what) for what in self._owned)

    def _begin_owning(self) -> None:
        """Before the driver's first allocation of its own."""
        self._owned: list[Owned] = []
        self._stage: Stage | None = None

    def give_back(self) -> None:
        if hasattr(self, "_cells"):
            self.gpu_memory.close()
        for va, size_bytes in self.memory.regions.items():
            for observer in self.observers:
                observer.unmapped(va, size_bytes)
        self.memory.regions.clear()

    def inherit(self) -> bool:
        self.leave_queues()
        return super().inherit()

    def can_reach(self, buffer: Buffer) -> bool:
        """Whether this GPU can be given another one's buffer; maps it when it can."""
        other = buffer.device
        if not isinstance(other, GpuDevice) or other.process is not self.process or other.dead:
            return False
        owner = other.gpu_memory.find(buffer.address)
        if owner is None:
            return False
        try:
            other.gpu_memory.map_for(owner, self.peer_id)
        except DriverError:
            return False
        return True

    has_companions = True

    def can_watch(self, other: Any) -> bool:
        """Of the same kernel driver: its page of cells is mapped here, too."""
        if not isinstance(other, GpuDevice) or other.process is not self.process or other.dead:
            return False
        try:
            other._cells = other.gpu_memory.map_for(other.gpu_memory.live[other._cells.va], self.peer_id)
        except (DriverError, KeyError):
            return False
        return True

    # ------------------------------------------------------------ reading

    def read_memory(self, va: int, size_bytes: int) -> bytes:
        """What device memory holds; a long read goes through the copy engine."""
        if not self._is_staged(va, size_bytes):
            return native.read(va, size_bytes)
        found = bytearray(size_bytes)
        self.read_memory_into(va, found, size_bytes)
        return bytes(found)

    def read_memory_into(self, va: int, target: Any, size_bytes: int) -> None:
        """The same, into memory of the host."""
        if not self._is_staged(va, size_bytes):
            native.read_into(va, target, size_bytes)
            return
        with self.lock:
            self._staging().fetch(va, target, size_bytes)

    def _is_staged(self, va: int, size_bytes: int) -> bool:
        return size_bytes >= WORTH_BYTES and self.is_slow_to_read and not self.is_lost

    def check_readable(self) -> None:
        """Of a lost device, too: what the host sees of its memory stays until it is closed."""
        if not self.is_lost:
            self.check_alive()

    def _staging(self) -> Stage:
        if self._stage is None:
            self._stage = Stage(self, self._own(STAGE_BYTES, self.stage_place).va)
        return self._stage

    # ------------------------------------------------------------ signals

    def _begin_cells(self, cells: Owned, timeline_at: int, signals_at: int) -> None:
        """Take a page of cells into use: zeroed, with the timeline at one offset and signals from another on."""
        self._cells = cells
        self._cells_view = native.view(cells.va, CELLS_BYTES)
        self._cells_view[:] = bytes(CELLS_BYTES)
        self.memory.regions[cells.va] = CELLS_BYTES
        self._next_cell = cells.va + signals_at
        self._most_signals = (CELLS_BYTES - signals_at) // CELL_BYTES
        cell = Buffer(self, cells.va + timeline_at, CELL_BYTES, CELL_BYTES, 0, "timeline")
        self.timeline = Timeline(self, cell, "timeline")

    def signal(self, name: str = "signal") -> Signal:
        """A new signal, value 0, in memory that the host can poll. Raises UsageError when all are in use."""
        self.check_alive()
        checks.text("signal", "name", name)
        with self.lock:
            va = self.memory.take_idle(CELL_BYTES)
            if va is None and self._next_cell < self._cells.va + CELLS_BYTES:
                va = self._next_cell
                self._next_cell += CELL_BYTES
            if va is None and self.memory.free.get(CELL_BYTES):
                self.drain(self.memory.free[CELL_BYTES][0][1])
                va = self.memory.take_idle(CELL_BYTES)
            if va is None:
                raise UsageError(
                    f"signal({name!r}) on {self.name}: all {self._most_signals} signals are in use. "
                    "Drop some of them."
                )
        cell = Buffer(self, va, CELL_BYTES, CELL_BYTES, 0, name)
        for observer in self.observers:
            observer.alloc(va, CELL_BYTES, CELL_BYTES, name)
        return Signal(self, cell, name)

    def signal_set(self, va: int, value: int) -> None:
        cell = native.view(va, CELL_BYTES).cast("Q")
        cell[1] = self.clock.to_ticks(time.monotonic_ns())
        cell[0] = value

    def signal_wait(self, va: int, value: int, timeout_ns: int) -> int:
        """Look at a cell until it is there: at first without a pause, then with pauses between."""
        cell = native.view(va, CELL_BYTES).cast("Q")
        now = time.monotonic_ns()
        end, spins_until = now + timeout_ns, now + min(self.spin_ns, timeout_ns)
        pauses = 0
        while (seen := cell[0]) < value:
            now = time.monotonic_ns()
            if now >= end or self.has_event():
                break
            if now >= spins_until:
                self.pause(end - now, pauses)
                pauses += 1
                if self.dead:
                    break
        return int(seen)

    def read_clock(self) -> Reading | None:
        """What the GPU's counter shows now; None where its driver has no way to ask."""
        return None

    def compare_clocks(self) -> Compared | None:
        readings = [found for _ in range(CLOCK_READINGS) if (found := self.read_clock()) is not None]
        if not readings:
            return None
        best = min(readings, key=lambda reading: reading.took_ns)
        return Compared(self.moment_ns(best.ticks), best.host_ns, (best.took_ns + 1) // 2)

    def moment_ns(self, ticks: int) -> int:
        return self.clock.to_ns(ticks)

    def duration_ns(self, ticks: int) -> int:
        return self.clock.duration_ns(ticks)

    # ------------------------------------------------------------ faults

    def fault(self) -> str:
        if not self._fault:
            self._fault = "the work in flight was abandoned" if self._abandoned else self.stopped_on()
        return self._fault

    def abandon(self) -> None:
        with self.lock:
            self._abandoned = True
            self.end_queues()

    def recover(self) -> None:
        self._abandoned = True  # until all is done: who is interrupted here comes here again
        try:
            self.end_queues()
            self.make_queues()
        except DriverError as refusal:
            self.lose(refusal)
        self.uploads.clear()
        self._fault = ""
        self._abandoned = False

    def stop(self, timeout_ms: float) -> bool:
        try:
            do_all((self.end_queues, self.end_rest, self._give_back_owned))
        except DriverError as error:
            print(f"hcq: closing {self.name}: {error}", file=sys.stderr)
            return False  # the GPU may still use its memory: it goes with the process
        return True  # memory of buffers goes back with the pool; the signals' stays for those who still read them

    def unwind(self) -> None:
        """The error that led here is the one to raise."""
        quietly(self.end_queues)
        if hasattr(self, "gpu_memory"):
            self.gpu_memory.close()
        quietly(self.end_rest)

    def describe_address(self, va: int) -> str:
        """Which buffer an address is in, or near, in words."""
        return describe_address(self, va)

    # ------------------------------------------------------------ work

    def _rebuild(self) -> None:
        """Before new work: the call that ended the work in flight may not have made the device usable again."""
        self.note_fault(is_asked_for=True)
        self.check_alive()

    def queue(self) -> GpuQueue:
        return GpuQueue(self)

    def run(self, program: Program, args: Sequence[Any] = (), grid: Grid = ONE, block: Grid = ONE) -> None:
        self.queue().dispatch(program, args, grid, block).submit().wait()

    def make_program(
        self, image: bytes, entry: str, args: tuple[str, ...] | None, scratch_bytes: int, name: str
    ) -> Program:
        if scratch_bytes:
            raise UsageError(
                f"load({name!r}): scratch_bytes={scratch_bytes}; a GPU's kernel says what it needs. Leave it out."
            )
        module = self.load_module(image, name, entry)
        module.check_entry(entry)
        made = module.make(entry, args, name)
        made.has_variables = module.has_writable
        return made

    def module(self, image: bytes, name: str = "module") -> GpuModule:
        self.check_alive()
        image = bytes(checks.memory("module", image))
        checks.text("module", "name", name)
        taken = self.take_out(image, name, None)
        return self.memory.with_room(lambda: self.load_module(taken, name))

    def _alloc_aligned(self, size_bytes: int, alignment: int, name: str) -> tuple[Buffer, int]:
        """A buffer, and an aligned address in it behind which so many bytes follow."""
        buffer = self.alloc(size_bytes + alignment, name)
        return buffer, -(-buffer.address // alignment) * alignment
