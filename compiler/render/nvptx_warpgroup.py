"""A warpgroup's matrix unit in LLVM's words: inline assembly, for NVPTX has no intrinsics for most of it.

In       DESCRIPTOR, WARPGROUP_... and TENSOR_... of a linear program
Out      lines of LLVM IR
Next     warpgroup.py (the PTX), gpu.py (who asks)
"""

from __future__ import annotations

from hcq.compiler.linear.program import Instruction
from hcq.compiler.render import nvptx_tensor_memory, warpgroup
from hcq.compiler.render.llvm import Text
from hcq.compiler.render.llvm_arithmetic import memory_type, register_type
from hcq.compiler.render.tensor_memory import TENSOR
from hcq.ir.op import Op


def instruction(text: Text, it: Instruction) -> str:
    """Write one of them; its value's name, "" where it has none."""
    if it.op is Op.DESCRIPTOR:
        return _descriptor(text, it)
    if it.op in TENSOR:
        return nvptx_tensor_memory.instruction(text, it)
    if it.op is Op.WARPGROUP_MATRIX:
        d = "" if it.src[2] is None else text.name(it.source(2))
        line = warpgroup.product(it, lambda i: f"${i}")
        return _in_place(text, it, d, line, [*_factor(text, it.source(0)), *_factor(text, it.source(1))])
    if it.op is Op.WARPGROUP_RESULT:
        return _in_place(text, it, text.name(it.source(0)), warpgroup.wait(0), [])
    if it.op is Op.WARPGROUP_HELD:
        return _in_place(text, it, text.name(it.source(0)), "", [])
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


def _factor(text: Text, value: Instruction) -> list[tuple[str, str]]:
    """A descriptor, or the registers that hold a factor; and constraints."""
    words = warpgroup.words_of(value)
    if not words:
        return [(f"i64 {text.name(value)}", "l")]
    return [(f"i32 {word}", "r") for word in _registers(text, value, text.name(value))]


def _registers(text: Text, it: Instruction, name: str) -> list[str]:
    """A vector's registers: of numbers of 16 bits, pairs."""
    if it.dtype.itemsize < warpgroup.WORD:
        return nvptx_tensor_memory.words(text, it, name)
    count = it.dtype.lanes
    return [text.let(f"extractelement <{count} x float> {name}, i64 {i}") for i in range(count)]


def _kind(it: Instruction) -> tuple[str, str]:
    """The type of a vector's registers, and their constraint."""
    return ("float", "f") if it.dtype.itemsize == warpgroup.WORD else ("i32", "r")


def _in_place(text: Text, it: Instruction, d: str, line: str, more: list[tuple[str, str]]) -> str:
    """Assembly that takes a vector's registers and gives the same ones back; d: none, where it takes none."""
    one, letter = _kind(it)
    lanes = _registers(text, it, d) if d else []
    count = it.dtype.lanes * it.dtype.itemsize // warpgroup.WORD
    vector, several = f"<{count} x {one}>", f"{{ {', '.join([one] * count)} }}"
    constraints = [f"={letter}"] * count + [each for _, each in more] + [str(i) for i in range(len(lanes))]
    arguments = [value for value, _ in more] + [f"{one} {lane}" for lane in lanes]
    found = text.let(
        f'call {several} asm sideeffect "{line}", "{",".join(constraints)},~{{memory}}"({", ".join(arguments)})'
    )
    made = "poison"
    for i in range(count):
        lane = text.let(f"extractvalue {several} {found}, {i}")
        made = text.let(f"insertelement {vector} {made}, {one} {lane}, i64 {i}")
    return made if one == "float" else text.let(f"bitcast {vector} {made} to {register_type(it.dtype)}")
