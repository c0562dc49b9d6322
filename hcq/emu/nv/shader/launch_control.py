"""clusterlaunchcontrol: a block takes over the work of a cluster that has not begun, which then never begins.

In       Code with an [address] for the answer and the [address] of an mbarrier; an answer
Out      steps that ask, and steps that read what was answered
Changes  shared memory and mbarriers, when somebody looks at an mbarrier (copies.py); which clusters are left
Next     pending.py (the clusters that have not begun), bulk_moves.py (who else writes for several blocks)
Source   PTX ISA, "clusterlaunchcontrol.try_cancel", "clusterlaunchcontrol.query_cancel"

An answer is opaque to programs. Ours has four words: whether a cluster was taken, and where its first block is.
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader import bulk_moves, mbarrier_ops, spaces
from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.clusters import OFFSET_MASK, RANK_SHIFT, name_access
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory_ops import address_of, check_alignment
from hcq.emu.nv.shader.syntax import Vector
from hcq.emu.nv.shader.types import TYPES, Lanes

RULES = Rules()
U32, PRED, B128 = TYPES["u32"], TYPES["pred"], TYPES["b128"]
ANSWER_BYTES = 16
WORDS = ANSWER_BYTES // 4
AXES = ("get_first_ctaid::x", "get_first_ctaid::y", "get_first_ctaid::z")


@RULES.on("clusterlaunchcontrol")
def launch_control(code: Code) -> Step:
    """`try_cancel` and `query_cancel`."""
    if code.flag("try_cancel"):
        return _ask(code)
    if code.flag("query_cancel"):
        return _read(code)
    raise code.refuse("expected clusterlaunchcontrol.try_cancel or .query_cancel")


def _ask(code: Code) -> Step:
    code.flag("async"), code.take("shared::cta", "shared")
    if not code.flag("mbarrier::complete_tx::bytes"):
        raise code.refuse("expected .mbarrier::complete_tx::bytes")
    to_all = code.flag("multicast::cluster::all")
    code.flag("b128")
    code.expect(2)
    goal, told = address_of(code, code.operands[0]), address_of(code, code.operands[1])
    select, instruction = code.select(), code.instruction

    def step(registers: Registers, group: Group) -> None:
        goals, mbarriers = goal(registers), told(registers)
        for issuer in bulk_moves.each(group, select(registers, group), instruction):
            batch = issuer.batch
            pair = (bulk_moves.address(one, issuer) for one in (goals, mbarriers))
            at, mbarrier = (spaces.shared_number(batch, one) for one in pair)
            places, objects = ([one] if not to_all else _everywhere(batch, one) for one in (at, mbarrier))
            try:
                for places_of, size in ((places, ANSWER_BYTES), (objects, mbarrier_ops.OBJECT_BYTES)):
                    array = np.array(places_of, np.uint64)
                    check_alignment(array, size)
                    spaces.places_of(batch, np.repeat(issuer.lanes, len(array)), array, size)
            except BadAccess as bad:
                raise issuer.fault(bad, f"store of {ANSWER_BYTES} bytes") from None
            first = None if batch.launch.pending is None else batch.launch.pending.cancel()
            answer = np.array([0, 0, 0, 0] if first is None else [1, *first], np.uint32)

            def work(
                issuer: bulk_moves.Issuer = issuer,
                places: list[int] = places,
                objects: list[int] = objects,
                answer: Lanes = answer,
            ) -> None:
                name_access(issuer.batch, issuer.instruction)
                for place, each in zip(places, objects):
                    at = np.array([place], np.uint64)
                    try:
                        spaces.SHARED.store(issuer.batch, issuer.lanes, at, answer.reshape(1, -1))
                        mbarrier_ops.complete_tx(issuer.batch, issuer.lanes, each, ANSWER_BYTES)
                    except BadAccess as bad:
                        raise issuer.fault(bad, f"store of {ANSWER_BYTES} bytes") from None

            batch.copies.count(work)

    return step


def _everywhere(batch: Batch, at: int) -> list[int]:
    """The same place in each block of the cluster."""
    size = 1 if batch.clusters is None else batch.clusters.size
    return [at & OFFSET_MASK | rank << RANK_SHIFT for rank in range(size)]


def _read(code: Code) -> Step:
    what = code.take("is_canceled", "get_first_ctaid", *AXES)
    if not what:
        raise code.refuse("expected .is_canceled or .get_first_ctaid")
    code.take("v4"), code.take("pred", "b32"), code.flag("b128")
    code.expect(2)
    slot = code.source(1, B128)
    target = code.operands[0]
    if what != "get_first_ctaid":
        write, number = (
            code.result(PRED if what == "is_canceled" else U32),
            1 + AXES.index(what) if what in AXES else 0,
        )

        def one(registers: Registers, group: Group) -> None:
            found = _words(registers[slot])[:, number]
            write(registers, group, found != 0 if what == "is_canceled" else np.ascontiguousarray(found))

        return one
    if not isinstance(target, Vector) or len(target.parts) != WORDS:
        raise code.refuse("expected {x, y, z, _}")
    writes = [code.writer(code.destination(part, U32)) for part in target.parts]

    def all_three(registers: Registers, group: Group) -> None:
        words = _words(registers[slot])
        for write, number in zip(writes, (1, 2, 3, 0)):
            write(registers, group, np.ascontiguousarray(words[:, number]))

    return all_three


def _words(values: Lanes) -> Lanes:
    found: Lanes = np.ascontiguousarray(values).view(np.uint32).reshape(-1, WORDS)
    return found
