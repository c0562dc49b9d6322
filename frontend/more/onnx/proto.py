"""ONNX's messages: the fields that a model is made of, read into plain records.

In       the bytes of a message
Out      records: Model, Graph, Node, Attribute, TensorRecord, ValueInfo, Function
Next     wire.py (fields out of bytes), weights.py (a TensorRecord's numbers), graph.py (what is made of all that)
Source   onnx.proto3 (field numbers)

Numbers of tensors are not read here: a TensorRecord keeps views of the file. A file may hold no more than
MAX_RECORDS nodes, attributes, tensors and names together, and graphs within graphs no deeper than MAX_DEPTH, so
that a hostile one cannot make more of its bytes than they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hcq.frontend.more.onnx.wire import Damaged, fields, float32, signed, text, varint, view

MAX_RECORDS = 500_000
MAX_DEPTH = 32
MAX_NUMBERS = 1_000_000  # in the lists of attributes, all together

# AttributeProto.AttributeType
FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS, TENSORS, GRAPHS = range(1, 11)
SPARSE_TENSOR, SPARSE_TENSORS, TYPE_PROTO, TYPE_PROTOS = range(11, 15)


@dataclass(slots=True)
class TensorRecord:
    """A tensor of a file: facts, and views of its numbers as they stand there."""

    name: str = ""
    dims: tuple[int, ...] = ()
    kind: int = 0  # TensorProto.DataType
    raw: memoryview | None = None
    numbers: dict[int, list[Any]] = field(default_factory=dict)  # field number -> what stands there
    external: dict[str, str] = field(default_factory=dict)
    is_external: bool = False


@dataclass(slots=True)
class ValueInfo:
    """What is said of a value: a tensor's dtype and shape, and around it sequence or optional.

    shape  None: not said. A size is an int, or a name, or None.
    """

    name: str
    kind: int = 0
    shape: tuple[int | str | None, ...] | None = None
    around: tuple[str, ...] = ()  # from the outside: "sequence", "optional", "map", "sparse"


@dataclass(slots=True)
class Attribute:
    """A named argument of a node. value: float, int, bytes, TensorRecord, Graph, or a list of these."""

    name: str
    kind: int
    value: Any
    refers_to: str = ""  # in a function: the attribute of the call that it takes its value from


@dataclass(slots=True)
class Node:
    """A call of an operator."""

    op: str = ""
    domain: str = ""
    name: str = ""
    overload: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: dict[str, Attribute] = field(default_factory=dict)


@dataclass(slots=True)
class Graph:
    """Nodes in the order in which they can run."""

    name: str = ""
    nodes: list[Node] = field(default_factory=list)
    inputs: list[ValueInfo] = field(default_factory=list)
    outputs: list[ValueInfo] = field(default_factory=list)
    initialisers: list[TensorRecord] = field(default_factory=list)
    values: list[ValueInfo] = field(default_factory=list)
    sparse: int = 0  # how many sparse initialisers there are


@dataclass(slots=True)
class Function:
    """An operator that the file itself defines."""

    name: str = ""
    domain: str = ""
    overload: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    defaults: dict[str, Attribute] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    opsets: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Model:
    """A file."""

    ir_version: int = 0
    opsets: dict[str, int] = field(default_factory=dict)
    producer: str = ""
    graph: Graph | None = None
    functions: list[Function] = field(default_factory=list)


class Reader:
    """Reads one model, and counts what it has read. Raises Damaged."""

    def __init__(self) -> None:
        self.records = 0
        self.numbers = 0

    def _count(self) -> None:
        self.records += 1
        if self.records > MAX_RECORDS:
            raise Damaged(f"it has more than {MAX_RECORDS:,} nodes, attributes, tensors and names")

    def _text(self, value: Any) -> str:
        self._count()
        return text(value)

    def model(self, data: memoryview) -> Model:
        """ModelProto."""
        model = Model()
        for number, value in fields(data):
            if number == 1:
                model.ir_version = signed(value)
            elif number == 2:
                model.producer = self._text(value)
            elif number == 7:
                model.graph = self._graph(view(value), 0)
            elif number == 8:
                self._opset(view(value), model.opsets)
            elif number == 25:
                model.functions.append(self._function(view(value)))
        return model

    def _opset(self, data: memoryview, opsets: dict[str, int]) -> None:
        self._count()
        domain, version = "", 0
        for number, value in fields(data):
            if number == 1:
                domain = self._text(value)
            elif number == 2:
                version = signed(value)
        opsets["" if domain == "ai.onnx" else domain] = version

    def _graph(self, data: memoryview, depth: int) -> Graph:
        self._count()
        if depth > MAX_DEPTH:
            raise Damaged(f"graphs stand within graphs more than {MAX_DEPTH} deep")
        graph = Graph()
        for number, value in fields(data):
            if number == 1:
                graph.nodes.append(self._node(view(value), depth))
            elif number == 2:
                graph.name = self._text(value)
            elif number == 5:
                graph.initialisers.append(self.tensor(view(value)))
            elif number == 11:
                graph.inputs.append(self._value_info(view(value)))
            elif number == 12:
                graph.outputs.append(self._value_info(view(value)))
            elif number == 13:
                graph.values.append(self._value_info(view(value)))
            elif number == 15:
                graph.sparse += 1
        return graph

    def _node(self, data: memoryview, depth: int) -> Node:
        self._count()
        node = Node()
        for number, value in fields(data):
            if number == 1:
                node.inputs.append(self._text(value))
            elif number == 2:
                node.outputs.append(self._text(value))
            elif number == 3:
                node.name = self._text(value)
            elif number == 4:
                node.op = self._text(value)
            elif number == 5:
                attribute = self._attribute(view(value), depth)
                node.attributes[attribute.name] = attribute
            elif number == 7:
                node.domain = self._text(value)
            elif number == 8:
                node.overload = self._text(value)
        if node.domain == "ai.onnx":
            node.domain = ""
        return node

    def _attribute(self, data: memoryview, depth: int) -> Attribute:
        self._count()
        attribute = Attribute("", 0, None)
        single: Any = None
        lists: dict[int, list[Any]] = {}
        for number, value in fields(data):
            if number == 1:
                attribute.name = self._text(value)
            elif number == 20:
                attribute.kind = signed(value)
            elif number == 21:
                attribute.refers_to = self._text(value)
            elif number == 2:
                single = (FLOAT, float32(value))
            elif number == 3:
                single = (INT, signed(value))
            elif number == 4:
                self._count()
                single = (STRING, bytes(view(value)))
            elif number == 5:
                single = (TENSOR, self.tensor(view(value)))
            elif number == 6:
                single = (GRAPH, self._graph(view(value), depth + 1))
            elif number == 14:
                info = ValueInfo("")
                self._type(view(value), info, 0)
                single = (TYPE_PROTO, info)
            elif number == 7:
                raw = view(value)
                if len(raw) % 4:
                    raise Damaged(f"{len(raw)} bytes are no numbers of 4 bytes")
                self._more(len(raw) // 4)
                lists.setdefault(FLOATS, []).extend(float32(raw[at : at + 4]) for at in range(0, len(raw), 4))
            elif number == 8:
                self._ints(value, lists.setdefault(INTS, []))
            elif number == 9:
                self._count()
                lists.setdefault(STRINGS, []).append(bytes(view(value)))
            elif number == 10:
                lists.setdefault(TENSORS, []).append(self.tensor(view(value)))
            elif number in (22, 23):
                single = (SPARSE_TENSOR, None)
        if not attribute.kind:  # files of the first version do not say it
            attribute.kind = single[0] if single else next(iter(lists), 0)
        if attribute.kind in (FLOATS, INTS, STRINGS, TENSORS):
            attribute.value = lists.get(attribute.kind, [])
        elif single is not None and single[0] == attribute.kind:
            attribute.value = single[1]
        elif not attribute.refers_to:  # zero is not written
            empty: dict[int, Any] = {FLOAT: 0.0, INT: 0, STRING: b""}
            attribute.value = empty.get(attribute.kind)
        return attribute

    def _more(self, count: int) -> None:
        self.numbers += count
        if self.numbers > MAX_NUMBERS:
            raise Damaged(f"the lists of attributes have more than {MAX_NUMBERS:,} numbers")

    def _ints(self, value: Any, into: list[int]) -> None:
        if isinstance(value, int):
            self._more(1)
            into.append(signed(value))
            return
        at = 0
        while at < len(value):
            number, at = varint(value, at)
            self._more(1)
            into.append(signed(number))

    def tensor(self, data: memoryview) -> TensorRecord:
        """TensorProto."""
        self._count()
        record = TensorRecord()
        dims: list[int] = []
        for number, value in fields(data):
            if number == 1:
                self._ints(value, dims)
            elif number == 2:
                record.kind = signed(value)
            elif number in (4, 5, 7, 10, 11):
                self._count()
                record.numbers.setdefault(number, []).append(value)
            elif number == 8:
                record.name = self._text(value)
            elif number == 9:
                record.raw = view(value)
            elif number == 13:
                key, word = self._pair(view(value))
                record.external[key] = word
            elif number == 14:
                record.is_external = signed(value) == 1
        if any(size < 0 for size in dims) or len(dims) > 64:
            raise Damaged(f"tensor {record.name!r} has the shape {dims[:8]}")
        record.dims = tuple(dims)
        return record

    def _pair(self, data: memoryview) -> tuple[str, str]:
        found = {1: "", 2: ""}
        for number, value in fields(data):
            found[number] = self._text(value)
        return found[1], found[2]

    def _value_info(self, data: memoryview) -> ValueInfo:
        self._count()
        info = ValueInfo("")
        for number, value in fields(data):
            if number == 1:
                info.name = self._text(value)
            elif number == 2:
                self._type(view(value), info, 0)
        return info

    def _type(self, data: memoryview, info: ValueInfo, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise Damaged(f"a type is more than {MAX_DEPTH} deep")
        words = {4: "sequence", 9: "optional", 5: "map", 8: "sparse"}
        for number, value in fields(data):
            if number in (1, 8):
                self._tensor_type(view(value), info)
            if number in words:
                info.around = (*info.around, words[number])
            if number in (4, 9):
                for inner, type_ in fields(view(value)):
                    if inner == 1:
                        self._type(view(type_), info, depth + 1)

    def _tensor_type(self, data: memoryview, info: ValueInfo) -> None:
        for number, value in fields(data):
            if number == 1:
                info.kind = signed(value)
            elif number == 2:
                sizes: list[int | str | None] = []
                for inner, dim in fields(view(value)):
                    if inner == 1:
                        self._count()
                        size: int | str | None = None
                        for place, word in fields(view(dim)):
                            size = signed(word) if place == 1 else text(word) if place == 2 else size
                        sizes.append(size if size != "" else None)
                info.shape = tuple(sizes)

    def _function(self, data: memoryview) -> Function:
        self._count()
        function = Function()
        for number, value in fields(data):
            if number == 1:
                function.name = self._text(value)
            elif number == 4:
                function.inputs.append(self._text(value))
            elif number == 5:
                function.outputs.append(self._text(value))
            elif number == 7:
                function.nodes.append(self._node(view(value), 0))
            elif number == 9:
                self._opset(view(value), function.opsets)
            elif number == 10:
                function.domain = self._text(value)
            elif number == 11:
                attribute = self._attribute(view(value), 0)
                function.defaults[attribute.name] = attribute
            elif number == 13:
                function.overload = self._text(value)
        if function.domain == "ai.onnx":
            function.domain = ""
        return function
