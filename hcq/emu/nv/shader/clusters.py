"""Thread block clusters: which blocks run as one, and whose shared memory an address is in.

In       the shape of a cluster; lanes and the addresses in shared memory that they name
Out      Clusters: those of a batch, and where an address is in its shared memory
Changes  `ended`, which the machine keeps
Next     spaces.py (who asks), grids.py (which blocks), cluster_ops.py (mapa), cluster_barrier.py, batch.py
Source   PTX ISA, "Cluster of Cooperative Thread Arrays", ".shared state space"; SASS of ptxas for sm_90: the address
         of a shared variable is its offset with SR_CgaCtaId, the block's rank, in bits 31:24

In a cluster of several blocks every address of shared memory has the rank of its block in bits 31:24, also one's own.
The blocks of a cluster are neighbours in their batch, in order of their ranks. Where a cluster is one block, a batch
has no Clusters, and addresses are offsets.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.grids import coordinates
from hcq.emu.nv.shader.types import Lanes

if TYPE_CHECKING:
    from hcq.emu.nv.shader.batch import Batch
    from hcq.emu.nv.shader.cluster_exits import ClusterExits
    from hcq.emu.nv.shader.syntax import Instruction

RANK_SHIFT = 24
OFFSET_MASK = (1 << RANK_SHIFT) - 1
MOST_BLOCKS = 16  # of a cluster: eight everywhere, sixteen where a kernel allows sizes that are not portable
ONE_BLOCK = 1, 1, 1


class Clusters:
    """Those of a batch.

    first  the number of its first cluster in the launch
    ended  the blocks of the batch whose threads have all ended: their shared memory is gone
    exits  who looks whether blocks end too early, where somebody wants to know
    """

    def __init__(self, blocks: int, size: int, stride: int, limit: int, first: int) -> None:
        self.size, self.stride, self.limit, self.first = size, stride, limit, first
        self.ended = np.zeros(blocks, bool)
        self.exits: ClusterExits | None = None

    def own(self, batch: Batch, lanes: Lanes | None = None) -> Lanes:
        """What the addresses of each thread's own shared memory have in their upper bits."""
        block = batch.block_of_lane if lanes is None else batch.block_of_lane[lanes]
        return (block % self.size).astype(np.uint64) << np.uint64(RANK_SHIFT)

    def blocks(self, batch: Batch, lanes: Lanes | None, at: Lanes) -> Lanes:
        """Of the batch: that in whose shared memory each thread's address is."""
        rank = (at >> np.uint64(RANK_SHIFT)).view(np.int64)
        if len(rank) and int(rank.max()) >= self.size:
            index = int(np.argmax(rank))
            raise BadAccess(index, int(at[index]), f"the cluster has {self.size} blocks", space="shared")
        block = batch.block_of_lane if lanes is None else batch.block_of_lane[lanes]
        found: Lanes = block // self.size * self.size + rank
        gone = self.ended[found]
        who = batch.local_row if lanes is None else batch.local_row[lanes]
        if gone.any():
            index = int(np.argmax(gone))
            if self.exits is not None:
                self.exits.gone(int(who[index]), int(found[index]))
            why = f"the block of rank {int(rank[index])} has ended, and its shared memory with it"
            raise BadAccess(index, int(at[index]), why, space="shared")
        if self.exits is not None:
            self.exits.access(who, found)
        return found

    def leave(self, live: Lanes) -> None:
        """Threads have ended. live: how many live in each block."""
        gone = live == 0
        if self.exits is not None:
            self.exits.left(np.flatnonzero(gone & ~self.ended))
        if not gone.all():  # at the end of all blocks what is under way comes to its own
            self.ended = gone

    def places(self, batch: Batch, lanes: Lanes | None, at: Lanes, size_bytes: int) -> Lanes:
        """Where addresses are in the shared memory of the whole batch. Raises BadAccess."""
        offset = (at & np.uint64(OFFSET_MASK)).view(np.int64)
        if len(offset) and int(offset.max()) > self.limit - size_bytes:
            index = int(np.argmax(offset))
            why = f"the block's shared memory has {self.limit} bytes"
            raise BadAccess(index, int(at[index]), why, space="shared")
        return self.blocks(batch, lanes, at) * self.stride + offset


def exits_of(batch: Batch) -> ClusterExits | None:
    """Who looks whether blocks end too early, if anybody does."""
    return None if batch.clusters is None else batch.clusters.exits


def name_access(batch: Batch, instruction: Instruction) -> None:
    """What is done now was issued by this instruction."""
    if (exits := exits_of(batch)) is not None:
        exits.line = instruction.line


def of_batch(batch: Batch, stride: int) -> Clusters | None:
    """The clusters of a batch, of which it has whole ones; None where each is one block."""
    launch = batch.launch
    size = prod(launch.cluster)
    if size == 1:
        return None
    x, y, z = (
        int(at) // width for at, width in zip(coordinates(batch.blocks[0], launch.grid), launch.cluster)
    )
    across, down = launch.grid[0] // launch.cluster[0], launch.grid[1] // launch.cluster[1]
    return Clusters(len(batch.blocks), size, stride, batch.shared_bytes, x + across * (y + down * z))
