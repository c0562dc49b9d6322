"""Statements of one thread: those without a barrier or an exchange inside.

In       a statement
Out      its lines, in the piece that runs
Changes  the text under construction
Next     together.py (statements inside of which threads meet), exchanges.py (where they meet)
"""

from __future__ import annotations

from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.errors import NotCompiled
from hcq.emu.metal.shader.expressions import spelled
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.pieces import Variable
from hcq.emu.metal.shader.syntax import Function
from hcq.emu.metal.shader.threadgroup_memory import ThreadgroupMemory
from hcq.emu.metal.shader.typed import Made, Value
from hcq.emu.metal.shader.types import Type


class Statements(ThreadgroupMemory):
    """What a thread does for itself."""

    def __init__(self, source: Source, kernel: Function) -> None:
        super().__init__(source, kernel)
        self.live: Variable | None = None
        # of the functions around: the result, and where they end
        self.results: list[tuple[Variable, str]] = []

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
            kind, before = spelled(whole.kind), self.got(whole).text
            made = f"insertelement {kind} {before}, {spelled(value.kind)} {value.text}, i32 {number}"
            self.put(whole, self.word(made))
            return
        place = self.written(it.target)
        self.store(place, self.converted(self.value(it.value), place.kind))

    def branch(self, it: syntax.If) -> None:
        """Each thread for itself."""
        yes, no, after = (self.fresh(stem) for stem in ("then", "else", "after"))
        self.say(f"br i1 {self.truth(it.condition)}, label %{yes}, label %{no}")
        for label, body in ((yes, it.then), (no, it.otherwise)):
            self.label(label)
            self.statements(body)
            self.jump(after)
        self.label(after)

    def loop(self, it: syntax.For) -> None:
        """Each thread for itself."""
        head, body, after = (self.fresh(stem) for stem in ("head", "body", "after"))
        low = self.converted(self.value(it.low), it.kind)
        counter = self.variable_of(it.name, it.kind)
        self.put(counter, low.text)
        self.scopes.append({it.name: counter})
        self.jump(head)
        self.label(head)
        self.say(f"br i1 {self.truth(it.condition)}, label %{body}, label %{after}")
        self.label(body)
        self.statements(it.body)
        step = self.converted(self.value(it.step), it.kind)
        self.put(counter, self.operated("+", self.got(counter), step).text)
        self.jump(head)
        self.label(after)
        self.scopes.pop()

    def give(self, it: syntax.Return) -> None:
        """Out of a function, or the end of a thread."""
        if self.results:
            assert it.value is not None
            result, end = self.results[-1]
            self.put(result, self.converted(self.value(it.value), result.kind).text)
            if end:
                self.jump(end)
                self.label(self.fresh("never"))
            return
        assert self.piece is not None
        if self.live is not None:
            self.put(self.live, "false")
        self.jump(f"{self.piece.name}.end")
        self.label(self.fresh("never"))

    def inlined(self, function: Function, given: list[Value], end: str) -> Variable:
        """Its statements; the variable that has its result. end: where they lead, "" where all threads go through."""
        assert function.result is not None
        scopes, at, result = self.scopes, self.at, self.variable_of(function.name, function.result)
        names: dict[str, Made] = {}
        for parameter, value in zip(function.parameters, given):
            if value.number is not None:
                names[parameter.name] = value
                continue
            one = self.variable_of(parameter.name, parameter.kind)
            self.put(one, value.text)
            names[parameter.name] = one
        self.scopes = [names]
        self.results.append((result, end))
        self.statements(function.body)
        self.results.pop()
        if end:
            self.jump(end)
            self.label(end)
        self.scopes, self.at = scopes, at
        return result
