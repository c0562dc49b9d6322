"""Touches of kernels: which bytes of memory a launch on an emulated GPU has read and written, told when it has ended.

In       a launch that has ended; listeners
Out      Touches, one record for all vendors; `is_wanted`; `tell`
Changes  the list of listeners
Next     emu/shader/global_races.py (which remembers them), observe/validator.py (who attaches a listener),
         rules/touched.py (a listener)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Touches(NamedTuple):
    """Ranges that do not overlap, in order.

    low, high   from which address up to which
    is_write    whether somebody wrote there; else it was only read
    place       of an instruction that did
    text_of     (place) -> that instruction, in words
    """

    low: Sequence[int]
    high: Sequence[int]
    is_write: Sequence[bool]
    place: Sequence[int]
    text_of: Callable[[int], str]


Listener = Callable[[int, int, Touches], None]
_listeners: tuple[Listener, ...] = ()


def listen(listener: Listener) -> Callable[[], None]:
    """Hear of every launch of this process's emulated GPUs from now on. Returns what ends that.

    listener  is given the process whose work it is, where the kernel's code begins, and what it has touched: from a
              thread of the GPU, before the work counts as done
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


def tell(pid: int, entry: int, touches: Touches) -> None:
    """A launch that has ended did this."""
    for listener in _listeners:
        listener(pid, entry, touches)
