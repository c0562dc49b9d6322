"""UVM structures: the calls of /dev/nvidia-uvm that own a GPU's address space.

In       fields by name, the kernel's names in lower case; a nested structure's fields follow its name
Out      Args classes, one for each structure and each layout it has had
Changes  nothing
Next     abi.py (which driver release takes which)
Source   uvm_ioctl.h, uvm_types.h of the open kernel module 580.142; 550 to 595 compared
"""

from __future__ import annotations

from hcq.layout import bits
from hcq.nv.abi.args import Args


class UvmInitialize(Args, size_bytes=16):
    """UVM_INITIALIZE_PARAMS"""

    flags = bits(63, 0)
    rmstatus = bits(95, 64)


class UvmMmInitialize(Args, size_bytes=8):
    """UVM_MM_INITIALIZE_PARAMS"""

    uvmfd = bits(31, 0)
    rmstatus = bits(63, 32)


class UvmRegisterGpu(Args, size_bytes=40):
    """UVM_REGISTER_GPU_PARAMS"""

    gpu_uuid = bits(127, 0)
    numaenabled = bits(135, 128)
    numanodeid = bits(191, 160)
    rmctrlfd = bits(223, 192)
    hclient = bits(255, 224)
    hsmcpartref = bits(287, 256)
    rmstatus = bits(319, 288)


class UvmUnregisterGpu(Args, size_bytes=20):
    """UVM_UNREGISTER_GPU_PARAMS"""

    gpu_uuid = bits(127, 0)
    rmstatus = bits(159, 128)


class UvmRegisterGpuVaspace(Args, size_bytes=32):
    """UVM_REGISTER_GPU_VASPACE_PARAMS"""

    gpuuuid = bits(127, 0)
    rmctrlfd = bits(159, 128)
    hclient = bits(191, 160)
    hvaspace = bits(223, 192)
    rmstatus = bits(255, 224)


class UvmUnregisterGpuVaspace(Args, size_bytes=20):
    """UVM_UNREGISTER_GPU_VASPACE_PARAMS"""

    gpuuuid = bits(127, 0)
    rmstatus = bits(159, 128)


class UvmRegisterChannel(Args, size_bytes=56):
    """UVM_REGISTER_CHANNEL_PARAMS"""

    gpuuuid = bits(127, 0)
    rmctrlfd = bits(159, 128)
    hclient = bits(191, 160)
    hchannel = bits(223, 192)
    base = bits(319, 256)
    length = bits(383, 320)
    rmstatus = bits(415, 384)


class UvmUnregisterChannel550(Args, size_bytes=28):
    """UVM_UNREGISTER_CHANNEL_PARAMS, before 590"""

    gpuuuid = bits(127, 0)
    hclient = bits(159, 128)
    hchannel = bits(191, 160)
    rmstatus = bits(223, 192)


class UvmUnregisterChannel(Args, size_bytes=12):
    """UVM_UNREGISTER_CHANNEL_PARAMS"""

    hclient = bits(31, 0)
    hchannel = bits(63, 32)
    rmstatus = bits(95, 64)


class UvmCreateExternalRange(Args, size_bytes=24):
    """UVM_CREATE_EXTERNAL_RANGE_PARAMS"""

    base = bits(63, 0)
    length = bits(127, 64)
    rmstatus = bits(159, 128)


class UvmMapExternalAllocation(Args, size_bytes=9264):
    """UVM_MAP_EXTERNAL_ALLOCATION_PARAMS: of its 256 GPUs the first 8 are declared"""

    base = bits(63, 0)
    length = bits(127, 64)
    offset = bits(191, 128)
    pergpuattributes_0_gpuuuid = bits(319, 192)
    pergpuattributes_0_gpumappingtype = bits(351, 320)
    pergpuattributes_0_gpucachingtype = bits(383, 352)
    pergpuattributes_0_gpuformattype = bits(415, 384)
    pergpuattributes_0_gpuelementbits = bits(447, 416)
    pergpuattributes_0_gpucompressiontype = bits(479, 448)
    pergpuattributes_1_gpuuuid = bits(607, 480)
    pergpuattributes_1_gpumappingtype = bits(639, 608)
    pergpuattributes_1_gpucachingtype = bits(671, 640)
    pergpuattributes_1_gpuformattype = bits(703, 672)
    pergpuattributes_1_gpuelementbits = bits(735, 704)
    pergpuattributes_1_gpucompressiontype = bits(767, 736)
    pergpuattributes_2_gpuuuid = bits(895, 768)
    pergpuattributes_2_gpumappingtype = bits(927, 896)
    pergpuattributes_2_gpucachingtype = bits(959, 928)
    pergpuattributes_2_gpuformattype = bits(991, 960)
    pergpuattributes_2_gpuelementbits = bits(1023, 992)
    pergpuattributes_2_gpucompressiontype = bits(1055, 1024)
    pergpuattributes_3_gpuuuid = bits(1183, 1056)
    pergpuattributes_3_gpumappingtype = bits(1215, 1184)
    pergpuattributes_3_gpucachingtype = bits(1247, 1216)
    pergpuattributes_3_gpuformattype = bits(1279, 1248)
    pergpuattributes_3_gpuelementbits = bits(1311, 1280)
    pergpuattributes_3_gpucompressiontype = bits(1343, 1312)
    pergpuattributes_4_gpuuuid = bits(1471, 1344)
    pergpuattributes_4_gpumappingtype = bits(1503, 1472)
    pergpuattributes_4_gpucachingtype = bits(1535, 1504)
    pergpuattributes_4_gpuformattype = bits(1567, 1536)
    pergpuattributes_4_gpuelementbits = bits(1599, 1568)
    pergpuattributes_4_gpucompressiontype = bits(1631, 1600)
    pergpuattributes_5_gpuuuid = bits(1759, 1632)
    pergpuattributes_5_gpumappingtype = bits(1791, 1760)
    pergpuattributes_5_gpucachingtype = bits(1823, 1792)
    pergpuattributes_5_gpuformattype = bits(1855, 1824)
    pergpuattributes_5_gpuelementbits = bits(1887, 1856)
    pergpuattributes_5_gpucompressiontype = bits(1919, 1888)
    pergpuattributes_6_gpuuuid = bits(2047, 1920)
    pergpuattributes_6_gpumappingtype = bits(2079, 2048)
    pergpuattributes_6_gpucachingtype = bits(2111, 2080)
    pergpuattributes_6_gpuformattype = bits(2143, 2112)
    pergpuattributes_6_gpuelementbits = bits(2175, 2144)
    pergpuattributes_6_gpucompressiontype = bits(2207, 2176)
    pergpuattributes_7_gpuuuid = bits(2335, 2208)
    pergpuattributes_7_gpumappingtype = bits(2367, 2336)
    pergpuattributes_7_gpucachingtype = bits(2399, 2368)
    pergpuattributes_7_gpuformattype = bits(2431, 2400)
    pergpuattributes_7_gpuelementbits = bits(2463, 2432)
    pergpuattributes_7_gpucompressiontype = bits(2495, 2464)
    gpuattributescount = bits(73983, 73920)
    rmctrlfd = bits(74015, 73984)
    hclient = bits(74047, 74016)
    hmemory = bits(74079, 74048)
    rmstatus = bits(74111, 74080)


class UvmUnmapExternal(Args, size_bytes=40):
    """UVM_UNMAP_EXTERNAL_PARAMS"""

    base = bits(63, 0)
    length = bits(127, 64)
    gpuuuid = bits(255, 128)
    rmstatus = bits(287, 256)


class UvmFree550(Args, size_bytes=24):
    """UVM_FREE_PARAMS, before 590"""

    base = bits(63, 0)
    length = bits(127, 64)
    rmstatus = bits(159, 128)


class UvmFree(Args, size_bytes=16):
    """UVM_FREE_PARAMS"""

    base = bits(63, 0)
    rmstatus = bits(95, 64)


class UvmEnablePeerAccess(Args, size_bytes=36):
    """UVM_ENABLE_PEER_ACCESS_PARAMS"""

    gpuuuida = bits(127, 0)
    gpuuuidb = bits(255, 128)
    rmstatus = bits(287, 256)


class UvmDisablePeerAccess(Args, size_bytes=36):
    """UVM_DISABLE_PEER_ACCESS_PARAMS"""

    gpuuuida = bits(127, 0)
    gpuuuidb = bits(255, 128)
    rmstatus = bits(287, 256)
