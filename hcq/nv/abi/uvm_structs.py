"""UVM structures: the calls of /dev/nvidia-uvm that own a GPU's address space.

In       fields by name, the kernel's names in lower case; a nested structure's fields follow its name
Out      Args classes, one for each structure and each layout it has had
Changes  nothing
Next     ioctls.py (which driver release takes which)
Source   uvm_ioctl.h, uvm_types.h of the open kernel module 580.142; 550 to 595 compared
"""

from __future__ import annotations

from hcq.layout import bits, repeated
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
    pergpuattributes = repeated(
        range(192, 2496, 288),
        {
            "pergpuattributes_{i}_gpuuuid": bits(127, 0),
            "pergpuattributes_{i}_gpumappingtype": bits(159, 128),
            "pergpuattributes_{i}_gpucachingtype": bits(191, 160),
            "pergpuattributes_{i}_gpuformattype": bits(223, 192),
            "pergpuattributes_{i}_gpuelementbits": bits(255, 224),
            "pergpuattributes_{i}_gpucompressiontype": bits(287, 256),
        },
    )
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
