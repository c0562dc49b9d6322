"""Differences: what two releases of a kernel driver's interface have not in common, field by field.

In       two Interfaces of one Atlas
Out      Difference: structures, calls and values that are new, gone or changed; `mirrored`, the way back
Next     breaks.py (what that means for a call), text.py (prints it), hcq/system/abi_atlas.py (what is compared)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from hcq.system.abi_atlas import Call, Field, Interface, Structure, Value

K = TypeVar("K")
V = TypeVar("V")

MIRRORED = {"added": "removed", "removed": "added"}


class FieldChange(NamedTuple):
    """A field of a structure that both releases have.

    kind  "added", "removed", "renamed" (another name for the same bytes), "moved", "resized", "moved and resized"
    """

    kind: str
    before: Field | None
    after: Field | None

    @property
    def place(self) -> int:
        """Where it stands, for the order of a list: where it stood, else where it stands now."""
        field = self.before or self.after
        return field.offset if field else 0

    def mirrored(self) -> FieldChange:
        """The same on the way back."""
        return FieldChange(MIRRORED.get(self.kind, self.kind), self.after, self.before)


class StructureChange(NamedTuple):
    """A structure. kind: "added", "removed", "changed"; fields: only of one that is changed."""

    kind: str
    before: Structure | None
    after: Structure | None
    fields: tuple[FieldChange, ...] = ()

    @property
    def name(self) -> str:
        """Its name here."""
        one = self.before or self.after
        return one.name if one else ""


class CallChange(NamedTuple):
    """A call that only one of the releases has, or that takes another structure: "added", "removed", "changed"."""

    kind: str
    before: Call | None
    after: Call | None


class Difference(NamedTuple):
    """From one release to another. remarks: what the newer one's headers say of each release in between."""

    before: str
    after: str
    structures: tuple[StructureChange, ...]
    calls: tuple[CallChange, ...]
    values: tuple[tuple[str, Value], ...]  # "added" or "removed", and which
    remarks: tuple[tuple[str, str], ...]

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return bool(self.structures or self.calls or self.values or self.remarks)

    def mirrored(self) -> Difference:
        """The difference on the way back."""
        structures = tuple(
            StructureChange(MIRRORED.get(one.kind, one.kind), one.after, one.before, _in_order(one.fields))
            for one in self.structures
        )
        calls = tuple(
            CallChange(MIRRORED.get(one.kind, one.kind), one.after, one.before) for one in self.calls
        )
        values = tuple((MIRRORED[kind], value) for kind, value in self.values)
        return Difference(self.after, self.before, structures, calls, values, self.remarks)


def difference(before: Interface, after: Interface) -> Difference:
    """What differs between two releases; empty for one and the same."""
    structures = []
    for was, now in _pairs(before.structures, after.structures):
        fields = field_changes(was, now) if was and now else ()
        if was is None or now is None or fields or was.size_bytes != now.size_bytes:
            structures.append(StructureChange(_kind(was, now), was, now, fields))
    calls = [
        CallChange(_kind(old, new), old, new)
        for old, new in _pairs(before.calls, after.calls)
        if old is None or new is None or old != new
    ]
    values = [("removed", value) for value in before.values if value not in after.values]
    values += [("added", value) for value in after.values if value not in before.values]
    told = {**before.remarks, **after.remarks}
    remarks = [(key, text) for key, text in told.items() if (key in before.remarks) != (key in after.remarks)]
    return Difference(
        before.release, after.release, tuple(structures), tuple(calls), tuple(values), tuple(remarks)
    )


def field_changes(before: Structure, after: Structure) -> tuple[FieldChange, ...]:
    """What differs between two layouts of a structure, in the order of its bytes."""
    was = {field.name: field for field in before.fields}
    now = {field.name: field for field in after.fields}
    gone = {field[1:]: field for name, field in was.items() if name not in now}
    new = {field[1:]: field for name, field in now.items() if name not in was}
    found = []
    for place in gone.keys() & new.keys():
        found.append(FieldChange("renamed", gone.pop(place), new.pop(place)))
    found += [FieldChange("removed", field, None) for field in gone.values()]
    found += [FieldChange("added", None, field) for field in new.values()]
    for name in was.keys() & now.keys():
        old, moved_to = was[name], now[name]
        kinds = []
        if old.offset != moved_to.offset:
            kinds.append("moved")
        if (old.size_bytes, old.entries, old.step) != (moved_to.size_bytes, moved_to.entries, moved_to.step):
            kinds.append("resized")
        if kinds:
            found.append(FieldChange(" and ".join(kinds), old, moved_to))
    return _in_order(found, is_mirrored=False)


def _in_order(
    changes: list[FieldChange] | tuple[FieldChange, ...], is_mirrored: bool = True
) -> tuple[FieldChange, ...]:
    made = [one.mirrored() for one in changes] if is_mirrored else changes
    return tuple(sorted(made, key=lambda one: (one.place, one.kind, (one.before or one.after or ("",))[0])))


def _kind(was: object, now: object) -> str:
    return "added" if was is None else "removed" if now is None else "changed"


def _pairs(before: Mapping[K, V], after: Mapping[K, V]) -> list[tuple[V | None, V | None]]:
    """What has the same key on both sides, in an order that is the same from both."""
    keys = sorted({**before, **after}, key=str)
    return [(before.get(key), after.get(key)) for key in keys]
