"""A transformer that can be divided: over ranks that share each layer, and into stages that follow each other.

In       token numbers (batch, tokens)
Out      `Transformer`: logits (batch, tokens, vocabulary); `stage`, some of its layers as a model of their own
Changes  draws its first weights, the same on every rank that has the same seed
Next     tensor_parallel.py (layers divided over ranks), pipeline.py (stages), examples/train_distributed.py
Source   Vaswani et al. 2017; Radford et al. 2019 (norms before, learned positions)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hcq.errors import UsageError
from hcq.frontend.more.distributed.group import Group
from hcq.frontend.more.distributed.tensor_parallel import ColumnLinear, RowLinear, enter
from hcq.frontend.nn.containers import ModuleList
from hcq.frontend.nn.layers.embedding import Embedding
from hcq.frontend.nn.layers.linear import Linear
from hcq.frontend.nn.layers.norm import LayerNorm
from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor


class Sizes(NamedTuple):
    """How large a transformer is.

    >>> hcq.distributed.Sizes(layers=2).layers
    2
    """

    vocabulary: int = 96
    tokens: int = 64
    width: int = 128
    heads: int = 4
    layers: int = 4


class Block(Module):
    """Attention and a perceptron, each behind a norm and beside a way around it. (n, t, width) -> the same.

    group  divides heads and hidden units over its ranks, each of which draws all weights and keeps its part
    """

    def __init__(self, sizes: Sizes, group: Group | None = None):
        width = sizes.width
        parts = 1 if group is None else group.size
        if width % sizes.heads or sizes.heads % parts:
            raise UsageError(
                f"[Block] width {width}, {sizes.heads} heads, {parts} ranks: the heads must divide the width, and "
                "the ranks the heads."
            )
        self.group = group
        self.heads, self.head_width = sizes.heads // parts, width // sizes.heads
        self.norm1, self.norm2 = LayerNorm(width), LayerNorm(width)
        query, key, value = (Linear(width, width) for _ in range(3))
        out, up, down = Linear(width, width), Linear(width, 4 * width), Linear(4 * width, width)
        layers: dict[str, Module] = dict(query=query, key=key, value=value, out=out, up=up, down=down)
        if group is not None:
            rows = ("out", "down")
            layers = {
                name: RowLinear(layer, group) if name in rows else ColumnLinear(layer, group, name == "up")
                for name, layer in layers.items()
                if isinstance(layer, Linear)
            }
        self.query, self.key, self.value = layers["query"], layers["key"], layers["value"]
        self.out, self.up, self.down = layers["out"], layers["up"], layers["down"]

    def forward(self, x: Tensor) -> Tensor:
        """(n, t, width) -> (n, t, width); no token sees those after it."""
        n, t, _ = x.shape
        y = self.norm1(x) if self.group is None else enter(self.norm1(x), self.group)
        q, k, v = (
            part(y).reshape(n, t, self.heads, self.head_width).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        y = q.scaled_dot_product_attention(k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, self.heads * self.head_width))
        return x + self.down(self.up(self.norm2(x)).gelu())


class Transformer(Module):
    """A decoder. (n, t) token numbers -> (n, t, vocabulary) logits, with t at most sizes.tokens.

    stage  which of how many stages this is, as (0, 2): the first begins with the embedding, the last ends with the
           logits

    >>> sizes = hcq.distributed.Sizes(vocabulary=10, tokens=8, width=16, heads=2, layers=1)
    >>> hcq.distributed.Transformer(sizes)(hcq.tensor([[1, 2, 3]])).shape
    (1, 3, 10)
    """

    def __init__(self, sizes: Sizes, group: Group | None = None, stage: tuple[int, int] = (0, 1)):
        number, stages = stage
        if not 0 <= number < stages <= sizes.layers:
            raise UsageError(f"[Transformer] stage {stage} of {sizes.layers} layers: there is no such stage.")
        self.sizes, self.is_first, self.is_last = sizes, number == 0, number == stages - 1
        tokens, positions = Embedding(sizes.vocabulary, sizes.width), Embedding(sizes.tokens, sizes.width)
        # every stage draws the weights of all, so that they do not depend on the number of stages
        blocks = [Block(sizes, group) for _ in range(sizes.layers)]
        norm, head = LayerNorm(sizes.width), Linear(sizes.width, sizes.vocabulary)
        first, end = sizes.layers * number // stages, sizes.layers * (number + 1) // stages
        self.first_layer = first
        self.blocks = ModuleList(blocks[first:end])
        if self.is_first:
            for each in (tokens, positions):
                each.weight.assign(each.weight.detach() * 0.05).realize()
            self.tokens, self.positions = tokens, positions
            self.numbers = Tensor.arange(sizes.tokens).realize()
        if self.is_last:
            self.norm, self.head = norm, head

    buffers_of_class = ("numbers",)

    def forward(self, x: Any) -> Tensor:
        """Tokens, or what the stage before made, to logits, or to what the stage after takes."""
        if self.is_first:
            x = self.tokens(x) + self.positions(self.numbers[: x.shape[1]])
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) if self.is_last else x


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean cross entropy of the next tokens. (n, t, vocabulary), (n, t) -> ().

    >>> logits = Tensor.zeros(1, 2, 4)
    >>> print(hcq.distributed.loss_of(logits, hcq.tensor([[0, 3]])))
    tensor(1.3863)
    """
    return logits.reshape(-1, logits.shape[-1]).cross_entropy(targets.reshape(-1))
