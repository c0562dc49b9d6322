"""The PTX of a kernel that a foreign loader has placed as machine code, which emulated GPUs do not run.

In       a process, a program address of its launch, the constant banks that the launch binds
Out      KernelText: PTX, the kernel's name in it, where the loader has put the module's variables
Changes  nothing; keeps which cubins it has seen
Next     cubins.py (which cubin has the code), hcq/emu/nv/code.py (who asks, through the registry of backends)
Source   cubins of ptxas 12.8 and 13.0: code finds variables by addresses in constant bank 4, or in its instructions

Nobody says where a loader has put variables. The places that it has filled in do: each holds the address of a section
with the variable's offset in it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

from hcq.code.kernel_text import FindText, KernelText
from hcq.nv.cubin import ADDRESSES, INSTRUCTION_FIELDS
from hcq.nv.foreign.cubins import INSTRUCTION_BYTES, Candidate, Cubins, Read

_BANK = re.compile(r"\.nv\.constant(\d+)(?:\.(.+))?")
CONST_BANK = 3  # of .const variables
ADDRESS_BITS, HALF_BITS = 64, 32


def search(folder: Path | None) -> FindText:
    """A search through cubins of processes, and those of a folder."""
    cubins = Cubins(folder)

    def text_of(pid: int, arch: str, va: int, read: Read, bank: Callable[[int], int]) -> KernelText | None:
        found = cubins.at(pid, va, arch, read)
        if found is None:
            return None
        kernel = found.kernel
        return KernelText(kernel.name, found.ptx, kernel.param_bytes, _symbols(found, va, read, bank))

    return text_of


def _symbols(
    found: Candidate, va: int, read: Read, bank: Callable[[int], int]
) -> tuple[tuple[str, int], ...]:
    """Addresses of variables, as far as the loader has filled them in where this kernel's code looks for them."""
    bases = {f".nv.constant{CONST_BANK}": bank(CONST_BANK)}
    halves: dict[tuple[str, int], dict[int, int]] = {}
    for one in found.cubin.fixups:
        start = _start(found, one.section, va, bank)
        if not start or not one.target:
            continue
        raw = read(start + one.offset, 8 if one.type in ADDRESSES else INSTRUCTION_BYTES)
        if one.type in ADDRESSES and len(raw) == 8:
            bases[one.target] = struct.unpack("<Q", raw)[0] - one.value
        elif len(raw) == INSTRUCTION_BYTES:
            whole = int.from_bytes(raw, "little")
            for bit, low, width in INSTRUCTION_FIELDS[one.type]:
                field = whole >> bit & (1 << width) - 1
                halves.setdefault((one.target, one.value), {})[low] = field
    for (section, value), fields in halves.items():
        if fields.keys() == {0, HALF_BITS}:
            bases.setdefault(section, (fields[0] | fields[HALF_BITS] << HALF_BITS) - value)
    return tuple(
        (name, (bases[section] + offset) & (1 << ADDRESS_BITS) - 1)
        for name, (section, offset, _) in found.cubin.variables().items()
        if bases.get(section)
    )


def _start(found: Candidate, section: str, va: int, bank: Callable[[int], int]) -> int:
    """Where a section lies that this kernel's code is in or reads from; 0 for any other."""
    if section == found.kernel.code:
        return va
    matched = _BANK.fullmatch(section)
    if matched is None or matched[2] not in (None, found.kernel.name):
        return 0
    return bank(int(matched[1]))
