"""Session: connects one kernel driver's events to the trace, validator and reports of foreign programs.

In       a driver's events; what HCQ_TRACE, HCQ_VALIDATE, HCQ_SANITIZE, HCQ_PROFILE and HCQ_REPORT ask for
Out      the same events for a reader and devices of each process
Changes  the trace file; stderr; reports
Next     hcq/events/foreign_devices.py (devices), trace.py, judge.py, sanitizer.py, report.py (who watch them),
         hcq/amd/foreign/ (a reader)

What goes wrong here must not end the program that is watched: a process whose events make no sense is watched no more,
and one line says so.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hcq import backends, config
from hcq.config import Config
from hcq.errors import HcqError
from hcq.events import kernel_faults, known_memory
from hcq.events.foreign_devices import ForeignDevice, ForeignObserver, Reader
from hcq.events.kernel_faults import KernelFault
from hcq.events.kernel_observer import Call, Client, GpuFault, KernelObserver, Read
from hcq.events.unwritten_memory import UnwrittenMemory
from hcq.observe.foreign.counters import ForeignCounting
from hcq.observe.foreign.judge import Judge
from hcq.observe.foreign.report import Reports
from hcq.observe.foreign.sanitizer import ForeignSanitizer
from hcq.observe.foreign.trace import ForeignTrace
from hcq.observe.ignored import Ignored
from hcq.observe.kernel_findings import Found
from hcq.observe.trace_paths import path_of
from hcq.observe.trace_writer import TraceWriter
from hcq.performance import counters
from hcq.performance.counters import Counters

LOOK_SECONDS = 0.5  # work that is late is looked for so often

Say = Callable[[str], None]
# makers of observers for every device of a foreign program: those of a debugger
ADDED: list[Callable[[ForeignDevice], ForeignObserver]] = []


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Process:
    """One process, and its use of the driver's GPUs."""

    def __init__(self, session: Session, client: Client) -> None:
        self.session, self.client = session, client
        self.lock = threading.RLock()
        self.devices: dict[int, ForeignDevice] = {}
        self.writer: TraceWriter | None = None
        self.is_lost = False
        self.unwritten: UnwrittenMemory | None = None  # of all its GPUs
        self.forget: Callable[[], None] = lambda: None
        self.reader: Reader = backends.load(session.reader_place)(client, self.device)

    def device(self, gpu_id: int) -> ForeignDevice:
        """The process's use of a GPU, which begins now if it has not begun yet."""
        found = self.devices.get(gpu_id)
        if found is None:
            session = self.session
            place = list(session.gpus).index(gpu_id) if gpu_id in session.gpus else len(session.gpus)
            name = f"{session.kind}:{place}" if place else session.kind
            arch = session.gpus.get(gpu_id, "")
            found = self.devices[gpu_id] = ForeignDevice(name, session.kind, arch, gpu_id, self.client)
            found.observers += self._observers(found)
            for one in found.observers:
                one.opened()
        return found

    def _observers(self, device: ForeignDevice) -> list[ForeignObserver]:
        settings = self.session.settings
        found: list[ForeignObserver] = []
        if settings.trace is not None:
            if self.writer is None:
                about = {"argv": argv_of(self.client.pid), "foreign": True}
                pid = self.client.pid
                self.writer = TraceWriter(path_of(settings.trace, pid), pid, about)
            found.append(ForeignTrace(device, self.writer, len(self.devices) - 1))
        if settings.validate:
            found.append(Judge(device, self.session.say))
        if settings.sanitize:
            session = self.session
            races, note = "race" in settings.sanitize, session.findings.append
            if "init" in settings.sanitize and self.unwritten is None:
                self.unwritten = UnwrittenMemory()
                self.forget = known_memory.keep(self.unwritten)
            found.append(ForeignSanitizer(device, session.say, session.ignored, note, races, self.unwritten))
        if settings.counters:
            found.append(ForeignCounting(device, self.session.say))
        found += [make(device) for make in ADDED]
        if "off" not in settings.report:
            found.append(Reports(device, self.session.say, settings.timeout_ms))
        return found

    def tell(self, event: str, *what: Any) -> None:
        """Give the reader an event."""
        with self.lock:
            if self.is_lost:
                return
            try:
                getattr(self.reader, event)(*what)
            except HcqError as error:
                self.is_lost = True
                self.session.say(f"hcq: process {self.client.pid} is watched no more: {error}")
            except Exception:
                self.is_lost = True
                why = traceback.format_exc().rstrip()
                self.session.say(
                    f"hcq: process {self.client.pid} is watched no more, {event} made no sense: {why}"
                )


class Session(KernelObserver):
    """Watches one kernel driver. `settings` are those of this process unless given.

    say  takes each line or page for people

    Raises  DriverError where HCQ_TRACE names no file that a trace could be in
    """

    def __init__(self, settings: Config | None = None, say: Say = _say) -> None:
        self.settings = config.current() if settings is None else settings
        if self.settings.trace is not None:
            TraceWriter.check(path_of(self.settings.trace))
        self.say = say
        self.kind = ""
        self.gpus: Mapping[int, str] = {}
        self.reader_place = ""
        self.processes: dict[int, _Process] = {}
        self._lock = threading.RLock()
        self._clock: threading.Thread | None = None
        self._is_over = threading.Event()
        self._uncount = (
            counters.listen(self._counted, self.settings.counted_blocks)
            if self.settings.counters
            else lambda: None
        )
        self.findings: list[Found] = []
        self.ignored = Ignored.read(self.settings.sanitize_ignore)
        self._unlisten = (
            kernel_faults.listen(self._kernel_fault, self.settings.sanitize, self._knows)
            if self.settings.sanitize
            else lambda: None
        )

    @staticmethod
    def is_wanted(settings: Config) -> bool:
        """Whether anything asks for one: reports come unless they are switched off."""
        return (
            settings.trace is not None
            or settings.validate
            or bool(settings.sanitize)
            or settings.counters
            or bool(ADDED)
            or "off" not in settings.report
        )

    # ------------------------------------------------------------ events

    def offers(self, kind: str, gpus: Mapping[int, str]) -> None:
        self.kind, self.gpus = kind, dict(gpus)
        self.reader_place = backends.of(kind).foreign

    def called(self, client: Client, call: Call) -> None:
        self._of(client).tell("called", call)

    def taken(self, client: Client, queue: int, at: int, words: bytes, read: Read) -> None:
        if self._clock is None and "off" not in self.settings.report:
            self._clock = threading.Thread(target=self._tick, name="foreign reports", daemon=True)
            self._clock.start()
        self._of(client).tell("taken", queue, at, words, read)

    def done(self, client: Client, queue: int, at: int) -> None:
        self._of(client).tell("done", queue, at)

    def faulted(self, client: Client, fault: GpuFault, read: Read) -> None:
        self._of(client).tell("faulted", fault, read)

    def exited(self, client: Client) -> None:
        with self._lock:
            gone = self.processes.pop(client.pid, None)
        if gone is not None:
            with gone.lock:
                for device in gone.devices.values():
                    device.close()
                gone.forget()

    def close(self) -> None:
        """Nothing more comes, of processes that are still there, either."""
        self._is_over.set()
        self._uncount()
        self._unlisten()
        for process in list(self.processes.values()):
            self.exited(process.client)

    def found(self) -> Sequence[Mapping[str, Any]]:
        return [one.as_fields() for one in self.findings]

    def summary(self, is_verbose: bool) -> Sequence[str]:
        many = self.ignored.count
        told = (
            [f"{many} finding{'s were' if many != 1 else ' was'} ignored: {self.ignored.path}"]
            if many
            else []
        )
        unused = self.ignored.unused() if is_verbose else []
        return [*told, *(f"{line} ignored nothing" for line in unused)]

    def look(self) -> None:
        """Report what has run for longer than HCQ_TIMEOUT_MS; to be called now and then."""
        self._pages(lambda reports: reports.look())

    def report(self, title: str) -> None:
        """A page about every device of every process, now."""
        self._pages(lambda reports: reports.publish(title))

    def _counted(self, pid: int, made: Counters) -> None:
        """A launch has ended on an emulated GPU of this driver, or of another one."""
        process = self.processes.get(pid)
        if process is not None:
            with process.lock:
                for device in process.devices.values():
                    device.counted(made)

    def _knows(self, pid: int, entry: int) -> bool:
        """Whether a launch is of a process of this driver."""
        return pid in self.processes

    def _kernel_fault(self, pid: int, entry: int, fault: KernelFault) -> None:
        """The same of a launch that did something wrong."""
        process = self.processes.get(pid)
        if process is not None:
            with process.lock:
                for device in process.devices.values():
                    device.kernel_fault(entry, fault)

    def _tick(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            self.look()

    def _pages(self, what: Callable[[Reports], None]) -> None:
        for process in list(self.processes.values()):
            with process.lock:
                for device in process.devices.values():
                    for one in device.observers:
                        if isinstance(one, Reports):
                            what(one)

    def _of(self, client: Client) -> _Process:
        found = self.processes.get(client.pid)
        if found is None:
            with self._lock:
                found = self.processes.get(client.pid)
                if found is None:
                    found = self.processes[client.pid] = _Process(self, client)
        return found


def argv_of(pid: int) -> list[str]:
    """A process's command line."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [word.decode("utf-8", "replace") for word in data.split(b"\0")[:-1]]
