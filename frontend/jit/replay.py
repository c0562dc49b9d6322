"""Replay: a captured call, submitted again with one doorbell.

In       a CallRecord that the call after it repeated; the arguments of further calls
Out      results, gradients and kept tensors as the call would have left them
Changes  what the call changes: tensors outside that it writes to, `.grad`, tensors that it keeps
Next     capture.py (what is known of a call), hcq/graph.py (how a recording is replayed), function.py (who decides)

A recording is of things as they were: the tensors that were read mean the memory they meant, modules are in their mode.
Before each replay this is asked again, cheaply: as long as the clock of changes (core/base.py) stands, nothing changed.
What a replay leaves is in new memory, so that what earlier calls left stays; what it writes in place is first read by
those who still mean the old values, as run/realize.py does it for a call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from sys import getrefcount
from typing import Any

from hcq import config
from hcq.errors import UsageError
from hcq.frontend.core import base as core
from hcq.frontend.core import device as devices
from hcq.frontend.core.base import live
from hcq.frontend.core.storage import REPLAYED, Storage, next_write
from hcq.frontend.core.views import core_of
from hcq.frontend.jit.capture import copied
from hcq.frontend.jit.delivery import deliver
from hcq.frontend.jit.memory import Planned, plan_memory
from hcq.frontend.jit.overwritten import keep_others, refuse_shared
from hcq.frontend.jit.pytree import New, numbers_in, tensors_in
from hcq.frontend.jit.record import CallRecord, Role
from hcq.frontend.jit.references import IN_A_TUPLE
from hcq.frontend.run import timed_out_work
from hcq.frontend.run.realize import compute_readers, give_memory, readers, realize, storage_of
from hcq.frontend.tensor import Tensor
from hcq.graph import Symbol
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, const
from hcq.ir.op import Op

CHECKED_REPLAYS = 2  # with HCQ_JIT_CHECK=1: the first replays of a recording are compared with the function


class Recording:
    """A call that can be submitted again."""

    def __init__(self, name: str, seen: CallRecord, before: CallRecord, by_result: bool = False):
        self.name = name
        self.seen = seen
        self.pinned = seen.pinned(before)  # the tensors whose .grad must be the very one of the call
        self.device = seen.device or devices.default()
        self.opened = devices.opened(self.device)
        self.kernels = sum(len(run.plan.launches) for run in seen.runs)
        self.checks_left = CHECKED_REPLAYS if config.current().jit_check else 0
        self.own: dict[Role, Any] = {}  # its own memory
        self.planned = Planned({}, [])
        self.reused: dict[Role, Role] = {}  # what is left in the memory of which donated argument
        self.named: set[Role] = set()  # the roles that some launch names anew in each replay
        # what is left by a call is in new memory each time; the rest of what it makes is the recording's own
        self.fresh = {role for template in seen.templates for role in template.roles if role[0] == "made"}
        self.gradients = self._own_gradients()
        self.graph, *self.further = self._graphs(by_result)
        self.written = [*seen.written, *[gradient.node.arg for _, gradient, _ in self.gradients]]
        self.written_nodes = {storage.node() for storage in self.written}
        self.written_buffers = {id(storage.buffer) for storage in self.written}
        self.outside = {
            id(role[1].buffer)
            for run in seen.runs
            for role in (*run.inputs, *run.outputs)
            if role[0] == "memory"
        }
        self.owners = {
            id(external.ref()) for external in seen.externals if external.node in self.written_nodes
        }
        self.owners |= {id(gradient) for _, gradient, _ in self.gradients}
        self.has_moved = False  # whether looking gave tensors other memory
        self.clean_at = -1  # the clock of changes when everything was last looked at
        # when tensors were looked at last, and before that: only their places among all tensors mean something
        self._mark, self._mark_before = (Tensor._of(const(False, dtypes.bool), self.device) for _ in range(2))
        self._made = sorted(self.fresh)
        self._arguments = sorted(role for role in self.named if role[0] == "argument")
        self._only_result = self._find_only_result()

    def _own_gradients(self) -> list[tuple[Any, Tensor, Node]]:
        """Whose gradient, and which: those of every call are written over, as long as nobody else holds them."""
        seen, found = self.seen, []
        elsewhere = {number for _, number in seen.kept} | set(numbers_in(seen.results))
        uses = Counter(role for template in seen.templates for role in template.roles)
        left = []
        for ref, leaf in seen.gradients:
            role: Role | None = seen.templates[leaf.number].whole if isinstance(leaf, New) else None
            if role is None or role not in self.fresh or uses[role] > 1 or leaf.number in elsewhere:
                left.append((ref, leaf))
            elif seen.slots:  # the gradient before is read: it cannot be written over meanwhile
                left.append((ref, leaf))
            else:
                like = seen.placeholders[role]
                storage = self.new(like, f"{self.name} (gradient)")
                gradient = Tensor._of(storage.node(), storage.device)
                self.own[role] = storage.buffer
                self.fresh.discard(role)
                found.append((ref, gradient, gradient.node))
        self.other_gradients = left
        return found

    def new(self, like: Storage, name: str) -> Storage:
        """New memory for a storage like that one."""
        buffer = self.opened.memory.alloc(like.size_bytes, name)  # what device.alloc calls
        return Storage(like.device, like.dtype, like.shape, buffer)

    def _graphs(self, by_result: bool) -> list[Any]:
        """The device graph of the runs; or several, each of which ends where another of the results is complete."""
        device, seen = self.opened, self.seen
        self.planned = plan_memory(
            seen.runs,
            seen.sizes,
            self.fresh | self.own.keys(),
            device.runs_side_by_side,
            self._donated(),
            self.fresh,
        )
        given = self.planned.given
        self.reused = {
            role: given[at]
            for role, at in self.planned.places.items()
            if role in self.fresh and at < len(given)
        }
        graphs = [self._new_graph()]
        ends = self._ends() if by_result else set()
        memories = [
            self._place(given[number])
            if number < len(given)
            else device.alloc(size, f"{self.name} (temporary {number})")
            for number, size in enumerate(self.planned.sizes)
        ]
        for number, run in enumerate(self.seen.runs):
            roles = run.roles()
            for at, (program, values, grid, block) in enumerate(run.plan.programs()):
                places = []
                for v in values:
                    key: Any = roles[v] if v in roles else (number, v)
                    shared = self.planned.places.get(key)
                    places.append(self._place(key) if shared is None else memories[shared])
                graphs[-1].dispatch(program, places, grid, block)
                if (number, at) in ends:
                    graphs.append(self._new_graph())
        return graphs if len(graphs) == 1 or graphs[-1].commands else graphs[:-1]

    def _donated(self) -> dict[Role, int]:
        """The bytes of donated arguments that no result shows."""
        seen = self.seen
        shown = {role for template in seen.templates for role in template.roles}
        found = {
            role: size
            for role, size in seen.argument_bytes.items()
            if role[1] in seen.donated and role not in shown and size
        }
        return {role: found[role] for role in sorted(found)}

    @property
    def memory_bytes(self) -> int:
        """What it needs besides arguments: its own memory, and what each replay leaves.

        Of a recording on several devices, temporaries are not counted.
        """
        taken = sum(self.seen.sizes[role] for role in self.own)
        taken += sum(self.planned.sizes[len(self.planned.given) :])
        return taken + sum(self.seen.sizes[role] for role in self.fresh if role not in self.reused)

    def _new_graph(self) -> Any:
        graph = self.opened.graph(self.name)
        # arguments that are written to share memory with nothing; results and gradients are in memory of their own
        graph.is_apart = True
        return graph

    def _ends(self) -> set[tuple[int, int]]:
        """Run and launch that write the last of a result, for each result."""
        results = {
            role for number in numbers_in(self.seen.results) for role in self.seen.templates[number].roles
        }
        last: dict[Role, tuple[int, int]] = {}
        for number, run in enumerate(self.seen.runs):
            roles = run.roles()
            for at, launch in enumerate(run.plan.launches):
                last.update({roles[v]: (number, at) for v in launch.writes if roles.get(v) in results})
        return set(last.values())

    def _place(self, role: Role) -> Any:
        """The buffer that a launch's argument is, or the symbol under which each replay names one."""
        kind, what = role
        if kind == "memory":
            return what.buffer
        if kind == "data":
            return self.seen.data_storages[what].buffer
        if kind == "made" and role not in self.fresh:
            if role not in self.own:  # of no elements: nobody makes it
                self.own[role] = self.opened.alloc(self.seen.sizes[role], f"{self.name} (made {what})")
            return self.own[role]
        self.named.add(role)
        return Symbol(role)

    def _find_only_result(self) -> Role | None:
        """The role of the result, in the usual case: one new tensor in memory of its own, and nothing else is left."""
        seen = self.seen
        if (
            type(seen.results) is not New
            or self.other_gradients
            or seen.kept
            or seen.overwritten
            or seen.given
        ):
            return None
        template = seen.templates[seen.results.number]
        return template.whole if not template.requires_grad and template.whole in self.fresh else None

    # -- whether it may be replayed --

    def holds(self) -> bool:
        """Whether things are as they were when it was recorded. Does writes that are pending on what it reads."""
        seen = self.seen
        self.has_moved = False
        for state in seen.state:
            if state.name == "grad" and not state.holds():
                return False
        if (seen.slots or self.pinned) and not self._gradients_fit():
            return False
        for places, _ in seen.kept:
            if not all(place.is_there() for place in places):
                return False
        for item, copy in seen.indices:
            if copied(item) != copy:
                return False
        if core.changes() == self.clean_at:
            if self.written_nodes:
                self._compute_readers(is_first=False)
            return True
        if devices.opened(self.device) != self.opened or not all(state.holds() for state in seen.state):
            return False
        for external in seen.externals:
            tensor = external.ref()
            if tensor is not None and tensor.node.op is Op.ASSIGN:
                realize((tensor,))
                self.has_moved = True
        if not self._is_as_it_was():
            return False
        if self.written_nodes:
            self._compute_readers(is_first=True)
            if not self._is_as_it_was():  # two names of one memory that is written to: now they are apart
                return False
        self.clean_at = core.changes()
        return True

    def _gradients_fit(self) -> bool:
        """Whether the gradients that a replay reads are there, and like those that the call read."""
        for owner, gradient in self.pinned:
            now = getattr(owner(), "_grad", None)
            if now is None or now is not gradient():
                return False
        for slot in self.seen.slots.values():
            now = getattr(slot.owner(), "_grad", None)
            if now is None or now.device != slot.device:
                return False
            if now.node.op is not Op.BUFFER:
                self.has_moved |= now.node.op is Op.ASSIGN
                give_memory((now,))
            storage = now.node.arg
            if storage.shape != slot.shape or storage.dtype != slot.dtype or storage.tracked:
                return False
            if id(storage.buffer) in self.written_buffers:
                return False
        return True

    def _is_as_it_was(self) -> bool:
        for ref, node, requires_grad in self.seen.externals:
            tensor = ref()
            if tensor is None:
                if node.op is Op.BUFFER:
                    return False
            elif tensor.node is not node or tensor._requires_grad is not requires_grad:
                return False
        return True

    def _compute_readers(self, is_first: bool) -> None:
        """Compute what still means the old values of memory that the replay overwrites.

        is_first   look at all tensors, not only at those made since the last look
        """
        mark = self._mark_before
        live.renew(mark)  # before the look, for other threads make tensors
        found = readers(live if is_first else live.since(self._mark), self.written_nodes, self.owners)
        if self.seen.shown:
            found = [
                one
                for one in found
                if live.ref(one).whole is None or core_of(one.node) not in self.seen.shown
            ]
        if found:
            compute_readers(found)
            self.has_moved = True
            self.clean_at = core.changes()
        self._mark, self._mark_before = mark, self._mark

    def keep_others(self, tensors: Sequence[Tensor], storages: Sequence[Storage]) -> bool:
        """Compute what needs the old values of arguments that the replay overwrites. True when something did."""
        return keep_others(self.seen.overwritten, tensors, storages)

    # -- replaying it --

    def replay(self, tensors: Sequence[Tensor], storages: Sequence[Storage]) -> Any:
        """Submit the recording on other arguments; new memory for what it leaves."""
        for number, storage in enumerate(storages):
            if id(storage.buffer) in self.written_buffers:
                raise UsageError(
                    f"[jit] {self.name}: tensor argument {number} {storage.shape} shares memory with a tensor that the "
                    "function assigns to. Pass x.clone()."
                )
        seen = self.seen
        if seen.overwritten:
            refuse_shared(self.name, seen.overwritten, seen.reshaped, tensors, storages, self.outside)
        if self.gradients:
            self._assign_gradients()
        found: dict[Role, Storage] = {("argument", n): s for n, s in enumerate(storages)}
        places: dict[Any, Any] = {role: found[role].buffer for role in self._arguments}
        before: dict[int, Any] = {}
        for key, slot in seen.slots.items():
            owner: Any = slot.owner()
            gradient = before[key] = owner._grad
            if gradient.node.op is not Op.BUFFER:  # what was computed meanwhile can have made it lazy
                give_memory((gradient,))
            storage = found["grad", key] = gradient.node.arg
            if ("grad", key) in self.named:
                places["grad", key] = storage.buffer
        if timed_out_work.late:
            self._drop_overdue(found.values())
        for role in self._made:
            like = seen.placeholders[role]
            if role in self.reused:
                storage = found[role] = like.like(found[self.reused[role]].buffer)
            else:
                storage = found[role] = self.new(like, self.name)
            if like.tracked:
                storage.tracked, storage.noted = True, REPLAYED
            if role in self.named:
                places[role] = storage.buffer
        if self.further:
            for graph in (self.graph, *self.further):
                graph.replay({key: places[key] for key in graph.patch_points})
        elif self.graph.commands:
            self.graph.replay(places)
        if self.written:
            now = next_write()
            for storage in self.written:
                storage.version = now
        if self._only_result is not None:
            only = found[self._only_result]
            return Tensor._of(only.node(), only.device)
        return deliver(seen.results, seen, tensors, storages, found, before, self.other_gradients)

    def _drop_overdue(self, storages: Iterable[Storage]) -> None:
        timed_out_work.drop(self.opened, [storage.buffer for storage in storages])

    def _assign_gradients(self) -> None:
        """Every .grad is the tensor whose memory this replay writes; who holds the one before keeps what it was."""
        for place, (ref, gradient, node) in enumerate(self.gradients):
            owner = ref()
            if owner is None:
                continue
            is_ours = owner._grad is gradient
            # held by the list's tuple alone, and by the owner
            if gradient.node is node and getrefcount(gradient) == IN_A_TUPLE + is_ours:
                if not is_ours:
                    owner._grad = gradient
                continue
            realize((gradient,))
            if readers((gradient,), {node}):
                compute_readers((gradient,))
            self.owners.discard(id(gradient))
            gradient = owner._grad = Tensor._of(node, node.arg.device)
            self.owners.add(id(gradient))
            self.gradients[place] = ref, gradient, node

    def check(
        self,
        capture: Callable[[], tuple[Any, CallRecord]],
        replay: Callable[[], Any],
        storages: Sequence[Storage],
        lost: Sequence[str] = (),
    ) -> Any:
        """HCQ_JIT_CHECK: run the function itself and a replay from one state, and compare everything they leave.

        lost  what the function changed of Python's values, which a replay does not
        """
        donated = [storages[n] for n in self.seen.donated]
        written = [*self.seen.written, *[storages[n] for n in self.seen.overwritten]]
        written += [storages[n] for n, *_ in self.seen.given]
        written = [storage for storage in written if storage not in donated]
        before = _bytes_of([*written, *donated])
        eager, seen = capture()
        why = seen.unsettled or self.seen.difference(seen)
        if not why and lost:
            why = f"it changes {', '.join(lost[:3])}, which are no tensors, in Python; a replay does not"
        wanted = _contents(eager), _bytes_of(written)
        for storage, contents in zip([*written, *donated], before):
            storage.restore(contents)
        del eager
        result = replay()
        found = _contents(result), _bytes_of(written)
        for what, want, got in zip(("result", "assigned tensor"), wanted, found):
            for number, (a, b) in enumerate(zip(want, got)):
                if a != b:
                    why = f"{what} {number} of a replay differs from the function's own: {why or 'for a reason unseen'}"
                    raise UsageError(f"[jit] {self.name}: {why}. {ADVICE}")
        if why:
            raise UsageError(f"[jit] {self.name}: a replay would differ from the function: {why}. {ADVICE}")
        return result


ADVICE = "Pass what varies as an argument, or keep it in a tensor that the function assigns to."


def _bytes_of(storages: Sequence[Storage]) -> list[bytes]:
    """What is in memory that a replay writes to."""
    return [storage.contents() for storage in storages]


def _contents(result: Any) -> list[bytes]:
    return [storage_of(tensor).contents() for tensor in tensors_in(result, "jit")]
