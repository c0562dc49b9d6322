"""Exchanges: barriers, and what threads of a SIMD group give each other.

In       the calls at which threads meet (meetings.py)
Out      what each thread was given there
Changes  the text under construction: the piece before ends, another one begins
Next     together.py (loops and conditions around them), threadgroup_memory.py (epochs)
Source   Metal Shading Language Specification: "Threadgroup and SIMD-group Synchronization Functions", "SIMD-group
         Functions"

What machine.py finds is found here, too: barriers that some threads do not reach, exchanges with threads that are not
there.
"""

from __future__ import annotations

from typing import Any

from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.errors import NotCompiled
from hcq.emu.metal.shader.expressions import Site, spelled
from hcq.emu.metal.shader.machine import COLUMNS, MATRIX, ROWS, SIMD
from hcq.emu.metal.shader.meetings import meets, returns_early
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.pieces import Variable
from hcq.emu.metal.shader.statements import Statements
from hcq.emu.metal.shader.syntax import Function, Statement
from hcq.emu.metal.shader.typed import Made, Value
from hcq.emu.metal.shader.types import Type

_PARTED = "some threads of a group reach a threadgroup_barrier that the others do not."
_OUTSIDE = "simd_shuffle_xor by {index} reaches a thread that is not in the SIMD group."
_NO_GROUPS = "a matrix of SIMD groups, of which {index} threads are no whole number."
_NOT_WHOLE = "a product of matrices that some threads of a SIMD group do not reach."
_NOT_THERE = "simd_shuffle_xor asks a thread that is not there."


class Exchanges(Statements):
    """What threads do where they meet."""

    def __init__(self, source: Source, kernel: Function) -> None:
        super().__init__(source, kernel)
        self.met: dict[int, Variable] = {}  # what a call gave at which threads met, by the call

    def meet(self, call: syntax.Call) -> None:
        """Make a call for all threads, and remember what each was given."""
        self.enter()
        self.met.pop(id(call), None)
        value = self.call(call)
        made = self.variable_of("met", value.kind)
        self.put(made, value.text)
        self.met[id(call)] = made

    def called(self, it: syntax.Call, function: Function, given: list[Value]) -> Value:
        """A function in which nobody meets is written where it is called."""
        known = self.met.get(id(it))
        if known is not None:
            return self.got(known)
        if not meets(function.body, self.source.functions):
            return self.got(self.inlined(function, given, self.fresh("returned")))
        if returns_early(function.body):
            raise NotCompiled(f"{function.name}, in which threads meet and return early")
        return self.got(self.inlined(function, given, ""))

    def shuffle(self, it: syntax.Call, value: Value, by: Value) -> Value:
        known = self.met.get(id(it))
        if known is not None:
            return self.got(known)
        if by.number is None:
            raise NotCompiled("simd_shuffle_xor by a number that is not written")
        mine = self.variable_of("mine", value.kind)
        self.put(mine, value.text)
        self.leave()
        self.enter()
        number = int(by.number)
        other = self.word(f"xor i64 {self.thread}, {number}")
        inside = "false" if number >= SIMD else self.word(f"icmp ult i64 {other}, %threads")
        self.guard(inside, Site(_OUTSIDE), str(number))
        for mask in self.masks:
            there = self.word(f"load i1, ptr {self.slot(mask, other)}")
            self.guard(there, Site(_NOT_THERE), "0")
        return self.let(f"load {spelled(value.kind)}, ptr {self.slot(mine, other)}", value.kind)

    def matrices_in(self, it: Statement) -> list[Made]:
        """The matrices that there are by now of which a statement changes an element."""
        match it:
            case syntax.Assign(target=syntax.Index(base=syntax.Member(base=syntax.Name(name=name)))):
                return [scope[name] for scope in self.scopes if name in scope]
            case syntax.If():
                return [made for one in (*it.then, *it.otherwise) for made in self.matrices_in(one)]
            case syntax.For():
                return [made for one in it.body for made in self.matrices_in(one)]
        return []

    def product(self, d: Value, a: Value, b: Value, c: Value) -> None:
        """d = a @ b + c of matrices of each SIMD group; rounded as in machine.py."""
        assert isinstance(a, Variable) and isinstance(b, Variable)
        if self.piece is not None and (a in self.piece.written or b in self.piece.written):
            self.leave()
        self.enter()
        assert self.piece is not None
        self.piece.shared |= {a, b}
        whole = self.word(f"and i64 %threads, {SIMD - 1}")
        self.guard(self.word(f"icmp eq i64 {whole}, 0"), Site(_NO_GROUPS), "%threads")
        for mask in self.masks:
            for lane in range(SIMD):
                other = self.word(f"or i64 {self.word(f'and i64 {self.thread}, -{SIMD}')}, {lane}")
                self.guard(self.word(f"load i1, ptr {self.slot(mask, other)}"), Site(_NOT_WHOLE), "0")
        assert isinstance(c, Variable) and isinstance(d, Variable)
        sums = self.got(c)
        lanes = [self.lane(sums, number) for number in range(2)]
        rows, columns = _threads_of(ROWS), _threads_of(COLUMNS)
        in_row = self.word(f"and i64 {self.thread}, {~(SIMD - 1) | rows}")
        in_column = self.word(f"and i64 {self.thread}, {~(SIMD - 1) | columns}")
        for k in range(MATRIX):
            of_k, at_k = (
                next(t for t in range(SIMD) if not t & mine and places[t] == at)
                for mine, places, at in ((rows, COLUMNS, k // 2 * 2), (columns, ROWS, k))
            )
            left, right = self.held(a, in_row, of_k), self.held(b, in_column, at_k)
            factor = self.as_float(self.lane(left, k % 2))
            for number in range(2):
                made = self.operated("*", factor, self.as_float(self.lane(right, number)))
                lanes[number] = self.operated("+", lanes[number], made)
        found = self.vector(lanes, d.kind).text
        if d in (a, b):
            raise NotCompiled("a product of matrices that takes the place of a factor")
        self.put(d, found)

    def held(self, one: Variable, group: str, lane: int) -> Value:
        """What a thread of the same row, or of the same column, has of a matrix."""
        other = self.word(f"or i64 {group}, {lane}")
        return self.let(f"load {spelled(one.kind)}, ptr {self.slot(one, other)}", one.kind)

    def as_float(self, value: Value) -> Value:
        """An element of a factor."""
        if value.kind.scalar != "bfloat":
            return self.converted(value, Type("float"))
        wide = self.word(f"shl i32 {self.word(f'zext i16 {value.text} to i32')}, 16")
        return self.let(f"bitcast i32 {wide} to float", Type("float"))

    def barrier(self) -> None:
        """All threads of the group, or none; then another epoch."""
        self.leave()
        if self.masks:
            every, some = self.flag("every", "true"), self.flag("some", "false")
            self.enter(())
            there = "true"
            for mask in self.masks:
                there = self.word(f"and i1 {there}, {self.got(mask).text}")
            for one, word in ((every, "and"), (some, "or")):
                self.put(one, self.word(f"{word} i1 {self.got(one).text}, {there}"))
            self.leave()
            same = self.word(f"icmp eq i1 {self.got(every).text}, {self.got(some).text}")
            self.guard(same, Site(_PARTED), "0")
        self.next_epoch()


def _threads_of(places: Any) -> int:
    """The bits of a thread's number in its SIMD group that say which row it has, or which columns."""
    return sum(1 << bit for bit in range(SIMD.bit_length() - 1) if places[1 << bit])
