"""Bulk copies in CUDA C: inline assembly, the same as in LLVM IR.

In       what an instruction is, and its operands as expressions
Out      a statement
Next     bulk.py (the PTX), cuda.py (who asks)
"""

from __future__ import annotations

from hcq.compiler.render import bulk

MAP_TYPE = f"struct __align__({bulk.MAP_ALIGN}) TensorMap {{ unsigned char bytes[{bulk.MAP_BYTES}]; }};"


def slot(number: int) -> str:
    """How inline assembly names an operand."""
    return f"%{number}"


def shared(element: str) -> str:
    """An operand: where an element of shared memory is."""
    return f'"r"((u32)__cvta_generic_to_shared(&{element}))'


def number(value: str) -> str:
    """An operand: a number or a condition."""
    return f'"r"((u32)({value}))'


def statement(line: str, operands: list[str]) -> str:
    """One of them, that memory is not moved across."""
    return f'asm volatile("{line}" :: {", ".join(operands)} : "memory");'
