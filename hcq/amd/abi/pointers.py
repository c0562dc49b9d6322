"""Pointers in the calls of AMD's kernel drivers, of /dev/kfd and of render nodes: what leads where, how many there are.

In       a request and its argument
Out      its pointers
Next     hcq/system/ioctl_pointers.py (follows them), kfd.py and drm.py (the structures), tools/trace/ (shows what
         was there)
Source   linux/kfd_ioctl.h 1.17, drm/drm.h, drm/amdgpu_drm.h

Not followed: what only the GPU reads (rings, save areas), and what a debugger asks of another process (DBG_TRAP, CRIU).
"""

from __future__ import annotations

from hcq.amd.abi import kfd
from hcq.system.ioctl_pointers import Pointer

KFD, DRM = ord("K"), ord("d")  # the type byte of a request

# (type, number) of a request -> pointers; offsets are those of the header's structures
POINTERS: dict[tuple[int, int], tuple[Pointer, ...]] = {
    # WAIT_EVENTS: kfd_event_data
    (KFD, 0x0C): (Pointer("events_ptr", 0, 48, count_at=8, layout=kfd.EventData),),
    # GET_TILE_CONFIG: words; libhsakmt asks for 40 of each
    (KFD, 0x12): (
        Pointer("tile_config_ptr", 0, 4, count_at=16),
        Pointer("macro_tile_config_ptr", 8, 4, count_at=20),
    ),
    # GET_PROCESS_APERTURES_NEW: kfd_process_device_apertures; null asks for the number
    (KFD, 0x14): (
        Pointer("kfd_process_device_apertures_ptr", 0, 56, count_at=8, layout=kfd.ProcessDeviceApertures),
    ),
    # MAP_MEMORY_TO_GPU, UNMAP_MEMORY_FROM_GPU: ids of GPUs
    (KFD, 0x18): (Pointer("device_ids_array_ptr", 8, 4, count_at=16),),
    (KFD, 0x19): (Pointer("device_ids_array_ptr", 8, 4, count_at=16),),
    # SET_CU_MASK: num_cu_mask counts bits, and is a multiple of 32
    (KFD, 0x1A): (Pointer("cu_mask_ptr", 8, 4, count_at=4, per=32),),
    # GET_DMABUF_INFO
    (KFD, 0x1C): (Pointer("metadata_ptr", 8, 1, count_at=16),),
    # DRM_IOCTL_VERSION: texts, their lengths of 64 bits before them
    (DRM, 0x00): (
        Pointer("name", 24, 1, count_at=16),
        Pointer("date", 40, 1, count_at=32),
        Pointer("desc", 56, 1, count_at=48),
    ),
    # DRM_IOCTL_AMDGPU_CS: addresses of chunks, each with words
    (DRM, 0x44): (
        Pointer(
            "chunks",
            16,
            8,
            count_at=8,
            inside=(Pointer("chunk", 0, 16, inside=(Pointer("chunk_data", 8, 4, count_at=4),)),),
        ),
    ),
    # DRM_IOCTL_AMDGPU_INFO
    (DRM, 0x45): (Pointer("return_pointer", 0, 1, count_at=8),),
}


def pointers_of(request: int, argument: bytes) -> tuple[Pointer, ...]:
    """The pointers in a call's argument; none for a call that has none, or that is not AMD's."""
    return POINTERS.get((request >> 8 & 0xFF, request & 0xFF), ())
