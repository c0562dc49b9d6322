"""Known memory: what a process knows of its device's memory when a launch begins, for checks of an emulated GPU.

In       a launch that begins; who knows of the program that it runs
Out      KnownMemory: which stretches are buffers, and which nobody may touch; `of_launch`, asked once for each launch
Changes  the list of those who know
Next     observe/memory_map.py (who knows), emu/shader/memory_checks.py (who asks), kernel_faults.py (what is found)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakMethod

if TYPE_CHECKING:
    from hcq.events.unwritten_memory import UnwrittenMemory


class Stretch(NamedTuple):
    """Addresses [start, end)."""

    start: int
    end: int


class KnownMemory(NamedTuple):
    """One device's. Addresses that are in neither list belong to others, or to work that is under way.

    buffers         in order: the bytes that a buffer has; all of the block of one that work under way may use
    freed           in order: memory of buffers that are gone, which the device keeps for others
    closed          in order, with the freed ones: what no launch that begins now may touch
    unwritten       what nobody wrote of its buffers; None: nobody wants to know
    shared_bytes    that a block of the kernel has, which a launch rounds up; None: not known, or launches add to it
    arguments       the first of the two registers that a wave finds the address of its arguments in, and how many bytes
                    they are; None: not known, or the GPU has them elsewhere
    """

    buffers: tuple[Stretch, ...]
    freed: tuple[Stretch, ...]
    closed: tuple[Stretch, ...]
    arguments: tuple[int, int] | None = None
    unwritten: UnwrittenMemory | None = None
    shared_bytes: int | None = None


Ask = Callable[[int, int], KnownMemory | None]
_known: tuple[WeakMethod[Ask], ...] = ()


def listen(ask: Ask) -> Callable[[], None]:
    """Ask this method of every launch from now on. Returns what ends that.

    ask  a method: (process, where a kernel's code begins, or an address that a packet names) -> what is known of the
         device that has it; None where that is another's. It is called from a thread of the GPU. When nobody has its
         object any more, that ends it, too
    """
    global _known
    entry = WeakMethod(ask)
    _known = (*[one for one in _known if one() is not None], entry)

    def end() -> None:
        global _known
        _known = tuple(one for one in _known if one is not entry)

    return end


_starting = threading.local()


def starts(registers: Sequence[int]) -> None:
    """A launch is the next thing that this thread runs: the registers that its waves begin with."""
    _starting.registers = tuple(registers)


def registers() -> tuple[int, ...]:
    """Those of the launch that this thread runs; none where nobody says."""
    found: tuple[int, ...] = getattr(_starting, "registers", ())
    return found


_shadows: list[UnwrittenMemory] = []


def keep(shadow: UnwrittenMemory) -> Callable[[], None]:
    """Tell these shadows of what packets write from now on. Returns what ends that."""
    _shadows.append(shadow)
    return lambda: _shadows.remove(shadow) if shadow in _shadows else None


def written(address: int, size_bytes: int) -> None:
    """A packet of an emulated GPU writes these bytes."""
    for one in _shadows:
        one.written(address, size_bytes)


def of_launch(address: int, pid: int = 0) -> KnownMemory | None:
    """What is known as a launch or a packet begins; None: nobody knows its program, or its memory.

    pid  the process whose it is; 0: this one
    """
    for one in _known:
        if (ask := one()) and (found := ask(pid or os.getpid(), address)) is not None:
            return found
    return None
