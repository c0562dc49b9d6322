"""Products of warpgroups in compiled PTX, piece by piece: matrices become doubles, and tiles of 8 x 8 sums.

In       matrices in shared memory by their descriptors, or in registers; how many rows
Out      the text of functions that a program has when it calls them
Next     native_warpgroups.py (who calls them), shared_matrix.py and warpgroup_ops.py (what the interpreter does)

A row of doubles of the host has eight columns. Each sum is made in the order of the depth, as the interpreter makes it:
a product of two elements is exact, so a fused multiply-add rounds as a sum does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np

from hcq.emu.nv.shader.batch import WARP
from hcq.emu.nv.shader.matrix_ops import INPUT_BITS, MINIFLOATS, a_fragment
from hcq.emu.nv.shader.shared_matrix import BASE_SHIFT, DEPTH_BYTES, EIGHT, LEADING_SHIFT, STRIDE_SHIFT
from hcq.emu.nv.shader.tensor_tiles import PIECE_BYTES

KINDS = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8")
LINE = 256  # doubles between two of the depth, where rows are side by side
DOUBLES, FLOATS = f"<{EIGHT} x double>", f"<{EIGHT} x float>"
LIMITS = -(2.0**31), 2.0**31 - 1  # of satfinite


def hexadecimal(number: float) -> str:
    """A double as LLVM writes it."""
    return f"0x{int(np.float64(number).view(np.uint64)):016X}"


def widened(kind: str, name: str, source: str, width: int) -> list[str]:
    """Lines that make doubles, `name`, of the bits of so many elements."""
    bits, doubles = INPUT_BITS[kind], f"<{width} x double>"
    row, words, floats = (f"<{width} x {one}>" for one in (f"i{bits}", "i32", "float"))
    if kind in MINIFLOATS:
        given = f"<{width} x ptr> {name}p, i32 8, <{width} x i1> splat (i1 true), {doubles} zeroinitializer"
        return [
            f"{name}n = zext {row} {source} to <{width} x i64>",
            f"{name}p = getelementptr double, ptr @numbers_{kind}, <{width} x i64> {name}n",
            f"{name} = call {doubles} @llvm.masked.gather.v{width}f64.v{width}p0({given})",
        ]
    if kind in ("s8", "u8"):
        verb = "sitofp" if kind == "s8" else "uitofp"
        return [f"{name} = {verb} {row} {source} to {doubles}"]
    lines = {
        "f16": [
            f"{name}h = bitcast {row} {source} to <{width} x half>",
            f"{name}f = fpext <{width} x half> {name}h to {floats}",
        ],
        "bf16": [
            f"{name}z = zext {row} {source} to {words}",
            f"{name}w = shl {words} {name}z, splat (i32 16)",
            f"{name}f = bitcast {words} {name}w to {floats}",
        ],
        "tf32": [
            f"{name}w = and {words} {source}, splat (i32 {0xFFFFE000})",
            f"{name}f = bitcast {words} {name}w to {floats}",
        ],
    }[kind]
    return [*lines, f"{name} = fpext {floats} {name}f to {doubles}"]


def needed(kind: str, width: int) -> list[str]:
    """What a module with `widened` has besides: the numbers that small floats stand for."""
    if kind not in MINIFLOATS:
        return []
    doubles = f"<{width} x double>"
    numbers = ", ".join(f"double {hexadecimal(one)}" for one in MINIFLOATS[kind].values.astype(np.float64))
    kinds = f"<{width} x ptr>, i32, <{width} x i1>, {doubles}"
    return [
        f"declare {doubles} @llvm.masked.gather.v{width}f64.v{width}p0({kinds})",
        f"@numbers_{kind} = internal constant [256 x double] [{numbers}]",
    ]


# -- matrices in shared memory

ARGUMENTS = "ptr %out, ptr %shared, i64 %limit, i64 %bits, i64 %rows"
# of a descriptor: the swizzle's mask and span, and what the two strides are of
_FIELDS = f"""
  %number = lshr i64 %bits, 62
  %mp = getelementptr i64, ptr @masks, i64 %number
  %mask = load i64, ptr %mp
  %sp = getelementptr i64, ptr @spans, i64 %number
  %span = load i64, ptr %sp
  %plain = icmp eq i64 %number, 0
  %based = lshr i64 %bits, {BASE_SHIFT}
  %base = and i64 %based, 7
  %moved = icmp ne i64 %base, 0
  %swizzles = icmp ne i64 %number, 0
  %odd = and i1 %moved, %swizzles
  %startw = and i64 %bits, 16383
  %start = shl i64 %startw, 4
  %leadings = lshr i64 %bits, {LEADING_SHIFT}
  %leadingw = and i64 %leadings, 16383
  %leading = shl i64 %leadingw, 4
  %strides = lshr i64 %bits, {STRIDE_SHIFT}
  %stridew = and i64 %strides, 16383
  %stride = shl i64 %stridew, 4
  %fits = icmp uge i64 %limit, {PIECE_BYTES}
  %lessened = sub i64 %limit, {PIECE_BYTES - 1}
  %below = select i1 %fits, i64 %lessened, i64 0
""".strip("\n").splitlines()
_TABLES = [
    "@masks = internal constant [4 x i64] [i64 0, i64 7, i64 3, i64 1]",
    "@spans = internal constant [4 x i64] [i64 16, i64 128, i64 64, i64 32]",
]


def _piece(stem: str, at: str, kind: str) -> list[str]:
    """Lines that load a piece: %stem, and %stemo, whether it is in shared memory."""
    bits = INPUT_BITS[kind]
    return [
        f"  %{stem}l = lshr i64 {at}, 7",
        f"  %{stem}m = and i64 %{stem}l, %mask",
        f"  %{stem}s = shl i64 %{stem}m, 4",
        f"  %{stem}x = xor i64 {at}, %{stem}s",
        f"  %{stem}o = icmp ult i64 %{stem}x, %below",
        f"  %{stem}a = select i1 %{stem}o, i64 %{stem}x, i64 0",
        f"  %{stem}p = getelementptr i8, ptr %shared, i64 %{stem}a",
        f"  %{stem} = load <{8 * PIECE_BYTES // bits} x i{bits}>, ptr %{stem}p, align 1",
    ]


def _frame(name: str, kind: str, width: int, begin: list[str], body: list[str], count: str) -> str:
    """A function that does something for each eight rows, %n, and says whether all was in shared memory."""
    return "\n".join(
        [
            *needed(kind, width),
            *_TABLES,
            f"define internal i1 @{name}({ARGUMENTS}) noinline #0 {{",
            "entry:",
            *_FIELDS,
            *begin,
            f"  %count = lshr i64 %rows, {count}",
            "  %enough = icmp ne i64 %below, 0",
            "  br i1 %enough, label %ask, label %bad",
            "ask:",
            "  br i1 %odd, label %bad, label %loop",
            "loop:",
            "  %n = phi i64 [0, %ask], [%more, %loop]",
            "  %fine = phi i1 [true, %ask], [%good, %loop]",
            *body,
            "  %more = add i64 %n, 1",
            "  %again = icmp ult i64 %more, %count",
            "  br i1 %again, label %loop, label %end",
            "end:",
            "  ret i1 %good",
            "bad:",
            "  ret i1 false",
            "}",
        ]
    )


def _all(names: list[str]) -> list[str]:
    """Lines: %good is whether these hold, and %fine."""
    lines, before = [], "%fine"
    for number, name in enumerate(names):
        made = "%good" if number == len(names) - 1 else f"%good{number}"
        lines.append(f"  {made} = and i1 {before}, {name}")
        before = made
    return lines


DEPTH_FIRST = ["  %step = select i1 %plain, i64 %leading, i64 16", "  %pitch = add i64 %span, 0"]


def _rows(kind: str) -> str:
    """Matrix A, depth first: row after row."""
    per_piece = 8 * PIECE_BYTES // INPUT_BITS[kind]
    depth, pieces = DEPTH_BYTES * 8 // INPUT_BITS[kind], DEPTH_BYTES // PIECE_BYTES
    body = [
        "  %eight = lshr i64 %n, 3",
        "  %low = and i64 %n, 7",
        "  %far = mul i64 %eight, %stride",
        "  %near = mul i64 %low, %pitch",
        "  %sum = add i64 %far, %near",
        "  %at0 = add i64 %sum, %start",
        "  %at1 = add i64 %at0, %step",
        f"  %line = mul i64 %n, {depth * 8}",
        "  %goal = getelementptr i8, ptr %out, i64 %line",
    ]
    for piece in range(pieces):
        body += _piece(f"v{piece}", f"%at{piece}", kind)
        body += widened(kind, f"%d{piece}", f"%v{piece}", per_piece)
        body += [
            f"  %to{piece} = getelementptr double, ptr %goal, i64 {piece * per_piece}",
            f"  store <{per_piece} x double> %d{piece}, ptr %to{piece}, align 16",
        ]
    body += _all([f"%v{piece}o" for piece in range(pieces)])
    return _frame(f"wg_rows_{kind}", kind, per_piece, DEPTH_FIRST, body, "0")


def _columns(kind: str) -> str:
    """Matrix B, depth first: eight columns of each of the depth are put side by side."""
    bits = INPUT_BITS[kind]
    per_piece, pieces = 8 * PIECE_BYTES // bits, DEPTH_BYTES // PIECE_BYTES
    body = ["  %far = mul i64 %n, %stride", "  %first = add i64 %far, %start", "  %line = mul i64 %n, 64"]
    body.append("  %goal = getelementptr i8, ptr %out, i64 %line")
    good = []
    for piece in range(pieces):
        names = []
        for row in range(EIGHT):
            stem = f"v{piece}_{row}"
            body += [
                f"  %{stem}r = mul i64 %pitch, {row}",
                f"  %{stem}f = add i64 %first, %{stem}r",
                f"  %{stem}k = mul i64 %step, {piece}",
                f"  %{stem}t = add i64 %{stem}f, %{stem}k",
                *_piece(stem, f"%{stem}t", kind),
            ]
            good.append(f"%{stem}o")
            names.append(f"%{stem}")
        width, stage = per_piece, 0
        while len(names) > 1:
            order, joined = ", ".join(f"i32 {number}" for number in range(2 * width)), []
            for number in range(0, len(names), 2):
                name, row_type = f"%j{piece}_{stage}_{number}", f"<{width} x i{bits}>"
                body.append(
                    f"  {name} = shufflevector {row_type} {names[number]}, {row_type} {names[number + 1]}, "
                    f"<{2 * width} x i32> <{order}>"
                )
                joined.append(name)
            names, width, stage = joined, 2 * width, stage + 1
        for k in range(per_piece):
            order = ", ".join(f"i32 {row * per_piece + k}" for row in range(EIGHT))
            name, whole = f"%c{piece}_{k}", f"<{width} x i{bits}>"
            body.append(
                f"  {name} = shufflevector {whole} {names[0]}, {whole} poison, <{EIGHT} x i32> <{order}>"
            )
            body += widened(kind, f"%d{piece}_{k}", name, EIGHT)
            body += [
                f"  %to{piece}_{k} = getelementptr double, ptr %goal, i64 {(piece * per_piece + k) * LINE}",
                f"  store {DOUBLES} %d{piece}_{k}, ptr %to{piece}_{k}, align 16",
            ]
    body += _all(good)
    return _frame(f"wg_columns_{kind}", kind, EIGHT, DEPTH_FIRST, body, "3")


def _turned(kind: str) -> str:
    """Either matrix, rows first: eight rows of each of the depth are side by side as they are."""
    depth = DEPTH_BYTES * 8 // INPUT_BITS[kind]
    begin = [
        "  %near = select i1 %plain, i64 %stride, i64 %leading",
        "  %far = select i1 %plain, i64 %leading, i64 %stride",
        "  %per = lshr i64 %span, 4",
        "  %inside = sub i64 %per, 1",
    ]
    body = [
        "  %part = and i64 %n, %inside",
        "  %whole = udiv i64 %n, %per",
        "  %small = shl i64 %part, 4",
        "  %large = mul i64 %whole, %near",
        "  %both = add i64 %small, %large",
        "  %first = add i64 %both, %start",
        "  %line = mul i64 %n, 64",
        "  %goal = getelementptr i8, ptr %out, i64 %line",
    ]
    for k in range(depth):
        body += [
            f"  %k{k}s = mul i64 %span, {k % EIGHT}",
            f"  %k{k}f = mul i64 %far, {k // EIGHT}",
            f"  %k{k}b = add i64 %k{k}s, %k{k}f",
            f"  %k{k} = add i64 %first, %k{k}b",
            *_piece(f"v{k}", f"%k{k}", kind),
            *widened(kind, f"%d{k}", f"%v{k}", EIGHT),
            f"  %to{k} = getelementptr double, ptr %goal, i64 {k * LINE}",
            f"  store {DOUBLES} %d{k}, ptr %to{k}, align 16",
        ]
    body += _all([f"%v{k}o" for k in range(depth)])
    return _frame(f"wg_turned_{kind}", kind, EIGHT, begin, body, "3")


# -- tiles


class Order:
    """Where the elements of A for a tile of 8 rows lie: `row` bytes between rows, and `at` of each of the depth.

    warp, half   bytes between warps, and between the two tiles of one
    """

    def __init__(self, way: str, depth: int) -> None:
        if way == "rows":
            self.row, self.at = 8 * depth, [8 * k for k in range(depth)]
            self.warp, self.half = 16 * self.row, EIGHT * self.row
        elif way == "turned":
            self.row, self.at = 8, [8 * LINE * k for k in range(depth)]
            self.warp, self.half = 16 * self.row, EIGHT * self.row
        else:  # registers: element after element, each of all threads
            place = a_fragment(16, depth, 8 * DEPTH_BYTES // depth)
            found = np.zeros((16, depth), np.int64)
            threads, elements = np.indices(place.rows.shape)
            found[place.rows, place.columns] = 8 * (WARP * elements + threads)
            self.row, self.at = int(found[1, 0] - found[0, 0]), found[0].tolist()
            self.warp, self.half = 8 * WARP * place.rows.shape[1], int(found[8, 0])
            for row in range(16):
                assert (found[row] == found[0] + row % 8 * self.row + row // 8 * self.half).all()


def _tile(result: str, depth: int, way: str) -> str:
    """D of 8 rows and 8 columns, in the registers of a warp: two of float32 or int32, one of float16."""
    order = Order(way, depth)
    head = "ptr %a, ptr %b, ptr %d0, ptr %d1, i1 %adds, i1 %negates"
    lines = [f"define internal void @wg_tile_{result}_{depth}_{way}({head}) noinline #0 {{"]
    sums = ["zeroinitializer"] * EIGHT
    for k in range(depth):
        lines += [
            f"  %bp{k} = getelementptr double, ptr %b, i64 {LINE * k}",
            f"  %b{k} = load {DOUBLES}, ptr %bp{k}, align 16",
        ]
        for row in range(EIGHT):
            name = f"{k}_{row}"
            lines += [
                f"  %ap{name} = getelementptr i8, ptr %a, i64 {order.at[k] + row * order.row}",
                f"  %al{name} = load double, ptr %ap{name}, align 8",
                f"  %ai{name} = insertelement {DOUBLES} poison, double %al{name}, i64 0",
                f"  %a{name} = shufflevector {DOUBLES} %ai{name}, {DOUBLES} poison, <{EIGHT} x i32> zeroinitializer",
            ]
            given = ", ".join(f"{DOUBLES} {one}" for one in (f"%a{name}", f"%b{k}", sums[row]))
            lines.append(f"  %s{name} = call {DOUBLES} @llvm.fma.v8f64({given})")
            sums[row] = f"%s{name}"
    one = "half" if result == "f16" else "i32" if result.startswith("s32") else "float"
    lines += _before(one)
    rows = []
    for row in range(EIGHT):
        lines += [
            f"  %n{row} = fneg {DOUBLES} {sums[row]}",
            f"  %t{row} = select i1 %negates, {DOUBLES} %n{row}, {DOUBLES} {sums[row]}",
            f"  %g{row} = fadd {DOUBLES} %t{row}, %c{row}",
            f"  %f{row} = select i1 %adds, {DOUBLES} %g{row}, {DOUBLES} %t{row}",
            *_rounded(result, f"%r{row}", f"%f{row}"),
        ]
        rows.append(f"%r{row}")
    lines += _packed("i16" if one == "half" else one, rows)
    declared = [f"declare {DOUBLES} @llvm.fma.v8f64({DOUBLES}, {DOUBLES}, {DOUBLES})"]
    if result == "f16":
        declared.append(f"declare {DOUBLES} @llvm.fabs.v8f64({DOUBLES})")
    return "\n".join([*declared, *lines, "  ret void", "}"])


def _before(one: str) -> list[str]:
    """Lines: %c0 to %c7, the rows of what is there, as doubles."""
    verb = "sitofp" if one == "i32" else "fpext"
    lines = []
    if one == "half":
        lines.append(f"  %old = load <{2 * WARP} x half>, ptr %d0, align 64")
    else:
        lines += [f"  %old{number} = load <{WARP} x {one}>, ptr %d{number}, align 64" for number in range(2)]
    for row in range(EIGHT):
        if one == "half":
            order = ", ".join(f"i32 {EIGHT * row + column}" for column in range(EIGHT))
            source = f"<{2 * WARP} x half> %old, <{2 * WARP} x half> poison"
        else:
            order = ", ".join(f"i32 {4 * row + column // 2 + WARP * (column % 2)}" for column in range(EIGHT))
            source = f"<{WARP} x {one}> %old0, <{WARP} x {one}> %old1"
        lines += [
            f"  %o{row} = shufflevector {source}, <{EIGHT} x i32> <{order}>",
            f"  %c{row} = {verb} <{EIGHT} x {one}> %o{row} to {DOUBLES}",
        ]
    return lines


def _rounded(result: str, name: str, source: str) -> list[str]:
    """Lines that make elements of D of a row of doubles."""
    if result == "f32":
        return [f"  {name} = fptrunc {DOUBLES} {source} to {FLOATS}"]
    longs, words = f"<{EIGHT} x i64>", f"<{EIGHT} x i32>"
    if result == "s32":
        return [
            f"  {name}l = fptosi {DOUBLES} {source} to {longs}",
            f"  {name} = trunc {longs} {name}l to {words}",
        ]
    if result == "s32sat":
        low, high = (f"splat (double {hexadecimal(one)})" for one in LIMITS)
        return [
            f"  {name}a = fcmp olt {DOUBLES} {source}, {low}",
            f"  {name}b = select <{EIGHT} x i1> {name}a, {DOUBLES} {low}, {DOUBLES} {source}",
            f"  {name}c = fcmp ogt {DOUBLES} {name}b, {high}",
            f"  {name}d = select <{EIGHT} x i1> {name}c, {DOUBLES} {high}, {DOUBLES} {name}b",
            *_rounded("s32", name, f"{name}d"),
        ]
    mask, halves = f"<{EIGHT} x i1>", f"<{EIGHT} x half>"
    # rounded to odd, a float32 rounds to the half that the double rounds to
    return [
        f"  {name}n = fptrunc {DOUBLES} {source} to {FLOATS}",
        f"  {name}w = fpext {FLOATS} {name}n to {DOUBLES}",
        f"  {name}e = fcmp one {DOUBLES} {name}w, {source}",
        f"  {name}p = call {DOUBLES} @llvm.fabs.v8f64({DOUBLES} {name}w)",
        f"  {name}q = call {DOUBLES} @llvm.fabs.v8f64({DOUBLES} {source})",
        f"  {name}y = fcmp ogt {DOUBLES} {name}p, {name}q",
        f"  {name}i = bitcast {FLOATS} {name}n to {words}",
        f"  {name}o = sub {words} {name}i, splat (i32 1)",
        f"  {name}of = bitcast {words} {name}o to {FLOATS}",
        f"  {name}g = select {mask} {name}y, {FLOATS} {name}of, {FLOATS} {name}n",
        f"  {name}gi = bitcast {FLOATS} {name}g to {words}",
        f"  {name}h = or {words} {name}gi, splat (i32 1)",
        f"  {name}hf = bitcast {words} {name}h to {FLOATS}",
        f"  {name}x = and {words} {name}i, splat (i32 {0x7F800000})",
        f"  {name}u = icmp ne {words} {name}x, splat (i32 {0x7F800000})",
        f"  {name}v = or {mask} {name}u, {name}y",
        f"  {name}z = and {mask} {name}e, {name}v",
        f"  {name}k = select {mask} {name}z, {FLOATS} {name}hf, {FLOATS} {name}n",
        f"  {name}t = fptrunc {FLOATS} {name}k to {halves}",
        f"  {name}b = bitcast {halves} {name}t to <{EIGHT} x i16>",
        f"  {name}nan = fcmp uno {DOUBLES} {source}, {source}",
        f"  {name} = select {mask} {name}nan, <{EIGHT} x i16> splat (i16 {0x7FFF}), <{EIGHT} x i16> {name}b",
    ]


def _packed(one: str, rows: list[str]) -> list[str]:
    """Lines that store rows of D in the registers that have them."""
    width, stage, lines = EIGHT, 0, []
    while len(rows) > 1:
        order, joined, kind = (
            ", ".join(f"i32 {number}" for number in range(2 * width)),
            [],
            f"<{width} x {one}>",
        )
        for number in range(0, len(rows), 2):
            lines.append(
                f"  %w{stage}_{number} = shufflevector {kind} {rows[number]}, {kind} {rows[number + 1]}, "
                f"<{2 * width} x i32> <{order}>"
            )
            joined.append(f"%w{stage}_{number}")
        rows, width, stage = joined, 2 * width, stage + 1
    whole = f"<{width} x {one}>"
    if one == "i16":
        return [*lines, f"  store {whole} {rows[0]}, ptr %d0, align 64"]
    for number in range(2):
        order = ", ".join(f"i32 {2 * lane + number}" for lane in range(WARP))
        lines += [
            f"  %x{number} = shufflevector {whole} {rows[0]}, {whole} poison, <{WARP} x i32> <{order}>",
            f"  store <{WARP} x {one}> %x{number}, ptr %d{number}, align 64",
        ]
    return lines


FUNCTIONS: Mapping[str, Callable[[], str]] = {
    **{f"@wg_rows_{kind}": functools.partial(_rows, kind) for kind in KINDS},
    **{f"@wg_columns_{kind}": functools.partial(_columns, kind) for kind in KINDS},
    **{f"@wg_turned_{kind}": functools.partial(_turned, kind) for kind in ("f16", "bf16")},
    **{
        f"@wg_tile_{result}_{depth}_{way}": functools.partial(_tile, result, depth, way)
        for result, depths in (("f32", (8, 16, 32)), ("f16", (16, 32)), ("s32", (32,)), ("s32sat", (32,)))
        for depth in depths
        for way in ("rows", "turned", "registers")
        if way != "turned" or depth == 16
    },
}  # by "@name": what makes the text
