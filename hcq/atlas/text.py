"""Text: differences for people and for programs, and a structure as C would print it, with offsets.

In       a Difference, a Structure, what a trace's calls come to
Out      lines; data for JSON; C
Next     command.py (who prints), difference.py, breaks.py (what is printed)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from hcq.atlas.breaks import Calls
from hcq.atlas.difference import Difference, FieldChange, StructureChange
from hcq.system.abi_atlas import Atlas, Call, Field, Interface, Structure

MARKS = {"added": "+", "removed": "-"}  # what both have is marked ~
WORDS = {"added": "new", "removed": "gone", "changed": "changed"}
INTEGERS = (1, 2, 4, 8)  # bytes


def diff_lines(atlas: Atlas, found: Difference, before: Interface, after: Interface) -> Iterator[str]:
    """A difference for people."""
    yield f"{atlas.name} {found.before} -> {found.after}: {_counted(found)}"
    for change in found.structures:
        yield ""
        yield from structure_change_lines(change)
        if takers := taken_by(change.name, before, after):
            yield f"    taken by {', '.join(takers)}"
    if found.calls:
        yield ""
        yield "calls"
    for call in found.calls:
        one = call.after or call.before
        if one is not None:
            yield f"  {MARKS.get(call.kind, '~')} {one.name} ({one.sort} {one.number:#x}){_argument(one)}"
    if found.values:
        yield ""
        yield "values"
    for kind, value in found.values:
        place = f"{value.structure}.{value.field}"
        yield f"  {MARKS[kind]} {place}: {value.name} = {value.number:#x}{' (a bit)' if value.is_bit else ''}"
    if found.remarks:
        yield ""
        yield "what each release between them is said to add"
    for release, text in found.remarks:
        yield f"  {release}  {text}"


def structure_change_lines(change: StructureChange) -> Iterator[str]:
    """One structure of a difference."""
    one = change.before or change.after
    if one is None:
        return
    title = f"{one.name} (struct {one.header_name})"
    if change.before is None or change.after is None:
        yield f"{MARKS[change.kind]} {title}: {WORDS[change.kind]}, {one.size_bytes} bytes"
        return
    was, now = change.before.size_bytes, change.after.size_bytes
    yield f"~ {title}: {f'{was} -> {now} bytes' if was != now else f'{was} bytes, as before'}"
    width = max((len(_named(field)) for field in change.fields), default=0)
    for field in change.fields:
        yield f"  {MARKS.get(field.kind, '~')} {_named(field):<{width}}  {field_words(field)}"


def field_words(change: FieldChange) -> str:
    """What happened to a field."""
    old, new = change.before, change.after
    if old is None or new is None:
        one = old or new
        assert one is not None
        return f"{WORDS[change.kind]}: byte {one.offset}, {_size(one)}"
    if change.kind == "renamed":
        return f"renamed: byte {old.offset}, {_size(old)}"
    parts = [f"moved: byte {old.offset} -> {new.offset}" if "moved" in change.kind else f"byte {old.offset}"]
    parts.append(f"resized: {_size(old)} -> {_size(new)}" if "resized" in change.kind else _size(old))
    return ", ".join(parts)


def trace_lines(found: Calls, difference: Difference) -> Iterator[str]:
    """What a trace's calls come to."""
    where = f"{difference.before} -> {difference.after}"
    yield f"trace: {found.made} calls of this driver, {sum(one.times for one in found.breaks)} break {where}"
    for one in found.breaks:
        yield f"  ! {one.name}{f' ({one.structure})' if one.structure else ''}, {_times(one.times)}: {one.why}"
    if found.unknown:
        names = ", ".join(f"{name} ({_times(count)})" for name, count in found.unknown)
        yield f"  ? not in this atlas, and so not judged: {names}"


def as_data(found: Difference, before: Interface, after: Interface) -> dict[str, Any]:
    """A difference for programs."""
    return {
        "before": found.before,
        "after": found.after,
        "structures": [
            {
                "name": one.name,
                "header_name": (one.before or one.after or Structure("", "", 0, (), "")).header_name,
                "kind": one.kind,
                "bytes_before": one.before.size_bytes if one.before else None,
                "bytes_after": one.after.size_bytes if one.after else None,
                "taken_by": taken_by(one.name, before, after),
                "fields": [
                    {
                        "kind": field.kind,
                        "before": field.before._asdict() if field.before else None,
                        "after": field.after._asdict() if field.after else None,
                    }
                    for field in one.fields
                ],
            }
            for one in found.structures
        ],
        "calls": [
            {
                "kind": one.kind,
                "before": one.before._asdict() if one.before else None,
                "after": one.after._asdict() if one.after else None,
            }
            for one in found.calls
        ],
        "values": [{"kind": kind, **value._asdict()} for kind, value in found.values],
        "remarks": dict(found.remarks),
    }


def trace_data(found: Calls) -> dict[str, Any]:
    """What a trace's calls come to, for programs."""
    return {
        "calls": found.made,
        "breaks": [one._asdict() for one in found.breaks],
        "unknown": dict(found.unknown),
    }


def taken_by(structure: str, *interfaces: Interface) -> list[str]:
    """The calls that take a structure."""
    calls = [call for one in interfaces for call in one.calls.values() if call.structure == structure]
    return list(dict.fromkeys(call.name for call in calls))


# -- C


def as_c(structure: Structure) -> str:
    """A structure as C: laid out by the rules of x86-64 it has these offsets and this size.

    Raises  ValueError for a layout that C gives only to packed structures
    """
    lines = [f"struct {structure.header_name} {{"]
    lines += _members(structure.fields, 0, structure.size_bytes, "")
    return "\n".join([*lines, f"}}; /* {structure.size_bytes} bytes */"])


def _members(fields: Iterable[Field], base: int, size_bytes: int, indent: str) -> Iterator[str]:
    """Lines of the members that begin at byte `base` of the outermost structure and have so many bytes together."""
    at, alignment = 0, 1
    for own, array in _grouped(fields):
        start = own[0].offset - base
        inner = [_inner(field) for field in own] if array else own
        aligned = max(_alignment(field) for field in inner)
        yield from _gap(at, start, aligned, base, indent)
        alignment = max(alignment, aligned)
        if array is None:
            yield f"{indent}    /* {own[0].offset:4} */ {_declared(own[0])}"
            at = own[0].end - base
            continue
        prefix, count, step = array
        yield f"{indent}    /* {own[0].offset:4} */ struct {{"
        yield from _members(inner, own[0].offset, step, indent + "    ")
        yield f"{indent}    }} {prefix}[{count}];"
        at = start + count * step
    yield from _gap(at, size_bytes, alignment, base, indent)


def _gap(at: int, start: int, alignment: int, base: int, indent: str) -> Iterator[str]:
    """What lies between two members: C leaves it free by itself, or it is declared."""
    natural = -(-at // alignment) * alignment
    if natural > start:
        raise ValueError(f"byte {base + start}: a member of alignment {alignment} after byte {base + at}")
    if natural < start:
        yield f"{indent}    /* {base + at:4} */ uint8_t padding_{base + at}[{start - at}];"
    elif at < start:
        yield f"{indent}    /* {base + at:4}: {start - at} bytes of padding */"


def _grouped(fields: Iterable[Field]) -> Iterator[tuple[list[Field], tuple[str, int, int] | None]]:
    """Members of a structure: one field, or all fields of an array of structures, and which array that is."""
    for array, group in groupby(fields, key=_nest):
        if array is None:
            yield from (([field], None) for field in group)
        else:
            yield list(group), array


def _nest(field: Field) -> tuple[str, int, int] | None:
    """Which array of structures a field is in: its name, entries, and bytes of an entry."""
    prefix, _, rest = field.name.partition("{i}")
    return (prefix.rstrip("_"), field.entries, field.step) if rest else None


def _inner(field: Field) -> Field:
    """A field of such an array, in its first entry alone."""
    return Field(field.name.partition("{i}")[2].lstrip("_"), field.offset, field.size_bytes)


def _alignment(field: Field) -> int:
    return field.size_bytes if field.size_bytes in INTEGERS else 1


def _declared(field: Field) -> str:
    name = field.name.partition("{i}")[0].rstrip("_")
    count = f"[{field.entries}]" if field.entries > 1 else ""
    if field.size_bytes in INTEGERS:
        return f"uint{8 * field.size_bytes}_t {name}{count};"
    return f"uint8_t {name}{count}[{field.size_bytes}];"


# -- words


def _counted(found: Difference) -> str:
    if not found:
        return "nothing differs"
    kinds = [change.kind for change in found.structures]
    told = [f"{kinds.count(kind)} {word}" for kind, word in WORDS.items() if kind in kinds]
    parts = [f"structures: {', '.join(told)}" if told else "no structure differs"]
    if found.calls:
        calls = [change.kind for change in found.calls]
        counts = [f"{calls.count(kind)} {word}" for kind, word in WORDS.items() if kind in calls]
        parts.append(f"calls: {', '.join(counts)}")
    return "; ".join(parts)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _named(change: FieldChange) -> str:
    names = [one.shown for one in (change.before, change.after) if one is not None]
    return " -> ".join(dict.fromkeys(names))


def _size(field: Field) -> str:
    if field.entries == 1:
        return f"{field.size_bytes} byte{'s' if field.size_bytes > 1 else ''}"
    every = f", one every {field.step}" if field.step != field.size_bytes else ""
    return f"{field.entries} of {field.size_bytes} bytes{every}"


def _argument(call: Call) -> str:
    return f" takes {call.structure}" if call.structure else f": {call.remark}" if call.remark else ""
