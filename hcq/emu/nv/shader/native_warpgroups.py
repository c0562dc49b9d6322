"""Products of warpgroups in compiled PTX: `wgmma.mma_async`, where all four warps have come to it.

In       a `wgmma.mma_async`, where registers lie in a warp's memory
Out      the text of a function that carries it out for four warps whose registers are in their memory
Next     native_tiles.py (its parts), native_frame.py (who finds out that four warps are here, and calls it),
         warpgroup_ops.py (what the interpreter does)

The function says no, and has changed nothing, where the interpreter would refuse: descriptors that differ, or that
name what is not in shared memory.
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.emu.compiled.symbols import NotTraced
from hcq.emu.nv.shader import native_tiles
from hcq.emu.nv.shader.batch import WARP
from hcq.emu.nv.shader.decode import Code
from hcq.emu.nv.shader.lane_numbers import WARPGROUP
from hcq.emu.nv.shader.matrix_ops import INPUT_BITS, per_register
from hcq.emu.nv.shader.symbolic_batch import BOOL, Layout
from hcq.emu.nv.shader.syntax import Operand, Register
from hcq.emu.nv.shader.types import TYPES
from hcq.emu.nv.shader.warpgroup_ops import A_REGISTERS, ROWS, form_of

WARPS = WARPGROUP // WARP
B32, U64, PRED = TYPES["b32"], TYPES["u64"], TYPES["pred"]


class Product(NamedTuple):
    """A function's name, and its text."""

    name: str
    text: str


class _Places:
    """Where registers lie. Raises NotTraced for what is no register of each thread."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def __call__(self, slot: int) -> int:
        if slot in self.layout.constants or self.layout.is_number(slot):
            raise NotTraced("a product of what is no register")
        return self.layout.offset(slot)


def _lines_of_descriptor(code: Code, places: _Places, operand: Operand, name: str) -> list[str]:
    """Lines: %name, the descriptor, if all threads of the four warps give the same; else leave."""
    slot = code.slot(operand, U64)
    row = f"<{WARP} x i64>"
    if slot in places.layout.constants:
        number = int(code.lowering.decoded.first[slot][0])
        return [f"  %{name} = add i64 {number}, 0"]
    at = places(slot)
    lines = [
        f"  %{name}p = getelementptr i8, ptr %file, i64 {at}",
        f"  %{name} = load i64, ptr %{name}p, align 8",
        f"  %{name}i = insertelement {row} poison, i64 %{name}, i64 0",
        f"  %{name}e = shufflevector {row} %{name}i, {row} poison, <{WARP} x i32> zeroinitializer",
    ]
    before = ""
    for warp in range(WARPS):
        lines += [
            f"  %{name}o{warp} = mul i64 %size, {warp}",
            f"  %{name}q{warp} = getelementptr i8, ptr %{name}p, i64 %{name}o{warp}",
            f"  %{name}v{warp} = load {row}, ptr %{name}q{warp}, align 64",
            f"  %{name}n{warp} = icmp ne {row} %{name}v{warp}, %{name}e",
        ]
        test = f"%{name}n{warp}"
        if before:
            lines.append(f"  %{name}t{warp} = or <{WARP} x i1> {before}, {test}")
            test = f"%{name}t{warp}"
        before = test
    return [
        *lines,
        f"  %{name}b = bitcast <{WARP} x i1> {before} to i32",
        f"  %{name}s = icmp eq i32 %{name}b, 0",
        f"  br i1 %{name}s, label %{name}go, label %bad",
        f"{name}go:",
    ]


def _lines_of_taking(matrix: str, name: str, rows: int) -> list[str]:
    """Lines that make doubles of a matrix in shared memory; leave where it is not all there."""
    return [
        f"  %{name}k = call i1 @{matrix}(ptr %{name}m, ptr %shared, i64 %limit, i64 %{name}, i64 {rows})",
        f"  br i1 %{name}k, label %{name}there, label %bad",
        f"{name}there:",
    ]


def _lines_of_registers(kind: str, offsets: list[int], elements: int) -> list[str]:
    """Lines that make doubles of the fragments of A of all four warps."""
    lines, bits = [], INPUT_BITS[kind]
    words, row = f"<{WARP} x i32>", f"<{WARP} x i{bits}>"
    for warp in range(WARPS):
        for number, offset in enumerate(offsets):
            stem = f"a{warp}_{number}"
            lines += [
                f"  %{stem}o = mul i64 %size, {warp}",
                f"  %{stem}f = getelementptr i8, ptr %file, i64 %{stem}o",
                f"  %{stem}p = getelementptr i8, ptr %{stem}f, i64 {offset}",
                f"  %{stem} = load {words}, ptr %{stem}p, align 64",
            ]
            for part in range(per_register(bits)):
                name = f"%{stem}_{part}"
                lines.append(f"  {name}s = lshr {words} %{stem}, splat (i32 {bits * part})")
                source = f"{name}s"
                if bits < 32:
                    source = f"{name}c"
                    lines.append(f"  {source} = trunc {words} {name}s to {row}")
                at = 8 * WARP * (warp * elements + number * per_register(bits) + part)
                lines += [
                    *native_tiles.widened(kind, name, source, WARP),
                    f"  {name}q = getelementptr i8, ptr %am, i64 {at}",
                    f"  store <{WARP} x double> {name}, ptr {name}q, align 64",
                ]
    return lines


def _lines_of_adding(code: Code, places: _Places) -> list[str]:
    """Lines: %adds, whether the warpgroup's first thread says that D is added."""
    operand = code.operands[3]
    negated = isinstance(operand, Register) and operand.negated
    if isinstance(operand, Register):
        operand = operand._replace(negated=False)
    slot = code.slot(operand, PRED)
    if slot in places.layout.constants:
        holds = bool(code.lowering.decoded.first[slot][0]) != negated
        return [f"  %adds = add i1 {str(holds).lower()}, false"]
    if code.lowering.decoded.first[slot].dtype != BOOL:
        raise NotTraced("a predicate that is no register")
    return [
        f"  %pp = getelementptr i8, ptr %file, i64 {places(slot)}",
        "  %pw = load i32, ptr %pp, align 4",
        "  %pb = trunc i32 %pw to i1",
        f"  %adds = xor i1 %pb, {str(negated).lower()}",
    ]


def product(code: Code, layout: Layout, name: str) -> Product:
    """The function of an instruction. Raises NotTraced, PtxError."""
    if not (code.take("mma_async") and code.flag("sync") and code.flag("aligned")):
        raise NotTraced("no product")
    if "sp" in code.rest or "b1" in code.rest:
        raise NotTraced("products of sparse matrices and of bits are the interpreter's")
    form, places = form_of(code), _Places(layout)
    packed = 2 if form.result == "f16" else 1
    targets = code.parts(code.operands[0], form.columns // (2 * packed))
    slots = [code.destination(target, B32) for target in targets]
    offsets = [places(slot) for slot in slots]
    layout.written.update(slots)
    way = "registers" if form.in_registers else "turned" if form.turned[0] else "rows"
    order = native_tiles.Order(way, form.depth)
    result = form.result + ("sat" if form.saturates else "")
    kind = f"[{len(offsets)} x i64]"
    b_matrix = f"wg_{'turned' if form.turned[1] else 'columns'}_{form.kinds[1]}"
    a_bytes = (64 * form.depth if way != "turned" else native_tiles.LINE * form.depth) * 8
    lines = [
        f"@{name}_places = internal constant {kind} [{', '.join(f'i64 {one}' for one in offsets)}]",
        f"define internal i1 @{name}(ptr %file, i64 %size, ptr %shared, i64 %limit) noinline #0 {{",
        f"  %am = alloca [{a_bytes} x i8], align 64",
        f"  %bm = alloca [{8 * native_tiles.LINE * form.depth} x i8], align 64",
        *_lines_of_adding(code, places),
        *_lines_of_descriptor(code, places, code.operands[2], "b"),
        *_lines_of_taking(b_matrix, "b", form.columns),
    ]
    if form.in_registers:
        parts = code.parts(code.operands[1], A_REGISTERS)
        of_a = [places(code.slot(one, B32)) for one in parts]
        elements = A_REGISTERS * per_register(INPUT_BITS[form.kinds[0]])
        lines = [*native_tiles.needed(form.kinds[0], WARP), *lines]
        lines += _lines_of_registers(form.kinds[0], of_a, elements)
    else:
        lines += _lines_of_descriptor(code, places, code.operands[1], "a")
        lines += _lines_of_taking(f"wg_{way}_{form.kinds[0]}", "a", ROWS)
    tile = f"@wg_tile_{result}_{form.depth}_{way}"
    before = "bthere" if form.in_registers else "athere"
    lines += ["  br label %tiles", "tiles:", f"  %t = phi i64 [0, %{before}], [%tn, %tiles]"]
    return Product(
        name, "\n".join([*lines, *_tiles(name, kind, tile, order, form.columns, packed, form.sign)])
    )


def _tiles(
    name: str, kind: str, tile: str, order: native_tiles.Order, columns: int, packed: int, sign: int
) -> list[str]:
    """Lines: all tiles of 8 x 8, of each warp two rows of them."""
    per_tile = 2 // packed  # registers of a tile of 8 rows; the next ones are those of the 8 rows below
    return [
        f"  %column = udiv i64 %t, {2 * WARPS}",
        f"  %row = urem i64 %t, {2 * WARPS}",
        "  %warp = lshr i64 %row, 1",
        "  %half = and i64 %row, 1",
        f"  %wa = mul i64 %warp, {order.warp}",
        f"  %ha = mul i64 %half, {order.half}",
        "  %aa = add i64 %wa, %ha",
        "  %from_a = getelementptr i8, ptr %am, i64 %aa",
        "  %ba = mul i64 %column, 64",
        "  %from_b = getelementptr i8, ptr %bm, i64 %ba",
        f"  %cr = mul i64 %column, {2 * per_tile}",
        f"  %hr = mul i64 %half, {per_tile}",
        "  %r0 = add i64 %cr, %hr",
        f"  %r1 = add i64 %r0, {per_tile - 1}",
        f"  %listed0 = getelementptr {kind}, ptr @{name}_places, i64 0, i64 %r0",
        f"  %listed1 = getelementptr {kind}, ptr @{name}_places, i64 0, i64 %r1",
        "  %off0 = load i64, ptr %listed0",
        "  %off1 = load i64, ptr %listed1",
        "  %fo = mul i64 %size, %warp",
        "  %own = getelementptr i8, ptr %file, i64 %fo",
        "  %d0 = getelementptr i8, ptr %own, i64 %off0",
        "  %d1 = getelementptr i8, ptr %own, i64 %off1",
        f"  call void {tile}(ptr %from_a, ptr %from_b, ptr %d0, ptr %d1, i1 %adds, i1 {str(sign < 0).lower()})",
        "  %tn = add i64 %t, 1",
        f"  %tm = icmp ult i64 %tn, {columns // 8 * 2 * WARPS}",
        "  br i1 %tm, label %tiles, label %end",
        "end:",
        "  ret i1 true",
        "bad:",
        "  ret i1 false",
        "}",
    ]
