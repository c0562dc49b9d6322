"""Devices: opening by named steps, and what every device has: memory, a timeline, a ledger, queues, programs.

In       a name and a port to the operating system
Out      a Device
Changes  opening starts the device's threads or channels; closing (at exit, too) drains and ends them
Next     opening.py (hcq.open), cpu/device.py (the first device), queue.py (how work is recorded), signal.py (how it is
         awaited), open_devices.py (all that are open)
"""

from __future__ import annotations

import platform
import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from hcq import checks, native, open_devices
from hcq import config as config_module
from hcq.command import Command, Timestamp
from hcq.config import Config
from hcq.errors import DeviceFault, HcqError, WaitTimeout
from hcq.interrupted import Sent, settle
from hcq.layout import Packet
from hcq.ledger import Ledger
from hcq.life import CLOSED, Mortal
from hcq.memory import Buffer, Pool
from hcq.port import LinuxPort, Port, RecordingPort
from hcq.profile import Profile
from hcq.program import Program, Slot
from hcq.queue import ONE, Grid, Queue
from hcq.recorder import EVERY, Site, site
from hcq.signal import CELL_BYTES, SLICE_NS, Completion, Signal, Timeline
from hcq.trace.writer import DeviceTrace, TraceWriter

if TYPE_CHECKING:
    from hcq.report import RingState
    from hcq.validator import Validator

D = TypeVar("D", bound="Device")

GRACE_MS = 1000  # reset() waits so long for work to stop by itself
MAX_SCRATCH_BYTES = 1 << 32  # of a thread


class Steps(Generic[D]):
    """Bring-up as a list of named steps; a failing one says its number, its name and what it was for."""

    def __init__(self, title: str, *steps: tuple[str, Callable[[D], None]]) -> None:
        self.title = title
        self.steps = steps

    def run(self, device: D) -> None:
        for number, (name, step) in enumerate(self.steps, 1):
            try:
                step(device)
            except HcqError as error:
                where = f'{self.title}: step {number}/{len(self.steps)} "{name}" failed: {error}'
                raise type(error)(where) from error


class Device(Mortal, ABC):
    """Base of all devices. A subclass encodes commands, carries words to its hardware, and maps memory."""

    steps: ClassVar[Steps[Any]]

    def __init__(self, name: str, port: Port | None = None, config: Config | None = None) -> None:
        self.name = name
        self.port: Port = LinuxPort() if port is None else port
        self.config = config_module.current() if config is None else config
        self.arch = ""
        self.lock = threading.RLock()
        self.is_lost = (
            False  # it could not be rebuilt after a fault; what it holds is given back when it closes
        )
        self.ledger = Ledger()
        self.memory = Pool(self)
        self.trace: DeviceTrace | None = None
        if self.config.trace is not None:
            self.trace = DeviceTrace(TraceWriter.of(self.config.trace), self, self.config.trace_data)
            self.port = RecordingPort(self.port, self.trace.call)
        self._sites = 0 if self.trace is not None or self.config.validate or self.config.debug else EVERY - 1
        self.choose_alloc()
        self.validator: Validator | None = None
        self.failures: list[tuple[int, int, str]] = []  # first and last timeline value, and what happened
        # address -> signal
        self.signals: weakref.WeakValueDictionary[int, Signal] = weakref.WeakValueDictionary()
        self._dropped = 0  # the last submission of those that a fault made void, until the timeline says so
        # what trace and rules were told of programs: a child of fork tells its own
        self.told: weakref.WeakKeyDictionary[Program, tuple[str, bytes, Mapping[str, str] | None]] = (
            weakref.WeakKeyDictionary()
        )
        self.waits: dict[int, tuple[str, int, int]] = {}  # thread -> signal, value and since when it waits
        self.graphs: weakref.WeakSet[Any] = weakref.WeakSet()  # those replayed on this device
        # Python's own loads may pass each other on a weakly ordered host: there even a finished wait asks native code,
        # whose load of the signal is an acquire. A trace and the rules want to see every wait, too.
        self.is_ordered = platform.machine() == "x86_64"
        self.asks_device = self.trace is not None or self.config.validate or not self.is_ordered
        self.profile = Profile(self) if self.config.profile else None
        self.timeline: Timeline
        try:
            self.steps.run(self)
        except BaseException:
            self.die("it did not open")
            self.unwind()
            raise
        if self.config.validate:
            from hcq.validator import Validator

            self.validator = Validator(self)
        self.is_open = True
        open_devices.register(self)
        if "signal" in self.config.report:
            _report_on_signal()
        if self.trace is not None:
            self.trace.opened()

    # ------------------------------------------------------------ what a subclass provides

    @abstractmethod
    def map_memory(self, size_bytes: int) -> int:
        """New memory that device and host see, page aligned."""

    @abstractmethod
    def unmap_memory(self, va: int, size_bytes: int) -> None: ...

    @abstractmethod
    def encode(self, what: Command) -> bytes:
        """One command as packets. A pure function, and `decode` inverts it."""

    @abstractmethod
    def decode(self, words: Sequence[int]) -> list[Packet]: ...

    @abstractmethod
    def encode_dispatch(
        self, program: Program, args: Sequence[Any], grid: Grid, block: Grid, groups_per_claim: int
    ) -> tuple[bytes, tuple[int | float, ...]]:
        """A dispatch as packets, and its arguments as plain numbers; checks everything before the doorbell."""

    @abstractmethod
    def argument_slot(self, program: Program, args: Sequence[Any], index: int) -> Slot:
        """Where an argument is in a dispatch's packet, or in what it uploads: a graph patches it there."""

    @abstractmethod
    def send(self, words: list[bytes], value: int) -> None:
        """Put packets into the ring, then the signal that sets the timeline to `value`, and ring the doorbell."""

    @abstractmethod
    def settle(self, value: int) -> Sent:
        """`send` was cut short at some line: take back what the device was not told of, or tell it all of it."""

    def ring_words(self, words: list[bytes], value: int) -> bytes:
        """Every word that a submission of these words puts into the ring, for the trace. `send` comes next."""
        return b"".join(words) + self.finish(value)

    @abstractmethod
    def make_program(
        self, image: bytes, entry: str, args: tuple[str, ...] | None, scratch_bytes: int, name: str
    ) -> Program: ...

    @abstractmethod
    def signal_set(self, va: int, value: int) -> None: ...

    @abstractmethod
    def signal_wait(self, va: int, value: int, timeout_ns: int) -> int:
        """Wait on a cell for a while; returns the value seen, which may still be too small."""

    @abstractmethod
    def fault(self) -> str:
        """What the device stopped on, or ""."""

    @abstractmethod
    def recover(self) -> None:
        """After a fault: drop what was submitted and go on. The caller holds the lock."""

    @abstractmethod
    def abandon(self, is_on: bool = True) -> None:
        """Make the device give up a wait that nobody will signal, or no longer."""

    @abstractmethod
    def stop(self, timeout_ms: float) -> bool:
        """End the device's threads or channels; False when they did not end in time."""

    @abstractmethod
    def unwind(self) -> None:
        """End what was started when opening fails at a later step."""

    @abstractmethod
    def give_back(self) -> None:
        """Unmap what `stop` has left for those who kept completions and signals: nobody does any more."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What `python -m hcq devices` and the trace say about this device."""

    @abstractmethod
    def stats(self) -> dict[str, int]:
        """Counters since the device opened: submissions, packets, dispatches."""

    def validate(self, words: Sequence[bytes]) -> None:
        """Rules of a kind of device that declares no effects to hcq.validate yet; asked under HCQ_VALIDATE=1."""

    def ring_states(self) -> list[RingState]:
        """Put, get and the packet at get of every ring: for reports."""
        return []

    def command_in_hand(self) -> int | None:
        """Which command of the submission that is next to finish the device is at, blocks counted through."""
        return None

    def replace(self) -> str:
        """Leave work that cannot be stopped to itself, and start anew; says what that costs. "" when it cannot."""
        return ""

    # ------------------------------------------------------------ the same for all

    # alloc(size_bytes, name=None) -> Buffer is the pool's own method: no call in between
    alloc: Callable[..., Buffer]

    # finish(value) -> the packet that sets the timeline at the end of a submission
    finish: Callable[[int], bytes]

    queue_name = "main"  # what the trace calls it

    def stamp(self, va: int) -> bytes:
        """The packet that stores the device's clock at an address."""
        return self.encode(Timestamp(va))

    # how the host reaches device memory; a device whose memory it reads slowly, or does not see, has it copied
    view_memory: Callable[[int, int, object], memoryview] = staticmethod(native.view)
    write_memory: Callable[[int, Any, int], None] = staticmethod(native.write)
    read_memory = staticmethod(native.read)
    read_memory_into = staticmethod(native.read_into)

    def choose_alloc(self) -> None:
        tells = self.trace is not None or self.config.validate or "alloc" in self.config.debug
        self.alloc = self.memory.alloc_and_tell if tells else self.memory.alloc

    def queue(self) -> Queue:
        """A new, empty queue."""
        return Queue(self)

    shares_memory = False  # whether `can_reach` may be true

    def can_reach(self, buffer: Buffer) -> bool:
        """Whether work of this device can be given another device's buffer."""
        return False

    def moment_ns(self, ticks: int) -> int:
        """When a Timestamp command stored this, on the clock of time.monotonic_ns; here they are the same."""
        return ticks

    def duration_ns(self, ticks: int) -> int:
        """How long so many ticks of the clock are that Timestamp commands store; here they are nanoseconds."""
        return ticks

    def graph(self, name: str = "graph") -> Any:
        """A new graph to record into: see hcq.graph.Graph."""
        from hcq.graph import Graph

        return Graph(self, name)

    def signal(self, name: str = "signal") -> Signal:
        """A new signal, value 0."""
        return Signal(self, self.memory.alloc_idle(CELL_BYTES, checks.text("signal", "name", name)), name)

    def load(
        self,
        image: bytes,
        entry: str,
        args: Sequence[str] | None = None,
        scratch_bytes: int = 0,
        name: str | None = None,
        access: Sequence[str] | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> Program:
        """Load a code object and find its entry.

        image          a whole ELF object for this device's arch
        entry          the kernel's symbol
        args           kinds of its arguments ("buffer", "int", "float"): dispatches are then checked against them
        scratch_bytes  private memory for each worker, handed to the kernel
        name           how messages and traces call it; default the entry
        access         what it does with each argument's memory ("read", "write", "both", ""): validation then judges
                       the order of its launches, too
        texts          what it was made from, "source" or "ir", for whoever reads a trace
        Raises         UsageError saying what is wrong with the object
        """
        self.check_alive()
        image = bytes(checks.memory("load", image))
        label = checks.text("load", "entry", entry)
        if name is not None and checks.text("load", "name", name):
            label = name
        kinds = None if args is None else checks.words(f"load({label!r})", "args", args)
        scratch = checks.whole(f"load({label!r})", "scratch_bytes", scratch_bytes, 0, MAX_SCRATCH_BYTES)
        program = self.memory.with_room(lambda: self.make_program(image, entry, kinds, scratch, label))
        if access is not None:
            program.set_access(access)
        if self.trace is not None:
            self.trace.code(program, entry, image, texts)
        if self.validator is not None:
            self.validator.load(program, image)
        if self.trace is not None or self.validator is not None:
            self.told[program] = entry, image, texts
        return program

    def run(self, program: Program, args: Sequence[Any] = (), grid: Grid = ONE, block: Grid = ONE) -> None:
        """Dispatch one program and wait for it."""
        Queue(self).dispatch(program, args, grid, block).submit().wait()

    def submit(
        self, words: list[bytes], commands: Sequence[Command], held: Sequence[Any] = (), at: Site = None
    ) -> Completion:
        """Send encoded commands. Threads may submit at the same time; the order is that of the lock.

        words     whole packets; the words of one entry stay together in the ring
        commands  what they stand for: for messages and the trace
        held      the buffers they use, in nested lists: for the trace
        at        the line of the program that asked for it, where the caller knows it
        """
        with self.lock:
            if self.dead:
                self.check_alive()
            timeline = self.timeline
            value = timeline.submitted + 1
            if value < EVERY or not value & self._sites:
                at = site()
            try:
                if self.validator is not None:
                    self._send_validated(words, commands, value, held, at)
                elif self.trace is None:
                    self.send(words, value)
                else:
                    self._send_traced(words, commands, value, held, at)
                timeline.submitted = value
                self.ledger.note((value, commands, at))
            except BaseException:
                settle(self, value, commands, held, at)
                raise
        if "push" in self.config.debug:
            self._tell(words, commands, value)
        return Completion(self, value)

    def synchronize(self, timeout_ms: float | None = None) -> None:
        """Return once everything submitted so far is done. Raises WaitTimeout; DeviceFault if the last of it failed."""
        if timeout_ms is not None:
            timeout_ms = checks.milliseconds(f"{self.name}.synchronize", timeout_ms)
        if self.dead:
            self.check_alive()
        value = self.timeline.submitted
        if self.asks_device or self.timeline._cell[0] != value or self.failures:
            self.wait_value(value, timeout_ms)

    def wait_value(self, value: int, timeout_ms: float | None = None) -> None:
        """Return once the timeline has reached `value`."""
        timeline = self.timeline
        if self.asks_device or not value <= timeline._cell[0] <= timeline.submitted:
            self.wait_cell(self.timeline, value, timeout_ms)
        if self.failures:
            for first, last, why in self.failures:
                if first <= value <= last:
                    raise DeviceFault(why)

    def drain(self, value: int, timeout_ms: float | None = None) -> None:
        """Return once the timeline has reached `value`, whether the work failed or not."""
        timeline = self.timeline
        if self.asks_device or not value <= timeline._cell[0] <= timeline.submitted:
            self.wait_cell(self.timeline, value, timeout_ms)

    def wait_cell(self, signal: Signal, value: int, timeout_ms: float | None = None) -> None:
        """Return once a signal has reached `value`; sees faults of this device meanwhile."""
        if self.is_ordered and signal.value >= value and not self._is_overwritten(signal):
            if self.asks_device:
                self._saw(signal, value)
            return
        self.check_alive()
        limit_ms = self.config.timeout_ms if timeout_ms is None else timeout_ms
        start = time.monotonic_ns()
        end = start + int(limit_ms * 1e6)
        self.waits[threading.get_ident()] = signal.name, value, start
        try:
            while True:
                left = end - time.monotonic_ns()
                if self.signal_wait(signal.va, value, min(max(left, 0), SLICE_NS)) >= value:
                    if self._is_overwritten(signal):
                        continue
                    break
                if self.fault() or self._dropped:
                    self._note_fault()
                elif left <= 0:
                    raise self.late(signal, value, limit_ms)
                elif self.dead:
                    self.check_alive()
        finally:
            self.waits.pop(threading.get_ident(), None)
        if "sync" in self.config.debug:
            waited = (time.monotonic_ns() - start) / 1000
            self.say(f"waited {waited:.0f} us for {signal.name}@{signal.va:#x} >= {value}")
        self._saw(signal, value)

    def _is_overwritten(self, signal: Signal) -> bool:
        """Whether the timeline says that more is done than was submitted. Then it starts again below everything.

        What is done is not known any more, so an empty submission is made: once it is done, all before it is.
        """
        if signal is not self.timeline or not self.timeline.is_ahead:
            return False
        # whoever submits right now has the lock, and its work may be done before it is counted
        with self.lock:
            seen, submitted = self.timeline.value, self.timeline.submitted
            if seen <= submitted:
                return False
            self.say(f"the timeline says {seen} of {submitted} submissions: its memory was overwritten")
            self.timeline._cell[0] = 0
            self.submit([], [])
        return True

    def _saw(self, signal: Signal, value: int) -> None:
        """The host knows that a signal has reached a value: rules and trace want to know, too."""
        if self.validator is not None:
            self.validator.host_saw(signal.va, value)
        if self.trace is not None:
            self.trace.signal(signal.va, signal.value, signal.timestamp_ns)

    def late(self, signal: Signal, value: int, limit_ms: float) -> WaitTimeout:
        """The error for a deadline that passed; tells trace and report."""
        error = signal.timeout(value, limit_ms, self._pending())
        from hcq import report

        if limit_ms >= report.POLL_MS:
            if self.trace is not None:
                self.trace.fault("timeout", str(error), va=signal.va, value=value)
            key = ("timeout", self.timeline.value, signal.va, value)
            report.tell(self, f"{self.name}: a wait of {limit_ms:g} ms timed out", key, signal.va)
        return error

    def reset(self) -> None:
        """Drop all work in flight (it counts as failed) and make the device usable again.

        Work that does not stop within GRACE_MS, such as a kernel that never returns, is left to itself where the
        device can start anew beside it: see `replace`.
        """
        self.check_alive()
        self._is_overwritten(self.timeline)
        if self.timeline.value >= self.timeline.submitted:
            return
        try:
            self.abandon()
            self._await_end(min(self.config.timeout_ms, GRACE_MS))
            self._note_fault(is_asked_for=True)
        finally:
            self.abandon(False)

    def _await_end(self, limit_ms: float) -> None:
        """Return once no work runs any more that was in flight."""
        end = time.monotonic() + limit_ms / 1000
        while not self.fault() and self.timeline.value < self.timeline.submitted:
            if time.monotonic() > end:
                with self.lock:
                    cost = self.replace()
                if not cost:
                    raise self.timeline.timeout(self.timeline.submitted, limit_ms, self._pending())
                print(f"hcq: {cost}", file=sys.stderr)
                break
            time.sleep(0.001)

    def rests_within(self, limit_ms: float) -> bool:
        """Wait for what is in flight now, or until the device stops on a fault; False when that took too long."""
        end, value = time.monotonic_ns() + int(limit_ms * 1e6), self.timeline.submitted
        while self.timeline.value < value and not self.fault():
            left = end - time.monotonic_ns()
            if left <= 0:
                return False
            self.signal_wait(self.timeline.va, value, min(left, SLICE_NS))
        return True

    def close(self, timeout_ms: float | None = None) -> None:
        """Drain with a deadline, end the threads, give memory back. Closing twice is fine.

        What the device's buffers held goes with it: read results before. Signals and completions still tell theirs.
        """
        if timeout_ms is not None:
            timeout_ms = checks.milliseconds(f"{self.name}.close", timeout_ms)
        is_of_use = self.is_open and (self.is_lost or not self.dead)
        if not is_of_use:
            return
        limit_ms = self.config.timeout_ms if timeout_ms is None else timeout_ms
        known = len(self.failures)  # faults that somebody could already hear of
        try:
            if not self.is_lost:
                self.wait_cell(self.timeline, self.timeline.submitted, limit_ms)
        except HcqError as error:
            if self.dead == CLOSED:
                return  # another thread was faster
            print(f"hcq: closing {self.name}: {error}", file=sys.stderr)
        for _, _, why in self.failures[known:]:
            print(f"hcq: closing {self.name}: {why}", file=sys.stderr)
        self.end(CLOSED, min(limit_ms, 5000))

    def end(self, why: str, timeout_ms: float) -> None:
        """Die, and stop what runs. Work that is still in flight stays unfinished."""
        with self.lock:
            if self.dead and not self.is_lost:
                return  # another thread was faster
            if self.profile is not None and not self.is_lost and not self.fault():
                self.say("time on the device\n" + self.profile.table())
            if self.trace is not None:
                self.trace.closed()
                self.trace = None
            self.is_open = self.is_lost = False
            self.die(why)
        try:
            self.is_stopped = self.stop(timeout_ms)
            if self.is_stopped:
                self.ledger.entries.clear()  # they hold programs, and those hold code
        finally:
            open_devices.unregister(self)

    def say(self, text: str) -> None:
        """One line of HCQ_DEBUG output."""
        print(f"hcq {self.name}: {text}", file=sys.stderr)

    def _pending(self) -> str:
        done, submitted = self.timeline.value, self.timeline.submitted
        if done >= submitted:
            return "Nothing is in flight on this device: nobody will set it. Submit the signal first."
        return (
            f"In flight: {submitted - done} submissions; next to finish {self.ledger.describe(done + 1)}. "
            "Give more time with timeout_ms or HCQ_TIMEOUT_MS, or call reset(). See HCQ_DEBUG=push."
            + "".join(f" {finding}" for finding in (self.validator.unended() if self.validator else ()))
        )

    def _note_fault(self, is_asked_for: bool = False) -> None:
        with self.lock:
            what = self.fault()
            if not what:
                self._skip_dropped()
                return
            first, last = self.timeline.value + 1, self.timeline.submitted
            if first > last + 1:
                first = 1  # the timeline was overwritten: nobody knows what was done
            why = f"{self.name}: {what}, in submission {self.ledger.describe(first)}."
            if last > first:
                why += f" The {last - first} submissions after it were dropped."
            self.failures.append((first, last, why))
            if self.trace is not None:
                self.trace.fault("fault", why, first=first, last=last)
            if self.validator is not None:
                self.validator.failed(first, last)
            if not is_asked_for:
                from hcq import report

                report.tell(self, why, ("fault", first, last))
            for buffer in self.memory.owners():
                if first <= buffer.last <= last:
                    buffer.poison = why
            for graph in list(self.graphs):
                graph.poison(first, last, why)
            self._dropped = last
            self.recover()
            self._skip_dropped()

    def _skip_dropped(self) -> None:
        """The timeline goes on behind the work that was dropped. Who was interrupted before it comes here again."""
        if self.timeline._cell[0] < self._dropped:
            self.signal_set(self.timeline.va, self._dropped)
        self._dropped = 0

    def _send_validated(
        self, words: list[bytes], commands: Sequence[Command], value: int, held: Sequence[Any], at: Site
    ) -> None:
        """The rules first; what they refuse is neither sent nor traced."""
        assert self.validator is not None
        self.validator.submit(words, commands, value)
        try:
            if self.trace is None:
                self.send(words, value)
            else:
                self._send_traced(words, commands, value, held, at)
            self.validator.sent()
        except BaseException:
            if settle(self, value, commands, held, at):
                self.validator.sent()
            else:
                self.validator.dropped()
            raise

    def _send_traced(
        self, words: list[bytes], commands: Sequence[Command], value: int, held: Sequence[Any], at: Site
    ) -> None:
        """Into the file before the doorbell: what brings the process down should be the last thing in it."""
        assert self.trace is not None
        try:
            self.send(self.trace.submit(words, commands, value, held, at), value)
        except BaseException as error:
            if not settle(self, value, commands, held, at):
                self.trace.dropped(value, str(error))
            raise

    def _tell(self, words: list[bytes], commands: Sequence[Command], value: int) -> None:
        blob = self.ring_words(words, value)
        lines = [f"  {packet}" for packet in self.decode(memoryview(blob).cast("I"))]
        lines += [f"  meaning {what}" for what in commands]
        self.say("\n".join([f"submit #{value}, {len(blob) // 4} words", *lines]))

    def __repr__(self) -> str:
        return f"Device({self.name}, {self.arch})"

    def __del__(self, bury: Callable[[Device], None] = open_devices.bury) -> None:
        if self.is_stopped:
            bury(self)


def _report_on_signal() -> None:
    """HCQ_REPORT=signal: a report at SIGUSR1, from the first device on."""
    global _reports_on_signal
    if not _reports_on_signal:
        from hcq import report

        report.install(chain=True)
        _reports_on_signal = True


_reports_on_signal = False
