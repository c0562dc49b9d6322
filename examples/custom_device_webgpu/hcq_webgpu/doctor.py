"""WebGPU to the doctor: which adapters are here, and the kernel that every kind of device has.

In       the wgpu package, where it is installed
Out      the doctor's Subject
Next     hcq/doctor/subject.py (what else a device could tell), hcq/doctor/kernels.py (what the kernel computes)
"""

from __future__ import annotations

from hcq.doctor.host import Host
from hcq.doctor.kernels import ENTRY, Tiny
from hcq.doctor.subject import Subject
from hcq.errors import DriverError
from hcq_webgpu import api
from hcq_webgpu.packets import ARCHS

GROUP = 16  # invocations
KERNEL = f"""
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read_write> a: array<u32>;

@compute @workgroup_size({GROUP})
fn {ENTRY}(@builtin(global_invocation_id) id: vec3<u32>) {{
  out[id.x] = 3u * a[id.x] + id.x;
}}
"""


class WebGpuSubject(Subject):
    """It needs the wgpu package, and a driver of Vulkan, Metal or Direct3D 12 behind it."""

    def names(self, host: Host) -> list[str]:
        try:
            count = len(api.adapters())
        except DriverError:
            return []
        return [self.name if index == 0 else f"{self.name}:{index}" for index in range(count)]

    def absence(self) -> str:
        return api.NONE

    def kernel(self, arch: str) -> Tiny | None:
        return Tiny(KERNEL.encode(), GROUP) if arch in ARCHS else None


DOCTOR = WebGpuSubject("WEBGPU")
