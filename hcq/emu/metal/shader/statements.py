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
from hcq.emu.metal.shader.meetings import leaves, meets, returns, returns_early
from hcq.emu.metal.shader.pieces import Variable
from hcq.emu.metal.shader.syntax import Function, Statement
from hcq.emu.metal.shader.typed import ATOMIC, BARRIERS, FENCES, PRODUCT, Made, Value
from hcq.emu.metal.shader.types import BOOL, INT, Type

MOST_ROUNDS = 1 << 16  # of loops inside each other, none of which looks whether to stop
PARTED = "threads that part around a barrier"


class Statements(Exchanges):
    """Every statement."""

    results: list[tuple[Variable, Symbol | None]]  # of the functions around: the result, and who called
    loops: list[
        tuple[Variable | None, Variable | None]
    ]  # around: who has not left, and not gone on to the next round
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
                if it.sizes or it.kind.space:
                    raise NotCompiled("an array of a thread's own, or a variable that is a pointer")
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
            case syntax.Leave():
                self.leave_loop(it)
            case syntax.Do():
                self.do(it.value)

    def do(self, call: syntax.Call) -> None:
        """A call for what it does."""
        if call.name == PRODUCT:
            self.product(*self.product_of(call))
        elif call.name in FENCES:
            self.fence(call)
        elif call.name in self.source.functions or ATOMIC.fullmatch(call.name):
            self.call(call)
        else:
            self.fail(f"{call.name} is not a call that is known here for what it does")

    def assign(self, it: syntax.Assign) -> None:
        """To a variable, or into memory."""
        if isinstance(it.target, syntax.Name) and isinstance(self.find(it.target.name), Value):
            self.put_variable(it.target.name, self.value(it.value))
            return
        if (
            isinstance(it.target, syntax.Index | syntax.Member)
            and (found := self.part_of(it.target)) is not None
        ):
            name, number = found
            whole = self.variable(name)
            if not isinstance(whole, Variable):
                raise NotCompiled(f"an assignment to {name}")
            value = self.converted(self.value(it.value), Type(whole.kind.scalar))
            lanes = list(self.got(whole).text)
            lanes[number] = value.text
            self.put(whole, tuple(lanes))
            return
        place = self.written(it.target)
        self.store(place, self.converted(self.value(it.value), place.kind))

    def put_variable(self, name: str, value: Value) -> None:
        one = self.variable(name)
        if not isinstance(one, Variable):
            raise NotCompiled(f"an assignment to {name}")
        self.put(one, self.converted(value, one.kind).text)

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
        self.rest_of([it], before, is_outside)

    def rest_of(self, body: list[Statement], before: Symbol | None, is_outside: bool) -> None:
        """The mask behind statements in which threads may have returned, or left a loop."""
        if is_outside:
            return
        gone: list[Variable] = []
        if returns(body) and self.live is not None:
            gone.append(self.live)
        if self.loops:
            left, on = self.loops[-1]
            gone += [
                one for one, wanted in ((left, False), (on, True)) if one is not None and leaves(body, wanted)
            ]
        for one in gone:
            before = self.both_of(before, self.got(one).text)
        if gone:
            self.mask = before

    def leave_loop(self, it: syntax.Leave) -> None:
        """break, or continue: the threads that are there do no more of this loop, or of this round."""
        if not self.loops:
            self.fail("a break or continue outside of any loop")
        one = self.loops[-1][it.is_continue]
        assert one is not None
        self.end(one)
        self.mask = self.vector_of(self.w.constant(False, BOOLEAN))

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
        may_return = returns(it.body) and self.live is not None
        if leaves(it.body, False) or leaves(it.body, True) or may_return:
            self.varying.add(own)
        is_parted = own in self.varying
        low = self.converted(self.value(it.low), it.kind)
        left: Variable | None = None
        on: Variable | None = None
        if is_parted:
            if is_outside:
                raise NotCompiled(PARTED)
            left = self.variable_of("left", BOOL, it)
            self.put(left, self.truth_mask())
            self.levels += 1
            self.level = self.levels
            self.mask = None
            if leaves(it.body, True):
                on = self.variable_of("on", BOOL, it)
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
        if on is not None:
            self.put_all(on)
        self.loops.append((left, on))
        self.statements(it.body)
        self.loops.pop()
        if left is not None and (leaves(it.body, False) or on is not None or may_return):
            self.mask = self.got(left).text
            if may_return and self.live is not None:
                self.mask = self.both_of(self.mask, self.got(self.live).text)
                self.put_mask(left, self.mask)
        self.statements(it.after)
        step = self.converted(self.value(it.step), it.kind)
        if is_outside:
            self.leave()
        self.put(counter, step.text)
        self.jump(head)
        self.label(after)
        if self.stretch != stretch:
            self.join(self.stretch, stretch)
        self.stretch = stretch
        self.mask, self.level, self.rounds = before, level, rounds
        self.scopes.pop()
        self.rest_of([it], before, is_outside)

    def put_all(self, one: Variable) -> None:
        """True for every thread, whoever is there."""
        self.put_mask(one, self.vector_of(self.w.constant(True, BOOLEAN)))

    def put_mask(self, one: Variable, mask: Symbol | None) -> None:
        """A mask for every thread, whoever is there."""
        assert mask is not None
        if one.is_uniform:
            self.varying.add(one.key)
            self.is_wrong = self.is_wrong or one in self.touched_variables
            one.part()
        self.say(
            f"store {self.kind(BOOLEAN)} {self.w.wide(mask)}, ptr {self.place_of(one, one.cells()[0], True)}"
        )

    def look_in(self, it: syntax.For) -> None:
        """A loop that may last looks in every round whether the kernel is to end."""
        high = it.condition.right if _counts_up(it) and isinstance(it.condition, syntax.Binary) else None
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

    def called(self, it: syntax.Call, function: Function, given: list[Made]) -> Value:
        """A function is written where it is called."""
        if function.result is None:
            raise NotCompiled("a function that gives nothing")
        scopes, at, path, live, mask = self.scopes, self.at, self.path, self.live, self.mask
        self.path = (*path, id(it))
        result = self.variable_of(function.name, function.result, function)
        names: dict[str, Made] = {}
        loops, self.loops = self.loops, []
        for parameter, value in zip(function.parameters, given):
            names[parameter.name] = value
            if isinstance(value, Value) and value.number is None:
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
        self.loops = loops
        self.scopes, self.at, self.path, self.live, self.mask = scopes, at, path, live, mask
        return self.got(result)


def _counts_up(it: syntax.For) -> bool:
    """Whether a loop goes from its first number up to another one, one by one."""
    is_below = isinstance(it.condition, syntax.Binary) and it.condition.sign in ("<", "<=")
    by_one = (
        isinstance(it.step, syntax.Binary) and it.step.sign == "+" and it.step.right == syntax.Number(1, INT)
    )
    return is_below and by_one and _is(it.name, it.condition) and _is(it.name, it.step)


def _is(name: str, it: syntax.Expression) -> bool:
    """Whether the left side of this is a variable."""
    return isinstance(it, syntax.Binary) and isinstance(it.left, syntax.Name) and it.left.name == name
