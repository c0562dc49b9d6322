"""Stubs: what type checkers see of names and methods that are found when they are asked for (`make docs`).

In       the tables of hcq/__init__.py, frontend/torch/ and frontend/functions.py; the groups of methods that are made
         of other methods
Out      hcq/__init__.pyi; in hcq/torch/ a file for each of PyTorch's modules; frontend/ops/in_place.pyi and
         frontend/ops/synonyms.pyi
Changes  nothing
Next     pages.py (writes and checks them), frontend/ops/forwarded.py (how such methods are made)
"""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from hcq.frontend import functions
from hcq.frontend.ops.in_place import InPlace
from hcq.frontend.ops.synonyms import Synonyms
from hcq.frontend.tensor import Tensor
from hcq.frontend.torch import names
from hcq.frontend.torch.modules import MODULES
from hcq.frontend.torch.rows import ROWS, Row

ABOUT = '"""Written by `make docs`: what type checkers see of {}."""\n\n'
PUBLIC = "tensor", "is_tensor", "real", "imag"  # functions of functions.py that are no methods
HEAD = "# fmt: off\n"
# modules whose names are few, private, or those of another: a type checker sees that they are there
UNTYPED = "_dynamo", "backends.", "nn.modules.", "utils.data.", "distributions.const", "distributions.dist"
# what stubs of methods import, of which each takes what it uses
IMPORTS = (
    ("collections.abc", ("Callable", "Sequence")), ("typing", ("Any",)), ("typing_extensions", ("Self",)),
    ("hcq.frontend.core.base", ("Core",)), ("hcq.frontend.ops.base", ("Axes", "Methods")),
    ("hcq.frontend.symbolic.variable", ("Bound",)),
    ("hcq.ir.dtype", ("DType", "Scalar")),
)  # fmt: skip
LONG = 120  # characters of a line, after which the linter is told to let it be


def pages(docs: Path) -> dict[str, str]:
    """File name -> text."""
    found = {"../hcq/__init__.pyi": _package(), "../hcq/torch/__init__.pyi": _names()}
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
        found[f"../hcq/torch/{path}.pyi"] = _unchecked(f"{HEAD}{ABOUT.format(f'hcq.torch.{name}')}{text}")
    for group in (InPlace, Synonyms):
        found[f"../frontend/ops/{group.__module__.rpartition('.')[2]}.pyi"] = _methods(group)
    return found


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
    module = import_module(real)
    if not hasattr(module, "__getattr__"):
        return ""
    tree = ast.parse(inspect.getsource(module))
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
    elsewhere = [name for name in functions.ELSEWHERE if name not in taken]
    for name in sorted(elsewhere):
        lines.append(f"from hcq.frontend.{functions.ELSEWHERE[name]} import {name} as {name}\n")
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


def _methods(group: type) -> str:
    """The methods of a group, with the arguments of those that they are made of."""
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
    blocks: tuple[list[str], ...] = ([], [], [])  # the standard library, others, ours
    for module, known in IMPORTS:
        if used := sorted(words & set(known)):
            place = 2 if module.startswith("hcq") else 1 if module == "typing_extensions" else 0
            blocks[place].append(f"from {module} import {', '.join(used)}\n")
    imports = "\n".join("".join(block) for block in blocks if block)
    source = group.__module__.rpartition(".")[2] + ".py"
    about = f'"""Written by `make docs` from {source}; change that, not this file."""'
    return _unchecked(f"{HEAD}{about}\n\n{imports}\n{body}")


def _parameter(one: inspect.Parameter) -> str:
    star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")  # type: ignore[call-overload]
    kind: Any = one.annotation
    text = "Any" if kind is one.empty else kind if isinstance(kind, str) else kind.__name__
    default = "" if one.default is one.empty else " = ..."
    return f"{star}{one.name}: {text}{default}"
