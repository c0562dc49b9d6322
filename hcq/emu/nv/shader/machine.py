"""A batch of blocks runs: its threads diverge at branches and reconverge, wait for one another, and end.

In       a decoded kernel, a batch of its blocks
Out      the changes that the kernel makes to memory; KernelFault when it cannot go on
Changes  global memory; the batch's own shared and local memory
Next     control.py (how a block ends), paths.py (paths, regions), batch.py (lanes and memory), run.py (grid to
         batches), standing.py (where its warps are, for reports)
Source   SIMT execution with re-convergence at immediate post-dominators; forward progress as since Volta: a path that
         spins gives way after a while, and threads that wait to reconverge go on alone when that is the only way

Of several paths in a region the one at the earliest block goes first, and paths that come to the same block become
one: threads that jump into the middle of each other's paths also reconverge early. With a Schedule any path goes first,
and warps part at random.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hcq.emu.nv.shader.barrier import Barrier
from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.cluster_barrier import ClusterBarrier
from hcq.emu.nv.shader.decode import Decoded, DecodedBlock, Registers
from hcq.emu.nv.shader.errors import Interrupted, KernelFault
from hcq.emu.nv.shader.groups import active_bits, ballots
from hcq.emu.nv.shader.meetings import block_met, gone_on, warps_met
from hcq.emu.nv.shader.native import native_of
from hcq.emu.nv.shader.paths import Activation, Path, Region, stack_end
from hcq.emu.nv.shader.program import Program
from hcq.emu.nv.shader.standing import warps_of
from hcq.emu.nv.shader.stops import deadlock, endless_wait, too_long
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.schedule import MOST_PARTS, Schedule
from hcq.events.waves import Running

# instructions between two looks at the budget, and at whether the kernel is still wanted
CHECK_STEPS = 20_000
# blocks that a path may run while others could, or while threads wait to reconverge with it
TIME_SLICE = 4000
# of a time slice, for a round of a retry loop in which no thread succeeded: somebody holds what they wait for
FRUITLESS_COST = 1000
# failed waits for mbarriers in a row, without any other instruction, after which nobody is left who could end them
MAX_FRUITLESS = 1000
MAX_CALL_DEPTH = 512
MAX_TEMPLATES = 4096  # of functions' registers by where their local memory begins


class Machine:
    """What runs a batch: its paths, those that wait, its barriers, who has not exited."""

    def __init__(self, program: Program, batch: Batch, schedule: Schedule | None = None) -> None:
        self.program = program
        self.schedule = schedule
        self.batch = batch
        self.kernel_name = batch.launch.kernel_name
        self.step_limit = batch.launch.step_limit
        self.check_at = min(self.step_limit, batch.steps + CHECK_STEPS)
        self.live: Lanes = batch.numbers.live  # replaced, and never changed, when threads end
        self.live_count = batch.threads_per_block * len(batch.blocks)
        self.live_per_block = np.full(len(batch.blocks), batch.threads_per_block)
        self.runnable: list[Path] = []
        self.waiting: list[Path] = []
        self.running: Path | None = None
        self.barriers: dict[int, Barrier] = {}
        self.slice_left = TIME_SLICE
        # waits for mbarriers that failed, one after the other, while nothing else was done
        self.fruitless = 0
        self._templates: dict[tuple[int, int], Registers] = {}
        if batch.launch.running is not None:
            self.answer_to(batch.launch.running)
        self.native = native_of(self)

    @functools.cached_property
    def cluster_barrier(self) -> ClusterBarrier:
        """The barrier of all clusters, made when somebody comes to it first."""
        return ClusterBarrier(self.batch)

    # -- functions

    def activate(
        self, decoded: Decoded, count: int, caller: Activation | None, path: Path | None = None
    ) -> Activation:
        """Registers and local memory for a call, by the threads of a path."""
        base = 0 if caller is None else caller.local_base + caller.decoded.local_bytes
        if caller is not None and path is not None and caller.decoded.stack is not None:
            base = stack_end(caller, path, base)
        self.batch.need_local(base + decoded.local_bytes)
        key = (id(decoded), base)
        if key not in self._templates:
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
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

    def set_special(self, activation: Activation, slot: int, symbol: Any) -> None:
        """Give a special register of a call the value that it has now."""
        decoded = activation.decoded
        scalar = decoded.first[slot].dtype.type
        activation.registers[slot] = self._value_of(
            decoded, symbol.name, symbol.offset, activation.local_base, scalar
        )

    def _value_of(self, decoded: Decoded, name: str, offset: int, local_base: int, scalar: Any) -> Lanes:
        if name.startswith("%"):
            value: Lanes = self.batch.special_register(name[1:])
            return value.astype(scalar, copy=False)
        if name in decoded.offsets:
            at = local_base + decoded.offsets[name] + offset
            return np.array([at % (1 << 8 * np.dtype(scalar).itemsize)], scalar)
        found = self.program.value(decoded, name, offset, scalar)
        if self.batch.clusters is not None and self.program.is_shared(decoded, name):
            found = found + self.batch.clusters.own(self.batch).astype(scalar)
        return found

    # -- running

    def answer_to(self, running: Running) -> None:
        """Who asks where the warps are is answered soon."""
        running.hurry = self._hurry

    def run(self) -> None:
        """Until all threads have exited."""
        self.begin()
        self.go_on()

    def begin(self) -> Path:
        """All threads are at the first block, as one path."""
        entry = self.program.entry
        root = Region(None, self.activate(entry, self.live_count, None), len(entry.blocks), None, 0)
        mask = None if self.live_count == self.batch.count else self.live.copy()
        root.pending = 1
        path = Path(self.batch, root, 0, mask, self.live_count, 0)
        self.go(path, 0)
        return path

    def go_on(self) -> None:
        """Until all threads have exited, from where its paths are."""
        with np.errstate(all="ignore"):
            try:
                while self.runnable or self._wake():
                    self.running = self._pick()
                    self._advance(self.running)
                    self.running = None
            except KernelFault as fault:
                if self.native is not None:
                    self.native.settle()
                fault.waves = warps_of(self, fault.line)
                raise
            self.batch.copies.finish()
            if self.native is not None:
                self.native.end()

    def _pick(self) -> Path:
        if self.schedule is not None:
            return self._any(self.schedule)
        if len(self.runnable) == 1:
            return self.runnable[0]

        def urgency(path: Path) -> tuple[int, int, int]:
            return path.turns, -path.region.depth, path.activation.decoded.blocks[path.pc].order

        return min(self.runnable, key=urgency)

    def _any(self, schedule: Schedule) -> Path:
        """Any path, or some warps of it."""
        path = schedule.pick(self.runnable)
        if path.count < 2 or len(self.runnable) >= MOST_PARTS:
            return path
        mask = path.full_mask
        width = self.batch.count // len(self.batch.blocks)
        warp = self.batch.block_of_lane * -(-width // WARP) + self.batch.thread_of_lane // WARP
        here = np.unique(warp[mask])
        part = schedule.part(len(here), len(self.runnable))
        if part is None:
            return path
        goes = mask & np.isin(warp, here[part])
        return self.part(path, [goes, mask & ~goes])[0]

    def _advance(self, path: Path) -> None:
        """Run a path's blocks until it diverges, waits, reconverges, or has used its time slice."""
        blocks, region = path.activation.decoded.blocks, path.region
        while True:
            block = blocks[path.pc]
            pc = None if self.native is None else self.native.run(path)
            if pc is None:
                pc = self._interpret(path, block)
            else:
                self.fruitless = 0
            if pc < 0:
                return
            if pc == region.rejoin:
                self.runnable.remove(path)
                self.arrive(path)
                return
            path.pc = pc
            if len(self.runnable) > 1 or self.schedule is not None:
                self._merge_if_it_may(path)
                self._spend(path, block.cost)
                return
            if region.parent is not None:
                self._spend(path, block.cost)

    def _interpret(self, path: Path, block: DecodedBlock) -> int:
        """Run a block, or what compiled code has left of it. Returns where the path goes; -1 when it does not."""
        batch, registers = self.batch, path.activation.registers
        steps, stop = block.steps, 0
        if self.native is not None:
            begin, stop = self.native.steps(path)
            steps, stop = steps[begin:stop], stop % max(1, len(steps))
        if not path.step:
            batch.steps += block.length
            if batch.steps > self.check_at:
                self.check_time(path, block.line)
            if block.warp_members is not None and path.mask is not None:
                self._merge(path)  # with those that wait here
                if not self._company_is_here(path, block):
                    self.park(path, "warp", block.line)
                    return -1
            if block.retry is not None and path.count > 1:
                pc = self._take_turns(path, block)
                if pc >= 0:
                    return -1 if pc == path.pc else pc
        path.is_whole = path.count == path.activation.count
        for step in steps:
            step(registers, path)
        path.step = stop
        if stop:  # compiled code goes on in the middle of the block
            return path.pc
        if block.waits or self.fruitless:
            self._count_waits(path, block)
        pc = block.next[0] if block.end is None else block.end(self, registers, path)
        if pc == path.pc and block.retry is not None:
            self._spend(path, FRUITLESS_COST)
        return pc

    def _take_turns(self, path: Path, block: DecodedBlock) -> int:
        """In a retry loop threads of one address go one after the other.

        Returns the block that follows when all have left; this block when some or all go on waiting, and the path has
        given way; -1 when no two threads meet.
        """
        registers = path.activation.registers
        left = block.retry.take_turns(registers, path)
        if left is None:
            return -1
        if len(left) == path.count:
            return int(block.retry.after)
        here = path.pc
        if len(left):
            gone = np.zeros(self.batch.count, bool)
            gone[left] = True
            self.diverge(path, [(block.retry.after, gone), (here, path.full_mask & ~gone)], block.rejoin)
        self._spend(path, TIME_SLICE)
        return here

    def _spend(self, path: Path, cost: int) -> None:
        self.slice_left -= cost
        if self.slice_left > 0:
            return
        self.give_way(path)

    def give_way(self, path: Path) -> None:
        """A path has had its time: others go first, and threads that have arrived go on without it."""
        path.turns += 1
        self.release()

    def release(self) -> None:
        """Threads that have arrived go on; a new slice of time begins."""
        self.slice_left = TIME_SLICE
        if self._release_arrived() and self.batch.sync_faults is not None:
            self.batch.sync_faults.is_parted = True

    def _count_waits(self, path: Path, block: DecodedBlock) -> None:
        """Threads that only look at mbarriers, again and again, wait for what nobody will do."""
        failed = self.batch.failed_wait
        if block.waits and failed:
            self.batch.failed_wait = ""
            self.fruitless += 1
            if self.fruitless > MAX_FRUITLESS:
                raise endless_wait(path, block.line, failed)
        elif block.steps:
            self.fruitless = 0

    def check_time(self, path: Path, line: int) -> None:
        """From time to time: is the budget spent, does anybody still wait for this kernel, or ask where it is?"""
        asks = self.batch.launch.running
        if asks is not None and asks.is_asked:
            asks.answer(warps_of(self))
        if self.batch.steps > self.step_limit:
            raise too_long(path, line)
        if self.batch.launch.interrupted is not None and self.batch.launch.interrupted():
            raise Interrupted(
                f"kernel {self.kernel_name}: stopped at PTX line {line}: it was not wanted any more", line
            )
        self.check_at = min(self.step_limit, self.batch.steps + CHECK_STEPS)

    def _hurry(self) -> None:
        self.check_at = -1

    # -- where paths go

    def go(self, path: Path, pc: int) -> None:
        """Put a path at a block; at the end of its region it has arrived."""
        if pc == path.region.rejoin:
            self.arrive(path)
            return
        path.pc = pc
        path.region.paths.append(path)
        self.runnable.append(path)
        self._merge_if_it_may(path)

    def _merge_if_it_may(self, path: Path) -> None:
        """As _merge, unless a schedule keeps apart what has come to one block."""
        if self.schedule is None or self.schedule.joins(len(self.runnable)):
            self._merge(path)

    def _merge(self, path: Path) -> None:
        """Become one with the paths of the same region at the same block, but for those that wait elsewhere.

        They can be several where a schedule has kept them apart.
        """
        for other in tuple(path.region.paths):
            is_here = other is not path and other.pc == path.pc and other.step == path.step
            if is_here and other.waits_for in ("", "warp"):
                path.join(other)
                if other.waits_for:
                    self.waiting.remove(other)
                else:
                    self.runnable.remove(other)
                path.region.paths.remove(other)
                path.region.pending -= 1

    def arrive(self, path: Path) -> None:
        """A path has come to its region's reconvergence block (it is no longer runnable)."""
        region = path.region
        if path in region.paths:
            region.paths.remove(path)
        if region.parent is None:
            self._leave(path)
        else:
            if region.back is not None:
                region.activation.count -= path.count
            if region.arrived is None:
                region.arrived = path.mask if path.mask is not None else self.batch.all_lanes
            else:
                region.arrived = region.arrived | path.full_mask
            region.arrived_count += path.count
        region.pending -= 1
        if not region.pending:
            self._close(region, path.turns)

    def _close(self, region: Region, turns: int) -> None:
        """All threads have arrived or exited: those that arrived go on together."""
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
        """The arrived threads become a path of the region around."""
        assert region.parent is not None
        same = region.arrived_count == region.count
        mask = region.mask if same else region.arrived
        path = Path(self.batch, region.parent, region.rejoin, mask, region.arrived_count, turns)
        region.arrived, region.arrived_count = None, 0
        if region.back is None:
            self.go(path, region.rejoin)
        else:
            region.back(path)

    def take_out(self, path: Path) -> Region:
        """Take a running path out: its threads diverge, enter a function, or end. Returns its region."""
        self.runnable.remove(path)
        path.region.paths.remove(path)
        return path.region

    def diverge(self, path: Path, parts: list[tuple[int, Lanes]], rejoin: int) -> None:
        """Split a path: (block, mask) each."""
        region = self.take_out(path)
        if rejoin != region.rejoin:
            region = Region(region, region.activation, rejoin, path.mask, path.count)
            region.pending = len(parts)
        else:
            region.pending += len(parts) - 1
        for pc, mask in parts:
            count = int(np.count_nonzero(mask))
            self.go(Path(self.batch, region, pc, mask, count, path.turns), pc)

    def exit(self, path: Path) -> None:
        """The threads of a path end."""
        region = self.take_out(path)
        self._leave(path)
        region.pending -= 1
        if not region.pending:
            self._close(region, path.turns)

    def _leave(self, path: Path) -> None:
        activation: Activation | None = path.activation
        while activation is not None:
            activation.count -= path.count
            activation = activation.caller
        self.live_count -= path.count
        if self.live_count:
            self.live = self.live & ~path.full_mask
            self.live_per_block = self.live_per_block - path.per_block()
        else:
            self.live_per_block = np.zeros_like(self.live_per_block)
        if self.batch.clusters is not None:
            self.batch.clusters.leave(self.live_per_block)

    # -- waiting

    def park(self, path: Path, why: str, line: int) -> None:
        """A path waits, for one of stops.WAITS."""
        path.waits_for, path.line = why, line
        self.runnable.remove(path)
        self.waiting.append(path)

    def _company_is_here(self, path: Path, block: DecodedBlock) -> bool:
        """Whether the threads that a block's first instruction needs are in the path."""
        if block.needs_warpgroup:
            groups = self.batch.warpgroup_of_lane
            size = int(groups[-1]) + 1
            here = np.bincount(groups[path.full_mask], minlength=size)
            live = np.bincount(groups[self.live], minlength=size)
            return bool(((here == live) | (here == 0)).all())
        assert block.warp_members is not None
        return self._warp_is_here(path, block.warp_members(path.activation.registers, path))

    def _warp_is_here(self, path: Path, members: Lanes) -> bool:
        """Whether, for each thread of the path, the members of its warp that live are in the path."""
        missing = members & ballots(self.live, self.batch) & ~active_bits(path)
        return not bool((missing[path.full_mask] if len(missing) > 1 else missing).any())

    def passes(self, path: Path, number: int, expected: int) -> bool:
        """Whether this path alone makes a barrier complete in every block that it has threads of, and so goes on."""
        if not self._is_complete(path, number, expected):
            return False
        if self.batch.races is not None:
            block_met(self.batch, path.full_mask)
        if self.batch.waits is not None:
            self.batch.waits.meet(np.flatnonzero(path.full_mask))
        return True

    def _is_complete(self, path: Path, number: int, expected: int) -> bool:
        barrier = self.barriers.get(number)
        if barrier is not None and barrier.arrived.any():
            return False
        if path.count == self.live_count and not expected:
            return True
        arrivals = path.per_block()
        needed = expected or self.live_per_block
        return bool(((arrivals == needed) | (arrivals == 0)).all())

    def part(self, path: Path, masks: list[Lanes | None]) -> list[Path]:
        """Take a running path apart, for each mask a path at the same block; None: all of it."""
        if len(masks) == 1:
            return [path]
        region = self.take_out(path)
        region.pending += len(masks) - 1
        parts = []
        for mask in masks:
            count = path.count if mask is None else int(np.count_nonzero(mask))
            made = Path(self.batch, region, path.pc, mask, count, path.turns)
            region.paths.append(made)
            self.runnable.append(made)
            parts.append(made)
        return parts

    def wait_at_barrier(
        self, path: Path, pc: int, number: int, expected: int, truth: Lanes | None, line: int
    ) -> None:
        """Arrive at a barrier of the block and wait. expected: how many threads; 0 stands for all that live."""
        barrier = self._arrive(path, number, None)
        if truth is not None:
            barrier.true += path.per_block(truth)
        path.pc, path.barrier, path.expected = pc, number, expected
        path.free = np.zeros(self.batch.count, bool)
        self.park(path, "barrier", line)
        self._check_barrier(number, expected)

    def arrive_at_barrier(self, path: Path, number: int, expected: int, mask: Lanes | None) -> None:
        """Arrive without waiting: those of a path that a mask names, None for all."""
        barrier = self._arrive(path, number, mask)
        barrier.split = gone_on(self.batch, barrier.split, path.full_mask if mask is None else mask)
        self._check_barrier(number, expected)

    def _arrive(self, path: Path, number: int, mask: Lanes | None) -> Barrier:
        batch = self.batch
        barrier = self.barriers.setdefault(number, Barrier(batch.count, len(batch.blocks)))
        barrier.arrived += path.per_block(mask)
        barrier.here |= path.full_mask if mask is None else mask
        return barrier

    def _check_barrier(self, number: int, expected: int) -> None:
        barrier = self.barriers[number]
        least: Any = self.live_per_block
        if expected:
            least = expected - barrier.not_there(self.batch, self.live, self.live_count)
        complete = barrier.complete(least)
        if not complete.any():
            return
        freed = complete[self.batch.block_of_lane]
        if self.batch.races is not None:
            block_met(self.batch, barrier.here & freed, expected, barrier.split)
        if self.batch.waits is not None:
            self.batch.waits.meet(np.flatnonzero(barrier.here & freed))
        barrier.here &= ~freed
        for path in [path for path in self.waiting if path.waits_for == "barrier" and path.barrier == number]:
            self.let_go(path, freed)

    def wait_for_warp(self, path: Path, pc: int, members: Lanes, line: int) -> None:
        """bar.warp.sync: until all live members of the warp wait at one."""
        path.pc = pc
        path.members = np.broadcast_to(members, (self.batch.count,))
        path.free = np.zeros(self.batch.count, bool)
        self.park(path, "warp barrier", line)
        self._check_warp_barriers()

    def _check_warp_barriers(self) -> None:
        paths = [path for path in self.waiting if path.waits_for == "warp barrier"]
        here = np.zeros(self.batch.count, bool)
        for path in paths:
            here |= path.full_mask & ~path.free
        missing = ballots(self.live, self.batch) & ~ballots(here, self.batch)
        if self.batch.races is not None:
            members = np.zeros(self.batch.count, np.uint32)
            for path in paths:
                np.copyto(members, path.members, where=path.full_mask & ~path.free, casting="unsafe")
            warps_met(self.batch, here & ((members & missing) == 0), members, self.live)
        for path in paths:
            self.let_go(path, (path.members & missing) == 0)

    def let_go(self, path: Path, free: Lanes) -> None:
        """Some of a waiting path's threads may go on; once all may, the path does."""
        path.free |= free & path.full_mask
        if int(np.count_nonzero(path.free)) == path.count:
            self._resume(path)

    def _resume(self, path: Path) -> None:
        """A waiting path may run again."""
        self.waiting.remove(path)
        path.waits_for = ""
        if path.on_wake is not None:
            path.is_whole = path.count == path.activation.count
            path.on_wake(path)
            path.on_wake = None
        if path.pc == path.region.rejoin:
            self.arrive(path)
            return
        self.runnable.append(path)
        self._merge_if_it_may(path)

    def _wake(self) -> bool:
        """Nothing can run: find out who may after all. False when all threads have ended."""
        if not self.waiting:
            return self._release_arrived()
        for number, expected in {(g.barrier, g.expected) for g in self.waiting if g.waits_for == "barrier"}:
            self._check_barrier(number, expected)
        if any(path.waits_for == "warp barrier" for path in self.waiting):
            self._check_warp_barriers()
        if self.batch.clusters is not None or "cluster_barrier" in vars(self):
            self.cluster_barrier.check(self)
        for path in [path for path in self.waiting if path.waits_for == "warp"]:
            if self._company_is_here(path, path.activation.decoded.blocks[path.pc]):
                self._resume(path)
        if not self.runnable:
            self._split_half_free()
        if self.runnable or self._release_arrived():
            return True
        raise deadlock(self.waiting)

    def _split_half_free(self) -> None:
        """Paths of which only some threads may go on are split."""
        for path in list(self.waiting):
            free = path.free
            if path.waits_for == "warp" or free is None or not free.any():
                continue
            region = path.region
            ready = Path(self.batch, region, path.pc, free, int(np.count_nonzero(free)), path.turns)
            ready.on_wake = path.on_wake
            path.set_mask(path.full_mask & ~free, path.count - ready.count)
            path.free = np.zeros(self.batch.count, bool)
            region.pending += 1
            region.paths.append(ready)
            self.waiting.append(ready)
            self._resume(ready)

    def _release_arrived(self) -> bool:
        """Threads that have arrived go on without the others, which may be waiting for what these do next."""
        seen: list[Region] = []
        for path in [*self.runnable, *self.waiting]:
            region: Region | None = path.region
            while region is not None:
                if region.arrived_count and region not in seen:
                    seen.append(region)
                region = region.parent
        for region in seen:
            assert region.parent is not None
            region.parent.pending += 1
            self._send_on(region, 0)
        return bool(seen) and bool(self.runnable)
