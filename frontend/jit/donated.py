"""Donated arguments: `jit(f, donate=...)` may use their memory for what it computes, and nobody uses them afterwards.

In       which arguments are donated, by position or name; the tensors of a call
Out      which tensors these are; after the call they are `Donated`, and every use of one says to whom, and where
Changes  those tensors and all views of them; what was computed from them and is yet lazy is computed before
Next     function.py (who asks), memory.py (what is put into their memory), docs/jit.md
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NoReturn

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.external_memory import Lender
from hcq.frontend.core import base as core
from hcq.frontend.core import views
from hcq.frontend.core.base import Core, live
from hcq.frontend.core.storage import Storage, next_write
from hcq.frontend.jit.overwritten import Writing, keep_others, refuse_shared
from hcq.frontend.jit.pytree import mapped
from hcq.frontend.tensor import Tensor
from hcq.ir.op import Op
from hcq.system import call_site

Donate = int | str | Sequence[int | str]


class Donation:
    """The positions and names of a function's donated arguments.

    Raises  UsageError for a position or a name that the function does not have
    """

    def __init__(self, function: Callable[..., Any], name: str, donate: Donate, is_bound: bool = False):
        self.asked = donate
        listed: list[Any] = list(donate) if isinstance(donate, (list, tuple, set, frozenset)) else [donate]
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        kinds = inspect.Parameter
        places = [
            p.name for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
        ]
        is_open = not parameters or any(p.kind is kinds.VAR_POSITIONAL for p in parameters)
        names = {p.name for p in parameters if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)}
        takes_any = not parameters or any(p.kind is kinds.VAR_KEYWORD for p in parameters)
        self.positions: set[int] = set()
        self.names: set[str] = set()
        for each in listed:
            if isinstance(each, str) and (each in names or takes_any):
                self.names.add(each)
                if each in places:
                    self.positions.add(places.index(each))
            elif isinstance(each, int) and not isinstance(each, bool) and 0 <= each - is_bound:
                place = each - is_bound  # self counts, as in the signature that one reads
                if place >= len(places) and not is_open:
                    raise UsageError(
                        f"[jit] {name}: donate={each}: it has {len(places)} positional arguments."
                    )
                self.positions.add(place)
                if place < len(places) and places[place] in names:
                    self.names.add(places[place])
            else:
                raise UsageError(
                    f"[jit] {name}: donate={shown(each)}: give positions from {int(is_bound)} on, and names: "
                    f"{', '.join(places) or 'none'}."
                )

    def numbers(
        self, args: Sequence[Any], kwargs: dict[str, Any], tensors: Sequence[Tensor], name: str
    ) -> list[int]:
        """Which of the tensors of a call are donated."""
        given = [arg for place, arg in enumerate(args) if place in self.positions]
        given += [value for key, value in kwargs.items() if key in self.names]
        others = [arg for place, arg in enumerate(args) if place not in self.positions]
        others += [value for key, value in kwargs.items() if key not in self.names]
        ids = _ids(given)
        if both := ids & _ids(others):
            number = next(n for n, tensor in enumerate(tensors) if id(tensor) in both)
            raise UsageError(
                f"[jit] {name}: tensor argument {number} {tensors[number].shape} is donated and is another argument as "
                "well. Pass x.clone() as one of them."
            )
        return [number for number, tensor in enumerate(tensors) if id(tensor) in ids]


def _ids(trees: Sequence[Any]) -> set[int]:
    found: set[int] = set()

    def note(tensor: Any) -> Any:
        found.add(id(tensor))
        return tensor

    mapped(list(trees), note)
    return found


def prepare(
    name: str, numbers: Sequence[int], tensors: Sequence[Tensor], storages: Sequence[Storage]
) -> bool:
    """Before the call: refuse what cannot be given away, compute what is made of it. True when something was."""
    given = dict.fromkeys(numbers, Writing.DONATED)
    ids: set[int] = set()
    for number in numbers:
        tensor = tensors[number]

        def refuse(why: str, about: str = f"{number} {tensor.shape}") -> NoReturn:
            raise UsageError(f"[jit] {name}: tensor argument {about} is donated, {why}")

        family = _family(tensor)
        ids |= {id(one) for one in family}
        if any(type(one) is not Tensor for one in family):
            refuse("and is a parameter of a module. Pass p.detach().clone().")
        if len(family) > 1 and live.ref(tensor).whole is not None:
            refuse("and is a view of another tensor. Donate that one, or pass x.clone().")
        below = views.core_of(tensor.node)
        buffers = [*storages[number].buffers(), *(below.arg.buffers() if below.op is Op.BUFFER else [])]
        if any(isinstance(getattr(buffer, "parent", None) or buffer, Lender) for buffer in buffers):
            refuse("and its memory is another library's. Pass x.clone().")
    if any(one._grad is not None and id(one._grad) in ids for one in live):
        raise UsageError(
            f"[jit] {name}: a donated tensor is the .grad of another one. Set that to None first."
        )
    refuse_shared(name, given, (), tensors, storages, ())
    return keep_others(given, tensors, storages)


def take(name: str, numbers: Iterable[int], tensors: Sequence[Tensor], storages: Sequence[Storage]) -> None:
    """After the call: the tensors, and views of them, are nobody's any more."""
    where = call_site.where(call_site.site())
    for number in numbers:
        tensor = tensors[number]
        if isinstance(tensor, Donated):
            continue
        storages[number].version = next_write()
        for one in _family(tensor):
            shape = one.shape
            del core._refs[id(one)]
            one.__class__ = Donated
            about = "" if one is tensor else ", with the tensor of which it is a view,"
            one.why = f"this tensor of shape {shape} was donated{about} to {name} at {where}"
    core.changed()


def _family(tensor: Tensor) -> list[Any]:
    found = views.core_of(tensor.node)
    return [one for one in views.relatives(tensor) if views.core_of(one.node) is found]


def _refused(self: Any, *args: Any) -> NoReturn:
    """Refused: the tensor was given away."""
    raise UsageError(
        f"[tensor] {self.why}: its memory is in other use. Take what the call returned, or clone() it before."
    )


class Donated(Tensor):
    """A tensor that was given away: every use is refused, and says to whom it was given."""

    __slots__ = ()

    why: ClassVar[Any] = Core.__dict__["node"]  # the place in which a tensor has its node
    node: Any = property(_refused, _refused)
    device: Any = property(_refused, _refused)
    _grad: Any = property(_refused, _refused)
    _requires_grad: Any = property(_refused, _refused)
    grad: Any = property(_refused, _refused)
    requires_grad: Any = property(_refused, _refused)

    def __repr__(self) -> str:
        return f"Tensor({self.why})"

    def __copy__(self) -> Any:
        _refused(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        _refused(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        _refused(self)
