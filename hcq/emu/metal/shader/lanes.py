"""Expressions of a SIMD group's threads at once: a number of all of them is one vector of the host.

In       expressions of a Source; from a subclass, where variables and memory are
Out      lines of IR, which the floor of compiled shader cores writes (hcq/emu/compiled/)
Next     typed.py (C's types), pieces.py (variables and threads), machine.py (the same in NumPy)
Source   LLVM Language Reference Manual; NumPy's meaning of what C leaves open, which is machine.py's

The text of a Value is a Symbol: a vector with a number for each thread, or one number that all threads of a group
have. A vector of MSL is a tuple of them. Where threads part, `mask` says which are there; None: all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hcq.emu.compiled.operations import quotient
from hcq.emu.compiled.straight import StraightWriter
from hcq.emu.compiled.symbols import Symbol, llvm_type
from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.errors import NotCompiled
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.typed import COMPARES, Typed, Value, reads
from hcq.emu.metal.shader.types import BOOL, Type, joined

BOOLEAN, I32, I64, SINGLE = (np.dtype(one) for one in ("bool", "int32", "int64", "float32"))
_OPERATIONS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem", "&": "and", "|": "or", "^": "xor"}
_CONDITIONS = {"==": "eq", "!=": "ne", "<": "lt", ">": "gt", "<=": "le", ">=": "ge"}
_FUNCTIONS = {"fabs": "absolute"}


class Site(NamedTuple):
    """What a thread may do wrong at one place of the text, of this line. count: the elements there are, or None."""

    what: str  # with {index} and {count}
    element_bytes: int = 0
    memory: str = ""
    line: int = 0


class Lanes(Typed):
    """Lines of IR for `width` threads."""

    def __init__(self, source: Source, width: int) -> None:
        super().__init__(source)
        self.w = StraightWriter(width)
        self.width = width
        self.sites: list[Site] = []
        self.declared: dict[str, str] = {}
        self.mask: Symbol | None = None

    # ------------------------------------------------------------ lines

    def say(self, text: str) -> None:
        """One more."""
        self.w.lines.append(text)

    def word(self, text: str) -> str:
        """A line that computes something."""
        return self.w.say(text, False)

    def fresh(self, stem: str) -> str:
        """A name that nothing has."""
        return self.w.fresh(f"{stem}.")[1:]

    def into(self, lines: list[str]) -> None:
        """Go on writing there."""
        self.w.lines = self.w.scalar = self.w.vector = lines
        self.w.splats = {}

    def label(self, name: str) -> None:
        """A block begins: vectors made of one number are made again in it."""
        self.say(f"{name}:")
        self.w.splats = {}

    def jump(self, name: str) -> None:
        """This block ends."""
        self.say(f"br label %{name}")

    def fork(self, condition: str, yes: str, no: str) -> None:
        """This block ends in one of two."""
        self.say(f"br i1 {condition}, label %{yes}, label %{no}")

    def vector_of(self, one: Symbol) -> Symbol:
        """A number for each thread."""
        return Symbol(self.w, self.w.wide(one), one.dtype, True)

    def of(self, text: str, dtype: Any, is_vector: bool = True) -> Symbol:
        """A line that is computed by now."""
        return Symbol(self.w, text, dtype, is_vector)

    def kind(self, dtype: Any) -> str:
        """LLVM's name of a vector."""
        return f"<{self.width} x {llvm_type(np.dtype(dtype))}>"

    # ------------------------------------------------------------ masks

    def both_of(self, a: Symbol | None, b: Symbol | None) -> Symbol | None:
        """Threads of two masks."""
        if a is None or b is None:
            return b if a is None else a
        return self.w.binary("and", BOOLEAN, a, b)

    def opposite(self, one: Symbol) -> Symbol:
        """Where it does not hold."""
        return self.w.binary("xor", BOOLEAN, one, np.ones(1, np.bool_))

    def bits(self, one: Symbol) -> str:
        """A mask as a number."""
        return self.word(f"bitcast {self.kind(BOOLEAN)} {self.w.wide(one)} to i{self.width}")

    def some(self, one: Symbol | None) -> str:
        """Whether a mask has any thread."""
        if one is None:
            return "true"
        return one.text if not one.is_vector else self.word(f"icmp ne i{self.width} {self.bits(one)}, 0")

    def guard(self, bad: Symbol | str, site: Site, index: Any, add: int = 0) -> None:
        """Where something is bad, the kernel ends with what the site says. index: of each thread, or of all."""
        number = len(self.sites)
        self.sites.append(site._replace(line=self.at))
        stem = self.fresh("g")
        is_vector = isinstance(bad, Symbol) and bad.is_vector
        bits = self.bits(bad) if isinstance(bad, Symbol) and is_vector else ""
        held = bad.text if isinstance(bad, Symbol) else bad
        if bits:
            held = self.word(f"icmp ne i{self.width} {bits}, 0")
        self.fork(held, f"{stem}.bad", f"{stem}.ok")
        self.label(f"{stem}.bad")
        at = str(index)
        if isinstance(index, Symbol):
            at = index.text
            if index.is_vector:
                kind = f"i{self.width}"
                self.declared["cttz"] = f"declare {kind} @llvm.cttz.{kind}({kind}, i1)"
                first = self.word(f"call {kind} @llvm.cttz.{kind}({kind} {bits or 0}, i1 false)")
                lane = self.word(f"{'trunc' if self.width > 32 else 'bitcast'} {kind} {first} to i32")
                at = self.word(f"extractelement {self.kind(index.dtype)} {at}, i32 {lane}")
            at = self.wide_word(at, index.dtype)
        if add:
            at = self.word(f"add i64 {at}, {add}")
        self.say(f"store i64 {number}, ptr %fault.site")
        self.say(f"store i64 {at}, ptr %fault.index")
        self.say("ret i32 1")
        self.label(f"{stem}.ok")

    def wide_word(self, text: str, dtype: Any) -> str:
        """A whole number in 64 bits."""
        if dtype.itemsize == 8:
            return text
        verb = "sext" if dtype.kind == "i" else "zext"
        return self.word(f"{verb} {llvm_type(dtype)} {text} to i64")

    # ------------------------------------------------------------ numbers

    def constant(self, value: float, kind: Type) -> Value:
        if kind == BOOL:
            return Value(self.w.constant(bool(value), BOOLEAN), kind, int(bool(value)))
        if kind.scalar == "bfloat":
            return Value(self.w.constant(0, np.uint16), kind)
        if kind.is_float:
            with np.errstate(over="ignore"):
                rounded = np.dtype(kind.numpy).type(value)
            return Value(self.w.constant(rounded, kind.numpy), kind, float(rounded))
        whole = int(value) % (1 << kind.bits)
        signed = whole - (1 << kind.bits) if not kind.is_unsigned and whole >> (kind.bits - 1) else whole
        return Value(self.w.constant(np.array(signed, kind.numpy), kind.numpy), kind, signed)

    def rescaled(self, size_bytes: Value, unit_bytes: int) -> Value:
        verb, dtype = ("lshr" if size_bytes.kind.is_unsigned else "ashr"), np.dtype(size_bytes.kind.numpy)
        by = np.array(unit_bytes.bit_length() - 1, dtype)
        return Value(self.w.binary(verb, dtype, size_bytes.text, by), size_bytes.kind)

    def cast(self, value: Value, kind: Type) -> Value:
        of, one = value.kind, value.text
        dtype = np.dtype(kind.numpy)
        if of.is_float and not kind.is_float and kind != BOOL:
            return Value(self.saturated(self.w.convert(one, SINGLE), dtype), kind)
        if kind.scalar == "half" and not of.is_float:
            # a float holds each whole number that is not infinite as a half
            one = self.w.convert(one, SINGLE)
        return Value(self.w.convert(one, dtype), kind)

    def saturated(self, one: Symbol, dtype: Any) -> Symbol:
        """A float as a whole number; NaN becomes 0."""
        verb = "fptosi.sat" if dtype.kind == "i" else "fptoui.sat"
        to, of = self.w.type_of(dtype, one.is_vector), self.w.type_of(SINGLE, one.is_vector)
        many = f"v{self.width}" if one.is_vector else ""
        name = f"@llvm.{verb}.{many}i{8 * dtype.itemsize}.{many}f32"
        self.declared[name] = f"declare {to} {name}({of})"
        return self.w.symbol(f"call {to} {name}({of} {one.text})", dtype, one.is_vector)

    def lane(self, vector: Value, number: int) -> Value:
        return Value(vector.text[number], Type(vector.kind.scalar))

    def vector(self, lanes: list[Value], kind: Type) -> Value:
        return Value(tuple(one.text for one in lanes), kind)

    def bits_as(self, value: Value, kind: Type) -> Value:
        if BOOL in (value.kind, kind) or value.kind.lanes > 1 or kind.lanes > 1:
            raise NotCompiled(f"as_type<{kind}> of a {value.kind}")
        return Value(value.text.view(kind.numpy), kind)

    def signed(self, sign: str, value: Value) -> Value:
        name = {"!": "logical_not", "-": "negative", "~": "invert"}[sign]
        return Value(self.w.call(name, (value.text,), None), value.kind)

    def shifted(self, sign: str, value: Value, by: Value) -> Value:
        last, dtype = value.kind.bits - 1, np.dtype(value.kind.numpy)
        if by.number is not None:
            count = self.constant(int(by.number) & last, value.kind)
        else:
            low = self.w.binary("and", by.text.dtype, by.text, np.array(last, by.text.dtype))
            count = self.converted(Value(low, by.kind), value.kind)
        verb = "shl" if sign == "<<" else "lshr" if value.kind.is_unsigned else "ashr"
        return Value(self.w.binary(verb, dtype, value.text, count.text), value.kind)

    def operated(self, sign: str, a: Value, b: Value) -> Value:
        kind, dtype = a.kind, np.dtype(a.kind.numpy)
        if sign in COMPARES:
            test = _CONDITIONS[sign]
            if kind.is_float:
                test = ("u" if sign == "!=" else "o") + test
            elif sign not in ("==", "!="):
                test = ("u" if kind.is_unsigned else "s") + test
            return Value(self.w.compare(test, a.text, b.text), BOOL)
        verb = _OPERATIONS[sign]
        if kind.is_float:
            x, y = (self.w.convert(one.text, SINGLE) for one in (a, b))
            return Value(self.w.convert(self.w.binary(f"f{verb}", SINGLE, x, y), dtype), kind)
        if sign in "/%":
            return self.divided(verb, a, b)
        return Value(self.w.binary(verb, dtype, a.text, b.text), kind)

    def divided(self, verb: str, a: Value, b: Value) -> Value:
        """C's division of integers; by zero it is 0, and the least number by -1 wraps, as in machine.py."""
        dtype = np.dtype(a.kind.numpy)
        if b.number is not None and int(b.number) not in (0, -1):
            sign = "u" if a.kind.is_unsigned else "s"
            return Value(self.w.binary(sign + verb, dtype, a.text, b.text), a.kind)
        if a.kind.is_unsigned:
            name = "remainder" if verb == "rem" else "floor_divide"
            return Value(quotient(self.w, name, (a.text, b.text), None), a.kind)
        rest = quotient(self.w, "fmod", (a.text, b.text), None)
        if verb == "rem":
            return Value(rest, a.kind)
        whole = self.w.binary("sub", dtype, a.text, rest)
        return Value(quotient(self.w, "floor_divide", (whole, b.text), None), a.kind)

    def float_function(self, name: str, value: Value) -> Value:
        if name == "isnan":
            return Value(self.w.compare("uno", value.text, value.text), BOOL)
        return Value(self.w.call(_FUNCTIONS.get(name, name), (value.text,), None), value.kind)

    # ------------------------------------------------------------ one or the other

    def truth(self, it: syntax.Expression) -> Symbol:
        """Where it holds."""
        found: Symbol = self.converted(self.value(it), BOOL).text
        return found

    def both(self, it: syntax.Binary) -> Value:
        left = self.truth(it.left)
        verb = "and" if it.sign == "&&" else "or"
        if not reads(it.right):
            return Value(self.w.binary(verb, BOOLEAN, left, self.truth(it.right)), BOOL)
        needed = left if verb == "and" else self.opposite(left)
        right = self.under(needed, lambda: Value(self.truth(it.right), BOOL))
        if needed.is_vector:
            return Value(self.w.binary(verb, BOOLEAN, left, right.text), BOOL)
        known = self.w.constant(verb == "or", BOOLEAN)
        return Value(self.w.select(needed, right.text, known), BOOL)

    def choice(self, it: syntax.Choice) -> Value:
        condition = self.truth(it.condition)
        yes = self.under(condition, lambda: self.value(it.yes)) if reads(it.yes) else self.value(it.yes)
        other = self.opposite(condition)
        no = self.under(other, lambda: self.value(it.no)) if reads(it.no) else self.value(it.no)
        kind = yes.kind if yes.kind == no.kind else joined(yes.kind, no.kind)
        yes, no = self.converted(yes, kind), self.converted(no, kind)
        return Value(self.picked(condition, yes.text, no.text), kind)

    def picked(self, condition: Symbol, yes: Any, no: Any) -> Any:
        """For each thread the one or the other."""
        if isinstance(yes, tuple):
            return tuple(self.picked(condition, *pair) for pair in zip(yes, no))
        return self.w.select(condition, yes, no)

    def under(self, condition: Symbol, compute: Callable[[], Value]) -> Value:
        """What threads read for which a condition holds."""
        before, self.mask = self.mask, self.both_of(self.mask, condition)
        found = compute()
        self.mask = before
        return found
