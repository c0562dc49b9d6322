"""Show: registers, lanes, memory, waves, code and origins as text.

In       a Stop of a session
Out      lines
Next     commands.py (who prints them), moment.py (what is shown)
"""

from __future__ import annotations

import functools
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hcq.debug.expression import TYPES, typed
from hcq.debug.moment import MOST_LINES, Array, Moment, Site, Work
from hcq.errors import UsageError

if TYPE_CHECKING:
    from hcq.debug.origin import Node, Origin
    from hcq.debug.session import Session

COLUMNS = 8
MOST_MAKERS = 12  # lines of what made all of them
MOST_SOURCE_BYTES = 1 << 24


def number(value: Any) -> str:
    """A number of a register: floats as they are, integers as they are written in assembly."""
    if isinstance(value, float):
        return f"{value:.7g}"
    return str(value) if -10 < value < 10 else hex(value)


def place(session: Session, work: Work, site: Site) -> str:
    """Where an instruction is: "matmul+0x24 kernel.hip:7"."""
    line = session.line(work, site)
    if site.line:
        return f"{work.name} {site.line}" + (f" {line}" if line != site.line else "")
    return f"{work.name or hex(work.entry)}+{site.key - work.entry:#x}" + (f" {line}" if line else "")


def source(session: Session, work: Work, line: str) -> str:
    """The text of a line of the source, where its file is here; ""."""
    name, _, number_text = line.rpartition(":")
    if not name or not number_text.isdigit():
        return ""
    lines = _lines(name)
    return lines[int(number_text) - 1].rstrip() if 0 < int(number_text) <= len(lines) else ""


@functools.lru_cache(16)
def _lines(name: str) -> list[str]:
    """Of a file of source, as it is when it is first asked for. An object may name anything: a device, a pipe."""
    try:
        about = os.stat(name)
        if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_SOURCE_BYTES:
            return []
        with open(name, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except (OSError, ValueError):
        return []


def stopped(session: Session) -> Iterator[str]:
    """What a stop says first."""
    stop = session.stop
    when = ""
    if stop.record is not None:
        when = f"launch {stop.record.number}, step {stop.tick}" + (" (in the past)" if stop.is_past else "")
    if stop.reason:
        yield f"-- {stop.reason}"
    if stop.moment is None:
        yield when or "between launches"
        return
    work = stop.moment.work
    on = stop.moment.on(session.wave)
    yield (
        f"{when}: {work.unit} {session.wave} of {stop.record.title if stop.record else work.name}, "
        f"{int(np.count_nonzero(on))} of {len(on)} lanes on"
    )
    line = session.line(work, stop.moment.site)
    if text := source(session, work, line):
        yield f"   {line}: {text}"
    yield f"=> {place(session, work, stop.moment.site)}: {stop.moment.site.text}"


def registers(moment: Moment, wave: int, lane: int, names: Sequence[str], kind: str) -> Iterator[str]:
    """Registers of a lane, and of all lanes where they differ."""
    for name in names:
        values = typed(moment, name, kind, wave) if kind else moment.read(name, wave)
        if len(values) == 1:
            yield f"{name:<8} {number(values[0].item())}"
            continue
        on = moment.on(wave)
        shown = " ".join(number(one) for one in values[:4].tolist())
        same = len(set(values[on].tolist())) <= 1 if on.any() else False
        rest = "in all lanes that are on" if same else f"lanes 0-3: {shown} ..."
        yield f"{name:<8} {number(values[lane].item())}   {rest}"


def vector(moment: Moment, name: str, kind: str, wave: int) -> Iterator[str]:
    """A register in all lanes; those that are off in brackets."""
    values = typed(moment, name, kind, wave) if kind else moment.read(name, wave)
    on = moment.on(wave)
    if len(values) == 1:
        yield f"{name} = {number(values[0].item())}"
        return
    for first in range(0, len(values), COLUMNS):
        cells = []
        for lane in range(first, min(first + COLUMNS, len(values))):
            text = number(values[lane].item())
            cells.append(f"{text if on[lane] else f'[{text}]':>14}")
        yield f"{name}[{first:>2}..] {' '.join(cells)}"


def lane_rows(
    moment: Moment, wave: int, names: Sequence[str], kind: str
) -> list[tuple[list[int], bool, str, list[str]]]:
    """The lanes of a wave, those that are alike together: (lanes, whether they are on, where they are, registers)."""
    on = moment.on(wave)
    columns: list[Array] = []
    for name in names:
        values = typed(moment, name, kind, wave) if kind else moment.read(name, wave)
        columns.append(np.broadcast_to(values, (len(on),)))
    where: dict[int, str] = {}
    for one in moment.standing():
        for row in np.flatnonzero(one.waves == wave).tolist():
            text = one.site.text if one.site is not None else "?"
            for lane in np.flatnonzero(one.lanes[row]).tolist():
                where[lane] = f"{text}" + (f" (waits for {one.waits_for})" if one.waits_for else "")
    rows: dict[tuple[Any, ...], list[int]] = {}
    for lane in range(len(on)):
        cells = tuple(number(values[lane].item()) for values in columns)
        rows.setdefault((bool(on[lane]), where.get(lane, "ended or taken away"), *cells), []).append(lane)
    return [(lanes, state, at, found) for (state, at, *found), lanes in rows.items()]


def lanes(moment: Moment, wave: int, names: Sequence[str], kind: str) -> Iterator[str]:
    """The lanes of a wave as a table; those that are alike in one line."""
    rows = lane_rows(moment, wave, names, kind)
    yield f"{'lanes':<16} {'':<4} {' '.join(f'{name:>14}' for name in names)}  at"
    for numbers, is_on, at, found in rows:
        state = "on" if is_on else "off"
        yield f"{spans(numbers):<16} {state:<4} {' '.join(f'{cell:>14}' for cell in found)}  {at}"


def spans(numbers: Sequence[int]) -> str:
    """Numbers as ranges: "0-15, 20"."""
    found: list[list[int]] = []
    for one in sorted(numbers):
        if found and found[-1][1] == one - 1:
            found[-1][1] = one
        else:
            found.append([one, one])
    shown = [str(low) if low == high else f"{low}-{high}" for low, high in found[:8]]
    return ", ".join(shown + (["..."] if len(found) > 8 else []))


def wave_rows(moment: Moment) -> Iterator[tuple[list[int], str, str, str]]:
    """All resident waves, those at one place with the same lanes on together: (waves, lanes, where, what for)."""
    width = 2 + moment.work.lanes // 4
    for one in moment.standing():
        kinds: dict[bytes, list[int]] = {}
        for wave, mask in zip(one.waves.tolist(), one.lanes):
            kinds.setdefault(np.packbits(mask, bitorder="little").tobytes(), []).append(wave)
        text = one.site.text if one.site is not None else "?"
        for bits_on, numbers in kinds.items():
            yield numbers, f"{int.from_bytes(bits_on, 'little'):#0{width}x}", text, one.waits_for


def waves(moment: Moment, selected: int) -> Iterator[str]:
    """All resident waves, those at one place together."""
    unit = moment.work.unit
    for numbers, mask, text, waits_for in wave_rows(moment):
        mark = "*" if selected in numbers else " "
        waits = f"; waits for {waits_for}" if waits_for else ""
        plural = "s" if len(numbers) > 1 else ""
        yield f"{mark} {unit}{plural} {spans(numbers)}: lanes {mask}, at {text}{waits}"


def code(session: Session, work: Work, key: int | None, before: int = 5, after: int = 10) -> Iterator[str]:
    """Instructions around one."""
    sites = work.sites()
    at = next((n for n, site in enumerate(sites) if site.key == key), 0)
    last = ""
    for number_of, site in enumerate(sites[max(0, at - before) : at + after + 1], max(0, at - before)):
        line = session.line(work, site)
        if line and line not in (last, site.line):
            text = source(session, work, line)
            yield f"   {line}{': ' + text.strip() if text else ''}"
        last = line
        mark = "=>" if number_of == at and key is not None else "  "
        name = f"{site.key & MOST_LINES:>6}" if site.line else f"{site.key - work.entry:+#07x}"
        yield f"{mark} {name}  {site.text}"


def memory(data: bytes, address: int, kind: str) -> Iterator[str]:
    """Bytes as numbers of a type, sixteen bytes in a line; "bytes" for bytes and letters."""
    if kind == "bytes":
        for at in range(0, len(data), 16):
            piece = data[at : at + 16]
            letters = "".join(chr(one) if 32 <= one < 127 else "." for one in piece)
            yield f"{address + at:#x}: {piece.hex(' '):<47}  {letters}"
        return
    if kind not in TYPES:
        raise UsageError(f"{kind!r} is no type. Types: bytes, {', '.join(TYPES)}.")
    dtype = np.dtype(TYPES[kind])
    size = dtype.itemsize
    values = np.frombuffer(data[: len(data) // size * size], dtype).tolist()
    per_line = max(1, 32 // size)
    for at in range(0, len(values), per_line):
        yield f"{address + at * size:#x}: {' '.join(number(one) for one in values[at : at + per_line])}"


def origin(session: Session, found: Origin, root: Node) -> Iterator[str]:
    """The values that are nearest to a question, and, where there are more, what made all of them."""
    yield from _tree(session, root, found.most_shown)
    if found.nodes > found.most_shown:
        yield from _makers(session, found, root)


def _tree(session: Session, node: Node, most: int) -> Iterator[str]:
    """A tree of origins, the youngest first."""
    indent = "  " * node.depth
    value = "" if node.value is None else f" = {bits(node.value)}"
    if node.site is None or node.place is None or node.work is None:
        yield f"{indent}{node.what}{value}: {node.why}"
        return
    if node.why:
        yield f"{indent}{node.what}{value}: by {node.site.text}, step {node.place.tick}, {node.why}"
        return
    rounds = ", again and again in a loop" if node.rounds > 1 else ""
    where = place(session, node.work, node.site)
    yield f"{indent}{node.what}{value}: by {node.site.text}{rounds}"
    if not node.depth or (node.sources and node.site.kind in ("store", "atomic")):
        yield (
            f"{indent}   {node.work.unit} {node.wave}, lane {node.lane} ({node.work.thread(node.wave, node.lane)}), "
            f"launch {node.place.launch}, step {node.place.tick}, {where}"
        )
        line = session.line(node.work, node.site)
        if text := source(session, node.work, line):
            yield f"{indent}   {line}: {text.strip()}"
        if packet := session.packets.of_launch(node.place.launch):
            yield f"{indent}   {packet[:300]}"
    else:
        yield f"{indent}   step {node.place.tick}, {where}"
    for one in node.sources:
        if 0 < one.number <= most:
            yield from _tree(session, one, most)
    if more := [one.what.partition(" in ")[0] for one in node.sources if one.number > most]:
        yield f"{indent}  {', '.join(more[:4])}{', ...' if len(more) > 4 else ''}: not shown"


def _makers(session: Session, found: Origin, root: Node) -> Iterator[str]:
    """The lines that all values of an origin came from, those that the fewest lanes of a block executed first."""
    end = "" if found.is_whole else ", and there are more"
    yield f"{found.nodes} values in all{end}. What made them, the rarest first, by how many lanes of a block did it:"
    rows: dict[str, list[Any]] = {}
    for one in found.makers(root):
        line = session.line(one.work, one.site)
        text = source(session, one.work, line).strip() or one.site.text
        where = f"{one.work.name} {line}" if line else place(session, one.work, one.site)
        row = rows.setdefault(f"{where}: {text}", [one.lanes, 0])
        row[1] += one.times
    for where, (lanes, times) in sorted(rows.items(), key=lambda row: row[1])[:MOST_MAKERS]:
        yield f"  {lanes:>4} lane{'s' if lanes != 1 else ' '} {times:>5} value{'s' if times != 1 else ' '}  {where}"
    if len(rows) > MOST_MAKERS:
        yield f"  ... and {len(rows) - MOST_MAKERS} lines more"


def bits(value: int) -> str:
    """A number of a register, and as a float where it looks like one."""
    if 0x2000_0000 <= value & 0x7FFF_FFFF < 0x6000_0000 and value < 1 << 32:
        (as_float,) = struct.unpack("<f", struct.pack("<I", value))
        return f"{value:#x} ({as_float:.7g})"
    return hex(value) if value > 9 else str(value)
