"""Addresses in a thread block cluster: of the same place in another block's shared memory, and whose an address is.

In       Code with an address in shared memory and the rank of a block
Out      steps
Next     clusters.py (what addresses are), control.py (barrier.cluster), batch.py (%cluster_ctarank and its sisters)
Source   PTX ISA, "mapa", "getctarank"
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader.clusters import OFFSET_MASK, RANK_SHIFT
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.errors import KernelFault
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.types import TYPES

RULES = Rules()
U32 = TYPES["u32"]


@RULES.on("mapa")
def map_address(code: Code) -> Step:
    """The same place in the shared memory of the block with a rank. Without a space the addresses are generic."""
    is_generic = not code.take("shared::cluster")
    type_ = code.type("u32", "u64")
    code.expect(3)
    slot, rank = code.source(1, type_), code.source(2, U32)
    write, line = code.result(type_), code.instruction.line

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        ranks = np.broadcast_to(registers[rank], (batch.count,))
        size = 1 if batch.clusters is None else batch.clusters.size
        wrong = (ranks >= size) & group.full_mask
        if wrong.any():
            block, thread = batch.place(int(np.argmax(wrong)))
            raise KernelFault(
                f"kernel {batch.launch.kernel_name}, PTX line {line}: mapa of rank {int(ranks[wrong][0])} by thread "
                f"{thread} of block {block}: its cluster has {size} block{'s' * (size > 1)}, with ranks from 0 on.",
                line,
                [(block, thread)],
            )
        start = type_.bits(batch.shared_window * is_generic % (1 << type_.width))
        offset = (registers[slot] - start) & type_.bits(OFFSET_MASK)
        write(registers, group, (offset | ranks.astype(type_.bits) << type_.bits(RANK_SHIFT)) + start)

    return step


@RULES.on("getctarank")
def rank_of_address(code: Code) -> Step:
    """The rank of the block that an address belongs to."""
    is_generic = not code.take("shared::cluster")
    type_ = code.type("u32", "u64")
    code.expect(2)
    slot, write = code.source(1, type_), code.result(U32)

    def step(registers: Registers, group: Group) -> None:
        start = type_.bits(group.batch.shared_window * is_generic % (1 << type_.width))
        write(registers, group, ((registers[slot] - start) >> type_.bits(RANK_SHIFT)).astype(np.uint32))

    return step
