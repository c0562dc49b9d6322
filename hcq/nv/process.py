"""What belongs to the process and not to one device: the RM client and the UVM files.

In       the port of whichever device needs one of these first
Out      NvProcess, one for each operating system (the real one, or an emulated one)
Changes  opens /dev/nvidiactl and /dev/nvidia-uvm twice; they stay open, because what they own goes when they close
Next     gpu.py (each GPU), rm.py (calls of the client)
Source   uvm.c: UVM_MM_INITIALIZE on a second file, without which page tables cannot be had; nv.c: REGISTER_FD
"""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

from hcq.errors import DriverError, UsageError
from hcq.nv.abi import ioctls as calls
from hcq.nv.abi.args import NO_FD
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.ioctls import RELEASES, Abi, abi_for
from hcq.nv.abi.rm_structs import CardInfoArgs
from hcq.nv.ioctl import call
from hcq.nv.nodes import open_node
from hcq.nv.rm import ROOT, Rm
from hcq.system import native
from hcq.system.port import Port, of_process, refused

VERSION_FILE = "/proc/driver/nvidia/version"
CTL_NODE, UVM_NODE = "/dev/nvidiactl", "/dev/nvidia-uvm"
DISABLE_HMM = 1  # a stray address is then a fault, also where the host has memory
_VERSION = re.compile(rb"NVRM version:.*?\b(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)\b")
_PLAIN_VERSION = re.compile(rb"\d{3,4}\.\d{1,4}(?:\.\d{1,4})?")
QUERY = ord("2")  # NV_RM_API_VERSION_CMD_QUERY
STRING_BYTES = 256  # room for each text of SYSTEM_GET_BUILD_VERSION, as much as the kernel module has for it
# what opening the node of a GPU says that is not given to this container or user
NOT_GIVEN = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENODEV)


class NvProcess:
    """Shared by the devices of one operating system."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.abi: Abi | None = None
        self.rm: Rm | None = None
        self.uvm_fd = -1
        self.mm_fd = -1
        self.peers: set[tuple[bytes, bytes]] = set()  # whose memory may be mapped for whom, both ways

    def read_version(self, port: Port) -> Abi:
        """The interface of the running driver."""
        with self.lock:
            if self.abi is None:
                self.abi = abi_for(_version_in_proc(port) or version_asked(port))
            return self.abi

    def client(self, port: Port) -> Rm:
        """The RM client, made on first use, to be called through this port."""
        with self.lock:
            if self.rm is None:
                abi = self.read_version(port)
                rm = Rm(port, abi, open_node(port, CTL_NODE))
                try:
                    rm.client = rm.alloc(0, ROOT)
                except DriverError:
                    port.close(rm.ctl_fd)
                    raise
                self.rm = rm
            return self.rm.with_port(port)

    def cards(self, port: Port) -> list[CardInfoArgs]:
        """The GPUs that the driver has, in its order."""
        rm = self.client(port)
        layout = calls.CARD_INFO.layout
        assert layout is CardInfoArgs
        size = CardInfoArgs.size_bytes
        argument = bytearray(size * calls.CARD_COUNT)
        try:
            port.ioctl(rm.ctl_fd, calls.CARD_INFO.request, argument)
        except DriverError as error:
            raise refused("NV_ESC_CARD_INFO()", error.errno or 0) from None
        found = [
            CardInfoArgs.from_bytes(bytes(argument[at : at + size])) for at in range(0, len(argument), size)
        ]
        return [card for card in found if card.valid]

    def open_card(self, port: Port, name: str, ready: Collection[int]) -> tuple[CardInfoArgs, int]:
        """The GPU that a device of this name means, and its file; opening it starts the GPU.

        The driver's list has every GPU of the machine. Those whose node is not there or may not be opened do not count:
        a container has some of them only. One that is `ready`, by its id, is not opened again: its file is then -1.
        Raises  UsageError when there are not so many, DriverError when there is none
        """
        cards = self.cards(port)
        try:
            return _usable(port, name, cards, ready, _as_it_is)
        except DriverError as error:
            if error.errno != errno.ENOENT:
                raise
        return _usable(port, name, cards, ready, open_node)  # nobody has made the nodes

    def open_uvm(self, port: Port) -> int:
        """The UVM file, initialised on first use, with the second file beside it that holds its page tables."""
        with self.lock:
            if self.uvm_fd < 0:
                abi = self.read_version(port)
                files: list[int] = []
                try:
                    files.append(open_node(port, UVM_NODE))
                    call(abi, port, files[0], calls.UVM_INITIALIZE, flags=DISABLE_HMM)
                    files.append(open_node(port, UVM_NODE))
                    call(abi, port, files[1], calls.UVM_MM_INITIALIZE, uvmfd=files[0])
                except DriverError:
                    for fd in files:
                        port.close(fd)
                    raise
                self.uvm_fd, self.mm_fd = files
            return self.uvm_fd

    def register_gpu(self, port: Port, uuid: bytes) -> None:
        """Tell UVM of a GPU."""
        self._uvm(port, calls.UVM_REGISTER_GPU, gpu_uuid=_number(uuid), rmctrlfd=NO_FD)

    def unregister_gpu(self, port: Port, uuid: bytes) -> None:
        """UVM forgets a GPU."""
        self._uvm(port, calls.UVM_UNREGISTER_GPU, gpu_uuid=_number(uuid))

    def enable_peers(self, port: Port, one: bytes, other: bytes) -> None:
        """Let two GPUs reach each other's memory. Raises DriverError where they cannot."""
        with self.lock:
            if (one, other) not in self.peers:
                self._uvm(port, calls.UVM_ENABLE_PEER_ACCESS, gpuuuida=_number(one), gpuuuidb=_number(other))
                self.peers |= {(one, other), (other, one)}

    def _uvm(self, port: Port, ioctl: Any, **fields: Any) -> None:
        assert self.abi is not None
        call(self.abi, port, self.uvm_fd, ioctl, **fields)


def _as_it_is(port: Port, path: str) -> int:
    return port.open(path)


def _usable(
    port: Port,
    name: str,
    cards: Sequence[CardInfoArgs],
    ready: Collection[int],
    open_file: Callable[[Port, str], int],
) -> tuple[CardInfoArgs, int]:
    """The card that a device of this name means, and its file. Raises as `open_card`."""
    index = int(name.partition(":")[2] or 0)
    usable: list[str] = []
    missing: list[DriverError] = []
    for card in cards:
        fd = -1
        gpu_id = int(card.values["gpu_id"])
        if gpu_id not in ready:
            try:
                fd = open_file(port, f"/dev/nvidia{card.values['minor_number']}")
            except DriverError as error:
                if error.errno not in NOT_GIVEN:
                    raise
                missing.append(error)
                continue
        if len(usable) == index:
            return card, fd
        usable.append(f"{gpu_id:#x}")
        if fd >= 0:
            port.close(fd)
    if missing and not usable:
        raise missing[0]
    others = f" {len(missing)} more cannot be opened here: {missing[0]}" if missing else ""
    raise UsageError(
        f"{name}: the driver shows {len(usable)} GPU{'s' * (len(usable) != 1)} ({', '.join(usable) or 'none'}); "
        f"the first is NV:0.{others}"
    )


def _version_in_proc(port: Port) -> str:
    """The release as the kernel module writes it into /proc; "" where that cannot be read, as in gVisor."""
    try:
        text = port.read_file(VERSION_FILE)
    except DriverError:
        return ""
    found = _VERSION.search(text)
    if found is None:
        first = text.decode("utf-8", "replace").partition("\n")[0]
        raise DriverError(
            f"read({VERSION_FILE}): no release in {first!r}. Load NVIDIA's kernel driver (nvidia.ko)."
        )
    return found[1].decode()


def version_asked(port: Port) -> str:
    """The release as /dev/nvidiactl tells it: by the escape that checks versions, else by a control.

    Both have the same structures in every release. Raises DriverError when neither answers.
    """
    fd = open_node(port, CTL_NODE)
    plain = abi_for(f"{RELEASES[0]}.0")
    try:
        try:
            answer = call(plain, port, fd, calls.CHECK_VERSION_STR, cmd=QUERY)
            text = int(answer.values["versionstring"]).to_bytes(64, "little")
        except DriverError:
            text = b""
        found = _PLAIN_VERSION.match(text) or _PLAIN_VERSION.match(_build_version(Rm(port, plain, fd)))
    finally:
        port.close(fd)
    if found is None:
        raise DriverError(
            f"{VERSION_FILE} cannot be read, and {CTL_NODE} names no release. Load NVIDIA's kernel driver (nvidia.ko)."
        )
    return found[0].decode()


def _build_version(rm: Rm) -> bytes:
    rm.client = rm.alloc(0, ROOT)
    try:
        texts = [bytearray(STRING_BYTES) for _ in range(3)]
        names = ("pdriverversionbuffer", "pversionbuffer", "ptitlebuffer")
        where = {name: native.address_of(text) for name, text in zip(names, texts)}
        number = ControlId.NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION
        rm.control(rm.client, number, sizeofstrings=STRING_BYTES, **where)
        return bytes(texts[0])
    finally:
        rm.free(rm.client)


def _number(uuid: bytes) -> int:
    """A UUID as the number that layouts hold."""
    return int.from_bytes(uuid, "little")


def process_of(port: Port) -> NvProcess:
    """The process as the operating system behind a port knows it."""
    return of_process(port, NvProcess)
