"""Interrupts: a signal's handler raises at a line of hcq while a training step is loaded, submitted, replayed, copied.

In       a case; from it what is being done, at which line the exception comes, and which exception it is
Out      the exception reaches the program; afterwards the same objects, and new ones, compute the right numbers
Changes  a device of its own for each case
Next     digits_step.py (the work), hcq/work/interrupted_submission.py (what the driver does about it), campaign.py

Ctrl-C and alarms come between two lines of Python, any two. Here sys.settrace stands for them: it raises at the n-th
line that is executed in hcq's own files. What is emulated is the kernel's side, which no signal stops half-way.
"""

from __future__ import annotations

import functools
import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import hcq
from hcq.device import Device
from hcq.errors import HcqError
from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong
from tests.campaigns.digits_step import Step, step_of
from tests.campaigns.faults import System, _reset

OWN = str(Path(hcq.__file__).parent)
OTHERS = (str(Path(OWN) / "emu"),)
WEIGHTS = {"open": 1, "load": 2, "eager": 6, "record": 1, "replay": 6, "copy": 4, "reset": 3, "close": 1}


class Alarm(Exception):
    """What a signal's handler raises, as the alarm of a test does."""


class Interrupt:
    """Counts the lines of hcq that this thread executes, and raises at one of them; 0 never."""

    def __init__(self, at: int, what: type[BaseException] = Alarm) -> None:
        self.at, self.what = at, what
        self.lines = 0
        self.where = ""

    def __enter__(self) -> None:
        sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        path = frame.f_code.co_filename
        return self._line if path.startswith(OWN) and not path.startswith(OTHERS) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines += 1
            if self.lines == self.at and (_is_in_destructor(frame) or _looks_at_no_signal(frame)):
                self.at += 1  # Python ignores what is raised in the one, and looks at no signal in the other
            elif self.lines == self.at:  # raising ends the tracing, too
                self.where = (
                    f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"
                )
                raise self.what("a signal's handler")
        return self._line


def _looks_at_no_signal(frame: FrameType) -> bool:
    """Lines between which Python handles no signal, so that a lock is always given back.

    They are `try:`, and a `with` that comes to its line a second time, to leave.
    """
    code, line = frame.f_code, frame.f_lineno
    first = min(start for start, _, of in code.co_lines() if of == line)
    text = linecache.getline(code.co_filename, line).strip()
    return text == "try:" or (frame.f_lasti > first and text.startswith("with "))


def _is_in_destructor(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


class Work:
    """A device with a step on it, and what can be done with both."""

    def __init__(self, word: str, step: Step) -> None:
        self.system, self.step = System(word), step
        self.device: Device | None = None
        self.programs: list[Any] = []
        self.memory: list[Any] = []
        self.graph: Any = None

    def ready(self, until: str) -> None:
        """Everything that comes before an act."""
        if until == "open":
            return
        self.open()
        if until in ("load", "close", "reset"):
            return
        self.load()
        if until in ("record", "replay"):
            self.record()
        if until == "replay":
            self.replay()

    def open(self) -> None:
        self.device = self.system.open()

    def load(self) -> None:
        assert self.device is not None
        self.memory = self.step.allocate(self.device)
        self.programs = self.step.load(self.device)

    def eager(self) -> None:
        assert self.device is not None
        self.step.eager(self.device, self.programs, self.memory)

    def record(self) -> None:
        assert self.device is not None
        self.graph = self.step.record(self.device, self.programs, self.memory)

    def replay(self) -> None:
        for _ in range(3):
            self.step.replay(self.graph, self.memory)

    def copy(self) -> None:
        assert self.device is not None
        self.eager()
        copies = [self.device.alloc(len(what), "copy") for what in self.step.after]
        self.step.copy(self.device, self.memory, copies)

    def reset(self) -> None:
        assert self.device is not None
        _reset(self.device)

    def close(self) -> None:
        assert self.device is not None
        self.device.close()


@functools.cache
def lines_of(word: str, act: str) -> int:
    """How many lines of hcq an act executes."""
    work = Work(word, step_of(word.partition(":")[0].upper()))
    work.ready(act)
    interrupt = Interrupt(0)
    with interrupt:
        getattr(work, act)()
    if work.device is not None:
        work.device.close()
    return interrupt.lines


def run(word: str, case: Case) -> Outcome:
    """One interruption, and what comes after it."""
    rng = case.rng()
    act = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    work = Work(word, step_of(word.partition(":")[0].upper()))
    at = rng.randint(1, lines_of(word, act))
    interrupt = Interrupt(at, rng.choice((Alarm, KeyboardInterrupt)))
    work.ready(act)
    try:
        outcome = _interrupted(getattr(work, act), interrupt)
        _goes_on(work, act)
    except (HcqError, Wrong) as error:
        where = f"interrupted at line {at} of {act}, {interrupt.where or 'which never came'}"
        raise Wrong(f"{type(error).__name__}: {error}\n{where}") from error
    finally:
        if work.device is not None:
            work.device.close(timeout_ms=1000)
    return outcome


def _interrupted(act: Callable[[], None], interrupt: Interrupt) -> Outcome:
    try:
        with interrupt:
            act()
    except (Alarm, KeyboardInterrupt):
        return Outcome.REFUSED
    return Outcome.RIGHT


def _goes_on(work: Work, act: str) -> None:
    """The same objects work, where the act did not make them; and so do new ones."""
    device = work.device
    if act in ("reset", "close") and device is not None and device.is_open:
        getattr(device, act)()
    if device is None or not device.is_open or device.dead:
        if device is not None:
            device.close()
        work.open()
    elif act in ("eager", "copy", "replay", "record"):
        if act == "replay":
            work.replay()
        work.eager()
        work.record()
        work.replay()
    device = work.device
    assert device is not None
    work.step.check(device, replays=1)


def _campaign(word: str, short: int) -> Campaign:
    vendor, _, arch = word.partition(":")
    return Campaign(
        name="-".join(["interrupts", vendor, *filter(None, [arch])]),
        injects="an exception of a signal's handler at any line of a step",
        run=functools.partial(run, word),
        short=short,
        environment={} if vendor == "cpu" else {"HCQ_EMULATE": word},
        is_flat=False,  # a handler that raises may cost a block of memory
    )


CAMPAIGNS = (_campaign("cpu", 150), _campaign("amd:gfx1100", 8), _campaign("nv:sm_90", 12))
