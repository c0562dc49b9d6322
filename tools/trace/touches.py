"""Touches: everything that read or wrote a buffer, in the order in which it was submitted.

In       a Trace; an address range of a process, and from which record to which it was that buffer
Out      Touches: the submission, the command in it, in what role the buffer stands there, whether it is read or written
Changes  nothing
Next     page_memory.py (who asks), views.py (the same commands as text)

What a kernel does with an argument is what its loader said; where nobody did, it may read and write. The host's reads
and writes are not in a trace.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hcq.tools.trace.views import code_of
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
            found += _of(made[at], start, start + max(size_bytes, 1))
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


def _access(made: Submission, command: dict[str, Any]) -> Sequence[str]:
    """What the loader of a kernel said of each argument; "" where it said nothing that is known here."""
    code = code_of(made.trace, made, command)
    said = code.facts.get("access") if code is not None else None
    if not isinstance(said, (list, tuple)):
        return ()
    return ["read or write" if one == "both" else one if one in ("read", "write") else "" for one in said]
