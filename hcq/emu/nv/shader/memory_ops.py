"""Loads, stores, copies to shared memory, and what orders them.

In       Code with an [address]
Out      steps that gather and scatter for the threads that execute
Changes  memory, through spaces.py
Next     atomic_ops.py, spaces.py, bulk_ops.py (cp with .bulk)
Source   PTX ISA, "ld", "st", "cp.async", "membar/fence"

One instruction runs to its end for all threads before the next begins, so caches, orders and scopes change nothing:
they are claimed and change nothing. Of several threads that store to one address, the one with the highest number wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.syntax import Immediate, Operand, Symbol
from hcq.emu.nv.shader.thread_copies import ALL
from hcq.emu.nv.shader.types import TYPES, Lanes, Type

RULES = Rules()
ORDERS = ("weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "sc", "mmio")
SCOPES = ("cta", "cluster", "gpu", "sys")
CACHING = (
    "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified", "L1::evict_normal", "L1::evict_unchanged",
    "L1::evict_first", "L1::evict_last", "L1::no_allocate", "L2::evict_normal", "L2::evict_first", "L2::evict_last",
    "L2::64B", "L2::128B", "L2::256B", "L2::cache_hint",
)  # fmt: skip
SPACE_NAMES = (
    "global", "const", "local", "shared", "shared::cta", "shared::cluster", "param", "param::entry", "param::func",
)  # fmt: skip
PRIORITIES = ("L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged")
SECOND_PRIORITIES = ("L2::evict_first", "L2::evict_unchanged")
FEW = 2048
Address = Callable[[Registers], Lanes]


def claim_hints(code: Code) -> bool:
    """Claim orders, scopes and cache hints; whether a cache policy operand follows."""
    has_policy = "L2::cache_hint" in code.rest
    while code.take(*ORDERS, *SCOPES, *CACHING):
        pass
    return has_policy


def take_space(code: Code) -> str:
    """The state space among the modifiers, claimed; "" for generic addresses."""
    return code.take(*SPACE_NAMES).partition("::")[0]


def space_of(code: Code, name: str, operand: Operand) -> spaces.Space:
    """The space that an access is in; .param is the launch's parameters in a kernel, local memory in a function."""
    if name != "param":
        return spaces.BY_NAME[name]
    address, _ = code.address(operand)
    lowering = code.lowering
    if isinstance(address.base, Symbol) and address.base.name in lowering.decoded.offsets:
        return spaces.LOCAL
    return spaces.PARAMS if lowering.function.is_entry else spaces.LOCAL


def address_of(code: Code, operand: Operand) -> Address:
    """The addresses of an [address] operand, as uint64."""
    address, slot = code.address(operand)
    is_short = code.lowering.decoded.first[slot].dtype == np.uint32
    if not is_short and not address.offset:
        return lambda registers: registers[slot]
    if is_short:
        signed = np.int64(address.offset)
        return lambda registers: (registers[slot].astype(np.int64) + signed).view(np.uint64)
    offset = np.uint64(address.offset % 2**64)
    return lambda registers: registers[slot] + offset


def check_alignment(at: Lanes, size: int) -> None:
    """Raise BadAccess for the first address that is no multiple of the size."""
    if size > 1 and len(at) and int(np.bitwise_or.reduce(at)) & (size - 1):
        index = int(np.argmax((at & np.uint64(size - 1)) != 0))
        why = f"not a multiple of {size}"
        raise BadAccess(index, int(at[index]), why, misaligned=True)


def of_lanes(values: Lanes, lanes: Lanes | None, count: int) -> Lanes:
    """One value for each of these threads, from an array for all threads or a value that all share."""
    if len(values) == 1:
        wanted = count if lanes is None else len(lanes)
        if wanted == 1:
            return values
        # a repeated value is made quicker where there are few, a broadcast one where there are many
        return values.repeat(wanted) if wanted < FEW else np.broadcast_to(values, (wanted,))
    return values if lanes is None else values[lanes]


def to_all(values: Lanes, lanes: Lanes | None, count: int) -> Lanes:
    """The opposite: values of these threads, with zeros for all others."""
    if lanes is None:
        return values
    found = np.zeros(count, values.dtype)
    found[lanes] = values
    return found


def vector_of(code: Code) -> int:
    """How many elements `.v2`, `.v4`, `.v8` move; 1 without."""
    vector = code.take("v2", "v4", "v8")
    return int(vector[1:]) if vector else 1


def fit(type_: Type, register: type) -> Callable[[Lanes], Lanes] | None:
    """Extend a loaded value to the register; None when it fits as it is."""
    if register == type_.bits:
        return None
    if type_.kind == "s":
        wide = np.dtype(f"i{np.dtype(register).itemsize}").type
        return lambda x: x.view(type_.scalar).astype(wide).view(register)
    return lambda x: x.astype(register)


def access_of(code: Code, address: int, data: int) -> tuple[spaces.Space, Address, Type, list[Operand]]:
    """What ld and st have in common: space, addresses, type and registers. address, data: which operands they are."""
    has_policy = claim_hints(code)
    name = take_space(code)
    count = vector_of(code)
    type_ = code.type(*TYPES)
    code.expect(3 if has_policy else 2)
    place = code.operands[address]
    return space_of(code, name, place), address_of(code, place), type_, code.parts(code.operands[data], count)


@RULES.on("ld", "ldu")
def load(code: Code) -> Step:
    """`ld` and `ldu`, from any space."""
    where, at_of, type_, parts = access_of(code, 1, 0)
    slots = [code.destination(part, type_, is_wide=True) for part in parts]
    writes = [code.writer(slot) for slot in slots]
    fits = [fit(type_, code.lowering.decoded.first[slot].dtype.type) for slot in slots]
    select, instruction = code.select(), code.instruction
    count, bits, size = len(parts), type_.bits, type_.size_bytes * len(parts)
    is_common = where.is_shared_by_all

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        at, lanes = at_of(registers), select(registers, group)
        if lanes is not None and not len(lanes):
            return
        is_one = is_common and len(at) == 1
        if not is_one:
            at = of_lanes(at, lanes, batch.count)
        try:
            check_alignment(at, size)
            values = where.load(batch, lanes, at, bits, count)
        except BadAccess as bad:
            raise group.fault(bad, instruction, f"load of {size} bytes", None if is_one else lanes) from None
        for i, write in enumerate(writes):
            value = values if count == 1 else values[:, i]
            extend = fits[i]
            if extend is not None:
                value = extend(np.ascontiguousarray(value))
            elif count > 1:
                value = np.ascontiguousarray(value)
            write(registers, group, value if is_one else to_all(value, lanes, batch.count))

    return step


@RULES.on("st")
def store(code: Code) -> Step:
    """`st`, to any space."""
    where, at_of, type_, parts = access_of(code, 0, 1)
    slots = [code.slot(part, type_, is_wide=True) for part in parts]
    select, instruction = code.select(), code.instruction
    count, bits, size = len(parts), type_.bits, type_.size_bytes * len(parts)
    is_common = where.is_shared_by_all

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        at, lanes = at_of(registers), select(registers, group)
        if lanes is not None and not len(lanes):
            return
        if is_common and len(at) == 1:  # one address for all: only the last thread's value stays
            lanes = np.array([batch.count - 1 if lanes is None else lanes[-1]])
        at = of_lanes(at, lanes, batch.count)
        values = [of_lanes(registers[slot], lanes, batch.count).astype(bits, copy=False) for slot in slots]
        data = values[0] if count == 1 else np.stack(values, axis=1)
        try:
            check_alignment(at, size)
            where.store(batch, lanes, at, data)
        except BadAccess as bad:
            raise group.fault(bad, instruction, f"store of {size} bytes", lanes) from None

    return step


def _nothing(registers: Registers, group: Group) -> None:
    """An instruction that orders or hints: nothing to do when everything is in order already."""


@RULES.on("membar", "fence")
def fence(code: Code) -> Step:
    """`membar` and `fence`: nothing to do, for every access is finished when the next begins."""
    code.take("proxy")
    is_of_map = "tensormap::generic" in code.rest and "acquire" in code.rest
    while code.take(
        "gl", "alias", "async", "async::generic", "tensormap::generic", "global", "shared::cta", "shared::cluster",
        "mbarrier_init", "sync_restrict::shared::cluster", "sync_restrict::shared::cta",
    ):  # fmt: skip
        pass
    claim_hints(code)
    code.expect(2 if is_of_map else 0)
    return _nothing


@RULES.on("prefetch", "prefetchu", "discard", "applypriority", "nanosleep", "griddepcontrol", "pmevent")
def hint(code: Code) -> Step:
    """Hints about caches and time: their operands are decoded, nothing happens."""
    code.rest.clear()
    return _nothing


@RULES.on("createpolicy")
def create_policy(code: Code) -> Step:
    """How a cache should treat accesses: an opaque number for `.L2::cache_hint`, which does nothing here. It is 0."""
    how = code.take("range", "fractional", "cvt")
    if not how:
        raise code.refuse("expected createpolicy.range, .fractional or .cvt")
    if how == "range":
        code.flag("global")
    if not (code.flag("L2") if how == "cvt" else code.take(*PRIORITIES)):
        raise code.refuse("expected .L2" if how == "cvt" else f"expected one of .{', .'.join(PRIORITIES)}")
    if how != "cvt":
        code.take(*SECOND_PRIORITIES)
    b64 = code.type("b64")
    code.expect(*{"range": (4,), "fractional": (1, 2), "cvt": (2,)}[how])
    if how == "range":
        code.address(code.operands[1]), code.source(2, TYPES["u32"]), code.source(3, TYPES["u32"])
    elif len(code.operands) == 2:
        code.source(1, b64 if how == "cvt" else TYPES["f32"])
    write, policy = code.result(b64), np.zeros(1, b64.bits)
    return lambda registers, group: write(registers, group, policy)


def _threads(batch: Batch, lanes: Lanes | None) -> Lanes:
    """The numbers that these lanes have in the whole batch."""
    return batch.local_row if lanes is None else batch.local_row[lanes]


class Groups(NamedTuple):
    """What `cp.async` says of groups: wait until so many are pending (ALL: see there); None: one ends."""

    pending: int | None


def groups_of(code: Code) -> Groups | None:
    """The words of `cp.async.commit_group` and of waits; None where it copies."""
    if code.flag("commit_group"):
        code.expect(0)
        return Groups(None)
    if code.flag("wait_all"):
        code.expect(0)
        return Groups(ALL)
    if not code.flag("wait_group"):
        return None
    code.expect(1)
    operand = code.operands[0]
    if not isinstance(operand, Immediate) or operand.value < 0:
        raise code.refuse("the groups that may be pending are a number from 0 on")
    return Groups(operand.value)


def _of_groups(code: Code, groups: Groups) -> Step:
    select, pending = code.select(), groups.pending

    def commit(registers: Registers, group: Group) -> None:
        batch = group.batch
        batch.thread_copies.commit(_threads(batch, select(registers, group)))

    def wait(registers: Registers, group: Group) -> None:
        assert pending is not None
        wait_for_copies(group.batch, select(registers, group), pending)

    return commit if pending is None else wait


def wait_for_copies(batch: Batch, lanes: Lanes | None, pending: int = ALL) -> None:
    """These lanes wait for what they copy by cp.async."""
    batch.thread_copies.wait(_threads(batch, lanes), pending)


class AsyncCopy(NamedTuple):
    """What `cp.async` copies. limit: the slot of how many bytes are really read, the rest is zero; None: all."""

    to: Callable[[Registers], Lanes]
    source: Callable[[Registers], Lanes]
    size: int
    limit: int | None


def async_copy_of(code: Code) -> AsyncCopy:
    """The words of a `cp.async`, behind its name. Raises PtxError."""
    has_policy = claim_hints(code)
    if not code.take("shared", "shared::cta", "shared::cluster") or not code.flag("global"):
        raise code.refuse("expected cp.async.ca.shared.global [to], [from], bytes")
    code.expect(*((4, 5) if has_policy else (3, 4)))
    to, source = address_of(code, code.operands[0]), address_of(code, code.operands[1])
    u32 = TYPES["u32"]
    size = int(code.lowering.decoded.first[code.source(2, u32)][0])
    if size not in (4, 8, 16):
        raise code.refuse(f"cp.async copies 4, 8 or 16 bytes, not {size}")
    has_limit = len(code.operands) == (5 if has_policy else 4)
    return AsyncCopy(to, source, size, code.source(3, u32) if has_limit else None)


def copy_async(code: Code) -> Step:
    """cp.async: global memory is read at once, and shared memory has it when the thread waits for it."""
    groups = groups_of(code)
    if groups is not None:
        return _of_groups(code, groups)
    to, source, size, limit = async_copy_of(code)
    if limit is None:
        limit = code.lowering.constant(size, np.uint32)
    select, instruction = code.select(), code.instruction

    def step(registers: Registers, group: Group) -> None:
        batch, lanes = group.batch, select(registers, group)
        if lanes is not None and not len(lanes):
            return
        goal, start = (of_lanes(at(registers), lanes, batch.count) for at in (to, source))
        keep = of_lanes(registers[limit], lanes, batch.count)
        data = np.zeros((len(start), size), np.uint8)
        reading = np.flatnonzero(keep > 0)
        who = reading if lanes is None else lanes[reading]
        try:
            check_alignment(start[reading], size)
            if (keep[reading] == size).all():
                data[reading] = spaces.GLOBAL.load(batch, who, start[reading], np.uint8, size)
            else:
                for i in range(size):
                    some = reading[keep[reading] > i]
                    at = start[some] + np.uint64(i)
                    data[some, i] = spaces.GLOBAL.load(batch, who, at, np.uint8, 1)
        except BadAccess as bad:
            raise group.fault(bad, instruction, f"load of {size} bytes", who) from None
        try:
            check_alignment(goal, size)
            memory, index = spaces.SHARED.index(batch, lanes, goal, size)
            rows = memory.view(np.uint8)[: len(memory) // size * size].reshape(-1, size)
            batch.thread_copies.issue(_threads(batch, lanes), rows, index, data)
        except BadAccess as bad:
            raise group.fault(bad, instruction, f"store of {size} bytes", lanes) from None

    return step
