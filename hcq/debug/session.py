"""The debugger of a process: launches run under it, it stops them, and takes whoever asks backwards and forwards.

In       launches and packets of emulated GPUs, as they come; orders of a face (terminal.py, dap.py)
Out      Stop: where the program is, to look at; launches that have run
Changes  nothing that the program sees: looking back is in memory of the debugger's own
Next     timeline.py (recording and running again), points.py, plans.py (what to stop at), backwards.py (places before
         this one), findings.py (what HCQ_SANITIZE finds), commands.py (what a face can ask),
         hcq/events/kernel_debug.py (the door)

The present is a launch that is stopped in its own thread, in the middle of an instruction's step. Who goes back from
there looks at a second run of that launch, or of an earlier one, from a snapshot, in the same thread, while the first
one stays where it is. Going forward again ends at the present, from where the first one goes on.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from hcq import config
from hcq.debug import pages
from hcq.debug.amd import AmdWork
from hcq.debug.findings import Findings
from hcq.debug.metal import MetalWork
from hcq.debug.moment import Moment, Site, Work
from hcq.debug.names import Names
from hcq.debug.nv import NvWork
from hcq.debug.packets import PacketLog
from hcq.debug.plans import CONTINUE, Plan
from hcq.debug.points import Points
from hcq.debug.timeline import NEVER, Enough, History, Place, Probe, Record, Snapshot, Unwanted
from hcq.errors import HcqError
from hcq.events.kernel_faults import KernelFault
from hcq.events.stray_accesses import Stray


@dataclass(frozen=True)
class Go:
    """Forward, until a plan or a point stops."""

    plan: Plan


@dataclass(frozen=True)
class Goto:
    """To a place in what was recorded. present: to where the program really is."""

    place: Place
    reason: str
    present: bool = False


Order = Go | Goto


@dataclass
class Stop:
    """Where the program is.

    record    the launch; None between launches, as at a packet
    moment    before which instruction; None at a launch's end, and between launches
    is_past   the program itself is further
    read      memory as it is here: read(address, size_bytes), None where nothing is known
    """

    reason: str
    record: Record | None
    tick: int
    moment: Moment | None
    is_past: bool
    read: Callable[[int, int], bytes | None]

    @property
    def place(self) -> Place:
        """When it is."""
        return Place(self.record.number if self.record else 0, self.tick)


class Face(Protocol):
    """Who asks. It is called from the thread that is stopped."""

    def begin(self, session: Session) -> None:
        """There is a session, and nothing has run yet."""

    def ask(self, session: Session) -> Order:
        """The program has stopped (session.stop): what now?"""

    def tell(self, text: str) -> None:
        """Something that happened."""


WHERE = re.compile(r"wave (\d+), lane (\d+)$")  # at the end of a reason: what to look at


class _Leave(Exception):
    """Away from a run again, to another place, or to the present with an order."""

    def __init__(self, order: Order) -> None:
        super().__init__()
        self.order = order


class Session:
    """One for a process. `wave` and `lane` are those that are looked at."""

    def __init__(self, face: Face) -> None:
        self.face = face
        self.history, self.points, self.names = History(), Points(), Names()
        self.packets = PacketLog()
        self.findings = Findings(self.names, self.history)
        self.lock = threading.RLock()
        self.plan: Plan = CONTINUE
        self.stop = Stop("", None, 0, None, False, lambda address, size: None)
        self.wave = self.lane = 0
        self.is_asked_to_stop = False
        self.submissions = 0
        self.enders: list[Callable[[], None]] = []  # what a sudden end has to end, too
        self.is_off = False  # let everything run
        self._live: list[Probe] = []
        self._programs: dict[Any, Any] = {}
        self._present: Stop | None = None
        self._travelling: Probe | None = None  # a run again that is on its way to a place
        self._chosen: tuple[tuple[int, int], ...] = ()  # who to look at where it stops next

    # ------------------------------------------------------------ launches, as they come

    def run_amd(self, core: Any, launch: Any, grid: Any, block: Any, **options: Any) -> Any:
        """As hcq.emu.amd.shader.run.run_dispatch."""
        work = AmdWork(core, launch, grid, block, self._programs, **options)
        return self._run(work, core.memory)

    def run_nv(
        self,
        kernel: Any,
        entry: int,
        space: Any,
        grid: Any,
        block: Any,
        memory: Any,
        params: Any,
        **options: Any,
    ) -> Any:
        """As hcq.emu.nv.shader.run.Kernel.run, of a kernel whose code begins at an address.

        space   what `memory` looks into
        """
        work = NvWork(kernel, grid, block, memory, params, self._programs, entry=entry, **options)
        return self._run(work, space)

    def run_metal(
        self, program: Any, grid: Any, block: Any, bindings: Any, entry: int, checks: Any = None
    ) -> Any:
        """As hcq.emu.metal.shader.program.Program.interpret."""
        work = MetalWork(program, grid, block, bindings, entry, checks)
        return self._run(work, work.space)

    def _run(self, work: Work, space: Any) -> Any:
        work.name = self.names.kernel(work.entry) or work.name
        with self.lock:
            title = f"{work.name or hex(work.entry)} grid {work.grid} block {work.block}"
            record = self.history.begin(work, space, title)
            probe = Probe(record, self._look, is_live=True)
            probe.pages = pages.Pages(space, self.history.pool, record.first)
            self.packets.launched(record.number)
            self._live.append(probe)
            self._arm(probe)
            self.findings.begin(work)
            if work.checks is not None:
                work.checks.heard = lambda fault: self._found(probe, fault)
        try:
            report = work.run(probe, work.recorder(space, probe.pages))
            while self.findings.pending and not self.is_off:
                self._fault(probe, record, "the launch has ended")
            if self.plan.launch == record.number and not self.is_off:  # it was not to go beyond this launch
                self._fault(probe, record, "the launch has ended")
            return report
        except HcqError as fault:
            record.fault = str(fault)
            record.ticks, record.done, record.is_over = probe.tick, probe.done, True
            if not self.is_off:
                self._fault(probe, record, f"fault: {record.fault}")
            raise
        finally:
            record.ticks, record.done, record.is_over = probe.tick, probe.done, True
            record.written = probe.pages.written
            self._live.remove(probe)
            if work.checks is not None:
                work.checks.heard = None

    def _arm(self, probe: Probe) -> None:
        """What a run stops at, from now on."""
        work, record = probe.record.work, probe.record
        if self.is_off:
            probe.due, probe.keys = NEVER, frozenset()
            return
        keys: set[int] = set()
        every = (self.is_asked_to_stop or bool(self.findings.pending)) and probe.is_live
        if probe.tick == 0:
            every |= self._starts(work) is not None
        wanted = [point.keys(work, self.names.line) for point in self.points.instructions()]
        if self.plan.launch in (0, record.number):
            wanted.append(self.plan.keys(work))
        for one in wanted:
            if one is None:
                every = True
            else:
                keys |= one
        probe.keys = frozenset(keys)
        probe.due = probe.tick + 1 if every else NEVER

    def _starts(self, work: Work) -> str | None:
        """Why to stop before the first instruction of a launch."""
        for point in self.points.of(("kernel",)):
            if self.names.matches(work, point.what):
                return f"point {point.number}"
        return None

    def _reason(self, probe: Probe, moment: Moment) -> str | None:
        """Why to stop before an instruction; None: go on."""
        if probe.is_live and self.is_asked_to_stop:
            self.is_asked_to_stop = False
            return "interrupted"
        if probe.tick == 1:
            for point in self.points.of(("kernel",)):
                if self.names.matches(moment.work, point.what):
                    self._hit(point)
                    return f"point {point.number}: kernel {moment.work.name} begins"
        for point in self.points.instructions():
            keys = point.keys(moment.work, self.names.line)
            if (keys is None or moment.site.key in keys) and (reason := point.test(moment)) is not None:
                self._hit(point)
                return reason
        if self.plan.test is not None and self.plan.launch in (0, probe.record.number):
            return self.plan.test(moment)
        return None

    def interrupt(self) -> bool:
        """A person asks to stop, from any thread, perhaps in a signal handler. False: nothing runs that could."""
        if self._present is not None:  # it has stopped
            self.cancel()
            return True
        self.is_asked_to_stop = True
        for probe in self._live:
            probe.due = 0
        return bool(self._live)

    def cancel(self) -> bool:
        """End what is looked for in the past, or the way there. False: nobody is on such a way."""
        probe = self.history.scanning or self._travelling
        if probe is not None:
            probe.cancel()
        return probe is not None

    @property
    def is_stopped(self) -> bool:
        """Whether somebody is asked what to do now."""
        return self._present is not None

    def end(self) -> None:
        """The process is about to end, in the middle of what it does."""
        for one in self.enders:
            one()

    def rearm(self) -> None:
        """Points have changed while launches run."""
        for probe in self._live:
            probe.due = 0

    def submitting(self, device: str, what: str) -> None:
        """A device is about to ring a doorbell."""
        self.submissions += 1
        for point in self.points.of(("submission",)):
            if point.line == self.submissions:
                self._hit(point)
                self.between(f"point {point.number}: submission {self.submissions}, {what}, on {device}")

    def _found(self, probe: Probe, fault: KernelFault) -> None:
        """A step of a launch that runs has found something."""
        found = self.findings.found(probe.record, probe.tick, fault)
        if found is not None and self.points.of(("finding",)) and not self.is_off:
            self.findings.pending.append(found)
            probe.due = 0

    def faulted(self, pid: int, entry: int, fault: KernelFault) -> None:
        """A launch has ended in which something was found, perhaps only now."""
        with self.lock:
            found = self.findings.at_end(entry, fault)
            if found is None or self.is_off or not self.points.of(("finding",)):
                return
            self.findings.pending.append(found)
            stop = Stop("the launch has ended", None, 0, None, False, self._remembered)
            self._front(stop, None, self._to_finding())

    def _to_finding(self) -> Goto | None:
        """To the first finding that nobody has stopped at."""
        if not self.findings.pending:
            return None
        found = self.findings.pending.pop(0)
        for point in self.points.of(("finding",)):
            self._hit(point)
        self._chosen = found.lanes
        return Goto(found.place, found.text)

    def strayed(self, pid: int, stray: Stray) -> None:
        """A launch that has ended reached beyond its memory. Where HCQ_SANITIZE looks for that it has told already."""
        if "memory" in config.current().sanitize:
            return
        what = (
            f"{stray.text or 'a store'} at {stray.pc:#x} reached {stray.address:#x}, which is not its memory"
        )
        for point in self.points.of(("finding",)):
            self._hit(point)
            self.between(f"point {point.number}: finding: {what}, {stray.times} times")

    def gaps(self) -> list[tuple[int, int]]:
        """Memory that no launch may store to: the debugger knows of none."""
        return []

    def _hit(self, point: Any) -> None:
        point.hits += 1
        if point.once:
            self.points.all.remove(point)

    # ------------------------------------------------------------ the present

    def _look(self, probe: Probe, moment: Moment) -> None:
        """Before an instruction of the program itself."""
        probe.record.ticks, probe.record.done = probe.tick, probe.done
        with self.lock:
            if self.is_off:
                self._arm(probe)
                return
            reason, finding = self._reason(probe, moment), self._to_finding()
            if reason is None and finding is None:
                self._arm(probe)
                return
            stop = Stop(reason or "", probe.record, probe.tick, moment, False, self._reader(probe))
            self._front(stop, probe, finding)
            self._arm(probe)

    def _fault(self, probe: Probe, record: Record, reason: str) -> None:
        """A launch ends, with an error, say: look at it before the program hears of it."""
        with self.lock:
            stop = Stop(reason, record, probe.tick + 1, None, False, self._reader(probe))
            self._front(stop, probe, self._to_finding())

    def between(self, reason: str) -> None:
        """Stop where no launch is, at a packet, or before and after the program."""
        with self.lock:
            if not self.is_off:
                self._front(Stop(reason, None, 0, None, False, self._remembered), None)

    def packet(self, vendor: str, packet: Any) -> None:
        """A processor is about to do a packet."""
        number = self.packets.add(vendor, packet)
        if not number:
            return
        for point in self.points.of(("packet",)):
            if self.packets.stops(point, packet):
                self._hit(point)
                self.between(f"point {point.number}: packet {number}, {packet!r}")
                return

    def _reader(self, probe: Probe) -> Callable[[int, int], bytes | None]:
        assert probe.pages is not None
        space = probe.pages.space
        return lambda address, size: pages.read(space, address, size)

    def _remembered(self, address: int, size_bytes: int) -> bytes | None:
        """Memory between launches: as the space of the last one has it."""
        if not self.history.records:
            return None
        replayed = self.history.records[-1]
        for one in replayed.ranges:
            if one.start <= address and address + size_bytes <= one.end:
                return bytes(
                    pages.bytes_of(one)[address - one.start : address - one.start + size_bytes].tobytes()
                )
        return None

    def _front(self, stop: Stop, probe: Probe | None, first: Goto | None = None) -> None:
        """Stopped in the present: do what is asked until the program is to go on. first: before anybody is asked."""
        self._present = stop
        try:
            self._follow(stop)
            while True:
                order = first or self._ask(stop)
                first = None
                came_back = False
                while isinstance(order, Goto) and not order.present:
                    try:
                        order = self._visit(order)
                    except Unwanted:
                        order = Goto(
                            self._front_place(), "interrupted on the way, back in the present", present=True
                        )
                    came_back = True
                if isinstance(order, Goto):
                    stop.reason = order.reason
                    continue
                self.plan = order.plan
                if came_back and stop.moment is not None and probe is not None:
                    reason = self._reason(probe, stop.moment)
                    if reason is not None:
                        stop.reason = reason
                        continue
                return
        finally:
            self._present = None

    def _follow(self, stop: Stop) -> None:
        """Look at a wave that is there."""
        if stop.moment is None:
            return
        waves = stop.moment.waves
        named = WHERE.search(stop.reason)
        there = [(wave, lane) for wave, lane in self._chosen if wave in waves]
        if there:
            self.wave, self.lane = there[0]
        elif named is not None:
            self.wave, self.lane = int(named[1]), int(named[2])
        elif self.wave not in waves and len(waves):
            self.wave, self.lane = int(waves[0]), 0

    def _ask(self, stop: Stop) -> Order:
        self.stop = stop
        self._follow(stop)
        self._chosen = ()
        return self.face.ask(self)

    # ------------------------------------------------------------ the past

    def _visit(self, order: Goto) -> Order:
        """Look at the past from a place on. Returns what to do then: another place, or on from the present."""
        place, plan, reason = order.place, None, order.reason
        front = self._front_place()
        while True:
            record = self.history.record(place.launch)
            if record is None or place >= front:
                return Goto(front, order.reason, present=True) if plan is None else Go(plan)
            try:
                plan = self._rerun(record, place, plan, reason, front)
            except _Leave as leave:
                return leave.order
            place, reason = Place(record.number + 1, 1), ""

    def _front_place(self) -> Place:
        """Where the program really is; between launches: behind the last one."""
        assert self._present is not None
        if self._present.record is not None:
            return Place(self._present.record.number, self._present.tick)
        return Place(self.history.count + 1, 0)

    def _rerun(self, record: Record, place: Place, plan: Plan | None, reason: str, front: Place) -> Plan:
        """Run a launch again and stop at a place, or, with a plan, at what it says. Returns the plan at its end."""
        is_there = plan is not None
        if plan is not None:
            self.plan = plan
        replay = record.replay()

        def watch(probe: Probe, moment: Moment) -> None:
            nonlocal is_there
            here = Place(record.number, probe.tick)
            if here >= front:
                raise _Leave(Go(self.plan) if is_there else Goto(front, reason, present=True))
            if not is_there:
                if probe.tick < place.tick:
                    probe.due = place.tick
                    return
                is_there, why = True, reason
            else:
                found = self._reason(probe, moment)
                if found is None:
                    self._arm(probe)
                    self._limit(probe, front)
                    return
                why = found
            self._travelling = None
            order = self._ask(
                Stop(
                    why,
                    record,
                    probe.tick,
                    moment,
                    True,
                    lambda at, size: self._past(replay, record, at, size),
                )
            )
            if not isinstance(order, Go):
                raise _Leave(order)
            self._travelling = probe
            self.plan = order.plan
            self._arm(probe)
            self._limit(probe, front)

        self.history.wake(record)
        probe = Probe(record, watch)
        start = Snapshot(0, 0, None, {}) if is_there else next(record.starts(place.tick))
        probe.tick, probe.goal = start.tick, place.tick
        if is_there:
            self._arm(probe)
            self._limit(probe, front)
        else:
            probe.due = place.tick
        self._travelling = probe
        try:
            record.again(probe, start)
        except Unwanted:
            raise
        except HcqError:
            if not record.fault:
                raise
        finally:
            self._travelling = None
        if not is_there or self.plan.launch == record.number:
            if is_there:
                reason = "the launch has ended"
            elif record.fault:
                reason = f"fault: {record.fault}"
            elif place.tick <= record.ticks:
                reason = (
                    "when it was run again, the launch ended earlier: something else writes to what it reads"
                )
            self.plan = self._at_end(record, reason)
        return self.plan

    def _at_end(self, record: Record, reason: str) -> Plan:
        """Stopped behind the last instruction of a launch of the past. Returns the plan to go on with."""
        replay = record.replay()

        def read(address: int, size_bytes: int) -> bytes | None:
            return self._past(replay, record, address, size_bytes)

        order = self._ask(Stop(reason, record, record.ticks + 1, None, True, read))
        if not isinstance(order, Go):
            raise _Leave(order)
        return order.plan

    def _limit(self, probe: Probe, front: Place) -> None:
        if probe.record.number == front.launch:
            probe.due = min(probe.due, max(probe.tick + 1, front.tick))

    def _past(self, replay: Any, record: Record, address: int, size_bytes: int) -> bytes | None:
        """Memory in a launch that runs again; what it does not touch, as a later one found it, or as it is now."""
        found = b""
        while size_bytes:
            count = min(size_bytes, pages.PAGE - address % pages.PAGE)
            piece = self._piece(replay, record, address, count)
            if piece is None:
                return None
            found += piece
            address, size_bytes = address + count, size_bytes - count
        return found

    def _piece(self, replay: Any, record: Record, address: int, size_bytes: int) -> bytes | None:
        page = address >> pages.SHIFT
        if page in record.first:
            return pages.read(replay.space, address, size_bytes)
        for later in self.history.records[record.number - self.history.records[0].number + 1 :]:
            for at, data in later.first.get(page, ()):
                if at <= address and address + size_bytes <= at + len(data):
                    return data[address - at : address - at + size_bytes]
        for one in record.ranges:
            if one.start <= address and address + size_bytes <= one.end:
                return bytes(
                    pages.bytes_of(one)[address - one.start : address - one.start + size_bytes].tobytes()
                )
        return None

    def line(self, work: Work, site: Site) -> str:
        """The line of the source that an instruction was made from; "" where nobody says."""
        return self.names.line(work, site)


__all__ = ["Enough", "Face", "Go", "Goto", "Order", "Session", "Stop"]
