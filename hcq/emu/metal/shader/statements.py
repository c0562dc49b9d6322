"""Statements: conditions and loops, of all threads of a group, or under masks where they part.

In       a statement
Out      its lines
Changes  the text under construction
Next     exchanges.py (barriers), lanes.py (expressions), groups.py (the whole text)

Where all threads have one condition, it is a branch. Where each has its own, threads for which it does not hold are
masked out; a loop goes round until no thread is left in it. Around a barrier conditions are of all threads.
"""

from __future__ import annotations

from hcq.emu.compiled.symbols import Symbol
from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.errors import NotCompiled
from hcq.emu.metal.shader.exchanges import Exchanges
from hcq.emu.metal.shader.lanes import BOOLEAN
from hcq.emu.metal.shader.meetings import meets, returns, returns_early
from hcq.emu.metal.shader.pieces import Variable
from hcq.emu.metal.shader.syntax import Function, Statement
from hcq.emu.metal.shader.typed import BARRIERS, Made, Value
from hcq.emu.metal.shader.types import BOOL, Type

MOST_ROUNDS = 1 << 16  # of loops inside each other, none of which looks whether to stop
PARTED = "threads that part around a barrier"


class Statements(Exchanges):
    """Every statement."""

    results: list[tuple[Variable, Symbol | None]]  # of the functions around: the result, and who called
    rounds = 1  # how often the loops around go, since one that looks whether to stop

    def statement(self, it: Statement) -> None:
        if isinstance(it, syntax.If | syntax.For) and meets([it]):
            self.leave()
            self.branch(it) if isinstance(it, syntax.If) else self.loop(it)
            self.leave()
            return
        if isinstance(it, syntax.Do) and it.value.name in BARRIERS:
            if self.results:
                raise NotCompiled("a function in which threads meet")
            if "mem_threadgroup" not in repr(it.value):
                raise NotCompiled("a barrier that does not order threadgroup memory")
            self.barrier()
            return
        self.enter()
        match it:
            case syntax.Declare():
                value = None if it.value is None else self.converted(self.value(it.value), it.kind)
                made = self.variable_of(it.name, it.kind, it)
                zero = self.constant(0, Type(it.kind.scalar)).text
                self.put(made, (zero,) * it.kind.lanes if value is None else value.text)
                self.scopes[-1][it.name] = made
            case syntax.Assign():
                self.assign(it)
            case syntax.If():
                self.branch(it)
            case syntax.For():
                self.loop(it)
            case syntax.Return():
                self.give(it)
            case syntax.Do():
                self.product(*self.product_of(it.value))

    def assign(self, it: syntax.Assign) -> None:
        """To a variable, or into memory."""
        if isinstance(it.target, syntax.Name):
            one = self.variable(it.target.name)
            if not isinstance(one, Variable):
                raise NotCompiled(f"an assignment to {it.target.name}")
            self.put(one, self.converted(self.value(it.value), one.kind).text)
            return
        if isinstance(it.target, syntax.Index) and isinstance(it.target.base, syntax.Member):
            name, number = self.element_of(it.target)
            whole = self.variable(name)
            assert isinstance(whole, Variable)
            value = self.converted(self.value(it.value), Type(whole.kind.scalar))
            lanes = list(self.got(whole).text)
            lanes[number] = value.text
            self.put(whole, tuple(lanes))
            return
        place = self.written(it.target)
        self.store(place, self.converted(self.value(it.value), place.kind))

    # ------------------------------------------------------------ conditions

    def branch(self, it: syntax.If) -> None:
        """One arm, or both under masks."""
        condition, is_outside = self.truth(it.condition), self.piece is None
        before, level, stretch = self.mask, self.level, self.stretch
        ends = [stretch] * (not it.otherwise)
        if condition.is_vector:
            if is_outside:
                raise NotCompiled(PARTED)
            for body, held in ((it.then, condition), (it.otherwise, self.opposite(condition))):
                if body:
                    self.masked(body, self.both_of(before, held))
                    self.mask, self.level = before, level
        else:
            yes, no, after = (self.fresh(stem) for stem in ("then", "else", "after"))
            self.fork(condition.text, yes, no)
            for label, body in ((yes, it.then), (no, it.otherwise)):
                self.label(label)
                self.stretch = stretch
                self.statements(body)
                ends.append(self.stretch)
                if is_outside:
                    self.leave()
                self.mask = before
                self.jump(after)
            self.label(after)
        for one in ends:
            if one != self.stretch:
                self.join(one, self.stretch)
        if returns([it]) and self.live is not None and not is_outside:
            self.mask = self.both_of(before, self.got(self.live).text)

    def masked(self, body: list[Statement], mask: Symbol | None) -> None:
        """Statements of some threads, if there are any."""
        inside, after = self.fresh("inside"), self.fresh("after")
        self.levels += 1
        self.mask, self.level = mask, self.levels
        self.fork(self.some(mask), inside, after)
        self.label(inside)
        self.statements(body)
        self.jump(after)
        self.label(after)

    # ------------------------------------------------------------ loops

    def loop(self, it: syntax.For) -> None:
        """Until no thread is left in it."""
        before, level, stretch, is_outside = self.mask, self.level, self.stretch, self.piece is None
        head, body, after = (self.fresh(stem) for stem in ("head", "body", "after"))
        own = (*self.path, id(it), "parted")  # each thread leaves by itself
        is_parted = own in self.varying
        low = self.converted(self.value(it.low), it.kind)
        left: Variable | None = None
        if is_parted:
            if is_outside:
                raise NotCompiled(PARTED)
            left = self.variable_of("left", BOOL, it)
            self.put(left, self.truth_mask())
            self.levels += 1
            self.level = self.levels
            self.mask = None
        counter = self.variable_of(it.name, it.kind, it)
        self.put(counter, low.text)
        self.scopes.append({it.name: counter})
        self.jump(head)
        self.label(head)
        rounds = self.rounds
        self.look_in(it)
        if left is not None:
            self.mask = self.got(left).text
        condition = self.truth(it.condition)
        if left is not None:
            self.mask = self.both_of(self.mask, condition)
            assert self.mask is not None
            kind, cell = self.kind(BOOLEAN), left.cells()[0]
            self.say(f"store {kind} {self.w.wide(self.mask)}, ptr {self.place_of(left, cell, True)}")
            self.fork(self.some(self.mask), body, after)
        else:
            if condition.is_vector:
                self.varying.add(own)
                self.is_wrong = True
            self.fork("true" if condition.is_vector else condition.text, body, after)
        self.label(body)
        self.statements(it.body)
        step = self.converted(self.value(it.step), it.kind)
        if is_outside:
            self.leave()
        self.put(counter, self.operated("+", self.got(counter), step).text)
        self.jump(head)
        self.label(after)
        if self.stretch != stretch:
            self.join(self.stretch, stretch)
        self.stretch = stretch
        self.mask, self.level, self.rounds = before, level, rounds
        self.scopes.pop()

    def look_in(self, it: syntax.For) -> None:
        """A loop that may last looks in every round whether the kernel is to end."""
        high = it.condition.right if isinstance(it.condition, syntax.Binary) else None
        if isinstance(it.low, syntax.Number) and isinstance(high, syntax.Number):
            self.rounds *= max(1, int(high.value - it.low.value))
            if self.rounds <= MOST_ROUNDS:
                return
        self.rounds = 1
        asked, goes_on = self.word("load volatile i64, ptr %stop"), self.fresh("goes")
        self.fork(self.word(f"icmp ne i64 {asked}, 0"), "stopped", goes_on)
        self.label(goes_on)

    # ------------------------------------------------------------ functions

    def give(self, it: syntax.Return) -> None:
        """Out of a function, or the end of a thread."""
        if self.results:
            assert it.value is not None
            result, mask = self.results[-1]
            value = self.converted(self.value(it.value), result.kind)
            level = self.level
            if self.mask is not mask and self.level == result.level:
                self.level = -1  # some have returned before
            self.put(result, value.text)
            self.level = level
        if self.live is not None:
            self.end(self.live)

    def end(self, live: Variable) -> None:
        """The threads that are there do nothing more."""
        rest = self.w.constant(False, BOOLEAN)
        if self.mask is not None:
            rest = self.w.binary("and", BOOLEAN, self.got(live).text, self.opposite(self.mask))
        level, self.level = self.level, live.level
        self.put(live, self.vector_of(rest))
        self.level = level

    def called(self, it: syntax.Call, function: Function, given: list[Value]) -> Value:
        """A function is written where it is called."""
        assert function.result is not None
        scopes, at, path, live, mask = self.scopes, self.at, self.path, self.live, self.mask
        self.path = (*path, id(it))
        result = self.variable_of(function.name, function.result, function)
        names: dict[str, Made] = {}
        for parameter, value in zip(function.parameters, given):
            names[parameter.name] = value
            if value.number is None:
                one = self.variable_of(parameter.name, parameter.kind, parameter)
                self.put(one, value.text)
                names[parameter.name] = one
        self.live = None
        if returns_early(function.body):
            self.live = self.variable_of("live", BOOL, function)
            self.put(self.live, self.truth_mask())
        self.scopes = [names]
        self.results.append((result, mask))
        self.statements(function.body)
        self.results.pop()
        self.scopes, self.at, self.path, self.live, self.mask = scopes, at, path, live, mask
        return self.got(result)
