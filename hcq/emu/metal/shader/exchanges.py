"""Exchanges: barriers, and what threads of a SIMD group give each other.

In       calls at which threads meet
Out      what each thread is given there
Changes  the text under construction
Next     statements.py (what is around them), threadgroup_memory.py (epochs)
Source   Metal Shading Language Specification: "Threadgroup and SIMD-group Synchronization Functions", "SIMD-group
         Functions"

A vector has whole SIMD groups, so what their threads exchange is a shuffle of its lanes. What machine.py finds is found
here, too: barriers that some threads do not reach, exchanges with threads that are not there.
"""

from __future__ import annotations

import numpy as np

from hcq.emu.compiled.symbols import Symbol
from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.accesses import Accesses
from hcq.emu.metal.shader.errors import NotCompiled
from hcq.emu.metal.shader.lanes import BOOLEAN, SINGLE, Site
from hcq.emu.metal.shader.machine import COLUMNS, MATRIX, ROWS, SIMD
from hcq.emu.metal.shader.pieces import Variable
from hcq.emu.metal.shader.typed import Value
from hcq.emu.metal.shader.types import Type

_PARTED = "some threads of a group reach a threadgroup_barrier that the others do not."
_OUTSIDE = "simd_shuffle_xor by {index} reaches a thread that is not in the SIMD group."
_NO_GROUPS = "a matrix of SIMD groups, of which {index} threads are no whole number."
_NOT_WHOLE = "a product of matrices that some threads of a SIMD group do not reach."
_NOT_ALL = "some threads of a SIMD group reach a simdgroup_barrier that the others do not."
_NOT_THERE = "simd_shuffle_xor asks a thread that is not there."


class Exchanges(Accesses):
    """What threads do where they meet."""

    def shuffled(self, one: Symbol, lanes: list[int]) -> Symbol:
        """For each thread the number of another one of its SIMD group, which has these numbers."""
        order = ", ".join(f"i32 {lane // SIMD * SIMD + lanes[lane % SIMD]}" for lane in range(self.width))
        kind = self.kind(one.dtype)
        return self.of(
            self.word(f"shufflevector {kind} {one.text}, {kind} poison, <{self.width} x i32> <{order}>"),
            one.dtype,
        )

    def shuffle(self, it: syntax.Call, value: Value, by: Value) -> Value:
        if by.number is None:
            raise NotCompiled("simd_shuffle_xor by a number that is not written")
        if value.kind.lanes > 1:
            raise NotCompiled(f"simd_shuffle_xor of a {value.kind}")
        if not value.text.is_vector:
            return value
        number = int(by.number)
        if number >= SIMD or any(thread ^ number >= self.threads for thread in range(self.threads)):
            self.guard(self.of(self.some(self.mask), BOOLEAN, False), Site(_OUTSIDE), number)
            number %= SIMD
        others = [lane ^ number for lane in range(SIMD)]
        if self.mask is not None:
            there = self.shuffled(self.truth_mask(), others)
            wrong = self.w.binary("and", BOOLEAN, self.truth_mask(), self.opposite(there))
            self.guard(wrong, Site(_NOT_THERE), 0)
        return Value(self.shuffled(value.text, others), value.kind)

    def simd(self, name: str, values: list[Value], kind: Type) -> Value:
        raise NotCompiled(f"simd_{name}")

    def number_function(self, name: str, values: list[Value], kind: Type) -> Value:
        signs = {"min": "<", "max": ">", "clamp": "><"}.get(name, "")
        if not signs or kind.is_float:
            raise NotCompiled(f"{name} of a {kind}")
        found = values[0]
        for other, sign in zip(values[1:], signs):
            is_mine = self.operated(sign, found, other).text
            found = Value(self.w.select(is_mine, found.text, other.text), kind)
        return found

    def kept(self, value: Value) -> Value:
        return value

    def fence(self, call: syntax.Call) -> None:
        """A barrier of SIMD groups, or a fence. Threads run in vectors of whole SIMD groups, one after the other."""
        if call.name == "atomic_thread_fence":
            self.say("fence seq_cst")
            return
        if self.shared:  # it orders some accesses of it, which nothing remembers here
            raise NotCompiled("a barrier of SIMD groups beside threadgroup memory")
        if self.threads % SIMD:
            raise NotCompiled("a barrier of SIMD groups that are not whole")
        if self.mask is not None:
            self.whole_groups(_NOT_ALL)

    def product(self, d: Value, a: Value, b: Value, c: Value) -> None:
        """d = a @ b + c of matrices of each SIMD group; rounded as in machine.py."""
        assert isinstance(d, Variable) and isinstance(c, Variable)
        if self.threads % SIMD:
            self.guard(self.of(self.some(self.mask), BOOLEAN, False), Site(_NO_GROUPS), self.threads)
        if self.mask is not None:
            self.whole_groups(_NOT_WHOLE)
        sums = [self.vector_of(one) for one in self.got(c).text]
        left, right = ([self.as_float(one, value) for one in self.lanes_of(value)] for value in (a, b))
        places = {(int(row), int(column)): lane for lane, (row, column) in enumerate(zip(ROWS, COLUMNS))}
        for k in range(MATRIX):
            of_row = [places[int(ROWS[lane]), k // 2 * 2] for lane in range(SIMD)]
            of_column = [places[k, int(COLUMNS[lane])] for lane in range(SIMD)]
            factor = self.shuffled(left[k % 2], of_row)
            for number in range(2):
                made = self.w.binary("fmul", SINGLE, factor, self.shuffled(right[number], of_column))
                sums[number] = self.w.binary("fadd", SINGLE, sums[number], made)
        self.put(d, tuple(sums))

    def whole_groups(self, what: str) -> None:
        """All threads of a SIMD group are there, or none; else the kernel stops."""
        groups = self.width // SIMD
        whole = self.word(f"bitcast {self.kind(BOOLEAN)} {self.truth_mask().text} to <{groups} x i32>")
        for group in range(groups):
            one = self.word(f"extractelement <{groups} x i32> {whole}, i32 {group}")
            none, every = (self.word(f"icmp eq i32 {one}, {number}") for number in (0, -1))
            either = self.word(f"or i1 {none}, {every}")
            self.guard(self.word(f"xor i1 {either}, true"), Site(what), 0)

    def lanes_of(self, value: Value) -> tuple[Symbol, ...]:
        """What threads have of a matrix."""
        assert isinstance(value, Variable)
        found: tuple[Symbol, ...] = self.got(value).text
        return found

    def as_float(self, one: Symbol, matrix: Value) -> Symbol:
        """Elements of a factor."""
        if matrix.kind.scalar == "bfloat":
            wide = self.w.convert(one, np.dtype(np.uint32))
            one = self.w.binary("shl", wide.dtype, wide, np.array(16, np.uint32)).view(SINGLE)
        return self.vector_of(self.w.convert(one, SINGLE))

    def barrier(self) -> None:
        """All threads of the group, or none; then another epoch."""
        self.leave()
        if self.live is not None:
            self.meet_again(self.live)
        self.new_stretch()
        self.next_epoch()

    def meet_again(self, live: Variable) -> None:
        """Threads may have ended: all of a group, or none."""
        self.say("store i1 true, ptr %every")
        self.say("store i1 false, ptr %some")
        self.live = None
        self.enter()
        there, inside = self.got(live).text, self.mask
        missing = self.both_of(inside, self.opposite(there))
        present = self.both_of(inside, there)
        assert missing is not None
        for name, verb, text in (
            ("every", "and", self.word(f"xor i1 {self.some(missing)}, true")),
            ("some", "or", self.some(present)),
        ):
            old = self.word(f"load i1, ptr %{name}")
            self.say(f"store i1 {self.word(f'{verb} i1 {old}, {text}')}, ptr %{name}")
        self.leave()
        self.live = live
        every, some = (self.word(f"load i1, ptr %{name}") for name in ("every", "some"))
        self.guard(self.word(f"icmp ne i1 {every}, {some}"), Site(_PARTED), 0)
        on = self.fresh("on")
        self.fork(some, on, "group.end")
        self.label(on)
