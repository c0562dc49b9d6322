"""The emulated resource manager: /dev/nvidiactl and /dev/nvidiaN, answering as the open kernel module does.

In       opens, ioctls and mappings of one process; GPUs parsed from HCQ_EMULATE
Out      the same structures, statuses and errnos
Changes  objects of clients, mappings of files; GPUs run while there are channels
Next     rm_objects.py (what can be allocated), rm_controls.py (what can be asked), uvm.py (/dev/nvidia-uvm)
Source   escape.c, nv.c, nv-mmap.c, osapi.c of the open kernel module 580.142

Answers are hung on the driver's own declarations: `@answers(abi.RM_ALLOC)`. A call that is malformed is an errno; one
that cannot be is a status in its structure.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from typing import Any

from hcq import native
from hcq.emu.backing import Backing
from hcq.emu.kernel import Refusal
from hcq.emu.nv import foreign_calls
from hcq.emu.nv.gpu import EmulatedGpu
from hcq.emu.nv.memory import PAGE
from hcq.emu.nv.rm_controls import control
from hcq.emu.nv.rm_objects import (
    RULES,
    Allocation,
    Client,
    Device,
    Memory,
    RmError,
    RmObject,
    Subdevice,
    Usermode,
    check,
    host_memory,
)
from hcq.emu.nv.spec import DEFAULT_VERSION, Spec, parse_all
from hcq.emu.nv.uvm import UvmFile
from hcq.layout import Ioctl
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.args import Args
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.gpfifo import USERMODE_BYTES
from hcq.nv.abi.ioctls import abi_for
from hcq.nv.abi.rm_structs import CardInfoArgs, RmAllocArgs
from hcq.nv.abi.status import NvStatus
from hcq.port import MAP_SHARED

FIRST_CLIENT = 0xC1D00001
SHORT_ALLOC_BYTES = 32  # NVOS21: RM_ALLOC without rights and flags, told apart by its size
ROOTS = (0, 1, ClassId.NV01_ROOT_CLIENT)
Answer = Callable[["RmFile", Any], "dict[str, int]"]
CONTROL_NODE, DEVICE_NODE = "nvidiactl", "nvidiaN"

ANSWERS: dict[int, tuple[Ioctl, str, Answer]] = {}


def answers(call: Ioctl, node: str = CONTROL_NODE) -> Callable[[Answer], Answer]:
    """Make a function the answer to an escape, on files of one node. It returns the fields that change."""

    def note(answer: Answer) -> Answer:
        ANSWERS[call.request & 0xFF] = call, node, answer
        return answer

    return note


class MapContext:
    """What RM_MAP_MEMORY leaves on a file: what mmap maps."""

    def __init__(self, backing: Backing, offset: int, size_bytes: int, is_bar: bool) -> None:
        self.backing, self.offset, self.size_bytes, self.is_bar = backing, offset, size_bytes, is_bar


class RmFile:
    """An open /dev/nvidiactl (gpu is None) or /dev/nvidiaN."""

    def __init__(self, rm: EmulatedRm, fd: int, gpu: EmulatedGpu | None) -> None:
        self.rm, self.fd, self.gpu = rm, fd, gpu
        self.clients: dict[int, Client] = {}
        self.control: RmFile | None = None  # the nvidiactl file that REGISTER_FD named
        self.context: MapContext | None = None

    def ioctl(self, request: int, argument: bytearray) -> int:
        """Errnos for what is malformed: the number, the node, the size to the byte."""
        number, kind, size = request & 0xFF, request >> 8 & 0xFF, request >> 16 & 0x3FFF
        if kind != ord("F"):
            raise Refusal(errno.EINVAL)
        if len(argument) < size:
            raise Refusal(errno.EFAULT)
        if number == abi.CARD_INFO.request & 0xFF and self.gpu is None:
            return self.rm.card_info(size, argument)
        if number in foreign_calls.ESCAPES and self.gpu is None:
            name, other = foreign_calls.ESCAPES[number]
            return self._answer(self.rm.layout(name), other, size, argument)
        call, node, answer = ANSWERS.get(number, (None, "", None))
        if call is None or answer is None or node != (CONTROL_NODE if self.gpu is None else DEVICE_NODE):
            raise Refusal(errno.EINVAL)
        if call is abi.RM_ALLOC and size == SHORT_ALLOC_BYTES:
            whole = argument[:24] + bytes(8) + argument[24:28] + bytes(4) + argument[28:32] + bytes(4)
            self._answer(self.rm.abi.of(call), answer, len(whole), whole)
            argument[:size] = whole[:24] + whole[32:36] + whole[40:44]
            return 0
        return self._answer(self.rm.abi.of(call), answer, size, argument)

    def _answer(self, layout: type[Args], answer: Answer, size: int, argument: bytearray) -> int:
        """Read the structure, answer, write it back with its status."""
        if size != layout.size_bytes:
            raise Refusal(errno.EINVAL)
        given = layout.from_bytes(bytes(argument[:size]))
        with self.rm.lock:
            try:
                changes = {"status": NvStatus.NV_OK, **answer(self, given)}
            except RmError as error:
                changes = {"status": error.status}
        known = {name: value for name, value in changes.items() if name in layout.fields}
        argument[:size] = layout(**{**given.values, **known}).to_bytes()
        return 0

    def mmap(self, va: int, size_bytes: int, prot: int, flags: int, offset: int) -> int:
        context = self.context
        if context is None or offset or not flags & MAP_SHARED:
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
            self.rm.files.pop(self.fd, None)

    def client(self, handle: int) -> Client:
        """A client of this file, or of the control file it is registered with."""
        owner = self if self.gpu is None else self.control
        if owner is None or handle not in owner.clients:
            raise RmError(NvStatus.NV_ERR_INVALID_CLIENT)
        return owner.clients[handle]


def emulate(words: Sequence[str]) -> EmulatedRm:
    """The driver of the GPUs that these words of HCQ_EMULATE describe."""
    return EmulatedRm(parse_all(list(words)))


class EmulatedRm:
    """The driver, and what it knows of the one process that uses it."""

    def __init__(self, specs: list[Spec]) -> None:
        self.version = next((spec.version for spec in specs if spec.version), DEFAULT_VERSION)
        self.abi = abi_for(self.version)
        self.lock = threading.RLock()
        self.lines: list[str] = []
        # minors count down: a driver that takes them for ordinals opens the wrong GPU
        self.gpus = [
            EmulatedGpu(spec, index, len(specs) - 1 - index, self.lines.append)
            for index, spec in enumerate(specs)
        ]
        self.files: dict[int, RmFile | UvmFile] = {}
        self.next_client = FIRST_CLIENT
        self.mappings: dict[int, RmObject] = {}  # what RM_MAP_MEMORY returned -> what it mapped
        self.next_mapping = 0x7F5500000000

    def open(self, path: str, fd: int) -> RmFile | UvmFile | None:
        file: RmFile | UvmFile
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

    # ------------------------------------------------------------ for files and UVM

    def control_file(self, fd: int) -> RmFile | None:
        """The nvidiactl file with this descriptor."""
        file = self.files.get(fd)
        return file if isinstance(file, RmFile) and file.gpu is None else None

    def layout(self, name: str) -> type[Args]:
        """A structure in this release's layout."""
        return (
            foreign_calls.layout_of(name, self.abi.release)
            if name in foreign_calls.LAYOUTS
            else self.abi.layout(name)
        )

    def card_info(self, size: int, argument: bytearray) -> int:
        """An array whose length the caller chooses."""
        entry = CardInfoArgs.size_bytes
        if size % entry or size // entry < len(self.gpus):
            raise Refusal(errno.EINVAL)
        argument[:size] = bytes(size)
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


# ------------------------------------------------------------ answers


@answers(abi.SYS_PARAMS)
def sys_params(file: RmFile, given: Any) -> dict[str, int]:
    return {"memblock_size": 0}


@answers(abi.CHECK_VERSION_STR)
def check_version(file: RmFile, given: Any) -> dict[str, int]:
    text = given.versionstring.to_bytes(64, "little").split(b"\0")[0]
    ours = file.rm.version.encode()
    # reply: 1 when the kernel module recognises the version; it answers with its own
    return {"reply": int(text == ours), "versionstring": int.from_bytes(ours, "little")}


@answers(abi.REGISTER_FD, DEVICE_NODE)
def register_fd(file: RmFile, given: Any) -> dict[str, int]:
    control_file = file.rm.control_file(given.ctl_fd)
    if file.control is not None or control_file is None:
        raise Refusal(errno.EINVAL)
    file.control = control_file
    return {}


@answers(abi.RM_ALLOC)
def rm_alloc(file: RmFile, given: RmAllocArgs) -> dict[str, int]:
    if given.hclass in ROOTS:
        return _alloc_client(file, given)
    client = file.client(given.hroot)
    parent = client.find(given.hobjectparent, RmObject, NvStatus.NV_ERR_INVALID_OBJECT_PARENT)
    handle = _new_handle(client, given.hobjectnew)
    rule = RULES.get(given.hclass)
    if rule is None:
        raise RmError(NvStatus.NV_ERR_INVALID_CLASS)
    check(isinstance(parent, rule.parents), NvStatus.NV_ERR_INVALID_OBJECT_PARENT)
    if not isinstance(parent, Client):
        owner = parent.above(Device).gpu
        check(given.hclass in owner.classes, NvStatus.NV_ERR_INVALID_CLASS)
    layout = file.rm.layout(rule.layout) if rule.layout else None
    params = _read_params(given, layout, rule.required)
    call = Allocation(file.rm, client, parent, handle, given.hclass, params)
    rule.maker(call)
    if params is not None and call.results:
        changed = type(params)(**{**params.values, **call.results})
        native.write(given.pallocparms, changed.to_bytes(), changed.size_bytes)
    return {"hobjectnew": handle}


def _alloc_client(file: RmFile, given: RmAllocArgs) -> dict[str, int]:
    rm = file.rm
    handle = given.hobjectnew
    if not handle:
        handle = rm.next_client
        rm.next_client += 1
    check(given.hroot in (0, handle), NvStatus.NV_ERR_INVALID_CLIENT)
    everyone = {each for one in rm.files.values() if isinstance(one, RmFile) for each in one.clients}
    check(handle not in everyone, NvStatus.NV_ERR_INSERT_DUPLICATE_NAME)
    if given.pallocparms and given.paramssize == 4:
        native.write(given.pallocparms, handle.to_bytes(4, "little"), 4)
    file.clients[handle] = Client(handle)
    return {"hobjectnew": handle}


def _new_handle(client: Client, asked: int) -> int:
    if not asked:
        return client.fresh_handle()
    check(asked not in client.objects, NvStatus.NV_ERR_INVALID_OBJECT_NEW)
    return asked


def _read_params(given: RmAllocArgs, layout: type[Args] | None, required: bool) -> Args | None:
    if layout is None:
        check(not given.paramssize, NvStatus.NV_ERR_INVALID_PARAM_STRUCT)
        return None
    if not given.pallocparms:
        check(not required, NvStatus.NV_ERR_INVALID_POINTER)
        check(not given.paramssize, NvStatus.NV_ERR_INVALID_POINTER)
        return None
    # a size of 0 means what the class takes: the short form once had no size
    check(given.paramssize in (0, layout.size_bytes), NvStatus.NV_ERR_INVALID_PARAM_STRUCT)
    return layout.from_bytes(native.read(given.pallocparms, layout.size_bytes))


@answers(abi.RM_FREE)
def rm_free(file: RmFile, given: Any) -> dict[str, int]:
    client = file.client(given.hroot)
    one = client.find(given.hobjectold, RmObject)
    file.rm.free(client, one)
    if one is client:
        del file.clients[client.handle]
    return {}


@answers(abi.RM_CONTROL)
def rm_control(file: RmFile, given: Any) -> dict[str, int]:
    client = file.client(given.hclient)
    one = client.find(given.hobject, RmObject)
    control(file.rm, client, one, given.cmd, given.params, given.paramssize)
    return {}


@answers(abi.RM_ALLOC_MEMORY, DEVICE_NODE)
def rm_alloc_memory(file: RmFile, given: Any) -> dict[str, int]:
    """Registers pages of the process; other classes of memory go through RM_ALLOC."""
    if file.control is None:
        raise Refusal(errno.EINVAL)
    client = file.client(given.hroot)
    parent = client.find(given.hobjectparent, RmObject, NvStatus.NV_ERR_INVALID_OBJECT_PARENT)
    check(given.hclass == ClassId.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, NvStatus.NV_ERR_INVALID_CLASS)
    check(isinstance(parent, Device), NvStatus.NV_ERR_INVALID_OBJECT_PARENT)
    check(given.hobjectnew, NvStatus.NV_ERR_INVALID_OBJECT_NEW)
    handle = _new_handle(client, given.hobjectnew)
    call = Allocation(file.rm, client, parent, handle, given.hclass, None)
    host_memory(call, given.pmemory, given.limit + 1)
    return {}


@answers(abi.RM_MAP_MEMORY)
def rm_map_memory(file: RmFile, given: Any) -> dict[str, int]:
    client = file.client(given.hclient)
    client.find(given.hdevice, RmObject)
    what = client.find(given.hmemory, RmObject)
    gpu: EmulatedGpu | None
    if isinstance(what, Usermode):
        backing, gpu = what.gpu.usermode, what.gpu
        check(given.offset + given.length <= USERMODE_BYTES, NvStatus.NV_ERR_INVALID_LIMIT)
    elif isinstance(what, Memory):
        backing, gpu = what.backing, what.owner
        check(given.offset + given.length <= backing.size_bytes, NvStatus.NV_ERR_INVALID_LIMIT)
        check(gpu is None or gpu.spec.is_video_memory_mappable, NvStatus.NV_ERR_INSUFFICIENT_RESOURCES)
    else:
        raise RmError(NvStatus.NV_ERR_INVALID_OBJECT_HANDLE)
    owner = client.find(given.hdevice, RmObject)
    check(isinstance(owner, (Device, Subdevice)), NvStatus.NV_ERR_INVALID_DEVICE)
    check(given.length and given.offset % PAGE == 0, NvStatus.NV_ERR_INVALID_ARGUMENT)
    target = file.rm.files.get(given.fd)
    check(isinstance(target, RmFile), NvStatus.NV_ERR_INVALID_ARGUMENT)
    assert isinstance(target, RmFile)
    check(target.gpu is gpu, NvStatus.NV_ERR_INVALID_ARGUMENT)  # BARs: that GPU's node; the rest: nvidiactl
    check(target.context is None, NvStatus.NV_ERR_STATE_IN_USE)
    target.context = MapContext(backing, given.offset, given.length, gpu is not None)
    address = file.rm.next_mapping
    file.rm.next_mapping += -(-given.length // PAGE) * PAGE
    file.rm.mappings[address] = what
    return {"plinearaddress": address}


@answers(abi.RM_UNMAP_MEMORY)
def rm_unmap_memory(file: RmFile, given: Any) -> dict[str, int]:
    client = file.client(given.hclient)
    what = client.find(given.hmemory, RmObject)
    check(file.rm.mappings.get(given.plinearaddress) is what, NvStatus.NV_ERR_OBJECT_NOT_FOUND)
    del file.rm.mappings[given.plinearaddress]
    return {}


@answers(abi.RM_UPDATE_DEVICE_MAPPING_INFO)
def rm_update_mapping(file: RmFile, given: Any) -> dict[str, int]:
    """The caller tells where it has mapped: from now on the mapping goes by that address."""
    client = file.client(given.hclient)
    what = client.find(given.hmemory, RmObject)
    check(file.rm.mappings.get(given.poldcpuaddress) is what, NvStatus.NV_ERR_OBJECT_NOT_FOUND)
    del file.rm.mappings[given.poldcpuaddress]
    file.rm.mappings[given.pnewcpuaddress] = what
    return {}
