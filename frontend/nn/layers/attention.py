"""Attention of several heads, as a module.

In       queries, keys and values (length, batch, features), or the batch first with batch_first
Out      `MultiheadAttention`
Next     transformer.py, ops/attention.py (scaled_dot_product_attention)
Source   Vaswani et al. 2017
"""

from __future__ import annotations

import math
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.nn import functional as F
from hcq.frontend.nn import init
from hcq.frontend.nn.layers.linear import Linear
from hcq.frontend.nn.layers.sizes import drawn, even, positive, probability
from hcq.frontend.nn.module import Module
from hcq.frontend.nn.parameter import parameter_of
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType


def allowed(mask: Tensor | None, call: str, like: Tensor) -> Tensor | None:
    """A mask as numbers that are added to scores: PyTorch's True, which hides, becomes minus infinity."""
    if mask is None:
        return None
    if mask.dtype.is_bool:
        return mask.where(float("-inf"), 0.0).cast(like.dtype)
    if not mask.dtype.is_float:
        raise UsageError(
            f"[{call}] a mask of {mask.dtype.name}: give bool, where True hides, or floats to add."
        )
    return mask.cast(like.dtype)


class MultiheadAttention(Module):
    """Each query's mean of the values, weighed by how well it fits the keys, in num_heads subspaces at once.

    add_bias_kv     one more key and value, which are trained
    add_zero_attn   one more key and value of zeros
    kdim, vdim      features of keys and values, embed_dim unless given

    >>> attention = nn.MultiheadAttention(8, 2, batch_first=True)
    >>> y, weights = attention(Tensor.ones(1, 3, 8), Tensor.ones(1, 5, 8), Tensor.ones(1, 5, 8))
    >>> y.shape, weights.shape
    ((1, 3, 8), (1, 3, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        positive("MultiheadAttention", embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            raise UsageError(
                f"[MultiheadAttention] embed_dim {embed_dim} does not divide into {num_heads} heads."
            )
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.batch_first = probability("MultiheadAttention", dropout), batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.add_zero_attn = add_zero_attn
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim

        def matrix(rows: int, columns: int) -> Any:
            return drawn((rows, columns), math.sqrt(6.0 / (rows + columns)), dtype, device)

        same = self._qkv_same_embed_dim
        self.in_proj_weight = matrix(3 * embed_dim, embed_dim) if same else None
        self.q_proj_weight = None if same else matrix(embed_dim, embed_dim)
        self.k_proj_weight = None if same else matrix(embed_dim, self.kdim)
        self.v_proj_weight = None if same else matrix(embed_dim, self.vdim)
        self.in_proj_bias = even((3 * embed_dim,), 0.0, dtype, device) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)
        scale = math.sqrt(1.0 / embed_dim)
        self.bias_k = self.bias_v = None
        if add_bias_kv:
            one = (1, 1, embed_dim)
            self.bias_k = parameter_of(lambda: Tensor.randn(one, dtype=dtype, device=device) * scale)
            self.bias_v = parameter_of(lambda: Tensor.randn(one, dtype=dtype, device=device) * scale)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Queries, keys and values -> (the result, of the queries' shape, the weights or None).

        key_padding_mask       (batch, keys): True for keys that count for nothing, or numbers added to scores
        attn_mask              (queries, keys) or (batch * heads, queries, keys): True hides, or numbers added to scores
        need_weights           False is faster, and gives None
        average_attn_weights   (batch, queries, keys); False keeps them apart: (batch, heads, queries, keys)
        is_causal              says that attn_mask hides the future; it must be given then
        """
        if is_causal and attn_mask is None:
            raise UsageError("[MultiheadAttention] is_causal=True needs attn_mask, which it describes.")
        is_single = query.ndim == 2
        if is_single:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        if query.ndim != 3 or query.shape[-1] != self.embed_dim:
            raise UsageError(
                f"[MultiheadAttention] a query of shape {query.shape}: it needs (..., {self.embed_dim}), 2 or 3 axes."
            )
        q, k, v = self._projected(query, key, value)
        batch, targets = q.shape[:2]
        extra = 0
        if self.bias_k is not None and self.bias_v is not None:
            k = k.cat(self.bias_k.expand(batch, 1, self.embed_dim), dim=1)
            v = v.cat(self.bias_v.expand(batch, 1, self.embed_dim), dim=1)
            extra += 1
        if self.add_zero_attn:
            nothing = k.zeros((batch, 1, self.embed_dim), dtype=k.dtype, device=k.device)
            k, v = k.cat(nothing, dim=1), v.cat(nothing, dim=1)
            extra += 1
        q, k, v = (
            x.reshape(batch, x.shape[1], self.num_heads, self.head_dim).transpose(1, 2) for x in (q, k, v)
        )
        mask = self._mask(q, attn_mask, key_padding_mask, targets, key.shape[1], extra)
        drop = self.dropout if self.training else 0.0
        weights: Tensor | None = None
        if need_weights:
            scores = (q * (1.0 / math.sqrt(self.head_dim))) @ k.transpose(2, 3)
            weights = F.dropout((scores if mask is None else scores + mask).softmax(-1), drop, self.training)
            result = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            result = q.scaled_dot_product_attention(k, v, mask, drop)
        result = self.out_proj(result.transpose(1, 2).reshape(batch, targets, self.embed_dim))
        if is_single:
            return result.squeeze(0), None if weights is None else weights.squeeze(0)
        return result if self.batch_first else result.transpose(0, 1), weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        if self.in_proj_weight is not None:
            if query is key and key is value:
                return list(query.linear(self.in_proj_weight, self.in_proj_bias).chunk(3, -1))
            weights: Any = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return [x.linear(w, b) for x, w, b in zip((query, key, value), weights, biases)]

    def _mask(
        self, q: Tensor, attn: Any, padding: Any, targets: int, sources: int, extra: int
    ) -> Tensor | None:
        """Both masks as one that broadcasts to (batch, heads, queries, keys); keys that were added are seen."""
        batch = q.shape[0]
        found = allowed(attn, "MultiheadAttention", q)
        if found is not None:
            wanted = ((targets, sources), (batch * self.num_heads, targets, sources))
            if found.shape not in wanted:
                raise UsageError(
                    f"[MultiheadAttention] attn_mask {found.shape}: it needs {wanted[0]} or {wanted[1]}."
                )
            found = found.reshape(-1, self.num_heads if found.ndim == 3 else 1, targets, sources)
        hidden = allowed(padding, "MultiheadAttention", q)
        if hidden is not None:
            if hidden.shape != (batch, sources):
                raise UsageError(
                    f"[MultiheadAttention] key_padding_mask {hidden.shape}: it needs {(batch, sources)}."
                )
            hidden = hidden.reshape(batch, 1, 1, sources)
            found = hidden if found is None else found + hidden
        return found if found is None or not extra else found.pad((0, extra))
