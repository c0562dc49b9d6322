"""Steps that tell which instructions touch registers of matrix products, where waits are looked for.

In       a decoded block; then the groups of threads that run it
Out      the block with steps that tell: `products_waited`
Changes  the ProductWaits of the batch; no register, no memory
Next     product_waits.py (what comes of it), shared_wait_steps.py (the sister), warpgroup_ops.py (the products)
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.emu.nv.shader.decode import Code, DecodedBlock, Lowering, Registers, Step
from hcq.emu.nv.shader.flow import BasicBlock, reads_and_writes
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.product_waits import ProductWaits
from hcq.emu.nv.shader.syntax import Function, Immediate, Instruction, Register, Vector
from hcq.emu.nv.shader.types import Lanes

Look = Callable[[ProductWaits, Lanes], None]


def products_waited(lowering: Lowering, block: BasicBlock, made: DecodedBlock) -> None:
    """Put around the steps of a block what tells of products, and of their registers."""
    function, tracked = lowering.function, lowering.of_products
    if tracked is None:
        products = [one for one in function.body if _is_product(one)]
        tracked = {name for one in products for name in (*_results(one), *_factors(one))}
        lowering.of_products = tracked
    if not tracked:
        return
    made.steps = [
        _around(lowering, function, tracked, one, step) for one, step in zip(block.body, made.steps)
    ]


def _around(
    lowering: Lowering, function: Function, tracked: set[str], instruction: Instruction, step: Step
) -> Step:
    look = _of(function, tracked, instruction)
    if look is None:
        return step
    select = Code(lowering, instruction).select()

    def told(registers: Registers, group: Group) -> None:
        waits = group.batch.product_waits
        if waits is not None:
            lanes = select(registers, group)
            look(waits, group.batch.every_lane if lanes is None else lanes)
        step(registers, group)

    return told


def _of(function: Function, tracked: set[str], instruction: Instruction) -> Look | None:
    line = instruction.line
    if _is_product(instruction):
        results = [(function.name, name) for name in _results(instruction)]
        factors = [(function.name, name) for name in _factors(instruction)]
        return lambda waits, lanes: waits.product(lanes, results, factors, line)
    if instruction.opcode == "wgmma":
        what = instruction.modifiers[0]
        if what == "fence":
            return lambda waits, lanes: waits.fence(lanes)
        if what == "commit_group":
            return lambda waits, lanes: waits.commit(lanes)
        pending = instruction.operands[0]
        count = pending.value if isinstance(pending, Immediate) else 0
        return lambda waits, lanes: waits.wait(lanes, count)
    reads, writes = reads_and_writes(instruction)
    touched = {(function.name, name): name in writes for name in (*reads, *writes) if name in tracked}
    if not touched:
        return None

    def look(waits: ProductWaits, lanes: Lanes) -> None:
        for name, changes in touched.items():
            waits.touch(lanes, name, line, changes)

    return look


def _is_product(instruction: Instruction) -> bool:
    return instruction.opcode == "wgmma" and "mma_async" in instruction.modifiers


def _results(instruction: Instruction) -> list[str]:
    return reads_and_writes(instruction)[1]


def _factors(instruction: Instruction) -> list[str]:
    """The registers of matrix A, where it is in registers and no descriptor."""
    one = instruction.operands[1]
    return [part.name for part in one.parts if isinstance(part, Register)] if isinstance(one, Vector) else []
