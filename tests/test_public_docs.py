"""What is public is documented, and the examples in its documentation hold."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import hcq


class Area(NamedTuple):
    """Modules (with those inside, where they are packages), and how many public functions in them lack a docstring."""

    modules: tuple[str, ...]
    undocumented: int = 0


# a number above 0 is a debt, and only goes down
AREAS = {
    "Tensor": Area(("hcq.frontend.tensor", "hcq.frontend.core", "hcq.frontend.methods")),
    "nn": Area(("hcq.frontend.nn",)),
    "jit": Area(("hcq.frontend.jit",)),
    "tensors, otherwise": Area(("hcq.frontend.gradient", "hcq.frontend.device", "hcq.ir.dtype")),
    "device": Area(("hcq.device", "hcq.opening", "hcq.errors"), 8),
    "queue": Area(("hcq.queue", "hcq.signal", "hcq.program", "hcq.graph"), 5),
    "buffer": Area(("hcq.memory",), 3),
    "layouts and calls": Area(("hcq.layout", "hcq.nv.ioctl", "hcq.amd.ioctl")),
    "trace": Area(("hcq.trace",), 20),
    "emulation": Area(("hcq.emu",), 560),
    "compiler": Area(("hcq.compiler",)),
    "ir": Area(("hcq.ir",)),
}
WITH_EXAMPLES = ("Tensor", "nn", "jit", "tensors, otherwise", "compiler", "ir")


def modules_of(area: Area) -> Iterator[Any]:
    for name in area.modules:
        module = importlib.import_module(name)
        yield module
        for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
            yield importlib.import_module(found.name)


def public(area: Area) -> Iterator[tuple[str, Any]]:
    """The public functions, classes, methods and properties that the modules of an area define, with full names."""
    for module in modules_of(area):
        for name, value in vars(module).items():
            if name.startswith("_") or getattr(value, "__module__", "") != module.__name__:
                continue
            if inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value
            elif inspect.isclass(value):
                yield f"{module.__name__}.{name}", value
                yield from methods(f"{module.__name__}.{name}", value)


def methods(full_name: str, kind: type) -> Iterator[tuple[str, Any]]:
    for name, member in vars(kind).items():
        value = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            yield f"{full_name}.{name}", getattr(kind, name)


def text_of(value: Any) -> str:
    return (value.__doc__ if inspect.isclass(value) else inspect.getdoc(value)) or ""


def undocumented(area: Area) -> list[str]:
    """Those without a docstring, be it one they inherit."""
    found = []
    for name, value in public(area):
        text = text_of(value)
        owner = name.rpartition(".")[0]
        if not text and not _inherited(owner, name.rpartition(".")[2]):
            found.append(name)
    return found


def _inherited(owner: str, name: str) -> bool:
    module, _, kind = owner.rpartition(".")
    try:
        bases = getattr(importlib.import_module(module), kind).__mro__
    except (ImportError, AttributeError):
        return False
    return any(inspect.getdoc(vars(base)[name]) for base in bases if name in vars(base))


@pytest.mark.parametrize("name", AREAS)
def test_what_is_public_has_a_docstring(name):
    missing = undocumented(AREAS[name])
    assert len(missing) <= AREAS[name].undocumented, missing


def examples() -> Iterator[tuple[str, str]]:
    for name in WITH_EXAMPLES:
        for full_name, value in public(AREAS[name]):
            text = inspect.cleandoc(text_of(value))
            if ">>>" in text:
                yield full_name, text


EXAMPLES = dict(examples())


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_docstring_holds(name):
    known = {
        "hcq": hcq,
        **{word: getattr(hcq, word) for word in ("Tensor", "Device", "dtypes", "nn", "jit", "no_grad")},
    }
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], known, name, None, 0)
    heard: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=heard.append)
    assert not heard, "".join(heard)
