"""The device: what hcq asks of a driver, answered with OpenCL.

In       commands, programs in OpenCL C, requests for memory
Out      words for the processor, and what they did
Changes  OpenCL's context and memory; a thread, made when it opens and ended when it closes
Next     processor.py (who does the work), hcq/device.py and hcq/lifetime/recovery.py (what calls each method, and when)
Source   OpenCL 3.0 API specification: shared virtual memory, fine-grained buffers
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from hcq.base import Grid, Sent
from hcq.command import Command, Dispatch
from hcq.device import Device, Steps
from hcq.errors import DriverError, UsageError
from hcq.layout import Packet
from hcq.memory import Buffer
from hcq.program import Program, Slot
from hcq.signal import Timeline
from hcq.system.port import PAGE_BYTES
from hcq_opencl import api, packets
from hcq_opencl.kernel import Kernel, fitting
from hcq_opencl.processor import Processor

SHARED = 1 << 0 | 1 << 10  # CL_MEM_READ_WRITE, CL_MEM_SVM_FINE_GRAIN_BUFFER
MAX_GRID = 2**32 - 1


class OpenClDevice(Device):
    """A device of OpenCL whose kernels take the host's addresses: one context, one in-order queue."""

    # ------------------------------------------------------------ opening and closing

    def load_library(self) -> None:
        self.arch = packets.ARCH
        self.cl = api.OpenCl()

    def find_device(self) -> None:
        found, index = self.cl.devices(), int(self.name.partition(":")[2] or 0)
        if index >= len(found):
            raise DriverError(
                f"clGetDeviceIDs: {len(found)} devices that share fine-grained memory with the host. {api.INSTALL}"
            )
        self.id = found[index]
        self.model = self.cl.text("clGetDeviceInfo", self.id, api.DEVICE_NAME)
        self.version = self.cl.text("clGetDeviceInfo", self.id, api.DRIVER_VERSION)
        self.most_threads = self.cl.number("clGetDeviceInfo", self.id, api.GROUP_SIZE)

    def make_context(self) -> None:
        null = self.cl.ffi.NULL
        self.context = self.cl.create(
            "clCreateContext", null, 1, self.cl.ffi.new("void **", self.id), null, null
        )
        self.mapped: dict[int, Any] = {}  # the address we gave -> what clSVMAlloc gave us

    def make_timeline(self) -> None:
        cell = Buffer(self, self.map_memory(PAGE_BYTES), PAGE_BYTES, PAGE_BYTES, 0, "timeline")
        cell.parent = cell  # the device's own: it never goes to the pool
        self.timeline = Timeline(self, cell, "timeline")
        self.finish = lambda value: packets.Signal(cell=self.timeline.va, value=value).to_bytes()

    def start_processor(self) -> None:
        self.sent, self.entries = 0, itertools.count(1)
        self.processor = Processor(self.cl, self.context, self.id, self.name)

    steps = Steps["OpenClDevice"](
        "open OpenCL device",
        ("load the library", load_library),
        ("find a device", find_device),
        ("make a context", make_context),
        ("make the timeline", make_timeline),
        ("start the processor", start_processor),
    )

    def stop(self, timeout_ms: float) -> bool:
        return self.processor.end(timeout_ms)

    def unwind(self) -> None:
        if not hasattr(self, "processor") or self.stop(1000):
            self.give_back()

    def give_back(self) -> None:
        if hasattr(self, "processor"):
            self.cl.library.clReleaseCommandQueue(self.processor.queue)
        if hasattr(self, "context"):
            for va in list(self.mapped):
                self.unmap_memory(va, 0)
            self.cl.library.clReleaseContext(self.context)

    def facts(self) -> dict[str, Any]:
        facts = {"name": self.name, "arch": self.arch, "model": self.model, "driver": self.version}
        return {**facts, "timeline": self.timeline.va, "most_threads": self.most_threads}

    def stats(self) -> dict[str, int]:
        done = self.processor
        return {"submissions": self.timeline.submitted, "packets": done.packets, "dispatches": done.launches}

    # ------------------------------------------------------------ memory and programs

    def map_memory(self, size_bytes: int) -> int:
        given = self.cl.library.clSVMAlloc(self.context, SHARED, size_bytes + PAGE_BYTES, 0)
        if not given:
            raise DriverError(
                f"clSVMAlloc({size_bytes + PAGE_BYTES} bytes): there is not so much. Free buffers."
            )
        va = -(-int(self.cl.ffi.cast("uintptr_t", given)) // PAGE_BYTES) * PAGE_BYTES
        self.mapped[va] = given
        return va

    def unmap_memory(self, va: int, size_bytes: int) -> None:
        self.cl.library.clSVMFree(self.context, self.mapped.pop(va))

    def make_program(
        self, image: bytes, entry: str, args: tuple[str, ...] | None, scratch_bytes: int, name: str
    ) -> Program:
        if scratch_bytes:
            raise UsageError(
                f"load({name!r}): scratch_bytes={scratch_bytes}; OpenCL C says it itself. Leave it out."
            )
        kernel = Kernel(self.cl, self.context, self.id, image, entry, name)
        kinds = tuple(kernel.kinds)
        if args is not None and args != kinds:
            kernel.release()
            raise UsageError(f"load({name!r}): args={args}, and {entry} takes {kinds}.")
        va = next(self.entries)
        self.processor.kernels[va] = kernel
        return Program(self, name, va, kinds, 0, lambda: self.processor.discard(va))

    # ------------------------------------------------------------ encoding

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
        if any(not 0 < size <= MAX_GRID for size in (*grid, *block)) or math.prod(block) > self.most_threads:
            raise UsageError(
                f"{call}: grid={grid}, block={block}; sizes are 1 to {MAX_GRID}, and a block has at most "
                f"{self.most_threads} threads."
            )
        tail = bytearray(8 * len(args))
        values: list[int | float] = []
        for index, (arg, kind) in enumerate(zip(args, program.args)):
            slot = self.processor.kernels[program.entry].slots[index]
            value = fitting(self, f"{call}: argument {index}", arg, kind, slot)
            write, at, mask = slot.store_at(slot.offset)
            write(tail, at, value & mask if mask else value)
            values.append(value)
        (x, y, z), (threads_x, threads_y, threads_z) = grid, block
        head = packets.Launch(
            length=packets.Launch.length_words + len(tail) // 4,
            entry=program.entry,
            grid_x=x,
            grid_y=y,
            grid_z=z,
            block_x=threads_x,
            block_y=threads_y,
            block_z=threads_z,
        )
        return head.to_bytes() + tail, tuple(values)

    def argument_slot(self, program: Program, args: Sequence[Any], index: int) -> Slot:
        slot = self.processor.kernels[program.entry].slots[index]
        return slot._replace(offset=4 * packets.Launch.length_words + slot.offset)

    # ------------------------------------------------------------ submitting and waiting

    def send(self, words: list[bytes], value: int) -> None:
        self.processor.ring.put((value, b"".join(words) + self.finish(value)))
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
        self.processor.give_up_waits(True)

    def resume(self) -> None:
        self.processor.give_up_waits(False)
