"""Weights: exponentials between the reductions of attention, as good as a narrow result can tell.

In       a kernel (kernel stage) that `is_narrow_attention`, of a GPU with an instruction for 2**x
Out      the same with EXP2, and with what scores are multiplied by as part of its argument
Next     decompose.py (who asks), online.py (RESCALE and FORMER), ../render/llvm_arithmetic.py (EXP2)
Source   T. Dao and others, FlashAttention-2 (2023), section 3.1: fewer operations that are no products

The GPU's instruction is good to two units in float32's last place, and gives 0 below the least normal number. The
argument is rounded once more than that of an exact exponential: scores up to a thousand keep their weights to 2**-13.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, const, toposort
from hcq.ir.op import Op
from hcq.ir.rewrite import Notes, Step

STEPS = (
    Step("weight", "exp(x * c + y) -> exp2(x * (c * log2(e)) + y * log2(e))"),
    Step("scaled-top", "max(x * c) -> max(x) * c, for c > 0"),
    Step("masked-score", "exp2(x * c + y) where m, else 0 -> exp2((x where m, else -inf) * c + y)"),
)
FAST_EXP2 = ("amdgpu", "nvptx")


def is_narrow_attention(order: Sequence[Node]) -> bool:
    """Whether all that a kernel stores is narrow, and exponentials stand between one reduction and another."""
    if any(node.op is Op.STORE and node.src[0].dtype.itemsize > 2 for node in order):
        return False
    above: set[Node] = set()  # what is computed from a reduction,
    weights: set[Node] = set()  # and by way of an exponential
    for node in order:
        if any(source in weights for source in node.src):
            if node.op is Op.REDUCE:
                return True
            weights.add(node)
        elif node.op is Op.EXP and node.src[0] in above and node.dtype is dtypes.float32:
            weights.add(node)
        elif node.op is Op.REDUCE or any(source in above for source in node.src):
            above.add(node)
    return False


def with_fast_weights(sink: Node, notes: Notes) -> Node:
    """Every exponential of the kernel by the instruction."""
    new: dict[Node, Node] = {}
    for node in toposort((sink,)):
        src = tuple([new[source] for source in node.src])
        made = node if src == node.src else node.replace(src=src)
        if node.op is Op.FORMER and src[0].op is Op.MUL:
            top, factor = src[0].src
            made = Node(Op.MUL, node.dtype, (made.replace(src=(top, *src[1:])), factor))
        elif made.op is Op.REDUCE and made.arg is Op.MAX and (after := scaled_top(made)) is not None:
            notes("scaled-top", made, after)
            made = after
        elif made.op is Op.EXP and made.dtype is dtypes.float32:
            after = weight(made.src[0])
            notes("weight", made, after)
            made = after
        elif made.op is Op.WHERE and (masked := masked_score(made)) is not None:
            notes("masked-score", made, masked)
            made = masked
        new[node] = made
    return new[sink]


def weight(x: Node) -> Node:
    """exp(x) as a power of two."""
    log2_e = const(math.log2(math.e), x.dtype)
    if x.op is Op.ADD:
        for product, rest in (x.src, x.src[::-1]):
            scale = _scale_of(product)
            if scale is not None:
                inner = product.src[0] * const(scale * math.log2(math.e), x.dtype)
                return Node(Op.EXP2, x.dtype, (inner + rest * log2_e,))
    return Node(Op.EXP2, x.dtype, (x * log2_e,))


def masked_score(node: Node) -> Node | None:
    """A weight or zero, as the weight of a score or -inf: that is what the maximum has seen. None for other choices."""
    condition, power, otherwise = node.src
    if (
        power.op is not Op.EXP2
        or power.src[0].op is not Op.ADD
        or otherwise.op is not Op.CONST
        or otherwise.arg
    ):
        return None
    product, rest = power.src[0].src
    if _scale_of(product) is None:
        return None
    score = Node(Op.WHERE, node.dtype, (condition, product.src[0], const(-math.inf, node.dtype)))
    return Node(Op.EXP2, node.dtype, (score * product.src[1] + rest,))


def _scale_of(product: Node) -> float | None:
    """The number that a value is multiplied by, if it is a number greater than zero."""
    if product.op is not Op.MUL or product.src[1].op is not Op.CONST:
        return None
    scale = product.src[1].arg
    return scale if isinstance(scale, float) and 0 < scale < math.inf else None


def scaled_top(node: Node) -> Node | None:
    """The maximum of what is multiplied, multiplied: rounding keeps the order. None for what is not so."""
    value = node.src[0]
    is_masked = value.op is Op.WHERE and value.src[2].op is Op.CONST and value.src[2].arg == -math.inf
    product = value.src[1] if is_masked else value
    if _scale_of(product) is None:
        return None
    inner, factor = product.src
    if is_masked:
        inner = Node(Op.WHERE, node.dtype, (value.src[0], inner, value.src[2]))
    top = node.replace(src=(inner, *node.src[1:]))
    return Node(Op.MUL, node.dtype, (top, factor))
