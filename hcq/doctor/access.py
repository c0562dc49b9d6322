"""Access: why a kernel driver's file is missing or cannot be opened, and the command that changes that.

In       a KernelDriver (what its files and modules are called), the host and its facts
Out      what was found, or Failure with one fix line
Changes  nothing; a file that can be opened is closed again
Next     hcq/amd/doctor.py, hcq/nv/doctor.py (the drivers), host.py (the facts)
Source   the kernel's device cgroup and devtmpfs; udev(7); docker-run(1), podman-run(1)
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from hcq.doctor.check import Failure, Found
from hcq.doctor.host import Facts, FileFacts, Host, PciDevice, gpus_on_the_bus, has_module, text_of
from hcq.doctor.subject import Subject
from hcq.errors import DriverError


class KernelDriver(Subject, ABC):
    """A kind of GPU behind a kernel driver, what that is called, and how its files come to be.

    control    the file that is there whenever the driver is
    group      whose members use the files by custom
    udev       path prefix -> the rule that gives the group the files that start so
    make       the command that makes missing files while the module is loaded
    containers container -> the flags that pass the files in; "" is for all others
    modules    path -> the kernel module that makes it, when it is not `module`
    """

    vendor: int
    control: str
    module: str
    group: str
    udev: Mapping[str, str]
    install: str
    make: str
    containers: Mapping[str, str]
    log_words: str
    modules: Mapping[str, str] = {}
    has_kernel_driver = True

    @abstractmethod
    def count(self, host: Host) -> int:
        """How many GPUs the kernel driver knows."""

    @abstractmethod
    def paths(self, host: Host, index: int) -> Iterable[str]:
        """The files that one GPU takes. Raises Failure when the kernel driver does not show the GPU."""

    def gpus(self, host: Host) -> list[PciDevice]:
        """The vendor's GPUs on the PCI bus, whether a driver has them or not."""
        return gpus_on_the_bus(host, self.vendor)

    def pass_in(self, facts: Facts) -> str:
        """How this kind of container is given the files."""
        return self.containers.get(facts.container, self.containers[""])

    @property
    def look(self) -> str:
        return f"sudo dmesg | grep -iE '{self.log_words}'"

    def absence(self) -> str:
        return f"no {self.control}, and no {self.title} GPU on the PCI bus"

    def names(self, host: Host) -> list[str]:
        return [self.name if index == 0 else f"{self.name}:{index}" for index in range(self.count(host))]

    def node(self, host: Host, facts: Facts, index: int) -> Found:
        shown = [
            describe(facts, path, check_node(host, facts, self, path)) for path in self.paths(host, index)
        ]
        return Found(", ".join(shown))

    def permission(self, host: Host, facts: Facts, index: int) -> Found:
        wanted = list(self.paths(host, index))
        for path in wanted:
            check_open(host, facts, self, path)
        return Found(f"{', '.join(wanted)} can be opened")


def check_node(host: Host, facts: Facts, driver: KernelDriver, path: str) -> FileFacts:
    """The file is there and is a device. Raises Failure saying why it is not."""
    module = driver.modules.get(path, driver.module)
    file = host.stat(path)
    if file is None:
        raise _missing(host, facts, driver, path, module)
    if not file.is_device:
        what = "a folder" if file.permissions.startswith("d") else "a plain file"
        raise Failure(
            f"{path} is {what}, not a device: it was made by mistake, often by a container's volume option.",
            f"remove it and {driver.pass_in(facts)}"
            if facts.container
            else f"sudo rm -r {path}; {driver.make}",
        )
    return file


def check_open(host: Host, facts: Facts, driver: KernelDriver, path: str) -> None:
    """The file opens for reading and writing. Raises Failure saying what is in the way."""
    try:
        host.close(host.open(path))
    except DriverError as error:
        raise _refused(host, facts, driver, path, error.errno or 0) from None


def describe(facts: Facts, path: str, file: FileFacts) -> str:
    """A file as `ls -l` would show it, without the owner's name."""
    return f"{path} ({file.permissions}, group {facts.group(file.gid)})"


def _missing(host: Host, facts: Facts, driver: KernelDriver, path: str, module: str) -> Failure:
    gpus = driver.gpus(host)
    if facts.is_wsl:
        return Failure(
            f"{path} does not exist: WSL shows GPUs as /dev/dxg alone.",
            "start Linux itself; a GPU behind Windows cannot be driven from here",
        )
    if has_module(host, module):
        if facts.container:
            text = f"{path} is not in this {facts.container} container, though the kernel has {module}."
            return Failure(text, driver.pass_in(facts))
        return Failure(f"{path} does not exist, though the kernel has {module}.", driver.make)
    if facts.container:
        return Failure(
            f"{path} does not exist, and the kernel of the machine has not loaded {module}"
            + ("." if gpus else f"; no {driver.title} GPU shows on its PCI bus either."),
            f"outside of the container: sudo modprobe {module}; then {driver.pass_in(facts)}",
        )
    load = f"sudo modprobe {module}"
    if not gpus:
        return Failure(
            f"{path} does not exist, {module} is not loaded, and no {driver.title} GPU is on the PCI bus.",
            f"lspci -nn | grep -i {driver.vendor:04x}:  # if this shows the GPU: {load}",
        )
    gpu = gpus[0]
    if gpu.driver == "vfio-pci":
        return Failure(
            f"{path} does not exist: GPU {gpu.address} is kept for a virtual machine (driver vfio-pci).",
            f"echo {gpu.address} | sudo tee /sys/bus/pci/drivers/vfio-pci/unbind && {load}",
        )
    if gpu.driver == "nouveau":
        return Failure(
            f"{path} does not exist: GPU {gpu.address} is driven by nouveau, which has another interface.",
            f"{driver.install}; echo blacklist nouveau | sudo tee /etc/modprobe.d/nouveau.conf; sudo reboot",
        )
    words = text_of(host, "/proc/cmdline").split()
    for word in words:
        if word == "nomodeset" or (word.startswith("modprobe.blacklist=") and module in word):
            return Failure(
                f"{path} does not exist: the kernel was started with {word}, which keeps {module} from loading.",
                f"remove {word} from GRUB_CMDLINE_LINUX in /etc/default/grub, then sudo update-grub && sudo reboot",
            )
    kernels = host.names("/lib/modules")
    if kernels and facts.kernel not in kernels:
        return Failure(
            f"{path} does not exist, and the modules of the running kernel {facts.kernel} are not installed.",
            "sudo reboot  # into the kernel that was installed last",
        )
    return Failure(
        f"{path} does not exist: {module} is not loaded for GPU {gpu.address}.",
        f"{load}  # not found? {driver.install}",
    )


def _refused(host: Host, facts: Facts, driver: KernelDriver, path: str, number: int) -> Failure:
    name = errno.errorcode.get(number, str(number))
    call = f"open({path}) -> {name}"
    file = host.stat(path)
    if number == errno.ENOENT or file is None:
        return _missing(host, facts, driver, path, driver.module)
    if number not in (errno.EACCES, errno.EPERM):
        return _driver_refused(driver, path, call, number)
    if facts.is_beyond(file) and not facts.may_open(file):
        return _rootless(facts, driver, path, call, file)
    if not facts.may_open(file):
        return _no_right(facts, driver, path, call, file)
    if facts.container:
        text = f"{call}: its permissions are right, but the device is not allowed in this {facts.container} container."
        return Failure(text, driver.pass_in(facts))
    if facts.is_selinux_enforcing:
        text = f"{call}: its permissions are right ({file.permissions}), so SELinux refuses."
        return Failure(
            text, "sudo ausearch -m avc -ts recent | audit2why  # shows the rule and how to change it"
        )
    return Failure(
        f"{call}: its permissions are right ({file.permissions}), so a device cgroup of this service refuses.",
        f"systemctl edit UNIT, and under [Service]: DeviceAllow={path} rw",
    )


def _rootless(facts: Facts, driver: KernelDriver, path: str, call: str, file: FileFacts) -> Failure:
    """Root in a rootless container is the user outside, without that user's groups unless they are kept."""
    text = (
        f"{call}: {describe(facts, path, file)} belongs to users and groups that this rootless container does not "
        f"map; its root is the user who started it, and needs that user's group {driver.group}."
    )
    if facts.container == "podman":
        fix = (
            f"podman run --group-add keep-groups ...  # outside, once: sudo usermod -aG {driver.group} $USER"
        )
        return Failure(text, fix)
    rule = next(rule for prefix, rule in driver.udev.items() if path.startswith(prefix)).replace(
        "0660", "0666"
    )
    return Failure(
        f"{text} This kind of container keeps no groups, so the file has to be open to all, or the container root's.",
        f"outside: echo '{rule}' | sudo tee /etc/udev/rules.d/70-hcq.rules && sudo udevadm control --reload "
        "&& sudo udevadm trigger",
    )


def _no_right(facts: Facts, driver: KernelDriver, path: str, call: str, file: FileFacts) -> Failure:
    group = facts.group(file.gid)
    text = f"{call}: {describe(facts, path, file)}, and this process is not in that group."
    if file.gid == 0 or file.mode >> 3 & 6 != 6:
        rule = next(rule for prefix, rule in driver.udev.items() if path.startswith(prefix))
        return Failure(
            f"{call}: {describe(facts, path, file)} gives no group the right to read and write.",
            f"echo '{rule}' | sudo tee /etc/udev/rules.d/70-hcq.rules && sudo udevadm control --reload "
            f"&& sudo udevadm trigger && sudo usermod -aG {driver.group} $USER",
        )
    if facts.container == "podman":
        return Failure(text, f"podman run --group-add keep-groups  # or, as root: --group-add {file.gid}")
    if facts.container == "kubernetes":
        return Failure(text, f"in the pod: securityContext: {{supplementalGroups: [{file.gid}]}}")
    if facts.container:
        return Failure(text, f"start the container with --group-add {file.gid}")
    if file.gid in facts.listed:
        return Failure(
            f"{text} /etc/group has the user in {group}, but this session is older than that.",
            f"log out and in again, or for this shell: newgrp {group}",
        )
    if file.gid not in facts.group_names:
        return Failure(
            text, f"sudo groupadd -g {file.gid} {driver.group}-hcq && sudo usermod -aG {file.gid} $USER"
        )
    return Failure(text, f"sudo usermod -aG {group} $USER  # then log out and in again")


def _driver_refused(driver: KernelDriver, path: str, call: str, number: int) -> Failure:
    if number in (errno.EMFILE, errno.ENFILE):
        return Failure(f"{call}: too many open files.", "ulimit -n 65536")
    if number == errno.EBUSY:
        return Failure(f"{call}: another program has it for itself.", f"sudo fuser -v {path}")
    if number in (errno.ENODEV, errno.ENXIO, errno.EIO, errno.EINVAL):
        return Failure(f"{call}: the kernel driver has no working GPU behind it.", driver.look)
    return Failure(f"{call}.", driver.look)
