"""Steps that follow what nobody wrote through registers, shared and local memory (HCQ_SANITIZE=init).

In       a decoded block; then the groups of threads that run it
Out      the block with steps that follow: `followed`; `Unwritten`: what they know of a batch
Changes  the Unwritten of the batch; no register, no memory
Next     hcq/emu/shader/shadow_bits.py (which bits of a result), hcq/emu/shader/unwritten.py (what is told),
         checks.py (who attaches an Unwritten), memory_steps.py (the same form, for stray accesses)

A shadow has the layout of what it shadows, so that the spaces of a batch load and store shadows, too: a bit is set
where nobody wrote. Registers of the entry are followed; those of functions that it calls count as written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.counters import type_of
from hcq.emu.nv.shader.decode import Code, DecodedBlock, Lowering, Registers, Step
from hcq.emu.nv.shader.errors import BadAccess, PtxError
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
from hcq.emu.nv.shader.memory_steps import names
from hcq.emu.nv.shader.program import Program
from hcq.emu.nv.shader.syntax import Address, Function, Immediate, Instruction, Operand, Register
from hcq.emu.nv.shader.thread_copies import ThreadCopies
from hcq.emu.nv.shader.types import TYPES, Lanes, Scalar, Type
from hcq.emu.shader import shadow_bits
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.unwritten import Read, tell

UNWRITTEN = 0xFF
COPIES = ("mov", "cvta", "not")
SUMS = ("add", "sub", "mul", "mad", "neg")  # of integers, of which the low half is kept
WHOLE = (
    "add", "sub", "mul", "mad", "fma", "div", "rem", "min", "max", "neg", "abs", "sqrt", "rcp", "rsqrt", "ex2", "lg2",
    "sin", "cos", "tanh", "popc", "clz", "bfind", "brev", "cvt", "copysign",
)  # fmt: skip
# what writes shared memory in a way that is not followed
OTHER_WRITERS = ("stmatrix", "wmma", "mbarrier", "tensormap", "wgmma")
Follow = Callable[["Unwritten", Registers, Group], list[tuple[int, Any, Read | None]]]


class _NoMemory:
    """The shadow of global memory, all of which counts as written."""

    def load(self, addresses: Lanes, scalar: Scalar, count: int) -> Lanes:
        """Zeros."""
        return np.zeros(len(addresses) if count == 1 else (len(addresses), count), scalar)

    def store(self, addresses: Lanes, values: Lanes) -> None:
        """Nothing."""


class Unwritten:
    """What nobody wrote of the registers and memory of a batch.

    shadow   a batch of shadows: its shared, local and other memory
    """

    def __init__(self, checks: Checks, program: Program, batch: Batch) -> None:
        self.checks, self.program, self.batch = checks, program, batch
        made = self.shadow = object.__new__(Batch)
        made.__dict__.update(batch.__dict__)
        made.memory, made.params = _NoMemory(), np.zeros_like(batch.params)
        made.thread_copies = ThreadCopies(batch.count)
        made.shared = np.zeros_like(batch.shared)
        if not _writes_otherwise(program.functions):
            rows = made.shared.reshape(len(batch.blocks), -1)
            rows[:, : batch.launch.shared_bytes] = UNWRITTEN
        made.local, made.local_bytes = np.zeros(0, np.uint8), 0
        self._mirror_local()
        # slot -> (shadow, where it came from); what is not here was written
        self.registers: dict[int, tuple[Lanes, Read]] = {}
        entry = program.entry
        for name in entry.function.registers:
            slot = entry.slots[name]
            dtype = entry.first[slot].dtype
            if dtype.kind in "ub":
                ones = np.ones(1, bool) if dtype.kind == "b" else np.array([np.iinfo(dtype).max], dtype)
                self.registers[slot] = ones, Read("register", name=name)

    def _mirror_local(self) -> None:
        """What the machine does to local memory beside the kernel's instructions happens to the shadow, too."""
        batch, shadow = self.batch, self.shadow
        need, copy = batch.need_local, batch.copy_local

        def need_local(size_bytes: int) -> None:
            need(size_bytes)
            if batch.local_bytes != shadow.local_bytes:
                grown = np.full((batch.count, batch.local_bytes), UNWRITTEN, np.uint8)
                grown[:, : shadow.local_bytes] = (
                    shadow.local.reshape(batch.count, -1) if shadow.local_bytes else 0
                )
                shadow.local, shadow.local_bytes = grown.reshape(-1), batch.local_bytes

        def copy_local(lanes: Lanes | None, to: int, source: int, size_bytes: int) -> None:
            copy(lanes, to, source, size_bytes)
            shadow_copy(lanes, to, source, size_bytes)

        shadow_copy = Batch.copy_local.__get__(shadow)
        batch.need_local, batch.copy_local = need_local, copy_local  # type: ignore[method-assign]

    # ------------------------------------------------------------ registers

    def of(self, slot: int) -> tuple[Lanes, Read] | None:
        """The shadow of a register; None where all of it was written."""
        return self.registers.get(slot)

    def put(self, slot: int, shadow: Lanes | None, read: Read | None, lanes: Lanes | None) -> None:
        """Some threads have written a register. shadow: for each thread, or one for all; None: written."""
        old = self.registers.get(slot)
        if lanes is None:
            if shadow is None or not shadow.any():
                self.registers.pop(slot, None)
            elif read is not None:
                self.registers[slot] = shadow, read
            return
        if shadow is None and old is None:
            return
        dtype = old[0].dtype if old is not None else shadow.dtype
        new = (
            np.zeros(self.batch.count, dtype)
            if old is None
            else np.broadcast_to(old[0], self.batch.count).copy()
        )
        new[lanes] = 0 if shadow is None else shadow[0] if len(shadow) == 1 else shadow[lanes]
        origin = read or (old[1] if old is not None else None)
        if origin is None or not new.any():
            self.registers.pop(slot, None)
        else:
            self.registers[slot] = new, origin

    def used(self, use: str, slots: list[int], one: Instruction, lanes: Lanes | None) -> None:
        """These threads use registers for something that shows."""
        for slot in slots:
            found = self.registers.get(slot)
            if found is None:
                continue
            shadow, read = found
            mine = of_lanes(shadow, lanes, self.batch.count)
            bad = np.flatnonzero(mine)
            if len(bad):
                who = names(self.batch, lanes)(int(bad[0]), len(mine))
                tell(self.checks, use, read, str(one), one.line, who, len(bad))

    # ------------------------------------------------------------ memory

    def load(
        self, where: spaces.Space, at: Lanes, lanes: Lanes | None, bits: Scalar, count: int, one: Instruction
    ) -> tuple[Lanes, Read] | None:
        """The shadow of what these threads load; None where all of it was written."""
        try:
            shadow = where.load(self.shadow, lanes, at, bits, count)
        except BadAccess:  # the instruction itself says so
            return None
        if shadow.dtype.kind != "u" or not shadow.any():
            return None
        first = int(np.flatnonzero(shadow.reshape(len(at), -1).any(axis=1))[0])
        address, space = int(at[first]), _space_of(self.batch, where, int(at[first]))
        address = spaces.without_window(address, spaces.window_of(self.batch, space))
        who = names(self.batch, lanes)(first, len(at))
        return shadow, Read(space, address, "", one.line, str(one), who)

    def store(self, where: spaces.Space, at: Lanes, lanes: Lanes | None, shadow: Lanes) -> None:
        """These threads store something with this shadow."""
        try:
            where.store(self.shadow, lanes, at, shadow)
        except BadAccess:
            pass


def _space_of(batch: Batch, where: spaces.Space, address: int) -> str:
    if where is spaces.GENERIC:
        for name in ("shared", "local"):
            if spaces.without_window(address, spaces.window_of(batch, name)) != address:
                return name
    return {spaces.SHARED: "shared", spaces.LOCAL: "local"}.get(where, "global")


def _writes_otherwise(functions: list[Function] | tuple[Function, ...]) -> bool:
    body = [one for function in functions for one in function.body]
    return any(
        one.opcode in OTHER_WRITERS or {"bulk", "async"} & set(one.modifiers) - _PLAIN(one) for one in body
    )


def _PLAIN(one: Instruction) -> set[str]:
    return {"async"} if one.opcode == "cp" and "bulk" not in one.modifiers else set()


# ---------------------------------------------------------------- steps


def followed(lowering: Lowering, block: BasicBlock, made: DecodedBlock) -> None:
    """Put around the steps of a block what follows registers and memory."""
    made.steps[:] = [_around(lowering, one, step) for one, step in zip(block.body, made.steps)]
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


def _around(lowering: Lowering, one: Instruction, step: Step) -> Step:
    try:
        follow = _follow(lowering, one)
    except PtxError:  # the rule of the instruction has taken it all the same
        follow = None
    _, written = reads_and_writes(one)
    is_entry = lowering.function.is_entry
    slots = [slot for name in written if is_entry and (slot := lowering.register(name)) is not None]
    select = Code(lowering, one).select()
    if follow is None and not slots:
        return step

    def run(registers: Registers, group: Group) -> None:
        unwritten = group.batch.unwritten
        if unwritten is None or group.batch is not unwritten.batch:  # threads that take turns
            step(registers, group)
            return
        lanes = select(registers, group)
        made = [] if follow is None else follow(unwritten, registers, group)
        step(registers, group)
        known = {slot: (shadow, read) for slot, shadow, read in made}
        for slot in slots:
            shadow, read = known.get(slot, (None, None))
            unwritten.put(slot, shadow, read, lanes)

    return run


def _follow(lowering: Lowering, one: Instruction) -> Follow | None:
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
    if opcode == "mma":
        sources = [slot for name in reads_and_writes(one)[0] if (slot := lowering.register(name)) is not None]

        def product(unwritten: Unwritten, registers: Registers, group: Group) -> list[Any]:
            unwritten.used("matrix", sources, one, group.lanes)
            return []

        return product
    return _plain(code, lowering)


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
        if lanes is not None and not len(lanes):
            return []
        at = of_lanes(at_of(registers), lanes, batch.count)
        rows = []
        if is_entry:
            unwritten.used("address", bases, one, lanes)
            unwritten.used("branch", guards, one, group.lanes)
            if not len(at) or _space_of(batch, where, int(at[0])) == "global":
                for slot in slots:
                    known = None if slot is None else unwritten.of(slot)
                    if known is not None and known[1].space != "global":  # what a copy moves on is no use
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
    is_exchange, is_vector = "exch" in one.modifiers, vector_of(code) > 1
    if is_vector or type_.width > 64:
        return None

    def follow(
        unwritten: Unwritten, registers: Registers, group: Group
    ) -> list[tuple[int, Any, Read | None]]:
        lanes = select(registers, group)
        if lanes is not None and not len(lanes):
            return []
        if is_entry:
            unwritten.used("address", bases, one, lanes)
            unwritten.used("branch", guards, one, group.lanes)
        at = of_lanes(at_of(registers), lanes, group.batch.count)
        found = unwritten.load(where, at, lanes, type_.bits, 1, one)
        if is_exchange:
            unwritten.store(where, at, lanes, np.zeros(len(at), type_.bits))
        if found is None or result is None or not is_entry:
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


# ---------------------------------------------------------------- arithmetic


def _plain(code: Code, lowering: Lowering) -> Follow | None:
    """An instruction that computes one register from others."""
    one = code.instruction
    operands, opcode, modifiers = one.operands, one.opcode, set(one.modifiers)
    if not operands or not isinstance(operands[0], Register) or "cc" in modifiers:
        return None
    target = lowering.register(operands[0].name)
    types = [TYPES[name] for name in one.modifiers if name in TYPES]
    if target is None or not types or any(type_.packed > 1 or type_.kind == "x" for type_ in types):
        return None
    if not all(isinstance(x, (Register, Immediate)) for x in operands[1:]) or opcode in ("shfl", "prmt"):
        return None
    values = [_value(code, lowering, x, types[-1], index) for index, x in enumerate(operands[1:])]
    if any(value is None for value in values):
        return None
    slots = [slot for slot in values if slot is not None]
    compute = _formula(opcode, modifiers, types, lowering.decoded.first[target].dtype)
    if compute is None or (opcode == "setp" and len(slots) != 2):
        return None

    def follow(
        unwritten: Unwritten, registers: Registers, group: Group
    ) -> list[tuple[int, Any, Read | None]]:
        known = [unwritten.of(slot) for slot in slots]
        origin = next((each[1] for each in known if each is not None), None)
        if origin is None:
            return []
        read = [registers[slot] for slot in slots]
        shadows = [np.zeros(1, v.dtype) if each is None else each[0] for each, v in zip(known, read)]
        return [(target, compute(read, shadows), origin)]

    return follow


def _value(code: Code, lowering: Lowering, operand: Operand, type_: Type, index: int) -> int | None:
    """The slot of a source."""
    if isinstance(operand, Register):
        return None if operand.negated or operand.part or operand.minus else lowering.register(operand.name)
    is_count = code.instruction.opcode in ("shl", "shr") and index == 1
    return code.slot(operand, TYPES["u32"] if is_count else type_)


Formula = Callable[[list[Lanes], list[Lanes]], Lanes]


def _formula(opcode: str, modifiers: set[str], types: list[Type], dtype: Any) -> Formula | None:
    """The shadow of a result, from values and shadows of sources."""
    first, is_integer = types[0], all(type_.is_integer for type_ in types)
    if opcode in COPIES:
        return lambda values, shadows: shadows[0].astype(dtype)
    if opcode == "cvt" and is_integer and "sat" not in modifiers:
        return _converted(types, dtype)
    if opcode == "and":
        return lambda v, s: shadow_bits.of_and(v[0], v[1], s[0], s[1])
    if opcode == "or":
        return lambda v, s: shadow_bits.of_or(v[0], v[1], s[0], s[1])
    if opcode == "xor":
        return lambda v, s: s[0] | s[1]
    if opcode == "selp":
        return lambda v, s: shadow_bits.of_choice(v[2], v[0], v[1], s[2], s[0], s[1]) if len(v) == 3 else s[0]
    if opcode in ("shl", "shr"):
        return _shifted(opcode == "shl", first, dtype)
    if opcode == "setp":
        return _compared(modifiers, first)
    if opcode in SUMS and is_integer and "hi" not in modifiers and "sat" not in modifiers:
        return lambda v, s: shadow_bits.upwards(_either([each.astype(dtype) for each in s]))
    if opcode in WHOLE:
        return lambda v, s: shadow_bits.whole(_either([each != 0 for each in s]), dtype)
    return None


def _either(shadows: list[Lanes]) -> Lanes:
    found = shadows[0]
    for each in shadows[1:]:
        found = found | each
    return found


def _converted(types: list[Type], dtype: Any) -> Formula:
    """cvt.to.from of integers: the bits of the source, extended."""
    source, kind = types[-1], np.dtype(types[-1].scalar)

    def compute(values: list[Lanes], shadows: list[Lanes]) -> Lanes:
        low = shadows[0].astype(source.bits)
        wide = low.view(kind).astype(np.dtype(f"i{np.dtype(dtype).itemsize}")) if source.kind == "s" else low
        return wide.astype(dtype)

    return compute


def _shifted(is_left: bool, type_: Type, dtype: Any) -> Formula:
    """Shifts by what was written; by anything else, the whole."""
    top = type_.width - 1

    def compute(values: list[Lanes], shadows: list[Lanes]) -> Lanes:
        count = np.minimum(values[1], top).astype(dtype)
        moved = (
            shadows[0] << count
            if is_left
            else (shadows[0].view(type_.scalar) >> count.view(type_.scalar)).view(dtype)
        )
        if type_.kind != "s" or is_left:
            moved = np.where(values[1] > top, np.zeros(1, dtype)[0], moved)
        return moved | shadow_bits.whole(shadows[1], dtype)

    return compute


def _compared(modifiers: set[str], type_: Type) -> Formula | None:
    """setp, of which the other result is the opposite."""
    if modifiers & {"and", "or", "xor"}:
        return None
    if not type_.is_integer:
        return lambda v, s: (s[0] != 0) | (s[1] != 0)
    is_equality, is_signed = bool(modifiers & {"eq", "ne"}), type_.kind == "s"

    def compute(values: list[Lanes], shadows: list[Lanes]) -> Lanes:
        return shadow_bits.of_comparison(*values, *shadows, is_equality, is_signed)

    return compute
