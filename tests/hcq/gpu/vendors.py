"""What differs between an emulated AMD GPU and one of NVIDIA, for tests that are the same for both.

In       nothing
Out      AMD, NV: how one is opened, what its calls and rings are called, how a test gets at its ring
Next     conftest.py (fixtures made of these), kernels.py (the same kernels for both)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hcq.amd.device import AmdDevice
from hcq.gpu.device import GpuDevice
from hcq.nv.device import NvDevice
from hcq.nv.encode import wait_for_idle
from tests.hcq.amd import conftest as amd
from tests.hcq.nv import conftest as nv


@dataclass(frozen=True)
class Vendor:
    """One vendor's driver and emulation.

    arch, other    the architecture of tests that need only one, and another
    title          what opening a device is called in an error
    calls          a pattern of the names of its kernel driver's calls
    own_memory     the kernel whose threads have memory of their own
    first_thread   what an emulated GPU calls the first thread in a fault
    reads          the counter of `stats()` that rises when a long read is copied
    flush_bytes    of the words at the end of a launch that wait for it
    few_uploads    bytes for what some launches read
    survives_faults  a device works again after a page fault; else its process has to be started again
    """

    name: str
    device: type[GpuDevice]
    arch: str
    other: str
    port: Callable[..., Any]
    title: str
    calls: str
    own_memory: str
    first_thread: str
    reads: str
    flush_bytes: int
    lose_doorbell: Callable[[Any, str], str]
    few_uploads: int
    end_process: Callable[[Any], None]
    survives_faults: bool

    def fresh_port(self, *archs: str, options: str = "") -> Any:
        """An emulated operating system with GPUs of these architectures."""
        words = [f"{self.name.lower()}:{arch}{options}" for arch in archs or (self.arch,)]
        return self.port(*words)

    def open(self, port: Any, name: str = "", **fields: Any) -> Any:
        """A device on a port; whoever opens it closes it."""
        return self.device(name or self.name, port, amd.settings_with(**fields))


def _lose_amd_doorbell(device: AmdDevice, ring_name: str) -> str:
    ring = device.rings[ring_name]
    ring._doorbell = memoryview(bytearray(8)).cast("Q")
    return f"{ring.kind} ring"


def _lose_nv_doorbell(device: NvDevice, ring_name: str) -> str:
    device.channel.fifo._doorbell = memoryview(bytearray(4)).cast("I")
    return "GPFIFO"


def _end_queues(port: Any) -> None:
    """A queue that could not be destroyed belongs to its process until that ends."""
    for kernel in port.kernels:
        for process in list(kernel.processes):
            kernel.exit(process)


AMD = Vendor(
    name="AMD",
    device=AmdDevice,
    arch="gfx1100",
    other="gfx942",
    port=amd.fresh_port,
    title="open amd device",
    calls="AMDKFD_IOC_|DRM_IOCTL_AMDGPU_INFO",
    own_memory="scratch",
    first_thread="work-item (0, 0, 0)",
    reads="copy_read",
    flush_bytes=8,
    lose_doorbell=_lose_amd_doorbell,
    few_uploads=64 * 8,
    end_process=_end_queues,
    survives_faults=False,
)
NV = Vendor(
    name="NV",
    device=NvDevice,
    arch="sm_90",
    other="sm_80",
    port=nv.fresh_port,
    title="open nvidia device",
    calls="NV_ESC_|UVM_",
    own_memory="local",
    first_thread="block (0, 0, 0)",
    reads="submissions",
    flush_bytes=len(wait_for_idle()),
    lose_doorbell=_lose_nv_doorbell,
    few_uploads=16384,
    end_process=lambda port: None,
    survives_faults=True,
)
VENDORS = {vendor.name: vendor for vendor in (AMD, NV)}


def vendor_of(gpu: GpuDevice) -> Vendor:
    return VENDORS[gpu.name.partition(":")[0]]
