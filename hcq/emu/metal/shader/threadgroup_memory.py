"""Threadgroup memory, and who touched it: races are found as they happen.

In       the places that a thread reads and writes
Out      addresses, and checks that nobody else touched a place since the last barrier
Changes  the text under construction
Next     pieces.py (what one thread runs), exchanges.py (barriers)
Source   Metal Shading Language Specification: "Threadgroup Address Space"

Each element of threadgroup memory remembers who wrote it and who read it, as epoch * MOST_THREADS + thread; each
barrier begins another epoch.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import NamedTuple

from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.expressions import Site
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.pieces import SLOT_UNIT, Pieces
from hcq.emu.metal.shader.syntax import Function
from hcq.emu.metal.shader.typed import Pointer
from hcq.emu.metal.shader.types import SIZES

MOST_THREADS = 2048
SEVERAL = MOST_THREADS - 1  # readers
EPOCHS = 1 << 19  # then all is forgotten, and they begin again


class Shared(NamedTuple):
    """Threadgroup memory in the memory of a group. unit: bytes that are remembered by themselves."""

    at: int
    size_bytes: int
    unit: int
    writers_at: int
    readers_at: int


class ThreadgroupMemory(Pieces):
    """Pieces with memory that the threads of a group share."""

    def __init__(self, source: Source, kernel: Function) -> None:
        super().__init__(source)
        self.kernel = kernel
        self.sizes: set[tuple[str, int]] = set()
        self.shared: dict[str, Shared] = {}
        self.fixed_bytes = 0

    def place_memories(self) -> None:
        """Threadgroup memory, and beside it who touched what."""
        at = 0
        for name, (kind, size) in self.kernel.shared.items():
            sizes = _sizes(self.kernel.body, name) | {SIZES[kind.scalar]}
            unit, room = min(sizes), -(-size // SLOT_UNIT) * SLOT_UNIT
            entries = 4 * (room // unit)
            self.shared[name] = Shared(at, size, unit, at + room, at + room + entries)
            at += room + 2 * entries
        self.fixed_bytes = at

    def base(self, memory: str) -> str:
        return f"%base.{memory}"

    def elements(self, memory: str, size_bytes: int) -> str:
        if memory in self.shared:
            return str(self.shared[memory].size_bytes // size_bytes)
        self.sizes.add((memory, size_bytes))
        return f"%count.{memory}.{size_bytes}"

    def noted(self, place: Pointer, index: str, verb: str) -> None:
        """A race: somebody else wrote it in this epoch, or read what is written now."""
        shared = self.shared.get(place.memory)
        if shared is None:
            return
        size = SIZES[place.kind.scalar]
        parts = size // shared.unit
        entries = place.kind.lanes * parts
        vector = f"<{entries} x i32>"
        first = index if parts == 1 else self.word(f"mul i64 {index}, {parts}")
        writers, readers = (
            self.word(f"getelementptr i32, ptr %{which}.{place.memory}, i64 {first}")
            for which in ("writers", "readers")
        )
        epoch = self.word("load i32, ptr %epoch")
        me = self.word(f"add i32 {epoch}, {self.word(f'trunc i64 {self.thread} to i32')}")
        many_epoch, many_me = (self.spread(one, entries) for one in (epoch, me))

        def touched(entry: str, what: str) -> None:
            now = self.word(f"icmp uge {vector} {entry}, {many_epoch}")
            other = self.word(f"icmp ne {vector} {entry}, {many_me}")
            wrong = self.word(f"and <{entries} x i1> {now}, {other}")
            bits = self.word(f"bitcast <{entries} x i1> {wrong} to i{entries}")
            site = Site(
                f"a race: a thread {what}, at byte {{index}} of {{name}}, with no barrier between.",
                size,
                place.memory,
            )
            at = self.word(f"mul i64 {index}, {size}")
            self.guard(self.word(f"icmp eq i{entries} {bits}, 0"), site, at)

        wrote = self.word(f"load {vector}, ptr {writers}, align 4")
        read = self.word(f"load {vector}, ptr {readers}, align 4")
        if verb == "reads":
            touched(wrote, "reads what another one wrote")
            stale = self.word(f"icmp ult {vector} {read}, {many_epoch}")
            same = self.word(f"icmp eq {vector} {read}, {many_me}")
            mine = self.word(f"or <{entries} x i1> {stale}, {same}")
            several = self.spread(self.word(f"add i32 {epoch}, {SEVERAL}"), entries)
            new = self.word(f"select <{entries} x i1> {mine}, {vector} {many_me}, {vector} {several}")
            self.say(f"store {vector} {new}, ptr {readers}, align 4")
            return
        touched(wrote, "writes what another one wrote")
        touched(read, "writes what another one read")
        self.say(f"store {vector} {many_me}, ptr {writers}, align 4")

    def spread(self, word: str, entries: int) -> str:
        """A word in each entry."""
        one = self.word(f"insertelement <{entries} x i32> poison, i32 {word}, i32 0")
        return self.word(
            f"shufflevector <{entries} x i32> {one}, <{entries} x i32> poison, <{entries} x i32> zeroinitializer"
        )

    def next_epoch(self) -> None:
        """Nobody has touched threadgroup memory yet."""
        if not self.shared:
            return
        new = self.word(f"add i32 {self.word('load i32, ptr %epoch')}, {MOST_THREADS}")
        self.say(f"store i32 {new}, ptr %epoch")
        full = self.word(f"icmp uge i32 {new}, {EPOCHS * MOST_THREADS}")
        again, after = self.fresh("again"), self.fresh("epoch")
        self.say(f"br i1 {full}, label %{again}, label %{after}")
        self.label(again)
        for name, one in self.shared.items():
            for which in ("writers", "readers"):
                self.fill(f"%{which}.{name}", 0, 4 * (one.size_bytes // one.unit))
        self.say(f"store i32 {MOST_THREADS}, ptr %epoch")
        self.jump(after)
        self.label(after)

    def fill(self, base: str, byte: int, size_bytes: int) -> None:
        """Memory with one byte all over."""
        self.declared["memset"] = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
        self.say(f"call void @llvm.memset.p0.i64(ptr {base}, i8 {byte}, i64 {size_bytes}, i1 false)")


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
