"""Memory: what a kernel uses beside its arguments: a worker's scratch, and what the threads of a group share.

In       who wants how many bytes
Out      where these lie; what a launch has to provide
Next     staging.py (scratch), tile_copies.py and collecting.py (shared), program.py (who carries the sums)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.compiler.linear.alignment import BUFFER_ALIGN
from hcq.compiler.linear.emitter import Emitter
from hcq.compiler.linear.program import Instruction
from hcq.compiler.loops.nest import ScheduleError
from hcq.ir.dtype import DType
from hcq.ir.node import Node
from hcq.ir.op import Op

if TYPE_CHECKING:
    from hcq.compiler.linear.tiles import Tile

SCRATCH_ALIGN = 64  # bytes
MOST_SHARED = 48 << 10  # bytes of a group, which every GPU has


class Memory:
    """The scratch and the shared memory of one kernel, and who has which part of them."""

    def __init__(self, emitter: Emitter, most_shared: int = MOST_SHARED):
        self.emitter = emitter
        self.most_shared = most_shared  # bytes of a group
        self.scratch_bytes = self.shared_bytes = 0
        self.shared_align = BUFFER_ALIGN
        self.scratch_at: dict[Node, int] = {}
        self.tile_of: dict[Node, Tile] = {}  # of what is staged, at its last place
        self.tensor_maps: dict[int, str] = {}  # by parameter
        self.producers = 0  # threads that only bring tiles

    def scratch(self, owner: Node, dtype: DType, count: int) -> Instruction:
        """The address of an owner's part of this worker's scratch memory; the same for every copy of a body."""
        if owner not in self.scratch_at:
            self.scratch_at[owner] = -(-self.scratch_bytes // SCRATCH_ALIGN) * SCRATCH_ALIGN
            self.scratch_bytes = self.scratch_at[owner] + count * dtype.itemsize
        return self.emitter.emit(Op.SCRATCH, dtype, (), self.scratch_at[owner])

    def results(self, size: int) -> None:
        """Results are collected in so many bytes, from the beginning. Raises ScheduleError where a group has fewer."""
        if size > self.most_shared:
            raise ScheduleError(f"collect: {size} bytes of shared memory exceed {self.most_shared}")
        self.shared_bytes = max(self.shared_bytes, size)
