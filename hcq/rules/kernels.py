"""Rules on what kernels do, checked while an emulated GPU runs them (HCQ_SANITIZE), and the words of what breaks them.

In       a KernelFault that an emulated GPU has found
Out      the rules; `violation`: a sentence that names the place and all sites
Next     hcq/observe/sanitizer.py (who asks), hcq/emu/shader/ (how each is found), docs/rules/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hcq.events.kernel_faults import KernelFault, Site
from hcq.rules.rule import RULES, Rule, Violation, rule

SHARED_RACE: Rule = rule(
    "shared-race",
    "Something orders two accesses of different warps to one place in shared or tensor memory, if one of them is a"
    " write (checked on emulated GPUs with HCQ_SANITIZE=race).",
    "Put a barrier of the block between them, or make both atomic.",
    level="warning",
)

SHARED_BEYOND = rule(
    "shared-beyond",
    "A kernel stays inside the shared memory that its launch requests (checked on emulated GPUs).",
    "Request more (program.dynamic_shared_bytes), or correct the index: reads there give 0, and stores are dropped.",
    level="warning",
)
MOST_LINES = 1 << 24  # a place beyond is an address
LOOKED_AT = "(checked on emulated GPUs with HCQ_SANITIZE=memory)."
BUFFER_OVERRUN = rule(
    "buffer-overrun",
    f"A kernel touches memory of a buffer, the one that its pointer was made from {LOOKED_AT}",
    "Let threads beyond the end do nothing, or make the buffer as large as the kernel takes it for.",
    level="warning",
)
USE_AFTER_FREE = rule(
    "use-after-free",
    f"A kernel touches no memory of a buffer that was freed {LOOKED_AT}",
    "Keep the buffer until the last work that uses it was submitted.",
    level="warning",
)
NULL_ACCESS = rule(
    "null-access",
    f"A kernel does not touch memory by a null pointer {LOOKED_AT}",
    "Pass a buffer, or let the kernel test for null.",
    level="warning",
)
STRAY_ACCESS = rule(
    "stray-access",
    f"A kernel touches memory that is there {LOOKED_AT}",
    "Look at how the instruction's address comes about: a wrong argument, an index without a bound.",
    level="warning",
)
MISALIGNED_ACCESS = rule(
    "misaligned-access",
    f"The address of an access is a multiple of what the GPU asks for {LOOKED_AT}",
    "Align the buffer's part that the kernel is given, or use narrower loads and stores.",
    level="warning",
)
LOCAL_OVERRUN = rule(
    "local-overrun",
    f"A thread stays inside its own scratch or local memory {LOOKED_AT}",
    "Look at the index into the array that the thread keeps for itself.",
    level="warning",
)
ARGUMENTS_OVERRUN = rule(
    "arguments-overrun",
    f"A kernel reads no arguments beyond those that it has {LOOKED_AT}",
    "Compare the kernel's parameters with those of the launch: their number, sizes and order.",
    level="warning",
)
MISSING_WAIT: Rule = rule(
    "missing-wait",
    "A wave waits for a load before it uses the register, or reads the LDS, that the load fills"
    " (checked on emulated GPUs with HCQ_SANITIZE=wait).",
    "Put the wait that is named between the load and its first use.",
    level="warning",
)

HAZARD: Rule = rule(
    "hazard",
    "Between two instructions of an AMD GPU stands what the second needs: wait states, or a wait (checked on emulated"
    " GPUs with HCQ_SANITIZE=wait).",
    "Put an s_nop (on gfx11 s_waitcnt_depctr, on gfx12 s_wait_alu), or instructions that have nothing to do with it,"
    " between the two.",
    level="warning",
)

ASYNC_COPY_NOT_WAITED: Rule = rule(
    "async-copy-not-waited",
    "Threads use memory that an asynchronous copy or product fills, or write what one reads, when it has been waited"
    " for (checked on emulated GPUs with HCQ_SANITIZE=wait).",
    "Put the wait that is named between the two; other threads than the one that waits need a barrier behind it.",
    level="warning",
)

PROXY_FENCE: Rule = rule(
    "proxy-fence",
    "A fence.proxy.async stands between a thread's write to shared memory and a bulk copy or a matrix instruction that"
    " reads it (checked on emulated GPUs with HCQ_SANITIZE=wait).",
    "Put a fence.proxy.async behind the write, in the thread that writes, before the barrier.",
    level="warning",
)

WGMMA_NOT_WAITED: Rule = rule(
    "wgmma-not-waited",
    "Registers of a wgmma.mma_async are left alone until its group has been waited for, and a wgmma.fence stands"
    " between their last change and the product (checked on emulated GPUs with HCQ_SANITIZE=wait).",
    "Put the wgmma.wait_group or the wgmma.fence that is named where it is missing.",
    level="warning",
)

BARRIER_NOT_REACHED: Rule = rule(
    "barrier-not-reached",
    "All that a barrier waits for come to it, as long as they have not ended (checked on emulated GPUs with"
    " HCQ_SANITIZE=sync).",
    "Let all threads of the block come to the barrier, or name as many as do.",
    level="warning",
)

BARRIER_DIVERGENT: Rule = rule(
    "barrier-divergent",
    "The threads of a warp come to an aligned barrier (bar.sync, __syncthreads) together (checked on emulated GPUs with"
    " HCQ_SANITIZE=sync).",
    "Move the barrier out of the branch, or use barrier.sync without .aligned, with a count.",
    level="warning",
)

CLUSTER_LEFT: Rule = rule(
    "cluster-left",
    "A block of a cluster does not end while another may access its shared memory (checked on emulated GPUs with"
    " HCQ_SANITIZE=sync).",
    "Put a barrier of the cluster (cluster.sync()) behind the last such access.",
    level="warning",
)

BARRIER_COUNT: Rule = rule(
    "barrier-count",
    "A barrier's count of threads is a multiple of 32 that the block has, and the same for all that meet there (checked"
    " on emulated GPUs with HCQ_SANITIZE=sync).",
    "Give one count, in whole warps.",
    level="warning",
)

MASK_NAMES_ABSENT: Rule = rule(
    "mask-names-absent",
    "The mask of an instruction of a warp names the thread that executes it, and only threads that execute it with the"
    " same mask (checked on emulated GPUs with HCQ_SANITIZE=sync).",
    "Compute the mask before the branch (__ballot_sync), and give all threads that it names the same one.",
    level="warning",
)
GRID_NOT_RESIDENT: Rule = rule(
    "grid-not-resident",
    "A GPU has room for all blocks of a grid that wait for each other (checked on emulated GPUs with"
    " HCQ_SANITIZE=sync).",
    "Launch as many blocks as the runtime's occupancy query allows, and let each do more.",
    level="warning",
)
UNINITIALISED_READ = rule(
    "uninitialised-read",
    "A kernel uses nothing that nobody wrote (checked on emulated GPUs with HCQ_SANITIZE=init).",
    "Write it before it is read: clear the memory, or set the register on every path.",
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


def violation(
    fault: KernelFault, entry: int, memory_of: NameOf, kernel_of: NameOf, lines: Sequence[str] = ()
) -> Violation:
    """What an emulated GPU has found, in words. It is told when the launch has run.

    entry      where the code of the launch begins
    memory_of  the name of the buffer that an address is in, with the offset
    kernel_of  the name of the kernel that begins at an address, for sites in another than that of the launch
    lines      of the source, one for each site, where they are known
    """
    known = [*lines, *[""] * len(fault.sites)]
    sites = ", and ".join(_site(one, entry, kernel_of, line) for one, line in zip(fault.sites, known))
    why = f", {fault.why}" if fault.why else ""
    more = f", and {fault.times - 1} times more" if fault.times > 1 else ""
    place = f" {_place(fault, memory_of)}" if fault.space else ""
    return Violation(RULES[fault.rule], f"{fault.what}{place}: {sites}{why}{more}")


def _place(fault: KernelFault, memory_of: NameOf) -> str:
    if fault.space == "global":
        return memory_of(fault.address) or f"address {fault.address:#x}"
    if fault.space == "tensor":
        return f"column {fault.address} of tensor memory"
    if fault.space == "register":
        return f"register {fault.address}"
    return f"byte {fault.address} of {fault.space}{'' if fault.space == 'parameters' else ' memory'}"


def _site(site: Site, entry: int, kernel_of: NameOf, line: str) -> str:
    begin = site.entry or entry
    where = f" in line {site.place}"
    if site.place >= begin:
        where = f" at {site.place - begin:#x}"
    elif site.place > MOST_LINES:  # a function that lies before the kernel
        where = f" at -{begin - site.place:#x}"
    if not begin or site.place < 0:  # a packet, a copy
        where = ""
    other = ""
    if begin != entry and (name := kernel_of(begin)):
        other = f" of kernel {name}"
    source = f" [{line}]" if line else ""
    return f"{site.who} {site.verb} by {site.text!r}{where}{source}{other}".strip()
