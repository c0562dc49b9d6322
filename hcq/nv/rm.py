"""Resource manager calls: objects by handle, controls by number, and their mappings, in the running driver's layouts.

In       classes, control numbers, fields by name
Out      handles, structures as RM left them
Changes  objects of one client of the kernel driver
Next     abi/ioctls.py (which layout), process.py (the client), memory.py and channel.py (who makes what)
Source   nv_escape.h, nvos.h; which file a mapping belongs to: nv-mmap.c of the open kernel module
"""

from __future__ import annotations

from typing import Any

from hcq.errors import DriverError
from hcq.nv.abi import ioctls as calls
from hcq.nv.abi.args import Args
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.ioctls import ALLOCATIONS, CONTROLS, Abi
from hcq.nv.ioctl import call, call_with
from hcq.system import native
from hcq.system.port import MAP_FIXED, MAP_SHARED, PROT_READ, PROT_WRITE, Port


class Rm:
    """One client. Handles of objects are chosen by RM."""

    def __init__(self, port: Port, abi: Abi, ctl_fd: int, client: int = 0) -> None:
        self.port, self.abi, self.ctl_fd, self.client = port, abi, ctl_fd, client

    def with_port(self, port: Port) -> Rm:
        """The same client, called through another port to the same operating system."""
        return Rm(port, self.abi, self.ctl_fd, self.client)

    def alloc(self, parent: int, class_id: int, **fields: Any) -> int:
        """A new object: its handle. Raises DriverError with the class, and what usually causes the refusal."""
        if class_id not in ALLOCATIONS or not fields:
            return self._alloc(parent, class_id, b"")
        name = ALLOCATIONS[class_id]
        return call_with(self.abi, name, fields, lambda made: self._alloc(parent, class_id, made.to_bytes()))

    def _alloc(self, parent: int, class_id: int, params: bytes) -> int:
        argument = bytearray(params)
        made = call(
            self.abi,
            self.port,
            self.ctl_fd,
            calls.RM_ALLOC,
            hroot=self.client,
            hobjectparent=parent,
            hclass=class_id,
            pallocparms=native.address_of(argument) if argument else 0,
            paramssize=len(argument),
        )
        return int(made.values["hobjectnew"])

    def free(self, handle: int, parent: int = 0) -> None:
        """Free an object and everything below it."""
        call(
            self.abi,
            self.port,
            self.ctl_fd,
            calls.RM_FREE,
            hroot=self.client,
            hobjectparent=parent,
            hobjectold=handle,
        )

    def control(self, handle: int, number: int, **fields: Any) -> Args:
        """A control call on an object: its structure as it came back."""
        name = CONTROLS[number]
        try:
            return call_with(self.abi, name, fields, lambda made: self._control(handle, number, made))
        except DriverError as error:
            renamed = DriverError(f"{name}: {error}")
            renamed.errno = error.errno
            raise renamed from None

    def _control(self, handle: int, number: int, made: Args) -> Args:
        argument = bytearray(made.to_bytes())
        call(
            self.abi,
            self.port,
            self.ctl_fd,
            calls.RM_CONTROL,
            hclient=self.client,
            hobject=handle,
            cmd=number,
            params=native.address_of(argument),
            paramssize=len(argument),
        )
        return type(made).from_bytes(bytes(argument))

    def control_list(self, handle: int, number: int, prefix: str, indices: tuple[int, ...]) -> list[int]:
        """Values of numbered facts, for controls that take a list of (index, value) pairs by address."""
        pairs = bytearray(b"".join(index.to_bytes(8, "little") for index in indices))
        fields = {f"{prefix}listsize": len(indices), f"{prefix}list": native.address_of(pairs)}
        self.control(handle, number, **fields)
        return [int.from_bytes(pairs[at + 4 : at + 8], "little") for at in range(0, len(pairs), 8)]

    def map(
        self,
        owner: int,
        memory: int,
        size_bytes: int,
        path: str,
        va: int = 0,
        prot: int = PROT_READ | PROT_WRITE,
    ) -> tuple[int, int]:
        """Map an object for the host: the address, and what RM calls the mapping when it is ended.

        owner  its device or subdevice
        path   the node of the mapping: /dev/nvidiactl for system memory, the GPU's for what is behind a BAR
        va     where, or 0 for anywhere
        """
        fd = self.port.open(path)  # a file carries one mapping for its whole life
        try:
            made = call(
                self.abi,
                self.port,
                self.ctl_fd,
                calls.RM_MAP_MEMORY,
                hclient=self.client,
                hdevice=owner,
                hmemory=memory,
                length=size_bytes,
                fd=fd,
            )
            flags = MAP_SHARED | (MAP_FIXED if va else 0)
            return self.port.mmap(va, size_bytes, prot, flags, fd, 0), int(made.values["plinearaddress"])
        finally:
            self.port.close(fd)

    def unmap(self, owner: int, memory: int, mapping: int) -> None:
        """RM forgets a mapping; the addresses are the caller's to unmap."""
        call(
            self.abi,
            self.port,
            self.ctl_fd,
            calls.RM_UNMAP_MEMORY,
            hclient=self.client,
            hdevice=owner,
            hmemory=memory,
            plinearaddress=mapping,
        )


ROOT = ClassId.NV01_ROOT_CLIENT
