"""vm_fault.log and the lists of buffers: which buffer the page of a fault is in, was in, or is behind.

In       lines of vm_fault.log; of bo_history.log, bo_ranges.log, addr_binding_report.log
Out      Fault; what the lists say of its page
Next     report.py (who asks), hcq/amd/abi/page_fault.py (the status word)
Source   Mesa: radv_debug.c, ac_debug.c (ac_print_gpuvm_fault_status), radv_amdgpu_bo.c (the lists)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from hcq.amd.abi.page_fault import ProtectionFaultStatus, describe_client, describe_permission
from hcq.tools.trace.kernel_log.log_lines import clean

VA_MASK = (1 << 48) - 1  # addresses are printed with their sign extended
_PAGE = re.compile(r"Failing VM page: 0x([0-9a-fA-F]{1,16})")
_STATUS = re.compile(r"\w*PROTECTION_FAULT_STATUS: 0x([0-9a-fA-F]{1,8})")
_CLIENT = re.compile(r"CLIENT_ID: \(([^)]{1,60})\)")
_SAID = re.compile(r"use-after-free|VA not found", re.IGNORECASE)
_RANGE = re.compile(r"VA=([0-9a-fA-F]{1,16})-([0-9a-fA-F]{1,16})(.{0,200})")
_TIME = re.compile(r"timestamp=(\d{1,20})")
GONE = ("destroyed=1", "binding_type=unbind", "mapped_to=0000000000000000")


@dataclass
class Fault:
    """A page fault: the page, the status word, Mesa's own finding, and what the lists of buffers say."""

    page: int = 0
    status: int = 0
    client: str = ""
    said: list[str] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """What happened, in one line."""
        status = ProtectionFaultStatus.decode([self.status])
        way = "write" if status.rw else "read"
        by = f" by {describe_client(self.client)}" if self.client else ""
        why = describe_permission(status) if self.status else "no status is known"
        return f"page fault: a {way} of the page at {self.page:#x}{by}: {why}"


def fault(lines: Iterable[str]) -> Fault | None:
    """The fault of a vm_fault.log; None where it names no page."""
    found = Fault()
    has_page = False
    for raw in lines:
        line = clean(raw[:1000])
        if page := _PAGE.search(line):
            found.page, has_page = int(page[1], 16), True
        elif status := _STATUS.search(line):
            found.status = int(status[1], 16)
        elif client := _CLIENT.search(line):
            found.client = client[1]
        elif _SAID.search(line) and len(found.said) < 5:
            found.said.append(line[:200])
    return found if has_page else None


def find_buffers(lists: Iterable[tuple[str, Iterable[str]]], page: int) -> list[str]:
    """What each list says of a page: the last buffer that held it, else the nearest that ends before it."""
    said = []
    at = page & VA_MASK
    for name, lines in lists:
        last, before = "", (0, "")
        for raw in lines:
            found = _RANGE.search(raw[:1000])
            if found is None:
                continue
            start, end = int(found[1], 16) & VA_MASK, int(found[2], 16) & VA_MASK
            gone = any(mark in found[3] for mark in GONE)
            time = _TIME.search(raw[:1000])
            text = f"{start:#x}-{end:#x}" + (", gone" if gone else "") + (f", time {time[1]}" if time else "")
            if start <= at < end:
                last = text
            elif before[0] < end <= at:
                before = (end, text)
        if last:
            verb = (
                "was in a buffer that is gone: used after it was freed"
                if ", gone" in last
                else "is in a buffer"
            )
            said.append(f"{name}: the page {verb} ({last.replace(', gone', '')})")
        elif before[1]:
            said.append(f"{name}: in no buffer; {at - before[0]:#x} bytes behind the one at {before[1]}")
    return said
