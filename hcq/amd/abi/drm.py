"""The render node's own ioctl: facts of a GPU that the topology does not have, the speed of its counter above all.

In       fields by name
Out      Info, the request, and where in the answer the counter's speed stands
Changes  nothing
Next     hcq/amd/ioctl.py (who asks), hcq/emu/amd/kfd.py (who answers when there is no GPU)
Source   drm/amdgpu_drm.h: DRM_AMDGPU_INFO, AMDGPU_INFO_DEV_INFO, drm_amdgpu_info_device
"""

from __future__ import annotations

from hcq.layout import SparsePacket, bits

INFO_REQUEST = 0x40206445
DEV_INFO = 0x16
INFO_DEVICE_BYTES = 440
GPU_COUNTER_FREQ_AT = 28  # kHz, which is ticks in a millisecond


class Info(SparsePacket, words=8):
    """drm_amdgpu_info: where the answer goes, and what is asked."""

    return_pointer = bits(63, 0)
    return_size = bits(95, 64)
    query = bits(127, 96)
