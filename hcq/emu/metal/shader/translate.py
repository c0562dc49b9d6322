"""MSL as Python: a kernel's tree becomes a function that does each statement for all threads at once.

In       a Source, one of its kernels
Out      a function (machine, memories and numbers by parameter), and its text; MslError for what does not fit
         together
Next     typed.py (C's types), machine.py (what the text calls), program.py (who runs it)

A value is an array with a number for each thread, or one number that all have. Where threads part, a statement has a
mask: conditions and loops narrow it, assignments and accesses of memory obey it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.meetings import leaves, returns, returns_early
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.syntax import Function, Statement
from hcq.emu.metal.shader.typed import (
    ATOMIC,
    BARRIERS,
    COMPARES,
    FENCES,
    PRODUCT,
    Made,
    Pointer,
    Typed,
    Value,
    reads,
)
from hcq.emu.metal.shader.types import BOOL, LONG, Type, joined

_FUNCTIONS = {
    "sqrt": "np.sqrt",
    "trunc": "np.trunc",
    "floor": "np.floor",
    "ceil": "np.ceil",
    "fabs": "np.abs",
    "isnan": "np.isnan",
}


Place = tuple[int, str]  # of a line of the text: the line of MSL, and the mask of who executes it


def file_name(kernel: Function) -> str:
    """What Python calls the text of a kernel."""
    return f"<{kernel.name}>"


def translate(source: Source, kernel: Function) -> tuple[Callable[..., None], str, list[Place]]:
    """The function of a kernel, its text, and what each line of that is of. It takes a machine and then the kernel's
    parameters in their order, then its threadgroup memories. Raises MslError."""
    writer = _Writer(source)
    for function in source.functions.values():
        writer.function(function)
    writer.kernel(kernel)
    text = "\n".join(writer.lines) + "\n"
    names: dict[str, Any] = {"np": np, **writer.constants}
    exec(compile(text, file_name(kernel), "exec"), names)
    made: Callable[..., None] = names[f"k_{kernel.name}"]
    return made, text, writer.places


class _Writer(Typed):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.lines: list[str] = []
        self.places: list[Place] = []
        self.constants: dict[str, Any] = {}
        self._constant_names: dict[tuple[str, str], str] = {}
        self.count = 0
        self.depth = 0
        self.mask = "m0"
        self.result: Type | None = None
        self.loops: list[
            tuple[str, str]
        ] = []  # those who broke out of each, and those who went on to the next round
        self.ended = ""

    def say(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)
        self.places.append((self.at, self.mask))

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem.replace(':', '_')}_{self.count}"

    def keep(self, text: str, stem: str = "t") -> str:
        """A variable of Python with this value."""
        name = self.fresh(stem)
        self.say(f"{name} = {text}")
        return name

    def constant(self, value: float, kind: Type) -> Value:
        made = np.array(value).astype(kind.numpy)[()] if not isinstance(value, int) else _wrapped(value, kind)
        key = kind.numpy, repr(made)
        name = self._constant_names.get(key)
        if name is None:
            name = self._constant_names[key] = f"K{len(self.constants)}"
            self.constants[name] = made
        return Value(name, kind, made.item())

    # ------------------------------------------------------------ functions

    def function(self, function: Function) -> None:
        scope: dict[str, Made] = {}
        names = []
        for one in function.parameters:
            name = self.fresh(one.name)
            names.append(name)
            if one.kind.space:
                names.append(f"{name}_at")
                at = Value(names[-1], LONG)
                scope[one.name] = Pointer(
                    name, one.kind.element, at, one.is_const, is_variable=one.kind.is_reference
                )
            else:
                scope[one.name] = Value(name, one.kind)
        self.begin(scope, function)
        self.say(f"def f_{function.name}(M, m0, {', '.join(names)}):")
        self.depth = 1
        self.say("returned = None")
        self.body(function)
        if function.result is None:
            self.say("return None")
        elif not function.body or not isinstance(function.body[-1], syntax.Return):
            if not returns(function.body):
                self.fail(f"{function.name} does not end with a return")
            nothing = self.constant(0, Type(function.result.scalar)).text
            lanes = function.result.lanes
            self.say(f"return M.unwind(returned, {nothing if lanes == 1 else f'[{nothing}] * {lanes}'})")
        self.depth = 0

    def begin(self, scope: dict[str, Made], function: Function) -> None:
        """The body of a function, or of a kernel, is next."""
        self.scopes = [scope]
        self.result, self.mask, self.loops = function.result, "m0", []
        self.ended = ""  # the threads that have returned, where some do early

    def body(self, function: Function) -> None:
        """All of it."""
        if returns_early(function.body):
            self.ended = self.keep("False", "ended")
        self.statements(function.body)

    def kernel(self, kernel: Function) -> None:
        scope: dict[str, Made] = {}
        names = []
        for one in kernel.parameters:
            name = self.fresh(one.name)
            names.append(name)
            if one.kind.space:
                is_variable = one.kind.is_reference
                scope[one.name] = Pointer(name, one.kind.element, None, one.is_const, is_variable=is_variable)
            else:
                scope[one.name] = Value(name, one.kind)
        for shared, (kind, _) in kernel.shared.items():
            name, sizes = self.fresh(shared), kernel.shapes[shared]
            names.append(name)
            scope[shared] = Pointer(name, kind, sizes=sizes[1:], is_variable=not sizes)
        for one in kernel.parameters:  # what a reference refers to is a number that all threads have
            where = scope[one.name]
            if one.kind.space == "constant" and one.kind.is_reference and isinstance(where, Pointer):
                scope[one.name] = Value(f"{where.memory}.view({one.kind.numpy!r})[0]", one.kind.element)
        self.begin(scope, kernel)
        self.say(f"def k_{kernel.name}(M, {', '.join(names)}):")
        self.depth = 1
        self.say("m0 = True")
        self.body(kernel)
        self.depth = 0

    # ------------------------------------------------------------ statements

    def statement(self, it: Statement) -> None:
        match it:
            case syntax.Declare():
                self.declare(it)
            case syntax.Assign():
                self.assign(it)
            case syntax.If():
                self.branch(it)
            case syntax.For():
                self.loop(it)
            case syntax.Return():
                self.give(it)
            case syntax.Leave():
                self.leave(it)
            case syntax.Do():
                self.do(it.value)

    def declare(self, it: syntax.Declare) -> None:
        """A variable, an array of a thread's own, a pointer."""
        if it.sizes:
            size = prod(it.sizes) * it.kind.size_bytes
            name = self.keep(f"M.own({it.name!r}, {size})", it.name)
            self.scopes[-1][it.name] = Pointer(name, it.kind, sizes=it.sizes[1:])
            return
        if it.kind.space:
            assert it.value is not None
            place = self.pointer(it.value)
            if place.kind != it.kind.element or place.sizes:
                self.fail(f"{it.name} is another pointer than what it begins as")
            self.scopes[-1][it.name] = (
                place if place.index is None else replace(place, index=self.kept(place.index))
            )
            return
        if it.value is None:
            zero = self.constant(0, Type(it.kind.scalar)).text
            line = self.at
            if it.kind.is_matrix:
                text = f"[{', '.join([zero] * it.kind.lanes)}]"
            elif it.kind.lanes == 1:
                text = f"M.unset({zero}, {it.name!r}, {line})"
            else:
                text = f"[M.unset({zero}, {it.name!r}, {line}) for _ in range({it.kind.lanes})]"
        else:
            text = self.converted(self.value(it.value), it.kind).text
        self.scopes[-1][it.name] = Value(self.keep(text, it.name), it.kind)

    def do(self, call: syntax.Call) -> None:
        """A call for what it does."""
        if call.name == PRODUCT:
            d, *factors = (one.text for one in self.product_of(call))
            kind = self.product_of(call)[1].kind.scalar
            self.say(f"{d} = M.product({self.mask}, {', '.join(factors)}, {d}, {kind!r})")
            return
        words = repr(call)
        if call.name in (*BARRIERS, *FENCES):
            orders = f"{'mem_device' in words}, {'mem_threadgroup' in words}"
            if call.name == "atomic_thread_fence":
                reaches = not any(
                    one in words for one in ("thread_scope_threadgroup", "thread_scope_simdgroup")
                )
                orders += f", {reaches}, {'memory_order_relaxed' in words}"
            self.say(f"M.{call.name.removeprefix('threadgroup_')}({self.mask}, {orders})")
            return
        function = self.source.functions.get(call.name)
        if function is not None or ATOMIC.fullmatch(call.name):
            self.say(self.call(call).text)
            return
        self.fail(f"{call.name} is not a call that is known here for what it does")

    def assign(self, it: syntax.Assign) -> None:
        if isinstance(it.target, syntax.Name) and isinstance(self.find(it.target.name), Value):
            one = self.variable(it.target.name)
            if one.kind.is_matrix:
                self.fail(f"{it.target.name} is a matrix, which is assigned by its elements here")
            self.put_variable(it.target.name, self.value(it.value))
            return
        if (
            isinstance(it.target, syntax.Index | syntax.Member)
            and (found := self.part_of(it.target)) is not None
        ):
            name, number = found
            one = self.variable(name)
            value = self.converted(self.value(it.value), Type(one.kind.scalar))
            element = f"{one.text}[{number}]"
            new = value.text if self.mask == "m0" else f"M.assign({self.mask}, {value.text}, {element})"
            self.say(f"{one.text} = {one.text}[:{number}] + [{new}] + {one.text}[{number + 1}:]")
            return
        place = self.written(it.target)
        value = self.converted(self.value(it.value), place.kind)
        index = self.index_of(place).text
        verb = "store" if place.kind.lanes == 1 else "store_vector"
        self.say(f"M.{verb}({self.mask}, {place.memory}, {place.kind.numpy!r}, {index}, {value.text})")

    def put_variable(self, name: str, value: Value) -> None:
        one = self.variable(name)
        value = self.converted(value, one.kind)
        verb = "assign" if one.kind.lanes == 1 else "assign_vector"
        new = value.text if self.mask == "m0" else f"M.{verb}({self.mask}, {value.text}, {one.text})"
        self.say(f"{one.text} = {new}")

    def branch(self, it: syntax.If) -> None:
        before = self.mask
        condition = self.keep(self.converted(self.value(it.condition), BOOL).text, "c")
        self.arm(f"M.narrow({before}, {condition})", it.then)
        if it.otherwise:
            self.arm(f"M.without({before}, {condition})", it.otherwise)
        self.mask = self.left_of(before, [it])

    def left_of(self, before: str, body: list[Statement]) -> str:
        """The mask behind statements in which threads may have returned, or left a loop."""
        gone = [self.ended] if self.ended and returns(body) else []
        if self.loops:
            left, skipped = self.loops[-1]
            gone += [name for name, one in ((left, False), (skipped, True)) if leaves(body, one)]
        return self.keep(f"M.rest({before}, {', '.join(gone)})", "m") if gone else before

    def arm(self, mask: str, body: list[Statement]) -> None:
        self.mask = self.keep(mask, "m")
        self.say(f"if {self.mask} is not False:")
        self.depth += 1
        first = len(self.lines)
        self.statements(body)
        if len(self.lines) == first:
            self.say("pass")
        self.depth -= 1

    def loop(self, it: syntax.For) -> None:
        before = self.mask
        self.scopes.append({})
        low = self.converted(self.value(it.low), it.kind)
        counter = self.keep(low.text, it.name)
        self.scopes[-1][it.name] = Value(counter, it.kind)
        inside, left, skipped = self.keep(before, "m"), "", ""
        if leaves(it.body, False):
            left = self.keep("False", "left")
        self.say("while True:")
        self.depth += 1
        self.mask = inside
        self.say("M.look()")
        condition = self.converted(self.value(it.condition), BOOL)
        self.say(f"{inside} = M.narrow({inside}, {condition.text})")
        self.say(f"if {inside} is False:")
        self.say("    break")
        if leaves(it.body, True):
            skipped = self.keep("False", "skipped")
        self.loops.append((left, skipped))
        self.mask = inside
        self.statements(it.body)
        self.loops.pop()
        gone = [one for one in (left, self.ended if returns(it.body) else "") if one]
        if gone:
            self.say(f"{inside} = M.rest({inside}, {', '.join(gone)})")
        self.mask, self.at = inside, it.line
        self.statements(it.after)
        step = self.converted(self.value(it.step), it.kind)
        self.say(f"{counter} = {step.text}")
        self.depth -= 1
        self.scopes.pop()
        self.mask = before
        self.mask = self.left_of(before, [it])

    def leave(self, it: syntax.Leave) -> None:
        """break, or continue."""
        if not self.loops:
            self.fail("a break or continue outside of any loop")
        which = self.loops[-1][it.is_continue]
        self.say(f"{which} = M.either({which}, {self.mask})")
        self.mask = self.keep("False", "m")

    def give(self, it: syntax.Return) -> None:
        if (it.value is None) != (self.result is None):
            self.fail("a return whose value is not that of its function")
        if it.value is None or self.result is None:
            if self.depth == 1:
                self.say("return")
                return
        else:
            value = self.converted(self.value(it.value), self.result)
            if self.depth == 1:
                self.say(f"return M.unwind(returned, {value.text})")
                return
            self.say(f"returned = {self.mask}, {value.text}, returned")
        self.say(f"{self.ended} = M.either({self.ended}, {self.mask})")
        self.mask = self.keep("False", "m")

    # ------------------------------------------------------------ values

    def rescaled(self, size_bytes: Value, unit_bytes: int) -> Value:
        return Value(
            f"({size_bytes.text} // {self.constant(unit_bytes, size_bytes.kind).text})", size_bytes.kind
        )

    def load(self, place: Pointer) -> Value:
        index, kind = self.index_of(place).text, place.kind
        if kind.lanes == 1:
            return Value(f"M.load({self.mask}, {place.memory}, {kind.numpy!r}, {index})", kind)
        text = f"M.load_vector({self.mask}, {place.memory}, {kind.numpy!r}, {index}, {kind.lanes})"
        return Value(text, kind)

    def cast(self, value: Value, kind: Type) -> Value:
        if kind == BOOL:
            return Value(f"({value.text} != {self.constant(0, value.kind).text})", kind)
        if value.kind.is_float and not kind.is_float:
            return Value(f"M.to_integer({value.text}, {kind.numpy!r})", kind)
        if kind.scalar == "half" and not value.kind.is_float:  # rounded once
            return Value(f"({value.text}).astype('float64').astype('float16')", kind)
        return Value(f"({value.text}).astype({kind.numpy!r})", kind)

    def lane(self, vector: Value, number: int) -> Value:
        return Value(f"{vector.text}[{number}]", Type(vector.kind.scalar))

    def vector(self, lanes: list[Value], kind: Type) -> Value:
        return Value(f"[{', '.join(one.text for one in lanes)}]", kind)

    def bits_as(self, value: Value, kind: Type) -> Value:
        return Value(f"({value.text}).view({kind.numpy!r})", kind)

    def signed(self, sign: str, value: Value) -> Value:
        if sign == "!":
            return Value(f"np.logical_not({value.text})", BOOL)
        return Value(f"({sign}{value.text})", value.kind)

    def shifted(self, sign: str, value: Value, by: Value) -> Value:
        return Value(f"M.shift({value.text}, {by.text}, {sign == '<<'})", value.kind)

    def operated(self, sign: str, a: Value, b: Value) -> Value:
        if sign in COMPARES:
            return Value(f"({a.text} {sign} {b.text})", BOOL)
        if sign in ("/", "%") and not a.kind.is_float:
            return Value(f"M.divide({a.text}, {b.text}, {sign == '%'})", a.kind)
        return Value(f"({a.text} {sign} {b.text})", a.kind)

    def float_function(self, name: str, value: Value) -> Value:
        return Value(f"{_FUNCTIONS[name]}({value.text})", BOOL if name == "isnan" else value.kind)

    def both(self, it: syntax.Binary) -> Value:
        left = Value(self.keep(self.converted(self.value(it.left), BOOL).text), BOOL)
        if not reads(it.right):
            right = self.converted(self.value(it.right), BOOL)
        else:  # only those read that come there
            before = self.mask
            verb = "narrow" if it.sign == "&&" else "without"
            self.mask = self.keep(f"M.{verb}({before}, {left.text})", "m")
            right = Value(self.keep(self.converted(self.value(it.right), BOOL).text), BOOL)
            self.mask = before
        return Value(f"({left.text} {it.sign[0]} {right.text})", BOOL)

    def choice(self, it: syntax.Choice) -> Value:
        condition = Value(self.keep(self.converted(self.value(it.condition), BOOL).text, "c"), BOOL)
        arms = []
        before = self.mask
        for arm, verb in ((it.yes, "narrow"), (it.no, "without")):
            if reads(arm):
                self.mask = self.keep(f"M.{verb}({before}, {condition.text})", "m")
                made = self.value(arm)
                made = Value(self.keep(made.text), made.kind)
                self.mask = before
            else:
                made = self.value(arm)
            arms.append(made)
        yes, no = arms
        kind = yes.kind if yes.kind == no.kind else joined(yes.kind, no.kind)
        yes, no = self.converted(yes, kind), self.converted(no, kind)
        return Value(f"M.pick({condition.text}, {yes.text}, {no.text})", kind)

    def shuffle(self, it: syntax.Call, value: Value, by: Value) -> Value:
        return Value(f"M.shuffle_xor({self.mask}, {value.text}, {by.text})", value.kind)

    def simd(self, name: str, values: list[Value], kind: Type) -> Value:
        given = "".join(f", {one.text}" for one in values)
        return self.kept(Value(f"M.simd({self.mask}, {name!r}{given})", kind))

    def number_function(self, name: str, values: list[Value], kind: Type) -> Value:
        texts = ", ".join(one.text for one in values)
        return Value(f"M.function({name!r}, {kind.numpy!r}, {texts})", kind)

    def atomic(self, place: Pointer, operation: str, values: list[Value]) -> Value:
        given = "".join(f", {one.text}" for one in values)
        index = self.index_of(place).text
        text = f"M.atomic({self.mask}, {place.memory}, {place.kind.numpy!r}, {index}, {operation!r}{given})"
        return self.kept(Value(text, place.kind))

    def kept(self, value: Value) -> Value:
        return Value(self.keep(value.text), value.kind)

    def called(self, it: syntax.Call, function: Function, given: list[Made]) -> Value:
        texts: list[str] = []
        for one in given:
            if isinstance(one, Pointer):
                texts += [one.memory, self.converted(self.index_of(one), LONG).text]
            else:
                texts.append(one.text)
        text = f"f_{function.name}(M, {self.mask}, {', '.join(texts)})"
        return self.kept(Value(text, function.result or BOOL))


def _wrapped(value: int, kind: Type) -> Any:
    """A whole number in a type, as C wraps it."""
    if kind.is_float or kind == BOOL:
        return np.array(value).astype(kind.numpy)[()]
    return np.array(value % (1 << kind.bits), f"uint{kind.bits}").astype(kind.numpy)[()]
