"""A ring around its read pointer: its words as packets, and which of them the GPU is at.

In       words that stand one behind the other; the place of the read pointer among them; language; chip
Out      Window: packets, and the number of the one at the read pointer
Next     amd_words.py (words to packets), umr/show.py (who prints it); devcoredump/place.py does it for whole rings

A dump of a ring may begin in the middle of a packet, and a read pointer may be in the middle of one that is read in
parts. So both ways are tried: one walk over all words, and one that begins anew at the read pointer. What explains
more words counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hcq.amd.chip import Chip
from hcq.tools.trace.amd_words import Piece, pieces


class Window(NamedTuple):
    """Packets with their places among the words. stands: the number of the packet at the read pointer."""

    pieces: list[Piece]
    stands: int | None = None
    note: str = ""


def around(words: Sequence[int], read_at: int | None, form: str, chip: Chip) -> Window:
    """The packets of some words of a ring. read_at: where the read pointer is among them; None if it is not there."""
    whole = pieces(words, form, chip)
    if read_at is None or not 0 <= read_at < len(words):
        return Window(whole)
    at = _holding(whole, read_at)
    if whole[at].at != read_at:
        ahead = [one._replace(at=one.at + read_at) for one in pieces(words[read_at:], form, chip)]
        before = pieces(words[:read_at], form, chip)
        if ahead[0].is_known and (is_run(whole[at]) or _known(before + ahead) >= _known(whole)):
            note = (
                "" if not before or before[-1].is_known else "the packet before the read pointer is not whole"
            )
            return Window(before + ahead, len(before), note)
        return Window(whole, at, "the read pointer is in the middle of this packet")
    return Window(whole, at)


def is_run(piece: Piece) -> bool:
    """Whether it is some fillers alike."""
    return piece.times > 1


def _holding(found: Sequence[Piece], word: int) -> int:
    return next(
        number for number, one in enumerate(found) if one.at <= word < one.at + len(one.words) * one.times
    )


def _known(found: Sequence[Piece]) -> int:
    return sum(len(one.words) * one.times for one in found if one.is_known)
