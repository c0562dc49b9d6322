"""Promote floats: values of 16 bits are computed in float32; values of 8 bits are bits, which are converted.

In       a kernel (kernel stage), the narrow formats that the target converts by itself
Out      the same kernel, in which arithmetic has no float narrower than float32
Next     narrow_floats.py (the conversions), decompose.py (the pass after this one: operations)

float16 and bfloat16 are computed in float32 and rounded after each op. A value that goes on to another op is not
rounded and widened again where that changes nothing: NEG, MAX, MIN, TRUNC and WHERE of narrow values are narrow values.
Sums and products over ranges are kept in float32 and rounded once. The 8-bit formats are bits in memory, converted by
integer operations; after this pass only LOAD, STORE and BITCAST mention them, and CAST where a target widens them.
"""

from __future__ import annotations

from hcq.compiler.passes.narrow_floats import NARROW, bits_dtype, narrow, to_odd_float32, widen
from hcq.compiler.passes.transcendental import bitcast
from hcq.compiler.target import Target
from hcq.ir.dtype import DType, dtypes, to_bits, truncate
from hcq.ir.elementwise.table import KEEPS_FORMAT
from hcq.ir.node import Node, const, toposort
from hcq.ir.op import ARITHMETIC, Op
from hcq.ir.rewrite import Notes, Pass, Step


class StorageOnly(ValueError):
    """Arithmetic on a format that is kept, moved and cast, and not computed with."""


class _Promotion:
    """One run: `done` is what became of each node, `wide` the float32 of the same value for nodes of narrow formats."""

    def __init__(self, casts: frozenset[DType], widens: frozenset[DType], notes: Notes):
        self.casts = casts
        self.widens = casts | widens
        self.counts = notes.counts
        self.notes = notes
        self.done: dict[Node, Node] = {}
        self.wide: dict[Node, Node] = {}

    def run(self, order: list[Node]) -> Node:
        for node in order:
            counted = dict(self.counts) if self.notes.keeps else None
            if node.dtype in NARROW:
                self.narrow_result(node)
            elif node.op is not Op.STORE and any(source.dtype in NARROW for source in node.src):
                self.done[node] = self.wide_result(node)
            else:
                src = tuple([self.done[source] for source in node.src])
                self.done[node] = node if src == node.src else node.replace(src=src)
            if counted is not None:
                for rule in [rule for rule, count in self.counts.items() if count != counted.get(rule)]:
                    self.notes.changed(rule, node, self.done[node])
        return self.done[order[-1]]

    def wide_of(self, node: Node) -> Node:
        """A source of the graph as it is computed with: as float32 if it is narrow."""
        return self.wide[node] if node.dtype in NARROW else self.done[node]

    def wide_result(self, node: Node) -> Node:
        """A node of an ordinary dtype that reads narrow values: comparisons, CAST, BITCAST, LOAD."""
        if node.op is Op.CAST:
            self.counts["cast"] += 1
            return self.wide[node.src[0]].cast(node.dtype)
        if node.op is Op.BITCAST:
            self.counts["move"] += 1
            return bitcast(self.done[node.src[0]], node.dtype)
        if node.op not in ARITHMETIC:
            self.counts["move"] += 1
            return node.replace(src=tuple([self.done[source] for source in node.src]))
        self.refuse_storage_only(node, node.src[0].dtype)
        self.counts["compute"] += 1
        return node.replace(src=tuple([self.wide_of(source) for source in node.src]))

    def narrow_result(self, node: Node) -> None:
        """Fill `done` and `wide` for a node of a narrow format."""
        op, dtype = node.op, node.dtype
        if op is Op.CONST:
            self.counts["number"] += 1
            bits = const(to_bits(node.arg, dtype), bits_dtype(dtype))
            self.done[node] = node if dtype in self.casts else bitcast(bits, dtype)
            self.wide[node] = const(truncate(node.arg, dtype), dtypes.float32)
        elif op is Op.CAST:
            self.counts["cast"] += 1
            self.cast_to_narrow(node)
        elif op is Op.WHERE:
            self.counts["select"] += 1
            condition, *sides = node.src
            if_true, if_false = (bitcast(self.done[side], bits_dtype(dtype)) for side in sides)
            self.done[node] = bitcast(self.done[condition].where(if_true, if_false), dtype)
            self.wide[node] = self.done[condition].where(self.wide[sides[0]], self.wide[sides[1]])
        elif op is Op.BITCAST or (op not in ARITHMETIC and op is not Op.REDUCE):
            self.counts["move"] += 1
            src = tuple([self.done[source] for source in node.src])
            self.done[node] = bitcast(src[0], dtype) if op is Op.BITCAST else node.replace(src=src)
            self.wide[node] = self.widened(self.done[node])
        else:
            self.refuse_storage_only(node, dtype)
            self.counts["compute"] += 1
            src = tuple([self.wide_of(source) for source in node.src])
            value = Node(op, dtypes.float32, src, node.arg)
            self.done[node] = self.rounded(value, dtype)
            exact = op in KEEPS_FORMAT or (op is Op.REDUCE and node.arg in KEEPS_FORMAT)
            self.wide[node] = value if exact else self.widened(self.done[node])

    def cast_to_narrow(self, node: Node) -> None:
        dtype, source = node.dtype, node.src[0].dtype
        if source in NARROW:
            value, exact = self.wide[node.src[0]], source.is_storage_only and not dtype.is_storage_only
        else:
            value, exact = self.done[node.src[0]], source.bits <= 8  # 8 bits and bool fit every 16-bit format
            value = to_odd_float32(value) if source is dtypes.float64 else value.cast(dtypes.float32)
        self.done[node] = self.rounded(value, dtype)
        self.wide[node] = value if exact and not dtype.is_storage_only else self.widened(self.done[node])

    def rounded(self, value: Node, dtype: DType) -> Node:
        """A float32 rounded to a narrow format."""
        return value.cast(dtype) if dtype in self.casts else bitcast(narrow(value, dtype), dtype)

    def widened(self, value: Node) -> Node:
        """The float32 of a narrow value."""
        dtype = value.dtype
        return (
            value.cast(dtypes.float32)
            if dtype in self.widens
            else widen(bitcast(value, bits_dtype(dtype)), dtype)
        )

    def refuse_storage_only(self, node: Node, dtype: DType) -> None:
        if dtype.is_storage_only:
            raise StorageOnly(
                f"[{node.op.name.lower()}] {dtype.name} is for storage only: cast to float32, compute, and cast back"
            )


def _compute_in_float32(sink: Node, target: Target, notes: Notes) -> Node:
    return _Promotion(target.casts, target.widens, notes).run(toposort((sink,)))


promote_floats = Pass(
    "promote-floats",
    "floats narrower than float32 are computed in float32, rounded after each operation",
    [
        Step("compute", "op(a, b) -> round(op(widen(a), widen(b))); comparisons need no rounding"),
        Step("cast", "from and to what is no narrow float, by way of float32; from float64 in one rounding"),
        Step("select", "c ? a : b, of the bits"),
        Step("move", "loads, stores and casts of bits keep the format"),
        Step("number", "a number of the format; of 8 bits: its bits"),
    ],
    _compute_in_float32,
)
