"""Memory that a function takes from its stack while it runs: alloca, stacksave, stackrestore.

In       Code
Out      steps
Changes  the thread's stack pointer; how much local memory each thread has
Next     machine.py (a call begins behind what its caller has taken), batch.py (local memory)
Source   PTX ISA, "Stack Manipulation Instructions"

A thread's stack pointer is a register of its own. It begins behind the function's variables, in each call anew: what a
call has taken is free again when it returns. Addresses grow, where a GPU's fall; no program can tell.
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader.batch import MAX_LOCAL_BYTES
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.errors import KernelFault
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.syntax import Immediate
from hcq.emu.nv.shader.types import Lanes, Type

RULES = Rules()
LEAST_ALIGNMENT, MOST_ALIGNMENT = 8, 1 << 23


def _pointer(code: Code) -> int:
    """The slot of the stack pointer."""
    return code.lowering.stack_pointer()


def _type(code: Code) -> Type:
    return code.type("u32", "u64")


@RULES.on("stacksave")
def save(code: Code) -> Step:
    """`stacksave`: the stack pointer, to go back to later."""
    type_ = _type(code)
    code.expect(1)
    bits = type_.bits
    return code.pure(lambda a: a.astype(bits), code.destination(code.operands[0], type_), _pointer(code))


@RULES.on("stackrestore")
def restore(code: Code) -> Step:
    """`stackrestore`: what was taken since the pointer was saved is free again."""
    type_ = _type(code)
    code.expect(1)
    return code.pure(lambda a: a.astype(np.uint64), _pointer(code), code.source(0, type_))


@RULES.on("alloca")
def alloca(code: Code) -> Step:
    """`alloca`: so many bytes of local memory, until the function returns or the stack pointer is restored."""
    type_ = _type(code)
    code.expect(2, 3)
    size = code.source(1, type_)
    alignment = _alignment(code)
    pointer, instruction = _pointer(code), code.instruction
    write, move = code.result(type_), code.writer(pointer)
    select = code.select()
    up, mask, bits = np.uint64(alignment - 1), ~np.uint64(alignment - 1), type_.bits

    def step(registers: Registers, group: Group) -> None:
        batch, lanes = group.batch, select(registers, group)
        if lanes is not None and not len(lanes):
            return
        start = (registers[pointer] + up) & mask
        wanted = registers[size].astype(np.uint64)
        end = start + wanted
        top = _most(np.maximum(end, np.maximum(start, wanted)), lanes)  # the sum may have wrapped around
        if top > MAX_LOCAL_BYTES:
            block, thread = batch.place(int(batch.every_lane[0] if lanes is None else lanes[0]))
            raise KernelFault(
                f"kernel {batch.launch.kernel_name}, PTX line {instruction.line} `{instruction}`: the stack overflows: "
                f"a thread has {MAX_LOCAL_BYTES} bytes of local memory.",
                instruction.line,
                [(block, thread)],
            )
        batch.need_local(top)
        write(registers, group, start.astype(bits))
        move(registers, group, end)

    return step


def _alignment(code: Code) -> int:
    if len(code.operands) < 3:
        return LEAST_ALIGNMENT
    given = code.operands[2]
    value = given.value if isinstance(given, Immediate) else 0
    if value.bit_count() != 1 or not 0 < value <= MOST_ALIGNMENT:
        raise code.refuse(f"the alignment of alloca is a power of 2 up to {MOST_ALIGNMENT}")
    return max(value, LEAST_ALIGNMENT)


def _most(values: Lanes, lanes: Lanes | None) -> int:
    return int((values if lanes is None or len(values) == 1 else values[lanes]).max())
