"""Accesses: how compiled code reaches memory: addresses are checked against ranges before anything is touched.

In       a Writer, addresses and masks as symbols
Out      lines that gather and scatter 32-bit words; how to go on where an address is in no known range
Changes  the Writer
Next     writer.py (lines), assemble.py (machine code)

Every access has a site: the range that its addresses were in last time. One comparison a lane tells whether they are
there again. If not, the range is looked up, and the access begins anew. Where there is none, or lanes reach into many,
the code leaves off before the instruction, and the interpreter carries it out, or reports it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hcq.emu.compiled import loads
from hcq.emu.compiled.loads import V1, V32, V64
from hcq.emu.compiled.symbols import Symbol
from hcq.emu.compiled.writer import WIDTH, Writer

SITE_WORDS = 6
START, LIMIT, DELTA, BAD, ADDRESS, TRIES = range(SITE_WORDS)
# what the code is passed, 64 bits each
WAVES, VECTORS, WAVE_BYTES, SCALARS, CONDITIONS, EXITS, ENTRY, FUEL, EXECUTED = range(9)
RANGES, RANGE_COUNT, SITES, SHARED, SHARED_BYTES, SCRATCH, SCRATCH_BYTES = range(9, 16)
ENTRIES, FUELS, GROUPS, GROUP_COUNT, MEETS, TABLE_WORDS = range(16, 22)  # of waves that meet at barriers
MOST_TRIES = 4  # lookups in a row, before the interpreter has a go

VP = f"<{WIDTH} x ptr>"
_STEPS = ", ".join(f"i64 {4 * lane}" for lane in range(WIDTH))


def _fours() -> str:
    """Loads of four words: one address, or lane beside lane, or four words of each lane by themselves."""
    four, v4 = f"{{{V32}, {V32}, {V32}, {V32}}}", "<4 x i32>"
    lines = [
        f"define internal {four} @fetch4({V64} %at, {V1} %on) noinline #0 {{",
        "entry:",
        f"  %first = extractelement {V64} %at, i64 0",
        "  %p = inttoptr i64 %first to ptr",
        f"  %mask = bitcast {V1} %on to i{WIDTH}",
        f"  %every = icmp eq i{WIDTH} %mask, -1",
        f"  %second = extractelement {V64} %at, i64 1",
        "  %ahead = sub i64 %second, %first",
        "  %away = icmp ugt i64 %ahead, 16",
        "  %odd = and i1 %every, %away",  # the first two tell that each lane is by itself
        "  br i1 %odd, label %each, label %ask",
        "ask:",
        f"  %equal = call i1 @same({V64} %at, {V1} %on)",
        "  br i1 %equal, label %one, label %many",
        "one:",
    ]

    def result(rows: list[str], name: str) -> list[str]:
        made, out = "poison", []
        for number, row in enumerate(rows):
            out.append(f"  %{name}{number} = insertvalue {four} {made}, {V32} {row}, {number}")
            made = f"%{name}{number}"
        return [*out, f"  ret {four} {made}"]

    for word in range(4):
        lines += [
            f"  %op{word} = getelementptr i32, ptr %p, i64 {word}",
            f"  %ox{word} = load i32, ptr %op{word}, align 1",
            f"  %oy{word} = insertelement {V32} poison, i32 %ox{word}, i64 0",
            f"  %oz{word} = shufflevector {V32} %oy{word}, {V32} poison, <{WIDTH} x i32> zeroinitializer",
        ]
    lines += result([f"%oz{word}" for word in range(4)], "or")
    steps = ", ".join(f"i64 {16 * lane}" for lane in range(WIDTH))
    lines += [
        "many:",
        f"  %base = insertelement {V64} poison, i64 %first, i64 0",
        f"  %all = shufflevector {V64} %base, {V64} poison, <{WIDTH} x i32> zeroinitializer",
        f"  %next = add {V64} %all, <{steps}>",
        f"  %is = icmp eq {V64} %at, %next",
        f"  %whole = and {V1} %is, %on",
        f"  %row = call i1 @llvm.vector.reduce.and.v{WIDTH}i1({V1} %whole)",
        "  br i1 %row, label %beside, label %spread",
        "beside:",
    ]
    for part in range(4):
        lines += [
            f"  %bp{part} = getelementptr i32, ptr %p, i64 {WIDTH * part}",
            f"  %bl{part} = load {V32}, ptr %bp{part}, align 1",
        ]
    lines += ["  br label %turn", "spread:"]
    # a lane that is off reads where the first one does that is on
    lines += [
        f"  %none = icmp eq i{WIDTH} %mask, 0",
        "  br i1 %none, label %nothing, label %some",
        "nothing:",
        *result(["zeroinitializer"] * 4, "nr"),
        "some:",
        f"  %n = call i{WIDTH} @llvm.cttz.i{WIDTH}(i{WIDTH} %mask, i1 false)",
        f"  %i = zext i{WIDTH} %n to i64",
        f"  %a = extractelement {V64} %at, i64 %i",
        f"  %ai = insertelement {V64} poison, i64 %a, i64 0",
        f"  %as = shufflevector {V64} %ai, {V64} poison, <{WIDTH} x i32> zeroinitializer",
        f"  %chosen = select {V1} %on, {V64} %at, {V64} %as",
        "  br label %each",
        "each:",
        f"  %safe = phi {V64} [%at, %entry], [%chosen, %some]",
    ]
    for lane in range(WIDTH):
        lines += [
            f"  %la{lane} = extractelement {V64} %safe, i64 {lane}",
            f"  %lp{lane} = inttoptr i64 %la{lane} to ptr",
            f"  %lv{lane} = load {v4}, ptr %lp{lane}, align 1",
        ]
    eight, sixteen = ", ".join(f"i32 {n}" for n in range(8)), ", ".join(f"i32 {n}" for n in range(16))
    for pair in range(WIDTH // 2):
        kinds = f"{v4} %lv{2 * pair}, {v4} %lv{2 * pair + 1}"
        lines.append(f"  %lw{pair} = shufflevector {kinds}, <8 x i32> <{eight}>")
    for part in range(4):
        kinds = f"<8 x i32> %lw{2 * part}, <8 x i32> %lw{2 * part + 1}"
        lines.append(f"  %sl{part} = shufflevector {kinds}, <16 x i32> <{sixteen}>")
    lines += ["  br label %turn", "turn:"]
    for part in range(4):
        lines.append(f"  %t{part} = phi {V32} [%bl{part}, %beside], [%sl{part}, %each]")
    for word in range(4):
        order = ", ".join(f"i32 {(lane % 4) * 4 + word + (16 if lane >= 4 else 0)}" for lane in range(8))
        for side in range(2):
            kinds = f"{V32} %t{2 * side}, {V32} %t{2 * side + 1}"
            lines.append(f"  %h{word}{side} = shufflevector {kinds}, <8 x i32> <{order}>")
        kinds = f"<8 x i32> %h{word}0, <8 x i32> %h{word}1"
        lines.append(f"  %w{word} = shufflevector {kinds}, <16 x i32> <{sixteen}>")
    lines += result([f"%w{word}" for word in range(4)], "tr")
    return "\n".join([*lines, "}"])


def _narrow(bits: int) -> str:
    """Stores of the low bits of words, lane after lane."""
    kind = f"<{WIDTH} x i{bits}>"
    return "\n".join(
        [
            f"declare void @llvm.masked.scatter.v{WIDTH}i{bits}.v{WIDTH}p0({kind}, {VP}, i32, {V1})",
            f"define internal void @keep{bits}({V32} %x, {V64} %at, {V1} %on) noinline #0 {{",
            f"  %low = trunc {V32} %x to {kind}",
            f"  %ps = inttoptr {V64} %at to {VP}",
            f"  call void @llvm.masked.scatter.v{WIDTH}i{bits}.v{WIDTH}p0({kind} %low, {VP} %ps, i32 1, {V1} %on)",
            "  ret void",
            "}",
        ]
    )


# functions that a program has when it calls them
SOMETIMES = {"@fetch4": _fours(), "@keep8": _narrow(8), "@keep16": _narrow(16)}
PRELUDE = f"""
declare {V32} @llvm.masked.gather.v{WIDTH}i32.v{WIDTH}p0({VP}, i32, {V1}, {V32})
declare void @llvm.masked.scatter.v{WIDTH}i32.v{WIDTH}p0({V32}, {VP}, i32, {V1})
declare {V32} @llvm.masked.load.v{WIDTH}i32.p0(ptr, i32, {V1}, {V32})
declare void @llvm.masked.store.v{WIDTH}i32.p0({V32}, ptr, i32, {V1})
declare i1 @llvm.vector.reduce.and.v{WIDTH}i1({V1})

define internal i1 @beside({V64} %at, {V1} %on) alwaysinline {{
  %first = extractelement {V64} %at, i64 0
  %one = insertelement {V64} poison, i64 %first, i64 0
  %all = shufflevector {V64} %one, {V64} poison, <{WIDTH} x i32> zeroinitializer
  %expected = add {V64} %all, <{_STEPS}>
  %is = icmp eq {V64} %at, %expected
  %off = xor {V1} %on, splat (i1 true)
  %fits = or {V1} %is, %off
  %yes = call i1 @llvm.vector.reduce.and.v{WIDTH}i1({V1} %fits)
  ret i1 %yes
}}

define internal i1 @same({V64} %at, {V1} %on) alwaysinline {{
  %first = extractelement {V64} %at, i64 0
  %one = insertelement {V64} poison, i64 %first, i64 0
  %all = shufflevector {V64} %one, {V64} poison, <{WIDTH} x i32> zeroinitializer
  %is = icmp eq {V64} %at, %all
  %off = xor {V1} %on, splat (i1 true)
  %fits = or {V1} %is, %off
  %yes = call i1 @llvm.vector.reduce.and.v{WIDTH}i1({V1} %fits)
  %here = extractelement {V1} %on, i64 0
  %both = and i1 %yes, %here
  ret i1 %both
}}

define internal {V32} @fetch({V64} %at, {V1} %on) noinline #0 {{
  %first = extractelement {V64} %at, i64 0
  %p = inttoptr i64 %first to ptr
  %equal = call i1 @same({V64} %at, {V1} %on)
  br i1 %equal, label %one, label %many
one:
  %x = load i32, ptr %p, align 1
  %y = insertelement {V32} poison, i32 %x, i64 0
  %z = shufflevector {V32} %y, {V32} poison, <{WIDTH} x i32> zeroinitializer
  ret {V32} %z
many:
  %yes = call i1 @beside({V64} %at, {V1} %on)
  br i1 %yes, label %row, label %spread
row:
  %a = call {V32} @llvm.masked.load.v{WIDTH}i32.p0(ptr %p, i32 1, {V1} %on, {V32} zeroinitializer)
  ret {V32} %a
spread:
  %ps = inttoptr {V64} %at to {VP}
  %b = call {V32} @llvm.masked.gather.v{WIDTH}i32.v{WIDTH}p0({VP} %ps, i32 1, {V1} %on, {V32} zeroinitializer)
  ret {V32} %b
}}

define internal void @keep({V32} %x, {V64} %at, {V1} %on) noinline #0 {{
  %first = extractelement {V64} %at, i64 0
  %yes = call i1 @beside({V64} %at, {V1} %on)
  br i1 %yes, label %row, label %spread
row:
  %p = inttoptr i64 %first to ptr
  call void @llvm.masked.store.v{WIDTH}i32.p0({V32} %x, ptr %p, i32 1, {V1} %on)
  ret void
spread:
  %ps = inttoptr {V64} %at to {VP}
  call void @llvm.masked.scatter.v{WIDTH}i32.v{WIDTH}p0({V32} %x, {VP} %ps, i32 1, {V1} %on)
  ret void
}}

define internal void @note(ptr %site, {V64} %at, i{WIDTH} %which) noinline cold #0 {{
  %n = call i{WIDTH} @llvm.cttz.i{WIDTH}(i{WIDTH} %which, i1 false)
  %i = zext i{WIDTH} %n to i64
  %a = extractelement {V64} %at, i64 %i
  %p = getelementptr i64, ptr %site, i64 {ADDRESS}
  store i64 %a, ptr %p
  %q = getelementptr i64, ptr %site, i64 {BAD}
  store i64 1, ptr %q
  ret void
}}

attributes #0 = {{ "min-legal-vector-width"="512" }}
"""
# which range an address is in, one address at a time
LOOKUP = f"""
define internal ptr @range_of(ptr %table, i64 %at) noinline {{
entry:
  %rp = getelementptr i64, ptr %table, i64 {RANGES}
  %r = load ptr, ptr %rp
  %np = getelementptr i64, ptr %table, i64 {RANGE_COUNT}
  %n = load i64, ptr %np
  br label %look
look:
  %low = phi i64 [0, %entry], [%low2, %more]
  %high = phi i64 [%n, %entry], [%high2, %more]
  %open = icmp ult i64 %low, %high
  br i1 %open, label %more, label %end
more:
  %sum = add i64 %low, %high
  %mid = lshr i64 %sum, 1
  %row = getelementptr [4 x i64], ptr %r, i64 %mid
  %start = load i64, ptr %row
  %right = icmp ule i64 %start, %at
  %next = add i64 %mid, 1
  %low2 = select i1 %right, i64 %next, i64 %low
  %high2 = select i1 %right, i64 %high, i64 %mid
  br label %look
end:
  %none = icmp eq i64 %low, 0
  %before = sub i64 %low, 1
  %found = getelementptr [4 x i64], ptr %r, i64 %before
  %result = select i1 %none, ptr null, ptr %found
  ret ptr %result
}}

define internal i1 @reaches(ptr %row, i64 %at, i64 %size, i1 %write) noinline {{
entry:
  %none = icmp eq ptr %row, null
  br i1 %none, label %no, label %look
look:
  %start = load i64, ptr %row
  %lp = getelementptr i64, ptr %row, i64 1
  %length = load i64, ptr %lp
  %wp = getelementptr i64, ptr %row, i64 3
  %w = load i64, ptr %wp
  %writable = icmp ne i64 %w, 0
  %reads = xor i1 %write, true
  %may = or i1 %writable, %reads
  %fits = icmp uge i64 %length, %size
  %limit = sub i64 %length, %size
  %off = sub i64 %at, %start
  %in = icmp ule i64 %off, %limit
  %a = and i1 %may, %fits
  %b = and i1 %a, %in
  ret i1 %b
no:
  ret i1 false
}}

define internal i1 @find(ptr %table, ptr %site, i64 %size, i1 %write) noinline cold {{
  %q = getelementptr i64, ptr %site, i64 {BAD}
  store i64 0, ptr %q
  %tp = getelementptr i64, ptr %site, i64 {TRIES}
  %t = load i64, ptr %tp
  %t1 = add i64 %t, 1
  store i64 %t1, ptr %tp
  %p = getelementptr i64, ptr %site, i64 {ADDRESS}
  %at = load i64, ptr %p
  %row = call ptr @range_of(ptr %table, i64 %at)
  %ok = call i1 @reaches(ptr %row, i64 %at, i64 %size, i1 %write)
  br i1 %ok, label %yes, label %no
yes:
  %start = load i64, ptr %row
  %lp = getelementptr i64, ptr %row, i64 1
  %length = load i64, ptr %lp
  %last = sub i64 %length, %size
  %limit = add i64 %last, 1
  %dp = getelementptr i64, ptr %row, i64 2
  %delta = load i64, ptr %dp
  store i64 %start, ptr %site
  %slp = getelementptr i64, ptr %site, i64 {LIMIT}
  store i64 %limit, ptr %slp
  %sdp = getelementptr i64, ptr %site, i64 {DELTA}
  store i64 %delta, ptr %sdp
  %again = icmp ult i64 %t1, {MOST_TRIES}
  ret i1 %again
no:
  ret i1 false
}}

define internal i64 @host(ptr %table, i64 %at, i64 %size) noinline {{
  %row = call ptr @range_of(ptr %table, i64 %at)
  %ok = call i1 @reaches(ptr %row, i64 %at, i64 %size, i1 false)
  br i1 %ok, label %yes, label %no
yes:
  %dp = getelementptr i64, ptr %row, i64 2
  %delta = load i64, ptr %dp
  %there = add i64 %at, %delta
  ret i64 %there
no:
  ret i64 0
}}
"""


class Place(NamedTuple):
    """Addresses that have been checked: in the host's memory, and which lanes go there."""

    at: str
    on: str


class Bounds(NamedTuple):
    """Where an access may go: its site, the first address, how many there are, and how far off they are in the host."""

    site: str
    start: str
    limit: str
    delta: str


def field(w: Writer, pointer: str, number: int, *, is_pointer: bool = False) -> str:
    """A number of a table, in the scalar stream."""
    where = w.say(f"getelementptr i64, ptr {pointer}, i64 {number}", False)
    return w.say(f"load {'ptr' if is_pointer else 'i64'}, ptr {where}", False)


class Attempt:
    """An access that begins anew when a range had to be looked up. Nothing else is done in its segment."""

    def __init__(self, w: Writer, first_site: int) -> None:
        w.close()
        self.w, self.number, self.next_site = w, w.segment, first_site
        self.sites: list[tuple[str, int, bool]] = []
        self.strays: list[str] = []  # flags in memory: lanes left a part of memory that has no other ranges
        self.again = f"try{self.number}"
        w.scalar.append(f"br label %{self.again}")
        w.place(self.again)

    def _site(self) -> str:
        w = self.w
        sites = field(w, "%table", SITES, is_pointer=True)
        self.next_site += 1
        return w.say(
            f"getelementptr [{SITE_WORDS} x i64], ptr {sites}, i64 {self.next_site - 1}", False, "site"
        )

    def known(self, size_bytes: int, is_write: bool) -> Bounds:
        """A new site, and the range that addresses were in last time."""
        site = self._site()
        self.sites.append((site, size_bytes, is_write))
        return Bounds(site, *(field(self.w, site, number) for number in (START, LIMIT, DELTA)))

    def part(self, base: str, limit: str) -> Bounds:
        """A new site, and a part of memory that is the wave's or its workgroup's, whose addresses begin at 0."""
        site = self._site()
        self.strays.append(site)
        return Bounds(site, "0", limit, base)

    def check(self, addresses: Symbol, mask: Symbol, size_bytes: int, is_write: bool) -> Place:
        """Lanes whose addresses are in the range of a new site go there; the others are noted."""
        return self._within(self.known(size_bytes, is_write), addresses, mask)

    def inside(self, addresses: Symbol, mask: Symbol, base: str, limit: str) -> Place:
        """Lanes whose addresses are below `limit` go there, counted from `base` on."""
        return self._within(self.part(base, limit), addresses, mask)

    def take(self, bounds: Bounds, addresses: Symbol, mask: Symbol, words: int) -> list[str]:
        """Words of the lanes whose addresses are within bounds, by a function of loads.py; the others are noted."""
        w = self.w
        kind, at = loads.kind(words), w.wide(w.as_symbol(addresses, np.uint64))
        limits = f"ptr {bounds.site}, i64 {bounds.start}, i64 {bounds.limit}, i64 {bounds.delta}"
        found = w.say(f"call {kind} {loads.name(words)}({limits}, {V64} {at}, {V1} {w.wide(mask)})", True)
        if words == 1:
            return [found]
        return [w.say(f"extractvalue {kind} {found}, {word}", True) for word in range(words)]

    def _within(self, bounds: Bounds, addresses: Symbol, mask: Symbol) -> Place:
        w, site, at = self.w, bounds.site, self.w.as_symbol(addresses, np.uint64)
        start, limit, delta = (w.symbol_of(text, np.uint64) for text in bounds[1:])
        wide, on, number = w.wide(at), w.wide(mask), w.fresh("p")[1:]
        w.vector += [
            f"%{number}o = sub {V64} {wide}, {w.wide(start)}",
            f"%{number}i = icmp ult {V64} %{number}o, {w.wide(limit)}",
            f"%{number}n = xor {V1} %{number}i, splat (i1 true)",
            f"%{number}b = and {V1} {on}, %{number}n",
            f"%{number}m = and {V1} {on}, %{number}i",
            f"%{number}h = add {V64} {wide}, {w.wide(delta)}",
            f"%{number}w = bitcast {V1} %{number}b to i{WIDTH}",
            f"%{number}y = icmp ne i{WIDTH} %{number}w, 0",
            f"br i1 %{number}y, label %{number}cold, label %{number}go",
            f"{number}cold:",
            f"call void @note(ptr {site}, {V64} {wide}, i{WIDTH} %{number}w)",
            f"br label %{number}go",
            f"{number}go:",
        ]
        return Place(f"%{number}h", f"%{number}m")

    def end(self, leave: list[str]) -> None:
        """End the segment. leave: lines, the last of which ends a block, that leave off before the instruction."""
        w, number = self.w, self.number
        lines: list[str] = []
        w.close()
        for count, (site, size, is_write) in enumerate(self.sites):
            tag = f"{number}_{count}"
            lines += [
                f"%bp{tag} = getelementptr i64, ptr {site}, i64 {BAD}",
                f"%bv{tag} = load i64, ptr %bp{tag}",
                f"%bt{tag} = icmp ne i64 %bv{tag}, 0",
                f"br i1 %bt{tag}, label %miss{tag}, label %hit{tag}",
                f"miss{tag}:",
                f"%bf{tag} = call i1 @find(ptr %table, ptr {site}, i64 {size}, i1 {str(is_write).lower()})",
                f"br i1 %bf{tag}, label %{self.again}, label %leave{number}",
                f"hit{tag}:",
            ]
        for count, site in enumerate(self.strays):
            tag = f"{number}_s{count}"
            lines += [
                f"%bp{tag} = getelementptr i64, ptr {site}, i64 {BAD}",
                f"%bv{tag} = load i64, ptr %bp{tag}",
                f"store i64 0, ptr %bp{tag}",
                f"%bt{tag} = icmp ne i64 %bv{tag}, 0",
                f"br i1 %bt{tag}, label %leave{number}, label %hit{tag}",
                f"hit{tag}:",
            ]
        w.scalar += lines
        w.scalar += [f"br label %pass{number}", f"leave{number}:", *leave]
        w.place(f"pass{number}")
        for site, _, _ in self.sites:
            where = w.say(f"getelementptr i64, ptr {site}, i64 {TRIES}", False)
            w.scalar.append(f"store i64 0, ptr {where}")


def fetch(w: Writer, place: Place, words: int) -> list[str]:
    """So many 32-bit words of each lane."""
    if words == 4:
        four = f"{{{V32}, {V32}, {V32}, {V32}}}"
        all_four = w.say(f"call {four} @fetch4({V64} {place.at}, {V1} {place.on})", True)
        return [w.say(f"extractvalue {four} {all_four}, {word}", True) for word in range(4)]
    found = []
    for word in range(words):
        at = place.at if not word else w.say(f"add {V64} {place.at}, splat (i64 {4 * word})", True)
        found.append(w.say(f"call {V32} @fetch({V64} {at}, {V1} {place.on})", True))
    return found


def keep(w: Writer, text: str, at: str, on: str, word: int, bits: int = 32) -> None:
    """Write a 32-bit word of each lane, or its low bits."""
    if bits < 32:
        w.vector.append(f"call void @keep{bits}({V32} {text}, {V64} {at}, {V1} {on})")
        return
    there = at if not word else w.say(f"add {V64} {at}, splat (i64 {4 * word})", True)
    w.vector.append(f"call void @keep({V32} {text}, {V64} {there}, {V1} {on})")


def spill(w: Writer, name: str, kind: str, text: str) -> None:
    """Put a value of each lane into a place of the wave's own, for the segments behind this one."""
    where = w.say(f"getelementptr {kind[kind.index('x') + 2 : -1]}, ptr {name}, i64 %l{w.segment}", True)
    w.vector.append(f"store {kind} {text}, ptr {where}, align 64")


def unspill(w: Writer, name: str, kind: str) -> str:
    """What was put there."""
    where = w.say(f"getelementptr {kind[kind.index('x') + 2 : -1]}, ptr {name}, i64 %l{w.segment}", True)
    return w.say(f"load {kind}, ptr {where}, align 64", True)
