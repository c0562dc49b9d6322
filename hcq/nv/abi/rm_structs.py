"""Resource manager structures: the escapes of /dev/nvidiactl, what objects are allocated with, and control calls.

In       fields by name, the kernel's names in lower case; a nested structure's fields follow its name
Out      Args classes, one for each structure and each layout it has had
Changes  nothing
Next     ioctls.py (which driver release takes which)
Source   nvos.h, nv-ioctl.h, ctrl0080.h, ctrl2080.h, ctrla06c.h, ctrlc36f.h of 580.142; ioctls.py says what was compared
"""

from __future__ import annotations

from hcq.layout import Bits, bits, placed, repeated
from hcq.nv.abi.args import Args
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.controls import ControlId


class CardInfoArgs(Args, size_bytes=72):
    """nv_ioctl_card_info_t"""

    valid = bits(7, 0)
    pci_info_domain = bits(63, 32)
    pci_info_bus = bits(71, 64)
    pci_info_slot = bits(79, 72)
    pci_info_function = bits(87, 80)
    pci_info_vendor_id = bits(111, 96)
    pci_info_device_id = bits(127, 112)
    gpu_id = bits(159, 128)
    interrupt_line = bits(175, 160)
    reg_address = bits(255, 192)
    reg_size = bits(319, 256)
    fb_address = bits(383, 320)
    fb_size = bits(447, 384)
    minor_number = bits(479, 448)
    dev_name = bits(559, 480)


class RegisterFdArgs(Args, size_bytes=4):
    """nv_ioctl_register_fd_t"""

    ctl_fd = bits(31, 0)


class SysParamsArgs(Args, size_bytes=8):
    """nv_ioctl_sys_params_t"""

    memblock_size = bits(63, 0)


class CheckVersionStrArgs(Args, size_bytes=72):
    """nv_ioctl_rm_api_version_t"""

    cmd = bits(31, 0)
    reply = bits(63, 32)
    versionstring = bits(575, 64)


class RmFreeArgs(Args, size_bytes=16):
    """NVOS00_PARAMETERS"""

    hroot = bits(31, 0)
    hobjectparent = bits(63, 32)
    hobjectold = bits(95, 64)
    status = bits(127, 96)


class RmAllocMemoryArgs(Args, size_bytes=56):
    """nv_ioctl_nvos02_parameters_with_fd"""

    hroot = bits(31, 0)
    hobjectparent = bits(63, 32)
    hobjectnew = bits(95, 64)
    hclass = bits(127, 96, enum=ClassId)
    flags = bits(159, 128)
    pmemory = bits(255, 192)
    limit = bits(319, 256)
    status = bits(351, 320)
    fd = bits(415, 384)


class RmMapMemoryArgs(Args, size_bytes=56):
    """nv_ioctl_nvos33_parameters_with_fd"""

    hclient = bits(31, 0)
    hdevice = bits(63, 32)
    hmemory = bits(95, 64)
    offset = bits(191, 128)
    length = bits(255, 192)
    plinearaddress = bits(319, 256)
    status = bits(351, 320)
    flags = bits(383, 352)
    fd = bits(415, 384)


class RmUnmapMemoryArgs(Args, size_bytes=32):
    """NVOS34_PARAMETERS"""

    hclient = bits(31, 0)
    hdevice = bits(63, 32)
    hmemory = bits(95, 64)
    plinearaddress = bits(191, 128)
    status = bits(223, 192)
    flags = bits(255, 224)


class RmControlArgs(Args, size_bytes=32):
    """NVOS54_PARAMETERS"""

    hclient = bits(31, 0)
    hobject = bits(63, 32)
    cmd = bits(95, 64, enum=ControlId)
    flags = bits(127, 96)
    params = bits(191, 128)
    paramssize = bits(223, 192)
    status = bits(255, 224)


class RmAllocArgs(Args, size_bytes=48):
    """NVOS64_PARAMETERS"""

    hroot = bits(31, 0)
    hobjectparent = bits(63, 32)
    hobjectnew = bits(95, 64)
    hclass = bits(127, 96, enum=ClassId)
    pallocparms = bits(191, 128)
    prightsrequested = bits(255, 192)
    paramssize = bits(287, 256)
    flags = bits(319, 288)
    status = bits(351, 320)


# ------------------------------------------------------------ what objects are allocated with


class DeviceAlloc(Args, size_bytes=56):
    """NV0080_ALLOC_PARAMETERS"""

    deviceid = bits(31, 0)
    hclientshare = bits(63, 32)
    htargetclient = bits(95, 64)
    htargetdevice = bits(127, 96)
    flags = bits(159, 128)
    vaspacesize = bits(255, 192)
    vastartinternal = bits(319, 256)
    valimitinternal = bits(383, 320)
    vamode = bits(415, 384)


class SubdeviceAlloc(Args, size_bytes=4):
    """NV2080_ALLOC_PARAMETERS"""

    subdeviceid = bits(31, 0)


class MemoryAlloc(Args, size_bytes=128):
    """NV_MEMORY_ALLOCATION_PARAMS"""

    owner = bits(31, 0)
    type = bits(63, 32)
    flags = bits(95, 64)
    width = bits(127, 96)
    height = bits(159, 128)
    pitch = bits(191, 160)
    attr = bits(223, 192)
    attr2 = bits(255, 224)
    format = bits(287, 256)
    comprcovg = bits(319, 288)
    zcullcovg = bits(351, 320)
    rangelo = bits(447, 384)
    rangehi = bits(511, 448)
    size = bits(575, 512)
    alignment = bits(639, 576)
    offset = bits(703, 640)
    limit = bits(767, 704)
    address = bits(831, 768)
    ctagoffset = bits(863, 832)
    hvaspace = bits(895, 864)
    internalflags = bits(927, 896)
    tag = bits(959, 928)
    numanode = bits(991, 960)


class VaspaceAlloc550(Args, size_bytes=48):
    """NV_VASPACE_ALLOCATION_PARAMETERS, before 580"""

    index = bits(31, 0)
    flags = bits(63, 32)
    vasize = bits(127, 64)
    vastartinternal = bits(191, 128)
    valimitinternal = bits(255, 192)
    bigpagesize = bits(287, 256)
    vabase = bits(383, 320)


class VaspaceAlloc(VaspaceAlloc550, size_bytes=56):
    """NV_VASPACE_ALLOCATION_PARAMETERS"""

    pasid = bits(415, 384)


class ChannelGroupAlloc(Args, size_bytes=20):
    """NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS"""

    hobjecterror = bits(31, 0)
    hobjecteccerror = bits(63, 32)
    hvaspace = bits(95, 64)
    enginetype = bits(127, 96)
    biscallingcontextvgpuplugin = bits(135, 128)


class ContextShareAlloc(Args, size_bytes=12):
    """NV_CTXSHARE_ALLOCATION_PARAMETERS"""

    hvaspace = bits(31, 0)
    flags = bits(63, 32)
    subctxid = bits(95, 64)


# NV_MEMORY_DESC_PARAMS
_MEMORY = {
    "_base": bits(63, 0),
    "_size": bits(127, 64),
    "_addressspace": bits(159, 128),
    "_cacheattrib": bits(191, 160),
}


def _memory(name: str, start: int) -> dict[str, Bits]:
    return placed(start, {name + part: field for part, field in _MEMORY.items()})


# NV_CHANNEL_ALLOC_PARAMS behind the handles of USERD
_CHANNEL_REST = {
    **repeated(range(0, 512, 64), {"userdoffset_{i}": bits(63, 0)}),
    "enginetype": bits(543, 512),
    "cid": bits(575, 544),
    "subdeviceid": bits(607, 576),
    "hobjecteccerror": bits(639, 608),
    **_memory("instancemem", 640),
    **_memory("userdmem", 832),
    **_memory("ramfcmem", 1024),
    **_memory("mthdbufmem", 1216),
    "hphyschannelgroup": bits(1439, 1408),
    "internalflags": bits(1471, 1440),
    **_memory("errornotifiermem", 1472),
    **_memory("eccerrornotifiermem", 1664),
    "processid": bits(1887, 1856),
    "subprocessid": bits(1919, 1888),
    **repeated(range(1920, 2016, 32), {"encryptiv_{i}": bits(31, 0)}),
    **repeated(range(2016, 2112, 32), {"decryptiv_{i}": bits(31, 0)}),
    **repeated(range(2112, 2368, 32), {"hmacnonce_{i}": bits(31, 0)}),
}


class ChannelAlloc550(Args, size_bytes=360):
    """NV_CHANNEL_ALLOC_PARAMS, before 570"""

    hobjecterror = bits(31, 0)
    hobjectbuffer = bits(63, 32)
    gpfifooffset = bits(127, 64)
    gpfifoentries = bits(159, 128)
    flags = bits(191, 160)
    hcontextshare = bits(223, 192)
    hvaspace = bits(255, 224)
    huserdmemory = repeated(range(256, 512, 32), {"huserdmemory_{i}": bits(31, 0)})
    rest = placed(512, _CHANNEL_REST)


class ChannelAlloc(ChannelAlloc550, size_bytes=368):
    """NV_CHANNEL_ALLOC_PARAMS"""

    tpcconfigid = bits(2911, 2880)


class ChannelAlloc610(ChannelAlloc, size_bytes=376):
    """NV_CHANNEL_ALLOC_PARAMS, from 610: an address space by handle before the USERD handles"""

    hhandlevaspace = bits(287, 256)
    huserdmemory = repeated(range(288, 544, 32), {"huserdmemory_{i}": bits(31, 0)})
    rest = placed(576, _CHANNEL_REST)
    tpcconfigid = bits(2975, 2944)


class UsermodeAlloc(Args, size_bytes=2):
    """NV_HOPPER_USERMODE_A_PARAMS"""

    bbar1mapping = bits(7, 0)
    bpriv = bits(15, 8)


class CopyAlloc(Args, size_bytes=8):
    """NVB0B5_ALLOCATION_PARAMETERS"""

    version = bits(31, 0)
    enginetype = bits(63, 32)


# ------------------------------------------------------------ control calls


class GpuGetIdInfoV2(Args, size_bytes=32):
    """NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS"""

    gpuid = bits(31, 0)
    gpuflags = bits(63, 32)
    deviceinstance = bits(95, 64)
    subdeviceinstance = bits(127, 96)
    slistatus = bits(159, 128)
    boardid = bits(191, 160)
    gpuinstance = bits(223, 192)
    numaid = bits(255, 224)


class GpuGetClasslistV2550(Args, size_bytes=700):
    """NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS, before 555"""

    numclasses = bits(31, 0)
    classlist = bits(5599, 32)


class GpuGetClasslistV2555(Args, size_bytes=404):
    """NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS, before 580"""

    numclasses = bits(31, 0)
    classlist = bits(3231, 32)


class GpuGetClasslistV2(Args, size_bytes=804):
    """NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS"""

    numclasses = bits(31, 0)
    classlist = bits(6431, 32)


class GpuGetGidInfo(Args, size_bytes=268):
    """NV2080_CTRL_GPU_GET_GID_INFO_PARAMS"""

    index = bits(31, 0)
    flags = bits(63, 32)
    length = bits(95, 64)
    data = bits(2143, 96)


class McGetArchInfo(Args, size_bytes=16):
    """NV2080_CTRL_MC_GET_ARCH_INFO_PARAMS"""

    architecture = bits(31, 0)
    implementation = bits(63, 32)
    revision = bits(95, 64)
    subrevision = bits(103, 96)


class GrGetInfo(Args, size_bytes=32):
    """NV2080_CTRL_GR_GET_INFO_PARAMS"""

    grinfolistsize = bits(31, 0)
    grinfolist = bits(127, 64)
    grrouteinfo_flags = bits(159, 128)
    grrouteinfo_route = bits(255, 192)


class FbGetInfoV2550(Args, size_bytes=444):
    """NV2080_CTRL_FB_GET_INFO_V2_PARAMS, before 560"""

    fbinfolistsize = bits(31, 0)
    fbinfolist = bits(3551, 32)


class FbGetInfoV2560(Args, size_bytes=460):
    """NV2080_CTRL_FB_GET_INFO_V2_PARAMS, before 580"""

    fbinfolistsize = bits(31, 0)
    fbinfolist = bits(3679, 32)


class FbGetInfoV2(Args, size_bytes=1028):
    """NV2080_CTRL_FB_GET_INFO_V2_PARAMS"""

    fbinfolistsize = bits(31, 0)
    fbinfolist = bits(8223, 32)


class PerfBoost(Args, size_bytes=8):
    """NV2080_CTRL_PERF_BOOST_PARAMS"""

    flags = bits(31, 0)
    duration = bits(63, 32)


class GetWorkSubmitToken(Args, size_bytes=4):
    """NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS"""

    worksubmittoken = bits(31, 0)


class GpfifoSchedule550(Args, size_bytes=2):
    """NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS, before 575"""

    benable = bits(7, 0)
    bskipsubmit = bits(15, 8)


class GpfifoSchedule(GpfifoSchedule550, size_bytes=3):
    """NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS"""

    bskipenable = bits(23, 16)
