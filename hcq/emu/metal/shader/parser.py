"""MSL's parser: text to a tree, for the subset that is run here.

In       the source of a library
Out      Source: its kernels and functions; MslError, which names the line, for anything else
Next     syntax.py (the tree), translate.py (who checks types, and runs it)
Source   Metal Shading Language Specification 3.1: attributes of kernels and their arguments, address spaces; C++14
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
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
    r"|(?P<sign>\[\[|\]\]|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|[-+*/%&|^~!<>=?:;,.(){}\[\]])",
    re.S,
)
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


def _tokens(text: str) -> list[Token]:
    found, at, line = [], 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise MslError(f"program_source:{line}: {text[at]!r} begins no word of MSL")
        kind = match.lastgroup or next(k for k, v in match.groupdict().items() if v is not None)
        if kind != "skip":
            found.append(Token(kind, match[0], line))
        line += match[0].count("\n")
        at = match.end()
    return [*found, Token("end", "the end", line)]


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.at = tokens, 0
        self.shared: dict[str, tuple[Type, int]] = {}

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
            self._function(found)
        return found

    def _function(self, source: Source) -> None:
        most, is_kernel = 0, False
        while True:
            if self.now.text == "[[":
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
        self.shared = made.shared
        made.body = self._block()
        if made.name in source.kernels or made.name in source.functions:
            self.fail(f"redefinition of {made.name!r}")
        (source.kernels if is_kernel else source.functions)[made.name] = made

    def _attribute(self) -> str:
        self.take("[[")
        words = []
        while not self.has("]]"):
            if self.now.kind == "end":
                self.fail("expected ']]'")
            words.append(self.now.text)
            self.at += 1
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
        base: Type | None = None
        while True:
            if self.now.text in SPACES and not space:
                space = self.name()
            elif self.has("const"):
                is_const = True
            elif base is None:
                base = self._type()
            else:
                break
        if self.has("*") or self.has("&"):
            if not space:
                self.fail("a pointer names its address space")
            return Type(base.scalar, base.lanes, space), is_const
        return (base if not space else Type(base.scalar, base.lanes, space)), is_const

    def _type(self) -> Type:
        found = named(self.now.text)
        if found is None:
            self.fail("expected a type that is known here")
        self.at += 1
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
        if self.has("if"):
            self.take("(")
            condition = self._expression()
            self.take(")")
            then = self._statement()
            return [syntax.If(condition, then, self._statement() if self.has("else") else [], line)]
        if self.has("for"):
            return [self._for(line)]
        if self.has("return"):
            value = None if self.now.text == ";" else self._expression()
            self.take(";")
            return [syntax.Return(value, line)]
        if self.now.text == "threadgroup" and self.tokens[self.at + 1].kind == "name":
            return self._shared()
        if self.now.text == "const" or (named(self.now.text) and self.tokens[self.at + 1].kind == "name"):
            return self._declaration(line)
        target = self._expression()
        if self.has("="):
            value = self._expression()
            self.take(";")
            return [syntax.Assign(target, value, line)]
        self.take(";")
        if not isinstance(target, syntax.Call):
            raise MslError(f"program_source:{line}: an expression whose value nobody uses")
        return [syntax.Do(target, line)]

    def _shared(self) -> list[Statement]:
        self.take("threadgroup")
        kind, name = self._type(), self.name()
        self.take("[")
        count = self.now.text
        if self.now.kind != "int":
            self.fail("expected a number of elements")
        self.at += 1
        self.take("]")
        self.take(";")
        self.shared[name] = kind, int(count) * kind.size_bytes
        return []

    def _declaration(self, line: int) -> list[Statement]:
        self.has("const")
        kind = self._type()
        found: list[Statement] = []
        while True:
            name = self.name()
            value = None
            if not kind.is_matrix or self.now.text == "=":
                self.take("=")
                value = self._expression()
            found.append(syntax.Declare(kind, name, value, line))
            if self.has(";"):
                return found
            self.take(",")

    def _for(self, line: int) -> Statement:
        self.take("(")
        kind, name = self._type(), self.name()
        self.take("=")
        low = self._expression()
        self.take(";")
        condition = self._expression()
        self.take(";")
        self.take("++")
        if self.name() != name:
            self.fail(f"a loop counts its own variable {name!r}")
        self.take(")")
        step = syntax.Number(1, INT)
        return syntax.For(kind, name, low, condition, step, self._statement(), line)

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
