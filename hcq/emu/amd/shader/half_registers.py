"""Halves of vector registers: which half a load fills, and which an instruction uses, by their words.

In       instructions as they are printed
Out      `are_apart`: a load fills one half of a register, and a use is of the other
Next     register_waits.py (who asks), disassembly.py (who prints them)
Source   RDNA3 ISA document: D16 loads and stores; what LLVM 22 compiles for gfx11, where a load of one half and a use
         of the other need no wait between

From gfx11 on. On CDNA such a load may write the whole register.
"""

from __future__ import annotations

import re

LOW, HIGH, BOTH = 1, 2, 3
SMALL_STORE = re.compile(r"\w*store_b(16|8)(_|\b)|\w*store_(d16_hi_)?b(16|8)\b")


def are_apart(load: str, use: str, register: str) -> bool:
    """Whether a load of these words and a use of this register ("v7") have no half in common."""
    return not _filled(load.split()[0]) & _used(use, register)


def _filled(name: str) -> int:
    return HIGH if "_d16_hi" in name else LOW if "_d16" in name else BOTH


def _used(text: str, register: str) -> int:
    name, _, rest = text.partition(" ")
    operands = [(one.split() or [""])[0] for one in rest.split(",")]
    there = [number for number, one in enumerate(operands) if one.partition(".")[0] == register]
    if not there:  # a part of several registers
        return BOTH
    if SMALL_STORE.match(name) and there == [1]:
        return HIGH if "_d16_hi" in name else LOW
    halves = {operands[number].partition(".")[2] for number in there}
    return LOW if halves == {"l"} else HIGH if halves == {"h"} else BOTH
