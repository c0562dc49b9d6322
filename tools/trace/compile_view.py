"""Compile view: the way of one kernel from its graph to machine code: passes, rewrites, and choices with their reasons.

In       a kernel of a trace that carries its graph, or the graph and a Target
Out      a dictionary for JSON: stations in order, what rules did there as before and after, the loops, the texts
Changes  compiles the kernel again, in this process; opens no device, keeps nothing in a cache
Next     page/compile.js (draws it), compiler/pipeline.py (the stations), tools/replay_compile.py (the same as text)

Before and after of a rewrite share nodes. What both hold is marked as unchanged; the rest is what the rule changed.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hcq.compiler.linear.program import Program
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.pipeline import PASSES, Watch, build
from hcq.compiler.target import Target
from hcq.errors import HcqError, UsageError
from hcq.ir import text as graph_text
from hcq.ir.infix import TIGHTEST, infix
from hcq.ir.node import Node, show_arg, show_index, toposort
from hcq.ir.op import Op
from hcq.ir.rewrite import Notes, Rule, Step
from hcq.ir.show import show_graph
from hcq.ir.verify import VerifyError, verify
from hcq.tools import replay_compile
from hcq.tools.trace import disasm
from hcq.trace.file import Code, Trace

MAX_REWRITES = 200  # of a pass, that are kept; the rest are counted
MAX_TEXT = 300_000  # characters of one text
MAX_LINE = 600  # characters of one side of a rewrite
MAX_LINES = 24  # of what a side of a rewrite uses more than once
SHORT = 12  # characters that are written again rather than named
MAX_DEPTH = 12  # of an expression; what is deeper is "…"
MAX_GRAPH = 4_000_000  # characters of a kernel's graph that is compiled again
MAX_SHARED = 3_000  # nodes of a side that are looked at for what both sides share
MAX_INSTRUCTIONS = 20_000
_SAME, _END = "\x01", "\x02"  # around what both sides hold, while a line is made
_OWN_ARG = frozenset({Op.CONST, Op.RANGE, Op.PARAM, Op.CAST})
_WITHOUT_MARK = frozenset({Op.CONST, Op.RANGE, Op.PARAM})
Json = dict[str, Any]
Parts = list[tuple[str, bool]]  # texts, and whether the other side holds them, too


def listing(trace: Trace) -> Json:
    """The kernels of a trace, and whether each carries the graph that it was compiled from."""
    return {
        "enabled": True,
        "kernels": [
            {
                "number": number,
                "name": code.name,
                "device": code.device.key,
                "arch": code.device.arch,
                "has_graph": isinstance(code.facts.get("graph"), str),
            }
            for number, code in enumerate(trace.code)
        ],
    }


def answer(trace: Trace, query: Mapping[str, Sequence[str]]) -> Json:
    """What the page asks for: the list of kernels, or the way of `number`.

    Raises  UsageError for what is no kernel's number, and for kernels without a graph or that cannot be compiled here
    """
    given = next(iter(query.get("number", ())), "")
    if not given:
        return listing(trace)
    if not (given.isascii() and given.isdecimal() and len(given) < 16 and int(given) < len(trace.code)):
        raise UsageError(f"kernel {given[:40]!r}: the trace holds {len(trace.code)}, from 0 on.")
    return way_of_code(trace.code[int(given)])


def way_of_code(code: Code) -> Json:
    """The way of a kernel of a trace, its assembly and how it compares with what the trace holds."""
    text = code.facts.get("graph")
    if not isinstance(text, str):
        raise UsageError(
            f"{code.name}: the trace does not hold its graph; kernels of the tensor layer carry theirs."
        )
    if len(text) > MAX_GRAPH:
        raise UsageError(f"{code.name}: its graph is {len(text)} characters; up to {MAX_GRAPH} are compiled.")
    try:
        sink = graph_text.read(text)
        verify(sink, "tensor")
        if sink.op is not Op.SINK or any(store.op is not Op.STORE for store in sink.src):
            raise ValueError(f"its graph ends in {sink.op.name}, not in the stores of a kernel")
        target = replay_compile.target_of(code, None)
    except (ValueError, VerifyError, RuntimeError) as problem:
        raise UsageError(f"{code.name}: {str(problem).splitlines()[0]}") from None
    found = way(sink, target)
    before = replay_compile.schedule_of(str(code.facts.get("source", "")))
    found["schedule_before"] = "" if before == "(plain loops)" else before
    image = found.pop("image")
    found["assembly"] = _assembly(dataclasses.replace(code, image=image)) if image else {"lines": []}
    found["is_same_object"] = image == code.image
    return {"name": code.name, "device": code.device.key, **found}


def way(sink: Node, target: Target) -> Json:
    """Compile a kernel and tell how. Where a station refuses, `problem` says why, and what came before is there."""
    watch = _Collector(sink)
    problem = ""
    try:
        build(sink, target, watch=watch)
    except Exception as refused:  # a stranger's graph may break what the compiler takes for granted
        problem = f"{type(refused).__name__}: {str(refused)[:2000]}"
    return {
        "target": f"{target.name} {target.arch}",
        "problem": problem,
        "begin": _graph(sink),
        "stations": watch.stations,
        "loops": watch.loops,
        "program": watch.program,
        "instructions": watch.instructions,
        "rendered": watch.rendered,
        "image": watch.image,
    }


class _Rewrites(Notes):
    """Notes that keep the first rewrites as texts."""

    keeps = True

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Json] = []
        self.identical: dict[tuple[str, str, str], Json] = {}

    def __call__(self, rule: str, before: Node, after: Node) -> None:
        self.counts[rule] += 1
        self.changed(rule, before, after)

    def changed(self, rule: str, before: Node, after: Node, at: Sequence[Node] = ()) -> None:
        """Keep one rewrite; the same one again is counted."""
        if len(self.kept) >= MAX_REWRITES or before is after:
            return
        old, new = both_sides(before, after)
        if at:
            old.append((f"  at ({', '.join(show_index(place) for place in at)})"[:MAX_LINE], True))
        key = (rule, _plain(old), _plain(new))
        if key in self.identical:
            self.identical[key]["times"] += 1
            return
        self.identical[key] = {"rule": rule, "before": old, "after": new, "times": 1}
        self.kept.append(self.identical[key])


class _Collector(Watch):
    """Keeps what comes out of every station, as data for the page."""

    def __init__(self, sink: Node) -> None:
        self.stations: list[Json] = []
        self.loops: Json | None = None
        self.program = self.rendered = ""
        self.instructions = 0
        self.image = b""
        self._graph = sink
        self._notes = _Rewrites()

    def notes(self) -> Notes:
        self._notes = _Rewrites()
        return self._notes

    def made(self, station: str, what: object, seconds: float) -> None:
        row: Json = {"name": station, "ns": int(1e9 * seconds), "why": WHY.get(station, "")}
        self.stations.append(row)
        if isinstance(what, Node):
            row.update(self._pass(station, what))
        elif isinstance(what, LoopNest):
            self.loops = loops_of(what)
        elif isinstance(what, Program):
            self.instructions = len(what.instructions)
            self.program = (
                _cut(str(what))
                if self.instructions <= MAX_INSTRUCTIONS
                else f"{self.instructions} instructions: too many to be listed"
            )
        elif isinstance(what, str):
            self.rendered = _cut(what)
        elif isinstance(what, bytes):
            self.image = what
            row["size_bytes"] = len(what)

    def _pass(self, name: str, graph: Node) -> Json:
        notes = self._notes
        step = next(one for one in PASSES if one.name == name)
        has_changed = graph is not self._graph
        self._graph = graph
        applied = sum(notes.counts.values())
        rules = {}
        if has_changed or applied:  # otherwise a pass that nobody needed is not even imported
            rules = {rule.name: rule for rule in step.rules}
        shown = sum(one["times"] for one in notes.kept)
        return {
            "why": getattr(step, "why", "") if has_changed or applied else "",
            "nodes": len(toposort((graph,))),
            "applied": applied,
            "rules": [[rule, count, _rule(rules.get(rule))] for rule, count in notes.counts.most_common()],
            "rewrites": notes.kept,
            "not_shown": applied - shown,
            "graph": _graph(graph) if has_changed else "",
        }


WHY = {
    "choose": "which ranges become groups, threads, vectors and straight code",
    "linearize": "instructions, each in the outermost loop that knows its sources",
    "render": "the language that the assembler of this target takes",
    "assemble": "the object that the device loads",
    "write": "a routine's loops are written down; no pass and no heuristic touches them",
}


def loops_of(nest: LoopNest) -> Json:
    """The choices of a schedule by their reasons, and the loops that they make."""
    rows: list[Json] = []
    reasons = [*nest.reasons, (len(nest.choices), "")]
    if reasons[0][0]:
        rows.append({"why": "", "choices": nest.choices[: reasons[0][0]]})
    for (at, said), (until, _) in zip(reasons, reasons[1:]):
        if rows and rows[-1]["why"] == said:
            rows[-1]["choices"] += nest.choices[at:until]
        else:
            rows.append({"why": said, "choices": nest.choices[at:until]})
    return {
        "decisions": rows,
        "choice": nest.choice,
        "loops": _cut("\n".join(str(nest).splitlines()[1:])),
        "ranges": [
            {"name": axis.name, "size": axis.size, "is_reduce": axis.is_reduce, "is_ordered": axis.is_ordered}
            for axis in nest.axes
        ],
    }


# ------------------------------------------------------------ a rewrite as two lines


def both_sides(before: Node, after: Node) -> tuple[Parts, Parts]:
    """Both sides of a rewrite as texts, cut where one changes and the next does not.

    >>> from hcq.ir.node import index
    >>> from hcq.ir.dtype import dtypes
    >>> place = Node(Op.RANGE, dtypes.index, (index(9),), 0)
    >>> both_sides(place * 4 + 0, place * 4)
    ([('r0*4', True), (' + 0', False)], [('r0*4', True)])
    """
    old, new = _reachable(before), _reachable(after)
    shared = old & new
    return _parts(before, shared), _parts(after, shared)


def _reachable(root: Node) -> set[Node]:
    found: set[Node] = set()
    level = [root]
    while level and len(found) < MAX_SHARED:
        found.update(level)
        level = [source for source in dict.fromkeys(s for n in level for s in n.src) if source not in found]
    return found


def _parts(root: Node, shared: set[Node]) -> Parts:
    """A side as an expression. What it uses more than once has a line of its own above, `t1 = ...`."""
    changed = _changed(root, shared)
    uses = Counter(source for node in changed if node.op is not Op.RANGE for source in node.src)
    texts: dict[Node, tuple[str, float]] = {}
    lines: list[str] = []
    for node in [*_inside(changed, shared), *changed]:
        if node in shared:
            text, binds = _same(node)
        else:
            sources = () if node.op is Op.RANGE else node.src
            text, binds = _written(node, [texts.get(source, ("…", TIGHTEST)) for source in sources])
        if node is not root and uses[node] > 1 and len(text) > SHORT and node.op not in _WITHOUT_MARK:
            lines.append(f"t{len(lines) + 1} = {text}")
            text, binds = f"t{len(lines)}", TIGHTEST
        texts[node] = text, binds
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"… {len(lines) - MAX_LINES} more lines"]
    return [part for text in [*lines, texts[root][0]] for part in (*_cut_line(text), ("\n", True))][:-1]


def _changed(root: Node, shared: set[Node]) -> list[Node]:
    """The nodes from a root down to what is shared, sources first; the root alone where all of it is."""
    if root in shared:
        return [root]
    found: list[Node] = []
    seen = {root}
    stack: list[tuple[Node, int]] = [(root, 0)]
    while stack:
        node, at = stack.pop()
        sources = () if node.op is Op.RANGE else node.src
        if at < len(sources):
            stack.append((node, at + 1))
            source = sources[at]
            if source not in seen and source not in shared and len(seen) < MAX_SHARED:
                seen.add(source)
                stack.append((source, 0))
        else:
            found.append(node)
    return found


def _inside(changed: Sequence[Node], shared: set[Node]) -> list[Node]:
    """The shared nodes that changed ones use."""
    sources = [s for node in changed if node not in shared and node.op is not Op.RANGE for s in node.src]
    return [source for source in dict.fromkeys(sources) if source in shared]


def _same(node: Node) -> tuple[str, float]:
    """A part that both sides hold, marked."""
    text, binds = _line(node, {}, 0)
    # what begins with a sign is taken apart by a sum around it, so it keeps its first character
    is_marked = node.op not in _WITHOUT_MARK and not text.startswith("-")
    return (f"{_SAME}{text}{_END}" if is_marked else text), binds


def _line(node: Node, known: dict[Node, tuple[str, float]], depth: int) -> tuple[str, float]:
    if node not in known:
        sources = () if node.op is Op.RANGE else node.src
        if depth > MAX_DEPTH:
            return "…", TIGHTEST
        known[node] = _written(node, [_line(source, known, depth + 1) for source in sources])
    return known[node]


def _written(node: Node, sources: Sequence[tuple[str, float]]) -> tuple[str, float]:
    """One operation, with its argument where infix leaves that out; "…" where it would be too long to be read."""
    text, binds = infix(node.op, node.dtype, node.arg, sources)
    name = node.op.name.lower()
    if node.arg is not None and node.op not in _OWN_ARG and text.startswith(f"{name}("):
        arg = node.arg.name.lower() if isinstance(node.arg, Op) else show_arg(node.arg)
        text = f"{name}[{arg[:80]}]{text[len(name) :]}"
    return (text, binds) if len(text) <= 4 * MAX_LINE else ("…", TIGHTEST)


def _cut_line(line: str) -> Parts:
    parts: Parts = []
    size = 0
    for piece in re.split(f"({_SAME}[^{_END}]*{_END})", line):
        text, is_same = piece.strip(_SAME + _END), piece[:1] == _SAME
        if text and size + len(text) > MAX_LINE:
            return [*parts, (text[: MAX_LINE - size] + "…", is_same)]
        if text:
            parts.append((text, is_same))
        size += len(text)
    return parts


def _plain(parts: Parts) -> str:
    return "".join(text for text, _ in parts)


# ------------------------------------------------------------ texts


def _rule(rule: Rule | Step | None) -> str:
    return "" if rule is None else _cut(str(rule))[:MAX_LINE]


def _graph(root: Node) -> str:
    try:
        return _cut(show_graph(root))
    except (ValueError, AssertionError, RecursionError) as problem:
        return f"cannot be listed: {problem}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}\n… {len(text) - MAX_TEXT} more characters"


def _assembly(code: Code) -> Json:
    try:
        lines = disasm.disassemble(code)
    except HcqError as error:
        return {"lines": [], "unread": str(error)}
    return {
        "lines": [[x.offset, x.raw.hex(" "), x.text, x.label, x.target, x.source] for x in lines[:50_000]]
    }
