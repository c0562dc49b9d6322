"""PTX page: the tables in docs/emulated-ptx.md, of the instructions, registers and targets there are (`make docs`).

In       the rules of hcq/emu/nv/shader/, by which instructions are decoded
Out      `tables`: what stands between the marks of the page
Next     pages.py (writes and checks it), hcq/emu/nv/shader/opcodes.py (the rules)
"""

from __future__ import annotations

import importlib


def tables() -> str:
    """What the rules say."""
    from hcq.emu.nv.shader import syntax
    from hcq.nv.ptx import FIRST_VERSIONS

    vectors = [f"%{name}.x .y .z" for name in syntax.SPECIAL_VECTORS]
    scalars = [f"%{name}" for name in syntax.SPECIAL_SCALARS]
    lines = ["| instructions | of `hcq/emu/nv/shader/` | what they are |", "| --- | --- | --- |"]
    lines += [f"| {names} | `{file}.py` | {what} |" for file, what, names in groups()]
    lines += [
        "",
        "Special registers: "
        + ", ".join(f"`{name}`" for name in [*vectors, *scalars])
        + ", `%envreg0` and on.",
        "",
    ]
    lines += ["Targets, and the first version of PTX that has each: "]
    lines[-1] += ", ".join(f"`{name}` {one}.{other}" for name, (one, other) in FIRST_VERSIONS.items()) + "."
    return "\n".join([*lines, "", *ways_of_examples()])


def ways_of_examples() -> list[str]:
    """Which of some hundred forms of instructions run as machine code, which are interpreted, which refused."""
    from hcq.emu.nv.shader.ways import COMPILED, INTERPRETED, REFUSED, ways

    found = ways()
    lines = []
    for way in (COMPILED, INTERPRETED, REFUSED):
        names: dict[str, list[str]] = {}
        for name in (name for name, its in found.items() if its == way):
            opcode, _, rest = name.partition(".")
            names.setdefault(opcode, []).append(rest)
        listed = ", ".join(
            f"`{opcode}` ({' '.join(forms)})".replace(" ()", "") for opcode, forms in sorted(names.items())
        )
        lines += [
            f"{way.capitalize()} (of forms that were tried, {sum(map(len, names.values()))}): {listed}.",
            "",
        ]
    return lines[:-1]


def groups() -> list[tuple[str, str, str]]:
    """(file, its first line, its opcodes) of each file with rules, and of the one with the ends of blocks."""
    from hcq.emu.nv.shader import flow, opcodes

    found: dict[str, set[str]] = {"hcq.emu.nv.shader.control": set(flow.ENDS)}
    for rules in (opcodes.FLOAT, opcodes.OTHERS):
        for opcode, rule in rules.items():
            found.setdefault(rule.__module__, set()).add(opcode)
    made = []
    for module, names in sorted(found.items()):
        first = (importlib.import_module(module).__doc__ or "").splitlines()[0]
        made.append(
            (module.rpartition(".")[2], first.rstrip("."), ", ".join(f"`{name}`" for name in sorted(names)))
        )
    return made
