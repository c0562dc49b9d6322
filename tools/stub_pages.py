"""Stub pages: for type checkers, the methods that are made of other methods, with the arguments of those (`make docs`).

In       the groups whose methods are made when they are asked for
Out      frontend/ops/in_place.pyi, frontend/ops/synonyms.pyi
Changes  nothing
Next     pages.py (writes and checks them), frontend/ops/forwarded.py (how such methods are made)
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

IMPORTS = (
    ("collections.abc", ("Callable", "Sequence")), ("typing", ("Any",)), ("typing_extensions", ("Self",)),
    ("hcq.frontend.core.base", ("Core",)), ("hcq.frontend.ops.base", ("Axes", "Methods")),
    ("hcq.frontend.symbolic.variable", ("Bound",)),
    ("hcq.ir.dtype", ("DType", "Scalar")),
)  # fmt: skip
LONG = 120  # characters of a line, after which the linter is told to let it be


def pages(docs: Path) -> dict[str, str]:
    """File name -> text."""
    from hcq.frontend.ops.in_place import InPlace
    from hcq.frontend.ops.synonyms import Synonyms

    return {
        f"../frontend/ops/{group.__module__.rpartition('.')[2]}.pyi": _stub(group)
        for group in (InPlace, Synonyms)
    }


def _stub(group: type) -> str:
    from hcq.frontend.tensor import Tensor

    lines = []
    for name in sorted(vars(group)):
        method = getattr(Tensor, name)
        if not inspect.isfunction(method) or name == "__getattr__":
            continue
        parameters = [_parameter(one) for one in inspect.signature(method).parameters.values()]
        stars = [at for at, text in enumerate(parameters) if text.startswith("*")]
        only = [p.kind is p.KEYWORD_ONLY for p in inspect.signature(method).parameters.values()]
        if not stars and any(only):
            parameters.insert(only.index(True), "*")
        parameters[0] = "self"
        ignored = "  # type: ignore[misc]" if name.startswith("__i") else ""
        lines.append(f"    def {name}({', '.join(parameters)}) -> Self: ...{ignored}\n")
    body = f"class {group.__name__}(Methods):\n" + "".join(lines)
    words = set(re.findall(r"\w+", body))
    used = [(module, sorted(words & set(names))) for module, names in IMPORTS]
    blocks: tuple[list[str], ...] = ([], [], [])  # the standard library, others, ours
    for module, names in used:
        if names:
            place = 2 if module.startswith("hcq") else 1 if module == "typing_extensions" else 0
            blocks[place].append(f"from {module} import {', '.join(names)}\n")
    imports = "\n".join("".join(block) for block in blocks if block)
    source = group.__module__.rpartition(".")[2] + ".py"
    long = "# ruff: noqa: E501\n" if max(map(len, body.splitlines())) > LONG else ""
    about = f'"""Written by `make docs` from {source}; change that, not this file."""'
    return f"{long}# fmt: off\n{about}\n\n{imports}\n{body}"


def _parameter(one: inspect.Parameter) -> str:
    star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")  # type: ignore[call-overload]
    kind: Any = one.annotation
    text = "Any" if kind is one.empty else kind if isinstance(kind, str) else kind.__name__
    default = "" if one.default is one.empty else " = ..."
    return f"{star}{one.name}: {text}{default}"
