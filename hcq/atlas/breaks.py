"""Breaks: which calls of a program that was written for one release another release does not take as they were meant.

In       two Interfaces; the ioctls of a trace (HCQ_TRACE=FILE) or of a log (strace, gVisor), with the bytes of their
         arguments, where recorded
Out      a Break for each kind of call: how often it was made, and why it breaks
Next     difference.py (what differs), hcq/trace/calls.py (what a trace holds of an ioctl), hcq/trace/ioctl_log.py

A driver that refuses other sizes breaks with every change of a size. One that fills up with zeroes does not: there a
field that is gone breaks a call only if the call used it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hcq.atlas.difference import FieldChange, field_changes
from hcq.errors import UsageError
from hcq.system.abi_atlas import Atlas, Field, Interface, Made, Structure, version
from hcq.trace import ioctl_log
from hcq.trace.calls import ioctl_of
from hcq.trace.frames import read_records
from hcq.trace.records import MAGIC, Kind

PADDING = "pad"
SHOWN_REASONS = 6  # of one call


class Break(NamedTuple):
    """A kind of call that the other release does not take as it was meant. times: how often the trace has it."""

    name: str
    structure: str
    why: str
    times: int


class Calls(NamedTuple):
    """What a trace has of one driver. unknown: calls that the atlas does not declare, and so cannot judge."""

    made: int
    breaks: tuple[Break, ...]
    unknown: tuple[tuple[str, int], ...]


class Recorded(NamedTuple):
    """What a trace has of one driver. release: as the driver told it, or ""; damage: why its end is not read, or "".

    bare  calls of a log without their argument's bytes: what they used is not known
    """

    calls: list[Made]
    release: str
    damage: str
    bare: int = 0


def calls_of(path: Path, atlas: Atlas) -> Recorded:
    """The calls of a trace, or of a log of ioctls (strace, gVisor, sniffers), that go to the driver of an atlas.

    Raises  UsageError for a file that is neither, or whose records make no sense
    """
    content = path.read_bytes()
    if not content.startswith(MAGIC) and b"ioctl" in content:
        return _of_log(content, atlas)
    try:
        records, _, why = read_records(content)
    except UsageError as error:
        raise UsageError(
            f"{path}: {error} HCQ_TRACE=FILE in the environment records one; logs of strace do, too."
        ) from None
    made: list[Made] = []
    release = ""
    for record in records:
        if record.kind == Kind.DEVICE:
            release = release or _release_told(record.fields, atlas)
        if record.kind != Kind.PORT:
            continue
        try:
            call = ioctl_of(record)
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}: record {record.index} is damaged ({error}).") from None
        if call is not None:
            behind = {block.name: block.before for block in call.nested}
            made += atlas.made(call.request, call.before, behind)
    return Recorded(made, release, why)


def _of_log(content: bytes, atlas: Atlas) -> Recorded:
    """The calls of a log whose file is one of the driver's, or is not known."""
    made: list[Made] = []
    bare = 0
    calls = atlas.at(atlas.releases()[0]).calls | atlas.at(atlas.releases()[-1]).calls
    # strace prints these for some drivers
    named = {f"{atlas.prefix}{one.name}": key for key, one in calls.items()}
    lines = content.decode("utf-8", "replace").splitlines()
    for call in ioctl_log.read(lines):
        if call.path and not call.path.startswith(atlas.nodes):
            continue
        argument = call.before or call.after or None
        known = next((named[name] for name in call.name.split(" or ") if name in named), None)
        if known is not None:
            own: tuple[Made, ...] = (Made(*known, argument),)
        elif call.path or call.request >> 30:
            own = atlas.logged(call.request, argument, call.params, call.notes)
        else:
            continue  # a plain number of an unknown file: it may be anybody's
        bare += bool(own) and argument is None
        made += own
    return Recorded(made, "", "", bare)


def _release_told(device: Mapping[str, Any], atlas: Atlas) -> str:
    """The release that a device of a trace tells; empty where it is of another kind, or tells nothing sensible."""
    facts = device.get("facts")
    if str(device.get("name")).partition(":")[0] != atlas.kind or not isinstance(facts, dict):
        return ""
    told = str(facts.get(atlas.release_fact, ""))
    return told if version(told) else ""


def judge(calls: Iterable[Made], atlas: Atlas, before: Interface, after: Interface) -> Calls:
    """What of the calls of a program for one release breaks on the other."""
    made = 0
    broken: dict[tuple[str, str, str], int] = {}
    unknown: dict[str, int] = {}
    for call in calls:
        made += 1
        known = before.calls.get((call.sort, call.number))
        other = after.calls.get((call.sort, call.number))
        if known is None and other is None:
            name = atlas.call_name(call.sort, call.number)
            unknown[name] = unknown.get(name, 0) + 1
            continue
        named = known or other
        assert named is not None
        structure = before.structures.get(named.structure)
        if why := reason(call, atlas, before, after):
            key = named.name, structure.header_name if structure else "", why
            broken[key] = broken.get(key, 0) + 1
    breaks = tuple(Break(*key, count) for key, count in broken.items())
    return Calls(made, breaks, tuple(unknown.items()))


def reason(call: Made, atlas: Atlas, before: Interface, after: Interface) -> str:
    """Why a call breaks; empty where it does not."""
    key = call.sort, call.number
    if key not in after.calls:
        return f"{after.release} has no such {call.sort}"
    if key not in before.calls:
        return ""  # made for a newer one than said, and that one has it
    was = before.structures.get(before.calls[key].structure)
    now = after.structures.get(after.calls[key].structure)
    if was is None or now is None:
        return ""
    why = _layout_reasons(was, now, atlas.exact_sizes, call.data)
    if call.data is not None:
        why += _value_reasons(was, before, after, call.data)
    more = [f"and {len(why) - SHOWN_REASONS} more"] if len(why) > SHOWN_REASONS else []
    return "; ".join([*why[:SHOWN_REASONS], *more])


def _layout_reasons(was: Structure, now: Structure, exact: bool, data: bytes | None) -> list[str]:
    why = []
    if exact and was.size_bytes != now.size_bytes:
        why.append(f"{was.size_bytes} bytes become {now.size_bytes}")
    for change in field_changes(was, now):
        text = _field_reason(change, data)
        if text:
            why.append(text)
    return why


def _field_reason(change: FieldChange, data: bytes | None) -> str:
    old, new = change.before, change.after
    if old is None:
        return ""  # what is new there was not asked for
    if new is None:
        return f"{old.shown} is gone" if data is None or _is_used(old, data) else ""
    if change.kind == "renamed":
        is_padding = PADDING in (old.name, new.name)
        used = data is not None and _is_used(old, data)
        return f"{old.shown}, which is not 0, becomes {new.shown}" if is_padding and used else ""
    moved = f"{old.shown} moves from byte {old.offset} to {new.offset}" if "moved" in change.kind else ""
    grown = f"{old.shown} has {_span(new)} bytes instead of {_span(old)}" if "resized" in change.kind else ""
    return ", ".join(filter(None, (moved, grown)))


def _value_reasons(was: Structure, before: Interface, after: Interface, data: bytes) -> list[str]:
    fields = {field.name: field for field in was.fields}
    gone = [one for one in before.values if one not in after.values and one.structure == was.name]
    return [
        f"{one.field} is {one.name}, which {after.release} does not know"
        for one in gone
        if one.field in fields and one.is_in(_number(fields[one.field], data))
    ]


def _number(field: Field, data: bytes) -> int:
    return int.from_bytes(data[field.offset : field.offset + field.size_bytes], "little")


def _is_used(field: Field, data: bytes) -> bool:
    return any(any(data[start:end]) for start, end in field.spans)


def _span(field: Field) -> int:
    return field.entries * field.size_bytes
