"""Views of CPU devices for `python -m hcq inspect`: the ring around the packet that the command processor reads.

In       an open device, which another thread uses meanwhile
Out      plain data
Changes  nothing; no lock is taken
Next     device.py (the ring), hcq/system/inspection.py (what this is part of)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hcq.cpu import encode, packets
from hcq.errors import UsageError
from hcq.system.inspection import Inspection, around, at_get, words_at

if TYPE_CHECKING:
    from hcq.cpu.device import CpuDevice


def rings(device: CpuDevice) -> list[dict[str, Any]]:
    """Its ring with the words around get."""
    control = packets.Control.decode(words_at(device._control_va, packets.Control.length_words))
    base, size = device._ring_va, len(device._ring) // 4
    get, put = control.get, control.put
    shown = around(
        lambda first, count: words_at(base + 4 * first, count), size, get, put - get, get, encode.decode
    )
    asleep = ", asleep" if control.asleep else ""
    return [
        {
            "name": f"main (words{asleep})",
            "language": "CPU",
            "unit": "words",
            "get": get,
            "put": put,
            "size": size,
            "address": base,
            "packet": at_get(shown),
            "packets": shown,
        }
    ]


def queues(device: CpuDevice) -> list[dict[str, Any]]:
    """Raises UsageError: no kernel driver describes its queue."""
    raise UsageError(f"{device.name} has no kernel driver that describes its queue. Take --rings.")


INSPECTION = Inspection(rings, queues)
