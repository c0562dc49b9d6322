"""Waves: where the kernels that run on emulated GPUs stand, for reports, and on what the last ones stopped.

In       shader cores, which say that a kernel runs, answer when they are asked, and tell what stopped one
Out      `Wave`, one record for all vendors: waves of AMD, warps of NVIDIA, SIMD groups of Metal; `look`, `last_stop`
Changes  the lists of kernels that run and of those that were stopped
Next     hcq/observe/report_waves.py (who asks and prints), hcq/emu/amd/shader/standing.py,
         hcq/emu/nv/shader/standing.py and hcq/emu/metal/shader/standing.py (who answer)

Who asks sets a flag, and makes the shader core look at it where it counts instructions anyway, between two blocks of
them. So a kernel that nobody asks about pays nothing. The answer is waited for, but not for long.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

PATIENCE_SECONDS = 2.0  # for all answers of one report
STOPS_KEPT = 16
GROUPS_SHOWN = 6  # ranges of workgroups by number


class Wave(NamedTuple):
    """Waves of a kernel that are at the same place, with the same lanes on, for the same reason.

    unit         what the vendor calls one: "wave", "warp", "SIMD group"
    many         how many are alike
    groups       which workgroups they are of: "groups 0-15"
    pc           the address of the instruction; 0 where code has no addresses
    line         of the text that was given: "PTX line 12"; "" for machine code
    instruction  in words
    active       which lanes are on: "exec 0x0000ffff, 16 of 32 lanes"
    waits_for    "the barrier of its workgroup: 3 of 4 waves are there"; "" for nothing
    spins_on     addresses that it reads again and again, in a loop that stores nothing
    stopped_by   the exceptions that its registers name; "" for none
    registers    lines with those of the first one, where they are known
    """

    unit: str
    many: int
    groups: str
    pc: int
    line: str
    instruction: str
    active: str
    waits_for: str = ""
    spins_on: tuple[int, ...] = ()
    stopped_by: str = ""
    registers: tuple[str, ...] = ()


class Kernel(NamedTuple):
    """A kernel and its waves. entry: where its code begins, 0 where it has no address; name: "" if only the device
    knows it; missing: why there are no waves, if there are none."""

    entry: int
    name: str
    waves: tuple[Wave, ...]
    missing: str = ""


class Stop(NamedTuple):
    """What stopped a kernel. access: "store", "load", ..., of `size_bytes` at `address`; "" when it was no access."""

    kernel: Kernel
    why: str
    access: str = ""
    address: int = 0
    size_bytes: int = 0


class Running:
    """A kernel that runs. A shader core calls `answer` when it finds `is_asked`.

    hurry  makes the shader core look soon; set by it, called by who asks
    peek   looks from the asking thread instead; None: the shader core answers
    """

    def __init__(self, pid: int, entry: int, name: str) -> None:
        self.pid, self.entry, self.name = pid, entry, name
        self.is_asked = False
        self.hurry: Callable[[], None] = lambda: None
        self.peek: Callable[[], tuple[tuple[Wave, ...], str]] | None = None
        self.waves: tuple[Wave, ...] = ()
        self._answered: threading.Event | None = None  # made by who asks first

    def __enter__(self) -> Running:
        _running.append(self)
        return self

    def __exit__(self, *why: object) -> None:
        _running.remove(self)

    def answer(self, waves: Sequence[Wave]) -> None:
        """Where its waves stand now. By the shader core."""
        self.waves, self.is_asked = tuple(waves), False
        if self._answered is not None:
            self._answered.set()

    def ask(self) -> None:
        """From the thread that wants to know."""
        self._answered = threading.Event()
        self.is_asked = True
        self.hurry()

    def seen(self, end: float) -> Kernel:
        """What it answers, until a moment of time.monotonic."""
        if self.peek is not None:
            waves, missing = self.peek()
            return Kernel(self.entry, self.name, waves, missing)
        if self._answered is not None and self._answered.wait(max(0.0, end - time.monotonic())):
            return Kernel(self.entry, self.name, self.waves)
        missing = f"it came to no end of a block of instructions within {PATIENCE_SECONDS:g} s"
        return Kernel(self.entry, self.name, (), missing)


_running: list[Running] = []
_stops: deque[tuple[int, Stop]] = deque(maxlen=STOPS_KEPT)


def running(pid: int, entry: int, name: str = "") -> Running:
    """A kernel of a process runs, while a `with` block that begins with this does."""
    return Running(pid, entry, name)


def stopped(pid: int, stop: Stop) -> None:
    """A kernel of a process did not come to its end."""
    _stops.append((pid, stop))


def look(pid: int, is_wanted: Callable[[int, str], bool]) -> list[Kernel]:
    """The kernels of a process that run now, where is_wanted(entry, name), and where their waves stand."""
    found = [one for one in _running.copy() if one.pid == pid and is_wanted(one.entry, one.name)]
    for one in found:
        one.ask()
    end = time.monotonic() + PATIENCE_SECONDS
    return [one.seen(end) for one in found]


def last_stop(pid: int, is_wanted: Callable[[int, str], bool]) -> Stop | None:
    """What stopped a kernel last."""
    return next(
        (
            stop
            for whose, stop in reversed(_stops.copy())
            if whose == pid and is_wanted(stop.kernel.entry, stop.kernel.name)
        ),
        None,
    )


# ------------------------------------------------------------ words that shader cores share


def groups_text(numbers: Iterable[int]) -> str:
    """Workgroups in words, of which there may be some more: "group 3", "groups 0-15, 20"."""
    each = sorted(set(numbers))
    spans: list[list[int]] = []
    for number in each:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = [str(low) if low == high else f"{low}-{high}" for low, high in spans[:GROUPS_SHOWN]]
    more = ["..."] if len(spans) > GROUPS_SHOWN else []
    return f"{'group' if len(each) == 1 else 'groups'} {', '.join(shown + more)}"


def active_text(mask: int, lanes: int, name: str) -> str:
    """Lanes that are on: "exec 0x0000ffff, 16 of 32 lanes"."""
    return f"{name} {mask:#0{lanes // 4 + 2}x}, {mask.bit_count()} of {lanes} lanes"
