"""The device: what hcq asks of a driver, answered with WebGPU.

In       commands, programs in WGSL, requests for memory
Out      words for the processor, and what they did
Changes  a device of WebGPU's and its buffers; a thread, made when it opens and ended when it closes
Next     areas.py (memory), processor.py (who does the work), hcq/device.py and hcq/lifetime/recovery.py (what calls
         each method, and when)

Two kinds of memory: buffers are WebGPU's, under addresses that are nobody's memory in this process, and the host reads
and writes them by copies. Cells of signals and blocks of packets are the host's own: only the processor's thread and
the host use them, never WebGPU.
"""

from __future__ import annotations

import itertools
import math
import mmap
from collections.abc import Sequence
from typing import Any

from hcq import checks
from hcq.base import Grid, Sent
from hcq.command import Command, Dispatch
from hcq.device import Device, Steps
from hcq.errors import DriverError, UsageError
from hcq.layout import Packet
from hcq.memory import Buffer
from hcq.program import Program, Slot
from hcq.signal import CELL_BYTES, Signal, Timeline
from hcq.system import native
from hcq.system.port import PAGE_BYTES
from hcq_webgpu import packets
from hcq_webgpu.api import Gpu
from hcq_webgpu.areas import FIRST_ADDRESS, Areas
from hcq_webgpu.commands import BEHIND, Commands
from hcq_webgpu.kernel import Kernel, fitting
from hcq_webgpu.processor import Processor

PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE


class WebGpuDevice(Device):
    """A device of WebGPU: one queue, memory that the host reaches by copies."""

    # ------------------------------------------------------------ opening and closing

    def open_adapter(self) -> None:
        self.gpu = Gpu(int(self.name.partition(":")[2] or 0))
        self.arch = packets.ARCHS[self.gpu.has_float64 + 2 * (packets.SHORT in self.gpu.model)]

    def check_limits(self) -> None:
        """Buffers begin at multiples of 64 bytes, or of what the adapter wants of a binding."""
        limits = self.gpu.limits
        self.alignment = max(self.alignment, limits["min-storage-buffer-offset-alignment"])
        self.memory.alignment = self.alignment
        self.most_bytes = limits["max-storage-buffer-binding-size"] - BEHIND
        self.most_threads = limits["max-compute-invocations-per-workgroup"]
        self.most_groups = limits["max-compute-workgroups-per-dimension"]

    def make_memory(self) -> None:
        self.areas = Areas(self.gpu)
        self.seen: dict[int, int] = {}  # the host's: address -> bytes

    def make_timeline(self) -> None:
        cell = Buffer(self, self.map_seen(PAGE_BYTES), PAGE_BYTES, PAGE_BYTES, 0, "timeline")
        cell.parent = cell  # the device's own: it never goes to the pool
        self.timeline = Timeline(self, cell, "timeline")
        self.finish = lambda value: packets.Store(cell=self.timeline.va, value=value).to_bytes()

    def start_processor(self) -> None:
        self.sent, self.numbers = 0, itertools.count(1)
        self.processor = Processor(Commands(self.gpu, self.areas), self.name)

    steps = Steps["WebGpuDevice"](
        "open WebGPU device",
        ("open an adapter", open_adapter),
        ("check its limits", check_limits),
        ("make memory", make_memory),
        ("make the timeline", make_timeline),
        ("start the processor", start_processor),
    )

    def stop(self, timeout_ms: float) -> bool:
        return self.processor.end(timeout_ms)

    def unwind(self) -> None:
        if not hasattr(self, "processor") or self.stop(1000):
            self.give_back()

    def give_back(self) -> None:
        if hasattr(self, "areas"):
            for va in [*self.areas.all(), *self.seen]:
                self.unmap_memory(va, 0)
        if hasattr(self, "gpu"):
            self.gpu.close()

    def facts(self) -> dict[str, Any]:
        facts = {"name": self.name, "arch": self.arch, "model": self.gpu.model, "driver": self.gpu.driver}
        return {**facts, "timeline": self.timeline.va, "limits": self.gpu.limits}

    def stats(self) -> dict[str, int]:
        done = self.processor
        return {"submissions": self.timeline.submitted, "packets": done.packets, "dispatches": done.launches}

    # ------------------------------------------------------------ memory

    def map_memory(self, size_bytes: int) -> int:
        if size_bytes > self.most_bytes:
            raise DriverError(
                f"createBuffer({size_bytes} bytes): a kernel of this adapter sees {self.most_bytes} at most. "
                "Use several buffers."
            )
        return self.areas.map(size_bytes)

    def map_seen(self, size_bytes: int) -> int:
        """Memory of the host's."""
        va = self.port.mmap(0, size_bytes, READ_WRITE, PRIVATE)
        self.seen[va] = size_bytes
        return va

    def unmap_memory(self, va: int, size_bytes: int) -> None:
        if va in self.seen:
            self.port.munmap(va, self.seen.pop(va))
        else:
            self.areas.unmap(va)

    def visible(self, size_bytes: int, name: str) -> Buffer:
        return self.memory.alloc_apart(size_bytes, name, self.map_seen)

    def signal(self, name: str = "signal") -> Signal:
        return Signal(self, self.visible(CELL_BYTES, checks.text("signal", "name", name)), name)

    def view_memory(self, va: int, size_bytes: int, owner: object) -> memoryview:
        if va >= FIRST_ADDRESS:
            raise UsageError(f"{owner!r}.host: the host does not see WebGPU's memory. Use read and write.")
        return native.view(va, size_bytes, owner)

    def write_memory(self, va: int, data: Any, size_bytes: int) -> None:
        area = self.areas.find(va)
        if area is None:
            native.write(va, data, size_bytes)
        else:
            self.areas.write(area, va, memoryview(data).cast("B"))

    def read_memory(self, va: int, size_bytes: int) -> bytes:
        area = self.areas.find(va)
        return native.read(va, size_bytes) if area is None else self.areas.read(area, va, size_bytes)

    peek_memory = read_memory

    def read_memory_into(self, va: int, target: Any, size_bytes: int) -> None:
        memoryview(target).cast("B")[:size_bytes] = self.read_memory(va, size_bytes)

    # ------------------------------------------------------------ programs and encoding

    def make_program(
        self, image: bytes, entry: str, args: tuple[str, ...] | None, scratch_bytes: int, name: str
    ) -> Program:
        if scratch_bytes:
            raise UsageError(
                f"load({name!r}): scratch_bytes={scratch_bytes}; WGSL says it itself. Leave it out."
            )
        kernel = Kernel(self.gpu, image, entry, name)
        kinds = tuple(kernel.kinds)
        if args is not None and args != kinds:
            raise UsageError(f"load({name!r}): args={args}, and {entry} takes {kinds}.")
        number = next(self.numbers)
        self.processor.kernels[number] = kernel
        return Program(self, name, number, kinds, 0, lambda: self.processor.discard(number))

    def encode(self, what: Command) -> bytes:
        if isinstance(what, Dispatch):
            return self.encode_dispatch(what.program, what.args, what.grid, what.block, 0)[0]
        return packets.encode(what)

    def decode(self, words: Sequence[int]) -> list[Packet]:
        return packets.decode(words)

    def encode_dispatch(
        self, program: Program, args: Sequence[Any], grid: Grid, block: Grid, groups_per_claim: int
    ) -> tuple[bytes, tuple[int | float, ...]]:
        if self.dead:
            self.check_alive()
        call = f"dispatch {program.name}"
        if program.device is not self:
            raise UsageError(f"{call}: it was loaded on {program.device.name}. Load it on {self.name}, too.")
        if program.args is None or len(program.args) != len(args):
            raise UsageError(f"{call}: takes {len(program.args or ())} arguments, got {len(args)}.")
        kernel = self.processor.kernels[program.entry]
        if tuple(block) != kernel.block:
            raise UsageError(f"{call}: block={block}, and its @workgroup_size is {kernel.block}.")
        if math.prod(block) > self.most_threads or any(size < 1 for size in grid):
            raise UsageError(
                f"{call}: grid={grid}, block={block}; at least 1, {self.most_threads} in a block."
            )
        if any(size > self.most_groups for size in kernel.groups(grid)):
            raise UsageError(
                f"{call}: grid={grid}; this adapter has {self.most_groups} groups in a dimension. Use several."
            )
        tail = bytearray(8 * len(args))
        values: list[int | float] = []
        for index, (arg, kind, slot) in enumerate(zip(args, program.args, kernel.slots)):
            value = fitting(self, f"{call}: argument {index}", arg, kind, slot)
            if kind == "buffer" and (value < FIRST_ADDRESS or value % self.binding_alignment):
                raise UsageError(
                    f"{call}: argument {index}, {arg!r}; a kernel takes buffers of alloc() and views of them that "
                    f"begin at multiples of {self.binding_alignment} bytes."
                )
            write, at, mask = slot.store_at(slot.offset)
            write(tail, at, value & mask if mask else value)
            values.append(value)
        (x, y, z), (threads_x, threads_y, threads_z) = grid, block
        head = packets.Dispatch(
            length=packets.Dispatch.length_words + len(tail) // 4,
            kernel=program.entry,
            grid_x=x,
            grid_y=y,
            grid_z=z,
            block_x=threads_x,
            block_y=threads_y,
            block_z=threads_z,
        )
        return head.to_bytes() + tail, tuple(values)

    @property
    def binding_alignment(self) -> int:
        """Where a kernel's buffer may begin, in bytes."""
        return self.gpu.limits["min-storage-buffer-offset-alignment"]

    def argument_slot(self, program: Program, args: Sequence[Any], index: int) -> Slot:
        slot = self.processor.kernels[program.entry].slots[index]
        return slot._replace(offset=4 * packets.Dispatch.length_words + slot.offset)

    # ------------------------------------------------------------ submitting and waiting

    def send(self, words: list[bytes], value: int) -> None:
        self.processor.put(value, b"".join(words) + self.finish(value))
        self.sent = value

    def settle(self, value: int) -> Sent:
        return Sent.ALL if self.sent >= value else Sent.NOTHING

    def signal_set(self, va: int, value: int) -> None:
        self.processor.store(va, value)

    def signal_wait(self, va: int, value: int, timeout_ns: int) -> int:
        return self.processor.wait(va, value, timeout_ns)

    # ------------------------------------------------------------ when something goes wrong

    def fault(self) -> str:
        return self.processor.stopped

    def recover(self) -> None:
        self.processor.go_on(self.sent)

    def abandon(self) -> None:
        self.processor.abandon_waits(True)

    def resume(self) -> None:
        self.processor.abandon_waits(False)
