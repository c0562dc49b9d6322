"""Loads of whole words: one call checks where lanes go and fetches what is there.

In       addresses of lanes, the range that they should be in, which lanes are on
Out      text of functions: words of each lane; lanes outside of the range are noted at the site, and read nothing
Next     accesses.py (ranges, sites, gathers)

Most often lanes of each half lie side by side, or read one place: then four addresses are checked, not sixteen.
"""

from __future__ import annotations

from hcq.emu.compiled.writer import WIDTH

V32, V64, V1 = f"<{WIDTH} x i32>", f"<{WIDTH} x i64>", f"<{WIDTH} x i1>"
V8, A8 = "<8 x i32>", "<8 x i64>"
WORDS = (1, 2, 4)  # of each lane


def name(words: int) -> str:
    """Of the function."""
    return f"@take{words}"


def kind(words: int) -> str:
    """What it returns."""
    return V32 if words == 1 else "{" + ", ".join([V32] * words) + "}"


def text(words: int) -> str:
    """The function."""
    if words == 1:
        return _single()
    step, half = 4 * words, WIDTH // 2
    steps = ", ".join(f"i64 {step * (lane % half)}" for lane in range(WIDTH))
    heads = ", ".join(f"i32 {lane // half * half}" for lane in range(WIDTH))
    head = f"define internal {kind(words)} {name(words)}"
    lines = [
        f"{head}(ptr %site, i64 %start, i64 %limit, i64 %delta, {V64} %at, {V1} %on) noinline #0 {{",
        f"  %mask = bitcast {V1} %on to i{WIDTH}",
        f"  %full = icmp eq i{WIDTH} %mask, -1",
        "  br i1 %full, label %look, label %spread",
        "look:",
        f"  %heads = shufflevector {V64} %at, {V64} poison, <{WIDTH} x i32> <{heads}>",
        f"  %next = add {V64} %heads, <{steps}>",
        f"  %is = icmp eq {V64} %at, %next",
        f"  %isb = bitcast {V1} %is to i{WIDTH}",
        f"  %row = icmp eq i{WIDTH} %isb, -1",
        f"  %eq = icmp eq {V64} %at, %heads",
        f"  %eqb = bitcast {V1} %eq to i{WIDTH}",
        f"  %same = icmp eq i{WIDTH} %eqb, -1",
        f"  %more = select i1 %same, i64 0, i64 {step * (half - 1)}",
    ]
    for side in range(2):
        lines += [
            f"  %first{side} = extractelement {V64} %at, i64 {half * side}",
            f"  %off{side} = sub i64 %first{side}, %start",
            f"  %last{side} = add i64 %off{side}, %more",
            f"  %begins{side} = icmp ult i64 %off{side}, %limit",
            f"  %ends{side} = icmp ult i64 %last{side}, %limit",
            f"  %in{side} = and i1 %begins{side}, %ends{side}",
            f"  %there{side} = add i64 %first{side}, %delta",
            f"  %p{side} = inttoptr i64 %there{side} to ptr",
        ]
    lines += [
        "  %in = and i1 %in0, %in1",
        "  %one = or i1 %same, %row",
        "  %may = and i1 %in, %one",
        "  br i1 %may, label %quick, label %spread",
        "quick:",
        "  br i1 %same, label %alike, label %beside",
        "alike:",
    ]
    rows = []
    for word in range(words):
        for side in range(2):
            lines += [
                f"  %ap{word}{side} = getelementptr i32, ptr %p{side}, i64 {word}",
                f"  %ax{word}{side} = load i32, ptr %ap{word}{side}, align 1",
                f"  %ay{word}{side} = insertelement {V8} poison, i32 %ax{word}{side}, i64 0",
                f"  %az{word}{side} = shufflevector {V8} %ay{word}{side}, {V8} poison, <8 x i32> zeroinitializer",
            ]
        lines.append(
            f"  %aw{word} = shufflevector {V8} %az{word}0, {V8} %az{word}1, <16 x i32> <{_count(16)}>"
        )
        rows.append(f"%aw{word}")
    lines += [*_result(rows, "ar"), "beside:", *_row(words), *_spread(words)]
    return "\n".join([*lines, "}"])


def _single() -> str:
    """One word: each half by itself may be a row or one place."""
    steps = ", ".join(f"i64 {4 * (lane - 3)}" for lane in range(8))
    head = f"define internal {V32} {name(1)}"
    lines = [
        f"{head}(ptr %site, i64 %start, i64 %limit, i64 %delta, {V64} %at, {V1} %on) noinline #0 {{",
        f"  %mask = bitcast {V1} %on to i{WIDTH}",
        f"  %full = icmp eq i{WIDTH} %mask, -1",
        "  br i1 %full, label %look0, label %spread",
    ]
    for side in range(2):
        half = ", ".join(f"i32 {8 * side + lane}" for lane in range(8))
        then = "look1" if not side else "whole"
        lines += [
            f"look{side}:",
            f"  %at{side} = shufflevector {V64} %at, {V64} poison, <8 x i32> <{half}>",
            f"  %mid{side} = shufflevector {A8} %at{side}, {A8} poison, <8 x i32> splat (i32 3)",
            f"  %row{side} = add {A8} %mid{side}, <{steps}>",
            f"  %is{side} = icmp eq {A8} %at{side}, %row{side}",
            f"  %isb{side} = bitcast <8 x i1> %is{side} to i8",
            f"  %eq{side} = icmp eq {A8} %at{side}, %mid{side}",
            f"  %eqb{side} = bitcast <8 x i1> %eq{side} to i8",
            f"  %same{side} = icmp eq i8 %eqb{side}, -1",
            f"  %all{side} = icmp eq i8 %isb{side}, -1",
            f"  %m{side} = extractelement {A8} %at{side}, i64 3",
            f"  %mo{side} = sub i64 %m{side}, %start",
            f"  %lo{side} = sub i64 %mo{side}, 12",
            f"  %hi{side} = add i64 %mo{side}, 16",
            f"  %mh{side} = add i64 %m{side}, %delta",
            f"  %mp{side} = inttoptr i64 %mh{side} to ptr",
            f"  br i1 %same{side}, label %alike{side}, label %line{side}",
            f"alike{side}:",
            f"  %ain{side} = icmp ult i64 %mo{side}, %limit",
            f"  br i1 %ain{side}, label %splat{side}, label %spread",
            f"splat{side}:",
            f"  %ax{side} = load i32, ptr %mp{side}, align 1",
            f"  %ay{side} = insertelement {V8} poison, i32 %ax{side}, i64 0",
            f"  %az{side} = shufflevector {V8} %ay{side}, {V8} poison, <8 x i32> zeroinitializer",
            f"  br label %{then}",
            f"line{side}:",
            f"  br i1 %all{side}, label %line{side}x, label %spread",
            f"line{side}x:",
            f"  %lin{side} = icmp ult i64 %lo{side}, %limit",
            f"  %hin{side} = icmp ult i64 %hi{side}, %limit",
            f"  %rin{side} = and i1 %lin{side}, %hin{side}",
            f"  br i1 %rin{side}, label %load{side}, label %spread",
            f"load{side}:",
            f"  %bp{side} = getelementptr i32, ptr %mp{side}, i64 -3",
            f"  %bx{side} = load {V8}, ptr %bp{side}, align 1",
            f"  br label %{then}",
        ]
        if side:
            lines.append("whole:")
        # the half is known where the next label begins
        phi = f"  %h{side} = phi {V8} [%az{side}, %splat{side}], [%bx{side}, %load{side}]"
        lines.append("PHI" + phi if not side else phi)
    at = next(number for number, line in enumerate(lines) if line.startswith("PHI"))
    phi = lines.pop(at)[3:]
    lines.insert(lines.index("look1:") + 1, phi)
    lines += [f"  %w = shufflevector {V8} %h0, {V8} %h1, <16 x i32> <{_count(16)}>", f"  ret {V32} %w"]
    return "\n".join([*lines, *_spread(1), "}"])


def _spread(words: int) -> list[str]:
    """Each lane by itself."""
    lines = [
        "spread:",
        f"  %start1 = insertelement {V64} poison, i64 %start, i64 0",
        f"  %starts = shufflevector {V64} %start1, {V64} poison, <{WIDTH} x i32> zeroinitializer",
        f"  %limit1 = insertelement {V64} poison, i64 %limit, i64 0",
        f"  %limits = shufflevector {V64} %limit1, {V64} poison, <{WIDTH} x i32> zeroinitializer",
        f"  %delta1 = insertelement {V64} poison, i64 %delta, i64 0",
        f"  %deltas = shufflevector {V64} %delta1, {V64} poison, <{WIDTH} x i32> zeroinitializer",
        f"  %offs = sub {V64} %at, %starts",
        f"  %ins = icmp ult {V64} %offs, %limits",
        f"  %outs = xor {V1} %ins, splat (i1 true)",
        f"  %bad = and {V1} %on, %outs",
        f"  %good = and {V1} %on, %ins",
        f"  %host = add {V64} %at, %deltas",
        f"  %which = bitcast {V1} %bad to i{WIDTH}",
        f"  %any = icmp ne i{WIDTH} %which, 0",
        "  br i1 %any, label %cold, label %go",
        "cold:",
        f"  call void @note(ptr %site, {V64} %at, i{WIDTH} %which)",
        "  br label %go",
        "go:",
    ]
    if words == 1:
        lines += _each()
    if words == 4:
        lines += [f"  %four = call {kind(4)} @fetch4({V64} %host, {V1} %good)", f"  ret {kind(4)} %four"]
    else:
        for word in range(words):
            lines += [
                f"  %ha{word} = add {V64} %host, splat (i64 {4 * word})",
                f"  %hx{word} = call {V32} @fetch({V64} %ha{word}, {V1} %good)",
            ]
        lines += _result([f"%hx{word}" for word in range(words)], "hr")
    return lines


def _each() -> list[str]:
    """Where all lanes are on, one after the other: a gather takes longer on many hosts."""
    lines = [
        f"  %goods = bitcast {V1} %good to i{WIDTH}",
        f"  %every = icmp eq i{WIDTH} %goods, -1",
        "  br i1 %every, label %each, label %some",
        "each:",
    ]
    before = "poison"
    for lane in range(WIDTH):
        lines += [
            f"  %ea{lane} = extractelement {V64} %host, i64 {lane}",
            f"  %ep{lane} = inttoptr i64 %ea{lane} to ptr",
            f"  %ex{lane} = load i32, ptr %ep{lane}, align 1",
            f"  %ev{lane} = insertelement {V32} {before}, i32 %ex{lane}, i64 {lane}",
        ]
        before = f"%ev{lane}"
    return [*lines, f"  ret {V32} {before}", "some:"]


def _count(size: int) -> str:
    return ", ".join(f"i32 {number}" for number in range(size))


def _result(rows: list[str], stem: str) -> list[str]:
    words = len(rows)
    if words == 1:
        return [f"  ret {V32} {rows[0]}"]
    made, out = "poison", []
    for number, row in enumerate(rows):
        out.append(f"  %{stem}{number} = insertvalue {kind(words)} {made}, {V32} {row}, {number}")
        made = f"%{stem}{number}"
    return [*out, f"  ret {kind(words)} {made}"]


def _row(words: int) -> list[str]:
    """Lanes of each half side by side: whole vectors are loaded, and their words sorted by lane."""
    lines = []
    for part in range(words):
        side, number = divmod(part, words // 2)
        lines += [
            f"  %bp{part} = getelementptr i32, ptr %p{side}, i64 {WIDTH * number}",
            f"  %b{part} = load {V32}, ptr %bp{part}, align 1",
        ]
    if words == 2:
        for word in range(2):
            order = ", ".join(f"i32 {2 * lane + word}" for lane in range(WIDTH))
            lines.append(f"  %w{word} = shufflevector {V32} %b0, {V32} %b1, <16 x i32> <{order}>")
        return [*lines, *_result(["%w0", "%w1"], "br")]
    for word in range(4):
        order = ", ".join(f"i32 {(lane % 4) * 4 + word + (16 if lane >= 4 else 0)}" for lane in range(8))
        for side in range(2):
            both = f"{V32} %b{2 * side}, {V32} %b{2 * side + 1}"
            lines.append(f"  %h{word}{side} = shufflevector {both}, <8 x i32> <{order}>")
        lines.append(
            f"  %w{word} = shufflevector <8 x i32> %h{word}0, <8 x i32> %h{word}1, <16 x i32> <{_count(16)}>"
        )
    return [*lines, *_result([f"%w{word}" for word in range(4)], "br")]
