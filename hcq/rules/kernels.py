"""Rules on what kernels do, checked while an emulated GPU runs them (HCQ_SANITIZE), and the words of what breaks them.

In       a KernelFault that an emulated GPU has found
Out      the rules; `violation`: a sentence that names the place and all sites
Changes  nothing
Next     hcq/observe/sanitizer.py (who asks), hcq/emu/shader/ (how each is found), docs/rules/
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.events.kernel_faults import KernelFault, Site
from hcq.rules.rule import RULES, Rule, Violation, rule

SHARED_RACE: Rule = rule(
    "shared-race",
    "Something orders two accesses of different warps to one place in shared memory, if one of them is a write"
    " (checked on emulated GPUs with HCQ_SANITIZE=race).",
    "Put a barrier of the block between them, or make both atomic.",
    level="warning",
)

GLOBAL_RACE: Rule = rule(
    "global-race",
    "Something orders two accesses of different warps to one place in global memory within a launch, if one of them is"
    " a write (checked on emulated GPUs with HCQ_SANITIZE=race).",
    "Order them by a barrier within a block; between blocks by a fence, an atomic operation, and a fence, with a scope"
    " that reaches the other; or make both atomic.",
    level="warning",
)
LANE_RACE: Rule = rule(
    "lane-race",
    "Something orders two accesses of threads of one warp to one place, if one of them is a write, on GPUs whose"
    " threads go on by themselves (NVIDIA; checked on emulated GPUs with HCQ_SANITIZE=race).",
    "Put __syncwarp() (bar.warp.sync) between them, or let one thread of the warp write.",
    level="warning",
)
UNORDERED_LAUNCHES: Rule = rule(
    "unordered-launches",
    "Something orders two launches, or a launch and a copy, that really touch one byte, if one of them writes it"
    " (checked on emulated GPUs with HCQ_SANITIZE=race).",
    "Let the second wait for the first one's signal, or put both on one queue with a barrier between.",
    level="warning",
)

NameOf = Callable[[int], str]  # an address -> the memory that it is in, or the kernel that begins there; ""


def violation(fault: KernelFault, entry: int, memory_of: NameOf, kernel_of: NameOf) -> Violation:
    """What an emulated GPU has found, in words. It is told when the launch has run.

    entry      where the code of the launch begins
    memory_of  the name of the buffer that an address is in, with the offset
    kernel_of  the name of the kernel that begins at an address, for sites in another than that of the launch
    """
    sites = ", and ".join(_site(one, entry, kernel_of) for one in fault.sites)
    why = f", {fault.why}" if fault.why else ""
    more = f", and {fault.times - 1} times more" if fault.times > 1 else ""
    place = f" {_place(fault, memory_of)}" if fault.space else ""
    return Violation(RULES[fault.rule], f"{fault.what}{place}: {sites}{why}{more}")


def _place(fault: KernelFault, memory_of: NameOf) -> str:
    if fault.space == "global":
        return memory_of(fault.address) or f"address {fault.address:#x}"
    if fault.space == "register":
        return f"register {fault.address}"
    return f"byte {fault.address} of {fault.space}{'' if fault.space == 'parameters' else ' memory'}"


def _site(site: Site, entry: int, kernel_of: NameOf) -> str:
    begin = site.entry or entry
    where = f" at {site.place - begin:#x}" if site.place >= begin else f" in line {site.place}"
    other = ""
    if begin != entry and (name := kernel_of(begin)):
        other = f" of kernel {name}"
    return f"{site.who} {site.verb} by {site.text!r}{where}{other}".strip()
