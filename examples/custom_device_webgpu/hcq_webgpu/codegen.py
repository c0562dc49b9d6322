"""Kernels: loops become workgroups and invocations, a linear program becomes WGSL, which the device builds.

In       a LoopNest, then a Program
Out      the nest with its loops bound; the text of a kernel, which is also what is loaded
Changes  the nest
Next     arithmetic.py (expressions), kernel.py (what the device makes of it), docs/schedules.md (what can be done with
         loops), hcq/compiler/linear/program.py (every instruction)
Source   WGSL (W3C): storage holds numbers of 32 bits, or 64 by wgpu-native's extension; atomics of 32

Narrower elements lie in words: a load shifts one out, and a store clears and sets its bits by two atomic operations,
because other invocations own the word's other elements.
"""

from __future__ import annotations

from math import prod

from hcq.compiler.codegen import Codegen
from hcq.compiler.linear.narrow_indices import narrow_indices
from hcq.compiler.linear.program import NOT_NEGATIVE, Instruction, Program
from hcq.compiler.loops.heuristic_plain import choose as choose_plain
from hcq.compiler.loops.heuristic_plain import may
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.target import Target
from hcq.ir.dtype import DType
from hcq.ir.op import ARITHMETIC, TRANSCENDENTAL, Op
from hcq.tools.disassembly.function import Line
from hcq_webgpu.api import BUFFERS
from hcq_webgpu.arithmetic import helpers, literal, register_type, spell, widened
from hcq_webgpu.packets import ARCHS, SHORT

MOST_THREADS = 64  # invocations of a group
GROUPS = 128  # that run at once, or nearly: long sums to few results are made in so many parts
MOST_GROUPS = 65535  # in a dimension: WebGPU's default limit
MOST_TURNS = 65535  # of all loops of an invocation together: Mesa's CPU driver goes on behind them then
_WHY = f"Mesa's driver for CPUs leaves all loops after {MOST_TURNS}"
MOST_WRITTEN_OUT = 16  # steps of a sum
MOST_READ = 16  # buffers that a kernel reads; it writes a few besides, BUFFERS in all
VERSION = 8  # part of the key of cached kernels: another text of the same program needs another number


def target(arch: str, threads: int | None) -> Target:
    """What the compiler should know of the device: it does sums one by one, and no float of less than 32 bits."""
    return Target(
        "webgpu",
        arch,
        f"{arch}-{VERSION}",
        threads=GROUPS,
        vector_bits=32,
        vector_registers=16,
        native=ARITHMETIC - TRANSCENDENTAL,
        casts=frozenset(),
        has_float64="float64" in arch,
        most_arguments=MOST_READ,
        codegen="hcq_webgpu.codegen:CODEGEN",
    )


def choose(nest: LoopNest, target: Target) -> LoopNest:
    """Results to invocations, as the compiler does it for a machine of which it knows little."""
    choose_plain(nest, MOST_THREADS)
    if target.arch.endswith(SHORT):
        _shorten(nest)
    return nest


def _shorten(nest: LoopNest) -> None:
    """Write steps of long sums out, so that an invocation comes to fewer ends of loops."""
    for axis in [axis for axis in reversed(nest.axes) if axis.is_reduce or axis.is_ordered]:
        serial = [loop.size for one in nest.axes for loop in one.loops if loop.kind == "serial"]
        whole = next(count for count in range(MOST_WRITTEN_OUT, 0, -1) if axis.size % count == 0)
        count = whole if 2 * whole > MOST_WRITTEN_OUT else min(MOST_WRITTEN_OUT, axis.size)
        if prod(serial) > MOST_TURNS // 2 and count > 1 and may(nest, "split", axis.name, count):
            may(nest, "unroll", axis.loops[-1].name)


def render(program: Program, arch: str) -> str:
    """The text of a kernel. Raises ValueError for what WebGPU cannot run, or `choose` gives no cause for."""
    if len(program.params) > BUFFERS:
        raise ValueError(
            f"[render] {program.name}: {len(program.params)} buffers; a kernel of WebGPU takes {BUFFERS} here. "
            "Realize some of them first"
        )
    if arch.endswith(SHORT):
        _check_turns(program)
    narrow_indices(program)
    body = _Body(program)
    for it in program.instructions:
        body.add(it)
    text = "\n".join(body.lines)
    head = [f"// {program.name}: {program.groups} groups of {program.launched} invocations"]
    for at, (param, dtype) in enumerate(program.params):
        head.append(f"// p{param.index}: {dtype.name} {list(param.shape)}")
        kind = _element(dtype, param.writable)
        head.append(f"@group(0) @binding({at}) var<storage, read_write> p{param.index}: array<{kind}>;")
    group = "group_.x"
    first = []
    if "seal_" in text:
        head.append("var<private> zero_: u32;  // what it is, no compiler knows")
        first.append(f"  zero_ = select(0u, 1u, arrayLength(&p{program.params[0][0].index}) == 0u);")
    if program.groups > MOST_GROUPS:
        head.append(f"const ROW = {MOST_GROUPS}u;")
        group = "(group_.y * ROW + group_.x)"
        first.append(f"  if ({group} >= {program.groups}u) {{ return; }}")
    head += ["", *helpers(text), ""]
    head.append(f"@compute @workgroup_size({program.launched})")
    head.append(
        f"fn {program.name}(@builtin(workgroup_id) group_: vec3<u32>, "
        "@builtin(local_invocation_index) thread_: u32) {"
    )
    return "\n".join([*head, *first, text.replace("GROUP", group), "}"]) + "\n"


def _check_turns(program: Program) -> None:
    """Raises ValueError for a kernel in which an invocation comes to more ends of loops than Mesa counts."""
    turns, around = 0, [1]
    for it in program.instructions:
        if it.op is Op.LOOP:
            is_group = it.source(0).op is Op.SPECIAL
            low, high = (0, 1) if is_group else (it.source(0).number, it.source(1).number)
            if low is None or high is None:
                raise ValueError(f"[render] {program.name}: a loop of no known length, where {_WHY}")
            turns += around[-1] * (int(high) - int(low) + 1)
            around.append(around[-1] * (int(high) - int(low)))
        elif it.op is Op.ENDLOOP:
            around.pop()
    if turns > MOST_TURNS:
        raise ValueError(
            f"[render] {program.name}: {turns} turns of loops in an invocation, where {_WHY}. Compute it in two "
            "steps, such as x.reshape(-1, 1024).sum(1).sum()"
        )


def _is_narrow(dtype: DType) -> bool:
    """Whether several elements lie in a word of memory."""
    return dtype.is_bool or dtype.bits < 32


def _element(dtype: DType, is_written: bool) -> str:
    """The type of memory's elements."""
    if not _is_narrow(dtype):
        return register_type(dtype)
    return "atomic<u32>" if is_written else "u32"


def _sealed(it: Instruction) -> list[int]:
    """Which sources of an operation have to be hidden from those that would compute something else.

    WGSL lets a compiler reassociate, so that (x + 1e7) - 1e7 may become x, where hcq means what is written; a product
    may only be fused into a sum.
    """
    if it.op not in (Op.ADD, Op.MUL, Op.DIV, Op.SQRT) or not it.dtype.is_float:
        return []
    sources = [it.source(place) for place in range(len(it.src))]
    made = [_made_by(source) for source in sources]
    by_zero = [source.number == 0 for source in sources]
    if it.op is Op.ADD:
        found = [place for place, ops in enumerate(made) if Op.ADD in ops or by_zero[place]]
        is_folded = all(Op.MUL in ops for ops in made) or sources[0] in (sources[1], _negated(sources[1]))
        return found or [0] * (is_folded or sources[1] is _negated(sources[0]))
    return [place for place, ops in enumerate(made) if {Op.MUL, Op.DIV} & ops or any(by_zero)]


def _negated(it: Instruction) -> Instruction | None:
    """What a negation negates."""
    return it.source(0) if it.op is Op.NEG else None


def _made_by(it: Instruction) -> set[Op]:
    """The operations that a value may be the result of, behind its sign and what chooses it."""
    found: set[Op] = set()
    seen: set[Instruction] = set()
    rest = [it]
    while rest:
        one = rest.pop()
        if one in seen:
            continue
        seen.add(one)
        if one.op is Op.NEG:
            rest.append(one.source(0))
        elif one.op is Op.WHERE:
            rest += [one.source(1), one.source(2)]
        else:
            found.add(one.op)
    return found


class _Body:
    """The statements of a kernel: a constant for each value, a variable for each accumulator."""

    def __init__(self, program: Program) -> None:
        self.written = {param.index for param, _ in program.params if param.writable}
        self.lines: list[str] = []
        self.names: dict[Instruction | None, str] = {None: "0"}
        self.depth = 1

    def say(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def let(self, it: Instruction, value: str, word: str = "let") -> None:
        name = self.names[it] = f"v{len(self.names)}"
        self.say(f"{word} {name}: {register_type(it.dtype)} = {value};")

    def add(self, it: Instruction) -> None:
        """Write one instruction down."""
        if it.dtype.lanes > 1:
            raise ValueError(f"[render] {it.op.name} on {it.dtype}: this renderer knows no vectors")
        source = [self.names[one] for one in it.src]
        if it.op is Op.CONST:
            self.names[it] = literal(it.arg, it.dtype)
        elif it.op is Op.PARAM:
            self.names[it] = f"p{it.arg.index}"
        elif it.op is Op.SPECIAL:
            words = {"thread": "thread_", "first": "GROUP", "last": "GROUP + 1u"}
            kind = register_type(it.dtype)
            value = f"{kind}({words[it.arg]})"
            self.let(it, widened(value) if kind == "i64" else value)
        elif it.op is Op.LOOP:
            kind, name = register_type(it.dtype), f"n{len(self.names)}"
            self.names[it] = name
            step = f"{name} = {name} + {literal(1, it.dtype)}"
            self.say(f"for (var {name}: {kind} = {source[0]}; {name} < {source[1]}; {step}) {{")
            self.depth += 1
        elif it.op is Op.ENDLOOP:
            self.depth -= 1
            self.say("}")
        elif it.op is Op.ACCUMULATOR:
            is_zero = it.dtype.is_float and it.source(0).number == 0  # what is added to it may be -0.0
            kind = register_type(it.dtype)
            self.let(it, f"seal_{kind}({source[0]})" if is_zero and kind[0] == "f" else source[0], "var")
        elif it.op is Op.UPDATE:
            self.say(f"{source[0]} = {source[1]};")
        elif it.op is Op.LOAD:
            value = self.load(it)
            if len(source) > 2:
                value = f"select({literal(0, it.dtype)}, {value}, {source[2]})"
            self.let(it, value)
        elif it.op is Op.STORE:
            is_guarded = len(source) > 3 and it.src[3] is not None
            if is_guarded:
                self.say(f"if ({source[3]}) {{")
            self.depth += is_guarded
            self.store(it, source[2])
            self.depth -= is_guarded
            if is_guarded:
                self.say("}")
        elif it.op in ARITHMETIC:
            number = it.source(1).number if len(source) > 1 else None
            known = int(number) if number is not None and not it.source(1).dtype.is_float else None
            for place in _sealed(it):
                source[place] = f"seal_{register_type(it.dtype)}({source[place]})"
            self.let(it, spell(it.op, it.dtype, it.source(-1).dtype, source, known, it.arg == NOT_NEGATIVE))
        else:
            raise ValueError(f"[render] this renderer knows no {it.op.name}")

    def place(self, it: Instruction) -> str:
        """The number of the element of an access, as u32."""
        base = it.src[1] if len(it.src) > 1 else None
        if base is None:
            return f"{it.arg or 0}u"
        place, offset = f"u32({self.names[base]})", it.arg or 0
        return f"{place} {'+' if offset > 0 else '-'} {abs(offset)}u" if offset else place

    def word(self, it: Instruction, bits: int) -> tuple[str, str]:
        """Where an element of 8 or 16 bits is: its word, and how far that has to be shifted."""
        at = f"e{len(self.lines)}"
        self.say(f"let {at} = {self.place(it)};")
        each = 32 // bits
        return f"{self.names[it.source(0)]}[{at} / {each}u]", f"({at} % {each}u) * {bits}u"

    def load(self, it: Instruction) -> str:
        """The element at an access."""
        dtype = it.dtype
        if not _is_narrow(dtype):
            return f"{self.names[it.source(0)]}[{self.place(it)}]"
        bits = 8 if dtype.is_bool else dtype.bits
        word, shift = self.word(it, bits)
        if it.source(0).arg.index in self.written:
            word = f"atomicLoad(&{word})"
        kind = "u32" if dtype.is_bool else register_type(dtype)
        value = f"extractBits({word if kind == 'u32' else f'bitcast<i32>({word})'}, {shift}, {bits}u)"
        return f"{value} != 0u" if dtype.is_bool else value

    def store(self, it: Instruction, value: str) -> None:
        """Put a value where an access is."""
        dtype = it.source(2).dtype
        if not _is_narrow(dtype):
            self.say(f"{self.names[it.source(0)]}[{self.place(it)}] = {value};")
            return
        bits = 8 if dtype.is_bool else dtype.bits
        word, shift = self.word(it, bits)
        if dtype.is_bool:
            value = f"select(0u, 1u, {value})"
        elif register_type(dtype) != "u32":
            value = f"bitcast<u32>({value})"
        mask = f"{(1 << bits) - 1:#x}u"
        self.say(f"atomicAnd(&{word}, ~({mask} << ({shift})));")
        self.say(f"atomicOr(&{word}, ({value} & {mask}) << ({shift}));")


def disassemble(image: bytes, arch: str, entry: str, name: str) -> list[Line]:
    """What is loaded is text already."""
    lines = image.decode("utf-8", "replace").splitlines()
    return [Line(number, b"", text, entry if number == 0 else "") for number, text in enumerate(lines)]


def _assemble(text: str, target: Target, name: str) -> bytes:
    if target.arch not in ARCHS:
        raise ValueError(f"{name}: kernels are made for {' and '.join(ARCHS)}, not for {target.arch}.")
    return text.encode()


CODEGEN = Codegen(choose=choose, render=render, assemble=_assemble)
