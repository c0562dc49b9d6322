"""Atomics in compiled PTX: threads of a warp one after the other, in the order of their numbers.

In       an `atom` or `red`, registers in symbols
Out      lines that carry it out, or leave off before it; the text of the functions that they call
Changes  the writer
Next     native_memory.py (addresses), native_text.py (who asks), atomic_ops.py (what the interpreter does)

Sums of floats depend on the order in which threads come. Theirs is that of the interpreter: all threads of a path stop
before the sum, as they would there, and go on together (`gathers`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.emu.compiled.symbols import NotTraced, Symbol
from hcq.emu.nv.shader.atomic_ops import OPERATIONS
from hcq.emu.nv.shader.decode import Code
from hcq.emu.nv.shader.lane_numbers import WARP
from hcq.emu.nv.shader.memory_ops import address_of, claim_hints, space_of, take_space, vector_of
from hcq.emu.nv.shader.native_memory import Access, deliver
from hcq.emu.nv.shader.native_moves import AT, loop, result_of, returned, spread
from hcq.emu.nv.shader.syntax import Discard, Instruction
from hcq.emu.nv.shader.types import TYPES

# what becomes of %old, with %x and, of cas, %y
NEW = {
    **{name: [f"%new = {name} {{kind}} %old, %x"] for name in ("add", "and", "or", "xor")},
    **{
        f"{sign}{name}": [
            f"%is = icmp {sign}{test} {{kind}} %old, %x",
            "%new = select i1 %is, {kind} %old, {kind} %x",
        ]
        for sign in "us"
        for name, test in (("min", "le"), ("max", "ge"))
    },
    "exch": ["%new = add {kind} %x, 0"],
    "cas": ["%is = icmp eq {kind} %old, %x", "%new = select i1 %is, {kind} %y, {kind} %old"],
    "inc": [
        "%is = icmp uge {kind} %old, %x",
        "%grown = add {kind} %old, 1",
        "%new = select i1 %is, {kind} 0, {kind} %grown",
    ],
    "dec": [
        "%none = icmp eq {kind} %old, 0",
        "%far = icmp ugt {kind} %old, %x",
        "%is = or i1 %none, %far",
        "%shrunk = sub {kind} %old, 1",
        "%new = select i1 %is, {kind} %x, {kind} %shrunk",
    ],
    "fadd": [
        "%of = bitcast {kind} %old to {float}",
        "%xf = bitcast {kind} %x to {float}",
        "%sum = fadd {float} %of, %xf",
        "%new = bitcast {float} %sum to {kind}",
    ],
}


def _function(name: str, bits: int) -> str:
    """The text of a function: all addresses are checked, then each thread that is on has its turn."""
    kind, row = f"i{bits}", f"<{WARP} x i{bits}>"
    names = {"kind": kind, "float": "float" if bits == 32 else "double"}
    change = [f"  {line.format(**names)}" for line in NEW[name]]
    body = [
        f"  %xp = getelementptr {kind}, ptr %xs, i32 %n",
        f"  %x = load {kind}, ptr %xp",
        f"  %yp = getelementptr {kind}, ptr %ys, i32 %n",
        f"  %y = load {kind}, ptr %yp",
        f"  %old = load {kind}, ptr %lp, align 1",
        f"  store {kind} %old, ptr %kp, align 1",
        *change,
        f"  store {kind} %new, ptr %lp, align 1",
    ]
    head = f"define internal {result_of(bits, 1)} @rmw_{name}{bits}({row} %xv, {row} %yv, {AT} %at"
    lines = [
        f"{head}, i64 %start, i64 %limit, i64 %delta, i32 %m) noinline #0 {{",
        f"  %places = alloca {AT}, align 64",
        f"  %kept = alloca [{WARP * bits // 8} x i8], align 64",
        f"  %xs = alloca {row}, align 64",
        f"  %ys = alloca {row}, align 64",
        f"  store {row} %xv, ptr %xs, align 64",
        f"  store {row} %yv, ptr %ys, align 64",
        "  %nobody = icmp eq i32 %m, 0",
        "  br i1 %nobody, label %nothing, label %spread",
        *spread(bits // 8, WARP),
        *loop(bits // 8, WARP, body),
        f"  %v = load {row}, ptr %kept, align 64",
        *returned(bits, WARP, ["%v"], "vr"),
        "nothing:",
        *returned(bits, WARP, ["zeroinitializer"], "nr"),
        "bad:",
        f"  ret {result_of(bits, 1)} zeroinitializer",
        "}",
    ]
    return "\n".join(lines)


FUNCTIONS = {f"@rmw_{name}{bits}": _function(name, bits) for name in NEW for bits in (32, 64)}


def gathers(instruction: Instruction) -> bool:
    """Whether it is a sum of floats."""
    words = instruction.modifiers
    return (
        instruction.opcode in ("atom", "red") and "add" in words and bool({"f32", "f64"}.intersection(words))
    )


def atomic(code: Code, access: Access) -> None:
    """`atom` and `red` of integers, and sums of floats. Raises NotTraced for others."""
    has_policy = claim_hints(code)
    name = take_space(code)
    what = code.take(*OPERATIONS)
    count, type_ = vector_of(code), code.type(*TYPES)
    is_bits = what in ("exch", "cas", "and", "or", "xor")
    is_sum = what == "add" and type_.name in ("f32", "f64")
    if count > 1 or type_.size_bytes not in (4, 8) or type_.packed > 1:
        raise NotTraced("an atomic of other than 32 or 64 bits")
    if type_.is_float and not is_bits and not is_sum:
        raise NotTraced("an atomic of floats that is no sum")
    operands = code.operands if code.instruction.opcode == "atom" else [Discard(), *code.operands]
    operands = operands[:-1] if has_policy else operands
    where, at_of = space_of(code, name, operands[1]), address_of(code, operands[1])
    w, registers, bits = access.w, access.registers, 8 * type_.size_bytes
    access.guard(code)
    kind = np.dtype(f"u{type_.size_bytes}")

    def value(operand: Any) -> str:
        data = registers[code.slot(operand, type_)]
        return w.wide(w.as_symbol(data.view(kind) if data.dtype.kind == "f" else data, kind))

    x = value(operands[2])
    y = value(operands[3]) if what == "cas" else x
    sign = ("s" if type_.kind == "s" else "u") if what in ("min", "max") else "f" if is_sum else ""
    place = access.place(where, at_of(registers), type_.size_bytes, is_write=True)  # type: ignore[arg-type]
    row, result = f"<{WARP} x i{bits}>", result_of(bits, 1)
    function = f"@rmw_{sign}{what}{bits}"
    made = w.say(f"call {result} {function}({row} {x}, {row} {y}, {place.arguments}, i32 {access.on})", True)
    access.check(w.say(f"extractvalue {result} {made}, 0", False), place, type_.size_bytes)
    if not isinstance(operands[0], Discard) and code.is_read(operands[0]):
        old = w.say(f"extractvalue {result} {made}, 1", True)
        deliver(code, access, operands[0], Symbol(w, old, type_.bits, True), type_)
