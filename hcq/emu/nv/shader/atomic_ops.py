"""Atomics: atom and red, in the order of the threads' numbers.

In       Code with an [address] and one or two values
Out      steps that read, compute and write memory as if one thread came after the other
Changes  memory, through spaces.py
Next     memory_ops.py, hcq/emu/shader/contended_atomics.py (threads at one address), retry.py (loops around an atomic)
Source   PTX ISA, "atom", "red"

Threads that meet at one address are served in order of their numbers, so that results are the same in every run. When
no old values are wanted, or they can be had from a running sum, all are served at once; else as
hcq/emu/shader/contended_atomics.py
does.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from hcq.emu.nv.shader import floats, spaces
from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.float_ops import greater, lesser
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory_ops import (
    address_of,
    check_alignment,
    claim_hints,
    of_lanes,
    space_of,
    take_space,
    to_all,
    vector_of,
)
from hcq.emu.nv.shader.syntax import Discard
from hcq.emu.nv.shader.types import SIXTEEN_BYTES, TYPES, Lanes, Type
from hcq.emu.shader import contended_atomics

RULES = Rules()
Update = contended_atomics.Turn  # (old bits, b, c) -> new bits
OPERATIONS = ("and", "or", "xor", "exch", "add", "inc", "dec", "min", "max", "cas")


class Operation(NamedTuple):
    """How memory changes: one thread of each address; a run of threads at one; a ufunc where old values do not matter.

    run, at_once  None where there is no such thing
    """

    update: Update
    run: contended_atomics.Run | None = None
    at_once: Any = None


def operation_of(code: Code, what: str, type_: Type) -> Operation:
    """What `.add`, `.min` ... do to values of a type. Raises PtxError for what the type has not."""
    scalar, bits = type_.scalar, type_.bits
    if type_.is_float:
        return _float_operation(code, what, type_)
    if what in ("min", "max"):
        choose = np.minimum if what == "min" else np.maximum
        return Operation(
            lambda old, b, c: choose(old.view(scalar), b.view(scalar)).view(bits),
            contended_atomics.accumulating(choose, scalar),
            choose,
        )
    if bits is SIXTEEN_BYTES:
        return _of_sixteen_bytes(code, what)
    of_numbers = contended_atomics.one_by_one
    table: dict[str, Operation] = {
        "and": _of_bits(np.bitwise_and),
        "or": _of_bits(np.bitwise_or),
        "xor": _of_bits(np.bitwise_xor),
        "add": _of_bits(np.add),
        "exch": Operation(lambda old, b, c: b, contended_atomics.exchanging),
        "cas": Operation(lambda old, b, c: np.where(old == b, c, old), contended_atomics.comparing),
        "inc": Operation(
            lambda old, b, c: np.where(old >= b, bits(0), old + bits(1)),
            of_numbers(contended_atomics.increment),
        ),
        "dec": Operation(
            lambda old, b, c: np.where((old == 0) | (old > b), b, old - bits(1)),
            of_numbers(contended_atomics.decrement),
        ),
    }
    return table[what]


def _of_sixteen_bytes(code: Code, what: str) -> Operation:
    if what == "exch":
        return Operation(lambda old, b, c: b, contended_atomics.exchanging)
    if what == "cas":
        return Operation(lambda old, b, c: np.where(_are_same(old, b), c, old))
    raise code.refuse(f"there is no atomic .{what} of .b128")


def _are_same(a: Lanes, b: Lanes) -> Lanes:
    """Whether all 16 bytes are."""
    x, y = (np.ascontiguousarray(value).view(np.uint64).reshape(-1, 2) for value in (a, b))
    return (x == y).all(axis=1)


def _of_bits(function: Any) -> Operation:
    return Operation(lambda old, b, c: function(old, b), contended_atomics.accumulating(function), function)


def _float_operation(code: Code, what: str, type_: Type) -> Operation:
    read, pack = floats.reader(type_), floats.packer(type_)
    if what == "add":

        def add(old: Lanes, b: Lanes, c: Lanes) -> Lanes:
            return pack(read(old) + read(b))

        if type_.name in ("f32", "f64"):
            return Operation(add, contended_atomics.accumulating(np.add, type_.scalar), np.add)
        is_brain = type_.kind == "bf"
        run = contended_atomics.adding_bf16(floats.CANONICAL_NAN[2]) if is_brain else _adding_f16
        return Operation(add, contended_atomics.in_halves(run) if type_.packed == 2 else run)
    if what in ("min", "max"):
        choose = lesser if what == "min" else greater  # of a number and a NaN the number
        return Operation(lambda old, b, c: pack(choose(read(old), read(b))))
    if what == "exch":
        return Operation(lambda old, b, c: b, contended_atomics.exchanging)
    raise code.refuse(f"floats have no atomic .{what}")


def _adding_f16(first: Lanes, x: Lanes, y: Lanes) -> Lanes:
    """A run of sums of float16: NumPy rounds each; NaNs become the one that PTX names."""
    halves = np.concatenate((first, x)).view(np.float16)
    sums = floats.narrow_f16(np.add.accumulate(halves, dtype=np.float16))
    sums[:1] = first
    return sums


# how many elements a vector of each type may have; and what is done to them
VECTORS = {"f32": (2, 4), "f16": (2, 4, 8), "bf16": (2, 4, 8), "f16x2": (2, 4), "bf16x2": (2, 4)}
OF_VECTORS = ("add", "min", "max")


@RULES.on("atom", "red")
def atomic(code: Code) -> Step:
    """`atom` and `red`: read, change and write, one thread after the other; of vectors element by element."""
    has_policy = claim_hints(code)
    name = take_space(code)
    what = code.take(*OPERATIONS)
    if not what:
        raise code.refuse(f"expected one of .{', .'.join(OPERATIONS)}")
    code.flag("noftz")
    count, type_ = vector_of(code), code.type(*TYPES)
    if count > 1:
        _check_vector(code, what, count, type_, name)
    operands = code.operands if code.instruction.opcode == "atom" else [Discard(), *code.operands]
    if has_policy:
        operands = operands[:-1]
    if len(operands) != (4 if what == "cas" else 3):
        raise code.refuse(f".{what} takes {2 if what == 'cas' else 1} values after the address")
    where, at_of = space_of(code, name, operands[1]), address_of(code, operands[1])
    wants_old = not isinstance(operands[0], Discard) and code.is_read(operands[0])
    targets = code.parts(operands[0], count) if wants_old else [Discard()] * count
    b = [code.slot(part, type_) for part in code.parts(operands[2], count)]
    c = code.slot(operands[3], type_) if what == "cas" else b[0]
    writes = [code.writer(code.destination(target, type_)) if wants_old else None for target in targets]
    operation = operation_of(code, what, type_)
    select, instruction = code.select(), code.instruction
    size = type_.size_bytes
    sums = what == "add" and type_.is_integer

    def element(registers: Registers, batch: Batch, lanes: Lanes | None, at: Lanes, number: int) -> Lanes:
        x, y = (of_lanes(registers[slot], lanes, batch.count) for slot in (b[number], c))
        work = Conflicts(batch, where, lanes, at, type_)
        if work.is_distinct:
            old = work.load()
            work.store(operation.update(old, x, y))
        elif operation.at_once is not None and not wants_old:
            old = x
            work.all_at_once(operation.at_once, x)
        elif sums:
            old = work.running_sums(x)
        else:
            old = work.in_turns(operation, x, y)
        return old

    def step(registers: Registers, group: Group) -> None:
        batch, lanes = group.batch, select(registers, group)
        if lanes is not None and not len(lanes):
            return
        at = of_lanes(at_of(registers), lanes, batch.count)
        old = []
        try:
            check_alignment(at, size * count)
            for number in range(count):
                place = at + np.uint64(size * number) if number else at
                old.append(element(registers, batch, lanes, place, number))
        except BadAccess as bad:
            raise group.fault(bad, instruction, f"atomic of {size * count} bytes", lanes) from None
        for write, found in zip(writes, old):
            if write is not None:
                write(registers, group, to_all(found, lanes, batch.count))

    return step


def _check_vector(code: Code, what: str, count: int, type_: Type, space: str) -> None:
    is_known = count in VECTORS.get(type_.name, ()) and what in (
        OF_VECTORS if type_.name != "f32" else ("add",)
    )
    if not is_known:
        raise code.refuse(f"there is no atomic .{what} of .v{count}.{type_.name}")
    if space not in ("global", ""):
        raise code.refuse("vector atomics are for global memory")


class Conflicts:
    """Which threads meet at which address."""

    def __init__(
        self, batch: Batch, where: spaces.Space, lanes: Lanes | None, at: Lanes, type_: Type
    ) -> None:
        self.batch = batch
        self.where = where
        self.lanes = batch.every_lane if lanes is None else lanes
        self.at = at
        self.type = type_

    @functools.cached_property
    def queues(self) -> contended_atomics.Queues:
        """The threads of each address."""
        return contended_atomics.Queues(self.at if self.where.is_shared_by_all else self.at ^ self._owner())

    @property
    def is_distinct(self) -> bool:
        """Whether no two threads meet."""
        return len(self.at) == 1 or self.queues.is_distinct

    def _owner(self) -> Lanes:
        """A number in the upper bits that tells apart equal addresses of different blocks and threads."""
        batch = self.batch
        block = batch.block_of_lane[self.lanes]
        if batch.clusters is not None:  # whose blocks have addresses of their own
            block = block // batch.clusters.size
        blocks = (block.astype(np.uint64) + np.uint64(1)) << np.uint64(40)
        threads = (self.lanes.astype(np.uint64) + np.uint64(1)) << np.uint64(40)
        if self.where is spaces.SHARED:
            return blocks
        if self.where is spaces.LOCAL:
            return threads
        inside = np.uint64(spaces.WINDOW_BYTES)
        is_shared = spaces.in_shared(batch, self.at)
        is_local = (self.at - np.uint64(batch.local_window)) < inside
        return np.where(is_shared, blocks, np.where(is_local, threads | np.uint64(1 << 63), np.uint64(0)))

    def load(self, chosen: Lanes | None = None) -> Lanes:
        """What stands at the addresses of all threads, or of these."""
        if chosen is None:
            return self.where.load(self.batch, self.lanes, self.at, self.type.bits, 1)
        try:
            return self.where.load(self.batch, self.lanes[chosen], self.at[chosen], self.type.bits, 1)
        except BadAccess as bad:
            raise BadAccess(int(chosen[bad.index]), bad.address, bad.why, bad.misaligned, bad.space) from None

    def store(self, values: Lanes, chosen: Lanes | None = None) -> None:
        """Write the values of all threads, or of these."""
        lanes, at = (self.lanes, self.at) if chosen is None else (self.lanes[chosen], self.at[chosen])
        self.where.store(self.batch, lanes, at, values)

    def all_at_once(self, function: Any, values: Lanes) -> None:
        """For functions that need no old values: one result per address, in order."""
        firsts = self.queues.firsts
        scalar = self.type.scalar
        found = self.load(firsts).view(scalar)
        function.at(found, self.queues.places, np.ascontiguousarray(values[self.queues.order]).view(scalar))
        self.store(found.view(self.type.bits), firsts)

    def running_sums(self, values: Lanes) -> Lanes:
        """Integer add: what each thread sees is the sum of those before it."""
        queues = self.queues
        order, starts, places, firsts = queues.order, queues.starts, queues.places, queues.firsts
        ordered = values[order]
        upto = np.cumsum(ordered, dtype=self.type.bits)
        before = upto - ordered
        found = self.load(firsts)
        seen = found[places] + (before - before[starts][places])
        lasts = starts + queues.counts - 1
        self.store(seen[lasts] + ordered[lasts], firsts)
        old = np.empty_like(seen)
        old[order] = seen
        return old

    def in_turns(self, operation: Operation, x: Lanes, y: Lanes) -> Lanes:
        """What each thread found when those before it at its address had been served."""
        firsts = self.queues.firsts
        old, at_the_end = self.queues.serve(self.load(firsts), x, y, operation.update, operation.run)
        self.store(at_the_end, firsts)
        return old
