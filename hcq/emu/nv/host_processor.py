"""Host methods: what the front end of a channel does itself, on any subchannel.

In       methods below 0x100
Out      semaphores released, reduced or waited for; waiting for engines; memory operations
Changes  memory that semaphores are in
Next     pbdma.py (who calls), hcq/nv/abi/host_methods.py (the declarations), semaphores.py (what a release stores)
Source   clc56f.h, clc86f.h; dev_pbdma.ref (GA100): WFI idles the engine that methods were last sent to

Hardware also waits for idle where methods go on to another engine, to or from subchannel 4 (dev_ram.ref). Nothing here
does: a driver has to order its engines by semaphores, or by WFI while it still speaks to the one that works.

There are no caches and no TLB to speak of here: memory operations are checked, and have nothing to do.
"""

from __future__ import annotations

from hcq.emu.nv import semaphores
from hcq.emu.nv.channel import Channel
from hcq.emu.nv.engine import Engine, on
from hcq.emu.nv.errors import HostError
from hcq.nv.abi import host_methods as host
from hcq.nv.abi.host_methods import SemaphoredOperation, SemExecuteOperation
from hcq.nv.abi.method import Method

UNIT = "HOST5 HUBCLIENT_HOST"
USERD_REFERENCE = 0x48
OPERATIONS = {
    host.MemOpDOperation.MEMBAR,
    host.MemOpDOperation.MMU_TLB_INVALIDATE,
    host.MemOpDOperation.MMU_TLB_INVALIDATE_TARGETED,
    host.MemOpDOperation.L2_PEERMEM_INVALIDATE,
    host.MemOpDOperation.L2_SYSMEM_INVALIDATE,
}


class Acquire:
    """A semaphore that the channel waits for."""

    def __init__(self, va: int, how: SemExecuteOperation, payload: int, size_bytes: int) -> None:
        self.va, self.how, self.payload, self.size_bytes = va, how, payload, size_bytes

    def holds(self, value: int) -> bool:
        """Whether a semaphore of this value lets the channel go on."""
        bits = 8 * self.size_bytes
        if self.how == SemExecuteOperation.ACQUIRE:
            return value == self.payload
        if self.how == SemExecuteOperation.ACQ_STRICT_GEQ:
            return value >= self.payload
        if self.how == SemExecuteOperation.ACQ_CIRC_GEQ:
            return semaphores.signed(value - self.payload & (1 << bits) - 1, bits) >= 0
        if self.how == SemExecuteOperation.ACQ_AND:
            return bool(value & self.payload)
        return bool(~(value | self.payload) & (1 << bits) - 1)  # ACQ_NOR: our reading of the name


class HostProcessor(Engine):
    """The front end of one channel."""

    error = HostError

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel, channel.class_id)
        self.acquire: Acquire | None = None

    def is_satisfied(self) -> bool:
        """Whether the channel may go on."""
        if self.acquire is not None:
            value = self.channel.view.load_number(self.acquire.va, self.acquire.size_bytes, UNIT)
            if not self.acquire.holds(value):
                return False
            self.acquire = None
        return True

    def at(self, va: int, size_bytes: int, has_timestamp: bool = False) -> int:
        """The address of a semaphore. Raises HostError when it is not aligned."""
        if not semaphores.is_aligned(va, size_bytes, has_timestamp):
            raise HostError(
                f"semaphore at {va:#x}: {16 if has_timestamp else size_bytes} bytes are not aligned there"
            )
        return va

    @on(host.Illegal)
    def illegal(self, method: Method) -> None:
        """ILLEGAL: stops the channel, as it is there to do."""
        raise HostError("method ILLEGAL")

    @on(host.ClearFaulted)
    def clear_faulted(self, method: Method) -> None:
        """CLEAR_FAULTED: refused to processes."""
        raise HostError("method CLEAR_FAULTED is the kernel driver's")

    # ------------------------------------------------------------ semaphores

    @on(host.SemExecute)
    def sem_execute(self, method: Method) -> None:
        """SEM_EXECUTE: acquire, release or reduce the semaphore that the words before it name."""
        va = self.address(host.SemAddrHi, host.SemAddrLo)
        size = 8 if method.payload_size else 4
        payload = self.word(host.SemPayloadLo) | (self.word(host.SemPayloadHi) << 32 if size == 8 else 0)
        view = self.channel.view
        if method.operation == SemExecuteOperation.RELEASE:
            if method.release_wfi:
                self.channel.wait_for_idle()
            has_timestamp = bool(method.release_timestamp)
            self.at(va, size, has_timestamp)
            now = self.channel.card.time_ns() if has_timestamp else None
            semaphores.release(view, va, payload, size, now, UNIT)
        elif method.operation == SemExecuteOperation.REDUCTION:
            if method.release_wfi:
                self.channel.wait_for_idle()
            how = host.Reduction(method.reduction).name  # the numbers of the older semaphore: IMIN is MIN
            is_signed = method.reduction_format == host.Format.SIGNED
            semaphores.reduce(view, self.at(va, size), how, payload, size, is_signed, UNIT)
        else:
            how_to_wait = SemExecuteOperation(method.operation)
            self.acquire = Acquire(self.at(va, size), how_to_wait, payload, size)

    @on(host.Semaphored)
    def semaphored(self, method: Method) -> None:
        """The older semaphore, of 40-bit addresses."""
        va = self.address(host.Semaphorea, host.Semaphoreb)
        payload = self.word(host.Semaphorec)
        view = self.channel.view
        if method.operation == SemaphoredOperation.RELEASE:
            if method.release_wfi == host.ReleaseWfi.EN:
                self.channel.wait_for_idle()
            has_timestamp = method.release_size == host.ReleaseSize.SIZE_16BYTE
            now = self.channel.card.time_ns() if has_timestamp else None
            semaphores.release(view, self.at(va, 4, has_timestamp), payload, 4, now, UNIT)
        elif method.operation == SemaphoredOperation.REDUCTION:
            how = host.Reduction(method.reduction).name
            is_signed = method.format == host.Format.SIGNED
            semaphores.reduce(view, self.at(va, 4), how, payload, 4, is_signed, UNIT)
        else:
            how_to_wait = {
                SemaphoredOperation.ACQUIRE: SemExecuteOperation.ACQUIRE,
                SemaphoredOperation.ACQ_GEQ: SemExecuteOperation.ACQ_CIRC_GEQ,
                SemaphoredOperation.ACQ_AND: SemExecuteOperation.ACQ_AND,
            }.get(SemaphoredOperation(method.operation))
            if how_to_wait is None:
                raise HostError(f"SEMAPHORED.operation={method.operation} has no meaning")
            self.acquire = Acquire(self.at(va, 4), how_to_wait, payload, 4)

    # ------------------------------------------------------------ waiting and memory

    @on(host.Wfi)
    def wfi(self, method: Method) -> None:
        """WFI: the engine that was sent methods last finishes what it has; the scope says of which of its groups."""
        self.channel.wait_for_idle()

    @on(host.SetReference)
    def set_reference(self, method: Method) -> None:
        """SET_REFERENCE: once that engine has finished, the count appears in USERD."""
        self.channel.wait_for_idle()
        self.channel.userd[USERD_REFERENCE // 4] = method.count

    @on(host.MemOpD)
    def mem_op(self, method: Method) -> None:
        """MEM_OP_D: barriers and invalidations that a process may ask for; others stop the channel."""
        if method.operation not in OPERATIONS:
            raise HostError(f"MEM_OP_D.operation={method.operation} is not for a channel of a process")
