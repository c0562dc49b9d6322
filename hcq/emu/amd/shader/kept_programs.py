"""Compiled programs on disk: a second process starts with machine code, and neither traces nor compiles anything.

In       what identifies a program: its code, how waves run it
Out      Text and machine code; None where nothing is kept
Changes  the disk cache
Next     native.py (who asks), native_text.py (who writes the text), hcq/emu/compiled/assemble.py (machine code)

What is kept belongs to the sources of this emulator: with others nothing is found.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hcq.emu import compiled
from hcq.emu import shader as shared
from hcq.emu.amd import shader
from hcq.emu.compiled import assemble
from hcq.system.cache import DiskCache

KIND = "emu-programs"
SPENT = "emu-spent"  # what interpreting a program has taken, in all processes


@dataclass
class Text:
    """What is there of a program. why_not: of instructions that are left to the interpreter.

    Addresses are counted from the program's entry on: the same code elsewhere has the same text.
    """

    ir: str = ""
    entries: dict[int, int] = field(default_factory=dict)  # by address: the number of an entry
    exits: list[int] = field(default_factory=list)  # the address that a way out leads to
    troubles: set[int] = field(default_factory=set)  # of these: where an access may find no memory
    sites: int = 0
    has_barriers: bool = False  # that compiled code goes on behind
    why_not: dict[str, str] = field(default_factory=dict)


@dataclass
class Compiled:
    """A program's machine code."""

    text: Text
    code: assemble.Assembled


@functools.cache
def _sources() -> str:
    """Which emulator this is: sizes and times of its files, and NumPy's version."""
    found = [np.__version__]
    for package in (shader, shared, compiled):
        for folder in package.__path__:
            with os.scandir(Path(folder)) as entries:
                for one in entries:
                    if one.name.endswith(".py"):
                        about = one.stat()
                        found.append(f"{one.name} {about.st_size} {about.st_mtime_ns}")
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()


def _key(identity: str) -> str:
    return f"{_sources()} {assemble.host()} {identity}"


def read(identity: str) -> Compiled | None:
    """A program that was compiled before, by this process or another."""
    data = DiskCache().get(KIND, _key(identity))
    if data is None:
        return None
    known = json.loads(data)
    code = assemble.Assembled.kept(known["code"])
    if code is None:
        return None
    text = Text(
        "",
        dict(known["entries"]),
        known["exits"],
        set(known["troubles"]),
        known["sites"],
        known["has_barriers"],
        known["why_not"],
    )
    return Compiled(text, code)


def spent_ns(identity: str) -> float:
    """What interpreting a program has taken, by estimate, in processes before this one."""
    data = DiskCache().get(SPENT, _key(identity))
    return float(data) if data is not None else 0.0


def note_spent(identity: str, ns: float) -> None:
    """Keep it."""
    DiskCache().put(SPENT, _key(identity), f"{ns:.0f}".encode())


def write(identity: str, made: Compiled | None) -> None:
    """Keep one."""
    if made is None:
        return
    text = made.text
    about = {
        "code": made.code.key,
        "entries": list(text.entries.items()),
        "exits": text.exits,
        "troubles": sorted(text.troubles),
        "sites": text.sites,
        "has_barriers": text.has_barriers,
        "why_not": text.why_not,
    }
    DiskCache().put(KIND, _key(identity), json.dumps(about).encode())
