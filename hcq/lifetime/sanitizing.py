"""Sanitizing: the argument `sanitize` of `hcq.open`, which one device is opened with instead of HCQ_SANITIZE.

In       its words
Out      the switches to open the device with; UsageError where nothing could look at the device's kernels
Next     opening.py (who asks), hcq/config.py (the words), hcq/observe/sanitizer.py (who hears what is found)
"""

from __future__ import annotations

import dataclasses
from typing import Any

from hcq import checks, config
from hcq.config import SANITIZE_WORDS, Config
from hcq.errors import UsageError

# a word of HCQ_EMULATE for each kind
EMULATED = {"AMD": "amd:gfx1100", "NV": "nv:sm_90", "METAL": "metal:m3"}


def settings_with(name: str, sanitize: Any, is_emulated: bool) -> Config:
    """The process's switches with these words.

    sanitize  as HCQ_SANITIZE takes them: "race,memory"
    Raises    UsageError for a word that there is none of, and for a device that is not emulated
    """
    call = f"open({name!r}, sanitize={checks.shown(sanitize)})"
    text = checks.text("open", "sanitize", sanitize)
    words = frozenset(word.strip().lower() for word in text.split(",") if word.strip())
    if unknown := sorted(words - set(SANITIZE_WORDS)):
        raise UsageError(f"{call}: unknown word {unknown[0]!r}. Valid words: {', '.join(SANITIZE_WORDS)}.")
    if words and not is_emulated:
        known = EMULATED.get(name.partition(":")[0].upper(), EMULATED["AMD"])
        raise UsageError(f"{call}: only emulated GPUs look at what kernels do. Set HCQ_EMULATE={known}.")
    return dataclasses.replace(config.current(), sanitize=config.sanitize_words(words))


def check_open(name: str, wanted: Config, found: Any) -> None:
    """The device is open: it must look for these words already. Raises UsageError where it does not."""
    if not wanted.sanitize <= found.config.sanitize:
        has = ",".join(sorted(found.config.sanitize)) or "nothing"
        words = ",".join(sorted(wanted.sanitize))
        raise UsageError(
            f"open({name!r}, sanitize={words!r}): {name} is open, and looks for {has}. Say what to look for where it "
            "is opened first, or close it before."
        )
