"""The Metal device: an Apple GPU, its command queue, and memory that host and GPU share.

In       a port behind which the Objective-C runtime and Metal are
Out      work done in submission order, one command buffer (or more, see stamps.py) for each submission
Changes  Metal's objects, each released when it is not needed any more
Next     objc.py (the runtime), commands.py (packets to messages), event.py (signals), hcq/device.py (what all devices
         share)

Addresses are those at which the host sees a buffer (`contents`): memory is shared, and commands.py finds the MTLBuffer.
"""

from __future__ import annotations

import bisect
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from hcq.base import Sent
from hcq.code import containers
from hcq.command import Command, Dispatch
from hcq.device import Steps
from hcq.errors import DriverError, UsageError
from hcq.gpu.launching import LaunchingDevice
from hcq.layout import Packet
from hcq.lifetime import open_devices
from hcq.memory import Buffer
from hcq.metal import encode as encoding
from hcq.metal import kernels, packets
from hcq.metal.abi import messages
from hcq.metal.abi.messages import Family, Status
from hcq.metal.commands import Commands
from hcq.metal.event import EventCell, TimelineCell
from hcq.metal.gpus import copy_gpus
from hcq.metal.objc import Objc
from hcq.metal.program import MAX_GRID, MetalProgram, parameters_of
from hcq.metal.relay import Relay
from hcq.metal.stamps import Stamps
from hcq.program import Program
from hcq.signal import CELL_BYTES, Signal, Timeline

TIMELINE_BYTES = 4096
MAX_COMMAND_BUFFERS = 1024  # that are not completed; another one would block the thread that asks for it
STEP_MS = 5  # a wait looks for faults this often
PAUSE_SECONDS = 0.0005
END_SECONDS = 5  # for command buffers to end once nothing is waited for any more


class MetalDevice(LaunchingDevice):
    """One GPU."""

    alignment = 128  # bytes: a line of its memory
    is_host_memory = True
    waves_missing = (
        "Metal shows nobody where threads are. Xcode's shader debugger does, for a captured command buffer"
    )

    # ------------------------------------------------------------ opening

    def find_gpu(self) -> None:
        """Step: take the GPU of our number, and see what it is."""
        self.objc = Objc(self.port)
        self._owned: list[int] = []  # Metal's objects, the latest last
        self._areas: dict[int, tuple[int, int]] = {}  # address -> bytes, MTLBuffer
        self._starts: list[int] = []
        self._programs: weakref.WeakValueDictionary[int, MetalProgram] = weakref.WeakValueDictionary()
        self._own_pipelines: dict[str, int] = {}
        self._retired: deque[tuple[int, int]] = deque()
        self._in_flight: deque[tuple[int, list[int], list[EventCell]]] = deque()
        self._flight_lock = threading.RLock()
        self._sent = self._dispatches = self._packets = 0
        self._fault = ""
        self._abandoned = False
        self.asks_device = True
        send = self.objc.send
        with self.objc.pool():
            every = [self._own(gpu) for gpu in copy_gpus(self.objc)]
            number = int(self.name.partition(":")[2] or 0)
            if number >= len(every):
                raise DriverError(f"Metal has {len(every)} GPUs, 0 is the first; asked for {number}.")
            self.gpu = every[number]
            self.model = self.objc.text(send(self.gpu, messages.DEVICE_NAME))
        families = [one for one in Family if send(self.gpu, messages.SUPPORTS_FAMILY, int(one))]
        if not families or not send(self.gpu, messages.HAS_UNIFIED_MEMORY):
            raise DriverError(
                f"{self.model} is no GPU of Apple's own with shared memory. Known: M1 and later."
            )
        self.arch = families[-1].name.lower()
        self.max_buffer_bytes = int(send(self.gpu, messages.MAX_BUFFER_LENGTH))
        self.shared_bytes = int(send(self.gpu, messages.MAX_THREADGROUP_MEMORY))
        self.working_set_bytes = int(send(self.gpu, messages.WORKING_SET))

    def make_queue(self) -> None:
        """Step: make the command queue."""
        self.queue_object = self._own(self.objc.make(self.gpu, messages.NEW_QUEUE, MAX_COMMAND_BUFFERS))

    def make_timeline(self) -> None:
        """Step: make the signal that counts submissions, and what stores the GPU's time."""
        cell = Buffer(self, self.map_memory(TIMELINE_BYTES), TIMELINE_BYTES, TIMELINE_BYTES, 0, "timeline")
        cell.parent = cell  # the device's own: it never goes to the pool
        self.timeline = Timeline(self, cell, "timeline")
        self.timeline._cell = TimelineCell(self.objc, self.gpu, self._confirm)
        self.stamps = Stamps(self.objc, self.gpu)
        timeline = self.timeline._cell
        self.relay = Relay(self.objc, self.gpu, self.config.timeout_ms, lambda: timeline.signaled)
        self.finish = lambda value: packets.EncodeSignalEvent(signal=self.timeline.va, value=value).to_bytes()

    steps = Steps["MetalDevice"](
        "open Metal device",
        ("find the GPU", find_gpu),
        ("make the command queue", make_queue),
        ("make the timeline", make_timeline),
    )

    def observe(self, while_opening: bool) -> None:
        super().observe(while_opening)
        self.asks_device = True  # memory of the host's is what the GPU wrote once Metal says so

    def _own(self, thing: int) -> int:
        if thing:
            self._owned.append(thing)
        return thing

    # ------------------------------------------------------------ the end

    def stop(self, timeout_ms: float) -> bool:
        with self.lock:
            self._leave_events()
        if not self._ends_within(timeout_ms / 1000):
            return False
        if not self.stamps.close(timeout_ms) or not self.relay.close(timeout_ms):
            return False
        for _, pipeline in self._retired:
            self.objc.release(pipeline)
        self._retired.clear()
        for pipeline in self._own_pipelines.values():
            self.objc.release(pipeline)
        self._own_pipelines.clear()
        while self._owned:
            self.objc.release(self._owned.pop())
        return True

    def unwind(self) -> None:
        if hasattr(self, "stamps"):
            if self.stop(1000):
                self.give_back()
            return
        while getattr(self, "_owned", None):
            self.objc.release(self._owned.pop())
        self.give_back()

    def give_back(self) -> None:
        timeline = getattr(self, "timeline", None)
        if timeline is not None and timeline.va in self._areas:
            self.unmap_memory(timeline.va, TIMELINE_BYTES)

    # ------------------------------------------------------------ memory

    def map_memory(self, size_bytes: int) -> int:
        buffer = int(self.objc.send(self.gpu, messages.NEW_BUFFER, size_bytes, messages.STORAGE_SHARED))
        if not buffer:
            raise DriverError(
                f"{messages.NEW_BUFFER}({size_bytes}): Metal gave no memory; a buffer has "
                f"{self.max_buffer_bytes} bytes at "
                f"most, and {self.memory.mapped_bytes} are in use here. Free buffers, or use smaller ones."
            )
        va = int(self.objc.send(buffer, messages.CONTENTS))
        with self.lock:
            self._areas[va] = size_bytes, buffer
            bisect.insort(self._starts, va)
        return va

    def unmap_memory(self, va: int, size_bytes: int) -> None:
        with self.lock:
            _, buffer = self._areas.pop(va)
            self._starts.remove(va)
        self.objc.release(buffer)

    def resolve(self, va: int) -> tuple[int, int]:
        """The MTLBuffer that an address is in, and the offset there. Raises UsageError for one that is in none."""
        at = bisect.bisect_right(self._starts, va) - 1
        if at >= 0:
            start = self._starts[at]
            size, buffer = self._areas[start]
            if va < start + size:
                return buffer, va - start
        raise UsageError(
            f"{self.name}: {va:#x} is in no buffer of this device. Pass a Buffer that is not freed."
        )

    # ------------------------------------------------------------ programs

    def take_out(self, image: bytes, name: str, entry: str | None) -> bytes:
        return containers.taken_out(image, name, self.name, lambda data: 0)  # nothing in any is source

    def make_program(
        self, image: bytes, entry: str, args: tuple[str, ...] | None, scratch_bytes: int, name: str
    ) -> Program:
        if scratch_bytes:
            raise UsageError(
                f"load({name!r}): scratch_bytes={scratch_bytes}; a GPU's kernel says what it needs. Leave it out."
            )
        try:
            source = image.decode()
        except UnicodeDecodeError as error:
            raise UsageError(
                f"load({name!r}): the image is no text ({error}); Metal takes the source of a kernel."
            ) from None
        self._reap_programs()
        parameters = parameters_of(source, entry, name)
        made = MetalProgram(self, name, args, parameters, self._pipeline(source, entry, name))
        self._programs[made.entry] = made
        return made

    def _pipeline(self, source: str, entry: str, name: str) -> int:
        """A pipeline of ours to release. Raises UsageError with the compiler's words."""
        objc = self.objc
        with objc.pool():
            options = objc.make(objc.class_named("MTLCompileOptions"), messages.NEW)
            objc.send(options, messages.SET_FAST_MATH, False)
            library, why = objc.make_or_explain(self.gpu, messages.NEW_LIBRARY, objc.string(source), options)
            objc.release(options)
            if not library:
                raise UsageError(f"load({name!r}): Metal's compiler refuses the text: {why}")
            function = int(objc.send(library, messages.NEW_FUNCTION, objc.string(entry)))
            objc.release(library)
            if not function:
                raise UsageError(f"load({name!r}): the library has no kernel {entry!r}.")
            pipeline, why = objc.make_or_explain(self.gpu, messages.NEW_PIPELINE, function)
            objc.release(function)
            if not pipeline:
                raise UsageError(f"load({name!r}): no pipeline of kernel {entry!r}: {why}")
        return pipeline

    def own_pipeline(self, name: str) -> int:
        """A kernel of kernels.py, made when it is first asked for."""
        found = self._own_pipelines.get(name)
        if found is None:
            found = self._own_pipelines[name] = self._pipeline(kernels.SOURCE, name, name)
        return found

    def program_of(self, pipeline: int) -> MetalProgram:
        """A loaded program by its entry. Raises UsageError when it was dropped."""
        found = self._programs.get(pipeline)
        if found is None:
            raise UsageError(
                f"{self.name}: {pipeline:#x} is no program that is loaded. Keep it until it was submitted."
            )
        return found

    # is_finalizing is bound here, for at the interpreter's end the names of modules are gone
    def retire(self, pipeline: int, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """A program was dropped; its pipeline goes when the work that may use it is done. Called by destructors."""
        if self.is_stopped and not is_finalizing():
            self.objc.release(pipeline)
        else:
            self._retired.append((self.timeline.submitted, pipeline))

    def _reap_programs(self) -> None:
        done = self.timeline.value if self._retired else 0
        while self._retired and self._retired[0][0] <= done:
            _, pipeline = self._retired.popleft()
            self.objc.release(pipeline)

    # ------------------------------------------------------------ encoding

    def encode(self, what: Command) -> bytes:
        if isinstance(what, Dispatch):
            return self.encode_dispatch(what.program, what.args, what.grid, what.block, 0)[0]
        return encoding.encode(what)

    def decode(self, words: Sequence[int]) -> list[Packet]:
        return encoding.decode(words)

    # ------------------------------------------------------------ submitting

    def send(self, words: list[bytes], value: int) -> None:
        if len(self._in_flight) >= MAX_COMMAND_BUFFERS // 8:
            self.wait_for_room(
                lambda: len(self._in_flight) < MAX_COMMAND_BUFFERS // 8 or not self._reaches_all(),
                lambda: time.sleep(PAUSE_SECONDS),
                lambda: "a command buffer",
            )
        with self.objc.pool():
            commands = Commands(self)
            try:
                commands.words(memoryview(b"".join((*words, self.finish(value)))).cast("I"))
                commands.end()
                with self._flight_lock:
                    commands.commit()
                    self._in_flight.append((value, commands.made, commands.cells))
                    self._sent = value
                    self._dispatches += commands.launches
                    self._packets += commands.packets
            except BaseException:
                self._stop_halfway(commands, value)
                raise

    def _stop_halfway(self, commands: Commands, value: int) -> None:
        """An error or an interrupt while a submission was encoded: Metal has all of it, a part, or nothing."""
        if self._sent >= value:
            return
        if self._status(commands.command_buffer) >= Status.COMMITTED:
            self._sent = value
        else:
            commands.drop()
            self._cut = value if commands.made else 0  # a stamp has split it: what came before is on its way
        if commands.made and (not self._in_flight or self._in_flight[-1][0] < value):
            self._in_flight.append((value, commands.made, commands.cells))

    def settle(self, value: int) -> Sent:
        if self._sent >= value:
            return Sent.ALL
        return Sent.A_PART if self._cut == value else Sent.NOTHING

    _cut = 0  # a submission of which Metal has a part

    def _reaches_all(self) -> bool:
        """Whether there is still more in flight than there may be, once what is done was counted."""
        _ = self.timeline._cell[0]
        return len(self._in_flight) >= MAX_COMMAND_BUFFERS // 8

    def _confirm(self, value: int) -> int:
        """How much of what the timeline's event says is done: command buffers are asked, and those that are given
        back."""
        with self._flight_lock:
            while self._in_flight and self._in_flight[0][0] <= value:
                first, made, _ = self._in_flight[0]
                for command_buffer in made:
                    if self._status(command_buffer) < Status.COMPLETED:
                        self.objc.send(command_buffer, messages.WAIT_UNTIL_COMPLETED)
                    if self._status(command_buffer) == Status.ERROR:
                        return min(value, first - 1)
                self._in_flight.popleft()
                for command_buffer in made:
                    self.objc.release(command_buffer)
        return value

    def done_so_far(self) -> int:
        """How much of the timeline is surely done, for who must not wait: a thread of the GPU that runs it."""
        if self._flight_lock.acquire(blocking=False):
            try:
                done = int(self.timeline._cell.told())
                for value, made, _ in self._in_flight:
                    if value <= done and any(self._status(one) != Status.COMPLETED for one in made):
                        done = value - 1
                        break
                self._so_far = max(self._so_far, done)
            finally:
                self._flight_lock.release()
        return self._so_far

    _so_far = 0

    def _status(self, command_buffer: int) -> int:
        return int(self.objc.send(command_buffer, messages.STATUS))

    # ------------------------------------------------------------ signals

    def signal(self, name: str = "signal") -> Signal:
        made = super().signal(name)
        made._cell = EventCell(self.objc, self.gpu)
        return made

    shows_signals = True

    def can_watch(self, other: Any) -> bool:
        """The host looks at its signals, and tells the queue."""
        is_seen = other.has_plain_signals or isinstance(other, MetalDevice)
        return other is self or (is_seen and not other.dead)

    def show_signal(self, signal: Signal) -> None:
        cell: EventCell = signal._cell
        with self.lock:
            if not cell.is_shown:
                cell.show_at(signal.va, CELL_BYTES, signal.buffer)
                if cell.asked > cell.publish():  # of work in flight
                    self.relay.begin((), [(cell, cell.asked)])

    def foreign_signal(self, va: int) -> Signal | None:
        """The signal of another device at an address."""
        return None if va in self.signals else open_devices.signal_at(va)

    def cell_of(self, va: int) -> EventCell:
        """A signal's shared event, by the address that names it. Raises UsageError for another device's."""
        signal = self.signals.get(va)
        if signal is None:
            raise UsageError(
                f"{self.name}: {va:#x} is no signal of this device. Metal's queues signal shared events: make the "
                f"signal with signal() of {self.name}, and keep it; other devices may wait for it."
            )
        found: EventCell = signal._cell
        return found

    def signal_set(self, va: int, value: int) -> None:
        cell = self.cell_of(va)
        if value < cell.signaled:
            self.lower(cell, va, value)
        else:
            cell[0] = value

    def lower(self, cell: EventCell, va: int, value: int, encoded: Sequence[EventCell] | None = None) -> None:
        """A signal becomes another event. Raises UsageError while work in flight names the one it is.

        encoded  the signals that a submission names so far which is going to set it, to no more than that by then
        """
        with self.lock, self._flight_lock:
            before = max(cell.signaled, cell.asked)
            _ = self.timeline._cell[0]  # what is done counts no more as in flight
            in_flight = [used for _, _, cells in self._in_flight for used in cells]
            if any(used is cell for used in (*in_flight, *(encoded or ()))):
                name = self.signals[va].name
                call = f"{name}.set({value}): it" if encoded is None else f"submit on {self.name}: {name}"
                raise UsageError(
                    f"{call} is {before}, and work in flight waits for it or signals it, so that it cannot become "
                    f"{value}. Metal's events only rise. Wait for that work first, or make another signal."
                )
            cell[0] = value if encoded is None else max(0, value - 1)

    def signal_wait(self, va: int, value: int, timeout_ns: int) -> int:
        cell = self.cell_of(va)
        end = time.monotonic_ns() + timeout_ns
        while (seen := cell[0]) < value:
            left = end - time.monotonic_ns()
            if left <= 0 or self.fault() or self.dead:
                break
            cell.wait(value, max(1, min(left // 1_000_000, STEP_MS)))
        return seen

    # ------------------------------------------------------------ faults

    def fault(self) -> str:
        if self._fault:
            return self._fault
        if self._abandoned:
            return "the work in flight was abandoned"
        if self.relay.failure:
            self._fault = self.relay.failure
            return self._fault
        with self._flight_lock:
            for value, made, _ in self._in_flight:
                states = [self._status(command_buffer) for command_buffer in made]
                if Status.ERROR in states:
                    failed = made[states.index(Status.ERROR)]
                    with self.objc.pool():
                        why = self.objc.explain(self.objc.send(failed, messages.ERROR))
                    self._fault = f"a command buffer ended with an error: {why}"
                    return self._fault
                if states and states[-1] != Status.COMPLETED:
                    return ""
                if value == self._cut:
                    self._fault = "a submission was cut short"
                    return self._fault
        return ""

    def abandon(self) -> None:
        with self.lock:
            self._abandoned = True
            self._leave_events()

    def resume(self) -> None:
        self._abandoned = False

    def recover(self) -> None:
        self._abandoned = True  # until all is done: who is interrupted here comes here again
        self._leave_events()
        if not self._ends_within(END_SECONDS):
            self.lose(
                DriverError(
                    f"command buffers did not end within {END_SECONDS} s after nothing was waited for"
                )
            )
        else:
            self._exchange_queue()
        self._fault = ""
        self._cut = 0
        self._abandoned = False

    def _exchange_queue(self) -> None:
        """Metal may ignore all that a queue is given after errors, so what comes is for another one."""
        made = self.objc.make(self.gpu, messages.NEW_QUEUE, MAX_COMMAND_BUFFERS)
        old, self.queue_object = self.queue_object, made
        self._owned[self._owned.index(old)] = made
        self.objc.release(old)

    def _leave_events(self) -> None:
        """Nothing in flight waits any more, and what it signals nobody sees."""
        cells = [signal._cell for signal in list(self.signals.values())]
        with self._flight_lock:  # of signals that nobody holds any more, too
            cells += [cell for _, _, used in self._in_flight for cell in used]
        for cell in {id(cell): cell for cell in cells}.values():
            if isinstance(cell, EventCell):
                cell.leave()
        self.relay.abandon()

    def _ends_within(self, seconds: float) -> bool:
        """Whether all command buffers end; they are given back then."""
        end = time.monotonic() + seconds
        with self._flight_lock:
            for _, made, _ in self._in_flight:
                while any(self._status(one) < Status.COMPLETED for one in made):
                    if time.monotonic() > end:
                        return False
                    time.sleep(PAUSE_SECONDS)
            while self._in_flight:
                for command_buffer in self._in_flight.popleft()[1]:
                    self.objc.release(command_buffer)
        return True

    # ------------------------------------------------------------ what there is to know

    def facts(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "arch": self.arch,
            "model": self.model,
            "timeline": self.timeline.va,
            "max_grid": MAX_GRID,
            "max_block": 1024,
            "shared_bytes": self.shared_bytes,
            "memory_bytes": self.working_set_bytes,
            "queues": ["main"],
        }

    def stats(self) -> dict[str, int]:
        return {
            "submissions": self.timeline.submitted,
            "packets": self._packets,
            "dispatches": self._dispatches,
            "mapped_bytes": self.memory.mapped_bytes,
        }
