"""Forwarded: methods that are made of another method, with its arguments, when they are first asked for.

In       the name of a method of Tensor, and what is done with its result; the name of a function of a tensor
Out      `Forwarded` and `OfFunction`, which stand in a class in place of the method
Changes  the class: the made method replaces what stood for it
Next     in_place.py, synonyms.py, factoring.py (who has such methods), late.py (which hands them to another class)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.table import above


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
        import inspect  # and what it imports: not before a method is called

        call, name, finish = self.call, self.method, self.finish
        signature = inspect.signature(method)

        def made(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                result = getattr(self, name)(*args, **kwargs)
            except TypeError as why:
                try:
                    signature.bind(self, *args, **kwargs)
                except TypeError:  # arguments that the method does not take: said by the name that was called
                    raise TypeError(f"{call}() {str(why).partition('() ')[2] or why}") from None
                raise
            return finish(self, call, result)

        made.__name__, made.__qualname__ = call, f"{self.owner.__qualname__}.{call}"
        made.__module__, made.__doc__ = self.owner.__module__, self.about
        made.__annotations__ = {**getattr(method, "__annotations__", {}), "return": "Self"}
        made.__signature__ = signature.replace(return_annotation="Self")  # type: ignore[attr-defined]
        return made


class OfFunction(Forwarded):
    """`self.call(...)` is `function(self, ...)` of a module that table.py names, with its parameters and docstring."""

    def __init__(self, call: str, place: str, function: str) -> None:
        super().__init__(call, function, lambda one, name, result: result, "")
        self.place = place

    def __get__(self, one: Any, kind: type) -> Any:
        import inspect

        function = getattr(above(self.place), self.method)
        signature = inspect.signature(function)
        first, *rest = signature.parameters.values()
        returns = "Self" if signature.return_annotation == "Tensor" else "Any"

        def made(self: Any, *args: Any, **kwargs: Any) -> Any:
            return function(self, *args, **kwargs)

        made.__name__, made.__qualname__ = self.call, f"{self.owner.__qualname__}.{self.call}"
        made.__module__, made.__doc__ = self.owner.__module__, function.__doc__
        made.__annotations__ = {each.name: each.annotation for each in rest} | {"return": returns}
        made.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[first.replace(name="self", annotation=first.empty), *rest], return_annotation=returns
        )
        method = checked(made, self.call)
        setattr(self.owner, self.name, method)
        return method if one is None else method.__get__(one, kind)
