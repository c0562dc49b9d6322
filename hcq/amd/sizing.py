"""Sizes that the kernel driver expects to the byte: context save areas and control stacks of compute queues.

In       a Node of the topology and its Chip
Out      QueueSizes, and the headers that go into the context save area
Next     rings.py (who allocates by these), hcq/emu/amd/kfd_queues.py (who checks them, as the kernel does)
Source   libhsakmt queues.c, kfd_queue.c
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.amd.abi.kfd import ContextSaveAreaHeader
from hcq.amd.chip import Chip
from hcq.amd.topology import Node

PAGE = 4096
EOP_BYTES = 4096
SGPR_BYTES, HWREG_BYTES = 0x4000, 0x1000  # of one compute unit
DEBUG_BYTES_PER_WAVE = 32
HEADER_BYTES = 40
GFX10_STACK_BYTES = 0x7000  # the hardware has no more


class QueueSizes(NamedTuple):
    """Bytes, for each XCC; area_bytes is the whole context save area."""

    ctl_stack_bytes: int
    save_bytes: int  # ctx_save_restore_size of CREATE_QUEUE
    debug_bytes: int
    area_bytes: int


def aligned(size: int, to: int = PAGE) -> int:
    """A size rounded up to a multiple."""
    return -(-size // to) * to


def queue_sizes(node: Node, chip: Chip) -> QueueSizes:
    """What a compute queue needs on this GPU. The kernel's own figures win where the topology has them."""
    units = node.compute_units // node.xccs
    if chip.family == 9:
        waves = min(units * 40, node.shader_engines * 512)
        wave_bytes = 8
    else:
        waves = units * 32
        wave_bytes = 12
    state = aligned(units * (chip.vgpr_bytes + SGPR_BYTES + chip.lds_bytes + HWREG_BYTES))
    stack = node.ctl_stack_bytes or aligned(HEADER_BYTES + waves * wave_bytes + 8)
    if chip.family == 10:
        stack = min(stack, GFX10_STACK_BYTES)
    debug = aligned(waves * DEBUG_BYTES_PER_WAVE, 64)
    save = node.cwsr_bytes or stack + state
    return QueueSizes(stack, save, debug, aligned((save + debug) * node.xccs))


def area_headers(sizes: QueueSizes, xccs: int) -> list[tuple[int, bytes]]:
    """(offset, header) for each XCC's slice of the context save area."""
    found = []
    for index in range(xccs):
        header = ContextSaveAreaHeader(
            debug_offset=(xccs - index) * sizes.save_bytes, debug_size=sizes.debug_bytes * xccs
        )
        found.append((index * sizes.save_bytes, header.to_bytes()))
    return found
