"""Modules of an NVIDIA GPU: machine code in its memory, for an emulated one with the PTX beside it.

In       a bundle as link.py has laid it out
Out      NvModule: NvPrograms of its entries, its variables
Changes  a block of memory; local memory of the device
Next     link.py (the image), program.py (arguments), launch.py (QMD and constant bank 0), hcq/gpu/module.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq import backends
from hcq.errors import UsageError
from hcq.gpu.module import GpuModule
from hcq.nv.link import ALIGNMENT, Linked
from hcq.nv.program import NvProgram

if TYPE_CHECKING:
    from hcq.nv.device import NvDevice


class NvModule(GpuModule):
    """A bundle that is loaded."""

    device: NvDevice

    def __init__(self, device: NvDevice, name: str, image: bytes, linked: Linked) -> None:
        super().__init__(device, name, image, linked.entries, linked.variables)
        self.linked, self.has_writable = linked, linked.has_writable
        self.code, self.va = device._alloc_aligned(linked.size_bytes, ALIGNMENT, f"{name} code")
        self.code.write(linked.place(self.va), self.va - self.code.address)
        device.note_code()

    def make(self, entry: str, args: tuple[str, ...] | None, name: str) -> NvProgram:
        device = self.device
        kernel = self.linked.kernel_of(entry)
        if device.port.runs_ptx:
            check = backends.load(backends.of(device.name).runnable)
            check(self.linked.bundle.ptx, entry, kernel.param_base, name)
        launcher = device.launcher(device.chip, kernel, self.va, device.gpu.sm_count)
        if launcher.is_too_large:
            raise UsageError(
                f"load({name!r}): {kernel.param_bytes} bytes of parameters are more than a launch carries. "
                "Pass a buffer."
            )
        if launcher.shared_bytes(0) > device.chip.max_shared_bytes + 1024:
            raise UsageError(
                f"load({name!r}): {kernel.static_shared} bytes of shared memory; {device.arch} has "
                f"{device.chip.max_shared_bytes} for a block."
            )
        device.provide_local(launcher.local_bytes)
        return NvProgram(device, name, self.va, launcher, args, self.code, device.workspace)
