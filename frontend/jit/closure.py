"""Closure: what a function's code names outside of itself, the variables around it and the globals.

In       a function
Out      the values behind those names now; the first name whose value differs from an earlier time
Next     function.py (a recording is of one set of these values)

A recording cannot see a Python variable that is given another value; this can, for the variables that the code of the
function, and of the functions that it names, names itself. What is inside of lists and objects is contents.py's.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator, Sequence
from operator import is_
from typing import Any

EMPTY = object()
PLAIN = frozenset({bool, int, float, complex, str, bytes, tuple, frozenset})
OURS = __name__.partition(".")[0]  # the package: its functions are not looked into


class Closure:
    """The names around a function."""

    def __init__(self, function: Any):
        self._cells: list[tuple[str, types.CellType]] = []
        self._globals: list[tuple[str, dict[str, Any]]] = []
        self.functions: dict[int, types.FunctionType] = {}  # those that are looked into
        seen: set[int] = set()
        stack = [function]
        while stack:
            plain = _plain(stack.pop())
            if plain is None or id(plain) in seen:
                continue
            seen.add(id(plain))
            self.functions[id(plain)] = plain
            loaded = set(_loaded_by(plain.__code__))  # what is only given values is for others to read
            cells = [
                (name, cell)
                for name, cell in zip(plain.__code__.co_freevars, plain.__closure__ or ())
                if name in loaded
            ]
            names = [(name, plain.__globals__) for name in sorted(loaded - set(plain.__code__.co_freevars))]
            self._cells += cells
            self._globals += names
            stack += [_content(cell) for _, cell in cells]
            stack += [values.get(name) for name, values in names]

    def values(self) -> list[Any]:
        """What the names mean now."""
        return [_content(cell) for _, cell in self._cells] + [v.get(n, EMPTY) for n, v in self._globals]

    def changed(self, before: Sequence[Any], now: Sequence[Any]) -> str:
        """The first name that means something else, or ""."""
        if all(map(is_, before, now)):
            return ""
        names = [name for name, _ in (*self._cells, *self._globals)]
        for name, a, b in zip(names, before, now):
            if a is not b and not (type(a) is type(b) and type(a) in PLAIN and repr(a) == repr(b)):
                return name
        return ""


def _plain(value: Any) -> types.FunctionType | None:
    """The Python function behind a method or a wrapper; None for everything else, and for this package's own."""
    for _ in range(8):
        if isinstance(value, types.FunctionType):
            module = value.__module__ or ""
            return None if module == OURS or module.startswith(OURS + ".") else value
        if isinstance(value, types.MethodType):
            value = value.__func__
        elif hasattr(type(value), "reset") and isinstance(
            getattr(value, "function", None), types.FunctionType
        ):
            value = value.function  # a jit
        else:
            return None
    return None


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


def _loaded_by(code: types.CodeType) -> Iterator[str]:
    """The globals and the variables around it that code loads, and the code inside of it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _loaded_by(constant)
