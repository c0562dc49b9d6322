"""What one process asks of the KFD: memory, queues, and what it puts into them.

In       ioctls as they return, packets as they are taken, faults: the events of hcq/events/kernel_observer.py
Out      the events of its ForeignDevices
Changes  what it remembers of the process
Next     packets.py (what packets say), code_objects.py (kernels), hcq/events/foreign_devices.py (who hears of it)
Source   hcq/amd/abi/kfd.py: the ioctls; a refused one changed nothing

A call is looked at after it returned, so its structure holds handles and numbers. Buffers are what the kernel driver
knows: a runtime's own allocator cuts them into smaller ones, of which nothing is said here (ROCr's asks for each one
of these under HCQ_SANITIZE=memory: ../../emu/amd/kfd.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hcq.amd.abi import kfd
from hcq.amd.abi.descriptor import SIZE_BYTES, KernelDescriptor, user_sgprs
from hcq.amd.abi.kfd import AllocFlags, Ioctl, QueueType
from hcq.amd.foreign.code_objects import CodeObjects, FoundKernel
from hcq.amd.foreign.packets import PacketReader
from hcq.amd.metadata import Argument
from hcq.events.foreign_devices import Calls, ForeignDevice, ForeignProgram, Parameter
from hcq.events.kernel_observer import Call, Client, GpuFault, Read
from hcq.system.ioctl_pointers import Nested

FINGERPRINT_BYTES = 256
KINDS = {
    QueueType.COMPUTE: "PM4",
    QueueType.COMPUTE_AQL: "AQL",
    QueueType.SDMA: "SDMA",
    3: "SDMA",  # KFD_IOC_QUEUE_TYPE_SDMA_XGMI
}
PLACES = {
    AllocFlags.VRAM: "VRAM",
    AllocFlags.GTT: "host memory",
    AllocFlags.USERPTR: "locked host memory",
    AllocFlags.DOORBELL: "doorbells",
    AllocFlags.MMIO_REMAP: "flush register",
}
_TYPES = {"float": "f", "double": "f", "half": "f", "_Float16": "f"}


@dataclass
class _Allocation:
    va: int
    size_bytes: int
    name: str
    gpus: set[int]
    is_new: bool = False  # video memory that no other process knows


@dataclass
class _Queue:
    name: str
    device: ForeignDevice
    packets: PacketReader
    read: Read = lambda va, size_bytes: b""


class KfdReader:
    """One process. `devices` gives the ForeignDevice of a gpu_id."""

    def __init__(self, client: Client, devices: Callable[[int], ForeignDevice]) -> None:
        self.client, self.devices = client, devices
        self.allocations: dict[int, _Allocation] = {}  # by handle
        self.shared: dict[int, int] = {}  # bytes of dma-bufs, by descriptor
        self.queues: dict[int, _Queue] = {}
        self.code = CodeObjects(client)
        self._known: dict[tuple[int, int], tuple[bytes, KernelDescriptor | None]] = {}
        self._calls = Calls()

    # ------------------------------------------------------------ calls

    def called(self, call: Call) -> None:
        """An ioctl of /dev/kfd or a render node returned."""
        is_kfd = call.request >> 8 & 0xFF == ord("K")
        declared = kfd.KFD_IOCTLS.get(call.request & 0xFF) if is_kfd else None
        if declared is kfd.ACQUIRE_VM and not call.error:
            args: Any = declared.decode(call.before)
            self._device(args.gpu_id)
        self._calls.tell(call)
        if declared is not None and not call.error:
            given, got = declared.decode(call.before), declared.decode(call.after)
            self._returned(declared, given, got, call.nested)

    def _returned(self, call: Ioctl[Any], given: Any, got: Any, nested: Sequence[Nested]) -> None:
        if call is kfd.ALLOC_MEMORY_OF_GPU:
            place = next((name for flag, name in PLACES.items() if given.flags & flag), "memory")
            name = f"{place} {given.va_addr:x}"
            is_new = bool(given.flags & AllocFlags.VRAM)
            self.allocations[got.handle] = _Allocation(given.va_addr, given.size, name, set(), is_new)
        elif call is kfd.EXPORT_DMABUF:
            if given.handle in self.allocations:
                self.shared[got.dmabuf_fd] = self.allocations[given.handle].size_bytes
        elif call is kfd.GET_DMABUF_INFO:
            self.shared[given.dmabuf_fd] = got.size
        elif call is kfd.IMPORT_DMABUF:
            if given.dmabuf_fd in self.shared:
                size, name = self.shared[given.dmabuf_fd], f"imported {given.va_addr:x}"
                self.allocations[got.handle] = _Allocation(given.va_addr, size, name, set())
        elif call is kfd.FREE_MEMORY_OF_GPU:
            self.allocations.pop(given.handle, None)
        elif call in (kfd.MAP_MEMORY_TO_GPU, kfd.UNMAP_MEMORY_FROM_GPU):
            ids = next((block.before for block in nested), b"")
            self._mapped(given, ids, is_map=call is kfd.MAP_MEMORY_TO_GPU)
        elif call is kfd.CREATE_QUEUE:
            self._created(given, got.queue_id)
        elif call is kfd.DESTROY_QUEUE:
            queue = self.queues.pop(given.queue_id, None)
            if queue is not None:
                queue.device.ended(given.queue_id)

    def _mapped(self, given: Any, ids: bytes, is_map: bool) -> None:
        what = self.allocations.get(given.handle)
        if what is None:
            return
        for (gpu_id,) in struct.iter_unpack("<I", ids[: len(ids) & ~3]):
            if is_map and gpu_id not in what.gpus:
                what.gpus.add(gpu_id)
                self._device(gpu_id).alloc(what.va, what.size_bytes, what.name, what.is_new)
                what.is_new = False
            elif not is_map and gpu_id in what.gpus:
                what.gpus.discard(gpu_id)
                device = self._device(gpu_id)
                self._forget(device, what.va, what.size_bytes)
                device.free(what.va)

    def _created(self, given: Any, number: int) -> None:
        device = self._device(given.gpu_id)
        kind = KINDS.get(given.queue_type, "unknown")
        name = f"{kind} {number}"
        if kind == "unknown":
            return
        packets = PacketReader(kind, device.arch, lambda va, is_kd: self._kernel(number, va, is_kd))
        self.queues[number] = _Queue(name, device, packets)
        for va, what in (
            (given.ring_base_address, "ring"),
            (given.eop_buffer_address, "end-of-pipe buffer"),
            (given.ctx_save_restore_address, "save area"),
        ):
            if va:
                device.rename(va, f"{what} of {name}")

    def _device(self, gpu_id: int) -> ForeignDevice:
        return self._calls.uses(self.devices(gpu_id))

    # ------------------------------------------------------------ queues

    def taken(self, queue: int, at: int, words: bytes, read: Read) -> None:
        """A GPU is about to read these packets."""
        found = self.queues.get(queue)
        if found is not None and words:
            found.read = read
            commands, blocks = found.packets.read(words, read)
            found.device.submit(queue, found.name, at, words, commands, blocks)

    def done(self, queue: int, at: int) -> None:
        """It has done everything before this place."""
        found = self.queues.get(queue)
        if found is not None:
            found.device.done(queue, at)

    def faulted(self, fault: GpuFault, read: Read) -> None:
        """It stopped."""
        device = self._device(fault.gpu_id)
        program = None
        if fault.pc:
            program = _running(device, fault)
        device.faulted(fault, program)

    # ------------------------------------------------------------ kernels

    def _kernel(
        self, number: int, va: int, is_descriptor: bool
    ) -> tuple[ForeignProgram, KernelDescriptor | None]:
        """The kernel that a packet of a queue names, known or found now. What lies there may be another one by now."""
        queue = self.queues[number]
        device, read = queue.device, queue.read
        print_ = self._fingerprint(va, is_descriptor, read)
        known = device.programs.get(va)
        if known is not None:
            before, descriptor = self._known.get((device.gpu_id, va), (b"", None))
            if before == print_:
                assert isinstance(known, ForeignProgram)
                return known, descriptor
        buffer = device.find(va)
        if is_descriptor:
            found = self.code.at_descriptor(
                va, va & -4096 if buffer is None else buffer.va, read, device.arch
            )
        else:
            found = self.code.at_code(va, read, device.arch)
        program = _program(va, found)
        self._known[device.gpu_id, va] = print_, None if found is None else found.descriptor
        device.load(program)
        return program, None if found is None else found.descriptor

    def _fingerprint(self, va: int, is_descriptor: bool, read: Read) -> bytes:
        if not is_descriptor:
            return read(va, FINGERPRINT_BYTES)
        raw = read(va, SIZE_BYTES)
        if len(raw) != SIZE_BYTES:
            return b""
        entry = va + KernelDescriptor.decode(memoryview(raw).cast("I")).entry_offset
        return raw + read(entry, FINGERPRINT_BYTES)

    def _forget(self, device: ForeignDevice, va: int, size_bytes: int) -> None:
        for key in [key for key in self._known if key[0] == device.gpu_id and va <= key[1] < va + size_bytes]:
            del self._known[key]


def _program(va: int, found: FoundKernel | None) -> ForeignProgram:
    if found is None:
        return ForeignProgram(f"kernel at {va:#x}", va)
    metadata = found.metadata
    parameters = None
    if metadata is not None:
        explicit = [one for one in metadata.args if not one.value_kind.startswith("hidden_")]
        parameters = [Parameter(one.name, _letter(one), one.offset, one.size_bytes) for one in explicit]
    scratch = found.descriptor.private_segment_fixed_size if found.descriptor is not None else 0
    skipped = found.descriptor.prologue_bytes if found.descriptor is not None else 0
    kernarg = None
    if found.descriptor is not None and metadata is not None:
        register = user_sgprs(found.descriptor).get("kernarg_segment_ptr")
        kernarg = None if register is None else (register, metadata.kernarg_bytes)
    return ForeignProgram(
        found.name,
        va,
        found.name,  # its code, not its descriptor: that is what is disassembled
        found.image,
        parameters,
        scratch,
        locate=found.line,
        caller=found.caller,
        code_va=found.entry + skipped,
        kernarg_place=kernarg,
    )


def _letter(argument: Argument) -> str:
    if argument.value_kind == "global_buffer":
        return "b"
    return _TYPES.get(argument.type_name, "?") if argument.value_kind == "by_value" else "?"


def _running(device: ForeignDevice, fault: GpuFault) -> ForeignProgram | None:
    """The kernel whose instruction it was: the last one known that begins before it, in the same buffer."""
    home = device.find(fault.pc)
    near: ForeignProgram | None = None
    for program in device.programs.values():
        inside = home is not None and home.va <= program.code_va <= fault.pc < home.end
        if inside and (near is None or program.code_va > near.code_va):
            near = program
    return near
