"""Escapes of the emulated resource manager: objects made and freed, memory mapped, controls asked.

In       a file, the structure of a call
Out      the fields that change; RmError for a refusal
Changes  the clients of the file, what it maps
Next     rm_state.py (who calls), rm_objects.py (what can be allocated), rm_controls.py (what can be asked)
Source   escape.c of the open kernel module 580.142
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from hcq.emu.kernel import Refusal
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
from hcq.emu.nv.rm_state import CONTROL_NODE, DEVICE_NODE, Escape, MapContext, Mismatch, RmFile
from hcq.layout import Ioctl
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.args import Args
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.gpfifo import USERMODE_BYTES
from hcq.nv.abi.status import NvStatus

ROOTS = (0, 1, ClassId.NV01_ROOT_CLIENT)
RELAXED, QUERY = ord("1"), ord("2")  # NV_RM_API_VERSION_CMD; all else is strict
RECOGNIZED = 1  # NV_RM_API_VERSION_REPLY
Answer = Callable[[RmFile, Any], dict[str, int]]
ESCAPES: dict[int, Escape] = {}


def answers(call: Ioctl, node: str = CONTROL_NODE) -> Callable[[Answer], Answer]:
    """Make a function the answer to an escape, on files of one node. It returns the fields that change."""

    def note(answer: Answer) -> Answer:
        assert call.layout is not None
        ESCAPES[call.request & 0xFF] = Escape(call.layout.__name__, answer, node)
        return answer

    return note


@answers(abi.SYS_PARAMS)
def sys_params(file: RmFile, given: Any) -> dict[str, int]:
    """NV_ESC_SYS_PARAMS: memory has no blocks."""
    return {"memblock_size": 0}


@answers(abi.CHECK_VERSION_STR)
def check_version(file: RmFile, given: Any) -> dict[str, int]:
    """NV_ESC_CHECK_VERSION_STR: what release this is, or whether the caller was made for it; if not, EINVAL and a line
    in the log. The reply says that the question was recognised, and that is always so."""
    text = given.versionstring.to_bytes(64, "little").split(b"\0")[0]
    ours = file.rm.version.encode()
    changes = {"reply": RECOGNIZED, "versionstring": int.from_bytes(ours, "little")}
    is_same = text.split(b".")[0] == ours.split(b".")[0] if given.cmd == RELAXED else text == ours
    if given.cmd == QUERY:
        return changes
    if not is_same:
        theirs = text.decode("ascii", "replace")
        file.rm.lines.append(
            f"NVRM: API mismatch: the client has the version {theirs}, but this kernel module has the version "
            f"{file.rm.version}."
        )
        raise Mismatch(changes)
    return {"reply": RECOGNIZED}


@answers(abi.REGISTER_FD, DEVICE_NODE)
def register_fd(file: RmFile, given: Any) -> dict[str, int]:
    """NV_ESC_REGISTER_FD: tie a GPU's file to one of /dev/nvidiactl."""
    control_file = file.rm.control_file(file.process, given.ctl_fd)
    if file.control is not None or control_file is None:
        raise Refusal(errno.EINVAL)
    file.control = control_file
    return {}


@answers(abi.RM_ALLOC)
def rm_alloc(file: RmFile, given: Args) -> dict[str, int]:
    """NV_ESC_RM_ALLOC: make an object of a class below another one."""
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
        check(given.hclass in parent.gpu.classes, NvStatus.NV_ERR_INVALID_CLASS)
    layout = file.rm.layouts[rule.layout] if rule.layout else None
    params = _read_params(file, given, layout, rule.required)
    call = Allocation(file.rm.gpus, file.process, client, parent, handle, given.hclass, params)
    rule.maker(call)
    if params is not None and call.results:
        changed = type(params)(**{**params.values, **call.results})
        file.process.write(given.pallocparms, changed.to_bytes())
    return {"hobjectnew": handle}


def _alloc_client(file: RmFile, given: Args) -> dict[str, int]:
    rm = file.rm
    handle = given.hobjectnew
    if not handle:
        handle = rm.next_client
        rm.next_client += 1
    check(given.hroot in (0, handle), NvStatus.NV_ERR_INVALID_CLIENT)
    everyone = {each for one in rm.open_files if isinstance(one, RmFile) for each in one.clients}
    check(handle not in everyone, NvStatus.NV_ERR_INSERT_DUPLICATE_NAME)
    if given.pallocparms and given.paramssize == 4:
        file.process.write(given.pallocparms, handle.to_bytes(4, "little"))
    file.clients[handle] = Client(handle)
    return {"hobjectnew": handle}


def _new_handle(client: Client, asked: int) -> int:
    if not asked:
        return client.fresh_handle()
    check(asked not in client.objects, NvStatus.NV_ERR_INVALID_OBJECT_NEW)
    return asked


def _read_params(file: RmFile, given: Args, layout: type[Args] | None, required: bool) -> Args | None:
    if layout is None:
        check(not given.paramssize, NvStatus.NV_ERR_INVALID_PARAM_STRUCT)
        return None
    if not given.pallocparms:
        check(not required, NvStatus.NV_ERR_INVALID_POINTER)
        check(not given.paramssize, NvStatus.NV_ERR_INVALID_POINTER)
        return None
    # a size of 0 means what the class takes: the short form once had no size
    check(given.paramssize in (0, layout.size_bytes), NvStatus.NV_ERR_INVALID_PARAM_STRUCT)
    return layout.from_bytes(file.process.read(given.pallocparms, layout.size_bytes))


@answers(abi.RM_FREE)
def rm_free(file: RmFile, given: Any) -> dict[str, int]:
    """NV_ESC_RM_FREE: free an object and all below it."""
    client = file.client(given.hroot)
    one = client.find(given.hobjectold, RmObject)
    file.rm.free(client, one)
    if one is client:
        del file.clients[client.handle]
    return {}


@answers(abi.RM_CONTROL)
def rm_control(file: RmFile, given: Any) -> dict[str, int]:
    """NV_ESC_RM_CONTROL: ask an object something."""
    client = file.client(given.hclient)
    one = client.find(given.hobject, RmObject)
    control(file, client, one, given.cmd, given.params, given.paramssize)
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
    call = Allocation(file.rm.gpus, file.process, client, parent, handle, given.hclass, None)
    host_memory(call, given.pmemory, given.limit + 1)
    return {}


@answers(abi.RM_MAP_MEMORY)
def rm_map_memory(file: RmFile, given: Any) -> dict[str, int]:
    """NV_ESC_RM_MAP_MEMORY: prepare a file for the mmap that follows."""
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
    target = file.process.file(given.fd)
    check(isinstance(target, RmFile), NvStatus.NV_ERR_INVALID_ARGUMENT)
    assert isinstance(target, RmFile)
    check(target.gpu is gpu, NvStatus.NV_ERR_INVALID_ARGUMENT)  # BARs: that GPU's node; the rest: nvidiactl
    check(target.context is None, NvStatus.NV_ERR_STATE_IN_USE)
    process = file.process
    if process.maps_by_itself:  # its mmap begins where the memory does
        if given.offset or backing.memory is None:
            file.rm.lines.append(
                f"NVRM: emulated: RM_MAP_MEMORY of {what.handle:#x} at offset {given.offset:#x}: another process maps "
                f"allocations of the driver from their beginning"
            )
            raise RmError(NvStatus.NV_ERR_NOT_SUPPORTED)
        process.show(given.fd, backing.memory)
    shown = None if process.maps_by_itself else backing
    target.context = MapContext(shown, given.offset, given.length, gpu is not None)
    address = file.rm.next_mapping
    file.rm.next_mapping += -(-given.length // PAGE) * PAGE
    file.rm.mappings[address] = what
    return {"plinearaddress": address}


@answers(abi.RM_UNMAP_MEMORY)
def rm_unmap_memory(file: RmFile, given: Any) -> dict[str, int]:
    """NV_ESC_RM_UNMAP_MEMORY: forget a mapping."""
    client = file.client(given.hclient)
    what = client.find(given.hmemory, RmObject)
    check(file.rm.mappings.get(given.plinearaddress) is what, NvStatus.NV_ERR_OBJECT_NOT_FOUND)
    del file.rm.mappings[given.plinearaddress]
    return {}


@answers(abi.RM_UPDATE_DEVICE_MAPPING_INFO)
def rm_update_mapping(file: RmFile, given: Any) -> dict[str, int]:
    """The caller says where it has mapped: from now on that address names the mapping."""
    client = file.client(given.hclient)
    what = client.find(given.hmemory, RmObject)
    check(file.rm.mappings.get(given.poldcpuaddress) is what, NvStatus.NV_ERR_OBJECT_NOT_FOUND)
    del file.rm.mappings[given.poldcpuaddress]
    file.rm.mappings[given.pnewcpuaddress] = what
    return {}
