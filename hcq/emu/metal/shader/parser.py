"""MSL's parser: text to a tree, for the subset that is run here.

In       the source of a library
Out      Source: its kernels and functions; MslError, which names the line, for anything else
Next     syntax.py (the tree), translate.py (who checks types, and runs it)
Source   Metal Shading Language Specification 3.1: attributes of kernels and their arguments, address spaces; C++14
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple, NoReturn

from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.errors import MslError
from hcq.emu.metal.shader.syntax import Expression, Function, Parameter, Statement
from hcq.emu.metal.shader.types import BOOL, FLOAT, INT, Type, named

SPACES = ("device", "constant", "threadgroup")
_TOKEN = re.compile(
    r"(?P<skip>\s+|//[^\n]*|/\*.*?\*/|#[^\n]*)"
    r"|(?P<float>(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?[fh]?)"
    r"|(?P<int>0[xX][0-9a-fA-F]+[uUlL]*|\d+[uUlL]*)"
    r"|(?P<name>[A-Za-z_]\w*(::[A-Za-z_]\w*)*)"
    r"|(?P<sign><<=|>>=|[-+*/%&|^]=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^~!<>=?:;,.(){}\[\]])",
    re.S,
)
_DEFINE = re.compile(r"#\s*define\s+(\w+)(?!\w|\()(.*)", re.S)
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_ATTRIBUTE = re.compile(r"\w+(\(\w+\))?")
_ASSIGN = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=")


class Token(NamedTuple):
    """kind: "float", "int", "name", "sign" or "end"."""

    kind: str
    text: str
    line: int


@dataclass
class Source:
    """What a library is made of. text: as it was given."""

    kernels: dict[str, Function] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    constants: dict[str, Expression] = field(default_factory=dict)
    text: str = ""

    def line(self, number: int) -> str:
        """A line of the text, from 1 on."""
        lines = self.text.splitlines()
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def parse(text: str) -> Source:
    """A library's source. Raises MslError."""
    found = _Parser(_tokens(text)).source()
    found.text = text
    return found


def _tokens(text: str, names: dict[str, list[Token]] | None = None) -> list[Token]:
    found: list[Token] = []
    names = {} if names is None else names  # of #define, as far as it has no parameters
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise MslError(f"program_source:{line}: {text[at]!r} begins no word of MSL")
        kind = match.lastgroup or next(k for k, v in match.groupdict().items() if v is not None)
        if kind == "skip":
            if define := _DEFINE.fullmatch(match[0]):
                names[define[1]] = _tokens(define[2], {**names})[:-1]
        else:
            found += [one._replace(line=line) for one in names.get(match[0], [Token(kind, match[0], line)])]
        line += match[0].count("\n")
        at = match.end()
    return [*found, Token("end", "the end", line)]


_KNOWN: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
    "%": operator.mod,
    "<<": operator.lshift,
    ">>": operator.rshift,
}


def _while(condition: Expression, body: list[Statement], line: int) -> Statement:
    """A loop that counts nothing."""
    nothing = syntax.Number(0, INT)
    return syntax.For(INT, "while", nothing, condition, nothing, body, line)


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.at = tokens, 0
        self.shared: dict[str, tuple[Type, int]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.constants: dict[str, Expression] = {}

    # ------------------------------------------------------------ words

    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    def fail(self, what: str) -> NoReturn:
        raise MslError(f"program_source:{self.now.line}: {what}, found {self.now.text!r}")

    def has(self, text: str) -> bool:
        """Take it if it is there."""
        if self.now.text == text and self.now.kind in ("sign", "name"):
            self.at += 1
            return True
        return False

    def take(self, text: str) -> None:
        if not self.has(text):
            self.fail(f"expected {text!r}")

    def name(self) -> str:
        if self.now.kind != "name":
            self.fail("expected a name")
        self.at += 1
        return self.tokens[self.at - 1].text

    # ------------------------------------------------------------ the outermost

    def source(self) -> Source:
        found = Source()
        while self.now.kind != "end":
            if self.has("using"):
                self.take("namespace")
                self.name()
                self.take(";")
                continue
            if self.now.text in ("constant", "constexpr"):
                self._constants(found)
                continue
            self._function(found)
        return found

    def _constants(self, source: Source) -> None:
        """A number that the whole source has."""
        while self.now.text in ("constant", "constexpr", "const", "static"):
            self.at += 1
        kind, name = self._type(), self.name()
        self.take("=")
        source.constants[name] = self.constants[name] = syntax.Cast(kind, self._expression())
        self.take(";")

    def _function(self, source: Source) -> None:
        most, is_kernel = 0, False
        while True:
            if self.now.text == "[":
                attribute = self._attribute()
                if not attribute.startswith("max_total_threads_per_threadgroup("):
                    self.fail(f"{attribute}: not an attribute of kernels that is known here")
                most = int(attribute.partition("(")[2].rstrip(")"))
            elif self.has("kernel"):
                is_kernel = True
            elif not (self.has("static") or self.has("inline")):
                break
        result = None if self.has("void") else self._type()
        made = Function(self.name(), result, [], [], most_threads=most)
        self.take("(")
        while not self.has(")"):
            made.parameters.append(self._parameter(is_kernel))
            if self.now.text != ")":
                self.take(",")
        self.shared, self.shapes = made.shared, made.shapes
        made.body = self._block()
        if made.name in source.kernels or made.name in source.functions:
            self.fail(f"redefinition of {made.name!r}")
        (source.kernels if is_kernel else source.functions)[made.name] = made

    def _attribute(self) -> str:
        self.take("[")
        self.take("[")
        words = []
        while not self.has("]"):
            if self.now.kind == "end":
                self.fail("expected ']]'")
            words.append(self.now.text)
            self.at += 1
        self.take("]")
        text = "".join(words)
        if not _ATTRIBUTE.fullmatch(text):
            self.fail(f"{text!r} is no attribute")
        return text

    def _parameter(self, is_kernel: bool) -> Parameter:
        kind, is_const = self._qualified()
        name = self.name()
        if not is_kernel:
            return Parameter(kind, name)
        return Parameter(kind, name, self._attribute(), is_const)

    def _qualified(self) -> tuple[Type, bool]:
        """A type with its space, and whether it is const."""
        space, is_const = "", False
        self.has("volatile")
        base: Type | None = None
        while True:
            if self.now.text in SPACES and not space:
                space = self.name()
            elif self.has("const"):
                is_const = True
            elif self.has("volatile"):
                continue
            elif base is None:
                base = self._type()
            else:
                break
        is_reference = self.now.text == "&"
        if self.has("*") or self.has("&"):
            self.has("const")
            if not space:
                self.fail("a pointer names its address space")
            return Type(base.scalar, base.lanes, space, is_reference=is_reference), is_const
        return (base if not space else Type(base.scalar, base.lanes, space)), is_const

    def _type(self) -> Type:
        found = named(self.now.text)
        if found is None:
            self.fail("expected a type that is known here")
        self.at += 1
        if self.tokens[self.at - 1].text == "atomic":
            self.take("<")
            found = self._type()
            self.take(">")
        if self.tokens[self.at - 1].text == "unsigned":
            self.has("int")
        return found

    # ------------------------------------------------------------ statements

    def _block(self) -> list[Statement]:
        self.take("{")
        found: list[Statement] = []
        while not self.has("}"):
            found += self._statement()
        return found

    def _statement(self) -> list[Statement]:
        line = self.now.line
        if self.now.text == "{":
            return self._block()
        if self.has(";"):
            return []
        if self.has("if"):
            self.take("(")
            condition = self._expression()
            self.take(")")
            then = self._statement()
            return [syntax.If(condition, then, self._statement() if self.has("else") else [], line)]
        if self.has("for"):
            return self._for(line)
        if self.has("while"):
            self.take("(")
            condition = self._expression()
            self.take(")")
            return [_while(condition, self._statement(), line)]
        if self.has("do"):
            return [self._do(line)]
        if self.has("break") or self.has("continue"):
            leave = syntax.Leave(self.tokens[self.at - 1].text == "continue", line)
            self.take(";")
            return [leave]
        if self.has("return"):
            value = None if self.now.text == ";" else self._expression()
            self.take(";")
            return [syntax.Return(value, line)]
        if self.now.text == "threadgroup" and self._is_declared():
            return self._shared()
        if self._begins_declaration():
            return self._declaration(line)
        found = self._simple()
        self.take(";")
        return [found]

    def _is_declared(self) -> bool:
        """threadgroup T name ..., and not a pointer."""
        at = self.at + 1
        while self.tokens[at].kind == "name" or self.tokens[at].text in ("<", ">"):
            at += 1
        return self.tokens[at].text != "*"

    def _begins_declaration(self) -> bool:
        words = ("const", "constexpr", "volatile", "thread", *SPACES)
        return self.now.text in words or (
            named(self.now.text) is not None and self.tokens[self.at + 1].kind == "name"
        )

    def _simple(self) -> Statement:
        """An assignment, or a call for what it does."""
        line = self.now.line
        if self.now.text in ("++", "--"):
            self.at += 1
            sign = self.tokens[self.at - 1].text[0]
            target = self._postfix()
            return syntax.Assign(target, syntax.Binary(sign, target, syntax.Number(1, INT)), line)
        target = self._expression()
        if self.now.text in ("++", "--"):
            self.at += 1
            sign = self.tokens[self.at - 1].text[0]
            return self._changed(target, sign, syntax.Number(1, INT), line)
        if self.now.text in _ASSIGN:
            self.at += 1
            sign = self.tokens[self.at - 1].text[:-1]
            value = self._expression()
            return self._changed(target, sign, value, line) if sign else syntax.Assign(target, value, line)
        if self.now.text not in (";", ")", ","):
            self.fail("expected ';'")
        if not isinstance(target, syntax.Call):
            raise MslError(f"program_source:{line}: an expression whose value nobody uses")
        return syntax.Do(target, line)

    def _changed(self, target: Expression, sign: str, value: Expression, line: int) -> Statement:
        """target sign= value: the place is computed twice, so nothing may happen in it."""
        if "Call(" in repr(target):
            self.fail(f"{sign}= to a place that a function computes is not in the subset that is run here")
        return syntax.Assign(target, syntax.Binary(sign, target, value), line)

    def _dimensions(self) -> tuple[int, ...]:
        """[8][16]; nothing where there are none."""
        found: list[int] = []
        while self.has("["):
            found.append(self._whole(self._expression()))
            self.take("]")
        return tuple(found)

    def _whole(self, it: Expression) -> int:
        """A number that is known when the text is read."""
        match it:
            case syntax.Number():
                return int(it.value)
            case syntax.Cast():
                return self._whole(it.value)
            case syntax.Name() if it.name in self.constants:
                return self._whole(self.constants[it.name])
            case syntax.Binary() if it.sign in _KNOWN:
                return _KNOWN[it.sign](self._whole(it.left), self._whole(it.right))
        self.fail("expected a number of elements")

    def _shared(self) -> list[Statement]:
        self.take("threadgroup")
        kind = self._type()
        while True:
            name, sizes = self.name(), self._dimensions()
            self.shared[name] = kind, prod(sizes) * kind.size_bytes
            self.shapes[name] = sizes
            if self.has(";"):
                return []
            self.take(",")

    def _declaration(self, line: int) -> list[Statement]:
        while self.has("constexpr") or self.has("thread"):
            pass
        if self.now.text.startswith("atomic"):
            self.fail("expected a type that a thread's own variable may have")
        kind, _ = self._qualified()
        found: list[Statement] = []
        while True:
            name, sizes = self.name(), self._dimensions()
            value = None
            if self.has("="):
                value = self._expression()
            elif kind.space:
                self.fail("a pointer begins somewhere")
            found.append(syntax.Declare(kind, name, value, line, sizes))
            if sizes and value is not None:
                self.fail("an array with its first values is not in the subset that is run here")
            if self.has(";"):
                return found
            self.take(",")

    def _for(self, line: int) -> list[Statement]:
        self.take("(")
        before: list[Statement] = []
        kind, name, low = INT, "for", syntax.Number(0, INT)
        if self._begins_declaration():
            *before, first = self._declaration(line)
            assert isinstance(first, syntax.Declare)
            if first.value is None or first.sizes:
                self.fail("a loop's own variable has a first value")
            kind, name, low = first.kind, first.name, first.value  # type: ignore[assignment]
        elif not self.has(";"):
            before = [self._simple()]
            self.take(";")
        condition: Expression = syntax.Number(1, BOOL) if self.now.text == ";" else self._expression()
        self.take(";")
        after: list[Statement] = []
        while not self.has(")"):
            after.append(self._simple())
            if self.now.text != ")":
                self.take(",")
        step: Expression = syntax.Name(name, line)
        own = [
            one
            for one in after
            if isinstance(one, syntax.Assign) and one.target == syntax.Name(name, one.line)
        ]
        if len(own) == 1 and after == own:
            step, after = own[0].value, []
        return [*before, syntax.For(kind, name, low, condition, step, self._statement(), line, after)]

    def _do(self, line: int) -> Statement:
        """do body while (condition): the first time it is not asked."""
        body = self._statement()
        self.take("while")
        self.take("(")
        condition = self._expression()
        self.take(")")
        self.take(";")
        turn = syntax.Name("do", line)
        is_first = syntax.Binary("==", turn, syntax.Number(0, INT))
        again = syntax.Binary("||", is_first, condition)
        return syntax.For(INT, "do", syntax.Number(0, INT), again, syntax.Number(1, INT), body, line)

    # ------------------------------------------------------------ expressions

    def _expression(self) -> Expression:
        condition = self._level(0)
        if not self.has("?"):
            return condition
        yes = self._expression()
        self.take(":")
        return syntax.Choice(condition, yes, self._expression())

    def _level(self, number: int) -> Expression:
        if number == len(_LEVELS):
            return self._unary()
        left = self._level(number + 1)
        while self.now.kind == "sign" and self.now.text in _LEVELS[number]:
            sign = self.now.text
            self.at += 1
            left = syntax.Binary(sign, left, self._level(number + 1))
        return left

    def _unary(self) -> Expression:
        if self.now.kind == "sign" and self.now.text in "-!~*&":
            sign = self.now.text
            self.at += 1
            return syntax.Unary(sign, self._unary())
        if self.now.text == "(" and self._is_type(self.tokens[self.at + 1]):
            self.take("(")
            kind, _ = self._qualified()
            self.take(")")
            return syntax.Cast(kind, self._unary())
        return self._postfix()

    def _is_type(self, token: Token) -> bool:
        return token.kind == "name" and (token.text in (*SPACES, "const") or named(token.text) is not None)

    def _postfix(self) -> Expression:
        found = self._primary()
        while True:
            if self.has("["):
                index = self._expression()
                self.take("]")
                found = syntax.Index(found, index)
            elif self.has("."):
                name = self.name()
                if name == syntax.ELEMENTS:
                    self.take("(")
                    self.take(")")
                found = syntax.Member(found, name)
            else:
                return found

    def _primary(self) -> Expression:
        token = self.now
        self.at += 1
        if token.kind == "int":
            digits = token.text.rstrip("uUlL")
            suffix = token.text[len(digits) :].lower()
            value = int(digits, 0)
            wide = "l" in suffix or value >= 1 << (32 if "u" in suffix or digits[:2].lower() == "0x" else 31)
            unsigned = "u" in suffix or (digits[:2].lower() == "0x" and value >= 1 << (63 if wide else 31))
            return syntax.Number(value, Type(("u" if unsigned else "") + ("long" if wide else "int")))
        if token.kind == "float":
            kind = Type("half") if token.text.endswith("h") else FLOAT
            return syntax.Number(float(token.text.rstrip("fh")), kind)
        if token.text == "(":
            found = self._expression()
            self.take(")")
            return found
        if token.kind != "name":
            self.at -= 1
            self.fail("expected an expression")
        if token.text in ("true", "false"):
            return syntax.Number(int(token.text == "true"), BOOL)
        if token.text == "as_type":
            self.take("<")
            kind = self._type()
            self.take(">")
            return syntax.Call("as_type", self._arguments(), token.line, kind)
        made = named(token.text)
        if made is not None:
            arguments = self._arguments()
            if made.lanes == 1 and len(arguments) == 1:
                return syntax.Cast(made, arguments[0])
            return syntax.Call("vector", arguments, token.line, made)
        if self.now.text == "(":
            return syntax.Call(token.text, self._arguments(), token.line)
        return syntax.Name(token.text, token.line)

    def _arguments(self) -> list[Expression]:
        self.take("(")
        found: list[Expression] = []
        while not self.has(")"):
            found.append(self._expression())
            if self.now.text != ")":
                self.take(",")
        return found
