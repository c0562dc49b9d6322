"""Synchronisation points: the calls (barriers, exchanges) that all threads of a group must reach together.

In       statements and expressions of a kernel
Out      whether threads meet in them, and the calls at which they do
Changes  nothing
Next     exchanges.py (what is done there), together.py (loops and conditions around such a place)
"""

from __future__ import annotations

from collections.abc import Mapping

from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.errors import NotCompiled
from hcq.emu.metal.shader.syntax import Expression, Function, Statement

Functions = Mapping[str, Function]


def meets(body: list[Statement], functions: Functions) -> bool:
    """Whether threads meet in these statements."""
    for one in body:
        match one:
            case syntax.Do():
                return True
            case syntax.If():
                if meets(one.then, functions) or meets(one.otherwise, functions):
                    return True
            case syntax.For():
                if meets(one.body, functions):
                    return True
        if meetings(one, functions):
            return True
    return False


def meetings(it: Statement, functions: Functions) -> list[syntax.Call]:
    """The calls of a statement's own expressions at which threads meet, in the order in which they are made."""
    found: list[syntax.Call] = []
    match it:
        case syntax.Declare():
            if it.value is not None:
                _collect(it.value, functions, found, False)
        case syntax.Assign():
            _collect(it.target, functions, found, False)
            _collect(it.value, functions, found, False)
        case syntax.If():
            _collect(it.condition, functions, found, False)
        case syntax.For():
            for one in (it.low, it.condition, it.step):
                _collect(one, functions, found, True)
        case syntax.Return():
            if it.value is not None:
                _collect(it.value, functions, found, False)
    return found


def _collect(it: Expression, functions: Functions, found: list[syntax.Call], is_open: bool) -> None:
    """is_open: not all threads may come to this expression, or not once."""
    match it:
        case syntax.Unary() | syntax.Cast():
            _collect(it.value, functions, found, is_open)
        case syntax.Binary():
            _collect(it.left, functions, found, is_open)
            _collect(it.right, functions, found, is_open or it.sign in ("&&", "||"))
        case syntax.Choice():
            _collect(it.condition, functions, found, is_open)
            _collect(it.yes, functions, found, True)
            _collect(it.no, functions, found, True)
        case syntax.Index():
            _collect(it.base, functions, found, is_open)
            _collect(it.index, functions, found, is_open)
        case syntax.Member():
            _collect(it.base, functions, found, is_open)
        case syntax.Call():
            for one in it.arguments:
                _collect(one, functions, found, is_open)
            function = functions.get(it.name)
            if it.name == "simd_shuffle_xor" or (function is not None and meets(function.body, functions)):
                if is_open:
                    raise NotCompiled(f"{it.name} where not all threads come")
                found.append(it)


def returns_early(body: list[Statement]) -> bool:
    """Whether a statement but for the last one returns."""
    return any(isinstance(one, syntax.Return) for one in _but_the_last(body))


def _but_the_last(body: list[Statement]) -> list[Statement]:
    found: list[Statement] = []
    for number, one in enumerate(body):
        if number < len(body) - 1 or not isinstance(one, syntax.Return):
            found.append(one)
        if isinstance(one, syntax.If):
            found += [
                *_but_the_last(one.then),
                *one.then[-1:],
                *_but_the_last(one.otherwise),
                *one.otherwise[-1:],
            ]
        elif isinstance(one, syntax.For):
            found += [*_but_the_last(one.body), *one.body[-1:]]
    return found
