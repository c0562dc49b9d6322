"""Together: loops and conditions with a barrier inside, which all threads of a group run at once.

In       statements
Out      their lines; each thread has a mask there that says whether it takes part
Changes  the text under construction
Next     statements.py (those of one thread), meetings.py (which are which), groups.py (the whole text)
"""

from __future__ import annotations

from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.errors import NotCompiled
from hcq.emu.metal.shader.exchanges import Exchanges
from hcq.emu.metal.shader.meetings import meetings, meets
from hcq.emu.metal.shader.pieces import Variable
from hcq.emu.metal.shader.syntax import Expression, Statement
from hcq.emu.metal.shader.typed import BARRIERS
from hcq.emu.metal.shader.types import BOOL


class Together(Exchanges):
    """Every statement, by itself or together."""

    def statement(self, it: Statement) -> None:
        for call in meetings(it, self.source.functions):
            self.meet(call)
        if self.piece is not None and self.piece.shared & set(self.matrices_in(it)):
            self.leave()  # others may still have to read them
        match it:
            case syntax.Declare():
                made = self.variable_of(it.name, it.kind)
                self.enter()
                value = None if it.value is None else self.converted(self.value(it.value), it.kind)
                self.put(made, "zeroinitializer" if value is None else value.text)
                self.scopes[-1][it.name] = made
            case syntax.Assign():
                self.enter()
                self.assign(it)
            case syntax.If():
                if meets(it.then, self.source.functions) or meets(it.otherwise, self.source.functions):
                    self.branch_together(it)
                else:
                    self.enter()
                    self.branch(it)
            case syntax.For():
                if meets(it.body, self.source.functions):
                    self.loop_together(it)
                else:
                    self.enter()
                    self.loop(it)
            case syntax.Return():
                self.enter()
                self.give(it)
            case syntax.Do():
                if it.value.name in BARRIERS:
                    if "mem_threadgroup" not in repr(it.value):
                        raise NotCompiled("a barrier that does not order threadgroup memory")
                    self.barrier()
                else:
                    self.product(*self.product_of(it.value))

    def masked(self, condition: Expression, holds: bool, inside: str, after: str) -> Variable:
        """A mask of the threads for which a condition holds, or does not. Where there are some, on to `inside`."""
        mask, some = self.variable_of("mask", BOOL), self.flag("some", "false")
        self.enter(())
        self.put(mask, "false")
        self.leave()
        self.enter()
        held = self.truth(condition)
        if not holds:
            held = self.word(f"xor i1 {held}, true")
        self.put(mask, held)
        self.put(some, self.word(f"or i1 {self.got(some).text}, {held}"))
        self.leave()
        self.say(f"br i1 {self.got(some).text}, label %{inside}, label %{after}")
        self.label(inside)
        return mask

    def inside_of(self, mask: Variable) -> tuple[Variable, ...]:
        """The masks of statements under this one, which holds for none that those around leave out."""
        return (mask,) if self.live is None else (self.live, mask)

    def branch_together(self, it: syntax.If) -> None:
        """Threads meet inside."""
        before = self.masks
        self.enter()
        condition = self.variable_of("condition", BOOL)
        self.put(condition, self.truth(it.condition))
        self.scopes.append({"": condition})
        for body, holds in ((it.then, True), (it.otherwise, False)):
            if not body:
                continue
            inside, after = self.fresh("inside"), self.fresh("after")
            mask = self.masked(syntax.Name("", it.line), holds, inside, after)
            self.masks = self.inside_of(mask)
            self.statements(body)
            self.leave()
            self.jump(after)
            self.label(after)
            self.masks = before
        self.scopes.pop()

    def loop_together(self, it: syntax.For) -> None:
        """Threads meet inside. Where the bounds are numbers, all of them count as one."""
        head, body, after = (self.fresh(stem) for stem in ("head", "body", "after"))
        before, condition = self.masks, it.condition
        as_one = (
            isinstance(it.low, syntax.Number)
            and isinstance(condition, syntax.Binary)
            and isinstance(condition.left, syntax.Name)
            and condition.left.name == it.name
            and isinstance(condition.right, syntax.Number)
        )
        self.leave() if as_one else self.enter()
        low = self.converted(self.value(it.low), it.kind)
        counter = self.variable_of(it.name, it.kind, as_one)
        self.put(counter, low.text)
        self.scopes.append({it.name: counter})
        self.leave()
        self.jump(head)
        self.label(head)
        if as_one:
            self.say(f"br i1 {self.truth(condition)}, label %{body}, label %{after}")
            self.label(body)
        else:
            self.masks = self.inside_of(self.masked(condition, True, body, after))
        self.statements(it.body)
        self.leave() if as_one else self.enter()
        step = self.converted(self.value(it.step), it.kind)
        self.put(counter, self.operated("+", self.got(counter), step).text)
        self.leave()
        self.masks = before
        self.jump(head)
        self.label(after)
        self.scopes.pop()
