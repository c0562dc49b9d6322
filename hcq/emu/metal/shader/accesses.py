"""Accesses of memory by many threads at once: one check of bounds, then one load where they are side by side.

In       places in memory, and the mask
Out      numbers; memory written
Changes  the text under construction
Next     threadgroup_memory.py (races), machine.py (the same in NumPy)

Whether threads are side by side is asked when the code runs, for addresses come out of arithmetic. Where they are not,
numbers are gathered one by one. Of threads that store to one place the last one wins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.emu.compiled.symbols import Symbol, llvm_type
from hcq.emu.metal.shader.errors import NotCompiled
from hcq.emu.metal.shader.lanes import BOOLEAN, I32, I64, Site
from hcq.emu.metal.shader.machine import SIMD
from hcq.emu.metal.shader.threadgroup_memory import ThreadgroupMemory
from hcq.emu.metal.shader.typed import Pointer, Value
from hcq.emu.metal.shader.types import BOOL, SIZES

BYTE = np.dtype(np.uint8)


class Accesses(ThreadgroupMemory):
    """Loads and stores."""

    def load(self, place: Pointer) -> Value:
        kind = place.kind
        dtype = BYTE if kind == BOOL else np.dtype(kind.numpy)
        index = self.checked(place, "reads")
        found = self.loaded(place, index, dtype) if index.is_vector else self.loaded_once(place, index, dtype)
        if kind == BOOL:
            return Value(self.w.compare("ne", found[0], np.zeros(1, BYTE)), kind)
        return Value(tuple(found) if kind.lanes > 1 else found[0], kind)

    def store(self, place: Pointer, value: Value) -> None:
        """Into memory, by the threads that are there."""
        kind = place.kind
        index = self.vector_of(self.checked(place, "writes"))
        values = value.text if kind.lanes > 1 else (value.text,)
        if kind == BOOL:
            values = (self.w.convert(values[0], BYTE),)
        texts = [self.w.wide(one) for one in values]
        dtype = BYTE if kind == BOOL else np.dtype(kind.numpy)
        n, size = self.width, dtype.itemsize
        row, spread, done = (self.fresh(stem) for stem in ("row", "spread", "done"))
        first, mask = self.beside(index, kind.lanes, row, spread)
        at = self.word(f"getelementptr {llvm_type(dtype)}, ptr %base.{place.memory}, i32 {first}")
        many = f"<{n * kind.lanes} x {llvm_type(dtype)}>"
        whole = texts[0]
        if kind.lanes > 1:  # only where all threads are there
            whole = self.interleaved(texts, dtype)
        if kind.lanes > 1 or self.mask is None:
            self.say(f"store {many} {whole}, ptr {at}, align {size}")
        else:
            name = f"@llvm.masked.store.v{n}{self.tail(dtype)}.p0"
            self.declared[name] = f"declare void {name}({many}, ptr, i32, {self.kind(BOOLEAN)})"
            self.say(f"call void {name}({many} {whole}, ptr {at}, i32 {size}, {self.kind(BOOLEAN)} {mask})")
        self.jump(done)
        self.label(spread)
        name = f"@llvm.masked.scatter.v{n}{self.tail(dtype)}.v{n}p0"
        one = self.kind(dtype)
        self.declared[name] = f"declare void {name}({one}, <{n} x ptr>, i32, {self.kind(BOOLEAN)})"
        for number, text in enumerate(texts):
            pointers = self.pointers(place, index, number, dtype)
            self.say(
                f"call void {name}({one} {text}, <{n} x ptr> {pointers}, i32 {size}, {self.kind(BOOLEAN)} {mask})"
            )
        self.jump(done)
        self.label(done)

    def atomic(self, place: Pointer, operation: str, values: list[Value]) -> Value:
        kind, dtype = place.kind, np.dtype(place.kind.numpy)
        verb = "reads" if operation == "load" else "writes"
        index = self.vector_of(self.checked(place, verb, "looks" if operation == "load" else "changes"))
        name, made = one_after_another(self.width, operation, dtype)
        self.declared[name] = made
        one = self.kind(dtype)
        given = [self.w.wide(value.text) for value in values] + ["zeroinitializer"] * (2 - len(values))
        found = self.word(
            f"call {one} {name}(ptr %base.{place.memory}, {self.kind(I32)} {index.text}, "
            f"{self.kind(BOOLEAN)} {self.truth_mask().text}, {one} {given[0]}, {one} {given[1]})"
        )
        return Value(self.of(found, dtype), kind)

    # ------------------------------------------------------------ where

    def checked(self, place: Pointer, verb: str, noted: str = "") -> Symbol:
        """The index of an access that lies within its memory, at a multiple of its size, and races with nobody.

        noted  what it is for races, if not a plain access
        """
        kind, size = place.kind, SIZES[place.kind.scalar]
        if kind.lanes == 3 or (kind.lanes > 1 and kind.scalar == "bool"):
            raise NotCompiled(f"{kind} in memory")
        index: Symbol = self.index_of(place).text
        count = self.elements(place.memory, size)
        if not index.is_vector or index.itemsize == 8:
            count = self.of(self.wide_word(count.text, np.dtype(np.uint32)), I64, False)
            if not index.is_vector:
                index = self.of(self.wide_word(index.text, index.dtype), I64, False)
        last = index
        if kind.lanes > 1:
            part = self.w.binary("and", index.dtype, index, np.array(kind.lanes - 1, index.dtype))
            wrong = self.w.compare("ne", part, np.zeros(1, index.dtype))
            what = f"an access of {kind.lanes} lanes of {{name}} does not begin at a multiple of its size."
            self.guard(self.at_hand(wrong), Site(what, size, place.memory), index)
            last = self.w.binary("add", index.dtype, index, np.array(kind.lanes - 1, index.dtype))
        beyond = self.w.compare("uge", last, self.w.named(count, count.text, last.dtype))
        what = f"{verb} {{name}}[{{index}}] of {{count}} elements of {kind.numpy}."
        self.guard(self.at_hand(beyond), Site(what, size, place.memory), last)
        if index.itemsize == 8:
            index = self.w.convert(index, I32)
        self.noted(place, index, noted or verb)
        return self.w.named(index, index.text, I32)

    def at_hand(self, wrong: Symbol) -> Symbol:
        """Where it is so of a thread that is there."""
        if self.mask is None or (wrong.is_vector and not self.mask.is_vector and self.mask.text == "true"):
            return wrong
        if not wrong.is_vector:
            return self.w.binary("and", BOOLEAN, wrong, self.of(self.some(self.mask), BOOLEAN, False))
        return self.w.binary("and", BOOLEAN, wrong, self.mask)

    def beside(self, index: Symbol, step: int, row: str, spread: str) -> tuple[str, str]:
        """On to `row` where threads are side by side (and all there, when each has several numbers).

        Returns the first index, and the mask.
        """
        mask, vector, many = self.truth_mask().text, self.kind(BOOLEAN), self.kind(I32)
        first = self.word(f"extractelement {many} {index.text}, i64 0")
        steps = ", ".join(f"i32 {step * lane}" for lane in range(self.width))
        begin = self.vector_of(self.of(first, I32, False)).text
        there = self.word(f"icmp eq {many} {self.word(f'add {many} {begin}, <{steps}>')}, {index.text}")
        if self.mask is not None and step == 1:
            there = self.word(f"or {vector} {there}, {self.word(f'xor {vector} {mask}, splat (i1 true)')}")
        elif self.mask is not None:
            there = self.word(f"and {vector} {there}, {mask}")
        bits = self.word(f"bitcast {vector} {there} to i{self.width}")
        self.fork(self.word(f"icmp eq i{self.width} {bits}, -1"), row, spread)
        self.label(row)
        return first, mask

    def pointers(self, place: Pointer, index: Symbol, number: int, dtype: Any) -> str:
        """Where each thread has its number."""
        at = (
            index.text
            if not number
            else self.word(f"add {self.kind(I32)} {index.text}, splat (i32 {number})")
        )
        return self.word(f"getelementptr {llvm_type(dtype)}, ptr %base.{place.memory}, {self.kind(I32)} {at}")

    # ------------------------------------------------------------ what is there

    def loaded_once(self, place: Pointer, index: Symbol, dtype: Any) -> list[Symbol]:
        """Numbers that all threads read."""
        one = llvm_type(dtype)
        at = self.word(f"getelementptr {one}, ptr %base.{place.memory}, i32 {index.text}")
        if self.mask is not None:  # with nobody there the index may be any
            at = self.word(f"select i1 {self.some(self.mask)}, ptr {at}, ptr %nowhere")
        found = []
        for number in range(place.kind.lanes):
            there = self.word(f"getelementptr {one}, ptr {at}, i32 {number}") if number else at
            found.append(self.of(self.word(f"load {one}, ptr {there}, align {dtype.itemsize}"), dtype, False))
        return found

    def loaded(self, place: Pointer, index: Symbol, dtype: Any) -> list[Symbol]:
        """Numbers of each thread."""
        n, lanes, size = self.width, place.kind.lanes, dtype.itemsize
        row, spread, done = (self.fresh(stem) for stem in ("row", "spread", "done"))
        first, mask = self.beside(index, lanes, row, spread)
        one, many = self.kind(dtype), f"<{n * lanes} x {llvm_type(dtype)}>"
        at = self.word(f"getelementptr {llvm_type(dtype)}, ptr %base.{place.memory}, i32 {first}")
        if lanes > 1 or self.mask is None:
            whole = self.word(f"load {many}, ptr {at}, align {size}")
        else:
            name = f"@llvm.masked.load.v{n}{self.tail(dtype)}.p0"
            self.declared[name] = f"declare {many} {name}(ptr, i32, {self.kind(BOOLEAN)}, {many})"
            whole = self.word(
                f"call {many} {name}(ptr {at}, i32 {size}, {self.kind(BOOLEAN)} {mask}, {many} zeroinitializer)"
            )
        side = [whole]
        if lanes > 1:
            side = [
                self.word(
                    f"shufflevector {many} {whole}, {many} poison, <{n} x i32> "
                    f"<{', '.join(f'i32 {lanes * lane + number}' for lane in range(n))}>"
                )
                for number in range(lanes)
            ]
        self.jump(done)
        self.label(spread)
        apart = self.gathered(place, index, dtype, mask)
        self.jump(done)
        self.label(done)
        return [
            self.of(self.word(f"phi {one} [{a}, %{row}], [{b}, %{spread}]"), dtype)
            for a, b in zip(side, apart)
        ]

    def gathered(self, place: Pointer, index: Symbol, dtype: Any, mask: str) -> list[str]:
        """Numbers of threads that are not side by side."""
        n, one = self.width, self.kind(dtype)
        if self.mask is None and n == SIMD:
            lanes = place.kind.lanes
            name, made = one_by_one(n, lanes, llvm_type(dtype), dtype.itemsize)
            self.declared[name] = made
            every = f"{{{', '.join([one] * lanes)}}}"
            found = self.word(f"call {every} {name}(ptr %base.{place.memory}, {self.kind(I32)} {index.text})")
            return [self.word(f"extractvalue {every} {found}, {number}") for number in range(lanes)]
        name = f"@llvm.masked.gather.v{n}{self.tail(dtype)}.v{n}p0"
        self.declared[name] = f"declare {one} {name}(<{n} x ptr>, i32, {self.kind(BOOLEAN)}, {one})"
        return [
            self.word(
                f"call {one} {name}(<{n} x ptr> {self.pointers(place, index, number, dtype)}, i32 {dtype.itemsize}, "
                f"{self.kind(BOOLEAN)} {mask}, {one} zeroinitializer)"
            )
            for number in range(place.kind.lanes)
        ]

    def interleaved(self, texts: list[str], dtype: Any) -> str:
        """Vectors as they lie in memory: thread after thread."""
        size, kind = self.width, llvm_type(dtype)
        while len(texts) > 1:
            order = ", ".join(f"i32 {lane}" for lane in range(2 * size))
            texts = [
                self.word(
                    f"shufflevector <{size} x {kind}> {a}, <{size} x {kind}> {b}, <{2 * size} x i32> <{order}>"
                )
                for a, b in zip(texts[::2], texts[1::2])
            ]
            size *= 2
        lanes = size // self.width
        order = ", ".join(f"i32 {at % lanes * self.width + at // lanes}" for at in range(size))
        return self.word(
            f"shufflevector <{size} x {kind}> {texts[0]}, <{size} x {kind}> poison, <{size} x i32> <{order}>"
        )

    def tail(self, dtype: Any) -> str:
        """How LLVM's functions spell a type."""
        return f"f{8 * dtype.itemsize}" if dtype.kind == "f" else f"i{8 * dtype.itemsize}"


def one_by_one(width: int, lanes: int, one: str, size: int) -> tuple[str, str]:
    """A function that loads for one thread after the other, which is faster than a gather; its name and its text."""
    name, many = f"@spread.{one}.{lanes}", f"<{width} x {one}>"
    every, wide = f"{{{', '.join([many] * lanes)}}}", f"<{width * lanes} x {one}>"
    lines = [f"define internal {every} {name}(ptr %base, <{width} x i32> %at) noinline #0 {{"]
    rows, count = [], lanes
    for lane in range(width):
        lines += [
            f"%i{lane} = extractelement <{width} x i32> %at, i64 {lane}",
            f"%p{lane} = getelementptr {one}, ptr %base, i32 %i{lane}",
            f"%r{lane} = load <{lanes} x {one}>, ptr %p{lane}, align {size}",
        ]
        rows.append(f"%r{lane}")
    while len(rows) > 1:  # side by side
        order = ", ".join(f"i32 {number}" for number in range(2 * count))
        kind = f"<{count} x {one}>"
        joined: list[str] = []
        for a, b in zip(rows[::2], rows[1::2]):
            joined.append(f"%s{count}.{len(joined)}")
            lines.append(
                f"{joined[-1]} = shufflevector {kind} {a}, {kind} {b}, <{2 * count} x i32> <{order}>"
            )
        rows, count = joined, 2 * count
    found = "poison"
    for number in range(lanes):
        order = ", ".join(f"i32 {lanes * lane + number}" for lane in range(width))
        lines += [
            f"%n{number} = shufflevector {wide} {rows[0]}, {wide} poison, <{width} x i32> <{order}>",
            f"%f{number} = insertvalue {every} {found}, {many} %n{number}, {number}",
        ]
        found = f"%f{number}"
    return name, "\n".join([*lines, f"ret {every} {found}", "}"])


_INTEGERS = {"exchange": "xchg", **{name: name for name in ("add", "sub", "and", "or", "xor", "min", "max")}}


def one_after_another(width: int, operation: str, dtype: Any) -> tuple[str, str]:
    """A function that does an atomic operation for one thread after the other; its name and its text."""
    one = llvm_type(dtype)
    name, many, bits = f"@atomic.{operation}.{dtype.name}", f"<{width} x {one}>", 8 * dtype.itemsize
    verb = _INTEGERS.get(operation, "")
    if dtype.kind == "f" and operation in ("add", "sub", "min", "max"):
        verb = f"f{operation}"
    elif dtype.kind == "u" and operation in ("min", "max"):
        verb = f"u{operation}"
    if operation == "load":
        does = [f"%old = load atomic {one}, ptr %p monotonic, align {dtype.itemsize}"]
    elif operation == "store":
        does = [f"store atomic {one} %a, ptr %p monotonic, align {dtype.itemsize}", f"%old = freeze {one} %a"]
    elif operation == "compare_exchange_weak":
        does = [
            f"%ai = bitcast {one} %a to i{bits}",
            f"%bi = bitcast {one} %b to i{bits}",
            f"%pair = cmpxchg ptr %p, i{bits} %ai, i{bits} %bi monotonic monotonic",
            f"%was = extractvalue {{i{bits}, i1}} %pair, 0",
            f"%old = bitcast i{bits} %was to {one}",
        ]
    else:
        does = [f"%old = atomicrmw {verb} ptr %p, {one} %a monotonic"]
    given = f"ptr %base, <{width} x i32> %at, <{width} x i1> %on, {many} %x, {many} %y"
    lines = [
        f"define internal {many} {name}({given}) noinline #0 {{",
        "entry:",
        "br label %head",
        "head:",
        "%lane = phi i64 [0, %entry], [%next, %end]",
        f"%before = phi {many} [zeroinitializer, %entry], [%after, %end]",
        f"%is = extractelement <{width} x i1> %on, i64 %lane",
        "br i1 %is, label %do, label %end",
        "do:",
        f"%i = extractelement <{width} x i32> %at, i64 %lane",
        f"%p = getelementptr {one}, ptr %base, i32 %i",
        f"%a = extractelement {many} %x, i64 %lane",
        f"%b = extractelement {many} %y, i64 %lane",
        *does,
        f"%put = insertelement {many} %before, {one} %old, i64 %lane",
        "br label %end",
        "end:",
        f"%after = phi {many} [%before, %head], [%put, %do]",
        "%next = add i64 %lane, 1",
        f"%more = icmp ult i64 %next, {width}",
        "br i1 %more, label %head, label %done",
        "done:",
        f"ret {many} %after",
        "}",
    ]
    return name, "\n".join(lines)
