"""PTX text to a Module. Every word is accounted for: what is not known is an error, what is ignored is listed here.

In       the text that nvrtc, LLVM's NVPTX back end or a person wrote
Out      syntax.Module
Next     decode.py (instructions to closures), lexer.py (words)
Source   PTX ISA, "PTX Directives", "State Spaces, Types, and Variables"
"""

from __future__ import annotations

import math

from hcq.checks import is_decimal
from hcq.emu.nv.shader import lexer
from hcq.emu.nv.shader.errors import PtxError
from hcq.emu.nv.shader.reader import Reader
from hcq.emu.nv.shader.syntax import (
    SPECIAL_SCALARS,
    SPECIAL_VECTORS,
    Address,
    Arguments,
    Discard,
    Function,
    Immediate,
    Initial,
    Instruction,
    Module,
    Operand,
    Pair,
    Register,
    Symbol,
    TensorAddress,
    Variable,
    Vector,
)
from hcq.emu.nv.shader.types import TYPES, Type

MAX_REGISTERS = 1 << 18
ABOUT = 1 << 12  # characters at the beginning, where compilers say who they are
MAX_SHOWN = 400  # characters of an instruction, in messages
SPACES = (".global", ".const", ".shared", ".local", ".param")
LINKAGE = (".visible", ".extern", ".weak", ".common")

# These say how to tune or debug a kernel, not what it computes; they take numbers, or nothing.
IGNORED_FUNCTION_DIRECTIVES = (
    ".minnctapersm", ".maxnctapersm", ".maxnreg", ".noreturn", ".maxclusterrank", ".abi_preserve",
    ".abi_preserve_control", ".language", ".pragma",
)  # fmt: skip
CLUSTER_DIRECTIVES = (".explicitcluster", ".reqnctapercluster", ".blocksareclusters")
# what no instruction here can use, which is said where one tries
TEXTURES = (".texref", ".samplerref", ".surfref")


def parse(text: str) -> Module:
    """Parse one PTX module. Raises PtxError, which names the line, at the first thing that is not understood."""
    return _Parser(text).module()


class _Parser(Reader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.is_cuda = "NVIDIA NVVM Compiler" in text[:ABOUT]
        self.version = (0, 0)
        self.target = ""
        self.address_bytes = 8
        self.functions: dict[str, Function] = {}
        self.variables: dict[str, Variable] = {}
        self.function: Function | None = None
        # a pair of braces each: names declared there -> the function's names
        self.scopes: list[dict[str, str]] = []
        self.scope_count = 0

    # -- the module

    def module(self) -> Module:
        while self.at < len(self.words):
            self._top()
        if not self.version[0]:
            raise PtxError(1, "there is no .version directive. Is this PTX text?")
        for variable in self.variables.values():
            for piece in variable.addresses:
                if piece.symbol not in self.variables and piece.symbol not in self.functions:
                    raise PtxError(
                        variable.line, f"{variable.name!r} names {piece.symbol!r}, which is not declared"
                    )
        return Module(
            self.version, self.target, self.address_bytes, self.functions, self.variables, self.is_cuda
        )

    def _top(self) -> None:
        word = self.peek()
        if word == ".version":
            self.next()
            major, _, minor = self.next().partition(".")
            if not (is_decimal(major) and is_decimal(minor)):
                raise self.error("expected a version such as 8.0")
            self.version = (int(major), int(minor))
        elif word == ".target":
            self.next()
            # behind the first: debug, texmode_independent; nothing that we execute depends on them
            self.target = self.separated(lambda: self.name("the target"))[0]
        elif word == ".address_size":
            self.next()
            self.address_bytes = self.integer("the address size") // 8
            if self.address_bytes != 8:
                raise self.error(
                    f".address_size {8 * self.address_bytes}: only 64-bit addresses are supported"
                )
        elif self._debug_directive() or self.accept(";"):
            pass
        elif word in LINKAGE or word in SPACES or word in (".entry", ".func"):
            self._definition()
        elif word == ".alias":
            self._alias()
        else:
            raise PtxError(self.line, f"unknown directive {word!r} at the module's level")

    def _debug_directive(self) -> bool:
        """.file, .loc, .section, .pragma describe lines and debugging: skipped, as they change no result."""
        word = self.peek()
        if word in (".file", ".loc"):
            line = self.line
            while self.at < len(self.words) and self.line == line:
                self.next()
            return True
        if word == ".section":
            self.next()
            while self.next() != "{":
                pass
            while self.next() != "}":
                pass
            return True
        if word == ".pragma":
            while self.next() != ";":
                pass
            return True
        return False

    def _alias(self) -> None:
        self.next()
        name = self.name("the alias")
        self.expect(",")
        target = self.name("the function it stands for")
        self.expect(";")
        if target not in self.functions:
            raise self.error(f".alias of {target!r}, which is not a function of this module")
        self.functions[name] = self.functions[target]

    def _definition(self) -> None:
        is_extern = False
        while self.peek() in LINKAGE:
            is_extern |= self.next() == ".extern"
        if self.peek() in (".entry", ".func"):
            start = self.at
            try:
                self._function()
            except PtxError as error:
                self._leave_out(start, error)
            return
        for variable in self._variables(is_extern):
            known = self.variables.get(variable.name)
            if known is not None and not (known.is_extern or variable.is_extern):
                raise self.error(f"{variable.name!r} is declared twice")
            if known is None or known.is_extern:
                self.variables[variable.name] = variable
        self.expect(";")

    # -- variables

    def _variables(self, is_extern: bool = False) -> list[Variable]:
        """.space .align N .type name[size] = {...}, name2: one declaration."""
        space = self.next()
        if space not in SPACES:
            raise self.error(f"unknown state space {space!r}")
        space = ".texture" if self.peek() in TEXTURES else space
        type_, alignment, elements = self._declared_type()
        found = [self._variable(space[1:], type_, alignment, elements, is_extern)]
        while self.peek() == "," and space != ".param":
            self.next()
            found.append(self._variable(space[1:], type_, alignment, elements, is_extern))
        return found

    def _declared_type(self) -> tuple[Type, int, int]:
        alignment, elements = 0, 1
        while True:
            word = self.next()
            if word == ".align":
                alignment = self.integer("an alignment")
                if alignment <= 0 or alignment & (alignment - 1):
                    raise self.error(f".align {alignment} is not a power of two")
            elif word == ".attribute":
                while self.next() != ")":
                    pass  # .managed, .unified: where the driver puts it, which is not ours to decide
            elif word in (".v2", ".v4"):
                elements = int(word[2:])
            elif word[1:] in TYPES and word[0] == ".":
                type_ = TYPES[word[1:]]
                return type_, alignment, elements
            elif word in TEXTURES:
                return TYPES["b64"], alignment, elements
            else:
                raise self.error(f"expected a type such as .b32, found {word!r}")

    def _variable(self, space: str, type_: Type, alignment: int, elements: int, is_extern: bool) -> Variable:
        line = self.line
        while self.peek() in (".ptr", ".global", ".const", ".shared", ".local", ".align"):
            if self.next() == ".align":  # says where a pointer parameter points: a promise for optimizers
                self.integer("an alignment")
        name = self.name("a variable") if self.peek() not in (",", ")", "[") else ""
        if self.accept("<"):
            raise self.error(f"{name}<n>: numbered names are for registers only")
        sizes: list[int] = []
        while self.accept("["):
            sizes.append(0 if self.peek() == "]" else self.integer("an array size"))
            self.expect("]")
        count = elements * math.prod(sizes)
        size_bytes = type_.size_bytes
        variable = Variable(
            self._declare(name, space),
            space,
            type_,
            count * size_bytes,
            alignment or size_bytes * elements,
            line,
            is_extern=is_extern,
        )
        if self.accept("="):
            self._initial(variable)
            if sizes and sizes[0] == 0:
                variable.size_bytes = len(variable.data)
        return variable

    def _initial(self, variable: Variable) -> None:
        data = bytearray()
        size = variable.type.size_bytes

        def element() -> None:
            if self.accept("{"):
                while not self.accept("}"):
                    element()
                    self.accept(",")
                return
            shift = 0
            if (mask := self.number(self.peek())) is not None and self.peek(1) == "(":
                # 0xFF00(symbol): one byte of an address
                self.next()
                if mask.value == 0 or (mask.value >> lexer.low_zeros(mask.value)) != 0xFF:
                    raise self.error(f"the mask {mask.value:#x} of an initial address does not pick one byte")
                shift = lexer.low_zeros(mask.value)
            value = self._initial_value()
            if isinstance(value, Symbol):
                variable.addresses.append(Initial(len(data), size, value.name, value.offset, shift))
                data.extend(bytes(size))
                return
            data.extend(lexer.pack(value, variable.type))

        element()
        if variable.size_bytes and len(data) > variable.size_bytes:
            raise self.error(
                f"{variable.name!r} has {variable.size_bytes} bytes and {len(data)} initial bytes"
            )
        variable.data = bytes(data)

    def _initial_value(self) -> Immediate | Symbol:
        negative = self.accept("-")
        if self.accept("("):
            inner = self._initial_value()
            self.expect(")")
            return inner
        word = self.next()
        value = self.number(word)
        if value is not None:
            return lexer.negated(value) if negative else value
        name = word
        if word == "generic":
            self.expect("(")
            name = self.name(
                "a symbol"
            )  # variables are in global memory, whose generic addresses are the same
            self.expect(")")
        offset = 0
        while self.peek() in ("+", "-"):
            sign = -1 if self.next() == "-" else 1
            offset += sign * self.integer("an offset")
        return Symbol(name, offset)

    # -- functions

    def _function(self) -> None:
        line = self.line
        is_entry = self.next() == ".entry"
        while self.peek() == ".attribute":
            while self.next() != ")":
                pass
        results = self._formals()
        name = self.name("a function")
        function = Function(name, line, is_entry, [], results)
        self.function, self.scopes = function, [{}]
        function.params = self._formals()
        self._function_directives(function)
        if self.accept(";"):
            self.functions.setdefault(name, function)
            self.function = None
            return
        function.has_body = True
        self.expect("{")
        self._body(function)
        if self.functions.get(name) is not None and self.functions[name].has_body:
            raise PtxError(line, f"function {name!r} is defined twice")
        self.functions[name] = function
        self.function = None

    def _leave_out(self, start: int, error: PtxError) -> None:
        """Go on behind a function that is not understood: only what reaches it cannot run.

        Raises  the error, where the function has no name or no end
        """
        self.function, self.scopes, self.at = None, [], start
        line, is_entry = self.line, self.next() == ".entry"
        while self.peek() == "(" or self.peek() == ".attribute":
            self.skip_to(")", error)
        name = self.next()
        if not (name[0].isalpha() or name[0] in "_$%"):
            raise error
        while self.peek() not in ("{", ";"):
            self.skip_to(")", error) if self.peek() == "(" else self.skip_to(self.peek(), error)
        has_body = self.peek() == "{"
        depth = 0
        while True:
            word = self.peek()
            self.skip_to(word, error)
            depth += (word == "{") - (word == "}")
            if not depth:
                break
        self.functions[name] = Function(name, line, is_entry, [], [], has_body=has_body, fault=error)

    def _function_directives(self, function: Function) -> None:
        counts_clusters = False
        while self.peek().startswith("."):
            word = self.next()
            if word in (".maxntid", ".reqntid"):
                sizes = self._numbers()
                if word == ".reqntid":
                    function.required_block = (*sizes, 1, 1)[:3]
                else:
                    function.largest_block = (*sizes, 1, 1)[:3]
            elif word in IGNORED_FUNCTION_DIRECTIVES:
                if self.peek().startswith('"'):
                    self.next()
                elif self.peek()[:1].isdigit():
                    self._numbers()
            elif word in CLUSTER_DIRECTIVES:
                sizes = self._numbers() if self.peek()[:1].isdigit() else ()
                if any(size != 1 for size in sizes):
                    function.required_cluster = (*sizes, 1, 1)[:3]
                counts_clusters |= word == ".blocksareclusters"
            else:
                raise self.error(f"unknown directive {word!r} of function {function.name!r}")
        if counts_clusters and function.required_cluster:
            raise self.error(
                ".blocksareclusters: grids that are counted in clusters of more than one block are not emulated"
            )

    def _numbers(self) -> tuple[int, ...]:
        return tuple(self.separated(lambda: self.integer("a size")))

    def _formals(self) -> list[Variable]:
        found: list[Variable] = []
        if not self.accept("("):
            return []
        while not self.accept(")"):
            if self.peek() == ".reg":
                raise self.error("parameters in registers belong to old PTX; use .param")
            found.extend(self._variables())
            self.accept(",")
        return found

    # -- bodies

    def _body(self, function: Function) -> None:
        depth = 1
        while depth:
            word = self.peek()
            if word == "{":
                self.next()
                depth, self.scope_count = depth + 1, self.scope_count + 1
                self.scopes.append({})
                self._declare_labels_ahead()
            elif word == "}":
                self.next()
                depth -= 1
                self.scopes.pop()
            elif self.accept(";") or self._debug_directive():
                pass
            elif word == ".reg":
                self._registers(function)
            elif word in SPACES or word in LINKAGE:
                while self.peek() in LINKAGE:
                    self.next()
                for variable in self._variables():
                    function.variables[variable.name] = variable
                self.expect(";")
            elif self.peek(1) == ":":
                self._label(function)
            else:
                self._instruction(function)

    def _declare(self, name: str, space: str = "reg") -> str:
        """The function's name for something declared here: in an inner scope, the scope's number is added."""
        if self.function is None or not self.scopes:
            return name
        known = f"{name}#{self.scope_count}" if len(self.scopes) > 1 else name
        self.scopes[-1][name] = known
        return known

    def _resolve(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return name

    def _registers(self, function: Function) -> None:
        self.next()
        type_, _, elements = self._declared_type()
        if elements != 1:
            raise self.error("vector registers (.reg .v4) are not supported; declare scalars")
        while True:
            name = self.name("a register")
            if self.accept("<"):
                count = self.integer("how many registers")
                if not 0 <= count <= MAX_REGISTERS:
                    raise self.error(
                        f"{name}<{count}>: at most {MAX_REGISTERS} registers can be declared at once"
                    )
                self.expect(">")
                for i in range(count):
                    function.registers[self._declare(f"{name}{i}")] = type_
            else:
                function.registers[self._declare(name)] = type_
            if self.accept(";"):
                return
            self.expect(",")

    def _declare_labels_ahead(self) -> None:
        """A branch may come before its label: the labels of an inner scope are known from its opening brace on."""
        depth, at = 1, self.at
        while depth and at + 1 < len(self.words):
            word = self.words[at].text
            depth += (word == "{") - (word == "}")
            if depth == 1 and self.words[at + 1].text == ":":
                self._declare(word, "label")
            at += 1

    def _label(self, function: Function) -> None:
        name = self.name("a label")
        self.expect(":")
        label = self._resolve(name)
        if self.peek() in (".branchtargets", ".calltargets"):
            self.next()
            function.targets[label] = tuple(self.separated(lambda: self._resolve(self.name("a target"))))
            self.expect(";")
            return
        if self.peek() == ".callprototype":
            self._prototype(function)
            function.targets[label] = ()
            return
        if label in function.labels:
            raise self.error(f"label {name!r} is there twice")
        function.labels[label] = len(function.body)

    def _prototype(self, function: Function) -> None:
        """How the functions look that a call by address may reach; the names of its parameters name nothing."""
        self.next()
        self.scopes.append({})
        self._formals()
        self.name("a prototype")
        self._formals()
        self.scopes.pop()
        self._function_directives(function)
        self.expect(";")

    def _instruction(self, function: Function) -> None:
        line, start = self.line, self.at
        try:
            guard, opcode, modifiers, operands = self._statement(function)
        except PtxError as error:
            while self.peek() not in (";", "{", "}", ""):
                self.next()
            raise PtxError(error.line, error.why, self._shown(start, self.at)) from None
        made = Instruction(
            line, self._shown(start, self.at - 1), opcode, tuple(modifiers), tuple(operands), guard
        )
        function.body.append(made)

    def _shown(self, start: int, end: int) -> str:
        """The text from a word to another one, for messages."""
        if start >= len(self.words):
            return ""
        until = self.words[end].at if end < len(self.words) else None
        return " ".join(self.text[self.words[start].at : until].split())[:MAX_SHOWN]

    def _statement(self, function: Function) -> tuple[Register | None, str, list[str], list[Operand]]:
        """(guard, opcode, modifiers, operands) of an instruction."""
        line, guard = self.line, None
        if self.accept("@"):
            negated = self.accept("!")
            guard = Register(self._resolve(self.name("a predicate")), negated)
        opcode = self.next()
        if not opcode[0].isalpha():
            raise PtxError(line, f"expected an instruction, found {opcode!r}")
        modifiers: list[str] = []
        while self.peek().startswith("."):
            modifiers.append(self.next()[1:])
        operands: list[Operand] = []
        if not self.accept(";"):
            operands = self.separated(lambda: self._operand(function))
            self.expect(";")
        return guard, opcode, modifiers, operands

    def _operand(self, function: Function) -> Operand:
        if self.accept("{"):
            return Vector(self._operands(function, "}"))
        if self.accept("("):
            return Arguments(self._operands(function, ")"))
        if self.accept("["):
            return self._bracketed(function)
        first = self._simple(function)
        if self.accept("|"):
            return Pair(first, self._simple(function))
        return first

    def _operands(self, function: Function, end: str) -> tuple[Operand, ...]:
        found: list[Operand] = []
        while not self.accept(end):
            found.append(self._operand(function))
            if not self.accept(","):
                self.expect(end)
                break
        return tuple(found)

    def _address(self, function: Function) -> Address:
        base: Register | Symbol | None = None
        offset = 0
        if self.number(self.peek()) is not None:
            offset = self.integer("an address")
        else:
            simple = self._simple(function)
            if not isinstance(simple, (Register, Symbol)):
                raise self.error("an address is a register or a name, plus a number")
            base = simple
            if isinstance(base, Symbol):
                base, offset = Symbol(base.name), base.offset
        while self.peek() in ("+", "-"):
            sign = -1 if self.next() == "-" else 1
            offset += sign * self.integer("an offset")
        return Address(base, offset)

    def _bracketed(self, function: Function) -> Operand:
        address = self._address(function)
        parts = self._operand(function) if self.accept(",") else None
        self.expect("]")
        self.accept(".unified")  # a promise about the variable
        if parts is not None and not isinstance(parts, Vector):
            raise self.error("an address of several parts is [tensor map, {coordinates}]: no textures here")
        return address if parts is None else TensorAddress(address, parts)

    def _simple(self, function: Function) -> Operand:
        if self.accept("!"):
            return Register(self._resolve(self.name("a predicate")), True)
        negative = self.accept("-")
        word = self.next()
        value = self.number(word)
        if value is not None:
            return lexer.negated(value) if negative else value
        if word == "_":
            return Discard()
        if not (word[0].isalpha() or word[0] in "_$%"):
            raise self.error(f"expected an operand, found {word!r}")
        known = self._resolve(word)
        if known in function.registers:
            part = self.next()[1:] if self.peek().startswith(".") else ""
            return Register(known, part=part, minus=negative)
        if negative:
            raise self.error(f"a minus stands before {word!r}, which is no number")
        if word == "WARP_SZ":
            return Immediate(32)
        if word.startswith("%"):
            return self._special(word[1:])
        if self.peek() == "+" and self.number(self.peek(1)) is not None:
            self.next()
            return Symbol(known, self.integer("an offset"))
        return Symbol(known)

    def _special(self, name: str) -> Symbol:
        if name in SPECIAL_VECTORS:
            part = self.next()
            if part not in (".x", ".y", ".z"):
                raise self.error(f"%{name}{part}: the parts of %{name} are .x, .y and .z")
            return Symbol(f"%{name}{part}")
        if name in SPECIAL_SCALARS or (name.startswith("envreg") and name[6:].isdigit()):
            return Symbol(f"%{name}")
        raise self.error(f"%{name} is neither a declared register nor a special register")
