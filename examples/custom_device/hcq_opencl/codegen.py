"""Kernels: loops become work-groups and work-items, a linear program becomes OpenCL C, which the device builds.

In       a LoopNest, then a Program
Out      the nest with its loops bound; the text of a kernel, which is also what is loaded
Changes  the nest
Next     arithmetic.py (expressions), docs/schedules.md (what can be done with loops),
         hcq/compiler/linear/program.py (every instruction)
"""

from __future__ import annotations

from hcq.compiler.codegen import Codegen
from hcq.compiler.linear.program import NOT_NEGATIVE, Instruction, Program
from hcq.compiler.loops import heuristic_plain
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.target import Target
from hcq.ir.op import ARITHMETIC, TRANSCENDENTAL, Op
from hcq.tools.disassembly.function import Line
from hcq_opencl.arithmetic import PRELUDE, literal, memory_type, register_type, spell
from hcq_opencl.packets import ARCH

MOST_THREADS = 64  # work-items of a group
VERSION = 3  # part of the key of cached kernels: another text of the same program needs another number


def target(arch: str, threads: int | None) -> Target:
    """What the compiler should know of the device: it does sums one by one, and no float of less than 32 bits."""
    return Target(
        "opencl",
        arch,
        f"{arch}-{VERSION}-{threads or 1}",
        threads=threads or 1,
        vector_bits=32,
        vector_registers=16,
        native=ARITHMETIC - TRANSCENDENTAL,
        casts=frozenset(),
        codegen="hcq_opencl.codegen:CODEGEN",
    )


def choose(nest: LoopNest, target: Target) -> LoopNest:
    """Results to work-items, as the compiler does it for a machine of which it knows little."""
    return heuristic_plain.choose(nest, MOST_THREADS)


def render(program: Program, arch: str) -> str:
    """The text of a kernel. Raises ValueError for instructions that `choose` gives no cause for."""
    params = [
        f"global {'' if param.writable else 'const '}{memory_type(dtype)} *restrict p{param.index}"
        for param, dtype in program.params
    ]
    size = f"__attribute__((reqd_work_group_size({program.launched}, 1, 1)))"
    body = _Body()
    for it in program.instructions:
        body.add(it)
    head = f"kernel {size} void {program.name}({', '.join(params)}) {{"
    return "\n".join([PRELUDE, "", head, *body.lines, "}"]) + "\n"


class _Body:
    """The statements of a kernel: a constant for each value, a variable for each accumulator."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[Instruction | None, str] = {None: "0"}
        self.depth = 1

    def say(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def let(self, it: Instruction, value: str, qualifier: str = "const ") -> None:
        name = self.names[it] = f"v{len(self.names)}"
        self.say(f"{qualifier}{register_type(it.dtype)} {name} = {value};")

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
            self.special(it)
        elif it.op is Op.LOOP:
            name = self.names[it] = f"i{len(self.names)}"
            self.say(f"for (long {name} = {source[0]}; {name} < {source[1]}; ++{name}) {{")
            self.depth += 1
        elif it.op is Op.ENDLOOP:
            self.depth -= 1
            self.say("}")
        elif it.op is Op.ACCUMULATOR:
            self.let(it, source[0], "")
        elif it.op is Op.UPDATE:
            self.say(f"{source[0]} = {source[1]};")
        elif it.op is Op.LOAD:
            value = f"{source[0]}[{self.place(it)}]" + (" != 0" if it.dtype.is_bool else "")
            if len(source) > 2:
                value = f"{source[2]} ? {value} : {literal(0, it.dtype)}"
            self.let(it, value)
        elif it.op is Op.STORE:
            guard = f"if ({source[3]}) " if len(source) > 3 and it.src[3] is not None else ""
            self.say(f"{guard}{source[0]}[{self.place(it)}] = {source[2]};")
        elif it.op in ARITHMETIC:
            number = it.source(1).number if len(source) == 2 else None
            is_plain = it.arg == NOT_NEGATIVE and number is not None and number > 0
            self.let(it, spell(it.op, it.dtype, it.source(-1).dtype, source, is_plain))
        else:
            raise ValueError(f"[render] this renderer knows no {it.op.name}")

    def special(self, it: Instruction) -> None:
        """The number of the work-item in its group; the groups that this one does: itself."""
        words = {"thread": "get_local_id(0)", "first": "get_group_id(0)", "last": "get_group_id(0) + 1"}
        self.let(it, f"(long)({words[it.arg]})")

    def place(self, it: Instruction) -> str:
        """The index of an access."""
        base = self.names[it.src[1]] if len(it.src) > 1 else "0"
        return f"{base} + {it.arg}" if it.arg else base


def disassemble(image: bytes, arch: str, entry: str, name: str) -> list[Line]:
    """What is loaded is text already."""
    lines = image.decode("utf-8", "replace").splitlines()
    return [Line(number, b"", text, entry if number == 0 else "") for number, text in enumerate(lines)]


def _assemble(text: str, target: Target, name: str) -> bytes:
    if target.arch != ARCH:
        raise ValueError(f"{name}: kernels are made for {ARCH}, not for {target.arch}.")
    return text.encode()


CODEGEN = Codegen(choose=choose, render=render, assemble=_assemble)
