"""Waves of a dump: one record for what umr, RADV, rocgdb and the debug agent print of a wave, and those alike together.

In       what readers of texts found of each wave
Out      `Wave`; `Group`s of waves at the same place for the same reason; lines, and data for JSON
Next     wave_state.py (what registers and instructions say), umr/, radv/, rocm/ (who read waves)

hcq/events/waves.py is about waves of emulated GPUs that run now; these are of a text that somebody else printed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hcq.tools.trace import wave_state
from hcq.tools.trace.color import Color, clean, counted

MOST_WAVES = 20_000  # the largest GPUs have about ten thousand
SHOWN_GROUPS = 40
SHOWN_PLACES = 4
SHOWN_SCALARS = 8
SHOWN_TEXT = 300
CODE_BEFORE, CODE_AFTER, CODE_BYTES = 4, 2, 128  # lines of code around a PC


@dataclass
class Wave:
    """One wave, as far as a text tells. pc and exec are None where it does not say them.

    place        where on the GPU, or which of a dispatch: "se0.sa0.wgp1.simd0.wave3", "1:2:1:4 (0,0,0)/1"
    line         of the text, where it begins
    lanes        32 or 64; 0 where it is not known
    kernel       name of the kernel, function or shader stage
    source       "crux.cu:7"
    instruction  what it is about to do, as text
    words        the same as words of machine code
    code         lines around it, when they are printed; the one at the PC is marked
    reason       why it stopped, in the tool's words: "MEMORY_VIOLATION", "SIGBUS"
    registers    hardware registers by name in lower case: status, trapsts, ...; bit_NAME: a field that was printed
    scalars, vectors  general registers by number
    """

    place: str
    line: int
    pc: int | None = None
    exec: int | None = None
    lanes: int = 0
    kernel: str = ""
    source: str = ""
    instruction: str = ""
    words: list[int] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    reason: str = ""
    registers: dict[str, int] = field(default_factory=dict)
    scalars: dict[int, int] = field(default_factory=dict)
    vectors: dict[int, list[int]] = field(default_factory=dict)
    state: list[str] = field(default_factory=list)
    waits_for: str = ""
    under_way: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Everything that is known of it."""
        return {"kind": "wave"} | {
            name: value for name, value in vars(self).items() if value not in (None, "", [], {}, 0)
        }


class Group(NamedTuple):
    """Waves that are alike: same kernel, place, instruction, state and reason."""

    waves: list[Wave]

    @property
    def first(self) -> Wave:
        """The one that stands for all."""
        return self.waves[0]


def finish(wave: Wave, arch: str) -> None:
    """Say what can be concluded from what was printed: PC and exec from registers, state, what it waits for."""
    known = wave.registers
    if wave.pc is None and "pc_lo" in known:
        wave.pc = (known.get("pc_hi", 0) << 32 | known["pc_lo"]) & (1 << 48) - 1
    if wave.exec is None and "exec_lo" in known:
        wave.exec = known.get("exec_hi", 0) << 32 | known["exec_lo"]
    if not wave.words and "inst_dw0" in known:
        wave.words = [known["inst_dw0"], *([known["inst_dw1"]] if "inst_dw1" in known else [])]
    family = family_of(arch)
    if not wave.instruction and wave.words:
        wave.instruction = wave_state.disassembled(wave.words, arch)
    wave.state = list(dict.fromkeys((*wave.state, *wave_state.flags(known))))
    if wave.exec == 0 and "no lane is on" not in wave.state:
        wave.state.append("no lane is on")
    wave.under_way = wave_state.outstanding(known, family)
    wave.waits_for = wave.waits_for or wave_state.waits_for(wave.instruction, family, wave.state)


def family_of(arch: str) -> int:
    """The generation of a GPU: 9 of gfx90a, 11 of gfx1100; 0 where it is not known."""
    digits = arch.removeprefix("gfx")
    head = digits[:-2]
    return int(head) if arch.startswith("gfx") and head.isdecimal() else 0


def code_around(pc: int, addresses: Sequence[int], text: Callable[[int], str]) -> list[str]:
    """Lines of code around a PC, which is marked. addresses: of all lines, in order."""
    at = bisect_left(addresses, pc)
    near = addresses[max(0, at - CODE_BEFORE) : at + CODE_AFTER + 1]
    return [
        f"{'=>' if one == pc else '  '} {one:#x}  {text(one)}" for one in near if abs(one - pc) <= CODE_BYTES
    ]


def groups(waves: Sequence[Wave]) -> list[Group]:
    """Waves that are alike together, the largest group first."""
    found: dict[tuple[Any, ...], list[Wave]] = {}
    for wave in waves:
        key = (
            wave.kernel,
            wave.pc,
            wave.instruction or tuple(wave.words),
            wave.reason,
            tuple(wave.state),
            wave.source,
        )
        found.setdefault(key, []).append(wave)
    return sorted((Group(alike) for alike in found.values()), key=lambda group: -len(group.waves))


def lines(waves: Sequence[Wave], color: Color) -> Iterator[str]:
    """Every group: how many, where, the instruction, what they wait for, lanes, state."""
    found = groups(waves)
    for group in found[:SHOWN_GROUPS]:
        yield from _group(group, color)
    if len(found) > SHOWN_GROUPS:
        left = sum(len(group.waves) for group in found[SHOWN_GROUPS:])
        yield f"and {counted(left, 'wave')} in {len(found) - SHOWN_GROUPS} more groups: --json has all"


def sentence(group: Group) -> str:
    """One line for a summary: "12 waves of kernel at 0x..., s_waitcnt ...: wait for ..."."""
    one = group.first
    parts = [counted(len(group.waves), "wave")]
    parts += [f"of {one.kernel}"] if one.kernel else []
    parts += [f"at {one.pc:#x}"] if one.pc is not None else []
    said = " ".join(parts)
    said += f", {one.source}" if one.source else ""
    said += f", {one.reason}" if one.reason else ""
    said += f": {one.instruction}" if one.instruction else ""
    said += f"; waits {_waiting(one)}" if one.waits_for else ""
    return _short(said)


def _group(group: Group, color: Color) -> Iterator[str]:
    one = group.first
    places = ", ".join(wave.place for wave in group.waves[:SHOWN_PLACES])
    more = len(group.waves) - SHOWN_PLACES
    many = counted(len(group.waves), "wave") + (" alike" if len(group.waves) > 1 else "")
    yield f"{color(many, 'heading')}: {_short(places)}" + (f" and {more} more" if more > 0 else "")
    at = [f"{one.pc:#x}"] if one.pc is not None else []
    at += [f"in {color(_short(one.kernel), 'kernel')}"] if one.kernel else []
    at += [_short(one.source)] if one.source else []
    if at:
        yield _row("at", " ".join(at))
    if one.reason:
        yield _row("stopped", color(_short(one.reason), "wrong"))
    if one.instruction:
        yield _row("next", color(_short(one.instruction), "packet"))
    elif one.words:
        yield _row("next", f"unknown instruction: {' '.join(f'{word:08x}' for word in one.words[:4])}")
    if one.waits_for:
        yield _row("waits", _waiting(one))
    under_way = Counter(f"{name} {count}" for wave in group.waves for name, count in wave.under_way.items())
    if under_way:
        said = ", ".join(f"{text}" for text, _ in under_way.most_common(6))
        yield _row("pending", said)
    if one.exec is not None:
        yield _row("exec", _exec(group))
    if one.state:
        yield _row("state", ", ".join(one.state))
    if one.scalars:
        shown = sorted(one.scalars.items())[:SHOWN_SCALARS]
        said = " ".join(f"s{number}={value:08x}" for number, value in shown)
        left = len(one.scalars) - len(shown)
        yield _row("first's", said + (f" and {left} more" if left > 0 else ""))
    for text in one.code[:SHOWN_SCALARS]:
        yield f"    {color(_short(text), 'note')}"


def _exec(group: Group) -> str:
    masks = Counter(wave.exec for wave in group.waves if wave.exec is not None)
    mask, times = masks.most_common(1)[0]
    width = group.first.lanes or (64 if mask >> 32 else 32)
    on = "no lane is on" if not mask else f"{counted(mask.bit_count(), 'lane')} on"
    said = f"{mask:0{width // 4}x}, {on}"
    return said if len(masks) == 1 else f"{said} in {times} of them; {len(masks)} masks in all"


def _waiting(wave: Wave) -> str:
    return wave.waits_for if wave.waits_for.startswith("nothing") else f"for {wave.waits_for}"


def _row(label: str, text: str) -> str:
    return f"  {label:8} {text}"


def _short(text: str) -> str:
    plain = clean(text)
    return plain if len(plain) <= SHOWN_TEXT else f"{plain[:SHOWN_TEXT]}..."


def as_json(waves: Sequence[Wave]) -> dict[str, Any]:
    """All waves, and which are alike, by their numbers in the list."""
    numbers = {id(wave): number for number, wave in enumerate(waves)}
    return {
        "waves": [wave.as_json() for wave in waves],
        "groups": [[numbers[id(wave)] for wave in group.waves] for group in groups(waves)],
    }
