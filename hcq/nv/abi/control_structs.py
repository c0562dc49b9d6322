"""More control calls: what a driver asks of a GPU, and what it asks after a fault.

In       fields by name, the kernel's names in lower case; a nested structure's fields follow its name
Out      Args classes; SmErrorState, MmuFaultEntry and Notification are parts and memory, not calls
Changes  nothing
Next     ioctls.py (which call takes which), rm_structs.py (the calls of bring-up)
Source   ctrl0000.h, ctrl2080.h, ctrl83de.h, ctrl906f.h, ctrla06c.h, nvos.h: 580.142; 550 to 595 compared
"""

from __future__ import annotations

from hcq.layout import bits
from hcq.nv.abi.args import Args


class GpuGetAttachedIds(Args, size_bytes=128):
    """NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS"""

    gpuids = bits(1023, 0)


class GpuAttachIds(Args, size_bytes=132):
    """NV0000_CTRL_GPU_ATTACH_IDS_PARAMS"""

    gpuids = bits(1023, 0)
    failedid = bits(1055, 1024)


class SystemGetBuildVersion(Args, size_bytes=40):
    """NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS"""

    sizeofstrings = bits(31, 0)
    pdriverversionbuffer = bits(127, 64)
    pversionbuffer = bits(191, 128)
    ptitlebuffer = bits(255, 192)
    changelistnumber = bits(287, 256)
    officialchangelistnumber = bits(319, 288)


class SystemGetP2pCapsV2(Args, size_bytes=8348):
    """NV0000_CTRL_SYSTEM_GET_P2P_CAPS_V2_PARAMS"""

    gpuids = bits(1023, 0)
    gpucount = bits(1055, 1024)
    p2pcaps = bits(1087, 1056)
    p2poptimalreadces = bits(1119, 1088)
    p2poptimalwriteces = bits(1151, 1120)
    p2pcapsstatus = bits(1223, 1152)
    buspeerids = bits(34015, 1248)
    busegmpeerids = bits(66783, 34016)


class SystemGetP2pCapsMatrix(Args, size_bytes=1352):
    """NV0000_CTRL_SYSTEM_GET_P2P_CAPS_MATRIX_PARAMS"""

    grpacount = bits(31, 0)
    grpbcount = bits(63, 32)
    gpuidgrpa = bits(319, 64)
    gpuidgrpb = bits(575, 320)
    p2pcaps = bits(2623, 576)
    a2boptimalreadces = bits(4671, 2624)
    a2boptimalwriteces = bits(6719, 4672)
    b2aoptimalreadces = bits(8767, 6720)
    b2aoptimalwriteces = bits(10815, 8768)


class GpuGetNameString550(Args, size_bytes=132):
    """NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS, before 595"""

    gpunamestringflags = bits(31, 0)
    gpunamestring = bits(543, 32)  # ASCII; the rest, until 595, is for Unicode


class GpuGetNameString(GpuGetNameString550, size_bytes=68):
    """NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS"""


class GrGetCtxBufferSize(Args, size_bytes=16):
    """NV2080_CTRL_GR_GET_CTX_BUFFER_SIZE_PARAMS"""

    hchannel = bits(31, 0)
    totalbuffersize = bits(127, 64)


class GrGetGpcMask(Args, size_bytes=24):
    """NV2080_CTRL_GR_GET_GPC_MASK_PARAMS"""

    grrouteinfo_flags = bits(31, 0)
    grrouteinfo_route = bits(127, 64)
    gpcmask = bits(159, 128)


class GrGetTpcMask(Args, size_bytes=24):
    """NV2080_CTRL_GR_GET_TPC_MASK_PARAMS"""

    grrouteinfo_flags = bits(31, 0)
    grrouteinfo_route = bits(127, 64)
    gpcid = bits(159, 128)
    tpcmask = bits(191, 160)


class CeGetCapsV2(Args, size_bytes=8):
    """NV2080_CTRL_CE_GET_CAPS_V2_PARAMS"""

    ceenginetype = bits(31, 0)
    capstbl = bits(47, 32)


class CeGetAllCaps(Args, size_bytes=136):
    """NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS"""

    capstbl = bits(1023, 0)
    present = bits(1087, 1024)


class TimerGetTime(Args, size_bytes=8):
    """NV2080_CTRL_TIMER_GET_TIME_PARAMS"""

    time_nsec = bits(63, 0)


class TimerGetGpuCpuTimeCorrelationInfo(Args, size_bytes=264):
    """NV2080_CTRL_TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO_PARAMS"""

    cpuclkid = bits(7, 0)
    samplecount = bits(15, 8)
    samples = bits(2111, 64)


class DebuggerAlloc(Args, size_bytes=12):
    """NV83DE_ALLOC_PARAMETERS"""

    hdebuggerclient_obsolete = bits(31, 0)
    happclient = bits(63, 32)
    hclass3dobject = bits(95, 64)


class DebugSetExceptionMask(Args, size_bytes=4):
    """NV83DE_CTRL_DEBUG_SET_EXCEPTION_MASK_PARAMS"""

    exceptionmask = bits(31, 0)


class DebugReadAllSmErrorStates(Args, size_bytes=4824):
    """NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS"""

    htargetchannel = bits(31, 0)
    numsmstoread = bits(63, 32)
    smerrorstatearray = bits(38463, 64)
    mmufaultinfo = bits(38495, 38464)
    mmufault_valid = bits(38503, 38496)
    mmufault_faultinfo = bits(38559, 38528)
    startingsm = bits(38591, 38560)


class DebugReadMmuFaultInfo(Args, size_bytes=72):
    """NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS"""

    mmufaultinfolist = bits(511, 0)
    count = bits(543, 512)


class GetMmuFaultInfo(Args, size_bytes=104):
    """NV906F_CTRL_GET_MMU_FAULT_INFO_PARAMS"""

    addrhi = bits(31, 0)
    addrlo = bits(63, 32)
    faulttype = bits(95, 64)
    faultstring = bits(351, 96)
    shaderprogramva = bits(831, 384)


class Timeslice(Args, size_bytes=8):
    """NVA06C_CTRL_TIMESLICE_PARAMS"""

    timesliceus = bits(63, 0)


class RmUpdateDeviceMappingInfoArgs(Args, size_bytes=40):
    """NVOS56_PARAMETERS"""

    hclient = bits(31, 0)
    hdevice = bits(63, 32)
    hmemory = bits(95, 64)
    poldcpuaddress = bits(191, 128)
    pnewcpuaddress = bits(255, 192)
    status = bits(287, 256)


class GrAlloc(Args, size_bytes=16):
    """NV_GR_ALLOCATION_PARAMETERS"""

    version = bits(31, 0)
    flags = bits(63, 32)
    size = bits(95, 64)
    caps = bits(127, 96)


class SmErrorState(Args, size_bytes=48):
    """NV83DE_SM_ERROR_STATE_REGISTERS: an entry of DebugReadAllSmErrorStates"""

    hwwglobalesr = bits(31, 0)
    hwwwarpesr = bits(63, 32)
    hwwwarpesrpc = bits(95, 64)
    hwwglobalesrreportmask = bits(127, 96)
    hwwwarpesrreportmask = bits(159, 128)
    hwwesraddr = bits(255, 192)
    hwwwarpesrpc64 = bits(319, 256)
    hwwcgaesr = bits(351, 320)
    hwwcgaesrreportmask = bits(383, 352)


class MmuFaultEntry(Args, size_bytes=16):
    """NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_ENTRY: an entry of DebugReadMmuFaultInfo"""

    faultaddress = bits(63, 0)
    faulttype = bits(95, 64)
    accesstype = bits(127, 96)


class Notification(Args, size_bytes=16):
    """NvNotification: what a channel's error notifier holds"""

    timestamp = bits(63, 0)
    info32 = bits(95, 64)
    info16 = bits(111, 96)
    status = bits(127, 112)
