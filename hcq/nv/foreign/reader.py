"""What one process asks of NVIDIA's kernel driver: GPUs, memory, channels, and what it puts into their rings.

In       ioctls as they return, ring entries as they are taken, faults: the events of hcq/kernel_observer.py
Out      the events of its ForeignDevices
Changes  what it remembers of the process
Next     pushes.py (what methods say), kernels.py (kernels), hcq/foreign.py (who hears of it)
Source   hcq/nv/abi/: the calls; what is read of them is the same in every release of the driver

A queue is numbered by its GPU's device instance and its work submit token: a doorbell takes no more. Memory is what UVM
maps for a GPU: the pages of a mapping, at the address that kernels use.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hcq.command import Command
from hcq.foreign import ForeignDevice
from hcq.kernel_observer import Call, Client, GpuFault, Read
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.args import Args
from hcq.nv.abi.classes import GPFIFO, ClassId
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.gpfifo import GP_ENTRY_BYTES, GpControl, GpOpcode, decode_entry
from hcq.nv.abi.rm_structs import (
    DeviceAlloc,
    GetWorkSubmitToken,
    GpuGetGidInfo,
    RmAllocArgs,
    RmAllocMemoryArgs,
    RmControlArgs,
    RmFreeArgs,
)
from hcq.nv.abi.uvm_structs import UvmMapExternalAllocation
from hcq.nv.foreign.kernels import Kernel, Kernels, fingerprint
from hcq.nv.foreign.pushes import PushReader

INSTANCE_SHIFT = 32
UUID_BYTES = 16
ATTRIBUTES_AT, ATTRIBUTE_BYTES = 24, 36  # of one GPU in UVM_MAP_EXTERNAL_ALLOCATION
MAX_GPUS = 256
SHORT_ALLOC_BYTES = 32  # NVOS21: RM_ALLOC without rights and flags
HOLE_BYTES = 4  # a segment that cannot be read is told as one word
LAYOUTS: dict[int, type[Args]] = {
    abi.RM_ALLOC.request & 0xFF: RmAllocArgs,
    abi.RM_ALLOC_MEMORY.request & 0xFF: RmAllocMemoryArgs,
    abi.RM_CONTROL.request & 0xFF: RmControlArgs,
    abi.RM_FREE.request & 0xFF: RmFreeArgs,
}
PLACES = {
    ClassId.NV01_MEMORY_SYSTEM: "host memory",
    ClassId.NV01_MEMORY_LOCAL_USER: "video memory",
    ClassId.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR: "locked host memory",
}


def queue_number(instance: int, token: int) -> int:
    """What `taken` calls a channel."""
    return instance << INSTANCE_SHIFT | token


@dataclass
class _Object:
    """An object of RM. gpu: the device instance above it; -1 for none."""

    class_id: int
    parent: tuple[int, int] | None
    gpu: int = -1
    queue: int | None = None
    children: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class _Queue:
    name: str
    device: ForeignDevice
    pushes: PushReader
    upper: int = 0  # bits 56:40 of the next segments' addresses


class RmReader:
    """One process. `devices` gives the ForeignDevice of a device instance."""

    def __init__(self, client: Client, devices: Callable[[int], ForeignDevice]) -> None:
        self.client, self.devices = client, devices
        self.objects: dict[tuple[int, int], _Object] = {}  # by client and handle
        self.instances: dict[bytes, int] = {}  # by UUID
        self.queues: dict[int, _Queue] = {}
        self.kernels = Kernels(client)
        self._known: dict[tuple[int, int], tuple[bytes, Kernel]] = {}
        self._first: list[ForeignDevice] = []  # the first GPU that it uses, once there is one
        self._before: list[Call] = []  # calls before that
        self._calls: dict[int, Callable[[Any, Call], None]] = {
            abi.RM_ALLOC.request & 0xFF: self._allocated,
            abi.RM_ALLOC_MEMORY.request & 0xFF: self._registered,
            abi.RM_CONTROL.request & 0xFF: self._asked,
            abi.RM_FREE.request & 0xFF: self._freed,
        }

    # ------------------------------------------------------------ calls

    def called(self, call: Call) -> None:
        """An ioctl of one of NVIDIA's nodes returned."""
        self._tell(call)
        if call.error:
            return
        if call.request >> 8 & 0xFF == ord("F"):
            escape = self._calls.get(call.request & 0xFF)
            if escape is not None:
                escape(structure_of(call), call)
        elif call.request == abi.UVM_MAP_EXTERNAL_ALLOCATION.request:
            self._mapped(call)
        elif call.request == abi.UVM_FREE.request:
            (base,) = struct.unpack_from("<Q", call.before)
            for device in self._devices():
                self._forget(device, base)
                device.free(base)

    def _tell(self, call: Call) -> None:
        """A call is told once, of the process's first GPU; what comes before it is kept until there is one."""
        self._before.append(call)
        if self._first:
            before, self._before = self._before, []
            for each in before:
                for one in self._first[0].observers:
                    one.called(each)

    def _devices(self) -> list[ForeignDevice]:
        return [self.devices(number) for number in sorted(set(self.instances.values()))]

    def _device(self, instance: int) -> ForeignDevice:
        found = self.devices(instance)
        if not self._first:
            self._first.append(found)
        return found

    def _allocated(self, given: Any, call: Call) -> None:
        if given.status:
            return
        key = (given.hroot or given.hobjectnew, given.hobjectnew)
        parent = None if given.hobjectparent == 0 else (given.hroot, given.hobjectparent)
        made = _Object(given.hclass, parent)
        above = self.objects.get(parent) if parent is not None else None
        if above is not None:
            above.children.append(key)
            made.gpu = above.gpu
        if given.hclass == ClassId.NV01_DEVICE_0:
            what = nested_after(call, "pallocparms")
            made.gpu = DeviceAlloc.from_bytes(what).deviceid if len(what) >= DeviceAlloc.size_bytes else 0
            self._device(made.gpu)
        self.objects[key] = made

    def _registered(self, given: Any, call: Call) -> None:
        if not given.status:
            key = (given.hroot, given.hobjectnew)
            self.objects[key] = _Object(given.hclass, (given.hroot, given.hobjectparent))

    def _freed(self, given: Any, call: Call) -> None:
        if not given.status:
            self._drop((given.hroot, given.hobjectold))

    def _drop(self, key: tuple[int, int]) -> None:
        gone = self.objects.pop(key, None)
        if gone is None:
            return
        for child in gone.children:
            self._drop(child)
        queue = self.queues.pop(gone.queue, None) if gone.queue is not None else None
        if queue is not None and gone.queue is not None:
            queue.device.ended(gone.queue)

    def _asked(self, given: Any, call: Call) -> None:
        if given.status:
            return
        one = self.objects.get((given.hclient, given.hobject))
        what = nested_after(call, "params")
        if one is None or one.gpu < 0:
            return
        if given.cmd == ControlId.NV2080_CTRL_CMD_GPU_GET_GID_INFO and len(what) >= GpuGetGidInfo.size_bytes:
            data = int(GpuGetGidInfo.from_bytes(what).data)
            self.instances[data.to_bytes(GpuGetGidInfo.size_bytes, "little")[:UUID_BYTES]] = one.gpu
        elif (
            given.cmd == ControlId.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN
            and one.class_id in GPFIFO
            and len(what) >= GetWorkSubmitToken.size_bytes
        ):
            number = queue_number(one.gpu, GetWorkSubmitToken.from_bytes(what).worksubmittoken)
            if one.queue is None:
                one.queue = number
                device = self._device(one.gpu)
                find = lambda va: self._kernel(device, va)  # noqa: E731
                self.queues[number] = _Queue(
                    f"GPFIFO {given.hobject:x}", device, PushReader(device.arch, find)
                )

    # ------------------------------------------------------------ memory

    def _mapped(self, call: Call) -> None:
        """UVM mapped an allocation for some GPUs. All of them, or none: its status says which."""
        raw = call.after
        shown = UvmMapExternalAllocation.from_bytes(raw)
        if shown.rmstatus:
            return
        memory = self.objects.get((shown.hclient, shown.hmemory))
        place = PLACES.get(ClassId(memory.class_id), "memory") if memory is not None else "memory"
        for number in range(min(shown.gpuattributescount, MAX_GPUS)):
            at = ATTRIBUTES_AT + ATTRIBUTE_BYTES * number
            instance = self.instances.get(raw[at : at + UUID_BYTES])
            if instance is not None:
                device = self._device(instance)
                self._forget(device, shown.base)
                device.free(shown.base)
                device.alloc(shown.base, shown.length, f"{place} {shown.base:x}")

    def _forget(self, device: ForeignDevice, va: int) -> None:
        buffer = device.live.get(va)
        if buffer is not None:
            for key in [key for key in self._known if key[0] == device.gpu_id and va <= key[1] < buffer.end]:
                del self._known[key]

    # ------------------------------------------------------------ work

    def taken(self, queue: int, at: int, words: bytes, read: Read) -> None:
        """Ring entries that a channel is about to read: their segments are what is submitted."""
        found = self.queues.get(queue)
        if found is None:
            return
        self._read = read
        data: list[bytes] = []
        commands: list[Command] = []
        pairs = struct.iter_unpack("<II", words[: len(words) // GP_ENTRY_BYTES * GP_ENTRY_BYTES])
        for low, high in pairs:
            entry = decode_entry(low, high)
            if isinstance(entry, GpControl):
                if entry.opcode == GpOpcode.SET_PB_SEGMENT_EXTENDED_BASE:
                    found.upper = (entry.operand >> 8 & 0x1FFFF) << 40
                continue
            segment = read(found.upper | entry.get, 4 * entry.length)
            data.append(segment or bytes(HOLE_BYTES))
            commands += found.pushes.read(memoryview(segment).cast("I").tolist(), read)
        found.device.submit(queue, found.name, at, b"".join(data), commands, (), size_bytes=len(words))

    def done(self, queue: int, at: int) -> None:
        """The channel has done the entries before `at`."""
        found = self.queues.get(queue)
        if found is not None:
            found.device.done(queue, at)

    def faulted(self, fault: GpuFault, read: Read) -> None:
        """A channel stopped. Which of a kernel's instructions it was is not known."""
        known = self._known.get((fault.gpu_id, fault.kernel))
        self._device(fault.gpu_id).faulted(fault, known[1].program if known is not None else None)

    def _kernel(self, device: ForeignDevice, va: int) -> Kernel:
        mark = fingerprint(va, self._read)
        key = (device.gpu_id, va)
        known = self._known.get(key)
        if known is None or known[0] != mark:
            known = self._known[key] = mark, self.kernels.at(va, device.arch, self._read)
            device.load(known[1].program)
        return known[1]


def structure_of(call: Call) -> Any:
    """The structure of one of these escapes as it was left, whatever its age; None for any other."""
    request, raw = call.request & 0xFF, call.after
    if request == abi.RM_ALLOC.request & 0xFF and len(raw) == SHORT_ALLOC_BYTES:
        raw = raw[:24] + bytes(8) + raw[24:28] + bytes(4) + raw[28:32] + bytes(4)
    layout = LAYOUTS.get(request)
    return None if layout is None else layout.from_bytes(raw.ljust(layout.size_bytes, b"\0"))


def nested_after(call: Call, name: str) -> bytes:
    """A block that the argument points to, after the call."""
    return next((one.after for one in call.nested if one.name == name), b"")
