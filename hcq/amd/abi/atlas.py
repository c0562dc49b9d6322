"""The KFD's interface at each minor version, for `python -m hcq abi`.

In       kfd.py (the calls of this driver), data/kfd.tsv (structures, and what came with which version)
Out      ATLAS
Next     hcq/system/abi_atlas.py (what an atlas is), hcq/atlas/ (who compares)
Source   at the top of data/kfd.tsv

The kernel copies as many bytes as the caller's request says, and fills up with zeroes: a structure that has grown at
its end is no other call.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from hcq.amd.abi import kfd
from hcq.system.abi_atlas import Atlas, Call, Interface, Made, Structure, Value, fields_of, rows

MAGIC = ord("K")


class KfdAtlas(Atlas):
    """Structures of Linux's interface, version 1.11 and on."""

    name = "kfd"
    title = "AMD's KFD, /dev/kfd of Linux"
    exact_sizes = False
    kind = "AMD"
    release_fact = "kfd_version"
    nodes = ("/dev/kfd",)
    prefix = "AMDKFD_IOC_"
    source = "include/uapi/linux/kfd_ioctl.h of the Linux kernel, whose head lists what each version added"

    def releases(self) -> tuple[str, ...]:
        """1.11 and on."""
        return tuple(f"{kfd.MAJOR_VERSION}.{cells[0]}" for cells in rows(kfd.FILE, "version"))

    @cache  # noqa: B019 - there is one atlas
    def at(self, release: str) -> Interface:
        """What the lines of the file say that are no newer than that version, and the calls of kfd.py."""
        minor = int(release.partition(".")[2])
        found = {}
        for since, name, header_name, size, fields, *_ in rows(kfd.FILE, "structure"):
            if int(since) <= minor:
                laid_out = fields_of(fields, int(size), f"{kfd.FILE.name}: {name} of 1.{since}")
                found[name] = Structure(name, header_name, int(size), laid_out, f"1.{since}")
        values = []
        for since, place, name, number, *bit in rows(kfd.FILE, "value"):
            structure, _, field = place.partition(".")
            if int(since) <= minor:
                values.append(Value(structure, field, name, int(number, 0), bool(bit)))
        remarks = {f"1.{cells[0]}": cells[1] for cells in rows(kfd.FILE, "version") if int(cells[0]) <= minor}
        return Interface(release, found, _calls(minor), tuple(values), remarks)

    def made(self, request: int, argument: bytes, behind: Mapping[str, bytes]) -> tuple[Made, ...]:
        """The call of /dev/kfd by its number; its size may be any."""
        return (Made("ioctl", request & 0xFF, argument),) if request >> 8 & 0xFF == MAGIC else ()


def _calls(minor: int) -> dict[tuple[str, int], Call]:
    listed = {int(number): int(since) for since, number, *_ in rows(kfd.FILE, "call")}
    found = {}
    for number, call in kfd.KFD_IOCTLS.items():
        if number not in listed:
            found["ioctl", number] = Call("ioctl", number, call.name, call.layout.__name__)
    for since, number_text, name, structure in rows(kfd.FILE, "call"):
        if int(since) <= minor:
            remark = "its structure was not read" if structure == "?" else ""
            key = "ioctl", int(number_text)
            found[key] = Call(*key, name, structure if structure not in "-?" else "", remark)
    return dict(sorted(found.items()))


ATLAS = KfdAtlas()
