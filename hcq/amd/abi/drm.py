"""The render node's own ioctl: facts of a GPU that the topology does not have, the speed of its counter above all.

In       an open render node
Out      the GPU counter's ticks in a millisecond
Changes  nothing
Next     device.py (who asks), signals.py (what it is for)
Source   drm/amdgpu_drm.h: DRM_AMDGPU_INFO, AMDGPU_INFO_DEV_INFO, drm_amdgpu_info_device
"""

from __future__ import annotations

import struct

from hcq import native
from hcq.errors import DriverError
from hcq.layout import SparsePacket, bits
from hcq.port import Port, refused

INFO_REQUEST = 0x40206445
DEV_INFO = 0x16
INFO_DEVICE_BYTES = 440
GPU_COUNTER_FREQ_AT = 28  # kHz, which is ticks in a millisecond


class Info(SparsePacket, words=8):
    """drm_amdgpu_info: where the answer goes, and what is asked."""

    return_pointer = bits(63, 0)
    return_size = bits(95, 64)
    query = bits(127, 96)


def counter_ticks_per_ms(port: Port, drm_fd: int) -> int:
    """How fast the GPU's counter goes."""
    answer = bytearray(INFO_DEVICE_BYTES)
    what = Info(return_pointer=native.address_of(answer), return_size=len(answer), query=DEV_INFO)
    try:
        port.ioctl(drm_fd, INFO_REQUEST, bytearray(what.to_bytes()))
    except DriverError as error:
        raise refused(f"DRM_IOCTL_AMDGPU_INFO({what!r})", error.errno or 0) from None
    speed: int = struct.unpack_from("<I", answer, GPU_COUNTER_FREQ_AT)[0]
    if not speed:
        raise DriverError(
            "DRM_IOCTL_AMDGPU_INFO says the GPU's counter stands still. Update the amdgpu kernel driver."
        )
    return speed
