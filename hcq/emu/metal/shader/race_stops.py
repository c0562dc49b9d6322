"""A race in threadgroup memory, or a barrier that not all reach, that stopped a kernel of an emulated Metal GPU: told
to who looks for such.

In       the fault, and the line of MSL
Out      a fault for the listeners (HCQ_SANITIZE=race, sync)
Next     program.py (who asks), threadgroup_memory.py and machine.py (who stop it), hcq/events/kernel_faults.py

Both are looked for always here, and end the kernel: there is one site, and one fault for a launch.
"""

from __future__ import annotations

from hcq.emu.metal.shader.errors import KernelFault
from hcq.events import kernel_faults
from hcq.events.kernel_faults import Site

RACE = ": a race: "
NOT_REACHED = ("a threadgroup_barrier that the others do not", "a simdgroup_barrier that the others do not")
NOT_THERE = ("asks a thread that is not there", "that some threads of a SIMD group do not reach")


def tell(pid: int, entry: int, fault: KernelFault, statement: str) -> None:
    """A launch of the pipeline `entry` was stopped at this statement, by one of these perhaps."""
    words = kernel_faults.wanted(pid, entry)
    text = str(fault)
    rule, what = "", text.partition(": ")[2].rstrip(".")
    if RACE in text and "race" in words:
        rule, what = "shared-race", f"a race: {text.partition(RACE)[2].rstrip('.')}"
    elif "sync" in words and any(one in text for one in NOT_REACHED):
        rule = "barrier-not-reached"
    elif "sync" in words and any(one in text for one in NOT_THERE):
        rule = "mask-names-absent"
    if rule:
        site = Site("does so", statement, fault.line)
        kernel_faults.tell(pid, entry, kernel_faults.KernelFault(rule, what, "", 0, (site,)))
