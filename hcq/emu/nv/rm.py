"""The emulated resource manager: /dev/nvidiactl and /dev/nvidiaN, answering as the open kernel module does.

In       opens, ioctls and mappings of one process; GPUs parsed from HCQ_EMULATE
Out      the same structures, statuses and errnos
Changes  files; see rm_state.py
Next     rm_state.py (what it remembers), rm_calls.py (its answers), uvm.py (/dev/nvidia-uvm)
Source   nv.c, nv-procfs.c of the open kernel module 580.142
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from hcq.emu.kernel import DeviceNode, File, Kernel, Process
from hcq.emu.nv import foreign_calls, rm_calls, rm_controls
from hcq.emu.nv.rm_state import NvFile, RmFile, RmState
from hcq.emu.nv.spec import Spec, parse_all
from hcq.emu.nv.uvm import UvmFile
from hcq.events.kernel_observer import KernelObserver

NVIDIA_MAJOR, UVM_MAJOR = 195, 510  # the second is given out when the module is loaded


class EmulatedRm(RmState, Kernel):
    """The driver: what a Kernel of EmulatedPort has to do."""

    folders = ("/proc/driver/nvidia/",)
    environment: ClassVar[Mapping[str, str]] = {}

    def __init__(self, specs: list[Spec]) -> None:
        super().__init__(
            specs,
            {**rm_calls.ESCAPES, **foreign_calls.ESCAPES},
            {**rm_controls.REPLIES, **foreign_calls.REPLIES},
        )
        self.layouts.update(foreign_calls.layouts_of(self.abi.release))

    def open(self, path: str, process: Process) -> File | None:
        file: NvFile
        if path == "/dev/nvidiactl":
            file = RmFile(self, path, process, None)
        elif path == "/dev/nvidia-uvm":
            file = UvmFile(self, path, process)
        else:
            gpu = next((gpu for gpu in self.gpus if path == f"/dev/nvidia{gpu.minor}"), None)
            if gpu is None:
                return None
            gpu.is_attached = True
            file = RmFile(self, path, process, gpu)
        self.open_files.append(file)
        return file

    def nodes(self) -> list[DeviceNode]:
        found = [("nvidiactl", NVIDIA_MAJOR, 255), ("nvidia-uvm", UVM_MAJOR, 0)]
        found += [(f"nvidia{gpu.minor}", NVIDIA_MAJOR, gpu.minor) for gpu in self.gpus]
        return [DeviceNode(f"/dev/{name}", major, minor, self.memories[name]) for name, major, minor in found]

    def files(self) -> Mapping[str, bytes | str]:
        version = (
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {self.version}  Release Build  (emulated)\n"
            "GCC version:  none, this kernel module is emulated\n"
        )
        found: dict[str, bytes | str] = {"/proc/driver/nvidia/version": version.encode()}
        for gpu in self.gpus:
            found[f"/proc/driver/nvidia/gpus/{gpu.pci_name}/information"] = (
                f"Model: \t\t {gpu.chip.name}\nGPU UUID: \t {gpu.uuid_text}\n"
                f"Bus Location: \t {gpu.pci_name}\nDevice Minor: \t {gpu.minor}\n"
            ).encode()
        return found

    def describe(self) -> list[str]:
        return [f"{gpu.chip.arch}: {gpu.chip.name}, /dev/nvidia{gpu.minor}" for gpu in self.gpus]

    def exit(self, process: Process) -> None:
        for file in [one for one in self.open_files if one.process is process]:
            file.close()
        for observer in self.observers:
            observer.exited(process)

    def observe(self, observer: KernelObserver) -> None:
        """Tell an observer of everything that processes do from now on. GPUs are named by their device instance."""
        observer.offers("NV", {gpu.index: gpu.chip.arch for gpu in self.gpus})
        self.observers.append(observer)

    def log(self) -> list[str]:
        return list(self.lines)


def emulate(words: Sequence[str]) -> EmulatedRm:
    """The driver of the GPUs that these words of HCQ_EMULATE describe."""
    return EmulatedRm(parse_all(list(words)))
