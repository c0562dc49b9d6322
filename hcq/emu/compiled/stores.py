"""Stores of several whole words of each lane: whole vectors where lanes lie side by side, else lane by lane.

In       a Writer, where lanes go, the words of each
Out      flags that tell whether all lanes are on, and how they lie; text of functions that store them
Changes  the Writer
Next     loads.py (the same for loads), accesses.py (lanes by themselves), hcq/emu/amd/shader/native_memory.py

Words of one lane lie beside each other, and a register has one word of all lanes. A scatter of each word takes a host
some cycles a lane; sorted by lane first, sixteen words are one store, or those of a lane are. Where lanes overlap in
part, the order of the words counts; so words are only taken together where none do.
"""

from __future__ import annotations

import itertools

from hcq.emu.compiled.loads import V1, V32, V64
from hcq.emu.compiled.writer import WIDTH, Writer

WORDS = (2, 4)  # of each lane


def name(words: int) -> str:
    """Of the function."""
    return f"@give{words}"


def text(words: int) -> str:
    """The functions: they write WIDTH lanes, the first one's words first; to one place, or to one of each lane."""
    listed = ", ".join(f"{V32} %w{word}" for word in range(words))
    together = [f"define internal void {name(words)}(ptr %p, {listed}) noinline #0 {{"]
    apart = [f"define internal void {name(words)}each({V64} %at, {listed}) noinline #0 {{"]
    lines, (kind, whole) = _by_lane(words)
    one = f"<{words} x i32>"
    for lane in range(WIDTH):
        order = ", ".join(f"i32 {words * lane + word}" for word in range(words))
        apart += [
            *(lines if not lane else ()),
            f"  %a{lane} = extractelement {V64} %at, i64 {lane}",
            f"  %p{lane} = inttoptr i64 %a{lane} to ptr",
            f"  %x{lane} = shufflevector {kind} {whole}, {kind} poison, <{words} x i32> <{order}>",
            f"  store {one} %x{lane}, ptr %p{lane}, align 1",
        ]
    together += [*lines, f"  store {kind} {whole}, ptr %p, align 1"]
    end = ["  ret void", "}"]
    return "\n".join([*together, *end, *apart, *end])


def _by_lane(words: int) -> tuple[list[str], tuple[str, str]]:
    """Lines that sort words by lane, and the type and the name of what they make."""
    lines = []
    rows = [(V32, f"%w{word}") for word in range(words)]
    size = WIDTH
    while len(rows) > 1:  # rows that lie `half` words apart become one
        half, wide = len(rows) // 2, f"<{2 * size} x i32>"
        made = []
        for number in range(half):
            (kind, a), (_, b) = rows[number], rows[number + half]
            order = ", ".join(f"i32 {lane + side * size}" for lane in range(size) for side in range(2))
            out = f"%r{half}_{number}"
            lines.append(f"  {out} = shufflevector {kind} {a}, {kind} {b}, {wide} <{order}>")
            made.append((wide, out))
        rows, size = made, 2 * size
    return lines, rows[0]


def row(w: Writer, at: str, on: str, words: int) -> str:
    """For each lane of a loop, whether it is on and where the first one's words lead to."""
    first = w.say(f"extractelement {V64} {at}, i64 0", True)
    one = w.say(f"insertelement {V64} poison, i64 {first}, i64 0", True)
    every = w.say(f"shufflevector {V64} {one}, {V64} poison, <{WIDTH} x i32> zeroinitializer", True)
    steps = ", ".join(f"i64 {4 * words * lane}" for lane in range(WIDTH))
    expected = w.say(f"add {V64} {every}, <{steps}>", True)
    here = w.say(f"icmp eq {V64} {at}, {expected}", True)
    return w.say(f"and {V1} {here}, {on}", True)


def even(w: Writer, at: str, on: str, words: int) -> str:
    """For each lane of a loop, whether it is on and as far from a multiple of its size as the first one."""
    first = w.say(f"extractelement {V64} {at}, i64 0", True)
    one = w.say(f"insertelement {V64} poison, i64 {first}, i64 0", True)
    every = w.say(f"shufflevector {V64} {one}, {V64} poison, <{WIDTH} x i32> zeroinitializer", True)
    other = w.say(f"xor {V64} {at}, {every}", True)
    low = w.say(f"and {V64} {other}, splat (i64 {4 * words - 1})", True)
    here = w.say(f"icmp eq {V64} {low}, zeroinitializer", True)
    return w.say(f"and {V1} {here}, {on}", True)


def _firsts(w: Writer, kept: str) -> list[str]:
    """Where the first lane of each loop goes."""
    firsts = []
    for lane in range(0, w.lanes, WIDTH):
        where = w.say(f"getelementptr i64, ptr {kept}, i64 {lane}", False)
        firsts.append(w.say(f"load i64, ptr {where}", False))
    return firsts


def is_even(w: Writer, kept: str, bits: str, words: int) -> str:
    """Whether all lanes are where even() wants them: two of them overlap wholly, or not at all."""
    every = -1 if w.lanes == 64 else (1 << w.lanes) - 1
    found = w.say(f"icmp eq i64 {bits}, {every}", False)
    first, *others = _firsts(w, kept)
    for other in others:
        low = w.say(f"and i64 {w.say(f'xor i64 {first}, {other}', False)}, {4 * words - 1}", False)
        found = w.say(f"and i1 {found}, {w.say(f'icmp eq i64 {low}, 0', False)}", False)
    return found


def is_apart(w: Writer, kept: str, bits: str, words: int) -> str:
    """Whether all lanes are where row() wants them, and no loop's reach into another's. kept: where they all go."""
    every = -1 if w.lanes == 64 else (1 << w.lanes) - 1
    found = w.say(f"icmp eq i64 {bits}, {every}", False)
    firsts = _firsts(w, kept)
    size = 4 * words * WIDTH
    for one, other in itertools.combinations(firsts, 2):
        ahead = w.say(f"sub i64 {one}, {other}", False)
        moved = w.say(f"add i64 {ahead}, {size - 1}", False)
        far = w.say(f"icmp uge i64 {moved}, {2 * size - 1}", False)
        found = w.say(f"and i1 {found}, {far}", False)
    return found


def give_each(w: Writer, at: str, values: list[str]) -> None:
    """Write the words of a loop's lanes, each where it wants them."""
    listed = ", ".join(f"{V32} {value}" for value in values)
    w.vector.append(f"call void {name(len(values))}each({V64} {at}, {listed})")


def give(w: Writer, at: str, values: list[str]) -> None:
    """Write the words of a loop's lanes, side by side."""
    first = w.say(f"extractelement {V64} {at}, i64 0", True)
    where = w.say(f"inttoptr i64 {first} to ptr", True)
    listed = ", ".join(f"{V32} {value}" for value in values)
    w.vector.append(f"call void {name(len(values))}(ptr {where}, {listed})")
