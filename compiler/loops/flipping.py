"""Flipping: a factor of 8 bits taken with the other sign, and what that adds to a sum of products taken off again.

In       a kernel-stage graph, a sum of products, the load that a factor is
Out      the graph with sum(a * b) = sum(flipped(a) * b) -+ 128 * sum(b), the second sum over ranges of its own
Next     loop_nest.py (`flip`, the only caller), dot_units.py (the instructions that want one signed and one unsigned)

The bits are those of the number with the upper one turned over: int8 as uint8 is 128 higher, uint8 as int8 128 lower.
All is modulo 2**32, as the sums are.
"""

from __future__ import annotations

from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, const, range_number, substitute, toposort
from hcq.ir.op import Op

FLIPPED = {dtypes.int8: dtypes.uint8, dtypes.uint8: dtypes.int8}


def flipped(sink: Node, load: Node) -> Node | None:
    """The kernel with that load flipped; None where it is no factor of 8 bits of one sum of products in int32."""
    if load.dtype not in FLIPPED:
        return None
    nodes = toposort((sink,))
    casts = [node for node in nodes if load in node.src]
    products = [node for node in nodes if any(cast in node.src for cast in casts)]
    sums = [node for node in nodes if any(product in node.src for product in products)]
    if not len(casts) == len(products) == len(sums) == 1:
        return None
    (cast,), (product,), (total,) = casts, products, sums
    if (cast.op, product.op, total.op, total.arg) != (Op.CAST, Op.MUL, Op.REDUCE, Op.ADD):
        return None
    if total.dtype is not dtypes.int32 or product.src[0] is product.src[1]:
        return None
    other = product.src[0] if product.src[1] is cast else product.src[1]
    # the numbers of the new ranges follow the old ones
    number = 1 + max(range_number(node) for node in nodes if node.op is Op.RANGE)
    again = {
        old: Node(Op.RANGE, old.dtype, old.src, number + place) for place, old in enumerate(total.src[1:])
    }
    is_signed = load.dtype is dtypes.int8
    top = const(-0x80 if is_signed else 0x80, load.dtype)
    turned = Node(Op.BITCAST, FLIPPED[load.dtype], (Node(Op.XOR, load.dtype, (load, top)),))
    made = total.replace(src=(product.replace(src=(turned.cast(dtypes.int32), other)), *total.src[1:]))
    rest = Node(Op.REDUCE, total.dtype, (other.substitute(again), *again.values()), Op.ADD)
    return substitute((sink,), {total: made + rest * (-0x80 if is_signed else 0x80)})[0]
