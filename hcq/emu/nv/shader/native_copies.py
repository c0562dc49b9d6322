"""Copies by threads in compiled PTX: `cp.async` puts what it has read into a queue of its warp, and waits empty that.

In       `cp.async`, its commits and waits, registers in symbols
Out      lines that carry them out, or leave off before them; the text of the functions that they call
Changes  the writer
Next     native_queues.py (the queues, which the interpreter takes over when threads leave), thread_copies.py (what the
         interpreter does, and why), native_memory.py (stores meanwhile), native_text.py (who asks)
"""

from __future__ import annotations

import numpy as np

from hcq.emu.compiled.symbols import NotTraced, Symbol
from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.batch import WARP
from hcq.emu.nv.shader.decode import Code
from hcq.emu.nv.shader.memory_ops import async_copy_of, groups_of
from hcq.emu.nv.shader.native_memory import Access
from hcq.emu.nv.shader.native_moves import AT
from hcq.emu.nv.shader.native_queues import DATA, ENTRIES, ENTRY_BYTES, FIRST, GOAL, GROUP
from hcq.emu.nv.shader.symbolic_batch import BOOL, U64
from hcq.emu.nv.shader.thread_copies import ALL

LONGS = f"<{WARP} x i64>"
QUEUE = "ptr %queue, ptr %endings, ptr %p_copying"
# numbers of each size: bits of one, how many
PARTS = {4: (32, 1), 8: (64, 1), 16: (64, 2)}


def _entry(number: str) -> list[str]:
    """Lines: %e, the entry with a number."""
    return [
        f"  %place = and i64 {number}, {ENTRIES - 1}",
        f"  %far = mul i64 %place, {ENTRY_BYTES}",
        f"  %further = add i64 %far, {FIRST}",
        "  %e = getelementptr i8, ptr %queue, i64 %further",
        f"  %groups = getelementptr i8, ptr %e, i64 {GROUP}",
        f"  %goals = getelementptr i8, ptr %e, i64 {GOAL}",
        f"  %data = getelementptr i8, ptr %e, i64 {DATA}",
    ]


def _issue(size: int) -> str:
    """A function: a new entry; no where there is no room."""
    bits, count = PARTS[size]
    row = f"<{WARP} x i{bits}>"
    given = ", ".join(f"{row} %x{number}" for number in range(count))
    stores = []
    for number in range(count):
        stores += [
            f"  %to{number} = getelementptr i8, ptr %data, i64 {8 * WARP * number}",
            f"  store {row} %x{number}, ptr %to{number}, align 64",
        ]
    return "\n".join(
        [
            f"define internal i1 @cp_issue{size}({QUEUE}, {AT} %goal, {given}, i32 %m) noinline #0 {{",
            "  %nobody = icmp eq i32 %m, 0",
            "  br i1 %nobody, label %done, label %some",
            "some:",
            "  %head = load i64, ptr %queue",
            "  %tp = getelementptr i64, ptr %queue, i64 1",
            "  %tail = load i64, ptr %tp",
            "  %used = sub i64 %tail, %head",
            f"  %room = icmp ult i64 %used, {ENTRIES}",
            "  br i1 %room, label %go, label %full",
            "go:",
            *_entry("%tail"),
            "  store i32 %m, ptr %e",
            "  %sp = getelementptr i32, ptr %e, i64 1",
            f"  store i32 {size}, ptr %sp",
            f"  %now = load {LONGS}, ptr %endings, align 8",
            f"  store {LONGS} %now, ptr %groups, align 64",
            f"  store {LONGS} %goal, ptr %goals, align 64",
            *stores,
            "  %next = add i64 %tail, 1",
            "  store i64 %next, ptr %tp",
            "  %before = load i64, ptr %p_copying",
            "  %after = add i64 %before, 1",
            "  store i64 %after, ptr %p_copying",
            "  br label %done",
            "done:",
            "  ret i1 true",
            "full:",
            "  ret i1 false",
            "}",
        ]
    )


def _wait() -> str:
    """A function: entries of groups that have ended are carried out, in their order."""
    moves = []
    for size, (bits, count) in PARTS.items():
        moves += [f"move{size}:"]
        for number in range(count):
            moves += [
                f"  %f{size}_{number} = getelementptr i8, ptr %data, i64 {8 * WARP * number}",
                f"  %g{size}_{number} = getelementptr i{bits}, ptr %f{size}_{number}, i32 %n",
                f"  %x{size}_{number} = load i{bits}, ptr %g{size}_{number}",
                f"  %t{size}_{number} = getelementptr i{bits}, ptr %goal, i64 {number}",
                f"  store i{bits} %x{size}_{number}, ptr %t{size}_{number}, align 1",
            ]
        moves.append("  br label %moved")
    cases = " ".join(f"i32 {size}, label %move{size}" for size in PARTS)
    return "\n".join(
        [
            "declare i32 @llvm.cttz.i32(i32, i1)",
            f"define internal void @cp_wait({QUEUE}, i64 %pending, i32 %m) noinline #0 {{",
            "entry:",
            "  %head = load i64, ptr %queue",
            "  %tp = getelementptr i64, ptr %queue, i64 1",
            "  %tail = load i64, ptr %tp",
            f"  %now = load {LONGS}, ptr %endings, align 8",
            f"  %pi = insertelement {LONGS} poison, i64 %pending, i64 0",
            f"  %ps = shufflevector {LONGS} %pi, {LONGS} poison, <{WARP} x i32> zeroinitializer",
            f"  %limit = sub {LONGS} %now, %ps",
            "  br label %ask",
            "ask:",
            "  %number = phi i64 [%head, %entry], [%following, %next]",
            "  %some = icmp ult i64 %number, %tail",
            "  br i1 %some, label %look, label %clear",
            "look:",
            *_entry("%number"),
            "  %mask = load i32, ptr %e",
            f"  %group = load {LONGS}, ptr %groups, align 64",
            f"  %is = icmp slt {LONGS} %group, %limit",
            f"  %bits = bitcast <{WARP} x i1> %is to i32",
            "  %mine = and i32 %bits, %m",
            "  %chosen = and i32 %mine, %mask",
            "  %sp = getelementptr i32, ptr %e, i64 1",
            "  %size = load i32, ptr %sp",
            "  br label %turn",
            "turn:",
            "  %rest = phi i32 [%chosen, %look], [%less, %moved]",
            "  %any = icmp ne i32 %rest, 0",
            "  br i1 %any, label %one, label %over",
            "one:",
            "  %n = call i32 @llvm.cttz.i32(i32 %rest, i1 true)",
            "  %gp = getelementptr i64, ptr %goals, i32 %n",
            "  %ga = load i64, ptr %gp",
            "  %goal = inttoptr i64 %ga to ptr",
            f"  switch i32 %size, label %moved [ {cases} ]",
            *moves,
            "moved:",
            "  %down = sub i32 %rest, 1",
            "  %less = and i32 %rest, %down",
            "  br label %turn",
            "over:",
            "  %others = xor i32 %chosen, -1",
            "  %left = and i32 %mask, %others",
            "  store i32 %left, ptr %e",
            "  br label %next",
            "next:",
            "  %following = add i64 %number, 1",
            "  br label %ask",
            "clear:",
            "  %first = phi i64 [%head, %ask], [%second, %drop]",
            "  %more = icmp ult i64 %first, %tail",
            "  br i1 %more, label %see, label %end",
            "see:",
            f"  %hplace = and i64 %first, {ENTRIES - 1}",
            f"  %hfar = mul i64 %hplace, {ENTRY_BYTES}",
            f"  %hfurther = add i64 %hfar, {FIRST}",
            "  %he = getelementptr i8, ptr %queue, i64 %hfurther",
            "  %hmask = load i32, ptr %he",
            "  %empty = icmp eq i32 %hmask, 0",
            "  br i1 %empty, label %drop, label %end",
            "drop:",
            "  %second = add i64 %first, 1",
            "  %before = load i64, ptr %p_copying",
            "  %after = sub i64 %before, 1",
            "  store i64 %after, ptr %p_copying",
            "  br label %clear",
            "end:",
            "  store i64 %first, ptr %queue",
            "  ret void",
            "}",
        ]
    )


FUNCTIONS = {**{f"@cp_issue{size}": _issue(size) for size in PARTS}, "@cp_wait": _wait()}


def copy(code: Code, access: Access) -> None:
    """`cp.async`, `.commit_group`, `.wait_group`, `.wait_all`. Raises NotTraced for bulk copies."""
    if not access.registers.layout.is_aligned:
        raise NotTraced("copies of warps that are not of one block")
    if not code.flag("async") or code.flag("bulk") or code.flag("mbarrier"):
        raise NotTraced("a bulk copy, or an arrival after copies")
    groups = groups_of(code)
    if groups is None:
        _copy(code, access)
        return
    access.guard(code)
    w = access.w
    if groups.pending is None:
        one = w.say(f"zext <{WARP} x i1> {w.mask_from(access.on).text} to {LONGS}", True)
        old = w.say(f"load {LONGS}, ptr %endings, align 8", True)
        w.lines.append(f"store {LONGS} {w.say(f'add {LONGS} {old}, {one}', True)}, ptr %endings, align 8")
        return
    pending = -1 if groups.pending == ALL else groups.pending  # of the group that has not ended, too
    w.lines.append(f"call void @cp_wait({QUEUE}, i64 {pending}, i32 {access.on})")


def _copy(code: Code, access: Access) -> None:
    """Read, and put into the queue."""
    form = async_copy_of(code)
    w, registers, size = access.w, access.registers, form.size
    bits, count = PARTS[size]
    access.guard(code)
    on = access.on
    goal = _goal(access, form.to(registers), size)  # type: ignore[arg-type]
    chosen = None
    if form.limit is not None:
        keep = w.as_symbol(registers[form.limit], np.dtype(np.uint32))
        whole, none = keep == np.uint32(size), keep == np.uint32(0)
        part = w.mask_bits(w.as_symbol(~(whole | none), BOOL))
        access.leave_if(w.say(f"icmp ne i32 {w.say(f'and i32 {part}, {on}', False)}, 0", False), "part")
        access.on = w.say(f"and i32 {w.mask_bits(w.as_symbol(whole, BOOL))}, {on}", False)
        chosen = w.mask_from(access.on)
    start = form.source(registers)  # type: ignore[arg-type]
    texts = access.fetch(access.place(spaces.GLOBAL, start, size, is_write=False), bits, count)
    access.on = on
    kind = np.dtype(f"u{bits // 8}")
    values = [Symbol(w, text, kind, True) for text in texts]
    if chosen is not None:
        values = [w.select(chosen, value, w.as_symbol(0, kind)) for value in values]
    given = ", ".join(f"<{WARP} x i{bits}> {w.wide(value)}" for value in values)
    made = w.say(f"call i1 @cp_issue{size}({QUEUE}, {AT} {goal}, {given}, i32 {on})", False)
    access.leave_if(w.say(f"xor i1 {made}, true", False), "room")


def _goal(access: Access, at: object, size: int) -> str:
    """The host's addresses of places in shared memory; leave where one is outside, or no multiple of the size."""
    w = access.w
    place = access.place(spaces.SHARED, at, size, is_write=False)
    odd = w.say(f"and {AT} {place.at}, splat (i64 {size - 1})", True)
    is_odd = w.say(f"icmp ne {AT} {odd}, zeroinitializer", True)
    limit = w.wide(w.symbol_of(place.limit, U64))
    outside = w.say(f"icmp uge {AT} {place.at}, {limit}", True)
    wrong = w.say(f"or <{WARP} x i1> {is_odd}, {outside}", True)
    bits = w.say(f"bitcast <{WARP} x i1> {wrong} to i32", True)
    access.leave_if(w.say(f"icmp ne i32 {w.say(f'and i32 {bits}, {access.on}', False)}, 0", False), "goal")
    return w.say(f"add {AT} {place.at}, {w.wide(w.symbol_of(place.delta, U64))}", True)
