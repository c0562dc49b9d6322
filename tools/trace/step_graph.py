"""Step graph: one step of a trace as a graph: what runs are nodes, what one of them writes and another reads are edges.

In       a Trace, a range of its submissions, perhaps some of their commands only
Out      a dictionary for JSON: nodes with their layers and places, edges with the buffer, its bytes and their route
Next     page/step_graph.js (draws it), step_layout.py (layers and places), page_data.py (one submission)

A kernel of the tensor layer carries its graph, which says what it reads, what it writes, and how many bytes. Of any
other kernel nobody knows: it is taken to read and write all of every buffer that it is given, and its edges are
`sure: false`. Bytes are followed range by range, since one buffer may hold many values, one after the other or side by
side.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from hcq.errors import UsageError
from hcq.ir import text as graph_text
from hcq.ir.node import Param
from hcq.ir.op import Op
from hcq.tools.trace.step_layout import place
from hcq.tools.trace.views import argument_text, code_of
from hcq.trace.file import Code, Submission, Trace
from hcq.trace.memory import MemoryMap

MAX_NODES = 200  # that a person can follow; beyond it successive commands share a node
MAX_COMMANDS = 20_000  # that are looked at
BLOCK_WORDS = 16  # of a recorded block for each of its commands, about
MAX_EDGES = 4_000  # that are handed out
WORK = {"dispatch": "kernel", "copy": "copy", "fill": "fill", "packets": "packets"}
Json = dict[str, Any]


class Use(NamedTuple):
    """One command's use of [start, end) of a process's memory. `sure` is False where nobody said what it does there."""

    start: int
    end: int
    name: str
    reads: bool
    writes: bool
    sure: bool


class Value(NamedTuple):
    """Bytes [start, end) that a node wrote, or that were there before."""

    start: int
    end: int
    node: int
    name: str
    sure: bool


class Edge(NamedTuple):
    """`name`, of which `size_bytes` go from one node to another."""

    source: int
    target: int
    name: str
    start: int
    size_bytes: int
    sure: bool


@dataclass
class Item:
    """A command that does something with memory, or a buffer that was filled before the step: `command` is None."""

    made: Submission
    command: Json | None
    name: str
    work: str
    order: int  # among the commands of the step that do something
    position: int = 0  # among those of its submission
    uses: list[Use] = field(default_factory=list)
    code: Code | None = None


@dataclass
class Step:
    """What ran in a range of submissions, in order, inputs behind them; and what went from which to which."""

    items: list[Item]
    edges: list[Edge]
    left: list[Value]  # what memory holds at the end of what the step wrote
    commands: int  # that do something, before any were left out


class Memory:
    """Who wrote which bytes last, for one process: values side by side, none over another."""

    def __init__(self) -> None:
        self.values: list[Value] = []

    def within(self, start: int, end: int) -> list[Value]:
        """The values that overlap [start, end), cut to it, by address."""
        first, last = self._overlap(start, end)
        return [
            one._replace(start=max(start, one.start), end=min(end, one.end))
            for one in self.values[first:last]
        ]

    def write(self, value: Value) -> None:
        """The bytes are this value's from here on."""
        first, last = self._overlap(value.start, value.end)
        over = self.values[first:last]
        before = [one._replace(end=value.start) for one in over[:1] if one.start < value.start]
        behind = [one._replace(start=value.end) for one in over[-1:] if value.end < one.end]
        self.values[first:last] = [*before, value, *behind]

    def _overlap(self, start: int, end: int) -> tuple[int, int]:
        """Which values share a byte with [start, end)."""
        first = bisect_right(self.values, start, key=lambda one: one.end)
        return first, max(first, bisect_left(self.values, end, key=lambda one: one.start))


def view(trace: Trace, first: int, last: int, begin: int = 0, end: int | None = None) -> Json:
    """The graph of submissions `first` to `last`; of these commands `begin` to `end`, where only a group is asked for.

    Raises  UsageError for submissions that the trace does not hold
    """
    count = len(trace.submissions)
    if not 0 <= first <= last < count:
        raise UsageError(f"submissions {first} to {last}: the trace holds {count}, from 0 on.")
    return as_json(step_of(trace, first, last, begin, end))


def answer(trace: Trace, query: Mapping[str, Sequence[str]]) -> Json:
    """What the page asks for: `first` and `last`, `begin` and `end` of a group; the busiest submission without.

    Raises  UsageError for what is no number
    """
    numbers = {}
    for name in ("first", "last", "begin", "end"):
        text = next(iter(query.get(name, ())), "")
        if text and not (text.isascii() and text.isdecimal() and len(text) < 16):
            raise UsageError(f"{name}={text[:40]!r}: takes a whole number.")
        if text:
            numbers[name] = int(text)
    first = numbers.get("first")
    if first is None:
        first = busiest(trace)
    last = numbers.get("last", first)
    found = view(trace, first, last, numbers.get("begin", 0), numbers.get("end"))
    return {"first": first, "last": last, **found}


def busiest(trace: Trace) -> int:
    """The submission that launches, copies and fills most: the one to look at first. 0 where there is none."""
    sizes = [_size(made) for made in trace.submissions]
    return sizes.index(max(sizes)) if sizes else 0


def step_of(trace: Trace, first: int, last: int, begin: int = 0, end: int | None = None) -> Step:
    """Who writes what who reads, in the order in which the submissions were made."""
    items: list[Item] = []
    commands = 0
    parameters: dict[int, list[tuple[bool, bool, int]] | None] = {}
    for made in trace.submissions[first : last + 1]:
        if made.dropped:
            continue
        memory = made.memory()
        position = 0
        for command in made.all_commands():
            if command["verb"] not in WORK:
                continue
            if begin <= commands and (end is None or commands < end) and len(items) < MAX_COMMANDS:
                items.append(_item(trace, made, memory, command, commands, parameters))
                items[-1].position = position
            commands += 1
            position += 1
    edges, values = _follow(items)
    return Step(items, edges, [value for value in values if items[value.node].command is not None], commands)


def _size(made: Submission) -> int:
    """About how many commands it has; a block, which would have to be read for that, counts by its words."""
    return sum(
        command["size_words"] // BLOCK_WORDS if command["verb"] == "indirect" else command["verb"] in WORK
        for command in made.commands
    )


def _follow(items: list[Item]) -> tuple[list[Edge], list[Value]]:
    """Edges between items, and what is left at the end. Inputs are appended to the items."""
    memories: dict[int, Memory] = {}
    inputs: dict[tuple[int, int, int], int] = {}
    edges: dict[tuple[int, int, str, int], Edge] = {}
    for number, item in enumerate(list(items)):
        memory = memories.setdefault(item.made.device.process, Memory())
        for use in item.uses:
            if not use.reads:
                continue
            found = memory.within(use.start, use.end)
            for start, stop in _gaps(found, use):
                key = (item.made.device.process, start, stop)
                if key not in inputs:
                    inputs[key] = len(items)
                    items.append(Item(item.made, None, use.name, "input", -1))
                    items[-1].uses.append(Use(start, stop, use.name, False, True, True))
                value = Value(start, stop, inputs[key], use.name, True)
                memory.write(value)
                found.append(value)
            for value in found:
                if value.node == number:
                    continue  # what it wrote itself through another argument
                at = (value.node, number, use.name, value.start)
                size = value.end - value.start
                edges[at] = Edge(value.node, number, use.name, value.start, size, value.sure and use.sure)
        for use in item.uses:
            if use.writes:
                memory.write(Value(use.start, use.end, number, use.name, use.sure))
    left = [value for memory in memories.values() for value in memory.values]
    return _joined(edges.values()), left


def _joined(edges: Iterable[Edge]) -> list[Edge]:
    """Parts of one buffer that go the same way are one edge."""
    found: dict[tuple[int, int, str], Edge] = {}
    for edge in edges:
        key = (edge.source, edge.target, edge.name)
        before = found.get(key)
        found[key] = (
            edge
            if before is None
            else before._replace(
                size_bytes=before.size_bytes + edge.size_bytes,
                start=min(before.start, edge.start),
                sure=before.sure and edge.sure,
            )
        )
    return list(found.values())


def _gaps(found: Sequence[Value], use: Use) -> Iterator[tuple[int, int]]:
    """The parts of a use that no value covers."""
    at = use.start
    for value in found:
        if at < value.start:
            yield at, value.start
        at = max(at, value.end)
    if at < use.end:
        yield at, use.end


# ------------------------------------------------------------ what a command does with memory


def _item(
    trace: Trace,
    made: Submission,
    memory: MemoryMap,
    command: Json,
    order: int,
    parameters: dict[int, list[tuple[bool, bool, int]] | None],
) -> Item:
    verb = command["verb"]
    if verb == "dispatch":
        code = code_of(trace, made, command)
        if code is not None and id(code) not in parameters:
            parameters[id(code)] = _parameters(code)
        known = None if code is None else parameters[id(code)]
        item = Item(made, command, str(command["kernel"]), "kernel", order, code=code)
        item.uses = list(_kernel_uses(memory, command, known))
        return item
    item = Item(made, command, str(command.get("label") or verb), WORK[verb], order)
    if verb in ("copy", "fill"):
        size = max(0, int(command["size_bytes"]))
        if verb == "copy":
            item.uses.append(_use(memory, command["src"], size, (True, False), sure=True))
        item.uses.append(_use(memory, command["dst"], size, (False, True), sure=True))
    item.uses = [use for use in item.uses if use.start < use.end]
    return item


def _kernel_uses(
    memory: MemoryMap, command: Json, known: list[tuple[bool, bool, int]] | None
) -> Iterator[Use]:
    buffers = []
    for argument in command["args"]:
        value = argument["value"]
        is_place = argument["kind"] == "buffer" or (
            argument["kind"] == "unknown" and memory.find(value).state in ("live", "freed")
        )
        if is_place and value:
            buffers.append(value)
        elif argument["kind"] == "buffer" and known is not None:
            known = None  # an empty place among them: which one it is, nobody says
    is_known = known is not None and len(known) == len(buffers)
    for index, value in enumerate(buffers):
        if is_known and known is not None:
            reads, writes, size = known[index]
            use = _use(memory, value, size, (reads, writes), sure=True)
        else:
            use = _use(memory, value, None, (True, True), sure=False)
        if use.start < use.end:
            yield use


def _use(memory: MemoryMap, va: int, size: int | None, does: tuple[bool, bool], sure: bool) -> Use:
    """A use of bytes at an address, not beyond the end of the buffer there."""
    found = memory.find(va)
    rest = found.start + found.size_bytes - va if found.state in ("live", "freed", "mapped") else None
    if size is None:
        size = 1 if rest is None else rest
    elif rest is not None and rest > 0:
        size = min(size, rest)
    return Use(va, va + size, _name(found.name, va, found.start, found.state), *does, sure)


def _name(name: str, va: int, start: int, state: str) -> str:
    if state == "unknown":
        return f"unknown@{va:#x}"
    return name if va == start else f"{name}+{va - start:#x}"


def _parameters(code: Code) -> list[tuple[bool, bool, int]] | None:
    """(reads, writes, bytes) for each argument of a kernel of the tensor layer; None where the trace does not say."""
    text = code.facts.get("graph")
    if not isinstance(text, str):
        return None
    try:
        root = graph_text.read(text)
        found: dict[int, tuple[bool, bool, int]] = {}
        nodes = root.toposort()
        stored = [node.src[0] for node in nodes if node.op is Op.STORE]
        read = [s for n in nodes for at, s in enumerate(n.src) if n.op is not Op.STORE or at]
        used = {id(node) for node in read}
        for node in nodes:
            if isinstance(node.arg, Param):
                size = prod(node.arg.shape) * node.dtype.itemsize
                is_written = any(node is one for one in stored)
                found[node.arg.index] = (id(node) in used, is_written or node.arg.writable, int(size))
    except (ValueError, TypeError, AttributeError, IndexError, RecursionError):
        return None  # a trace may be a stranger's
    return [found[index] for index in sorted(found)]


# ------------------------------------------------------------ for the page


def as_json(step: Step) -> Json:
    """Nodes and edges with their places. More than MAX_NODES commands are grouped, and `grouped` says so."""
    of_item, groups = _groups(step)
    nodes = [_group_json(step, group) if len(group) > 1 else _node_json(step, group[0]) for group in groups]
    merged: dict[tuple[int, int], list[Edge]] = {}
    for edge in step.edges:
        key = (of_item[edge.source], of_item[edge.target])
        if key[0] != key[1]:
            merged.setdefault(key, []).append(edge)
    pairs = list(merged)[:MAX_EDGES]
    layout = place(len(nodes), pairs, {n for n, node in enumerate(nodes) if node["work"] == "input"})
    for node, layer, (x, y) in zip(nodes, layout.layers, layout.places):
        node.update(layer=layer, x=x, y=y)
    edges = [
        {
            "from": source,
            "to": target,
            "name": merged[source, target][0].name,
            "more": len(merged[source, target]) - 1,
            "buffers": [[e.name, e.size_bytes, e.start] for e in merged[source, target][:20]],
            "size_bytes": sum(edge.size_bytes for edge in merged[source, target]),
            "sure": all(edge.sure for edge in merged[source, target]),
            "points": layout.routes[source, target],
        }
        for source, target in pairs
    ]
    commands = sum(item.command is not None for item in step.items)
    return {
        "nodes": nodes,
        "edges": edges,
        "width": layout.width,
        "height": layout.height,
        "commands": commands,
        "left_out": step.commands - commands,
        "edges_left_out": len(merged) - len(pairs),
        "grouped": _grouped(commands, groups),
        "unsure": sum(not edge.sure for edge in step.edges),
    }


def _grouped(commands: int, groups: Sequence[Sequence[int]]) -> str:
    sizes = [len(group) for group in groups if len(group) > 1]
    if commands <= MAX_NODES or not sizes:
        return ""
    return (
        f"{commands:,} commands are more than can be drawn one by one: up to {max(sizes)} of them, one after the "
        "other, share a node here. Click a group to open it."
    )


def _groups(step: Step) -> tuple[dict[int, int], list[list[int]]]:
    """Which items share a node: successive commands of one submission, where there are too many for one each."""
    commands = [n for n, item in enumerate(step.items) if item.command is not None]
    inputs = [n for n, item in enumerate(step.items) if item.command is None]
    if len(commands) <= MAX_NODES and len(inputs) <= MAX_NODES:
        groups = [[number] for number in (*commands, *inputs)]
    else:
        most = -(-len(commands) // (MAX_NODES // 4))
        groups = [commands[at : at + most] for at in range(0, len(commands), most)]
        if len(commands) <= MAX_NODES:
            groups = [[number] for number in commands]
        groups += [inputs] if inputs else []
    return {item: number for number, group in enumerate(groups) for item in group}, groups


def _group_json(step: Step, group: Sequence[int]) -> Json:
    items = [step.items[number] for number in group]
    if items[0].command is None:
        return {"work": "input", "name": f"{len(items)} inputs", "note": "buffers filled before"}
    names = Counter(item.name for item in items)
    counted = [f"{count} times {name}" for name, count in names.most_common(12)]
    return {
        "work": "group",
        "name": f"{len(items)} commands",
        "note": names.most_common(1)[0][0],
        "begin": items[0].order,
        "end": items[-1].order + 1,
        "holds": counted + ([f"and {len(names) - 12} other names"] if len(names) > 12 else []),
        "submission": items[0].made.number,
    }


def _node_json(step: Step, number: int) -> Json:
    item = step.items[number]
    if item.command is None:
        size = item.uses[0].end - item.uses[0].start
        return {"work": "input", "name": item.name, "note": "", "size_bytes": size}
    made, command = item.made, item.command
    kept = {(value.name) for value in step.left if value.node == number}
    facts = {} if item.code is None else item.code.facts
    source = str(facts.get("source", ""))
    schedule = source.split("\n", 1)[0] if source.startswith("schedule: ") else ""
    memory = made.memory()
    node: Json = {
        "work": item.work,
        "name": item.name,
        "note": _note(item),
        "submission": made.number,
        "position": item.position,
        "reads": [[use.name, use.end - use.start] for use in item.uses if use.reads],
        "writes": [[use.name, use.end - use.start, use.name in kept] for use in item.uses if use.writes],
        "sure": all(use.sure for use in item.uses),
        "text": [argument_text(made.trace, memory, one) for one in command.get("args", ())][:64],
    }
    if item.code is not None:
        node["kernel"] = next(n for n, code in enumerate(made.trace.code) if code is item.code)
        node["has"] = [key for key in ("source", "ir", "graph") if facts.get(key)]
        node["schedule"] = schedule.removeprefix("schedule: ")[:2000]
    return node


def _note(item: Item) -> str:
    command = item.command or {}
    if item.work == "kernel":
        grid, block = prod(command["grid"]), prod(command["block"])
        return f"{grid:,} of {block:,} threads" if block > 1 else f"{grid:,} group{'s' * (grid != 1)}"
    if item.work == "packets":
        return f"{command.get('size_words', 0)} words"
    return item.uses[-1].name if item.uses else ""
