"""Realize: lazy tensors get memory, and everything that must happen in order happens in order.

In       tensors
Out      the same tensors, their nodes now leaves that read memory
Changes  device memory; the nodes of live tensors; the in-place writes of ASSIGN nodes are done
Next     core/structure.py, short.py (one operation, by a shorter way), roots.py (what has to run), plan.py (what runs),
         core/above.py (what rooms above do for it), jit/capture.py (who records what runs here)

A write in place must not be seen by a tensor that was made before it and is not computed yet: `loss`, made from `w`,
means the old `w` for good. So before a buffer is overwritten, every live tensor that still reads it is computed too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator, Sequence
from threading import get_ident
from typing import Any, Protocol

from hcq.errors import UsageError
from hcq.frontend.core import above, names, sizes, views
from hcq.frontend.core import device as devices
from hcq.frontend.core.base import Core, Watcher, changed, live, thread_modes, watcher
from hcq.frontend.core.nodes import expanded
from hcq.frontend.core.storage import Storage, next_write, written_so_far
from hcq.frontend.core.structure import Structure, structure_of
from hcq.frontend.core.threads import are_threads, lock, note_done, without_done
from hcq.frontend.run import plan as plans
from hcq.frontend.run import short, varying_numbers
from hcq.frontend.run.overwrites import (
    SAME_ORDER,
    base_of,
    is_lent,
    is_move,
    memory_of,
    moves_of,
    next_moves,
    reads,
    written_by,
    written_over,
)
from hcq.frontend.run.plan import Plan
from hcq.frontend.run.roots import replace, replace_in, root_below, root_of
from hcq.frontend.run.short import realize_short
from hcq.ir.node import Node, substitute, toposort
from hcq.ir.op import Op


class Recorder(Watcher, Protocol):
    """A watcher that is called back for every plan that its thread runs, too."""

    def runs(self, plan: Plan, structure: Structure, roots: Sequence[Node]) -> None:
        """A plan is about to be submitted. May refuse."""

    def ran(self, plan: Plan, structure: Structure, outputs: Sequence[Storage]) -> None:
        """It was: what it read, in the structure's order, and what it wrote."""

    def moved(self, source: Storage, here: Storage) -> None:
        """What is in memory of one device was copied to another."""

    def owns(self, tensor: Core) -> bool:
        """Whether the tensor was made, or assigned to, by what is recorded."""


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Inside, this thread has no watcher: what runs is not part of what is recorded."""
    mode = thread_modes.get(get_ident())
    if mode is None or mode.watcher is None:
        yield
        return
    before, mode.watcher = mode.watcher, None
    try:
        yield
    finally:
        mode.watcher = before


def realize(tensors: Iterable[Any]) -> None:
    """Compute every tensor that is not in memory yet, all in one schedule per device.

    A view of memory stays a view. Raises what the device raises; then no node has changed.
    """
    listed = tensors if type(tensors) is tuple else tuple(tensors)
    if len(listed) == 1 and realize_short(listed[0]):
        return
    with lock:
        roots: dict[Node, None] = {}
        by_device: dict[str, list[Node]] = {}
        holders: dict[Node, Any] = {}
        without_done(*listed)
        is_shared = are_threads()
        for tensor in listed:
            is_alone = short.is_alone(tensor)
            node = root_of(tensor)
            if node is None:
                continue
            for one in views.relatives(tensor) if is_shared else ():
                live.take(one)
            if node not in roots:
                roots[node] = None
                by_device.setdefault(tensor.device, []).append(node)
                if is_alone and node is tensor.node:
                    holders[node] = tensor
        for turn, (device, nodes) in enumerate(by_device.items()):
            if turn:  # what they are computed from can have been moved, and is in memory now
                now = [root_of(tensor) for tensor in listed if tensor.device == device]
                nodes = list(dict.fromkeys([node for node in now if node is not None]))
            if nodes:
                _realize_on(device, nodes, holders)


def schedule_of(tensors: Iterable[Any]) -> list[Any]:
    """What `realize` would run for these tensors, compiled but not run: a plan per device, which prints as a table."""
    by_device: dict[str, dict[Node, None]] = {}
    for tensor in tensors:
        node = root_of(tensor)
        if node is not None:
            by_device.setdefault(tensor.device, {})[node] = None
    found: list[Any] = []
    for device, nodes in by_device.items():
        roots = list(nodes)
        structure = structure_of(roots)
        if devices.is_group(device) and not structure.copies:
            found.append(above.group_plan(structure, roots, device))
            continue
        if structure.copies:
            raise UsageError(
                "[schedule] a value comes from another device, which happens on realizing. Realize that value first."
            )
        found.append(plans.plan_for(structure, roots, device))
    return found


def to_read(tensor: Any) -> Any:
    """What to compute in order to read a tensor: itself, or a copy of the part that it is of numbers in no memory.

    So `arange(10**9)[5]` is one number, also while somebody holds the rest.
    """
    if tensor.node.op is Op.BUFFER or live.ref(tensor).whole is None:
        return tensor
    whole = root_of(tensor)
    if whole is None or whole is root_below(tensor.node) or whole.op is Op.ASSIGN or _reads_memory(whole):
        return tensor
    return tensor._like(Node(Op.CONTIGUOUS, tensor.node.dtype, (tensor.node,)))


def storage_of(tensor: Any) -> Storage:
    """The memory that holds the tensor's elements in row-major order; computed, or copied into order, when needed."""
    realize((tensor,))
    node = tensor.node
    while node.op in SAME_ORDER:
        node = node.src[0]
    if node.op is not Op.BUFFER or (node.shape != tensor.node.shape and type(node.arg) is not Storage):
        copy = tensor._like(Node(Op.CONTIGUOUS, tensor.node.dtype, (tensor.node,)))
        realize((copy,))
        node = copy.node
        while node.op is Op.FIRST:
            node = node.src[0]
    storage = node.arg
    assert isinstance(storage, Storage)
    return storage


def _realize_on(device: str, roots: list[Node], holders: dict[Node, Any]) -> None:
    """Compute roots that one device can; `holders` has the tensor of each root that nobody else holds."""
    structure = structure_of(roots)
    if structure.copies:
        roots = _bring_copies(roots)
        structure = structure_of(roots)
    recorder: Recorder | None = watcher()
    if structure.assigns:
        if recorder is not None:
            roots = _others_first(_parted(_without_others_writes(roots, recorder)), recorder)
            structure = structure_of(roots)
        roots, structure = _with_readers(roots, structure)
    tracked_roots = structure.tracked
    general = None
    plan: Any = None
    if devices.is_group(device):
        plan = above.group_plan(structure, roots, device)
    else:
        plan = plans.kept(plans.key_on(structure, device))
    if plan is None:
        general = varying_numbers.as_arguments(structure, roots, device)
        if general is None:
            plan = plans.plan_for(structure, roots, device)
        else:
            asked, structure = structure.key, structure_of(general)
            plan = plans.plan_for(structure, general, device)
            structure = structure._replace(key=asked)  # whoever records this compares numbers, too
    if recorder is not None:
        recorder.runs(plan, structure, roots)
    before = written_so_far()
    outputs = plan.run(structure.storages)
    if recorder is not None:
        recorder.ran(plan, structure, outputs)
    in_memory: dict[Node, Node] = {}
    written: dict[Node, Node] = {}
    for root, storage in zip(roots, outputs, strict=True):
        if root.op is Op.ASSIGN:
            storage.version = next_write()
            storage.history = None
            written[root] = storage.node()
    note_done(written)
    for root, storage, tracked in zip(roots, outputs, tracked_roots, strict=True):
        if root.op is not Op.ASSIGN and tracked and not storage.tracked:
            storage.history, storage.noted = _history(root, written, before)
            storage.tracked = True
        leaf = storage.node()
        if root.op is not Op.ASSIGN and (counts := sizes.counts_of(root)):
            leaf = sizes.with_counts(leaf, counts)
        in_memory[root] = leaf
    if all(root in holders for root in roots):
        for root, leaf in in_memory.items():
            if holders[root].node is root:
                holders[root].node = leaf
        changed()
    else:
        if devices.are_several() and (free := [root for root in roots if not _reads_memory(root)]):
            # of constants alone: on another device the same node is another value
            replace({root: in_memory.pop(root) for root in free}, device)
        if in_memory:
            replace(in_memory)
    if len(roots) == 1:
        (root,) = roots if general is None else general
        step = root.src[0] if root.op is Op.DETACH else root
        found = short.key_of(step) if short.is_short(step) else None
        if found is not None:
            plans.note_short(found[0], plan)
    if names.unnamed:
        names.name_memory()


def _history(root: Node, written: dict[Node, Node], before: int) -> tuple[Node, int]:
    """The graph that computed a value, and the time of the memory that it reads: what was written first is read there.

    A graph that reads memory before it is written, too, is of the time before: a gradient through it is refused.
    """
    if not written:
        return root, before
    seen, stack, memory = {root}, [root], set(written.values())
    while stack:
        node = stack.pop()
        if node in memory:
            return root, before
        for source in () if node in written else node.src:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return root.substitute(written), written_so_far()


def _bring_copies(roots: list[Node]) -> list[Node]:
    """Values of other devices, moved here; the graph then reads them from this device's memory."""
    # live, so that their nodes follow what is computed on the way
    held = [Core._of(root, "") for root in roots]
    while copies := next_moves([tensor.node for tensor in held]):
        sources = []
        recorder: Recorder | None = watcher()
        for node, leaf in copies:
            if leaf is not None:
                is_of_group = devices.is_group(leaf.arg.device) or devices.is_group(str(node.arg))
                if recorder is not None and is_of_group:
                    recorder.forbids(
                        f"moving a tensor from {leaf.arg.device} to {node.arg}",
                        "a recording is of single devices, or of one group of devices. Move it outside",
                    )
                sources.append(Core._of(node.src[0], leaf.arg.device))
        realize(sources)
        found: dict[Node, Node] = {}
        for node, leaf in next_moves([tensor.node for tensor in held]):
            source = node.src[0]
            # what is computed from constants, every device can compute itself: its part, or all
            if leaf is None:
                is_split = source.shape and getattr(node.arg, "axis", None) is not None
                place = node.arg._replace(is_here=True) if is_split else None
                source = _without_copies(source)
                found[node] = source if place is None else Node(Op.COPY, node.dtype, (source,), place)
                continue
            storage = _on(source, leaf.arg.device)
            shaped = (
                storage  # a reshaped value lies as what it was made from: the same memory, in its own shape
            )
            if storage.shape != source.shape:
                shaped = Storage(storage.device, storage.dtype, source.shape, storage.buffer)
            here = above.brought(shaped, node.arg, _on)
            if structure_of([node]).tracked[0]:
                if here.op is not Op.BUFFER:  # parts side by side: one memory keeps the history
                    here = _on(Node(Op.CONTIGUOUS, here.dtype, (here,)), str(node.arg)).node()
                here.arg.history, here.arg.noted, here.arg.tracked = node, written_so_far(), True
            found[node] = here
            if recorder is not None and here.op is Op.BUFFER and not devices.is_group(here.arg.device):
                recorder.moved(storage, here.arg)
        replace(found)
    return [root_below(tensor.node) or tensor.node for tensor in held]


def _without_copies(node: Node) -> Node:
    """A graph that reads no memory, without what says where parts of it are: it is computed where it is wanted."""
    new: dict[Node, Node] = {}
    for inner in node.toposort():
        if inner.op is Op.COPY:
            new[inner] = substitute((inner.src[0],), new)[0]
    return substitute((node,), new)[0] if new else node


def _on(node: Node, device: str) -> Storage:
    """A node of that device, in memory."""
    return storage_of(Core._of(node, device))


def _reads_memory(node: Node) -> bool:
    return any(inner.op is Op.BUFFER for inner in node.toposort())


def give_memory(tensors: Iterable[Any]) -> None:
    """Compute each tensor into memory of its own, copies of views and constants too. A gradient still flows through."""
    listed = list(tensors)
    for tensor in listed:
        if tensor.node.op is not Op.BUFFER:
            realize((tensor,))
    apart = [tensor for tensor in listed if tensor.node.op is not Op.BUFFER]
    for tensor in apart:
        tensor.node = Node(Op.CONTIGUOUS, tensor.node.dtype, (tensor.node,))
    realize(apart)


def readers(tensors: Iterable[Any], written: set[Node], owners: Container[int] = ()) -> list[Any]:
    """Those of the tensors, by id not among the owners, that need what is in these buffers before it is overwritten."""
    found = []
    for tensor in tensors:
        node = tensor.node
        op = node.op
        if op is Op.BUFFER:
            is_reader = node in written
        else:
            is_reader = op is not Op.CONST and reads(node, written)
        if is_reader and id(tensor) not in owners:
            found.append(tensor)
    return found


def compute_readers(found: Iterable[Any]) -> None:
    """Give `readers` memory of their own; another name of a buffer gets a copy of it."""
    listed = list(found)
    for tensor in listed:
        root = root_below(tensor.node)
        if root is None or (root.op is Op.ASSIGN and root is not tensor.node):
            tensor.node = Node(Op.CONTIGUOUS, tensor.node.dtype, (tensor.node,))
            changed()
    realize(listed)


def _without_others_writes(roots: list[Node], recorder: Recorder) -> list[Node]:
    """The roots after writes of other threads, which they read, are done, apart from the recording."""
    if not are_threads():
        return roots
    writes = {node for node in toposort(roots) if node.op is Op.ASSIGN}
    pending = [one for one in live.others() if one.node in writes and not recorder.owns(one)]
    before = [one.node for one in pending]
    with unwatched():
        realize(pending)
    return substitute(roots, {old: one.node for old, one in zip(before, pending, strict=True)})


def _others_first(roots: list[Node], recorder: Recorder) -> list[Node]:
    """Compute what tensors of others still need of the memory that these roots overwrite, apart from the recording.

    Returns  the roots, which now read what was computed
    """
    while True:
        known = set(roots)
        written = written_by(roots)
        found = []
        for t in readers(live, written):
            # of a view of what is written, the write: it shows what is there then
            root = root_of(t) or t.node
            if (root not in known or root in written) and not recorder.owns(t):
                found.append(t)
        if not found:
            return roots
        before = [tensor.node for tensor in found]
        with unwatched():
            compute_readers(found)
        # a view may be read by the roots as what it is, so only what was computed is put in its place
        now = {old: t.node for old, t in zip(before, found) if root_below(old) is not None}
        roots = substitute(roots, now)


def _with_readers(roots: list[Node], structure: Structure) -> tuple[list[Node], Structure]:
    """The roots, and every live tensor that reads memory which they overwrite; the structure of them all."""
    while True:
        parted = _parted(roots)
        if parted is not roots:
            roots, structure = parted, structure_of(parted)
        written = written_by(roots)
        known = set(roots)
        made = known | {node for node in toposort(roots) if node.op is Op.ASSIGN}
        is_shared = are_threads() and watcher() is None
        is_for_all = not is_shared or any(is_lent(node) for node in written)
        apart = _apart_from_other_threads(roots, written, made) if is_shared else None
        if apart is not None:
            roots, structure = apart, structure_of(apart)
            continue
        more: dict[Node, None] = {}
        moves: dict[Node, None] = {}
        concerned = live.held() if is_for_all else live.own()
        without_done(*concerned)
        for tensor in concerned:
            node = tensor.node
            if (node in known and node not in written) or not reads(node, written):
                continue
            if any(is_move(inner) for inner in node.toposort()):
                moves |= moves_of(node, written)
                if not reads(node, written, made):
                    continue  # it moves what is written now: afterwards
            root = root_of(tensor)
            if root is None or root in written:  # a view of what is overwritten becomes a copy
                root = tensor.node = Node(Op.CONTIGUOUS, node.dtype, (node,))
            if root not in known:
                live.take(tensor)
                more[root] = None
        if moves:  # to other devices, from where nothing is read once it is overwritten
            moved = [Core._of(node, str(node.arg)) for node in moves]
            realize(moved)
            replace({node: one.node for node, one in zip(moves, moved, strict=True)})
            continue
        if is_shared:  # whoever else has a write is to know that it was done
            writes = [node for node in toposort(roots) if node.op is Op.ASSIGN and node not in written]
            more |= dict.fromkeys([node for node in writes if node not in known])
        if not more:
            return roots, structure
        roots = [*[root for root in roots if root not in written], *more]
        structure = structure_of(roots)


def _apart_from_other_threads(roots: list[Node], written: set[Node], made: set[Node]) -> list[Node] | None:
    """The roots, which write to copies of memory that tensors of other threads need as it is. None where none do.

    Such a tensor is not computed instead: its thread may be making another one of it, which is not known yet.
    """
    needed: set[Node] = set()
    own, others = live.own(), live.others()
    without_done(*others)
    for tensor in others:
        if reads(tensor.node, written, made):
            needed |= {memory_of(node) for node in written if reads(tensor.node, {node}, made)}
    copies = {leaf: _copy_of(leaf) for leaf in needed if not leaf.arg.is_lent}
    if not copies:
        return None
    writes = [node for node in toposort(roots) if node.op is Op.ASSIGN]
    apart = dict(zip(writes, substitute(writes, copies), strict=True))
    replace_in(own, apart, None)
    last = {node: new for node, new in apart.items() if node not in written}
    replace_in(others, last, None)
    note_done(last)
    changed()
    return substitute(roots, apart)


def _copy_of(leaf: Node) -> Node:
    """A leaf in memory of its own with the same values, which stands for what that one stands for."""
    have = leaf.arg
    storage = storage_of(Core._of(Node(Op.CONTIGUOUS, leaf.dtype, (leaf,)), have.device))
    storage.history, storage.noted, storage.tracked = have.history, have.noted, have.tracked
    storage.version = have.version
    return storage.node()


def _parted(roots: list[Node]) -> list[Node]:
    """The roots, in which no two write to one memory: of two tensors that share it, one gets memory of its own."""
    while (second := written_over(roots)[1]) is not None:
        if base_of(second.src[0]) is not second.src[0]:
            raise UsageError(
                f"[assign] two tensors of shape {second.shape} share the memory and both are assigned to, one in part. "
                "Realize one before the other is assigned, or make one a copy: x.clone()."
            )
        value = expanded(second.src[1], second.shape)
        apart = {second: Node(Op.DETACH, value.dtype, (value,))}
        replace(apart)
        roots = [root for root in substitute(roots, apart) if root_below(root) is not None]
    return roots
