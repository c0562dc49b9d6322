"""Ioctl numbers: the 32 bits that name a request, computed as the macros _IO, _IOR, _IOW and _IOWR of C do.

In       the direction of a call, its driver's letter, its own number, the size of its argument
Out      the number that ioctl() takes
Next     hcq/amd/abi/kfd.py, hcq/amd/abi/drm.py, hcq/nv/abi/ioctls.py (the requests), port.py (who makes the calls)
Source   linux/asm-generic/ioctl.h, which the package ioctl-opt implements

A bare Python, such as the one that runs build/hw_check.pyz, has no ioctl-opt: `_from_parts` stands for it there.
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.errors import UsageError

NONE, WRITE, READ = 0, 1, 2  # as the caller sees them: it reads what the kernel wrote


def _from_parts(direction: int, letter: int, number: int, size_bytes: int) -> int:
    return direction << 30 | size_bytes << 16 | letter << 8 | number


try:
    from ioctl_opt import IOC
except ImportError:
    IOC = _from_parts

_compute: Callable[[int, int, int, int], int] = IOC


def ioctl_number(direction: int, letter: str | int, number: int, size_bytes: int) -> int:
    """The request whose macro would be _IOC(direction, letter, number, size_bytes).

    >>> from hcq.system.ioctl_numbers import READ, WRITE, ioctl_number
    >>> hex(ioctl_number(READ | WRITE, "F", 0x2A, 32))  # NV_ESC_RM_CONTROL
    '0xc020462a'
    """
    kind = ord(letter) if isinstance(letter, str) else letter
    for name, value, bits in (("direction", direction, 2), ("letter", kind, 8), ("number", number, 8)):
        if not 0 <= value < 1 << bits:
            raise UsageError(f"ioctl_number: {name}={value}; takes a number from 0 to {(1 << bits) - 1}.")
    if not 0 <= size_bytes < 1 << 14:
        raise UsageError(f"ioctl_number: size_bytes={size_bytes}; an argument has at most 16383 bytes.")
    return _compute(direction, kind, number, size_bytes)
