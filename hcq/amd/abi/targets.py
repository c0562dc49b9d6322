"""Targets: which GPU an AMDGPU object was compiled for, as the flags of its ELF header say.

In       e_flags, and the version of its ABI
Out      names of machines; `Features`: what it wants of XNACK and SRAM ECC; which generic targets a GPU runs
Next     hcq/amd/link.py (who compares them with the GPU)
Source   LLVM AMDGPUUsage: "Processors", "Generic Processors", "AMDGPU ELF Header e_flags"; ROCr: Isa::IsCompatible
"""

from __future__ import annotations

from typing import NamedTuple

MACH_MASK = 0xFF
FIRST_VERSION = 1  # of every generic target: no GPU was added to one after it was first released

MACHINES = {
    0x20: "gfx600",
    0x21: "gfx601",
    0x22: "gfx700",
    0x23: "gfx701",
    0x24: "gfx702",
    0x25: "gfx703",
    0x26: "gfx704",
    0x28: "gfx801",
    0x29: "gfx802",
    0x2A: "gfx803",
    0x2B: "gfx810",
    0x2C: "gfx900",
    0x2D: "gfx902",
    0x2E: "gfx904",
    0x2F: "gfx906",
    0x30: "gfx908",
    0x31: "gfx909",
    0x32: "gfx90c",
    0x33: "gfx1010",
    0x34: "gfx1011",
    0x35: "gfx1012",
    0x36: "gfx1030",
    0x37: "gfx1031",
    0x38: "gfx1032",
    0x39: "gfx1033",
    0x3A: "gfx602",
    0x3B: "gfx705",
    0x3C: "gfx805",
    0x3D: "gfx1035",
    0x3E: "gfx1034",
    0x3F: "gfx90a",
    0x40: "gfx940",
    0x41: "gfx1100",
    0x42: "gfx1013",
    0x43: "gfx1150",
    0x44: "gfx1103",
    0x45: "gfx1036",
    0x46: "gfx1101",
    0x47: "gfx1102",
    0x48: "gfx1200",
    0x49: "gfx1250",
    0x4A: "gfx1151",
    0x4B: "gfx941",
    0x4C: "gfx942",
    0x4E: "gfx1201",
    0x4F: "gfx950",
    0x50: "gfx1310",
    0x51: "gfx9-generic",
    0x52: "gfx10-1-generic",
    0x53: "gfx10-3-generic",
    0x54: "gfx11-generic",
    0x55: "gfx1152",
    0x57: "gfx1154",
    0x58: "gfx1153",
    0x59: "gfx12-generic",
    0x5A: "gfx1251",
    0x5B: "gfx12-5-generic",
    0x5C: "gfx1172",
    0x5D: "gfx1170",
    0x5E: "gfx1171",
    0x5F: "gfx9-4-generic",
    0x62: "gfx11-7-generic",
    0x63: "gfx13-generic",
}
GENERIC = {  # of those GPUs that this driver knows: the generic target that runs there
    **dict.fromkeys(("gfx942", "gfx950"), "gfx9-4-generic"),
    **dict.fromkeys((f"gfx103{step}" for step in range(7)), "gfx10-3-generic"),
    **dict.fromkeys((f"gfx110{step}" for step in range(4)), "gfx11-generic"),
    **dict.fromkeys((f"gfx115{step}" for step in range(4)), "gfx11-generic"),
    **dict.fromkeys(("gfx1200", "gfx1201"), "gfx12-generic"),
}
HAS_FEATURES = ("gfx90a", "gfx942", "gfx950")  # GPUs that have XNACK and SRAM ECC, which may be on or off
PRELOADS = HAS_FEATURES  # GPUs whose firmware puts a kernel's first arguments into registers

_BITS_OF_V4 = ("", "any", "off", "on")


class Features(NamedTuple):
    """What an object wants: "on", "off", "any" (either), or "" where its target has no such feature."""

    xnack: str
    sramecc: str


def machine_name(flags: int) -> str:
    """The target of an object, also of one that nobody here has heard of."""
    mach = flags & MACH_MASK
    return MACHINES.get(mach, f"machine {mach:#x}, which is newer than this driver")


def generic_version(flags: int) -> int:
    """Of an object for a generic target; 0 where it has none."""
    return flags >> 24


def features(flags: int, abi_version: int) -> Features:
    """abi_version: as the ELF header has it: 1 for code objects of version 3, whose bits are plain switches."""
    if abi_version == 1:
        return Features("on" if flags & 0x100 else "off", "on" if flags & 0x200 else "off")
    return Features(_BITS_OF_V4[flags >> 8 & 3], _BITS_OF_V4[flags >> 10 & 3])
