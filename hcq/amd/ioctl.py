"""Calls of AMD's kernel driver: made, repeated when a signal interrupts them, and their errno in words.

In       an open file, an ioctl, fields by name
Out      the structure as the kernel returned it; DriverError with the call, its arguments, the errno and the usual fix
Changes  whatever the call does
Next     abi/kfd.py and abi/drm.py (what can be called), device.py, memory.py, rings.py, process.py (who calls)
"""

from __future__ import annotations

import errno
from typing import Any, TypeVar

from hcq.amd.abi import drm
from hcq.amd.abi.kfd import Ioctl
from hcq.errors import DriverError
from hcq.layout import Packet
from hcq.system import native
from hcq.system.port import Port, refused

A = TypeVar("A", bound=Packet)


def call(port: Port, fd: int, ioctl: Ioctl[A], /, **fields: Any) -> A:
    """Make a call; one that a signal interrupted is made again with what the kernel returned.

    Raises  DriverError naming the call, the fields of `show`, the errno and the usual fix
    """
    what = ioctl.layout(**fields)
    argument = bytearray(what.to_bytes())
    while True:
        try:
            port.ioctl(fd, ioctl.request, argument)
        except DriverError as error:
            if error.errno == errno.EINTR:
                continue
            raise _refusal(ioctl, what, error.errno or 0) from None
        return ioctl.layout.decode(memoryview(argument).cast("I"))


def _refusal(ioctl: Ioctl[Any], what: Packet, number: int) -> DriverError:
    values = ", ".join(f"{name}={what.fields[name].show(what.values[name])}" for name in ioctl.show)
    plain = refused(f"AMDKFD_IOC_{ioctl.name}({values})", number)
    error = DriverError(f"{plain} {ioctl.fix}".rstrip())
    error.errno = number
    return error


def counter_ticks_per_ms(port: Port, drm_fd: int) -> int:
    """How fast the GPU's counter goes, in ticks a millisecond. Raises DriverError where the kernel does not say."""
    answer = bytearray(drm.DeviceInfo().to_bytes())
    what = drm.Info(return_pointer=native.address_of(answer), return_size=len(answer), query=drm.DEV_INFO)
    try:
        port.ioctl(drm_fd, drm.INFO_REQUEST, bytearray(what.to_bytes()))
    except DriverError as error:
        raise refused(f"DRM_IOCTL_AMDGPU_INFO({what!r})", error.errno or 0) from None
    speed = int(drm.DeviceInfo.decode(memoryview(answer).cast("I")).gpu_counter_freq)
    if not speed:
        raise DriverError(
            "DRM_IOCTL_AMDGPU_INFO says the GPU's counter does not count. Update the amdgpu kernel driver."
        )
    return speed
