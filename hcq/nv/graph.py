"""Graphs on NVIDIA GPUs: how a block of recorded pieces is laid out.

In       recorded pieces
Out      a command buffer in device memory, and the segment that a replay submits
Changes  device memory, once for each copy
Next     hcq/graph.py (recording and replaying), pushbuffer.py (how pieces lie), device.py (who runs it)

A block is laid out as a submission is: the launch data first, then the methods of all pieces, which are one segment of
the GPFIFO. Every launch copies its QMD when it is scheduled, so a block may run again as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from hcq import command
from hcq.errors import UsageError
from hcq.gpu.device import GpuDevice
from hcq.graph import CommandBuffer, Graph
from hcq.lanes import Split
from hcq.nv.abi.qmd_fields import ALIGNMENT_BYTES
from hcq.nv.encode import Piece, note_block
from hcq.nv.pushbuffer import place, plan
from hcq.nv.rings import segment

MAX_SEGMENT_WORDS = (1 << 21) - 1  # the length of a GPFIFO entry has 21 bits


class NvGraph(Graph):
    """A queue whose methods stay in memory."""

    device: GpuDevice

    def lay_out(self, recorded: Sequence[bytes], split: Split | None) -> CommandBuffer:
        pieces = [what if isinstance(what, Piece) else Piece(what) for what in recorded]
        how = plan(pieces)
        words = (how.size_bytes - how.methods) // 4
        if words > MAX_SEGMENT_WORDS:
            raise UsageError(
                f"graph {self.name!r}: {4 * words} bytes of methods are more than {4 * MAX_SEGMENT_WORDS}. Split it."
            )
        buffer = self.device.visible(how.size_bytes + ALIGNMENT_BYTES, f"{self.name} block")
        va = -(-buffer.address // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        placed = place(pieces, how, va)
        base = va - buffer.address
        buffer.write(placed.image, base)
        note = note_block(va, how.size_bytes // 4, (segment(va + how.methods, words),))
        note.launches = sum(what.launches for what in pieces)
        meaning = command.Indirect(va, how.size_bytes // 4, self.name, tuple(self.commands))
        return CommandBuffer(buffer, [note], meaning, placed.data)
