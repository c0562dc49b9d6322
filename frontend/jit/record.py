"""Record: what one call of a function did with tensors, as plain data that another call is compared with.

In       what capture.py saw
Out      `CallRecord`: runs of plans on memory that is named by roles, what was read outside, what was left
Next     capture.py (who writes it), replay.py (who does it again)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hcq.frontend.core.base import Core
from hcq.frontend.core.storage import Storage
from hcq.frontend.core.structure import structure_of
from hcq.frontend.jit.overwritten import Writing
from hcq.frontend.jit.pytree import Argument, Gradient, Ref, Same, comparable
from hcq.frontend.jit.references import Reference
from hcq.frontend.symbolic.conditions import Condition
from hcq.ir.node import Node
from hcq.ir.op import Op

# where memory comes from, as the call sees it: ("argument", number), ("made", number), ("data", number),
# ("grad", id of the tensor whose .grad it was) or ("memory", the Storage of a tensor outside)
Role = tuple[str, Any]


# whose memory a view shows: that of an argument, a gradient, a tensor outside, or the first template of such views
Family = Argument | Gradient | Same | int


class Move:
    """A value that was brought from one device to another; it stands in the place of a plan.

    source, device   from where, and to where
    """

    launches = ()
    results = (1,)  # after its only input

    def __init__(self, source: Storage, here: Storage) -> None:
        self.source, self.device = source.device, here.device
        self.dtype, self.shape, self.size_bytes = here.dtype, here.shape, here.size_bytes

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for moves that do the same."""
        return ("move", self.source, self.device, self.dtype, self.shape)


class Run(NamedTuple):
    """A plan that was submitted, or a Move, and the role of everything it read and wrote."""

    plan: Any
    key: Any
    inputs: tuple[Role, ...]
    outputs: tuple[Role, ...]

    def roles(self) -> dict[int, Role]:
        """The role of each value of the plan that is no temporary."""
        found = dict(enumerate(self.inputs))
        for value, role in zip(self.plan.results, self.outputs):
            found.setdefault(value, role)
        return found


class Template:
    """A tensor that a call made and left: a view of memory, with placeholders for what each call has anew.

    family  what else is seen when it is written to, and what it sees; None when it is nobody's view
    """

    def __init__(self, tensor: Core, roles: dict[Storage, Role], placeholders: dict[Role, Storage]):
        structure = structure_of([tensor.node])
        self.roles = [roles.get(storage) or ("memory", storage) for storage in structure.storages]
        self._key = (structure.key, tuple(self.roles), tensor._requires_grad, tensor.device)
        self.family: Family | None = None
        self.device = tensor.device
        self.requires_grad = tensor._requires_grad
        stand_ins = {}
        for storage, role in zip(structure.storages, self.roles):
            if role[0] != "memory" and role[0] != "data":
                if role not in placeholders:
                    placeholders[role] = storage.like()
                    # a gradient could flow on from here in the call; through a replay it cannot
                    placeholders[role].tracked = storage.history is not None
                    placeholders[role].number = storage.number
                stand_ins[storage.node()] = placeholders[role].node()
        self.node = tensor.node.substitute(stand_ins)
        self.whole = self.roles[0] if self.node.op is Op.BUFFER else None  # the usual case

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for templates of what is alike."""
        return (*self._key, self.family)

    def filled(self, placeholders: dict[Role, Storage], found: dict[Role, Storage]) -> Node:
        """Its node, on this call's memory."""
        if self.whole is not None and self.whole in found:
            return found[self.whole].node()
        places = {placeholders[role].node(): found[role].node() for role in self.roles if role in found}
        return self.node.substitute(places)


class External(NamedTuple):
    """A tensor outside that the call read, and what it meant then."""

    ref: Ref
    node: Node
    requires_grad: bool


class Slot(NamedTuple):
    """A .grad that the call read: a replay reads the tensor that is there then, when it is like this one."""

    owner: Ref
    gradient: Ref  # the tensor that was there
    shape: Any
    dtype: Any
    device: str
    is_shared: bool  # something else reaches it too, and the call may have read it by that way


class State(NamedTuple):
    """Python state that decided what was computed: the attribute of an object, and its value."""

    ref: Ref
    name: str
    value: object

    def holds(self) -> bool:
        """Whether it is still so."""
        thing: Any = self.ref()
        if thing is None:
            return False
        now = thing._grad is not None if self.name == "grad" else vars(thing).get(self.name, True)
        return bool(now == self.value)


class CallRecord:
    """What one call did. `unsettled` says why it is no model for the next calls, or is empty."""

    def __init__(self) -> None:
        self.unsettled = ""
        self.device: str | None = None  # or several, joined by commas
        self.is_of_group = False  # which compute together
        self.runs: list[Run] = []
        self.data: list[bytes] = []
        self.data_storages: list[Storage] = []
        self.placeholders: dict[Role, Storage] = {}
        self.sizes: dict[Role, int] = {}  # bytes of what was made
        self.externals: list[External] = []
        self.written: list[Storage] = []  # memory of tensors outside, written in place
        self.overwritten: dict[int, Writing] = {}  # arguments whose memory it wrote to, by number
        self.argument_bytes: dict[Role, int] = {}
        self.donated: frozenset[int] = frozenset()  # arguments that nobody uses after the call
        self.given: list[tuple[int, int, Writing]] = []  # arguments that are to have the values of a template
        self.reshaped: set[int] = set()  # arguments of which it had reshaped views when it wrote to them
        self.shown: set[Node] = set()  # that whose views show what is written
        self.state: list[State] = []
        self.conditions: dict[Any, Condition] = {}  # what the numbers of variables have to fulfil, by its key
        self.indices: list[tuple[Any, Any]] = []  # a list or array that was an index, and a copy of it
        self.templates: list[Template] = []  # of what is New in results, gradients and kept tensors
        self.results: Any = None
        self.gradients: list[tuple[Ref, Any]] = []  # whose .grad the call set, and to what
        self.slots: dict[int, Slot] = {}  # by the id of the tensor whose .grad the call read
        self.pins: list[tuple[Ref, Ref]] = []  # a tensor, and the very .grad that the call's memory is of
        self.kept: list[tuple[list[Reference], int]] = []  # where a tensor was left, and its template

    def is_stale(self) -> bool:
        """True when no call can be like it any more: a tensor that it read is gone."""
        return any(external.node.op is Op.BUFFER and external.ref() is None for external in self.externals)

    def pinned(self, before: CallRecord) -> list[tuple[Ref, Ref]]:
        """The tensors whose .grad must be the very one of this call, which did what the call before did.

        What two calls read of two gradients, they read of `.grad`. Of one gradient that is reached by other ways as
        well, nobody knows.
        """
        known = before.slots
        return self.pins + [
            (slot.owner, slot.gradient)
            for key, slot in self.slots.items()
            if slot.is_shared and (key not in known or known[key].gradient is slot.gradient)
        ]

    def _kept_keys(self) -> list[Any]:
        return [([place.key_of for place in places], self.templates[n].key) for places, n in self.kept]

    def _given_keys(self) -> list[Any]:
        return [(number, self.templates[n].key, how) for number, n, how in self.given]

    def difference(self, other: CallRecord) -> str:
        """Why a replay of this would not do what the other call did; empty when it would."""
        for a, b in zip(self.runs, other.runs):
            if a.key != b.key:
                return _key_difference(a.key, b.key)
            for x, y in zip((*a.inputs, *a.outputs), (*b.inputs, *b.outputs)):
                if x != y:
                    return _role_difference(x, y)
        if len(self.runs) != len(other.runs):
            return f"it ran {len(self.runs)} schedules in one call and {len(other.runs)} in the next"
        if self.conditions.keys() != other.conditions.keys():
            return "it asks other things of the numbers of its variables from call to call"
        if self.data != other.data:
            return "a list that it makes a tensor of, or an index, changes from call to call"
        if comparable(self.results, self.templates) != comparable(other.results, other.templates):
            return "what it returns changes from call to call: other views, other plain values"
        mine, its = ([(id(r()), comparable(g, o.templates)) for r, g in o.gradients] for o in (self, other))
        if mine != its:
            return "it sets the .grad of other tensors from call to call"
        if self.overwritten != other.overwritten or self._given_keys() != other._given_keys():
            return "it writes to its arguments otherwise from call to call"
        if self._kept_keys() != other._kept_keys():
            return (
                "it leaves tensors in other places from call to call, as in a list that grows: keep one in a dict "
                "or an attribute, or return it"
            )
        return ""


def _key_difference(a: tuple[Any, ...], b: tuple[Any, ...]) -> str:
    for x, y in zip(a, b):
        if x != y and x[:2] == y[:2] and x[0] is Op.CONST:
            return f"it computes with {x[2]} in one call and with {y[2]} in the next"
    return "it computes something else from call to call"


def _role_difference(a: Role, b: Role) -> str:
    if a[0] == b[0] == "memory":
        return (
            f"it uses another tensor of shape {b[1].shape} from call to call: if it replaces the tensor, "
            "write into it instead, with assign"
        )
    return "it uses other tensors from call to call"
