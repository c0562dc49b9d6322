"""Warps: shuffles, votes, matches, reductions over the 32 threads that run together.

In       Code; lanes of the batch are numbered so that 32 in a row are a warp
Out      steps
Next     flow.py (these begin a block), machine.py (threads wait there for the rest of their warp)
Source   PTX ISA, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "elect.sync", "activemask"
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.nv.shader import floats
from hcq.emu.nv.shader.batch import WARP
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.groups import Group, active_bits, ballots, by_warp
from hcq.emu.nv.shader.types import TYPES, Lanes
from hcq.emu.shader.bits import lowest_bit

RULES = Rules()
PRED, U32, B32 = TYPES["pred"], TYPES["u32"], TYPES["b32"]


@RULES.on("shfl")
def shuffle(code: Code) -> Step:
    """`shfl.sync`: a value from another lane, and whether there was one."""
    if not code.flag("sync"):
        raise code.refuse("shfl without .sync ended with sm_70")
    mode = code.take("up", "down", "bfly", "idx")
    code.type("b32")
    code.expect(5)
    first, second = code.pair(code.operands[0])
    a, b, c = code.source(1, B32), code.source(2, B32), code.source(3, B32)
    write = code.writer(code.destination(first, B32))
    write_found = None if second is None else code.writer(code.destination(second, PRED))

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        lane = batch.lane_in_warp
        by = (registers[b] & np.uint32(31)).astype(np.int64)
        clamp = registers[c].astype(np.int64)
        segment = (clamp >> 8) & 31
        last = (lane & segment) | (clamp & 31 & ~segment)
        if mode == "up":
            source = lane - by
            found = source >= last
        elif mode == "down":
            source = lane + by
            found = source <= last
        elif mode == "bfly":
            source = lane ^ by
            found = source <= last
        else:
            source = (lane & segment) | (by & ~segment)
            found = source <= last
        source = np.where(found, source, lane)
        values = np.broadcast_to(registers[a], (batch.count,))
        write(registers, group, values[batch.warp_start + source])
        if write_found is not None:
            write_found(registers, group, found)

    return step


@RULES.on("vote")
def vote(code: Code) -> Step:
    """`vote.sync`: one answer from the predicates of a warp."""
    if not code.flag("sync"):
        raise code.refuse("vote without .sync ended with sm_70")
    what = code.take("all", "any", "uni", "ballot")
    type_ = code.type("pred", "b32")
    code.expect(3)
    truth, members = code.predicate(code.operands[1]), code.source(2, B32)
    write = code.result(type_)

    def step(registers: Registers, group: Group) -> None:
        asked = registers[members] & active_bits(group)
        found = ballots(truth(registers), group.batch) & asked
        answers: dict[str, Callable[[], Lanes]] = {
            "ballot": lambda: found,
            "any": lambda: found != 0,
            "all": lambda: found == asked,
            "uni": lambda: (found == asked) | (found == 0),
        }
        write(registers, group, answers[what]())

    return step


@RULES.on("activemask")
def activemask(code: Code) -> Step:
    """`activemask`: the lanes that run together now."""
    code.type("b32")
    code.expect(1)
    write = code.result(B32)
    return lambda registers, group: write(registers, group, active_bits(group))


@RULES.on("elect")
def elect(code: Code) -> Step:
    """The lowest executing thread of the mask is the leader."""
    code.flag("sync")
    code.expect(2)
    first, second = code.pair(code.operands[0])
    if second is None:
        raise code.refuse("elect.sync gives d|p")
    members = code.source(1, B32)
    write, write_leader = (
        code.writer(code.destination(first, B32)),
        code.writer(code.destination(second, PRED)),
    )

    def step(registers: Registers, group: Group) -> None:
        asked = registers[members] & active_bits(group)
        lowest = lowest_bit(asked)
        write(registers, group, lowest.astype(np.uint32))
        write_leader(registers, group, group.batch.lane_in_warp == lowest)

    return step


@RULES.on("match")
def match(code: Code) -> Step:
    """Which threads of the mask have the same value."""
    what = code.take("any", "all")
    code.flag("sync")
    type_ = code.type("b32", "b64")
    code.expect(3)
    first, second = code.pair(code.operands[0])
    a, members = code.source(1, type_), code.source(2, B32)
    write = code.writer(code.destination(first, B32))
    write_all = None if second is None else code.writer(code.destination(second, PRED))

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        values = by_warp(registers[a], batch)
        same = values[:, :, None] == values[:, None, :]
        bits = np.packbits(same, axis=2, bitorder="little").view(np.uint32).reshape(-1)
        asked = registers[members] & active_bits(group)
        found = bits & asked
        if what == "any":
            write(registers, group, found)
            return
        agree = found == asked
        write(registers, group, np.where(agree, asked, np.uint32(0)))
        if write_all is not None:
            write_all(registers, group, agree)

    return step


def _signed_zero(found: Lanes, table: Lanes, what: str) -> Lanes:
    """Of both zeros -0 is the less."""
    zeros = table == 0
    is_negative = (zeros & np.signbit(table)).any(axis=2)
    is_positive = (zeros & ~np.signbit(table)).any(axis=2)
    zero = np.where(
        is_negative if what == "min" else ~is_positive, found.dtype.type(-0.0), found.dtype.type(0)
    )
    return np.where(found == 0, zero, found)


REDUCTIONS: dict[str, Callable[..., Lanes]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
NEUTRAL = {"add": 0, "or": 0, "xor": 0, "and": -1}


@RULES.on("redux")
def redux(code: Code) -> Step:
    """`redux.sync`: one value from those of a warp."""
    code.flag("sync")
    what = code.take(*REDUCTIONS)
    by_size, propagate = code.flag("abs"), code.flag("NaN")
    type_ = code.type("u32", "s32", "b32", "f32")
    code.expect(3)
    if what not in REDUCTIONS or (type_.is_float and what not in ("min", "max")):
        raise code.refuse(f"redux.sync has no .{what} for .{type_.name}")
    a, members = code.source(1, type_), code.source(2, B32)
    write = code.result(type_)
    scalar = type_.scalar
    combine = REDUCTIONS[what]
    if type_.is_float:
        combine = {"min": np.minimum if propagate else np.fmin, "max": np.maximum if propagate else np.fmax}[
            what
        ]
        # a NaN is passed over, unless there is nothing else
        neutral = scalar((np.inf if what == "min" else -np.inf) if propagate else np.nan)
    elif what in NEUTRAL:
        neutral = scalar(NEUTRAL[what] % 2**32) if type_.kind != "s" else scalar(NEUTRAL[what])
    else:
        neutral = scalar(np.iinfo(scalar).max if what == "min" else np.iinfo(scalar).min)

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        values = np.ascontiguousarray(by_warp(registers[a], batch)).view(scalar)
        if by_size:
            values = np.abs(values)
        asked = by_warp(registers[members] & active_bits(group), batch)
        # thread i takes part for thread j when j's mask names i
        takes_part = (asked[:, :, None] >> np.arange(WARP, dtype=np.uint32)) & np.uint32(1)
        table = np.where(takes_part != 0, values[:, None, :], neutral)
        found = combine.reduce(table, axis=2).astype(scalar)  # type: ignore[attr-defined]
        if type_.is_float:
            found = floats.canonical(_signed_zero(found, table, what))
        write(registers, group, found.reshape(-1).view(np.uint32))

    return step
