"""What drivers other than ours ask of the resource manager: calls that bring-up does without.

In       the same files and objects
Out      answers to these calls
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
from hcq.nv.abi.status import NvStatus

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


REPLIES = {
    0x0000013E: Reply("BuildVersionV2", build_version),
    0x00800201: Reply("Classlist", class_list),
    0x2080130E: Reply("FlushGpuCache", nothing),
    0xA06C0102: Reply("Bind", nothing),
    0xA06F0104: Reply("Bind", nothing),
}
ESCAPES = {0x57: Escape("MapMemoryDma", map_memory_dma), 0x58: Escape("UnmapMemoryDma", map_memory_dma)}
