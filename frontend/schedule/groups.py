"""Groups: kernels of one shape that read each other's values, or the same values, element by element, become one.

In       a walk: the realized nodes, each with its kernel
Out      groups of realized nodes, a kernel each, in an order that respects what each needs
Changes  the walk: a value that only its own kernel reads is no longer realized
Next     walk.py (which nodes are realized), schedule.py (a kernel with several stores)

An optimizer's update of a weight and its two moments is one pass over memory.
"""

from __future__ import annotations

from hcq.frontend.schedule.scores import Fold, is_narrow
from hcq.frontend.schedule.targets import is_ordered, is_renamed, stored_shape, target_base, written_version
from hcq.frontend.schedule.walk import Walk
from hcq.ir.node import Node, Shape
from hcq.ir.op import Op

MAX_STORES = 8
MAX_INPUTS = 24


def group(walk: Walk) -> list[list[Node]]:
    """Kernels of one shape that need each other's values, or the same values, element by element become one."""
    groups: list[list[Node]] = []
    group_of: dict[Node, int] = {}
    needs: list[set[int]] = []  # group -> groups whose values it reads
    readers: dict[Node, list[int]] = {}  # node -> groups that read it element by element
    folding: dict[tuple[Fold, Shape], int] = {}  # what is folded of which scores, to what shape -> group
    # kernel -> buffers and realized nodes it reads
    reads: dict[Node, list[Node]] = {n: [] for n in walk.realized}
    for source, uses in walk.uses.items():
        if source.op is Op.BUFFER or source in walk.realized:
            for kernel in uses:
                if kernel is not source:
                    reads[kernel].append(source)
    for node in walk.realized:
        if walk.leader.get(node, node) is not node:
            continue  # comes with the last piece of its kernel
        sources = reads[node]
        needed = {group_of[s] for s in sources if s in group_of} | _assigned_before(node, group_of)
        number = group_of[node.src[0]] if _is_output(node) else None
        fold = walk.fold_of(node)
        alike = [folding[fold]] if fold in folding and is_narrow(node, len(groups[folding[fold]]) + 1) else []
        for candidate in [*alike, *_candidates(node, sources, walk, group_of, readers)]:
            if number is None and _may_join(node, candidate, sources, groups, needs, needed, reads, walk):
                number = candidate
                break
        if number is None:
            number = len(groups)
            groups.append([])
            needs.append(set())
            if fold is not None:
                folding[fold] = number
        members = walk.pieces.get(node, [node])
        groups[number].extend(members)
        group_of.update(dict.fromkeys(members, number))
        needs[number] |= needed - {number}
        for source in sources:
            if walk.uses[source][node].aligned:
                known = readers.setdefault(source, [])
                if number not in known:
                    known.append(number)
    return _drop_private(groups, group_of, reads, walk)


def _candidates(
    node: Node, sources: list[Node], walk: Walk, group_of: dict[Node, int], readers: dict[Node, list[int]]
) -> list[int]:
    """Groups worth joining: those whose values are read element by element, then those that read the same ones."""
    if _is_alone(node) or walk.reduces(node) or len(walk.pieces.get(node, ())) > 1:
        return []
    aligned = [s for s in sources if walk.uses[s][node].aligned]
    found = [group_of[s] for s in aligned if s in group_of]
    found += [g for s in aligned for g in readers.get(s, [])]
    return list(dict.fromkeys(found))


def _is_alone(node: Node) -> bool:
    """Whether it shares a kernel with nothing; what is another value in its memory needs none at all."""
    return is_ordered(node) or node.op is Op.CAT or is_renamed(node)


def _is_output(node: Node) -> bool:
    """Whether the launch of another node writes it: see ir/own_program.py."""
    return node.op is Op.ROUTINE and len(node.src) == 1 and getattr(node.arg, "index", None).__class__ is int


def _may_join(
    node: Node,
    number: int,
    sources: list[Node],
    groups: list[list[Node]],
    needs: list[set[int]],
    needed: set[int],
    reads: dict[Node, list[Node]],
    walk: Walk,
) -> bool:
    group = groups[number]
    if len(group) >= MAX_STORES or stored_shape(group[0]) != stored_shape(node) or _is_alone(group[0]):
        return False
    members = [*group, node]
    inputs = {source for member in members for source in reads[member]}
    if len(inputs) > min(MAX_INPUTS, walk.most_arguments):
        return False
    if any(s in group and (s in walk.cuts or not walk.uses[s][node].aligned) for s in sources):
        return False
    written = {target_base(m) for m in members if m.op is Op.ASSIGN}
    if len(written) < sum(m.op is Op.ASSIGN for m in members):
        return False  # two writes to one buffer stay in order by being two kernels
    for buffer in written:
        uses = walk.uses.get(buffer, {})
        if any(not uses[m].aligned for m in members if m in uses):
            return False
    return not any(other != number and reaches(needs, other, number) for other in needed)


def reaches(needs: list[set[int]], start: int, goal: int) -> bool:
    """True when `start` needs `goal`, directly or not."""
    seen, stack = {start}, [start]
    while stack:
        for need in needs[stack.pop()]:
            if need == goal:
                return True
            if need not in seen:
                seen.add(need)
                stack.append(need)
    return False


def _assigned_before(node: Node, group_of: dict[Node, int]) -> set[int]:
    """An assignment to what an earlier assignment left comes after it, whether or not it reads the value."""
    if node.op is not Op.ASSIGN:
        return set()
    base = written_version(node)
    return {group_of[base]} if base in group_of else set()


def _drop_private(
    groups: list[list[Node]], group_of: dict[Node, int], reads: dict[Node, list[Node]], walk: Walk
) -> list[list[Node]]:
    """A value that only its own kernel reads, element by element, needs no memory."""
    for number, group in enumerate(groups):
        for node in list(group):
            uses = walk.uses.get(node, {})
            only_here = all(group_of[kernel] == number and use.aligned for kernel, use in uses.items())
            if node not in walk.forced and only_here:
                group.remove(node)
                del walk.realized[node]
                for source in reads[node]:  # what it read, the kernel still reads
                    known = walk.uses[source]
                    for member in uses:
                        known[member] = (
                            known[member].and_also(known[node]) if member in known else known[node]
                        )
    return [group for group in groups if group]  # a group never loses its last member: it has a reader
