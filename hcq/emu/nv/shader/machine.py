"""A batch of blocks, all of whose threads execute one instruction at a time: they part at branches and meet again.

In       a decoded kernel, the blocks of the batch, memory
Out      the changes that the kernel makes to memory; KernelFault when it cannot go on
Changes  global memory; its own shared and local memory
Next     control.py (how a block ends), groups.py (groups, regions), run.py (grid to batches)
Source   SIMT execution with re-convergence at immediate post-dominators; forward progress as since Volta: a group that
         spins gives way after a while, and threads that wait to meet others go on alone when that is the only way

Of several groups in a region the one at the earliest block goes first, and groups that come to the same block become
one: threads that jump into the middle of each other's paths also meet early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hcq.emu.nv.shader.decode import Decoded, Registers
from hcq.emu.nv.shader.errors import Deadlock, Interrupted, KernelFault, StepLimit
from hcq.emu.nv.shader.groups import Activation, Group, Region
from hcq.emu.nv.shader.memory import Memory
from hcq.emu.nv.shader.program import Program
from hcq.emu.nv.shader.types import Lanes

WARP = 32
CHECK_STEPS = (
    20_000  # instructions between two looks at the budget, and at whether the kernel is still wanted
)
PATIENCE = 4000  # blocks that a group may run while others could, or while threads wait to meet it
MAX_CALL_DEPTH = 512
MAX_LOCAL_BYTES = 1 << 19


class Barrier:
    """One barrier number, in all blocks of the batch: who has arrived, and how they voted."""

    def __init__(self, blocks: int) -> None:
        self.arrived = np.zeros(blocks, np.int64)
        self.true = np.zeros(blocks, np.int64)
        self.last_arrived = np.zeros(blocks, np.int64)
        self.last_true = np.zeros(blocks, np.int64)


class Machine:
    """The state of one batch. Lanes are threads, block after block, padded to whole warps where warps matter."""

    def __init__(
        self,
        program: Program,
        memory: Memory,
        params: Lanes,
        blocks: Lanes,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        dynamic_shared_bytes: int,
        shared_window: int,
        local_window: int,
        step_limit: int,
        given: Mapping[str, int],
        interrupted: Callable[[], bool] | None = None,
        spent: int = 0,
    ) -> None:
        self.program = program
        self.memory = memory
        self.params = params
        self.grid = grid
        self.block = block
        self.kernel_name = program.entry.function.name
        self.shared_window = shared_window
        self.local_window = local_window
        self.dynamic_shared_bytes = dynamic_shared_bytes
        self.step_limit = step_limit
        self.interrupted = interrupted
        self.check_at = min(step_limit, spent + CHECK_STEPS)
        self.given = given
        self.steps = spent  # of the budget, also by batches before this one
        self._number_lanes(blocks)
        self.shared_bytes = program.static_shared_bytes + dynamic_shared_bytes
        stride = -(-self.shared_bytes // 16) * 16
        self.shared = np.zeros(stride * len(blocks), np.uint8)
        self.shared_start = self.block_of_lane * stride
        self.local_bytes = 0
        self.local = np.zeros(0, np.uint8)
        self.runnable: list[Group] = []
        self.waiting: list[Group] = []
        self.barriers: dict[int, Barrier] = {}
        self.patience = PATIENCE
        self._templates: dict[tuple[int, int], Registers] = {}

    def _number_lanes(self, blocks: Lanes) -> None:
        threads = self.block[0] * self.block[1] * self.block[2]
        width = -(-threads // WARP) * WARP if self.program.uses_warps else threads
        count = self.count = width * len(blocks)
        self.threads_per_block = threads
        self.every_lane = np.arange(count)
        self.block_of_lane = self.every_lane // width
        self.thread_of_lane = self.every_lane % width
        self.blocks = blocks
        self.all_lanes = np.ones(count, bool)
        self.live = self.thread_of_lane < threads
        self.live_count = threads * len(blocks)
        self.live_per_block = np.full(len(blocks), threads)
        if self.program.uses_warps:
            self.lane_in_warp = self.every_lane % WARP
            self.warp_start = self.every_lane - self.lane_in_warp
            self.full_warps = np.full(count, 0xFFFFFFFF, np.uint32)

    def special_register(self, name: str) -> Lanes:
        """The value of %name, one for all threads where that is so; 0 for what this machine does not have."""
        table = self.program.specials
        key = (name, self.block, self.grid, self.count, self.shared_bytes, self.dynamic_shared_bytes)
        if name in self.given:
            return np.array([self.given[name] % 2**64], np.uint64)
        if name.startswith(("ctaid", "clusterid")):  # these differ from batch to batch
            return self._compute_special(name)
        if key not in table:
            table[key] = self._compute_special(name)
        return table[key]

    def _compute_special(self, name: str) -> Lanes:
        register, _, axis = name.partition(".")
        which = "xyz".find(axis) if axis else 0
        lane = self.thread_of_lane % WARP
        if register in ("ctaid", "clusterid"):
            gx, gy, _ = self.grid
            coordinates = (self.blocks % gx, self.blocks // gx % gy, self.blocks // (gx * gy))
            return _shared(coordinates[which][self.block_of_lane])
        if register == "tid":
            bx, by, _ = self.block
            thread = np.minimum(self.thread_of_lane, self.threads_per_block - 1)
            return _shared((thread % bx, thread // bx % by, thread // (bx * by))[which])
        table: dict[str, Any] = {
            "ntid": self.block[which],
            "nctaid": self.grid[which],
            "nclusterid": self.grid[which],
            "cluster_nctaid": 1,
            "cluster_nctarank": 1,
            "nwarpid": -(-self.threads_per_block // WARP),
            "nsmid": 1,
            "total_smem_size": self.shared_bytes,
            "aggr_smem_size": self.shared_bytes,
            "dynamic_smem_size": self.dynamic_shared_bytes,
            "laneid": lane,
            "warpid": self.thread_of_lane // WARP,
            "lanemask_eq": 1 << lane,
            "lanemask_lt": (1 << lane) - 1,
            "lanemask_le": (2 << lane) - 1,
            "lanemask_gt": 0xFFFFFFFF & ~((2 << lane) - 1),
            "lanemask_ge": 0xFFFFFFFF & ~((1 << lane) - 1),
        }
        return _shared(table.get(register, 0))

    def place(self, lane: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """(block, thread) of a lane, in three coordinates each."""
        number, thread = int(self.blocks[self.block_of_lane[lane]]), int(self.thread_of_lane[lane])
        gx, gy, _ = self.grid
        bx, by, _ = self.block
        where = (number % gx, number // gx % gy, number // (gx * gy))
        return where, (thread % bx, thread // bx % by, thread // (bx * by))

    # -- functions

    def activate(self, decoded: Decoded, count: int, caller: Activation | None) -> Activation:
        """Registers and local memory for a call."""
        base = 0 if caller is None else caller.local_base + caller.decoded.local_bytes
        self._need_local(base + decoded.local_bytes)
        key = (id(decoded), base)
        if key not in self._templates:
            registers = list(decoded.first)
            for slot, symbol in decoded.late:
                scalar = registers[slot].dtype.type
                registers[slot] = self._value_of(decoded, symbol.name, symbol.offset, base, scalar)
            self._templates[key] = registers
        made = Activation(decoded, list(self._templates[key]), count, base, caller)
        if made.depth > MAX_CALL_DEPTH:
            raise KernelFault(
                f"kernel {self.kernel_name}: {made.depth} calls deep in {decoded.function.name}."
                " Is the recursion endless?"
            )
        return made

    def _value_of(self, decoded: Decoded, name: str, offset: int, local_base: int, scalar: Any) -> Lanes:
        if name.startswith("%"):
            value: Lanes = self.special_register(name[1:])
            return value.astype(scalar)
        if name in decoded.offsets:
            at = local_base + decoded.offsets[name]
        else:
            at = self.program.address(decoded, name)
        return np.array([(at + offset) % (1 << 8 * np.dtype(scalar).itemsize)], scalar)

    def _need_local(self, size_bytes: int) -> None:
        if size_bytes <= self.local_bytes:
            return
        if size_bytes > MAX_LOCAL_BYTES:
            raise KernelFault(
                f"kernel {self.kernel_name}: needs {size_bytes} bytes of local memory per thread."
            )
        grown = max(size_bytes, 2 * self.local_bytes)
        bigger = np.zeros((self.count, grown), np.uint8)
        bigger[:, : self.local_bytes] = self.local.reshape(self.count, -1) if self.local_bytes else 0
        self.local, self.local_bytes = bigger.reshape(-1), grown

    def copy_local(self, lanes: Lanes | None, to: int, source: int, size_bytes: int) -> None:
        """Within the local memory of each of these threads."""
        rows = self.local.reshape(self.count, -1)
        who: Any = slice(None) if lanes is None else lanes
        rows[who, to : to + size_bytes] = rows[who, source : source + size_bytes]

    # -- running

    def run(self) -> None:
        """Until all threads have exited."""
        entry = self.program.entry
        root = Region(None, self.activate(entry, self.live_count, None), len(entry.blocks), None, 0, None)
        mask = None if self.live_count == self.count else self.live.copy()
        root.pending = 1
        self.go(Group(self, root, 0, mask, self.live_count, 0), 0)
        with np.errstate(all="ignore"):
            while self.runnable or self._wake():
                self._advance(self._pick())

    def _pick(self) -> Group:
        if len(self.runnable) == 1:
            return self.runnable[0]

        def urgency(group: Group) -> tuple[int, int, int]:
            return group.turns, -group.region.depth, group.activation.decoded.blocks[group.pc].order

        return min(self.runnable, key=urgency)

    def _advance(self, group: Group) -> None:
        """Run a group's blocks until it parts, waits, meets others, or should give way."""
        activation = group.activation
        blocks, registers = activation.decoded.blocks, activation.registers
        region = group.region
        while True:
            block = blocks[group.pc]
            self.steps += block.length
            if self.steps > self.check_at:
                self._check_time(group, block.line)
            if block.warp_members is not None and group.mask is not None:
                if not self._warp_is_here(group, block.warp_members(registers, group)):
                    self._park(group, "warp", block.line)
                    return
            group.is_whole = group.count == activation.count
            for step in block.steps:
                step(registers, group)
            pc = block.next[0] if block.end is None else block.end(self, registers, group)
            if pc < 0:
                return
            if pc == region.rejoin:
                self.runnable.remove(group)
                self.arrive(group)
                return
            group.pc = pc
            if len(self.runnable) > 1:
                self._meet(group)
                self._lose_patience(group, block.haste)
                return
            if region.parent is not None:
                self._lose_patience(group, block.haste)

    def _lose_patience(self, group: Group, haste: int) -> None:
        self.patience -= haste
        if self.patience > 0:
            return
        self.patience = PATIENCE
        group.turns += 1
        self._release_arrived()

    def _check_time(self, group: Group, line: int) -> None:
        """From time to time: is the budget spent, does anybody still wait for this kernel?"""
        if self.steps > self.step_limit:
            raise self._too_long(group, line)
        if self.interrupted is not None and self.interrupted():
            raise Interrupted(
                f"kernel {self.kernel_name}: stopped at PTX line {line}: it was not wanted any more", line
            )
        self.check_at = min(self.step_limit, self.steps + CHECK_STEPS)

    def _too_long(self, group: Group, line: int) -> StepLimit:
        lane = int(np.argmax(group.full_mask))
        block, thread = self.place(lane)
        return StepLimit(
            f"kernel {self.kernel_name}: {self.step_limit} instructions were not enough; {group.count} threads,"
            f" the first thread {thread} of block {block}, are at PTX line {line}. Is the loop endless?",
            line,
            [(block, thread)],
        )

    # -- where groups go

    def go(self, group: Group, pc: int) -> None:
        """Put a group at a block; at the end of its region it has arrived."""
        if pc == group.region.rejoin:
            self.arrive(group)
            return
        group.pc = pc
        group.region.groups.append(group)
        self.runnable.append(group)
        self._meet(group)

    def _meet(self, group: Group) -> None:
        """Become one with a group of the same region at the same block, unless it waits elsewhere."""
        for other in group.region.groups:
            if other is not group and other.pc == group.pc and other.waits_for in ("", "warp"):
                group.join(other)
                if other.waits_for:
                    self.waiting.remove(other)
                else:
                    self.runnable.remove(other)
                group.region.groups.remove(other)
                group.region.pending -= 1
                return

    def arrive(self, group: Group) -> None:
        """A group is where its region meets (it is no longer runnable)."""
        region = group.region
        if group in region.groups:
            region.groups.remove(group)
        if region.parent is None:
            self._gone(group)
        else:
            if region.is_call:
                region.activation.count -= group.count
            if region.arrived is None:
                region.arrived = group.mask if group.mask is not None else self.all_lanes
            else:
                region.arrived = region.arrived | group.full_mask
            region.arrived_count += group.count
        region.pending -= 1
        if not region.pending:
            self._close(region, group.turns)

    def _close(self, region: Region, turns: int) -> None:
        """Everyone is there or gone: those who are there go on together."""
        parent = region.parent
        if parent is None:
            return
        if region.arrived_count:
            self._send_on(region, turns)
            return
        parent.pending -= 1
        if not parent.pending:
            self._close(parent, turns)

    def _send_on(self, region: Region, turns: int) -> None:
        """The arrived threads become a group of the region around."""
        assert region.parent is not None and region.after is not None
        same = region.arrived_count == region.count
        mask = region.mask if same else region.arrived
        group = Group(self, region.parent, region.rejoin, mask, region.arrived_count, turns)
        region.arrived, region.arrived_count = None, 0
        region.after(group)

    def part(self, group: Group, parts: list[tuple[int, Lanes]], rejoin: int) -> None:
        """Split a group: (block, mask) each."""
        region = group.region
        self.runnable.remove(group)
        region.groups.remove(group)
        if rejoin != region.rejoin:
            inner = Region(region, region.activation, rejoin, group.mask, group.count, None)
            inner.after = lambda reunited: self.go(reunited, rejoin)
            region = inner
            region.pending = len(parts)
        else:
            region.pending += len(parts) - 1
        for pc, mask in parts:
            count = int(np.count_nonzero(mask))
            self.go(Group(self, region, pc, mask, count, group.turns), pc)

    def exit(self, group: Group) -> None:
        """The threads of a group end."""
        region = group.region
        self.runnable.remove(group)
        region.groups.remove(group)
        self._gone(group)
        region.pending -= 1
        if not region.pending:
            self._close(region, group.turns)

    def _gone(self, group: Group) -> None:
        activation: Activation | None = group.activation
        while activation is not None:
            activation.count -= group.count
            activation = activation.caller
        self.live_count -= group.count
        if self.live_count:
            mask = group.full_mask
            self.live = self.live & ~mask
            self.live_per_block = self.live_per_block - self.per_block(group)

    def per_block(self, group: Group, truth: Lanes | None = None) -> Lanes:
        """How many threads of the group are in each block of the batch; of those where `truth` holds, if given."""
        mask = group.full_mask if truth is None else group.full_mask & truth
        return np.bincount(self.block_of_lane[mask], minlength=len(self.blocks))

    # -- waiting

    def _park(self, group: Group, why: str, line: int) -> None:
        group.waits_for, group.line = why, line
        self.runnable.remove(group)
        self.waiting.append(group)

    def _warp_is_here(self, group: Group, members: Lanes) -> bool:
        """Whether, for each thread of the group, the members of its warp that live are in the group."""
        from hcq.emu.nv.shader.warp_ops import active_bits, ballots

        missing = members & ballots(self.live, self) & ~active_bits(group)
        return not bool((missing[group.full_mask] if len(missing) > 1 else missing).any())

    def is_complete(self, group: Group, number: int, expected: int) -> bool:
        """Whether this group alone makes a barrier complete in every block that it has threads of."""
        barrier = self.barriers.get(number)
        if barrier is not None and barrier.arrived.any():
            return False
        if group.count == self.live_count and not expected:
            return True
        arrivals = self.per_block(group)
        needed = expected or self.live_per_block
        return bool(((arrivals == needed) | (arrivals == 0)).all())

    def wait_at_barrier(
        self, group: Group, pc: int, number: int, expected: int, truth: Lanes | None, line: int
    ) -> None:
        """Arrive at a barrier of the block and wait. expected: how many threads; 0 stands for all that live."""
        barrier = self.barriers.setdefault(number, Barrier(len(self.blocks)))
        arrivals = self.per_block(group)
        barrier.arrived += arrivals
        if truth is not None:
            barrier.true += self.per_block(group, truth)
        group.pc, group.barrier, group.expected = pc, number, expected
        group.free = np.zeros(self.count, bool)
        self._park(group, "barrier", line)
        self._check_barrier(number, expected)

    def arrive_at_barrier(self, group: Group, number: int, expected: int) -> None:
        """Arrive without waiting."""
        barrier = self.barriers.setdefault(number, Barrier(len(self.blocks)))
        barrier.arrived += self.per_block(group)
        self._check_barrier(number, expected)

    def _check_barrier(self, number: int, expected: int) -> None:
        barrier = self.barriers[number]
        needed = self.live_per_block if not expected else np.full(len(self.blocks), expected)
        complete = (barrier.arrived >= needed) & (barrier.arrived > 0)
        if not complete.any():
            return
        barrier.last_arrived[complete] = barrier.arrived[complete]
        barrier.last_true[complete] = barrier.true[complete]
        barrier.arrived[complete] = 0
        barrier.true[complete] = 0
        freed = complete[self.block_of_lane]
        for group in [
            group for group in self.waiting if group.waits_for == "barrier" and group.barrier == number
        ]:
            assert group.free is not None
            group.free |= freed & group.full_mask
            if int(np.count_nonzero(group.free)) == group.count:
                self._resume(group)

    def wait_for_warp(self, group: Group, pc: int, members: Lanes, line: int) -> None:
        """bar.warp.sync: until all live members of the warp wait at one."""
        group.pc = pc
        group.members = np.broadcast_to(members, (self.count,))
        group.free = np.zeros(self.count, bool)
        self._park(group, "warp barrier", line)
        self._check_warp_barriers()

    def _check_warp_barriers(self) -> None:
        from hcq.emu.nv.shader.warp_ops import ballots

        groups = [group for group in self.waiting if group.waits_for == "warp barrier"]
        here = np.zeros(self.count, bool)
        for group in groups:
            here |= group.full_mask & ~group.free  # type: ignore[operator]
        missing = ballots(self.live, self) & ~ballots(here, self)
        for group in groups:
            assert group.free is not None and group.members is not None
            group.free |= group.full_mask & ((group.members & missing) == 0)
            if int(np.count_nonzero(group.free)) == group.count:
                self._resume(group)

    def _resume(self, group: Group) -> None:
        """A waiting group may run again."""
        self.waiting.remove(group)
        group.waits_for = ""
        if group.on_wake is not None:
            group.is_whole = group.count == group.activation.count
            group.on_wake(group)
            group.on_wake = None
        if group.pc == group.region.rejoin:
            self.arrive(group)
            return
        self.runnable.append(group)
        self._meet(group)

    def _wake(self) -> bool:
        """Nothing can run: find out who may after all. False when all threads have ended."""
        if not self.waiting:
            if self._release_arrived():
                return True
            return False
        for number, expected in {(g.barrier, g.expected) for g in self.waiting if g.waits_for == "barrier"}:
            self._check_barrier(number, expected)
        if any(group.waits_for == "warp barrier" for group in self.waiting):
            self._check_warp_barriers()
        for group in [group for group in self.waiting if group.waits_for == "warp"]:
            members = group.activation.decoded.blocks[group.pc].warp_members
            if members is not None and self._warp_is_here(group, members(group.activation.registers, group)):
                self._resume(group)
        if not self.runnable:
            self._split_half_free()
        if self.runnable or self._release_arrived():
            return True
        raise self._deadlock()

    def _split_half_free(self) -> None:
        """Groups of which only some threads may go on are parted."""
        for group in list(self.waiting):
            free = group.free
            if group.waits_for == "warp" or free is None or not free.any():
                continue
            region = group.region
            ready = Group(self, region, group.pc, free, int(np.count_nonzero(free)), group.turns)
            ready.on_wake = group.on_wake
            group.mask = group.full_mask & ~free
            group.count -= ready.count
            group._lanes = None
            group.free = np.zeros(self.count, bool)
            region.pending += 1
            region.groups.append(ready)
            self.waiting.append(ready)
            self._resume(ready)

    def _release_arrived(self) -> bool:
        """Threads that wait to meet others go on without them: the others may be waiting for what these do next."""
        seen: list[Region] = []
        for group in [*self.runnable, *self.waiting]:
            region: Region | None = group.region
            while region is not None:
                if region.arrived_count and region not in seen:
                    seen.append(region)
                region = region.parent
        for region in seen:
            assert region.parent is not None
            region.parent.pending += 1
            self._send_on(region, 0)
        return bool(seen) and bool(self.runnable)

    def _deadlock(self) -> Deadlock:
        group = self.waiting[0]
        lane = int(np.argmax(group.full_mask))
        block, thread = self.place(lane)
        waits = "; ".join(
            f"{group.count} threads at PTX line {group.line} wait for {_WAITS[group.waits_for]}"
            for group in self.waiting[:4]
        )
        return Deadlock(
            f"kernel {self.kernel_name}: no thread can go on: {waits}; the first is thread {thread} of block {block}."
            " Every thread that a barrier counts must come to it.",
            group.line,
            [(block, thread)],
        )


def _shared(values: Any) -> Lanes:
    """As uint32, and a single value when all are equal."""
    array = np.atleast_1d(np.asarray(values)).astype(np.uint32)
    return array[:1] if (array == array[0]).all() else array


_WAITS = {
    "barrier": "a barrier of their block",
    "warp barrier": "a barrier of their warp",
    "warp": "threads that the instruction's mask names",
}
