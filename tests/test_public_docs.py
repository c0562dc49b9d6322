"""What is public is documented, and the examples in its documentation hold.

Public is what no leading underscore hides: modules, their functions and classes, and the methods and properties of
these. An override, and a layout that is derived from another, may leave the docstring to its base.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections import defaultdict
from collections.abc import Iterator
from enum import Enum
from importlib.util import find_spec
from typing import Any

import pytest

from hcq.tools import surface

# cases of benchmarks say what they are in `about`; their methods are found by the names of libraries
CASES = ("hcq.tools.bench.cases.", "hcq.tools.bench.startup")
OPTIONAL = {  # module -> the package that it takes, which not everybody has
    "hcq.tools.reference": "pdoc",
    "hcq.tools.docstring_html": "pdoc",
    "hcq.tools.site_pages": "pdoc",
    "hcq.tools.bench.triton.kernels": "triton",
}


def modules() -> Iterator[str]:
    """Every public module but those of benchmarks."""
    return (name for name in surface.modules() if not name.startswith(CASES))


@functools.cache
def functions_of(owner: Any) -> dict[str, Any]:
    """The functions and properties that a module or a class defines, as they stand there."""
    found = {}
    for name, member in vars(owner).items():
        value = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if isinstance(value, functools.cached_property):
            value = value.func
        is_function = (
            callable(value) and inspect.isfunction(inspect.unwrap(value)) and value.__name__ != "<lambda>"
        )
        if not name.startswith("_") and (is_function or isinstance(value, property)):
            found[name] = value
    return found


def documented_by(kind: type, name: str = "") -> str:
    """The docstring of a class, or of a member of one, or of the first of its bases of ours that has one."""
    for base in kind.__mro__:
        value = functions_of(base).get(name) if name else base
        text = (value.__doc__ or "") if value is not None and base.__module__.startswith("hcq.") else ""
        if text and not text.startswith(f"{base.__name__}("):  # written by NamedTuple or dataclass
            return text
    return ""


def public(name: str) -> Iterator[tuple[str, str]]:
    """What a module makes public, by its full name, with its docstring."""
    module = importlib.import_module(name)
    for key, value in functions_of(module).items():
        if value.__module__ == name:
            yield f"{name}.{key}", value.__doc__ or ""
    for key, kind in vars(module).items():
        if inspect.isclass(kind) and kind.__module__ == name and not key.startswith("_"):
            if not (".abi." in name and issubclass(kind, Enum)):  # a vendor's values under the vendor's names
                yield f"{name}.{key}", documented_by(kind)
            yield from (
                (f"{name}.{key}.{member}", documented_by(kind, member)) for member in functions_of(kind)
            )


@functools.cache
def rooms() -> dict[str, dict[str, str]]:
    """Folder of the first level -> full name -> docstring."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for name in modules():
        if name not in OPTIONAL or find_spec(OPTIONAL[name]) is not None:
            package = importlib.import_module(name).__spec__.parent or ""
            found[".".join(package.split(".")[:2])].update(public(name))
    return dict(found)


@pytest.mark.parametrize("room", rooms())
def test_what_is_public_has_a_docstring(room):
    missing = [name for name, text in rooms()[room].items() if not text]
    assert not missing


EXAMPLES = {name: text for room in rooms().values() for name, text in room.items() if ">>>" in text}
# of the tensor layer, whose examples are nearly a thousand; `make reference` and the thorough tests run the others, too
SOME = ("Reduction.sum", "Movement.expand", "Gathering.gather", "Linear", "SGD", "vmap", "softmax")


def examples() -> Iterator[Any]:
    """The names of examples: most of those of the tensor layer are thorough."""
    for name in EXAMPLES:
        is_left_out = name.startswith("hcq.frontend.") and not name.endswith(SOME)
        if not name.startswith(
            "hcq.frontend.more.distributed."
        ):  # several ranks, or one: tests/tools/test_surface.py
            yield pytest.param(name, marks=pytest.mark.thorough if is_left_out else ())


@pytest.mark.parametrize("name", [*examples()])
def test_the_example_of_a_docstring_holds(name):
    module = next(known for known in sorted(modules(), reverse=True) if name.startswith(known))
    assert surface.run(name, EXAMPLES[name], module) == ""
