"""Access faults: what stopped a kernel at an access, as a finding that names the buffer.

In       the address and the instruction of an access that an emulated GPU refused
Out      a fault in Checks
Next     memory_checks.py (accesses that go on), ../amd/launch.py and ../nv/launch.py (who catch what stops a kernel)
"""

from __future__ import annotations

from hcq.emu.shader.checks import Checks
from hcq.emu.shader.memory_checks import ANOTHER, FREED, VERBS, stretch_at
from hcq.events.kernel_faults import KernelFault, Site

NULL_BYTES = 1 << 16  # no buffer begins so low

# what is said of an access, by its rule, and the space that its address is of
RULES = {
    "buffer-overrun": (ANOTHER, "global"),
    "null-access": ("an access by a null pointer, at", "global"),
    "stray-access": ("an access to memory that is not there, at", "global"),
    "misaligned-access": ("an access that is not aligned, at", "global"),
    "shared-beyond": ("an access beyond the shared memory of the launch, at", "shared"),
    "local-overrun": ("an access beyond the memory of a thread, at", "local"),
    "arguments-overrun": ("a read beyond the arguments, at", "parameters"),
}


def refused(
    checks: Checks,
    rule: str,
    kind: str,
    address: int,
    text: str,
    place: int,
    who: str,
    why: str = "",
    times: int = 1,
) -> None:
    """An access was refused. rule: one of RULES; "stray-access" stands for all of global memory.

    kind     "load", "store", "atomic"
    address  in the device's memory, or in the space of the rule
    place    of the instruction, whose words are `text`
    """
    what, space = RULES[rule]
    if rule == "stray-access":
        if address < NULL_BYTES:
            rule, (what, space) = "null-access", RULES["null-access"]
        elif checks.known is not None and stretch_at(checks.known.freed, address) is not None:
            rule, what = "use-after-free", FREED
    elif rule == "misaligned-access":
        space = next((one for one in ("shared", "local") if f".{one}" in text), space)
    fault = KernelFault(
        rule, what, space, address, (Site(VERBS.get(kind, "uses it"), text, place, who),), why
    )
    checks.add((rule, place), times, lambda: fault)
