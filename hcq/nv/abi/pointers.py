"""Pointers in the calls of NVIDIA's kernel drivers: what leads where, how many there are.

In       a request and its argument
Out      its pointers: to what a control or an allocation takes, and from there on to the lists of old controls
Next     hcq/system/ioctl_pointers.py (follows them), ioctls.py (which structure each control takes), tools/trace/
         (shows it)
Source   nvos.h; embedded_param_copy.c names every control with a pointer in its structure (no new one may be added);
         ctrl*.h have the structures. 580.142 and 595.45.04 compared

Left out: SYSTEM_GET_P2P_CAPS (0x127) and I2C, which no compute program asks. UVM's structures have addresses of memory
that it manages, and none that it reads a structure from. The same holds for RM_ALLOC_MEMORY (pMemory is the memory that
becomes the object) and for what mappings return.
"""

from __future__ import annotations

from hcq.nv.abi import ioctls
from hcq.nv.abi.structures import structure
from hcq.system.ioctl_pointers import Pointer

MAGIC = ord("F")
RM_CONTROL, RM_ALLOC, RM_IDLE_CHANNELS, RM_GET_EVENT_DATA = 0x2A, 0x2B, 0x41, 0x52  # escapes
NVOS21_BYTES = 32  # RM_ALLOC as it was before rights could be asked for; the kernel takes both
RIGHTS_BYTES = 4  # RS_ACCESS_MASK


def _list(name: str, entry_bytes: int) -> tuple[Pointer, ...]:
    """The usual form: how many, then, aligned, where."""
    return (Pointer(name, 8, entry_bytes, count_at=0),)


def _caps(name: str = "capstbl") -> tuple[Pointer, ...]:
    return _list(name, 1)


# control -> pointers in its structure
EMBEDDED: dict[int, tuple[Pointer, ...]] = {
    0x00000602: (Pointer("pbuffer", 0, 1, count_at=12),),  # NV0000 NVD_GET_DUMP
    0x00410110: _list("surfaceinfolist", 8),  # NV0041 GET_SURFACE_INFO
    0x00800201: _list("classlist", 4),  # NV0080 GPU_GET_CLASSLIST
    0x00801102: _caps(),  # NV0080 GR_GET_CAPS
    0x00801104: _list("grinfolist", 8),  # NV0080 GR_GET_INFO
    0x00801301: _caps(),  # NV0080 FB_GET_CAPS
    0x00801401: _caps(),  # NV0080 HOST_GET_CAPS
    0x00801701: _caps(),  # NV0080 FIFO_GET_CAPS
    0x0080170D: (  # NV0080 FIFO_GET_CHANNELLIST
        Pointer("pchannelhandlelist", 8, 4, count_at=0),
        Pointer("pchannellist", 16, 4, count_at=0),
    ),
    0x00801B01: _caps(),  # NV0080 MSENC_GET_CAPS
    0x20800122: (Pointer("regops", 24, 32, count_at=20),),  # NV2080 GPU_EXEC_REG_OPS
    0x20800123: _list("enginelist", 4),  # NV2080 GPU_GET_ENGINES
    0x20800124: (Pointer("classlist", 8, 4, count_at=4),),  # NV2080 GPU_GET_ENGINE_CLASSLIST
    0x20800802: _list("biosinfolist", 8),  # NV2080 BIOS_GET_INFO
    0x20801201: _list("grinfolist", 8),  # NV2080 GR_GET_INFO
    0x20801301: _list("fbinfolist", 8),  # NV2080 FB_GET_INFO
    0x20801802: _list("businfolist", 8),  # NV2080 BUS_GET_INFO
    0x20802204: (Pointer("bufferptr", 16, 1, count_at=24),),  # NV2080 RC_READ_VIRTUAL_MEM
    0x20802402: (Pointer("pbuffer", 0, 1, count_at=12),),  # NV2080 NVD_GET_DUMP
    0x20802A01: (Pointer("capstbl", 8, 1, count_at=4),),  # NV2080 CE_GET_CAPS
    0x83DE0315: (Pointer("buffer", 16, 1, count_at=4),),  # NV83DE DEBUG_READ_MEMORY
    0x83DE0316: (Pointer("buffer", 16, 1, count_at=4),),  # NV83DE DEBUG_WRITE_MEMORY
    0x83DE0326: (Pointer("pdata", 0, 1, count_at=8),),  # NV83DE DEBUG_READ_BATCH_MEMORY
    0x83DE0327: (Pointer("pdata", 0, 1, count_at=8),),  # NV83DE DEBUG_WRITE_BATCH_MEMORY
    0xB06F010C: (Pointer("penginectxbuff", 8, 1, count_at=4),),  # NVB06F GET_ENGINE_CTX_DATA
    0xB06F010D: (Pointer("penginectxbuff", 8, 1, count_at=4),),  # NVB06F MIGRATE_ENGINE_CTX_DATA
}


def pointers_of(request: int, argument: bytes) -> tuple[Pointer, ...]:
    """The pointers in a call's argument; none for a call that has none, for UVM's, and for what is not NVIDIA's."""
    if request >> 8 & 0xFF != MAGIC:
        return ()
    number = request & 0xFF
    if number == RM_CONTROL:
        control, size = (int.from_bytes(argument[at : at + 4], "little") for at in (8, 24))
        return (Pointer("params", 16, size, inside=EMBEDDED.get(control, ())),)
    if number == RM_ALLOC:
        return _allocation(argument)
    if number == RM_IDLE_CHANNELS:  # NVOS30_PARAMETERS
        return tuple(
            Pointer(name, at, 4, count_at=12)
            for name, at in (("phclients", 16), ("phdevices", 24), ("phchannels", 32))
        )
    if number == RM_GET_EVENT_DATA:  # NVOS41_PARAMETERS: an NvUnixEvent
        return (Pointer("pevent", 0, 16),)
    return ()


def _allocation(argument: bytes) -> tuple[Pointer, ...]:
    """What the object is made with. A caller that leaves the size out means that of the class."""
    is_old = len(argument) <= NVOS21_BYTES
    size_at = 24 if is_old else 32
    size = int.from_bytes(argument[size_at : size_at + 4], "little")
    if not size:
        name = ioctls.ALLOCATIONS.get(int.from_bytes(argument[12:16], "little"), "")
        size = structure(name).size_bytes if name else 0
    parameters = Pointer("pallocparms", 16, size)
    return (parameters,) if is_old else (parameters, Pointer("prightsrequested", 24, RIGHTS_BYTES))
