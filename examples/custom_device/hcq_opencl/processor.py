"""The command processor: a thread that reads packets and asks OpenCL to do what they say.

In       submissions, as bytes
Out      work done in the order of submission; cells written when an event says that all before is done
Changes  memory, by an in-order command queue
Next     packets.py (the words), device.py (who submits), api.py (the calls)
"""

from __future__ import annotations

import contextlib
import os
import queue
import struct
import threading
import time
from typing import Any

from hcq.errors import HcqError
from hcq.layout import Packet
from hcq.signal import CELL_BYTES
from hcq.system import native
from hcq_opencl import packets
from hcq_opencl.api import OpenCl
from hcq_opencl.kernel import Kernel


class Stopped(Exception):
    """The processor cannot go on; the message says why."""


class Processor:
    """One queue of OpenCL, and the thread that feeds it.

    kernels  entry -> what a Launch names
    stopped  what it stopped on, or ""; until `go_on` nothing runs
    """

    def __init__(self, cl: OpenCl, context: Any, device: Any, name: str) -> None:
        self.cl, self.null = cl, cl.ffi.NULL
        self.queue = cl.create("clCreateCommandQueueWithProperties", context, device, self.null)
        # submissions with their numbers; entries of kernels that are not needed any more; None at the end
        self.ring: queue.SimpleQueue[tuple[int, bytes] | int | None] = queue.SimpleQueue()
        self.changed = threading.Condition()  # a cell was written, or waits are given up, or it stopped
        self.kernels: dict[int, Kernel] = {}
        self.stopped = ""
        self.gives_up = False
        self.dropped = 0  # the last submission that is not run, because it came before a fault was seen
        self.packets = self.launches = 0
        self.process = os.getpid()
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.thread.start()

    # ------------------------------------------------------------ for the host

    def store(self, cell: int, value: int) -> None:
        """Write a cell and wake those that wait."""
        with self.changed:
            native.write(cell, struct.pack("<QQ", value, time.monotonic_ns()), CELL_BYTES)
            self.changed.notify_all()

    def wait(self, cell: int, value: int, timeout_ns: int) -> int:
        """What a cell holds once it is at least `value`, the processor stopped, or the time is over."""
        with self.changed:
            self.changed.wait_for(lambda: _value(cell) >= value or self.stopped, timeout_ns / 1e9)
        return _value(cell)

    def give_up_waits(self, is_so: bool) -> None:
        """Whether a Wait packet is a fault: how work that hangs is ended."""
        with self.changed:
            self.gives_up = is_so
            self.changed.notify_all()

    def go_on(self, dropped: int) -> None:
        """After it stopped: run what is submitted from now on, and nothing up to `dropped`."""
        self.dropped = dropped
        self.stopped = ""

    def discard(self, entry: int) -> None:
        """Release a kernel once the submissions that may name it have been read. Called by destructors."""
        if self.thread.is_alive():
            self.ring.put(entry)
        elif os.getpid() == self.process:  # in a child of fork it is the parent's
            self.kernels.pop(entry).release()

    def end(self, timeout_ms: float) -> bool:
        """Whether the thread ended in time."""
        self.give_up_waits(True)
        self.ring.put(None)
        self.thread.join(timeout_ms / 1000)
        return not self.thread.is_alive()

    # ------------------------------------------------------------ the thread

    def _work(self) -> None:
        while (what := self.ring.get()) is not None:
            if isinstance(what, int):
                self.kernels.pop(what).release()
                continue
            number, words = what
            if self.stopped or number <= self.dropped:
                continue
            try:
                self._run(words)
            except Exception as error:
                with contextlib.suppress(HcqError):
                    self._finish()  # nothing of it runs when the host hears of it
                with self.changed:
                    self.stopped = f"the command processor stopped: {error}"
                    self.changed.notify_all()

    def _run(self, words: bytes) -> None:
        for packet in packets.decode(memoryview(words).cast("I")):
            self.packets += 1
            self._execute(packet)

    def _execute(self, packet: Packet) -> None:
        match packet:
            case packets.Launch():
                self._launch(packet)
            case packets.Copy():
                self._copy(packet.dst, packet.src, packet.size_bytes)
            case packets.Fill():
                self._fill(packet.dst, packet.pattern.to_bytes(8, "little"), packet.size_bytes)
            case packets.Wait():
                self._await(packet)
            case packets.Signal():
                self._finish()
                self.store(packet.cell, packet.value)
            case packets.Stamp():
                self._finish()
                native.write(packet.address, struct.pack("<Q", time.monotonic_ns()), 8)
            case packets.Run():
                self._finish()  # what is before it may write the block
                self._run(native.read(packet.address, 4 * packet.size_words))
            case packets.Barrier():
                pass
            case _:
                raise Stopped(f"{packet} is no packet")

    def _finish(self) -> None:
        """Return once all that was enqueued is done: an event says so, or what failed."""
        event = self.cl.ffi.new("void **")
        self.cl.call("clEnqueueMarkerWithWaitList", self.queue, 0, self.null, event)
        try:
            self.cl.call("clWaitForEvents", 1, event)
        finally:
            self.cl.call("clReleaseEvent", event[0])

    def _launch(self, packet: Any) -> None:
        kernel = self.kernels.get(packet.entry)
        if kernel is None:
            raise Stopped(f"no kernel is loaded at {packet.entry:#x}")
        self.launches += 1
        kernel.set_arguments(struct.pack(f"<{len(packet.tail_words)}I", *packet.tail_words))
        block = packet.block_x, packet.block_y, packet.block_z
        grid = packet.grid_x, packet.grid_y, packet.grid_z
        sizes = self.cl.ffi.new("size_t[3]", [groups * threads for groups, threads in zip(grid, block)])
        threads = self.cl.ffi.new("size_t[3]", block)
        rest = (self.null, sizes, threads, 0, self.null, self.null)
        self.cl.call("clEnqueueNDRangeKernel", self.queue, kernel.handle, 3, *rest)

    def _copy(self, dst: int, src: int, size_bytes: int) -> None:
        if abs(dst - src) < size_bytes:  # clEnqueueSVMMemcpy refuses what overlaps
            self._finish()
            self._upload(dst, native.read(src, size_bytes))
        elif size_bytes:
            to, source = self.cl.pointer(dst), self.cl.pointer(src)
            self.cl.call("clEnqueueSVMMemcpy", self.queue, 0, to, source, size_bytes, 0, self.null, self.null)

    def _fill(self, dst: int, pattern: bytes, size_bytes: int) -> None:
        if dst % 8 or size_bytes % 8:  # clEnqueueSVMMemFill wants whole patterns
            self._upload(dst, (pattern * (size_bytes // 8 + 1))[:size_bytes])
        elif size_bytes:
            what = self.cl.ffi.new("char[]", pattern)
            rest = (8, size_bytes, 0, self.null, self.null)
            self.cl.call("clEnqueueSVMMemFill", self.queue, self.cl.pointer(dst), what, *rest)

    def _upload(self, dst: int, data: bytes) -> None:
        """Bytes of the host, copied before it goes on."""
        if data:
            source = self.cl.ffi.from_buffer(data)
            rest = (len(data), 0, self.null, self.null)
            self.cl.call("clEnqueueSVMMemcpy", self.queue, 1, self.cl.pointer(dst), source, *rest)

    def _await(self, packet: Any) -> None:
        self.cl.call("clFlush", self.queue)  # what is before it runs meanwhile
        with self.changed:
            self.changed.wait_for(lambda: self.gives_up or _value(packet.cell) >= packet.value)
        if _value(packet.cell) < packet.value:
            raise Stopped(f"{packet} was abandoned")


def _value(cell: int) -> int:
    return int.from_bytes(native.read(cell, 8), "little")
