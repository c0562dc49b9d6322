"""Inspection: what a kind of device offers to `python -m hcq inspect`; packets of a ring around where it is read.

In       words of a ring, where the device reads, and a decoder of the ring's language
Out      packets before and behind that place as plain data, the one at that place marked
Next     hcq/observe/state.py (who asks of open devices), hcq/amd/inspection.py (one kind of device),
         hcq/inspect/command.py (the program)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hcq.errors import DriverError
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
    waves   (open device, its programs by the address of their code) -> Kernels of hcq/events/waves.py, of real
            hardware, whose queue is taken off it meanwhile; None where hardware does not tell
    registers  open device -> ({"registers": ..., "hardware_queues": ...}, notes), of emulated GPUs
    words   open device -> the words of its rings that are not done, and the buffers that these run, for a capsule
    """

    rings: Callable[[Any], list[dict[str, Any]]]
    queues: Callable[[Any], list[dict[str, Any]]]
    host: Callable[[str, int, str, Sequence[str]], dict[str, Any]] | None = None
    waves: Callable[[Any, Any], Sequence[Any]] | None = None
    words: Callable[[Any], dict[str, Any]] | None = None
    registers: Callable[[Any], tuple[dict[str, Any], list[str]]] | None = None


def read_own(va: int, size_bytes: int) -> bytes:
    """Memory of this process at an address that another thread may unmap meanwhile.

    Raises  DriverError when nothing is mapped there, or the kernel reads no such mapping for others: windows of PCIe
    Source  proc(5): /proc/pid/mem
    """
    try:
        descriptor = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.pread(descriptor, size_bytes, va)
        finally:
            os.close(descriptor)
    except (OSError, OverflowError):
        found = b""
    if len(found) != size_bytes:
        raise DriverError(
            f"{size_bytes} bytes at {va:#x} cannot be read: they are unmapped, or a window of PCIe."
        )
    return found


def words_at(va: int, count: int) -> list[int]:
    """The same as words."""
    return list(memoryview(read_own(va, 4 * count)).cast("I"))


def around(
    read: Callable[[int, int], Sequence[int]], size: int, get: int, ahead: int, behind: int, decode: Decode
) -> list[dict[str, Any]]:
    """The packets around a place of a ring, the one that is read next marked.

    read    (first word, how many) -> words, up to the end of the ring
    size    of the ring, in words
    get     the word that is read next; the ring begins again at its end
    ahead   how many words from there on have been written and not read
    behind  how many words before it hold packets that were read, at most
    """
    get %= size
    ahead = max(0, min(ahead, size))
    behind = max(0, min(behind, BEFORE_WORDS, size - ahead))
    past = _wrapped(read, size, (get - behind) % size, behind)
    coming = _wrapped(read, size, get, min(ahead, BEHIND_WORDS))
    shown = [
        entry(packet, own, (get - behind + at) % size, is_read=True)
        for at, own, packet in backwards(past, decode)[-SHOWN_BEFORE:]
    ]
    at = 0
    for packet in decode(coming)[:SHOWN_BEHIND] if coming else ():
        length = max(1, len(packet.words))
        shown.append(entry(packet, coming[at : at + length], (get + at) % size, is_at_get=at == 0))
        at += length
        if at >= len(coming):
            break
    return shown


def _wrapped(read: Callable[[int, int], Sequence[int]], size: int, start: int, count: int) -> list[int]:
    first = min(count, size - start)
    return [*(read(start, first) if first else ()), *(read(0, count - first) if count > first else ())]


def at_get(packets: Sequence[dict[str, Any]]) -> str:
    """The packet at get in words."""
    return next((str(one["packet"]) for one in packets if one["is_at_get"]), "nothing: all packets are read")


def entry(
    packet: object, words: Sequence[int], at: int, is_read: bool = False, is_at_get: bool = False
) -> dict[str, Any]:
    """A packet of a view: where it stands, its words, what it says."""
    text = str(packet)
    return {
        "at": at,
        "words": list(words[:WORDS_SHOWN]),
        "word_count": len(words),
        "packet": text if len(text) <= TEXT else f"{text[:TEXT]}...",
        "is_read": is_read,
        "is_at_get": is_at_get,
    }


def backwards(past: Sequence[int], decode: Decode) -> list[tuple[int, Sequence[int], Packet]]:
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
    """Whether it says all of these words: of what they do not know, decoders say less, or leave bits over."""
    return not packet.unclaimed and type(packet).__name__ != "Header" and tuple(packet.words) == tuple(words)
