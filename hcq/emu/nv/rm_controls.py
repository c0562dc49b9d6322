"""Control calls of the emulated resource manager: what an object answers when it is asked.

In       an object, a command, the caller's memory
Out      the structure filled in; RmError for a command that the object has not, or a size that is not the release's
Changes  channels are scheduled
Next     rm_calls.py (RM_CONTROL), hcq/nv/abi/ioctls.py (which structure a command takes)
Source   ctrl0000.h, ctrl0080.h, ctrl2080.h, ctrl83de.h, ctrl906f.h, ctrla06c.h, ctrlc36f.h
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

from hcq.emu.kernel import Process
from hcq.emu.nv.errors import KernelError, MmuFault
from hcq.emu.nv.gpu import EmulatedGpu
from hcq.emu.nv.rm_objects import (
    VASPACE_EXTERNALLY_OWNED,
    ChannelGroup,
    ChannelObject,
    Client,
    Debugger,
    Device,
    RmError,
    RmObject,
    Subdevice,
    check,
)
from hcq.emu.nv.rm_state import Reply, RmFile
from hcq.emu.nv.spec import COPY_GRAPHICS_ENGINES, ENGINE_GR0, SMS_PER_TPC, VIDEO_MEMORY_BYTES
from hcq.nv.abi.ioctls import CONTROLS
from hcq.nv.abi.sm_errors import WarpEsr
from hcq.nv.abi.status import NvStatus
from hcq.nv.abi.structures import structure

GPU_INVALID_ID = 0xFFFFFFFF
MAX_GR_INFO = 64  # entries of a list: NV2080_CTRL_GR_INFO_MAX_SIZE is not much less in any release
ATTACH_ALL = 0xFFFF  # NV0000_CTRL_GPU_ATTACH_ALL_PROBED_IDS
P2P_CAPS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 6  # writes, reads, proprietary, over PCI
GRCE = 1
TRAPPED = 1 << 4  # HWW_GLOBAL_ESR: a breakpoint or a trap
CE_CAPS = 4 | 8 | 32 | 64  # system memory read and written, peers
OBJECT_OF: dict[int, tuple[type[RmObject], ...]] = {
    0x0000: (Client,),
    0x0080: (Device,),
    0x2080: (Subdevice,),
    0x83DE: (Debugger,),
    0x906F: (ChannelObject,),
    0xA06C: (ChannelGroup,),
    0xA06F: (ChannelObject,),
    0xC36F: (ChannelObject,),
}
Answer = Callable[["Call"], "dict[str, int]"]
REPLIES: dict[int, Reply] = {}


class Call:
    """One control: who asks which object, with which parameters."""

    def __init__(self, file: RmFile, client: Client, one: RmObject, params: Any) -> None:
        self.rm, self.process = file.rm, file.process
        self.client, self.object, self.params = client, one, params

    @property
    def gpu(self) -> EmulatedGpu:
        """The GPU of the object that is asked."""
        return self.object.gpu

    def gpu_by_id(self, gpu_id: int) -> EmulatedGpu:
        """An attached GPU by RM's number. Raises RmError when there is none."""
        found = next((gpu for gpu in self.rm.gpus if gpu.gpu_id == gpu_id and gpu.is_attached), None)
        if found is None:
            raise RmError(NvStatus.NV_ERR_OBJECT_NOT_FOUND)
        return found


def control(file: RmFile, client: Client, one: RmObject, command: int, at: int, size: int) -> None:
    """Answer a command. Its parameters are `size` bytes of the process's memory at `at`."""
    known = file.rm.replies.get(command)
    if known is None or not isinstance(one, OBJECT_OF.get(command >> 16, ())):
        raise RmError(NvStatus.NV_ERR_NOT_SUPPORTED)
    layout = file.rm.layouts[known.layout]
    check(size == layout.size_bytes, NvStatus.NV_ERR_INVALID_PARAM_STRUCT)
    check(at, NvStatus.NV_ERR_INVALID_POINTER)
    params = layout.from_bytes(file.process.read(at, size))
    changes = known.answer(Call(file, client, one, params))
    if changes:
        file.process.write(at, layout(**{**params.values, **changes}).to_bytes())


def replies(name: str) -> Callable[[Answer], Answer]:
    """Make a function the reply to commands whose structure has this name. It returns the fields that change."""

    def note(reply: Answer) -> Answer:
        REPLIES.update({number: Reply(name, reply) for number, layout in CONTROLS.items() if layout == name})
        return reply

    return note


def as_number(data: bytes) -> int:
    """Bytes as the number that a structure's field holds."""
    return int.from_bytes(data, "little")


def as_list(value: int, count: int) -> tuple[int, ...]:
    """An array field as 32-bit words."""
    return struct.unpack(f"<{count}I", (value & (1 << 32 * count) - 1).to_bytes(4 * count, "little"))


# ------------------------------------------------------------ the client


@replies("SystemGetBuildVersion")
def build_version(call: Call) -> dict[str, int]:
    """The release as text, in three buffers of the caller; how long these have to be, where one is missing."""
    params, version = call.params, call.rm.version
    texts = (
        (params.pdriverversionbuffer, version),
        (params.pversionbuffer, f"rel/gpu_drv/r{version[:3]}"),
        (
            params.ptitlebuffer,
            f"NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (emulated)",
        ),
    )
    longest = max(len(text) + 1 for _, text in texts)
    if not all(at for at, _ in texts):
        return {"sizeofstrings": longest}
    check(params.sizeofstrings >= longest, NvStatus.NV_ERR_INVALID_PARAM_STRUCT)
    for at, text in texts:
        call.process.write(at, text.encode() + b"\0")
    return {"changelistnumber": 1, "officialchangelistnumber": 1}


@replies("GpuGetAttachedIds")
def attached_ids(call: Call) -> dict[str, int]:
    """The GPUs that are attached, by RM's numbers."""
    ids = [gpu.gpu_id for gpu in call.rm.gpus if gpu.is_attached]
    return {"gpuids": as_number(struct.pack("<32I", *ids, *[GPU_INVALID_ID] * (32 - len(ids))))}


@replies("GpuAttachIds")
def attach_ids(call: Call) -> dict[str, int]:
    """Whether such GPUs exist; ATTACH_ALL are those that do. It attaches none: on Linux, opening their nodes does."""
    known = {gpu.gpu_id for gpu in call.rm.gpus}
    asked = as_list(call.params.gpuids, 32)
    if asked[0] != ATTACH_ALL:
        named = asked[: [*asked, GPU_INVALID_ID].index(GPU_INVALID_ID)]
        check(known.issuperset(named), NvStatus.NV_ERR_INVALID_ARGUMENT)
    return {}


@replies("GpuGetIdInfoV2")
def id_info(call: Call) -> dict[str, int]:
    """Which device and subdevice a GPU is."""
    gpu = call.gpu_by_id(call.params.gpuid)
    return {
        "deviceinstance": gpu.index,
        "subdeviceinstance": 0,
        "boardid": gpu.gpu_id,
        "gpuinstance": gpu.index,
        "numaid": 0xFFFFFFFF,
    }


@replies("SystemGetP2pCapsV2")
def p2p_caps(call: Call) -> dict[str, int]:
    """How GPUs reach each other's memory."""
    count = call.params.gpucount
    check(0 < count <= 32, NvStatus.NV_ERR_INVALID_ARGUMENT)
    for gpu_id in as_list(call.params.gpuids, 32)[:count]:
        call.gpu_by_id(gpu_id)
    return {"p2pcaps": P2P_CAPS}


@replies("SystemGetP2pCapsMatrix")
def p2p_matrix(call: Call) -> dict[str, int]:
    """The same for pairs out of two groups."""
    rows, columns = call.params.grpacount, call.params.grpbcount
    check(0 < rows <= 8 and columns <= 8, NvStatus.NV_ERR_INVALID_ARGUMENT)
    caps = [0] * 64
    for row in range(rows):
        for column in range(columns or rows):
            caps[8 * row + column] = P2P_CAPS
    return {"p2pcaps": as_number(struct.pack("<64I", *caps))}


# ------------------------------------------------------------ the device and the subdevice


@replies("GpuGetClasslistV2")
def class_list(call: Call) -> dict[str, int]:
    """The classes that the GPU has."""
    classes = sorted(call.gpu.classes)
    return {"numclasses": len(classes), "classlist": as_number(struct.pack(f"<{len(classes)}I", *classes))}


@replies("GpuGetGidInfo")
def gid_info(call: Call) -> dict[str, int]:
    """The GPU's UUID, as bytes or as text."""
    is_binary = call.params.flags & 3 == 2
    data = call.gpu.uuid if is_binary else call.gpu.uuid_text.encode() + b"\0"
    return {"length": len(data), "data": as_number(data)}


@replies("GpuGetNameString")
def name_string(call: Call) -> dict[str, int]:
    """The GPU's name."""
    return {"gpunamestring": as_number(call.gpu.chip.name.encode())}


@replies("McGetArchInfo")
def arch_info(call: Call) -> dict[str, int]:
    """Architecture, implementation and revision of the chip."""
    chip = call.gpu.chip
    return {"architecture": chip.architecture, "implementation": chip.implementation, "revision": 0xA1}


def _fill_list(process: Process, at: int, count: int, values: dict[int, int]) -> None:
    """An array of (index, data) in the caller's memory; an index that is not known stays 0."""
    for number in range(count):
        (index,) = struct.unpack("<I", process.read(at + 8 * number, 4))
        process.write(at + 8 * number + 4, struct.pack("<I", values.get(index, 0)))


@replies("GrGetInfo")
def gr_info(call: Call) -> dict[str, int]:
    """Figures of the graphics engine, such as SMs and warps, by index."""
    check(call.params.grinfolist, NvStatus.NV_ERR_INVALID_ARGUMENT)
    check(call.params.grinfolistsize <= MAX_GR_INFO, NvStatus.NV_ERR_INVALID_ARGUMENT)
    chip = call.gpu.chip
    values = {
        12: chip.sm_version,
        13: chip.warps_per_sm,
        14: 32,  # threads per warp
        20: len(chip.part.tpcs),
        23: chip.part.tpcs_per_gpc,
        32: SMS_PER_TPC,
        42: chip.part.tpcs_per_gpc,
    }
    _fill_list(call.process, call.params.grinfolist, call.params.grinfolistsize, values)
    return {}


@replies("FbGetInfoV2")
def fb_info(call: Call) -> dict[str, int]:
    """Figures of the GPU's memory, such as its size in KiB, by index."""
    gpu = call.gpu
    total = VIDEO_MEMORY_BYTES >> 10
    bar1 = total if gpu.spec.is_video_memory_mappable else 0
    free = (VIDEO_MEMORY_BYTES - gpu.video_memory_used) >> 10
    values = {5: bar1, 29: bar1, 7: total, 8: total, 32: total, 9: total, 22: free, 11: 4096, 27: 32 << 20}
    count = call.params.fbinfolistsize
    check(0 < count <= call.params.fields["fbinfolist"].width // 64, NvStatus.NV_ERR_INVALID_ARGUMENT)
    words = list(as_list(call.params.fbinfolist, 2 * count))
    for at in range(0, 2 * count, 2):
        words[at + 1] = values.get(words[at], 0)
    return {"fbinfolist": as_number(struct.pack(f"<{2 * count}I", *words))}


@replies("GrGetGpcMask")
def gpc_mask(call: Call) -> dict[str, int]:
    """Which GPCs there are."""
    return {"gpcmask": (1 << len(call.gpu.chip.part.tpcs)) - 1}


@replies("GrGetTpcMask")
def tpc_mask(call: Call) -> dict[str, int]:
    """Which TPCs a GPC has: none, where there is no such GPC."""
    number, masks = call.params.gpcid, call.gpu.chip.part.masks
    return {"tpcmask": masks[number] if number < len(masks) else 0}


@replies("GrGetCtxBufferSize")
def context_buffer_size(call: Call) -> dict[str, int]:
    """How many addresses the context buffers of a channel or group take, alignment and all."""
    kinds = (ChannelObject, ChannelGroup)
    one = call.client.objects.get(call.params.hchannel)
    check(isinstance(one, kinds), NvStatus.NV_ERR_INVALID_CHANNEL)
    return {"totalbuffersize": call.gpu.chip.context_bytes}


@replies("CeGetCapsV2")
def copy_caps(call: Call) -> dict[str, int]:
    """What a copy engine can do."""
    gpu, engine = call.gpu, call.params.ceenginetype
    check(engine in gpu.copy_engine_types, NvStatus.NV_ERR_NOT_SUPPORTED)
    return {"capstbl": _caps_of(gpu.copy_engine_types.index(engine))}


@replies("CeGetAllCaps")
def all_copy_caps(call: Call) -> dict[str, int]:
    """What each copy engine can do."""
    count = len(call.gpu.copy_engine_types)
    table = b"".join(_caps_of(number).to_bytes(2, "little") for number in range(count))
    return {"capstbl": as_number(table), "present": (1 << count) - 1}


def _caps_of(number: int) -> int:
    return CE_CAPS | (GRCE if number < COPY_GRAPHICS_ENGINES else 0)


@replies("TimerGetTime")
def timer(call: Call) -> dict[str, int]:
    """The GPU's time in nanoseconds."""
    return {"time_nsec": call.gpu.time_ns()}


@replies("TimerGetGpuCpuTimeCorrelationInfo")
def time_correlation(call: Call) -> dict[str, int]:
    """Pairs of host's and GPU's time in nanoseconds."""
    count = call.params.samplecount
    check(0 < count <= 16, NvStatus.NV_ERR_INVALID_ARGUMENT)
    samples = b"".join(struct.pack("<QQ", time.time_ns(), call.gpu.time_ns()) for _ in range(count))
    return {"samples": as_number(samples)}


@replies("PerfBoost")
@replies("Timeslice")
@replies("DebugSetExceptionMask")
def nothing(call: Call) -> dict[str, int]:
    """Accepted; it has no effect here."""
    return {}


# ------------------------------------------------------------ channels


@replies("GpfifoSchedule")
def schedule(call: Call) -> dict[str, int]:
    """A group, or a channel without one, runs from now on: its channels must be UVM's to page before that."""
    one = call.object
    channels = (
        [one] if isinstance(one, ChannelObject) else [c for c in one.children if isinstance(c, ChannelObject)]
    )
    group = one.channel.group if isinstance(one, ChannelObject) else one.above(ChannelGroup).group
    check(
        not (isinstance(one, ChannelObject) and isinstance(one.parent, ChannelGroup)),
        NvStatus.NV_ERR_NOT_SUPPORTED,
    )
    check(not group.error, NvStatus.NV_ERR_RC_ERROR)
    for each in channels:
        space = each.va_space
        is_foreign = space is not None and space.flags & VASPACE_EXTERNALLY_OWNED
        needs_uvm = is_foreign and group.engine_type == ENGINE_GR0
        check(not needs_uvm or each.is_uvm_registered, NvStatus.NV_ERR_INVALID_STATE)
    group.is_scheduled = bool(call.params.benable)
    call.gpu.kick()
    return {}


@replies("GetWorkSubmitToken")
def token(call: Call) -> dict[str, int]:
    """What a channel's doorbell takes."""
    return {"worksubmittoken": call.object.above(ChannelObject).channel.token}


# ------------------------------------------------------------ after a fault


@replies("GetMmuFaultInfo")
def mmu_fault_info(call: Call) -> dict[str, int]:
    """The page fault that stopped a channel."""
    fault = call.object.above(ChannelObject).channel.group.error
    if not isinstance(fault, MmuFault):
        return {}
    return {
        "addrhi": fault.address >> 32,
        "addrlo": fault.address & 0xFFFFFFFF,
        "faulttype": fault.kind,
        "faultstring": as_number(f"FAULT_{fault.kind.name}".encode()),
    }


@replies("DebugReadMmuFaultInfo")
def debugger_fault_info(call: Call) -> dict[str, int]:
    """The page faults of the GPU, at most four."""
    faults = [group.error for group in call.gpu.groups if isinstance(group.error, MmuFault)][:4]
    entry = structure("MmuFaultEntry")
    entries = b"".join(
        entry(faultaddress=each.address, faulttype=each.kind, accesstype=each.access).to_bytes()
        for each in faults
    )
    return {"mmufaultinfolist": as_number(entries), "count": len(faults)}


@replies("DebugReadAllSmErrorStates")
def sm_error_states(call: Call) -> dict[str, int]:
    """What SMs report of the kernel that stopped a channel: all work of emulated GPUs is on the first one."""
    target = call.client.find(call.params.htargetchannel, ChannelObject, NvStatus.NV_ERR_INVALID_CHANNEL)
    first, many = call.params.startingsm, call.params.numsmstoread
    check(many <= 100, NvStatus.NV_ERR_INVALID_ARGUMENT)
    error = target.channel.group.error
    states = b""
    if isinstance(error, KernelError) and not first and many:
        esr = 0 if error.is_trap else WarpEsr(error=error.warp_error, wrap_id=error.warp).words[0]
        states = structure("SmErrorState")(
            hwwglobalesr=TRAPPED if error.is_trap else 0,
            hwwwarpesr=esr,
            hwwesraddr=error.address,
            hwwwarpesrpc64=error.program,
        ).to_bytes()
    return {"smerrorstatearray": as_number(states), "mmufault_valid": int(isinstance(error, MmuFault))}
