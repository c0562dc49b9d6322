"""AMD page: which instructions are compiled, interpreted and refused, in docs/emulated-amd.md (`make docs`).

In       the instruction sets of hcq/emu/amd/shader/
Out      `lists`: what stands between the marks of the page
Next     pages.py (writes and checks it), hcq/emu/amd/shader/ways.py (what is found),
         refused_page.py (the names of what is refused)
"""

from __future__ import annotations

import functools


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
