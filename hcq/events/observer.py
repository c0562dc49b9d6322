"""Observers: the interface for traces, validation and profiles, which are notified of everything a device does.

In       a device that opens, and what the configuration asks for
Out      `Observer`, with a method for every kind of event; the observers of a device
Changes  nothing; hcq.observe is imported when observation is switched on, or an error must be explained
Next     observe/ (the observers), hcq/base.py (the interface of a device); hcq/device.py, hcq/memory.py, hcq/signal.py,
         hcq/queue.py, named_spans.py (which notify)

`Device.observers` is empty unless a switch asks for one, so a hot path makes one test. Observers are called in order:
first the validator, which may refuse a submission, then the trace, which records it before the doorbell.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hcq import backends
from hcq.command import Command, Indirect, PatchPoint
from hcq.program import Program
from hcq.system.call_site import Site

if TYPE_CHECKING:
    from hcq.events.named_spans import Span, Work
    from hcq.performance.counters import Counters


class Observer:
    """Hears of what one device does; each method does nothing here. Addresses are the device's, sizes are bytes.

    refuses           it judges submissions itself, and says better than the core what is wrong with one
    is_awaited        what it gathers is worth waiting for work in flight when the process ends
    packets_after     how many packets it puts behind those of a submission
    wraps_dispatches  it puts commands around dispatches, and is asked for them
    """

    refuses = False
    is_awaited = False
    packets_after = 0
    wraps_dispatches = False

    # -- the device --

    def opened(self) -> None:
        """The device can be used. Those that were there before were notified of its bring-up."""

    def closing(self) -> bool:
        """The device is about to stop; its work is done, or never will be.

        Returns  whether to be notified of the memory it gives back from now on
        """
        return False

    def fault(self, first: int, last: int, why: str) -> None:
        """The device stopped: these submissions failed."""

    def timeout(self, va: int, value: int, why: str) -> None:
        """A wait for this value of a signal reached its deadline."""

    def unsatisfied_waits(self) -> Sequence[str]:
        """Waits in flight that nothing submitted so far will end, in words."""
        return ()

    # -- memory; `free` and `unload` are called in destructors, too --

    def mapped(self, va: int, size_bytes: int, name: str | None) -> None:
        """The pool has new memory, for a buffer of this name."""

    def unmapped(self, va: int, size_bytes: int) -> None:
        """Memory went back to the system."""

    def alloc(self, va: int, size_bytes: int, capacity: int, name: str | None) -> None:
        """A buffer was handed out, in a block of `capacity` bytes."""

    def free(self, va: int, capacity: int) -> None:
        """A buffer's block is free again. Work in flight may still use it."""

    def renamed(self, va: int, name: str) -> None:
        """A buffer is called something else from now on, and was before."""

    def exposed(self, va: int) -> None:
        """The host has a view of a buffer, and may write there at any time."""

    def wrote(self, va: int, data: Any = None) -> None:
        """The host wrote to a buffer; None where nobody knows what."""

    def saw(self, va: int, data: Any) -> None:
        """The host read from a buffer."""

    # -- programs --

    def load(self, program: Program, entry: str, image: bytes, sources: Mapping[str, str] | None) -> None:
        """A program was loaded; `sources` is what it was made from, when that is known."""

    def unload(self, entry: int) -> None:
        """A program's code is gone."""

    # -- signals --

    def cell(self, va: int, name: str) -> None:
        """A signal was made."""

    def host_set(self, va: int, value: int, timestamp_ns: int) -> None:
        """The host stored a value in a signal, at that time."""

    def host_saw(self, va: int, value: int) -> None:
        """The host looked at a signal."""

    def waited(self, va: int, name: str, value: int, timestamp_ns: int, waited_ns: int) -> None:
        """A wait of the host ended: the signal had this value, stored at that time. waited_ns: 0 if it was there."""

    def stamped(self, entries: Sequence[tuple[int, int]]) -> None:
        """What timestamp packets stored: addresses and ticks of the device's clock."""

    def span(self, span: Span) -> None:
        """A stretch of time that the program gave a name, a collective perhaps, is over (named_spans.py)."""

    def span_of_work(self, work: Work) -> None:
        """Submissions that the program gives a name together, a collective perhaps (named_spans.py)."""

    # -- what emulated hardware says --

    def counted(self, made: Counters) -> None:
        """A launch of one of the device's programs has ended on an emulated GPU (HCQ_PROFILE=counters)."""

    def found(self, fields: Mapping[str, Any]) -> None:
        """A kernel breaks a rule (HCQ_SANITIZE): what hcq/observe/kernel_findings.py says of it."""

    # -- submissions --

    def around_dispatch(self, name: str, is_recorded: bool) -> tuple[Command, Command] | None:
        """Commands to record before and after a dispatch of the program of this name."""
        return None

    def submitting(
        self, value: int, words: list[bytes], commands: Sequence[Command], held: Sequence[Any], at: Site
    ) -> list[bytes]:
        """Words are about to be sent; `sent` or `dropped` comes next. Raises UsageError to refuse them.

        value    of the timeline, once the work is done
        held     the buffers that it uses, in nested lists
        at       the line of the program that asked for it, where it is known
        Returns  the words to send: these, perhaps with some around them
        """
        return words

    def sent(self, value: int) -> None:
        """The device has the words."""

    def dropped(self, value: int, why: str) -> None:
        """It did not reach the device."""

    def room(self, ring: str, put: int, size: int, get: int, capacity: int) -> None:
        """The driver is about to write `size` units into a ring. May refuse."""

    def reuse(self, name: str, va: int, size_bytes: int, used_until: int) -> None:
        """The driver is about to write where submission `used_until` had arguments or packets. May refuse."""

    # -- graphs --

    def stand_in(self, va: int, graph: str) -> None:
        """A buffer that only holds the place of a graph's arguments."""

    def sealing(self, words: bytes) -> None:
        """Packets that will be patched before they run. May refuse."""

    def patch(
        self, what: Indirect, written: Mapping[Any, int | float], points: Mapping[Any, Sequence[PatchPoint]]
    ) -> None:
        """A graph is about to be replayed, with these values of its symbols."""

    def replayed(self) -> None:
        """A replay was submitted."""


def diagnostics() -> Any:
    """The package of observers and reports, imported when the first of it is needed."""
    return importlib.import_module(backends.DIAGNOSTICS)
