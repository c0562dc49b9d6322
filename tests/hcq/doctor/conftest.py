"""A machine made of a table of files: what the doctor sees of it is what a test says."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterator

import pytest

from hcq.doctor.host import FileFacts
from hcq.errors import DriverError
from hcq.system.port import LinuxPort, refused

STATUS = "Uid:\t{uid}\t{uid}\nGid:\t1000\t1000\nGroups:\t{groups}\nCapEff:\t{caps}\nSeccomp:\t{seccomp}\n"
GROUPS = "root:x:0:\nvideo:x:44:\nrender:x:105:{members}\nada:x:1000:\n"
RENDER, VIDEO = 105, 44
AMD_GPU = {"0000:03:00.0": "DRIVER={}\nPCI_CLASS=30000\nPCI_ID=1002:744C\n"}
NV_GPU = {"0000:01:00.0": "DRIVER={}\nPCI_CLASS=30200\nPCI_ID=10DE:2330\n"}
TOPOLOGY = "/sys/devices/virtual/kfd/kfd/topology"


class FakeHost:
    """Memory is real; files are those of the tables. A device opens unless `refusals` has an errno for it."""

    def __init__(self) -> None:
        self.real = LinuxPort()
        self.files: dict[str, str] = {}
        self.looks: dict[str, FileFacts] = {}
        self.refusals: dict[str, int] = {}
        self.kfd_version = (1, 17)
        self.opened: list[str] = []
        self.user()
        self.files["/etc/passwd"] = "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n"
        self.files["/proc/sys/kernel/osrelease"] = "6.12.0-amd64\n"
        self.files["/proc/meminfo"] = "MemTotal:       16384000 kB\n"

    # ------------------------------------------------------------ describing a machine

    def user(
        self, uid: int = 1000, groups: str = "", listed: bool = False, caps: int = 0, seccomp: int = 0
    ) -> None:
        self.files["/proc/self/status"] = STATUS.format(
            uid=uid, groups=groups, caps=f"{caps:x}", seccomp=seccomp
        )
        self.files["/etc/group"] = GROUPS.format(members="ada" if listed else "")

    def device(self, path: str, mode: int = 0o660, gid: int = RENDER, uid: int = 0) -> None:
        self.looks[path] = FileFacts(stat.S_IFCHR | mode, uid, gid)

    def pci(self, table: dict[str, str], driver: str = "") -> None:
        for address, text in table.items():
            self.files[f"/sys/bus/pci/devices/{address}/uevent"] = text.format(driver)

    def modules(self, *names: str) -> None:
        self.files["/proc/modules"] = "".join(f"{name} 1 0 - Live 0x0\n" for name in names)

    def amd(self, **kfd: int) -> FakeHost:
        """A machine with one working AMD GPU, of which the user may use the files."""
        self.pci(AMD_GPU, "amdgpu")
        self.modules("amdgpu")
        self.user(groups=str(RENDER))
        self.device("/dev/kfd", **kfd)
        self.device("/dev/dri/renderD128")
        self.files[f"{TOPOLOGY}/generation_id"] = "2\n"
        self.files[f"{TOPOLOGY}/nodes/0/gpu_id"] = "0\n"
        self.files[f"{TOPOLOGY}/nodes/1/gpu_id"] = "4711\n"
        properties = "simd_count 96\nsimd_per_cu 2\ngfx_target_version 110000\ndrm_render_minor 128\n"
        self.files[f"{TOPOLOGY}/nodes/1/properties"] = properties
        return self

    def nv(self, release: str = "580.65.06", kind: str = "Open Kernel Module for x86_64") -> FakeHost:
        """A machine with one NVIDIA GPU and its kernel driver's files, open to all."""
        self.pci(NV_GPU, "nvidia")
        self.modules("nvidia", "nvidia_uvm")
        for name in ("nvidiactl", "nvidia-uvm", "nvidia0"):
            self.device(f"/dev/{name}", 0o666, 0)
        line = f"NVRM version: NVIDIA UNIX {kind}  {release}  Release Build  (builder)\nGCC version: 12\n"
        self.files["/proc/driver/nvidia/version"] = line
        self.files["/proc/driver/nvidia/gpus/0000:01:00.0/information"] = "Model: H100\nDevice Minor: \t 0\n"
        return self

    def inside(self, container: str) -> FakeHost:
        marks = {
            "docker": "/.dockerenv",
            "podman": "/run/.containerenv",
            "kubernetes": "/run/secrets/kubernetes.io",
        }
        self.looks[marks[container]] = FileFacts(stat.S_IFREG | 0o644, 0, 0)
        return self

    def without(self, *paths: str) -> FakeHost:
        for path in paths:
            del self.looks[path]
        return self

    # ------------------------------------------------------------ being one

    def stat(self, path: str) -> FileFacts | None:
        return self.looks.get(path)

    def names(self, folder: str) -> list[str]:
        start = folder.rstrip("/") + "/"
        paths = [*self.files, *self.looks]
        return sorted({path[len(start) :].partition("/")[0] for path in paths if path.startswith(start)})

    def invoke(self, library: str, function: str, encoding: str, *arguments: object) -> object:
        raise DriverError(f"dlopen({library!r}): this machine has no such library.")

    def read_file(self, path: str) -> bytes:
        if path not in self.files:
            raise refused(f"read({path})", errno.ENOENT)
        return self.files[path].encode()

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        if path not in self.looks:
            raise refused(f"open({path})", errno.ENOENT)
        if path in self.refusals:
            raise refused(f"open({path})", self.refusals[path])
        self.opened.append(path)
        return 1000 + len(self.opened)

    def close(self, fd: int) -> None:
        assert fd > 1000, "only what was opened is closed"

    def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
        if request & 0xFFFF == 0x4B01:  # GET_VERSION of the KFD
            struct.pack_into("<II", argument, 0, *self.kfd_version)
            return 0
        raise refused(f"ioctl(fd={fd}, request={request:#x})", errno.ENODEV)

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, fd: int = -1, offset: int = 0) -> int:
        if fd != -1:
            raise refused(f"mmap(fd={fd})", errno.ENODEV)
        return self.real.mmap(va, size_bytes, prot, flags)

    def munmap(self, va: int, size_bytes: int) -> None:
        self.real.munmap(va, size_bytes)

    def mprotect(self, va: int, size_bytes: int, prot: int) -> None:
        if "mprotect" in self.refusals:
            raise refused(f"mprotect({va:#x}, {size_bytes}, prot={prot:#x})", self.refusals["mprotect"])
        self.real.mprotect(va, size_bytes, prot)

    def madvise(self, va: int, size_bytes: int, advice: int) -> None:
        self.real.madvise(va, size_bytes, advice)

    def clock_ns(self) -> int:
        return self.real.clock_ns()


@pytest.fixture
def host() -> Iterator[FakeHost]:
    """A machine without GPUs, seen by an ordinary user."""
    yield FakeHost()
