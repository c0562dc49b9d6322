"""MSL as Python: a kernel's tree becomes a function that does each statement for all threads at once.

In       a Source, one of its kernels
Out      a function (machine, memories and numbers by parameter), and its text; MslError for what does not fit
         together
Changes  nothing
Next     machine.py (what the text calls), types.py (how C joins types), program.py (who runs it)

A value is an array with a number for each thread, or one number that all have. Where threads part, a statement has a
mask: conditions and loops narrow it, assignments and accesses of memory obey it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.errors import MslError
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.syntax import Expression, Function, Statement
from hcq.emu.metal.shader.types import BOOL, INT, SIZES, UINT, Type, joined, promoted

_ARITHMETIC = {"+", "-", "*", "/", "%", "&", "|", "^"}
_COMPARES = {"==", "!=", "<", ">", "<=", ">="}
_FLOAT_FUNCTIONS = {
    "sqrt": "np.sqrt",
    "precise::sqrt": "np.sqrt",
    "trunc": "np.trunc",
    "floor": "np.floor",
    "ceil": "np.ceil",
    "fabs": "np.abs",
    "isnan": "np.isnan",
}
_LANES = "xyzw"
_BARRIERS = ("threadgroup_barrier",)


@dataclass(frozen=True)
class Value:
    """Text of Python, and the type of what it computes."""

    text: str
    kind: Type


@dataclass(frozen=True)
class Pointer:
    """A place in memory: numbers of `kind`, from an index on that is counted in scalars."""

    memory: str
    kind: Type
    index: Value | None = None
    is_const: bool = False


Made = Value | Pointer


def translate(source: Source, kernel: Function) -> tuple[Callable[..., None], str]:
    """The function of a kernel, and its text. It takes a machine and then the kernel's parameters in their order, then
    its threadgroup memories. Raises MslError."""
    writer = _Writer(source)
    for function in source.functions.values():
        writer.function(function)
    writer.kernel(kernel)
    text = "\n".join(writer.lines) + "\n"
    names: dict[str, Any] = {"np": np, **writer.constants}
    exec(compile(text, f"<{kernel.name}>", "exec"), names)
    made: Callable[..., None] = names[f"k_{kernel.name}"]
    return made, text


class _Writer:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self._constant_names: dict[tuple[str, str], str] = {}
        self.scopes: list[dict[str, Made]] = []
        self.count = 0
        self.depth = 0
        self.mask = "m0"
        self.at = 0  # the line of the text
        self.result: Type | None = None
        self.loops = 0

    def fail(self, what: str) -> NoReturn:
        raise MslError(f"program_source:{self.at}: {what}")

    def say(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

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
        return Value(name, kind)

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

    def statements(self, body: list[Statement]) -> None:
        self.scopes.append({})
        for one in body:
            self.at = one.line
            self.statement(one)
        self.scopes.pop()

    def statement(self, it: Statement) -> None:
        match it:
            case syntax.Declare():
                value = self.converted(self.value(it.value), it.kind)
                self.scopes[-1][it.name] = Value(self.keep(value.text, it.name), it.kind)
            case syntax.Assign():
                self.assign(it)
            case syntax.If():
                self.branch(it)
            case syntax.For():
                self.loop(it)
            case syntax.Return():
                self.give(it)
            case syntax.Do():
                if it.value.name not in _BARRIERS:
                    self.fail(f"{it.value.name} is not a call that is known here for what it does")
                self.say(f"M.barrier({self.mask})")

    def assign(self, it: syntax.Assign) -> None:
        if isinstance(it.target, syntax.Name):
            place = self.find(it.target.name)
            if not isinstance(place, Value):
                self.fail(f"{it.target.name} cannot be assigned")
            value = self.converted(self.value(it.value), place.kind)
            new = value.text if self.mask == "m0" else f"M.assign({self.mask}, {value.text}, {place.text})"
            self.say(f"{place.text} = {new}")
            return
        place = self.place(it.target)
        if place.is_const:
            self.fail("what is const cannot be assigned")
        value = self.converted(self.value(it.value), place.kind)
        index = self.index_of(place)
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
        condition = self.converted(self.value(it.condition), BOOL)
        self.mask = self.keep(f"M.narrow({before}, {condition.text})", "m")
        self.say(f"if {self.mask} is False:")
        self.say("    break")
        self.statements(it.body)
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

    # ------------------------------------------------------------ places in memory

    def find(self, name: str) -> Made:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        self.fail(f"use of undeclared identifier {name!r}")

    def index_of(self, place: Pointer) -> str:
        return place.index.text if place.index is not None else self.constant(0, INT).text

    def moved(self, place: Pointer, by: Value) -> Pointer:
        """So many elements further."""
        if by.kind.is_float:
            self.fail("an index is a whole number")
        by = self.converted(by, promoted(by.kind))
        if place.kind.lanes > 1:
            by = self.binary("*", by, self.constant(place.kind.lanes, by.kind))
        index = by if place.index is None else self.binary("+", place.index, by)
        return replace(place, index=index)

    def pointer(self, it: Expression) -> Pointer:
        """An expression that is an address."""
        if isinstance(it, syntax.Unary) and it.sign == "&":
            return self.place(it.value)
        if isinstance(it, syntax.Cast) and it.kind.space:
            inner = self.pointer(it.value)
            index, kind = inner.index, it.kind.element
            old, new = SIZES[inner.kind.scalar], SIZES[kind.scalar]
            if index is not None and old != new:
                wide = self.binary("*", index, self.constant(old, index.kind))
                index = Value(f"({wide.text} // {self.constant(new, wide.kind).text})", wide.kind)
            return Pointer(inner.memory, kind, index, inner.is_const)
        if isinstance(it, syntax.Binary) and it.sign == "+":
            return self.moved(self.pointer(it.left), self.value(it.right))
        if isinstance(it, syntax.Name):
            found = self.find(it.name)
            if isinstance(found, Pointer):
                return found
        self.fail("expected an address")

    def place(self, it: Expression) -> Pointer:
        """An expression that stands for a place: what & takes, and what is assigned."""
        if isinstance(it, syntax.Index):
            return self.moved(self.pointer(it.base), self.value(it.index))
        if isinstance(it, syntax.Unary) and it.sign == "*":
            return self.pointer(it.value)
        self.fail("this cannot be assigned, and has no address")

    def load(self, place: Pointer) -> Value:
        index = self.index_of(place)
        if place.kind.lanes == 1:
            text = f"M.load({self.mask}, {place.memory}, {place.kind.numpy!r}, {index})"
        else:
            text = f"M.load_vector({self.mask}, {place.memory}, {place.kind.numpy!r}, {index}, {place.kind.lanes})"
        return Value(text, place.kind)

    # ------------------------------------------------------------ values

    def converted(self, value: Value, kind: Type) -> Value:
        """As C converts it."""
        if value.kind == kind:
            return value
        if value.kind.lanes != kind.lanes:
            self.fail(f"a {value.kind} where a {kind} is expected")
        if kind.lanes > 1:
            self.fail(f"a {value.kind} does not become a {kind} by itself")
        if value.text in self.constants:
            held = self.constants[value.text]
            if not value.kind.is_float:
                return self.constant(int(held) if kind != BOOL else int(held != 0), kind)
            if kind.is_float:
                return Value(self.constant(float(held), kind).text, kind)
        if kind == BOOL:
            return Value(f"({value.text} != {self.constant(0, value.kind).text})", kind)
        if value.kind.is_float and not kind.is_float:
            return Value(f"M.to_integer({value.text}, {kind.numpy!r})", kind)
        if kind.scalar == "half" and not value.kind.is_float:  # rounded once
            return Value(f"({value.text}).astype('float64').astype('float16')", kind)
        return Value(f"({value.text}).astype({kind.numpy!r})", kind)

    def value(self, it: Expression) -> Value:
        match it:
            case syntax.Number():
                return self.constant(it.value, it.kind)
            case syntax.Name():
                found = self.find(it.name)
                if isinstance(found, Pointer):
                    self.fail(f"{it.name} is an address")
                return found
            case syntax.Unary():
                return self.unary(it)
            case syntax.Binary():
                return self.both(it)
            case syntax.Choice():
                return self.choice(it)
            case syntax.Cast():
                return self.converted(self.value(it.value), it.kind)
            case syntax.Index():
                base = it.base
                if isinstance(base, syntax.Name) and isinstance(self.find(base.name), Value):
                    return self.lane(self.value(base), it.index)
                return self.load(self.place(it))
            case syntax.Member():
                if it.name not in _LANES:
                    self.fail(f"{it.name!r} is no lane of a vector")
                return self.lane(self.value(it.base), syntax.Number(_LANES.index(it.name), INT))
            case syntax.Call():
                return self.call(it)

    def lane(self, vector: Value, index: Expression) -> Value:
        if not isinstance(index, syntax.Number) or not 0 <= index.value < vector.kind.lanes:
            self.fail(f"a lane of a {vector.kind} is a number below {vector.kind.lanes}")
        return Value(f"{vector.text}[{index.value}]", Type(vector.kind.scalar))

    def unary(self, it: syntax.Unary) -> Value:
        if it.sign == "*":
            return self.load(self.pointer(it.value))
        if it.sign == "&":
            self.fail("an address where a number is expected")
        value = self.value(it.value)
        if it.sign == "!":
            return Value(f"np.logical_not({self.converted(value, BOOL).text})", BOOL)
        value = self.converted(value, promoted(value.kind))
        if it.sign == "~" and value.kind.is_float:
            self.fail("~ of a float")
        if it.sign == "-" and value.text in self.constants:
            held = self.constants[value.text]
            return self.constant(-float(held) if value.kind.is_float else -int(held), value.kind)
        return Value(f"({it.sign}{value.text})", value.kind)

    def both(self, it: syntax.Binary) -> Value:
        if it.sign not in ("&&", "||"):
            return self.binary(it.sign, self.value(it.left), self.value(it.right))
        left = Value(self.keep(self.converted(self.value(it.left), BOOL).text), BOOL)
        if not _reads(it.right):
            right = self.converted(self.value(it.right), BOOL)
        else:  # only those read that come there
            before = self.mask
            verb = "narrow" if it.sign == "&&" else "without"
            self.mask = self.keep(f"M.{verb}({before}, {left.text})", "m")
            right = Value(self.keep(self.converted(self.value(it.right), BOOL).text), BOOL)
            self.mask = before
        return Value(f"({left.text} {it.sign[0]} {right.text})", BOOL)

    def binary(self, sign: str, left: Value, right: Value) -> Value:
        if left.kind.lanes > 1 or right.kind.lanes > 1:
            self.fail("arithmetic of vectors is not in the subset that is run here")
        if sign in ("<<", ">>"):
            left, right = (self.converted(one, promoted(one.kind)) for one in (left, right))
            return Value(f"M.shift({left.text}, {right.text}, {sign == '<<'})", left.kind)
        kind = joined(left.kind, right.kind)
        if sign in ("&", "|", "^") and left.kind == right.kind == BOOL:
            kind = BOOL
        a, b = self.converted(left, kind), self.converted(right, kind)
        if sign in _COMPARES:
            return Value(f"({a.text} {sign} {b.text})", BOOL)
        if sign not in _ARITHMETIC or (kind.is_float and sign in "%&|^"):
            self.fail(f"{left.kind} {sign} {right.kind}")
        if sign in ("/", "%") and not kind.is_float:
            return Value(f"M.divide({a.text}, {b.text}, {sign == '%'})", kind)
        return Value(f"({a.text} {sign} {b.text})", kind)

    def choice(self, it: syntax.Choice) -> Value:
        condition = Value(self.keep(self.converted(self.value(it.condition), BOOL).text, "c"), BOOL)
        arms = []
        before = self.mask
        for arm, verb in ((it.yes, "narrow"), (it.no, "without")):
            if _reads(arm):
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

    def call(self, it: syntax.Call) -> Value:
        if it.name == "vector":
            assert it.kind is not None
            element = it.kind.element
            lanes = [self.converted(self.value(one), element).text for one in it.arguments]
            if len(lanes) != it.kind.lanes:
                self.fail(f"{it.kind} of {len(lanes)} numbers")
            return Value(f"[{', '.join(lanes)}]", it.kind)
        values = [self.value(one) for one in it.arguments]
        if it.name == "as_type":
            assert it.kind is not None
            if it.kind.size_bytes != values[0].kind.size_bytes:
                self.fail(f"as_type<{it.kind}> of a {values[0].kind}")
            return Value(f"({values[0].text}).view({it.kind.numpy!r})", it.kind)
        if it.name in _FLOAT_FUNCTIONS and len(values) == 1 and values[0].kind.is_float:
            result = BOOL if it.name == "isnan" else values[0].kind
            return Value(f"{_FLOAT_FUNCTIONS[it.name]}({values[0].text})", result)
        if it.name == "simd_shuffle_xor" and len(values) == 2:
            if values[0].kind.bits > 32 or values[0].kind == BOOL:
                self.fail(f"simd_shuffle_xor of a {values[0].kind}")
            value, by = values[0], self.converted(values[1], UINT)
            return Value(f"M.shuffle_xor({self.mask}, {value.text}, {by.text})", value.kind)
        function = self.source.functions.get(it.name)
        if function is None or function.result is None or len(function.parameters) != len(values):
            self.fail(f"{it.name} of {', '.join(str(one.kind) for one in values)} is not known here")
        given = [self.converted(one, to.kind).text for one, to in zip(values, function.parameters)]
        return Value(f"f_{it.name}(M, {self.mask}, {', '.join(given)})", function.result)


def _wrapped(value: int, kind: Type) -> Any:
    """A whole number in a type, as C wraps it."""
    if kind.is_float or kind == BOOL:
        return np.array(value).astype(kind.numpy)[()]
    return np.array(value % (1 << kind.bits), f"uint{kind.bits}").astype(kind.numpy)[()]


def _reads(it: Expression) -> bool:
    """Whether an expression reads memory, or asks other threads."""
    match it:
        case syntax.Index() | syntax.Call():
            return True
        case syntax.Unary() | syntax.Cast():
            return getattr(it, "sign", "") == "*" or _reads(it.value)
        case syntax.Binary():
            return _reads(it.left) or _reads(it.right)
        case syntax.Choice():
            return _reads(it.condition) or _reads(it.yes) or _reads(it.no)
    return False
