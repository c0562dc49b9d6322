"""Functions of LLVM IR that move numbers between memory and the threads of a warp.

In       how many bits a number has, how many of them a thread moves
Out      the text of a function: it checks all addresses, then moves everything; or it moves nothing and says so
Changes  nothing
Next     native_memory.py (who calls them)

Most warps read one address, or thread beside thread: then only the ends are checked, and it is one access. Else each
address is checked, and each thread reads for itself.
"""

from __future__ import annotations

from hcq.emu.nv.shader.batch import WARP

AT, MASK = f"<{WARP} x i64>", f"<{WARP} x i1>"
FIRST = f"<{WARP} x i32> zeroinitializer"


def result_of(bits: int, count: int) -> str:
    """What a load gives: whether it was made, and the numbers."""
    return "{i1, " + ", ".join([f"<{WARP} x i{bits}>"] * count) + "}"


def _head(size: int) -> list[str]:
    """Whether all threads that are on have one address, or lie side by side, in the range."""
    steps = ", ".join(f"i64 {size * lane}" for lane in range(WARP))
    return [
        "  %nobody = icmp eq i32 %m, 0",
        "  br i1 %nobody, label %nothing, label %some",
        "some:",
        f"  %on = bitcast i32 %m to {MASK}",
        "  %first = call i32 @llvm.cttz.i32(i32 %m, i1 true)",
        "  %zeros = call i32 @llvm.ctlz.i32(i32 %m, i1 true)",
        "  %last = sub i32 31, %zeros",
        f"  %a = extractelement {AT} %at, i32 %first",
        "  %fw = zext i32 %first to i64",
        "  %lw = zext i32 %last to i64",
        f"  %before = mul i64 %fw, {size}",
        "  %base = sub i64 %a, %before",
        f"  %behind = mul i64 %lw, {size}",
        "  %z = add i64 %base, %behind",
        f"  %bi = insertelement {AT} poison, i64 %base, i64 0",
        f"  %bases = shufflevector {AT} %bi, {AT} poison, {FIRST}",
        f"  %next = add {AT} %bases, <{steps}>",
        f"  %is = icmp eq {AT} %at, %next",
        f"  %ib = bitcast {MASK} %is to i32",
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
        "  %all = icmp eq i32 %m, -1",
        "  br i1 %all, label %whole, label %part",
    ]


def _spread(size: int) -> list[str]:
    """Each thread has an address of its own."""
    return [
        "spread:",
        f"  %lows = and {AT} %at, splat (i64 {size - 1})",
        f"  %odd = icmp ne {AT} %lows, zeroinitializer",
        f"  %si = insertelement {AT} poison, i64 %start, i64 0",
        f"  %ss = shufflevector {AT} %si, {AT} poison, {FIRST}",
        f"  %li = insertelement {AT} poison, i64 %limit, i64 0",
        f"  %ls = shufflevector {AT} %li, {AT} poison, {FIRST}",
        f"  %off = sub {AT} %at, %ss",
        f"  %out = icmp uge {AT} %off, %ls",
        f"  %wrong = or {MASK} %odd, %out",
        f"  %wb = bitcast {MASK} %wrong to i32",
        "  %wc = and i32 %wb, %m",
        "  %fine = icmp eq i32 %wc, 0",
        "  br i1 %fine, label %each, label %bad",
        "each:",
        f"  %di = insertelement {AT} poison, i64 %delta, i64 0",
        f"  %ds = shufflevector {AT} %di, {AT} poison, {FIRST}",
        f"  %theirs = add {AT} %at, %ds",
    ]


def _loop(size: int, body: list[str]) -> list[str]:
    """Thread after thread, those that are on."""
    return [
        f"  store {AT} %theirs, ptr %places, align 64",
        "  br label %loop",
        "loop:",
        "  %rest = phi i32 [%m, %each], [%less, %loop]",
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


def _returned(bits: int, texts: list[str], stem: str) -> list[str]:
    kind = result_of(bits, len(texts))
    lines, made = [f"  %{stem} = insertvalue {kind} poison, i1 true, 0"], f"%{stem}"
    for number, text in enumerate(texts):
        lines.append(f"  %{stem}{number} = insertvalue {kind} {made}, <{WARP} x i{bits}> {text}, {number + 1}")
        made = f"%{stem}{number}"
    return [*lines, f"  ret {kind} {made}"]


def _columns(bits: int, count: int, source: str, stem: str) -> tuple[list[str], list[str]]:
    """The numbers of each thread out of all of them in a row."""
    if count == 1:
        return [], [source]
    row = f"<{count * WARP} x i{bits}>"
    lines, found = [], []
    for number in range(count):
        order = ", ".join(f"i32 {count * lane + number}" for lane in range(WARP))
        lines.append(f"  %{stem}{number} = shufflevector {row} {source}, {row} poison, <{WARP} x i32> <{order}>")
        found.append(f"%{stem}{number}")
    return lines, found


def get(bits: int, count: int) -> str:
    """A load of `count` numbers by each thread."""
    size, kind, one = bits // 8 * count, f"<{WARP} x i{bits}>", f"i{8 * (bits // 8 * count)}"
    row, name = f"<{count * WARP} x i{bits}>", f"v{count * WARP}i{bits}"
    wide_mask = f"<{count * WARP} x i1>"
    whole, wholes = _columns(bits, count, "%x", "xw")
    some, somes = _columns(bits, count, "%y", "yw")
    many, manys = _columns(bits, count, "%v", "vw")
    lines = [
        f"declare {row} @llvm.masked.load.{name}.p0(ptr, i32, {wide_mask}, {row})",
        "declare i32 @llvm.ctlz.i32(i32, i1)",
        f"define internal {result_of(bits, count)} @get{bits}x{count}({AT} %at, i64 %start, i64 %limit, i64 %delta, "
        "i32 %m) noinline #0 {",
        f"  %places = alloca {AT}, align 64",
        f"  %kept = alloca [{WARP * size} x i8], align 64",
        *_head(size),
        "whole:",
        f"  %x = load {row}, ptr %p, align 1",
        *whole,
        *_returned(bits, wholes, "xr"),
        "part:",
    ]
    order = ", ".join(f"i32 {lane // count}" for lane in range(count * WARP))
    lines += [
        f"  %ons = shufflevector {MASK} %on, {MASK} poison, <{count * WARP} x i32> <{order}>",
        f"  %y = call {row} @llvm.masked.load.{name}.p0(ptr %p, i32 1, {wide_mask} %ons, {row} zeroinitializer)",
        *some,
        *_returned(bits, somes, "yr"),
        "other:",
        f"  %ai = insertelement {AT} poison, i64 %a, i64 0",
        f"  %ones = shufflevector {AT} %ai, {AT} poison, {FIRST}",
        f"  %equal = icmp eq {AT} %at, %ones",
        f"  %eb = bitcast {MASK} %equal to i32",
        "  %ec = and i32 %eb, %m",
        "  %same = icmp eq i32 %ec, %m",
        "  br i1 %same, label %one, label %spread",
        "one:",
        "  br i1 %aok, label %once, label %bad",
        "once:",
        "  %od = add i64 %a, %delta",
        "  %op = inttoptr i64 %od to ptr",
    ]
    splats = []
    for number in range(count):
        lines += [
            f"  %op{number} = getelementptr i{bits}, ptr %op, i64 {number}",
            f"  %ov{number} = load i{bits}, ptr %op{number}, align 1",
            f"  %oi{number} = insertelement {kind} poison, i{bits} %ov{number}, i64 0",
            f"  %os{number} = shufflevector {kind} %oi{number}, {kind} poison, {FIRST}",
        ]
        splats.append(f"%os{number}")
    lines += [*_returned(bits, splats, "or"), *_spread(size)]
    if count == 1 and bits >= 32:
        gather = f"@llvm.masked.gather.v{WARP}i{bits}.v{WARP}p0"
        if bits == 64:
            lines.insert(0, f"declare {kind} {gather}(<{WARP} x ptr>, i32, {MASK}, {kind})")
        lines += [
            f"  %ps = inttoptr {AT} %theirs to <{WARP} x ptr>",
            f"  %v = call {kind} {gather}(<{WARP} x ptr> %ps, i32 1, {MASK} %on, {kind} zeroinitializer)",
        ]
    else:
        body = [f"  %one_ = load {one}, ptr %lp, align 1", f"  store {one} %one_, ptr %kp, align 1"]
        lines += [*_loop(size, body), f"  %v = load {row}, ptr %kept, align 64"]
    lines += [
        *many,
        *_returned(bits, manys, "vr"),
        "nothing:",
        *_returned(bits, ["zeroinitializer"] * count, "nr"),
        "bad:",
        f"  ret {result_of(bits, count)} zeroinitializer",
        "}",
    ]
    return "\n".join(lines)


def put(bits: int, count: int) -> str:
    """A store of `count` numbers by each thread, in the order of the threads."""
    size, kind, one = bits // 8 * count, f"<{WARP} x i{bits}>", f"i{8 * (bits // 8 * count)}"
    row, name = f"<{count * WARP} x i{bits}>", f"v{count * WARP}i{bits}"
    wide_mask = f"<{count * WARP} x i1>"
    given = ", ".join(f"{kind} %x{number}" for number in range(count))
    lines = [
        f"declare void @llvm.masked.store.{name}.p0({row}, ptr, i32, {wide_mask})",
        "declare i32 @llvm.ctlz.i32(i32, i1)",
        f"define internal i1 @put{bits}x{count}({given}, {AT} %at, i64 %start, i64 %limit, i64 %delta, "
        "i32 %m) noinline #0 {",
        f"  %places = alloca {AT}, align 64",
        f"  %kept = alloca [{WARP * size} x i8], align 64",
    ]
    pieces = [f"%x{number}" for number in range(count)]
    width, stage = WARP, 0
    while len(pieces) > 1:  # one behind the other, then in the order of the threads
        joined = []
        order = ", ".join(f"i32 {number}" for number in range(2 * width))
        part = f"<{width} x i{bits}>"
        for number in range(0, len(pieces), 2):
            made = f"%j{stage}_{number}"
            lines.append(
                f"  {made} = shufflevector {part} {pieces[number]}, {part} {pieces[number + 1]}, "
                f"<{2 * width} x i32> <{order}>"
            )
            joined.append(made)
        pieces, width, stage = joined, 2 * width, stage + 1
    x = pieces[0]
    if count > 1:
        order = ", ".join(f"i32 {number * WARP + lane}" for lane in range(WARP) for number in range(count))
        lines.append(f"  %x = shufflevector {row} {x}, {row} poison, <{count * WARP} x i32> <{order}>")
        x = "%x"
    spread = ", ".join(f"i32 {lane // count}" for lane in range(count * WARP))
    lines += [
        *_head(size),
        "whole:",
        f"  store {row} {x}, ptr %p, align 1",
        "  ret i1 true",
        "part:",
        f"  %ons = shufflevector {MASK} %on, {MASK} poison, <{count * WARP} x i32> <{spread}>",
        f"  call void @llvm.masked.store.{name}.p0({row} {x}, ptr %p, i32 1, {wide_mask} %ons)",
        "  ret i1 true",
        "other:",
        "  br label %spread",
        *_spread(size),
        f"  store {row} {x}, ptr %kept, align 64",
        *_loop(size, [f"  %one_ = load {one}, ptr %kp, align 1", f"  store {one} %one_, ptr %lp, align 1"]),
        "  ret i1 true",
        "nothing:",
        "  ret i1 true",
        "bad:",
        "  ret i1 false",
        "}",
    ]
    return "\n".join(lines)
