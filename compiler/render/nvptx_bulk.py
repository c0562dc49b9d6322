"""Bulk copies in LLVM's words: inline assembly, the same as from CUDA C.

In       MBARRIERS, EXPECT_TILES, COPY_TILE and WAIT_TILES of a linear program
Out      lines of LLVM IR
Next     bulk.py (the PTX), gpu.py (who asks)
"""

from __future__ import annotations

from hcq.compiler.linear.program import Instruction
from hcq.compiler.render import bulk
from hcq.compiler.render.llvm import Text
from hcq.compiler.render.llvm_arithmetic import memory_type, register_type
from hcq.ir.op import Op


def instruction(text: Text, it: Instruction) -> None:
    """Write one of them."""

    def slot(number: int) -> str:
        return f"${number}"

    if it.op is Op.MBARRIERS:
        line, operands = bulk.make(it.arg, slot), [shared_place(text, it, 0), who_of(text, it.source(1))]
    elif it.op is Op.EXPECT_TILES:
        line, operands = bulk.expect(it.arg, slot), [shared_place(text, it, 0, 1), who_of(text, it.source(2))]
    elif it.op is Op.FREE_TILES:
        line, operands = bulk.free(slot), [shared_place(text, it, 0, 1), who_of(text, it.source(2))]
    elif it.op is Op.WAIT_TILES:
        line, operands = bulk.wait(slot), [shared_place(text, it, 0, 1), number_of(text, it.source(2))]
    else:
        places = [number_of(text, it.source(place)) for place in range(6, len(it.src))]
        line = bulk.copy(len(places), slot)
        operands = [
            shared_place(text, it, 0, 1, it.arg),
            shared_place(text, it, 2, 3),
            who_of(text, it.source(4)),
        ]
        operands += [(f"ptr {text.name(it.source(5))}", "l"), *places]
    constraints = ",".join([letter for _, letter in operands])
    values = ", ".join([value for value, _ in operands])
    text.line(f'call void asm sideeffect "{line}", "{constraints},~{{memory}}"({values}) convergent')


def shared_place(
    text: Text, it: Instruction, address: int, base: int = -1, offset: int = 0
) -> tuple[str, str]:
    """A place in shared memory, in 32 bits."""
    src = (it.source(address), None if base < 0 else it.src[base])
    pointer = text.place(Instruction(it.op, it.dtype, src, offset, it.depth), memory_type(src[0].dtype), True)
    return f"i32 {text.let(f'ptrtoint ptr addrspace(3) {pointer} to i32')}", "r"


def who_of(text: Text, condition: Instruction) -> tuple[str, str]:
    """A condition, as a number."""
    return f"i32 {text.let(f'zext i1 {text.name(condition)} to i32')}", "r"


def number_of(text: Text, it: Instruction) -> tuple[str, str]:
    """A number, in 32 bits."""
    name, kind = text.name(it), register_type(it.dtype)
    return f"i32 {name if kind == 'i32' else text.let(f'trunc {kind} {name} to i32')}", "r"
