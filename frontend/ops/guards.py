"""Guards: what stands in front of a function and looks at its arguments, parameter by parameter.

In       a function, and a rule for each parameter that is looked at
Out      `guarded`: a closure with the function's parameters, which passes on what the rules make of its arguments
Next     arguments.py (which reads the rules off the annotations)

A right call should cost little more than the function. So what a call leaves out is not looked at, then ints and types
are compared, and only what is not known to be right by that is checked by a call. Functions of two to four parameters,
which most methods are, have a closure that names its parameters, as Python binds those fastest; all others share one
that takes whatever is given.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from hcq.frontend.core.errors import NotReal

if TYPE_CHECKING:
    from inspect import Parameter

Function = Callable[..., Any]
LOWEST, HIGHEST = -(2**63), 2**63 - 1


class Rule(NamedTuple):
    """How the argument of one parameter is looked at.

    check  (value, the call's first argument) -> the value in its plain form, or a refusal; None: anything is right
    usual  the default, which is right
    low    an int from here to `high` is right
    plain  the types of which every value is right
    """

    check: Callable[[Any, Any], Any] | None
    usual: Any = None
    low: int = 1
    high: int = 0
    plain: frozenset[type] = frozenset()


ANYTHING = Rule(None)


def guarded(
    function: Function,
    parameters: Mapping[str, Parameter],
    rules: Mapping[str, Rule],
    otherwise: Function | None,
) -> Function:
    """The function, whose arguments are looked at first.

    parameters  of its signature
    rules       by parameter; the one of `*rest` is given all of the rest, as a tuple
    otherwise   called with the same arguments where the function or a rule raises NotReal
    """
    places = [name for name, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    by_place = [rules.get(name, ANYTHING) for name in places]
    make = _MADE.get(len(places)) if len(places) == len(parameters) else None
    otherwise = otherwise or _raised_again
    if make is None:
        rests = [rules.get(name) for name, one in parameters.items() if one.kind is one.VAR_POSITIONAL]
        guard = _of_any(function, by_place, rests[0] if rests else None, rules, otherwise)
    else:
        guard = make(function, by_place, otherwise)
        code = guard.__code__  # from now on its parameters have the function's names and defaults
        guard.__code__ = code.replace(co_varnames=(*parameters, *code.co_varnames[len(parameters) :]))
        guard.__defaults__ = tuple(
            [one.default for one in parameters.values() if one.default is not one.empty]
        )
    return functools.wraps(function)(guard)


def _raised_again(*args: Any, **named: Any) -> NoReturn:
    raise  # noqa: PLE0704 (the NotReal that its caller has caught)


def _of_two(function: Function, rules: list[Rule], otherwise: Function) -> Any:
    check_a, usual_a, low_a, high_a, plain_a = rules[0]
    check_b, usual_b, low_b, high_b, plain_b = rules[1]

    def guard(a: Any, b: Any) -> Any:
        try:
            if check_a is not None and a is not usual_a:
                if (type(a) is not int or not low_a <= a <= high_a) and type(a) not in plain_a:
                    a = check_a(a, a)
            if check_b is not None and b is not usual_b:
                if (type(b) is not int or not low_b <= b <= high_b) and type(b) not in plain_b:
                    b = check_b(b, a)
            return function(a, b)
        except NotReal:
            return otherwise(a, b)

    return guard


def _of_three(function: Function, rules: list[Rule], otherwise: Function) -> Any:
    check_a, usual_a, low_a, high_a, plain_a = rules[0]
    check_b, usual_b, low_b, high_b, plain_b = rules[1]
    check_c, usual_c, low_c, high_c, plain_c = rules[2]

    def guard(a: Any, b: Any, c: Any) -> Any:
        try:
            if check_a is not None and a is not usual_a:
                if (type(a) is not int or not low_a <= a <= high_a) and type(a) not in plain_a:
                    a = check_a(a, a)
            if check_b is not None and b is not usual_b:
                if (type(b) is not int or not low_b <= b <= high_b) and type(b) not in plain_b:
                    b = check_b(b, a)
            if check_c is not None and c is not usual_c:
                if (type(c) is not int or not low_c <= c <= high_c) and type(c) not in plain_c:
                    c = check_c(c, a)
            return function(a, b, c)
        except NotReal:
            return otherwise(a, b, c)

    return guard


def _of_four(function: Function, rules: list[Rule], otherwise: Function) -> Any:
    check_a, usual_a, low_a, high_a, plain_a = rules[0]
    check_b, usual_b, low_b, high_b, plain_b = rules[1]
    check_c, usual_c, low_c, high_c, plain_c = rules[2]
    check_d, usual_d, low_d, high_d, plain_d = rules[3]

    def guard(a: Any, b: Any, c: Any, d: Any) -> Any:
        try:
            if check_a is not None and a is not usual_a:
                if (type(a) is not int or not low_a <= a <= high_a) and type(a) not in plain_a:
                    a = check_a(a, a)
            if check_b is not None and b is not usual_b:
                if (type(b) is not int or not low_b <= b <= high_b) and type(b) not in plain_b:
                    b = check_b(b, a)
            if check_c is not None and c is not usual_c:
                if (type(c) is not int or not low_c <= c <= high_c) and type(c) not in plain_c:
                    c = check_c(c, a)
            if check_d is not None and d is not usual_d:
                if (type(d) is not int or not low_d <= d <= high_d) and type(d) not in plain_d:
                    d = check_d(d, a)
            return function(a, b, c, d)
        except NotReal:
            return otherwise(a, b, c, d)

    return guard


_MADE: dict[int, Callable[[Function, list[Rule], Function], Any]] = {2: _of_two, 3: _of_three, 4: _of_four}


def _of_any(
    function: Function,
    by_place: list[Rule],
    of_rest: Rule | None,
    rules: Mapping[str, Rule],
    otherwise: Function,
) -> Function:
    count = len(by_place)
    looked_at = [(at, rule.check, rule) for at, rule in enumerate(by_place) if rule.check is not None]
    check_rest = None if of_rest is None else of_rest.check

    def guard(*args: Any, **named: Any) -> Any:
        try:
            for at, check, (_, _, low, high, plain) in looked_at:
                if at >= len(args):
                    break
                value = args[at]
                if (type(value) is not int or not low <= value <= high) and type(value) not in plain:
                    taken = check(value, args[0])
                    if taken is not value:
                        args = (*args[:at], taken, *args[at + 1 :])
            if check_rest is not None and len(args) > count:
                args = (*args[:count], *check_rest(args[count:], args[0]))
            for name in named:
                rule, value = rules.get(name), named[name]
                if rule is None or rule.check is None or value is rule.usual or type(value) in rule.plain:
                    continue
                if type(value) is not int or not rule.low <= value <= rule.high:
                    named[name] = rule.check(value, args[0] if args else None)
            return function(*args, **named)
        except NotReal:
            return otherwise(*args, **named)

    return guard
