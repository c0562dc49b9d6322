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
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

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
) -> Callable[[F], F]:
    """Declares that the function computes these operators, from that version on.

    host           the inputs that it needs as numbers on the host
    attributes_of  the function whose attributes its `**attributes` are
    """

    def declare(function: F) -> F:
        parameters = inspect.signature(function).parameters
        takes, needed, many = [], 0, False
        attributes: dict[str, bool] = {}
        for name, parameter in parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                many = True
            elif parameter.kind is parameter.VAR_KEYWORD:
                assert attributes_of is not None
                others = inspect.signature(attributes_of).parameters
                attributes.update(
                    {n: p.default is p.empty for n, p in others.items() if p.kind is p.KEYWORD_ONLY}
                )
            elif parameter.kind is parameter.KEYWORD_ONLY:
                if name != "call":
                    attributes[name] = parameter.default is parameter.empty
            else:
                takes.append(name)
                needed += parameter.default is parameter.empty
        group = function.__module__.rpartition(".")[2]
        for op in names:
            TABLE.setdefault((domain, op), []).append(
                Implementation(
                    op, domain, since, function, group, tuple(takes), needed, many,
                    frozenset(host.split()), attributes, raw, "call" in parameters,
                )
            )  # fmt: skip
        return function

    return declare
