"""The same few kernels as machine code for an AMD GPU or PTX for one of NVIDIA.

In       a device, or an architecture
Out      an image to load on it; `works(gpu)`, whether it computes and copies
Next     ../amd/kernels.py, ../nv/kernels.py (the sources)
"""

from __future__ import annotations

import struct

from hcq.gpu.device import GpuDevice
from tests.hcq.amd import kernels as amd
from tests.hcq.nv import kernels as nv


def image(gpu: GpuDevice | str) -> bytes:
    """The kernels for a device, or for an architecture."""
    arch = gpu if isinstance(gpu, str) else gpu.arch
    return amd.image(arch) if arch.startswith("gfx") else nv.image(arch)


def works(gpu: GpuDevice) -> None:
    """The device computes and copies."""
    a, b = gpu.alloc(256), gpu.alloc(256)
    a.write(bytes(256))
    program = gpu.load(image(gpu), "increment")
    gpu.queue().dispatch(program, [a], block=(64, 1, 1)).copy(b, a).submit().wait(timeout_ms=50_000)
    assert struct.unpack("<64I", b.read()) == (1,) * 64
