"""Strays: what a kernel on an emulated GPU did outside of the memory that it has, and who is told.

In       a launch that has ended; who wants to hear of it
Out      Stray, one record for all vendors; `is_wanted`, asked once a launch; `tell`
Changes  the list of listeners
Next     emu/amd/shader/strays.py (who finds them), observe/validator.py (who listens), rules/launches.py (the rule)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Stray(NamedTuple):
    """An instruction of a kernel that reached beyond a group's shared memory.

    entry       where the kernel's code begins
    text, pc    the instruction, and its address
    address     in shared memory, of the first thread that was outside
    limit       bytes of shared memory that each group of the launch has
    who         that thread
    count       how often a thread was outside there
    """

    entry: int
    text: str
    pc: int
    address: int
    size_bytes: int
    limit: int
    who: str
    count: int


Listener = Callable[[int, Stray], None]
_listeners: tuple[Listener, ...] = ()


def listen(listener: Listener) -> Callable[[], None]:
    """Hear of every stray of this process's emulated GPUs from now on. Returns what ends that.

    Emulated GPUs call from threads of theirs, before the work counts as done; with the process whose work it is.
    """
    global _listeners
    _listeners = (*_listeners, listener)

    def end() -> None:
        global _listeners
        _listeners = tuple(one for one in _listeners if one is not listener)

    return end


def is_wanted() -> bool:
    """Whether anybody listens."""
    return bool(_listeners)


def tell(pid: int, found: Stray) -> None:
    """A launch that has ended did this."""
    for listener in _listeners:
        listener(pid, found)
