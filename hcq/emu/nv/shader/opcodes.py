"""All rules together, and a function decoded with them.

In       a Module, the name of a function
Out      Decoded
Next     the *_ops modules (rules), control.py (ends of blocks), program.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from hcq import config
from hcq.emu.compiled import assemble
from hcq.emu.nv.shader import (
    async_stores,
    atomic_ops,
    bit_ops,
    bulk_ops,
    cluster_ops,
    compare_ops,
    convert_ops,
    float_ops,
    flow,
    integer_ops,
    launch_control,
    matrix_instructions,
    mbarrier_ops,
    memory_ops,
    move_ops,
    multimem_ops,
    stack_ops,
    tcgen05_ops,
    tensor_map_ops,
    video_ops,
    warp_ops,
    warpgroup_ops,
    wmma_ops,
)
from hcq.emu.nv.shader.control import end_of
from hcq.emu.nv.shader.decode import Code, Decoded, DecodedBlock, Lowering, Registers, Rule, Rules
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.retry import retry_loop
from hcq.emu.nv.shader.syntax import Function, Instruction, Module
from hcq.emu.nv.shader.types import TYPES, Lanes

SPIN_COST = 64
Addition = Callable[[Lowering, flow.BasicBlock, DecodedBlock], None]

FLOAT = float_ops.RULES
OTHERS = Rules()
for part in (
    integer_ops,
    bit_ops,
    compare_ops,
    convert_ops,
    move_ops,
    stack_ops,
    memory_ops,
    atomic_ops,
    async_stores,
    multimem_ops,
    warp_ops,
    matrix_instructions,
    wmma_ops,
    mbarrier_ops,
    video_ops,
    bulk_ops,
    cluster_ops,
    launch_control,
    tensor_map_ops,
    warpgroup_ops,
    tcgen05_ops,
):
    OTHERS.update(part.RULES)


def rule_of(instruction: Instruction) -> Rule | None:
    """The rule of an instruction. Of add, mul, min and the like there are two: for floats, and for integers."""
    first_word = instruction.modifiers[:1]
    if first_word in (("async",), ("bulk",)):  # a store, or a reduction, that an mbarrier counts; many zeros
        return OTHERS.get(f"{instruction.opcode}.{first_word[0]}") or OTHERS.get(instruction.opcode)
    is_float = any(TYPES[name].is_float for name in instruction.modifiers if name in TYPES)
    first, second = (FLOAT, OTHERS) if is_float else (OTHERS, FLOAT)
    return first.get(instruction.opcode) or second.get(instruction.opcode)


def decode(module: Module, function: Function, additions: tuple[Addition, ...] = ()) -> Decoded:
    """Decode a function's body. Raises PtxError, which names the line, at the first instruction that is not known.

    additions  each puts steps of its own into a block, in this order; without any, what was decoded once serves all
               kernels of the module
    """
    is_compiled = not additions and config.current().emu_compiled != "0" and assemble.is_installed()
    key = f"{function.name} to be compiled" if is_compiled else function.name  # no name of PTX has a blank
    if not additions and (known := module.decoded.get(key)) is not None:
        return cast(Decoded, known)
    if function.fault is not None:
        raise function.fault.with_traceback(None)
    blocks = flow.blocks_of(function)
    # compiled code leaves in the middle of blocks: then others must not write what threads have computed in theirs
    kept = {*function.registers, flow.CARRY} if is_compiled else flow.live_in_registers(blocks)
    lowering = Lowering(module, function, kept)
    lowering.flow = blocks
    decoded = lowering.decoded
    if is_compiled:
        decoded.lowering = lowering
    for block in blocks:
        steps = []
        for instruction in block.body:
            code = Code(lowering, instruction)
            rule = rule_of(instruction)
            if rule is None:
                raise code.refuse(f"the instruction {instruction.opcode!r} is not known")
            steps.append(rule(code))
            code.done()
        end = end_of(lowering, block)
        first = block.body[0] if block.body else block.end
        members = _members(lowering, block.body[0]) if block.waits_for_warp else None
        length = len(block.body) + 1
        line = first.line if first is not None else function.line
        cost = SPIN_COST if any(map(_may_spin, block.body)) else 1
        retry = retry_loop(lowering, block, steps)
        made = DecodedBlock(
            steps, block.next, block.rejoin, block.order, length, line, end, members, cost, retry
        )
        made.needs_warpgroup = bool(block.body) and flow.is_warpgroup_wide(block.body[0])
        made.waits = any(map(mbarrier_ops.is_wait, block.body))
        made.source = block if is_compiled else None
        for add in additions:
            add(lowering, block, made)
        decoded.blocks.append(made)
    if not additions:
        module.decoded[key] = decoded
    return decoded


def _may_spin(instruction: Instruction) -> bool:
    """Whether a loop around this may be waiting for what another thread writes."""
    if instruction.opcode == "ld":
        return any(word in instruction.modifiers for word in ("volatile", "acquire", "relaxed"))
    return instruction.opcode in ("atom", "nanosleep", "mbarrier")


def _members(lowering: Lowering, instruction: Instruction) -> Callable[[Registers, Group], Lanes]:
    """Who must be there for a warp instruction: its last operand, or the whole warp."""
    is_whole = flow.is_warpgroup_wide(instruction) or flow.is_of_tensor_memory(instruction)
    if instruction.opcode in flow.WHOLE_WARP or is_whole:
        whole = np.full(1, 0xFFFFFFFF, np.uint32)
        return lambda registers, group: whole
    code = Code(lowering, instruction)
    slot = code.source(len(code.operands) - 1, TYPES["b32"])
    return lambda registers, group: registers[slot]
