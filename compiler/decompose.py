"""Decompose: every operation that a target does not have, said in operations that it has.

In       a kernel (kernel stage), the ops that the target has
Out      a kernel that computes the same with those ops alone
Next     transcendental.py, trigonometry.py (EXP to COS), narrow_floats.py (formats), render/ (who spells what is left)

float16 and bfloat16 are computed in float32 and rounded after each op. A value that goes on to another op is not
rounded and widened again where that changes nothing: NEG, MAX, MIN, TRUNC and WHERE of narrow values are narrow values.
Sums and products over ranges are kept in float32 and rounded once. The 8-bit formats are bits in memory, converted by
integer operations; after this pass only LOAD, STORE and BITCAST mention them.
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.compiler import transcendental, trigonometry
from hcq.compiler.narrow_floats import NARROW, bits_dtype, narrow, to_odd_float32, widen
from hcq.compiler.transcendental import bitcast
from hcq.ir.dtype import DType, dtypes, to_bits, truncate
from hcq.ir.node import Node, binary, const, toposort
from hcq.ir.op import ARITHMETIC, Op

# formats whose conversion from and to float32 is an instruction (or the renderer's affair) on most targets
USUAL_CASTS = frozenset({dtypes.float16, dtypes.bfloat16})


class StorageOnly(ValueError):
    """Arithmetic on a format that is kept, moved and cast, and not computed with."""


def decompose(sink: Node, native: frozenset[Op], casts: frozenset[DType] = USUAL_CASTS) -> Node:
    """The same values without arithmetic that is not in `native`.

    sink     any graph of scalar values; a kernel's SINK as a rule
    native   the arithmetic ops the target has, from 32 bits on; FLOORDIV and MOD of `index` it always has
    casts    the narrow formats it can CAST from and to float32
    Raises   ValueError for an op that the target lacks and that cannot be composed of others
    """
    order = toposort((sink,))
    missing = ARITHMETIC - native
    if not any(node.op in missing or node.dtype in NARROW for node in order):
        return sink
    return _Decomposition(missing, casts).run(order)


def floordiv(node: Node) -> Node:
    """a // b by a float64 division, exact for integers up to 32 bits."""
    a, b = node.src
    if node.dtype.itemsize > 4:
        raise ValueError(
            f"[decompose] this target has no FLOORDIV and {node.dtype.name} does not fit float64, which could do it. "
            "Use 32-bit integers, or give the target a FLOORDIV."
        )
    quotient = binary(Op.DIV, a.cast(dtypes.float64), b.cast(dtypes.float64))
    whole = Node(Op.TRUNC, dtypes.float64, (quotient,))
    whole = whole + (quotient < whole).where(const(-1.0, dtypes.float64), const(0.0, dtypes.float64))
    # by way of int64: the least int32 by -1 wraps, as it must, where a cast to int32 would saturate
    return b.eq(0).where(const(0, node.dtype), whole.cast(dtypes.int64).cast(node.dtype))


def mod(node: Node) -> Node:
    """a % b = a - b (a // b), and 0 for b = 0."""
    a, b = node.src
    quotient = binary(Op.FLOORDIV, a, b)
    return b.eq(0).where(const(0, node.dtype), a + (b * quotient) * truncate(-1, node.dtype))


def maximum(node: Node) -> Node:
    """MAX(a, b) by a select; a NaN on either side wins."""
    a, b = node.src
    larger = (b < a).where(a, b)
    return a.ne(a).where(a, larger) if node.dtype.is_float else larger


def minimum(node: Node) -> Node:
    """MIN(a, b) by a select; a NaN on either side wins."""
    a, b = node.src
    smaller = (a < b).where(a, b)
    return a.ne(a).where(a, smaller) if node.dtype.is_float else smaller


COMPOSED: dict[Op, Callable[[Node], Node]] = {  # one step; what it makes is decomposed in turn
    Op.EXP: lambda node: transcendental.exp(node.src[0]),
    Op.EXP2: lambda node: transcendental.exp2(node.src[0]),
    Op.LOG: lambda node: transcendental.log(node.src[0]),
    Op.LOG2: lambda node: transcendental.log2(node.src[0]),
    Op.SIN: lambda node: trigonometry.sin(node.src[0]),
    Op.COS: lambda node: trigonometry.cos(node.src[0]),
    Op.FLOORDIV: floordiv,
    Op.MOD: mod,
    Op.MAX: maximum,
    Op.MIN: minimum,
}
_EXACT_ON_NARROW = frozenset({Op.NEG, Op.MAX, Op.MIN, Op.TRUNC})  # results need no rounding


class _Decomposition:
    """One run: `done` is what became of each node, `wide` the float32 of the same value for nodes of narrow formats."""

    def __init__(self, missing: frozenset[Op], casts: frozenset[DType]):
        self.missing = missing
        self.casts = casts
        self.done: dict[Node, Node] = {}
        self.wide: dict[Node, Node] = {}

    def run(self, order: list[Node]) -> Node:
        for node in order:
            if node.dtype in NARROW:
                self.narrow_result(node)
            elif node.op is not Op.STORE and any(source.dtype in NARROW for source in node.src):
                self.done[node] = self.wide_result(node)
            else:
                src = tuple([self.done[source] for source in node.src])
                self.done[node] = self.composed(node if src == node.src else node.replace(src=src))
        return self.done[order[-1]]

    def composed(self, node: Node) -> Node:
        """A node whose sources are done, in ops that the target has."""
        if node.op not in self.missing or (node.dtype is dtypes.index and node.op in (Op.FLOORDIV, Op.MOD)):
            return node
        if node.op not in COMPOSED:
            raise ValueError(
                f"[decompose] the target has no {node.op.name}, and no other ops make one. Declare it native."
            )
        made = COMPOSED[node.op](node)
        known = dict(zip(node.src, node.src, strict=True))
        for step in _beyond(made, known):
            src = tuple([known[source] for source in step.src])
            known[step] = self.composed(step if src == step.src else step.replace(src=src))
        return known[made]

    # -- narrow formats --

    def wide_of(self, node: Node) -> Node:
        """A source of the graph as it is computed with: as float32 if it is narrow."""
        return self.wide[node] if node.dtype in NARROW else self.done[node]

    def wide_result(self, node: Node) -> Node:
        """A node of an ordinary dtype that reads narrow values: comparisons, CAST, BITCAST, LOAD."""
        if node.op is Op.CAST:
            return self.composed(self.wide[node.src[0]].cast(node.dtype))
        if node.op is Op.BITCAST:
            return bitcast(self.done[node.src[0]], node.dtype)
        if node.op not in ARITHMETIC:
            return node.replace(src=tuple([self.done[source] for source in node.src]))
        self.refuse_storage_only(node, node.src[0].dtype)
        return self.composed(node.replace(src=tuple([self.wide_of(source) for source in node.src])))

    def narrow_result(self, node: Node) -> None:
        """Fill `done` and `wide` for a node of a narrow format."""
        op, dtype = node.op, node.dtype
        if op is Op.CONST:
            bits = const(to_bits(node.arg, dtype), bits_dtype(dtype))
            self.done[node] = node if dtype in self.casts else bitcast(bits, dtype)
            self.wide[node] = const(truncate(node.arg, dtype), dtypes.float32)
        elif op is Op.CAST:
            self.cast_to_narrow(node)
        elif op is Op.WHERE:
            condition, *sides = node.src
            if_true, if_false = (bitcast(self.done[side], bits_dtype(dtype)) for side in sides)
            self.done[node] = bitcast(self.done[condition].where(if_true, if_false), dtype)
            self.wide[node] = self.done[condition].where(self.wide[sides[0]], self.wide[sides[1]])
        elif op is Op.BITCAST or (op not in ARITHMETIC and op is not Op.REDUCE):
            src = tuple([self.done[source] for source in node.src])
            self.done[node] = bitcast(src[0], dtype) if op is Op.BITCAST else node.replace(src=src)
            self.wide[node] = self.widened(self.done[node])
        else:
            self.refuse_storage_only(node, dtype)
            src = tuple([self.wide_of(source) for source in node.src])
            value = self.composed(Node(op, dtypes.float32, src, node.arg))
            self.done[node] = self.rounded(value, dtype)
            exact = op in _EXACT_ON_NARROW or (op is Op.REDUCE and node.arg in _EXACT_ON_NARROW)
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
            if dtype in self.casts
            else widen(bitcast(value, bits_dtype(dtype)), dtype)
        )

    def refuse_storage_only(self, node: Node, dtype: DType) -> None:
        if dtype.is_storage_only:
            raise StorageOnly(
                f"[{node.op.name.lower()}] {dtype.name} is for storage only: cast to float32, compute, and cast back"
            )


def _beyond(root: Node, known: dict[Node, Node]) -> list[Node]:
    """The nodes that `root` adds to the known ones, sources before users."""
    found: list[Node] = []
    seen = set(known)
    stack = [(root, False)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            found.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((source, False) for source in reversed(node.src))
    return found
