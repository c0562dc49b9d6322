"""Modules of an AMD GPU: an AMDGPU object in its memory.

In       the object as link.py has laid it out
Out      AmdModule: AmdPrograms of its entries, its variables
Changes  a block of executable memory, scratch memory of the device
Next     link.py (relocations, checks), program.py (arguments), launch.py (registers), hcq/gpu/module.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.amd import hidden
from hcq.amd.launch import Launcher, scratch_lane_bytes
from hcq.amd.link import Linked
from hcq.amd.program import AmdProgram
from hcq.errors import UsageError
from hcq.gpu.module import GpuModule

if TYPE_CHECKING:
    from hcq.amd.device import AmdDevice

CONSTRUCTORS = "amdgcn.device.init"  # a kernel that clang adds: it gives variables their first values
UNSERVED = {
    "heap_v1": "malloc or free, of a heap on the device, which this driver does not serve",
    "printf_buffer": "OpenCL's printf, whose buffer this driver does not serve",
    "default_queue": "a queue for kernels that it starts itself, which this driver does not serve",
    "completion_action": "a queue for kernels that it starts itself, which this driver does not serve",
}
ADVICE = "Pass it a buffer instead; HIP's printf is served."


class AmdModule(GpuModule):
    """An object that is loaded."""

    device: AmdDevice

    def __init__(self, device: AmdDevice, name: str, image: bytes, linked: Linked) -> None:
        places = {key: (one.offset, one.size_bytes) for key, one in linked.variables.items()}
        super().__init__(device, name, image, tuple(linked.kernels), places)
        self.linked, self.has_writable = linked, linked.has_writable
        self.code, self.va = device._alloc_aligned(linked.size_bytes, linked.alignment, f"{name} code")
        self.code.write(linked.place(self.va), self.va - self.code.address)
        device.note_code()
        if CONSTRUCTORS in linked.kernels:
            device.run(self.program(CONSTRUCTORS), [])

    def make(self, entry: str, args: tuple[str, ...] | None, name: str) -> AmdProgram:
        device, linked = self.device, self.linked
        kernel = linked.kernels[entry]
        needs = hidden.used(linked, kernel)
        for kind, what in UNSERVED.items():
            if kind in needs:
                raise UsageError(
                    f"load({name!r}): {entry} uses {what} (its argument hidden_{kind}). {ADVICE}"
                )
        bases = device.bases
        if "hostcall_buffer" in needs:
            bases["hostcall_buffer"] = device.hostcalls().va
        scratch = device.scratch_for(scratch_lane_bytes(kernel.descriptor), linked.lanes(kernel))
        launcher = Launcher(device.chip, device.is_aql, kernel, self.va, scratch, device.queue_va)
        made = AmdProgram(device, name, self.va, launcher, bases, args, self.code)
        if b".debug_line" in self.image:
            made.debug_image = self.image
        return made
