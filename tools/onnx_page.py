"""ONNX page: docs/onnx-operators.md, a table of the operators that models may ask for (`make docs`).

In       the table of frontend/more/onnx/lookup.py
Out      one page
Next     pages.py (writes and checks it), conformance/onnx_nodes.py (how they were tested)
"""

from __future__ import annotations

import importlib
from pathlib import Path

NOTE = "Written by `make docs` from `frontend/more/onnx/operators/`; change those, not this page."


def pages(docs: Path) -> dict[str, str]:
    """File name -> text."""
    lines = [
        "# ONNX's operators",
        "",
        NOTE,
        "",
        "What a model may ask for, of ONNX's own versions up to 28 and `ai.onnx.ml` up to 5 ([onnx](onnx.md)).",
        "A number is the first version of an operator's form. Forms that differ only in dtypes share one number.",
        "[Conformance](conformance-onnx.md) has ONNX's tests of them.",
        "",
        table(),
        "",
    ]
    return {"onnx-operators.md": "\n".join(lines)}


def table() -> str:
    """A line for each group of operators: their names, and the versions in which they changed here."""
    operators = importlib.import_module("hcq.frontend.more.onnx.lookup").load()
    groups: dict[str, list[str]] = {}
    for (domain, op), forms in sorted(operators.items()):
        versions = ", ".join(str(form.since) for form in forms)
        groups.setdefault(forms[0].group, []).append(f"{domain}{'.' if domain else ''}{op} {versions}")
    lines = ["| group | operators, and from which version on each form holds |", "| --- | --- |"]
    lines += [f"| `operators/{group}.py` | {'; '.join(names)} |" for group, names in sorted(groups.items())]
    return "\n".join(lines)
