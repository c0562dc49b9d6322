"""Meetings: which statements have a barrier inside, that all threads of a group must reach together, or a return.

In       statements of a kernel or of a function
Out      whether threads meet in them; whether one of them may return before the end; how many they are
Next     statements.py (who asks)
"""

from __future__ import annotations

from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.syntax import Statement
from hcq.emu.metal.shader.typed import BARRIERS


def meets(body: list[Statement]) -> bool:
    """Whether threads meet in these statements."""
    for one in body:
        match one:
            case syntax.Do():
                if one.value.name in BARRIERS:
                    return True
            case syntax.If():
                if meets(one.then) or meets(one.otherwise):
                    return True
            case syntax.For():
                if meets(one.body):
                    return True
    return False


def returns(body: list[Statement]) -> bool:
    """Whether one of these statements returns."""
    return any(isinstance(one, syntax.Return) or returns(_inside(one)) for one in body)


def returns_early(body: list[Statement]) -> bool:
    """Whether a statement but for the last one returns."""
    return returns(body[:-1]) or any(returns(_inside(one)) for one in body[-1:])


def leaves(body: list[Statement], is_continue: bool) -> bool:
    """Whether one of these statements breaks out of the loop that they are in, or goes on to its next round."""
    return any(
        (isinstance(one, syntax.Leave) and one.is_continue == is_continue)
        or (isinstance(one, syntax.If) and leaves(_inside(one), is_continue))
        for one in body
    )


def statement_count(body: list[Statement]) -> int:
    """How many statements these are, with those inside."""
    return sum(1 + statement_count(_inside(one)) for one in body)


def _inside(one: Statement) -> list[Statement]:
    if isinstance(one, syntax.If):
        return [*one.then, *one.otherwise]
    return [*one.body, *one.after] if isinstance(one, syntax.For) else []
