"""Words of HCQ_EMULATE: a vendor, an architecture and options, as in amd:gfx1100:seed=7:caches.

In       a word, the architectures there are, what each option takes
Out      the architecture's row and the options' values; UsageError that names what is wrong with the word
Next     emu/amd/spec.py and emu/nv/spec.py (the options of each vendor)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hcq.checks import is_decimal
from hcq.errors import UsageError

Chip = TypeVar("Chip")
Option = Callable[[str], Any]  # the text after name= ("" without a =) -> its value; None when it has none


def flag(text: str) -> bool | None:
    """An option without a value: True; None when it is given one."""
    return None if text else True


def number(text: str) -> int | None:
    """An option whose value is a whole number; None for anything else."""
    return int(text) if is_decimal(text) else None


def ppm(text: str) -> int | None:
    """An option whose value is parts per million, perhaps below 0; None for anything else, and beyond a half."""
    size = number(text.removeprefix("-"))
    if size is None or size > 500_000:
        return None
    return -size if text.startswith("-") else size


def parse_word(
    word: str, chips: Mapping[str, Chip], options: Mapping[str, Option], options_help: str
) -> tuple[Chip, dict[str, Any]]:
    """The chip and the options that the word names."""
    _, _, rest = word.partition(":")
    arch, *parts = rest.split(":")
    if arch not in chips:
        raise UsageError(f"HCQ_EMULATE={word}: unknown architecture {arch!r}. Known: {', '.join(chips)}.")
    found = {}
    for part in parts:
        name, _, text = part.partition("=")
        value = options[name](text) if name in options else None
        if value is None:
            raise UsageError(f"HCQ_EMULATE={word}: unknown option {part!r}. Options: {options_help}.")
        found[name] = value
    return chips[arch], found
