"""Forwarded: methods that are made of another method, with its arguments, when they are first asked for.

In       the name of a method of Tensor, and what is done with its result
Out      `Forwarded`, which stands in a class in place of the method
Changes  the class: the made method replaces what stood for it
Next     in_place.py, synonyms.py (who has such methods), late.py (which hands them to another class)
"""

from __future__ import annotations

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
