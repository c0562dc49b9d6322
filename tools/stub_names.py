"""Stub names: for type checkers, what `hcq` has that is found when it is asked for, and its aliases (`make docs`).

In       the tables of hcq/__init__.py, hcq/aliases.py and frontend/functions.py
Out      hcq/__init__.pyi, and a file for each module that has a second name: hcq/nn/functional.pyi, ...
Changes  nothing
Next     pages.py (writes and checks them), stub_pages.py (the same for methods)
"""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from hcq.frontend.tensor import Tensor

ABOUT = '"""Written by `make docs`: what type checkers see of {}."""\n\n'
PUBLIC = "tensor", "is_tensor", "real", "imag"  # functions of functions.py that are no methods
HEAD = "# fmt: off\n"
LONG = 120  # characters of a line, after which the linter is told to let it be

# what PyTorch's modules of these names have inside of them
INSIDE = (
    "nn.functional",
    "nn.init",
    "nn.parameter",
    "nn.utils",
    "nn.utils.parametrizations",
    "nn.utils.parametrize",
    "nn.utils.prune",
    "nn.utils.rnn",
    "nn.utils.stateless",
    "optim.lr_scheduler",
    "optim.swa_utils",
    "utils.checkpoint",
    "utils.data",
)


def pages(docs: Path) -> dict[str, str]:
    """File name -> text."""
    from hcq.aliases import MODULES

    names = {name: real for name, real in MODULES.items() if real != f"hcq.{name}"}
    for name in INSIDE:
        first, _, below = name.partition(".")
        if _is_there(f"{MODULES[first]}.{below}"):
            names[name] = f"{MODULES[first]}.{below}"
    found = {"../hcq/__init__.pyi": _package()}
    for name, real in names.items():
        inside = [other.rpartition(".")[2] for other in names if other.rpartition(".")[0] == name]
        path = name.replace(".", "/") + "/__init__" * bool(inside)
        inner = "".join(f"from {real} import {one} as {one}\n" for one in inside)
        text = f"{HEAD}{ABOUT.format(real)}from {real} import *\n{inner}{_late(real)}"
        long = "# ruff: noqa: E501\n" * any(len(line) > LONG for line in text.splitlines())
        found[f"../hcq/{path}.pyi"] = long + text
    return found


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


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # what it would be in is no package
        return False


def _package() -> str:
    import hcq
    from hcq.aliases import MODULES
    from hcq.frontend import functions

    late: dict[str, str] = vars(hcq)["_LAZY"]

    lines = ["import builtins\n\nfrom hcq.ir.dtype import DType\n"]
    lines += [f"from {module} import {name} as {name}\n" for name, module in sorted(late.items())]
    own = [name for name, value in vars(functions).items() if _is_own(value, functions.__name__)]
    lines += [f"from {functions.__name__} import {name} as {name}\n" for name in sorted(own)]
    for name, real in sorted(MODULES.items()):
        package, _, last = real.rpartition(".")
        lines.append(f"from {package} import {last} as _{name}\n")
    lines += ["\n", "__version__: builtins.str\n"]
    lines += [f"{name} = _{name}\n" for name in sorted(MODULES)]
    lines += [f"{name}: DType\n" for name in functions.DTYPES]
    kinds = {float: "builtins.float", type(None): "None"}
    lines += [f"{name}: {kinds[type(value)]}\n" for name, value in functions.CONSTANTS.items()]
    taken = {*late, *MODULES, *functions.DTYPES, *own}
    for name in sorted({*functions.names(), *functions.ALIASES} - taken):
        method = inspect.getattr_static(Tensor, functions.ALIASES.get(name, name), None)
        if method is not None and name.isidentifier():
            lines.append(f"{name} = Tensor.{functions.ALIASES.get(name, name)}\n")
    return f"{HEAD}{ABOUT.format('the package')}{''.join(lines)}"


def _is_own(value: object, module: str) -> bool:
    return inspect.isfunction(value) and value.__module__ == module and value.__name__ in PUBLIC
