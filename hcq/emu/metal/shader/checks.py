"""What an emulated Metal GPU tells of a kernel that it stopped: the rule that the kernel broke (HCQ_SANITIZE).

In       a KernelFault of the interpreter or of machine code, and the line of MSL
Out      a fault for the listeners who want such
Changes  nothing
Next     program.py (who asks), hcq/events/kernel_faults.py (the record), ../../shader/checks.py (the sister)

Races in threadgroup memory and accesses outside of buffers are looked for always here, and end the kernel. So there is
one site, and one fault for a launch.
"""

from __future__ import annotations

from hcq.emu.metal.shader.errors import KernelFault
from hcq.events import kernel_faults
from hcq.events.kernel_faults import Site

RACE = ": a race: "


def tell(pid: int, entry: int, fault: KernelFault, statement: str) -> None:
    """A launch of the pipeline `entry` was stopped at this statement."""
    words, text = kernel_faults.wanted(), str(fault)
    if RACE in text and "race" in words:
        rule, what = "shared-race", f"a race: {text.partition(RACE)[2].rstrip('.')}"
    elif fault.access and "memory" in words:
        rule, what = "buffer-overrun", text.partition(": ")[2].rstrip(".")
    else:
        return
    site = Site("does so", statement, fault.line)
    kernel_faults.tell(pid, entry, kernel_faults.KernelFault(rule, what, "", 0, (site,)))
