"""The emulated /dev/nvidia-uvm: it owns the page tables of the address spaces that are registered with it.

In       ioctls: plain numbers, their structures, the files of the resource manager that they name
Out      a status in each structure; an errno only for numbers that do not exist
Changes  page tables of GPUs; ranges of addresses of this file
Next     memory.py (PageTable), rm_objects.py (the memory and channels that calls name)
Source   uvm.c, uvm_ext_gpu_map.c, uvm_user_channel.c, uvm_va_space.c of the open kernel module 580.142
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hcq.emu.kernel import Process, Refusal
from hcq.emu.nv.channel import Group
from hcq.emu.nv.gpu import EmulatedGpu
from hcq.emu.nv.memory import PAGE, PageTable, mapping_of
from hcq.emu.nv.rm_objects import (
    VASPACE_EXTERNALLY_OWNED,
    ChannelObject,
    Client,
    Memory,
    RmError,
    VaSpace,
    check,
)
from hcq.emu.nv.rm_state import NvFile, RmState
from hcq.emu.nv.spec import ENGINE_GR0
from hcq.layout import Ioctl
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.status import NvStatus

READ_ONLY = 3  # UvmGpuMappingType
LAST_MAPPING_TYPE = 3
ATTRIBUTE_WORDS = 9  # of one GPU in UVM_MAP_EXTERNAL_ALLOCATION: UUID and five values
ATTRIBUTES_AT = 24
MAX_GPUS = 256
ANY_FILE, INITIALISED = False, True
Answer = Callable[["UvmFile", Any], None]
ANSWERS: dict[int, tuple[Ioctl, bool, Answer]] = {}


def answers(call: Ioctl, needs: bool = INITIALISED) -> Callable[[Answer], Answer]:
    """Make a function the answer to a call. It raises RmError to refuse."""

    def note(answer: Answer) -> Answer:
        ANSWERS[call.request] = call, needs, answer
        return answer

    return note


@dataclass
class Range:
    """Addresses that belong to UVM: an external range, or a context buffer of a channel group."""

    base: int
    length: int
    group: Group | None = None

    def holds(self, base: int, length: int) -> bool:
        """Whether these addresses lie within it."""
        return self.base <= base and base + length <= self.base + self.length


class Registered:
    """A GPU of this file, its page table, and the address space object that uses the table."""

    def __init__(self, gpu: EmulatedGpu) -> None:
        self.gpu = gpu
        self.table: PageTable | None = None
        self.space: VaSpace | None = None


class UvmFile(NvFile):
    """An open /dev/nvidia-uvm: nothing yet, the address space of a process, or the file that keeps one alive."""

    def __init__(self, rm: RmState, path: str, process: Process) -> None:
        super().__init__(rm, path, process)
        self.is_initialised = False
        self.flags = 0
        self.keeper: UvmFile | None = None  # the file on which UVM_MM_INITIALIZE named this one
        self.kept: UvmFile | None = None
        self.gpus: dict[bytes, Registered] = {}
        self.ranges: list[Range] = []
        self.peers: set[frozenset[bytes]] = set()
        self.channels: dict[tuple[int, int], ChannelObject] = {}  # by client and handle, until unregistered

    def argument_bytes(self, request: int) -> int:
        """The numbers do not tell sizes."""
        return self.rm.abi.of(ANSWERS[request][0]).size_bytes if request in ANSWERS else 0

    def answer(self, request: int, argument: bytearray, process: Process) -> int:
        self.check_caller(process)
        if request not in ANSWERS:
            raise Refusal(errno.EINVAL)
        call, needs, answer = ANSWERS[request]
        layout = self.rm.abi.of(call)
        if len(argument) < layout.size_bytes:
            raise Refusal(errno.EFAULT)
        given = layout.from_bytes(bytes(argument))
        status = NvStatus.NV_OK
        with self.rm.lock:
            try:
                check(self.is_initialised or not needs, NvStatus.NV_ERR_ILLEGAL_ACTION)
                if call is abi.UVM_MAP_EXTERNAL_ALLOCATION:
                    map_external(self, given, bytes(argument))
                else:
                    answer(self, given)
            except RmError as error:
                status = error.status
        at = layout.fields["rmstatus"].byte_offset
        argument[at : at + 4] = int(status).to_bytes(4, "little")
        return 0

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, offset: int) -> int:
        raise Refusal(errno.EINVAL)  # managed memory is not emulated

    def close(self) -> None:
        with self.rm.lock:
            for one in self.gpus.values():
                if one.table is not None:
                    one.table.unmap(0, 1 << 64)
            self.gpus.clear()
            if self.kept is not None:
                self.kept.keeper = None
            if self in self.rm.open_files:
                self.rm.open_files.remove(self)

    # ------------------------------------------------------------ what calls need

    def registered(self, uuid: int) -> Registered:
        """A GPU registered here. Raises RmError when it is not."""
        found = self.gpus.get(uuid.to_bytes(16, "little"))
        if found is None:
            raise RmError(NvStatus.NV_ERR_INVALID_DEVICE)
        return found

    def client(self, given: Any) -> Client:
        """The client that a structure names: its file and its handle."""
        file = self.rm.control_file(self.process, given.rmctrlfd)
        if file is None or given.hclient not in file.clients:
            raise RmError(NvStatus.NV_ERR_INVALID_CLIENT)
        return file.clients[given.hclient]

    def range_at(self, base: int, length: int) -> Range:
        """The external range that holds all of it."""
        check_aligned(base, length)
        found = next((one for one in self.ranges if one.group is None and one.holds(base, length)), None)
        if found is None:
            raise RmError(NvStatus.NV_ERR_INVALID_ADDRESS)
        return found

    def add_range(self, base: int, length: int) -> None:
        """Note an external range. Raises RmError when another one is in the way."""
        check(self.in_the_way(base, length) is None, NvStatus.NV_ERR_UVM_ADDRESS_IN_USE)
        self.ranges.append(Range(base, length))

    def in_the_way(self, base: int, length: int) -> Range | None:
        """A range that has some of these addresses: the lowest."""
        found = [one for one in self.ranges if base < one.base + one.length and one.base < base + length]
        return min(found, key=lambda one: one.base) if found else None

    def add_context(self, group: Group, window: Range, buffers: tuple[tuple[int, int], ...]) -> None:
        """Find room for a group's context buffers, each in the first gap of the window. All of them, or none."""
        made: list[Range] = []
        for size, alignment in buffers:
            at = -(-window.base // alignment) * alignment
            while (other := self.in_the_way(at, size)) is not None:
                at = -(-(other.base + other.length) // alignment) * alignment
            if not window.holds(at, size):
                self.ranges = [one for one in self.ranges if one not in made]
                raise RmError(NvStatus.NV_ERR_INVALID_ADDRESS)
            made.append(Range(at, size, group))
            self.ranges.append(made[-1])

    def channels_of(self, group: Group) -> int:
        """How many channels of a group are registered."""
        return sum(one.channel.group is group for one in self.channels.values())

    def unmap_everywhere(self, base: int, length: int) -> None:
        """Unmap a range on every GPU."""
        for one in self.gpus.values():
            if one.table is not None:
                one.table.unmap(base, length)


def check_aligned(base: int, length: int) -> None:
    """Refuse a range that is empty, not of whole pages, or beyond the last address."""
    is_whole = length and base % PAGE == 0 and length % PAGE == 0
    check(is_whole and base + length <= 1 << 64, NvStatus.NV_ERR_INVALID_ADDRESS)


# ------------------------------------------------------------ the file


@answers(abi.UVM_INITIALIZE, ANY_FILE)
def initialize(file: UvmFile, given: Any) -> None:
    """UVM_INITIALIZE; a second time with the same flags. (uvm_api_initialize)"""
    check(given.flags < 8, NvStatus.NV_ERR_INVALID_ARGUMENT)
    check(file.kept is None, NvStatus.NV_ERR_INVALID_ARGUMENT)
    check(not file.is_initialised or given.flags == file.flags, NvStatus.NV_ERR_INVALID_ARGUMENT)
    file.is_initialised, file.flags = True, given.flags


@answers(abi.UVM_MM_INITIALIZE, ANY_FILE)
def mm_initialize(file: UvmFile, given: Any) -> None:
    """UVM_MM_INITIALIZE: this file keeps the address space of another one alive."""
    target = file.process.file(given.uvmfd)
    if not isinstance(target, UvmFile) or target is file or file.is_initialised:
        raise RmError(NvStatus.NV_ERR_INVALID_ARGUMENT)
    check(target.is_initialised, NvStatus.NV_ERR_INVALID_ARGUMENT)
    check(target.keeper is None and file.kept is None, NvStatus.NV_ERR_INVALID_STATE)
    target.keeper, file.kept = file, target


# ------------------------------------------------------------ GPUs and their address spaces


@answers(abi.UVM_REGISTER_GPU)
def register_gpu(file: UvmFile, given: Any) -> None:
    """UVM_REGISTER_GPU: an attached GPU, by its UUID."""
    uuid = given.gpu_uuid.to_bytes(16, "little")
    gpu = next((gpu for gpu in file.rm.gpus if gpu.uuid == uuid), None)
    if gpu is None or not gpu.is_attached:
        raise RmError(NvStatus.NV_ERR_GPU_UUID_NOT_FOUND)
    file.gpus.setdefault(uuid, Registered(gpu))


@answers(abi.UVM_UNREGISTER_GPU)
def unregister_gpu(file: UvmFile, given: Any) -> None:
    """UVM_UNREGISTER_GPU: its address space goes, too."""
    one = file.registered(given.gpu_uuid)
    _drop_space(file, one)
    del file.gpus[one.gpu.uuid]
    file.peers = {pair for pair in file.peers if one.gpu.uuid not in pair}


@answers(abi.UVM_REGISTER_GPU_VASPACE)
def register_space(file: UvmFile, given: Any) -> None:
    """UVM_REGISTER_GPU_VASPACE: from now on its page tables are this file's."""
    one = file.registered(given.gpuuuid)
    check(file.keeper is not None, NvStatus.NV_ERR_PAGE_TABLE_NOT_AVAIL)
    space = file.client(given).find(given.hvaspace, VaSpace, NvStatus.NV_ERR_INVALID_OBJECT_HANDLE)
    check(space.gpu is one.gpu, NvStatus.NV_ERR_INVALID_DEVICE)
    check(space.flags & VASPACE_EXTERNALLY_OWNED, NvStatus.NV_ERR_INVALID_FLAGS)
    check(one.table is None and space.table is None, NvStatus.NV_ERR_INVALID_DEVICE)
    one.table = space.table = PageTable()
    one.space = space


@answers(abi.UVM_UNREGISTER_GPU_VASPACE)
def unregister_space(file: UvmFile, given: Any) -> None:
    """UVM_UNREGISTER_GPU_VASPACE: everything there is unmapped."""
    one = file.registered(given.gpuuuid)
    check(one.table is not None, NvStatus.NV_ERR_INVALID_DEVICE)
    _drop_space(file, one)


def _drop_space(file: UvmFile, one: Registered) -> None:
    """Its channels are stopped first. (gpu_va_space_stop_all_channels)"""
    if one.table is not None and one.space is not None:
        for key in [key for key, each in file.channels.items() if each.channel.card is one.gpu]:
            _drop_channel(file, key)
        one.table.unmap(0, 1 << 64)
        one.table, one.space.table, one.space = None, None, None


@answers(abi.UVM_ENABLE_PEER_ACCESS)
def enable_peers(file: UvmFile, given: Any) -> None:
    """UVM_ENABLE_PEER_ACCESS: two GPUs may map each other's memory."""
    first, second = file.registered(given.gpuuuida), file.registered(given.gpuuuidb)
    pair = frozenset((first.gpu.uuid, second.gpu.uuid))
    check(first is not second and pair not in file.peers, NvStatus.NV_ERR_INVALID_DEVICE)
    file.peers.add(pair)


@answers(abi.UVM_DISABLE_PEER_ACCESS)
def disable_peers(file: UvmFile, given: Any) -> None:
    """UVM_DISABLE_PEER_ACCESS."""
    pair = frozenset((file.registered(given.gpuuuida).gpu.uuid, file.registered(given.gpuuuidb).gpu.uuid))
    check(pair in file.peers, NvStatus.NV_ERR_INVALID_DEVICE)
    file.peers.discard(pair)


# ------------------------------------------------------------ channels


@answers(abi.UVM_REGISTER_CHANNEL)
def register_channel(file: UvmFile, given: Any) -> None:
    """UVM_REGISTER_CHANNEL: in the window given, its context buffers get addresses.

    Channels of a group share them: the first finds room, wherever the others' windows are. Channels of copy engines
    have none, and their windows are not looked at. (uvm_user_channel_create, find_va_in_range, find_va_range)
    """
    one = file.registered(given.gpuuuid)
    check(one.table is not None, NvStatus.NV_ERR_INVALID_DEVICE)
    found = file.client(given).find(given.hchannel, ChannelObject, NvStatus.NV_ERR_INVALID_CHANNEL)
    check(found.channel.card is one.gpu and found.va_space is one.space, NvStatus.NV_ERR_INVALID_DEVICE)
    key = (given.hclient, given.hchannel)
    check(not found.is_uvm_registered and key not in file.channels, NvStatus.NV_ERR_INVALID_CHANNEL)
    if found.channel.group.engine_type == ENGINE_GR0:
        # the group's context buffers are made with the first compute object: without it there is nothing to map
        compute = one.gpu.chip.engines.compute
        has_context = any(compute in each.classes for each in found.channel.group.channels)
        check(has_context, NvStatus.NV_ERR_INVALID_OBJECT)
        check_aligned(given.base, given.length)
        check(given.base and given.base + given.length <= 1 << 64, NvStatus.NV_ERR_INVALID_ADDRESS)
        highest = one.gpu.chip.highest_channel_va
        check(given.base + given.length <= highest, NvStatus.NV_ERR_OUT_OF_RANGE)
        group = found.channel.group
        if not file.channels_of(group):
            file.add_context(group, Range(given.base, given.length), one.gpu.chip.context_buffers)
    found.is_uvm_registered = True
    file.channels[key] = found


@answers(abi.UVM_UNREGISTER_CHANNEL)
def unregister_channel(file: UvmFile, given: Any) -> None:
    """UVM_UNREGISTER_CHANNEL: the channel is stopped for good, and its error notifier says so.

    A channel that was freed without this keeps its context buffers: UVM holds on to them.
    """
    key = given.hclient, given.hchannel
    if key not in file.channels:
        raise RmError(NvStatus.NV_ERR_INVALID_CHANNEL)
    _drop_channel(file, key)


def _drop_channel(file: UvmFile, key: tuple[int, int]) -> None:
    found = file.channels[key]
    if not found.is_freed:
        found.gpu.stop_channel(found.channel)
    del file.channels[key]
    found.is_uvm_registered = False
    group = found.channel.group
    if not file.channels_of(group):
        file.ranges = [each for each in file.ranges if each.group is not group]


# ------------------------------------------------------------ memory


@answers(abi.UVM_CREATE_EXTERNAL_RANGE)
def create_range(file: UvmFile, given: Any) -> None:
    """UVM_CREATE_EXTERNAL_RANGE: addresses for allocations of RM."""
    check_aligned(given.base, given.length)
    check(given.base, NvStatus.NV_ERR_INVALID_ADDRESS)
    file.add_range(given.base, given.length)


@answers(abi.UVM_MAP_EXTERNAL_ALLOCATION)
def map_external_allocation(file: UvmFile, given: Any) -> None:
    """UVM_MAP_EXTERNAL_ALLOCATION: an allocation of RM at an address, on the GPUs listed."""
    map_external(file, given, given.to_bytes())


def map_external(file: UvmFile, given: Any, raw: bytes) -> None:
    """Map an allocation for each GPU that the structure lists; all of them, or none."""
    base, length, offset = given.base, given.length, given.offset
    file.range_at(base, length)
    check(offset % PAGE == 0, NvStatus.NV_ERR_INVALID_ADDRESS)
    memory = file.client(given).find(given.hmemory, Memory, NvStatus.NV_ERR_OBJECT_NOT_FOUND)
    check(0 < given.gpuattributescount <= MAX_GPUS, NvStatus.NV_ERR_INVALID_ARGUMENT)
    check(offset + length <= memory.backing.size_bytes, NvStatus.NV_ERR_INVALID_OFFSET)
    wanted: list[tuple[PageTable, bool]] = []
    for number in range(given.gpuattributescount):
        at = ATTRIBUTES_AT + 4 * ATTRIBUTE_WORDS * number
        one = file.registered(int.from_bytes(raw[at : at + 16], "little"))
        mapping_type = int.from_bytes(raw[at + 16 : at + 20], "little")
        check(mapping_type <= LAST_MAPPING_TYPE, NvStatus.NV_ERR_INVALID_ARGUMENT)
        if one.table is None:
            raise RmError(NvStatus.NV_ERR_INVALID_DEVICE)
        if memory.owner is not None and memory.owner is not one.gpu:
            pair = frozenset((memory.owner.uuid, one.gpu.uuid))
            check(pair in file.peers, NvStatus.NV_ERR_INVALID_DEVICE)
        check(base + length <= one.gpu.highest_va, NvStatus.NV_ERR_OUT_OF_RANGE)
        wanted.append((one.table, mapping_type != READ_ONLY))
    for table, is_writable in wanted:
        table.unmap(base, length)  # a second mapping replaces the first
        name = f"memory {memory.handle:#x}"
        table.map(mapping_of(base, memory.backing, offset, length, is_writable, name))


@answers(abi.UVM_UNMAP_EXTERNAL)
def unmap_external(file: UvmFile, given: Any) -> None:
    """UVM_UNMAP_EXTERNAL: a range, on one GPU."""
    file.range_at(given.base, given.length)
    one = file.registered(given.gpuuuid)
    if one.table is None:
        raise RmError(NvStatus.NV_ERR_INVALID_DEVICE)
    one.table.unmap(given.base, given.length)


@answers(abi.UVM_FREE)
def free(file: UvmFile, given: Any) -> None:
    """UVM_FREE: a range, with everything mapped in it."""
    found = next((one for one in file.ranges if one.base == given.base and one.group is None), None)
    if found is None or given.values.get("length", found.length) != found.length:
        raise RmError(NvStatus.NV_ERR_INVALID_ADDRESS)
    file.ranges.remove(found)
    file.unmap_everywhere(found.base, found.length)
