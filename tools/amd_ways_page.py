"""AMD page: which instructions are compiled, interpreted and refused, in docs/emulated-amd.md (`make docs`).

In       the instruction sets of hcq/emu/amd/shader/; the page as it is
Out      the page, with what stands between its marks written anew
Changes  nothing
Next     pages.py (writes and checks it), hcq/emu/amd/shader/ways.py (what is found),
         refused_page.py (the names of what is refused)
"""

from __future__ import annotations

import functools
from pathlib import Path

PAGE = "emulated-amd.md"
BEGIN, END = "<!-- instructions: written by make docs -->", "<!-- end of instructions -->"


def pages(docs: Path) -> dict[str, str]:
    """File name -> text. A page without the marks stays as it is, and is then old: the marks belong there."""
    path = docs / PAGE
    before = path.read_text(encoding="utf-8") if path.is_file() else f"{BEGIN}\n{END}\n"
    start, found, rest = before.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        return {PAGE: f"{before.rstrip()}\n\n{BEGIN}\n\n{lists()}\n\n{END}\n"}
    return {PAGE: f"{start}{BEGIN}\n\n{lists()}\n\n{END}{after}"}


@functools.cache
def lists() -> str:
    """Numbers for each architecture, then the names that are interpreted; those that are refused: refused_page.py."""
    from hcq.emu.amd.shader.architectures import ISAS
    from hcq.emu.amd.shader.ways import COMPILED, INTERPRETED, REFUSED, ways

    found: dict[str, dict[str, str]] = {}
    alike: dict[str, list[str]] = {}
    for arch, isa in ISAS.items():
        own = ways(isa)
        same = next((name for name, others in found.items() if others == own), arch)
        found.setdefault(same, own)
        alike.setdefault(same, []).append(arch)
    kinds = (COMPILED, INTERPRETED, REFUSED)
    lines = [f"| names of instructions | {' | '.join(kinds)} |", "|---|---|---|---|"]
    for arch, names in found.items():
        counts = " | ".join(str(sum(way == kind for way in names.values())) for kind in kinds)
        lines.append(f"| {', '.join(alike[arch])} | {counts} |")
    lines += ["", "Interpreted:", ""]
    where: dict[tuple[str, ...], list[str]] = {}
    for name in sorted({name for names in found.values() for name in names}):
        archs = tuple(arch for arch, names in found.items() if names.get(name) == INTERPRETED)
        if archs:
            where.setdefault(archs, []).append(name)
    for archs, those in sorted(where.items(), key=lambda item: (-len(item[0]), item[0])):
        lines.append(f"- {', '.join(archs)}: {' '.join(f'`{name}`' for name in those)}")
    return "\n".join(lines)
