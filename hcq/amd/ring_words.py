"""Words of rings: what the rings of a device hold that is not done, and the buffers these packets run, for a capsule.

In       an open device, which another thread uses meanwhile
Out      plain data
Changes  nothing; no lock is taken
Next     inspection.py (what this is part of), hcq/observe/report_words.py (in reports), tools/trace/capsule.py and
         tools/trace/words_in_reports.py (who make a trace of it)
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hcq.amd.decode import ring_decoder
from hcq.amd.rings import RING_BYTES
from hcq.errors import DriverError
from hcq.layout import Packet
from hcq.system.inspection import backwards, read_own, words_at

if TYPE_CHECKING:
    from hcq.amd.device import AmdDevice
    from hcq.amd.rings import Ring

BEHIND_WORDS = 64  # so many that are done
MOST_WORDS, MOST_BUFFERS, MOST_BUFFER_WORDS = 2048, 32, 4096
WORD_BYTES = 4


def ring_words(device: AmdDevice) -> dict[str, Any]:
    """Each ring from a little before its read pointer to its write pointer, and indirect buffers that can be read."""
    rings = [_ring(name, ring) for name, ring in list(device.rings.items())]
    buffers: dict[int, list[int]] = {}
    for ring in rings:
        get = (ring["get"] - ring["first"]) % ring["size"]
        decode = ring_decoder(device.arch, ring["language"])
        before = backwards(ring["words"][:get], decode)[-1:]  # a processor reads on while a buffer runs
        ahead = decode(ring["words"][get:]) if ring["pending"] else []
        _run(device.arch, ring["language"], [*(packet for _, _, packet in before), *ahead], buffers)
    return {
        "arch": device.arch,
        "rings": rings,
        "buffers": [{"va": va, "words": words} for va, words in buffers.items()],
    }


def _ring(name: str, ring: Ring) -> dict[str, Any]:
    """Places count words, and begin again at the ring's end."""
    size = RING_BYTES // WORD_BYTES
    rptr = int.from_bytes(read_own(ring.rptr_va, 8), "little")
    put = ring.put
    get = put - (put - (rptr & 0xFFFFFFFF)) % ring.size if ring.kind == "PM4" else rptr
    unit = RING_BYTES // ring.size
    at = get * unit // WORD_BYTES
    pending = max(0, min((put - get) * unit // WORD_BYTES, size))
    behind = min(BEHIND_WORDS, at, size - pending)
    first = (at - behind) % size
    count = min(behind + pending, MOST_WORDS)
    head = min(count, size - first)
    words = [*words_at(ring.ring.va + WORD_BYTES * first, head), *words_at(ring.ring.va, count - head)]
    return {
        "name": name,
        "language": ring.kind,
        "get": at % size,
        "put": (at + pending) % size,
        "pending": pending,
        "size": size,
        "first": first,
        "words": words,
    }


def _run(arch: str, language: str, packets: Sequence[Packet], found: dict[int, list[int]]) -> None:
    """The buffers that packets run, and those that these run in turn."""
    inner = "SDMA" if language == "SDMA" else "PM4"
    for packet in packets:
        va, size = packet.values.get("ib_base"), packet.values.get("ib_size", 0)
        if not va or va in found or not 0 < size <= MOST_BUFFER_WORDS or len(found) >= MOST_BUFFERS:
            continue
        with contextlib.suppress(DriverError):  # it is not memory that the host reads
            found[va] = words_at(va, size)
            _run(arch, inner, ring_decoder(arch, inner)(found[va]), found)
