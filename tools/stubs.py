"""Stubs: what type checkers see of names and methods that are found when they are asked for.

In       the tables of hcq/__init__.py, frontend/torch/ and frontend/functions/__init__.py; the folder of a package hcq
Out      stubs in it: of the package, in torch/ of each of PyTorch's modules, in frontend/ops/ those of method_stubs.py
Changes  that folder
Next     setup.py (an install writes them, so none is committed), method_stubs.py (the same for methods)

    python tools/stubs.py build/tree/hcq
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

if __package__ in (None, ""):  # run as a file from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hcq.frontend import functions
from hcq.frontend.tensor import Tensor
from hcq.frontend.torch import names
from hcq.frontend.torch.modules import MODULES
from hcq.frontend.torch.rows import ROWS, Row
from hcq.tools import method_stubs

ABOUT = '"""Written by tools/stubs.py: what type checkers see of {}."""\n\n'
PUBLIC = "tensor", "is_tensor", "real", "imag"  # functions of functions.py that are no methods
HEAD = "# fmt: off\n"
# modules whose names are few, private, or those of another: a type checker sees that they are there
UNTYPED = "_dynamo", "backends.", "nn.modules.", "utils.data.", "distributions.const", "distributions.dist"
LONG = 120  # characters of a line, after which the linter is told to let it be


def write(package: Path) -> None:
    """Write the stubs into the folder of a package hcq, installed or about to be."""
    for name, text in stubs().items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def stubs() -> dict[str, str]:
    """Path in the package -> text."""
    found = {"__init__.pyi": _package(), "torch/__init__.pyi": _names()}
    typed = {name: real for name, real in MODULES.items() if not name.startswith(UNTYPED)}
    for name, real in typed.items():
        inside = [other.rpartition(".")[2] for other in typed if other.rpartition(".")[0] == name]
        path = name.replace(".", "/") + "/__init__" * bool(inside)
        text = f"from {real} import *\n" if real else ""
        text += "".join(f"from hcq.torch.{name} import {one} as {one}\n" for one in inside)
        text += _late(real) if real else ""
        others = [
            other.rpartition(".")[2]
            for other in MODULES.keys() - typed.keys()
            if other.rpartition(".")[0] == name
        ]
        text += "".join(f"{other}: Any\n" for other in sorted(others))
        text += "".join(_row(word, row) for word, row in ROWS.get(name, {}).items())
        text = "from typing import Any\n" * ("Any" in text) + text
        found[f"torch/{path}.pyi"] = _unchecked(f"{HEAD}{ABOUT.format(f'hcq.torch.{name}')}{text}")
    return found | method_stubs.stubs()


def _unchecked(text: str) -> str:
    """The text of a stub; where it has long lines, the linter is told to let them be."""
    return "# ruff: noqa: E501\n" * any(len(line) > LONG for line in text.splitlines()) + text


def _row(name: str, row: Row) -> str:
    """A name of the table as a type checker sees it."""
    value = row.make(name)
    if inspect.isroutine(value):
        return f"def {name}(*args: Any, **options: Any) -> Any: ...\n"
    return f"{name}: Any\n"


def _late(real: str) -> str:
    """The functions that a module finds when they are asked for, which `import *` does not see."""
    spec = find_spec(real)
    source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    if not re.search(r"^(def )?__getattr__\b", source, re.MULTILINE):
        return ""  # and is not imported: some need NumPy, which no build has
    module, tree = import_module(real), ast.parse(source)
    seen = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    seen |= {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    lines = []
    for name in sorted(set(dir(module)) - seen):
        value = None if name.startswith("_") else getattr(module, name)
        if not inspect.isroutine(value) or isinstance(value, type):
            continue
        owner, _, method = value.__qualname__.rpartition(".")
        if not owner and hasattr(import_module(value.__module__), method):
            lines.append(f"from {value.__module__} import {method} as {name}\n")
        elif owner and hasattr(Tensor, method):
            lines.append(f"{name} = Tensor.{name if hasattr(Tensor, name) else method}\n")
        else:
            lines.append(f"{name}: Callable[..., Tensor]\n")
    if not lines:
        return ""
    lines.sort(key=lambda line: not line.startswith("from"))
    body = "".join(lines)
    return (
        "from collections.abc import Callable\n" * ("Callable[" in body)
        + "from hcq.frontend.tensor import Tensor\n" * ("Tensor." in body)
        + body
    )


def _package() -> str:
    """What hcq itself has; of PyTorch's names, which are short forms there, only that they may be asked for."""
    import hcq

    late: dict[str, str] = vars(hcq)["_LAZY"]
    modules: dict[str, str] = vars(hcq)["_MODULES"]
    lines = ["from typing import Any\n\n"]
    lines += [f"from {module} import {name} as {name}\n" for name, module in sorted(late.items())]
    for name, real in sorted(modules.items()):
        package, _, last = real.rpartition(".")
        lines += [f"from {package} import {last} as {name}\n"] * ("." not in name)
    lines += ["\n__version__: str\n\ndef __getattr__(name: str) -> Any: ...\n"]
    return f"{HEAD}{ABOUT.format('the package')}{''.join(lines)}"


def _names() -> str:
    """What hcq.torch has."""
    lines = ["import builtins\nfrom typing import Any\n\nfrom hcq.ir.dtype import DType\n"]
    lines += [f"from {module} import {name} as {name}\n" for name, module in sorted(names.PLACES.items())]
    own = [name for name, value in vars(functions).items() if _is_own(value, functions.__name__)]
    lines += [f"from {functions.__name__} import {name} as {name}\n" for name in sorted(own)]
    modules = [name for name in MODULES if "." not in name and not name.startswith(UNTYPED)]
    lines += [f"from hcq.torch import {name} as {name}\n" for name in sorted(modules)]
    taken = {*names.PLACES, *ROWS[""], *MODULES, *functions.DTYPES, *own}
    elsewhere = [name for name in names.ELSEWHERE if name not in taken]
    for name in sorted(elsewhere):
        lines.append(f"from hcq.frontend.{names.ELSEWHERE[name]} import {name} as {name}\n")
    lines += ["\n__version__: builtins.str\n\ndef install() -> None: ...\n"]
    lines += [_row(name, row) for name, row in ROWS[""].items()]
    lines += [f"{name}: DType\n" for name in functions.DTYPES]
    kinds = {float: "builtins.float", type(None): "None"}
    lines += [f"{name}: {kinds[type(value)]}\n" for name, value in functions.CONSTANTS.items()]
    for name in sorted({*functions.names(), *functions.ALIASES} - taken - {*elsewhere}):
        method = inspect.getattr_static(Tensor, functions.ALIASES.get(name, name), None)
        if method is not None and name.isidentifier():
            lines.append(f"{name} = Tensor.{functions.ALIASES.get(name, name)}\n")
    return f"{HEAD}{ABOUT.format('hcq.torch')}{''.join(lines)}"


def _is_own(value: object, module: str) -> bool:
    return inspect.isfunction(value) and value.__module__ == module and value.__name__ in PUBLIC


if __name__ == "__main__":
    write(Path(sys.argv[1]))
