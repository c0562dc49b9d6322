"""Method stubs: for type checkers, what groups of methods have of each other, and methods that are made of others.

In       the source of the groups of methods; the groups whose methods are made when they are asked for
Out      stubs of frontend/ops: the methods of `Factoring`, `InPlace` and `Synonyms`; `Declared`, what groups call in
         one another; `Late`, a class of all groups that are imported late
Next     stubs.py (whose part this is), frontend/ops/forwarded.py (how such methods are made)
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

IMPORTS = (
    ("collections.abc", ("Callable", "Sequence")), ("typing", ("Any",)),
    ("hcq.frontend.core.base", ("Core",)), ("hcq.frontend.ops.base", ("Axes", "Methods", "Self")),
    ("hcq.frontend.symbolic.variable", ("Bound",)),
    ("hcq.ir.dtype", ("DType", "Scalar")),
)  # fmt: skip
LONG = 120  # characters of a line, after which the linter is told to let it be


def stubs() -> dict[str, str]:
    """Path in the package -> text."""
    from hcq.frontend.ops.factoring import Factoring
    from hcq.frontend.ops.in_place import InPlace
    from hcq.frontend.ops.synonyms import Synonyms

    found = {group.__module__.rpartition(".")[2]: _stub(group) for group in (Factoring, InPlace, Synonyms)}
    found |= {"declared": _declared(), "late_groups": _late_groups()}
    return {f"frontend/ops/{name}.pyi": text for name, text in found.items()}


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
        said = inspect.signature(method).return_annotation
        returns = said if group.__name__ in ("Factoring", "Synonyms") else "Self"
        lines.append(
            f"    def {name}({', '.join(parameters)}) -> {returns}: ...{ignored}\n".replace("Tensor", "Self")
        )
    body = f"class {group.__name__}(Methods):\n" + "".join(lines)
    words = set(re.findall(r"\w+", body))
    used = [(module, sorted(words & set(names))) for module, names in IMPORTS]
    blocks: tuple[list[str], ...] = ([], [])  # the standard library, ours
    for module, names in used:
        if names:
            blocks[_block_of(module)].append(f"from {module} import {', '.join(names)}\n")
    imports = "\n".join("".join(block) for block in blocks if block)
    source = group.__module__.rpartition(".")[2] + ".py"
    long = "# ruff: noqa: E501\n" if max(map(len, body.splitlines())) > LONG else ""
    about = f'"""Written by tools/stubs.py from {source}; change that, not this file."""'
    return f"{long}# fmt: off\n{about}\n\n{imports}\n{body}"


def _parameter(one: inspect.Parameter) -> str:
    star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")  # type: ignore[call-overload]
    kind: Any = one.annotation
    text = "Any" if kind is one.empty else kind if isinstance(kind, str) else kind.__name__
    default = "" if one.default is one.empty else " = ..."
    return f"{star}{one.name}: {text}{default}"


# -- what groups call in one another ----------------------------------------------------------------------------------

DECORATORS = {name: name for name in ("classmethod", "staticmethod", "property")} | {
    "OnTensors": "classmethod"
}
NO_NAMES = {
    "bool",
    "int",
    "float",
    "type",
    "complex",
}  # which mean the type in other annotations of the class


Lines = tuple[list[str], set[str]]  # of a stub, and the words of their annotations


class Method(NamedTuple):
    """A method as its group writes it down."""

    lines: list[str]
    words: set[str]
    module: str


def _declared() -> str:
    """`Declared`: every operator of tensors, and what one group calls that another has."""
    from hcq.frontend.ops.late import groups
    from hcq.frontend.tensor import Tensor

    found: dict[str, Method] = {}
    asked: dict[str, set[str]] = {}  # attribute -> the modules of the groups that ask for it
    sources: dict[str, ast.Module] = {}
    listed: list[type] = [Tensor, *groups(Tensor)]
    for group in listed:
        module = group.__module__
        tree = sources[module] = ast.parse(Path(inspect.getfile(group)).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and group is not Tensor:
                asked.setdefault(node.attr, set()).add(module)
            elif isinstance(node, ast.ClassDef) and node.name == group.__name__:
                for name, made in _methods(node, "__init__" if group is Tensor else ""):
                    found.setdefault(name, Method(*made, module))
    chosen = [
        method
        for name, method in sorted(found.items())
        if name.startswith("__") or asked.get(name, set()) - {method.module}
    ]
    lines = [line for method in chosen for line in method.lines]
    lines.append("def __hash__(self) -> int: ...")  # a class that says what is equal would have none
    places = {
        (_place_of(word, method.module, sources[method.module]), word)
        for method in chosen
        for word in method.words
    }
    return _page(
        "the groups of methods", "Declared(Core)", places | {("hcq.frontend.core.base", "Core")}, lines
    )


def _methods(group: ast.ClassDef, special: str) -> Iterator[tuple[str, Lines]]:
    """The methods of a class as lines of a stub, second names among them; of its special ones `special`, or all."""
    from hcq.frontend.core.base import Core

    found: dict[str, ast.FunctionDef] = {}
    for node in group.body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, node)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in found:
            found |= {
                target.id: found[node.value.id] for target in node.targets if isinstance(target, ast.Name)
            }
    for name, node in found.items():
        first = [one.arg for one in node.args.args][:1]
        is_left_out = special and name.startswith("__") and name != special
        if is_left_out or name in NO_NAMES or (first not in (["self"], ["cls"]) and not node.decorator_list):
            continue
        above = [DECORATORS[word] for one in node.decorator_list if (word := ast.unparse(one)) in DECORATORS]
        if "property" in above and (special or hasattr(Core, name)):
            continue  # core/base.py has those of Tensor
        yield name, _lines(name, above, node)


def _lines(name: str, above: list[str], node: ast.FunctionDef) -> Lines:
    """A method in a stub, and the words of its annotations."""
    given = node.args
    given.defaults = [ast.Constant(...) for _ in given.defaults]
    given.kw_defaults = [one and ast.Constant(...) for one in given.kw_defaults]
    returns = ast.unparse(node.returns) if node.returns else "Any"
    ignored = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
    kinds = [one.annotation for one in ast.walk(given) if isinstance(one, ast.arg) and one.annotation]
    words = re.findall(r"\w+", " ".join([returns, *map(ast.unparse, kinds)]))
    line = f"def {name}({ast.unparse(given)}) -> {returns}: ...{ignored}".replace(": Tensor", ": Any")
    return [*[f"@{one}" for one in above], line], set(words) - {"Tensor"}


def _place_of(word: str, module: str, tree: ast.Module) -> str:
    """Where a word of a group's annotations is imported from; empty for what Python has itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(one.name == word for one in node.names):
            return str(node.module)
    own = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    own |= {
        ast.unparse(target) for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
    }
    return module if word in own else ""


def _late_groups() -> str:
    """A class of all groups that are imported late: what `Late` is once each of them was asked for."""
    from hcq.frontend.ops.table import GROUPS

    places = {tuple(place.split(":")) for place in GROUPS}
    bases = ", ".join(name for _, name in sorted(places))
    return _page("table.py", f"Late({bases})", places, ["__slots__ = ()"])


def _page(source: str, declared: str, places: set[Any], lines: list[str]) -> str:
    """A stub with one class."""
    named: dict[str, set[str]] = {}
    for module, word in places:
        if module:
            named.setdefault(module, set()).add(word)
    blocks: tuple[list[str], ...] = ([], [])  # the standard library, ours
    for module, names in sorted(named.items()):
        blocks[_block_of(module)].append(f"from {module} import {', '.join(sorted(names))}\n")
    imports = "\n".join("".join(block) for block in blocks if block)
    body = "".join(f"    {line}\n" for line in lines)
    about = f'"""Written by tools/stubs.py from {source}; change that, not this file."""'
    return f"# ruff: noqa: E501\n# fmt: off\n{about}\n\n{imports}\nclass {declared}:\n{body}"


def _block_of(module: str) -> int:
    return int(module.startswith("hcq"))
