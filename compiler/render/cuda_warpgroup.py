"""A warpgroup's matrix unit in CUDA C: inline assembly, for the language has no words for it.

In       DESCRIPTOR and WARPGROUP_... of a linear program
Out      statements; the variables that hold an accumulator
Next     warpgroup.py (the PTX), cuda.py (who asks), nvptx_warpgroup.py (the same in LLVM IR)
"""

from __future__ import annotations

from hcq.compiler.linear.program import Instruction
from hcq.compiler.render import warpgroup
from hcq.ir.op import Op


def statement(line: str) -> str:
    """One instruction that has no operands, and that memory is not moved across."""
    return f'asm volatile("{line}" ::: "memory");'


def ordering(it: Instruction) -> list[str]:
    """The statements of WARPGROUP_FENCE and WARPGROUP_WAIT."""
    if it.op is Op.WARPGROUP_FENCE:
        return [statement(warpgroup.FENCE)]
    return [statement(warpgroup.COMMIT), statement(warpgroup.wait(it.arg))]


def descriptor(it: Instruction, element: str) -> str:
    """The value of a DESCRIPTOR; element: what it starts at, without the offset."""
    offset, leading, stride = it.arg
    bits = warpgroup.descriptor_bits(leading, stride) % (1 << 64)
    units = offset * it.source(0).dtype.itemsize // warpgroup.UNIT
    address = f"((u32)__cvta_generic_to_shared(&{element}) & {warpgroup.ADDRESS_MASK}u) >> 4"
    return f"(i64)(((u64)({address}) | {bits}ull) + {units}u)"


def in_place(it: Instruction, registers: list[str], more: list[tuple[str, str]]) -> list[str]:
    """Statements that have a vector, in these variables, worked on; more: factors, and their constraints."""
    letter = "f" if it.dtype.itemsize == warpgroup.WORD else "r"
    places = ", ".join([f'"+{letter}"({name})' for name in registers])
    if it.op is not Op.WARPGROUP_MATRIX:
        line = warpgroup.wait(0) if it.op is Op.WARPGROUP_RESULT else ""
        return [f'asm volatile("{line}" : {places} :: "memory");']
    inputs = ", ".join([f'"{letter}"({value})' for value, letter in more])
    return [f'asm volatile("{warpgroup.product(it, lambda i: f"%{i}")}" : {places} : {inputs} : "memory");']
