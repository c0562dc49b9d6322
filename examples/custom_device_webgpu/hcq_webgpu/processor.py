"""The command processor: a thread that reads packets and has WebGPU do what they say.

In       submissions, as bytes
Out      work done in the order of submission; cells of the host's memory, written once all before is done
Changes  memory
Next     packets.py (the words), commands.py (the calls), device.py (who submits)

WebGPU has no signals: nothing in its queue waits for a cell or writes one that the host polls. So the thread does both.
"""

from __future__ import annotations

import os
import queue
import struct
import threading
import time

from hcq.layout import Packet
from hcq.signal import CELL_BYTES
from hcq.system import native
from hcq_webgpu import packets
from hcq_webgpu.areas import FIRST_ADDRESS
from hcq_webgpu.commands import Commands
from hcq_webgpu.kernel import Kernel


class Stopped(Exception):
    """The processor cannot go on; the message says why."""


class Processor:
    """A thread and what it knows.

    kernels  what a Dispatch packet calls them -> what it dispatches
    stopped  what it stopped on, or ""; until `go_on` nothing runs
    """

    def __init__(self, commands: Commands, name: str) -> None:
        self.commands = commands
        self.kernels: dict[int, Kernel] = {}
        self.stopped = ""
        self.packets = self.launches = 0
        self._dropped = 0  # submissions up to this one are not run
        self._abandons = False
        # submissions with their numbers; a kernel's number once nobody needs it; None at the end
        self._ring: queue.SimpleQueue[tuple[int, bytes] | int | None] = queue.SimpleQueue()
        self._changed = threading.Condition()  # a cell, or whether waits are abandoned, or whether it stopped
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ for the host

    def put(self, number: int, words: bytes) -> None:
        """Submit packets."""
        self._ring.put((number, words))

    def store(self, cell: int, value: int) -> None:
        """Write a cell and wake those that wait."""
        with self._changed:
            native.write(cell, struct.pack("<QQ", value, time.monotonic_ns()), CELL_BYTES)
            self._changed.notify_all()

    def wait(self, cell: int, value: int, timeout_ns: int) -> int:
        """What a cell holds once it is at least `value`, the processor stopped, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: _value(cell) >= value or self.stopped, timeout_ns / 1e9)
        return _value(cell)

    def abandon_waits(self, is_so: bool) -> None:
        """Whether an Await packet is a fault: how work that hangs is ended."""
        with self._changed:
            self._abandons = is_so
            self._changed.notify_all()

    def go_on(self, dropped: int) -> None:
        """After it stopped: run what is submitted from now on, and nothing up to `dropped`."""
        self._dropped = dropped
        self.stopped = ""

    def discard(self, number: int) -> None:
        """Forget a kernel once the submissions that may name it have been read. Called by destructors."""
        if os.getpid() == self._process:  # in a child of fork it is the parent's
            self._ring.put(number)

    def end(self, timeout_ms: float) -> bool:
        """Whether the thread ended in time."""
        self.abandon_waits(True)
        self._ring.put(None)
        self._thread.join(timeout_ms / 1000)
        return not self._thread.is_alive()

    # ------------------------------------------------------------ the thread

    def _work(self) -> None:
        while (what := self._ring.get()) is not None:
            if isinstance(what, int):
                self.kernels.pop(what, None)
                continue
            number, words = what
            if self.stopped or number <= self._dropped:
                continue
            try:
                self._run(words)
            except Exception as error:
                self._stop(error)

    def _stop(self, error: Exception) -> None:
        why = f"the command processor stopped: {error}"
        try:
            self.commands.drop()  # nothing of it runs when the host hears of it
        except Exception as another:
            why = f"{why} Then: {another}"
        with self._changed:
            self.stopped = why
            self._changed.notify_all()

    def _run(self, words: bytes) -> None:
        for packet in packets.decode(memoryview(words).cast("I")):
            self.packets += 1
            self._execute(packet)

    def _execute(self, packet: Packet) -> None:
        match packet:
            case packets.Dispatch():
                self._dispatch(packet)
            case packets.Copy():
                self.commands.copy(packet.dst, packet.src, packet.size_bytes)
            case packets.Fill():
                self.commands.fill(packet.dst, packet.pattern.to_bytes(8, "little"), packet.size_bytes)
            case packets.Await():
                self._await(packet)
            case packets.Store():
                self._check_seen(packet, packet.cell)
                self.commands.finish()
                self.store(packet.cell, packet.value)
            case packets.Time():
                self.commands.finish()
                self.commands.write(packet.address, struct.pack("<Q", time.monotonic_ns()))
            case packets.Execute():
                self._check_seen(packet, packet.address)
                self.commands.finish()  # what is before it may write the block
                self._run(native.read(packet.address, 4 * packet.size_words))
            case packets.Barrier():
                pass
            case _:
                raise Stopped(f"{packet} is no packet")

    def _dispatch(self, packet: packets.Dispatch) -> None:
        kernel = self.kernels.get(packet.kernel)
        if kernel is None:
            raise Stopped(f"no kernel is loaded as {packet.kernel}")
        self.launches += 1
        data = struct.pack(f"<{len(packet.tail_words)}I", *packet.tail_words)
        self.commands.launch(kernel, packet.kernel, (packet.grid_x, packet.grid_y, packet.grid_z), data)

    def _await(self, packet: packets.Await) -> None:
        self._check_seen(packet, packet.cell)
        self.commands.flush()  # what is before it runs meanwhile
        with self._changed:
            self._changed.wait_for(lambda: self._abandons or _value(packet.cell) >= packet.value)
        if _value(packet.cell) < packet.value:
            raise Stopped(f"{packet} was abandoned")

    def _check_seen(self, packet: Packet, va: int) -> None:
        """Cells and blocks are the host's memory."""
        if va >= FIRST_ADDRESS:
            raise Stopped(f"{packet}: WebGPU's memory holds no cells and no packets")


def _value(cell: int) -> int:
    return int.from_bytes(native.read(cell, 8), "little")
