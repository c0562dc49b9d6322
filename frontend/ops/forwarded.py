"""Forwarded: methods that are made of another method, with its arguments, when they are first asked for.

In       the name of a method of Tensor, and what is done with its result
Out      `Forwarded`, which stands in a class in place of the method; `parameters`, of a function as source text
Changes  the class: the made method replaces what stood for it
Next     in_place.py, synonyms.py (who has such methods), arguments.py (checks, made alike)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


class Forwarded:
    """`call(self, ...)` is `finish(self, call, self.method(...))`, with the method's parameters."""

    def __init__(self, call: str, method: str, finish: Callable[[Any, str, Any], Any], about: str) -> None:
        self.call, self.method, self.finish, self.about = call, method, finish, about
        self.owner: type = object

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner, self.name = owner, name

    def __get__(self, one: Any, kind: type) -> Any:
        made = self._made(getattr(kind, self.method))
        setattr(self.owner, self.name, made)
        return made if one is None else made.__get__(one, kind)

    def _made(self, method: Callable[..., Any]) -> Any:
        heads, passes, names = parameters(method)
        source = (
            f"def {self.call}({', '.join(heads)}):\n"
            f"    return _finish({passes[0]}, _call, {passes[0]}.{self.method}({', '.join(passes[1:])}))"
        )
        names |= {"_finish": self.finish, "_call": self.call}
        # a name in this folder: the search for the user's line in a stack skips it
        exec(compile(source, f"{os.path.dirname(__file__)}/{self.call}", "exec"), names)
        made = names[self.call]
        made.__qualname__, made.__module__ = f"{self.owner.__qualname__}.{self.call}", self.owner.__module__
        made.__doc__ = self.about
        made.__annotations__ = {**getattr(method, "__annotations__", {}), "return": "Self"}
        return made


def parameters(function: Callable[..., Any]) -> tuple[list[str], list[str], dict[str, Any]]:
    """How its parameters are declared, how they are passed on, and its defaults by the names in the declarations."""
    import inspect  # and what it imports: not before a method is called

    heads: list[str] = []
    passes: list[str] = []
    defaults: dict[str, Any] = {}
    has_star = False
    for parameter in inspect.signature(function).parameters.values():
        name = parameter.name
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            star = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            has_star = True
            heads.append(star + name)
            passes.append(star + name)
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            heads.append("*")
            has_star = True
        default = ""
        if parameter.default is not parameter.empty:
            defaults[f"_default_{name}"] = parameter.default
            default = f"=_default_{name}"
        heads.append(name + default)
        passes.append(f"{name}={name}" if parameter.kind is parameter.KEYWORD_ONLY else name)
    return heads, passes, defaults
