"""mov with its packing and unpacking, addresses of things, special registers; cvta, isspacep.

In       Code
Out      steps
Next     machine.py (which values special registers have)
Source   PTX ISA, "mov", "cvta", "isspacep", "Special Registers"
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory_ops import take_space
from hcq.emu.nv.shader.syntax import Symbol, Vector
from hcq.emu.nv.shader.types import TYPES, Lanes, Type
from hcq.emu.shader.bits import contiguous

RULES = Rules()
CLOCKS = ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi")


def _same(a: Lanes) -> Lanes:
    return a


@RULES.on("mov")
def mov(code: Code) -> Step:
    """`mov`: a register, a number, an address, a special register; vectors packed and unpacked."""
    type_ = code.type(*TYPES)
    code.expect(2)
    target, source = code.operands
    if isinstance(target, Vector):
        return _unpack(code, target, type_)
    if isinstance(source, Vector):
        return _pack(code, source, type_)
    destination = code.destination(target, type_)
    if isinstance(source, Symbol) and source.name in CLOCKS:
        return _read_clock(code, source.name, destination, type_)
    if type_.kind == "pred":
        write, read = code.writer(destination), code.predicate(source)
        return lambda registers, group: write(registers, group, read(registers))
    return code.pure(_same, destination, code.source(1, type_))


def _read_clock(code: Code, name: str, destination: int, type_: Type) -> Step:
    """Time is the number of instructions executed, a nanosecond each."""
    write = code.writer(destination)
    shift = 32 if name.endswith("_hi") else 0
    mask = (1 << type_.width) - 1

    def step(registers: Registers, group: Group) -> None:
        write(registers, group, np.array([group.batch.steps >> shift & mask], type_.bits))

    return step


def _part(type_: Type, count: int, code: Code) -> Type:
    if type_.width // count < 8:
        raise code.refuse(f".{type_.name} has no {count} parts")
    return TYPES[f"b{type_.width // count}"]


def _unpack(code: Code, target: Vector, type_: Type) -> Step:
    """mov.b32 {lo, hi}, r: the low part first."""
    count = len(target.parts)
    part = _part(type_, count, code)
    source = code.source(1, type_)
    writes = [code.writer(code.destination(operand, part)) for operand in target.parts]

    def step(registers: Registers, group: Group) -> None:
        values = contiguous(registers[source]).view(part.bits).reshape(-1, count)
        for i, write in enumerate(writes):
            write(registers, group, contiguous(values[:, i]))

    return step


def _pack(code: Code, source: Vector, type_: Type) -> Step:
    """mov.b32 r, {lo, hi}"""
    count = len(source.parts)
    part = _part(type_, count, code)
    slots = [code.slot(operand, part) for operand in source.parts]

    def compute(*parts: Lanes) -> Lanes:
        rows = np.stack(np.broadcast_arrays(*parts), axis=1)
        return contiguous(rows).view(type_.bits).reshape(-1)

    return code.pure(compute, code.destination(code.operands[0], type_), *slots)


@RULES.on("cvta")
def cvta(code: Code) -> Step:
    """Between the addresses of a space and generic ones."""
    to_space = code.flag("to")
    space = take_space(code)
    type_ = code.type("u64", "u32")
    if not space:
        raise code.refuse("cvta needs a state space")
    code.expect(2)
    slot = code.source(1, type_)
    write = code.result(type_)

    def step(registers: Registers, group: Group) -> None:
        start = type_.bits(spaces.window_of(group.batch, space) % (1 << type_.width))
        value = registers[slot]
        write(registers, group, value - start if to_space else value + start)

    return step


@RULES.on("isspacep")
def isspacep(code: Code) -> Step:
    """Whether a generic address is in the window of a space; of shared memory, the own block's or the cluster's."""
    of_own_block = "shared::cluster" not in code.rest
    space = take_space(code)
    code.expect(2)
    slot = code.source(1, TYPES["u64"])
    write = code.result(TYPES["pred"])

    def inside(at: Lanes, start: int) -> Lanes:
        return (at - np.uint64(start)) < np.uint64(spaces.WINDOW_BYTES)

    def step(registers: Registers, group: Group) -> None:
        at, batch = registers[slot], group.batch
        if space == "global":
            found = ~spaces.in_shared(batch, at)
            for start in (batch.local_window, spaces.PARAM_WINDOW):
                found &= ~inside(at, start)
        elif space == "shared":
            found = spaces.in_shared(batch, at)
            if of_own_block and batch.clusters is not None:
                start = np.uint64(batch.shared_window) + batch.clusters.own(batch)
                found = found & ((at - start) < np.uint64(spaces.WINDOW_BYTES))
        elif space == "const":
            found = np.zeros(len(at), bool)
        else:
            found = inside(at, spaces.window_of(batch, space))
        write(registers, group, found)

    return step
