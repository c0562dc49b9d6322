"""Kernel: an entry of a PTX module, run over a grid as an emulated GPU's shader core does.

In       PTX, the entry's name, grid and block, memory, parameters, addresses of the module's variables
Out      a Report: instructions executed; KernelFault when the kernel cannot go on
Changes  memory
Next     machine.py (one batch of blocks), parser.py (text to Module)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from hcq.emu.nv.shader import native_launch
from hcq.emu.nv.shader.batch import RESERVED_SHARED_BYTES, WARP, Batch, Dim3, Launch
from hcq.emu.nv.shader.checks import attach, most_blocks, refused
from hcq.emu.nv.shader.clusters import MOST_BLOCKS, ONE_BLOCK
from hcq.emu.nv.shader.errors import Interrupted, KernelFault
from hcq.emu.nv.shader.machine import Machine
from hcq.emu.nv.shader.memory import Memory
from hcq.emu.nv.shader.native_ahead import look_ahead
from hcq.emu.nv.shader.native_launch import Report
from hcq.emu.nv.shader.opcodes import Addition, decode
from hcq.emu.nv.shader.parser import parse
from hcq.emu.nv.shader.pending import Pending
from hcq.emu.nv.shader.program import Program
from hcq.emu.nv.shader.syntax import Module
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.schedule import MOST_PARTS, Schedule
from hcq.emu.shader.traffic import Tally
from hcq.errors import UsageError
from hcq.events.waves import Running

# threads that run as one NumPy array: enough to hide the interpreter, few enough for the caches
BATCH_LANES = 16384
MAX_BATCH_BYTES = 1 << 28
STEP_LIMIT = 20_000_000
SHARED_WINDOW = 0x7294_0000_0000
LOCAL_WINDOW = 0x7293_0000_0000
MAX_SHARED_BYTES = 232448
MAX_THREADS = 1024
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)

ReadParams = Callable[[int, int], bytes]


MAX_PARSED = 64  # modules that are kept


@functools.lru_cache(MAX_PARSED)
def parsed(text: bytes, param_base: int) -> Module:
    """A module, kept with what is decoded of it: who loads a kernel and who launches it ask for the same one.

    param_base  as Kernel takes it: functions know where their parameters begin
    Raises      PtxError
    """
    return parse(text.decode("utf-8", "replace"))


class Kernel:
    """An entry of a module, decoded once, to be run many times.

    symbols     addresses of .global and .const variables
    param_base  where the launch puts parameters in constant bank 0: what is aligned to more than 16 is aligned there
    additions   what is put around the steps of its blocks: counters.counted, those of checks.py
    """

    def __init__(
        self,
        module: Module | str,
        entry: str,
        symbols: Mapping[str, int] | None = None,
        param_base: int = 0,
        *,
        additions: tuple[Addition, ...] = (),
    ) -> None:
        parsed = parse(module) if isinstance(module, str) else module
        if entry in parsed.functions:
            parsed.functions[entry].param_base = param_base
        decoder = functools.partial(decode, additions=additions) if additions else decode
        self.program = Program(parsed, entry, dict(symbols or {}), decoder)
        self.function = self.program.entry.function
        self.kept = native_launch.Kept()

    @functools.cached_property
    def param_bytes(self) -> int:
        """How many bytes of parameters it reads."""
        return self.function.param_bytes

    @functools.cached_property
    def static_shared_bytes(self) -> int:
        """Shared memory of its own variables; what the launch asks for comes after it."""
        return self.program.static_shared_bytes

    def run(
        self,
        grid: Dim3,
        block: Dim3,
        memory: Memory,
        params: bytes | ReadParams,
        *,
        dynamic_shared_bytes: int = 0,
        shared_window: int = SHARED_WINDOW,
        local_window: int = LOCAL_WINDOW,
        step_limit: int = STEP_LIMIT,
        batch_lanes: int = BATCH_LANES,
        specials: Mapping[str, int] | None = None,
        interrupted: Callable[[], bool] | None = None,
        tally: Tally | None = None,
        sample: int = 0,
        together: bool = False,
        checks: Checks | None = None,
        running: Running | None = None,
        schedule: Schedule | None = None,
        cluster: Dim3 | None = None,
    ) -> Report:
        """Run the kernel for every block of the grid, in order of their numbers, several at once.

        specials     values of special registers that the launch decides: smid, gridid, envreg1, ...
        params       the bytes of the parameters, or read(offset, size_bytes) that gets them where the launch put them
        step_limit   instructions that all batches together may execute, each for all threads of a batch
        interrupted  asked from time to time; when it says yes, the kernel ends with Interrupted
        tally        for a kernel that counts, and only for one
        checks       what is looked for, for a kernel with the additions of just these: gets what is found
        sample       run only the first so many blocks; 0: all
        together     all blocks run at once, for they wait for one another
        running      who may ask where its warps are
        schedule     the order of warps that nothing orders; None: they stay together
        cluster      how many blocks of each direction are a cluster; None: as the kernel says, or one
        Raises       UsageError for an impossible launch; KernelFault (PageFault, Deadlock, StepLimit, ...)
        """
        is_plain = schedule is None and checks is None and tally is None and not together and not sample
        given = tuple(specials.items()) if specials else ()
        key = (grid, block, dynamic_shared_bytes, cluster, shared_window, local_window, batch_lanes, given)
        if is_plain and not callable(params):
            known = self.kept.run(key, memory, params, step_limit, interrupted, running)
            if known is not None:
                self._ask(interrupted, known.batches)
                return known
        if checks is not None and "memory" in checks.words and self.program.shared_is_declared:
            dynamic_shared_bytes = 0  # sizes are rounded up; what is behind the variables is nobody's
        launch = self.launch(
            grid,
            block,
            memory,
            params,
            dynamic_shared_bytes,
            shared_window,
            local_window,
            step_limit if schedule is None else step_limit * MOST_PARTS,  # each part executes it by itself
            specials,
            interrupted,
            tally,
            running,
            cluster,
        )
        blocks = grid[0] * grid[1] * grid[2]
        size = prod(launch.cluster)
        blocks = min(blocks, -(-sample // size) * size or blocks)
        at_once = self.blocks_at_once(
            blocks, block, dynamic_shared_bytes, batch_lanes, together, checks, launch.cluster
        )
        pending = launch.pending = Pending(blocks, grid, launch.cluster)
        if schedule is None and checks is None and not together:
            at_once = look_ahead(self.program, launch, blocks, at_once)
        steps = batches = 0
        while len(numbers := pending.take(at_once)):
            done = self.kept.batch(key, self.program, launch, numbers, steps) if is_plain else None
            steps = self._interpret(launch, numbers, steps, checks, schedule) if done is None else done
            batches += 1
            self._ask(interrupted, batches)
        return Report(steps, blocks, batches)

    def _interpret(
        self, launch: Launch, blocks: Lanes, steps: int, checks: Checks | None, schedule: Schedule | None
    ) -> int:
        """Run a batch of a launch, after so many steps of others. Returns the steps of all of them."""
        batch = Batch(launch, blocks, steps)
        if checks is not None:
            attach(checks, self.program, batch)
        try:
            Machine(self.program, batch, schedule).run()
        except KernelFault as fault:
            if checks is not None:
                refused(checks, self.program, batch, fault)
            raise
        return batch.steps

    def _ask(self, interrupted: Callable[[], bool] | None, batches: int) -> None:
        """Raise where nobody wants the kernel any more."""
        if interrupted is not None and interrupted():
            raise Interrupted(
                f"kernel {self.function.name}: stopped after {batches} batches: it was not wanted any more"
            )

    def launch(
        self,
        grid: Dim3,
        block: Dim3,
        memory: Memory,
        params: bytes | ReadParams,
        dynamic_shared_bytes: int = 0,
        shared_window: int = SHARED_WINDOW,
        local_window: int = LOCAL_WINDOW,
        step_limit: int = STEP_LIMIT,
        specials: Mapping[str, int] | None = None,
        interrupted: Callable[[], bool] | None = None,
        tally: Tally | None = None,
        running: Running | None = None,
        cluster: Dim3 | None = None,
    ) -> Launch:
        """What all batches of a launch have in common. As `run`. Raises UsageError for an impossible launch."""
        self._check(grid, block, dynamic_shared_bytes)
        cluster = self._cluster(grid, cluster)
        size = self.param_bytes
        data = params(0, size) if callable(params) else bytes(params)
        if len(data) < size:
            raise UsageError(
                f"kernel {self.function.name!r} has {size} bytes of parameters; the launch gives {len(data)}."
            )
        return Launch(
            self.function.name,
            memory,
            np.frombuffer(data[:size] + bytes(-size % 16), np.uint8),
            grid,
            block,
            self.static_shared_bytes + dynamic_shared_bytes,
            dynamic_shared_bytes,
            RESERVED_SHARED_BYTES if self.program.uses_reserved_shared else 0,
            shared_window,
            local_window,
            self.program.uses_warps,
            specials or {},
            self.program.specials,
            step_limit,
            interrupted,
            self.function.param_base,
            tally,
            running,
            cluster,
        )

    def _cluster(self, grid: Dim3, given: Dim3 | None) -> Dim3:
        """The shape of the clusters of a launch."""
        name, required = self.function.name, self.function.required_cluster
        x, y, z = required or ONE_BLOCK
        found = (x, y, z) if given is None else given
        if required and found != required:
            raise UsageError(f"kernel {name!r}: cluster={found}, but it was compiled for exactly {required}.")
        if len(found) != 3 or min(found) < 1 or prod(found) > MOST_BLOCKS:
            raise UsageError(
                f"kernel {name!r}: cluster={found} is not three sizes of 1 to {MOST_BLOCKS} blocks."
            )
        if any(size % width for size, width in zip(grid, found)):
            raise UsageError(
                f"kernel {name!r}: grid={grid} is no multiple of its clusters of {found} blocks."
            )
        return found

    def blocks_at_once(
        self,
        blocks: int,
        block: Dim3,
        dynamic_shared_bytes: int,
        batch_lanes: int,
        together: bool,
        checks: Checks | None,
        cluster: Dim3 = ONE_BLOCK,
    ) -> int:
        """How many of so many blocks run together: as many whole clusters as fill a batch, as long as their memory, and
        what is remembered of it, stay bounded. together: all of them."""
        if together:
            return blocks
        threads = block[0] * block[1] * block[2]
        shared = self.static_shared_bytes + dynamic_shared_bytes
        local = threads * self.program.entry.local_bytes
        found = max(min(batch_lanes // threads, MAX_BATCH_BYTES // max(shared + local, 1)), 1)
        size = prod(cluster)
        return max(most_blocks(checks, shared, -(-threads // WARP), found) // size, 1) * size

    def _check(self, grid: Dim3, block: Dim3, dynamic_shared_bytes: int) -> None:
        name = self.function.name
        for what, sizes, limits in (("grid", grid, MAX_GRID), ("block", block, MAX_BLOCK)):
            if len(sizes) != 3 or any(not 0 < size <= limit for size, limit in zip(sizes, limits)):
                raise UsageError(f"kernel {name!r}: {what}={sizes} is not three sizes from 1 up to {limits}.")
        threads = block[0] * block[1] * block[2]
        if threads > MAX_THREADS:
            raise UsageError(
                f"kernel {name!r}: block={block} has {threads} threads; at most {MAX_THREADS} are possible."
            )
        required, largest = self.function.required_block, self.function.largest_block
        if required and tuple(block) != required:
            raise UsageError(f"kernel {name!r}: block={block}, but it was compiled for exactly {required}.")
        if largest and threads > largest[0] * largest[1] * largest[2]:
            raise UsageError(f"kernel {name!r}: block={block}, but it was compiled for at most {largest}.")
        total = self.static_shared_bytes + dynamic_shared_bytes
        if dynamic_shared_bytes < 0 or total > MAX_SHARED_BYTES:
            raise UsageError(
                f"kernel {name!r}: {total} bytes of shared memory; 0 to {MAX_SHARED_BYTES} are possible."
            )
