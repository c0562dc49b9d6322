"""AMD GPUs, as far as they can be examined before our driver opens one.

In       the host
Out      which GPUs are here; the checks node, permission and driver
Next     doctor/access.py (what is in the way of a file), doctor/examine.py (the checks above), topology.py (which GPUs)
Source   linux/kfd_ioctl.h (versions), hcq/amd/abi/kfd.py (our table of the interface)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from hcq.amd.abi import kfd
from hcq.amd.ioctl import call
from hcq.amd.topology import ROOT, read_nodes
from hcq.doctor.access import KernelDriver
from hcq.doctor.check import Failure, Found
from hcq.doctor.host import Host
from hcq.doctor.kernels import Tiny, kept
from hcq.errors import HcqError
from hcq.system.port import Port

KFD = "/dev/kfd"
TABLE = (1, 17)  # the interface version that hcq/amd/abi/kfd.py was written from
OLDEST_MINOR = 11  # from here on the context save area of a queue is ordinary memory of the process
KERNELS = Path(__file__).with_name("kernels")
GROUP = 64  # threads in a group of the kernel


class AmdSubject(KernelDriver):
    """AMD GPUs. The kernels are triple_plus_index.ll, made by LLVM 22 for each architecture."""

    vendor = 0x1002
    control = KFD
    module = "amdgpu"
    group = "render"
    udev: Mapping[str, str] = {
        "/dev/kfd": 'SUBSYSTEM=="kfd", KERNEL=="kfd", GROUP="render", MODE="0660"',
        "/dev/dri": 'SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="render", MODE="0660"',
    }
    install = "sudo apt install linux-image-amd64 firmware-amd-graphics"
    make = "sudo udevadm trigger; grep HSA_AMD /boot/config-$(uname -r)  # without CONFIG_HSA_AMD=y: another kernel"
    containers: Mapping[str, str] = {
        "podman": "podman run --device /dev/kfd --device /dev/dri --group-add keep-groups IMAGE",
        "kubernetes": "ask for the GPU in the pod: resources: {limits: {amd.com/gpu: 1}}",
        "": "docker run --device /dev/kfd --device /dev/dri --group-add "
        "$(stat -c %g /dev/kfd) IMAGE  # stat is of the machine",
    }
    log_words = "amdgpu|kfd"

    def count(self, host: Host) -> int:
        """One, too, when there are signs of a GPU that cannot be counted."""
        try:
            known = len(read_nodes(host))
        except HcqError:
            known = 0
        return known or int(host.stat(KFD) is not None or bool(self.gpus(host)))

    def paths(self, host: Host, index: int) -> Iterator[str]:
        """The kernel driver's file, and that through which the GPU's memory is mapped."""
        yield KFD
        try:
            nodes = read_nodes(host)
        except HcqError as error:
            raise Failure(
                f"the kernel's list of GPUs cannot be read: {error}", f"ls {ROOT}/nodes; {self.look}"
            ) from None
        if index >= len(nodes):
            raise Failure(
                f"{KFD} is there, but the kernel's list has {len(nodes)} GPUs that this process may see.",
                f"{self.look}  # firmware missing, GPU too old, or hidden by the container's device list",
            )
        yield f"/dev/dri/renderD{nodes[index].render_minor}"

    def driver(self, port: Port, kernel: str) -> Found:
        """The interface's version against our table."""
        fd = port.open(KFD)
        try:
            version = call(port, fd, kfd.GET_VERSION)
        finally:
            port.close(fd)
        major, minor = version.major_version, version.minor_version
        found = f"amdgpu of {kernel}, KFD interface {major}.{minor}"
        if major != TABLE[0] or minor < OLDEST_MINOR:
            raise Failure(
                f"{found}; this driver needs {TABLE[0]}.{OLDEST_MINOR} or a later {TABLE[0]}.x.",
                "sudo apt install linux-image-amd64 && sudo reboot  # Linux 6.1 or newer",
            )
        table = f"table {TABLE[0]}.{TABLE[1]}"
        relation = (
            "the same"
            if (major, minor) == TABLE
            else "newer"
            if (major, minor) > TABLE
            else "older, still fine"
        )
        return Found(f"{found} ({table}: {relation})", {"kfd_version": f"{major}.{minor}"})

    def kernel(self, arch: str) -> Tiny | None:
        image = kept(KERNELS / f"{arch}.hsaco")
        return Tiny(image, GROUP) if image else None


DOCTOR = AmdSubject("AMD")
