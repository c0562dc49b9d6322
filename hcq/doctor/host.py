"""The host: what surrounds this process, as far as it decides whether a device can be used.

In       a Host: a Port that can also look at files without opening them
Out      Facts: identity, groups, container, kernel, limits; PCI devices
Next     access.py (what follows from the facts), examine.py (who reads them)
Source   proc(5), sysfs(5), container_interface of systemd

Everything is read through the Host, so that a test describes a machine by its files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hcq.errors import DriverError
from hcq.system.port import LinuxPort, Port

CAP_DAC_OVERRIDE = 1
SECCOMP_FILTERED = 2
DISPLAY_CLASSES = (0x03, 0x12)  # display controllers, processing accelerators


OVERFLOW_ID = 65534  # nobody, nogroup: /proc/sys/kernel/overflowuid
ALL_IDS = str(2**32 - 1)


class FileFacts(NamedTuple):
    """What can be seen of a file without opening it. `mode` holds the type, too."""

    mode: int
    uid: int
    gid: int

    @property
    def is_device(self) -> bool:
        """Whether it is a character device, as drivers make them."""
        return stat.S_ISCHR(self.mode)

    @property
    def permissions(self) -> str:
        """As `ls -l` shows them, such as "crw-rw----"."""
        return stat.filemode(self.mode)


class Host(Port, Protocol):
    """A Port that also looks."""

    def stat(self, path: str) -> FileFacts | None:
        """A file's mode and owners; None when it is not there."""
        ...

    def names(self, folder: str) -> list[str]:
        """What a folder holds, in order; empty when it is not there."""
        ...


class LinuxHost(LinuxPort, Host):
    """The real one."""

    def stat(self, path: str) -> FileFacts | None:
        try:
            found = os.stat(path)
        except OSError:
            return None
        return FileFacts(found.st_mode, found.st_uid, found.st_gid)

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except OSError:
            return []


class PciDevice(NamedTuple):
    """A GPU on the bus, whether a driver has it or not."""

    address: str
    vendor: int
    device: int
    driver: str  # of the kernel; "" when none has it


@dataclass(frozen=True)
class Facts:
    """Who we are and where.

    groups       this process has them
    listed       /etc/group has us in them; a session started earlier does not have them yet
    container    docker, podman, kubernetes, lxc, ...; "" outside of one
    is_filtered  a seccomp filter may refuse system calls
    is_rootless  in a user namespace: root's rights end at files of users and groups that it does not map
    memlock      bytes that may be locked; None: no limit, or not known
    """

    uid: int
    groups: frozenset[int]
    listed: frozenset[int]
    capabilities: int
    group_names: Mapping[int, str]
    container: str
    kernel: str
    is_wsl: bool
    is_filtered: bool
    is_rootless: bool
    is_selinux_enforcing: bool
    memlock: int | None
    memory_bytes: int

    def is_beyond(self, file: FileFacts) -> bool:
        """Whether a file belongs to somebody whom this user namespace does not map: it shows as nobody's."""
        return self.is_rootless and OVERFLOW_ID in (file.uid, file.gid)

    def may_open(self, file: FileFacts) -> bool:
        """Whether the file's permission bits let us read and write it."""
        if not self.is_beyond(file) and self.capabilities >> CAP_DAC_OVERRIDE & 1:
            return True
        shift = 6 if file.uid == self.uid else 3 if file.gid in self.groups else 0
        return file.mode >> shift & 6 == 6

    def group(self, gid: int) -> str:
        """A group's name, or its number where it has no name here."""
        return self.group_names.get(gid, str(gid))


def text_of(host: Host, path: str) -> str:
    """A file's text; "" when it cannot be read."""
    try:
        return host.read_file(path).decode("utf-8", "replace")
    except DriverError:
        return ""


def facts_of(host: Host) -> Facts:
    """Everything above, read once."""
    status = _colons(text_of(host, "/proc/self/status"))
    uid = int((status.get("Uid") or "0").split()[0])
    gids = [*(status.get("Gid") or "").split()[:2], *(status.get("Groups") or "").split()]
    entries = [line.split(":") for line in text_of(host, "/etc/group").splitlines()]
    groups = [entry for entry in entries if len(entry) == 4 and entry[2].isdecimal()]
    user = _user(host, uid)
    kernel = text_of(host, "/proc/sys/kernel/osrelease").strip()
    memory = _colons(text_of(host, "/proc/meminfo")).get("MemTotal", "0 kB").split()[0]
    return Facts(
        uid=uid,
        groups=frozenset(int(gid) for gid in gids),
        listed=frozenset(int(entry[2]) for entry in groups if user and user in entry[3].split(",")),
        capabilities=int(status.get("CapEff") or "0", 16),
        group_names={int(entry[2]): entry[0] for entry in groups},
        container=container_of(host),
        kernel=kernel,
        is_wsl="microsoft" in kernel.lower(),
        is_rootless=_is_rootless(text_of(host, "/proc/self/uid_map")),
        is_filtered=status.get("Seccomp", "0") == str(SECCOMP_FILTERED),
        is_selinux_enforcing=text_of(host, "/sys/fs/selinux/enforce").strip() == "1",
        memlock=_memlock(text_of(host, "/proc/self/limits")),
        memory_bytes=int(memory) << 10,
    )


def _is_rootless(uid_map: str) -> bool:
    """Whether a table of uids, of user_namespaces(7), is another than that of the machine itself: all to themselves."""
    words = uid_map.split()
    return bool(words) and words[:3] != ["0", "0", ALL_IDS]


def container_of(host: Host) -> str:
    """What kind of container we are in, by the marks that each leaves; "" when there is none."""
    if host.stat("/run/secrets/kubernetes.io") or host.stat("/var/run/secrets/kubernetes.io"):
        return "kubernetes"
    if host.stat("/run/.containerenv"):
        return "podman"
    if host.stat("/.dockerenv"):
        return "docker"
    if named := text_of(host, "/run/systemd/container").strip():
        return named
    control = text_of(host, "/proc/1/cgroup")
    marks = {"kubepods": "kubernetes", "libpod": "podman", "docker": "docker", "/lxc": "lxc"}
    return next((name for mark, name in marks.items() if mark in control), "")


def gpus_on_the_bus(host: Host, vendor: int) -> list[PciDevice]:
    """GPUs of a vendor that sysfs lists. Containers see them, too, whether or not they were given the device."""
    root = "/sys/bus/pci/devices"
    found = []
    for address in host.names(root):
        facts = _equals(text_of(host, f"{root}/{address}/uevent"))
        ids = facts.get("PCI_ID", "0:0").split(":")
        if len(ids) != 2 or int(facts.get("PCI_CLASS", "0"), 16) >> 16 not in DISPLAY_CLASSES:
            continue
        if int(ids[0], 16) == vendor:
            found.append(PciDevice(address, vendor, int(ids[1], 16), facts.get("DRIVER", "")))
    return found


def has_module(host: Host, name: str) -> bool:
    """Whether the kernel has this driver, loaded or built in."""
    loaded = {line.split(" ")[0] for line in text_of(host, "/proc/modules").splitlines()}
    return name in loaded or host.stat(f"/sys/module/{name}") is not None


def _user(host: Host, uid: int) -> str:
    for line in text_of(host, "/etc/passwd").splitlines():
        parts = line.split(":")
        if len(parts) > 2 and parts[2] == str(uid):
            return parts[0]
    return ""


def _memlock(limits: str) -> int | None:
    for line in limits.splitlines():
        if line.startswith("Max locked memory"):
            soft = line.removeprefix("Max locked memory").split()[0]
            return int(soft) if soft.isdecimal() else None
    return None


def _colons(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _equals(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value for name, _, value in pairs}
