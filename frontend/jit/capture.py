"""Capture: what one call of a function does with tensors, written down so that another call can be compared with it.

In       the events of a call: tensors made, memory read and written, plans that ran
Out      a `CallRecord`: the plans that ran on which memory, what the call read of the tensors outside, what it left
Changes  what the call left lazy is computed at its end
Next     watched_call.py (the call that is watched), record.py (what is written down), replay.py (how it is done again)

The function runs on stand-ins for its tensor arguments: the same memory under other names. All other memory that it
reads or writes belongs to tensors outside, and is identified by them. Only two equal records show that a call does
again what the call before did, for any Python may run in between.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.core import device as devices
from hcq.frontend.core import views
from hcq.frontend.core.base import Core, live
from hcq.frontend.core.storage import Storage
from hcq.frontend.core.structure import Structure
from hcq.frontend.jit.overwritten import Writing, keep_others, refuse_shared
from hcq.frontend.jit.pytree import Argument, Gradient, New, Ref, Same, leaves_of, mapped, tensors_in
from hcq.frontend.jit.record import CallRecord, External, Family, Move, Role, Run, Slot, State, Template
from hcq.frontend.jit.references import IN_A_TUPLE, references_to
from hcq.frontend.jit.stand_ins import StandIn
from hcq.frontend.run import varying_numbers
from hcq.frontend.run.plan import Plan
from hcq.frontend.run.realize import Recorder, give_memory, realize
from hcq.frontend.symbolic.conditions import Condition
from hcq.frontend.symbolic.variable import Bound
from hcq.frontend.tensor import Tensor
from hcq.ir.node import Node, toposort
from hcq.ir.op import Op


class Capture(Recorder):
    """The Watcher and Recorder of one call."""

    def __init__(
        self,
        name: str,
        tensors: Sequence[Tensor],
        storages: Sequence[Storage],
        own: Sequence[Storage],
        is_first: bool,
    ):
        self.name = name
        self.tensors_of_call, self.storages = tensors, storages  # the caller's
        self.is_first = is_first  # then what a recording cannot mean is done, and the call is no model
        self.seen = CallRecord()
        self.roles: dict[Storage, Role] = {}
        for number, storage in enumerate(own):
            self.roles.setdefault(storage, ("argument", number))
        self.seen.argument_bytes = {role: storage.size_bytes for storage, role in self.roles.items()}
        self.argument_memory = {id(storage.buffer): n for n, storage in enumerate(own)}
        self.outside: set[int] = set()  # ids of buffers that are reached from outside
        self.writing: dict[int, Writing] = {}  # how arguments are written to, by their numbers
        self.overwritten: dict[int, Writing] = {}  # those whose memory was
        self.stand_ins: dict[int, StandIn] = {}
        self.tensors: list[Ref] = []  # made here
        self.ids: dict[int, Ref] = {}  # the same by id; an id is used again when its tensor is gone
        self.refs: set[int] = set()  # the references themselves, by id, once the call is over
        self.touched: dict[int, Core] = {}  # tensors outside that were assigned to
        self.written: dict[Storage, None] = {}
        self.ran_on: list[tuple[Plan | Move, Any, list[Storage], list[Storage]]] = []
        self.executed: set[Node] = set()
        self.state: dict[tuple[int, str], State | None] = {}
        self.start: list[tuple[Ref, Node, bool]] = []
        self.grads: dict[int, tuple[Ref, Core | None]] = {}
        self.set_grads: set[int] = set()  # ids of the tensors whose .grad was set
        self.counts: dict[int, int] = {}  # references to these gradients before the call
        # of those gradients that the call may have read; seen.slots: that it did
        self.slots: dict[int, Slot] = {}
        self.slot_of: dict[int, int] = {}  # id of a gradient -> the key of its slot
        self.templates: dict[int, Template] = {}  # of what is alive at the end, by the id of its tensor
        self.numbers: dict[int, int] = {}  # theirs in seen.templates
        self.wholes: dict[int, Ref] = {}  # what those are views of that are views, or have some
        self.families: dict[int, int] = {}  # the first template of each of what was made here, by id
        self.count = 0

    # -- events of the call (core.Watcher, realize.Recorder) --

    def made(self, ref: Ref) -> None:
        self.tensors.append(ref)
        self.ids[ref.key] = ref  # type: ignore[attr-defined]

    def owns(self, tensor: Core) -> bool:
        ref = self.ids.get(id(tensor))
        return (ref is not None and ref() is tensor) or id(tensor) in self.touched

    def writes(self, tensor: Core, is_shown: bool = False) -> None:
        if not is_shown and self.is_shared(tensor):
            number = self.stand_ins[id(tensor)].number
            before = self.writing.get(number, Writing.ASSIGNED)
            self.writing[number] = before if before is Writing.ASSIGNED else Writing.BOTH
        if not self.owns(tensor):
            self.touched[id(tensor)] = tensor

    def is_shared(self, tensor: Core) -> bool:
        stand_in = self.stand_ins.get(id(tensor))
        return stand_in is not None and stand_in.ref() is tensor

    def shows(self, storage: Storage) -> None:
        kind, number = self.roles.get(storage, ("", 0))
        if kind != "argument":
            self.seen.shown.add(storage.node())
        else:
            self.writing.setdefault(number, Writing.SHOWN)
            if any(_is_reshaped(one.node, storage) for ref in self.tensors if (one := ref()) is not None):
                self.seen.reshaped.add(number)

    def forbids(self, call: str, why: str) -> None:
        if not self.is_first:
            raise UsageError(f"[jit] {call} while {self.name} is recorded: {why}.")
        self.unsettle(f"{call}: {why}")

    def unsettle(self, why: str) -> None:
        """This call is no model for the next ones."""
        self.seen.unsettled = self.seen.unsettled or why

    def reads_state(self, thing: Any, name: str, value: object) -> None:
        key = (id(thing), name)
        if name == "grad" and value is None:
            self.set_grads.add(id(thing))
        known = self.state.get(key)
        is_known = key in self.state and (
            known is None or known.ref() is thing
        )  # the id of one that is gone is free
        if is_known or (isinstance(thing, Core) and self.owns(thing) and id(thing) not in self.touched):
            return
        if name == "grad":
            _, start = self.grads.get(id(thing), (None, None))
            if value is None or value != (start is not None):
                self.state[key] = None  # set by the call itself before it was read
                return
        self.state[key] = State(weakref.ref(thing), name, value)

    def requires(self, gap: Bound, words: str) -> None:
        places = {}
        for leaf in gap.leaves():
            if leaf.is_stand_in:
                (storage,) = leaf.storages.values()
                places[leaf] = self.roles[storage][1]
        if places:
            condition = Condition(gap, places, words)
            self.seen.conditions[condition.key] = condition

    def uploaded(self, storage: Storage, raw: bytes) -> None:
        self.roles[storage] = ("data", len(self.seen.data))
        self.seen.data.append(raw)
        self.seen.data_storages.append(storage)

    def indexed(self, item: Any) -> None:
        self.seen.indices.append((item, copied(item)))

    def runs(self, plan: Plan, structure: Structure, roots: Sequence[Node]) -> None:
        self._takes_part(plan.device)
        nodes = toposort(roots)
        self._see_outside(structure.storages)
        for node in nodes:
            if node.op is Op.ASSIGN:
                base = node.src[0]
                while base.op is not Op.BUFFER:
                    base = base.src[0]
                self._overwrites(base.arg)
        self.executed.update(nodes)

    def _see_outside(self, storages: Iterable[Storage]) -> None:
        """Note memory that is reached from outside; an argument that is written to must be other memory."""
        for storage in storages:
            if self.roles.setdefault(storage, ("memory", storage))[0] == "memory":
                self.outside.add(id(storage.buffer))
        if self.overwritten:
            self._refuse_shared(self.overwritten)

    def _refuse_shared(self, written: Mapping[int, Writing]) -> None:
        tensors, storages = self.tensors_of_call, self.storages
        refuse_shared(self.name, written, self.seen.reshaped, tensors, storages, self.outside)

    def _overwrites(self, storage: Storage) -> None:
        """Memory is about to be written in place."""
        kind, number = self.roles[storage]
        if kind == "memory" and id(storage.buffer) in self.argument_memory:
            at = self.argument_memory[id(storage.buffer)]
            raise UsageError(
                f"[jit] {self.name} assigns to a tensor from outside that shares memory with its tensor argument {at} "
                f"{storage.shape}. Reach it one way, or pass x.clone()."
            )
        if kind == "argument" and number not in self.overwritten:
            written = {number: self.writing.get(number, Writing.SHOWN)}
            self._refuse_shared(written)
            keep_others(written, self.tensors_of_call, self.storages)
            self.overwritten |= written

    def _takes_part(self, device: str) -> None:
        """Something runs on that device, or on all of that group."""
        seen = self.seen
        if seen.device is None:
            seen.device, seen.is_of_group = device, devices.is_group(device)
        elif seen.is_of_group or devices.is_group(device):
            if device != seen.device:
                self.forbids(
                    f"computing on {device} and on {seen.device}",
                    "a recording is of single devices, or of one group of devices. Use one jit for each",
                )
        elif device not in devices.members(seen.device):
            seen.device = f"{seen.device},{device}"

    def moved(self, source: Storage, here: Storage) -> None:
        self._takes_part(source.device)
        self._takes_part(here.device)
        self.executed.add(source.node())
        self._see_outside((source,))
        self.roles[here] = ("made", self.count)
        self.count += 1
        move = Move(source, here)
        self.ran_on.append((move, move.key, [source], [here]))

    def ran(self, plan: Plan, structure: Structure, outputs: Sequence[Storage]) -> None:
        inputs = dict.fromkeys(structure.storages)
        self._see_outside(inputs)  # with numbers that went to memory on the way
        for storage in outputs:
            if storage in inputs:
                self.written[storage] = None
            else:
                self.roles[storage] = ("made", self.count)
                self.count += 1
        self.ran_on.append((plan, structure.key, list(structure.storages), list(outputs)))

    # -- the call --

    def before_call(self) -> None:
        """Note the node of every tensor before the call."""
        for ref in live.refs():
            tensor = ref()
            if tensor is not None:
                self.start.append((ref, tensor.node, tensor._requires_grad))
                if tensor._requires_grad or tensor._grad is not None:
                    self.grads[id(tensor)] = (ref, tensor._grad)
        tensor = None  # which can be a gradient
        for key, (_, gradient) in self.grads.items():
            if gradient is not None:
                self.counts[key] = sys.getrefcount(gradient)

    def after_call(self, result: Any, held: Sequence[Core], own: dict[Node, Node]) -> Any:
        """Compute what the call left, and note how things are after it.

        held     the stand-ins
        own      the nodes of the stand-ins, each with the node of the argument it stands for
        Returns  the results as Same, Argument, Gradient and New, in the containers they were in
        """
        left = [tensor for ref in self.tensors if (tensor := ref()) is not None]
        touched = list(self.touched.values())
        try:
            realize([*tensors_in(result, self.name), *left, *touched])
            give_memory(touched)
            self._see_roles()
            for tensor in left:
                self.templates[id(tensor)] = Template(tensor, self.roles, self.seen.placeholders)
                shown = live.ref(tensor)
                if shown.whole is not None or shown.views:
                    self.wholes[id(tensor)] = shown.whole or shown
            self._see_arguments(held)
            self.seen.results = mapped(result, self._leaf)
            for key, (ref, before) in self.grads.items():
                tensor = ref()
                # what the call set is set by every replay, also where it was the same already
                if tensor is not None and (key in self.set_grads or tensor._grad is not before):
                    now = None if tensor._grad is None else self._leaf(tensor._grad)
                    self.seen.gradients.append((ref, now))
            self._see_externals()
            return self.seen.results
        finally:
            for tensor in (*left, *touched):
                tensor.node = tensor.node.substitute(own)

    def _see_arguments(self, held: Sequence[Core]) -> None:
        """Which arguments were written to where they are, and which are to have values from elsewhere."""
        self.seen.overwritten = {
            number: self.writing.get(number, Writing.SHOWN) for number in self.overwritten
        }
        self._refuse_shared(self.seen.overwritten | dict.fromkeys(self.seen.donated, Writing.DONATED))
        for tensor in held:
            stand_in = self.stand_ins[id(tensor)]
            if tensor.node is stand_in.node:
                continue
            node, was = tensor.node, stand_in.node
            is_other_view = views.core_of(node) is views.core_of(was)
            if is_other_view or node.shape != was.shape or node.dtype is not was.dtype:
                raise UsageError(
                    f"[jit] {self.name} makes its tensor argument {stand_in.number} {was.shape} another view, of shape "
                    f"{node.shape} and {node.dtype.name}, which a replay does not. Return that instead."
                )
            number = stand_in.number
            how = self.writing.get(number, Writing.SHOWN)
            self.seen.given.append((number, self._number(id(tensor)), how))

    def _leaf(self, tensor: Core) -> Same | Argument | Gradient | New:
        if self.is_shared(tensor) and (number := self.stand_ins[id(tensor)].number) not in self.seen.donated:
            return Argument(number)
        if id(tensor) in self.templates:
            return New(self._number(id(tensor)))
        if id(tensor) in self.slot_of:
            return Gradient(self.slot_of[id(tensor)])
        ref = live.ref(tensor)
        self.seen.externals.append(External(ref, tensor.node, tensor._requires_grad))
        return Same(id(tensor), ref)

    def _number(self, key: int) -> int:
        if key not in self.numbers:
            number = self.numbers[key] = len(self.seen.templates)
            template = self.templates[key]
            template.family = self._family(self.wholes.get(key), number)
            self.seen.templates.append(template)
        return self.numbers[key]

    def _family(self, whole: Ref | None, number: int) -> Family | None:
        """With whom the views of one tensor are to show the same memory after a replay, too."""
        if whole is None:
            return None
        stand_in = self.stand_ins.get(whole.key)  # type: ignore[attr-defined]
        if stand_in is not None and stand_in.ref is whole and stand_in.number not in self.seen.donated:
            return Argument(stand_in.number)
        if (tensor := whole()) is not None and id(tensor) in self.slot_of:
            return Gradient(self.slot_of[id(tensor)])
        if not self.refs:
            self.refs.update(map(id, self.tensors))
        if id(whole) not in self.refs:
            return Same(id(whole), whole)
        return self.families.setdefault(id(whole), number)

    def _see_roles(self) -> None:
        """The runs in roles; memory that comes from a .grad is known by whose gradient it is."""
        self._see_slots()
        known = _origins(node for _, node, _ in self.start)
        for storage, role in self.roles.items():
            if role[0] == "made":
                self.seen.sizes[role] = storage.size_bytes
            elif role[0] == "memory" and storage not in known and not varying_numbers.is_number(storage):
                self.unsettle(
                    "it reads memory that appeared while it ran: another thread computed a part of it"
                )
        for plan, key, inputs, outputs in self.ran_on:
            roles = tuple([self.roles[s] for s in inputs]), tuple([self.roles[s] for s in outputs])
            self.seen.runs.append(Run(plan, key, *roles))
        self.seen.written = [s for s in self.written if self.roles[s][0] == "memory"]
        if any(self.roles[storage][0] == "data" for storage in self.written):
            self.unsettle("it writes to an index")

    def _read_gradients(self) -> Iterator[tuple[int, Ref, Core]]:
        """The gradients from before the call that were looked at in it, and whose they are."""
        for key, (ref, gradient) in self.grads.items():
            state = self.state.get((key, "grad"))
            if gradient is not None and state is not None and state.value:
                yield key, ref, gradient

    def _see_slots(self) -> None:
        """Which memory is that of one .grad alone, which a replay may find replaced."""
        owners: dict[Storage, list[tuple[int, Ref, Core]]] = {}
        for key, ref, gradient in self._read_gradients():
            node = gradient.node
            if node.op is Op.BUFFER and not node.arg.tracked and node.arg not in self.written:
                owners.setdefault(node.arg, []).append((key, ref, gradient))
        alone = {storage: found[0] for storage, found in owners.items() if len(found) == 1}
        if not alone:
            return
        gradients = {id(gradient) for _, _, gradient in alone.values()}
        others = _origins(node for ref, node, _ in self.start if ref.key not in gradients)  # type: ignore[attr-defined]
        for storage, (key, ref, gradient) in alone.items():
            self.roles[storage] = ("grad", key)
            self.slot_of[id(gradient)] = key
            is_shared = self.counts[key] > IN_A_TUPLE + 1 or storage in others
            like = storage.shape, storage.dtype, gradient.device
            self.slots[key] = Slot(ref, live.ref(gradient), *like, is_shared)

    def _keep_slots(self) -> None:
        """Of the gradients that the call may have read, those that it read, or gave away."""
        seen = self.seen
        leaves = [*leaves_of(seen.results), *[leaf for _, leaf in seen.gradients]]
        used: set[Role] = {role for run in seen.runs for role in (*run.inputs, *run.outputs)}
        used.update(role for template in seen.templates for role in template.roles)
        used.update(("grad", leaf.key) for leaf in leaves if isinstance(leaf, Gradient))
        same = {leaf.id for leaf in leaves if isinstance(leaf, Same)}
        for key, ref, gradient in self._read_gradients():
            slot, node = self.slots.get(key), gradient.node
            if slot is not None:
                if slot.is_shared or ("grad", key) in used:
                    seen.slots[key] = slot
            elif (
                node.op is not Op.BUFFER
                or node.arg.tracked
                or ("memory", node.arg) in used
                or id(gradient) in same
            ):
                seen.pins.append((ref, live.ref(gradient)))

    def _see_kept_gradients(self) -> None:
        """A gradient from before the call that is put where a replay does not put the next one is no recording."""
        read = [key for key, _, _ in self._read_gradients()]
        if any(self._is_kept(key) for key in read):
            gc.collect()  # what only a cycle of references holds is not kept
            if any(self._is_kept(key) for key in read):
                self.unsettle(
                    "it keeps the .grad of a tensor that was there before it: return it, or keep a clone() of it"
                )

    def _is_kept(self, key: int) -> bool:
        """Whether there are more references to a gradient than before, but for .grad and results."""
        _, gradient = self.grads[key]
        count = sys.getrefcount(gradient) - self.counts[key]
        slot = self.slot_of.get(id(gradient))
        for leaf in leaves_of(self.seen.results):
            is_it = isinstance(leaf, Gradient) and leaf.key == slot
            count -= is_it or (isinstance(leaf, Same) and leaf.id == id(gradient))
        count += sum(before is gradient for _, before in self.grads.values())
        count -= sum(getattr(ref(), "_grad", None) is gradient for ref, _ in self.grads.values())
        return count > 0

    def _see_externals(self) -> None:
        """Which tensors outside were read; each must mean after the call the memory that it meant before."""
        for ref, node, requires_grad in self.start:
            tensor = ref()
            is_touched = tensor is not None and id(tensor) in self.touched
            if (node not in self.executed and not is_touched) or id(tensor) in self.slot_of:
                continue
            if tensor is None:
                if node.op is Op.BUFFER:
                    self.unsettle(
                        f"it replaces a tensor of shape {node.shape} that it reads: write into it instead, with assign"
                    )
                continue
            if tensor.node is not node:
                self.unsettle(f"a tensor of shape {node.shape} that it uses was given memory meanwhile")
            self.seen.externals.append(External(ref, node, requires_grad))
        self.seen.state = [state for state in self.state.values() if state is not None]

    def close(self) -> CallRecord:
        """The record, once nothing of the call is on the stack: what is alive now is what it left."""
        seen = self.seen
        gradients = {id(owner._grad) for ref, _ in seen.gradients if (owner := ref()) is not None}
        self.touched.clear()
        self._see_kept_gradients()
        alive = [ref for ref in self.tensors if (t := ref()) is not None and id(t) not in gradients]
        t = None
        if alive:
            gc.collect()  # what only a cycle of references holds is not left
        for ref in alive:
            key = ref.key  # type: ignore[attr-defined]
            tensor = ref()
            if tensor is not None and key in self.templates:
                places = references_to(tensor)
                if places is None:
                    self.unsettle(
                        f"it leaves a tensor of shape {tensor.shape} where a replay cannot put the next one: keep it "
                        "in a dict, a list or an attribute, or return it"
                    )
                else:
                    seen.kept.append((places, self._number(key)))
        self._keep_slots()
        self.grads.clear()
        # a module that the call made and dropped, as nn.CrossEntropyLoss()(y, labels) does, is nobody's to change
        seen.state = [one for one in seen.state if one.name == "grad" or one.ref() is not None]
        # an index that nobody else holds is a literal: it cannot change
        seen.indices = [(item, copy) for item, copy in seen.indices if sys.getrefcount(item) > IN_A_TUPLE]
        return seen


def _is_reshaped(node: Node, storage: Storage) -> bool:
    """Whether a node is a view of that memory in another shape."""
    is_reshaped = False
    while node.op in views.STEPS or node.op is Op.ASSIGN:
        if node.op is Op.RESHAPE:
            old, new = ([size for size in one.shape if size != 1] for one in (node.src[0], node))
            is_reshaped |= old != new
        node = node.src[0]
    return is_reshaped and node.op is Op.BUFFER and node.arg is storage


def copied(item: Any) -> Any:
    """A copy of a list of lists, or an array, to compare it with later."""
    return (
        [copied(part) for part in item]
        if isinstance(item, (list, tuple))
        else (item.tobytes() if hasattr(item, "tobytes") else item)
    )


def _origins(nodes: Iterator[Node]) -> set[Storage]:
    """The memory under these nodes, and what the gradients of its values may need."""
    found: set[Storage] = set()
    seen: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op is Op.BUFFER:
            found.add(node.arg)
            if node.arg.history is not None:
                stack.append(node.arg.history)
        stack.extend(node.src)
    return found
