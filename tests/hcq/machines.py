"""Machines that tests choose: this one without its GPUs, or with the files of GPUs that do not work.

In       nothing of the GPUs that this machine may have
Out      a Host: memory, processor and everything else are real
Next     hcq/doctor/host.py (what a Host is), doctor/conftest.py (a machine made of a table of files)
"""

from __future__ import annotations

import errno
import os
import stat

from hcq.doctor.host import FileFacts, LinuxHost
from hcq.system.port import refused

GPU_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri", "/proc/driver/nvidia", "/sys/devices/virtual/kfd")
GPU_FOLDERS = ("/sys/bus/pci/devices",)


class NoGpus(LinuxHost):
    """This machine, and no GPU in it."""

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        if path.startswith(GPU_FILES):
            raise self.missing(path)
        return super().open(path, flags)

    def read_file(self, path: str) -> bytes:
        if path.startswith((*GPU_FILES, *GPU_FOLDERS)):
            raise self.missing(path)
        return super().read_file(path)

    def stat(self, path: str) -> FileFacts | None:
        return None if path.startswith(GPU_FILES) else super().stat(path)

    def names(self, folder: str) -> list[str]:
        return [] if folder.startswith((*GPU_FILES, *GPU_FOLDERS)) else super().names(folder)

    def missing(self, path: str) -> Exception:
        return refused(f"open({path})", errno.ENOENT)


class BrokenGpus(NoGpus):
    """This machine with the files of both drivers, none of which can be opened."""

    FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128")

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        if path in self.FILES:
            raise refused(f"open({path})", errno.EIO)
        return super().open(path, flags)

    def stat(self, path: str) -> FileFacts | None:
        return FileFacts(stat.S_IFCHR | 0o666, 0, 0) if path in self.FILES else super().stat(path)
