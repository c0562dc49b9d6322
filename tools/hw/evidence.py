"""Evidence: what a device was doing when an item failed: its rings, cells and errors, each asked by itself.

In       a device, open or half opened
Out      plain data for a JSON file; what cannot be had says why
Next     nv/evidence.py, amd/evidence.py (what a vendor's devices have), bench.py (who writes it)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from hcq.observe import report
from hcq.system import native
from hcq.tools.hw.plan import of_vendor

WORDS_SHOWN = 64

Part = Callable[[Any], Any]


def evidence_of(device: Any, kind: str) -> dict[str, Any]:
    """Everything that is known of a device now."""
    return collect(device, {**COMMON, **of_vendor(kind, "evidence").PARTS})


def collect(device: Any, parts: Mapping[str, Part]) -> dict[str, Any]:
    """Each part by itself: one that fails is its error, and the others are there."""
    found: dict[str, Any] = {}
    for name, part in parts.items():
        try:
            found[name] = part(device)
        except Exception as error:
            found[name] = f"not known: {type(error).__name__}: {error}"
    return found


def words_at(va: int, count: int = WORDS_SHOWN) -> list[str]:
    """Words of this process's memory as hex; fewer where less can be read."""
    data = native.peek(va, 4 * count)
    return [f"{word:08x}" for word in struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4])]


def _report(device: Any) -> list[str]:
    """The page that a timeout or a fault prints."""
    return report.describe(device, "hw_check").splitlines()


def _timeline(device: Any) -> dict[str, Any]:
    timeline = device.timeline
    return {"va": hex(timeline.va), "value": timeline.value, "submitted": timeline.submitted}


COMMON: dict[str, Part] = {
    "facts": lambda device: device.facts(),
    "dead": lambda device: device.dead,
    "timeline": _timeline,
    "failures": lambda device: device.failures,
    "rings": lambda device: [ring._asdict() for ring in device.ring_states()],
    "regions": lambda device: {hex(va): size for va, size in device.memory.regions.items()},
    "kernel_log": lambda device: device.port.kernel_log()[-50:],
    "report": _report,
}
