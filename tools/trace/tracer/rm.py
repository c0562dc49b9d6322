"""A traced process that uses NVIDIA's kernel driver: its channels.

In       ioctls of /dev/nvidia* as they return, shared mappings
Out      ring entries as doorbells are about to show them, how far rings are read
Next     process.py (the rest of it), hcq/nv/foreign/ (what becomes of the events), kfd.py (the sister)
Source   hcq/nv/abi/: the calls; RM_MAP_MEMORY names the file whose mmap, at offset 0, then shows the memory

A channel is known by the parameters that it was made with: its ring by an address of the GPU, USERD by memory and
offset. Both are read where the process has mapped the memory (nvidia_vma_access lets /proc/PID/mem do so). GP_GET says
what the GPU has fetched, not what it has done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hcq.events.kernel_observer import Call, KernelObserver, queue_number
from hcq.layout import Ioctl
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.args import Args
from hcq.nv.abi.classes import GPFIFO, USERMODE, ClassId
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.gpfifo import GP_ENTRY_BYTES, USERD_GP_GET, USERD_GP_PUT
from hcq.nv.abi.structures import structure
from hcq.nv.foreign.ranges import Mapped, Ranges, Unmapped
from hcq.nv.foreign.reader import nested_after, structure_of
from hcq.nv.process import NvProcess
from hcq.system.port import LinuxPort
from hcq.tools.trace.tracer.process import TracedProcess

Key = tuple[int, int]  # a client and a handle
DeviceAlloc, GetWorkSubmitToken = structure("DeviceAlloc"), structure("GetWorkSubmitToken")


@dataclass
class Channel:
    """A channel. told, done: entries since it was made; number: None until its token was asked for."""

    ring: int
    entries: int
    userd: Key
    userd_offset: int
    gpu: int
    number: int | None = None
    told: int = 0
    done: int = 0


class RmProcess(TracedProcess):
    """A process, by its use of the resource manager and UVM."""

    kind: ClassVar[str] = "NV"
    devices: ClassVar[tuple[str, ...]] = ("/dev/nvidia",)

    def __init__(self, pid: int, observer: KernelObserver) -> None:
        super().__init__(pid, observer)
        self.abi = NvProcess().read_version(LinuxPort())
        calls = [one for name, one in vars(abi).items() if name.startswith("UVM_") and isinstance(one, Ioctl)]
        self.sizes = {one.request: self.abi.of(one).size_bytes for one in calls}
        self.parents: dict[Key, Key] = {}
        self.gpus: dict[Key, int] = {}  # devices -> device instance
        self.usermodes: set[Key] = set()
        self.channels: dict[Key, Channel] = {}
        self.prepared: dict[int, Key] = {}  # descriptor -> what its mmap will show
        self.seen_at: dict[Key, int] = {}  # memory -> where the process has mapped it
        self.ranges = Ranges()
        self.mappings: dict[int, Mapped] = {}  # by the GPU's address

    def argument_bytes(self, request: int) -> int:
        """UVM's numbers say nothing of sizes."""
        return self.sizes.get(request, super().argument_bytes(request))

    # ------------------------------------------------------------ calls

    def returned(self, call: Call) -> None:
        request, number = call.request, call.request & 0xFF
        change = self.ranges.change(call)
        if isinstance(change, Mapped):
            self.mappings[change.base] = change
        elif isinstance(change, Unmapped) and change.gpu is None:
            for base in [base for base in self.mappings if change.base <= base < change.end]:
                del self.mappings[base]
        elif request >> 8 & 0xFF == ord("F"):
            if number == abi.RM_MAP_MEMORY.request & 0xFF:
                prepared = structure("RmMapMemoryArgs").from_bytes(call.after)
                if not prepared.status:
                    self.prepared[prepared.fd] = (prepared.hclient, prepared.hmemory)
                return
            given = structure_of(call)
            if given is None or given.status:
                return
            if number == abi.RM_ALLOC.request & 0xFF:
                self._allocated(given, call)
            elif number == abi.RM_CONTROL.request & 0xFF:
                self._asked(given, call)
            elif number == abi.RM_FREE.request & 0xFF:
                self._freed((given.hroot, given.hobjectold))

    def _allocated(self, given: Any, call: Call) -> None:
        key, parent = (given.hroot, given.hobjectnew), (given.hroot, given.hobjectparent)
        self.parents[key] = parent
        what = nested_after(call, "pallocparms")
        if given.hclass == ClassId.NV01_DEVICE_0:
            self.gpus[key] = (
                DeviceAlloc.from_bytes(what).deviceid if len(what) >= DeviceAlloc.size_bytes else 0
            )
        elif given.hclass in USERMODE:
            self.usermodes.add(key)
        elif given.hclass in GPFIFO:
            layout: type[Args] = self.abi.layout("ChannelAlloc")
            made: Any = layout.from_bytes(what.ljust(layout.size_bytes, b"\0"))
            gpu = next((self.gpus[one] for one in self._above(key) if one in self.gpus), 0)
            userd = (given.hroot, made.huserdmemory_0)
            self.channels[key] = Channel(
                made.gpfifooffset, made.gpfifoentries, userd, made.userdoffset_0, gpu
            )

    def _asked(self, given: Any, call: Call) -> None:
        channel = self.channels.get((given.hclient, given.hobject))
        what = nested_after(call, "params")
        is_token = given.cmd == ControlId.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN
        if channel is not None and is_token and len(what) >= GetWorkSubmitToken.size_bytes:
            channel.number = queue_number(channel.gpu, GetWorkSubmitToken.from_bytes(what).worksubmittoken)

    def _freed(self, gone: Key) -> None:
        for key in [key for key in self.parents if gone in self._above(key)]:
            del self.parents[key]
            self.usermodes.discard(key)
            for known in (self.gpus, self.channels, self.seen_at):
                known.pop(key, None)

    def _above(self, key: Key) -> list[Key]:
        """An object and what it is below."""
        found = [key]
        while (parent := self.parents.get(found[-1])) is not None and parent not in found:
            found.append(parent)
        return found

    def mapped(self, thread: int, start: int, size_bytes: int, fd: int, offset: int) -> None:
        memory = self.prepared.pop(fd, None)
        if memory in self.usermodes:
            self.withhold(thread, start, size_bytes, fd, offset)
        elif memory is not None:
            self.seen_at[memory] = start

    # ------------------------------------------------------------ rings

    def read_gpu(self, va: int, size_bytes: int) -> bytes:
        """Memory at an address of the GPU, where the process sees it; nothing where it does not."""
        for base, one in self.mappings.items():
            if base <= va and va + size_bytes <= base + one.size_bytes:
                start = self.seen_at.get(one.memory)
                # memory of the process itself, which RM was given, is at the same address by custom
                return self.read(va if start is None else start + one.offset + va - base, size_bytes)
        return b""

    def look(self) -> None:
        for one in self.channels.values():
            put = self._userd(one, USERD_GP_PUT)
            if one.number is None or put is None or put >= one.entries:
                continue
            count = (put - one.told) % one.entries
            first = one.told % one.entries
            head = min(count, one.entries - first)
            words = self.read_gpu(one.ring + first * GP_ENTRY_BYTES, head * GP_ENTRY_BYTES)
            words += self.read_gpu(one.ring, (count - head) * GP_ENTRY_BYTES) if count > head else b""
            if words:
                at, one.told = one.told, one.told + count
                self.observer.taken(self, one.number, at * GP_ENTRY_BYTES, words, self.read_gpu)

    def look_done(self) -> None:
        for one in self.channels.values():
            get = self._userd(one, USERD_GP_GET) if one.done != one.told else None
            if one.number is None or get is None:
                continue
            done = one.told - (one.told - get) % one.entries
            if done > one.done:
                one.done = done
                self.observer.done(self, one.number, done * GP_ENTRY_BYTES)

    def _userd(self, one: Channel, at: int) -> int | None:
        """A word of USERD; None where the process has not mapped it."""
        start = self.seen_at.get(one.userd)
        data = b"" if start is None else self.read(start + one.userd_offset + at, 4)
        return int.from_bytes(data, "little") if data else None
