"""Standing: where the warps of a batch are, in which threads, and what they wait for. For reports.

In       a Machine between two blocks of a path, or in the middle of one that a fault ended
Out      `warps_of`: a record for all warps that are alike
Next     machine.py (who calls), hcq/events/waves.py (the record), hcq/emu/amd/shader/standing.py (the sister)

A warp that waits for another does so at a barrier, at a warp instruction, where its threads meet again, or in a loop
that reads memory and stores nothing. Such a loop is found in the blocks of the function: a way from here back to here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hcq.emu.alike_waves import alike
from hcq.emu.nv.shader import flow
from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.paths import Path, Region
from hcq.emu.nv.shader.syntax import Address, Instruction, Register
from hcq.emu.nv.shader.types import Lanes
from hcq.events.waves import Wave

if TYPE_CHECKING:
    from hcq.emu.nv.shader.machine import Machine

ADDRESSES_SHOWN = 4  # of a loop's loads
WAITS = {
    "cluster barrier": "the barrier of its cluster",
    "warp barrier": "a barrier of its warp",
    "warp": "threads that the instruction's mask names, or the other warps of its warpgroup",
}


def warps_of(machine: Machine, fault_line: int = 0) -> tuple[Wave, ...]:
    """All warps that have not ended, those that are alike together; those that run first.

    fault_line   of the instruction that stopped the path which was running; 0: none did
    """
    found: list[Wave] = []
    running = machine.running
    if running is not None:
        found += _alike(machine, running, fault_line, "", is_stopped=bool(fault_line))
    for path in machine.runnable:
        if path is not running:
            found += _alike(machine, path, 0, "")
    for path in machine.waiting:
        found += _alike(machine, path, path.line, _waits_for(machine, path), is_stopped=True)
    for region in _regions([*machine.runnable, *machine.waiting]):
        if region.arrived is not None and region.arrived_count:
            line, text = _at(region.activation.decoded.function.name, machine, region.rejoin, region)
            waits = "the other threads of its warp, which meet it here"
            found += _records(machine.batch, region.arrived, line, text, waits, ())
    return tuple(found)


def _regions(paths: list[Path]) -> list[Region]:
    found: dict[int, Region] = {}
    for path in paths:
        region: Region | None = path.region
        while region is not None:
            found[id(region)] = region
            region = region.parent
    return list(found.values())


def _waits_for(machine: Machine, path: Path) -> str:
    if path.waits_for != "barrier":
        return WAITS[path.waits_for]
    barrier = machine.barriers[path.barrier]
    block = int(machine.batch.block_of_lane[np.argmax(path.full_mask)])
    wanted = path.expected or int(machine.live_per_block[block])
    return f"barrier {path.barrier} of its block: {int(barrier.arrived[block])} of {wanted} threads are there"


def _alike(
    machine: Machine, path: Path, line: int, waits_for: str, is_stopped: bool = False
) -> Iterator[Wave]:
    at, text = _at(path.activation.decoded.function.name, machine, path.pc, path.region, line)
    spins = () if is_stopped else _spins_on(path)
    yield from _records(machine.batch, path.full_mask & machine.live, at, text, waits_for, spins)


def _at(name: str, machine: Machine, pc: int, region: Region, line: int = 0) -> tuple[int, str]:
    """(line, instruction) of a block's first instruction, or of one at a line."""
    function = region.activation.decoded.function
    blocks = region.activation.decoded.blocks
    line = line or (blocks[pc].line if pc < len(blocks) else 0)
    text = next((one.text for one in function.body if one.line == line), "the end of the function")
    return line, text if function is machine.program.entry.function else f"{text} (in {name})"


def _records(
    batch: Batch, mask: Lanes, line: int, text: str, waits_for: str, spins: tuple[int, ...]
) -> Iterator[Wave]:
    """The threads of a mask, by warps whose masks are the same."""
    lanes = np.flatnonzero(mask)
    where = f"PTX line {line}" if line else ""
    pattern = Wave("warp", 0, "block", 0, where, text, "", waits_for, spins)
    return alike(pattern, batch.blocks[batch.block_of_lane[lanes]], batch.thread_of_lane[lanes])


def _spins_on(path: Path) -> tuple[int, ...]:
    """The addresses that a loop around here reads, when it stores nothing; () when there is no such loop."""
    loop = _loop(flow.blocks_of(path.activation.decoded.function), path.pc)
    if any(one.opcode == "st" for one in loop):
        return ()
    found: dict[int, None] = {}
    for one in loop:
        found.update(dict.fromkeys(_addresses(path, one)))
    return tuple(found)[:ADDRESSES_SHOWN]


def _loop(blocks: list[flow.BasicBlock], start: int) -> list[Instruction]:
    """The instructions of the shortest way from a block back to it; [] when there is none."""
    ways: list[tuple[int, tuple[int, ...]]] = [(start, ())]
    seen = {start}
    while ways:
        number, way = ways.pop(0)
        if number >= len(blocks):
            continue
        way = (*way, number)
        if start in blocks[number].next:
            return [one for each in way for one in blocks[each].body]
        ways += [(follower, way) for follower in blocks[number].next if follower not in seen]
        seen.update(blocks[number].next)
    return []


def _addresses(path: Path, instruction: Instruction) -> list[int]:
    """Where an instruction of a loop reads global memory, by the registers as they are now."""
    is_local = {"shared", "local", "param", "const"}.intersection(instruction.modifiers)
    if instruction.opcode not in ("ld", "ldu", "atom") or is_local:
        return []
    for operand in instruction.operands:
        if isinstance(operand, Address) and isinstance(operand.base, Register):
            slot = path.activation.decoded.slots.get(operand.base.name)
            if slot is None:
                return []
            values = path.activation.registers[slot]
            chosen = values if len(values) == 1 else values[path.full_mask]
            every = np.unique(chosen)[:ADDRESSES_SHOWN]
            return [(int(value) + operand.offset) % 2**64 for value in every]
    return []
