"""Structures of the kernel interface by name and driver release, made of data/structures.tsv when first asked for.

In       a structure's name, and the release whose layout is wanted
Out      structure(name, release) and history(name): Args classes; RELEASES, whose headers the file was made from
Changes  nothing; the file is read once, and each class made once
Next     args.py (what such a class does), ioctls.py (which call takes which)
Source   at the top of data/structures.tsv
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from types import new_class
from typing import Any, NamedTuple

from hcq.errors import UsageError
from hcq.nv.abi.args import Args
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.names import DATA
from hcq.system.abi_atlas import fields_of

FILE = DATA / "structures.tsv"
# fields whose numbers have names: (structure, field) -> the names
NAMED: dict[tuple[str, str], type[IntEnum]] = {
    ("RmAllocArgs", "hclass"): ClassId,
    ("RmAllocMemoryArgs", "hclass"): ClassId,
    ("RmControlArgs", "cmd"): ControlId,
}


class Row(NamedTuple):
    """A line of the file: one layout of one structure."""

    name: str
    header_name: str
    release: int  # the first with this layout
    size_bytes: int
    fields: str
    remark: str


def structure(name: str, release: int | None = None) -> type[Args]:
    """A structure in the layout of a release, by default of the newest.

    Raises   UsageError for a name that the file has not, or a release older than all of its layouts

    >>> structure("UvmFree", 580).size_bytes, structure("UvmFree", 590).size_bytes
    (24, 16)
    """
    rows = rows_of(name)
    held = [row for row in rows if release is None or row.release <= release]
    if not held:
        raise UsageError(f"{name} of release {release}: not known. The oldest known is {rows[0].release}.")
    return _made(held[-1])


def history(name: str) -> tuple[type[Args], ...]:
    """Every layout that a structure has had, oldest first. Raises UsageError for a name that the file has not."""
    return tuple(map(_made, rows_of(name)))


def names() -> tuple[str, ...]:
    """Every structure of the file."""
    return tuple(_file()[1])


def declared_layouts() -> Iterator[type[Args]]:
    """Every layout of every structure, in the order of the file, for pages and traces."""
    for name in names():
        yield from history(name)


@cache
def releases() -> tuple[str, ...]:
    """The releases from whose headers the file was made, oldest first."""
    return _file()[0]


@cache
def _file() -> tuple[tuple[str, ...], dict[str, tuple[Row, ...]]]:
    """The file: releases, and name -> its layouts, oldest first."""
    compared: tuple[str, ...] = ()
    found: dict[str, tuple[Row, ...]] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        name, *cells = line.split("\t")
        if name == "releases":
            compared = tuple(cells[0].split())
            continue
        header_name, release, size_bytes, fields, *remark = cells
        row = Row(name, header_name, int(release), int(size_bytes), fields, "".join(remark))
        found[name] = (*found.get(name, ()), row)
    return compared, found


def rows_of(name: str) -> tuple[Row, ...]:
    """The lines of a structure, oldest first. Raises UsageError for a name that the file has not."""
    known = _file()[1]
    if name not in known:
        raise UsageError(f"{name!r}: no such structure. Known: {', '.join(sorted(known))}.")
    return known[name]


@cache
def _made(row: Row) -> type[Args]:
    """The class of a layout."""
    since = f", from {row.release}" if len(rows_of(row.name)) > 1 else ""
    body: dict[str, Any] = {
        "__doc__": f"{row.header_name}{since}{': ' if row.remark else ''}{row.remark}",
        "__module__": __name__,
    }
    owner = f"{FILE.name}: {row.name} of {row.release}"
    for field in fields_of(row.fields, row.size_bytes, owner):
        body.update(field.bits(NAMED.get((row.name, field.name))))
    return new_class(
        row.name, (Args,), {"size_bytes": row.size_bytes}, lambda namespace: namespace.update(body)
    )
