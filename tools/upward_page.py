"""Upward page: the part of docs/architecture.md that lists which files of hcq/ name what stands above it (`make docs`).

In       pyproject.toml, [tool.importlinter], `named`: the imports by string that the laws of imports leave out
Out      `references`: what stands between the marks of the page
Next     pages.py (writes and checks it), .ci/named_imports.py (the law, which refuses a reference that is not listed)
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ABOVE = ("frontend", "compiler", "ir", "tools")


def references(root: Path = ROOT) -> str:
    """A line for each file below that names files above, or each group of such files."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r"^named = (\[\n.*?^\])$", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError("pyproject.toml: [tool.importlinter] has no list `named`.")
    lines = ""
    for line in ast.literal_eval(found[1]):
        importer, _, rest = line.partition(" -> ")
        imported, _, why = rest.partition(": ")
        above = [name for name in imported.split() if is_above(name)]
        if is_above(importer) or not above:
            continue
        places = dict.fromkeys(place(root, name) for name in above)
        lines += f"- `{place(root, importer)}` names {', '.join(f'`{one}`' for one in places)}: {why}\n"
    return lines.rstrip("\n")


def is_above(module: str) -> bool:
    """Whether a module, or those that a pattern stands for, are of another floor than hcq/."""
    return (*module.split("."), "")[1] in ABOVE


def place(root: Path, module: str) -> str:
    """Where a module lies, or those that a pattern stands for: `hcq.ir.*` is ir/, `hcq.device` hcq/device.py."""
    parts = module.split(".")[1:]
    if not parts:
        return "hcq/__init__.py"
    path = "/".join(parts if is_above(module) else ["hcq", *parts])
    if path.endswith("/*"):
        return path[:-1]
    return f"{path}/" if (root / path).is_dir() else f"{path}.py"
