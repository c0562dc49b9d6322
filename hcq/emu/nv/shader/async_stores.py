"""Stores that an mbarrier counts: st.async and red.async, to the shared memory of any block of the cluster.

In       Code with an [address], values, the [address] of an mbarrier in the same shared memory
Out      steps that issue them; those to global memory, which no mbarrier counts, are done at once
Changes  shared memory and mbarriers, when somebody looks at an mbarrier (copies.py)
Next     bulk_moves.py (bulk copies), clusters.py (whose shared memory it is), opcodes.py (who tells them from st, red)
Source   PTX ISA, "st.async", "red.async"
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.nv.shader import async_races, atomic_ops, mbarrier_ops, memory_ops, spaces
from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.clusters import name_access
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory_ops import (
    address_of,
    check_alignment,
    claim_hints,
    of_lanes,
    take_space,
    vector_of,
)
from hcq.emu.nv.shader.race_steps import What
from hcq.emu.nv.shader.types import Lanes, Type

RULES = Rules()
WORDS = ("b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64")
OF_TYPE = {
    "inc": ("u32",),
    "dec": ("u32",),
    "min": ("u32", "s32"),
    "max": ("u32", "s32"),
    "add": ("u32", "s32", "u64"),
    "and": ("b32",),
    "or": ("b32",),
    "xor": ("b32",),
}
# carry it out: of a batch, its lanes, their addresses, their values
Work = Callable[[Batch, Lanes, Lanes, Lanes], None]


@RULES.on("st.async")
def store(code: Code) -> Step:
    """One, two or four words; the mbarrier is told of the bytes once they are there."""
    if _is_released(code):
        return memory_ops.store(code)
    _claim(code)
    count, type_ = vector_of(code), code.type(*WORDS)

    def work(batch: Batch, lanes: Lanes, at: Lanes, values: Lanes) -> None:
        spaces.SHARED.store(batch, lanes, at, values)

    return _issue(code, type_, count, work)


@RULES.on("red.async")
def reduce(code: Code) -> Step:
    """A reduction of one word."""
    if _is_released(code):
        if "add" not in code.rest or not any(word in code.rest for word in ("u32", "s32", "u64", "s64")):
            raise code.refuse("red.async without an mbarrier is .add of .u32, .s32, .u64 or .s64")
        return atomic_ops.atomic(code)
    _claim(code)
    what = code.take(*OF_TYPE)
    if not what:
        raise code.refuse(f"expected one of .{', .'.join(OF_TYPE)}")
    type_ = code.type(*OF_TYPE[what])
    operation = atomic_ops.operation_of(code, what, type_)

    def work(batch: Batch, lanes: Lanes, at: Lanes, values: Lanes) -> None:
        atomic_ops.Conflicts(batch, spaces.SHARED, lanes, at, type_).in_turns(operation, values, values)

    return _issue(code, type_, 1, work)


def _is_released(code: Code) -> bool:
    """Whether it is one that tells no mbarrier: to global memory, and what came before it is seen with it."""
    if "mbarrier::complete_tx::bytes" in code.rest or "release" not in code.rest:
        return False
    code.flag("async")
    if not any(scope in code.rest for scope in ("gpu", "sys")):
        raise code.refuse("expected .release.gpu or .release.sys")
    if any(name in code.rest for name in memory_ops.SPACE_NAMES if name != "global"):
        raise code.refuse("without an mbarrier it is to global memory")
    return True


def _claim(code: Code) -> None:
    code.flag("async")
    claim_hints(code)
    if take_space(code) not in ("", "shared") or not code.flag("mbarrier::complete_tx::bytes"):
        raise code.refuse("expected .shared::cluster.mbarrier::complete_tx::bytes")
    code.expect(3)


def _issue(code: Code, type_: Type, count: int, carry_out: Work) -> Step:
    at_of, told_of = address_of(code, code.operands[0]), address_of(code, code.operands[2])
    slots = [code.slot(part, type_) for part in code.parts(code.operands[1], count)]
    select, instruction, size = code.select(), code.instruction, type_.size_bytes * count
    kind = "store" if instruction.opcode == "st" else "atomic"

    def step(registers: Registers, group: Group) -> None:
        batch, chosen = group.batch, select(registers, group)
        lanes = batch.every_lane if chosen is None else chosen
        if not len(lanes):
            return
        at, told = (
            spaces.shared_address(batch, of_lanes(each(registers), chosen, batch.count))
            for each in (at_of, told_of)
        )
        parts = [
            of_lanes(registers[slot], chosen, batch.count).astype(type_.bits, copy=False) for slot in slots
        ]
        values = np.array(parts[0]) if count == 1 else np.stack(parts, axis=1)
        try:
            check_alignment(at, size)
            check_alignment(told, mbarrier_ops.OBJECT_BYTES)
            spaces.places_of(batch, lanes, at, size)
            spaces.places_of(batch, lanes, told, mbarrier_ops.OBJECT_BYTES)
        except BadAccess as bad:
            raise group.fault(bad, instruction, f"store of {size} bytes", lanes) from None
        async_races.stored(batch, lanes, What(kind, size, instruction.line), at, told)

        def work() -> None:
            name_access(batch, instruction)
            try:
                carry_out(batch, lanes, at, values)
                for lane, place in zip(lanes.tolist(), told.tolist()):
                    mbarrier_ops.complete_tx(batch, np.array([lane]), place, size)
            except BadAccess as bad:
                raise group.fault(bad, instruction, f"store of {size} bytes", lanes) from None

        batch.copies.count(work)

    return step
