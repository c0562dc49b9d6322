"""Calls of AMD's kernel drivers that other programs make and this driver never does, on /dev/kfd and on render nodes.

In       a driver, "KFD", "DRM" (of every GPU's driver) or "AMDGPU", and the number of a request
Out      OtherCall: its name, its argument as it goes in and, where that is another structure, as it comes back
Changes  nothing; the file is read once, when a call is first asked for
Next     kfd.py, drm.py (the calls that this driver makes), tools/trace/amd_calls.py (who reads logs with these)
Source   at the top of data/other_calls.tsv
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from hcq.amd.abi import drm, kfd
from hcq.layout import Packet, SparsePacket
from hcq.system.abi_atlas import fields_of, rows

FILE = Path(__file__).parent / "data" / "other_calls.tsv"
FIRST_OF_DRIVER, LAST_OF_DRIVER = 0x40, 0x9F  # numbers that every GPU's driver uses as it likes


class OtherCall(NamedTuple):
    """A call: its name without the prefix; None where its argument is declared nowhere here.

    `sizes` are the bytes of its argument in releases of the kernel, where the layout alone does not say them.
    """

    name: str
    layout: type[Packet] | None = None
    answer: type[Packet] | None = None
    sizes: tuple[int, ...] = ()

    @property
    def known_sizes(self) -> tuple[int, ...]:
        """Bytes that the argument has: in one release or another."""
        return self.sizes or (() if self.layout is None else (4 * self.layout.length_words,))


@cache
def calls(driver: str) -> dict[int, OtherCall]:
    """The calls of a driver by their numbers.

    >>> calls("KFD")[0x20].name, calls("AMDGPU")[0x48].known_sizes
    ('SVM', (40, 64))
    """
    known: dict[str, type[Packet] | None] = {
        **structures(),
        "Version": drm.Version,
        "Info": drm.Info,
        "-": None,
    }
    found = {}
    for owner, number, name, *words in rows(FILE, "call"):
        layout, answer, sizes = [*words, *("-", "-", "")[len(words) :]]
        if owner == driver:
            taken, given = (
                known[word] if word in known else kfd.structure(word) for word in (layout, answer)
            )
            found[int(number, 0)] = OtherCall(name, taken, given, tuple(map(int, sizes.split())))
    return found


@cache
def structures() -> dict[str, type[Packet]]:
    """The structures of the file by name; those of the KFD are of kfd.py."""
    found = {}
    for name, size, fields, about in rows(FILE, "structure"):
        body: dict[str, object] = {"__doc__": about, "__module__": __name__}
        for field in fields_of(fields, int(size), f"{FILE.name}: {name}"):
            body.update(field.bits())
        found[name] = type(name, (SparsePacket,), body, words=int(size) // 4)
    return found
