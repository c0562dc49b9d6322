"""The emulated KFD: /dev/kfd, render nodes and sysfs, answering as the kernel driver does.

In       opens, ioctls and mappings of processes; GPUs parsed from HCQ_EMULATE
Out      the same structures, or the same errno
Changes  what each process has; GPUs run while there is a queue
Next     kfd_process.py (what a process has), kfd_calls.py and kfd_memory.py (the answers), render_node.py, gpu.py
Source   kfd_chardev.c: kfd_open, kfd_ioctl, kfd_mmap; kfd_process.c
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from hcq.amd.abi import kfd
from hcq.amd.abi.kfd import MmapType
from hcq.amd.abi.pointers import pointers_of
from hcq.emu.amd import kfd_calls, kfd_dmabuf, kfd_memory, sysfs
from hcq.emu.amd.gpu import EmulatedGpu
from hcq.emu.amd.kfd_process import KfdProcess
from hcq.emu.amd.kfd_topology import DEVICE, KFD_MAJOR, EmulatedNode, files, make_nodes
from hcq.emu.amd.memory import PAGE
from hcq.emu.amd.process_gpu import EmulatedQueue, ProcessGpu
from hcq.emu.amd.render_node import RenderNode
from hcq.emu.amd.shader.errors import PageFault
from hcq.emu.amd.spec import USUAL_KFD, Spec, parse
from hcq.emu.amd.sysfs import DRM_MAJOR
from hcq.emu.backing import NODE_BYTES, DeviceMemory
from hcq.emu.kernel import LOG_LINES, DeviceNode, File, Kernel, Process, Refusal
from hcq.emu.watched_call import watched
from hcq.events.kernel_observer import KernelObserver

ANSWERS = kfd_calls.ANSWERS | kfd_memory.ANSWERS | kfd_dmabuf.ANSWERS
DEBUGFS = "/sys/kernel/debug/dri/"
SINCE = {
    "EXPORT_DMABUF": 12,
    "RUNTIME_ENABLE": 13,
    "CREATE_PROCESS": 19,
}  # minor versions that brought a call


class KfdFile(File):
    """An open /dev/kfd: of the process that opened it, and nobody else's; in a context of its own, if it made one."""

    def __init__(self, process: KfdProcess, more: Callable[[Process], KfdProcess]) -> None:
        self.process, self.more = process, more
        self.is_second = False

    def ioctl(self, request: int, argument: bytearray, process: Process) -> int:
        observers = self.process.observers
        if not observers:
            return self._answer(request, argument, process)
        return watched(observers, "/dev/kfd", pointers_of, request, argument, process, self._answer)

    def _answer(self, request: int, argument: bytearray, process: Process) -> int:
        """kfd_ioctl: dispatch on the number alone; the size is the caller's, shorter structures end in zeroes."""
        number, kind, size = request & 0xFF, request >> 8 & 0xFF, request >> 16 & 0x3FFF
        if kind != ord("K") or number not in ANSWERS:
            raise Refusal(errno.ENOTTY)
        if process is not self.process.process:
            raise Refusal(errno.EBADF)  # a child of fork has the descriptor, and must open its own
        if len(argument) < size:
            raise Refusal(errno.EFAULT)
        call, answer = ANSWERS[number]
        if self.process.minor < SINCE.get(call.name, 0):
            raise Refusal(errno.ENOTTY)
        if call is kfd.CREATE_PROCESS:
            self._create_process(process)
        whole = bytes(argument[:size]).ljust(call.size_bytes, b"\0")[: call.size_bytes]
        args = call.layout.decode(memoryview(whole).cast("I"))
        if call is kfd.WAIT_EVENTS:  # it waits for what other threads do
            result = answer(self.process, args).to_bytes()
        else:
            with self.process.lock:
                result = answer(self.process, args).to_bytes()
        if call.direction & kfd.READ:
            argument[: min(size, len(result))] = result[:size]
        return 0

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, offset: int) -> int:
        """kfd_mmap: the offset names a kind and, but for events, a GPU."""
        kind = MmapType(offset >> kfd.MMAP_TYPE_SHIFT)
        if kind == MmapType.EVENTS:
            return self.process.events.map_page(va, size_bytes, prot, flags)
        gpu = self.process.gpus.get(offset >> kfd.MMAP_GPU_SHIFT & 0xFFFF)
        if gpu is None:
            raise Refusal(errno.ENODEV)
        if kind == MmapType.DOORBELL and size_bytes == kfd.DOORBELL_SLICE_BYTES:
            return gpu.doorbells.map_host(va, size_bytes, prot, flags)
        if kind == MmapType.MMIO and size_bytes == PAGE:
            return gpu.gpu.mmio.map_host(va, size_bytes, prot, flags)
        raise Refusal(errno.EINVAL)

    def _create_process(self, process: Process) -> None:
        """kfd_ioctl_create_process: from now on this file is of a second context, with nothing in it."""
        if self.is_second:
            raise Refusal(errno.EINVAL)
        self.process, self.is_second = self.more(process), True

    def close(self) -> None:
        """kfd_release: queues and memory belong to the process, and only those of a second context to its file."""
        if self.is_second:
            self.process.release()


def emulate(words: Sequence[str]) -> EmulatedKfd:
    """The driver of the GPUs that these words of HCQ_EMULATE describe."""
    return EmulatedKfd([parse(word) for word in words])


def _drm_nodes(node: EmulatedNode) -> dict[str, int]:
    """The device nodes of a GPU: path -> minor."""
    return {
        f"/dev/dri/renderD{node.render_minor}": node.render_minor,
        f"/dev/dri/card{node.card_minor}": node.card_minor,
    }


def _keep_dump(gpu: ProcessGpu, queue: EmulatedQueue, fault: PageFault | None) -> None:
    from hcq.emu.amd import devcoredump  # only for programs that hang

    devcoredump.keep(gpu, queue, fault)


class EmulatedKfd(Kernel):
    """The driver: its GPUs, and what it keeps for each process."""

    folders: tuple[str, ...] = (
        "/sys/class/drm/",
        "/sys/class/kfd/",
        "/sys/devices/virtual/kfd/",
        f"{DEVICE}/proc/",  # a process is shown there by newer drivers; here none is
        "/sys/module/amdgpu/",
        "/sys/module/amdgpu/holders/",
        "/sys/dev/char/226:",
        "/sys/kernel/debug/kfd/",
        "/dev/dri/",
    )
    # rings, signals and arguments are then memory that is mapped through us, and not pages of the process
    environment: ClassVar[Mapping[str, str]] = {"HSA_USERPTR_FOR_PAGED_MEM": "0"}
    # else ROCr cuts small pieces of the GPU's memory out of blocks of 2 MB, and no call shows them
    apart: ClassVar[Mapping[str, str]] = {"HSA_DISABLE_FRAGMENT_ALLOCATOR": "1"}
    # no call shows what hipFreeAsync gives back to a pool, or which streams wait: hcq/observe/foreign/runtime_log.py
    logged: ClassVar[Mapping[str, str]] = {
        "AMD_LOG_LEVEL": "4",
        "AMD_LOG_MASK": "9",
        "AMD_LOG_LEVEL_FILE": "{folder}/runtime.log",
    }

    def __init__(self, specs: list[Spec]) -> None:
        self.topology = make_nodes(specs)
        self.memory = DeviceMemory("kfd", NODE_BYTES)
        self.lock = threading.Lock()
        self.lines: deque[str] = deque(maxlen=LOG_LINES)
        self._files = files(self.topology) | sysfs.MACHINE
        for node in self.topology:
            self._files |= sysfs.files(node)
            self.folders += sysfs.folders(node)
        self.gpus = {node.gpu_id: EmulatedGpu(node, self.lines.append, self.memory) for node in self.topology}
        for gpu in self.gpus.values():
            gpu.on_hang = _keep_dump
        self.minor = specs[0].kfd_minor if specs else USUAL_KFD
        self.processes: dict[Process, KfdProcess] = {}
        self.second: dict[Process, list[KfdProcess]] = {}  # contexts beside a process's first one
        self.observers: list[KernelObserver] = []

    def observe(self, observer: KernelObserver) -> None:
        """Tell an observer of everything that processes do from now on."""
        observer.offers("AMD", {node.gpu_id: node.spec.chip.arch for node in self.topology})
        with self.lock:
            self.observers.append(observer)
            for process in self.processes.values():
                process.watch(self.observers)

    def log(self) -> list[str]:
        return list(self.lines)

    def open(self, path: str, process: Process) -> File | None:
        if path == "/dev/kfd":
            return KfdFile(self._process(process), self._second)
        for node in self.topology:
            if path in _drm_nodes(node):
                return RenderNode(self._process(process), self.gpus[node.gpu_id])
        return self._debug_file(path) if path.startswith(DEBUGFS) else None

    def _debug_file(self, path: str) -> File | None:
        from hcq.emu.amd import debugfs_files  # for who looks there alone

        for node in self.topology:
            registers, gfxoff = debugfs_files.paths(node)
            if path in (registers, gfxoff):
                kind = debugfs_files.Regs2 if path == registers else debugfs_files.Gfxoff
                return kind(self.gpus[node.gpu_id])
        return None

    def _process(self, process: Process) -> KfdProcess:
        with self.lock:
            if process not in self.processes:
                made = self.processes[process] = KfdProcess(process, self.gpus, self.memory, self.minor)
                if self.observers:
                    made.watch(self.observers)
            return self.processes[process]

    def _second(self, process: Process) -> KfdProcess:
        with self.lock:
            made = KfdProcess(process, self.gpus, self.memory, self.minor)
            if self.observers:
                made.watch(self.observers)
            self.second.setdefault(process, []).append(made)
            return made

    def nodes(self) -> list[DeviceNode]:
        return [
            DeviceNode("/dev/kfd", KFD_MAJOR, 0, self.memory),
            *(
                DeviceNode(path, DRM_MAJOR, minor, self.gpus[node.gpu_id].memory)
                for node in self.topology
                for path, minor in _drm_nodes(node).items()
            ),
        ]

    def files(self) -> Mapping[str, bytes | str]:
        return self._files

    def live(self) -> Mapping[str, Callable[[], bytes]]:
        found: dict[str, Callable[[], bytes]] = {"/sys/kernel/debug/kfd/mqds": self._mqds}
        for node in self.topology:
            found |= sysfs.live(node, self.gpus[node.gpu_id])
        return found

    def _mqds(self) -> bytes:
        from hcq.emu.amd import mqd  # for who looks there alone

        return mqd.text(list(self.processes.values()))

    def describe(self) -> list[str]:
        return [
            f"{node.spec.chip.arch}: node {node.index} of /dev/kfd, /dev/dri/renderD{node.render_minor}"
            for node in self.topology
        ]

    def exit(self, process: Process) -> None:
        with self.lock:
            first = self.processes.pop(process, None)
            found = [*self.second.pop(process, []), *([] if first is None else [first])]
        for one in found:
            one.release()
        if first is not None:
            for observer in self.observers:
                observer.exited(process)
