"""OpenCL to the doctor: which devices are here, and the kernel that every kind of device has.

In       the loader of OpenCL, where there is one
Out      the doctor's Subject
Next     hcq/doctor/subject.py (what else a device could tell), hcq/doctor/kernels.py (what the kernel computes)
"""

from __future__ import annotations

from hcq.doctor.host import Host
from hcq.doctor.kernels import ENTRY, Tiny
from hcq.doctor.subject import Subject
from hcq.errors import DriverError
from hcq_opencl import api
from hcq_opencl.packets import ARCH

GROUP = 16  # work-items
KERNEL = f"""
kernel void {ENTRY}(global uint *out, global const uint *a) {{
    size_t i = get_global_id(0);
    out[i] = 3 * a[i] + (uint)i;
}}
"""


class OpenClSubject(Subject):
    """It needs no file and no permission, but a loader and an implementation behind it."""

    def names(self, host: Host) -> list[str]:
        try:
            count = len(api.OpenCl().devices())
        except DriverError:
            return []
        return [self.name if index == 0 else f"{self.name}:{index}" for index in range(count)]

    def absence(self) -> str:
        return api.NONE

    def kernel(self, arch: str) -> Tiny | None:
        return Tiny(KERNEL.encode(), GROUP) if arch == ARCH else None


DOCTOR = OpenClSubject("OPENCL")
