"""Classes: the interface numbers of resource manager objects and engines, and which of them each architecture has.

In       an architecture, or the list of classes that a GPU gave
Out      ClassId; ARCHITECTURES; newest(listed, candidates)
Next     ioctls.py (objects of these classes are allocated), methods.py (what their engines understand)
Source   the class headers of the open kernel module (cl0080.h, clc56f.h, clcbc0.h, ...)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from hcq.errors import DriverError


class ClassId(IntEnum):
    """Number of a class, as RM_ALLOC, SET_OBJECT and the class list of a GPU give it."""

    NV01_ROOT_CLIENT = 0x0041
    NV01_DEVICE_0 = 0x0080
    NV20_SUBDEVICE_0 = 0x2080
    NV01_MEMORY_SYSTEM = 0x003E
    NV01_MEMORY_LOCAL_USER = 0x0040
    NV01_MEMORY_SYSTEM_OS_DESCRIPTOR = 0x0071
    NV01_EVENT_OS_EVENT = 0x0079
    FERMI_VASPACE_A = 0x90F1
    KEPLER_CHANNEL_GROUP_A = 0xA06C
    FERMI_CONTEXT_SHARE_A = 0x9067
    GT200_DEBUGGER = 0x83DE
    TURING_USERMODE_A = 0xC461
    AMPERE_USERMODE_A = 0xC561
    HOPPER_USERMODE_A = 0xC661
    BLACKWELL_USERMODE_A = 0xC761
    AMPERE_CHANNEL_GPFIFO_A = 0xC56F
    HOPPER_CHANNEL_GPFIFO_A = 0xC86F
    BLACKWELL_CHANNEL_GPFIFO_A = 0xC96F
    BLACKWELL_CHANNEL_GPFIFO_B = 0xCA6F
    AMPERE_COMPUTE_A = 0xC6C0
    AMPERE_COMPUTE_B = 0xC7C0
    ADA_COMPUTE_A = 0xC9C0
    HOPPER_COMPUTE_A = 0xCBC0
    BLACKWELL_COMPUTE_A = 0xCDC0
    BLACKWELL_COMPUTE_B = 0xCEC0
    AMPERE_DMA_COPY_A = 0xC6B5
    AMPERE_DMA_COPY_B = 0xC7B5
    HOPPER_DMA_COPY_A = 0xC8B5
    BLACKWELL_DMA_COPY_A = 0xC9B5
    BLACKWELL_DMA_COPY_B = 0xCAB5


@dataclass(frozen=True)
class Engines:
    """The classes of one architecture that a channel needs."""

    gpfifo: ClassId
    compute: ClassId
    copy: ClassId
    usermode: ClassId


_C = ClassId
ARCHITECTURES: dict[str, Engines] = {
    "sm_80": Engines(
        _C.AMPERE_CHANNEL_GPFIFO_A, _C.AMPERE_COMPUTE_A, _C.AMPERE_DMA_COPY_A, _C.AMPERE_USERMODE_A
    ),
    "sm_86": Engines(
        _C.AMPERE_CHANNEL_GPFIFO_A, _C.AMPERE_COMPUTE_B, _C.AMPERE_DMA_COPY_B, _C.AMPERE_USERMODE_A
    ),
    "sm_89": Engines(
        _C.AMPERE_CHANNEL_GPFIFO_A, _C.ADA_COMPUTE_A, _C.AMPERE_DMA_COPY_B, _C.AMPERE_USERMODE_A
    ),
    "sm_90": Engines(
        _C.HOPPER_CHANNEL_GPFIFO_A, _C.HOPPER_COMPUTE_A, _C.HOPPER_DMA_COPY_A, _C.HOPPER_USERMODE_A
    ),
    "sm_100": Engines(
        _C.BLACKWELL_CHANNEL_GPFIFO_A, _C.BLACKWELL_COMPUTE_A, _C.BLACKWELL_DMA_COPY_A, _C.HOPPER_USERMODE_A
    ),
    "sm_120": Engines(
        _C.BLACKWELL_CHANNEL_GPFIFO_B,
        _C.BLACKWELL_COMPUTE_B,
        _C.BLACKWELL_DMA_COPY_B,
        _C.BLACKWELL_USERMODE_A,
    ),
}
# newest first: the order in which a driver looks for a class in a GPU's list
COMPUTE = tuple(sorted({each.compute for each in ARCHITECTURES.values()}, reverse=True))
COPY = tuple(sorted({each.copy for each in ARCHITECTURES.values()}, reverse=True))
GPFIFO = tuple(sorted({each.gpfifo for each in ARCHITECTURES.values()}, reverse=True))
USERMODE = tuple(sorted({_C.TURING_USERMODE_A, *(e.usermode for e in ARCHITECTURES.values())}, reverse=True))


def newest(listed: Iterable[int], candidates: tuple[ClassId, ...]) -> ClassId:
    """The first candidate that a GPU lists. Raises DriverError with what it lists when there is none."""
    there = set(listed)
    for candidate in candidates:
        if candidate in there:
            return candidate
    raise DriverError(
        f"this GPU lists none of {', '.join(c.name for c in candidates)}; it lists "
        f"{', '.join(f'{number:#x}' for number in sorted(there)) or 'nothing'}. It is older than Ampere,"
        " or newer than this driver."
    )
