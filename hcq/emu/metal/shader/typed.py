"""C's types over a kernel's tree: what converts to what, what an operation computes in, where an address points.

In       expressions of a Source
Out      Value and Pointer, whose text is in the words of a subclass; MslError for what does not fit together
Next     translate.py (the words of NumPy), lanes.py (those of LLVM), types.py (how C joins types)
Source   C++14: usual arithmetic conversions, pointer arithmetic; Metal Shading Language Specification, "Operators"
"""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NoReturn

from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.errors import MslError
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.syntax import Expression, Function, Statement
from hcq.emu.metal.shader.types import BOOL, FLOAT, INT, LONG, SIZES, UINT, Type, joined, promoted

ARITHMETIC = {"+", "-", "*", "/", "%", "&", "|", "^"}
COMPARES = {"==", "!=", "<", ">", "<=", ">="}
FLOAT_FUNCTIONS = {"sqrt", "precise::sqrt", "trunc", "floor", "ceil", "fabs", "isnan"}
BARRIERS = ("threadgroup_barrier",)
FENCES = (
    "simdgroup_barrier",
    "atomic_thread_fence",
)  # which order, and at which nobody of other SIMD groups is met
SIMD_REDUCTIONS = (
    "sum",
    "product",
    "min",
    "max",
    "and",
    "or",
    "xor",
    "prefix_inclusive_sum",
    "prefix_exclusive_sum",
)
SIMD_MOVES = ("shuffle", "shuffle_up", "shuffle_down", "shuffle_xor", "broadcast")
NUMBERS = {"min": 2, "max": 2, "clamp": 3, "abs": 1}  # functions of numbers of any type, and of how many
FLOATS = {
    **dict.fromkeys(("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "rsqrt", "round", "rint"), 1),
    **dict.fromkeys(("fmin", "fmax", "pow", "fmod"), 2),
    "fma": 3,
}
PRODUCT = "simdgroup_multiply_accumulate"
LANES = "xyzw"
ATOMIC = re.compile(
    r"atomic_(?:fetch_)?(load|store|exchange|compare_exchange_weak|add|sub|and|or|xor|min|max)_explicit"
)


@dataclass(frozen=True)
class Value:
    """Text, or what else a subclass computes in, and its type. number: which one, where it is written as one."""

    text: Any
    kind: Type
    number: float | None = None


@dataclass(frozen=True)
class Pointer:
    """A place in memory: numbers of `kind`, from an index on that is counted in scalars."""

    memory: str
    kind: Type
    index: Value | None = None
    is_const: bool = False
    sizes: tuple[int, ...] = ()  # an element is an array of these
    is_variable: bool = False  # its name stands for what is there


Made = Value | Pointer


class Typed(ABC):
    """Expressions with their types. What a subclass says is at the end."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.scopes: list[dict[str, Made]] = []
        self.at = 0  # the line of the text

    def fail(self, what: str) -> NoReturn:
        """The text is refused."""
        raise MslError(f"program_source:{self.at}: {what}")

    # ------------------------------------------------------------ statements

    def statements(self, body: list[Statement]) -> None:
        """A block, with names of its own."""
        self.scopes.append({})
        for one in body:
            self.at = one.line
            self.statement(one)
        self.scopes.pop()

    @abstractmethod
    def statement(self, it: Statement) -> None:
        """One of them."""

    # ------------------------------------------------------------ places in memory

    def find(self, name: str) -> Made:
        """What a name stands for."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if name in self.source.constants:
            return self.value(self.source.constants[name])
        self.fail(f"use of undeclared identifier {name!r}")

    def index_of(self, place: Pointer) -> Value:
        """Counted in scalars."""
        return place.index if place.index is not None else self.constant(0, INT)

    def moved(self, place: Pointer, by: Value) -> Pointer:
        """So many elements further."""
        if by.kind.is_float:
            self.fail("an index is a whole number")
        by = self.converted(by, promoted(by.kind))
        if (each := place.kind.lanes * prod(place.sizes)) > 1:
            by = self.binary("*", by, self.constant(each, by.kind))
        index = by if place.index is None else self.binary("+", place.index, by)
        return replace(place, index=index, sizes=place.sizes[1:])

    def pointer(self, it: Expression) -> Pointer:
        """An expression that is an address."""
        if isinstance(it, syntax.Unary) and it.sign == "&":
            return self.place(it.value)
        if isinstance(it, syntax.Cast) and it.kind.space:
            inner = self.pointer(it.value)
            index, kind = inner.index, it.kind.element
            old, new = SIZES[inner.kind.scalar], SIZES[kind.scalar]
            if index is not None and old != new:
                index = self.rescaled(self.binary("*", index, self.constant(old, index.kind)), new)
            return Pointer(inner.memory, kind, index, inner.is_const)
        if isinstance(it, syntax.Binary) and it.sign in "+-":
            by = self.value(it.right)
            if it.sign == "-":
                by = self.signed("-", self.converted(by, LONG))
            return self.moved(self.pointer(it.left), by)
        if isinstance(it, syntax.Name):
            found = self.find(it.name)
            if isinstance(found, Pointer) and not found.is_variable:
                return found
        if isinstance(it, syntax.Index):  # a row of an array
            row = self.pointer(it.base)
            if row.sizes:
                return self.moved(row, self.value(it.index))
        self.fail("expected an address")

    def place(self, it: Expression) -> Pointer:
        """An expression that stands for a place: what & takes, and what is assigned."""
        if isinstance(it, syntax.Index):
            return self.moved(self.pointer(it.base), self.value(it.index))
        if isinstance(it, syntax.Unary) and it.sign == "*":
            return self.pointer(it.value)
        if (
            isinstance(it, syntax.Name)
            and isinstance(found := self.find(it.name), Pointer)
            and found.is_variable
        ):
            return replace(found, is_variable=False)
        self.fail("this cannot be assigned, and has no address")

    def written(self, it: Expression) -> Pointer:
        """A place that an assignment may change."""
        place = self.place(it)
        if place.sizes:
            self.fail("an array cannot be assigned")
        if place.is_const:
            self.fail("what is const cannot be assigned")
        return place

    def variable(self, name: str) -> Value:
        """A variable that an assignment may change."""
        found = self.find(name)
        if not isinstance(found, Value):
            self.fail(f"{name} cannot be assigned")
        return found

    # ------------------------------------------------------------ values

    def converted(self, value: Value, kind: Type) -> Value:
        """As C converts it."""
        if value.kind == kind:
            return value
        if value.kind.lanes != kind.lanes or "bfloat" in (value.kind.scalar, kind.scalar):
            self.fail(f"a {value.kind} where a {kind} is expected")
        if kind.lanes > 1:
            self.fail(f"a {value.kind} does not become a {kind} by itself")
        if value.number is not None:
            if not value.kind.is_float:
                return self.constant(int(value.number) if kind != BOOL else int(value.number != 0), kind)
            if kind.is_float:
                return self.constant(float(value.number), kind)
        return self.cast(value, kind)

    def value(self, it: Expression) -> Value:
        """An expression that is a number, or several."""
        match it:
            case syntax.Number():
                return self.constant(it.value, it.kind)
            case syntax.Name():
                return self.named(it.name)
            case syntax.Unary():
                return self.unary(it)
            case syntax.Binary():
                if it.sign in ("&&", "||"):
                    return self.both(it)
                return self.binary(it.sign, self.value(it.left), self.value(it.right))
            case syntax.Choice():
                return self.choice(it)
            case syntax.Cast():
                return self.converted(self.value(it.value), it.kind)
            case syntax.Index():
                base = it.base
                if isinstance(base, syntax.Member) and base.name == syntax.ELEMENTS:
                    one, number = self.element_of(it)
                    return self.lane(self.value(syntax.Name(one, self.at)), number)
                if isinstance(base, syntax.Name) and isinstance(self.find(base.name), Value):
                    return self.lane_of(self.value(base), it.index)
                place = self.place(it)
                if place.sizes:
                    self.fail("an array where a number is expected")
                return self.load(place)
            case syntax.Member():
                if it.name not in LANES:
                    self.fail(f"{it.name!r} is no lane of a vector")
                return self.lane_of(self.value(it.base), syntax.Number(LANES.index(it.name), INT))
            case syntax.Call():
                return self.call(it)

    def named(self, name: str) -> Value:
        """What a variable has."""
        found = self.find(name)
        if isinstance(found, Pointer):
            if found.is_variable:
                return self.load(replace(found, is_variable=False))
            self.fail(f"{name} is an address")
        return found

    def lane_of(self, vector: Value, index: Expression) -> Value:
        """One of its numbers."""
        if not isinstance(index, syntax.Number) or not 0 <= index.value < vector.kind.lanes:
            self.fail(f"a lane of a {vector.kind} is a number below {vector.kind.lanes}")
        return self.lane(vector, int(index.value))

    def element_of(self, it: syntax.Index) -> tuple[str, int]:
        """matrix.thread_elements()[number]: the matrix by name, and the number."""
        assert isinstance(it.base, syntax.Member)
        if not isinstance(it.base.base, syntax.Name) or not self.variable(it.base.base.name).kind.is_matrix:
            self.fail(f"{syntax.ELEMENTS} of what is no variable that is a matrix")
        if not isinstance(it.index, syntax.Number) or it.index.value not in (0, 1):
            self.fail("a thread has elements 0 and 1 of a matrix of 8 x 8")
        return it.base.base.name, int(it.index.value)

    def part_of(self, it: syntax.Index | syntax.Member) -> tuple[str, int] | None:
        """The variable and the number of its lane that is assigned; None: it is a place in memory."""
        base = it.base
        if isinstance(it, syntax.Index) and isinstance(base, syntax.Member):
            return self.element_of(it)
        if not isinstance(base, syntax.Name) or not isinstance(self.find(base.name), Value):
            return None
        number: float = -1
        if isinstance(it, syntax.Member):
            number = LANES.find(it.name)
        elif isinstance(it.index, syntax.Number):
            number = it.index.value
        if not 0 <= number < self.variable(base.name).kind.lanes:
            self.fail(f"a lane of {base.name} that it does not have")
        return base.name, int(number)

    def product_of(self, it: syntax.Call) -> list[Value]:
        """The variables of d = a @ b + c. Raises MslError for any that are not run here."""
        names = [one.name for one in it.arguments if isinstance(one, syntax.Name)]
        if len(names) != 4 or len(it.arguments) != 4:
            self.fail(f"{PRODUCT} takes four variables that are matrices")
        d, a, b, c = found = [self.variable(name) for name in names]
        if not all(one.kind.is_matrix for one in found) or a.kind != b.kind or not c.kind == d.kind:
            self.fail(f"{PRODUCT} of {', '.join(str(one.kind) for one in found)}")
        if d.kind.scalar != "float":
            self.fail(f"{PRODUCT}: sums in {d.kind.scalar} are not in the subset that is run here")
        return found

    def unary(self, it: syntax.Unary) -> Value:
        """- ! ~ *"""
        if it.sign == "*":
            return self.load(self.pointer(it.value))
        if it.sign == "&":
            self.fail("an address where a number is expected")
        value = self.value(it.value)
        if it.sign == "!":
            return self.signed("!", self.converted(value, BOOL))
        value = self.converted(value, promoted(value.kind))
        if it.sign == "~" and value.kind.is_float:
            self.fail("~ of a float")
        if it.sign == "-" and value.number is not None:
            return self.constant(-value.number, value.kind)
        return self.signed(it.sign, value)

    def binary(self, sign: str, left: Value, right: Value) -> Value:
        """Two numbers, in the type that C joins theirs to."""
        if left.kind.lanes > 1 or right.kind.lanes > 1 or "bfloat" in (left.kind.scalar, right.kind.scalar):
            self.fail("arithmetic of vectors and of bfloat is not in the subset that is run here")
        if sign in ("<<", ">>"):
            left, right = (self.converted(one, promoted(one.kind)) for one in (left, right))
            return self.shifted(sign, left, right)
        kind = joined(left.kind, right.kind)
        if sign in ("&", "|", "^") and left.kind == right.kind == BOOL:
            kind = BOOL
        a, b = self.converted(left, kind), self.converted(right, kind)
        if sign not in COMPARES and (sign not in ARITHMETIC or (kind.is_float and sign in "%&|^")):
            self.fail(f"{left.kind} {sign} {right.kind}")
        return self.operated(sign, a, b)

    def call(self, it: syntax.Call) -> Value:
        """A function, a built-in one, or a vector made of its lanes."""
        if it.name == "vector":
            assert it.kind is not None
            element = it.kind.element
            lanes = [self.converted(self.value(one), element) for one in it.arguments]
            lanes = lanes * it.kind.lanes if len(lanes) == 1 else lanes  # one number is that of all lanes
            if len(lanes) != it.kind.lanes:
                self.fail(f"{it.kind} of {len(lanes)} numbers")
            return self.vector(lanes, it.kind)
        if operation := ATOMIC.fullmatch(it.name):
            return self.atomic_of(it, operation[1])
        if it.name in self.source.functions:
            return self.function_of(it, self.source.functions[it.name])
        values = [self.value(one) for one in it.arguments]
        if it.name == "as_type":
            assert it.kind is not None
            if it.kind.size_bytes != values[0].kind.size_bytes:
                self.fail(f"as_type<{it.kind}> of a {values[0].kind}")
            return self.bits_as(values[0], it.kind)
        name = it.name.removeprefix("precise::").removeprefix("fast::").removeprefix("metal::")
        if it.name in FLOAT_FUNCTIONS and len(values) == 1 and values[0].kind.is_float:
            return self.float_function(name, values[0])
        if any(one.kind.lanes > 1 for one in values):
            self.fail(f"{it.name} of vectors is not in the subset that is run here")
        if name.startswith("simd_"):
            return self.simd_of(it, name.removeprefix("simd_"), values)
        if (name in NUMBERS or name in FLOATS) and len(values) == {**NUMBERS, **FLOATS}[name]:
            kind = functools.reduce(joined, (one.kind for one in values))
            kind = promoted(kind) if name in NUMBERS else kind if kind.is_float else FLOAT
            return self.number_function(name, [self.converted(one, kind) for one in values], kind)
        self.fail(f"{it.name} of {', '.join(str(one.kind) for one in values)} is not known here")

    def simd_of(self, it: syntax.Call, name: str, values: list[Value]) -> Value:
        """What threads of a SIMD group give each other."""
        count = {**dict.fromkeys(SIMD_MOVES, 2), "is_first": 0}.get(name, 1)
        if name not in (*SIMD_MOVES, *SIMD_REDUCTIONS, "any", "all", "broadcast_first", "is_first"):
            self.fail(f"{it.name} is not known here")
        if len(values) != count:
            self.fail(f"{it.name} of {len(values)} values")
        if name in ("any", "all", "is_first"):
            return self.simd(name, [self.converted(one, BOOL) for one in values], BOOL)
        kind = values[0].kind
        if kind.bits > 32 or kind == BOOL:
            self.fail(f"{it.name} of a {kind}")
        if name == "shuffle_xor":
            return self.shuffle(it, values[0], self.converted(values[1], UINT))
        if name in ("and", "or", "xor") and kind.is_float:
            self.fail(f"{it.name} of a {kind}")
        return self.simd(name, [values[0], *(self.converted(one, INT) for one in values[1:])], kind)

    def function_of(self, it: syntax.Call, function: Function) -> Value:
        """A function of the text, with what it is given."""
        if len(function.parameters) != len(it.arguments):
            self.fail(f"{it.name} of {len(it.arguments)} values")
        given: list[Made] = []
        for one, to in zip(it.arguments, function.parameters):
            if not to.kind.space:
                given.append(self.converted(self.value(one), to.kind))
                continue
            place = self.place(one) if to.kind.is_reference else self.pointer(one)
            if place.kind != to.kind.element or place.sizes:
                self.fail(f"{it.name} is given another pointer than it takes")
            given.append(replace(place, is_variable=to.kind.is_reference))
        return self.called(it, function, given)

    def atomic_of(self, it: syntax.Call, operation: str) -> Value:
        """atomic_..._explicit(place, values, orders)."""
        count = {"load": 1, "compare_exchange_weak": 3}.get(operation, 2)
        if len(it.arguments) <= count:
            self.fail(f"{it.name} of {len(it.arguments)} values")
        place = self.pointer(it.arguments[0])
        if place.sizes or place.kind.lanes > 1 or place.kind.bits not in (32, 64):
            self.fail(f"{it.name} of a {place.kind}")
        if place.is_const and operation != "load":
            self.fail("what is const cannot be changed")
        if operation != "compare_exchange_weak":
            values = [self.converted(self.value(one), place.kind) for one in it.arguments[1:count]]
            return self.atomic(place, operation, values)
        expected = it.arguments[1]
        if (
            not isinstance(expected, syntax.Unary)
            or expected.sign != "&"
            or not isinstance(expected.value, syntax.Name)
        ):
            self.fail(f"{it.name} expects what is in a variable of the thread, by its address")
        wanted = self.converted(self.named(expected.value.name), place.kind)
        new = self.converted(self.value(it.arguments[2]), place.kind)
        found = self.atomic(place, operation, [wanted, new])
        is_done = self.kept(self.same_bits(found, wanted))
        self.put_variable(expected.value.name, found)
        return is_done

    # ------------------------------------------------------------ what a subclass says

    @abstractmethod
    def constant(self, value: float, kind: Type) -> Value:
        """A number of a type; a whole one as C wraps it."""

    @abstractmethod
    def rescaled(self, size_bytes: Value, unit_bytes: int) -> Value:
        """An index counted in units."""

    @abstractmethod
    def cast(self, value: Value, kind: Type) -> Value:
        """One scalar type to another one."""

    @abstractmethod
    def lane(self, vector: Value, number: int) -> Value:
        """One of a vector's numbers."""

    @abstractmethod
    def vector(self, lanes: list[Value], kind: Type) -> Value:
        """A vector of these."""

    @abstractmethod
    def bits_as(self, value: Value, kind: Type) -> Value:
        """The same bits under another type of that size."""

    @abstractmethod
    def signed(self, sign: str, value: Value) -> Value:
        """! of a bool; - or ~ of a number in a type that C computes in."""

    @abstractmethod
    def shifted(self, sign: str, value: Value, by: Value) -> Value:
        """<< or >>; only the low bits of a count matter."""

    @abstractmethod
    def operated(self, sign: str, a: Value, b: Value) -> Value:
        """Arithmetic or a comparison of two numbers of one type."""

    @abstractmethod
    def float_function(self, name: str, value: Value) -> Value:
        """One of FLOAT_FUNCTIONS."""

    @abstractmethod
    def both(self, it: syntax.Binary) -> Value:
        """&& or ||: the right side is read where the left one leaves it open."""

    @abstractmethod
    def choice(self, it: syntax.Choice) -> Value:
        """condition ? yes : no, of which one is read."""

    @abstractmethod
    def load(self, place: Pointer) -> Value:
        """What is there."""

    @abstractmethod
    def shuffle(self, it: syntax.Call, value: Value, by: Value) -> Value:
        """What another thread of the SIMD group has."""

    @abstractmethod
    def called(self, it: syntax.Call, function: Function, given: list[Made]) -> Value:
        """A function of the text; what one gives that gives nothing is not used."""

    @abstractmethod
    def simd(self, name: str, values: list[Value], kind: Type) -> Value:
        """One of SIMD_MOVES or SIMD_REDUCTIONS, any, all, is_first."""

    @abstractmethod
    def number_function(self, name: str, values: list[Value], kind: Type) -> Value:
        """One of NUMBERS or FLOATS."""

    @abstractmethod
    def atomic(self, place: Pointer, operation: str, values: list[Value]) -> Value:
        """What was there before."""

    @abstractmethod
    def kept(self, value: Value) -> Value:
        """As it is now, whatever changes."""

    @abstractmethod
    def put_variable(self, name: str, value: Value) -> None:
        """A variable of the threads that are there has this now."""

    def same_bits(self, a: Value, b: Value) -> Value:
        """Whether two numbers are the same, as compare and exchange has it."""
        if a.kind.is_float:
            a, b = self.bits_as(a, UINT), self.bits_as(b, UINT)
        return self.operated("==", a, b)


def reads(it: Expression) -> bool:
    """Whether an expression reads memory, or asks other threads."""
    match it:
        case syntax.Index() | syntax.Call():
            return True
        case syntax.Unary() | syntax.Cast():
            return getattr(it, "sign", "") == "*" or reads(it.value)
        case syntax.Binary():
            return reads(it.left) or reads(it.right)
        case syntax.Choice():
            return reads(it.condition) or reads(it.yes) or reads(it.no)
    return False
