"""The toy to the doctor: nothing has to be there for it, and a kernel that needs no compiler.

In       an architecture
Out      the doctor's kernel
Next     hcq/doctor/subject.py (what else a device could tell)
"""

from __future__ import annotations

from hcq.doctor.kernels import ENTRY, Tiny
from hcq.doctor.subject import Subject
from toy.packets import ARCH

KERNEL = f"""
def {ENTRY}(machine, args, first, last):
    out, a, count = args
    for i in range(count):
        machine.store("uint32", out, i, (3 * machine.load("uint32", a, i) + i) % 2**32)
"""


class ToySubject(Subject):
    """It is always here."""

    def kernel(self, arch: str) -> Tiny | None:
        return Tiny(KERNEL.encode(), 0) if arch == ARCH else None


DOCTOR = ToySubject("TOY")
