"""multimem: one address names places in the memory of several GPUs, which are read, written or changed together.

In       Code with an [address]; which places it names is the memory's to say (memory.py, `places_of`)
Out      steps
Changes  global memory
Next     atomic_ops.py (what a reduction does), memory.py (AddressSpace.multicast)
Source   PTX ISA, "multimem.ld_reduce, multimem.st, multimem.red"

The places are taken in the order in which the memory names them. Without .acc each sum is rounded to the type. Left
open by the manual: 8-bit floats that are too large become the largest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader import atomic_ops, floats, spaces
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.float_ops import greater, lesser
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory_ops import (
    address_of,
    check_alignment,
    claim_hints,
    of_lanes,
    take_space,
    to_all,
    vector_of,
)
from hcq.emu.nv.shader.syntax import Operand
from hcq.emu.nv.shader.types import BITS, TYPES, Lanes, Type
from hcq.emu.shader.small_floats import E4M3, E5M2, SmallFloat

RULES = Rules()
INTEGERS = {
    "add": ("u32", "u64", "s32"), "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"),
    "min": ("u32", "s32", "u64", "s64"), "max": ("u32", "s32", "u64", "s64"),
}  # fmt: skip
BITWISE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
HALVES = ("f16", "f16x2", "bf16", "bf16x2")
OCTETS: dict[str, SmallFloat] = {"e4m3": E4M3, "e5m2": E5M2}
# a type -> how many of them a vector may have; 1 is no vector
COUNTS = {
    "f16": (2, 4, 8), "bf16": (2, 4, 8), "f16x2": (1, 2, 4), "bf16x2": (1, 2, 4), "f32": (1, 2, 4), "f64": (1,),
    "e4m3": (4, 8), "e5m2": (4, 8), "e4m3x2": (2, 4, 8), "e5m2x2": (2, 4, 8), "e4m3x4": (1, 2, 4),
    "e5m2x4": (1, 2, 4),
}  # fmt: skip
SIZES = (4, 8, 16)  # bytes of an access


class Element(NamedTuple):
    """What a vector consists of. type_: of the registers; octets: the format, where it is of 8-bit floats."""

    name: str
    type_: Type
    octets: SmallFloat | None


def _element(code: Code, what: str, count: int) -> Element:
    name = next((word for word in code.rest if word in TYPES or word.partition("x")[0] in OCTETS), "")
    if not name or not code.flag(name):
        raise code.refuse("a type is missing")
    octets = OCTETS.get(name.partition("x")[0])
    type_ = TYPES[f"b{8 * int(name.partition('x')[2] or 1)}"] if octets else TYPES[name]
    if type_.is_integer and not octets:
        is_known = count == 1 and type_.size_bytes >= 4 and (not what or name in INTEGERS.get(what, ()))
    else:
        is_known = count in COUNTS.get(name, ()) and type_.size_bytes * count in SIZES
        is_known &= what in ("", "add") or (what in ("min", "max") and name not in ("f32", "f64"))
    if not is_known:
        raise code.refuse(
            f"there is no multimem{'.' * bool(what)}{what} of {'' if count == 1 else f'.v{count}'}.{name}"
        )
    return Element(name, type_, octets)


@RULES.on("multimem")
def multimem(code: Code) -> Step:
    """`multimem.ld_reduce`, `.st` and `.red`."""
    what = code.take("ld_reduce", "st", "red")
    claim_hints(code)
    if not what or take_space(code) not in ("", "global"):
        raise code.refuse("expected multimem.ld_reduce, .st or .red, to global memory")
    if what == "ld_reduce":
        return _load(code)
    return _store(code) if what == "st" else _reduce(code)


def _load(code: Code) -> Step:
    what, accumulator = code.take(*INTEGERS), code.take("acc::f32", "acc::f16")
    count = vector_of(code)
    element = _element(code, what, count)
    fits = HALVES if accumulator == "acc::f32" else tuple(COUNTS) if element.octets else ()
    if not what or (accumulator and element.name not in fits):
        raise code.refuse(f"expected a reduction, and .{accumulator or 'acc'} where the type is narrower")
    code.expect(2)
    combine = _combination(element, what, accumulator)
    type_ = element.type_
    slots = [code.destination(part, type_, is_wide=True) for part in code.parts(code.operands[0], count)]
    writes = [(code.writer(slot), code.lowering.decoded.first[slot].dtype.type) for slot in slots]

    def act(registers: Registers, group: Group, lanes: Lanes | None, places: list[Lanes]) -> None:
        batch = group.batch
        found = [spaces.BY_NAME["global"].load(batch, lanes, at, type_.bits, count) for at in places]
        total = combine([np.ascontiguousarray(each).reshape(-1) for each in found]).reshape(-1, count)
        for i, (write, register) in enumerate(writes):
            value = np.ascontiguousarray(total[:, i]).astype(register, copy=False)
            write(registers, group, to_all(value, lanes, batch.count))

    return _at_all_places(code, code.operands[1], type_.size_bytes * count, act)


def _store(code: Code) -> Step:
    count = vector_of(code)
    type_ = _element(code, "", count).type_
    code.expect(2)
    slots = [code.slot(part, type_, is_wide=True) for part in code.parts(code.operands[1], count)]

    def act(registers: Registers, group: Group, lanes: Lanes | None, places: list[Lanes]) -> None:
        batch = group.batch
        values = [
            of_lanes(registers[slot], lanes, batch.count).astype(type_.bits, copy=False) for slot in slots
        ]
        data = values[0] if count == 1 else np.stack(values, axis=1)
        for at in places:
            spaces.BY_NAME["global"].store(batch, lanes, at, data)

    return _at_all_places(code, code.operands[0], type_.size_bytes * count, act)


def _reduce(code: Code) -> Step:
    what, count = code.take(*INTEGERS), vector_of(code)
    element = _element(code, what, count)
    type_ = element.type_
    if not what or element.octets or (type_.is_float and what != "add"):
        raise code.refuse("multimem.red adds floats of 16 bits and more, and does all reductions of integers")
    code.expect(2)
    slots = [code.slot(part, type_) for part in code.parts(code.operands[1], count)]
    operation = atomic_ops.operation_of(code, what, type_)

    def act(registers: Registers, group: Group, lanes: Lanes | None, places: list[Lanes]) -> None:
        batch = group.batch
        for at in places:
            for number, slot in enumerate(slots):
                x = of_lanes(registers[slot], lanes, batch.count)
                place = at + np.uint64(type_.size_bytes * number)
                atomic_ops.Conflicts(batch, spaces.BY_NAME["global"], lanes, place, type_).in_turns(
                    operation, x, x
                )

    return _at_all_places(code, code.operands[0], type_.size_bytes * count, act)


def _at_all_places(
    code: Code,
    operand: Operand,
    size: int,
    act: Callable[[Registers, Group, Lanes | None, list[Lanes]], None],
) -> Step:
    at_of, select, instruction = address_of(code, operand), code.select(), code.instruction

    def step(registers: Registers, group: Group) -> None:
        batch, lanes = group.batch, select(registers, group)
        if lanes is not None and not len(lanes):
            return
        at = of_lanes(at_of(registers), lanes, batch.count)
        try:
            check_alignment(at, size)
            act(registers, group, lanes, batch.memory.places_of(at, size))
        except BadAccess as bad:
            raise group.fault(bad, instruction, f"access to {size} bytes of several GPUs", lanes) from None

    return step


def _conversions(
    octets: SmallFloat | None, type_: Type
) -> tuple[Callable[[Lanes], Lanes], Callable[[Lanes], Lanes]]:
    """Bits to numbers, and back."""
    if octets is None:
        return floats.reader(type_), floats.packer(type_)
    kind = octets
    return (lambda x: kind.widen(x.view(np.uint8)), lambda x: kind.saturating.narrow(x).view(type_.bits))


def _combination(element: Element, what: str, accumulator: str) -> Callable[[list[Lanes]], Lanes]:
    """What the values of all places, register bits, become."""
    type_ = element.type_
    if type_.is_integer and element.octets is None:
        scalar = type_.scalar
        ufunc = BITWISE.get(what) or {"add": np.add, "min": np.minimum, "max": np.maximum}[what]

        def of_integers(found: list[Lanes]) -> Lanes:
            total = found[0].view(scalar)
            for one in found[1:]:
                total = ufunc(total, one.view(scalar))
            return total.view(type_.bits)

        return of_integers
    read, pack = _conversions(element.octets, type_)
    combines: dict[str, Callable[[Lanes, Lanes], Lanes]] = {"add": np.add, "min": lesser, "max": greater}
    combine = combines[what]

    def between(x: Lanes) -> Lanes:
        """What a sum is rounded to before the next is added."""
        if accumulator == "acc::f32":
            return x
        return x.astype(np.float16).astype(np.float32) if accumulator else read(pack(x))

    def of_floats(found: list[Lanes]) -> Lanes:
        total = read(found[0])
        for one in found[1:]:
            total = between(combine(total, read(one)))
        return np.asarray(pack(total)).astype(BITS[type_.size_bytes], copy=False)

    return of_floats
