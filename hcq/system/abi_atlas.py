"""Atlas: a kernel driver's interface at each of its releases, in words that all vendors share.

In       what a vendor declares: releases, structures as texts of fields, calls, values that came with a release
Out      Atlas, which a backend names; Interface, all that one release takes
Next     hcq/nv/abi/atlas.py, hcq/amd/abi/atlas.py (the declarations), hcq/atlas/ (compares, prints)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hcq.errors import UsageError
from hcq.layout import Bits, bits, repeated

FIELD = re.compile(r"(?P<name>[\w{}]+)@(?P<offset>\d+):(?P<size>\d+)(?:\*(?P<count>\d+)(?:/(?P<step>\d+))?)?")
SHOWN_RELEASES = 12  # in an error


class Field(NamedTuple):
    """A field of a structure, in bytes.

    entries  how many an array has, `step` bytes from one to the next; {i} in the name is the entry's number
    """

    name: str
    offset: int
    size_bytes: int
    entries: int = 1
    step: int = 0

    @property
    def shown(self) -> str:
        """Its name for people: gpus[i].uuid, as C has it, for gpus_{i}_uuid."""
        return self.name.replace("_{i}_", "[i].").replace("_{i}", "[i]")

    @property
    def end(self) -> int:
        """The byte after it."""
        return self.offset + (self.entries - 1) * self.step + self.size_bytes

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Start and end of each entry."""
        starts = [self.offset + index * self.step for index in range(self.entries)]
        return [(start, start + self.size_bytes) for start in starts]

    def bits(self, enum: type[IntEnum] | None = None, default: int = 0) -> dict[str, Bits]:
        """What a layout declares for it; an array becomes as many fields."""
        starts = range(8 * self.offset, 8 * (self.offset + self.entries * self.step), 8 * self.step)
        return repeated(starts, {self.name: bits(8 * self.size_bytes - 1, 0, enum=enum, default=default)})


class Structure(NamedTuple):
    """A structure in one layout. since: the first release with it."""

    name: str
    header_name: str
    size_bytes: int
    fields: tuple[Field, ...]
    since: str
    remark: str = ""


class Call(NamedTuple):
    """Something that a program can ask of the driver.

    sort       "ioctl", or what is asked through one: "control", "class"
    structure  the name of what it takes; "" for nothing, or for a structure that nobody has read: see `remark`
    """

    sort: str
    number: int
    name: str
    structure: str
    remark: str = ""


class Value(NamedTuple):
    """A value that a field may have from a release on. is_bit: other bits may be set beside it."""

    structure: str
    field: str
    name: str
    number: int
    is_bit: bool

    def is_in(self, number: int) -> bool:
        """Whether a field with this number has the value."""
        return bool(number & self.number) if self.is_bit else number == self.number


class Release(NamedTuple):
    """A release of the atlas. note: empty, or why it stands for the one that was asked for."""

    name: str
    note: str = ""


class Made(NamedTuple):
    """A call that a program made: which, and the bytes of its structure; None where they were not recorded."""

    sort: str
    number: int
    data: bytes | None


class Interface(NamedTuple):
    """All that a release takes. remarks: release -> what its headers say came with it, up to this one."""

    release: str
    structures: dict[str, Structure]
    calls: dict[tuple[str, int], Call]
    values: tuple[Value, ...] = ()
    remarks: Mapping[str, str] = {}

    def structure(self, name: str) -> Structure:
        """By its name here or in the headers, in any case. Raises UsageError for one that is not there."""
        wanted = name.lower()
        for one in self.structures.values():
            if wanted in (one.name.lower(), one.header_name.lower()):
                return one
        near = [one for one in self.structures if wanted in one.lower()]
        raise UsageError(
            f"{name!r}: {self.release} has no such structure. "
            f"{'Near it' if near else 'Known'}: {', '.join(sorted(near or self.structures))}."
        )


class Atlas:
    """What a vendor declares of its kernel driver; its backend names one (hcq/backend.py, `atlas`).

    name         what the program takes, as in `hcq abi diff NAME`
    title        what is described
    exact_sizes  the driver refuses a structure of another size; else it fills up or cuts what the caller gives
    kind         the devices that are reached through this driver, as `hcq.open` names them
    release_fact the fact of such a device in a trace that tells the driver's release
    source       where the facts are from
    nodes        how the paths of the driver's files begin
    prefix       of the names that its calls have in its header
    """

    name = ""
    title = ""
    exact_sizes = True
    kind = ""
    release_fact = ""
    source = ""
    nodes: tuple[str, ...] = ()
    prefix = ""

    def releases(self) -> tuple[str, ...]:
        """Every release there is, oldest first."""
        raise NotImplementedError

    def at(self, release: str) -> Interface:
        """All that a release of `releases` takes."""
        raise NotImplementedError

    def made(self, request: int, argument: bytes, behind: Mapping[str, bytes]) -> tuple[Made, ...]:
        """The calls that an ioctl is; none for one of another driver. behind: what its addresses led to, by name."""
        raise NotImplementedError

    def logged(
        self, request: int, argument: bytes | None, params: bytes, notes: Sequence[tuple[str, int]]
    ) -> tuple[Made, ...]:
        """The calls that an ioctl of somebody's log is, as `made` says; None for an argument that the log has not.

        params  what the argument's pointer led to; empty where the log has not got it
        notes   what a proxy said of it: the kind of a number, the number
        """
        made = self.made(request, argument or b"", {})
        return made if argument is not None else tuple(one._replace(data=None) for one in made[:1])

    def call_name(self, sort: str, number: int) -> str:
        """What a call is named that the atlas does not declare."""
        return f"{sort} {number:#x}"

    def release_note(self, release: str) -> str:
        """What there is to know of a release that is known in part; else empty."""
        return ""

    def resolve(self, text: str) -> Release:
        """The release that a version stands for.

        The beginning of versions stands for the newest of them; a version that is not known for the nearest older
        one. Raises UsageError for text that is no version, and for one older than all.
        """
        wanted = version(text)
        known = self.releases()
        if wanted is None:
            raise UsageError(f"{self.name} {text!r}: no release. Write numbers with points, as {known[-1]}.")
        exact = [one for one in known if version(one) == wanted]
        if exact:
            return Release(exact[0], self.release_note(exact[0]))
        within = [one for one in known if (version(one) or ())[: len(wanted)] == wanted]
        if within:
            return self._instead(
                within[-1], f"{self.name} {text}: {within[-1]} is taken, the newest of {text}."
            )
        older = [one for one in known if (version(one) or ()) < wanted]
        if not older:
            more = f" and {len(known) - SHOWN_RELEASES} more" if len(known) > SHOWN_RELEASES else ""
            raise UsageError(
                f"{self.name} {text}: older than {known[0]}, the oldest known. "
                f"Known: {', '.join(known[:SHOWN_RELEASES])}{more}: `python -m hcq abi releases {self.name}`."
            )
        said = f"{self.name} {text} is not known: {older[-1]} is taken, the nearest older one."
        return self._instead(older[-1], said)

    def _instead(self, release: str, why: str) -> Release:
        return Release(release, " ".join(filter(None, (why, self.release_note(release)))))


@cache
def _rows(file: Path) -> tuple[tuple[str, ...], ...]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return tuple(tuple(line.split("\t")) for line in lines if not line.startswith("#"))


def rows(file: Path, sort: str) -> list[tuple[str, ...]]:
    """The cells of a file's lines that begin with this word, without it. The file is read once."""
    return [cells[1:] for cells in _rows(file) if cells[0] == sort]


def version(text: str) -> tuple[int, ...] | None:
    """A version as numbers that can be compared; None where it is none.

    >>> version("570.86.15"), version("new")
    ((570, 86, 15), None)
    """
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){0,7}", text) is None:
        return None
    return tuple(map(int, text.split(".")))


def fields_of(text: str, size_bytes: int, owner: str) -> tuple[Field, ...]:
    """Fields that are written name@offset:size, with *count or *count/step for arrays, in the order of their offsets.

    Raises  UsageError, which names the owner, for one that is not written so or is not within the structure

    >>> [(field.name, field.end) for field in fields_of("a@0:4 b@8:8*2", 24, "X")]
    [('a', 4), ('b', 24)]
    """
    found = []
    for one in text.split():
        parts = FIELD.fullmatch(one)
        if parts is None:
            raise UsageError(f"{owner}: {one!r} is not name@offset:size.")
        size = int(parts["size"])
        field = Field(
            parts["name"], int(parts["offset"]), size, int(parts["count"] or 1), int(parts["step"] or size)
        )
        if not size or field.end > size_bytes:
            raise UsageError(f"{owner}: {one} is not within its {size_bytes} bytes.")
        found.append(field)
    return tuple(sorted(found, key=lambda field: field.offset))
