"""What an emulated NVIDIA GPU looks for while it runs a grid: for each word of HCQ_SANITIZE, steps and what they tell.

In       the Checks of a launch
Out      `additions_of`: the steps that look; `most_blocks`: how many run together; `attach`: what these steps tell;
         `refused`: an access that stopped the kernel
Changes  the Batch that it attaches something to; the Checks
Next     run.py and ../launch.py (who ask), race_steps.py, memory_steps.py, shared_wait_steps.py (the steps of a word),
         ../../shader/checks.py (what was found)
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hcq.emu.nv.shader.batch import WARP, Batch, thread_name
from hcq.emu.nv.shader.cluster_exits import ClusterExits
from hcq.emu.nv.shader.errors import MisalignedAccess, NotInitialised
from hcq.emu.nv.shader.grids import numbers_of
from hcq.emu.nv.shader.init_steps import followed
from hcq.emu.nv.shader.memory_steps import NamedCopies, Watched, named
from hcq.emu.nv.shader.pointers import origins
from hcq.emu.nv.shader.product_wait_steps import products_waited
from hcq.emu.nv.shader.product_waits import ProductWaits
from hcq.emu.nv.shader.race_steps import looked, looked_at_shared
from hcq.emu.nv.shader.shadows import Unwritten
from hcq.emu.nv.shader.shared_wait_steps import waited
from hcq.emu.nv.shader.shared_waits import BYTES_PER_WORD, WORD_BYTES, Names, SharedWaits
from hcq.emu.nv.shader.spaces import PARAM_WINDOW, without_window
from hcq.emu.nv.shader.sync_faults import SyncFaults
from hcq.emu.nv.shader.sync_steps import synchronized
from hcq.emu.shader import access_faults
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.global_races import GlobalRaces
from hcq.emu.shader.memory_checks import memory_checks
from hcq.emu.shader.order import Order, Records
from hcq.emu.shader.pointers import UNKNOWN, classes_of, reach_of
from hcq.emu.shader.races import Races
from hcq.emu.shader.shared_races import SharedRaces, blocks_at_once
from hcq.events import kernel_faults
from hcq.events.kernel_faults import Site
from hcq.events.known_memory import KnownMemory, Stretch

if TYPE_CHECKING:
    from hcq.emu.nv.shader.errors import KernelFault
    from hcq.emu.nv.shader.opcodes import Addition
    from hcq.emu.nv.shader.program import Program
    from hcq.emu.nv.shader.syntax import Instruction


SPACES = {"shared": "shared-beyond", "local": "local-overrun", "parameters": "arguments-overrun"}
MOST_BYTES = 110 << 20  # of what is remembered of copies
NOT_YET = "which comes before it, here, and with nothing between that would order them"


def additions_of(checks: Checks | None) -> tuple[Addition, ...]:
    """What is put around the steps of a kernel that runs with these checks."""
    if checks is None:
        return ()
    found: list[Addition] = []
    if "init" in checks.words:
        found.append(followed)
    if "memory" in checks.words and checks.known is not None:
        found.append(named)
    if checks.races:
        found.append(looked if checks.races == "everywhere" else looked_at_shared)
    if _waits(checks):
        found.append(waited)
    if "wait" in checks.words:
        found.append(products_waited)
    if "sync" in checks.words:
        found.append(synchronized)
    return tuple(found)


def _waits(checks: Checks) -> bool:
    """Whether copies are looked at that nobody has waited for: who touches what they bring races with them, too."""
    return "wait" in checks.words or checks.races == "everywhere"


def most_blocks(checks: Checks | None, shared_bytes: int, warps_per_block: int, blocks: int) -> int:
    """How many of so many blocks may run together, so that what is remembered of them stays bounded."""
    if checks is not None and checks.races:
        blocks = min(blocks, blocks_at_once(shared_bytes, warps_per_block))
    if checks is not None and _waits(checks):
        words = -(-shared_bytes // WORD_BYTES)
        blocks = min(blocks, max(1, MOST_BYTES // max(1, words * BYTES_PER_WORD)))
    return blocks


def attach(checks: Checks, program: Program, batch: Batch) -> None:
    """Give these blocks what the steps of the checks tell."""
    if "init" in checks.words:
        batch.unwritten = Unwritten(checks, program, batch)
    if (watch := memory_checks(checks, program.text_of_line)) is not None:
        batch.watch = watch
        if watch.reach is None:
            watch.reach = _reach(program, watch.known, batch.params.tobytes(), batch.memory)
        batch.memory, batch.copies = Watched(batch.memory, watch), NamedCopies(watch)
    launch = batch.launch
    if checks.races == "everywhere" or (checks.races and launch.shared_bytes):
        # the blocks of a cluster are looked at as one block
        of_block, size = -(-batch.threads_per_block // WARP), prod(launch.cluster)
        warps = of_block * size

        def name_of(warp: int, lane: int) -> str:
            block = int(numbers_of(np.array([warp // of_block]), launch.grid, launch.cluster)[0])
            return thread_name(launch, block, warp % of_block * WARP + lane)

        everywhere, records = checks.over_launch.get(GlobalRaces), Records(0, warps)
        if everywhere is None and checks.races == "everywhere":
            x, y, z = launch.grid
            everywhere = GlobalRaces(
                x * y * z * of_block,
                warps,
                name_of,
                program.text_of_line,
                checks,
                is_exact=size > 1 or program.orders_some,
            )
            checks.over_launch[GlobalRaces] = everywhere
        is_exact = everywhere is not None
        if everywhere is not None:
            records = everywhere.records
        first = int(batch.blocks[0]) if batch.clusters is None else batch.clusters.first
        count = len(batch.blocks) // size
        order = Order(records, first, count, needs_fences=is_exact, lanes_are_apart=is_exact, lanes=WARP)
        memory = launch.shared_bytes if size == 1 else len(batch.shared) // count
        shared = SharedRaces(order, memory, batch.name_of, program.text_of_line, checks)
        batch.races = Races(order, shared, everywhere, "unequal" in checks.words, size)
    if _waits(checks) and program.copies_by_itself:
        names, is_wait = Names(program.text_of_line, batch.lane_name), "wait" in checks.words
        if is_wait:
            batch.product_waits = ProductWaits(batch.count, names, checks)
        if len(batch.shared):
            batch.waits = SharedWaits(len(batch.shared), batch.block_of_lane, names, checks, is_wait)
    if "sync" in checks.words or (
        "wait" in checks.words and program.copies_by_itself
    ):  # of copies' phases, too
        names = Names(program.text_of_line, batch.lane_name)
        if batch.clusters is not None:
            batch.clusters.exits = ClusterExits(batch.block_of_lane, batch.clusters.size, names, checks)
        batch.sync_faults = SyncFaults(
            batch.block_of_lane,
            batch.thread_of_lane,
            batch.threads_per_block,
            names,
            checks,
            program.module.is_cuda,
        )


def _reach(
    program: Program, known: KnownMemory, arguments: bytes, memory: object
) -> Mapping[int, tuple[Stretch, ...]]:
    """Where the accesses of the entry may go."""
    classes = classes_of(known, arguments, memory)
    if classes not in program.origins:
        table = dict(classes)
        program.origins[classes] = origins(program.entry.function, lambda at: table.get(at, UNKNOWN))
    return reach_of(known, arguments, program.origins[classes])


def refused(checks: Checks, program: Program, batch: Batch, fault: KernelFault) -> None:
    """The kernel was stopped, by an access perhaps."""
    if isinstance(fault, NotInitialised):
        _not_initialised(checks, program, fault)
    if "memory" not in checks.words or not fault.access:
        return
    rule = SPACES.get(
        fault.space, "misaligned-access" if isinstance(fault, MisalignedAccess) else "stray-access"
    )
    address = getattr(fault, "address", 0)
    window = {"shared": batch.shared_window, "local": batch.local_window, "parameters": PARAM_WINDOW}.get(
        fault.space
    )
    if window is not None:
        address = without_window(address, window, batch.shared_window_bytes)
    who, text = _who(fault), program.text_of_line(fault.line)
    why = str(fault).rpartition(": ")[2].rstrip(".") if fault.space else ""
    access_faults.refused(checks, rule, fault.access, address, text, fault.line, who, why)


def _who(fault: KernelFault) -> str:
    block, thread = fault.threads[0]
    return f"thread {tuple(map(int, thread))} of block {tuple(map(int, block))}"


def _not_initialised(checks: Checks, program: Program, fault: NotInitialised) -> None:
    """Somebody arrives at an mbarrier. Where the kernel initialises any, that is late: in another order it is not."""
    first = next((one for each in program.functions for one in each.body if _initialises(one)), None)
    if first is None or checks.races != "everywhere":
        return
    arrives = Site("changes it", program.text_of_line(fault.line), fault.line, _who(fault))
    late = Site("initialises it", program.text_of_line(first.line), first.line, "a thread")
    found = kernel_faults.KernelFault(
        "shared-race", "a race on", "shared", fault.address, (late, arrives), NOT_YET
    )
    checks.add(("shared-race", first.line, fault.line), 1, lambda: found)


def _initialises(one: Instruction) -> bool:
    return one.opcode == "mbarrier" and one.modifiers[:1] == ("init",)
