"""What an emulated AMD GPU looks for while it runs a launch: for each word of HCQ_SANITIZE, steps and what they tell.

In       the Checks of a launch
Out      `additions_of`: the steps that look; `most_groups`: how many run together; `attach`: what these steps tell;
         `refused`, `note_strays`: accesses that stopped the kernel, and those beyond its LDS
Changes  the Residents that it attaches something to; the Checks
Next     run.py (who asks), race_steps.py, memory_steps.py, wait_steps.py and barrier_steps.py (the steps of a word),
         ../../shader/checks.py (what was found)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.emu.amd.shader.barrier_steps import Meeting, Skipped
from hcq.emu.amd.shader.init_steps import Following
from hcq.emu.amd.shader.lds_waits import Groups, LdsWaits
from hcq.emu.amd.shader.memory import Memory
from hcq.emu.amd.shader.memory_order import acquires, orders_a_group
from hcq.emu.amd.shader.memory_steps import Naming, Watched
from hcq.emu.amd.shader.pointers import ARGUMENTS, origins
from hcq.emu.amd.shader.polls import polls_of
from hcq.emu.amd.shader.race_steps import Looking, LookingAtLds
from hcq.emu.amd.shader.register_waits import RegisterWaits, Words
from hcq.emu.amd.shader.residents import Residents
from hcq.emu.amd.shader.shadows import Unwritten
from hcq.emu.amd.shader.wait_steps import Waiting
from hcq.emu.amd.shader.wave_start import Launch
from hcq.emu.shader import access_faults
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.global_races import GlobalRaces
from hcq.emu.shader.memory_checks import MemoryChecks, memory_checks
from hcq.emu.shader.order import Order, Records
from hcq.emu.shader.pointers import UNKNOWN, Origin, classes_of, reach_of
from hcq.emu.shader.races import Races
from hcq.emu.shader.shared_races import SharedRaces, blocks_at_once
from hcq.events.known_memory import Stretch

if TYPE_CHECKING:
    from hcq.emu.amd.shader.errors import PageFault
    from hcq.emu.amd.shader.program import Addition, Program
    from hcq.emu.amd.shader.strays import Strays


MOVES = ("v_movrel", "s_movrel", "v_swaprel", "s_set_gpr_idx")  # which registers these move is not followed
ARGUMENTS_UNIT = 16  # compilers read on to the next multiple


def additions_of(checks: Checks | None, launch: Launch) -> list[type[Addition]]:
    """What is put around the steps of a program that runs with these checks."""
    if checks is None:
        return []
    found: list[type[Addition]] = []
    if "init" in checks.words:
        found.append(Following)
    if "memory" in checks.words and checks.known is not None:
        found.append(Naming)
    if checks.races == "everywhere":
        found.append(Looking)
    elif checks.races and launch.lds_bytes:
        found.append(LookingAtLds)
    if "wait" in checks.words:
        found.append(Waiting)
    if "sync" in checks.words:
        found.append(Meeting)
    return found


def most_groups(checks: Checks | None, launch: Launch, waves_per_group: int, groups: int) -> int:
    """How many of so many workgroups may run together, so that what is remembered of them stays bounded."""
    if checks is not None and checks.races and launch.lds_bytes:
        groups = min(groups, blocks_at_once(launch.lds_bytes, waves_per_group))
    return groups


def attach(checks: Checks, program: Program, residents: Residents) -> None:
    """Give these workgroups what the steps of the checks tell."""
    launch = residents.launch
    if "init" in checks.words and not any(
        one.name.startswith(MOVES) for one in program.instructions.values()
    ):
        residents.unwritten = Unwritten(checks, residents, program.text)
    if (watch := memory_checks(checks, program.text)) is not None:
        residents.watch = watch
        if watch.reach is None:
            watch.reach = {}
            if watch.known.arguments is not None:
                _follow(program, watch, launch, residents.memory, *watch.known.arguments)
        residents.memory = Watched(residents.memory, watch)
        residents.scalar_memory = Watched(residents.scalar_memory, watch, is_scalar=True)
    if checks.races == "everywhere" or (checks.races and launch.lds_bytes):
        residents.races = _races(checks, program, residents)
    if "wait" in checks.words:
        words = Words(program.text, residents.name_of, program.isa.generation)
        residents.waits = RegisterWaits(len(residents.group_of), launch.vgprs, words, checks)
        groups = Groups(
            residents.group_of, residents.phase, residents.lds_stride, residents.lds_size, residents.arrivals
        )
        residents.lds_waits = LdsWaits(residents.waits, groups)
    if "sync" in checks.words:
        residents.barrier_checks = checks
        residents.skipped = Skipped(residents, checks, program.text)


def _follow(
    program: Program, watch: MemoryChecks, launch: Launch, memory: Memory, register: int, size: int
) -> None:
    """Say which accesses are by pointers that were arguments, and where these may go.

    register, size  the first of the two registers with the address of the arguments, and how many bytes these are
    """
    low, high = launch.user_sgprs[register : register + 2]
    address = low | high << 32
    arguments = memory.read(address, size) if size else b""
    watch.arguments = Stretch(address, address + -(-size // ARGUMENTS_UNIT) * ARGUMENTS_UNIT)
    classes = classes_of(watch.known, arguments, memory)
    if classes not in program.origins:
        table = dict(classes)
        scalars: dict[int, Origin] = dict.fromkeys(range(launch.user_sgpr_count), UNKNOWN)
        scalars |= {register: ARGUMENTS, register + 1: ARGUMENTS}
        program.origins[classes] = origins(program, scalars, lambda at: table.get(at & ~7, UNKNOWN))
    found = program.origins[classes]
    made = {pc: origin for pc, origin in found.items() if origin != ARGUMENTS}
    watch.reach = {
        **reach_of(watch.known, arguments, made),
        **{pc: (watch.arguments,) for pc, origin in found.items() if origin == ARGUMENTS},
    }


def refused(checks: Checks, program: Program, fault: PageFault) -> None:
    """An access has stopped the kernel."""
    if "memory" not in checks.words:
        return
    is_scratch = fault.kind.startswith("scratch")
    kind = {"read": "load", "write": "store"}.get(fault.kind.removeprefix("scratch "), "atomic")
    rule = "local-overrun" if is_scratch else "stray-access"
    text, why = program.text(fault.pc), fault.why if is_scratch else ""
    access_faults.refused(checks, rule, kind, fault.address, text, fault.pc, fault.where, why)


def note_strays(checks: Checks, strays: Strays) -> None:
    """What instructions have found beyond LDS."""
    for pc, one in strays.found.items():
        if one.limit >= 0:
            kind = "load" if "load" in one.text or "read" in one.text else "store"
            why = f"each workgroup has {one.limit}"
            address = max(one.address, one.limit)
            access_faults.refused(
                checks, "shared-beyond", kind, address, one.text, pc, one.who, why, one.times
            )


def _races(checks: Checks, program: Program, residents: Residents) -> Races:
    launch, items, waves = residents.launch, residents.items, residents.waves_per_group

    def name_of(wave: int, lane: int) -> str:
        return items.name_of(wave // waves, wave % waves * launch.wave_size + lane)

    everywhere, records = checks.over_launch.get(GlobalRaces), Records(0, waves)
    found = program.instructions.values()
    syncs = checks.races == "everywhere" and any(map(acquires, found))
    if everywhere is None and checks.races == "everywhere":
        is_exact = syncs or any(map(orders_a_group, found))
        total = items.groups * waves
        everywhere = GlobalRaces(total, waves, name_of, program.text, checks, is_exact=is_exact)
        checks.over_launch[GlobalRaces] = everywhere
    if everywhere is not None:
        records = everywhere.records
    first, groups = int(residents.group_ids[0]), len(residents.alive)
    order, shared = Order(records, first, groups, syncs), None
    if launch.lds_bytes:
        start = first * waves
        shared = SharedRaces(
            order, launch.lds_bytes, lambda wave, lane: name_of(start + wave, lane), program.text, checks
        )
    races = Races(order, shared, everywhere, "unequal" in checks.words)
    if launch.lds_bytes:
        races.polls = polls_of(program)
    return races
