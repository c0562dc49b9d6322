"""Decoding without a device: what turns the words of a trace into packets, chosen by architecture.

In       an architecture's name, as a trace keeps it
Out      decode(words) -> list[Packet], of all of a driver's rings or of one engine
Next     encode.py (whose inverse it is), hcq/backends.py (who asks)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from hcq.amd.abi import aql, pm4, sdma
from hcq.amd.chip import CHIPS
from hcq.amd.encode import Encoder
from hcq.errors import UsageError
from hcq.layout import Packet


def decoder(arch: str) -> Callable[[Sequence[int]], list[Packet]]:
    """The decoder of one architecture. Raises UsageError listing the known ones."""
    if arch not in CHIPS:
        raise UsageError(
            f"{arch or 'no architecture'}: not a GPU whose packets are known. Known: {', '.join(CHIPS)}."
        )
    return Encoder(
        CHIPS[arch], is_aql=False, xccs=1, ring_fence_va=0, copy_fence_va=0, slot_va=0, event_id=0
    ).decode


@functools.cache
def queue_decoder(arch: str, queue: str) -> Callable[[Sequence[int]], list[Packet]]:
    """The decoder of a queue whose name begins with AQL, PM4 or SDMA: one engine's packets. Any other: of all engines.

    >>> queue_decoder("gfx1100", "AQL 3")([0x10000] + [0] * 15)
    [Pm4Ib(ven_hdr=1)]
    """
    every = decoder(arch)
    chip = CHIPS[arch]
    kind = queue.partition(" ")[0]
    if kind == "AQL":
        # a block of PM4 that an AQL packet runs is of its queue, too; no AQL packet has the bits that start one of PM4
        return lambda words: (
            pm4.decode(words, chip.packets) if words and pm4.is_header(words[0]) else aql.decode(words)
        )
    if kind == "PM4":
        return lambda words: pm4.decode(words, chip.packets)
    if kind == "SDMA":
        return lambda words: sdma.decode(words, chip.copies)
    return every


def ring_decoder(arch: str, language: str) -> Callable[[Sequence[int]], list[Packet]]:
    """The decoder of one ring, "AQL", "PM4" or "SDMA", which ends with the header of what is in another language.

    >>> ring_decoder("gfx1100", "SDMA")([0xC0033700, 0, 0, 0, 0])
    [Header(sub_op=55, unclaimed_word_0=0xc0030000)]
    """
    plain = queue_decoder(arch, language)
    if language == "PM4":
        return plain
    header = aql.Header if language == "AQL" else sdma.Header

    def decode(words: Sequence[int]) -> list[Packet]:
        found: list[Packet] = []
        at = 0
        for packet in aql.decode(words) if language == "AQL" else plain(words):
            # no sub-operation of SDMA is as high as the opcodes of PM4, and no AQL packet's header has its two top bits
            is_other = words[at] >> 8 & 0xFF >= 0x10 if language == "SDMA" else pm4.is_header(words[at])
            if is_other or len(packet.words) > len(words) - at:
                return [*found, header.decode(words[at : at + header.length_words])]
            found.append(packet)
            at += len(packet.words)
        return found

    return decode
