"""Memory checks: accesses of kernels outside of buffers, found before they are made.

In       what is known of the device's memory as a launch begins; the addresses of each access
Out      a fault in Checks for each instruction that reached memory which is no buffer's
Changes  itself; no register, no memory
Next     checks.py (what was found), hcq/events/known_memory.py (what is known), ../amd/shader/memory_steps.py and
         ../nv/shader/memory_steps.py (who ask), access_faults.py (accesses that stop a kernel)

Memory of which nobody says anything is open: a pointer to it may have come from anywhere. So what is found is real.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcq.emu.shader.unowned_memory import Gaps
from hcq.events.kernel_faults import KernelFault, Site
from hcq.events.known_memory import KnownMemory, Stretch

if TYPE_CHECKING:
    from hcq.emu.shader.checks import Checks

Array = NDArray[Any]

VERBS = {"load": "reads it", "store": "writes it", "atomic": "changes it"}
END = 1 << 64
OUTSIDE = "an access outside of any buffer, at"
BEYOND_ARGUMENTS = "a read beyond the arguments, at"
ANOTHER = "an access outside of the buffer that its pointer was made from, at"
FREED = "an access to freed memory, at"
FREED_HEAP = "an access to what free() gave back to the heap, at"
OUTSIDE_HEAP = "an access to the heap outside of what malloc() gave out, at"


class MemoryChecks:
    """Those of one launch.

    known    the device's memory as the launch begins
    text_of  (place of an instruction) -> the instruction, in words
    reach    place of an instruction -> the buffers that the pointer of its access was made from; None: nobody has asked
    arguments  where the launch's arguments are, where an access by their address may go
    site     where the instruction that runs is: its address, or its line
    is_atomic  it reads and writes as one, by a load and a store
    name_of  (number of an address among those of the access that runs, and of how many) -> whose it is, in words; who
             runs an instruction sets both
    """

    def __init__(self, known: KnownMemory, checks: Checks, text_of: Callable[[int], str]) -> None:
        self.known, self.checks, self.text_of = known, checks, text_of
        self.site, self.is_atomic = 0, False
        self.arguments: Stretch | None = None
        self.reach: Mapping[int, tuple[Stretch, ...]] | None = None
        self.name_of: Callable[[int, int], str] = lambda number, count: ""
        self._closed = Gaps(known.closed)
        self._starts = [one.start for one in known.closed]
        self._open = Stretch(1, 0)  # where the last access was: nearly always the next one is there, too

    def look(self, kind: str, addresses: Array, size_bytes: int) -> None:
        """An instruction touches so many bytes from each address on. kind: "load", "store" or "atomic"."""
        if not len(addresses):
            return
        low, end = int(addresses.min()), int(addresses.max()) + size_bytes
        reach = self.reach.get(self.site) if self.reach else None
        if reach is not None:
            if reach[0].start <= low and end <= reach[0].end:
                return
            inside = np.zeros(len(addresses), bool)
            for one in reach:
                last = np.uint64(one.end - size_bytes) if one.end - one.start >= size_bytes else np.uint64(0)
                inside |= (addresses >= np.uint64(one.start)) & (addresses <= last)
            if inside.all():
                return
            self._tell(kind, addresses, size_bytes, np.flatnonzero(~inside), True)
            return
        if self._open.start <= low and end <= self._open.end:
            return
        self._open = around = self._open_at(low)
        if around.start <= low and end <= around.end:
            return
        outside = np.flatnonzero(self._closed.reached(addresses, size_bytes))
        if len(outside):
            self._tell(kind, addresses, size_bytes, outside, False)

    def left_heap(self, kind: str, address: int, number: int, count: int, times: int, is_freed: bool) -> None:
        """An access, one of a count, is in the heap of malloc, and not in what that has given out."""
        rule, what = ("use-after-free", FREED_HEAP) if is_freed else ("buffer-overrun", OUTSIDE_HEAP)
        site = Site(VERBS[kind], self.text_of(self.site), self.site, self.name_of(number, count))
        fault = KernelFault(rule, what, "global", address, (site,))
        self.checks.add((rule, self.site), times, lambda: fault)

    def _open_at(self, address: int) -> Stretch:
        """What is open around an address; an empty stretch where it is closed."""
        closed = self.known.closed
        at = bisect.bisect_right(self._starts, address)
        start = closed[at - 1].end if at else 0
        return Stretch(start, closed[at].start if at < len(closed) else END)

    def _tell(self, kind: str, addresses: Array, size_bytes: int, outside: Array, is_made: bool) -> None:
        """Some lanes reach closed memory. is_made: or another buffer than the one that their pointer was made from."""
        number, count, place = int(outside[0]), len(addresses), self.site
        if is_made and self.arguments is not None and self.reach and self.reach[place] == (self.arguments,):
            at = max(int(addresses[number]) - self.arguments.start, self.arguments.end - self.arguments.start)
            refused_arguments = KernelFault(
                "arguments-overrun",
                BEYOND_ARGUMENTS,
                "parameters",
                at,
                (Site(VERBS[kind], self.text_of(place), place, self.name_of(number, count)),),
            )
            self.checks.add(("arguments-overrun", place), len(outside), lambda: refused_arguments)
            return
        at = self._closed.first_in(int(addresses[number]), size_bytes)
        if is_made:  # whatever is there
            is_closed = stretch_at(self.known.closed, at) is not None
            rule, what = "buffer-overrun", OUTSIDE if is_closed else ANOTHER
        else:
            rule, what = rule_at(self.known, at)

        def fault() -> KernelFault:
            site = Site(VERBS[kind], self.text_of(place), place, self.name_of(number, count))
            return KernelFault(rule, what, "global", at, (site,))

        self.checks.add((rule, place), len(outside), fault)


def memory_checks(checks: Checks, text_of: Callable[[int], str]) -> MemoryChecks | None:
    """Those of a launch, made at the first call; None where nothing is known of its memory."""
    if "memory" in checks.words and checks.memory is None and checks.known is not None:
        checks.memory = MemoryChecks(checks.known, checks, text_of)
    return checks.memory


def rule_at(known: KnownMemory, address: int) -> tuple[str, str]:
    """Which rule an access to a closed address breaks, and what it is."""
    if stretch_at(known.freed, address) is not None:
        return "use-after-free", FREED
    return "buffer-overrun", OUTSIDE


def stretch_at(stretches: Sequence[Stretch], address: int) -> Stretch | None:
    """The one that an address is in. They are in order."""
    at = bisect.bisect_right(stretches, address, key=lambda one: one.start) - 1
    return stretches[at] if at >= 0 and address < stretches[at].end else None
