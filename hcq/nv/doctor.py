"""NVIDIA GPUs, as far as they can be examined before the device is open.

In       the host
Out      which GPUs are here; the checks node, permission and driver
Changes  nothing; opening a GPU's file makes its kernel driver start the GPU, which can take seconds
Next     doctor/access.py (what is in the way of a file), doctor/examine.py (the checks above)
Source   NVIDIA's driver README: device nodes, /proc/driver/nvidia; nvidia-modprobe(1)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from hcq.doctor.access import KernelDriver
from hcq.doctor.check import Failure, Found
from hcq.doctor.host import Host, text_of
from hcq.doctor.kernels import ENTRY, Tiny, kept
from hcq.errors import DriverError
from hcq.nv.bundle import Bundle
from hcq.nv.process import version_asked
from hcq.system.port import Port

CONTROL, UVM, PROC = "/dev/nvidiactl", "/dev/nvidia-uvm", "/proc/driver/nvidia"
OLDEST_BRANCH = 550  # structures of earlier releases differ, and nobody has written them down here
FIRST_OPEN_BRANCH = 515
INSTALL = "sudo apt install nvidia-open-kernel-dkms  # Ubuntu: sudo ubuntu-drivers install"
NEWER = (
    f"{INSTALL}  # is that older, too? Take {OLDEST_BRANCH} or newer from NVIDIA's repository: docs/doctor.md"
)
KERNELS = Path(__file__).with_name("kernels")
GROUP = 64  # threads in a block of the kernel


class NvSubject(KernelDriver):
    """NVIDIA GPUs. The kernels are triple_plus_index.ptx, assembled by nvJitLink 13.5 for each architecture."""

    vendor = 0x10DE
    control = CONTROL
    module = "nvidia"
    modules: Mapping[str, str] = {UVM: "nvidia_uvm"}
    group = "video"
    udev: Mapping[str, str] = {"/dev/nvidia": 'KERNEL=="nvidia*", GROUP="video", MODE="0660"'}
    install = INSTALL
    make = "sudo nvidia-modprobe -c0 -u"
    containers: Mapping[str, str] = {
        "podman": "podman run --device nvidia.com/gpu=all IMAGE  # after: sudo nvidia-ctk cdi generate "
        "--output=/etc/cdi/nvidia.yaml",
        "kubernetes": "ask for the GPU in the pod: resources: {limits: {nvidia.com/gpu: 1}}",
        "": "docker run --gpus all IMAGE  # without NVIDIA's toolkit: --device /dev/nvidiactl --device /dev/nvidia-uvm "
        "--device /dev/nvidia0",
    }
    log_words = "nvrm|nvidia"

    def count(self, host: Host) -> int:
        """One, too, when there are signs of a GPU that cannot be counted."""
        return len(minors(host)) or len(self.gpus(host)) or int(host.stat(CONTROL) is not None)

    def paths(self, host: Host, index: int) -> list[str]:
        known = minors(host)
        minor = known[index] if index < len(known) else index
        return [CONTROL, UVM, f"/dev/nvidia{minor}"]

    def driver(self, port: Port, kernel: str) -> Found:
        """The release, and whether it is the open kernel module; without /proc, as in gVisor, what its file says."""
        try:
            text = port.read_file(f"{PROC}/version").decode("utf-8", "replace")
        except DriverError:
            return self._asked(port)
        line = next((line for line in text.splitlines() if line.startswith("NVRM version")), "")
        release = re.search(r"\b(\d{3,})\.(\d+)(?:\.\d+)?\b", line)
        if release is None:
            raise Failure(
                f"{PROC}/version names no release: {line or text.strip() or 'it is empty'}.",
                "cat /proc/driver/nvidia/version",
            )
        is_open = "Open Kernel Module" in line
        text = f"release {release[0]}, {'open' if is_open else 'proprietary'} kernel module"
        _check_release(text, int(release[1]))
        return Found(text, {"release": release[0], "is_open_module": "yes" if is_open else "no"})

    def _asked(self, port: Port) -> Found:
        """The release as opening a device asks for it."""
        try:
            release = version_asked(port)
        except DriverError as error:
            raise Failure(f"{PROC}/version cannot be read, and {CONTROL} says: {error}", self.look) from None
        text = f"release {release}, as {CONTROL} says; there is no {PROC}/version here to tell the kind of its module"
        _check_release(text, int(release.partition(".")[0]))
        return Found(text, {"release": release, "is_open_module": "unknown"})

    def kernel(self, arch: str) -> Tiny | None:
        cubin = kept(KERNELS / f"{arch}.cubin")
        ptx = kept(KERNELS / f"{ENTRY}.ptx")
        return Tiny(Bundle(cubin, ptx).pack(), GROUP) if cubin else None


def _check_release(text: str, branch: int) -> None:
    """Raises Failure for a driver that is older than what we have read, or than open kernel modules are."""
    if branch >= OLDEST_BRANCH:
        return
    if branch < FIRST_OPEN_BRANCH:
        text += f", older than open kernel modules, which began with {FIRST_OPEN_BRANCH}"
    raise Failure(f"{text}; the oldest release whose interface is known is {OLDEST_BRANCH}.", NEWER)


def minors(host: Host) -> list[int]:
    """The number in each GPU's file name, in the kernel driver's order: of those that have one here, if any has.

    A container with some of a machine's GPUs has the files of these alone, and the driver tells it of all.
    """
    found = []
    for address in host.names(f"{PROC}/gpus"):
        line = re.search(r"Device Minor:\s*(\d+)", text_of(host, f"{PROC}/gpus/{address}/information"))
        if line:
            found.append(int(line[1]))
    if found:
        return [minor for minor in found if host.stat(f"/dev/nvidia{minor}") is not None] or found
    files = [re.fullmatch(r"nvidia(\d+)", name) for name in host.names("/dev")]
    return sorted(int(file[1]) for file in files if file)


DOCTOR = NvSubject("NV", "NVIDIA")
