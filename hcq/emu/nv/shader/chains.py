"""Chains: how long each run of instructions of a kernel keeps one warp waiting, seen from its text.

In       the basic blocks of a function
Out      for each block a Chain: instructions to issue by pipe, and waits: clocks of arithmetic, loads that are
         waited for
Next     counters.py (counts a block's chain each time that warps run it), sass_weights.py (what ptxas makes of PTX),
         hcq/performance/model/waiting.py (what waits cost on a chip), ../../amd/shader/chains.py (the sister)
Source   in-order issue, results by scoreboard: Z. Jia et al., Dissecting the NVIDIA Volta GPU Architecture (2018)

A block is scheduled as a compiler does it: an instruction starts when what it reads is there, a load not before a store
or a barrier that stands before it. A load that nobody in the block reads is waited for where it is read. Loops are
walked twice, so that what a round asks for and the next one reads is waited for only as far as the round does not hide
it. How long a load takes is not known here: NOMINAL clocks place the instructions, and a wait counts as a part of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hcq.emu.nv.shader import flow
from hcq.emu.nv.shader.flow import BasicBlock
from hcq.emu.nv.shader.sass_weights import Cost, cost_of
from hcq.emu.nv.shader.syntax import Address, Immediate, Instruction

# what a wait is for -> clocks that place the instructions behind it; of what bounds a kernel, none is left to guess
NOMINAL = {"global": 500.0, "shared": 28.0, "atomic": 600.0, "copy": 500.0}
UNROLLED, SHORT = (
    4,
    48,
)  # rounds; instructions of a body: ptxas 13 makes sixteen rounds of a loop of four (nvdisasm)
MOST_VISITS = 60  # of a block on average: loops in loops in loops are walked no further


@dataclass
class Chain:
    """One run of a block by one warp.

    ops      pipe -> instructions of machine code that it issues there
    waits    "clocks" -> of arithmetic that follows from arithmetic; words of NOMINAL -> how often that is waited for
    """

    ops: dict[str, int] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)


@dataclass
class _Ready:
    """When a register has its value, and what was waited for on the way there, since the block began."""

    at: float
    path: dict[str, float]


def chains_of(blocks: list[BasicBlock], merged: Mapping[int, int]) -> list[Chain]:
    """For each block, in order. merged: see merged_loads.py."""
    walk = _Walk(merged)
    made = [Chain() for _ in blocks]
    for number in _order(blocks):
        made[number] = walk.block(blocks[number])
    return made


def _order(blocks: list[BasicBlock]) -> Iterator[int]:
    """Numbers of blocks as a warp comes to them: a loop twice, those in it twice each time."""
    turned: set[int] = set()
    number = visits = 0
    while number < len(blocks):
        yield number
        visits += 1
        back = [to for to in blocks[number].next if to <= number]
        if back and number not in turned and visits < MOST_VISITS * len(blocks):
            turned.add(number)
            turned -= {other for other in turned if min(back) <= other < number}
            number = min(back)
        else:
            number += 1


class _Walk:
    """A warp that goes through the text."""

    def __init__(self, merged: Mapping[int, int]) -> None:
        self.merged = merged
        self.ready: dict[str, _Ready] = {}
        self.groups: list[_Ready] = []  # of cp.async, committed
        self.copied: _Ready | None = None  # asked for since the last commit

    def block(self, block: BasicBlock) -> Chain:
        """Issue a block. Times are since its begin; what is not ready by then is waited for."""
        ops: dict[str, int] = {}
        zero = _Ready(0.0, {})
        floors = {"global": zero, "shared": zero}
        last, issued = zero, 0
        fused = _fused(block.body)
        own = [*block.body, *([block.end] if block.end is not None else [])]
        rounds = _rounds(block)
        for one in own * rounds:
            cost = cost_of(one)
            if id(one) in fused:
                cost = Cost(cost.pipe, 0, 0.0)
            elif self.merged.get(id(one)) == 0:
                cost = Cost(cost.pipe, 0, cost.clocks, cost.awaits)
            reads, writes = flow.reads_and_writes(one)
            start = zero
            for name in reads:
                known = self.ready.get(name)
                if known is not None and known.at > start.at:
                    start = known
            start = self._ordered(one, start, floors)
            if cost.issues:
                ops[cost.pipe] = ops.get(cost.pipe, 0) + cost.issues
                issued += cost.issues + cost.beside
            if cost.beside:
                ops["fma"] = ops.get("fma", 0) + cost.beside
            result = _after(start, cost)
            for name in writes:
                self.ready[name] = result
            self._copies(one, start, result)
            if start.at > last.at:
                last = start
        self._shift(last.at)
        # a warp issues an instruction a clock at most
        waits = {name: often / rounds for name, often in last.path.items()}
        waits["clocks"] = max(waits.get("clocks", 0.0), issued / rounds)
        return Chain({name: count // rounds for name, count in ops.items()}, waits)

    def _ordered(self, one: Instruction, start: _Ready, floors: dict[str, _Ready]) -> _Ready:
        """Not before the stores that stand before it; a wait for copies, not before they are there."""
        space = space_of(one)
        if space and one.opcode in ("ld", "ldmatrix") and "nc" not in one.modifiers:
            start = max(start, floors[space], key=lambda each: each.at)
        elif space and one.opcode in ("st", "stmatrix", "atom", "red"):
            start = max(start, floors[space], key=lambda each: each.at)
            floors[space] = start
        elif one.opcode == "cp" and {"wait_group", "wait_all"} & set(one.modifiers):
            start = max(start, self._awaited(one), key=lambda each: each.at)
            for name in floors:
                floors[name] = start
        elif one.opcode in ("membar", "fence"):
            for name in floors:
                floors[name] = max(start, floors[name], key=lambda each: each.at)
        return start

    def _awaited(self, one: Instruction) -> _Ready:
        left = 0
        if "wait_group" in one.modifiers and one.operands and isinstance(one.operands[0], Immediate):
            left = one.operands[0].value
        done = self.groups[: len(self.groups) - left] if left else self.groups
        return max(done, default=_Ready(0.0, {}), key=lambda each: each.at)

    def _copies(self, one: Instruction, start: _Ready, result: _Ready) -> None:
        """Asynchronous copies are on their way until a wait for their group."""
        if one.opcode != "cp" or "async" not in one.modifiers or "bulk" in one.modifiers:
            return
        if "commit_group" in one.modifiers:
            self.groups.append(self.copied or start)
            self.groups = self.groups[-16:]
            self.copied = None
        elif one.operands:
            self.copied = result

    def _shift(self, passed: float) -> None:
        """The next block begins: what is still under way counts as a part of its wait."""
        self.ready = {name: each for name, old in self.ready.items() if (each := _left(old, passed)).at > 0}
        self.groups = [_left(one, passed) for one in self.groups]
        self.copied = None if self.copied is None else _left(self.copied, passed)


def _rounds(block: BasicBlock) -> int:
    """Of a loop that is one short block, ptxas makes a longer one of several rounds; not of one with atomics."""
    is_loop = block.number in block.next and block.skip_guard is None
    has_atomics = any(one.opcode in ("atom", "red") for one in block.body)
    return UNROLLED if is_loop and not has_atomics and len(block.body) <= SHORT else 1


def _left(one: _Ready, passed: float) -> _Ready:
    left = one.at - passed
    if left <= 0:
        return _Ready(0.0, {})
    kind = max(NOMINAL, key=lambda name: one.path.get(name, 0.0))
    if left <= one.path.get("clocks", 0.0) or not one.path.get(kind):
        return _Ready(left, {"clocks": left})
    return _Ready(left, {kind: left / NOMINAL[kind]})


def _after(start: _Ready, cost: Cost) -> _Ready:
    if cost.awaits:
        path = {**start.path, cost.awaits: start.path.get(cost.awaits, 0.0) + 1.0}
        return _Ready(start.at + NOMINAL[cost.awaits], path)
    if not cost.clocks:
        return start
    path = {**start.path, "clocks": start.path.get("clocks", 0.0) + cost.clocks}
    return _Ready(start.at + cost.clocks, path)


def _fused(body: list[Instruction]) -> set[int]:
    """Sums that ptxas makes part of the product or shift before them: addresses of elements."""
    products: set[str] = set()
    found: set[int] = set()
    for one in body:
        wide = one.opcode == "mul" and "wide" in one.modifiers
        if wide or (one.opcode == "shl" and "b64" in one.modifiers):
            products.update(flow.reads_and_writes(one)[1])
        elif one.opcode == "add" and {"s64", "u64"} & set(one.modifiers):
            reads = set(flow.reads_and_writes(one)[0])
            if reads & products or len(reads) < 2:
                found.add(id(one))
                products -= reads
    return found


def space_of(one: Instruction) -> str:
    """ "global" or "shared", of an instruction that loads or stores there; "" for all others."""
    if not any(isinstance(operand, Address) for operand in one.operands):
        return ""
    words = {word.partition("::")[0] for word in one.modifiers}
    if "shared" in words or one.opcode in ("ldmatrix", "stmatrix"):
        return "shared"
    if one.opcode in ("ld", "ldu", "st", "atom", "red") and not words & {"param", "const", "local"}:
        return "global"
    return ""
