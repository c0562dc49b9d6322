"""Watch: the events that the emulated resource manager and its GPUs report to observers.

In       channels before and after each step; what stopped one
Out      ring entries as GP_PUT shows them, each once and before it is fetched; how far a channel is; faults
Next     hcq/events/kernel_observer.py (the observers), rm_state.py (ioctls), gpu.py and pbdma.py (who ask)

An entry is done when the segment behind it is, with all launches and copies that its methods began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.emu.nv.errors import Access, ChannelError, HungKernel, KernelError, MmuFault, Removal
from hcq.events.kernel_observer import GpuFault, KernelObserver, queue_number
from hcq.nv.abi.gpfifo import GP_ENTRY_BYTES

if TYPE_CHECKING:
    from hcq.emu.kernel import Process
    from hcq.emu.nv.channel import Channel

UNIT = "an observer"


class ChannelWatch:
    """Tells of one channel. process: whose it is.

    told, finished   entries since the channel was made
    """

    def __init__(self, observers: list[KernelObserver], process: Process, channel: Channel) -> None:
        self.observers, self.process, self.channel = observers, process, channel
        self.queue = queue_number(channel.card.index, channel.token)
        self.told = self.finished = 0

    def before(self, put: int) -> None:
        """The channel is about to fetch entries; `put` is in its ring."""
        channel = self.channel
        count = (put - self.told) % channel.entries
        if not count:
            return
        first = self.told % channel.entries
        head = min(count, channel.entries - first)
        words = self.read(channel.ring + first * GP_ENTRY_BYTES, head * GP_ENTRY_BYTES)
        words += self.read(channel.ring, (count - head) * GP_ENTRY_BYTES) if count > head else b""
        at, self.told = self.told, self.told + count
        for one in self.observers:
            one.taken(self.process, self.queue, at * GP_ENTRY_BYTES, words, self.read)

    def after(self, get: int) -> None:
        """All entries before `get`, in its ring, are fetched and their segments done."""
        finished = self.told - (self.told - get) % self.channel.entries
        if finished == self.finished or self.channel.pending:
            return
        self.finished = finished
        for one in self.observers:
            one.done(self.process, self.queue, finished * GP_ENTRY_BYTES)

    def stopped(self, error: ChannelError) -> None:
        """Something stopped it; that it is taken off the runlist is no fault."""
        if isinstance(error, Removal):
            return
        kind, where, access = "a channel stopped", None, ""
        if isinstance(error, MmuFault):
            kind, where, access = "page fault", error.address, Access(error.access).name.lower()
        elif isinstance(error, KernelError):
            kind = "a kernel stopped"
        elif isinstance(error, HungKernel):
            kind = "a kernel did not end"
        fault = GpuFault(
            self.channel.card.index,
            self.queue,
            kind,
            f"Xid {error.xid}: {error}",
            where,
            access=access,
            kernel=error.program,
        )
        for one in self.observers:
            one.faulted(self.process, fault, self.read)

    def read(self, va: int, size_bytes: int) -> bytes:
        """GPU memory; nothing where some of it is not mapped."""
        try:
            return self.channel.view.read(va, size_bytes, UNIT)
        except MmuFault:
            return b""
