"""Thread block clusters of one block: addresses of other blocks' shared memory, of which there is only one's own.

In       Code with an address in shared memory and the rank of a block
Out      steps
Changes  nothing
Next     control.py (barrier.cluster), batch.py (%cluster_ctarank and its sisters)
Source   PTX ISA, "mapa", "getctarank"
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.errors import KernelFault
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.types import TYPES

RULES = Rules()
U32 = TYPES["u32"]


@RULES.on("mapa")
def map_address(code: Code) -> Step:
    """The same place in the shared memory of the block with a rank: of rank 0, which is this block."""
    code.take("shared::cluster")
    type_ = code.type("u32", "u64")
    code.expect(3)
    slot, rank = code.source(1, type_), code.source(2, U32)
    write, line = code.result(type_), code.instruction.line

    def step(registers: Registers, group: Group) -> None:
        ranks = np.broadcast_to(registers[rank], (group.batch.count,))
        wrong = (ranks != 0) & group.full_mask
        if wrong.any():
            block, thread = group.batch.place(int(np.argmax(wrong)))
            raise KernelFault(
                f"kernel {group.batch.launch.kernel_name}, PTX line {line}: mapa of rank {int(ranks[wrong][0])} by "
                f"thread {thread} of block {block}: clusters of one block have rank 0 only.",
                line,
                [(block, thread)],
            )
        write(registers, group, registers[slot])

    return step


@RULES.on("getctarank")
def rank_of_address(code: Code) -> Step:
    """The rank of the block that an address belongs to: 0."""
    code.take("shared::cluster")
    type_ = code.type("u32", "u64")
    code.expect(2)
    code.source(1, type_)
    write = code.result(U32)
    zero = np.zeros(1, np.uint32)
    return lambda registers, group: write(registers, group, zero)
