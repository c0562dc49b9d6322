"""address: what an address of a trace is: the buffer that holds it, for how long, and the packets that touched it last.

In       a Trace, an address, a submission at whose time one asks
Out      `Finding`s, one for each process that knows the address; lines, data for JSON
Next     explain.py (the verb), views.py (packets in words), hcq/trace/memory.py (what was where)

Touched is what the packets themselves say: ranges that they read, write, wait for or set, and arguments of a launch.
What a kernel does with a pointer the packets do not say, and neither does this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from hcq.errors import HcqError, UsageError
from hcq.rules import effects
from hcq.tools.trace import views
from hcq.tools.trace.color import Color, clean
from hcq.trace.file import Submission, Trace
from hcq.trace.memory import MemoryMap, Place, Range
from hcq.trace.records import Kind

MOST_TOUCHES = 8
MOST_LIVES = 6


@dataclass
class Touch:
    """A packet that touched the buffer. how: reads, writes, ...; is_exact: its range holds the address itself."""

    submission: int
    device: str
    queue: str
    site: str
    seconds: float | None
    at: int
    packet: str
    text: str
    how: list[str]
    is_exact: bool
    note: str = ""


@dataclass
class Life:
    """A buffer that held the address: from when to when, in seconds and records. freed: None while it is live."""

    name: str
    start: int
    size_bytes: int
    device: str
    allocated: float | None
    allocated_record: int
    after: str
    freed: float | None = None
    freed_record: int | None = None
    freed_after: str = ""


@dataclass
class Finding:
    """What an address is in one process. state: live, freed, mapped, unmapped, timeline or unknown."""

    address: int
    process: int
    when: str
    state: str
    name: str
    start: int
    size_bytes: int
    offset: int
    lives: list[Life] = field(default_factory=list)
    before: dict[str, Any] | None = None
    behind: dict[str, Any] | None = None
    touches: list[Touch] = field(default_factory=list)


def find(trace: Trace, address: int, at: str = "", device: str = "") -> list[Finding]:
    """What an address is, in each process that knows it; in all of them when none does.

    at       a timeline value, with # or without: as it was when that was submitted; else at the end
    device   whose submission that is, where several have one of this number; only its process
    Raises   UsageError for a submission that is not there, or is not one alone
    """
    moment = _submission(trace, at, device) if at else None
    if moment is not None:
        processes = [moment.device.process]
    elif device:
        processes = [trace.device(device).process]
    else:
        processes = list(dict.fromkeys(one.process for one in trace.devices))
    found = [_finding(trace, address, process, moment) for process in processes]
    known = [one for one in found if one.state != "unknown" or one.touches]
    return known or found


def _submission(trace: Trace, at: str, device: str) -> Submission:
    text = at.removeprefix("#")
    if not text.isdecimal() or len(text) > 20:
        raise UsageError(f"--at {at}: takes a submission by its number, such as 17 or '#17'.")
    value = int(text)
    made = [one for one in trace.submissions if one.value == value]
    if device:
        own = trace.device(device)
        made = [one for one in made if one.device is own]
    if not made:
        last = max((one.value for one in trace.submissions), default=0)
        raise UsageError(
            f"--at {at}: the trace has no such submission{f' of {device}' if device else ''}; its last is #{last}."
        )
    if len(made) > 1:
        names = ", ".join(one.device.key for one in made)
        raise UsageError(f"--at {at}: {names} have one each. Say whose with --device.")
    return made[0]


def _finding(trace: Trace, address: int, process: int, moment: Submission | None) -> Finding:
    end = moment.record if moment is not None else len(trace.records)
    memory = trace.memory_at(moment) if moment is not None else _memory_at_end(trace, process)
    place = memory.find(address)
    if address in views.timelines(trace, process):
        place = Place("timeline", views.name_of(trace, memory, address), address, 8, 0)
    when = (
        f"when #{moment.value} of {moment.device.key} was submitted"
        if moment is not None
        else "at the end of the trace"
    )
    lives = _lives(trace, address, process, end)
    found = Finding(
        address, process, when, place.state, place.name, place.start, place.size_bytes, place.offset, lives
    )
    if place.state != "live":
        sides = memory.neighbours(address)
        found.before, found.behind = (_neighbour(one, address) for one in sides)
    low, size = (
        (place.start, place.size_bytes) if place.state in ("live", "freed", "timeline") else (address, 1)
    )
    found.touches = _touches(trace, process, end, address, low, max(size, 1), lives)
    return found


def _memory_at_end(trace: Trace, process: int) -> MemoryMap:
    last = next((one for one in reversed(trace.records) if one.process == process), None)
    if last is None:
        raise UsageError(f"{trace.path}: no record of process {process}.")
    return trace.memory_at(last, after=True)


def _neighbour(one: Range | None, address: int) -> dict[str, Any] | None:
    if one is None:
        return None
    end = one.start + one.size_bytes
    away = one.start - address if one.start > address else address - end
    return {"name": one.name, "start": one.start, "size_bytes": one.size_bytes, "bytes_away": away}


def _lives(trace: Trace, address: int, process: int, end: int) -> list[Life]:
    """The buffers that held the address until a record, the oldest first."""
    lives: list[Life] = []
    after = ""
    submitted = {
        one.record: f"#{one.value} of {one.device.key}"
        for one in trace.submissions
        if one.device.process == process
    }
    for record in trace.records[:end]:
        if record.process != process:
            continue
        after = submitted.get(record.index, after)
        start = record.fields.get("va")
        if record.kind == Kind.ALLOC and isinstance(start, int):
            size = int(record.fields["size_bytes"])
            if start <= address < start + max(size, 1):
                name = trace.memory_at(record, after=True).find(start).name
                device = views.device_of(trace, record)
                key = device.key if device else ""
                lives.append(
                    Life(name, start, size, key, views.seconds(trace, record.time_ns), record.index, after)
                )
        elif (
            record.kind == Kind.FREE and lives and lives[-1].start == start and lives[-1].freed_record is None
        ):
            lives[-1].freed = views.seconds(trace, record.time_ns)
            lives[-1].freed_record, lives[-1].freed_after = record.index, after
    return lives


# ------------------------------------------------------------ who touched it


def _touches(
    trace: Trace, process: int, end: int, address: int, low: int, size: int, lives: list[Life]
) -> list[Touch]:
    """The last packets that touched a range, the last first, up to the submission at `end`."""
    found: list[Touch] = []
    for made in reversed(trace.submissions):
        if made.record > end or made.device.process != process:
            continue
        found += reversed(_touches_of(made, address, low, size, lives))
        if len(found) >= MOST_TOUCHES:
            break
    return found[:MOST_TOUCHES]


def _touches_of(made: Submission, address: int, low: int, size: int, lives: list[Life]) -> list[Touch]:
    reader = None
    found: list[Touch] = []
    parts = [(made.words, made.commands, ""), *((one.words, one.commands, one.label) for one in made.blocks)]
    for words, commands, label in parts:
        try:
            reader = reader or views.Reader(made, made.memory())
            steps = reader.steps(words, commands)
        except HcqError:  # a kind of device that this version does not decode
            return found
        hits = {at: how for at, how in ((step.at, _how(step, low, size)) for step in steps) if how}
        if not hits:
            continue
        shown = {view["at"]: view for view in reader.packets(words, commands, _commands(made, commands))}
        for step in steps:
            if step.at not in hits:
                continue
            view = shown.get(step.at, {"packet": type(step.packet).__name__, "text": ""})
            exact = bool(_how(step, address, 1))
            found.append(
                Touch(
                    made.value,
                    made.device.key,
                    made.queue,
                    made.site,
                    views.seconds(made.trace, made.time_ns),
                    step.at,
                    view["packet"],
                    view["text"],
                    hits[step.at],
                    exact,
                    _note(made, label, lives),
                )
            )
    return found


def _commands(made: Submission, commands: list[dict[str, Any]]) -> list[views.View]:
    return [views.command_view(made, made.memory(), command) for command in commands]


def _note(made: Submission, label: str, lives: list[Life]) -> str:
    notes = [f"in block {label}"] if label else []
    if made.dropped:
        notes.append("it did not reach the device")
    last = lives[-1] if lives else None
    if last is not None and last.freed_record is not None and made.record > last.freed_record:
        notes.append("after the buffer was freed")
    if last is not None and made.record < last.allocated_record:
        notes.append("before this buffer was made")
    return ", ".join(notes)


def _how(step: effects.Step, low: int, size: int) -> list[str]:
    """What a packet does to a range; empty when it does not touch it."""
    found = []
    for start, length, how in _ranges(step):
        if start < low + size and low < start + max(length, 1) and how not in found:
            found.append(how)
    return found


def _ranges(step: effects.Step) -> Iterator[tuple[int, int, str]]:
    for effect in step.effects:
        if isinstance(effect, effects.Access):
            yield (
                effect.va,
                effect.size_bytes,
                f"{'writes' if effect.is_write else 'reads'} {effect.what}".rstrip(),
            )
        elif isinstance(effect, effects.Fill):
            yield effect.dst, effect.size_bytes, "fills it"
        elif isinstance(effect, effects.Copy):
            yield effect.src, effect.size_bytes, "copies from it"
            yield effect.dst, effect.size_bytes, "copies to it"
        elif isinstance(effect, effects.Wait):
            yield effect.cell, 8, "waits for it"
        elif isinstance(effect, effects.Signal):
            yield effect.cell, 8, "sets it"
        elif isinstance(effect, effects.Run):
            yield effect.address, 4 * effect.size_words, "runs it"
        elif isinstance(effect, effects.Launch):
            yield effect.entry, 1, "runs its code"
            for one in effect.arguments:
                if one.kind == "buffer" and one.value:
                    verb = {"read": "may read", "write": "may write"}.get(one.access, "may read or write")
                    yield one.value, one.size_bytes, f"{verb} it: argument {one.position}"


# ------------------------------------------------------------ for people and programs


def lines(found: list[Finding], color: Color) -> Iterator[str]:
    """Each finding: what the address is, since when, what is beside it, and who touched it last."""
    for one in found:
        many = f", in process {one.process}" if len(found) > 1 else ""
        yield f"{color(f'{one.address:#x}', 'heading')} {clean(one.when)}{many}"
        yield f"  {_what(one, color)}"
        yield from _life_lines(one)
        for side, near in (("before it", one.before), ("behind it", one.behind)):
            if near is not None:
                where = "ends" if side == "before it" else "begins"
                yield clean(f"  {side}: {near['name']}, {near['size_bytes']} bytes at {near['start']:#x}, {where} "
                            f"{near['bytes_away']} bytes away")  # fmt: skip
        if not one.touches:
            yield "  no packet of the trace touched it"
            continue
        what = "buffer" if one.state in ("live", "freed") else "address"
        yield f"  the last packets that touched this {what}, the last first:"
        for touch in one.touches:
            site = f", {touch.site}" if touch.site else ""
            exact = "" if touch.is_exact or what == "address" else " (elsewhere in the buffer)"
            note = f"  {color(touch.note, 'wrong')}" if touch.note else ""
            yield (
                clean(
                    f"    #{touch.submission} {touch.device} {touch.queue}{site}: {', '.join(touch.how)}{exact}"
                )
                + note
            )
            yield f"      {touch.at:5d} {color(touch.packet, 'packet')} {color(touch.text, 'buffer')}"


def _what(one: Finding, color: Color) -> str:
    name = color(one.name, "buffer")
    if one.state in ("live", "freed"):
        where = f"byte {one.offset:#x} of {one.size_bytes}, which begin at {one.start:#x}"
        return f"{name}+{one.offset:#x}: {where}; {color(one.state, 'wrong' if one.state == 'freed' else 'note')}"
    if one.state == "timeline":
        return f"{name}, which submissions count up"
    if one.state in ("mapped", "unmapped"):
        return f"no buffer; {one.state} memory {name}+{one.offset:#x} of {one.size_bytes} bytes"
    return color("nothing is known to be mapped there", "wrong")


def _life_lines(one: Finding) -> Iterator[str]:
    for life in one.lives[-MOST_LIVES:]:
        after = f" after {life.after}" if life.after else " before the first submission"
        text = f"  {life.name}, {life.size_bytes} bytes: allocated {_when(life.allocated)}{after}"
        if life.freed_record is not None:
            text += f", freed {_when(life.freed)}{f' after {life.freed_after}' if life.freed_after else ''}"
        yield clean(text)
    if len(one.lives) > MOST_LIVES:
        yield f"  and {len(one.lives) - MOST_LIVES} buffers there before"


def _when(seconds: float | None) -> str:
    return "at no known time" if seconds is None else f"at +{seconds:.6f} s"


def as_json(found: list[Finding]) -> list[dict[str, Any]]:
    """The same as data."""
    return [asdict(one) for one in found]
