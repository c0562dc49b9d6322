"""Tiles in flight: what a matrix unit may still read is not copied over, and what it reads is there.

The emulator multiplies at once and so cannot see a product that a copy overtakes. Here one thread's instructions are
walked with everything as late, and as early, as the instructions allow.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import pytest

from hcq.compiler.linear.linearize import linearize
from hcq.compiler.linear.program import Instruction, Program
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.pipeline import lower
from hcq.ir.dtype import Kind, dtypes
from hcq.ir.op import Op
from tests.compiler.loops.test_warpgroups import HOPPER, narrow_product, schedule

DEPTH, ROWS, COLUMNS = 64, 128, 64
TILE_BYTES = (2 * ROWS * DEPTH, 2 * COLUMNS * DEPTH)
MEANING = {
    Op.ADD: operator.add,
    Op.MUL: operator.mul,
    Op.MOD: operator.mod,
    Op.FLOORDIV: operator.floordiv,
    Op.MIN: min,
    Op.MAX: max,
    Op.XOR: operator.xor,
    Op.AND: operator.and_,
    Op.CMPLT: operator.lt,
    Op.CMPEQ: operator.eq,
}
Buffer = tuple[int, int]  # operand, number of the tile


class Walk:
    """One thread of a program, step by step: every instruction with an effect, and the numbers it works on."""

    def __init__(self, program: Program, thread: int, tiles: int) -> None:
        self.program, self.thread, self.tiles = program, thread, tiles
        self.known: dict[Instruction, Any] = {}

    def number(self, it: Instruction) -> Any:
        return self.known[it]

    def events(self) -> Iterator[Instruction]:
        listed = self.program.instructions
        at, begins = 0, []
        while at < len(listed):
            it = listed[at]
            if it.op is Op.LOOP and it.source(0).op is not Op.SPECIAL:
                self.known[it] = self.number(it.source(0))
                begins.append(at)
            elif it.op is Op.ENDLOOP and it.source(0).source(0).op is not Op.SPECIAL:
                loop = it.source(0)
                self.known[loop] += 1
                if self.known[loop] < self.number(loop.source(1)):
                    at = begins[-1]
                else:
                    begins.pop()
            elif it.op is Op.PRODUCER and it.arg == "begin" and not self.number(it.source(0)):
                at = next(
                    i
                    for i in range(at, len(listed))
                    if listed[i].op is Op.PRODUCER and listed[i].arg == "end"
                )
            else:
                self._evaluate(it)
                yield it
            at += 1

    def _evaluate(self, it: Instruction) -> None:
        if it.op is Op.CONST:
            self.known[it] = it.arg
        elif it.op in (Op.SPECIAL, Op.LOOP):
            self.known[it] = self.thread if it.arg == "thread" else 0
        elif it.op in MEANING and (it.dtype.kind is Kind.INDEX or it.dtype.is_bool) and it.dtype.lanes == 1:
            self.known[it] = MEANING[it.op](*[self.number(s) for s in it.src if s is not None])

    def buffer(self, address: Instruction, base: Instruction | None, offset: int = 0) -> Buffer:
        """Which tile an element of shared memory belongs to."""
        place = address.arg + 2 * (offset + (0 if base is None else self.number(base)))
        second = self.tiles * TILE_BYTES[0]
        operand = int(place >= second)
        return operand, (place - second * operand) // TILE_BYTES[operand]


def check(program: Program, tiles: int) -> int:
    """How many products were checked."""
    walk = Walk(program, 0, tiles)
    batch: list[Buffer] = []  # begun products, and those of batches that are at work
    batches: list[list[Buffer]] = []
    unsure: list[Buffer] = []  # done for this thread; for others, which may be behind, only after a barrier
    copies: list[list[Buffer]] = [[]]  # batches of this thread's copies
    arrived: set[Buffer] = set()
    there: set[Buffer] = set()
    products = 0
    for it in walk.events():
        reads = {one for some in (batch, *batches) for one in some}
        if it.op in (Op.COPY_SHARED, Op.COPY_TILE):
            is_tile = it.op is Op.COPY_TILE
            goal = walk.buffer(it.source(0), it.src[1], it.arg if is_tile else it.arg[0])
            if is_tile and not walk.number(it.source(4)):
                continue
            assert goal not in reads | set(unsure), "a copy begins where a product may still read"
            there.discard(goal)
            arrived.discard(goal)
            copies[-1].append(goal)
        elif it.op is Op.STORE and it.source(0).op is Op.SHARED:  # with two tiles they come through registers
            goal = walk.buffer(it.source(0), it.src[1], it.arg)
            assert goal not in reads | set(unsure), "a store goes where a product may still read"
            arrived.add(goal)
        elif it.op is Op.COMMIT:
            copies.append([])
        elif it.op is Op.WAIT:
            while len(copies) - 1 > it.arg:
                arrived |= set(copies.pop(0))
        elif it.op is Op.WAIT_TILES:  # tiles of this number come together
            there |= {(operand, walk.number(it.source(1))) for operand in (0, 1)}
        elif it.op is Op.BARRIER:
            there |= arrived
            unsure.clear()
        elif it.op is Op.DESCRIPTOR:
            walk.known[it] = walk.buffer(it.source(0), it.src[1], it.arg[0])
        elif it.op is Op.WARPGROUP_MATRIX:
            operands = [walk.number(it.source(place)) for place in (0, 1)]
            assert set(operands) <= there, "a product begins before its tiles are there"
            assert operands[0][1] == operands[1][1], "tiles of two steps"
            batch += operands
            products += 1
        elif it.op is Op.WARPGROUP_WAIT:
            batches.append(batch)
            batch = []
            while len(batches) > it.arg:
                unsure += batches.pop(0)
        elif it.op is Op.WARPGROUP_RESULT:
            assert not batch, "a product that belongs to no batch is not waited for"
            batches.clear()
        elif it.op is Op.FREE_TILES and walk.number(it.source(2)):
            free = {(operand, walk.number(it.source(1))) for operand in (0, 1)}
            assert not free & reads, "tiles are given back that a product may still read"
            there -= free
    return products


@pytest.mark.parametrize("by", ["", "bulk", "producer"])
@pytest.mark.parametrize("tiles", [2, 3, 4, 5])
def test_no_product_is_overtaken_by_a_copy(by: str, tiles: int) -> None:
    nest = LoopNest(lower(narrow_product(ROWS, COLUMNS, 12 * DEPTH, dtypes.float16), HOPPER))
    nest.apply(schedule("wgmma64.f16", COLUMNS, 2, 1, DEPTH, tiles, by))
    program = linearize(nest, "product", HOPPER.shared_bytes)
    assert check(program, tiles) == 12 * DEPTH // 16
