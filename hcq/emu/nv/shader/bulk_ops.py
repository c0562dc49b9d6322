"""cp: cp.async and its arrival at an mbarrier, bulk copies of plain bytes, bulk groups; tiles are passed on.

In       Code with addresses, a number of bytes, an mbarrier
Out      steps that issue copies and wait for them
Changes  shared and global memory, through bulk_moves.py
Next     memory_ops.py (cp.async), tensor_map_ops.py (cp with .tensor), copies.py (when a copy is done)
Source   PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk", "cp.async.bulk.prefetch", "cp.async.bulk.commit_group",
         "cp.async.bulk.wait_group", "cp.async.mbarrier.arrive"
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader import atomic_ops, bulk_moves, mbarrier_ops, memory_ops, spaces, tensor_map_ops
from hcq.emu.nv.shader.bulk_moves import Issuer, Move, Reduction
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory_ops import address_of
from hcq.emu.nv.shader.syntax import Immediate
from hcq.emu.nv.shader.types import TYPES

RULES = Rules()
PIECE_BYTES, FILLED_BYTES = 16, 8
U32 = TYPES["u32"]
REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
OF_INTEGERS = ("b32", "u32", "s32", "b64", "u64", "s64")


@RULES.on("cp")
def copy(code: Code) -> Step:
    """`cp.async`, `cp.async.bulk`, `cp.reduce.async.bulk`."""
    reduces = code.flag("reduce")
    if not code.flag("async"):
        raise code.refuse("expected cp.async or cp.reduce.async.bulk")
    if not code.flag("bulk"):
        if code.flag("mbarrier"):
            return mbarrier_ops.arrive_after_copies(code)
        return memory_ops.copy_async(code)
    if code.flag("commit_group"):
        return _commit(code)
    if code.flag("wait_group"):
        return _wait(code)
    if code.flag("prefetch"):
        return _prefetch(code)
    if code.flag("tensor"):
        return tensor_map_ops.copy_tile(code, _take_reduction(code) if reduces else "")
    return _copy_bytes(code, _take_reduction(code) if reduces else "")


def _take_reduction(code: Code) -> str:
    what = code.take(*REDUCTIONS)
    if not what:
        raise code.refuse(f"expected one of .{', .'.join(REDUCTIONS)}")
    code.flag("noftz")
    return what


def _commit(code: Code) -> Step:
    code.expect(0)
    select = code.select()

    def step(registers: Registers, group: Group) -> None:
        lanes = select(registers, group)
        group.batch.copies.commit((group.batch.every_lane if lanes is None else lanes).tolist())

    return step


def _wait(code: Code) -> Step:
    """`.read` waits for less, that shared memory has been read: here a copy is done as a whole."""
    code.flag("read")
    code.expect(1)
    pending = code.operands[0]
    if not isinstance(pending, Immediate) or pending.value < 0:
        raise code.refuse("the groups that may be pending are a number from 0 on")
    count, select = pending.value, code.select()

    def step(registers: Registers, group: Group) -> None:
        lanes = select(registers, group)
        group.batch.copies.wait((group.batch.every_lane if lanes is None else lanes).tolist(), count)

    return step


def _prefetch(code: Code) -> Step:
    """A hint: operands are decoded, nothing is fetched."""
    code.flag("L2")
    is_tensor = code.flag("tensor")
    if is_tensor:
        tensor_map_ops.claim_mode(code)
    if not code.flag("global") and not is_tensor:
        raise code.refuse("expected cp.async.bulk.prefetch.L2.global [from], bytes")
    memory_ops.claim_hints(code)
    return lambda registers, group: None


def _copy_bytes(code: Code, reduces: str) -> Step:
    to, source = (memory_ops.take_space(code) for _ in range(2))
    is_counted, is_multicast = bulk_moves.claim_end(code)
    is_masked, leaves_ends = code.flag("cp_mask"), code.flag("ignore_oob")
    memory_ops.claim_hints(code)
    if (to, source) not in (("shared", "global"), ("shared", "shared"), ("global", "shared")):
        raise code.refuse(f"there is no bulk copy from .{source} to .{to}")
    if is_counted == (to == "global"):
        raise code.refuse(
            "an mbarrier counts what comes to shared memory, a bulk group what goes to global memory"
        )
    if (is_masked and (to != "global" or reduces)) or (leaves_ends and source != "global"):
        raise code.refuse(".cp_mask is for copies to global memory, .ignore_oob for those from there")
    reduction = None
    if reduces:
        if source == "global":
            raise code.refuse("what is reduced comes from shared memory")
        type_ = code.type("f16", "bf16", "f32", "f64", *OF_INTEGERS)
        reduction = Reduction(atomic_ops.operation_of(code, reduces, type_), type_)
    ends = [code.slot(one, U32) for one in code.operands[3:5]] if leaves_ends else []
    if leaves_ends:
        del code.operands[3:5]
    if len(code.operands) < 3 + (is_counted or is_masked) or (leaves_ends and len(ends) != 2):
        raise code.refuse("operands are missing")
    mask = code.slot(code.operands[-1], TYPES["u16"]) if is_masked else None
    goal, start = address_of(code, code.operands[0]), address_of(code, code.operands[1])
    size_slot = code.source(2, U32)
    mbarrier = address_of(code, code.operands[3]) if is_counted else start
    goals = bulk_moves.goals_of(code, 4, is_multicast)
    select, instruction = code.select(), code.instruction

    def step(registers: Registers, group: Group) -> None:
        lanes = select(registers, group)
        first, second, barriers = goal(registers), start(registers), mbarrier(registers)
        for issuer in bulk_moves.each(group, lanes, instruction):
            size = bulk_moves.value(registers, size_slot, issuer)
            places = bulk_moves.address(first, issuer), bulk_moves.address(second, issuer)
            _check_ends(issuer, size, places)
            if to == "global":
                move = _plain(places[0], _in_shared(issuer, places[1]), size)
                if mask is not None:
                    chosen = bulk_moves.value(registers, mask, issuer)
                    move = _in_bytes(move, [bool(chosen >> byte % PIECE_BYTES & 1) for byte in range(size)])
                bulk_moves.take(issuer, move, reduction)
                continue
            inner = _in_shared(issuer, places[0])
            barrier = _in_shared(issuer, bulk_moves.address(barriers, issuer))
            if source == "global":
                left = [bulk_moves.value(registers, end, issuer) for end in ends]
                if any(count >= PIECE_BYTES for count in left):
                    raise issuer.refuse(
                        f"{left} bytes are left out; at most {PIECE_BYTES - 1} at each end can be"
                    )
                for at, told in zip(goals(registers, issuer, inner), goals(registers, issuer, barrier)):
                    move = _plain(places[1], at, size)
                    if any(left):
                        move = _in_bytes(move, [left[0] <= byte < size - left[1] for byte in range(size)])
                    bulk_moves.bring(issuer, move, told)
            else:
                move = _plain(0, inner, size)
                bulk_moves.carry(
                    issuer, move, _plain(0, _in_shared(issuer, places[1]), size).places, barrier, reduction
                )

    return step


@RULES.on("st.bulk")
def fill(code: Code) -> Step:
    """`st.bulk`: zeros, a multiple of eight bytes, to the block's shared memory."""
    code.flag("bulk")
    memory_ops.claim_hints(code)
    memory_ops.take_space(code)
    code.expect(3)
    value = code.operands[2]
    if not isinstance(value, Immediate) or value.value != 0:
        raise code.refuse("the value to store is 0")
    at_of, select, instruction = address_of(code, code.operands[0]), code.select(), code.instruction
    size_slot = code.source(1, TYPES["u64"])

    def step(registers: Registers, group: Group) -> None:
        at = at_of(registers)
        for issuer in bulk_moves.each(group, select(registers, group), instruction):
            size = bulk_moves.value(registers, size_slot, issuer)
            if size % FILLED_BYTES:
                raise issuer.refuse(f"{size} bytes, no multiple of {FILLED_BYTES}")
            start = np.uint64(_in_shared(issuer, bulk_moves.address(at, issuer)))
            places = start + np.arange(0, size, FILLED_BYTES, dtype=np.uint64)
            who = np.repeat(issuer.lanes, len(places))
            try:
                memory_ops.check_alignment(places, FILLED_BYTES)
                spaces.SHARED.store(issuer.batch, who, places, np.zeros(len(places), np.uint64))
            except BadAccess as bad:
                raise issuer.fault(bad, f"store of {FILLED_BYTES} bytes") from None

    return step


def _check_ends(issuer: Issuer, size: int, ends: tuple[int, int]) -> None:
    if size % PIECE_BYTES:
        raise issuer.refuse(f"{size} bytes, no multiple of {PIECE_BYTES}")
    for at in ends:
        if at % PIECE_BYTES:
            raise issuer.refuse(f"the address {at:#x} is no multiple of {PIECE_BYTES}")


def _in_shared(issuer: Issuer, at: int) -> int:
    return spaces.shared_number(issuer.batch, at)


def _in_bytes(move: Move, chosen: list[bool]) -> Move:
    """The same, of which only these bytes are read and written."""
    steps = np.arange(PIECE_BYTES, dtype=np.uint64)
    at, places = ((each[:, None] + steps).reshape(-1) for each in (move.at, move.places))
    return Move(at, np.array(chosen), places, 1, np.zeros(1, np.uint8))


def _plain(at: int, place: int, size: int) -> Move:
    steps = PIECE_BYTES * np.arange(size // PIECE_BYTES, dtype=np.uint64)
    inside = np.ones(len(steps), bool)
    return Move(
        np.uint64(at) + steps, inside, np.uint64(place) + steps, PIECE_BYTES, np.zeros(PIECE_BYTES, np.uint8)
    )
