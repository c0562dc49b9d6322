"""What drivers other than ours ask of the resource manager: calls that bring-up does without.

In       the same files and objects
Out      structures of these calls, and their answers
Changes  nothing that a channel sees
Next     rm_calls.py and rm_controls.py (the calls of bring-up)
Source   nvos.h, ctrl0000.h, ctrl0080.h, ctrl2080.h, ctrla06f.h: 580.142; 550 to 595 compared

A driver that runs on hardware and runs here is a second opinion on both.
"""

from __future__ import annotations

import struct
from typing import Any

from hcq.emu.nv.rm_controls import Call, nothing
from hcq.emu.nv.rm_objects import Memory, RmObject, VirtualMemory
from hcq.emu.nv.rm_state import Escape, Reply, RmFile
from hcq.layout import bits
from hcq.nv.abi.args import Args
from hcq.nv.abi.status import NvStatus


class MapMemoryDma550(Args, size_bytes=56):
    """NVOS46_PARAMETERS, before 580"""

    hclient = bits(31, 0)
    hdevice = bits(63, 32)
    hdma = bits(95, 64)
    hmemory = bits(127, 96)
    offset = bits(191, 128)
    length = bits(255, 192)
    flags = bits(287, 256)
    dmaoffset = bits(383, 320)
    status = bits(415, 384)


class MapMemoryDma(MapMemoryDma550, size_bytes=64):
    """NVOS46_PARAMETERS"""

    flags2 = bits(319, 288)
    kindoverride = bits(351, 320)
    dmaoffset = bits(447, 384)
    status = bits(479, 448)


class UnmapMemoryDma(Args, size_bytes=48):
    """NVOS47_PARAMETERS"""

    hclient = bits(31, 0)
    hdevice = bits(63, 32)
    hdma = bits(95, 64)
    hmemory = bits(127, 96)
    flags = bits(159, 128)
    dmaoffset = bits(255, 192)
    size = bits(319, 256)
    status = bits(351, 320)


class VirtualMemoryAlloc(Args, size_bytes=24):
    """NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS"""

    offset = bits(63, 0)
    limit = bits(127, 64)
    hvaspace = bits(159, 128)


class BuildVersionV2550(Args, size_bytes=776):
    """NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS, before 570"""

    driverversion = bits(2047, 0)
    version = bits(4095, 2048)
    title = bits(6143, 4096)
    changelist = bits(6175, 6144)
    officialchangelist = bits(6207, 6176)


class BuildVersionV2(BuildVersionV2550, size_bytes=1032):
    """NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS"""

    branch = bits(6143, 4096)
    title = bits(8191, 6144)
    changelist = bits(8223, 8192)
    officialchangelist = bits(8255, 8224)


class Classlist(Args, size_bytes=16):
    """NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS"""

    numclasses = bits(31, 0)
    classlist = bits(127, 64)


class FlushGpuCache(Args, size_bytes=4024):
    """NV2080_CTRL_FB_FLUSH_GPU_CACHE_PARAMS"""

    addresses = bits(31999, 0)
    addressarraysize = bits(32031, 32000)
    addressalign = bits(32063, 32032)
    memblocksizebytes = bits(32127, 32064)
    flags = bits(32159, 32128)


class Bind(Args, size_bytes=4):
    """NVA06F_CTRL_BIND_PARAMS"""

    enginetype = bits(31, 0)


# ------------------------------------------------------------ escapes


def map_memory_dma(file: RmFile, given: Any) -> dict[str, int]:
    """Maps into the resource manager's own address space, which no channel here uses: checked, and that is all."""
    client = file.client(given.hclient)
    client.find(given.hdevice, RmObject)
    client.find(given.hdma, VirtualMemory, NvStatus.NV_ERR_INVALID_OBJECT_HANDLE)
    client.find(given.hmemory, Memory, NvStatus.NV_ERR_INVALID_OBJECT_HANDLE)
    return {}


# ------------------------------------------------------------ controls


def build_version(call: Call) -> dict[str, int]:
    """The driver's release as text."""
    text = int.from_bytes(call.rm.version.encode(), "little")
    return {"driverversion": text, "version": text, "title": text}


def class_list(call: Call) -> dict[str, int]:
    """Asked twice: for the number, then for a list of that length in the caller's memory."""
    classes = sorted(call.gpu.classes)
    if call.params.classlist:
        count = min(call.params.numclasses, len(classes))
        call.process.write(call.params.classlist, struct.pack(f"<{count}I", *classes[:count]))
    return {"numclasses": len(classes)}


def layouts_of(release: int) -> dict[str, type[Args]]:
    """The structures of these calls in a release, by name."""
    return {
        "BuildVersionV2": BuildVersionV2 if release >= 570 else BuildVersionV2550,
        "MapMemoryDma": MapMemoryDma if release >= 580 else MapMemoryDma550,
        "UnmapMemoryDma": UnmapMemoryDma,
        "VirtualMemoryAlloc": VirtualMemoryAlloc,
        "Classlist": Classlist,
        "FlushGpuCache": FlushGpuCache,
        "Bind": Bind,
    }


REPLIES = {
    0x0000013E: Reply("BuildVersionV2", build_version),
    0x00800201: Reply("Classlist", class_list),
    0x2080130E: Reply("FlushGpuCache", nothing),
    0xA06C0102: Reply("Bind", nothing),
    0xA06F0104: Reply("Bind", nothing),
}
ESCAPES = {
    0x57: Escape("MapMemoryDma", map_memory_dma),
    0x58: Escape("UnmapMemoryDma", map_memory_dma),
}
