"""What one process asks of NVIDIA's kernel driver: GPUs, memory, channels, and what it puts into their rings.

In       ioctls as they return, ring entries as they are taken, faults: the events of hcq/events/kernel_observer.py
Out      the events of its ForeignDevices
Changes  what it remembers of the process
Next     pushes.py (what methods say), kernels.py (kernels), hcq/events/foreign_devices.py (who hears of it)
Source   hcq/nv/abi/: the calls; what is read of them is the same in every release of the driver

A queue is numbered by its GPU's device instance and its work submit token: a doorbell takes no more. Memory is what UVM
maps for a GPU: the pages of a mapping, at the address that kernels use.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hcq.command import Command, Copy
from hcq.events.foreign_devices import Calls, ForeignDevice
from hcq.events.kernel_observer import Call, Client, GpuFault, Read, queue_number
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
from hcq.nv.foreign.copied import CopiedMemory
from hcq.nv.foreign.kernels import Kernel, Kernels, fingerprint
from hcq.nv.foreign.pushes import PushReader
from hcq.nv.foreign.ranges import UUID_BYTES, Mapped, Ranges, Unmapped

Key = tuple[int, int]  # a client and a handle
SHORT_ALLOC_BYTES = 32  # NVOS21: RM_ALLOC without rights and flags
HOLE_BYTES = 4  # a segment that cannot be read is told as one word
LAYOUTS: dict[int, type[Args]] = {
    abi.RM_ALLOC.request & 0xFF: RmAllocArgs,
    abi.RM_ALLOC_MEMORY.request & 0xFF: RmAllocMemoryArgs,
    abi.RM_CONTROL.request & 0xFF: RmControlArgs,
    abi.RM_FREE.request & 0xFF: RmFreeArgs,
}
PLACES: dict[int, str] = {
    ClassId.NV01_MEMORY_SYSTEM: "host memory",
    ClassId.NV01_MEMORY_LOCAL_USER: "video memory",
    ClassId.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR: "locked host memory",
}


@dataclass
class _Object:
    """An object of RM. gpu: the device instance above it; -1 for none."""

    class_id: int
    parent: Key
    gpu: int = -1
    queue: int | None = None
    children: set[Key] = field(default_factory=set)


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
        self.objects: dict[Key, _Object] = {}
        self.instances: dict[bytes, int] = {}  # by UUID
        self.queues: dict[int, _Queue] = {}
        self.kernels = Kernels(client)
        self._known: dict[tuple[int, int], tuple[bytes, Kernel]] = {}
        self._copied: dict[int, CopiedMemory] = {}  # by device instance
        self.ranges = Ranges()
        self._calls = Calls()
        self._escapes: dict[int, Callable[[Any, Call], None]] = {
            abi.RM_ALLOC.request & 0xFF: self._allocated,
            abi.RM_ALLOC_MEMORY.request & 0xFF: self._registered,
            abi.RM_CONTROL.request & 0xFF: self._asked,
            abi.RM_FREE.request & 0xFF: self._freed,
        }

    # ------------------------------------------------------------ calls

    def called(self, call: Call) -> None:
        """An ioctl of one of NVIDIA's nodes returned."""
        self._calls.tell(call)
        if call.error:
            return
        if call.request >> 8 & 0xFF == ord("F"):
            escape = self._escapes.get(call.request & 0xFF)
            if escape is not None:
                given = structure_of(call)
                if not given.status:
                    escape(given, call)
            return
        change = self.ranges.change(call)
        if isinstance(change, Mapped):
            self._mapped(change)
        elif isinstance(change, Unmapped):
            gpus = self.instances.values() if change.gpu is None else [self.instances.get(change.gpu)]
            for number in sorted({number for number in gpus if number is not None}):
                self._unmapped(self.devices(number), change.base, change.end)

    def _device(self, instance: int) -> ForeignDevice:
        return self._calls.uses(self.devices(instance))

    # ------------------------------------------------------------ objects

    def _allocated(self, given: Any, call: Call) -> None:
        made = self._add(given)
        if given.hclass == ClassId.NV01_DEVICE_0:
            what = nested_after(call, "pallocparms")
            made.gpu = DeviceAlloc.from_bytes(what).deviceid if len(what) >= DeviceAlloc.size_bytes else 0
            self._device(made.gpu)

    def _registered(self, given: Any, call: Call) -> None:
        self._add(given)

    def _add(self, given: Any) -> _Object:
        """An object that was made, below another one or (a client) below none."""
        key = (given.hroot or given.hobjectnew, given.hobjectnew)
        made = self.objects[key] = _Object(given.hclass, (given.hroot, given.hobjectparent))
        above = self.objects.get(made.parent)
        if above is not None:
            above.children.add(key)
            made.gpu = above.gpu
        return made

    def _freed(self, given: Any, call: Call) -> None:
        self._drop((given.hroot, given.hobjectold))

    def _drop(self, key: Key) -> None:
        """An object is gone, and all below it."""
        gone = self.objects.pop(key, None)
        if gone is None:
            return
        above = self.objects.get(gone.parent)
        if above is not None:
            above.children.discard(key)
        for child in gone.children:
            self._drop(child)
        queue = self.queues.pop(gone.queue, None) if gone.queue is not None else None
        if queue is not None and gone.queue is not None:
            queue.device.ended(gone.queue)

    def _asked(self, given: Any, call: Call) -> None:
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
                pushes = PushReader(device.arch, functools.partial(self._kernel, device))
                self.queues[number] = _Queue(f"GPFIFO {given.hobject:x}", device, pushes)

    # ------------------------------------------------------------ memory

    def _mapped(self, made: Mapped) -> None:
        memory = self.objects.get(made.memory)
        place = PLACES.get(memory.class_id, "memory") if memory is not None else "memory"
        for uuid in made.gpus:
            instance = self.instances.get(uuid)
            if instance is not None:
                device = self._device(instance)
                self._unmapped(device, made.base, made.base + made.size_bytes)
                device.alloc(made.base, made.size_bytes, f"{place} {made.base:x}")

    def _unmapped(self, device: ForeignDevice, start: int, end: int) -> None:
        """What begins in a range is gone, and so are the kernels in it."""
        if device.gpu_id in self._copied:
            self._copied[device.gpu_id].forget(start, end)
        for buffer in [one for va, one in device.live.items() if start <= va < end]:
            for gpu, at in list(self._known):
                if gpu == device.gpu_id and buffer.va <= at < buffer.end:
                    del self._known[gpu, at]
            device.free(buffer.va)

    # ------------------------------------------------------------ work

    def taken(self, queue: int, at: int, words: bytes, read: Read) -> None:
        """Ring entries that a channel is about to read: their segments are what is submitted."""
        found = self.queues.get(queue)
        if found is None:
            return
        copied = self._copied.setdefault(found.device.gpu_id, CopiedMemory())
        known = copied.over(read)
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
            for command in found.pushes.read(memoryview(segment).cast("I").tolist(), known):
                commands.append(command)
                if isinstance(command, Copy):  # a launch behind it may be of what is copied
                    copied.note(command, read)
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

    def _kernel(self, device: ForeignDevice, va: int, read: Read) -> Kernel:
        mark = fingerprint(va, read)
        key = (device.gpu_id, va)
        known = self._known.get(key)
        if known is None or known[0] != mark:
            known = self._known[key] = mark, self.kernels.at(va, device.arch, read)
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
