"""Records: a decorator for frozen dataclasses that is cheaper to import than `dataclasses`.

In       a class whose annotations name its fields, in the order of the constructor's arguments
Out      the same class as a frozen dataclass, for programs and for type checkers
Changes  the class; `dataclasses` is imported only when a program asks for the fields
Next     command.py, config.py, backend.py (records)

The module `dataclasses` imports `inspect`, `ast` and `tokenize`, and compiles half a dozen functions for each class:
together a fifth of the time that `import hcq` may take. A record compiles one function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["record"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(*, frozen: bool):
        """A class with a field for each annotation; a value in the class is the field's default."""
        assert frozen
        return _record


def _record(cls: type) -> type:
    own = cls.__dict__
    names = tuple(own.get("__annotations__", ()))
    heads = ", ".join(["self", *(f"{name}=cls.{name}" if name in own else name for name in names)])
    lines = [f"    values[{name!r}] = {name}" for name in names]
    made: dict[str, Any] = {"cls": cls}
    exec("\n".join([f"def __init__({heads}):", "    values = self.__dict__", *lines]), made)
    made["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    given = {
        "__init__": made["__init__"],
        "__eq__": _equal,
        "__hash__": _hash,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__match_args__": names,
        "__dataclass_fields__": _Fields(),
        **({} if "__repr__" in own else {"__repr__": _shown}),
    }
    for name, value in given.items():
        setattr(cls, name, value)
    return cls


class _Fields:
    """The fields as `dataclasses` knows them, made when somebody asks, as `dataclasses.replace` does."""

    def __get__(self, one: object, cls: type) -> Any:
        from dataclasses import dataclass

        own = {name: cls.__dict__[name] for name in cls.__annotations__ if name in cls.__dict__}
        twin: Any = dataclass(type(cls.__name__, (), {"__annotations__": cls.__annotations__, **own}))
        setattr(cls, "__dataclass_fields__", twin.__dataclass_fields__)  # noqa: B010
        return twin.__dataclass_fields__


def _equal(self: Any, other: object) -> Any:
    return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(tuple(self.__dict__.values()))


def _shown(self: Any) -> str:
    fields = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
    return f"{type(self).__qualname__}({fields})"


def _refuse(self: Any, name: str, value: object = None) -> None:
    raise AttributeError(f"{type(self).__qualname__}.{name}: a record does not change; make another one.")
