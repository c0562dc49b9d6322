"""Tables of CUDA's tools: exceptions of the debugger, reports of the sanitizer, errors of calls, in words.

In       a number, a name
Out      `Words`: title, meaning, usual causes, what to try
Next     data/exceptions.tsv, data/sanitizer.tsv, data/errors.tsv
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent / "data"
NONE = 0  # the exception of a lane that has none


class Words(NamedTuple):
    """What a number stands for."""

    title: str
    meaning: str = ""
    causes: str = ""
    advice: str = ""


class Pattern(NamedTuple):
    """A report of the sanitizer."""

    kind: str
    role: str
    regex: re.Pattern[str]
    sentence: str
    meaning: str
    causes: str
    advice: str


def _rows(name: str) -> list[list[str]]:
    text = (DATA / f"{name}.tsv").read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if not line.startswith("#")]


@cache
def exceptions() -> dict[int, Words]:
    """Exceptions by number."""
    return {int(number): Words(*words) for number, *words in _rows("exceptions")}


@cache
def errors() -> dict[int, Words]:
    """Errors of calls by number; the title is the name in CUDA's runtime."""
    return {int(number): Words(*words) for number, *words in _rows("errors")}


@cache
def reports() -> tuple[Pattern, ...]:
    """Reports of the sanitizer, in the order in which they are tried."""
    return tuple(
        Pattern(kind, role, re.compile(regex), *words) for kind, role, regex, *words in _rows("sanitizer")
    )


def exception(number: int) -> Words:
    """An exception in words; the number alone where it is not known."""
    return exceptions().get(number, Words(f"exception {number}, which decode does not know"))


def exception_titled(title: str) -> int | None:
    """The number of an exception by what cuda-gdb prints; None for what it does not print."""
    wanted = title.strip().lower()
    return next((number for number, words in exceptions().items() if words.title.lower() == wanted), None)
