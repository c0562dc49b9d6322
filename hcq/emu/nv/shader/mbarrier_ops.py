"""mbarrier: barriers that are objects in shared memory, as cuda::barrier uses them.

In       Code with the [address] of a 64-bit object in shared memory
Out      steps
Changes  the object
Next     atomic_ops.py (threads one after the other), machine.py (a group that spins on try_wait gives way), copies.py
         (who looks at an object makes copies arrive)
Source   PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier"

The object's bits are opaque to programs. Ours: the phase in bit 63, the threads still expected in this phase in bits
39:20, the threads expected in every phase in bits 19:0, bytes that copies have still to bring (the tx-count) in
bits 61:40, as a number with a sign. A phase is over when no thread is expected and the tx-count is 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.atomic_ops import Conflicts, Operation, Update
from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.clusters import exits_of
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step, Write
from hcq.emu.nv.shader.errors import BadAccess, KernelFault, NotInitialised
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory_ops import (
    SCOPES,
    address_of,
    check_alignment,
    of_lanes,
    to_all,
    wait_for_copies,
)
from hcq.emu.nv.shader.syntax import Address, Discard, Immediate, Instruction, Operand
from hcq.emu.nv.shader.types import TYPES, Lanes

RULES = Rules()
U32, U64, PRED = TYPES["u32"], TYPES["u64"], TYPES["pred"]
COUNT_MASK = (1 << 20) - 1
PENDING_SHIFT, TX_SHIFT, PHASE_SHIFT = 20, 40, 63
TX_BITS = 22
OBJECT_BYTES = 8


def _fields(state: Lanes) -> tuple[Lanes, Lanes, Lanes, Lanes]:
    """(phase, tx_count, pending, expected) as int64."""
    bits = state.view(np.int64)
    phase = (bits >> PHASE_SHIFT) & 1
    tx_count = ((bits >> TX_SHIFT) << (64 - TX_BITS)) >> (64 - TX_BITS)
    return phase, tx_count, (bits >> PENDING_SHIFT) & COUNT_MASK, bits & COUNT_MASK


def _state(phase: Lanes, tx_count: Lanes, pending: Lanes, expected: Lanes) -> Lanes:
    """The opposite; a phase that is over begins the next."""
    over = (pending == 0) & (tx_count == 0)
    phase = np.where(over, phase ^ 1, phase)
    pending = np.where(over, expected, pending)
    low = (tx_count & ((1 << TX_BITS) - 1)) << TX_SHIFT | pending << PENDING_SHIFT | expected
    return (low | phase << PHASE_SHIFT).astype(np.int64).view(np.uint64)


OPERATIONS = (
    "init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait", "pending_count", "expect_tx", "complete_tx",
)  # fmt: skip


@RULES.on("mbarrier")
def mbarrier(code: Code) -> Step:
    """`mbarrier.*`: the operations on a barrier object, by their name."""
    what = code.take(*OPERATIONS)
    expects = code.flag("expect_tx")
    parity = code.flag("parity")
    while code.take(
        "noComplete", "release", "acquire", "relaxed", *SCOPES, "shared", "shared::cta", "shared::cluster"
    ):
        pass
    code.flag("b64")
    if what == "init":
        return _init(code)
    if what == "inval":
        return _invalidate(code)
    if what in ("arrive", "arrive_drop"):
        return _arrive(code, drops=what == "arrive_drop", expects=expects)
    if what in ("expect_tx", "complete_tx"):
        return _change_tx(code, 1 if what == "expect_tx" else -1)
    if what in ("test_wait", "try_wait"):
        return _wait(code, parity)
    if what == "pending_count":
        return code.step(lambda state: _fields(state)[2].astype(np.uint32), U32, U64)
    raise code.refuse(f"expected one of .{', .'.join(OPERATIONS)}")


def _count(code: Code, index: int) -> int:
    """The slot of a count operand; 1 when it is left out."""
    return code.source(index, U32) if len(code.operands) > index else code.lowering.constant(1, np.uint32)


class _Object:
    """The objects that the executing threads name: in shared memory, also by generic address."""

    def __init__(self, code: Code, operand: Operand) -> None:
        self.at_of = address_of(code, operand)
        self.select = code.select()
        self.instruction = code.instruction

    def meet(self, registers: Registers, group: Group) -> Conflicts | None:
        batch, lanes = group.batch, self.select(registers, group)
        if lanes is not None and not len(lanes):
            return None
        at = of_lanes(self.at_of(registers), lanes, batch.count)
        at = spaces.shared_address(batch, at)
        try:
            check_alignment(at, 8)
            return Conflicts(batch, spaces.SHARED, lanes, at, U64)
        except BadAccess as bad:
            raise group.fault(bad, self.instruction, "access to an mbarrier", lanes) from None

    def refuse(
        self, work: Conflicts, bad: Lanes, group: Group, why: str, kind: type[KernelFault] = KernelFault
    ) -> KernelFault:
        """The report of the first of these threads."""
        number = int(np.argmax(bad))
        block, thread = group.batch.place(int(work.lanes[number]))
        fault = kind(
            f"kernel {group.batch.launch.kernel_name}, PTX line {self.instruction.line} `{self.instruction}`: the "
            f"mbarrier at {int(work.at[number]):#x} of shared memory, thread {thread} of block {block}: {why}.",
            self.instruction.line,
            [(block, thread)],
        )
        if isinstance(fault, NotInitialised):
            fault.address = int(work.at[number])
        return fault


def _invalidate(code: Code) -> Step:
    """What is used again without an init expects nobody, and is refused."""
    code.expect(1)
    place = _Object(code, code.operands[0])

    def step(registers: Registers, group: Group) -> None:
        work = place.meet(registers, group)
        if work is None:
            return
        try:
            work.store(np.zeros(len(work.at), np.uint64))
        except BadAccess as bad:
            raise group.fault(bad, place.instruction, "access to an mbarrier", work.lanes) from None

    return step


def _init(code: Code) -> Step:
    code.expect(2)
    place, slot = _Object(code, code.operands[0]), code.source(1, U32)

    def step(registers: Registers, group: Group) -> None:
        work = place.meet(registers, group)
        if work is None:
            return
        count = np.broadcast_to(registers[slot], (group.batch.count,))[work.lanes].astype(np.int64)
        wrong = (count < 1) | (count > COUNT_MASK)
        if wrong.any():
            raise place.refuse(work, wrong, group, f"the count is not from 1 to {COUNT_MASK}")
        try:
            work.store((count | count << PENDING_SHIFT).view(np.uint64))
        except BadAccess as bad:
            raise group.fault(bad, place.instruction, "access to an mbarrier", work.lanes) from None

    return step


def _arrive(code: Code, drops: bool, expects: bool) -> Step:
    """The token is the state before: its phase bit says which phase to wait for."""
    has_result = bool(code.operands) and not isinstance(code.operands[0], Address)
    operands = code.operands if has_result else [Discard(), *code.operands]
    if len(operands) not in ((3,) if expects else (2, 3)):
        raise code.refuse("expected a state, or none, an [address], and the bytes or the count")
    place = _Object(code, operands[1])
    slot = (
        code.slot(operands[2], U32)
        if len(operands) > 2
        else code.lowering.constant(0 if expects else 1, np.uint32)
    )
    write: Write | None = None
    if not isinstance(operands[0], Discard):
        write = code.writer(code.destination(operands[0], U64))

    def update(state: Lanes, amount: Lanes, unused: Lanes) -> Lanes:
        phase, tx_count, pending, expected = _fields(state)
        amount = amount.astype(np.int64)
        count = np.ones(1, np.int64) if expects else amount
        tx_count = tx_count + amount if expects else tx_count
        expected = expected - count if drops else expected
        return _state(phase, tx_count, np.maximum(pending - count, 0), expected)

    return _changing(place, slot, update, write, np.ones_like if expects else np.copy)


def _change_tx(code: Code, sign: int) -> Step:
    code.expect(2)
    place, slot = _Object(code, code.operands[0]), code.source(1, U32)

    def update(state: Lanes, amount: Lanes, unused: Lanes) -> Lanes:
        phase, tx_count, pending, expected = _fields(state)
        return _state(phase, tx_count + sign * amount.astype(np.int64), pending, expected)

    return _changing(place, slot, update, None)


def _changing(
    place: _Object,
    slot: int,
    update: Update,
    write: Write | None,
    arrivals: Callable[[Lanes], Lanes] = np.zeros_like,
) -> Step:
    """A step that changes objects by the amounts in a slot. arrivals: how many of them each amount stands for."""

    def step(registers: Registers, group: Group) -> None:
        work = place.meet(registers, group)
        if work is None:
            return
        amount = np.broadcast_to(registers[slot], (group.batch.count,))[work.lanes]
        try:
            old = work.in_turns(Operation(update), amount, amount)
        except BadAccess as bad:
            raise group.fault(bad, place.instruction, "access to an mbarrier", work.lanes) from None
        counts = arrivals(amount).astype(np.int64)
        _, _, pending, expected = _fields(old)
        if (counts > pending).any():
            if not expected.all():
                why = "it expects nobody: it was not initialised, or all have dropped"
                raise place.refuse(work, counts > pending, group, why, NotInitialised)
            raise place.refuse(
                work, counts > pending, group, "more threads arrive than it expects in this phase"
            )
        if write is not None:
            write(registers, group, to_all(old, work.lanes, group.batch.count))

    return step


def complete_tx(batch: Batch, lanes: Lanes, at: int, size_bytes: int) -> None:
    """Bytes that a copy has brought, to the object at this place in the shared memory of a thread."""
    places = np.array([at], np.uint64)
    phase, tx_count, pending, expected = _fields(spaces.SHARED.load(batch, lanes, places, np.uint64, 1))
    spaces.SHARED.store(batch, lanes, places, _state(phase, tx_count - size_bytes, pending, expected))
    _tell_exits(batch, lanes, places)


def phases_at(batch: Batch, places: Lanes) -> Lanes:
    """The phases of the objects at these places in the shared memory of the whole batch."""
    found: Lanes = (batch.shared.view(np.uint64)[places // OBJECT_BYTES] >> np.uint64(PHASE_SHIFT)).astype(
        np.int64
    )
    return found


def arrive_once(batch: Batch, lanes: Lanes, at: int) -> None:
    """One arrival, when what was issued before is done, at the object at this place in a thread's shared memory."""
    places = np.array([at], np.uint64)
    phase, tx_count, pending, expected = _fields(spaces.SHARED.load(batch, lanes, places, np.uint64, 1))
    spaces.SHARED.store(batch, lanes, places, _state(phase, tx_count, np.maximum(pending - 1, 0), expected))
    _tell_exits(batch, lanes, places)


def _tell_exits(batch: Batch, lanes: Lanes, at: Lanes) -> None:
    """What is done orders the block that did it before who waits for it."""
    if (exits := exits_of(batch)) is not None:
        exits.release(batch.local_row[lanes], spaces.places_of(batch, lanes, at, OBJECT_BYTES))


def arrive_after_copies(code: Code) -> Step:
    """`cp.async.mbarrier.arrive`: the thread's copies are done before. Without .noinc one more is expected."""
    code.flag("arrive")
    is_counted = code.flag("noinc")
    code.take("shared", "shared::cta")
    code.flag("b64")
    code.expect(1)
    place, slot = _Object(code, code.operands[0]), code.lowering.constant(1, np.uint32)

    def update(state: Lanes, amount: Lanes, unused: Lanes) -> Lanes:
        if not is_counted:  # one more pending, and one less
            return state
        phase, tx_count, pending, expected = _fields(state)
        return _state(phase, tx_count, np.maximum(pending - 1, 0), expected)

    arrive = _changing(place, slot, update, None, np.copy if is_counted else np.zeros_like)
    select = code.select()

    def step(registers: Registers, group: Group) -> None:
        wait_for_copies(group.batch, select(registers, group))
        arrive(registers, group)

    return step


def is_wait(instruction: Instruction) -> bool:
    """Whether it looks whether a phase is over."""
    return instruction.opcode == "mbarrier" and instruction.modifiers[:1] in (("test_wait",), ("try_wait",))


def _wait(code: Code, parity: bool) -> Step:
    """Whether the phase of the token, or the one with this parity, is over. A time limit may follow; it is not used."""
    code.expect(3, 4)
    place = _Object(code, code.operands[1])
    slot = code.source(2, U32 if parity else U64)
    if len(code.operands) == 4 and not isinstance(code.operands[3], Immediate):
        code.source(3, U32)
    write = code.result(PRED)

    def step(registers: Registers, group: Group) -> None:
        group.batch.copies.arrive()
        work = place.meet(registers, group)
        if work is None:
            return
        asked = np.broadcast_to(registers[slot], (group.batch.count,))[work.lanes]
        wanted = asked.astype(np.int64) & 1 if parity else _fields(asked.copy())[0]
        try:
            state = work.load()
        except BadAccess as bad:
            raise group.fault(bad, place.instruction, "access to an mbarrier", work.lanes) from None
        now, tx_count, pending, _ = _fields(state)
        over = now != wanted
        group.batch.failed_wait = ""
        if not over.any():
            group.batch.failed_wait = (
                f"the mbarrier at {int(work.at[0]):#x} of shared memory is in a phase of parity {int(now[0])}, which "
                f"is waited for; it expects {int(pending[0])} more arrivals and {int(tx_count[0])} more bytes."
            )
        write(registers, group, to_all(over, work.lanes, group.batch.count))

    return step
