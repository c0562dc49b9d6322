"""What belongs to the process and not to one device: the RM client and the UVM files.

In       the port of whichever device needs one of these first
Out      NvProcess, one for each operating system (the real one, or an emulated one)
Changes  opens /dev/nvidiactl and /dev/nvidia-uvm twice; they stay open, because what they own goes when they close
Next     gpu.py (each GPU), rm.py (calls of the client)
Source   uvm.c: UVM_MM_INITIALIZE on a second file, without which page tables cannot be had; nv.c: REGISTER_FD
"""

from __future__ import annotations

import re
import threading
from typing import Any

from hcq.errors import DriverError
from hcq.nv.abi import ioctls as calls
from hcq.nv.abi.args import NO_FD
from hcq.nv.abi.ioctls import Abi, abi_for
from hcq.nv.abi.rm_structs import CardInfoArgs
from hcq.nv.ioctl import call
from hcq.nv.rm import ROOT, Rm
from hcq.port import Port, of_process, refused

VERSION_FILE = "/proc/driver/nvidia/version"
CTL_NODE, UVM_NODE = "/dev/nvidiactl", "/dev/nvidia-uvm"
DISABLE_HMM = 1  # a stray address is then a fault, also where the host has memory
_VERSION = re.compile(rb"NVRM version:.*?\b(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)\b")


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
                text = port.read_file(VERSION_FILE)
                found = _VERSION.search(text)
                if found is None:
                    first = text.decode("utf-8", "replace").partition("\n")[0]
                    raise DriverError(
                        f"read({VERSION_FILE}): no release in {first!r}. Load NVIDIA's kernel driver (nvidia.ko)."
                    )
                self.abi = abi_for(found[1].decode())
            return self.abi

    def client(self, port: Port) -> Rm:
        """The RM client, made on first use, to be called through this port."""
        with self.lock:
            if self.rm is None:
                abi = self.read_version(port)
                rm = Rm(port, abi, port.open(CTL_NODE))
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

    def open_uvm(self, port: Port) -> int:
        """The UVM file, initialised on first use, with the second file beside it that holds its page tables."""
        with self.lock:
            if self.uvm_fd < 0:
                abi = self.read_version(port)
                files: list[int] = []
                try:
                    files.append(port.open(UVM_NODE))
                    call(abi, port, files[0], calls.UVM_INITIALIZE, flags=DISABLE_HMM)
                    files.append(port.open(UVM_NODE))
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


def _number(uuid: bytes) -> int:
    """A UUID as the number that layouts hold."""
    return int.from_bytes(uuid, "little")


def process_of(port: Port) -> NvProcess:
    """The process as the operating system behind a port knows it."""
    return of_process(port, NvProcess)
