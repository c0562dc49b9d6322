"""Attention of several heads as one function, with the projections before and after it.

In       queries, keys and values (length, batch, width), or without batch; weights of the projections; masks
Out      (results, weights or None)
Next     functional.py (where it is found), ops/attention.py (attention itself)
Source   Vaswani et al. 2017
"""

from __future__ import annotations

import math
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.nn.functional_random import dropout
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.base import rounded, widened
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


@checked
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any]:
    """Attention of `num_heads` heads: project, attend, join, project. (length, batch, width) -> the same.

    in_proj_weight      (3 width, width): of queries, keys and values; or three apart, with use_separate_proj_weight
    bias_k, bias_v      a key and a value more, (1, 1, width); add_zero_attn: one more of zeros
    key_padding_mask    (batch, keys): True for a key that is not there
    attn_mask           (queries, keys) or one for each head: True where a query may not look, or numbers to add
    static_k, static_v  (batch * heads, keys, width / heads): instead of the projections
    Returns             the result, and with need_weights (batch, queries, keys), or of each head

    >>> x, w = Tensor.ones(3, 1, 4), Tensor.eye(4)
    >>> options = dict(bias_k=None, bias_v=None, add_zero_attn=False, dropout_p=0.0)
    >>> y, weights = nn.functional.multi_head_attention_forward(
    ...     x, x, x, 4, 2, hcq.cat([w, w, w]), None, out_proj_weight=w, out_proj_bias=None, **options
    ... )
    >>> y.shape, weights.shape
    ((3, 1, 4), (1, 3, 3))
    """
    call = "multi_head_attention_forward"
    if query.ndim == 2:
        parts = [None if mask is None else mask.unsqueeze(0) for mask in (key_padding_mask,)]
        result, weights = multi_head_attention_forward(
            query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1), embed_dim_to_check, num_heads, in_proj_weight,
            in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training, parts[0],
            need_weights, attn_mask, use_separate_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, static_k,
            static_v, average_attn_weights, is_causal,
        )  # fmt: skip
        return result.squeeze(1), None if weights is None else weights.squeeze(0)
    length, batch, width = query.shape
    if width != embed_dim_to_check or num_heads < 1 or width % num_heads:
        raise UsageError(
            f"[{call}] queries {query.shape}, width {embed_dim_to_check}, {num_heads} heads: the heads must divide the "
            "width."
        )
    if is_causal and attn_mask is None:
        raise UsageError(f"[{call}] is_causal says that attn_mask is causal: give that, too.")
    if use_separate_proj_weight:
        matrices: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    else:
        matrices = (None,) * 3 if in_proj_weight is None else in_proj_weight.chunk(3)
    if any(matrix is None for matrix in matrices):
        raise UsageError(
            f"[{call}] the weights of the projections are missing: in_proj_weight, or three apart."
        )
    biases: Any = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
    q, k, v = (each.linear(w, b) for each, w, b in zip((query, key, value), matrices, biases))
    if bias_k is not None and bias_v is not None:
        k = Tensor.cat([k, bias_k.expand(1, batch, width)])
        v = Tensor.cat([v, bias_v.expand(1, batch, width)])
    size = width // num_heads
    q = q.reshape(length, batch * num_heads, size).transpose(0, 1)
    k = k.reshape(k.shape[0], batch * num_heads, size).transpose(0, 1) if static_k is None else static_k
    v = v.reshape(v.shape[0], batch * num_heads, size).transpose(0, 1) if static_v is None else static_v
    if add_zero_attn:
        k, v = (each.pad((0, 0, 0, 1)) for each in (k, v))
    have, q, k, v = v.dtype, widened(q), widened(k), widened(v)
    keys = k.shape[1]
    scores = (q * (1.0 / math.sqrt(size))).matmul(k.transpose(1, 2)).reshape(batch, num_heads, length, keys)
    if attn_mask is not None:
        mask = _added(attn_mask, scores)
        mask = mask.reshape(batch, num_heads, *mask.shape[1:]) if mask.ndim == 3 else mask
        scores = scores + mask.pad((0, keys - mask.shape[-1]))
    if key_padding_mask is not None:
        mask = _added(key_padding_mask, scores)
        scores = scores + mask.pad((0, keys - mask.shape[-1])).reshape(batch, 1, 1, keys)
    weights = scores.softmax(-1)
    if training and dropout_p > 0.0:
        weights = dropout(weights, dropout_p)
    heads = weights.reshape(batch * num_heads, length, keys).matmul(v)
    joined = rounded(heads, have).transpose(0, 1).reshape(length, batch, width)
    result = joined.linear(out_proj_weight, out_proj_bias)
    if not need_weights:
        return result, None
    return result, rounded(weights.mean(1) if average_attn_weights else weights, have)


def _added(mask: Tensor, scores: Tensor) -> Tensor:
    """A mask as numbers to add: -inf where it is True."""
    if not mask.dtype.is_bool:
        return mask.cast(scores.dtype)
    low = Tensor(-math.inf, device=scores.device, dtype=dtypes.float32).cast(scores.dtype)
    return mask.where(low, 0.0)
