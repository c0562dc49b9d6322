"""A matrix unit with a memory of its own in CUDA C: inline assembly, the same as in LLVM IR.

In       TENSOR_... of a linear program, its operands as expressions
Out      a statement
Next     tensor_memory.py (the PTX), cuda.py (who asks)
"""

from __future__ import annotations

from hcq.compiler.linear.program import Instruction
from hcq.compiler.render import tensor_memory
from hcq.compiler.render.cuda_bulk import number, slot
from hcq.ir.op import Op


def statement(it: Instruction, results: list[str], place: str, values: list[str]) -> str:
    """One of them, that memory is not moved across.

    results   the variables of what it gives
    place     of those that have one: where its 16 bytes of shared memory are, as an operand
    values    all operands, the place left out
    """
    if it.op is Op.TENSOR_MEMORY:
        line = tensor_memory.memory(it, slot)
    elif it.op is Op.TENSOR_MATRIX:
        line = tensor_memory.product(it, slot)
    elif it.op is Op.TENSOR_HELD:
        line = tensor_memory.held(it, slot)
    elif it.op is Op.TENSOR_COMMIT:
        line = tensor_memory.commit(slot)
    elif it.op is Op.TENSOR_RESULT:
        line = tensor_memory.result(it, slot)
    else:
        line = tensor_memory.free(it, slot)
    wide = len(values) - 2 if it.op is Op.TENSOR_MATRIX else 0  # descriptors
    operands = [place] if place else []
    operands += [f'"l"({value})' if at < wide else number(value) for at, value in enumerate(values)]
    letter = "=f" if it.op is Op.TENSOR_RESULT else "=r"
    outputs = ", ".join([f'"{letter}"({name})' for name in results])
    return f'asm volatile("{line}" : {outputs} : {", ".join(operands)} : "memory");'
