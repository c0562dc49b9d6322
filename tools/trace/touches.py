"""Touches: everything that read or wrote a buffer, in the order in which it was submitted.

In       a Trace; an address range of a process, and from which record to which it was that buffer
Out      Touches: the submission, the command in it, in what role the buffer stands there, whether it is read or written
Next     page_memory.py (who asks), views.py (the same commands as text)

What a kernel does with an argument is what its loader said; where nobody did, it may read and write. Packets of the
program's own have no commands that say what they do: their words do, as far as the device's kind declares effects. They
come after what the commands of the same submission do. The host's reads and writes are not in a trace.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hcq.errors import HcqError
from hcq.rules import effects
from hcq.tools.trace.views import Reader, code_of
from hcq.trace.file import Submission, Trace

ROLES = {  # verb -> (its field that is an address, the role, what it does there)
    "copy": (("src", "source of a copy", "read"), ("dst", "destination of a copy", "write")),
    "fill": (("dst", "filled", "write"),),
    "wait": (("signal", "waited for", "read"),),
    "signal": (("signal", "signalled", "write"),),
    "timestamp": (("address", "timestamp", "write"),),
    "indirect": (("address", "run as packets", "read"),),
}
SIGNAL_BYTES = 8


class Touch(NamedTuple):
    """One use. `inner` is the command's place in the block that command `outer` runs; None when it runs none."""

    number: int
    outer: int
    inner: int | None
    verb: str
    kernel: str
    role: str
    access: str  # "read", "write" or "read or write"
    offset_bytes: int


class Touches(NamedTuple):
    """What was found; `scanned` submissions were looked at, and `is_complete` says that these were all."""

    found: list[Touch]
    scanned: int
    is_complete: bool


def touches(
    trace: Trace,
    process: int,
    start: int,
    size_bytes: int,
    records: tuple[int, int],
    most: int,
    most_scanned: int,
) -> Touches:
    """Uses of [start, start + size_bytes) by submissions between two records.

    most          uses to return
    most_scanned  submissions to look at
    """
    made = trace.submissions
    at = bisect.bisect_left(made, records[0], key=lambda one: one.record)
    found: list[Touch] = []
    scanned = 0
    while at < len(made) and made[at].record < records[1]:
        if scanned >= most_scanned or len(found) >= most:
            return Touches(found[:most], scanned, False)
        if made[at].device.process == process:
            end = start + max(size_bytes, 1)
            own = list(_of(made[at], start, end))
            found += [*own, *_own_packets(made[at], start, end, own)]
            scanned += 1
        at += 1
    return Touches(found[:most], scanned, len(found) <= most)


def _of(made: Submission, start: int, end: int) -> Iterator[Touch]:
    blocks = {}
    if any(command["verb"] == "indirect" for command in made.commands):
        blocks = {block.va: block for block in made.blocks}
    for outer, command in enumerate(made.commands):
        for role, access, offset in _uses(made, command, start, end):
            kernel = str(command.get("kernel", ""))
            yield Touch(made.number, outer, None, command["verb"], kernel, role, access, offset)
        block = blocks.get(command["address"]) if command["verb"] == "indirect" else None
        for inner, own in enumerate(block.commands if block is not None else ()):
            for role, access, offset in _uses(made, own, start, end):
                kernel = str(own.get("kernel", ""))
                yield Touch(made.number, outer, inner, own["verb"], kernel, role, access, offset)


def _uses(made: Submission, command: dict[str, Any], start: int, end: int) -> Iterator[tuple[str, str, int]]:
    if command["verb"] == "dispatch":
        places = [
            index
            for index, arg in enumerate(command["args"])
            if arg["kind"] in ("buffer", "unknown") and start <= arg["value"] < end
        ]
        access = _access(made, command) if places else ()
        for index in places:
            said = access[index] if index < len(access) else ""
            yield f"argument {index}", said or "read or write", command["args"][index]["value"] - start
        return
    for name, role, access_here in ROLES.get(command["verb"], ()):
        va = command[name]
        size = int(command.get("size_bytes", SIGNAL_BYTES))
        if va < end and va + max(size, 1) > start:
            yield role, access_here, max(va - start, 0)


def _own_packets(made: Submission, start: int, end: int, known: Sequence[Touch]) -> Iterator[Touch]:
    """What the words of a submission do there beyond its commands."""
    outer = next((at for at, command in enumerate(made.commands) if command["verb"] == "packets"), None)
    if outer is None:
        return
    try:
        steps = Reader(made, made.memory()).steps(made.words, made.commands)
    except HcqError:  # this version does not decode the device
        return
    left = Counter((touch.verb, touch.offset_bytes) for touch in known)
    for step in steps:
        for verb, role, access, va, size in _effects(made, step):
            if va >= end or va + max(size, 1) <= start:
                continue
            offset = max(va - start, 0)
            left[verb, offset] -= 1
            if left[verb, offset] < 0:
                text = f"{role}, own packet {type(step.packet).__name__}"
                yield Touch(made.number, outer, None, "packets", "", text, access, offset)


def _effects(made: Submission, step: effects.Step) -> Iterator[tuple[str, str, str, int, int]]:
    """The memory that a packet names: verb, role, access, address and size. Not what every submission has."""
    is_launch = any(isinstance(effect, effects.Launch) for effect in step.effects)
    for effect in step.effects:
        if isinstance(effect, effects.Copy):
            for name, role, access in ROLES["copy"]:
                yield "copy", role, access, getattr(effect, name), effect.size_bytes
        elif isinstance(effect, effects.Fill):
            yield "fill", "filled", "write", effect.dst, effect.size_bytes
        elif isinstance(effect, effects.Wait):
            yield "wait", "waited for", "read", effect.cell, SIGNAL_BYTES
        elif isinstance(effect, effects.Signal) and effect.cell != made.device.facts.get("timeline"):
            yield "signal", "signalled", "write", effect.cell, SIGNAL_BYTES
        elif isinstance(effect, effects.Access) and not is_launch:  # a launch reads its own arguments
            verb = "timestamp" if effect.what == "timestamp" else "packets"
            yield verb, effect.what, "write" if effect.is_write else "read", effect.va, effect.size_bytes
        elif isinstance(effect, effects.Launch):
            for index, one in enumerate(effect.arguments):
                if one.kind == "buffer":
                    access = one.access if one.access in ("read", "write") else "read or write"
                    yield "dispatch", f"argument {index}", access, one.value, one.size_bytes


def _access(made: Submission, command: dict[str, Any]) -> Sequence[str]:
    """What the loader of a kernel said of each argument; "" where it said nothing that is known here."""
    code = code_of(made.trace, made, command)
    said = code.facts.get("access") if code is not None else None
    if not isinstance(said, (list, tuple)):
        return ()
    return ["read or write" if one == "both" else one if one in ("read", "write") else "" for one in said]
