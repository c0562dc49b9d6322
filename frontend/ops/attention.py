"""Attention: weighted means of values, the weights a softmax of products of queries and keys.

In       tensors of queries, keys and values; a mask
Out      a lazy tensor; one with many scores has a derivative that makes them again instead of keeping them
Next     schedule/nested.py (why no matrix of scores is in memory), normalisation.py (softmax)
Source   Vaswani et al. 2017; Dao et al. 2022, "FlashAttention" (the way back from the row's log-sum-exp)
"""

from __future__ import annotations

import math
from functools import cache
from typing import TypeVar

from hcq.frontend.core.base import thread_modes
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import (
    broadcast_shape,
    constant,
    divided,
    expanded,
    exponential,
    logarithm,
    minus,
    ordinal,
    permuted,
    reduced,
    reshaped,
)
from hcq.frontend.grad.function import Function
from hcq.frontend.ops.base import Methods, Self, narrowed, rounded, widened
from hcq.frontend.schedule.scores import is_large
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node, const
from hcq.ir.op import Op
from hcq.record import record

T = TypeVar("T", bound=Methods)


class Attention(Methods):
    """scaled_dot_product_attention."""

    __slots__ = ()

    def scaled_dot_product_attention(
        self,
        key: Self,
        value: Self,
        attn_mask: Self | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Self:
        """softmax(q @ k.T * scale + mask) @ v: (..., n, d), (..., m, d), (..., m, v) -> (..., n, v).

        attn_mask   (..., n, m): bool, True where a query may look, or numbers to add
        dropout_p   each weight becomes zero with this probability, and the others grow; then scores are kept
        is_causal   query i looks at the keys 0 to i
        scale       1 / sqrt(d) unless given
        enable_gqa  axis -3 counts heads: each head of keys and values serves several heads of queries in a row

        Memory grows with n and m, not with n * m: scores are made and folded tile by tile, forwards and backwards.

        >>> q, k, v = Tensor.ones(1, 2, 4), Tensor.ones(1, 3, 4), Tensor([[[1.0], [2.0], [6.0]]])
        >>> hcq.nn.functional.scaled_dot_product_attention(q, k, v).flatten().tolist()
        [3.0, 3.0]
        """
        call = "scaled_dot_product_attention"
        if self.ndim < 2 or key.ndim < 2 or value.ndim < 2:
            raise UsageError(
                f"[{call}] query {self.shape}, key {key.shape}, value {value.shape}: "
                "each needs (..., length, width)."
            )
        if thread_modes:
            self, key, value = narrowed(self, key, value)
        factor = 1.0 / math.sqrt(self.node.shape[-1]) if scale is None else scale
        if enable_gqa:
            key, value = (_for_each_head(call, self, side) for side in (key, value))
        if not 0.0 <= dropout_p <= 1.0:
            raise UsageError(f"[{call}] dropout_p={dropout_p}: a probability is between 0 and 1.")
        if dropout_p or not _is_worth_it(self, key, value, attn_mask):
            return self._kept_scores(key, value, attn_mask, is_causal, factor, dropout_p)
        dtype = self.node.dtype
        wide = dtypes.float32 if dtype.itemsize < 4 else dtype
        how = How(factor, is_causal, wide)
        arguments = [self.node, key.node, value.node]
        if attn_mask is not None:
            arguments.append(attn_mask.node)
        return self._like(_attention(how).of(_forwards(how, *arguments).cast(dtype), *arguments))

    def _kept_scores(
        self,
        key: Self,
        value: Self,
        attn_mask: Self | None,
        is_causal: bool,
        factor: float,
        dropout_p: float = 0.0,
    ) -> Self:
        """Step by step: with few scores, it is less work to keep them for the way back.

        Of 16-bit floats scores are float32, which they may not fit otherwise; weights do, for they are 1 at most.
        """
        scores = widened(self)._matmul(widened(key).mT) * factor
        if is_causal:
            scores = self._like(_below_diagonal(scores.node.shape)).where(scores, -math.inf)
        if attn_mask is not None:
            is_bool = attn_mask.node.dtype.is_bool
            scores = attn_mask.where(scores, -math.inf) if is_bool else scores + attn_mask
        weights = scores.softmax(-1)
        if dropout_p:
            keep = self._kind.bernoulli(scores.node.shape, p=1.0 - dropout_p, device=self.device)
            weights = keep.where(weights / max(1.0 - dropout_p, 1e-30), 0.0)
        return rounded(weights, value.node.dtype)._matmul(value)  # type: ignore[no-any-return]


def _for_each_head(call: str, query: T, side: T) -> T:
    """Keys or values with a copy of each head for all heads of queries that it serves; a view, no memory."""
    shape, heads = side.node.shape, query.node.shape[-3] if query.ndim > 2 else 0
    if len(shape) < 3 or not heads or heads % shape[-3]:
        raise UsageError(
            f"[{call}] enable_gqa: query {query.shape}, key or value {side.shape}. Both need (..., heads, length, "
            "width), with a number of query heads that is a multiple of the others'."
        )
    group = heads // shape[-3]
    lead = (*shape[:-2], 1, *shape[-2:])
    full = (*shape[:-2], group, *shape[-2:])
    return side._like(reshaped(expanded(reshaped(side.node, lead), full), (*shape[:-3], heads, *shape[-2:])))


def _is_worth_it(query: Methods, key: Methods, value: Methods, mask: Methods | None) -> bool:
    """Whether there are so many scores that they should not be in memory."""
    q, k, v = query.node, key.node, value.node
    fits = q.shape[-1] == k.shape[-1] and k.shape[-2] == v.shape[-2]
    if not (fits and q.dtype is k.dtype is v.dtype and q.dtype.is_float and not q.dtype.is_storage_only):
        return False  # what does not fit is refused where it is multiplied
    try:
        batch = broadcast_shape("attention", q.shape[:-2], k.shape[:-2], v.shape[:-2])
        shape = (*batch, q.shape[-2], k.shape[-2])
        if mask is not None and broadcast_shape("attention", shape, mask.node.shape) != shape:
            return False
    except UsageError:
        return False
    return is_large(shape, max(q.shape[-1], v.shape[-1]))


@record(frozen=True)
class How:
    """What attention does besides its operands: a factor on scores, a triangle of them, the dtype they are in."""

    factor: float
    is_causal: bool
    wide: DType


def _below_diagonal(shape: tuple[int, ...]) -> Node:
    """True where the last index is not above the one before."""
    rows, columns = shape[-2:]
    row, column = ordinal(rows, 0, (rows, columns)), ordinal(columns, 1, (rows, columns))
    return expanded(Node(Op.CMPLE, dtypes.bool, (column, row)), shape)


def _dot(a: Node, b: Node, wide: DType) -> Node:
    """(..., n, k), (..., m, k) -> (..., n, m), added up in a wide format."""
    n, m, k = a.shape[-2], b.shape[-2], a.shape[-1]
    full = (*broadcast_shape("attention", a.shape[:-2], b.shape[:-2]), n, m, k)
    x = expanded(reshaped(a, (*a.shape[:-1], 1, k)), full).cast(wide)
    y = expanded(reshaped(b, (*b.shape[:-2], 1, m, k)), full).cast(wide)
    return reshaped(reduced(Op.ADD, Node(Op.MUL, wide, (x, y)), (len(full) - 1,)), full[:-1])


def _turned(x: Node) -> Node:
    """The last two axes in the other order."""
    rank = len(x.shape)
    return permuted(x, (*range(rank - 2), rank - 1, rank - 2))


def _scores(how: How, q: Node, k: Node, mask: Node | None) -> Node:
    made = _dot(q, k, how.wide)
    made = made * constant("attention", how.factor, how.wide)
    nothing = const(-math.inf, how.wide)
    if how.is_causal:
        made = _below_diagonal(made.shape).where(made, nothing)
    if mask is not None and mask.dtype.is_bool:
        made = expanded(mask, made.shape).where(made, nothing)
    elif mask is not None:
        made = made + expanded(mask, made.shape).cast(how.wide)
    return made


def _weights(scores: Node) -> tuple[Node, Node]:
    """exp(scores - top) and top, the row's maximum."""
    last = len(scores.shape) - 1
    top = reduced(Op.MAX, scores, (last,))
    top = Node(Op.DETACH, top.dtype, (top,))
    return exponential(minus(scores, expanded(top, scores.shape))), top


def _forwards(how: How, q: Node, k: Node, v: Node, mask: Node | None = None) -> Node:
    """The value; the division comes last, so that weights need none."""
    weights, _ = _weights(_scores(how, q, k, mask))
    total = reduced(Op.ADD, weights, (len(weights.shape) - 1,))
    sums = _dot(weights, _turned(v), how.wide)
    return divided(sums, expanded(total, sums.shape))


@cache
def _attention(how: How) -> Function:
    """Attention, with slopes that need the row's log-sum-exp and the result, and make the scores again."""

    def in_memory(node: Node) -> Node:
        return Node(Op.CONTIGUOUS, node.dtype, (node,))

    def shares(node: Node) -> Node:
        """The softmax of the scores."""
        q, k, _, *mask = node.src[1:]
        scores = _scores(how, q, k, mask[0] if mask else None)
        weights, top = _weights(scores)
        total = reduced(Op.ADD, weights, (len(weights.shape) - 1,))
        level = in_memory(logarithm(total) + top)
        return exponential(minus(scores, expanded(level, scores.shape)))

    def slope_of_scores(node: Node, g: Node) -> Node:
        """p * (g @ v.T - sum(g * out)): the second is that product's mean under p."""
        p = shares(node)
        g = g.cast(how.wide)
        mean = in_memory(reduced(Op.ADD, g * node.cast(how.wide), (len(g.shape) - 1,)))
        return p * minus(_dot(g, node.src[3], how.wide), expanded(mean, p.shape))

    def of_query(node: Node, g: Node) -> Node:
        part = _dot(slope_of_scores(node, g), _turned(node.src[2]), how.wide)
        return part * constant("attention", how.factor, how.wide)

    def of_key(node: Node, g: Node) -> Node:
        part = _dot(_turned(slope_of_scores(node, g)), _turned(node.src[1]), how.wide)
        return part * constant("attention", how.factor, how.wide)

    def of_value(node: Node, g: Node) -> Node:
        return _dot(_turned(shares(node)), _turned(g), how.wide)

    return Function(repr(how), of_query, of_key, of_value, slope_of_scores)
