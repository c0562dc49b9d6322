"""A channel: what feeds a GPU its pushbuffers, with the engine objects on it, made in the one order that RM accepts.

In       memory for ring and error notifier, the chip's classes
Out      Channel: its GPFIFO, its token, what its error notifier says
Changes  RM objects below the device: a channel group, a context share, a channel, a compute and a copy object
Next     rings.py (the ring), device.py (who makes one, and a new one after a fault), fault.py (what the notifier means)
Source   kernel_channel.c, uvm_user_channel.c: engine object, registration with UVM, scheduling: in this order

One channel carries everything: host methods, compute on one subchannel, copies on another. Commands of one device run
in the order of their submission anyway, so a second channel would only add semaphores between the two. A graph whose
copies may run beside its kernels is the exception: copy_channel.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from hcq.errors import DriverError, HcqError
from hcq.gpu.release import do_all, quietly
from hcq.nv.abi import ioctls as calls
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.status import NvStatus
from hcq.nv.abi.structures import structure
from hcq.nv.address import POOL
from hcq.nv.chip import Chip
from hcq.nv.ioctl import CallRefused, call
from hcq.nv.memory import Allocation, NvMemory
from hcq.nv.rings import GpFifo
from hcq.system import native

GR0 = 1  # NV2080_ENGINE_TYPE_GRAPHICS: compute, and copies through the engine beside it
# In version 0 of a copy object's parameters, engineType is a copy engine's number (kceGetEngineDescFromAllocParams).
# 0 and 1 share the graphics runlist (NV_CE_GRCE_ALLOWED_LCE_MASK), 1 is what CUDA's driver names; Blackwell ignores it
COPY_BY_NUMBER, GRAPHICS_COPY_ENGINE = 0, 1
ASYNC = 1  # NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_ASYNC
TOKEN = ControlId.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN
Notification = structure("Notification")  # what the error notifier holds
NOTIFIED = 0xFFFF
# of addresses, where UVM maps the context buffers of the channel: where RM does not say how many, more than enough
WINDOW_BYTES = 512 << 20
WINDOW_UNIT = 2 << 20


@dataclass(frozen=True)
class ChannelError:
    """What the error notifier says: the number that the kernel's log calls Xid, and when."""

    xid: int
    engine: int
    time_ns: int


class Channel:
    """One channel, alone in its group. `destroy` ends it and whatever it was doing.

    ring      memory of the device, used by one channel after the other
    notifier  the same, with the error notifier at its start: it outlives the channel, because others look at it
    """

    def __init__(
        self,
        memory: NvMemory,
        subdevice: int,
        vaspace: int,
        chip: Chip,
        doorbell: memoryview,
        ring: Allocation,
        notifier: Allocation,
    ) -> None:
        self.memory, self.rm, self.chip = memory, memory.rm, chip
        self.port, self.subdevice = memory.port, subdevice
        self.group = self.handle = self.compute = 0
        self.is_registered = self.is_registering = self.is_ending = False
        self.window = self.window_bytes = 0
        self.notifier = native.view(notifier.va, Notification.size_bytes)
        self.notifier[:] = bytes(Notification.size_bytes)
        self.fifo = GpFifo(ring.va, doorbell)
        try:
            self._create(vaspace, ring, notifier)
        except BaseException:
            quietly(self.destroy)
            raise

    def _create(self, vaspace: int, ring: Allocation, notifier: Allocation) -> None:
        rm = self.rm
        self.group = rm.alloc(self.memory.device, ClassId.KEPLER_CHANNEL_GROUP_A, enginetype=GR0)
        share = rm.alloc(self.group, ClassId.FERMI_CONTEXT_SHARE_A, hvaspace=vaspace, flags=ASYNC)
        self.handle = self._channel(ring, notifier, hcontextshare=share)
        self.compute = rm.alloc(self.handle, self.chip.engines.compute)
        rm.alloc(self.handle, self.chip.engines.copy, version=COPY_BY_NUMBER, enginetype=GRAPHICS_COPY_ENGINE)
        self._start()

    def _channel(self, ring: Allocation, notifier: Allocation, **further: int) -> int:
        """A channel of the group for this ring; further fields of what is allocated."""
        return self.rm.alloc(
            self.group,
            self.chip.engines.gpfifo,
            hobjecterror=notifier.handle,
            hobjectbuffer=ring.handle,
            gpfifooffset=ring.va,
            gpfifoentries=self.fifo.entries,
            huserdmemory_0=ring.handle,
            userdoffset_0=self.fifo.userd_va - ring.va,
            **further,
        )

    def _start(self) -> None:
        """Register the channel with UVM, then let it run: in the other order RM refuses one that UVM is to page."""
        rm = self.rm
        self.fifo.token = rm.control(self.handle, TOKEN).values["worksubmittoken"]
        self.window_bytes = self._window_bytes()
        self.window = POOL.take(self.port, self.window_bytes)
        self.is_registering = self.is_registered = (
            True  # from here on UVM may have it, whoever is interrupted
        )
        try:
            call(
                rm.abi,
                self.port,
                self.memory.uvm_fd,
                calls.UVM_REGISTER_CHANNEL,
                gpuuuid=int.from_bytes(self.memory.uuid, "little"),
                rmctrlfd=rm.ctl_fd,
                hclient=rm.client,
                hchannel=self.handle,
                base=self.window,
                length=self.window_bytes,
            )
        except HcqError:
            self.is_registered = False
            raise
        self.is_registering = False
        rm.control(self.group, ControlId.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, benable=1)

    def _window_bytes(self) -> int:
        """Addresses for the context buffers, which the compute object made. No memory is behind them."""
        try:
            said = self.rm.control(
                self.subdevice, ControlId.NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE, hchannel=self.handle
            )
        except DriverError:  # not every sandbox lets us ask
            return WINDOW_BYTES
        return -(-int(said.values["totalbuffersize"]) // WINDOW_UNIT) * WINDOW_UNIT + WINDOW_UNIT

    def error(self) -> ChannelError | None:
        """What the notifier says, once the channel was stopped for an error.

        Nothing once it is being destroyed: UVM then stops it, and the notifier says just that (Xid 45).
        """
        if self.is_ending:
            return None
        found = Notification.from_bytes(self.notifier.tobytes())
        if found.values["status"] != NOTIFIED:
            return None
        return ChannelError(found.values["info32"], found.values["info16"], found.values["timestamp"])

    @property
    def is_stopped(self) -> bool:
        """Whether the notifier says that something went wrong: its last two bytes."""
        return bool(self.notifier[14] or self.notifier[15]) and not self.is_ending

    def leave(self) -> None:
        """In a child of fork, where its memory may not be mapped: it counts as read, and never stops."""
        self.fifo.detach()
        self.notifier = memoryview(bytearray(Notification.size_bytes))

    def destroy(self) -> None:
        """End the channel. Work in it is dropped. Its ring and its notifier stay as they were."""
        again, self.is_ending = self.is_ending, True
        do_all((lambda: self._unregister(again), lambda: self._free_group(again)))
        if self.window:
            POOL.give_back(self.port, self.window, self.window_bytes)
            self.window = 0

    def _unregister(self, again: bool) -> None:
        """again: a call that was interrupted comes here a second time, and it may be done, or never was to be."""
        if self.is_registered:
            layout = self.rm.abi.layout("UvmUnregisterChannel")
            fields = {"hclient": self.rm.client, "hchannel": self.handle}
            if "gpuuuid" in layout.fields:
                fields["gpuuuid"] = int.from_bytes(self.memory.uuid, "little")
            try:
                call(self.rm.abi, self.port, self.memory.uvm_fd, calls.UVM_UNREGISTER_CHANNEL, **fields)
            except CallRefused:
                if not (again or self.is_registering):
                    raise
            self.is_registered = False

    def _free_group(self, again: bool) -> None:
        if self.group:
            try:
                self.rm.free(self.group, self.memory.device)
            except CallRefused as refusal:
                if not again or refusal.status != NvStatus.NV_ERR_OBJECT_NOT_FOUND:
                    raise
            self.group = 0
