"""Numbers that a program is given in every launch: which parameters they are, so that a launch names the others alone.

In       a word for each parameter: "" for one that launches name, else "int 5", "float 0x1.8p+0" or "null"
Out      the numbers; the kinds and accesses of all parameters
Changes  `fix` the program
Next     hcq/program.py (with_numbers: what a launch becomes), artefact/file.py and frontend/run/plan.py (who keep the
         words)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def number_of(word: str) -> int | float | None:
    """What a word says. Raises ValueError for another one."""
    kind, _, text = word.partition(" ")
    if word == "null":
        return None
    if kind not in ("int", "float"):
        raise ValueError(f"{word!r} is no number")
    return int(text) if kind == "int" else float.fromhex(text)


def check(words: Sequence[str], buffers: int) -> tuple[str, ...]:
    """The words, found right: each says a number, and they leave room for so many buffers. Raises ValueError."""
    if not isinstance(words, (list, tuple)) or not all(type(word) is str for word in words):
        raise ValueError("numbers are a list of words")
    for word in filter(None, words):
        number_of(word)
    if words and words.count("") != buffers:
        raise ValueError(f"numbers leave room for {words.count('')} arguments of {buffers}")
    return tuple(words)


def kinds(words: Sequence[str]) -> tuple[str, ...]:
    """The kinds of all parameters of a program with such numbers."""
    found = [word.partition(" ")[0] for word in words]
    return tuple([kind if kind in ("int", "float") else "buffer" for kind in found])


def accesses(words: Sequence[str], named: Sequence[Any]) -> list[Any]:
    """Of all parameters: "" for numbers, and for the others what is named, in order."""
    rest = iter(named)
    return ["" if word else next(rest) for word in words]


def fix(program: Any, words: Sequence[str]) -> None:
    """From now on launches of the program name the other parameters alone."""
    program._numbers = tuple([number_of(word) if word else ... for word in words])
