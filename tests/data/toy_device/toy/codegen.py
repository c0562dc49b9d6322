"""Kernels for the toy: the compiler's linear program as a function of Python, which is the toy's machine code.

In       a Program; nothing is chosen, so it holds no vectors and no scratch memory
Out      text with `def NAME(machine, args, first, last)`, which runs the groups first..last-1 of a grid
Next     machine.py (what it calls), device.py (who calls it), hcq/compiler/linear/program.py (the instructions)
"""

from __future__ import annotations

from hcq.compiler.codegen import Codegen
from hcq.compiler.linear.program import Instruction, Program
from hcq.compiler.target import Target
from hcq.ir.op import ARITHMETIC, Op
from hcq.tools.disassembly.function import Line


def target(arch: str, threads: int | None) -> Target:
    """What the compiler should know of the toy. A change of `render` changes the key, for kernels are cached."""
    return Target(
        "toy",
        arch,
        f"{arch}-1",
        threads=1,
        vector_bits=32,
        vector_registers=1,
        native=ARITHMETIC,
        codegen=PLACE,
    )


def render(program: Program, arch: str) -> str:
    """The text of a kernel."""
    names: dict[Instruction | None, str] = {}
    places = {param.index: place for place, (param, _) in enumerate(program.params)}
    lines = [f"def {program.name}(machine, args, first, last):"]
    depth = 1

    def say(text: str) -> None:
        lines.append("    " * depth + text)

    for number, it in enumerate(program.instructions):
        name = names[it] = f"v{number}"
        source = [names.get(one, "0") for one in it.src]
        if it.op is Op.ENDLOOP:
            depth -= 1
        elif it.op is Op.LOOP:
            say(f"for {name} in range({source[0]}, {source[1]}):")
            depth += 1
        elif it.op is Op.PARAM:
            say(f"{name} = args[{places[it.arg.index]}]")
        elif it.op is Op.CONST:
            say(f"{name} = {f'float({str(it.arg)!r})' if isinstance(it.arg, float) else it.arg}")
        elif it.op is Op.SPECIAL:
            names[it] = it.arg
        elif it.op is Op.ACCUMULATOR:
            say(f"{name} = {source[0]}")
        elif it.op is Op.UPDATE:
            say(f"{source[0]} = {source[1]}")
        elif it.op is Op.LOAD:
            index = f"{source[1] if len(source) > 1 else 0} + {it.arg}"
            mask = f", {source[2]}" if len(source) > 2 else ""
            say(f"{name} = machine.load('{it.dtype.name}', {source[0]}, {index}{mask})")
        elif it.op is Op.STORE:
            mask = f", {source[3]}" if len(source) > 3 else ""
            kept = it.src[2]
            assert kept is not None
            say(f"machine.store('{kept.dtype.name}', {source[0]}, {source[1]} + {it.arg}, {source[2]}{mask})")
        elif it.op in ARITHMETIC:
            last = it.src[-1]
            assert last is not None
            words = ", ".join([f"'{it.op.name}', '{it.dtype.name}', '{last.dtype.name}'", *source])
            say(f"{name} = machine.compute({words})")
        else:
            raise ValueError(f"[render] the toy has no {it.op.name}")
    return "\n".join(lines) + "\n"


def disassemble(image: bytes, arch: str, entry: str, name: str) -> list[Line]:
    """The toy's machine code is text already."""
    lines = image.decode("utf-8", "replace").splitlines()
    return [Line(number, b"", text, entry if number == 0 else "") for number, text in enumerate(lines)]


def _assemble(text: str, target: Target, name: str) -> bytes:
    return text.encode()


PLACE = "toy.codegen:CODEGEN"
CODEGEN = Codegen(choose=lambda nest, target: nest, render=render, assemble=_assemble)
