"""The table of operators: which function computes an operator, from which version of its operator set on.

In       `@operator("Softmax", since=13)` on a function
Out      an Implementation in the table
Changes  the table, when the modules of operators/ are imported
Next     operators/ (the functions), lookup.py (reads the table), evaluate.py (who calls them)

A function's positional parameters are the operator's inputs, in its order; one with a default may be left out. What
stands after `*` are its attributes, under ONNX's names; one without a default has to be given. An operator whose
form changed has several functions, and the newest one that is no newer than the model holds.

    @operator("Squeeze", since=13, host="axes")        # axes are needed as numbers
    def squeeze(x, axes=None): ...

    earlier("Squeeze", 1, squeeze, "x", "axes")        # before that axes were an attribute

Operators of one line are rows of a dict, which `operators` takes: name, first version, function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

ML, TRAINING, PREVIEW = "ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.preview"
NEWEST = {"": 28, ML: 5, TRAINING: 1, PREVIEW: 1}  # versions that this table was written from


@dataclass(frozen=True)
class Implementation:
    """How an operator is computed.

    takes      names of its inputs; `many` inputs follow the last one
    host       which of them are needed as numbers on the host, as shapes and axes are
    is_raw     it takes values as they are: sequences, what may be missing, and what is to be run in a graph of its own
    wants_call it takes the call, too: device, how many outputs are used, uploads
    """

    op: str
    domain: str
    since: int
    function: Callable[..., Any]
    group: str
    takes: tuple[str, ...]
    needed: int
    many: bool
    host: frozenset[str]
    attributes: dict[str, bool]  # name -> whether it has to be given
    is_raw: bool
    wants_call: bool


TABLE: dict[tuple[str, str], list[Implementation]] = {}  # (domain, operator) -> its forms


def operator(
    *names: str,
    since: int = 1,
    host: str = "",
    raw: bool = False,
    domain: str = "",
    attributes_of: Callable[..., Any] | None = None,
    **bundles: type[Any],
) -> Callable[[F], F]:
    """Declares that the function computes these operators, from that version on.

    host           the inputs that it needs as numbers on the host
    attributes_of  the function whose attributes its `**attributes` are
    bundles        a parameter that stands for several attributes -> the NamedTuple whose fields they are
    """

    def declare(function: F) -> F:
        takes, needed, many = [], 0, False
        attributes: dict[str, bool] = {}
        parameters = inspect.signature(function).parameters
        for name, parameter in parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                many = True
            elif parameter.kind is parameter.VAR_KEYWORD:
                assert attributes_of is not None
                attributes |= _attributes(inspect.signature(attributes_of).parameters, bundles)
            elif parameter.kind is not parameter.KEYWORD_ONLY:
                takes.append(name)
                needed += parameter.default is parameter.empty
        attributes |= _attributes(parameters, bundles)
        compute = _unbundled(function, bundles) if bundles else function
        group = function.__module__.rpartition(".")[2]
        for op in names:
            TABLE.setdefault((domain, op), []).append(
                Implementation(
                    op, domain, since, compute, group, tuple(takes), needed, many,
                    frozenset(host.split()), attributes, raw, "call" in parameters,
                )
            )  # fmt: skip
        return function

    return declare


def operators(rows: Mapping[str, tuple[int, Callable[..., Any]]], **options: Any) -> None:
    """Declares operators of one line each: name -> from which version on, and what computes it; with `operator`'s
    options."""
    for op, (since, function) in rows.items():
        operator(op, since=since, **options)(function)


def earlier(
    op: str, since: int, function: Callable[..., Any], inputs: str, attributes: str, **fixed: Any
) -> None:
    """Declares an older form of an operator, whose attributes became inputs of the function.

    inputs      names of those that were inputs then; "name!" of one that had to be given, and has not to be now
    attributes  names of those that were attributes, likewise; "old=new" where the name has changed
    fixed       what else the function has to be told
    """
    newer = inspect.signature(function).parameters
    names = {pair.partition("=")[0]: pair.rpartition("=")[2] for pair in attributes.replace("!", "").split()}
    later = next(form for forms in TABLE.values() for form in forms if form.function is function)
    takes = tuple(inputs.replace("!", "").split())
    wants_call = "call" in newer

    def compute(*given: Any, call: Any = None, **said: Any) -> Any:
        arguments = fixed | dict(zip(takes, given)) | ({"call": call} if wants_call else {})
        for name, value in said.items():
            new = newer[names[name]]
            is_input = new.kind is not new.KEYWORD_ONLY and value is not None
            arguments[new.name] = np.asarray(value) if is_input else value
        return function(**arguments)

    def is_needed(word: str) -> bool:
        name = word.rpartition("=")[2]
        return name.endswith("!") or newer[name].default is inspect.Parameter.empty

    needed = {name: is_needed(word) for name, word in zip(names, attributes.split())}
    count = sum(map(is_needed, inputs.split()))
    TABLE.setdefault((later.domain, op), []).append(
        Implementation(
            op, later.domain, since, compute, later.group, takes, count, False,
            later.host & set(takes), needed, False, wants_call,
        )
    )  # fmt: skip


Parameters = Mapping[str, inspect.Parameter]


def _attributes(parameters: Parameters, bundles: Mapping[str, type[Any]]) -> dict[str, bool]:
    """The attributes that a function takes, and whether each has to be given."""
    found: dict[str, bool] = {}
    for name, parameter in parameters.items():
        if name in bundles:
            fields = inspect.signature(bundles[name]).parameters
            found |= {field: each.default is each.empty for field, each in fields.items()}
        elif parameter.kind is parameter.KEYWORD_ONLY and name != "call":
            found[name] = parameter.default is parameter.empty
    return found


def _unbundled(function: Callable[..., Any], bundles: Mapping[str, type[Any]]) -> Callable[..., Any]:
    """The function, of attributes one by one."""

    parts = [(name, bundle, tuple(inspect.signature(bundle).parameters)) for name, bundle in bundles.items()]

    def compute(*inputs: Any, **attributes: Any) -> Any:
        for name, bundle, fields in parts:
            own = {field: attributes.pop(field) for field in fields if field in attributes}
            attributes[name] = bundle(**own)
        return function(*inputs, **attributes)

    return compute
