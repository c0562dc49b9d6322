"""A batch of blocks as its instructions see it: numbered lanes, memory, special registers, the clock.

In       a Launch, the numbers of the blocks
Out      Batch
Changes  its own shared and local memory
Next     groups.py (which lanes execute), spaces.py (how an address becomes bytes), clusters.py (blocks that run as
         one), machine.py (runs a batch)
Source   PTX ISA, "Special Registers"

Lanes are threads, block after block, padded to whole warps where warps matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hcq.emu.nv.shader import clusters, lane_numbers
from hcq.emu.nv.shader.copies import Copies
from hcq.emu.nv.shader.errors import KernelFault
from hcq.emu.nv.shader.grids import coordinates
from hcq.emu.nv.shader.memory import Memory
from hcq.emu.nv.shader.pending import Pending
from hcq.emu.nv.shader.product_waits import ProductWaits
from hcq.emu.nv.shader.shared_waits import SharedWaits
from hcq.emu.nv.shader.sync_faults import SyncFaults
from hcq.emu.nv.shader.tensor_memory import TensorMemory
from hcq.emu.nv.shader.thread_copies import ThreadCopies
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.memory_checks import MemoryChecks
from hcq.emu.shader.races import Races
from hcq.emu.shader.traffic import Tally
from hcq.events.waves import Running

WARP, WARPGROUP = lane_numbers.WARP, lane_numbers.WARPGROUP
MAX_LOCAL_BYTES = 1 << 19
RESERVED_SHARED_BYTES = 0x400  # of a block, for the system

Dim3 = tuple[int, int, int]


@dataclass(eq=False)
class Launch:
    """What all batches of a launch have in common.

    shared_bytes   of a block: the kernel's own variables, then the dynamic part
    reserved_shared_bytes  behind them: the system's, where the kernel asks for it
    given          special registers whose values the launch decides
    known          special registers that were computed before, also by other launches of the kernel
    step_limit     instructions that all batches together may execute
    interrupted    asked from time to time; when it says yes, the kernel ends
    param_base     where the parameters begin in constant bank 0, of which their addresses' alignment is told
    tally          what the launch has done so far, of a kernel that counts
    running        who may ask where its warps are
    cluster        how many blocks of each direction are a cluster
    pending        the blocks that have not begun, where running ones may cancel them
    """

    kernel_name: str
    memory: Memory
    params: Lanes
    grid: Dim3
    block: Dim3
    shared_bytes: int
    dynamic_shared_bytes: int
    reserved_shared_bytes: int
    shared_window: int
    local_window: int
    uses_warps: bool
    given: Mapping[str, int]
    known: dict[tuple[Any, ...], Lanes]
    step_limit: int
    interrupted: Callable[[], bool] | None
    param_base: int = 0
    tally: Tally | None = None
    running: Running | None = None
    cluster: Dim3 = (1, 1, 1)
    pending: Pending | None = None


class Batch:
    """The lanes of some blocks and what they share. `steps` counts instructions, also of batches before this one."""

    def __init__(self, launch: Launch, blocks: Lanes, steps: int) -> None:
        self.launch = launch
        self.memory, self.params = launch.memory, launch.params
        self.shared_window, self.local_window = launch.shared_window, launch.local_window
        self.steps = steps
        self._number_lanes(blocks)
        stride = -(-launch.shared_bytes // 16) * 16 + launch.reserved_shared_bytes
        self.shared_bytes = stride if launch.reserved_shared_bytes else launch.shared_bytes
        self.shared = np.zeros(stride * len(blocks), np.uint8)
        self.shared_start = self.numbers.starts(stride)
        self.clusters = clusters.of_batch(self, stride)  # None where each is one block
        # of generic addresses of shared memory
        self.shared_window_bytes = (1 << clusters.RANK_SHIFT) * (
            1 if self.clusters is None else self.clusters.size
        )
        self.local_row = self.every_lane
        self.local_bytes = 0
        self.local = np.zeros(0, np.uint8)
        self.races: Races | None = None  # what is known of accesses to memory, where somebody wants to
        self.unwritten: Any = None  # shadows.Unwritten, where somebody wants to know what nobody wrote
        self.watch: MemoryChecks | None = (
            None  # who looks at accesses to memory, where somebody wants to know
        )
        self.tensor_memory: TensorMemory | None = None  # of a kernel that uses some
        self.waits: SharedWaits | None = None  # what copies have yet to do, likewise
        self.product_waits: ProductWaits | None = None
        self.sync_faults: SyncFaults | None = None  # who comes to barriers and masks, likewise
        self.copies = Copies()
        self.thread_copies = ThreadCopies(self.count)
        self.failed_wait = ""  # what a wait for an mbarrier found that was not over

    def _number_lanes(self, blocks: Lanes) -> None:
        x, y, z = self.launch.block
        numbers = self.numbers = lane_numbers.of_form(x * y * z, len(blocks), self.launch.uses_warps)
        self.count, self.threads_per_block, self.blocks = numbers.count, x * y * z, blocks
        self.every_lane, self.all_lanes = numbers.every_lane, numbers.all_lanes
        self.block_of_lane, self.thread_of_lane = numbers.block_of_lane, numbers.thread_of_lane
        if self.launch.uses_warps:
            self.lane_in_warp, self.warp_start = numbers.lane_in_warp, numbers.warp_start
            self.full_warps, self.warpgroup_of_lane = numbers.full_warps, numbers.warpgroup_of_lane

    def only(self, lanes: Lanes) -> Batch:
        """The same blocks with only these lanes, numbered anew; memory is the same. For steps without warps."""
        made = object.__new__(Batch)
        made.__dict__.update(self.__dict__)
        made.count = len(lanes)
        made.every_lane = self.every_lane[: len(lanes)]
        made.all_lanes = self.all_lanes[: len(lanes)]
        made.block_of_lane = self.block_of_lane[lanes]
        made.thread_of_lane = self.thread_of_lane[lanes]
        made.shared_start = self.shared_start[lanes]
        made.local_row = self.local_row[lanes]
        return made

    def place(self, lane: int) -> tuple[Dim3, Dim3]:
        """(block, thread) of a lane, in three coordinates each."""
        number, thread = int(self.blocks[self.block_of_lane[lane]]), int(self.thread_of_lane[lane])
        return coordinates(number, self.launch.grid), coordinates(thread, self.launch.block)

    def name_of(self, warp: int, lane: int) -> str:
        """A thread in words. warp: counted over the whole batch, block by block."""
        per_block = -(-self.threads_per_block // WARP)
        width = self.count // len(self.blocks)
        at = warp // per_block * width + warp % per_block * WARP + lane
        return thread_name(
            self.launch, int(self.blocks[self.block_of_lane[at]]), int(self.thread_of_lane[at])
        )

    def lane_name(self, lane: int) -> str:
        """A thread in words, by its number in the batch."""
        return thread_name(
            self.launch, int(self.blocks[self.block_of_lane[lane]]), int(self.thread_of_lane[lane])
        )

    # -- special registers

    def special_register(self, name: str) -> Lanes:
        """The value of %name, one for all threads where that is so; 0 for what this machine does not have."""
        launch = self.launch
        if name in launch.given:
            return np.array([launch.given[name] % 2**64], np.uint64)
        if name.startswith(("ctaid", "clusterid")) and self.blocks[0]:  # these differ from batch to batch
            return self._compute_special(name)
        sizes = launch.block, launch.grid, launch.cluster, launch.shared_bytes, launch.dynamic_shared_bytes
        key = (name, self.count, *sizes)
        if key not in launch.known:
            launch.known[key] = self._compute_special(name)
        return launch.known[key]

    def _compute_special(self, name: str) -> Lanes:
        register, _, axis = name.partition(".")
        which = "xyz".find(axis) if axis else 0
        launch = self.launch
        if register in ("ctaid", "clusterid"):
            of_blocks = _shared(coordinates(self.blocks, launch.grid)[which])
            if register == "clusterid":
                of_blocks = of_blocks // launch.cluster[which]
            return of_blocks if len(of_blocks) == 1 else np.repeat(of_blocks, self.numbers.width)
        if register == "tid":
            thread = np.minimum(self.thread_of_lane, self.threads_per_block - 1)
            return _shared(coordinates(thread, launch.block)[which])
        lane = self.thread_of_lane % WARP
        size = prod(launch.cluster)
        rank = self.block_of_lane % size
        reserved = self.shared_bytes - launch.reserved_shared_bytes + (rank << clusters.RANK_SHIFT)
        table: dict[str, Any] = {
            "ntid": launch.block[which],
            "nctaid": launch.grid[which],
            "nclusterid": launch.grid[which] // launch.cluster[which],
            "cluster_nctaid": launch.cluster[which],
            "cluster_nctarank": size,
            "cluster_ctaid": coordinates(rank, launch.cluster)[which],
            "cluster_ctarank": rank,
            "is_explicit_cluster": int(size > 1),
            "nwarpid": -(-self.threads_per_block // WARP),
            "nsmid": 1,
            "total_smem_size": launch.shared_bytes,
            "aggr_smem_size": launch.shared_bytes + RESERVED_SHARED_BYTES,
            "reserved_smem_offset_begin": reserved,
            "reserved_smem_offset_0": reserved,
            "reserved_smem_offset_1": reserved + RESERVED_SHARED_BYTES // 2,
            "reserved_smem_offset_end": reserved + RESERVED_SHARED_BYTES,
            "reserved_smem_offset_cap": reserved + RESERVED_SHARED_BYTES,
            "dynamic_smem_size": launch.dynamic_shared_bytes,
            "laneid": lane,
            "warpid": self.thread_of_lane // WARP,
            "lanemask_eq": 1 << lane,
            "lanemask_lt": (1 << lane) - 1,
            "lanemask_le": (2 << lane) - 1,
            "lanemask_gt": 0xFFFFFFFF & ~((2 << lane) - 1),
            "lanemask_ge": 0xFFFFFFFF & ~((1 << lane) - 1),
        }
        return _shared(table.get(register, 0))

    # -- local memory

    def need_local(self, size_bytes: int) -> None:
        """Give every thread at least so many bytes of local memory."""
        if size_bytes <= self.local_bytes:
            return
        if size_bytes > MAX_LOCAL_BYTES:
            raise KernelFault(
                f"kernel {self.launch.kernel_name}: needs {size_bytes} bytes of local memory per thread."
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


def thread_name(launch: Launch, block: int, thread: int) -> str:
    """A thread in words, by the number of its block in the grid and its own in that."""
    places = coordinates(thread, launch.block), coordinates(block, launch.grid)
    return "thread {} of block {}".format(*(tuple(map(int, place)) for place in places))


def _shared(values: Any) -> Lanes:
    """As uint32, and a single value when all are equal."""
    array = np.atleast_1d(np.asarray(values)).astype(np.uint32)
    return array[:1] if (array == array[0]).all() else array
