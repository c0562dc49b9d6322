"""Expressions of one thread as LLVM IR: arithmetic as C has it, accesses that are checked, values that blocks join.

In       expressions of a Source; from a subclass, where variables are and what threads tell each other
Out      lines of IR
Changes  nothing
Next     typed.py (C's types), groups.py (threads and groups around this), machine.py (the same in NumPy)
Source   LLVM Language Reference Manual; NumPy's meaning of what C leaves open, which is machine.py's
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.errors import NotCompiled
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.typed import COMPARES, Pointer, Typed, Value, reads
from hcq.emu.metal.shader.types import BOOL, SIZES, Type, joined

_NAMES = {"bool": "i1", "half": "half", "float": "float"}
_OPERATIONS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem", "&": "and", "|": "or", "^": "xor"}
_CONDITIONS = {"==": "eq", "!=": "ne", "<": "lt", ">": "gt", "<=": "le", ">=": "ge"}


def spelled(kind: Type) -> str:
    """LLVM's name of a type."""
    one = _NAMES.get(kind.scalar) or f"i{kind.bits}"  # of bfloat its bits
    return f"<{kind.lanes} x {one}>" if kind.lanes > 1 else one


class Site(NamedTuple):
    """What a thread may do wrong at one place of the text, of this line. count: the elements there are, or None."""

    what: str  # with {index} and {count}
    element_bytes: int = 0
    memory: str = ""
    line: int = 0


class Expressions(Typed):
    """Lines of IR for one thread."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.lines: list[str] = []
        self.block = ""
        self.count = 0
        self.sites: list[Site] = []
        self.failing: list[str] = []  # the index that each site found wrong
        self.declared: dict[str, str] = {}

    # ------------------------------------------------------------ lines

    def say(self, text: str) -> None:
        """One more."""
        self.lines.append(f"  {text}")

    def fresh(self, stem: str) -> str:
        """A name that nothing has."""
        self.count += 1
        return f"{stem}.{self.count}"

    def let(self, text: str, kind: Type) -> Value:
        """A value of its own."""
        name = "%" + self.fresh("v")
        self.say(f"{name} = {text}")
        return Value(name, kind)

    def word(self, text: str) -> str:
        """A value that has no type of MSL."""
        name = "%" + self.fresh("w")
        self.say(f"{name} = {text}")
        return name

    def label(self, name: str) -> None:
        """A block begins."""
        self.lines.append(f"{name}:")
        self.block = name

    def jump(self, name: str) -> None:
        """This block ends."""
        self.say(f"br label %{name}")

    def guard(self, holds: str, site: Site, index: str) -> None:
        """Where it does not hold, the kernel ends with what the site says."""
        number = len(self.sites)
        self.sites.append(site._replace(line=self.at))
        after = self.fresh("ok")
        self.failing.append(index)
        self.say(f"br i1 {holds}, label %{after}, label %failed.{number}")
        self.label(after)

    def intrinsic(self, name: str, kind: Type, of: Type | None = None) -> str:
        """One of LLVM's functions, declared."""
        given = spelled(of or kind)
        full = f"@llvm.{name}." + ("" if of is None else _mangled(kind) + ".") + _mangled(of or kind)
        self.declared[full] = f"declare {spelled(kind)} {full}({given})"
        return full

    # ------------------------------------------------------------ numbers

    def constant(self, value: float, kind: Type) -> Value:
        if kind == BOOL:
            return Value("true" if value else "false", kind, int(bool(value)))
        if kind.scalar == "bfloat":
            return Value("0", kind)
        if kind.scalar == "float":
            rounded = float(np.float32(value))
            return Value(f"0x{struct.unpack('>Q', struct.pack('>d', rounded))[0]:016X}", kind, rounded)
        if kind.scalar == "half":
            short = np.float16(value)
            return Value(f"0xH{int(short.view(np.uint16)):04X}", kind, float(short))
        whole = int(value) % (1 << kind.bits)
        if not kind.is_unsigned and whole >> (kind.bits - 1):
            whole -= 1 << kind.bits
        return Value(str(whole), kind, whole)

    def rescaled(self, size_bytes: Value, unit_bytes: int) -> Value:
        shift = unit_bytes.bit_length() - 1
        word = "lshr" if size_bytes.kind.is_unsigned else "ashr"
        return self.let(f"{word} {spelled(size_bytes.kind)} {size_bytes.text}, {shift}", size_bytes.kind)

    def cast(self, value: Value, kind: Type) -> Value:
        of = value.kind
        from_, to = spelled(of), spelled(kind)
        if kind == BOOL:
            if of.is_float:
                return self.let(f"fcmp une {from_} {value.text}, {self.constant(0.0, of).text}", kind)
            return self.let(f"icmp ne {from_} {value.text}, 0", kind)
        if of.is_float and kind.is_float:
            word = "fpext" if kind.bits > of.bits else "fptrunc"
            return self.let(f"{word} {from_} {value.text} to {to}", kind)
        if of.is_float:
            function = self.intrinsic("fptoui.sat" if kind.is_unsigned else "fptosi.sat", kind, of)
            return self.let(f"call {to} {function}({from_} {value.text})", kind)
        if kind.scalar == "half":  # a float holds each whole number that is not infinite as a half
            return self.cast(self.cast(value, Type("float")), kind)
        if kind.is_float:
            word = "uitofp" if of.is_unsigned else "sitofp"
            return self.let(f"{word} {from_} {value.text} to {to}", kind)
        if of == BOOL or kind.bits > of.bits:
            word = "zext" if of.is_unsigned else "sext"
            return self.let(f"{word} {from_} {value.text} to {to}", kind)
        if kind.bits < of.bits:
            return self.let(f"trunc {from_} {value.text} to {to}", kind)
        return Value(value.text, kind, value.number)

    def wide(self, index: Value) -> str:
        """An index in 64 bits."""
        kind = Type("ulong" if index.kind.is_unsigned else "long")
        return self.converted(index, kind).text

    def lane(self, vector: Value, number: int) -> Value:
        made = f"extractelement {spelled(vector.kind)} {vector.text}, i32 {number}"
        return self.let(made, Type(vector.kind.scalar))

    def vector(self, lanes: list[Value], kind: Type) -> Value:
        found = "poison"
        for number, one in enumerate(lanes):
            made = f"insertelement {spelled(kind)} {found}, {spelled(one.kind)} {one.text}, i32 {number}"
            found = self.word(made)
        return Value(found, kind)

    def bits_as(self, value: Value, kind: Type) -> Value:
        if spelled(value.kind) == spelled(kind):
            return Value(value.text, kind)
        if BOOL in (value.kind, kind) or 3 in (value.kind.lanes, kind.lanes):
            raise NotCompiled(f"as_type<{kind}> of a {value.kind}")
        return self.let(f"bitcast {spelled(value.kind)} {value.text} to {spelled(kind)}", kind)

    def signed(self, sign: str, value: Value) -> Value:
        name = spelled(value.kind)
        if sign == "!":
            return self.let(f"xor i1 {value.text}, true", BOOL)
        if value.kind.is_float:
            return self.let(f"fneg {name} {value.text}", value.kind)
        made = f"sub {name} 0, {value.text}" if sign == "-" else f"xor {name} {value.text}, -1"
        return self.let(made, value.kind)

    def shifted(self, sign: str, value: Value, by: Value) -> Value:
        last = value.kind.bits - 1
        if by.number is not None:
            count = self.constant(int(by.number) & last, value.kind)
        else:
            low = self.let(f"and {spelled(by.kind)} {by.text}, {last}", by.kind)
            count = self.converted(low, value.kind)
        word = "shl" if sign == "<<" else "lshr" if value.kind.is_unsigned else "ashr"
        return self.let(f"{word} {spelled(value.kind)} {value.text}, {count.text}", value.kind)

    def operated(self, sign: str, a: Value, b: Value) -> Value:
        kind = a.kind
        name = spelled(kind)
        if sign in COMPARES:
            word = _CONDITIONS[sign]
            if kind.is_float:
                return self.let(f"fcmp {'u' if sign == '!=' else 'o'}{word} {name} {a.text}, {b.text}", BOOL)
            order = "" if sign in ("==", "!=") else "u" if kind.is_unsigned else "s"
            return self.let(f"icmp {order}{word} {name} {a.text}, {b.text}", BOOL)
        word = _OPERATIONS[sign]
        if kind.is_float:
            return self.let(f"f{word} {name} {a.text}, {b.text}", kind)
        if sign in "/%":
            return self.divided(word, a, b)
        return self.let(f"{word} {name} {a.text}, {b.text}", kind)

    def divided(self, word: str, a: Value, b: Value) -> Value:
        """C's division of integers; by zero it is 0, and the least number by -1 wraps, as in machine.py."""
        name, kind = spelled(a.kind), a.kind
        if b.number is not None and int(b.number) not in (0, -1):
            return self.let(f"{'u' if kind.is_unsigned else 's'}{word} {name} {a.text}, {b.text}", kind)
        zero = self.word(f"icmp eq {name} {b.text}, 0")
        if kind.is_unsigned:
            safe = self.word(f"select i1 {zero}, {name} 1, {name} {b.text}")
            found = self.word(f"u{word} {name} {a.text}, {safe}")
            return self.let(f"select i1 {zero}, {name} 0, {name} {found}", kind)
        minus = self.word(f"icmp eq {name} {b.text}, -1")
        either = self.word(f"or i1 {zero}, {minus}")
        safe = self.word(f"select i1 {either}, {name} 1, {name} {b.text}")
        plain = self.word(f"s{word} {name} {a.text}, {safe}")
        negated = self.word(f"sub {name} 0, {a.text}") if word == "div" else "0"
        found = self.word(f"select i1 {minus}, {name} {negated}, {name} {plain}")
        return self.let(f"select i1 {zero}, {name} 0, {name} {found}", kind)

    def float_function(self, name: str, value: Value) -> Value:
        kind = spelled(value.kind)
        if name == "isnan":
            return self.let(f"fcmp uno {kind} {value.text}, {value.text}", BOOL)
        return self.let(f"call {kind} {self.intrinsic(name, value.kind)}({kind} {value.text})", value.kind)

    # ------------------------------------------------------------ one or the other

    def truth(self, it: syntax.Expression) -> str:
        """Whether it holds."""
        return self.converted(self.value(it), BOOL).text

    def both(self, it: syntax.Binary) -> Value:
        left = self.truth(it.left)
        word = "and" if it.sign == "&&" else "or"
        if not reads(it.right):
            return self.let(f"{word} i1 {left}, {self.truth(it.right)}", BOOL)
        before, more, after = self.block, self.fresh("more"), self.fresh("after")
        yes, no = (more, after) if it.sign == "&&" else (after, more)
        self.say(f"br i1 {left}, label %{yes}, label %{no}")
        self.label(more)
        right, end = self.truth(it.right), self.block
        self.jump(after)
        self.label(after)
        known = "false" if it.sign == "&&" else "true"
        return self.let(f"phi i1 [{known}, %{before}], [{right}, %{end}]", BOOL)

    def choice(self, it: syntax.Choice) -> Value:
        condition = self.truth(it.condition)
        if not reads(it.yes) and not reads(it.no):
            yes, no = self.joined(self.value(it.yes), self.value(it.no))
            name = spelled(yes.kind)
            return self.let(f"select i1 {condition}, {name} {yes.text}, {name} {no.text}", yes.kind)
        labels = [self.fresh(stem) for stem in ("yes", "no", "after")]
        self.say(f"br i1 {condition}, label %{labels[0]}, label %{labels[1]}")
        self.label(labels[0])
        yes, first = self.value(it.yes), self.block
        self.jump(labels[2])
        self.label(labels[1])
        no, second = self.value(it.no), self.block
        if yes.kind != no.kind and yes.number is None and no.number is None:
            raise NotCompiled(f"a choice of {yes.kind} and {no.kind}")
        yes, no = self.joined(yes, no)  # a number takes no instruction
        self.jump(labels[2])
        self.label(labels[2])
        return self.let(f"phi {spelled(yes.kind)} [{yes.text}, %{first}], [{no.text}, %{second}]", yes.kind)

    def joined(self, yes: Value, no: Value) -> tuple[Value, Value]:
        """Both in one type."""
        kind = yes.kind if yes.kind == no.kind else joined(yes.kind, no.kind)
        return self.converted(yes, kind), self.converted(no, kind)

    # ------------------------------------------------------------ memory

    def load(self, place: Pointer) -> Value:
        kind = place.kind
        address = self.address(place, "reads")
        if kind == BOOL:
            return self.let(f"icmp ne i8 {self.word(f'load i8, ptr {address}')}, 0", kind)
        return self.let(f"load {spelled(kind)}, ptr {address}, align {SIZES[kind.scalar]}", kind)

    def store(self, place: Pointer, value: Value) -> None:
        """Into memory."""
        kind = place.kind
        address = self.address(place, "writes")
        text = f"{spelled(kind)} {value.text}"
        if kind == BOOL:
            text = f"i8 {self.word(f'zext i1 {value.text} to i8')}"
        self.say(f"store {text}, ptr {address}, align {SIZES[kind.scalar]}")

    def address(self, place: Pointer, verb: str) -> str:
        """Of an access that lies within its memory, at a multiple of its size, and races with nobody."""
        kind, size = place.kind, SIZES[place.kind.scalar]
        if kind.lanes == 3 or (kind.lanes > 1 and kind.scalar == "bool"):
            raise NotCompiled(f"{kind} in memory")
        index = self.wide(self.index_of(place))
        last = index
        if kind.lanes > 1:
            part = self.word(f"and i64 {index}, {kind.lanes - 1}")
            what = f"an access of {kind.lanes} lanes of {{name}} does not begin at a multiple of its size."
            self.guard(self.word(f"icmp eq i64 {part}, 0"), Site(what, size, place.memory), index)
            last = self.word(f"add i64 {index}, {kind.lanes - 1}")
        count = self.elements(place.memory, size)
        what = f"{verb} {{name}}[{{index}}] of {{count}} elements of {kind.numpy}."
        self.guard(self.word(f"icmp ult i64 {last}, {count}"), Site(what, size, place.memory), last)
        self.noted(place, index, verb)
        return self.word(f"getelementptr i{8 * size}, ptr {self.base(place.memory)}, i64 {index}")

    # ------------------------------------------------------------ what a subclass knows

    def base(self, memory: str) -> str:
        """Where a memory begins."""
        raise NotImplementedError

    def elements(self, memory: str, size_bytes: int) -> str:
        """How many of that size there are."""
        raise NotImplementedError

    def noted(self, place: Pointer, index: str, verb: str) -> None:
        """Who touched what."""
        raise NotImplementedError


def _mangled(kind: Type) -> str:
    return {"half": "f16", "float": "f32"}.get(kind.scalar) or f"i{kind.bits}"
