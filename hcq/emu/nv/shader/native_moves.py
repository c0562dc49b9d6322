"""Functions of LLVM IR that move numbers between memory and the threads of a warp.

In       how many bits a number has, how many of them a thread moves
Out      the text of a function: it checks all addresses, then moves everything; or it moves nothing and says so
Next     native_memory.py (who calls them)

Most warps read one address, or thread beside thread: then only the ends are checked, and it is one access. Else each
address is checked, and each thread reads for itself.
"""

from __future__ import annotations

from hcq.emu.nv.shader.batch import WARP

AT = f"<{WARP} x i64>"
HALF = WARP // 2
RANGE = "i64 %start, i64 %limit, i64 %delta, i32 %m) noinline #0 {"


def result_of(bits: int, count: int, lanes: int = WARP) -> str:
    """What a load gives: whether it was made, and the numbers."""
    return "{i1, " + ", ".join([f"<{lanes} x i{bits}>"] * count) + "}"


def _splat(name: str, value: str, lanes: int) -> list[str]:
    """Lines that give all lanes one i64."""
    at = f"<{lanes} x i64>"
    return [
        f"  %{name}i = insertelement {at} poison, i64 {value}, i64 0",
        f"  %{name} = shufflevector {at} %{name}i, {at} poison, <{lanes} x i32> zeroinitializer",
    ]


def _head(size: int, lanes: int) -> list[str]:
    """Where only some are on: whether these lie side by side, in the range."""
    at, steps = f"<{lanes} x i64>", ", ".join(f"i64 {size * lane}" for lane in range(lanes))
    return [
        "mixed:",
        "  %nobody = icmp eq i32 %m, 0",
        "  br i1 %nobody, label %nothing, label %some",
        "some:",
        "  %first = call i32 @llvm.cttz.i32(i32 %m, i1 true)",
        "  %zeros = call i32 @llvm.ctlz.i32(i32 %m, i1 true)",
        "  %last = sub i32 31, %zeros",
        f"  %a = extractelement {at} %at, i32 %first",
        "  %fw = zext i32 %first to i64",
        "  %lw = zext i32 %last to i64",
        f"  %before = mul i64 %fw, {size}",
        "  %base = sub i64 %a, %before",
        f"  %behind = mul i64 %lw, {size}",
        "  %z = add i64 %base, %behind",
        *_splat("bases", "%base", lanes),
        f"  %next = add {at} %bases, <{steps}>",
        f"  %is = icmp eq {at} %at, %next",
        *_bits("ib", "%is", lanes),
        "  %ic = and i32 %ib, %m",
        "  %beside = icmp eq i32 %ic, %m",
        f"  %low = and i64 %a, {size - 1}",
        "  %even = icmp eq i64 %low, 0",
        "  %ao = sub i64 %a, %start",
        "  %ain = icmp ult i64 %ao, %limit",
        "  %aok = and i1 %ain, %even",
        "  br i1 %beside, label %row, label %other",
        "row:",
        "  %zo = sub i64 %z, %start",
        "  %zin = icmp ult i64 %zo, %limit",
        "  %rok = and i1 %aok, %zin",
        "  %there = add i64 %base, %delta",
        "  %p = inttoptr i64 %there to ptr",
        "  br i1 %rok, label %good, label %bad",
        "good:",
        f"  %all = icmp eq i{lanes} %mt, -1",
        "  br i1 %all, label %whole, label %part",
    ]


def _full(size: int, lanes: int, same: bool, far: str, near: str) -> list[str]:
    """Where all threads are on, which is most often: the first two tell how all may lie.

    same  whether threads of one address are apart: they go to full_same then, and those side by side to full_row
    far   where those go that lie far apart; near: those of which only some lie together
    """
    at, steps = f"<{lanes} x i64>", ", ".join(f"i64 {size * lane}" for lane in range(lanes))
    lines = [
        f"  %mt = trunc i32 %m to i{lanes}" if lanes < WARP else "  %mt = add i32 %m, 0",
        f"  %on = bitcast i{lanes} %mt to <{lanes} x i1>",
        f"  %isfull = icmp eq i32 %m, {(1 << lanes) - 1 if lanes < 32 else -1}",
        "  br i1 %isfull, label %full, label %mixed",
        "full:",
        f"  %f0 = extractelement {at} %at, i64 0",
        f"  %f1 = extractelement {at} %at, i64 1",
        f"  %fz = extractelement {at} %at, i64 {lanes - 1}",
        "  %fd = sub i64 %f1, %f0",
        f"  %fl = and i64 %f0, {size - 1}",
        "  %feven = icmp eq i64 %fl, 0",
        "  %fo0 = sub i64 %f0, %start",
        "  %foz = sub i64 %fz, %start",
        "  %fi0 = icmp ult i64 %fo0, %limit",
        "  %fiz = icmp ult i64 %foz, %limit",
        "  %fi = and i1 %fi0, %fiz",
        "  %fok = and i1 %fi, %feven",
        "  %fh = add i64 %f0, %delta",
        "  %fp = inttoptr i64 %fh to ptr",
        *_splat("fs", "%f0", lanes),
        f"  %fnext = icmp eq i64 %fd, {size}",
        f"  br i1 %fnext, label %ask_row, label %{'ask_zero' if same else far}",
        "ask_row:",
        f"  %fn = add {at} %fs, <{steps}>",
        f"  %fe = icmp eq {at} %at, %fn",
        *_bits("feb", "%fe", lanes),
        "  %fer = icmp eq i32 %feb, %m",
        f"  br i1 %fer, label %ask_in, label %{near}",
        "ask_in:",
        "  br i1 %fok, label %full_row, label %bad",
    ]
    if same:
        lines += [
            "ask_zero:",
            "  %fz0 = icmp eq i64 %fd, 0",
            f"  br i1 %fz0, label %ask_same, label %{far}",
            "ask_same:",
            f"  %fq = icmp eq {at} %at, %fs",
            *_bits("fqb", "%fq", lanes),
            "  %fqr = icmp eq i32 %fqb, %m",
            f"  br i1 %fqr, label %ask_one, label %{near}",
            "ask_one:",
            "  br i1 %fok, label %full_same, label %bad",
        ]
    return lines


def _bits(name: str, mask: str, lanes: int) -> list[str]:
    """Lines that make an i32 of booleans."""
    if lanes == WARP:
        return [f"  %{name} = bitcast <{lanes} x i1> {mask} to i32"]
    return [
        f"  %{name}n = bitcast <{lanes} x i1> {mask} to i{lanes}",
        f"  %{name} = zext i{lanes} %{name}n to i32",
    ]


def spread(size: int, lanes: int) -> list[str]:
    """Each thread has an address of its own."""
    at, mask = f"<{lanes} x i64>", f"<{lanes} x i1>"
    return [
        "spread:",
        f"  %lows = and {at} %at, splat (i64 {size - 1})",
        f"  %odd = icmp ne {at} %lows, zeroinitializer",
        *_splat("ss", "%start", lanes),
        *_splat("ls", "%limit", lanes),
        f"  %off = sub {at} %at, %ss",
        f"  %out = icmp uge {at} %off, %ls",
        f"  %wrong = or {mask} %odd, %out",
        *_bits("wb", "%wrong", lanes),
        "  %wc = and i32 %wb, %m",
        "  %fine = icmp eq i32 %wc, 0",
        "  br i1 %fine, label %each, label %bad",
        "each:",
        *_splat("ds", "%delta", lanes),
        f"  %theirs = add {at} %at, %ds",
    ]


def _halves(kind: str, source: str, stem: str) -> list[str]:
    """Lines that take a vector apart: %stem0 and %stem1."""
    lines = []
    for side in range(2):
        order = ", ".join(f"i32 {side * HALF + lane}" for lane in range(HALF))
        lines.append(
            f"  %{stem}{side} = shufflevector <{WARP} x {kind}> {source}, <{WARP} x {kind}> poison, "
            f"<{HALF} x i32> <{order}>"
        )
    return lines


def _masks() -> list[str]:
    return ["  %m0 = and i32 %m, 65535", "  %m1 = lshr i32 %m, 16"]


def loop(size: int, lanes: int, body: list[str]) -> list[str]:
    """Thread after thread, those that are on."""
    return [
        f"  store <{lanes} x i64> %theirs, ptr %places, align 64",
        "  br label %begin",
        "begin:",
        "  br label %loop",
        "loop:",
        "  %rest = phi i32 [%m, %begin], [%less, %loop]",
        "  %n = call i32 @llvm.cttz.i32(i32 %rest, i1 true)",
        "  %ip = getelementptr i64, ptr %places, i32 %n",
        "  %i = load i64, ptr %ip, align 8",
        "  %lp = inttoptr i64 %i to ptr",
        f"  %kp = getelementptr [{size} x i8], ptr %kept, i32 %n",
        *body,
        "  %down = sub i32 %rest, 1",
        "  %less = and i32 %rest, %down",
        "  %more = icmp ne i32 %less, 0",
        "  br i1 %more, label %loop, label %end",
        "end:",
    ]


def _splats(bits: int, count: int, lanes: int, pointer: str, stem: str) -> list[str]:
    """Lines that return the numbers at one place, for all threads."""
    kind, lines, splats = f"<{lanes} x i{bits}>", [], []
    every = f"<{lanes} x i32> zeroinitializer"
    for number in range(count):
        lines += [
            f"  %{stem}p{number} = getelementptr i{bits}, ptr {pointer}, i64 {number}",
            f"  %{stem}v{number} = load i{bits}, ptr %{stem}p{number}, align 1",
            f"  %{stem}i{number} = insertelement {kind} poison, i{bits} %{stem}v{number}, i64 0",
            f"  %{stem}s{number} = shufflevector {kind} %{stem}i{number}, {kind} poison, {every}",
        ]
        splats.append(f"%{stem}s{number}")
    return [*lines, *returned(bits, lanes, splats, f"{stem}r")]


def returned(bits: int, lanes: int, texts: list[str], stem: str) -> list[str]:
    """Lines that return what a load gives."""
    kind = result_of(bits, len(texts), lanes)
    lines, made = [f"  %{stem} = insertvalue {kind} poison, i1 true, 0"], f"%{stem}"
    for number, text in enumerate(texts):
        lines.append(
            f"  %{stem}{number} = insertvalue {kind} {made}, <{lanes} x i{bits}> {text}, {number + 1}"
        )
        made = f"%{stem}{number}"
    return [*lines, f"  ret {kind} {made}"]


def _columns(bits: int, count: int, lanes: int, source: str, stem: str) -> tuple[list[str], list[str]]:
    """The numbers of each thread out of all of them in a row."""
    if count == 1:
        return [], [source]
    row = f"<{count * lanes} x i{bits}>"
    lines, found = [], []
    for number in range(count):
        order = ", ".join(f"i32 {count * lane + number}" for lane in range(lanes))
        lines.append(
            f"  %{stem}{number} = shufflevector {row} {source}, {row} poison, <{lanes} x i32> <{order}>"
        )
        found.append(f"%{stem}{number}")
    return lines, found


def get(bits: int, count: int) -> str:
    """A load of `count` numbers by each thread; threads of half a warp often lie together where all do not."""
    return f"{_get(bits, count, HALF)}\n{_get(bits, count, WARP)}"


def _get(bits: int, count: int, lanes: int) -> str:
    size, kind, one = bits // 8 * count, f"<{lanes} x i{bits}>", f"i{8 * (bits // 8 * count)}"
    row, name, at = f"<{count * lanes} x i{bits}>", f"v{count * lanes}i{bits}", f"<{lanes} x i64>"
    mask, wide_mask = f"<{lanes} x i1>", f"<{count * lanes} x i1>"
    full, fulls = _columns(bits, count, lanes, "%fx", "fw")
    whole, wholes = _columns(bits, count, lanes, "%x", "xw")
    some, somes = _columns(bits, count, lanes, "%y", "yw")
    order = ", ".join(f"i32 {lane // count}" for lane in range(count * lanes))
    lines = [
        f"declare {row} @llvm.masked.load.{name}.p0(ptr, i32, {wide_mask}, {row})",
        "declare i32 @llvm.ctlz.i32(i32, i1)",
        f"declare {kind} @llvm.masked.gather.v{lanes}i{bits}.v{lanes}p0(<{lanes} x ptr>, i32, {mask}, {kind})",
        f"define internal {result_of(bits, count, lanes)} @{_name('get', bits, count, lanes)}({at} %at, {RANGE}",
        f"  %places = alloca {at}, align 64",
        f"  %kept = alloca [{lanes * size} x i8], align 64",
        *_full(size, lanes, True, "spread", "halves" if lanes == WARP else "spread"),
        "full_row:",
        f"  %fx = load {row}, ptr %fp, align 1",
        *full,
        *returned(bits, lanes, fulls, "fr"),
        "full_same:",
        *_splats(bits, count, lanes, "%fp", "fo"),
        *_head(size, lanes),
        "whole:",
        f"  %x = load {row}, ptr %p, align 1",
        *whole,
        *returned(bits, lanes, wholes, "xr"),
        "part:",
        f"  %ons = shufflevector {mask} %on, {mask} poison, <{count * lanes} x i32> <{order}>",
        f"  %y = call {row} @llvm.masked.load.{name}.p0(ptr %p, i32 1, {wide_mask} %ons, {row} zeroinitializer)",
        *some,
        *returned(bits, lanes, somes, "yr"),
        "other:",
        *_splat("ones", "%a", lanes),
        f"  %equal = icmp eq {at} %at, %ones",
        *_bits("eb", "%equal", lanes),
        "  %ec = and i32 %eb, %m",
        "  %same = icmp eq i32 %ec, %m",
        f"  br i1 %same, label %one, label %{'spread' if lanes < WARP else 'halves'}",
        "one:",
        "  br i1 %aok, label %once, label %bad",
        "once:",
        "  %od = add i64 %a, %delta",
        "  %op = inttoptr i64 %od to ptr",
        *_splats(bits, count, lanes, "%op", "o"),
        *spread(size, lanes),
    ]
    if lanes == WARP:  # here only if all are on
        lines += [*_one_by_one(bits, count, lanes), *_both_halves(bits, count)]
    else:
        lines += [
            f"  %every = icmp eq i{lanes} %mt, -1",
            "  br i1 %every, label %singly, label %some_each",
            "singly:",
            *_one_by_one(bits, count, lanes),
            "some_each:",
            *_each(bits, count, lanes, one),
        ]
    lines += [
        "nothing:",
        *returned(bits, lanes, ["zeroinitializer"] * count, "nr"),
        "bad:",
        f"  ret {result_of(bits, count, lanes)} zeroinitializer",
        "}",
    ]
    return "\n".join(lines)


def _name(verb: str, bits: int, count: int, lanes: int) -> str:
    return f"{verb}{bits}x{count}" if lanes == WARP else f"{verb}half{bits}x{count}"


def _both_halves(bits: int, count: int) -> list[str]:
    """Each half of the warp by itself."""
    kind, half = result_of(bits, count, HALF), _name("get", bits, count, HALF)
    lines = ["halves:", *_halves("i64", "%at", "ah"), *_masks()]
    for side in range(2):
        lines.append(
            f"  %h{side} = call {kind} @{half}(<{HALF} x i64> %ah{side}, i64 %start, i64 %limit, i64 %delta, "
            f"i32 %m{side})"
        )
        lines.append(f"  %hk{side} = extractvalue {kind} %h{side}, 0")
    lines += ["  %hk = and i1 %hk0, %hk1", "  br i1 %hk, label %joined, label %bad", "joined:"]
    order, found = ", ".join(f"i32 {lane}" for lane in range(WARP)), []
    for number in range(count):
        for side in range(2):
            lines.append(f"  %hv{number}_{side} = extractvalue {kind} %h{side}, {number + 1}")
        part = f"<{HALF} x i{bits}>"
        lines.append(
            f"  %hj{number} = shufflevector {part} %hv{number}_0, {part} %hv{number}_1, <{WARP} x i32> <{order}>"
        )
        found.append(f"%hj{number}")
    return [*lines, *returned(bits, WARP, found, "hr")]


def _each(bits: int, count: int, lanes: int, one: str) -> list[str]:
    """Each thread reads for itself."""
    size, kind, mask = bits // 8 * count, f"<{lanes} x i{bits}>", f"<{lanes} x i1>"
    lines = []
    if count == 1 and bits >= 32:
        gather = f"@llvm.masked.gather.v{lanes}i{bits}.v{lanes}p0"
        lines += [
            f"  %ps = inttoptr <{lanes} x i64> %theirs to <{lanes} x ptr>",
            f"  %v = call {kind} {gather}(<{lanes} x ptr> %ps, i32 1, {mask} %on, {kind} zeroinitializer)",
        ]
    else:
        body = [f"  %one_ = load {one}, ptr %lp, align 1", f"  store {one} %one_, ptr %kp, align 1"]
        lines += [*loop(size, lanes, body), f"  %v = load <{count * lanes} x i{bits}>, ptr %kept, align 64"]
    many, manys = _columns(bits, count, lanes, "%v", "vw")
    return [*lines, *many, *returned(bits, lanes, manys, "vr")]


def _one_by_one(bits: int, count: int, lanes: int) -> list[str]:
    """Lines that return what all threads read, one load after the other: a gather takes longer on many hosts."""
    size, row = bits // 8 * count, f"<{count * lanes} x i{bits}>"
    lines, before, whole = [], "poison", f"i{8 * size}"
    own = f"<{count} x i{bits}>"  # the numbers of a thread
    for lane in range(lanes):
        lines += [
            f"  %sa{lane} = extractelement <{lanes} x i64> %theirs, i64 {lane}",
            f"  %sp{lane} = inttoptr i64 %sa{lane} to ptr",
            f"  %sx{lane} = load {own if size > 8 else whole}, ptr %sp{lane}, align 1",
        ]
        if size <= 8:
            lines.append(
                f"  %sv{lane} = insertelement <{lanes} x {whole}> {before}, {whole} %sx{lane}, i64 {lane}"
            )
            before = f"%sv{lane}"
    name = "%s"
    if size > 8:
        joins, name = _side_by_side([f"%sx{lane}" for lane in range(lanes)], bits, count, "s")
        lines += joins
    else:
        lines.append(f"  %s = bitcast <{lanes} x {whole}> {before} to {row}")
    many, manys = _columns(bits, count, lanes, name, "sw")
    return [*lines, *many, *returned(bits, lanes, manys, "sr")]


def _side_by_side(pieces: list[str], bits: int, width: int, stem: str) -> tuple[list[str], str]:
    """Lines that make one vector of vectors of so many numbers, and its name."""
    lines, stage = [], 0
    while len(pieces) > 1:
        order, made = ", ".join(f"i32 {number}" for number in range(2 * width)), []
        part = f"<{width} x i{bits}>"
        for number in range(0, len(pieces), 2):
            lines.append(
                f"  %{stem}j{stage}_{number} = shufflevector {part} {pieces[number]}, {part} {pieces[number + 1]}, "
                f"<{2 * width} x i32> <{order}>"
            )
            made.append(f"%{stem}j{stage}_{number}")
        pieces, width, stage = made, 2 * width, stage + 1
    return lines, pieces[0]


def put(bits: int, count: int) -> str:
    """A store of `count` numbers by each thread, in the order of the threads."""
    return f"{_put(bits, count, HALF)}\n{_put(bits, count, WARP)}"


def _put(bits: int, count: int, lanes: int) -> str:
    size, kind, one = bits // 8 * count, f"<{lanes} x i{bits}>", f"i{8 * (bits // 8 * count)}"
    row, name, at = f"<{count * lanes} x i{bits}>", f"v{count * lanes}i{bits}", f"<{lanes} x i64>"
    mask, wide_mask = f"<{lanes} x i1>", f"<{count * lanes} x i1>"
    given = ", ".join(f"{kind} %x{number}" for number in range(count))
    joined, x = _joined(bits, count, lanes)
    each = ", ".join(f"i32 {lane // count}" for lane in range(count * lanes))
    lines = [
        f"declare void @llvm.masked.store.{name}.p0({row}, ptr, i32, {wide_mask})",
        "declare i32 @llvm.ctlz.i32(i32, i1)",
        f"define internal i1 @{_name('put', bits, count, lanes)}({given}, {at} %at, {RANGE}",
        f"  %places = alloca {at}, align 64",
        f"  %kept = alloca [{lanes * size} x i8], align 64",
        *joined,
        *_full(size, lanes, False, "spread", "spread"),
        "full_row:",
        f"  store {row} {x}, ptr %fp, align 1",
        "  ret i1 true",
        *_head(size, lanes),
        "whole:",
        f"  store {row} {x}, ptr %p, align 1",
        "  ret i1 true",
        "part:",
        f"  %ons = shufflevector {mask} %on, {mask} poison, <{count * lanes} x i32> <{each}>",
        f"  call void @llvm.masked.store.{name}.p0({row} {x}, ptr %p, i32 1, {wide_mask} %ons)",
        "  ret i1 true",
        "other:",
        "  br label %spread",
        *spread(size, lanes),
    ]
    if lanes == WARP:  # all addresses are right: nothing is stored twice
        lines += [*_halves("i64", "%at", "ah"), *_masks()]
        for number in range(count):
            lines += _halves(f"i{bits}", f"%x{number}", f"xh{number}_")
        for side in range(2):
            parts = ", ".join(f"<{HALF} x i{bits}> %xh{number}_{side}" for number in range(count))
            lines.append(
                f"  %h{side} = call i1 @{_name('put', bits, count, HALF)}({parts}, <{HALF} x i64> %ah{side}, "
                f"i64 %start, i64 %limit, i64 %delta, i32 %m{side})"
            )
    else:
        lines += [
            f"  store {row} {x}, ptr %kept, align 64",
            *loop(
                size,
                lanes,
                [f"  %one_ = load {one}, ptr %kp, align 1", f"  store {one} %one_, ptr %lp, align 1"],
            ),
        ]
    lines += ["  ret i1 true", "nothing:", "  ret i1 true", "bad:", "  ret i1 false", "}"]
    return "\n".join(lines)


def _joined(bits: int, count: int, lanes: int) -> tuple[list[str], str]:
    """The numbers of all threads in a row."""
    lines, whole = _side_by_side([f"%x{number}" for number in range(count)], bits, lanes, "")
    if count == 1:
        return lines, whole
    row = f"<{count * lanes} x i{bits}>"
    order = ", ".join(f"i32 {number * lanes + lane}" for lane in range(lanes) for number in range(count))
    lines.append(f"  %x = shufflevector {row} {whole}, {row} poison, <{count * lanes} x i32> <{order}>")
    return lines, "%x"
