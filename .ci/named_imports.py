"""Imports that are written as strings, such as `import_module("hcq.a.b")` or `"hcq.a.b:name"`, count like any other.

In       the sources of the package `hcq`; `named` of [tool.importlinter]: the strings that are allowed, with reasons
Out      the graph of import-linter with these imports added to it; the lines of `named` that nothing uses any more
Next     rooms.py, circles.py (the laws that read the graph), pyproject.toml, [tool.importlinter]

A string that names a module of `hcq`, or "module:attribute", is an import, wherever it stands: in a call, in a table,
as a key of `sys.modules`. Docstrings are not. An f-string such as f"hcq.nn.{file}" imports what it makes with any
string, or word of a string, of the same file: the table that `file` is looked up in is nearly always there.

A line of `named` is "module -> module module ...: why". `*` stands for any module, `.*` at the end for those below.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from grimp import ImportGraph

PACKAGE = "hcq"
_NAME = re.compile(r"(hcq(?:\.\w+)+)(?::[\w.]+)?")
_WORD = re.compile(r"[\w.]+")


class Named(NamedTuple):
    """One import by a string: who, whom, in which line of the file."""

    importer: str
    imported: str
    line: int
    text: str


class Allowed(NamedTuple):
    """A line of `named`: who may name whom, and why."""

    importer: str
    imported: tuple[str, ...]
    why: str


def with_named(graph: ImportGraph, lines: list[str]) -> list[str]:
    """Adds the imports by string that no line allows. Returns the lines, and words of lines, that allow nothing."""
    allowed = [allowed_of(line) for line in lines]
    used = set()
    for found in _found_in(root(), frozenset(graph.modules)):
        uses = {
            (line.importer, pattern)
            for line in allowed
            if fnmatchcase(found.importer, line.importer)
            for pattern in line.imported
            if fnmatchcase(found.imported, pattern)
        }
        used |= uses
        if not uses and found.imported not in graph.find_modules_directly_imported_by(found.importer):
            graph.add_import(
                importer=found.importer,
                imported=found.imported,
                line_number=found.line,
                line_contents=found.text,
            )
    return [
        f"{line.importer} -> {pattern}"
        for line in allowed
        for pattern in line.imported
        if (line.importer, pattern) not in used
    ]


def allowed_of(line: str) -> Allowed:
    """One line of `named`. Raises ValueError for one that gives no reason."""
    importer, arrow, rest = line.partition("->")
    imported, colon, why = rest.partition(": ")
    if not (arrow and colon and imported.split() and why.strip()):
        raise ValueError(f'{line!r}: write "module -> module module ...: why"')
    return Allowed(importer.strip(), tuple(imported.split()), why.strip())


def root() -> Path:
    """The folder of the package that is checked."""
    found = find_spec(PACKAGE)
    assert found is not None and found.submodule_search_locations
    return Path(next(iter(found.submodule_search_locations)))


@functools.cache
def _found_in(folder: Path, modules: frozenset[str]) -> tuple[Named, ...]:
    found = []
    for module in sorted(modules):
        path = folder.joinpath(*module.split(".")[1:])
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if path.is_file():
            found += named_in(module, path.read_text(encoding="utf-8"), modules)
    return tuple(found)


def named_in(module: str, text: str, modules: frozenset[str]) -> list[Named]:
    """The imports by string of one file, each module once, in the order of the lines."""
    tree = ast.parse(text)
    lines = text.splitlines()
    constants = list(_constants(tree))
    words = {word for node in constants for word in _WORD.findall(node.value)}
    lines_of: dict[str, int] = {}
    for node in constants:
        match = _NAME.fullmatch(node.value)
        if match:
            lines_of.setdefault(match[1], node.lineno)
    called = {id(argument) for argument in _called(tree)}
    for joined in (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)):
        for name in _made(joined, module, words, modules, is_called=id(joined) in called):
            lines_of.setdefault(name, joined.lineno)
    return [
        Named(module, name, line, lines[line - 1].strip())
        for name, line in sorted(lines_of.items(), key=lambda item: (item[1], item[0]))
        if name in modules and name != module
    ]


def _constants(tree: ast.Module) -> Iterator[ast.Constant]:
    """Every string but docstrings."""
    docs = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docs.add(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs:
            yield node


def _called(tree: ast.Module) -> Iterator[ast.expr]:
    """What `import_module` and `__import__` are called with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("import_module", "__import__"):
                yield node.args[0]


def _made(
    joined: ast.JoinedStr, module: str, words: set[str], modules: frozenset[str], *, is_called: bool
) -> set[str]:
    """The modules that an f-string makes with these words; with several gaps, any words in each.

    Where no import is called with it, it must begin with a package of ours: f"hcq.nn.{file}", and not f"hcq.{name}".
    """
    parts = [_part(part, module) for part in joined.values]
    start = parts[0] or ""
    if not start.startswith(f"{PACKAGE}.") or not (is_called or "." in start[len(PACKAGE) + 1 :]):
        return set()
    text = "".join(r"([\w.]+)" if part is None else re.escape(part) for part in parts)
    pattern = re.compile(text.partition(":")[0])
    matches = ((name, pattern.fullmatch(name)) for name in modules)
    return {name for name, match in matches if match and words.issuperset(match.groups())}


def _part(part: ast.expr, module: str) -> str | None:
    if isinstance(part, ast.Constant):
        return str(part.value)
    is_own = (
        isinstance(part, ast.FormattedValue)
        and isinstance(part.value, ast.Name)
        and part.value.id == "__name__"
    )
    return module if is_own else None
