"""Attention: which tokens look at which, and where they stand.

In       queries, keys, values: (batch, heads, length, size), or (batch, length, heads * size)
Out      tensors of the queries' form; keys and values with those before
Changes  table.py's table
Next     activation.py (Softmax), ops/attention.py (the same as one method)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.operators.math import same_dtype
from hcq.frontend.more.onnx.operators.shape import dtype_of
from hcq.frontend.more.onnx.table import PREVIEW, operator
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


def _heads(x: Tensor, count: int | None) -> Tensor:
    """(batch, heads, length, size)."""
    if x.ndim == 4:
        return x
    if count and x.shape[2] == 1:  # one number for all heads
        return x.unsqueeze(1).expand(x.shape[0], count, x.shape[1], 1)
    if not count:
        raise UsageError(f"{x.shape}: it has three axes, and q_num_heads and kv_num_heads are not given")
    return x.reshape(x.shape[0], x.shape[1], count, x.shape[2] // count).transpose(1, 2)


def _repeated(x: Tensor, count: int) -> Tensor:
    """Each head as often as there are heads of queries for it."""
    return x if x.shape[1] == count else x.repeat_interleave(count // x.shape[1], 1)


@operator("Attention", since=23)
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    filled: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    call: Any,
) -> Any:
    """A row that may look at nothing gives zeros."""
    is_flat = q.ndim == 3
    query, key, value = _heads(q, q_num_heads), _heads(k, kv_num_heads), _heads(v, kv_num_heads)
    offset: Any = 0
    if past_key is not None and past_value is not None:
        offset = past_key.shape[2]
        key, value = Tensor.cat([past_key, key], dim=2), Tensor.cat([past_value, value], dim=2)
    present = key, value
    heads, length, total = query.shape[1], query.shape[2], key.shape[2]
    key, value = _repeated(key, heads), _repeated(value, heads)
    factor = float(np.sqrt(query.shape[3] ** -0.5 if scale is None else scale))
    raw = (query * factor) @ (key * factor).transpose(2, 3)
    capped = (raw / softcap).tanh() * softcap if softcap else raw
    allowed: Any = None
    rows, columns = (
        Tensor.arange(length, device=q.device).reshape(length, 1),
        Tensor.arange(total, device=q.device),
    )
    if filled is not None:
        count = filled.cast(dtypes.int64).reshape(-1, 1, 1, 1)
        allowed = columns < count
        if past_key is None:
            offset = count - length
    places = rows + offset
    if is_causal:
        allowed = _both(allowed, columns <= places)
    if left_window_size >= 0:
        allowed = _both(allowed, columns >= places - left_window_size)
    if right_window_size >= 0:
        allowed = _both(allowed, columns <= places + right_window_size)
    scores = capped
    if mask is not None:
        if mask.shape[-1] < total:
            filling: Any = False if mask.dtype.is_bool else -float("inf")
            mask = mask.pad([0, total - mask.shape[-1]], value=filling)
        if mask.dtype.is_bool:
            allowed = _both(allowed, mask)
        else:
            scores = scores + mask.cast(scores.dtype)
    if allowed is not None:
        scores = allowed.where(scores, -float("inf"))
    wide = scores if softmax_precision is None else scores.cast(dtype_of(softmax_precision))
    most = wide.amax(-1, keepdim=True)
    nothing = most == -float("inf")
    if mask is None and allowed is None:
        weights = wide.softmax(-1)
    else:
        powers = (wide - nothing.where(0.0, most)).exp()
        weights = powers / nothing.where(1.0, powers.sum(-1, keepdim=True))
    weights = same_dtype(q, weights)
    found = weights @ value
    if is_flat:
        found = found.transpose(1, 2).reshape(q.shape[0], length, heads * value.shape[3])
    shown = (raw, capped, scores, weights)[qk_matmul_output_mode]
    return same_dtype(q, found), *present, same_dtype(q, shown)


def _both(a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else a & b


@operator("FlexAttention", raw=True, domain=PREVIEW)
def flex_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    prob_mod: Any = None,
    scale: float | None = None,
    score_mod: Any = None,
    softmax_precision: int | None = None,
    call: Any,
) -> Any:
    """Attention whose scores and weights are changed by graphs of the model."""
    query, key, value = (call.tensor(each) for each in (q, k, v))
    heads = query.shape[1]
    wide = dtypes.float64 if query.dtype is dtypes.float64 else dtypes.float32
    wide = wide if softmax_precision is None else dtype_of(softmax_precision)

    def changed(x: Tensor, block: Any) -> Tensor:
        if block is None:
            return x
        found: Tensor = call.tensor(
            call.run.block(block, {block.inputs[0].name: call.run.value(x)}, call.values)[0]
        )
        return found

    factor = query.shape[3] ** -0.5 if scale is None else scale
    scores = (query.cast(wide) @ _repeated(key, heads).cast(wide).transpose(2, 3)) * factor
    weights = changed(changed(scores, score_mod).softmax(-1), prob_mod)
    return same_dtype(query, weights @ _repeated(value, heads).cast(weights.dtype))


@operator("RotaryEmbedding", since=23)
def rotary_embedding(
    x: Tensor,
    cosines: Tensor,
    sines: Tensor,
    places: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> Any:
    """Pairs of features turned by an angle that grows with the place."""
    is_flat = x.ndim == 3
    heads = _heads(x, num_heads)  # (batch, heads, length, size)
    size = rotary_embedding_dim or heads.shape[3]
    turned, rest = heads[..., :size], heads[..., size:]
    if places is not None:
        cosines, sines = (
            table.index_select(0, places.reshape(-1)).reshape(*places.shape, table.shape[-1])
            for table in (cosines, sines)
        )
    cosines, sines = cosines.unsqueeze(1), sines.unsqueeze(1)
    a, b = (turned[..., 0::2], turned[..., 1::2]) if interleaved else turned.chunk(2, -1)
    real, imaginary = cosines * a - sines * b, sines * a + cosines * b
    if interleaved:
        new = Tensor.stack([real, imaginary], dim=-1).reshape(turned.shape)
    else:
        new = Tensor.cat([real, imaginary], dim=-1)
    found = Tensor.cat([new, rest], dim=-1) if rest.shape[-1] else new
    return found.transpose(1, 2).reshape(x.shape) if is_flat else found


@operator("LinearAttention", since=27)
def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> Any:
    """A state of (size of keys, size of values) for each head, changed by each token in turn."""
    known = ("linear", "gated", "delta", "gated_delta")
    if update_rule not in known:
        raise UsageError(f"update_rule {update_rule!r}; known are {', '.join(known)}")
    wide = dtypes.float32 if query.dtype.itemsize < 4 else query.dtype  # states add up
    q, k, v = (
        _heads(each.cast(wide), count)
        for each, count in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads))
    )
    batch, heads, length, size = k.shape
    scale = scale or size**-0.5
    if past is None:
        state = Tensor.zeros(batch, heads, size, v.shape[3], device=q.device, dtype=wide)
    else:
        state = past.cast(wide)
    rates = None if beta is None else _heads(beta.cast(wide), kv_num_heads)
    gates = None if decay is None else _heads(decay.cast(wide), kv_num_heads)
    outputs = []
    for t in range(length):
        now_k, now_v = k[:, :, t].unsqueeze(3), v[:, :, t].unsqueeze(2)
        if gates is not None and "gated" in update_rule:
            state = state * gates[:, :, t].exp().unsqueeze(3)
        if "delta" in update_rule:
            now_v = now_v - now_k.transpose(2, 3) @ state
            if rates is not None:
                now_v = now_v * rates[:, :, t].unsqueeze(3)
        state = state + now_k * now_v
        seen = _repeated(state, q_num_heads)
        outputs.append((q[:, :, t].unsqueeze(2) @ seen).squeeze(2) * scale)
    found = Tensor.stack(outputs, dim=1)
    return same_dtype(query, found.reshape(batch, length, q_num_heads * v.shape[3])), same_dtype(
        query if past is None else past, state
    )
