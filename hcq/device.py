"""Device: opening in named steps, and what all kinds of devices share: memory, a timeline, queues, programs, waits.

In       a name and a port to the operating system
Out      a Device
Changes  opening starts the device's threads or channels; closing (at exit, too) drains and ends them
Next     hcq/lifetime/opening.py (hcq.open), base.py (the interface for a device's parts), cpu/device.py (the CPU
         device), queue.py (recording work), signal.py (waiting for it), hcq/events/observer.py (observers)
"""

from __future__ import annotations

import platform
import threading
import time
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from hcq import checks
from hcq import config as config_module
from hcq.base import Cell, Grid, RingState
from hcq.command import Command, Dispatch, Timestamp
from hcq.config import Config
from hcq.errors import DeviceFault, HcqError, UsageError, WaitTimeout
from hcq.events.observer import diagnostics
from hcq.layout import Packet
from hcq.lifetime import open_devices
from hcq.lifetime.recovery import Recovery, Submitted
from hcq.memory import Buffer, Pool
from hcq.program import Program, check_dispatch
from hcq.queue import ONE, Queue
from hcq.signal import CELL_BYTES, SLICE_NS, Completion, Signal
from hcq.system.call_site import EVERY, Site, site
from hcq.system.port import LinuxPort, Port
from hcq.work.interrupted_submission import settle

if TYPE_CHECKING:
    from hcq.graph import Graph

D = TypeVar("D", bound="Device")

POLL_MS = 10  # a wait with a shorter deadline is a question, not a failure
REMEMBERED = 1024  # submissions
MAX_SCRATCH_BYTES = 1 << 32  # of a thread


class Steps(Generic[D]):
    """Bring-up as a list of named steps; a failing one says its number, its name and what it was for.

    title  what the steps together do, as errors say it
    steps  (name, function of the device), in order
    """

    def __init__(self, title: str, *steps: tuple[str, Callable[[D], None]]) -> None:
        self.title = title
        self.steps = steps

    def run(self, device: D) -> None:
        """Do every step in order. An HcqError of one is raised again, its text led by the step's number and name."""
        for number, (name, step) in enumerate(self.steps, 1):
            try:
                step(device)
            except HcqError as error:
                where = f'{self.title}: step {number}/{len(self.steps)} "{name}" failed: {error}'
                raise type(error)(where) from error


class Device(Recovery):
    """Base of all devices. A subclass encodes commands, carries words to its hardware, and maps memory.

    name      what it was opened as: "CPU", "AMD:1"
    arch      what code objects must be for: "x86_64", "gfx1100", "sm_90"
    timeline  the signal that counts its submissions
    memory    the Pool that buffers come from
    config    the switches it was opened with
    dead      why it may not be used any more, or ""
    """

    steps: ClassVar[Steps[Any]]

    def __init__(self, name: str, port: Port | None = None, config: Config | None = None) -> None:
        self.name = name
        self.port: Port = LinuxPort() if port is None else port
        self.config = config_module.current() if config is None else config
        self.arch = ""
        self.dead = (
            ""  # asked by hot paths, as are the observers: Python finds it faster here than in a class
        )
        self.lock = threading.RLock()
        self.recent = deque(maxlen=REMEMBERED)
        self.memory = Pool(self)
        self.failures: list[tuple[int, int, str]] = []  # first and last timeline value, and what happened
        # address -> signal
        self.signals: weakref.WeakValueDictionary[int, Signal] = weakref.WeakValueDictionary()
        # programs that observers were notified of, and how: a child of fork has observers of its own
        self.loaded: weakref.WeakKeyDictionary[Program, tuple[str, bytes, Mapping[str, str] | None]] = (
            weakref.WeakKeyDictionary()
        )
        self.waits: dict[int, tuple[str, int, int]] = {}  # thread -> signal, value and since when it waits
        self.graphs: weakref.WeakSet[Graph] = weakref.WeakSet()  # those replayed on this device
        # Python's own loads may pass each other on a weakly ordered host: there even a finished wait asks native code,
        # whose load of the signal is an acquire. Observers are notified of every wait, too.
        self.is_ordered = platform.machine() == "x86_64"
        self.observe(while_opening=True)
        try:
            self.steps.run(self)
        except BaseException:
            self.die("it did not open")
            self.unwind()
            raise
        self.observe(while_opening=False)
        self.is_open = True
        open_devices.register(self)
        if "signal" in self.config.report:
            diagnostics().report_on_signal()
        if self.config.inspect:
            diagnostics().answer_inspectors(self)
        for observer in self.observers:
            observer.opened()

    def observe(self, while_opening: bool) -> None:
        """Take in the observers that the configuration asks for: those of the bring-up, or those of an open device."""
        is_observed = self.config.is_observed
        self.observers = diagnostics().observers_of(self, while_opening) if is_observed else ()
        self.asks_device = bool(self.observers) or not self.is_ordered
        self.wraps_dispatches = any(observer.wraps_dispatches for observer in self.observers)
        self._sites = 0 if self.observers else EVERY - 1

    # ------------------------------------------------------------ what a subclass provides

    @abstractmethod
    def send(self, words: list[bytes], value: int) -> None:
        """Put packets into the ring, then the signal that sets the timeline to `value`, and ring the doorbell."""

    def ring_words(self, words: list[bytes], value: int) -> bytes:
        """Every word that a submission of these words puts into the ring, for the trace. `send` comes next."""
        return b"".join(words) + self.finish(value)

    def show_words(self, words: list[bytes], value: int) -> list[str]:
        """A submission that was sent, as its packets: the first line says how long it is."""
        blob = self.ring_words(words, value)
        packets = [f"  {packet}" for packet in self.decode(memoryview(blob).cast("I"))]
        return [f"submit #{value}, {len(blob) // 4} words", *packets]

    @abstractmethod
    def make_program(
        self, image: bytes, entry: str, args: tuple[str, ...] | None, scratch_bytes: int, name: str
    ) -> Program:
        """Load a checked code object: what `load` does on this kind of device.

        image          a whole object
        entry          the kernel's symbol
        args           kinds of its arguments, or None when nobody said
        scratch_bytes  private memory of each thread; UsageError on devices whose objects say it themselves
        name           how messages and traces call it
        Raises         UsageError when the object cannot be loaded, or has no such entry
        """
        ...

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What `python -m hcq devices` and the trace say about this device."""

    @abstractmethod
    def stats(self) -> dict[str, int]:
        """Counters since the device opened: submissions, packets, dispatches."""

    def validate(self, words: Sequence[bytes]) -> None:
        """Rules of a kind of device that declares no effects to hcq.rules yet; asked under HCQ_VALIDATE=1."""

    def ring_states(self) -> list[RingState]:
        """Put, get and the packet at get of every ring: for reports."""
        return []

    # why a report has nothing about waves on real hardware; "" where there are no waves
    waves_missing = ""

    def current_command(self) -> int | None:
        """Which command of the submission that is next to finish the device is at, blocks counted through."""
        return None

    # ------------------------------------------------------------ the same for all

    def alloc(self, size_bytes: int, name: str | None = None) -> Buffer:
        """A new buffer, its contents unknown; dropping the last reference frees it.

        size_bytes  at least 0; the address is a multiple of 64, from 64 KiB on of 4096
        name        how messages, reports and traces call it
        Raises      UsageError; DriverError when memory is out, naming who holds the most
        """
        return self.memory.alloc(size_bytes, name)

    def host_memory(self, size_bytes: int, name: str) -> Buffer:
        """A buffer in memory of the host, where the device has a way to such.

        The device copies between it and its own memory by itself, while the host, or a device that is the host's
        processor, does something else with what lies there.
        """
        return self.alloc(size_bytes, name)

    # finish(value) -> the packet that sets the timeline at the end of a submission
    finish: Callable[[int], bytes]

    queue_name = "main"  # what the trace calls it

    own_rings: ClassVar[tuple[str, ...]] = ()  # those that take packets of a program's own

    def own_bytes(self, packet: Packet, ring: str) -> bytes:
        """A packet that a program made itself, as a ring holds it."""
        return packet.to_bytes()

    def is_mapped(self, va: int, size_bytes: int, access: str) -> bool:
        """Whether all of a range is memory that was mapped for this device to "read", "write" or "run" it."""
        end, mapped = va + size_bytes, sorted(self.mapped_ranges(access))
        for start, size in mapped:
            if start <= va < start + size:
                va = start + size
        return va >= end

    def mapped_ranges(self, access: str) -> list[tuple[int, int]]:
        """Where memory is mapped for this device, and how much; for that access, where the device tells them apart."""
        return [*self.memory.regions.items(), (self.timeline.va, CELL_BYTES)]

    def stamp(self, va: int) -> bytes:
        """The packet that stores the device's clock at an address."""
        return self.encode(Timestamp(va))

    def queue(self) -> Queue:
        """A new, empty queue. Raises UsageError when the device cannot be used any more."""
        return Queue(self)

    def graph(self, name: str = "graph") -> Any:
        """A new graph to record into: see hcq.graph.Graph."""
        from hcq.graph import Graph  # who records none never loads how they are split and patched

        return Graph(self, name)

    def signal(self, name: str = "signal") -> Signal:
        """A new signal, value 0. Raises UsageError when the device cannot be used any more."""
        return Signal(self, self.memory.alloc_idle(CELL_BYTES, checks.text("signal", "name", name)), name)

    def load(
        self,
        image: bytes,
        entry: str,
        args: Sequence[str] | None = None,
        scratch_bytes: int = 0,
        name: str | None = None,
        access: Sequence[str] | None = None,
        sources: Mapping[str, str] | None = None,
        extents: Sequence[int] | None = None,
    ) -> Program:
        """Load a code object and find its entry. Each call has a copy of the object of its own: where kernels are to
        share an object's variables, or the host is to fill them, a GPU's `module` loads it once.

        image          a whole ELF object for this device's arch, or a container that holds one
        entry          the kernel's symbol
        args           kinds of its arguments ("buffer", "int", "float"): dispatches are then checked against them
        scratch_bytes  private memory for each worker, handed to the kernel
        name           how messages and traces call it; default the entry
        access         what it does with each argument's memory ("read", "write", "both", ""): validation then judges
                       the order of its launches, too
        sources        what it was made from, "source" or "ir", for readers of a trace
        extents        beside `access`: how many bytes of each argument's memory it uses, 0 for all of it
        Raises         UsageError saying what is wrong with the object
        """
        self.check_alive()
        image = bytes(checks.memory("load", image))
        label = checks.text("load", "entry", entry)
        if name is not None and checks.text("load", "name", name):
            label = name
        kinds = None if args is None else checks.words(f"load({label!r})", "args", args)
        image = self.take_out(image, label, entry)
        scratch = checks.whole(f"load({label!r})", "scratch_bytes", scratch_bytes, 0, MAX_SCRATCH_BYTES)
        program = self.memory.with_room(lambda: self.make_program(image, entry, kinds, scratch, label))
        self.announce(program, entry, image, access, sources, extents)
        return program

    def take_out(self, image: bytes, name: str, entry: str | None) -> bytes:
        """The object for this device, where an image is a container of such; else the image itself.

        Raises  UsageError that names the container, and the tool that opens it, when nothing in it is for this device
        """
        return image

    def announce(
        self,
        program: Program,
        entry: str,
        image: bytes,
        access: Sequence[str] | None,
        sources: Mapping[str, str] | None,
        extents: Sequence[int] | None,
    ) -> None:
        """The end of every load: say what is known of a program, to itself and to the observers."""
        if access is not None:
            program.set_access(access, extents)
        program.origin = entry, image
        program.complete()
        if self.observers:
            self.loaded[program] = entry, image, sources
            for observer in self.observers:
                observer.load(program, entry, image, sources)

    def module(self, image: bytes, name: str = "module") -> Any:
        """Load a code object once: its programs share its variables, which the host reads and fills.

        image    as `load`
        name     how messages and traces call it
        Returns  hcq.gpu.module.GpuModule: `program(entry)`, `variable(name)`, `entries`, `variables`
        Raises   UsageError saying what is wrong with the object, or that this kind of device has no modules
        """
        raise UsageError(
            f"{self.name}.module: only AMD and NV devices have modules. Take load(image, entry)."
        )

    def unloaded(self, entry: int) -> None:
        """A program is gone. Called by destructors."""
        for observer in self.observers:
            observer.unload(entry)

    def run(self, program: Program, args: Sequence[Any] = (), grid: Grid = ONE, block: Grid = ONE) -> None:
        """Dispatch one program and wait for it: `queue().dispatch(...).submit().wait()`.

        args         a Buffer, an int or a float for each parameter
        grid, block  workgroups per launch, threads per workgroup: (x, y, z)
        Raises       UsageError as Queue.dispatch; WaitTimeout and DeviceFault as Completion.wait
        """
        Queue(self).dispatch(program, args, grid, block).submit().wait()

    def launch(
        self, program: Program, args: Sequence[Any] = (), grid: Grid = ONE, block: Grid = ONE
    ) -> Completion:
        """Dispatch one program: `queue().dispatch(...).submit()`, by a shorter way where nobody observes."""
        if self.observers:
            return Queue(self).dispatch(program, args, grid, block).submit()
        try:
            if program._numbers:
                args = program.with_numbers(args)
            words, values = self.encode_dispatch(program, args, grid, block, 0)
        except HcqError:
            raise
        except (AttributeError, TypeError, ValueError):  # what was passed has not even the right type
            check_dispatch(self, program, args, block, 0)
            raise
        last = 0
        try:
            done = self.submit(
                [words], (Dispatch(program, values, grid, block, 0, program._dynamic_shared),), args
            )
            last = done.value
        finally:
            if not last:  # it may have been sent: the host waits for all before it writes there
                last = self.timeline.submitted
            for thing in args:
                if type(thing) is Buffer:
                    (thing.parent or thing).last = last
        return done

    def prepare(self, program: Program, grid: Grid, block: Grid) -> Callable[[Sequence[Buffer]], object]:
        """`launch` for those who launch a program over one grid again and again: a function of the buffers alone.

        Raises  UsageError for a grid or a block that cannot be; calling it raises as `launch`
        """
        return lambda buffers: self.launch(program, buffers, grid, block)

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
                if self.observers:
                    self._send_observed(value, words, commands, held, at)
                else:
                    self.send(words, value)
                timeline.submitted = value
                self.recent.append((value, commands, at))
            except BaseException:
                settle(self, value, commands, held, at)
                raise
        return Completion(self, value)

    def wait_for_room(
        self, has_room: Callable[[], bool], pause: Callable[[], object], state: Callable[[], str]
    ) -> None:
        """Inside `send`: return once a ring has room that the device already works on.

        state   says in an error which ring, and how far it is
        Raises  DeviceFault when the device stops meanwhile, WaitTimeout at the deadline
        """
        end = time.monotonic() + self.config.timeout_ms / 1000
        while not has_room():
            if self.fault():
                self.note_fault()
                raise DeviceFault(
                    f"submit on {self.name}: the device stopped meanwhile. {self.failures[-1][2]}"
                )
            if time.monotonic() > end:
                raise WaitTimeout(
                    f"submit on {self.name}: waited {self.config.timeout_ms} ms for {state()}. {self.pending()}"
                )
            pause()

    def synchronize(self, timeout_ms: float | None = None) -> None:
        """Return once everything submitted so far is done.

        timeout_ms  deadline; default HCQ_TIMEOUT_MS
        Raises      WaitTimeout; DeviceFault when the last submission failed
        """
        if timeout_ms is not None:
            timeout_ms = checks.milliseconds(f"{self.name}.synchronize", timeout_ms)
        if self.dead:
            self.check_alive()
        value = self.timeline.submitted
        if self.asks_device or self.timeline._cell[0] != value or self.failures:
            self.wait_value(value, timeout_ms)

    def wait_value(self, value: int, timeout_ms: float | None = None) -> None:
        """Return once the timeline has reached `value`.

        Raises WaitTimeout; DeviceFault when that submission failed.
        """
        timeline = self.timeline
        if self.asks_device or not value <= timeline._cell[0] <= timeline.submitted:
            self.wait_cell(self.timeline, value, timeout_ms)
        if self.failures:
            for first, last, why in self.failures:
                if first <= value <= last:
                    raise DeviceFault(why)

    def drain(self, value: int, timeout_ms: float | None = None) -> None:
        """Return once the timeline has reached `value`, whether the work failed or not. Raises WaitTimeout."""
        timeline = self.timeline
        if self.asks_device or not value <= timeline._cell[0] <= timeline.submitted:
            self.wait_cell(self.timeline, value, timeout_ms)

    def wait_cell(self, signal: Cell, value: int, timeout_ms: float | None = None) -> None:
        """Return once a signal has reached `value`; sees faults of this device meanwhile.

        timeout_ms  deadline; default HCQ_TIMEOUT_MS
        Raises      WaitTimeout; UsageError when the device cannot be used any more
        """
        if self.is_ordered and signal._cell[0] >= value and not self._is_overwritten(signal):
            self._waited(signal, 0)
            return
        self.check_alive()
        limit_ms = self.config.timeout_ms if timeout_ms is None else timeout_ms
        start = time.monotonic_ns()
        end = start + int(limit_ms * 1e6)
        first = self.timeline.value + 1
        self.waits[threading.get_ident()] = signal.name, value, start
        try:
            while True:
                left = end - time.monotonic_ns()
                if self.signal_wait(signal.va, value, min(max(left, 0), SLICE_NS)) >= value:
                    if self._is_overwritten(signal):
                        continue
                    break
                if self.fault() or self._dropped:
                    self.note_fault()
                elif left <= 0:
                    self.note_late(first, limit_ms)
                    raise self.late(signal, value, limit_ms)
                elif self.dead:
                    self.check_alive()
        finally:
            self.waits.pop(threading.get_ident(), None)
        self._waited(signal, time.monotonic_ns() - start)

    def restart_timeline(self) -> bool:
        """Whether the timeline says that more is done than was submitted. Then it starts again below everything.

        What is done is not known any more, so an empty submission is made: once it is done, all before it is.
        """
        if not self.timeline.is_ahead:
            return False
        # a thread that submits right now has the lock, and its work may be done before it is counted
        with self.lock:
            seen, submitted = self.timeline.value, self.timeline.submitted
            if seen <= submitted:
                return False
            self.say(f"the timeline says {seen} of {submitted} submissions: its memory was overwritten")
            self.timeline._cell[0] = 0
            self.submit([], [])
        return True

    def _is_overwritten(self, signal: Cell) -> bool:
        return signal is self.timeline and self.restart_timeline()

    def _waited(self, signal: Cell, waited_ns: int) -> None:
        for observer in self.observers:
            observer.waited(signal.va, signal.name, signal._cell[0], signal.timestamp_ns, waited_ns)

    def late(self, signal: Cell, value: int, limit_ms: float) -> WaitTimeout:
        """The error for a deadline that passed; observers and a report say so, too."""
        error = signal.timeout(value, limit_ms, self.pending())
        if limit_ms >= POLL_MS:
            for observer in self.observers:
                observer.timeout(signal.va, value, str(error))
            key = ("timeout", self.timeline.value, signal.va, value)
            self.report(f"{self.name}: a wait of {limit_ms:g} ms timed out", key, signal.va)
        return error

    def pending(self) -> str:
        """What is in flight, in words, for the error of a wait that timed out."""
        from hcq.work.awaited_signals import awaited

        done, submitted = self.timeline.value, self.timeline.submitted
        if done >= submitted:
            return "Nothing is in flight on this device: nobody will set it. Submit the signal first."
        return (
            f"In flight: {submitted - done} submissions; next to finish {self.describe(done + 1)}."
            f"{awaited(self)} "
            "Give more time with timeout_ms or HCQ_TIMEOUT_MS, or call reset(). See HCQ_DEBUG=push."
            + "".join(
                f" {finding}" for observer in self.observers for finding in observer.unsatisfied_waits()
            )
        )

    def describe(self, value: int) -> str:
        """A submission in words: what it does, and the line that made it."""
        text: str = diagnostics().ledger.describe(self.recent, value)
        return text

    def submission(self, value: int) -> Submitted | None:
        """What a value of the timeline stands for; None when that is too long ago."""
        return next((made for made in self.recent.copy() if made[0] == value), None)

    def note(self, value: int, commands: Sequence[Command], at: Site) -> None:
        """Remember what a timeline value stands for."""
        self.recent.append((value, commands, at))

    def _send_observed(
        self, value: int, words: list[bytes], commands: Sequence[Command], held: Sequence[Any], at: Site
    ) -> None:
        """Observers first, in their order: what one refuses is neither shown to the next nor sent."""
        notified = 0
        try:
            for observer in self.observers:
                notified += 1
                words = observer.submitting(value, words, commands, held, at)
            self.send(words, value)
            for observer in self.observers:
                observer.sent(value)
        except BaseException as error:
            is_sent = settle(self, value, commands, held, at)
            for observer in self.observers[:notified]:
                if is_sent:
                    observer.sent(value)
                else:
                    observer.dropped(value, str(error))
            raise

    def __repr__(self) -> str:
        return f"Device({self.name}, {self.arch})"

    def __del__(self, finalize: Callable[[Device], None] = open_devices.finalize) -> None:
        if self.is_stopped:
            finalize(self)
