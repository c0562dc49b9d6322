"""Where the GPU stands in a devcoredump: each ring around its read pointer, and the packet that it does not get past.

In       a Dump; a GPU's name, where the dump does not say it
Out      Window: packets of a ring before and from the read pointer on; Stuck: the packet that hangs
Next     show.py, ../capsule.py (a trace of it); ../amd_words.py (words to packets)
Source   amdgpu_ring.h, amdgpu_dev_coredump.c: pointers count words and run on; a place is pointer & mask

Walking packets needs a first one: the read pointer is the beginning of a packet. What is before it is walked from the
farthest place from which packets lead to it exactly. A command processor takes an indirect buffer and reads on in the
ring while the buffer runs: so the packet that hangs may be in a buffer whose packet is behind the read pointer. The
registers CP_HQD_IB_... (and those of a copy queue) say which buffer runs, and how far it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hcq.amd.abi.pm4 import Opcode
from hcq.amd.chip import CHIPS, Chip
from hcq.tools.trace.amd_words import Piece, best_chip, chip_named, pieces
from hcq.tools.trace.devcoredump.dump import Buffer, Dump, Group, Register, Ring

BACK_WORDS = 64  # so far before the read pointer packets are looked for
AHEAD_WORDS = 1 << 12  # so many words after it are decoded, where no more is asked for
SLOT_WORDS = 16  # of AQL
_QUEUE = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_COPY = re.compile(r"sdma(\d+)(?:\.(\d+))?$")


class Window(NamedTuple):
    """A ring around its read pointer. A piece's `at` counts words from the read pointer: below 0, it is done.

    form     the language of its packets; "" where it is none that is known here
    pending  how many words are not done; more than the ring has: the pointers make no sense
    """

    ring: Ring
    form: str
    done: list[Piece]
    ahead: list[Piece]
    pending: int
    note: str = ""


class Stuck(NamedTuple):
    """The packet that the GPU does not get past.

    at      of the ring's packet: words from the read pointer on; below 0, a buffer that is behind it runs
    buffer  the indirect buffer that the packet is in, and its place there
    why     what says so
    """

    ring: Ring
    form: str
    at: int
    piece: Piece
    buffer: Buffer | None = None
    buffer_at: int = 0
    why: str = ""


def chip_of(dump: Dump, named: str = "") -> tuple[Chip, str]:
    """Whose packets they are, and what to say of that where it is not certain. Raises UsageError for what was named."""
    if named:
        return chip_named(named), ""
    if dump.chip in CHIPS:
        return CHIPS[dump.chip], ""
    if dump.family:
        chip = chip_named(f"gfx{dump.family}")
        what = dump.chip or f"GC {dump.blocks['GC']}" if "GC" in dump.blocks else "only the generation"
        return chip, f"{what} is known of the GPU: packets are read as those of {chip.arch}"
    ring = next((one for one in dump.rings if language(one.name) == "pm4" and one.words), None)
    chip = best_chip(ring.words[:AHEAD_WORDS].tolist() if ring else [], "pm4")
    return (
        chip,
        f"the text does not say which GPU it is: packets are read as those of {chip.arch}; --chip overrules",
    )


def language(ring: str) -> str:
    """The language of a ring's packets, by its name; "" for those of video, display and firmware."""
    name = ring.lower()
    if "sdma" in name or name.startswith("page"):
        return "sdma"
    if "aql" in name:
        return "aql"
    return "pm4" if name.startswith(("gfx", "comp", "kiq", "kfd_pm4")) else ""


def window(ring: Ring, chip: Chip, most: int = AHEAD_WORDS) -> Window:
    """A ring around its read pointer. most: so many words from there on."""
    form = language(ring.name)
    pending, size = ring.wptr - ring.rptr, ring.mask + 1
    note = ""
    if not ring.has_pointers or not ring.words:
        return Window(ring, form, [], [], 0, "nothing is known of it but its name")
    if not 0 <= pending <= size and 0 <= ring.rptr < size > ring.wptr:
        pending += size  # the pointers begin again at 0
    if not 0 <= pending <= size:
        note, pending = f"the pointers are {pending} words apart in a ring of {size}", 0
    elif ring.rptr == ring.wptr == 0:
        note = "both pointers are 0: the ring was reset before it was read, perhaps, and its words are newer"
    if not form:
        return Window(ring, form, [], [], pending, note or "packets of this ring are not decoded")
    ahead: list[int] = []
    for at in range(min(pending, most)):
        place = (ring.rptr + at) & ring.mask
        if not ring.knows(place):
            note = note or f"the words from {4 * place:#x} on are not in the text"
            break
        ahead.append(ring.words[place])
    return Window(ring, form, _done(ring, form, chip), pieces(ahead, form, chip), pending, note)


def _done(ring: Ring, form: str, chip: Chip) -> list[Piece]:
    """The packets that lead to the read pointer exactly, from as far before it as there are such."""
    words: list[int] = []
    for back in range(1, BACK_WORDS + 1):
        place = (ring.rptr - back) & ring.mask
        if not ring.knows(place) or (ring.rptr < ring.size and ring.rptr < back):
            break
        words.insert(0, ring.words[place])
    step = SLOT_WORDS if form == "aql" else 1
    for start in range(len(words) % step, len(words), step):
        found = pieces(words[start:], form, chip)
        if all(one.is_known for one in found) and any(one.is_packet for one in found):
            return [one._replace(at=one.at + start - len(words)) for one in found]
    return []


# ------------------------------------------------------------ what hangs


def stuck(dump: Dump, chip: Chip) -> Stuck | None:
    """The packet that hangs, of the ring that timed out, else of the first one with work; None where nothing says."""
    first = [ring for ring in dump.rings if dump.timed_out and ring.name == dump.timed_out]
    for ring in (*first, *(one for one in dump.rings if one not in first)):
        seen = window(ring, chip)
        if not seen.form or (found := _in_ring(dump, seen, chip)) is None:
            continue
        return found
    return None


def _in_ring(dump: Dump, seen: Window, chip: Chip) -> Stuck | None:
    ring = seen.ring
    head = next((one for one in seen.ahead if one.name not in ("zeros", "filler")), None)
    running = running_buffer(dump, ring)
    if running is not None:
        base, behind, size, why = running
        starts = [one for one in (*seen.done[-1:], *seen.ahead[:1]) if _runs(one) is not None]
        for start in starts:
            for buffer in _reached(dump, start, chip):
                if buffer.va == base and behind < max(size, 1):
                    inside = _piece_at(buffer, behind, seen.form, chip)
                    if inside is not None:
                        return Stuck(ring, seen.form, start.at, inside, buffer, inside.at, why)
    if head is None:
        return None
    return Stuck(ring, seen.form, head.at, head, why="it is at the ring's read pointer")


def _reached(dump: Dump, start: Piece, chip: Chip) -> Iterator[Buffer]:
    """The buffer that a packet runs, and those that this one runs in turn."""
    base = _runs(start)
    form = "sdma" if start.name == "Indirect" else "pm4"
    for buffer in (one for one in dump.buffers if one.va == base and one.words):
        yield buffer
        inner = {_runs(one) for one in pieces(buffer.words[:AHEAD_WORDS], form, chip)}
        yield from (one for one in dump.buffers if one.va in inner and one.words and one is not buffer)


def _runs(piece: Piece) -> int | None:
    """Where the buffer is that a packet runs; None when it runs none."""
    found = piece.fields.get("ib_base")
    return found if isinstance(found, int) else None


def _piece_at(buffer: Buffer, at: int, form: str, chip: Chip) -> Piece | None:
    """The packet of a buffer that a word is of."""
    found = pieces(buffer.words, inner_form(form), chip)
    return next((one for one in found if one.at <= at < one.at + len(one.words) * one.times), None)


def inner_form(form: str) -> str:
    """The language of the buffers that a ring runs: an AQL packet runs one of PM4."""
    return "pm4" if form == "aql" else form


def running_buffer(dump: Dump, ring: Ring) -> tuple[int, int, int, str] | None:
    """The buffer that a ring's queue runs by its registers: where, how far it is in words, how many it has, and why."""
    for group in dump.groups:
        prefix, low, high, reached, length, unit = _names(group, ring)
        if not prefix:
            continue
        values = {_bare(one): one.value for one in reversed(group.registers)}
        base = values.get(prefix + low, 0) | values.get(prefix + high, 0) << 32
        behind = values.get(prefix + reached, 0) // unit
        size = values.get(prefix + length, 0) & 0xFFFFF
        if base and size:
            return base, behind, size, f"{prefix}{low} and {prefix}{reached} say so"
    return None


def _names(group: Group, ring: Ring) -> tuple[str, str, str, str, str, int]:
    """How the registers of a ring's queue are called, where a group has them; prefix "" where it has not."""
    queue = _QUEUE.search(ring.name)
    numbers = [int(number) for number in re.findall(r"\d+", group.place)]
    if queue is not None and group.place.startswith(("mec", "xcc")):
        wanted = [int(queue[1]) - 1, int(queue[2]), int(queue[3])]
        if numbers[-3:] == wanted:
            return ("CP_HQD_", "IB_BASE_ADDR", "IB_BASE_ADDR_HI", "IB_RPTR", "IB_CONTROL", 1)
    copy = _COPY.search(ring.name)
    if copy is not None and group.block.startswith("sdma") and numbers[-1:] == [int(copy[1])]:
        number = copy[2] or "0"
        end = re.compile(
            rf"(SDMA\d?_(?:QUEUE|RLC|GFX){number}_)IB_BASE_LO$"
            if copy[2]
            else r"(SDMA\d?_(?:QUEUE0|GFX)_)IB_BASE_LO$"
        )
        prefix = next((found[1] for one in group.registers if (found := end.match(_bare(one)))), "")
        return (prefix, "IB_BASE_LO", "IB_BASE_HI", "IB_OFFSET", "IB_SIZE", 4)
    return ("", "", "", "", "", 1)


def _bare(register: Register) -> str:
    """A register's name without what marks its generation."""
    return re.sub(r"^(?:reg|mm|ix)(?=[A-Z])", "", register.name)


# ------------------------------------------------------------ the last headers


def headers(group: Group) -> dict[str, list[int]]:
    """The dumps of packet headers in a group: of each engine the words that it took last as headers, oldest first."""
    found: dict[str, list[int]] = {}
    for one in group.registers:
        if one.name.endswith("HEADER_DUMP"):
            found.setdefault(one.name, []).append(one.value)
    return found


def header_name(word: int) -> str:
    """A packet's header in short: its opcode."""
    if not word:
        return "-"
    if word >> 30 != 3:
        return f"{word:#x}"
    number = word >> 8 & 0xFF
    return Opcode(number).name if number in Opcode._value2member_map_ else f"opcode {number:#x}"


def ends_at(words: Sequence[int], found: Sequence[Piece]) -> Piece | None:
    """The only packet up to which the headers are these; None where there is none, or more than one."""
    wanted = [word for word in words if word]
    if len(wanted) < 3:
        return None
    own = [one for one in found if one.words and one.words[0] >> 30 == 3]
    ends = [
        one
        for at, one in enumerate(own)
        if [before.words[0] for before in own[max(at + 1 - len(wanted), 0) : at + 1]] == wanted
    ]
    return ends[0] if len(ends) == 1 else None
