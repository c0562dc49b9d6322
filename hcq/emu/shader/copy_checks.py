"""Copy checks: copies and fills of packets that leave their buffers (HCQ_SANITIZE=memory).

In       where a packet copies from and to, as an emulated GPU runs it
Out      a fault for each range that reaches memory which is no buffer's
Next     ../amd/sdma_processor.py, ../amd/pm4_processor.py, ../nv/copy_processor.py (who ask), memory_checks.py
         (kernels), hcq/events/known_memory.py (what is known)
"""

from __future__ import annotations

import os

from hcq.emu.shader.memory_checks import ANOTHER, OUTSIDE, VERBS, rule_at
from hcq.emu.shader.pointers import buffers_at
from hcq.events import kernel_faults, known_memory
from hcq.events.kernel_faults import KernelFault, Site
from hcq.events.known_memory import Stretch


def look(pid: int, packet: str, target: int, source: int | None, size_bytes: int) -> None:
    """A packet is about to copy so many bytes, or to fill them: then there is no source. pid: whose packet it is."""
    if "memory" not in kernel_faults.wanted() or pid != os.getpid() or size_bytes <= 0:
        return
    for kind, start in (("store", target), ("load", source)):
        if start is not None and (found := _outside(start, size_bytes)) is not None:
            rule, what, at = found
            site = Site(VERBS[kind], packet, 0)
            kernel_faults.tell(pid, 0, KernelFault(rule, what, "global", at, (site,)))


def _outside(start: int, size_bytes: int) -> tuple[str, str, int] | None:
    """(rule, what is wrong, the first byte of it) of a range; None where it is in one buffer, or nobody knows."""
    known = known_memory.of_launch(start)
    if known is None:
        return None
    end = start + size_bytes
    closed = next((one for one in known.closed if one.start < end and start < one.end), None)
    first = Stretch(end, end) if closed is None else closed
    buffers = [one for one in buffers_at(known, start) if one.start <= start < one.end]
    if buffers and end > buffers[0].end and buffers[0].end < first.start:
        return "buffer-overrun", ANOTHER, buffers[0].end
    if closed is None:
        return None
    at = max(start, closed.start)
    if buffers:
        return "buffer-overrun", OUTSIDE, at
    return (*rule_at(known, at), at)
