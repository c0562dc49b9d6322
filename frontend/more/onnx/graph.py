"""Graphs: a model's nodes as steps to do, with its functions put in and everything checked that can be before a run.

In       a Model as it stands in the file
Out      a Block: constants, and steps in order, each with the function that computes it
Next     proto.py (the file's records), lookup.py (operators), evaluate.py (who runs a block)

All operators that are not known are named in one error, with their nodes. A function of the file is replaced by its
nodes, under names of their own; functions that call themselves, and those that would become more than MAX_STEPS,
are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx import lookup, proto, weights
from hcq.frontend.more.onnx.proto import Attribute, ValueInfo
from hcq.frontend.more.onnx.table import NEWEST, Implementation
from hcq.frontend.more.onnx.values import Value
from hcq.frontend.more.onnx.wire import Damaged

MAX_STEPS = 100_000
MAX_CALLS = 32  # functions that call functions


@dataclass(slots=True)
class Step:
    """One operator to compute. inputs, outputs: names, "" for what is left out."""

    op: str
    domain: str
    version: int
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    implementation: Implementation

    def __str__(self) -> str:
        return f"{self.op} {self.name!r}" if self.name else f"{self.op} -> {', '.join(self.outputs)}"


@dataclass(slots=True)
class Block:
    """Steps with names for what goes in and comes out; of an If or a Loop, too."""

    name: str
    inputs: list[ValueInfo]
    outputs: list[ValueInfo]
    constants: dict[str, Value] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    shapes: dict[str, ValueInfo] = field(default_factory=dict)  # what the file says of values inside


@dataclass(frozen=True)
class Scope:
    """Where nodes stand: in the model, or in a function that was called."""

    opsets: dict[str, int]
    names: dict[str, str]
    prefix: str = ""
    given: dict[str, Attribute] | None = None  # the attributes of the call
    calls: tuple[tuple[str, str], ...] = ()

    def __call__(self, name: str) -> str:
        return self.names.get(name, self.prefix + name) if name else ""


class Builder:
    """Makes the block of a model. Raises Damaged, and UsageError for operators that are not known."""

    def __init__(self, model: proto.Model, folder: Path | None):
        self.model, self.folder = model, folder
        self.functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self.unknown: list[str] = []
        self.steps = 0
        self.called = 0

    def build(self) -> Block:
        """The model's graph."""
        if self.model.graph is None:
            raise Damaged("it has no graph")
        block = self.block(self.model.graph, Scope(self.model.opsets, {}), set())
        if self.unknown:
            shown = self.unknown[:40]
            if len(self.unknown) > len(shown):
                shown.append(f"{len(self.unknown) - len(shown)} more")
            raise UsageError(
                f"[OnnxModel] {len(self.unknown)} nodes cannot be computed here: {'; '.join(shown)}. "
                "docs/onnx.md lists the operators that can be; export the model without these."
            )
        return block

    def block(self, graph: proto.Graph, scope: Scope, around: set[str]) -> Block:
        """A graph. around: the names that it can use of the graphs around it."""
        if graph.sparse:
            raise Damaged(f"graph {graph.name!r} has sparse initialisers, which are not read here")
        renamed = [_renamed(info, scope) for info in (*graph.inputs, *graph.outputs, *graph.values)]
        inputs, outputs = renamed[: len(graph.inputs)], renamed[len(graph.inputs) :][: len(graph.outputs)]
        block = Block(graph.name, inputs, outputs)
        block.shapes = {info.name: info for info in renamed}
        known = around | {info.name for info in inputs}
        for record in graph.initialisers:
            name = scope(record.name)
            block.constants[name] = self.constant(record)
            known.add(name)
        self.add(block, graph.nodes, scope, known)
        for info in outputs:
            if info.name not in known:
                raise Damaged(f"output {info.name!r} of graph {graph.name!r} is made by no node")
        return block

    def constant(self, record: proto.TensorRecord) -> Value:
        """A tensor of the file."""
        dtype = weights.check(record)

        def load() -> Any:
            try:
                return weights.read(record, self.folder).array
            except Damaged as why:
                raise UsageError(
                    f"[OnnxModel] {why}. The file is damaged, or its data is not beside it."
                ) from None

        return Value(dtype, record.dims, load=load)

    def add(self, block: Block, nodes: list[proto.Node], scope: Scope, known: set[str]) -> None:
        """Append nodes as steps; those of functions are put in their place."""
        for node in nodes:
            inputs = [scope(name) for name in node.inputs]
            for name in inputs:
                if name and name not in known:
                    raise Damaged(f"{_words(node)} uses {name!r}, which nothing before it makes")
            function = self.functions.get((node.domain, node.op, node.overload))
            if function is not None:
                self.inline(block, function, node, scope, known)
            else:
                block.steps.append(self.step(node, scope, known, inputs))
                self.steps += 1
                if self.steps > MAX_STEPS:
                    raise Damaged(f"its functions become more than {MAX_STEPS:,} nodes")
            for name in node.outputs:
                if name:
                    made = scope(name)
                    if made in known and function is None:
                        raise Damaged(f"{_words(node)} makes {made!r}, which is there already")
                    known.add(made)

    def step(self, node: proto.Node, scope: Scope, known: set[str], inputs: list[str]) -> Step:
        """One node."""
        version = scope.opsets.get(node.domain, self.model.opsets.get(node.domain, 0))
        newest = NEWEST.get(node.domain)
        found = None
        if newest is None:
            why = f"operators of {node.domain!r} are not known"
        elif not 0 < version <= newest:
            why = f"of operator set {version}; known are 1 to {newest}"
        else:
            found = lookup.find(node.domain, node.op, version)
            why = lookup.why_not(node.domain, node.op, version) if found is None else ""
        attributes: dict[str, Any] = {}
        for name, attribute in node.attributes.items():
            if scope.given is not None and attribute.refers_to:
                given = scope.given.get(attribute.refers_to)
                if given is None:  # left out in the call, too
                    continue
                attribute = given
            attributes[name] = self.value(attribute, scope, known, node)
        if found is not None:
            why = _misfit(found, node, attributes)
        if why or found is None:
            self.unknown.append(f"{_words(node)} ({why})")
            found = _NOTHING
        outputs = tuple(scope(name) for name in node.outputs)
        name = scope.prefix + node.name
        return Step(node.op, node.domain, version, name, tuple(inputs), outputs, attributes, found)

    def value(self, attribute: Attribute, scope: Scope, known: set[str], node: proto.Node) -> Any:
        """An attribute as Python has it: strings as str, tensors as Value, graphs as Block."""
        value, kind = attribute.value, attribute.kind
        if kind == proto.STRING and value is not None:
            return value.decode("utf-8", "replace")
        if kind == proto.STRINGS:
            return [word.decode("utf-8", "replace") for word in value]
        if kind == proto.TENSOR and value is not None:
            if value.kind not in weights.DTYPES:
                self.unknown.append(f"{_words(node)} (a tensor of {weights.kind_name(value.kind)})")
                return None
            return self.constant(value)
        if kind == proto.TENSORS:
            return [self.constant(record) for record in value]
        if kind == proto.GRAPH and value is not None:
            return self.block(value, scope, set(known))
        if kind == proto.TYPE_PROTO:
            return value
        if kind in (proto.FLOAT, proto.INT, proto.FLOATS, proto.INTS) and value is not None:
            return value
        raise Damaged(f"{_words(node)}: attribute {attribute.name!r} has no value that is read here")

    def inline(
        self, block: Block, function: proto.Function, node: proto.Node, scope: Scope, known: set[str]
    ) -> None:
        """A function's nodes in the place of a call."""
        key = (function.domain, function.name)
        if key in scope.calls or len(scope.calls) >= MAX_CALLS:
            raise Damaged(
                f"function {function.name!r} calls itself, or {MAX_CALLS} others within one another"
            )
        if len(node.inputs) > len(function.inputs) or len(node.outputs) > len(function.outputs):
            raise Damaged(
                f"{_words(node)} gives the function more than it takes, or takes more than it gives"
            )
        self.called += 1
        if self.called > MAX_STEPS:
            raise Damaged(f"its functions are called more than {MAX_STEPS:,} times")
        prefix = f"{scope.prefix}{node.name or function.name}.{self.called}/"
        names = dict.fromkeys(function.inputs, "")
        names.update(zip(function.inputs, map(scope, node.inputs)))
        straight = []  # outputs that are inputs
        for formal, actual in zip(function.outputs, node.outputs):
            if actual and formal in function.inputs:
                straight.append((names[formal], scope(actual)))
            elif actual:
                names[formal] = scope(actual)
        given = dict(function.defaults)
        for name, attribute in node.attributes.items():
            if attribute.refers_to and scope.given is not None:
                if attribute.refers_to not in scope.given:
                    continue
                attribute = scope.given[attribute.refers_to]
            given[name] = attribute
        inner = Scope(function.opsets or self.model.opsets, names, prefix, given, (*scope.calls, key))
        self.add(block, function.nodes, inner, known)
        for have, want in straight:
            block.steps.append(
                self.step(
                    proto.Node(op="Identity", outputs=[want]), Scope(self.model.opsets, {}), known, [have]
                )
            )
            known.add(want)


def _renamed(info: ValueInfo, scope: Scope) -> ValueInfo:
    return ValueInfo(scope(info.name), info.kind, info.shape, info.around)


def _words(node: proto.Node) -> str:
    domain = f"{node.domain}." if node.domain else ""
    name = node.name or (f"-> {node.outputs[0]}" if node.outputs else "")
    return f"{domain}{node.op} {name!r}"


def _misfit(found: Implementation, node: proto.Node, attributes: dict[str, Any]) -> str:
    """Why a node does not fit the operator's form; "" where it does."""
    for name in attributes:
        if name not in found.attributes:
            return f"its attribute {name!r} is not known"
    for name, is_needed in found.attributes.items():
        if is_needed and name not in attributes:
            return f"its attribute {name!r} is missing"
    if len(node.inputs) < found.needed or (len(node.inputs) > len(found.takes) and not found.many):
        return f"{len(node.inputs)} inputs, and it takes {found.needed} to {len(found.takes)}"
    return ""


_NOTHING = Implementation("", "", 0, lambda: None, "", (), 0, True, frozenset(), {}, False, False)
