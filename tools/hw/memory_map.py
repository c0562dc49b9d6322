"""Memory of this process by address, safely: what is not mapped, or not readable, is b"".

In       /proc/self/maps
Out      bytes
Next     nv/rings_seen.py, amd/rings_seen.py (who reads rings of a runtime in this process)

The kernel copies ordinary memory (native.peek). Windows of devices it does not copy: these are read by this process
itself, after a look at the map, in which a runtime that waits changes nothing.
"""

from __future__ import annotations

import bisect
import ctypes
import re

from hcq.system import native

_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ")


class MemoryOfProcess:
    """The map as it was when this was made."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        with open("/proc/self/maps", encoding="utf-8") as file:
            for line in file:
                found = _LINE.match(line)
                if found is not None and found[3].startswith("r"):
                    self.spans.append((int(found[1], 16), int(found[2], 16)))

    def read(self, va: int, size_bytes: int) -> bytes:
        """As much as is mapped from there on, up to so many bytes."""
        if size_bytes <= 0:
            return b""
        found = native.peek(va, size_bytes)
        if found:
            return found
        end = va
        at = max(bisect.bisect_right(self.spans, (va, 2**64)) - 1, 0)
        for start, stop in self.spans[at:]:
            if not start <= end < stop:
                break
            end = stop
        return ctypes.string_at(va, min(size_bytes, end - va)) if end > va else b""
