"""What a wave's registers and its next instruction say: its state in words, and what it waits for.

In       hardware registers by name; an instruction as text or as words, and the GPU that it is of
Out      words for bits; the instruction's text; what it waits for
Next     waves.py (who asks)
Source   umr's print_waves.c (STATUS, IB_STS of gfx9); Linux' cwsr_trap_handler_gfx9.asm, _gfx10.asm and _gfx12.asm
         (TRAPSTS, STATE_PRIV, EXCP_FLAG_PRIV); LLVM AMDGPUUsage: s_waitcnt and its counters
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from hcq.errors import HcqError

# Register, bit, what it says. Of gfx9 to gfx11, and from STATE_PRIV on of gfx12.
BITS = (
    ("status", 5, "in privileged code (the trap handler)"),
    ("status", 9, "no lane is on"),
    ("status", 12, "at a barrier"),
    ("status", 13, "halted"),
    ("status", 14, "a trap is pending"),
    ("status", 17, "ECC error"),
    ("status", 23, "halted for good, by an error"),
    ("trapsts", 8, "memory violation"),
    ("trapsts", 10, "saving its context"),
    ("trapsts", 11, "illegal instruction"),
    ("state_priv", 2, "its barrier is complete"),
    ("state_priv", 14, "halted"),
    ("state_priv", 15, "poisoned data"),
    ("excp_flag_priv", 4, "memory violation"),
    ("excp_flag_priv", 5, "saving its context"),
    ("excp_flag_priv", 6, "illegal instruction"),
    ("excp_flag_priv", 7, "a trap from the host"),
)
NEW_STATUS = (5, 17)  # bits of STATUS that gfx12 has too
BARRIER = "the barrier: other waves of its workgroup are not there yet"

COUNTERS = {
    "vmcnt": "vector memory",
    "vscnt": "vector stores",
    "lgkmcnt": "LDS, scalar loads or messages",
    "expcnt": "exports",
    "loadcnt": "vector loads",
    "storecnt": "vector stores",
    "samplecnt": "image samples",
    "bvhcnt": "ray tracing",
    "dscnt": "LDS",
    "kmcnt": "scalar loads or messages",
    "asynccnt": "copies to LDS",
    "tensorcnt": "tensor copies",
}
# The immediate of s_waitcnt: counter, bits low first; all ones is no wait.
_FIELDS = {
    9: {"vmcnt": (0, 1, 2, 3, 14, 15), "expcnt": (4, 5, 6), "lgkmcnt": (8, 9, 10, 11)},
    10: {"vmcnt": (0, 1, 2, 3, 14, 15), "expcnt": (4, 5, 6), "lgkmcnt": (8, 9, 10, 11, 12, 13)},
    11: {"expcnt": (0, 1, 2), "lgkmcnt": (4, 5, 6, 7, 8, 9), "vmcnt": (10, 11, 12, 13, 14, 15)},
}
_NAMED = re.compile(r"(\w+cnt)\((\d{1,3})\)")
_IMMEDIATE = re.compile(r"\b(0x[0-9a-fA-F]{1,8}|\d{1,6})\s*$")
# Instructions that say by themselves what a wave is at.
_OTHERS = (
    (re.compile(r"s_barrier(_wait)?\b"), BARRIER),
    (re.compile(r"s_(sleep|sleep_var)\b"), "time to pass: it sleeps, in a loop that polls, mostly"),
    (re.compile(r"s_trap\b"), "nothing: a trap, of an assert or __builtin_trap"),
    (re.compile(r"s_sethalt\b"), "somebody to let it go on: the program halts itself"),
    (re.compile(r"s_endpgm"), "nothing: it is at its end"),
    (re.compile(r"s_(c?branch\w*)\s.*\b(65535|0xffff|-1)\s*$"), "nothing: it branches to itself, for ever"),
    (re.compile(r"s_wait_idle\b"), "everything that it has under way"),
    (re.compile(r"s_wait_event\b"), "exports to become ready"),
    (re.compile(r"s_sendmsg"), "room for its message"),
)


def flags(registers: Mapping[str, int]) -> list[str]:
    """What the bits of a wave's registers say. Their names are in lower case, without ixSQ_WAVE_."""
    is_new = "state_priv" in registers
    found = [
        said
        for name, bit, said in BITS
        if registers.get(name, 0) >> bit & 1 and not (is_new and name == "status" and bit not in NEW_STATUS)
    ]
    return list(dict.fromkeys(found))


def outstanding(registers: Mapping[str, int], family: int) -> dict[str, int]:
    """What a wave has under way, by counter: as umr prints it, or by IB_STS of gfx9."""
    found = {name: registers[f"bit_{name}"] for name in COUNTERS if f"bit_{name}" in registers}
    if not found and family == 9 and "ib_sts" in registers:
        word = registers["ib_sts"]
        found = {
            "vmcnt": word & 15 | (word >> 22 & 3) << 4,
            "expcnt": word >> 4 & 7,
            "lgkmcnt": word >> 8 & 15,
        }
    return {name: count for name, count in found.items() if count}


def waits_for(instruction: str, family: int, state: Sequence[str] = ()) -> str:
    """What a wave waits for that is about to do this; "" where neither the instruction nor its state says it."""
    if "at a barrier" in state:
        return BARRIER
    name = instruction.split(" ", 1)[0] if instruction else ""
    if name.startswith("s_waitcnt"):
        return _counted(_wanted(instruction, name, family))
    if name.startswith("s_wait_") and name.endswith("cnt"):
        left = _number(instruction)
        names = [one for one in name.removeprefix("s_wait_").split("_") if one in COUNTERS]
        return _counted(dict.fromkeys(names, left) if len(names) == 1 else dict.fromkeys(names, None))
    return next((said for form, said in _OTHERS if form.match(instruction)), "")


def _wanted(instruction: str, name: str, family: int) -> dict[str, int | None]:
    """Counters that an instruction waits for, and how many may be left; None where it is not known."""
    named: dict[str, int | None] = {
        one[0]: int(one[1]) for one in _NAMED.findall(instruction) if one[0] in COUNTERS
    }
    if named:
        return named
    number = _number(instruction)
    if name != "s_waitcnt":
        counter = name.removeprefix("s_waitcnt_")
        return {counter: number} if counter in COUNTERS else {}
    fields = _FIELDS.get(family)
    if number is None or fields is None:
        return {"vmcnt": None, "lgkmcnt": None}
    found: dict[str, int | None] = {}
    for counter, places in fields.items():
        left = sum((number >> place & 1) << index for index, place in enumerate(places))
        if left != (1 << len(places)) - 1:
            found[counter] = left
    return found


def _counted(wanted: Mapping[str, int | None]) -> str:
    return " and ".join(
        COUNTERS[name] + (f" (until {left} are left)" if left else "") for name, left in wanted.items()
    )


def _number(instruction: str) -> int | None:
    found = _IMMEDIATE.search(instruction)
    return int(found[1], 0) if found else None


# ------------------------------------------------------------ words of an instruction


def disassembled(words: Sequence[int], arch: str) -> str:
    """The instruction at the beginning of some words; "" where nothing here can read it."""
    isa, is_sister = _isa(arch)
    if isa is None or not words:
        return ""
    if is_sister and words[0] >> 23 != 0b101111111:  # SOPP alone is the same in all of a family
        return ""
    from hcq.emu.amd.shader import disassembly

    try:
        return str(disassembly.text(isa, isa.decode(words)))
    except (HcqError, KeyError, IndexError, ValueError):
        return ""


@cache
def _isa(arch: str) -> tuple[Any, bool]:
    from hcq.emu.amd.shader.architectures import isa_of  # NumPy comes with it

    found = isa_of(arch)
    if found is None and re.match(r"gfx(9|10)", arch):
        return isa_of("gfx90a"), True
    return found, False
