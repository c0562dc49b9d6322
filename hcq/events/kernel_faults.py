"""Faults of kernels: found by an emulated GPU while it runs them, and reported to observers.

In       a launch that has ended; listeners, each with the words of HCQ_SANITIZE that it wants looked for
Out      KernelFault, one record for all vendors; `wanted`, asked once for each launch; `tell`
Changes  the list of listeners
Next     emu/shader/checks.py (which collects them), observe/sanitizer.py (a listener), rules/kernels.py (the rules)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakMethod

SHARED_RACES = "shared-races"  # a part of the word race, which validation wants, too


class Site(NamedTuple):
    """One of the things that a fault is about: what a thread, a packet or the host did.

    verb   "reads it", "writes it", "changes it", "uses it", ...
    text   the instruction, or the packet
    place  its address in memory, or its line of PTX or MSL
    who    the thread that did it; "" where that is not known
    entry  where the code of its kernel begins; 0: that of the launch which the fault is told of
    """

    verb: str
    text: str
    place: int
    who: str = ""
    entry: int = 0


class KernelFault(NamedTuple):
    """What is wrong in a launch, once for each set of sites.

    rule     the id of the rule that is broken; hcq/rules/kernels.py has them
    what     what is wrong with the place: "a race on", "an access beyond the end of", ...
    space    "shared", "global", "local", "constant", "parameters", "register", "tensor"; "" where it is about no place
    address  of the first byte: in the device's memory, or from the beginning of that space; a register's number, a
             column
    sites    one or more
    why      what is missing, or what would be right: "with no barrier between"; "" where `what` says it
    times    how often these sites were found so
    """

    rule: str
    what: str
    space: str
    address: int
    sites: tuple[Site, ...]
    why: str = ""
    times: int = 1


Listener = Callable[[int, int, KernelFault], None]
# (process, where code begins) -> whether the listener would know such a launch
Knows = Callable[[int, int], bool]
_Entry = tuple[WeakMethod[Listener], frozenset[str], WeakMethod[Knows] | None]
_listeners: tuple[_Entry, ...] = ()


def listen(listener: Listener, words: frozenset[str], knows: Knows | None = None) -> Callable[[], None]:
    """Hear of every fault of this process's emulated GPUs from now on. Returns what ends that.

    listener  a method; when nobody has its object any more, that ends it, too. It is given the process whose work it
              is, where the kernel's code begins, and the fault: from a thread of the GPU, before the work counts as
              done
    words     what is to be looked for: words of HCQ_SANITIZE, and SHARED_RACES
    knows     a method: in which launches; None: in all
    """
    global _listeners
    entry: _Entry = WeakMethod(listener), words, None if knows is None else WeakMethod(knows)
    _listeners = (*[one for one in _listeners if one[0]() is not None], entry)

    def end() -> None:
        global _listeners
        _listeners = tuple(one for one in _listeners if one is not entry)

    return end


def wanted(pid: int = 0, entry: int = 0) -> frozenset[str]:
    """The words that somebody wants looked for. pid, entry: in a launch of the code that begins there."""
    found: frozenset[str] = frozenset()
    for listener, words, knows in _listeners:
        known = None if knows is None or not entry else knows()
        if listener() is not None and (known is None or known(pid, entry)):
            found |= words
    return found


def tell(pid: int, entry: int, found: KernelFault) -> None:
    """A launch that has ended did this."""
    for listener, _, _ in _listeners:
        if hear := listener():
            hear(pid, entry, found)
