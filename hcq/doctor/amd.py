"""AMD GPUs, as far as they can be examined before our driver opens one.

In       the host
Out      which GPUs are here; the checks node, permission and driver
Changes  nothing
Next     access.py (what is in the way of a file), examine.py (the checks above), hcq/amd/topology.py (which GPUs)
Source   linux/kfd_ioctl.h (versions), hcq/amd/abi/kfd.py (our table of the interface)
"""

from __future__ import annotations

from hcq.doctor.access import KernelDriver, check_node, check_open, describe, opened
from hcq.doctor.check import Failure, Found
from hcq.doctor.host import Facts, Host
from hcq.errors import HcqError
from hcq.port import Port

KFD = "/dev/kfd"
TABLE = (1, 17)  # the interface version that hcq/amd/abi/kfd.py was written from
OLDEST_MINOR = 11  # from here on the context save area of a queue is ordinary memory of the process

DRIVER = KernelDriver(
    name="AMD",
    vendor=0x1002,
    module="amdgpu",
    group="render",
    udev={
        "/dev/kfd": 'SUBSYSTEM=="kfd", KERNEL=="kfd", GROUP="render", MODE="0660"',
        "/dev/dri": 'SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="render", MODE="0660"',
    },
    install="sudo apt install linux-image-amd64 firmware-amd-graphics",
    make="sudo udevadm trigger; grep HSA_AMD /boot/config-$(uname -r)  # without CONFIG_HSA_AMD=y: another kernel",
    containers={
        "podman": "podman run --device /dev/kfd --device /dev/dri --group-add keep-groups IMAGE",
        "kubernetes": "ask for the GPU in the pod: resources: {limits: {amd.com/gpu: 1}}",
        "": "docker run --device /dev/kfd --device /dev/dri --group-add "
        "$(stat -c %g /dev/kfd) IMAGE  # stat is of the machine",
    },
    log_words="amdgpu|kfd",
)


def names(host: Host) -> list[str]:
    """A name for each GPU. One name, too, when there are signs of a GPU that cannot be counted."""
    from hcq.amd.topology import read_nodes

    try:
        count = len(read_nodes(host))
    except HcqError:
        count = 0
    if count:
        return ["AMD" if index == 0 else f"AMD:{index}" for index in range(count)]
    return ["AMD"] if host.stat(KFD) or DRIVER.gpus(host) else []


def render_node(host: Port, index: int) -> str:
    """The file through which a GPU's memory is mapped. Raises Failure when the topology does not show the GPU."""
    from hcq.amd.topology import ROOT, read_nodes

    try:
        nodes = read_nodes(host)
    except HcqError as error:
        raise Failure(
            f"the kernel's list of GPUs cannot be read: {error}", f"ls {ROOT}/nodes; {DRIVER.look}"
        ) from None
    if index >= len(nodes):
        raise Failure(
            f"{KFD} is there, but the kernel's list has {len(nodes)} GPUs that this process may see.",
            f"{DRIVER.look}  # firmware missing, GPU too old, or hidden by the container's device list",
        )
    return f"/dev/dri/renderD{nodes[index].render_minor}"


def node(host: Host, facts: Facts, index: int) -> Found:
    kfd = check_node(host, facts, DRIVER, KFD)
    path = render_node(host, index)
    render = check_node(host, facts, DRIVER, path)
    return Found(f"{describe(facts, KFD, kfd)}, {describe(facts, path, render)}")


def permission(host: Host, facts: Facts, index: int) -> Found:
    paths = [KFD, render_node(host, index)]
    for path in paths:
        check_open(host, facts, DRIVER, path)
    return opened(paths)


def driver(port: Port, kernel: str) -> Found:
    """The interface's version against our table. kernel: what answers, "Linux 6.8" or an emulated one."""
    from hcq.amd.abi import kfd
    from hcq.amd.ioctl import call

    fd = port.open(KFD)
    try:
        version = call(port, fd, kfd.GET_VERSION)
    finally:
        port.close(fd)
    major, minor = version.major_version, version.minor_version
    said = f"amdgpu of {kernel}, KFD interface {major}.{minor}"
    if major != TABLE[0] or minor < OLDEST_MINOR:
        raise Failure(
            f"{said}; this driver needs {TABLE[0]}.{OLDEST_MINOR} or a later {TABLE[0]}.x.",
            "sudo apt install linux-image-amd64 && sudo reboot  # Linux 6.1 or newer",
        )
    table = f"table {TABLE[0]}.{TABLE[1]}"
    relation = (
        "the same" if (major, minor) == TABLE else "newer" if (major, minor) > TABLE else "older, still fine"
    )
    return Found(f"{said} ({table}: {relation})", {"kfd_version": f"{major}.{minor}"})
