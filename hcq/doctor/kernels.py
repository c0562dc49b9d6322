"""The doctor's kernel: out[i] = 3 * a[i] + i on 32-bit words, in the machine code of each device.

In       a code object of the device
Out      a Tiny: how to launch it; what it should compute
Next     checks.py (runs it), hcq/cpu/doctor.py, hcq/amd/doctor.py and hcq/nv/doctor.py (the objects)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENTRY = "triple_plus_index"


@dataclass(frozen=True)
class Tiny:
    """A kernel as machine code.

    group  elements each group does, one for each of its threads; 0: one group does as many as an argument says
    """

    image: bytes
    group: int

    def launch(self, out: Any, a: Any, count: int) -> dict[str, Any]:
        """args, grid and block for `count` elements."""
        if not self.group:
            return {"args": [out, a, count]}
        return {"args": [out, a], "grid": (count // self.group, 1, 1), "block": (self.group, 1, 1)}


def expected(values: list[int]) -> list[int]:
    """What the kernel makes of them."""
    return [(3 * value + index) % 2**32 for index, value in enumerate(values)]


def kept(file: Path) -> bytes:
    """A code object that lies beside a driver's source; b"" for an architecture that nobody has made it for."""
    return file.read_bytes() if file.is_file() else b""
