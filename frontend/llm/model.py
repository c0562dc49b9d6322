"""Model: what a language model computes of some tokens, given the keys and values of those before.

In       a `Configuration`, weights by our names; tokens and where they stand
Out      logits of what follows the last of them
Changes  the `Memory`: the tokens' keys and values are written where they stand
Next     configuration.py (what differs), names.py (the weights), session.py (who calls it, recorded)
Source   Touvron et al. 2023 (Llama), Su et al. 2021 (rotary positions), Radford et al. 2019 (GPT-2), Ainslie et al.
         2023 (heads in groups), Gemma Team 2024 (caps, norms behind)

Several sequences at once are several memories: nothing about a sequence is kept in the model itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hcq.frontend.llm.configuration import Configuration
from hcq.frontend.llm.names import shapes_of
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


class Memory:
    """Keys and values of one sequence: room for so many tokens, (kv_heads, room, head_size) for each layer."""

    def __init__(self, whole: Model, room: int, device: str | None = None):
        model = whole.configuration
        self.room = room
        shape = (model.kv_heads, room, model.head_size)
        self.keys = [Tensor.zeros(*shape, device=device).contiguous() for _ in range(model.depth)]
        self.values = [Tensor.zeros(*shape, device=device).contiguous() for _ in range(model.depth)]
        self.places = Tensor.arange(room, device=device, dtype=dtypes.int32).contiguous()
        factors = whole.weights.get("rotary_factors")
        slower = [] if factors is None else factors.cast(dtypes.float32).tolist()
        self.turns = turns(model, room, device, slower) if model.rotary_base else None
        Tensor.realize(self.places, *self.keys, *self.values, *(self.turns or ()))


def turns(
    model: Configuration, room: int, device: str | None = None, slower: Sequence[float] = ()
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of rotary positions, (room, rotary_size / 2) each; speeds are divided by `slower`."""
    speeds = [model.rotary_base ** (-2 * i / model.rotary_size) for i in range(model.rotary_size // 2)]
    if len(model.rotary_scale) == 1:
        speeds = [speed / model.rotary_scale[0] for speed in speeds]
    elif model.rotary_scale:
        speeds = [_stretched(speed, *model.rotary_scale) for speed in speeds]
    if slower:
        speeds = [speed / factor for speed, factor in zip(speeds, slower, strict=True)]
    # on the host, in its 64 bits: some GPUs have no numbers of that size
    angles = [[place * speed for speed in speeds] for place in range(room)]
    cosines, sines = ([[turn(angle) for angle in row] for row in angles] for turn in (math.cos, math.sin))
    return Tensor(cosines, device=device), Tensor(sines, device=device)


def _stretched(speed: float, factor: float, low: float, high: float, old: float) -> float:
    """Llama 3's: slow turns are slowed by a factor, fast ones are not, and between there is a mixture."""
    length = 2 * math.pi / speed
    if length < old / high:
        return speed
    if length > old / low:
        return speed / factor
    share = (old / length - low) / (high - low)
    return (1 - share) * speed / factor + share * speed


class Model:
    """A language model: its configuration and its weights.

    weights  by the names of names.py; quantised ones are lazy, and stay so
    """

    def __init__(self, configuration: Configuration, weights: Mapping[str, Tensor]):
        self.configuration = configuration
        self.weights = dict(weights)

    @classmethod
    def random(cls, configuration: Configuration, seed: int = 0, device: str | None = None) -> Model:
        """A model with random weights, which costs what trained ones cost."""
        from random import Random

        draw, weights = Random(seed), {}
        for name, shape in shapes_of(configuration).items():
            if len(shape) == 1:
                value = Tensor.zeros(*shape, device=device) + (1 - configuration.norm_offset)
            else:
                Tensor.manual_seed(draw.randrange(1 << 31))
                value = Tensor.randn(*shape, device=device) * shape[-1] ** -0.5
            weights[name] = value.contiguous().realize()
        return cls(configuration, weights)

    def logits(self, tokens: Tensor, count: Any, memory: Memory, last: Any = None) -> Tensor:
        """Logits (vocabulary,) of what follows the last of these tokens.

        tokens  int32, (length,)
        count   how many tokens the sequence has with these: a bound variable, or an int
        memory  has the keys and values of those before, and has those of these tokens afterwards
        last    which of the tokens the logits follow, where not the last one; those behind it are padding
        """
        c, w = self.configuration, self.weights
        length = tokens.shape[0]
        x = w["embedding"][tokens].cast(dtypes.float32)
        if c.embedding_scale != 1.0:
            x = x * c.embedding_scale
        if not c.rotary_base:
            x = x + w["positions"][memory.places[count - length : count]].cast(dtypes.float32)
        for layer in range(c.depth):
            y = self._attention(layer, self._norm(f"{layer}.before", x), count, memory)
            x = x + self._norm(f"{layer}.after_attention", y, is_optional=True)
            y = self._feed_forward(layer, self._norm(f"{layer}.between", x))
            x = x + self._norm(f"{layer}.after_feed_forward", y, is_optional=True)
        x = self._norm("norm", x[length - 1 if last is None else last].reshape(1, c.width))
        found = (
            x.linear(w["head"] if "head" in w else w["embedding"]).cast(dtypes.float32).reshape(c.vocabulary)
        )
        return _capped(found, c.cap)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        y = x.linear(self.weights[name])
        bias = self.weights.get(f"{name}.bias")
        return y if bias is None else y + bias

    def _norm(self, name: str, x: Tensor, is_optional: bool = False) -> Tensor:
        weight = self.weights.get(name)
        if weight is None:
            assert is_optional, name
            return x
        c = self.configuration
        size = x.shape[-1]
        if c.has_layer_norm:
            return x.layer_norm((size,), weight, self.weights.get(f"{name}.bias"), c.epsilon)
        return x.rms_norm((size,), weight + c.norm_offset if c.norm_offset else weight, c.epsilon)

    def _feed_forward(self, layer: int, x: Tensor) -> Tensor:
        c = self.configuration
        name = f"{layer}.gate" if c.is_gated else f"{layer}.up"
        y = self._linear(name, x)
        smooth = "tanh" if c.activation == "gelu_tanh" else "none"
        y = y.silu() if c.activation == "silu" else y.gelu(approximate=smooth)
        if c.is_gated:
            y = y * self._linear(f"{layer}.up", x)
        return self._linear(f"{layer}.down", y)

    def _attention(self, layer: int, x: Tensor, count: Any, memory: Memory) -> Tensor:
        c = self.configuration
        length, group = x.shape[0], c.heads // c.kv_heads
        q = self._heads(layer, "q", x, c.heads)
        k = self._heads(layer, "k", x, c.kv_heads)
        v = self._linear(f"{layer}.v", x).reshape(length, c.kv_heads, c.head_size).swapaxes(0, 1)
        if memory.turns is not None:
            cosines, sines = (turn[count - length : count] for turn in memory.turns)
            q, k = (self._turned(side, cosines, sines) for side in (q, k))
        keys, values = memory.keys[layer], memory.values[layer]
        keys[:, count - length : count] = k
        values[:, count - length : count] = v
        # the heads of a group look at the same keys, one below the other
        q = q.reshape(c.kv_heads, group * length, c.head_size)
        window = c.window_of(layer)
        window = window if window < memory.room else 0
        mask = None
        if length == 1:
            keys, values = keys[:, :count], values[:, :count]
            if window:
                mask = memory.places[:count] > Tensor(count - 1 - window, device=x.device)
        else:
            here = memory.places[count - length : count].reshape(length, 1)
            mask = memory.places <= here
            if window:
                mask = mask & (memory.places > here - window)
            mask = mask.reshape(1, length, memory.room).expand(group, length, memory.room)
            mask = mask.reshape(group * length, memory.room)
        scale = c.attention_scale or c.head_size**-0.5
        if c.attention_cap:
            scores = _capped((q @ keys.swapaxes(1, 2)) * scale, c.attention_cap)
            if mask is not None:
                scores = mask.where(scores, -math.inf)
            found = scores.softmax(-1) @ values
        else:
            found = q.scaled_dot_product_attention(keys, values, attn_mask=mask, scale=scale)
        found = found.reshape(c.heads, length, c.head_size).swapaxes(0, 1)
        return self._linear(f"{layer}.out", found.reshape(length, c.heads * c.head_size))

    def _heads(self, layer: int, side: str, x: Tensor, heads: int) -> Tensor:
        """(heads, length, head_size), with a norm of each head's own where there is one."""
        y = self._linear(f"{layer}.{side}", x).reshape(x.shape[0], heads, self.configuration.head_size)
        return self._norm(f"{layer}.{side}_norm", y, is_optional=True).swapaxes(0, 1)

    def _turned(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """Pairs of numbers turned by their places' angles; (heads, length, head_size)."""
        c = self.configuration
        heads, length, size = x.shape
        half = c.rotary_size // 2
        if c.is_interleaved:
            pairs = x[..., : c.rotary_size].reshape(heads, length, half, 2)
            a, b = pairs[..., 0], pairs[..., 1]
            turned = Tensor.stack([a * cosines - b * sines, b * cosines + a * sines], -1)
            turned = turned.reshape(heads, length, c.rotary_size)
        else:
            a, b = x[..., :half], x[..., half : c.rotary_size]
            turned = Tensor.cat([a * cosines - b * sines, b * cosines + a * sines], -1)
        return turned if c.rotary_size == size else Tensor.cat([turned, x[..., c.rotary_size :]], -1)


def _capped(x: Tensor, cap: float) -> Tensor:
    return (x / cap).tanh() * cap if cap else x
