"""The GPFIFO: a ring of pushbuffer segments that the GPU reads in order, and the doorbell that makes it look.

In       GpEntry values, two words each
Out      places in the ring; nothing is overwritten that the GPU has not read
Changes  the ring, GP_PUT, the doorbell
Next     channel.py (who makes one), abi/gpfifo.py (the layouts), device.py (what goes in)
Source   clc56f.h: GP_ENTRY0/1, Nvc56fControl; clc361.h: NOTIFY_CHANNEL_PENDING; dev_ram.ref, dev_pbdma.ref (GA100):
         CONFIG_USERD_WRITEBACK, with which GP_GET may be written when the channel is saved, and not before

What the timeline has passed was read. GP_GET only adds to that, for it may be as old as the channel, and its value is a
place in the ring: of which turn, follows only where it has changed since it was last looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from hcq.errors import UsageError
from hcq.gpu.fence import full_fence
from hcq.nv.abi.gpfifo import (
    GP_ENTRY_BYTES,
    USERD_BYTES,
    USERD_GP_GET,
    USERD_GP_PUT,
    USERMODE_DOORBELL,
    GpControl,
    GpEntry,
    decode_entry,
)
from hcq.system import native

ENTRIES = 4096  # a power of two


class GpFifo:
    """The ring at `va`, its USERD right behind it. `put` counts entries written and never wraps.

    passed          what the timeline has reached: who makes the ring says how that is asked
    reads_put_back  GP_PUT is read back before the doorbell is rung: through BAR0 it may else overtake the store. On
                    GH100 and later, as kbusFlushPcieForBar0Doorbell_GH100 says
    """

    kind = "GPFIFO"

    def __init__(self, va: int, doorbell: memoryview) -> None:
        self.va, self.entries = va, ENTRIES
        self.slots = native.view(va, ENTRIES * GP_ENTRY_BYTES).cast("Q")
        userd = native.view(self.userd_va, USERD_BYTES)
        userd[:] = bytes(USERD_BYTES)
        self._get = userd[USERD_GP_GET : USERD_GP_GET + 4].cast("I")
        self._put = userd[USERD_GP_PUT : USERD_GP_PUT + 4].cast("I")
        self._doorbell = doorbell[USERMODE_DOORBELL : USERMODE_DOORBELL + 4].cast("I")
        self.token = 0
        self.put = 0
        self.rung = 0
        self.passed: Callable[[], int] = lambda: 0
        self.reads_put_back = False
        self._marks: deque[tuple[int, int]] = deque()  # a submission's value, and `put` behind its entries
        self._read = 0  # entries that were read for certain
        self._seen = 0, 0  # GP_GET as it was looked at last, and how many entries had been read then at least

    @property
    def userd_va(self) -> int:
        """Where the ring's put and get are."""
        return self.va + self.userd_offset()

    @staticmethod
    def userd_offset() -> int:
        """How far behind the ring's first entry its put and get are, in bytes."""
        return -(-ENTRIES * GP_ENTRY_BYTES // USERD_BYTES) * USERD_BYTES

    @staticmethod
    def size_bytes() -> int:
        """Ring and USERD."""
        return GpFifo.userd_offset() + USERD_BYTES

    def mark(self, value: int) -> None:
        """All entries so far were read once the timeline has passed this value."""
        self._marks.append((value, self.put))

    def take_back(self, put: int) -> None:
        """What was written since `put` was this is nobody's: the GPU was not shown it."""
        self.put = put
        while self._marks and self._marks[-1][1] > put:
            self._marks.pop()

    def _follow_timeline(self) -> int:
        """How many entries the timeline has passed."""
        value = self.passed()
        while self._marks and self._marks[0][0] <= value:
            self._read = max(self._read, self._marks.popleft()[1])
        return self._read

    def _follow_get(self) -> int:
        """The same by GP_GET, which is read over BAR1, about a microsecond."""
        known = self._follow_timeline()
        before, least = self._seen
        get = self._get[0]
        if get != before and self.put - least < self.entries:  # it was written since: one turn alone fits
            known = self._read = max(known, self.put - (self.put - get) % self.entries)
        self._seen = get, known
        return known

    @property
    def get(self) -> int:
        """How many entries the GPU has read, as GP_GET says it if that is not old: for people, not for overwriting."""
        return max(self._follow_timeline(), self.put - (self.put - self._get[0]) % self.entries)

    def has_room(self, count: int) -> bool:
        """One slot stays free: a ring whose GP_GET equals its GP_PUT is empty. GP_GET is looked at last."""
        least = self.put + count - self.entries
        return self._read > least or self._follow_timeline() > least or self._follow_get() > least

    def write(self, entries: Sequence[int], wait: Callable[[int], None]) -> None:
        """Put the entries of one submission, each as its 64 bits, into the ring; all of them or none.

        wait(count) returns once there is room for so many.
        """
        if len(entries) >= self.entries:
            raise UsageError(
                f"submit: {len(entries)} segments in one submission do not fit the ring's {self.entries}. "
                "Submit less at a time."
            )
        if not self.has_room(len(entries)):
            wait(len(entries))
        for entry in entries:
            self.slots[self.put % self.entries] = entry
            self.put += 1

    def commit(self) -> None:
        """Show the GPU what was written."""
        if self.put == self.rung:
            return
        full_fence()  # pushbuffer and entries are visible before GP_PUT covers them,
        self._put[0] = self.put % self.entries
        if self.reads_put_back:
            self._put[0]
        full_fence()  # and GP_PUT before the doorbell makes the GPU look
        self._doorbell[0] = self.token
        self.rung = self.put

    def is_visible(self, before: int) -> bool:
        """Whether the GPU may read what was written since `put` was `before`."""
        return before < self.put and self._put[0] == self.put % self.entries

    def detach(self) -> None:
        """The ring's memory is about to go; from now on the ring counts as read."""
        self._get = self._put = memoryview(bytearray(4)).cast("I")
        self.put = self.rung = self._read = 0
        self._marks.clear()
        self.passed = lambda: 0  # the timeline may be gone, too
        self._seen = 0, 0

    def entry_at_get(self) -> GpEntry | GpControl:
        """The segment that the GPU is at."""
        word = self.slots[self.get % self.entries]
        return decode_entry(word & 0xFFFFFFFF, word >> 32)


def segment(va: int, words: int) -> int:
    """The entry of a pushbuffer segment, as its 64 bits."""
    low, high = GpEntry(get=va, length=words).words
    return low | high << 32
