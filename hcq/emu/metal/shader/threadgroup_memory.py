"""Threadgroup memory, and who touched it: races are found as they happen.

In       the places that threads read and write
Out      addresses, and checks that nobody else touched a place since the last barrier
Changes  the text under construction
Next     pieces.py (what threads run), accesses.py (who asks), exchanges.py (barriers)
Source   Metal Shading Language Specification: "Threadgroup Address Space"

Each element of threadgroup memory remembers who wrote it and who read it, as epoch * MOST_THREADS + thread; each
barrier begins another epoch. Stretches of the text with no barrier between them, loops considered, are one: where
nothing in such a stretch writes a memory, nobody races there, and nothing is remembered.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import NamedTuple

import numpy as np

from hcq.emu.compiled.symbols import Symbol
from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.errors import NotCompiled
from hcq.emu.metal.shader.lanes import I32, Site
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.pieces import SLOT_UNIT, Key, Pieces, Size
from hcq.emu.metal.shader.syntax import Function
from hcq.emu.metal.shader.typed import Pointer
from hcq.emu.metal.shader.types import SIZES

MOST_THREADS = 2048
SEVERAL = MOST_THREADS - 1  # readers
EPOCHS = 1 << 19  # then all is forgotten, and they begin again
RACES = ("reads what another one wrote", "writes what another one wrote", "writes what another one read",
         "writes what another one writes")  # fmt: skip
AGAINST_CHANGES = {"reads": "reads what another one changed", "writes": "writes what another one changed"}
CHANGES = {"writers": "changes what another one wrote", "readers": "changes what another one read"}
CHANGED = ("changes", "looks")  # atomic operations, of which one only looks
Touched = set[tuple[str, str]]


class Shared(NamedTuple):
    """Threadgroup memory in the memory of a group. unit: bytes that are remembered by themselves."""

    at: int
    size_bytes: int
    unit: int
    writers_at: int
    readers_at: int
    changers_at: int  # atomic operations


class ThreadgroupMemory(Pieces):
    """Pieces with memory that the threads of a group share.

    known   what each stretch touches, as it was found when the text was written before
    """

    def __init__(
        self,
        source: Source,
        kernel: Function,
        width: int,
        block: Size,
        varying: set[Key],
        known: list[Touched] | None,
    ) -> None:
        super().__init__(source, width, block, varying)
        self.kernel = kernel
        self.sizes: set[tuple[str, int]] = set()
        self.shared: dict[str, Shared] = {}
        self.fixed_bytes = 0
        self.known = known
        self.stretch = 0
        self._parents = [0]
        self._touched: list[Touched] = [set()]
        self.notes = False

    def place_memories(self) -> None:
        """Threadgroup memory, and beside it who touched what."""
        at = SLOT_UNIT  # the first bytes are where nobody's accesses go
        for name, (kind, size) in self.kernel.shared.items():
            sizes = _sizes(self.kernel.body, name) | {SIZES[kind.scalar]}
            unit, room = min(sizes), -(-size // SLOT_UNIT) * SLOT_UNIT
            entries = -(-4 * (room // unit) // SLOT_UNIT) * SLOT_UNIT
            marks = [at + room + number * entries for number in range(3)]
            self.shared[name] = Shared(at, size, unit, *marks)
            at += room + 3 * entries
        self.fixed_bytes = at

    def elements(self, memory: str, size_bytes: int) -> Symbol:
        """How many of that size there are."""
        if memory in self.shared:
            return self.w.constant(self.shared[memory].size_bytes // size_bytes, I32)
        self.sizes.add((memory, size_bytes))
        return self.of(f"%count.{memory}.{size_bytes}", I32, False)

    # ------------------------------------------------------------ stretches

    def new_stretch(self) -> None:
        """A barrier: what comes is not what was before."""
        self.stretch = len(self._parents)
        self._parents.append(self.stretch)
        self._touched.append(set())

    def _root(self, one: int) -> int:
        while self._parents[one] != one:
            one = self._parents[one]
        return one

    def join(self, a: int, b: int) -> None:
        """No barrier is between these."""
        self._parents[self._root(a)] = self._root(b)

    def touched(self) -> list[Touched]:
        """What each stretch touches, and those that are one with it."""
        found: dict[int, Touched] = {}
        for number, some in enumerate(self._touched):
            found.setdefault(self._root(number), set()).update(some)
        return [found[self._root(number)] for number in range(len(self._touched))]

    # ------------------------------------------------------------ races

    def noted(self, place: Pointer, index: Symbol, verb: str) -> None:
        """A race: somebody else wrote it in this epoch, or read what is written now."""
        shared = self.shared.get(place.memory)
        if shared is None:
            return
        self._touched[self.stretch].add((place.memory, "changes" if verb in CHANGED else verb))
        around = {"reads", "writes", "changes"}
        if self.known is not None and self.stretch < len(self.known):
            around = {what for memory, what in self.known[self.stretch] if memory == place.memory}
        if not ("writes" in around or {"reads", "changes"} <= around) or self.threads == 1:
            return
        if self.piece is None:
            raise NotCompiled("threadgroup memory that decides where threads meet")
        parts = SIZES[place.kind.scalar] // shared.unit
        first = self.w.convert(index, I32)
        if parts > 1:
            first = self.w.binary("mul", I32, first, np.array(parts, np.int32))
        epoch = self.of(self.word("load i32, ptr %epoch"), I32, False)
        me = self.w.wide(self.w.binary("add", I32, self.thread, epoch))
        mask = self.w.wide(self.truth_mask())
        which = ("wrote" if "reads" not in around else "both") if verb == "writes" else "read"
        self.notes = True
        races = RACES[:1] if verb == "reads" else RACES[1:]
        vector = self.kind(I32)
        given = f"{self.kind('bool')} {mask}, {vector} {me}, i32 {epoch.text}"
        if "changes" in around:
            self.noted_change(place, first, parts, verb, given)
        if verb in CHANGED:
            return
        for part in range(place.kind.lanes * parts):
            entry = self.w.binary("add", I32, first, np.array(part, np.int32)) if part else first
            found = self.word(
                f"call i64 @note.{which}(ptr %writers.{place.memory}, ptr %readers.{place.memory}, "
                f"{vector} {self.w.wide(entry)}, {given})"
            )
            for number, what in enumerate(races, 1):
                site = Site(
                    f"a race: a thread {what}, at byte {{index}} of {{name}}, with no barrier between.",
                    1,
                    place.memory,
                )
                at = self.word(f"mul i64 {self.word(f'and i64 {found}, 4294967295')}, {shared.unit}")
                code = self.word(f"lshr i64 {found}, 32")
                self.guard(self.word(f"icmp eq i64 {code}, {number}"), site, at)

    def noted_change(self, place: Pointer, first: Symbol, parts: int, verb: str, given: str) -> None:
        """A race of an atomic operation with others' plain accesses, or of such with atomic operations."""
        unit, vector = self.shared[place.memory].unit, self.kind(I32)
        checks = {"changers": AGAINST_CHANGES[verb]} if verb in AGAINST_CHANGES else dict(CHANGES)
        if verb == "looks":
            del checks["readers"]
        for part in range(place.kind.lanes * parts):
            entry = self.w.binary("add", I32, first, np.array(part, np.int32)) if part else first
            at = f"{vector} {self.w.wide(entry)}"
            for which, what in checks.items():
                site = f"a race: a thread {what}, at byte {{index}} of {{name}}, with no barrier between."
                found = self.word(f"call i64 @note.against(ptr %{which}.{place.memory}, {at}, {given})")
                byte = self.word(f"mul i64 {self.word(f'and i64 {found}, 4294967295')}, {unit}")
                code = self.word(f"lshr i64 {found}, 32")
                self.guard(self.word(f"icmp ne i64 {code}, 0"), Site(site, 1, place.memory), byte)
            if verb in CHANGED:
                self.say(f"call void @note.mark(ptr %changers.{place.memory}, {at}, {given})")

    def next_epoch(self) -> None:
        """Nobody has touched threadgroup memory yet."""
        if not self.shared:
            return
        new = self.word(f"add i32 {self.word('load i32, ptr %epoch')}, {MOST_THREADS}")
        self.say(f"store i32 {new}, ptr %epoch")
        full = self.word(f"icmp uge i32 {new}, {EPOCHS * MOST_THREADS}")
        again, after = self.fresh("again"), self.fresh("epoch")
        self.fork(full, again, after)
        self.label(again)
        for name, one in self.shared.items():
            for which in ("writers", "readers", "changers"):
                self.fill(f"%{which}.{name}", 0, 4 * (one.size_bytes // one.unit))
        self.say(f"store i32 {MOST_THREADS}, ptr %epoch")
        self.jump(after)
        self.label(after)

    def fill(self, base: str, byte: int, size_bytes: int) -> None:
        """Memory with one byte all over."""
        self.declared["memset"] = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
        self.say(f"call void @llvm.memset.p0.i64(ptr {base}, i8 {byte}, i64 {size_bytes}, i1 false)")


def notes(width: int) -> str:
    """The functions that remember who touched an element, by vectors of threads.

    They return 0, or the number of a race in the high word and the element in the low one.
    """
    n = width
    vi, vb, vp = f"<{n} x i32>", f"<{n} x i1>", f"<{n} x ptr>"
    gather, scatter = f"@llvm.masked.gather.v{n}i32.v{n}p0", f"@llvm.masked.scatter.v{n}i32.v{n}p0"
    steps = ", ".join(f"i32 {lane}" for lane in range(n))

    def splat(name: str, of: str) -> list[str]:
        return [
            f"%{name}i = insertelement {vi} poison, i32 {of}, i64 0",
            f"%{name} = shufflevector {vi} %{name}i, {vi} poison, {vi} zeroinitializer",
        ]

    def got(name: str, pointers: str) -> str:
        return f"%{name} = call {vi} {gather}({vp} {pointers}, i32 4, {vb} %on, {vi} zeroinitializer)"

    def checked(name: str, code: int) -> list[str]:
        return [
            f"%{name}n = icmp uge {vi} %{name}, %epochs",
            f"%{name}o = icmp ne {vi} %{name}, %me",
            f"%{name}p = and {vb} %{name}n, %{name}o",
            f"%{name}b = and {vb} %{name}p, %on",
            f"%{name}x = bitcast {vb} %{name}b to i{n}",
            f"%{name}z = icmp ne i{n} %{name}x, 0",
            f"br i1 %{name}z, label %{name}.bad, label %{name}.ok",
            f"{name}.bad:",
            f"%{name}r = call i64 @note.at(i{n} %{name}x, {vi} %at, i64 {code})",
            f"ret i64 %{name}r",
            f"{name}.ok:",
        ]

    def where(which: str) -> str:
        return f"%{which}p = getelementptr i32, ptr %{which}, {vi} %at"

    def put(value: str, pointers: str, mask: str) -> str:
        return f"call void {scatter}({vi} {value}, {vp} {pointers}, i32 4, {vb} {mask})"

    head = f"(ptr %writers, ptr %readers, {vi} %at, {vb} %on, {vi} %me, i32 %epoch) noinline #0 {{"
    # threads side by side, all of them there, and a memory that nobody read: the usual way to fill a tile
    beside = [
        "%first = extractelement " + vi + " %at, i64 0",
        *splat("firsts", "%first"),
        f"%row = add {vi} %firsts, <{steps}>",
        f"%is = icmp eq {vi} %row, %at",
        f"%all = and {vb} %is, %on",
        f"%allx = bitcast {vb} %all to i{n}",
        f"%whole = icmp eq i{n} %allx, -1",
        "br i1 %whole, label %beside, label %spread",
        "beside:",
        "%wp1 = getelementptr i32, ptr %writers, i32 %first",
        f"%w1 = load {vi}, ptr %wp1, align 4",
        *checked("w1", 1),
    ]
    lines = [
        f"define internal i64 @note.at(i{n} %bits, {vi} %at, i64 %code) noinline cold {{",
        f"%n = call i{n} @llvm.cttz.i{n}(i{n} %bits, i1 false)",
        f"%i = {'trunc' if n > 32 else 'bitcast'} i{n} %n to i32",
        f"%a = extractelement {vi} %at, i32 %i",
        "%w = zext i32 %a to i64",
        "%high = shl i64 %code, 32",
        "%both = or i64 %high, %w",
        "ret i64 %both",
        "}",
        f"define internal i64 @note.read{head}",
        *splat("epochs", "%epoch"),
        f"%several1 = add i32 %epoch, {SEVERAL}",
        *splat("several", "%several1"),
        where("writers"),
        where("readers"),
        got("w", "%writersp"),
        *checked("w", 1),
        got("r", "%readersp"),
        put("%me", "%readersp", "%on"),
        got("again", "%readersp"),
        f"%lost = icmp ne {vi} %again, %me",
        f"%fresh = icmp uge {vi} %r, %epochs",
        f"%other = icmp ne {vi} %r, %me",
        f"%known = and {vb} %fresh, %other",
        f"%many = or {vb} %lost, %known",
        f"%mark = and {vb} %many, %on",
        put("%several", "%readersp", "%mark"),
        "ret i64 0",
        "}",
    ]
    marks = ["define internal i64 @note.against(ptr %marks, " + head.partition("ptr %readers, ")[2]]
    marks += [
        *splat("epochs", "%epoch"),
        where("marks"),
        got("m", "%marksp"),
        *checked("m", 1),
        "ret i64 0",
        "}",
    ]
    marks += ["define internal void @note.mark(ptr %marks, " + head.partition("ptr %readers, ")[2]]
    marks += [
        *splat("epochs", "%epoch"),
        f"%several1 = add i32 %epoch, {SEVERAL}",
        *splat("several", "%several1"),
        where("marks"),
        got("r", "%marksp"),
        put("%me", "%marksp", "%on"),
        got("again", "%marksp"),
        f"%lost = icmp ne {vi} %again, %me",
        f"%fresh = icmp uge {vi} %r, %epochs",
        f"%other = icmp ne {vi} %r, %me",
        f"%known = and {vb} %fresh, %other",
        f"%many = or {vb} %lost, %known",
        f"%mark = and {vb} %many, %on",
        put("%several", "%marksp", "%mark"),
        "ret void",
        "}",
    ]
    lines += marks
    for which in ("wrote", "both"):
        more = []
        if which == "both":
            more = [
                "%rp1 = getelementptr i32, ptr %readers, i32 %first",
                f"%r1 = load {vi}, ptr %rp1, align 4",
            ]
            more += checked("r1", 2)
        lines += [
            f"define internal i64 @note.{which}{head}",
            *splat("epochs", "%epoch"),
            *beside,
            *more,
            f"store {vi} %me, ptr %wp1, align 4",
            "ret i64 0",
            "spread:",
            where("writers"),
            where("readers"),
            got("w", "%writersp"),
            *checked("w", 1),
            *([got("r", "%readersp"), *checked("r", 2)] if which == "both" else []),
            put("%me", "%writersp", "%on"),
            got("again", "%writersp"),
            *checked("again", 3),
            "ret i64 0",
            "}",
        ]
    declared = [
        f"declare {vi} {gather}({vp}, i32, {vb}, {vi})",
        f"declare void {scatter}({vi}, {vp}, i32, {vb})",
        f"declare i{n} @llvm.cttz.i{n}(i{n}, i1)",
    ]
    return "\n".join([*declared, *lines]) + "\n"


def _sizes(body: object, name: str) -> set[int]:
    """The sizes under which a memory is cast."""
    match body:
        case list():
            return {size for one in body for size in _sizes(one, name)}
        case syntax.Cast() if body.kind.space and _mentions(body.value, name):
            return {SIZES[body.kind.scalar]} | _sizes(body.value, name)
    if not is_dataclass(body):
        return set()
    return {size for one in vars(body).values() for size in _sizes(one, name)}


def _mentions(it: object, name: str) -> bool:
    """Whether an expression has a name in it."""
    if isinstance(it, syntax.Name):
        return it.name == name
    if isinstance(it, list):
        return any(_mentions(one, name) for one in it)
    return is_dataclass(it) and any(_mentions(one, name) for one in vars(it).values())
