"""Target: what the compiler knows about the machine that will run a kernel.

In       the host's description of itself (/proc/cpuinfo, or the platform module where there is none)
Out      `Target`: its name and key for caches, vector width, registers, cache sizes, native operations
Next     loops/heuristic.py (who reads the limits), render/ and assemble/ (who spell and assemble for it)

Each kind of device names one function of (arch, threads of the host) -> Target in its entry of hcq/backends.py.
Describing the host loads no LLVM, so a kernel found in the cache never does. LLVM is asked for the CPU's own name and
features only when something has to be compiled; the key below stands for them.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from hcq.compiler.chips import chip_of
from hcq.ir.dtype import DType, dtypes
from hcq.ir.elementwise.table import SPELLED
from hcq.ir.op import Op

GPU_TARGETS = ("amdgpu", "nvptx", "cuda", "metal")  # whose groups have threads
CPU_NATIVE = SPELLED  # what every language of render/ has words for
NARROW_CASTS = frozenset({dtypes.float16, dtypes.bfloat16})
GPU_WIDENS = frozenset({dtypes.fp8e4m3, dtypes.fp8e5m2})  # by way of float16


@dataclass(frozen=True)
class Toolchain:
    """A vendor's compiler, passed in by who knows where it is: this floor binds no library of a driver's.

    name    with its version, such as "nvrtc-13.3": it is part of the key of every kernel it makes
    takes   "cuda" (source in CUDA C) or "ptx"
    make    (text, arch, name) -> image; raises with the compiler's own messages
    """

    name: str
    takes: str
    make: Callable[[str, str, str], bytes]


@dataclass(frozen=True)
class Target:
    """One kind of machine."""

    name: str  # "cpu", "amdgpu", "nvptx": who generates code for it, unless `codegen` says it
    arch: str  # "x86_64", "aarch64", "gfx1100", ...
    key: str  # a digest of all that changes the code: for caches
    threads: int  # groups that run at once
    vector_bits: int
    vector_registers: int
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    shared_bytes: int = 48 << 10  # of a GPU's group: what one may have at most
    cores: int = 1  # of a GPU: what its blocks are spread over
    wave_copy_bytes: int = 0  # of a GPU whose waves copy to shared memory by themselves: the most of a lane
    cpu: str = ""  # LLVM's name; empty: the host's own, with the host's features
    features: str = ""  # LLVM's list, beside a named cpu; of the host's own, what differs
    native: frozenset[Op] = CPU_NATIVE
    # what a CPU has besides, by the names of /proc/cpuinfo: see loops/dot_units.py; of a GPU, what `allowing` says
    flags: frozenset[str] = frozenset()
    casts: frozenset[DType] = NARROW_CASTS  # narrow formats it converts to and from float32 by itself
    widens: frozenset[DType] = frozenset()  # those that it only converts to float32
    has_float64: bool = True
    most_arguments: int = 64  # buffers that a kernel reads; it writes a few besides
    assembler: str = "llvmlite"  # or "comgr", for AMD: see assemble_with in codegen.py
    toolchain: Toolchain | None = None  # or a vendor's, for NVIDIA: see compile_with there
    codegen: str = ""  # "module:attribute" of a Codegen, for targets that codegen.py does not know

    @property
    def lanes(self) -> int:
        """Lanes of float32 in one vector register."""
        return self.vector_bits // 32

    @property
    def copies_ahead(self) -> bool:
        """Whether a GPU copies to shared memory by itself, so that more than the next step's tiles are on their way."""
        return self.name in ("nvptx", "cuda") or self.wave_copy_bytes > 0


GPU_GROUPS = 1 << 10  # blocks that keep a large GPU busy: a hundred cores, several on each
AMD_ARCHS = (
    *("gfx90a", "gfx942", "gfx950"),
    *("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
    *("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    *("gfx1200", "gfx1201"),
)


@lru_cache
def amd_target(arch: str, threads: int | None = None) -> Target:
    """An AMD GPU by its gfx name, whatever the host. Raises ValueError listing those we generate code for."""
    if arch not in AMD_ARCHS:
        raise ValueError(f"no code generation for {arch!r}; known AMD architectures: {', '.join(AMD_ARCHS)}")
    return Target(
        "amdgpu",
        arch,
        arch,
        threads=GPU_GROUPS,
        vector_bits=32,
        vector_registers=256,
        shared_bytes=AMD_SHARED_BYTES,
        wave_copy_bytes=AMD_WAVE_COPY_BYTES.get(arch, 0),
        widens=GPU_WIDENS,
        cores=chip_of(arch).cores,
    )


AMD_SHARED_BYTES = 64 << 10
# LLVM 22, global_load_lds: 1, 2 and 4 bytes of a lane, and since gfx950 12 and 16; gfx11 and gfx12 have none
AMD_WAVE_COPY_BYTES = {"gfx90a": 4, "gfx942": 4, "gfx950": 16}
# CUDA C++ Programming Guide, "Compute Capabilities": the most that a block may ask for
NV_SHARED_KIB = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_100": 227, "sm_120": 99}
NV_ARCHS = {  # the PTX version that first knows it
    "sm_80": "ptx70",
    "sm_86": "ptx71",
    "sm_89": "ptx78",
    "sm_90": "ptx78",
    "sm_100": "ptx86",
    "sm_120": "ptx87",
}


@lru_cache
def nv_target(arch: str, threads: int | None = None) -> Target:
    """An NVIDIA GPU by its sm name, whatever the host. Raises ValueError listing those we generate code for."""
    if arch not in NV_ARCHS:
        raise ValueError(
            f"no code generation for {arch!r}; known NVIDIA architectures: {', '.join(NV_ARCHS)}"
        )
    features = f"+{NV_ARCHS[arch]}"
    return Target(
        "nvptx",
        arch,
        arch,
        threads=GPU_GROUPS,
        vector_bits=32,
        vector_registers=255,
        shared_bytes=NV_SHARED_KIB[arch] << 10,
        cores=chip_of(arch).cores,
        features=features,
        widens=GPU_WIDENS,
    )


METAL_ARCHS = ("apple7", "apple8", "apple9")  # GPU families: M1, M2, from M3 on
METAL_ARGUMENTS = 16  # of the 31 entries of its buffer argument table: the rest is for what a kernel writes
METAL_SHARED_BYTES = 32 << 10  # Metal Feature Set Tables, "Maximum total threadgroup memory allocation"


@lru_cache
def metal_target(arch: str, threads: int | None = None) -> Target:
    """An Apple GPU by its family, whatever the host. Raises ValueError listing those we generate code for."""
    if arch not in METAL_ARCHS:
        raise ValueError(f"no code generation for {arch!r}; known Apple families: {', '.join(METAL_ARCHS)}")
    return Target(
        "metal",
        arch,
        arch,
        threads=GPU_GROUPS,
        vector_bits=32,
        vector_registers=128,
        shared_bytes=METAL_SHARED_BYTES,
        cores=chip_of(arch).cores,
        widens=GPU_WIDENS,
        has_float64=False,
        most_arguments=METAL_ARGUMENTS,
    )


def allowing(target: Target, words: Collection[str]) -> Target:
    """The same GPU, whose matrix units may do what HCQ_INEXACT has these words for, where it has such units.

    Kernels of the two do not mix in the caches.
    """
    more = frozenset(words) - target.flags
    if target.name not in ("nvptx", "cuda") or not more:
        return target
    return replace(target, key="/".join([target.key, *sorted(more)]), flags=target.flags | more)


@lru_cache
def cpu_target(arch: str = "", threads: int | None = None) -> Target:
    """The host's CPU. `threads` is how many will share a kernel; by default as many as this process may use."""
    arch = arch or platform.machine()
    flags = _flags()
    vector_bits, registers = _vectors(arch, flags)
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    described = "\n".join([arch, _model(), *sorted(flags), str(threads)])
    key = hashlib.sha256(described.encode()).hexdigest()[:16]
    l1 = _cache_bytes(1, 32 << 10)
    l2 = _cache_bytes(2, 512 << 10)
    # without F16C a conversion would be a call to a library that kernels do not have
    has_half = arch != "x86_64" or "f16c" in flags
    casts = NARROW_CASTS if has_half else NARROW_CASTS - {dtypes.float16}
    return Target("cpu", arch, key, threads, vector_bits, registers, l1, l2, flags=flags, casts=casts)


def _vectors(arch: str, flags: Collection[str]) -> tuple[int, int]:
    """How wide registers of vectors are, and how many there are."""
    if "avx512f" in flags and "avx512vl" in flags:
        return 512, 32
    if "avx2" in flags:
        return 256, 16
    return 128, 32 if arch == "aarch64" else 16


# what AVX2 machines lack: how it begins in /proc/cpuinfo, and for LLVM, with which goes all that needs one of these
ABOVE_V3 = ("avx512", "amx", "avx_vnni")
WITHOUT = "-avx512f,-amx-tile,-avxvnni"


def limited(target: Target, level: str) -> Target:
    """The same CPU as one of x86-64-v3 (AVX2), to see what a lesser one would do; with "" the target itself.

    Kernels of the two do not mix in the caches. A CPU that has nothing above the level is the target itself, too.
    """
    flags = frozenset(flag for flag in target.flags if not flag.startswith(ABOVE_V3))
    if not level or target.name != "cpu" or flags == target.flags:
        return target
    bits, registers = _vectors(target.arch, flags)
    return replace(
        target,
        key=f"{target.key}/{level}",
        flags=flags,
        features=WITHOUT,
        vector_bits=bits,
        vector_registers=registers,
    )


def _cpuinfo() -> dict[str, str]:
    """The first processor's fields of /proc/cpuinfo; empty where there is no such file."""
    fields: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if not line.strip():
                    break
                name, _, value = line.partition(":")
                fields[name.strip()] = value.strip()
    except OSError:
        return {}
    return fields


def _flags() -> frozenset[str]:
    fields = _cpuinfo()
    return frozenset((fields.get("flags") or fields.get("Features") or "").split())


def _model() -> str:
    fields = _cpuinfo()
    words = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part")
    return " ".join(fields.get(word, "") for word in words) or platform.processor()


def _cache_bytes(level: int, otherwise: int) -> int:
    """The size of the first data cache of a level, as the kernel gives it."""
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if int((folder / "level").read_text()) == level and (folder / "type").read_text()[0] in "DU":
                text = (folder / "size").read_text().strip()
                return int(text.rstrip("K")) << 10 if text.endswith("K") else int(text)
        except (OSError, ValueError):
            continue
    return otherwise
