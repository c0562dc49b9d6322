"""Decoding without a device: what turns the words of a trace into packets, chosen by architecture.

In       an architecture's name, as a trace keeps it
Out      decode(words) -> list[Packet]
Changes  nothing
Next     encode.py (whose inverse it is), hcq/backends.py (who asks)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
