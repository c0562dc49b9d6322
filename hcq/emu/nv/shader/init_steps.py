"""Steps that follow what nobody wrote to its use: an address, a branch, a store, a matrix (HCQ_SANITIZE=init).

In       a decoded block; then the groups of threads that run it
Out      the block with steps that follow: `followed`
Changes  the Unwritten of the batch; no register, no memory
Next     shadows.py (where shadows are), shadow_results.py (instructions that compute), checks.py (who asks),
         memory_steps.py (the same form, for stray accesses)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.counters import type_of
from hcq.emu.nv.shader.decode import Code, DecodedBlock, Lowering, Registers, Step
from hcq.emu.nv.shader.errors import PtxError
from hcq.emu.nv.shader.flow import BasicBlock, reads_and_writes
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory_ops import (
    address_of,
    claim_hints,
    fit,
    of_lanes,
    space_of,
    take_space,
    to_all,
    vector_of,
)
from hcq.emu.nv.shader.shadow_moves import moved
from hcq.emu.nv.shader.shadow_results import compute
from hcq.emu.nv.shader.shadows import Follow, Unwritten, space_at
from hcq.emu.nv.shader.syntax import Address, Immediate, Instruction, Register
from hcq.emu.nv.shader.types import TYPES
from hcq.emu.shader.unwritten import Read


def followed(lowering: Lowering, block: BasicBlock, made: DecodedBlock) -> None:
    """Put around the steps of a block what follows registers and memory."""
    made.steps[:] = [_around(lowering, one, step) for one, step in zip(block.body, made.steps)]
    if block.end is not None and made.end is not None and lowering.function.is_entry:
        names = reads_and_writes(block.end)[1]
        results = [slot for name in names if (slot := lowering.register(name)) is not None]
        if results:
            made.end = _written(results, made.end)
    guard = block.skip_guard or (
        block.end.guard if block.end is not None and block.end.opcode == "bra" else None
    )
    slot = None if guard is None else lowering.register(guard.name)
    end, branch = made.end, block.end or (block.body[-1] if block.body else None)
    if slot is None or end is None or branch is None or not lowering.function.is_entry:
        return
    chosen: int = slot

    def checked(machine: Any, registers: Registers, path: Any) -> int:
        unwritten = path.batch.unwritten
        if unwritten is not None:
            unwritten.used("branch", [chosen], branch, path.lanes)
        return end(machine, registers, path)

    made.end = checked


def _written(
    slots: list[int], end: Callable[[Any, Registers, Any], int]
) -> Callable[[Any, Registers, Any], int]:
    """The end of a block, as bar.red, whose results are written when it is over."""

    def run(machine: Any, registers: Registers, path: Any) -> int:
        unwritten = path.batch.unwritten
        if unwritten is not None:
            for slot in slots:
                unwritten.put(slot, None, None, path.lanes)
        return end(machine, registers, path)

    return run


def _around(lowering: Lowering, one: Instruction, step: Step) -> Step:
    try:
        follow = _follow(lowering, one, step)
    except PtxError:  # the rule of the instruction has taken it all the same
        follow = None
    _, written = reads_and_writes(one)
    is_entry = lowering.function.is_entry
    slots = [slot for name in written if is_entry and (slot := lowering.register(name)) is not None]
    select = Code(lowering, one).select()
    if follow is None and not slots:
        return step
    stores = follow is not None and one.opcode in ("st", "atom", "red")

    def run(registers: Registers, group: Group) -> None:
        unwritten = group.batch.unwritten
        if unwritten is None or group.batch is not unwritten.batch:  # threads that take turns
            step(registers, group)
            return
        lanes = select(registers, group)
        made = [] if follow is None else follow(unwritten, registers, group)
        unwritten.is_followed = stores
        try:
            step(registers, group)
        finally:
            unwritten.is_followed = False
        known = {slot: (shadow, read) for slot, shadow, read in made}
        for slot in slots:
            shadow, read = known.get(slot, (None, None))
            unwritten.put(slot, shadow, read, lanes)

    return run


def _follow(lowering: Lowering, one: Instruction, step: Step) -> Follow | None:
    """What an instruction makes of shadows; None: all that it writes is written."""
    opcode, is_entry = one.opcode, lowering.function.is_entry
    code = Code(lowering, one)
    if opcode in ("ld", "ldu"):
        return _load(code, lowering, is_entry)
    if opcode == "st" and "async" not in one.modifiers and "bulk" not in one.modifiers:
        return _store(code, lowering, is_entry)
    if opcode in ("atom", "red") and "async" not in one.modifiers:
        return _atomic(code, lowering, is_entry)
    if (
        opcode == "cp"
        and "bulk" not in one.modifiers
        and len([1 for x in one.operands if isinstance(x, Address)]) == 2
    ):
        return _copy(code)
    if not is_entry:
        return None
    if opcode == "mma" or (opcode == "wmma" and one.modifiers[0] == "mma"):
        sources = [slot for name in reads_and_writes(one)[0] if (slot := lowering.register(name)) is not None]

        def product(unwritten: Unwritten, registers: Registers, group: Group) -> list[Any]:
            unwritten.used("matrix", sources, one, group.lanes)
            return []

        return product
    return compute(code, lowering) or moved(Code(lowering, one), lowering, step)


def _guards(lowering: Lowering, one: Instruction) -> list[int]:
    slot = None if one.guard is None else lowering.register(one.guard.name)
    return [] if slot is None else [slot]


def _bases(lowering: Lowering, one: Instruction) -> list[int]:
    """Registers that make addresses."""
    bases = [x.base for x in one.operands if isinstance(x, Address) and isinstance(x.base, Register)]
    return [slot for base in bases if (slot := lowering.register(base.name)) is not None]


def _load(code: Code, lowering: Lowering, is_entry: bool) -> Follow | None:
    one = code.instruction
    if not is_entry:
        return None
    claim_hints(code)
    where = space_of(code, take_space(code), one.operands[1])
    count, type_ = vector_of(code), code.type(*TYPES)
    at_of, select, bases = address_of(code, one.operands[1]), code.select(), _bases(lowering, one)
    parts = code.parts(one.operands[0], count)
    slots = [lowering.register(part.name) if isinstance(part, Register) else None for part in parts]
    fits = [None if slot is None else fit(type_, lowering.decoded.first[slot].dtype.type) for slot in slots]

    def follow(
        unwritten: Unwritten, registers: Registers, group: Group
    ) -> list[tuple[int, Any, Read | None]]:
        lanes = select(registers, group)
        if lanes is not None and not len(lanes):
            return []
        unwritten.used("address", bases, one, lanes)
        at = of_lanes(at_of(registers), lanes, group.batch.count)
        found = unwritten.load(where, at, lanes, type_.bits, count, one)
        if found is None:
            return []
        shadow, read = found
        made: list[tuple[int, Any, Read | None]] = []
        for number, (slot, extend) in enumerate(zip(slots, fits)):
            if slot is not None:
                value = np.ascontiguousarray(shadow if count == 1 else shadow[:, number])
                value = extend(value) if extend is not None else value
                made.append((slot, to_all(value, lanes, group.batch.count), read))
        return made

    return follow


def _store(code: Code, lowering: Lowering, is_entry: bool) -> Follow:
    one = code.instruction
    claim_hints(code)
    where = space_of(code, take_space(code), one.operands[0])
    count, type_ = vector_of(code), code.type(*TYPES)
    at_of, select, bases = address_of(code, one.operands[0]), code.select(), _bases(lowering, one)
    parts = code.parts(one.operands[1], count)
    slots = [lowering.register(part.name) if isinstance(part, Register) else None for part in parts]
    guards = _guards(lowering, one)
    zero = np.zeros(1, type_.bits)

    def follow(
        unwritten: Unwritten, registers: Registers, group: Group
    ) -> list[tuple[int, Any, Read | None]]:
        lanes, batch = select(registers, group), group.batch
        if is_entry:
            unwritten.used("branch", guards, one, group.lanes)
        if lanes is not None and not len(lanes):
            return []
        at = of_lanes(at_of(registers), lanes, batch.count)
        rows = []
        if is_entry:
            unwritten.used("address", bases, one, lanes)
            if not len(at) or space_at(batch, where, int(at[0])) == "global":
                for slot in slots:
                    known = None if slot is None else unwritten.of(slot)
                    if known is not None and not known[1].is_copied:
                        unwritten.used("store", [slot] if slot is not None else [], one, lanes)
        for slot in slots:
            known = unwritten.of(slot) if slot is not None and is_entry else None
            shadow = zero if known is None else known[0]
            rows.append(of_lanes(shadow, lanes, batch.count).astype(type_.bits, copy=False))
        unwritten.store(where, at, lanes, rows[0] if count == 1 else np.stack(rows, axis=1))
        return []

    return follow


def _atomic(code: Code, lowering: Lowering, is_entry: bool) -> Follow | None:
    one = code.instruction
    place = next(index for index, x in enumerate(one.operands) if isinstance(x, Address))
    claim_hints(code)
    where = space_of(code, take_space(code), one.operands[place])
    type_ = TYPES[type_of(one)]
    at_of, select, bases = address_of(code, one.operands[place]), code.select(), _bases(lowering, one)
    guards = _guards(lowering, one)
    result = (
        lowering.register(one.operands[0].name) if place and isinstance(one.operands[0], Register) else None
    )
    is_exchange = "exch" in one.modifiers
    if vector_of(code) > 1 or type_.width > 64:
        return None

    def follow(
        unwritten: Unwritten, registers: Registers, group: Group
    ) -> list[tuple[int, Any, Read | None]]:
        lanes = select(registers, group)
        if is_entry:
            unwritten.used("branch", guards, one, group.lanes)
        if lanes is not None and not len(lanes):
            return []
        if is_entry:
            unwritten.used("address", bases, one, lanes)
        at = of_lanes(at_of(registers), lanes, group.batch.count)
        found = unwritten.load(where, at, lanes, type_.bits, 1, one)
        if found is not None and not is_exchange:  # which is told once: it counts as written then
            unwritten.changed(found, one)
        if found is not None or is_exchange:
            unwritten.store(where, at, lanes, np.zeros(len(at), type_.bits))
        if found is None or result is None or not is_entry or not is_exchange:
            return []
        dtype = lowering.decoded.first[result].dtype
        return [(result, to_all(found[0].astype(dtype), lanes, group.batch.count), found[1])]

    return follow


def _copy(code: Code) -> Follow:
    """cp.async: what it brings was written."""
    one = code.instruction
    at_of, select = address_of(code, one.operands[0]), code.select()
    size = one.operands[2].value if isinstance(one.operands[2], Immediate) else 16
    bases = _bases(code.lowering, one)
    is_entry = code.lowering.function.is_entry

    def follow(
        unwritten: Unwritten, registers: Registers, group: Group
    ) -> list[tuple[int, Any, Read | None]]:
        lanes = select(registers, group)
        at = of_lanes(at_of(registers), lanes, group.batch.count)
        if is_entry:
            unwritten.used("address", bases, one, lanes)
        rows = np.zeros(len(at) if size == 4 else (len(at), size // 4), np.uint32)
        unwritten.store(spaces.SHARED, at, lanes, rows)
        return []

    return follow
