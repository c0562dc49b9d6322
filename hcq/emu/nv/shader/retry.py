"""Retry loops: a block that branches to itself around one atomic, such as a compare-and-swap loop or a spin lock.

In       a block while it is decoded; later the threads that come to it
Out      RetryLoop: who has left the loop
Changes  registers; memory, as the block's own steps do
Next     machine.py (who asks), atomic_ops.py (Conflicts: who meets where), hcq/emu/shader/contended_atomics.py (the
         atomic itself)

In step, one of n threads at an address succeeds and the others go round again: n rounds of n threads. So threads take
turns: the first of every address goes round until it leaves, then the second, each alone with its address, which is one
of the orders that a GPU may choose. A thread that does not leave waits for another thread: a lock is held. Those behind
it at that address are not tried.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hcq.emu.nv.shader import (
    bit_ops,
    compare_ops,
    convert_ops,
    float_ops,
    flow,
    integer_ops,
    move_ops,
    spaces,
    video_ops,
)
from hcq.emu.nv.shader.atomic_ops import Conflicts
from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.decode import Code, Lowering, Registers, Step
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.flow import BasicBlock
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory_ops import Address, address_of, check_alignment, of_lanes, space_of, take_space
from hcq.emu.nv.shader.retry_runs import Swap, swap_of
from hcq.emu.nv.shader.syntax import Instruction, Register
from hcq.emu.nv.shader.types import TYPES, Lanes, Type
from hcq.emu.shader.contended_atomics import FEW_ADDRESSES

# rounds of a thread that is alone with its address: the first may compare with what it loaded long ago
PATIENCE = 3
# threads at one address that are worth a guess
LONG_QUEUE = 8
# what such a block may do besides its atomic: nothing that other threads could see
QUIET = {"ld", "ldu", "membar", "fence", "nanosleep", "prefetch"}.union(
    *(part.RULES for part in (integer_ops, bit_ops, compare_ops, convert_ops, float_ops, move_ops, video_ops))
)


class RetryLoop(NamedTuple):
    """A block that goes round until its atomic has succeeded.

    guard, wanted    the predicate's slot, and its value when a thread goes round again
    after            the block that follows the loop
    inputs, outputs  slots that the block reads before it writes them; that it writes and others read
    swap             its compare-and-swap, where many threads can be served at once
    """

    steps: list[Step]
    length: int
    where: spaces.Space
    address: Address
    type: Type
    guard: int
    wanted: bool
    after: int
    inputs: list[int]
    outputs: list[int]
    swap: Swap | None

    def take_turns(self, registers: Registers, group: Group) -> Lanes | None:
        """Let the threads of each address go round one after the other. Returns the numbers of those that left.

        None: no two threads meet at an address, so nothing was done.
        """
        batch, lanes = group.batch, group.lanes
        at = of_lanes(self.address(registers), lanes, batch.count)
        try:
            check_alignment(at, self.type.size_bytes)
        except BadAccess:
            return None  # the atomic itself reports it
        work = Conflicts(batch, self.where, lanes, at, self.type)
        queues = work.queues
        if queues.is_distinct:
            return None
        turns = _Turns(batch, list(registers), self.outputs)
        waiting, done = np.arange(len(queues.starts)), 0
        while len(waiting) > FEW_ADDRESSES:
            threads = work.lanes[queues.order[queues.starts[waiting] + done]]
            has_left = self._go_round(turns, threads)
            done += 1
            waiting = waiting[has_left & (queues.counts[waiting] > done)]
        for place in waiting.tolist():
            start = queues.starts[place]
            self._serve(turns, work, queues.order[start + done : start + queues.counts[place]])
        for slot, values in turns.results.items():
            registers[slot] = values
        return np.concatenate(turns.left) if turns.left else np.zeros(0, np.int64)

    def _serve(self, turns: _Turns, work: Conflicts, queue: Lanes) -> None:
        """All threads of one address, many at a time as long as that works."""
        done, is_guessing = 0, self.swap is not None
        while done < len(queue):
            # one by itself: it also finds out whether the address can be written, and whether a lock is held
            if not self._go_round(turns, work.lanes[queue[done : done + 1]])[0]:
                return
            done += 1
            if is_guessing and len(queue) - done >= LONG_QUEUE:
                count = self._guess(turns, work, queue[done:])
                done += count
                is_guessing = count > 0

    def _guess(self, turns: _Turns, work: Conflicts, queue: Lanes) -> int:
        """How many threads are done at once. Their last round is one in which they succeed."""
        assert self.swap is not None
        threads = work.lanes[queue]
        mine = list(turns.registers)
        self._keep(mine, threads)
        mine, seen = self.swap.run(mine, turns.batch.only(threads), int(work.load(queue[:1])[0]))
        count = len(seen) - 1
        if count:
            work.store(seen[-1:], queue[:1])
            turns.leave(threads[:count], mine, slice(count))
            turns.batch.steps += self.length
        return count

    def _go_round(self, turns: _Turns, threads: Lanes) -> Lanes:
        """Threads that meet nobody at their addresses go round until they leave. Returns which of them did."""
        mine = list(turns.registers)
        self._keep(mine, threads)
        has_left = np.zeros(len(threads), bool)
        staying = np.arange(len(threads))
        for _ in range(PATIENCE):
            group = Group(turns.batch.only(threads[staying]), None, len(staying))
            group.is_whole = True
            for step in self.steps:
                step(mine, group)
            turns.batch.steps += self.length
            again = mine[self.guard] == self.wanted
            if len(again) != len(staying):
                again = again.repeat(len(staying))
            count = int(np.count_nonzero(again))
            if count < len(staying):
                gone = staying[~again]
                has_left[gone] = True
                turns.leave(threads[gone], mine, ~again)
                if not count:
                    break
                staying = staying[again]
                self._keep(mine, again)
        return has_left

    def _keep(self, registers: Registers, chosen: Lanes) -> None:
        """Go on with the values of these threads: of what the next round reads."""
        for slot in self.inputs:
            value = registers[slot]
            if len(value) > 1:
                registers[slot] = value[chosen]


class _Turns:
    """A visit of a loop: the registers that threads come with, those that they leave with, and who has left."""

    def __init__(self, batch: Batch, registers: Registers, outputs: list[int]) -> None:
        self.batch = batch
        self.registers = registers
        self.results: dict[int, Lanes] = {
            slot: np.broadcast_to(registers[slot], (batch.count,)).copy() for slot in outputs
        }
        self.left: list[Lanes] = []

    def leave(self, threads: Lanes, registers: Registers, chosen: Any) -> None:
        """These threads are done. chosen: which of the threads that the registers are of."""
        self.left.append(threads)
        for slot, values in self.results.items():
            value = registers[slot]
            values[threads] = value if len(value) == 1 else value[chosen]


def retry_loop(lowering: Lowering, block: BasicBlock, steps: list[Step]) -> RetryLoop | None:
    """The loop that a block is by itself, if it is such a one."""
    end = block.end
    if end is None or end.opcode != "bra" or end.guard is None or block.number not in block.next:
        return None
    if block.waits_for_warp or block.skip_guard is not None or block.next[0] == block.next[1]:
        return None
    atomics = [one for one in block.body if one.opcode == "atom"]
    if len(atomics) != 1 or not all(one.opcode in QUIET for one in block.body if one is not atomics[0]):
        return None
    atomic = atomics[0]
    inputs, written = _registers(block)
    _, at = Code(lowering, atomic).address(atomic.operands[1])
    is_vector = any(name in ("v2", "v4", "v8") for name in atomic.modifiers)
    if atomic.guard is not None or is_vector or at in {lowering.register(name) for name in written}:
        return None  # each round may go to another address, as in a hash table
    if end.guard.name not in _decided(block, atomic):
        return None  # it counts rounds: nobody waits for anybody
    code = Code(lowering, atomic)
    type_ = next(TYPES[name] for name in atomic.modifiers if name in TYPES)
    taken, other = block.next
    is_taken = taken == block.number
    where, address = (
        space_of(code, take_space(code), atomic.operands[1]),
        address_of(code, atomic.operands[1]),
    )
    guard = code.slot(Register(end.guard.name), TYPES["pred"])
    wanted = is_taken != end.guard.negated
    read = _slots(lowering, inputs)
    outputs = [slot for slot in _slots(lowering, written) if slot in lowering.kept]
    return RetryLoop(
        steps,
        len(block.body) + 1,
        where,
        address,
        type_,
        guard,
        wanted,
        other if is_taken else taken,
        read,
        outputs,
        swap_of(code, steps, block.body.index(atomic), read, outputs, guard, wanted),
    )


def _decided(block: BasicBlock, atomic: Instruction) -> set[str]:
    """The registers that depend on what an atomic has found."""
    found = set(flow.reads_and_writes(atomic)[1])
    for instruction in block.body[block.body.index(atomic) + 1 :]:
        reads, writes = flow.reads_and_writes(instruction)
        if found.intersection(reads):
            found.update(writes)
    return found


def _registers(block: BasicBlock) -> tuple[set[str], set[str]]:
    """(those that the block reads before it has written them, those that it writes)."""
    inputs: set[str] = set()
    written: set[str] = set()
    body: list[Instruction] = [*block.body, *([block.end] if block.end else [])]
    for instruction in body:
        reads, writes = flow.reads_and_writes(instruction)
        inputs.update(name for name in reads if name not in written)
        written.update(writes)
    return inputs, written


def _slots(lowering: Lowering, names: set[str]) -> list[int]:
    found = (lowering.register(name) for name in sorted(names))
    return [slot for slot in found if slot is not None]
