"""Inspection: what a kind of device offers to `python -m hcq inspect`, and the packets of a ring around where it is read.

In       words of a ring, where the device reads, and a decoder of the ring's language
Out      packets before and behind that place as plain data, the one at that place marked
Changes  nothing
Next     hcq/observe/state.py (who asks of open devices), hcq/amd/inspection.py (one kind of device),
         hcq/inspect/command.py (the program)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hcq.layout import Packet

BEFORE_WORDS, BEHIND_WORDS = 64, 96  # how far a window reaches
SHOWN_BEFORE, SHOWN_BEHIND = 4, 8  # packets
WORDS_SHOWN = 16  # of a packet
TEXT = 600  # characters of a packet in words

Decode = Callable[[Sequence[int]], list[Packet]]


class Inspection(NamedTuple):
    """Of one kind of device. Nothing of it takes a lock of the device, changes it, or waits for it.

    rings   open device -> a dictionary for each ring: name, language, put, get, size, and its `packets`
    queues  open device -> a dictionary for each queue that its kernel driver has, as that describes it
    host    (root of the file system, number of the GPU, chip or "", views) -> the same of a real GPU, of whatever
            program, as its kernel driver tells root; None where it tells nothing
    """

    rings: Callable[[Any], list[dict[str, Any]]]
    queues: Callable[[Any], list[dict[str, Any]]]
    host: Callable[[str, int, str, Sequence[str]], dict[str, Any]] | None = None


def around(words: Sequence[int], get: int, ahead: int, behind: int, decode: Decode) -> list[dict[str, Any]]:
    """The packets around a place of a ring, the one that is read next marked.

    words   of the whole ring
    get     the word that is read next; the ring begins again at its end
    ahead   how many words from there on have been written and not read
    behind  how many words before it hold packets that were read, at most
    """
    size = len(words)
    behind = max(0, min(behind, BEFORE_WORDS, size - ahead))
    start = (get - behind) % size if size else 0
    past = [words[(start + i) % size] for i in range(behind)]
    coming = [words[(get + i) % size] for i in range(max(0, min(ahead, BEHIND_WORDS, size)))]
    shown = [
        _entry(packet, own, (start + at) % size, is_read=True)
        for at, own, packet in _backwards(past, decode)[-SHOWN_BEFORE:]
    ]
    at = 0
    for packet in decode(coming)[:SHOWN_BEHIND] if coming else ():
        length = max(1, len(packet.words))
        shown.append(_entry(packet, coming[at : at + length], (get + at) % size, is_read=False))
        at += length
        if at >= len(coming):
            break
    first = next((entry for entry in shown if not entry["is_read"]), None)
    if first is not None:
        first["is_at_get"] = True
    return shown


def _entry(packet: Packet, words: Sequence[int], at: int, is_read: bool) -> dict[str, Any]:
    text = repr(packet)
    return {
        "at": at,
        "words": list(words[:WORDS_SHOWN]),
        "word_count": len(words),
        "packet": text if len(text) <= TEXT else f"{text[:TEXT]}...",
        "is_read": is_read,
        "is_at_get": False,
    }


def _backwards(past: Sequence[int], decode: Decode) -> list[tuple[int, Sequence[int], Packet]]:
    """Packets that end where the words end. A ring does not tell where packets begin: of all beginnings whose packets
    fit one behind the other up to the end, the first one is taken."""
    follows: dict[int, tuple[int, Packet]] = {}  # a beginning -> where its packet ends
    for at in range(len(past) - 1, -1, -1):
        packet = decode(past[at:])[0]
        end = at + len(packet.words)
        if (end == len(past) or end in follows) and _is_known(packet, past[at:end]):
            follows[at] = end, packet
    found = []
    place = min(follows, default=len(past))
    while place in follows:
        end, packet = follows[place]
        found.append((place, past[place:end], packet))
        place = end
    return found


def _is_known(packet: Packet, words: Sequence[int]) -> bool:
    """Whether it says all of these words: what decoders make of what they do not know is shorter, or leaves bits over."""
    return not packet.unclaimed and type(packet).__name__ != "Header" and tuple(packet.words) == tuple(words)
