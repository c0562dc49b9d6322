"""Objects of the emulated resource manager: who may be whose child, and what each is made from.

In       RM_ALLOC: a class, a parent, parameters
Out      RmObject and its kinds; allocate(...), which checks as the real driver does; RmError for a refusal
Changes  the tree of the client; memory is reserved, channels are made
Next     rm_calls.py (the calls), rm_controls.py (what objects answer), channel.py (what a channel is)
Source   abi-independent rules of the open kernel module 580.142: parents, required parameters, statuses
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from hcq.emu.backing import Backing, DeviceMemory
from hcq.emu.kernel import Process
from hcq.emu.nv.channel import Channel, Group, Setup
from hcq.emu.nv.gpu import EmulatedGpu
from hcq.emu.nv.memory import PAGE, HostPages, PageTable
from hcq.emu.nv.spec import COPY_GRAPHICS_ENGINES, ENGINE_GR0, NV01_MEMORY_VIRTUAL, VIDEO_MEMORY_BYTES
from hcq.emu.pages import HOST_BYTES
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.gpfifo import USERD_BYTES
from hcq.nv.abi.status import NvStatus

O = TypeVar("O", bound="RmObject")

LOCATION_VIDMEM, LOCATION_PCI, LOCATION_ANY = 0, 1, 3  # attr bits 26:25
ALIGNMENT_FORCE = 0x100
BLACKWELL_CHANNELS = (
    ClassId.BLACKWELL_CHANNEL_GPFIFO_A
)  # its and later GPUs have channel RAM for each runlist
RM_OWNERS = 0xDEAF0000, 0xDEAF0003  # HEAP_OWNER_RM_SCRATCH_BEGIN to _END
VASPACE_EXTERNALLY_OWNED = 1 << 3
GARBAGE_BYTES = 1 << 20  # of fresh video memory, where the word has a seed


class RmError(Exception):
    """A status that is not NV_OK."""

    def __init__(self, status: NvStatus) -> None:
        super().__init__(status.name)
        self.status = status


class RmObject:
    """A node of a client's tree. `gpu` is that of the device above it; a client has none."""

    gpu: EmulatedGpu

    def __init__(self, handle: int, class_id: int, parent: RmObject | None) -> None:
        self.handle, self.class_id, self.parent = handle, class_id, parent
        self.children: list[RmObject] = []
        if parent is not None:
            parent.children.append(self)
            if parent.parent is not None:
                self.gpu = parent.gpu

    def whole(self) -> Iterator[RmObject]:
        """The object's children, their children, and last itself."""
        for child in list(self.children):
            yield from child.whole()
        yield self

    def free(self) -> None:
        """What has to happen beyond leaving the tree."""

    def above(self, kind: type[O]) -> O:
        """The nearest object of that kind on the way to the root; the tree's rules say that there is one."""
        one: RmObject | None = self
        while not isinstance(one, kind):
            assert one is not None, f"{kind.__name__} above {self.handle:#x}"
            one = one.parent
        return one


class Client(RmObject):
    """A root: handles are its own."""

    def __init__(self, handle: int) -> None:
        super().__init__(handle, ClassId.NV01_ROOT_CLIENT, None)
        self.objects: dict[int, RmObject] = {handle: self}
        self.next_handle = 0xCAF00001

    def fresh_handle(self) -> int:
        """A handle that no object of the client has."""
        while self.next_handle in self.objects:
            self.next_handle += 1
        return self.next_handle

    def find(self, handle: int, kind: type[O], status: NvStatus = NvStatus.NV_ERR_OBJECT_NOT_FOUND) -> O:
        """The object with this handle; the status when there is none of that kind."""
        found = self.objects.get(handle)
        if not isinstance(found, kind):
            raise RmError(status)
        return found


class Device(RmObject):
    """Its maker says which GPU it is."""


class Subdevice(RmObject):
    """The one GPU of a device, for controls and windows."""


class Memory(RmObject):
    """An allocation. `owner` is the GPU in whose video memory it lies, None for system memory."""

    backing: Backing
    owner: EmulatedGpu | None = None

    def free(self) -> None:
        if self.owner is not None:
            self.owner.video_memory_used -= self.backing.size_bytes


class VaSpace(RmObject):
    """An address space of a GPU. UVM puts its page table here when it is registered."""

    flags = 0
    table: PageTable | None = None


class VirtualMemory(RmObject):
    """Addresses in the resource manager's own address space: drivers make it, channels here do not use it."""


class ChannelGroup(RmObject):
    group: Group
    va_space: VaSpace | None = None

    def free(self) -> None:
        self.gpu.remove_group(self.group)


class ContextShare(RmObject):
    va_space: VaSpace


class ChannelObject(RmObject):
    channel: Channel
    va_space: VaSpace | None = None
    has_context_share = False
    is_uvm_registered = is_freed = False

    def free(self) -> None:
        self.is_freed = True
        self.gpu.remove_channel(self.channel)


class EngineObject(RmObject):
    """A compute or copy object: the channel may bind its class to a subchannel."""

    def free(self) -> None:
        self.above(ChannelObject).channel.classes.discard(self.class_id)


class Usermode(RmObject):
    """The doorbell window."""


class Debugger(RmObject):
    """What asks for the state of the SMs after a fault."""


# ------------------------------------------------------------ allocation

Maker = Callable[["Allocation"], RmObject]


class Allocation:
    """The arguments of one RM_ALLOC, checked as far as all classes have it in common."""

    def __init__(
        self,
        gpus: list[EmulatedGpu],
        process: Process,
        client: Client,
        parent: RmObject,
        handle: int,
        class_id: int,
        params: Any,
    ) -> None:
        self.gpus, self.process, self.client, self.parent = gpus, process, client, parent
        self.handle, self.class_id = handle, class_id
        self.params = params  # an Args, or None when there were none
        self.results: dict[str, int] = {}  # fields of the parameters that RM fills in

    def make(self, kind: type[O]) -> O:
        """The object itself; nothing may fail after this."""
        made = kind(self.handle, self.class_id, self.parent)
        self.client.objects[self.handle] = made
        return made

    @property
    def gpu(self) -> EmulatedGpu:
        """The GPU of the parent."""
        return self.parent.gpu


def check(condition: object, status: NvStatus) -> None:
    """Raise RmError with this status unless the condition holds."""
    if not condition:
        raise RmError(status)


def device(call: Allocation) -> RmObject:
    """A device: one attached GPU."""
    number = call.params.deviceid if call.params is not None else 0
    gpu = next((gpu for gpu in call.gpus if gpu.index == number and gpu.is_attached), None)
    if gpu is None:
        raise RmError(NvStatus.NV_ERR_INVALID_DEVICE)
    made = call.make(Device)
    made.gpu = gpu
    return made


def subdevice(call: Allocation) -> RmObject:
    """A subdevice: the only one of its device."""
    check(call.params is None or call.params.subdeviceid == 0, NvStatus.NV_ERR_INVALID_ARGUMENT)
    return call.make(Subdevice)


def memory(call: Allocation) -> RmObject:
    """An allocation, in the GPU's memory or the system's, as class and attributes say. (stdmemValidateParams,
    sysmemConstruct, vidmemConstruct)"""
    params, gpu = call.params, call.gpu
    check(not params.internalflags, NvStatus.NV_ERR_INVALID_ARGUMENT)
    is_owned = params.owner not in (0, 0xFFFFFFFF) and not RM_OWNERS[0] <= params.owner <= RM_OWNERS[1]
    check(is_owned, NvStatus.NV_ERR_INVALID_OWNER)
    is_video = call.class_id == ClassId.NV01_MEMORY_LOCAL_USER
    location = params.attr >> 25 & 3
    allowed = (LOCATION_VIDMEM, LOCATION_ANY) if is_video else (LOCATION_PCI, LOCATION_ANY)
    check(location in allowed, NvStatus.NV_ERR_INVALID_ARGUMENT)
    check(params.size, NvStatus.NV_ERR_INVALID_ARGUMENT)
    if params.flags & ALIGNMENT_FORCE:
        check(params.alignment & params.alignment - 1 == 0, NvStatus.NV_ERR_INVALID_ARGUMENT)
    size = -(-params.size // PAGE) * PAGE
    if is_video:
        check(gpu.video_memory_used + size <= VIDEO_MEMORY_BYTES, NvStatus.NV_ERR_NO_MEMORY)
    else:
        check(size <= HOST_BYTES, NvStatus.NV_ERR_NO_MEMORY)
    # what another process maps begins where its file does
    backing = Backing(size, DeviceMemory("nvidia memory", size) if call.process.maps_by_itself else None)
    made = call.make(Memory)
    made.backing = backing
    if is_video:
        made.owner = gpu
        gpu.video_memory_used += size
        if gpu.random is not None:  # video memory is not cleared for its next owner
            backing.data[:GARBAGE_BYTES] = 0xA5
    call.results = {"size": size, "limit": size - 1, "offset": 0}
    return made


def host_memory(call: Allocation, va: int, size_bytes: int) -> RmObject:
    """Pages of the process, from RM_ALLOC_MEMORY."""
    check(va and va % PAGE == 0, NvStatus.NV_ERR_INVALID_ADDRESS)
    size = -(-size_bytes // PAGE) * PAGE
    check(size <= HOST_BYTES, NvStatus.NV_ERR_NO_MEMORY)
    pages = call.process.memory(va, size)
    made = call.make(Memory)
    made.backing = HostPages(pages)
    return made


def va_space(call: Allocation) -> RmObject:
    """An address space."""
    made = call.make(VaSpace)
    made.flags = call.params.flags
    return made


def virtual_memory(call: Allocation) -> RmObject:
    """A range of an address space; what is mapped there is up to UVM."""
    return call.make(VirtualMemory)


def channel_group(call: Allocation) -> RmObject:
    """A channel group for one engine."""
    params, gpu = call.params, call.gpu
    check(params.enginetype in gpu.engine_types, NvStatus.NV_ERR_INVALID_ARGUMENT)
    space = call.client.find(params.hvaspace, VaSpace) if params.hvaspace else None
    made = call.make(ChannelGroup)
    made.va_space = space
    made.group = gpu.add_group(params.enginetype)
    return made


def context_share(call: Allocation) -> RmObject:
    """A context share: the address space for channels of a group."""
    space = call.client.find(call.params.hvaspace, VaSpace, NvStatus.NV_ERR_INVALID_OBJECT_HANDLE)
    check(space.gpu is call.gpu, NvStatus.NV_ERR_INVALID_ARGUMENT)
    made = call.make(ContextShare)
    made.va_space = space
    return made


def channel(call: Allocation) -> RmObject:
    """A channel, with its GPFIFO, USERD and error notifier checked. (kchannelConstruct; of ring and USERD in firmware,
    and what it refuses there is inferred from what the class documents demand)"""
    params, gpu, client = call.params, call.gpu, call.client
    bad = NvStatus.NV_ERR_INVALID_ARGUMENT
    owner: ChannelGroup | None = call.parent if isinstance(call.parent, ChannelGroup) else None
    check(params.gpfifoentries and params.gpfifoentries & params.gpfifoentries - 1 == 0, bad)
    check(params.gpfifooffset % 8 == 0, bad)
    space: VaSpace | None = None
    has_share = False
    if owner is not None:
        check(params.hvaspace == 0, bad)  # the group's, or the context share's
        check(params.enginetype in (0, owner.group.engine_type), bad)
        check(not owner.group.error, NvStatus.NV_ERR_RC_ERROR)
        space = owner.va_space
        if params.hcontextshare:
            share = client.find(params.hcontextshare, ContextShare, NvStatus.NV_ERR_INVALID_OBJECT_HANDLE)
            check(share.parent is owner, NvStatus.NV_ERR_INVALID_OBJECT_PARENT)
            space, has_share = share.va_space, True
        siblings = [child for child in owner.children if isinstance(child, ChannelObject)]
        check(all(sibling.has_context_share == has_share for sibling in siblings), bad)
        group = owner.group
    else:
        check(params.enginetype in gpu.engine_types, bad)
        check(not params.hcontextshare, bad)
        if params.hvaspace:
            space = client.find(params.hvaspace, VaSpace, NvStatus.NV_ERR_INVALID_OBJECT_HANDLE)
    check(params.huserdmemory_0, bad)
    userd = client.find(params.huserdmemory_0, Memory, NvStatus.NV_ERR_INVALID_OBJECT_HANDLE)
    # the memory's own alignment alone is looked at (kchannelCreateUserdMemDesc_GV100), and all memory here is of pages.
    # What firmware makes of an offset of 4 or 256 is not known
    check(params.userdoffset_0 + USERD_BYTES <= userd.backing.size_bytes, bad)
    notifier = None
    if params.hobjecterror:
        notifier = client.find(params.hobjecterror, Memory, NvStatus.NV_ERR_INVALID_OBJECT_HANDLE).backing
    for one in (userd.backing, notifier):  # the GPU's words in them would reach another process too late
        check(not (isinstance(one, HostPages) and one.pages.is_copy), NvStatus.NV_ERR_NOT_SUPPORTED)
    if params.hobjectbuffer:
        client.find(params.hobjectbuffer, Memory, NvStatus.NV_ERR_INVALID_OBJECT_HANDLE)
    if owner is None:
        group = gpu.add_group(params.enginetype, is_implicit=True)
    made = call.make(ChannelObject)
    made.va_space, made.has_context_share = space, has_share
    made.channel = gpu.add_channel(
        group,
        call.class_id,
        Setup(
            lambda: space.table if space is not None else None,
            params.gpfifooffset,
            params.gpfifoentries,
            userd.backing.data[params.userdoffset_0 : params.userdoffset_0 + USERD_BYTES],
            notifier,
            call.process,
        ),
    )
    return made


def engine_object(call: Allocation) -> RmObject:
    """An engine on a channel, by its class."""
    owner = call.parent.above(ChannelObject)
    engines = owner.channel.card.chip.engines
    is_graphics = owner.channel.group.engine_type == ENGINE_GR0
    check(call.class_id == engines.copy or is_graphics, NvStatus.NV_ERR_INVALID_CLASS)
    if call.class_id == engines.copy and call.params is not None and not engines.gpfifo >= BLACKWELL_CHANNELS:
        check_copy_engine(owner.channel, call.params)
    check(call.class_id not in owner.channel.classes, NvStatus.NV_ERR_STATE_IN_USE)
    made = call.make(EngineObject)
    owner.channel.classes.add(call.class_id)
    return made


def check_copy_engine(channel: Channel, params: Any) -> None:
    """Which copy engine a copy object names: version 0 by its number, 1 by its type; its runlist is the channel's.

    Up to Hopper; Blackwell takes the one that belongs to the channel. (kceGetEngineDescFromAllocParams,
    chandesConstruct, kfifoRunlistSetId)
    """
    types = channel.card.copy_engine_types
    number = params.enginetype
    if params.version == 1:
        number = types.index(number) if number in types else -1
    check(params.version in (0, 1) and 0 <= number < len(types), NvStatus.NV_ERR_INVALID_CLASS)
    of_channel = types[:COPY_GRAPHICS_ENGINES]
    if channel.group.engine_type != ENGINE_GR0:
        of_channel = [channel.group.engine_type]
    check(types[number] in of_channel, NvStatus.NV_ERR_INVALID_STATE)


def usermode(call: Allocation) -> RmObject:
    """The page with the doorbell. (usrmodeConstruct)"""
    if call.params is not None and call.params.bpriv:
        check(call.params.bbar1mapping, NvStatus.NV_ERR_INVALID_PARAMETER)
        raise RmError(NvStatus.NV_ERR_INSUFFICIENT_PERMISSIONS)
    return call.make(Usermode)


def debugger(call: Allocation) -> RmObject:
    """A debugger of a compute object, which sees its SMs' errors."""
    check(call.params.happclient == call.client.handle, NvStatus.NV_ERR_INVALID_CLIENT)
    call.client.find(call.params.hclass3dobject, EngineObject, NvStatus.NV_ERR_INVALID_OBJECT_HANDLE)
    return call.make(Debugger)


class Rule(NamedTuple):
    """What RM demands of a class before it looks closer.

    parents   kinds that its parent may be
    layout    name of its parameters; None when it takes none
    required  whether the parameters may be left out
    """

    maker: Maker
    parents: tuple[type[RmObject], ...]
    layout: str | None
    required: bool = True


RULES: dict[int, Rule] = {
    ClassId.NV01_DEVICE_0: Rule(device, (Client,), "DeviceAlloc", False),
    ClassId.NV20_SUBDEVICE_0: Rule(subdevice, (Device,), "SubdeviceAlloc", False),
    ClassId.NV01_MEMORY_SYSTEM: Rule(memory, (Device,), "MemoryAlloc"),
    ClassId.NV01_MEMORY_LOCAL_USER: Rule(memory, (Device, Subdevice), "MemoryAlloc"),
    ClassId.FERMI_VASPACE_A: Rule(va_space, (Device, Subdevice), "VaspaceAlloc"),
    NV01_MEMORY_VIRTUAL: Rule(virtual_memory, (Device,), "VirtualMemoryAlloc"),
    ClassId.KEPLER_CHANNEL_GROUP_A: Rule(channel_group, (Device,), "ChannelGroupAlloc"),
    ClassId.FERMI_CONTEXT_SHARE_A: Rule(context_share, (ChannelGroup,), "ContextShareAlloc"),
    ClassId.GT200_DEBUGGER: Rule(debugger, (Device,), "DebuggerAlloc"),
    ClassId.TURING_USERMODE_A: Rule(usermode, (Subdevice,), None),
    ClassId.AMPERE_USERMODE_A: Rule(usermode, (Subdevice,), None),
    ClassId.HOPPER_USERMODE_A: Rule(usermode, (Subdevice,), "UsermodeAlloc", False),
    ClassId.BLACKWELL_USERMODE_A: Rule(usermode, (Subdevice,), "UsermodeAlloc", False),
    **{
        class_id: Rule(channel, (Device, ChannelGroup), "ChannelAlloc")
        for class_id in ClassId
        if class_id.name.endswith(("GPFIFO_A", "GPFIFO_B"))
    },
    **{
        class_id: Rule(engine_object, (ChannelObject,), "CopyAlloc", False)
        for class_id in ClassId
        if "DMA_COPY" in class_id.name
    },
    **{
        class_id: Rule(engine_object, (ChannelObject,), "GrAlloc", False)
        for class_id in ClassId
        if "COMPUTE" in class_id.name
    },
}
