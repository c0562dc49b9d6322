"""ONNX page: the table of operators in docs/onnx.md, from the operators themselves (`make docs`).

In       the table of frontend/onnx/table.py; the page as it is
Out      the page, with its table written anew
Changes  nothing
Next     pages.py (writes and checks it), conformance_onnx.py (how they were tested)
"""

from __future__ import annotations

import importlib
from pathlib import Path

NAME = "onnx.md"
BEGIN, END = "<!-- operators: written by make docs -->", "<!-- end of operators -->"


def pages(docs: Path) -> dict[str, str]:
    """File name -> text."""
    text = (docs / NAME).read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return {NAME: f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"}


def table() -> str:
    """A line for each group of operators: their names, and the versions in which they changed here."""
    operators = importlib.import_module("hcq.frontend.onnx.table").load()
    groups: dict[str, list[str]] = {}
    for (domain, op), forms in sorted(operators.items()):
        versions = ", ".join(str(form.since) for form in forms)
        groups.setdefault(forms[0].group, []).append(f"{domain}{'.' if domain else ''}{op} {versions}")
    lines = ["| group | operators, and from which version on each form of them holds |", "| --- | --- |"]
    lines += [f"| `operators/{group}.py` | {'; '.join(names)} |" for group, names in sorted(groups.items())]
    return "\n".join(lines)
