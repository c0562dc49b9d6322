"""Atomics: atom and red, in the order of the threads' numbers.

In       Code with an [address] and one or two values
Out      steps that read, compute and write memory as if one thread came after the other
Changes  memory, through spaces.py
Next     memory_ops.py
Source   PTX ISA, "atom", "red"

Threads that meet at one address are served in order of their numbers, so that results are the same in every run. When
no old values are wanted, or they can be had from a running sum, all are served at once; else in rounds, one thread per
address and round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.nv.shader import floats, spaces
from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.errors import BadAccess
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
from hcq.emu.nv.shader.types import Lanes, Type

RULES = Rules()
Update = Callable[[Lanes, Lanes, Lanes], Lanes]  # (old bits, b, c) -> new bits
OPERATIONS = ("and", "or", "xor", "exch", "add", "inc", "dec", "min", "max", "cas")


def _update(code: Code, what: str, type_: Type) -> tuple[Update, Any]:
    """How memory changes; and the ufunc that does many at once, or None."""
    scalar, bits = type_.scalar, type_.bits
    if type_.is_float:
        read, pack = floats.reader(type_), floats.packer(type_)
        if what == "add":
            at_once = np.add if type_.name in ("f32", "f64") else None
            return lambda old, b, c: pack(read(old) + read(b)), at_once
        if what in ("min", "max"):
            nan_aware = np.fmin if what == "min" else np.fmax
            return lambda old, b, c: pack(nan_aware(read(old), read(b))), None
        if what == "exch":
            return lambda old, b, c: b, None
        raise code.refuse(f"floats have no atomic .{what}")
    if what in ("min", "max"):
        choose = np.minimum if what == "min" else np.maximum
        return lambda old, b, c: choose(old.view(scalar), b.view(scalar)).view(bits), choose
    table: dict[str, tuple[Update, Any]] = {
        "and": (lambda old, b, c: old & b, np.bitwise_and),
        "or": (lambda old, b, c: old | b, np.bitwise_or),
        "xor": (lambda old, b, c: old ^ b, np.bitwise_xor),
        "add": (lambda old, b, c: old + b, np.add),
        "exch": (lambda old, b, c: b, None),
        "cas": (lambda old, b, c: np.where(old == b, c, old), None),
        "inc": (lambda old, b, c: np.where(old >= b, bits(0), old + bits(1)), None),
        "dec": (lambda old, b, c: np.where((old == 0) | (old > b), b, old - bits(1)), None),
    }
    return table[what]


@RULES.on("atom", "red")
def atomic(code: Code) -> Step:
    """`atom` and `red`: read, change and write, one thread after the other."""
    if code.flag("async"):
        raise code.refuse("red.async is not emulated")
    claim_hints(code)
    name = take_space(code)
    what = code.take(*OPERATIONS)
    if not what:
        raise code.refuse(f"expected one of .{', .'.join(OPERATIONS)}")
    code.flag("noftz")
    if vector_of(code) > 1:
        raise code.refuse("vector atomics are not emulated")
    type_ = code.type()
    has_result = code.instruction.opcode == "atom"
    operands = code.operands if has_result else [Discard(), *code.operands]
    if len(operands) != (4 if what == "cas" else 3):
        raise code.refuse(f".{what} takes {2 if what == 'cas' else 1} values after the address")
    where, at_of = space_of(code, name, operands[1]), address_of(code, operands[1])
    b = code.slot(operands[2], type_)
    c = code.slot(operands[3], type_) if what == "cas" else b
    wants_old = not isinstance(operands[0], Discard)
    write = code.writer(code.destination(operands[0], type_)) if wants_old else None
    update, at_once = _update(code, what, type_)
    select, instruction = code.select(), code.instruction
    size = type_.size_bytes
    sums = what == "add" and type_.is_integer

    def step(registers: Registers, group: Group) -> None:
        batch, lanes = group.batch, select(registers, group)
        if lanes is not None and not len(lanes):
            return
        at = of_lanes(at_of(registers), lanes, batch.count)
        x, y = (of_lanes(registers[slot], lanes, batch.count) for slot in (b, c))
        try:
            check_alignment(at, size)
            work = Conflicts(batch, where, lanes, at, type_)
            if work.is_distinct:
                old = work.load()
                work.store(update(old, x, y))
            elif at_once is not None and not wants_old:
                old = x
                work.all_at_once(at_once, x)
            elif sums:
                old = work.running_sums(x)
            else:
                old = work.in_rounds(update, x, y)
        except BadAccess as bad:
            raise group.fault(bad, instruction, f"atomic of {size} bytes", lanes) from None
        if write is not None:
            write(registers, group, to_all(old, lanes, batch.count))

    return step


class Conflicts:
    """Which threads meet at which address. `order` sorts them by address, then by number."""

    def __init__(
        self, batch: Batch, where: spaces.Space, lanes: Lanes | None, at: Lanes, type_: Type
    ) -> None:
        self.batch = batch
        self.where = where
        self.lanes = batch.every_lane if lanes is None else lanes
        self.at = at
        self.type = type_
        keys = at if where.is_shared_by_all else at ^ self._owner()
        self.order = np.argsort(keys, kind="stable")
        ordered = keys[self.order]
        self.begins = np.ones(len(at), bool)
        np.not_equal(ordered[1:], ordered[:-1], out=self.begins[1:])
        self.is_distinct = bool(self.begins.all())

    def _owner(self) -> Lanes:
        """A number in the upper bits that tells apart equal addresses of different blocks and threads."""
        batch = self.batch
        blocks = (batch.block_of_lane[self.lanes].astype(np.uint64) + np.uint64(1)) << np.uint64(40)
        threads = (self.lanes.astype(np.uint64) + np.uint64(1)) << np.uint64(40)
        if self.where is spaces.SHARED:
            return blocks
        if self.where is spaces.LOCAL:
            return threads
        inside = np.uint64(spaces.WINDOW_BYTES)
        is_shared = (self.at - np.uint64(batch.shared_window)) < inside
        is_local = (self.at - np.uint64(batch.local_window)) < inside
        return np.where(is_shared, blocks, np.where(is_local, threads | np.uint64(1 << 63), np.uint64(0)))

    def load(self, chosen: Lanes | None = None) -> Lanes:
        """What stands at the addresses of all threads, or of these."""
        lanes, at = (self.lanes, self.at) if chosen is None else (self.lanes[chosen], self.at[chosen])
        return self.where.load(self.batch, lanes, at, self.type.bits, 1)

    def store(self, values: Lanes, chosen: Lanes | None = None) -> None:
        """Write the values of all threads, or of these."""
        lanes, at = (self.lanes, self.at) if chosen is None else (self.lanes[chosen], self.at[chosen])
        self.where.store(self.batch, lanes, at, values)

    def all_at_once(self, function: Any, values: Lanes) -> None:
        """For functions that need no old values: one result per address, in order."""
        firsts = self.order[self.begins]
        scalar = self.type.scalar
        found = self.load(firsts).view(scalar)
        places = np.cumsum(self.begins) - 1
        function.at(found, places, np.ascontiguousarray(values[self.order]).view(scalar))
        self.store(found.view(self.type.bits), firsts)

    def running_sums(self, values: Lanes) -> Lanes:
        """Integer add: what each thread sees is the sum of those before it."""
        firsts = self.order[self.begins]
        places = np.cumsum(self.begins) - 1
        ordered = values[self.order]
        upto = np.cumsum(ordered, dtype=self.type.bits)
        before = upto - ordered
        starts = np.flatnonzero(self.begins)
        found = self.load(firsts)
        seen = found[places] + (before - before[starts][places])
        lasts = np.append(starts[1:] - 1, len(ordered) - 1)
        self.store(seen[lasts] + ordered[lasts], firsts)
        old = np.empty_like(seen)
        old[self.order] = seen
        return old

    def in_rounds(self, update: Update, x: Lanes, y: Lanes) -> Lanes:
        """The first thread of every address, then the second of those that have one, ..."""
        starts = np.flatnonzero(self.begins)
        rank = np.arange(len(self.order)) - starts[np.cumsum(self.begins) - 1]
        by_rank = np.argsort(rank, kind="stable")
        bounds = np.searchsorted(rank[by_rank], np.arange(int(rank.max()) + 2))
        old = np.empty(len(self.at), self.type.bits)
        for low, high in zip(bounds[:-1], bounds[1:]):
            chosen = self.order[by_rank[low:high]]
            seen = self.load(chosen)
            old[chosen] = seen
            self.store(update(seen, x[chosen], y[chosen]), chosen)
        return old
