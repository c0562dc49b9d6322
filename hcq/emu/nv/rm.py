"""The emulated resource manager: /dev/nvidiactl and /dev/nvidiaN, answering as the open kernel module does.

In       opens, ioctls and mappings of one process; GPUs parsed from HCQ_EMULATE
Out      the same structures, statuses and errnos
Changes  files; see rm_state.py
Next     rm_state.py (what it remembers), rm_calls.py (its answers), uvm.py (/dev/nvidia-uvm)
Source   nv.c, nv-procfs.c of the open kernel module 580.142
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from hcq.emu.kernel import File, Kernel, Refusal
from hcq.emu.nv import foreign_calls, rm_calls, rm_controls
from hcq.emu.nv.rm_state import RmFile, RmState
from hcq.emu.nv.spec import Spec, parse_all
from hcq.emu.nv.uvm import UvmFile


class EmulatedRm(RmState, Kernel):
    """The driver: what a Kernel of EmulatedPort has to do."""

    def __init__(self, specs: list[Spec]) -> None:
        super().__init__(
            specs,
            {**rm_calls.ESCAPES, **foreign_calls.ESCAPES},
            {**rm_controls.REPLIES, **foreign_calls.REPLIES},
        )
        self.layouts.update(foreign_calls.layouts_of(self.abi.release))

    def open(self, path: str, fd: int) -> File | None:
        file: File
        if path == "/dev/nvidiactl":
            file = RmFile(self, fd, None)
        elif path == "/dev/nvidia-uvm":
            file = UvmFile(self, fd)
        else:
            gpu = next((gpu for gpu in self.gpus if path == f"/dev/nvidia{gpu.minor}"), None)
            if gpu is None:
                return None
            gpu.is_attached = True
            file = RmFile(self, fd, gpu)
        self.files[fd] = file
        return file

    def read_file(self, path: str) -> bytes | None:
        if path == "/proc/driver/nvidia/version":
            return (
                f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {self.version}  Release Build  (emulated)\n"
                "GCC version:  none, this kernel module is emulated\n"
            ).encode()
        for gpu in self.gpus:
            if path == f"/proc/driver/nvidia/gpus/{gpu.pci_name}/information":
                return (
                    f"Model: \t\t {gpu.chip.name}\nGPU UUID: \t {gpu.uuid_text}\n"
                    f"Bus Location: \t {gpu.pci_name}\nDevice Minor: \t {gpu.minor}\n"
                ).encode()
        if path.startswith("/proc/driver/nvidia/"):
            raise Refusal(errno.ENOENT)
        return None

    def log(self) -> list[str]:
        return list(self.lines)


def emulate(words: Sequence[str]) -> EmulatedRm:
    """The driver of the GPUs that these words of HCQ_EMULATE describe."""
    return EmulatedRm(parse_all(list(words)))
