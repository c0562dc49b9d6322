"""Metal's GPUs, as far as they can be examined before our driver opens one.

In       the host
Out      which GPUs are here; the check driver; the doctor's kernel
Next     hcq/doctor/subject.py (what is asked), objc.py (how Metal is asked)
"""

from __future__ import annotations

from hcq.doctor.check import Found
from hcq.doctor.host import Host
from hcq.doctor.kernels import ENTRY, Tiny
from hcq.doctor.subject import Subject
from hcq.errors import HcqError
from hcq.metal.gpus import copy_gpus
from hcq.metal.objc import Objc
from hcq.system.port import Port

GROUP = 64
KERNEL = f"""\
#include <metal_stdlib>
using namespace metal;

kernel void {ENTRY}(
    device uint *out [[buffer(0)]], device const uint *a [[buffer(1)]], uint i [[thread_position_in_grid]]) {{
  out[i] = 3 * a[i] + i;
}}
"""


class MetalSubject(Subject):
    """Apple's GPUs. There is no file to open: Metal's framework asks the kernel."""

    def names(self, host: Host) -> list[str]:
        """One for each GPU that Metal lists; none where there is no Metal."""
        try:
            objc = Objc(host)
            gpus = copy_gpus(objc)
            for gpu in gpus:
                objc.release(gpu)
        except HcqError:
            return []
        return [self.name if index == 0 else f"{self.name}:{index}" for index in range(len(gpus))]

    def absence(self) -> str:
        """Metal is a part of macOS."""
        return "no Metal framework here"

    def driver(self, port: Port, kernel: str) -> Found:
        return Found(f"Metal of {kernel}")

    def kernel(self, arch: str) -> Tiny | None:
        return Tiny(KERNEL.encode(), GROUP)


DOCTOR = MetalSubject("METAL", "Metal")
