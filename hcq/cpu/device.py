"""The CPU device: a hardware command queue whose hardware is a native thread.

In       a port; packets from encode.py
Out      work done in submission order by the command processor and its workers
Changes  a ring, a control block and threads, made when it opens and ended when it closes
Next     processor.py (what the threads run), packets.py (the words), hcq/device.py (what all devices share)
"""

from __future__ import annotations

import errno
import functools
import platform
import signal as os_signal
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from hcq.base import Grid, RingState, Sent
from hcq.command import Command
from hcq.config import cores
from hcq.cpu import encode as encoding
from hcq.cpu import packets, prepared_launch, processor, program
from hcq.cpu.arena import Arena
from hcq.cpu.fork import Forkable
from hcq.cpu.host import cpu_model, mapped_memory, memory_bytes
from hcq.cpu.launch import MAX_GRID, fitting_values, place_arguments, refuse_launch
from hcq.cpu.link import Mapping
from hcq.cpu.native_processor import native_processor
from hcq.device import Steps
from hcq.errors import DriverError, UsageError
from hcq.layout import Packet
from hcq.memory import Buffer, kind_of
from hcq.program import Program, Slot
from hcq.queue import ONE
from hcq.signal import Timeline
from hcq.system import guarded_child, native
from hcq.system.port import (
    MADV_HUGEPAGE,
    MAP_ANONYMOUS,
    MAP_NORESERVE,
    MAP_PRIVATE,
    PROT_READ,
    PROT_WRITE,
    refused,
)

RING_WORDS = 1 << 18  # 1 MiB: about ten thousand small dispatches
CONTROL_BYTES = 1 << 16
TIMELINE_BYTES = 4096
WORKERS_AT = 4096  # the workers' start records, behind the control block
HUGE_BYTES = 2 << 20

# How long each side looks before it sleeps: over the gap between two launches, for to be woken takes as long. Workers
# that look for longer take the core that Python records on.
PROCESSOR_SPIN_NS = 50_000
PROCESSOR_LONG_SPIN_NS = (
    400_000  # when the last gap was shorter than this: to wake it costs who rings 3 to 20 us
)
WORKER_SPIN_NS = 50_000
HOST_SPIN_NS = 20_000


_left_behind: list[Any] = []  # what threads that cannot be stopped may still use: kept as long as the process


class CpuDevice(Forkable):
    """The embedded default."""

    machine: processor.Machine
    unmaps_anywhere = True
    is_host_memory = True
    has_plain_signals = True
    own_rings = ("compute", "copy")  # one ring, whatever it is called

    # ------------------------------------------------------------ opening

    def find_machine(self) -> None:
        """Step: take the machine's architecture and how many threads to use.

        Raises UsageError where there is no Linux.
        """
        if platform.system() != "Linux":
            raise UsageError(f"the CPU device sleeps on Linux futexes, and this is {platform.system()}.")
        self.machine = processor.machine_named(platform.machine())
        self.arch = self.machine.name
        self.threads = self.config.threads
        self._retired: deque[tuple[int, Mapping]] = deque()
        self.code_arena = Arena(self.port, self.arch)
        self.entries: dict[int, str] = {}  # where loaded programs start, and their names
        self._scratch_va = self._scratch_bytes = self._scratch_stride = 0
        self._memory_bytes = memory_bytes(self.port)
        self._replaced = ""  # why the threads, the ring and the control block are new ones
        self._owned: dict[int, int] = {}

    def load_processor(self) -> None:
        """Step: load the command processor, from the cache or compiled."""
        self.code = native_processor(self.machine)

    def _own(self, size_bytes: int) -> int:
        """Memory for the device itself, unmapped when nobody holds the device any more."""
        va = self.map_memory(size_bytes)
        self._owned[va] = size_bytes
        return va

    def make_ring(self) -> None:
        """Step: map the ring and the control block."""
        self._ring_va = self._own(4 * RING_WORDS)
        self._ring = native.view(self._ring_va, 4 * RING_WORDS)
        self._control_va = self._own(CONTROL_BYTES)
        self._control = native.view(self._control_va, CONTROL_BYTES)
        self._control_pointer = native.pointer(self._control_va)
        self._put = self._get = 0  # words, as last written and last seen
        self._sent = 0  # the end of the last whole submission
        self._cut = 0  # a submission of which the ring has a part

    def make_timeline(self) -> None:
        """Step: make the signal that counts submissions, and prepare the packets that every submission ends with."""
        cell = Buffer(self, self._own(TIMELINE_BYTES), TIMELINE_BYTES, TIMELINE_BYTES, 0, "timeline")
        cell.parent = cell  # the device's own: it never goes to the pool
        self.timeline = Timeline(self, cell, "timeline")
        pack, (opcode, length) = encoding.signal_struct()
        self.finish = functools.partial(pack, opcode, length, self.timeline.va)
        pack_stamp, head = encoding.timestamp_struct()
        self._pack_stamp = functools.partial(pack_stamp, *head)

    def stamp(self, va: int) -> bytes:
        """The packet that stores the device's clock at an address."""
        return self._pack_stamp(va)

    def start_threads(self) -> None:
        """Step: start the command processor and its workers."""
        spins = cores() > 1  # on a single core looking only keeps the other side from running
        control = packets.Control(
            ring=self._ring_va,
            ring_words=RING_WORDS,
            processor_spin_ns=PROCESSOR_SPIN_NS if spins else 0,
            processor_long_spin_ns=PROCESSOR_LONG_SPIN_NS if spins else 0,
            worker_spin_ns=WORKER_SPIN_NS if spins else 0,
            threads=self.threads,
            timeline=self.timeline.va,
        )
        self._control[: 4 * packets.Control.length_words] = control.to_bytes()
        self._handles: list[int] = []
        # the threads take no signals: Ctrl-C belongs to Python's own
        ours = set(os_signal.valid_signals()) - {
            os_signal.SIGSEGV,
            os_signal.SIGBUS,
            os_signal.SIGFPE,
            os_signal.SIGILL,
        }
        self._set_field("running", self.threads)
        before = os_signal.pthread_sigmask(os_signal.SIG_BLOCK, ours)
        try:
            self._start("processor_main", self._control_va)
            for index in range(1, self.threads):
                at = WORKERS_AT + 16 * (index - 1)
                self._control[at : at + 16] = packets.WorkerStart(
                    control=self._control_va, index=index
                ).to_bytes()
                self._start("worker_main", self._control_va + at)
        finally:
            os_signal.pthread_sigmask(os_signal.SIG_SETMASK, before)

    def _start(self, function: str, argument: int) -> None:
        handle = native.new_handle()
        start, argument_pointer = native.pointer(self.code.functions[function]), native.pointer(argument)
        error = native.libc().pthread_create(handle, native.pointer(0), start, argument_pointer)
        if error:
            self._set_field("running", len(self._handles))  # nobody waits for threads that never were
            raise DriverError(
                f"pthread_create({function}) -> errno {error}. Raise the thread limit (ulimit -u)"
                + (f", or that of memory, which is {limit}." if (limit := guarded_child.limits()) else ".")
            )
        self._handles.append(handle[0])

    def stop(self, timeout_ms: float) -> bool:
        if not self._stop_threads(timeout_ms):
            return False  # a kernel that does not return; its memory stays mapped under it
        while self._retired:
            self._retired.popleft()[1].close()
        self.code_arena.close()
        if self._scratch_va:
            self.unmap_memory(self._scratch_va, self._scratch_bytes)
            self._scratch_va = 0
        return True  # ring, control block and timeline stay: completions that were kept and reports still read them

    def _stop_threads(self, timeout_ms: float) -> bool:
        self.code.stop_all(self._control_pointer)
        end = time.monotonic() + timeout_ms / 1000
        while self._field("running"):
            if time.monotonic() > end:
                return False
            time.sleep(0.0002)
        for handle in self._handles:
            native.libc().pthread_join(handle, native.pointer(0))
        self._handles.clear()
        return True

    def give_back(self) -> None:
        owned = getattr(self, "_owned", {})  # it may not have got that far
        while owned:
            self.unmap_memory(*owned.popitem())

    def unwind(self) -> None:
        if not hasattr(self, "_handles") or self.stop(timeout_ms=1000):
            self.give_back()

    # ------------------------------------------------------------ fork

    def restart(self) -> None:
        self._handles.clear()
        self._control[:] = bytes(CONTROL_BYTES)
        self._put = self._get = self._sent = 0
        try:
            self.start_threads()
        except BaseException:
            self._stop_threads(timeout_ms=1000)
            raise
        if self._scratch_va:
            self._set_field("scratch", self._scratch_va)
            self._set_field("scratch_stride", self._scratch_stride)

    def leave_unfinished(self, why: str) -> None:
        self._replaced = why
        self.note_fault(is_asked_for=True)

    # ------------------------------------------------------------ memory

    def map_memory(self, size_bytes: int) -> int:
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        if self.memory.mapped_bytes + size_bytes > self._memory_bytes:
            # the system would grant it, and end the process when the memory is touched
            mapped = self.memory.mapped_bytes
            what = (
                f"mmap(size_bytes={size_bytes}) with {mapped} mapped and {self._memory_bytes} in the machine"
            )
            raise refused(what, errno.ENOMEM)
        if size_bytes < 2 * HUGE_BYTES:
            return self.port.mmap(0, size_bytes, PROT_READ | PROT_WRITE, flags)
        # aligned to huge pages, so that the first touch costs a fault every 2 MiB and not every 4 KiB
        size = -(-size_bytes // 4096) * 4096
        va = self.port.mmap(0, size + HUGE_BYTES, PROT_READ | PROT_WRITE, flags)
        start = -(-va // HUGE_BYTES) * HUGE_BYTES
        if start > va:
            self.port.munmap(va, start - va)
        if rest := va + HUGE_BYTES - start:
            self.port.munmap(start + size, rest)
        self.port.madvise(start, size, MADV_HUGEPAGE)
        return start

    def unmap_memory(self, va: int, size_bytes: int) -> None:
        self.port.munmap(va, -(-size_bytes // 4096) * 4096)

    def mapped_ranges(self, access: str) -> list[tuple[int, int]]:
        return mapped_memory(access)

    def can_reach(self, buffer: Buffer) -> bool:
        """Memory of the host is this process's: another CPU device's, all of Metal's, what a GPU has pinned."""
        is_here = buffer.device.is_host_memory or (buffer.parent or buffer).is_pinned
        return is_here and not buffer.device.dead

    def can_watch(self, other: Any) -> bool:
        """Its signals are in this process's memory, and the command processor looks again now and then."""
        return bool(other.has_plain_signals or other.shows_signals) and not other.dead

    def can_notify(self, other: Any) -> bool:
        """Its signals are in this process's memory, and it looks there by itself."""
        return bool(other.has_plain_signals) and not other.dead

    # ------------------------------------------------------------ programs

    def make_program(
        self, image: bytes, entry: str, args: tuple[str, ...] | None, scratch_bytes: int, name: str
    ) -> Program:
        if self._retired:
            self._reap()
        made = program.load(self, image, entry, args, scratch_bytes, name, self.code_arena, self._retire)
        self.entries[made.entry] = made.name
        if scratch_bytes > self._scratch_stride:
            self._grow_scratch(scratch_bytes)
        return made

    def take_out(self, image: bytes, name: str, entry: str | None) -> bytes:
        return program.taken_out(image, self.arch, name, entry)

    @property
    def scratch_limit(self) -> int:
        """Scratch memory of each thread, in bytes."""
        return self._scratch_stride

    # is_finalizing is bound here, for at the interpreter's end the names of modules are gone
    def _retire(self, mapping: Mapping, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        for entry in mapping.functions.values():
            self.entries.pop(entry, None)
        if self.code_arena.is_closed and not is_finalizing():
            mapping.close()  # no thread of the device is left that could run it
        else:
            self._retired.append((self.timeline.submitted, mapping))

    def _reap(self) -> None:
        done = self.timeline.value
        while self._retired and self._retired[0][0] <= done:
            self._retired.popleft()[1].close()

    def _grow_scratch(self, scratch_bytes: int) -> None:
        """Give every thread more scratch memory. The queue must be idle, since kernels hold the old addresses."""
        with self.lock:
            self.wait_value(self.timeline.submitted)
            before = self._scratch_va
            size_bytes = self._scratch_bytes
            self._map_scratch(-(-scratch_bytes // 4096) * 4096)
            if before:
                self.unmap_memory(before, size_bytes)

    def _map_scratch(self, stride: int) -> None:
        va = self.map_memory(stride * self.threads)
        self._set_field("scratch", va)
        self._set_field("scratch_stride", stride)
        self._scratch_va, self._scratch_bytes, self._scratch_stride = va, stride * self.threads, stride

    # ------------------------------------------------------------ encoding

    def encode(self, what: Command) -> bytes:
        return encoding.encode(what, self.machine)

    def decode(self, words: Sequence[int]) -> list[Packet]:
        return encoding.decode(words)

    def encode_dispatch(
        self, program: Program, args: Sequence[Any], grid: Grid, block: Grid, groups_per_claim: int
    ) -> tuple[bytes, tuple[int | float, ...]]:
        if self.dead:
            self.check_alive()
        values: list[Any] = []
        for arg in args:
            if type(arg) is Buffer:
                if arg.device is not self:
                    raise arg.elsewhere(f"dispatch {program.name}", self)
                values.append(arg.va)
            else:
                values.append(arg)
        if self.failures:
            for arg in args:
                if isinstance(arg, Buffer):
                    arg.check_poison(f"dispatch {program.name}")
        types = tuple(map(type, args))
        shape = program.shapes.get(types)
        if shape is None:
            shape = place_arguments(self.machine, program, args, types)
        try:
            x, y, z = grid
            groups = x * y * z
            packed = shape.pack(
                *shape.head,
                program.entry,
                groups,
                x,
                y,
                z,
                groups_per_claim,
                program.scratch_bytes,
                *(values if shape.gather is None else shape.gather(values)),
            )
        except (struct.error, TypeError, ValueError, OverflowError):
            values = fitting_values(self, program, args, values, grid, groups_per_claim)
            x, y, z = grid
            groups = x * y * z
            gathered = values if shape.gather is None else shape.gather(values)
            head = (*shape.head, program.entry, groups, x, y, z, groups_per_claim, program.scratch_bytes)
            packed = shape.pack(*head, *gathered)
        if (
            groups <= 0
            or x > MAX_GRID
            or y > MAX_GRID
            or z > MAX_GRID
            or (block is not ONE and tuple(block) != ONE)
            or program.device is not self
        ):
            refuse_launch(self, program, grid, block)
        return packed, tuple(values)

    def prepare(self, program: Program, grid: Grid, block: Grid) -> Callable[[Sequence[Buffer]], object]:
        if (
            program.device is not self
            or block != ONE
            or any(kind != "buffer" for kind in program.args or ("",))
        ):
            return super().prepare(program, grid, block)
        return prepared_launch.prepare(self, program, grid, RING_WORDS)

    def argument_slot(self, program: Program, args: Sequence[Any], index: int) -> Slot:
        shape = place_arguments(self.machine, program, args, tuple(map(type, args)))
        kind = kind_of(args[index]) if program.args is None else program.args[index]
        offset = 4 * packets.Dispatch.length_words + 8 * shape.slots[index]
        return Slot(offset, 8, "d" if kind == "float" else "Q")

    # ------------------------------------------------------------ submitting

    def send(self, words: list[bytes], value: int) -> None:
        blob = b"".join(words) + self.finish(value)
        size = len(blob) >> 2
        put = self._put
        at = put & RING_WORDS - 1
        if at + size > RING_WORDS or put + size - self._get > RING_WORDS:
            self._send_slowly([*words, self.finish(value)])
            return
        self._ring[4 * at : 4 * (at + size)] = blob
        self._put = put + size
        self.code.doorbell_ring(self._control_pointer, put + size)
        self._sent = put + size

    def _send_slowly(self, words: list[bytes]) -> None:
        """The same when the ring's end is near or the ring is full: packet by packet, with doorbells on the way.

        What fits the ring is not begun before there is room for all of it and the gap at the ring's end.
        """
        sizes = [len(packet) >> 2 for packet in words]
        if sum(sizes) + max(sizes) <= RING_WORDS:
            self._wait_for_room(sum(sizes) + max(sizes))
        for packet in words:
            size = len(packet) >> 2
            if size > RING_WORDS:
                raise UsageError(
                    f"submit: {size} words in one piece do not fit the ring's {RING_WORDS}. Split them."
                )
            at = self._put & RING_WORDS - 1
            while at + size > RING_WORDS:
                gap = min(RING_WORDS - at, 0xFFFE)
                self._wait_for_room(gap)
                nop = packets.Nop(length=gap).to_bytes()
                self._ring[4 * at : 4 * at + len(nop)] = nop
                self._put += gap
                at = self._put & RING_WORDS - 1
            self._wait_for_room(size)
            for observer in self.observers:
                observer.room("the ring", self._put, size, self._field("get"), RING_WORDS)
            self._ring[4 * at : 4 * (at + size)] = packet
            self._put += size
        self.code.doorbell_ring(self._control_pointer, self._put)
        self._sent = self._put

    def _wait_for_room(self, size: int) -> None:
        if self._put + size - self._get > RING_WORDS:
            self.code.doorbell_ring(self._control_pointer, self._put)  # let it work on what is there
            self.wait_for_room(
                lambda: self._has_room(size), lambda: time.sleep(0.00005), lambda: "room in the ring"
            )

    def _has_room(self, size: int) -> bool:
        self._get = self._field("get")
        return self._put + size - self._get <= RING_WORDS

    def settle(self, value: int) -> Sent:
        put, before = self._field("put"), self._sent
        last = self.finish(value)
        end = 4 * (put & RING_WORDS - 1) or 4 * RING_WORDS
        self._put = self._sent = put  # packets behind it will be overwritten
        if self._ring[end - len(last) : end] == last:
            return Sent.ALL
        if put == before:
            return Sent.NOTHING
        self._cut = value
        return Sent.A_PART

    # ------------------------------------------------------------ signals and faults

    def signal_set(self, va: int, value: int) -> None:
        self.code.signal_set(native.pointer(va), value)

    def signal_wait(self, va: int, value: int, timeout_ns: int) -> int:
        return int(
            self.code.signal_wait(native.pointer(va), value, timeout_ns, min(HOST_SPIN_NS, timeout_ns))
        )

    def fault(self) -> str:
        if self._replaced:
            return self._replaced
        if self._cut and self._field("get") == self._field("put"):
            if self.timeline.value < self._cut:
                return "a submission was cut short"
            self._cut = 0  # later ones are done
        code = self._field("fault")
        if not code:
            return ""
        at = self._field("fault_address")
        words = native.view(at, 48).cast("I")
        header = packets.Header.decode(words)
        layout = packets.PACKETS.get(header.opcode)
        shown = header if layout is None else layout.decode(words[: layout.length_words])
        return f"the command processor stopped with {packets.Fault(code).name} at {shown}"

    def recover(self) -> None:
        self._replaced = ""
        self._cut = 0
        self._set_field("get", self._put)
        self._get = self._sent = self._put
        self._set_field("put", self._put)
        self.code.fault_clear(self._control_pointer)

    def abandon(self) -> None:
        self._set_field("abandon", 1)
        self.code.doorbell_ring(self._control_pointer, self._put)  # it may have slept through the last one

    def resume(self) -> None:
        self._set_field("abandon", 0)

    def replace(self) -> str:
        """A native thread cannot be stopped from outside while it is in a kernel. Leave it behind and start others.

        What it may still touch is never used again: its ring, its scratch memory, its code, the buffers of the work
        in flight. It ends as soon as its kernel returns; until then it keeps a core busy.
        Where all is done and the timeline alone is late, something has overwritten it, and nothing is left behind.
        """
        if self._field("get") == self._put:
            self._replaced = "something overwrote its timeline"
            return f"{self.name} goes on: all its work is done, but something overwrote its timeline."
        self.code.stop_all(self._control_pointer)
        first = self.timeline.value + 1
        late = self.describe(first)
        lost = self.memory.quarantine(first)
        programs = [made for made in self.recent.copy() if made[0] >= first]
        kept = [entry for entry in self._retired if entry[0] >= first]
        _left_behind.append((programs, kept, self.memory))
        for va in (self._ring_va, self._control_va):
            del self._owned[va]
        self._retired = deque(entry for entry in self._retired if entry[0] < first)
        stride, self._scratch_va = self._scratch_stride, 0
        self.make_ring()
        self.start_threads()
        if stride:
            self._map_scratch(stride)
        self._replaced = "work that did not stop was abandoned"
        return (
            f"{self.name} goes on with new threads. Submission {late} did not stop: its {self.threads} threads stay "
            f"until it does, and {lost} bytes of memory until the process ends."
        )

    def ring_states(self) -> list[RingState]:
        from hcq.cpu.ring_state import ring_states  # of reports alone

        return ring_states(self, self._ring, self._field)

    def current_command(self) -> int | None:
        from hcq.cpu.ring_state import current_command

        return current_command(self, self._ring, self._field)

    # ------------------------------------------------------------ what there is to know

    def facts(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "arch": self.arch,
            "threads": self.threads,
            "ring_words": RING_WORDS,
            "timeline": self.timeline.va,
            "model": cpu_model(self.port),
            "max_grid": MAX_GRID,
            "max_block": 1,
        }

    def stats(self) -> dict[str, int]:
        return {
            "submissions": self.timeline.submitted,
            "packets": self._field("packets"),
            "dispatches": self._field("dispatches"),
            "mapped_bytes": self.memory.mapped_bytes,
        }

    def _field(self, name: str) -> int:
        field = packets.Control.fields[name]
        at = field.byte_offset
        return int.from_bytes(self._control[at : at + field.width // 8], "little")

    def _set_field(self, name: str, value: int) -> None:
        field = packets.Control.fields[name]
        at = field.byte_offset
        size = field.width // 8
        # one aligned store, so that the other side never sees half of it
        self._control[at : at + size].cast("Q" if size == 8 else "I")[0] = value

    steps = Steps["CpuDevice"](
        "open CPU device",
        ("find the machine", find_machine),
        ("load the command processor", load_processor),
        ("make the ring", make_ring),
        ("make the timeline", make_timeline),
        ("start the threads", start_threads),
    )
