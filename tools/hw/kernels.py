"""Kernels of the hardware check: those of kernels.cu by name, and what each must give.

In       the device
Out      programs by name, compiled with nvrtc for the device's architecture; expected results as Python numbers
Changes  memory of the device, where the code is loaded
Next     checks.py (who launches them)
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
M32 = 0xFFFFFFFF


def image(arch: str, names: Sequence[str]) -> bytes:
    """Some of them, for one architecture. Raises UsageError that says how to get nvrtc."""
    from hcq.nv.toolchain import images

    text = Path(__file__).with_name("kernels.cu").read_text(encoding="utf-8")
    head, *parts = re.split(r"^// == (\w+)\n", text, flags=re.MULTILINE)
    kernels = dict(zip(parts[::2], parts[1::2]))
    return images.of_cuda("\n".join([head, *(kernels[name] for name in names)]), arch, "hw_check")


def programs(device: Any, names: Sequence[str]) -> dict[str, Any]:
    """Some of them, loaded."""
    code = image(device.arch, names)
    return {name: device.load(code, name) for name in names}


# ------------------------------------------------------------ what they must give


def words(count: int, seed: int = 1) -> list[int]:
    """Numbers without a pattern that a wrong address would repeat."""
    return [(index * 2654435761 + seed * 40503) & M32 for index in range(count)]


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
    found = []
    for i, value in enumerate(x):
        mine = [k * PRIMES[(k + i) & 7] & M32 for k in range(64)]
        total = 0
        for k in range(64):
            mine[(value + k) & 63] ^= k
            total += mine[(value * 7 + k * 5) & 63]
        found.append(total & M32)
    return found
