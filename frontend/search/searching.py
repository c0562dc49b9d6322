"""Searching: the schedules of a plan's kernels, looked up, or searched for on the device that will run them.

In       a device, its target, kernels
Out      the schedule of each kernel for which there is a better one than the heuristic's
Changes  the file of results; while it searches, processes of its own; writes what it does to stderr
Next     store.py (the file), bench.py (who times), compiler/search/beam.py, compiler/search/moves.py,
         compiler/search/helper.py

What may go wrong with a candidate happens in another process: one compiles it, with a limit on memory, one runs it. A
candidate that is not done in time, or ends its process, has failed, and the next one gets a new process.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from hcq import config
from hcq.compiler.code_object import CodeObject
from hcq.compiler.kernel import kernel_key, kernel_name
from hcq.compiler.routines import routine_of
from hcq.compiler.search.beam import Beam, Found
from hcq.compiler.search.helper import Failed, Helper, Work, ask_all
from hcq.compiler.search.results import Place, Result, best_for
from hcq.compiler.target import Target
from hcq.errors import HcqError
from hcq.frontend.search import store
from hcq.frontend.search.bench import MAX_BYTES, argument_bytes, ask_one, ask_several, bench, times_of
from hcq.frontend.search.clock import is_emulated
from hcq.frontend.search.progress import Progress
from hcq.ir.node import Node
from hcq.lifetime import open_devices

COMPILER_BYTES = 2 << 30  # more than any kernel took by far
FIRST_S = 60.0  # for the heuristic's schedule, the device's opening included
SPARE_S = 0.7  # a candidate may take so much longer than
SLOWER = 3.0  # so many times what the heuristic's took
SHARE = 4  # one kernel takes at most this part of the time that is left
LEAST_S = 1.0
FLOOR_NS = 1000  # by the timeline: a kernel as short as this is a launch, and not worth a search
HEURISTIC = b""  # asks a compiling process for the heuristic's choice; "-" in results

_spent_s = 0.0  # by all searches of this process


@dataclass
class Kernel:
    """A kernel to be searched, and what is known about it."""

    sink: Node
    place: Place
    known: Result | None


def schedules_for(device: str, sinks: Sequence[Node], target: Target) -> dict[str, str]:
    """Kernel key -> schedule, of those kernels whose best known schedule is not the heuristic's.

    Searches for what is not known where HCQ_SEARCH asks for that. Ctrl-C ends it, and keeps what was found.
    """
    if not store.is_wanted():
        return {}
    known = store.known()
    width = config.current().search
    kernels = {}
    for sink in sinks:
        place = place_of(device, sink, target)
        kernels[place] = Kernel(sink, place, known.get(place))
    waiting = [one for one in kernels.values() if width and (one.known is None or one.known.width < width)]
    for number, kernel in enumerate(waiting):
        seconds = _share(len(waiting) - number)
        if seconds <= 0:
            store.say(
                "hcq: HCQ_SEARCH_SECONDS are over: further kernels get the heuristic's schedules. The next run goes on."
            )
            break
        kernel.known = _search(device, kernel, target, width, seconds)
    found = [one.known or best_for(known, place) for place, one in kernels.items()]
    return {result.key: result.schedule for result in found if result is not None and result.schedule != "-"}


def place_of(device: str, sink: Node, target: Target) -> Place:
    """What a result for this kernel is kept under."""
    from hcq.compiler.assemble.llvm_cpu import toolchain_version

    words = (f"{target.name}/{target.arch}/{target.key}", toolchain_version())
    made = [word.replace(" ", "_") for word in words]
    return kernel_key(sink), made[0], made[1], "model" if is_emulated(device) else "timeline"


def forget_time() -> None:
    """Begin a new budget: for tests."""
    global _spent_s
    _spent_s = 0.0


def _share(waiting: int) -> float:
    """How long the next of so many kernels may be searched."""
    left = config.current().search_seconds - _spent_s
    return min(left, max(left / max(SHARE, waiting), LEAST_S))


def _search(device: str, kernel: Kernel, target: Target, width: int, seconds: float) -> Result | None:
    """Search for one kernel and keep what is found."""
    global _spent_s
    begun = time.monotonic()
    name = kernel_name(kernel.sink)
    _rest()
    progress = Progress(sys.stderr, name, seconds)
    tester = Tester(device, kernel.sink, target, begun + seconds)
    beam: Beam | None = None
    found: Found | None = None
    why = ""
    try:
        if argument_bytes(kernel.sink) > MAX_BYTES:
            why = f"its arguments take more than {MAX_BYTES >> 30} GiB, it keeps the heuristic's schedule"
            return kernel.known
        if routine_of(kernel.sink) is not None:
            why = "not searched: its loops are written down"
            return kernel.known
        # times, and what is compared, would be of one number
        if any(len(each.src) > 2 for each in kernel.sink.src):
            why = "not searched: a variable says how much of it is needed, it keeps the heuristic's schedule"
            return kernel.known
        if not tester.begin():
            why = f"not searched: {tester.why}"
            return kernel.known
        if tester.is_short:
            found = Found(tester.heuristic, tester.reference_ns, tester.reference_ns, 1, True)
        else:
            beam = make_beam(tester, kernel, target, width, progress.tell)
            found = beam.run()
        why = "" if found is not None else "not searched: its heuristic schedule failed"
    except KeyboardInterrupt:
        found = beam.found if beam is not None else None
        why = "interrupted; what was found is kept" if found is not None else "interrupted"
        if found is not None:
            store.add(_result(kernel, name, found, width, tester))
        raise
    finally:
        tester.end()
        _spent_s += time.monotonic() - begun
        if found is not None:
            progress.end(found.tried, found.ns, found.heuristic_ns, why)
        else:
            progress.end(0, 0, 0, why or "ended by an error")
    if found is None:
        return kernel.known
    result = _result(kernel, name, found, width, tester)
    store.add(result)
    return result


def _rest() -> None:
    """Devices have no work in flight: none that disturbs a measurement, nor half done in the processes forked here."""
    for device in open_devices.devices():
        with contextlib.suppress(HcqError):  # whoever waits for that work hears of it
            device.drain(device.timeline.submitted)


def _result(kernel: Kernel, name: str, found: Found, width: int, tester: Tester) -> Result:
    key, target, toolchain, by = kernel.place
    if not found.is_whole:  # the next search goes on, from here
        width = kernel.known.width if kernel.known is not None else 0
    schedule = "-" if found.schedule == tester.heuristic else found.schedule
    return Result(
        name,
        key,
        target,
        toolchain,
        by,
        width,
        found.tried,
        round(found.ns),
        round(found.heuristic_ns),
        schedule,
    )


def make_beam(
    tester: Tester, kernel: Kernel, target: Target, width: int, note: Callable[[int, float, float], None]
) -> Beam:
    """The search of one kernel on a device, whose tester has begun."""
    from hcq.compiler.pipeline import lower
    from hcq.compiler.search.moves import Moves
    from hcq.compiler.search.starts import starts

    lowered = lower(kernel.sink, target)
    moves = Moves(lowered, target)
    first = [tester.heuristic, *starts(lowered, target)]
    if kernel.known is not None and kernel.known.schedule != "-":
        first.insert(1, kernel.known.schedule)
    legal = [one for one in first[1:] if moves.canonical(one) is not None]
    seed = config.current().search_seed
    return Beam(
        [tester.heuristic, *legal],
        moves.neighbours,
        tester.measure,
        width,
        seed,
        lambda: time.monotonic() > tester.end_at,
        tester.compare,
        note,
    )


class Tester:
    """Compiles, checks and times the candidates of one kernel, in other processes."""

    def __init__(self, device: str, sink: Node, target: Target, end_at: float) -> None:
        self.device, self.sink, self.target, self.end_at = device, sink, target, end_at
        self.heuristic = ""  # its schedule
        self.reference_ns = 0.0
        self.why = ""
        self.by = "model" if is_emulated(device) else "timeline"
        self.compilers = [
            Helper(lambda: compiling(sink, target), COMPILER_BYTES) for _ in range(config.current().compilers)
        ]
        self.codes: dict[str, CodeObject] = {}
        self._times: dict[CodeObject, float] = {}
        self._compile_s = self._run_s = FIRST_S
        self._bench: Helper | None = None

    def begin(self) -> bool:
        """Compile and run the heuristic's schedule. False where that does not work; `why` says it."""
        try:
            since = time.monotonic()
            reference = CodeObject.from_bytes(self.compilers[0].ask(HEURISTIC, FIRST_S))
            self._compile_s = SPARE_S + SLOWER * (time.monotonic() - since)
            self.heuristic = reference.choice
            self.codes[self.heuristic] = reference
            sink, device = self.sink, self.device
            self._bench = Helper(lambda: bench(device, sink, reference))
            since = time.monotonic()
            self.reference_ns = self._run(reference)
            self._run_s = SPARE_S + SLOWER * (time.monotonic() - since)
        except Failed as failure:
            self.why = str(failure)
            return False
        return True

    @property
    def is_short(self) -> bool:
        """Whether the kernel is over before a search could make a difference."""
        return self.by == "timeline" and self.reference_ns < FLOOR_NS

    def measure(self, schedules: Sequence[str]) -> Iterator[float | None]:
        """Times of candidates; None for one that failed. A few are compiled at a time, then each runs alone."""
        step = max(1, 2 * len(self.compilers))
        for at in range(0, len(schedules), step):
            part = schedules[at : at + step]
            self._compile([one for one in part if one not in self.codes])
            for one in part:
                yield self._one(one)

    def compare(self, schedules: Sequence[str]) -> list[float | None]:
        """Times of candidates that ran before, side by side."""
        codes = [self.codes[one] for one in schedules]
        try:
            return list(times_of(self._helper().ask(ask_several(codes), FIRST_S)))
        except Failed:
            self.end_bench()
            return [None] * len(schedules)

    def end(self) -> None:
        """End all processes."""
        for helper in self.compilers:
            helper.end()
        self.end_bench()

    def end_bench(self) -> None:
        """End the process that runs candidates: the next one gets a new one."""
        if self._bench is not None:
            self._bench.end()

    def _compile(self, schedules: Sequence[str]) -> None:
        requests = [one.encode() for one in schedules]
        for one, made in zip(schedules, ask_all(self.compilers, requests, self._compile_s), strict=True):
            if isinstance(made, bytes):
                self.codes[one] = CodeObject.from_bytes(made)

    def _one(self, schedule: str) -> float | None:
        code = self.codes.get(schedule)
        if code is None:
            return None
        same = replace(code, choice="")  # machine code that was measured already
        if same not in self._times:
            try:
                self._times[same] = self._run(code)
            except Failed:
                self.end_bench()
                return None
        return self._times[same]

    def _run(self, code: CodeObject) -> float:
        return times_of(self._helper().ask(ask_one(code), self._run_s))[0]

    def _helper(self) -> Helper:
        assert self._bench is not None
        return self._bench


def compiling(sink: Node, target: Target) -> Work:
    """What a compiling process does: schedules to code objects."""
    from hcq.compiler.pipeline import build

    def work(request: bytes) -> bytes:
        return build(sink, target, request.decode() if request != HEURISTIC else None).to_bytes()

    return work
