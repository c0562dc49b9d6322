"""A warpgroup's matrix unit in LLVM's words: inline assembly, for NVPTX has no intrinsics for most of it.

In       DESCRIPTOR, WARPGROUP_... and TENSOR_... of a linear program
Out      lines of LLVM IR
Next     warpgroup.py (the PTX), gpu.py (who asks)
"""

from __future__ import annotations

from hcq.compiler.linear.program import Instruction
from hcq.compiler.render import nvptx_tensor_memory, warpgroup
from hcq.compiler.render.llvm import Text
from hcq.compiler.render.llvm_arithmetic import memory_type
from hcq.compiler.render.tensor_memory import TENSOR
from hcq.ir.op import Op


def instruction(text: Text, it: Instruction) -> str:
    """Write one of them; its value's name, "" where it has none."""
    if it.op is Op.DESCRIPTOR:
        return _descriptor(text, it)
    if it.op in TENSOR:
        return nvptx_tensor_memory.instruction(text, it)
    if it.op is Op.WARPGROUP_MATRIX:
        values = [(f"i64 {text.name(it.source(place))}", "l") for place in (0, 1)]
        return _in_place(text, it, text.name(it.source(2)), warpgroup.product(it, lambda i: f"${i}"), values)
    if it.op is Op.WARPGROUP_RESULT:
        return _in_place(text, it, text.name(it.source(0)), warpgroup.wait(0), [])
    lines = [warpgroup.FENCE] if it.op is Op.WARPGROUP_FENCE else [warpgroup.COMMIT, warpgroup.wait(it.arg)]
    for line in lines:
        statement(text, line)
    return ""


def statement(text: Text, line: str) -> None:
    """One instruction that has no operands, and that memory is not moved across."""
    text.line(f'call void asm sideeffect "{line}", "~{{memory}}"()')


def _descriptor(text: Text, it: Instruction) -> str:
    offset, leading, stride = it.arg
    element = it.source(0).dtype
    start = Instruction(it.op, it.dtype, it.src, 0, it.depth)
    pointer = text.place(start, memory_type(element), True)
    address = text.let(f"ptrtoint ptr addrspace(3) {pointer} to i32")
    address = text.let(f"and i32 {address}, {warpgroup.ADDRESS_MASK}")
    address = text.let(f"lshr i32 {address}, 4")
    made = text.let(f"zext i32 {address} to i64")
    made = text.let(f"or disjoint i64 {made}, {warpgroup.descriptor_bits(leading, stride)}")
    units = offset * element.itemsize // warpgroup.UNIT
    return text.let(f"add i64 {made}, {units}") if units else made


def _in_place(text: Text, it: Instruction, d: str, line: str, more: list[tuple[str, str]]) -> str:
    """Assembly that takes an accumulator's registers and gives the same ones back."""
    count = it.dtype.lanes
    vector, several = f"<{count} x float>", f"{{ {', '.join(['float'] * count)} }}"
    lanes = [text.let(f"extractelement {vector} {d}, i64 {i}") for i in range(count)]
    constraints = ["=f"] * count + [letter for _, letter in more] + [str(i) for i in range(count)]
    arguments = [value for value, _ in more] + [f"float {lane}" for lane in lanes]
    found = text.let(
        f'call {several} asm sideeffect "{line}", "{",".join(constraints)},~{{memory}}"({", ".join(arguments)})'
    )
    made = "poison"
    for i in range(count):
        lane = text.let(f"extractvalue {several} {found}, {i}")
        made = text.let(f"insertelement {vector} {made}, float {lane}, i64 {i}")
    return made
