"""Words of NVIDIA's channels, from anybody: methods, entries of the GPFIFO, launch descriptions (QMDs).

In       32-bit words; the form and the architecture, where they are known
Out      `Found`: which form it is, and why
Next     decode.py (every packet), hex_text.py (words out of text), readers.py (who asks), hcq/nv/abi/ (every structure)
Source   those of hcq/nv/abi/gpfifo.py and qmd.py; what makes a list likely is a guess, and called one

A QMD states its version itself, which says how long it is. Entries of the GPFIFO state nothing: words are taken for
them only when all pairs are segments close to each other, or operations that are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hcq.nv.abi import qmd
from hcq.nv.abi.classes import ARCHITECTURES, Engines
from hcq.nv.abi.gpfifo import GpControl, GpOpcode, decode_entry
from hcq.nv.decode import decoder

FORMS = ("pushbuffer", "qmd", "gpfifo")
NEWEST = "sm_90"  # whose methods are taken where nobody says which
MAX_SEGMENT_WORDS = 1 << 20
MAX_SPREAD_BYTES = 1 << 34  # between the segments of one ring
LEAST_ENTRIES = 2


class Found(NamedTuple):
    """The form of words, and whose they are."""

    form: str
    arch: str
    is_guess: bool


def find(words: Sequence[int], form: str = "", arch: str = "") -> Found | None:
    """Which form words are of: the one that is named, or what they look like; None where they look like none."""
    if form or arch:
        form = form or "pushbuffer"
        own = arch_of_qmd(words) if form == "qmd" and not arch else None
        return Found(form, arch or own or NEWEST, not arch and form != "gpfifo")
    if own := arch_of_qmd(words):
        return Found("qmd", own, True)
    if own := arch_of_pushbuffer(words):
        return Found("pushbuffer", own, True)
    return Found("gpfifo", NEWEST, True) if is_gpfifo(words) else None


def arch_of_qmd(words: Sequence[int]) -> str | None:
    """An architecture whose launches these words describe, by the version that they state; None for other words."""
    shown = qmd.decode(words) if words else None
    if shown is None or len(words) % shown.length_words or shown.unclaimed:
        return None
    grid = [shown.value(name) for name in ("grid_width", "grid_height", "grid_depth")]
    block = [shown.value(f"cta_thread_dimension{axis}") for axis in range(3)]
    if not all(grid) or not all(block) or not shown.value("register_count"):
        return None
    name = type(shown).__name__
    return next((arch for arch, one in ARCHITECTURES.items() if qmd.QMD_OF_CLASS[one.compute] == name), None)


def arch_of_pushbuffer(words: Sequence[int]) -> str | None:
    """An architecture whose methods these words are, to the last; None for other words.

    Headers are no proof: it takes a SET_OBJECT of a class that is known, or two headers with methods that all are.
    """
    headers = list(_headers(words))
    if not headers or headers[-1] is None:
        return None
    arch = ""
    for at, method in (one for one in headers if one is not None):
        if not method:  # SET_OBJECT
            number = words[at + 1] & 0xFFFF if at + 1 < len(words) else 0
            arch = arch or next((name for name, one in ARCHITECTURES.items() if number in _classes(one)), "")
    if arch:
        return arch
    sets = any(not one[1] for one in headers if one is not None)  # classes, none of which is known
    is_known = (
        not sets
        and len(headers) > 1
        and not any("UNKNOWN" in repr(packet) for packet in decoder(NEWEST)(words))
    )
    return NEWEST if is_known else None


def _headers(words: Sequence[int]) -> Iterator[tuple[int, int] | None]:
    """(place, number of the method) of each header; None at last where the words are none to their end."""
    at = 0
    while at < len(words):
        kind, count, method = words[at] >> 29, words[at] >> 16 & 0x1FFF, words[at] & 0xFFF
        if kind not in (1, 3, 4, 5) or (kind != 4 and not count) or words[at] >> 12 & 1:
            yield None
            return
        yield at, method
        at += 1 if kind == 4 else 1 + count
    if at != len(words):
        yield None


def _classes(one: Engines) -> tuple[int, ...]:
    return (one.compute, one.copy, one.gpfifo)


def is_gpfifo(words: Sequence[int]) -> bool:
    """Whether all pairs of these words can be slots of one ring, and at least two of them are segments."""
    if len(words) % 2:
        return False
    segments = []
    for low, high in zip(words[::2], words[1::2]):
        if not low and not high:
            continue
        entry = decode_entry(low, high)
        if entry.unclaimed:
            return False
        if isinstance(entry, GpControl):
            if entry.opcode not in GpOpcode._value2member_map_ or entry.opcode == GpOpcode.ILLEGAL:
                return False
        elif entry.length > MAX_SEGMENT_WORDS or entry.fetch or not entry.get:
            return False
        else:
            segments.append(entry.get)
    return len(segments) >= LEAST_ENTRIES and max(segments) - min(segments) < MAX_SPREAD_BYTES
