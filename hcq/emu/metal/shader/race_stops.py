"""A race in threadgroup memory that stopped a kernel of an emulated Metal GPU, told to who looks for races.

In       the fault, and the line of MSL
Out      a fault for the listeners (HCQ_SANITIZE=race)
Next     program.py (who asks), threadgroup_memory.py and machine.py (who stop it), hcq/events/kernel_faults.py

Such races are looked for always here, and end the kernel: there is one site, and one fault for a launch.
"""

from __future__ import annotations

from hcq.emu.metal.shader.errors import KernelFault
from hcq.events import kernel_faults
from hcq.events.kernel_faults import Site

RACE = ": a race: "


def tell(pid: int, entry: int, fault: KernelFault, statement: str) -> None:
    """A launch of the pipeline `entry` was stopped at this statement, by a race perhaps."""
    _, is_race, what = str(fault).partition(RACE)
    if is_race and "race" in kernel_faults.wanted(pid, entry):
        site = Site("does so", statement, fault.line)
        found = kernel_faults.KernelFault("shared-race", f"a race: {what.rstrip('.')}", "", 0, (site,))
        kernel_faults.tell(pid, entry, found)
