"""The same few kernels as machine code for an AMD GPU or PTX for one of NVIDIA.

In       a device
Out      an image to load on it
Changes  nothing
Next     ../amd/kernels.py, ../nv/kernels.py (the sources)
"""

from __future__ import annotations

from hcq.gpu.device import GpuDevice
from tests.hcq.amd import kernels as amd
from tests.hcq.nv import kernels as nv


def image(gpu: GpuDevice) -> bytes:
    return amd.image(gpu.arch) if gpu.arch.startswith("gfx") else nv.image(gpu.arch)
