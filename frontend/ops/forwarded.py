"""Forwarded: methods that are made of another method, with its arguments, when they are first asked for.

In       the name of a method of Tensor, and what is done with its result; the name of a function of a tensor
Out      `Forwarded` and `OfFunction`, which stand in a class in place of the method; `of_rank`
Changes  the class: the made method replaces what stood for it
Next     in_place.py, synonyms.py, factoring.py (who has such methods), late.py (which hands them to another class)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.table import above

if TYPE_CHECKING:
    from inspect import Signature

S = TypeVar("S")
R = TypeVar("R")
P = ParamSpec("P")


class Forwarded:
    """`call(self, ...)` is `finish(self, call, self.method(...))`, with the method's parameters."""

    def __init__(
        self,
        call: str,
        method: str,
        finish: Callable[[Any, str, Any], Any],
        about: str,
        returns: str = "Self",
    ) -> None:
        self.call, self.method, self.finish, self.about, self.returns = call, method, finish, about, returns
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
        returns = self.returns or signature.return_annotation

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

        owner = self.owner.__module__, self.owner.__qualname__
        return _presented(made, call, owner, signature.replace(return_annotation=returns), self.about)


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

        parameters = [first.replace(name="self", annotation=first.empty), *rest]
        signature = signature.replace(parameters=parameters, return_annotation=returns)
        owner = self.owner.__module__, self.owner.__qualname__
        method = checked(_presented(made, self.call, owner, signature, function.__doc__), self.call)
        setattr(self.owner, self.name, method)
        return method if one is None else method.__get__(one, kind)


def of_rank(
    call: str, method: Callable[Concatenate[S, str, int, P], R], rank: int, about: str
) -> Callable[Concatenate[S, P], R]:
    """The method of so many axes, of one for any number: `x.max_pool2d(...)` is `x._max_pool("max_pool2d", 2, ...)`."""
    import inspect

    def made(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(self, call, rank, *args, **kwargs)

    first, _, _, *rest = inspect.signature(method).parameters.values()
    signature = inspect.signature(method).replace(parameters=[first, *rest])
    owner = method.__module__, method.__qualname__.partition(".")[0]
    return _presented(made, call, owner, signature, inspect.cleandoc(about))  # type: ignore[no-any-return]


def _presented(made: Any, call: str, owner: tuple[str, str], signature: Signature, about: str | None) -> Any:
    """A function as a method of a class that was written down: by name, docstring and parameters."""
    made.__name__, made.__qualname__ = call, f"{owner[1]}.{call}"
    made.__module__, made.__doc__ = owner[0], about
    kinds = {each.name: each.annotation for each in signature.parameters.values()}
    made.__annotations__ = {name: kind for name, kind in kinds.items() if kind is not signature.empty}
    made.__annotations__["return"] = signature.return_annotation
    made.__signature__ = signature
    return made
