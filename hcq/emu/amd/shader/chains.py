"""Chains: how long each run of instructions of a program keeps one wave waiting, seen from its code.

In       the instructions of a block
Out      a Chain: instructions to issue by pipe, and waits: clocks of arithmetic, loads that are waited for
Next     counters.py (counts a block's chain each time that waves run it), wait_steps.py (what s_waitcnt says),
         hcq/performance/model/waiting.py (what waits cost on a chip), ../../nv/shader/chains.py (the sister)
Source   CDNA3 ISA, 4.4, and RDNA3 ISA, 5.6: counters of memory instructions, which a wave waits for by s_waitcnt.
         Clocks: a SIMD of CDNA takes a wave of 64 lanes in four; RDNA's result of a vector instruction is there
         after about five

Machine code says itself what it waits for. A wait for a load that was asked for a while before counts as the part of a
load that is left; NOMINAL clocks say how long one takes. Blocks are compiled in the order in which a wave comes to
them, so loads that one leaves under way are those that the next one finds.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from hcq.emu.amd.shader.classes import matrix_flops
from hcq.emu.amd.shader.operands import Context
from hcq.emu.amd.shader.register_waits import LDS, MEMORY, SCALAR
from hcq.emu.amd.shader.wait_steps import queue_of, waited_by
from hcq.performance import datasheets

NOMINAL = {MEMORY: 500.0, LDS: 64.0, SCALAR: 120.0}
KINDS = {MEMORY: "global", LDS: "shared", SCALAR: "scalar"}
DELAY_CLOCKS = 3.0  # of an s_delay_alu: a result of the instruction before, or the one before that
PIPES = {
    "float": "vector", "integer": "vector", "convert": "vector", "move": "vector", "warp": "vector",
    "special": "special", "matrix": "matrix", "shared load": "shared", "shared store": "shared", "shared atomic":
    "shared", "global load": "memory", "global store": "memory", "global atomic": "memory", "local": "memory",
}  # fmt: skip


@dataclass
class Chain:
    """One run of a block by one wave. The words are those of ../../nv/shader/chains.py."""

    ops: dict[str, int] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)


class Walk:
    """A wave that goes through a program: what it has under way."""

    def __init__(self) -> None:
        self.under_way: dict[int, list[float]] = {queue: [] for queue in NOMINAL}  # when each was asked for
        self.unit_busy = 0.0  # until then with the last matrix instruction

    def block(self, instructions: list[Context], classes: list[str]) -> Chain:
        """Issue a block. classes: of its instructions, as counters.py names them."""
        found = Chain()
        now = clocks = 0.0
        for ctx, kind in zip(instructions, classes):
            pipe = PIPES.get(kind, "scalar")
            found.ops[pipe] = found.ops.get(pipe, 0) + 1
            took = _clocks(ctx, pipe)
            if pipe == "matrix":
                took += max(0.0, self.unit_busy - now)
                self.unit_busy = now + took + max(0.0, _unit_clocks(ctx) - _clocks(ctx, pipe))
            clocks += took
            now += took
            for queue, left in _waited(ctx).items():
                now += self._wait(found, queue, left, now)
            queue_of_this = queue_of(ctx)
            if queue_of_this in self.under_way:
                self.under_way[queue_of_this].append(now)
        found.waits["clocks"] = clocks
        self.under_way = {queue: [at - now for at in asked][-64:] for queue, asked in self.under_way.items()}
        self.unit_busy = max(0.0, self.unit_busy - now)
        return found

    def _wait(self, found: Chain, queue: int, left: int, now: float) -> float:
        """Until no more than so many are under way. Returns clocks."""
        asked = self.under_way[queue]
        done = asked[: max(0, len(asked) - left)]
        if not done:
            return 0.0
        del asked[: len(done)]
        waits = max(0.0, done[-1] + NOMINAL[queue] - now)
        name = KINDS[queue]
        if waits:
            found.waits[name] = found.waits.get(name, 0.0) + waits / NOMINAL[queue]
        return waits


def _clocks(ctx: Context, pipe: str) -> float:
    if ctx.inst.name == "s_delay_alu":
        return DELAY_CLOCKS
    if pipe == "special":
        return 16.0 if ctx.is_gfx9 else 4.0
    return 4.0 if ctx.is_gfx9 else 1.0


@functools.cache
def _flops_per_clock(arch: str, kind: str) -> float:
    """Of the matrix unit of one SIMD. 0: there is none for this type, or nobody says."""
    chip = datasheets.for_arch(arch)
    if chip is None or kind not in chip.matrix_flops:
        return 0.0
    return chip.matrix_flops[kind] / (chip.units * chip.clock_hz * chip.schedulers)


def _unit_clocks(ctx: Context) -> float:
    """How long a matrix unit is busy with an instruction: the next one waits for it, others do not."""
    found = matrix_flops(ctx)
    rate = 0.0 if found is None else _flops_per_clock(ctx.isa.arch, found[0])
    return found[1] / rate if found is not None and rate else 0.0


def _waited(ctx: Context) -> dict[int, int]:
    """Queue -> how many may still be under way."""
    found = waited_by(ctx.inst, ctx.isa.generation)
    if found is None:
        return {}
    each = {MEMORY: found.memory, LDS: found.lds, SCALAR: found.scalar}
    return {queue: left for queue, left in each.items() if left is not None}
