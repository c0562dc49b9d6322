"""Model: what a language model computes of some tokens, given the keys and values of those before.

In       a `Configuration`, weights by our names; tokens and where they stand
Out      logits of what follows
Changes  the `Memory` of where they stand: the tokens' keys and values are written there
Next     configuration.py (what differs), names.py (the weights), memory.py (attention), session.py and batch.py (who
         call it, recorded)
Source   Touvron et al. 2023 (Llama), Su et al. 2021 (rotary positions), Radford et al. 2019 (GPT-2), Gemma Team 2024
         (norms behind)

Nothing about a sequence is kept in the model itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hcq.frontend.more.llm.configuration import Configuration, Experts
from hcq.frontend.more.llm.memory import Piece, Step, capped
from hcq.frontend.more.llm.names import shapes_of
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


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

    def logits(self, tokens: Tensor, where: Piece | Step) -> Tensor:
        """Logits (n, vocabulary) of what follows tokens: the last one of a `Piece`, each one of a `Step`.

        tokens  int32, (length,)
        where   where they stand; its memory has the keys and values of those before, and then of these
        """
        c, w = self.configuration, self.weights
        x = w["embedding"][tokens].cast(dtypes.float32)
        if c.embedding_scale != 1.0:
            x = x * c.embedding_scale
        if where.memory.positions is not None:
            x = x + where.rows(where.memory.positions)
        for layer in range(c.depth):
            y = self._attention(layer, self._norm(f"{layer}.before", x), where)
            x = x + self._norm(f"{layer}.after_attention", y, is_optional=True)
            y = self._feed_forward(layer, self._norm(f"{layer}.between", x))
            x = x + self._norm(f"{layer}.after_feed_forward", y, is_optional=True)
        x = self._norm("norm", where.wanted(x))
        return capped(x.linear(w["head"] if "head" in w else w["embedding"]).cast(dtypes.float32), c.cap)

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
        if (experts := c.experts_of(layer)) is not None:
            return mixture(x, experts, lambda name: self.weights[f"{layer}.{name}"], self._bent)
        y = self._bent(self._linear(f"{layer}.gate" if c.is_gated else f"{layer}.up", x))
        if c.is_gated:
            y = y * self._linear(f"{layer}.up", x)
        return self._linear(f"{layer}.down", y)

    def _bent(self, x: Tensor) -> Tensor:
        """The activation."""
        kind = self.configuration.activation
        return x.silu() if kind == "silu" else x.gelu(approximate="tanh" if kind == "gelu_tanh" else "none")

    def _attention(self, layer: int, x: Tensor, where: Piece | Step) -> Tensor:
        c = self.configuration
        length = x.shape[0]
        q = self._heads(layer, "q", x, c.heads)
        k = self._heads(layer, "k", x, c.kv_heads)
        v = self._linear(f"{layer}.v", x).reshape(length, c.kv_heads, c.head_size).swapaxes(0, 1)
        if (table := where.memory.turns_of(layer)) is not None:
            cosines, sines = map(where.rows, table)
            q, k = (self._turned(side, cosines, sines) for side in (q, k))
        found = where.attend(layer, q, k, v).swapaxes(0, 1)
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


# -- a feed-forward part of which each token takes some of many, as a router says --------------------------------------


def mixture(
    x: Tensor, experts: Experts, weight: Callable[[str], Tensor], bend: Callable[[Tensor], Tensor]
) -> Tensor:
    """The sum over the experts that each token takes.

    x       (tokens, width)
    weight  router (experts, width), gate_experts and up_experts (experts, inner, width), down_experts (experts, width,
            inner), and of a shared expert shared_gate, shared_up, shared_down and shared_router
    bend    the activation
    Returns (tokens, width)
    """
    count, width = x.shape
    shares, chosen = x.linear(weight("router")).softmax(-1).topk(experts.used, -1)
    if experts.is_normed:
        shares = shares / shares.sum(-1, keepdim=True)

    def product(name: str, y: Tensor) -> Tensor:
        """Each token's experts' (tokens, used, outputs) of (tokens, used or 1, inputs)."""
        return (weight(name)[chosen] * y.reshape(count, y.shape[1], 1, y.shape[2])).sum(-1)

    alone = x.reshape(count, 1, width)
    inner = bend(product("gate_experts", alone)) * product("up_experts", alone)
    found = (product("down_experts", inner) * shares.reshape(count, experts.used, 1)).sum(1)
    if experts.shared:
        inner = bend(x.linear(weight("shared_gate"))) * x.linear(weight("shared_up"))
        share = x.linear(weight("shared_router").reshape(1, width)).sigmoid()
        found = found + inner.linear(weight("shared_down")) * share
    return found
