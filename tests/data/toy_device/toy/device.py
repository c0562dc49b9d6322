"""The toy: a device whose hardware is a thread of Python.

In       words of packets.py
Out      work done in the order of submission
Changes  memory; a thread and a timeline, made when it opens and ended when it closes
Next     packets.py (the words), hcq/device.py (what every device does alike)
"""

from __future__ import annotations

import queue
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from hcq.base import Grid, Sent
from hcq.command import Command, Dispatch
from hcq.device import Device, Steps
from hcq.errors import UsageError
from hcq.layout import Packet
from hcq.memory import Buffer
from hcq.program import Program, Slot
from hcq.signal import CELL_BYTES, Timeline
from hcq.system import native
from hcq.system.port import MAP_ANONYMOUS, MAP_PRIVATE, PAGE_BYTES, PROT_READ, PROT_WRITE
from toy import machine, packets

CODE_AT = 1 << 60  # entries of programs: numbers that are no address of memory
MAX_GRID = 1 << 20


class Stopped(Exception):
    """The processor cannot go on; the message says why."""


class ToyDevice(Device):
    """Memory is the host's, a submission is a string of bytes in a queue, and a kernel is a function."""

    # ------------------------------------------------------------ opening and closing

    def make_timeline(self) -> None:
        self.arch = packets.ARCH
        self.cell = Buffer(self, self.map_memory(PAGE_BYTES), PAGE_BYTES, PAGE_BYTES, 0, "timeline")
        self.cell.parent = self.cell  # the device's own: it never goes to the pool
        self.timeline = Timeline(self, self.cell, "timeline")
        self.finish = lambda value: packets.Signal(cell=self.timeline.va, value=value).to_bytes()

    def start_processor(self) -> None:
        self.ring: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.changed = threading.Condition()  # a cell was written, or a wait is to be given up
        self.kernels: dict[int, Callable[..., None]] = {}
        self.sent = self.launches = self.count = 0
        self.stopped = ""
        self.gives_up = False
        self.thread = threading.Thread(target=self.work, name=self.name, daemon=True)
        self.thread.start()

    steps = Steps["ToyDevice"](
        "open toy device", ("make the timeline", make_timeline), ("start its processor", start_processor)
    )

    def stop(self, timeout_ms: float) -> bool:
        self.abandon()
        self.ring.put(None)
        self.thread.join(timeout_ms / 1000)
        return not self.thread.is_alive()

    def unwind(self) -> None:
        if not hasattr(self, "thread") or self.stop(1000):
            self.give_back()

    def give_back(self) -> None:
        if hasattr(self, "cell"):
            self.unmap_memory(self.cell.address, PAGE_BYTES)

    def facts(self) -> dict[str, Any]:
        return {"name": self.name, "arch": self.arch, "model": "toy", "timeline": self.timeline.va}

    def stats(self) -> dict[str, int]:
        return {"submissions": self.timeline.submitted, "packets": self.count, "dispatches": self.launches}

    # ------------------------------------------------------------ memory and programs

    def map_memory(self, size_bytes: int) -> int:
        return self.port.mmap(0, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)

    def unmap_memory(self, va: int, size_bytes: int) -> None:
        self.port.munmap(va, size_bytes)

    def make_program(
        self, image: bytes, entry: str, args: tuple[str, ...] | None, scratch_bytes: int, name: str
    ) -> Program:
        found: dict[str, Any] = {}
        try:
            exec(compile(image, name, "exec"), found)
            kernel = found[entry]
        except (SyntaxError, ValueError, KeyError) as error:
            raise UsageError(f"load({name!r}): this is no code for {self.name} ({error!r}).") from None
        va = CODE_AT + id(kernel)
        self.kernels[va] = kernel
        return Program(self, name, va, args, scratch_bytes, lambda: self.kernels.pop(va))

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
        if program.args is not None and len(program.args) != len(args):
            raise UsageError(
                f"dispatch {program.name}: takes {len(program.args)} arguments, got {len(args)}."
            )
        values = tuple([arg.address if isinstance(arg, Buffer) else arg for arg in args])
        tail = struct.pack("<" + "".join(["d" if type(arg) is float else "q" for arg in values]), *values)
        x, y, z = grid
        head = packets.Launch(
            length=packets.Launch.length_words + len(tail) // 4,
            entry=program.entry,
            grid_x=x,
            grid_y=y,
            grid_z=z,
        )
        return head.to_bytes() + tail, values

    def argument_slot(self, program: Program, args: Sequence[Any], index: int) -> Slot:
        letter = "d" if isinstance(args[index], float) else "Q"
        return Slot(4 * packets.Launch.length_words + 8 * index, 8, letter)

    # ------------------------------------------------------------ submitting and waiting

    def send(self, words: list[bytes], value: int) -> None:
        self.ring.put(b"".join(words) + self.finish(value))
        self.sent = value

    def settle(self, value: int) -> Sent:
        return Sent.ALL if self.sent >= value else Sent.NOTHING

    def signal_set(self, va: int, value: int) -> None:
        with self.changed:
            native.write(va, struct.pack("<QQ", value, time.monotonic_ns()), CELL_BYTES)
            self.changed.notify_all()

    def signal_wait(self, va: int, value: int, timeout_ns: int) -> int:
        with self.changed:
            self.changed.wait_for(lambda: self.value_of(va) >= value or self.stopped, timeout_ns / 1e9)
        return self.value_of(va)

    def value_of(self, va: int) -> int:
        return int.from_bytes(native.read(va, 8), "little")

    # ------------------------------------------------------------ when something goes wrong

    def fault(self) -> str:
        return self.stopped

    def recover(self) -> None:
        while not self.ring.empty():
            self.ring.get()
        self.stopped = ""

    def abandon(self) -> None:
        with self.changed:
            self.gives_up = True
            self.changed.notify_all()

    def resume(self) -> None:
        self.gives_up = False

    # ------------------------------------------------------------ the processor

    def work(self) -> None:
        """What the thread does: submission after submission, until there is no device any more."""
        while (words := self.ring.get()) is not None:
            if self.stopped:
                continue  # dropped: nothing runs before `recover`
            try:
                self.run_words(words)
            except Exception as error:
                with self.changed:
                    self.stopped = f"the processor stopped: {error}"
                    self.changed.notify_all()

    def run_words(self, words: bytes) -> None:
        for packet in packets.decode(memoryview(words).cast("I")):
            self.count += 1
            self.execute(packet)

    def execute(self, packet: Packet) -> None:
        """One packet, finished before the next one starts."""
        match packet:
            case packets.Launch():
                self.launches += 1
                tail = struct.pack(f"<{len(packet.tail_words)}I", *packet.tail_words)
                groups = packet.grid_x * packet.grid_y * packet.grid_z
                self.kernels[packet.entry](machine, struct.unpack(f"<{len(tail) // 8}Q", tail), 0, groups)
            case packets.Copy():
                data = native.read(packet.src, packet.size_bytes)
                native.write(packet.dst, data, packet.size_bytes)
            case packets.Fill():
                data = packet.pattern.to_bytes(8, "little") * (packet.size_bytes // 8 + 1)
                native.write(packet.dst, data[: packet.size_bytes], packet.size_bytes)
            case packets.Wait():
                with self.changed:
                    self.changed.wait_for(lambda: self.gives_up or self.value_of(packet.cell) >= packet.value)
                if self.value_of(packet.cell) < packet.value:
                    raise Stopped(f"{packet} was abandoned")
            case packets.Signal():
                self.signal_set(packet.cell, packet.value)
            case packets.Stamp():
                native.write(packet.address, struct.pack("<Q", time.monotonic_ns()), 8)
            case packets.Run():
                self.run_words(native.read(packet.address, 4 * packet.size_words))
            case packets.Barrier():
                pass
            case _:
                raise Stopped(f"{packet} is no packet")
