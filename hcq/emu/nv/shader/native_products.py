"""Matrix instructions of compiled PTX: mma.sync of what floats and bytes hold, ldmatrix.

In       an `mma` or `ldmatrix`, registers in symbols
Out      lines that carry it out; the text of a function for each form of product
Changes  the writer
Next     matrix_ops.py (what the interpreter does, and which thread has which element), native_text.py (who asks)

A product is summed in doubles in the order of k, for all 32 threads at once: each thread has two columns of two rows.
Rows of A come from the four threads that hold them, columns of B from eight lanes.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hcq.emu.compiled.symbols import NotTraced, Symbol
from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.clusters import RANK_SHIFT
from hcq.emu.nv.shader.decode import Code
from hcq.emu.nv.shader.lane_numbers import WARP
from hcq.emu.nv.shader.matrix_ops import (
    B32,
    INPUT_BITS,
    Fragment,
    a_fragment,
    b_fragment,
    c_fragment,
    form_of,
    moves,
    per_register,
    shared_address,
)
from hcq.emu.nv.shader.memory_ops import address_of
from hcq.emu.nv.shader.native_memory import Access
from hcq.emu.nv.shader.symbolic_batch import U64

WORDS, FLOATS = f"<{WARP} x i32>", f"<{WARP} x float>"
EIGHT, DOUBLES = "<8 x float>", "<8 x double>"
KINDS = ("f16", "bf16", "tf32", "s8", "u8")
PARTS = WARP // 8  # a row of doubles of the host takes as many registers


def _numbers(kind: str, register: str, stem: str) -> tuple[list[str], list[str]]:
    """Lines that make floats of the elements of a register, and their names. Floats hold them exactly."""
    lines, names = [], []
    for number in range(per_register(INPUT_BITS[kind])):
        name = f"%{stem}_{number}"
        bits = INPUT_BITS[kind]
        lines.append(f"{name}s = lshr {WORDS} {register}, splat (i32 {bits * number if bits < 32 else 0})")
        if kind == "f16":
            lines += [
                f"{name}t = trunc {WORDS} {name}s to <{WARP} x i16>",
                f"{name}h = bitcast <{WARP} x i16> {name}t to <{WARP} x half>",
                f"{name} = fpext <{WARP} x half> {name}h to {FLOATS}",
            ]
        elif kind in ("s8", "u8"):
            cast = ("sext", "sitofp") if kind == "s8" else ("zext", "uitofp")
            lines += [
                f"{name}t = trunc {WORDS} {name}s to <{WARP} x i8>",
                f"{name}w = {cast[0]} <{WARP} x i8> {name}t to {WORDS}",
                f"{name} = {cast[1]} {WORDS} {name}w to {FLOATS}",
            ]
        else:
            op = "shl" if kind == "bf16" else "and"
            last = 16 if kind == "bf16" else 0xFFFFE000
            lines += [
                f"{name}w = {op} {WORDS} {name}s, splat (i32 {last})",
                f"{name} = bitcast {WORDS} {name}w to {FLOATS}",
            ]
        names.append(name)
    return lines, names


def _where(place: Fragment, shape: tuple[int, int]) -> Any:
    """(row, column) -> (thread, element) that has it."""
    found = np.zeros((*shape, 2), np.int64)
    threads, elements = np.indices(place.rows.shape)
    found[place.rows, place.columns, 0] = threads
    found[place.rows, place.columns, 1] = elements
    return found


def _picked(name: str, names: list[str], holders: Any) -> list[str]:
    """Lines: 8 doubles, from the threads and the one element that `holders` names."""
    threads, elements = holders[:, 0], holders[:, 1]
    assert (elements == elements[0]).all()
    order = ", ".join(f"i32 {int(thread)}" for thread in threads)
    source = names[int(elements[0])]
    return [
        f"{name}f = shufflevector {FLOATS} {source}, {FLOATS} poison, <8 x i32> <{order}>",
        f"{name} = fpext {EIGHT} {name}f to {DOUBLES}",
    ]


@functools.cache
def product(sizes: tuple[int, int, int], kinds: tuple[str, str], is_integer: bool) -> str:
    """The text of a function: registers of A, B and C of all threads to those of D."""
    m, n, k = sizes
    places = [
        (a_fragment(m, k, INPUT_BITS[kinds[0]]), (m, k)),
        (b_fragment(k, n, INPUT_BITS[kinds[1]]), (k, n)),
    ]
    in_a, in_b = (_where(*place) for place in places)
    in_c = c_fragment(m, n)
    counts = [
        place.rows.shape[1] // per_register(INPUT_BITS[kind]) for (place, _), kind in zip(places, kinds)
    ]
    results = in_c.rows.shape[1]
    given = [f"%{part}{number}" for part, count in zip("abc", (*counts, results)) for number in range(count)]
    kind = "{" + ", ".join([WORDS] * results) + "}"
    arguments = ", ".join(f"{WORDS} {name}" for name in given)
    lines = [f"define internal {kind} @{name_of(sizes, kinds, is_integer)}({arguments}) noinline #0 {{"]
    elements: list[list[str]] = []
    for letter, type_, count in zip("ab", kinds, counts):
        found: list[str] = []
        for number in range(count):
            more, names = _numbers(type_, f"%{letter}{number}", f"{letter}n{number}")
            lines += more
            found += names
        elements.append(found)
    sums: dict[tuple[int, int], str] = {}
    for depth in range(k):
        columns: dict[tuple[int, ...], str] = {}
        rows: dict[tuple[int, ...], str] = {}
        for result in range(results):
            for part in range(PARTS):
                lanes = slice(8 * part, 8 * part + 8)
                row, column = in_c.rows[lanes, result], in_c.columns[lanes, result]
                for axis, made, stem, holders, names in (
                    (row, rows, "x", in_a[row, depth], elements[0]),
                    (column, columns, "y", in_b[depth, column], elements[1]),
                ):
                    if tuple(axis) not in made:
                        made[tuple(axis)] = f"%{stem}{depth}_{len(made)}"
                        lines += _picked(made[tuple(axis)], names, holders)
                before = sums.get((result, part), "zeroinitializer")
                name = sums[result, part] = f"%s{depth}_{result}_{part}"
                x, y = rows[tuple(row)], columns[tuple(column)]
                lines.append(
                    f"{name} = call {DOUBLES} @llvm.fma.v8f64({DOUBLES} {x}, {DOUBLES} {y}, {DOUBLES} {before})"
                )
    made_of = "poison"
    for result in range(results):
        lines += _rounded(result, [sums[result, part] for part in range(PARTS)], is_integer)
        lines.append(f"%r{result} = insertvalue {kind} {made_of}, {WORDS} %d{result}, {result}")
        made_of = f"%r{result}"
    return "\n".join([*lines, f"ret {kind} {made_of}", "}"])


def _rounded(result: int, sums: list[str], is_integer: bool) -> list[str]:
    """Lines that add C, and make a register of D."""
    lines, old = [], f"%c{result}"
    if not is_integer:
        lines.append(f"%cf{result} = bitcast {WORDS} {old} to {FLOATS}")
    one = "i32" if is_integer else "float"
    for part, total in enumerate(sums):
        name, order = f"%e{result}_{part}", ", ".join(f"i32 {8 * part + lane}" for lane in range(8))
        source = f"<{WARP} x {one}> {old if is_integer else f'%cf{result}'}"
        lines.append(f"{name}c = shufflevector {source}, <{WARP} x {one}> poison, <8 x i32> <{order}>")
        if is_integer:
            lines += [
                f"{name}w = sitofp <8 x i32> {name}c to {DOUBLES}",
                f"{name}s = fadd {DOUBLES} {total}, {name}w",
                f"{name}l = fptosi {DOUBLES} {name}s to <8 x i64>",
                f"{name} = trunc <8 x i64> {name}l to <8 x i32>",
            ]
        else:
            lines += [
                f"{name}w = fpext {EIGHT} {name}c to {DOUBLES}",
                f"{name}s = fadd {DOUBLES} {total}, {name}w",
                f"{name} = fptrunc {DOUBLES} {name}s to {EIGHT}",
            ]
    width, pieces, stage = 8, [f"%e{result}_{part}" for part in range(PARTS)], 0
    while len(pieces) > 1:
        order = ", ".join(f"i32 {number}" for number in range(2 * width))
        joined = []
        for number in range(0, len(pieces), 2):
            name, kind = f"%j{result}_{stage}_{number}", f"<{width} x {one}>"
            lines.append(
                f"{name} = shufflevector {kind} {pieces[number]}, {kind} {pieces[number + 1]}, "
                f"<{2 * width} x i32> <{order}>"
            )
            joined.append(name)
        pieces, width, stage = joined, 2 * width, stage + 1
    last = f"<{WARP} x {one}> {pieces[0]}"
    lines.append(f"%d{result} = bitcast {last} to {WORDS}")
    return lines


def name_of(sizes: tuple[int, int, int], kinds: tuple[str, str], is_integer: bool) -> str:
    """The name of that function."""
    return f"mma_{'x'.join(map(str, sizes))}_{'_'.join(kinds)}{'_i' if is_integer else ''}"


def mma(code: Code, access: Access) -> str:
    """`mma` of a warp, all of whose threads are here. Returns the text of the function that it calls."""
    code.flag("sync"), code.flag("aligned")
    if any(word.startswith("kind::") for word in code.rest):
        raise NotTraced("a product with scales")
    form = form_of(code)
    is_integer = form.d_type.name == "s32"
    if not set(form.kinds) <= set(KINDS) or form.d_type.name not in ("f32", "s32") or form.saturates:
        raise NotTraced("a product of these types")
    if form.c_type.name != form.d_type.name or form.sizes[0] != 16:
        raise NotTraced("a product of this shape")
    w, registers = access.w, access.registers
    _whole(access)
    (m, n, k), found = form.sizes, []
    places = (
        (a_fragment(m, k, INPUT_BITS[form.kinds[0]]), INPUT_BITS[form.kinds[0]]),
        (b_fragment(k, n, INPUT_BITS[form.kinds[1]]), INPUT_BITS[form.kinds[1]]),
        (c_fragment(m, n), 32),
    )
    for operand, (place, bits) in zip(code.operands[1:], places):
        for one in code.parts(operand, place.rows.shape[1] // per_register(bits)):
            data = registers[code.slot(one, B32)]
            found.append(w.wide(w.as_symbol(data.view(np.uint32), np.dtype(np.uint32))))
    results = places[2][0].rows.shape[1]
    kind, given = "{" + ", ".join([WORDS] * results) + "}", ", ".join(f"{WORDS} {one}" for one in found)
    made = w.say(f"call {kind} @{name_of(form.sizes, form.kinds, is_integer)}({given})", True)
    for number, target in enumerate(code.parts(code.operands[0], results)):
        slot = code.destination(target, B32)
        value = Symbol(w, w.say(f"extractvalue {kind} {made}, {number}", True), np.uint32, True)
        registers[slot] = value.view(code.lowering.decoded.first[slot].dtype)
    return product(form.sizes, form.kinds, is_integer)


def _whole(access: Access) -> None:
    """Leave where not all threads of the warp are on: the interpreter knows what ended ones count as."""
    access.leave_if(access.w.say(f"icmp ne i32 {access.registers.mask}, -1", False), "whole")


def ldmatrix(code: Code, access: Access) -> None:
    """`ldmatrix`: each thread gets a word of a row, or two halfwords of a column, of each matrix."""
    count, transposes = moves(code)
    w, registers = access.w, access.registers
    at = w.as_symbol(address_of(code, code.operands[1])(registers), U64)  # type: ignore[arg-type]
    _whole(access)
    windows = _Windows(access.windows[0])
    at = w.as_symbol(shared_address(windows, at), U64)  # type: ignore[arg-type]
    odd = w.say(f"and <{WARP} x i64> {w.wide(at)}, splat (i64 15)", True)
    bits = w.say(f"icmp ne <{WARP} x i64> {odd}, zeroinitializer", True)
    rows = (1 << 8 * count) - 1
    named = w.say(f"and i32 {w.say(f'bitcast <{WARP} x i1> {bits} to i32', False)}, {rows}", False)
    access.leave_if(w.say(f"icmp ne i32 {named}, 0", False), "even")
    lanes = np.arange(WARP)
    for number, target in enumerate(code.parts(code.operands[0], count)):
        if transposes:
            parts = []
            for half in range(2):
                where = _moved(access, at, 8 * number + 2 * (lanes % 4) + half, 2 * (lanes // 4))
                (text,) = access.fetch(access.place(spaces.SHARED, where, 2, is_write=False), 16, 1)
                parts.append(Symbol(w, text, np.uint16, True).astype(np.uint32))
            value = parts[0] | parts[1] << np.uint32(16)
        else:
            where = _moved(access, at, 8 * number + lanes // 4, 4 * (lanes % 4))
            (text,) = access.fetch(access.place(spaces.SHARED, where, 4, is_write=False), 32, 1)
            value = Symbol(w, text, np.uint32, True)
        slot = code.destination(target, B32)
        registers[slot] = value.view(code.lowering.decoded.first[slot].dtype)


class _Windows:
    """Of a batch whose blocks are no cluster, what addresses need."""

    def __init__(self, shared_window: int) -> None:
        self.shared_window, self.shared_window_bytes = shared_window, 1 << RANK_SHIFT


def _moved(access: Access, at: Symbol, threads: Any, offsets: Any) -> Symbol:
    """Addresses of other threads, and so many bytes on."""
    w, kind = access.w, f"<{WARP} x i64>"
    order = ", ".join(f"i32 {int(thread)}" for thread in threads)
    found = w.say(f"shufflevector {kind} {w.wide(at)}, {kind} poison, <{WARP} x i32> <{order}>", True)
    steps = ", ".join(f"i64 {int(step)}" for step in offsets)
    return Symbol(w, w.say(f"add {kind} {found}, <{steps}>", True), U64, True)
