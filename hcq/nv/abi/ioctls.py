"""The kernel interface by driver release: its ioctls, controls and classes, and which layout each structure has.

In       the running driver's version, as /proc/driver/nvidia/version or a control call gives it
Out      Abi: layout(name), make(name, fields); the ioctls, CONTROLS and ALLOCATIONS
Next     structures.py (the layouts, of 100 releases from 550.40.53 to 595.45.04), hcq/nv/ioctl.py (makes the calls)
Source   nv-ioctl-numbers.h, nv_escape.h, uvm_ioctl.h
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from hcq.errors import DriverError, UsageError
from hcq.layout import Ioctl
from hcq.nv.abi.args import Args
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.structures import history, releases, structure
from hcq.system.ioctl_numbers import READ, WRITE, ioctl_number

# releases of whose headers we have seen a part: the note on a driver that takes their table
PARTLY_READ = {
    610: "of 610 only the channel's structure was read from its headers, the others are those of 595, and may not fit"
}
# each holds until the next
RELEASES = (*sorted({int(release.partition(".")[0]) for release in releases()}), *PARTLY_READ)


def _escape(number: int, name: str, argument: str, show: tuple[str, ...] = (), count: int = 1) -> Ioctl:
    """An escape of /dev/nvidiactl or /dev/nvidiaN: _IOWR('F', number, argument[count]); all have one layout."""
    layout = structure(argument)
    request = ioctl_number(READ | WRITE, "F", number, layout.size_bytes * count)
    return Ioctl(request, name, layout, show)


def _uvm(number: int, name: str, argument: str, show: tuple[str, ...] = ()) -> Ioctl:
    """A call of /dev/nvidia-uvm, which shows the first layout of its argument: later ones have only lost fields."""
    return Ioctl(number, name, history(argument)[0], show)


CARD_COUNT = 32
# Who checks: nvidia_ioctl (nv.c) copies as many bytes as the number says, RmIoctl (escape.c) and a few cases before it
# refuse another size than the structure's and the wrong kind of node with EINVAL. Functions below are those that look
# at what is in it; where none is named, RmIoctl is all.
#
# RmAllocOsDescriptor: pages of the process are pinned; on a GPU's node only
RM_ALLOC_MEMORY = _escape(0x27, "NV_ESC_RM_ALLOC_MEMORY", "RmAllocMemoryArgs", ("hclass", "limit"))
# serverFreeResourceTree: the object is the client's own; what depends on it goes first
RM_FREE = _escape(0x29, "NV_ESC_RM_FREE", "RmFreeArgs", ("hobjectold",))
# resControlLookup: the object has the command, and paramsSize is its structure's (NV_ERR_INVALID_PARAM_STRUCT)
RM_CONTROL = _escape(0x2A, "NV_ESC_RM_CONTROL", "RmControlArgs", ("hobject", "cmd", "paramssize"))
# serverAllocApiCopyIn, gpuIsClassSupported, resource_list.h: size, class, parent, whether parameters may be left
# out; only events are allocated on a GPU's node
RM_ALLOC = _escape(0x2B, "NV_ESC_RM_ALLOC", "RmAllocArgs", ("hclass", "hobjectparent", "paramssize"))
# RmCreateMmapContextLocked: the file is of the node that shows the memory, and has no mapping yet; then, for mmap,
# nvidia_mmap_helper: offset 0, shared, of a BAR exactly the length that was said here
RM_MAP_MEMORY = _escape(0x4E, "NV_ESC_RM_MAP_MEMORY", "RmMapMemoryArgs", ("hmemory", "length", "fd"))
# serverUnmap: the address that RM_MAP_MEMORY returned
RM_UNMAP_MEMORY = _escape(0x4F, "NV_ESC_RM_UNMAP_MEMORY", "RmUnmapMemoryArgs", ("hmemory",))
# nvidia_read_card_info: room for every GPU of the machine, whoever may open it; an array, of which the first is shown
CARD_INFO = _escape(0xC8, "NV_ESC_CARD_INFO", "CardInfoArgs", count=CARD_COUNT)
# RmIoctl: on a GPU's node, once for each file; the other file is nvidiactl, and not registered itself
REGISTER_FD = _escape(0xC9, "NV_ESC_REGISTER_FD", "RegisterFdArgs", ("ctl_fd",))
# RmPerformVersionCheck: '2' asks for the version, '1' compares up to the point, all else the whole text
CHECK_VERSION_STR = _escape(0xD2, "NV_ESC_CHECK_VERSION_STR", "CheckVersionStrArgs")
# rm_update_device_mapping_info: on nvidiactl only; the memory object and its old address. Only seen in traces
RM_UPDATE_DEVICE_MAPPING_INFO = _escape(
    0x5E, "NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO", "RmUpdateDeviceMappingInfoArgs", ("hmemory",)
)
# nvidia_ioctl: the first caller sets it, and others have to say the same
SYS_PARAMS = _escape(0xD6, "NV_ESC_SYS_PARAMS", "SysParamsArgs")

# Of /dev/nvidia-uvm: uvm_ioctl routes a number to its function, which needs a file that was initialised
# uvm_api_initialize: flags known, and the same when it is called again
UVM_INITIALIZE = _uvm(0x30000001, "UVM_INITIALIZE", "UvmInitialize", ("flags",))
# uvm_va_space_register_gpu_va_space, check_gpu_va_space: the GPU is registered, has no address space here yet, the
# file beside this one is open; nvGpuOpsDupAddressSpace: externally owned, and nobody else's
UVM_REGISTER_GPU_VASPACE = _uvm(25, "UVM_REGISTER_GPU_VASPACE", "UvmRegisterGpuVaspace", ("hvaspace",))
# uvm_va_space_unregister_gpu_va_space: a GPU that is registered and has an address space here (NV_ERR_INVALID_DEVICE)
UVM_UNREGISTER_GPU_VASPACE = _uvm(26, "UVM_UNREGISTER_GPU_VASPACE", "UvmUnregisterGpuVaspace")
# uvm_user_channel_create, create_va_range: the channel is of that address space and has its context buffers, they fit
# gaps of the window, which ends below max_channel_va
UVM_REGISTER_CHANNEL = _uvm(27, "UVM_REGISTER_CHANNEL", "UvmRegisterChannel", ("hchannel", "base", "length"))
# uvm_unregister_channel: it was registered; it is stopped first, and its notifier then says 45 (kchannelNotifyRc)
UVM_UNREGISTER_CHANNEL = _uvm(28, "UVM_UNREGISTER_CHANNEL", "UvmUnregisterChannel", ("hchannel",))
# retain_pcie_peers_from_uuids, enable_peers: two GPUs that are registered, reach each other, and are no peers yet
UVM_ENABLE_PEER_ACCESS = _uvm(29, "UVM_ENABLE_PEER_ACCESS", "UvmEnablePeerAccess")
# uvm_api_disable_peer_access: two GPUs that are registered, are not one, and are peers (NV_ERR_INVALID_DEVICE)
UVM_DISABLE_PEER_ACCESS = _uvm(30, "UVM_DISABLE_PEER_ACCESS", "UvmDisablePeerAccess")
# uvm_map_external_allocation, uvm_map_external_allocation_on_gpu: one external range holds it all, the types are known,
# the allocation is as large, offset and addresses fit its pages, memory of another GPU is a peer's
UVM_MAP_EXTERNAL_ALLOCATION = _uvm(
    33, "UVM_MAP_EXTERNAL_ALLOCATION", "UvmMapExternalAllocation", ("base", "length", "hmemory")
)
# uvm_free: the start of a range, and before 590 its exact length
UVM_FREE = _uvm(34, "UVM_FREE", "UvmFree", ("base",))
# uvm_va_space_register_gpu: a GPU that is attached, by its UUID
UVM_REGISTER_GPU = _uvm(37, "UVM_REGISTER_GPU", "UvmRegisterGpu")
# uvm_va_space_unregister_gpu: its channels are stopped, its address space goes
UVM_UNREGISTER_GPU = _uvm(38, "UVM_UNREGISTER_GPU", "UvmUnregisterGpu")
# uvm_unmap_external: whole pages inside one external range (NV_ERR_INVALID_ADDRESS), a GPU that is registered
UVM_UNMAP_EXTERNAL = _uvm(66, "UVM_UNMAP_EXTERNAL", "UvmUnmapExternal", ("base", "length"))
# uvm_create_external_range: whole pages, not from 0, where no other range is
UVM_CREATE_EXTERNAL_RANGE = _uvm(
    73, "UVM_CREATE_EXTERNAL_RANGE", "UvmCreateExternalRange", ("base", "length")
)
# uvm_api_mm_initialize: on a second file, kept open, once for an initialised one; without it there are no page tables
UVM_MM_INITIALIZE = _uvm(75, "UVM_MM_INITIALIZE", "UvmMmInitialize", ("uvmfd",))

# control calls: number -> structure; above those that this driver makes, the function and what it looks at
CONTROLS: dict[int, str] = {
    # cliresCtrlCmdGpuGetIdInfoV2: an attached GPU
    ControlId.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2: "GpuGetIdInfoV2",
    # rmapi_deprecated_control.c: three buffers of sizeOfStrings, or it says how long they have to be
    ControlId.NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION: "SystemGetBuildVersion",
    # cliresCtrlCmdSystemGetP2pCapsV2: 1 to 32 GPUs, the first of which there is
    ControlId.NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2: "SystemGetP2pCapsV2",
    # cliresCtrlCmdSystemGetP2pCapsMatrix: 1 to 8 GPUs in the first group, at most 8 in the second
    ControlId.NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_MATRIX: "SystemGetP2pCapsMatrix",
    # cliresCtrlCmdGpuGetAttachedIds: nothing
    ControlId.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS: "GpuGetAttachedIds",
    # cliresCtrlCmdGpuAttachIds: each up to the first invalid one was probed, or the first means all (0xffff)
    ControlId.NV0000_CTRL_CMD_GPU_ATTACH_IDS: "GpuAttachIds",
    # deviceCtrlCmdGpuGetClasslistV2: fills what it has room for
    ControlId.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2: "GpuGetClasslistV2",
    # subdeviceCtrlCmdGpuGetNameString: flags 0 is ASCII
    ControlId.NV2080_CTRL_CMD_GPU_GET_NAME_STRING: "GpuGetNameString",
    # subdeviceCtrlCmdGpuGetGidInfo, gpuGetGidInfo: format and type in flags
    ControlId.NV2080_CTRL_CMD_GPU_GET_GID_INFO: "GpuGetGidInfo",
    # subdeviceCtrlCmdKGrGetInfo: a list, which is cut off where it is too long; indices that it knows
    ControlId.NV2080_CTRL_CMD_GR_GET_INFO: "GrGetInfo",
    # subdeviceCtrlCmdFbGetInfoV2: 1 to as many indices as fit
    ControlId.NV2080_CTRL_CMD_FB_GET_INFO_V2: "FbGetInfoV2",
    # subdeviceCtrlCmdMcGetArchInfo: nothing
    ControlId.NV2080_CTRL_CMD_MC_GET_ARCH_INFO: "McGetArchInfo",
    # subdeviceCtrlCmdTimerGetTime: nothing that a process could get wrong
    ControlId.NV2080_CTRL_CMD_TIMER_GET_TIME: "TimerGetTime",
    # subdeviceCtrlCmdTimerGetGpuCpuTimeCorrelationInfo: at most 16 samples, a clock that it knows
    ControlId.NV2080_CTRL_CMD_TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO: "TimerGetGpuCpuTimeCorrelationInfo",
    # subdeviceCtrlCmdKGrGetCtxBufferSize: a channel or group whose context exists; sizes and alignments, added up
    ControlId.NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE: "GrGetCtxBufferSize",
    # subdeviceCtrlCmdKGrGetGpcMask, kgrmgrGetLegacyGpcMask: the route only where MIG is in use
    ControlId.NV2080_CTRL_CMD_GR_GET_GPC_MASK: "GrGetGpcMask",
    # subdeviceCtrlCmdKGrGetTpcMask, kgrmgrGetLegacyTpcMask: 0 for a GPC that is not there
    ControlId.NV2080_CTRL_CMD_GR_GET_TPC_MASK: "GrGetTpcMask",
    # subdeviceCtrlCmdCeGetCapsV2: a copy engine by type, which is there (NV_ERR_NOT_SUPPORTED)
    ControlId.NV2080_CTRL_CMD_CE_GET_CAPS_V2: "CeGetCapsV2",
    # subdeviceCtrlCmdCeGetAllCaps: nothing; a bit for each engine that is there
    ControlId.NV2080_CTRL_CMD_CE_GET_ALL_CAPS: "CeGetAllCaps",
    # subdeviceCtrlCmdKPerfBoost: the rest is firmware's. What we send is what CUDA's driver was seen to send
    ControlId.NV2080_CTRL_CMD_PERF_BOOST: "PerfBoost",
    # ksmdbgssnCtrlCmdDebugSetExceptionMask: in firmware, to which the kernel modules pass it on
    ControlId.NV83DE_CTRL_CMD_DEBUG_SET_EXCEPTION_MASK: "DebugSetExceptionMask",
    # ksmdbgssnCtrlCmdDebugReadAllSMErrorStates: in firmware, too
    ControlId.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES: "DebugReadAllSmErrorStates",
    # ksmdbgssnCtrlCmdDebugReadMMUFaultInfo, kgrctxLookupMmuFaultInfo: the session's compute object has a context
    ControlId.NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO: "DebugReadMmuFaultInfo",
    # kchannelCtrlCmdGetMmuFaultInfo: zeros where there was none
    ControlId.NV906F_CTRL_CMD_GET_MMU_FAULT_INFO: "GetMmuFaultInfo",
    # kchangrpapiCtrlCmdSetTimeslice: the group, and a class that the GPU has; the value is looked at in firmware
    ControlId.NVA06C_CTRL_CMD_SET_TIMESLICE: "Timeslice",
    # kchangrpapiCtrlCmdGpFifoSchedule, kchannelIsSchedulable: UVM has bound the context buffers of each channel
    ControlId.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE: "GpfifoSchedule",
    # kchannelCtrlCmdGpFifoSchedule: the same, of a channel without a group of its own
    ControlId.NVA06F_CTRL_CMD_GPFIFO_SCHEDULE: "GpfifoSchedule",
    # kchannelCtrlCmdGpfifoGetWorkSubmitToken: the channel is in a group; what the bits mean is the chip's
    ControlId.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN: "GetWorkSubmitToken",
}
# What objects of a class are allocated with; compute classes take GrAlloc or nothing (kgrobjConstruct: the channel has
# a graphics context, which the first of them makes). Above each its constructor and what that looks at
ALLOCATIONS: dict[int, str] = {
    # deviceConstruct: deviceId is an attached GPU's instance, which this process may open
    ClassId.NV01_DEVICE_0: "DeviceAlloc",
    # subdeviceConstruct: subDeviceId is below the number of GPUs in the device: 0
    ClassId.NV20_SUBDEVICE_0: "SubdeviceAlloc",
    # stdmemValidateParams: an owner, a size, none of RM's own flags; sysmemConstruct: attr's location is not VIDMEM
    ClassId.NV01_MEMORY_SYSTEM: "MemoryAlloc",
    # stdmemValidateParams; vidmemConstruct: room for pages of the size that attr says, or of its own choice
    ClassId.NV01_MEMORY_LOCAL_USER: "MemoryAlloc",
    # vaspaceapiConstruct: flags that go together; externally owned page tables are UVM's
    ClassId.FERMI_VASPACE_A: "VaspaceAlloc",
    # kchangrpapiConstruct: engineType is an engine of the GPU; an address space here, or in each context share
    ClassId.KEPLER_CHANNEL_GROUP_A: "ChannelGroupAlloc",
    # kctxshareapiConstruct: below a group; its address space is one of the same device
    ClassId.FERMI_CONTEXT_SHARE_A: "ContextShareAlloc",
    # ksmdbgssnConstruct: no obsolete client, a compute object of the same GPU whose client allows it to be debugged
    ClassId.GT200_DEBUGGER: "DebuggerAlloc",
    # usrmodeConstruct: bPriv is for the kernel alone
    ClassId.HOPPER_USERMODE_A: "UsermodeAlloc",
    # usrmodeConstruct, too
    ClassId.BLACKWELL_USERMODE_A: "UsermodeAlloc",
    # kchannelConstruct: all of a group with a context share of that group or all without, no address space beside it,
    # the group's engine or none; ring, USERD and notifier are looked at in firmware (_kchannelSendChannelAllocRpc)
    **{class_id: "ChannelAlloc" for class_id in ClassId if class_id.name.endswith(("GPFIFO_A", "GPFIFO_B"))},
    # kceGetEngineDescFromAllocParams: up to Hopper, a copy engine whose runlist is the channel's; later ignored
    **{class_id: "CopyAlloc" for class_id in ClassId if "DMA_COPY" in class_id.name},
}


class Layouts(dict[str, type[Args]]):
    """Structures by name, each in the layout of one release when it is first asked for, unless another was put here."""

    def __init__(self, release: int) -> None:
        super().__init__()
        self.release = release

    def __missing__(self, name: str) -> type[Args]:
        found = self[name] = structure(name, self.release)
        return found


@dataclass(frozen=True)
class Abi:
    """The interface of one driver: every structure in the layout that it takes.

    version  as the driver gives it
    release  the table taken
    note     empty, or why this table stands in for one that there is not
    layouts  by name; whoever finds that a driver without a table of its own takes another one replaces it here
    """

    version: str
    release: int
    note: str
    layouts: Layouts

    def layout(self, name: str) -> type[Args]:
        """A structure by its name here. Raises UsageError for one that is not declared."""
        return self.layouts[name]

    def make(self, name: str, **fields: Any) -> Args:
        """A structure with its fields. Raises UsageError for a field that it has not in this release."""
        return self.layout(name)(**fields)

    def of(self, ioctl: Ioctl) -> type[Args]:
        """The layout of a call's argument in this release."""
        if ioctl.layout is None:
            raise UsageError(f"{ioctl.name} takes no structure.")
        return self.layout(ioctl.layout.__name__)


def abi_for(version: str) -> Abi:
    """The interface of a driver by its version, such as "580.142".

    A release between two tables takes the older one, a newer one than all takes the newest; both say so in `note`.
    Raises  UsageError for text that is no version, DriverError for a driver older than every table
    """
    found = re.match(r"(\d+)\.\d+", version)
    if found is None:
        raise UsageError(f"abi_for({version!r}): not a driver version. Give it as the driver does: 580.142.")
    major = int(found[1])
    if major < RELEASES[0]:
        raise DriverError(
            f"NVIDIA driver {version} is older than {RELEASES[0]}, the oldest known. Install a newer driver."
        )
    release = max(known for known in RELEASES if known <= major)
    note = ""
    if major == release and release in PARTLY_READ:
        note = f"Driver {version}: {PARTLY_READ[release]}."
    elif major != release:
        note = f"Driver {version} has no table of its own: the one of {release} is taken, and may not fit."
    return Abi(version, release, note, Layouts(release))
