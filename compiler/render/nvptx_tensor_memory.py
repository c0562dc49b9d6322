"""A matrix unit with a memory of its own in LLVM's words: inline assembly, the same as from CUDA C.

In       TENSOR_... of a linear program
Out      lines of LLVM IR
Next     tensor_memory.py (the PTX), nvptx_warpgroup.py (who asks)
"""

from __future__ import annotations

from hcq.compiler.linear.program import Instruction
from hcq.compiler.render import tensor_memory
from hcq.compiler.render.llvm import Text
from hcq.compiler.render.llvm_arithmetic import register_type
from hcq.compiler.render.nvptx_bulk import number_of, shared_place, who_of
from hcq.ir.op import Op


def instruction(text: Text, it: Instruction) -> str:
    """Write one of them; its value's name, "" where it has none."""

    def slot(number: int) -> str:
        return f"${number}"

    if it.op is Op.TENSOR_MEMORY:
        operands = [shared_place(text, it, 0), who_of(text, it.source(1)), who_of(text, it.source(2))]
        operands.append(number_of(text, it.source(3)))
        return _written(text, "i32", 1, tensor_memory.memory(it, slot), operands)
    if it.op is Op.TENSOR_RESULT:
        return _result(text, it, tensor_memory.result(it, slot))
    if it.op is Op.TENSOR_MATRIX:
        descriptors = [it.source(place) for place in (0, 1) if it.src[place] is not None]
        operands = [(f"i64 {text.name(one)}", "l") for one in descriptors]
        operands += [number_of(text, it.source(2)), who_of(text, it.source(3))]
        line = tensor_memory.product(it, slot)
    elif it.op is Op.TENSOR_HELD:
        line, operands = tensor_memory.held(it, slot), [number_of(text, it.source(place)) for place in (0, 1)]
        held = [it.source(place) for place in range(2, len(it.src))]
        operands += [(f"i32 {word}", "r") for one in held for word in words(text, one, text.name(one))]
    elif it.op is Op.TENSOR_COMMIT:
        line, operands = tensor_memory.commit(slot), [shared_place(text, it, 0), who_of(text, it.source(1))]
    else:
        line = tensor_memory.free(it, slot)
        operands = [number_of(text, it.source(0)), who_of(text, it.source(1))]
    return _written(text, "void", 0, line, operands)


def words(text: Text, value: Instruction, name: str) -> list[str]:
    """A vector of numbers of 16 bits as registers of two."""
    kind, one = register_type(value.dtype), register_type(value.dtype.scalar)
    made = []
    for first in range(0, value.dtype.lanes, 2):
        picks = f"<2 x i32> <i32 {first}, i32 {first + 1}>"
        pair = text.let(f"shufflevector {kind} {name}, {kind} poison, {picks}")
        made.append(text.let(f"bitcast <2 x {one}> {pair} to i32"))
    return made


def _written(text: Text, kind: str, results: int, line: str, operands: list[tuple[str, str]]) -> str:
    constraints = ",".join([*["=r"] * results, *[letter for _, letter in operands], "~{memory}"])
    values = ", ".join([value for value, _ in operands])
    call = f'call {kind} asm sideeffect "{line}", "{constraints}"({values}) convergent'
    if results:
        return text.let(call)
    text.line(call)
    return ""


def _result(text: Text, it: Instruction, line: str) -> str:
    """The registers as a vector."""
    count = it.dtype.lanes
    several = f"{{ {', '.join(['i32'] * count)} }}"
    operands = [number_of(text, it.source(0)), number_of(text, it.source(1))]
    found = _written(text, several, count, line, operands)
    made = "poison"
    for i in range(count):
        lane = text.let(f"extractvalue {several} {found}, {i}")
        made = text.let(f"insertelement <{count} x i32> {made}, i32 {lane}, i64 {i}")
    return text.let(f"bitcast <{count} x i32> {made} to <{count} x float>")
