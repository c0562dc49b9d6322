"""Kernels of the hardware check: as machine code by name, and what each must give.

In       the device
Out      programs by name, out of kernels.tar.xz; expected results as Python numbers
Changes  memory of the device, where the code is loaded
Next     checks.py (who launches them), make_kernels.py (who makes the archive), kernels.cu and kernels.cl (the sources)

No compiler and no other package is needed to read them.
"""

from __future__ import annotations

import functools
import hashlib
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hcq.doctor.check import Skip

HERE = Path(__file__).parent
ARCHIVE = HERE / "kernels.tar.xz"
SOURCES = "sources"  # in the archive: the digest of what it was made from
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
M32, MIX = 0xFFFFFFFF, 2654435761  # MIX: what the sources multiply an index by, for numbers without a pattern


def image(arch: str, part: str = "") -> bytes:
    """All kernels for one architecture, or a part: "mark1", "mark2", "shared". Raises Skip for what there is not."""
    name = f"{arch}.{part}" if part else arch
    try:
        return _contents()[name]
    except (OSError, KeyError, tarfile.TarError) as problem:  # CompressionError: this Python has no lzma
        raise Skip(
            f"no kernels for {arch} come with this version ({problem}): what needs none is checked"
        ) from None


@functools.cache
def _contents() -> dict[str, bytes]:
    """The archive: architectures share most of their code, and packed together they take a fifth."""
    with tarfile.open(ARCHIVE, "r:xz") as archive:
        members = [(member.name, archive.extractfile(member)) for member in archive]
        return {name: file.read() for name, file in members if file is not None}


def machine_code(arch: str) -> bytes:
    """All kernels for one architecture as the vendor's loader takes them: without the PTX that an emulated GPU runs."""
    from hcq.nv.bundle import Bundle

    made = image(arch)
    return Bundle.of(made).cubin if arch.startswith("sm_") else made


def architectures() -> list[str]:
    """Those that kernels come for."""
    return [name for name in _contents() if name != SOURCES and "." not in name]


def made_from() -> str:
    """The digest of the texts that the archive was made from."""
    return _contents()[SOURCES].decode()


def source(name: str) -> str:
    """One of the texts that the kernels are made from."""
    return (HERE / name).read_text(encoding="utf-8")


def digest() -> str:
    """Of all texts: that of the archive is the same, or it is old."""
    names = ("kernels.cl", "kernels.cu", "mark.cl", "mark.cu", "shared.cu")
    return hashlib.sha256("\0".join(source(name) for name in names).encode()).hexdigest()


def programs(device: Any, names: Sequence[str]) -> dict[str, Any]:
    """Some of them, loaded."""
    code = image(device.arch)
    return {name: device.load(code, name) for name in names}


# ------------------------------------------------------------ what they must give


def words(count: int, seed: int = 1) -> list[int]:
    """Numbers without a pattern that a wrong address would repeat."""
    return [(index * MIX + seed * 40503) & M32 for index in range(count)]


def pack(numbers: Sequence[int]) -> bytes:
    """Numbers as little-endian words of 32 bits."""
    return struct.pack(f"<{len(numbers)}I", *numbers)


def unpack(data: bytes) -> list[int]:
    """Little-endian words of 32 bits as numbers."""
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def stepped(times: int, start: int = 0) -> int:
    """What `step` leaves after so many launches: the steps are composed by squaring, x -> a x + c."""
    a, c, result = 1664525, 1013904223, start
    while times:
        if times & 1:
            result = (a * result + c) & M32
        a, c = a * a & M32, (a * c + c) & M32
        times //= 2
    return result


def collatz_steps(count: int) -> list[int]:
    """What the kernel `collatz` must give for 1 .. count."""
    found = []
    for start in range(1, count + 1):
        x, steps = start, 0
        while x != 1:
            x = 3 * x + 1 & M32 if x & 1 else x // 2
            steps += 1
        found.append(steps)
    return found


def local_results(x: Sequence[int]) -> list[int]:
    """What the kernel with an array of its own for each thread must give."""
    return local_results_at(x, range(len(x)))


def local_results_at(x: Sequence[int], places: Sequence[int]) -> list[int]:
    """The same for some threads alone."""
    found = []
    for i in places:
        value = x[i]
        mine = [k * PRIMES[(k + i) & 7] & M32 for k in range(64)]
        total = 0
        for k in range(64):
            mine[(value + k) & 63] ^= k
            total += mine[(value * 7 + k * 5) & 63]
        found.append(total & M32)
    return found
