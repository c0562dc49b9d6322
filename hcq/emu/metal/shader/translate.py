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
from typing import Any

import numpy as np

from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.syntax import Function, Statement
from hcq.emu.metal.shader.typed import BARRIERS, COMPARES, PRODUCT, Made, Pointer, Typed, Value, reads
from hcq.emu.metal.shader.types import BOOL, Type, joined

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
        self.loops = 0

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
        names = [self.fresh(one.name) for one in function.parameters]
        self.scopes = [{one.name: Value(name, one.kind) for one, name in zip(function.parameters, names)}]
        self.result, self.mask, self.loops = function.result, "m0", 0
        self.say(f"def f_{function.name}(M, m0, {', '.join(names)}):")
        self.depth = 1
        self.say("returned = None")
        self.statements(function.body)
        if not function.body or not isinstance(function.body[-1], syntax.Return):
            self.fail(f"{function.name} does not end with a return")
        self.depth = 0

    def kernel(self, kernel: Function) -> None:
        scope: dict[str, Made] = {}
        names = []
        for one in kernel.parameters:
            name = self.fresh(one.name)
            names.append(name)
            if one.kind.space:
                scope[one.name] = Pointer(name, one.kind.element, None, one.is_const)
            else:
                scope[one.name] = Value(name, one.kind)
        for shared, (kind, _) in kernel.shared.items():
            name = self.fresh(shared)
            names.append(name)
            scope[shared] = Pointer(name, kind)
        for one in kernel.parameters:  # what a reference refers to is a number that all threads have
            where = scope[one.name]
            if one.kind.space == "constant" and isinstance(where, Pointer):
                scope[one.name] = Value(f"{where.memory}.view({one.kind.numpy!r})[0]", one.kind.element)
        self.scopes = [scope]
        self.result, self.mask, self.loops = None, "m0", 0
        self.say(f"def k_{kernel.name}(M, {', '.join(names)}):")
        self.depth = 1
        self.say("m0 = True")
        self.statements(kernel.body)
        self.depth = 0

    # ------------------------------------------------------------ statements

    def statement(self, it: Statement) -> None:
        match it:
            case syntax.Declare():
                if it.value is None:
                    zero = self.constant(0, Type(it.kind.scalar)).text
                    text = f"[{', '.join([zero] * it.kind.lanes)}]"
                else:
                    text = self.converted(self.value(it.value), it.kind).text
                self.scopes[-1][it.name] = Value(self.keep(text, it.name), it.kind)
            case syntax.Assign():
                self.assign(it)
            case syntax.If():
                self.branch(it)
            case syntax.For():
                self.loop(it)
            case syntax.Return():
                self.give(it)
            case syntax.Do():
                if it.value.name == PRODUCT:
                    d, *factors = (one.text for one in self.product_of(it.value))
                    kind = self.product_of(it.value)[1].kind.scalar
                    self.say(f"{d} = M.product({self.mask}, {', '.join(factors)}, {d}, {kind!r})")
                    return
                if it.value.name not in BARRIERS:
                    self.fail(f"{it.value.name} is not a call that is known here for what it does")
                orders = ("mem_device" in repr(it.value), "mem_threadgroup" in repr(it.value))
                self.say(f"M.barrier({self.mask}, {orders[0]}, {orders[1]})")

    def assign(self, it: syntax.Assign) -> None:
        if isinstance(it.target, syntax.Name):
            one = self.variable(it.target.name)
            if one.kind.is_matrix:
                self.fail(f"{it.target.name} is a matrix, which is assigned by its elements here")
            value = self.converted(self.value(it.value), one.kind)
            verb = "assign" if one.kind.lanes == 1 else "assign_vector"
            new = value.text if self.mask == "m0" else f"M.{verb}({self.mask}, {value.text}, {one.text})"
            self.say(f"{one.text} = {new}")
            return
        if isinstance(it.target, syntax.Index) and isinstance(it.target.base, syntax.Member):
            name, number = self.element_of(it.target)
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

    def branch(self, it: syntax.If) -> None:
        before = self.mask
        condition = self.keep(self.converted(self.value(it.condition), BOOL).text, "c")
        self.arm(f"M.narrow({before}, {condition})", it.then)
        if it.otherwise:
            self.arm(f"M.without({before}, {condition})", it.otherwise)
        self.mask = before
        if any(isinstance(one, syntax.Return) for one in it.then):
            if any(isinstance(one, syntax.Return) for one in it.otherwise):
                self.fail("both arms of an if return")
            self.mask = self.keep(f"M.without({before}, {condition})", "m")

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
        self.say("while True:")
        self.depth += 1
        self.loops += 1
        self.say("M.look()")
        condition = self.converted(self.value(it.condition), BOOL)
        self.mask = self.keep(f"M.narrow({before}, {condition.text})", "m")
        self.say(f"if {self.mask} is False:")
        self.say("    break")
        self.statements(it.body)
        self.at = it.line
        step = self.converted(self.value(it.step), it.kind)
        self.say(f"{counter} = {counter} + {step.text}")
        self.loops -= 1
        self.depth -= 1
        self.scopes.pop()
        self.mask = before

    def give(self, it: syntax.Return) -> None:
        if self.loops:
            self.fail("a return inside a loop is not in the subset that is run here")
        if it.value is None or self.result is None:
            if it.value is not None or self.result is not None:
                self.fail("a return whose value is not that of its function")
            if self.depth == 1:
                self.say("return")
            return
        value = self.converted(self.value(it.value), self.result)
        if self.depth == 1:
            self.say(f"return M.unwind(returned, {value.text})")
        else:
            self.say(f"returned = {self.mask}, {value.text}, returned")

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

    def called(self, it: syntax.Call, function: Function, given: list[Value]) -> Value:
        assert function.result is not None
        return Value(
            f"f_{function.name}(M, {self.mask}, {', '.join(one.text for one in given)})", function.result
        )


def _wrapped(value: int, kind: Type) -> Any:
    """A whole number in a type, as C wraps it."""
    if kind.is_float or kind == BOOL:
        return np.array(value).astype(kind.numpy)[()]
    return np.array(value % (1 << kind.bits), f"uint{kind.bits}").astype(kind.numpy)[()]
