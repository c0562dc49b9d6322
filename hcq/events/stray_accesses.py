"""Stray accesses: accesses of a kernel outside of its memory, found by an emulated GPU and reported to observers.

In       a launch that has ended; listeners, which know the unallocated gaps between buffers
Out      Stray, one record for all vendors; `is_wanted` and `gaps`, called once for each launch; `tell`
Changes  the list of listeners
Next     emu/amd/shader/strays.py and emu/nv/launch.py (which find them), observe/validator.py (a listener),
         rules/launches.py and rules/addresses.py (the rules)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakMethod


class Stray(NamedTuple):
    """An instruction of a kernel that reached beyond a group's shared memory, or stored behind the end of a buffer.

    entry       where the kernel's code begins
    text, pc    the instruction, and its address; "" and `entry` where that is not known
    address     of the first thread that was outside: in shared memory, or in the device's
    limit       bytes of shared memory that each group of the launch has; -1 for a store behind a buffer
    who         that thread, or ""
    times       how often a thread was outside there
    """

    entry: int
    text: str
    pc: int
    address: int
    size_bytes: int
    limit: int
    who: str
    times: int


Listener = Callable[[int, Stray], None]
Gaps = Callable[[], list[tuple[int, int]]]
_listeners: tuple[tuple[WeakMethod[Listener], WeakMethod[Gaps]], ...] = ()


def listen(listener: Listener, gaps: Gaps) -> Callable[[], None]:
    """Hear of every stray of this process's emulated GPUs from now on. Returns what ends that.

    listener  a method; when nobody has its object any more, that ends it, too
    gaps      a method of the same: memory, from and to which address, that no launch which runs now may store to

    Emulated GPUs call both from threads of theirs, before the work counts as done; the one with the process whose work
    it is.
    """
    global _listeners
    entry = WeakMethod(listener), WeakMethod(gaps)
    _listeners = (*[one for one in _listeners if one[0]() is not None], entry)

    def end() -> None:
        global _listeners
        _listeners = tuple(one for one in _listeners if one is not entry)

    return end


def gaps() -> list[tuple[int, int]]:
    """Memory that a launch which begins now may not store to, in order, as far as anybody knows."""
    return sorted(gap for _, known in _listeners if (ask := known()) for gap in ask())


def is_wanted() -> bool:
    """Whether anybody listens."""
    return any(listener() is not None for listener, _ in _listeners)


def tell(pid: int, found: Stray) -> None:
    """A launch that has ended did this."""
    for listener, _ in _listeners:
        if hear := listener():
            hear(pid, found)
