"""What the emulated resource manager remembers: its files and their clients, its GPUs, its mappings.

In       GPUs of HCQ_EMULATE; tables of what it answers
Out      RmState; RmFile, whose ioctl finds the answer to an escape
Changes  objects of clients, mappings of files; GPUs run while there are channels
Next     rm_calls.py, rm_controls.py, foreign_calls.py, uvm.py (the answers), rm.py (who puts them together)
Source   escape.c, nv.c, nv-mmap.c of the open kernel module 580.142

A call that is malformed is an errno; one that cannot be is a status in its structure.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from hcq.emu.backing import Backing, DeviceMemory
from hcq.emu.kernel import LOG_LINES, File, Process, Refusal
from hcq.emu.nv.gpu import EmulatedGpu
from hcq.emu.nv.rm_objects import Client, RmError, RmObject
from hcq.emu.nv.spec import DEFAULT_VERSION, Spec
from hcq.emu.watched_call import watched
from hcq.events.kernel_observer import KernelObserver
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.ioctls import abi_for
from hcq.nv.abi.pointers import pointers_of
from hcq.nv.abi.status import NvStatus
from hcq.nv.abi.structures import structure
from hcq.system.port import MAP_SHARED

FIRST_CLIENT = 0xC1D00001
# NV01_EVENT, NV01_EVENT_KERNEL_CALLBACK, NV01_EVENT_OS_EVENT, NV01_EVENT_KERNEL_CALLBACK_EX
EVENT_CLASSES = (0x05, 0x78, 0x79, 0x7E)
HCLASS_AT = 12  # in RM_ALLOC's structure
SHORT_ALLOC_BYTES = 32  # NVOS21: RM_ALLOC without rights and flags, told apart by its size
CONTROL_NODE, DEVICE_NODE = "nvidiactl", "nvidiaN"


class Escape(NamedTuple):
    """An escape: the name of its structure, what answers it with the fields that change, and on files of which node."""

    layout: str
    answer: Callable[[RmFile, Any], dict[str, int]]
    node: str = CONTROL_NODE


class Reply(NamedTuple):
    """A control: the name of its structure, and what answers it (rm_controls.Call) with the fields that change."""

    layout: str
    answer: Callable[[Any], dict[str, int]]


class MapContext(NamedTuple):
    """What RM_MAP_MEMORY leaves on a file: what mmap maps.

    backing   None where the process maps by itself: its descriptor is one of that memory, which lives as long as it is
              allocated or mapped, although nobody tells when the file is closed
    """

    backing: Backing | None
    offset: int
    size_bytes: int
    is_bar: bool


class Mismatch(Refusal):
    """EINVAL, with the structure filled in all the same: nvidia_ioctl copies it back."""

    def __init__(self, changes: dict[str, int]) -> None:
        super().__init__(errno.EINVAL)
        self.changes = changes


class NvFile(File):
    """An open file of the driver. process: who opened it, and whose memory and descriptors its calls name."""

    def __init__(self, rm: RmState, path: str, process: Process) -> None:
        self.rm, self.path, self.process = rm, path, process

    def ioctl(self, request: int, argument: bytearray, process: Process) -> int:
        """Answer a call, and tell those who watch."""
        observers = self.rm.observers
        if not observers:
            return self.answer(request, argument, process)
        return watched(observers, self.path, pointers_of, request, argument, process, self.answer)

    def answer(self, request: int, argument: bytearray, process: Process) -> int:
        """The answer to a call."""
        raise NotImplementedError

    def check_caller(self, process: Process) -> None:
        """Here a file serves the process that opened it alone; the real module reads the memory of whoever calls."""
        if process is not self.process:
            raise Refusal(errno.EBADF)


class RmFile(NvFile):
    """An open /dev/nvidiactl (gpu is None) or /dev/nvidiaN."""

    def __init__(self, rm: RmState, path: str, process: Process, gpu: EmulatedGpu | None) -> None:
        super().__init__(rm, path, process)
        self.gpu = gpu
        self.clients: dict[int, Client] = {}
        self.control: RmFile | None = None  # the nvidiactl file that REGISTER_FD named
        self.context: MapContext | None = None

    def answer(self, request: int, argument: bytearray, process: Process) -> int:
        """Errnos for what is malformed: the number, the node, the size to the byte."""
        self.check_caller(process)
        number, kind, size = request & 0xFF, request >> 8 & 0xFF, request >> 16 & 0x3FFF
        if kind != ord("F"):
            raise Refusal(errno.EINVAL)
        if len(argument) < size:
            raise Refusal(errno.EFAULT)
        if number == abi.CARD_INFO.request & 0xFF and self.gpu is None:
            return self.rm.card_info(size, argument)
        escape = self.rm.escapes.get(number)
        node = CONTROL_NODE if self.gpu is None else DEVICE_NODE
        if escape is None or (escape.node != node and not self._makes_event(number, argument)):
            raise Refusal(errno.EINVAL)
        if number == abi.RM_ALLOC.request & 0xFF and size == SHORT_ALLOC_BYTES:
            whole = argument[:24] + bytes(8) + argument[24:28] + bytes(4) + argument[28:32] + bytes(4)
            self._answer(escape, len(whole), whole)
            argument[:size] = whole[:24] + whole[32:36] + whole[40:44]
            return 0
        return self._answer(escape, size, argument)

    def _makes_event(self, number: int, argument: bytearray) -> bool:
        """Events are allocated on either node. (RmIoctl, NV_ESC_RM_ALLOC)"""
        hclass = int.from_bytes(argument[HCLASS_AT : HCLASS_AT + 4], "little")
        return number == abi.RM_ALLOC.request & 0xFF and hclass in EVENT_CLASSES

    def _answer(self, escape: Escape, size: int, argument: bytearray) -> int:
        """Read the structure, answer, write it back with its status."""
        layout = self.rm.layouts[escape.layout]
        if size != layout.size_bytes:
            raise Refusal(errno.EINVAL)
        given = layout.from_bytes(bytes(argument[:size]))
        refusal: Refusal | None = None
        with self.rm.lock:
            try:
                changes = {"status": NvStatus.NV_OK, **escape.answer(self, given)}
            except RmError as error:
                changes = {"status": error.status}
            except Mismatch as mismatch:
                changes, refusal = mismatch.changes, mismatch
        known = {name: value for name, value in changes.items() if name in layout.fields}
        argument[:size] = layout(**{**given.values, **known}).to_bytes()
        if refusal is not None:
            raise refusal
        return 0

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, offset: int) -> int:
        context = self.context
        if context is None or context.backing is None or offset or not flags & MAP_SHARED:
            raise Refusal(errno.EINVAL)
        if context.is_bar and size_bytes != context.size_bytes:
            raise Refusal(errno.ENXIO)
        if size_bytes > context.size_bytes:
            raise Refusal(errno.ERANGE)
        return context.backing.map_host(va, size_bytes, prot, flags, context.offset)

    def close(self) -> None:
        with self.rm.lock:
            for client in self.clients.values():
                self.rm.free(client, client)
            self.clients.clear()
            if self in self.rm.open_files:
                self.rm.open_files.remove(self)

    def client(self, handle: int) -> Client:
        """A client of this file, or of the control file it is registered with."""
        owner = self if self.gpu is None else self.control
        if owner is None or handle not in owner.clients:
            raise RmError(NvStatus.NV_ERR_INVALID_CLIENT)
        return owner.clients[handle]


class RmState:
    """The driver, and what it knows of the one process that uses it. escapes, replies: what it answers, by number."""

    def __init__(self, specs: list[Spec], escapes: dict[int, Escape], replies: dict[int, Reply]) -> None:
        self.escapes, self.replies = escapes, replies
        self.version = next((spec.version for spec in specs if spec.version), DEFAULT_VERSION)
        self.abi = abi_for(self.version)
        self.layouts = self.abi.layouts  # structures by name, in this release's layout
        self.lock = threading.RLock()
        self.lines: deque[str] = deque(maxlen=LOG_LINES)
        # minors count down: a driver that takes them for ordinals opens the wrong GPU
        self.gpus = [
            EmulatedGpu(spec, index, len(specs) - 1 - index, self.lines.append)
            for index, spec in enumerate(specs)
        ]
        names = "nvidiactl", "nvidia-uvm", *(f"nvidia{gpu.minor}" for gpu in self.gpus)
        self.memories = {name: DeviceMemory(name, 0) for name in names}  # of the nodes: nothing lies in them
        self.observers: list[KernelObserver] = []
        for gpu in self.gpus:
            gpu.observers = self.observers
        self.open_files: list[NvFile] = []
        self.next_client = FIRST_CLIENT
        self.mappings: dict[int, RmObject] = {}  # what RM_MAP_MEMORY returned -> what it mapped
        self.next_mapping = 0x7F5500000000

    # ------------------------------------------------------------ for files and UVM

    def control_file(self, process: Process, fd: int) -> RmFile | None:
        """The nvidiactl file with this descriptor."""
        file = process.file(fd)
        return file if isinstance(file, RmFile) and file.gpu is None else None

    def card_info(self, size: int, argument: bytearray) -> int:
        """An array whose length the caller chooses; bytes behind its last whole entry stay. (nvidia_ioctl)"""
        entry = structure("CardInfoArgs").size_bytes
        if size // entry < len(self.gpus):
            raise Refusal(errno.EINVAL)
        argument[: size - size % entry] = bytes(size - size % entry)
        for at, gpu in enumerate(self.gpus):
            argument[at * entry : (at + 1) * entry] = gpu.card_info().to_bytes()
        return 0

    def free(self, client: Client, one: RmObject) -> None:
        """Free an object and all below it, the deepest first."""
        for each in one.whole():
            each.free()
            client.objects.pop(each.handle, None)
            for key in [key for key, mapped in self.mappings.items() if mapped is each]:
                del self.mappings[key]
        if one.parent is not None:
            one.parent.children.remove(one)
