"""Names: what the numbers of NVIDIA's kernel interface are called, also those that this driver never uses.

In       a number: of an escape, a UVM call, a control, a class
Out      its name in the headers; for a control without one, what its parts say; table(name), a file of data/
Changes  nothing; a file is read when a name of it is first asked for
Next     data/*.tsv (number, name, remark), status.py (answers), tools/trace/ioctl_decode.py (whole calls)
Source   at the top of each file
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

DATA = Path(__file__).parent / "data"
NV20_SUBDEVICE_0 = 0x2080


@cache
def table(name: str) -> dict[int, tuple[str, str]]:
    """A file of data/: number -> its name and the remark on it, "" where there is none."""
    found = {}
    for line in (DATA / f"{name}.tsv").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            number, label, *remark = line.split("\t")
            found[int(number, 0)] = label, "".join(remark)
    return found


def class_name(number: int) -> str:
    """A class by its name in the headers, or its number."""
    return _name("classes", number) or f"class {number:#x}"


def control_name(number: int) -> str:
    """A control by its name, or by what its number says: the class it is for, the part, and its index there."""
    if known := _name("controls", number):
        return known
    owner, part, index = number >> 16, number >> 8 & 0xFF, number & 0xFF
    named = _name("subdevice_parts", part) if owner == NV20_SUBDEVICE_0 else ""
    return f"control {number:#010x} of {class_name(owner)} ({named or f'part {part:#x}'}, index {index:#x})"


def uvm_name(number: int) -> str:
    """A call of /dev/nvidia-uvm."""
    return _name("uvm_calls", number) or f"UVM call {number:#x}"


def escape_name(number: int) -> str:
    """An escape of /dev/nvidiactl or a GPU's node, by the low byte of the request."""
    return _name("escapes", number) or f"escape {number:#x}"


def _name(of: str, number: int) -> str:
    return table(of).get(number, ("", ""))[0]
