"""Races of kernels: found by an emulated GPU while a launch runs, and reported to observers.

In       a launch that has ended; listeners
Out      Race, one record for all vendors; `is_wanted`, asked once for each launch; `tell`
Changes  the list of listeners
Next     emu/shader/shared_races.py (which finds them), observe/sanitizer.py (a listener), rules/races.py (the rule)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakMethod


class Access(NamedTuple):
    """One of the two accesses of a race.

    kind   load, store or atomic
    text   the instruction
    place  its address in memory, or its line of PTX
    who    the thread that made it
    """

    kind: str
    text: str
    place: int
    who: str


class Race(NamedTuple):
    """Two accesses to one place that nothing orders, one of them a write.

    offset  of the first byte in the shared memory of the block
    times   how often these two instructions were found so
    """

    offset: int
    first: Access
    second: Access
    times: int


Listener = Callable[[int, int, Race], None]
_listeners: tuple[WeakMethod[Listener], ...] = ()


def listen(listener: Listener) -> Callable[[], None]:
    """Hear of every race of this process's emulated GPUs from now on. Returns what ends that.

    listener  a method; when nobody has its object any more, that ends it, too. It is given the process whose work it
              is, where the kernel's code begins, and the race, from a thread of the GPU, before the work counts as done
    """
    global _listeners
    entry = WeakMethod(listener)
    _listeners = (*[one for one in _listeners if one() is not None], entry)

    def end() -> None:
        global _listeners
        _listeners = tuple(one for one in _listeners if one is not entry)

    return end


def is_wanted() -> bool:
    """Whether anybody listens."""
    return any(listener() is not None for listener in _listeners)


def tell(pid: int, entry: int, found: Race) -> None:
    """A launch that has ended did this."""
    for listener in _listeners:
        if hear := listener():
            hear(pid, entry, found)
