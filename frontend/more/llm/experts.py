"""Experts: a feed-forward part of which each token takes some of many, as a router says.

In       states of tokens; a router, and the experts' products, one behind the other
Out      what the chosen experts make of each token, by how likely they are, and what a shared one does
Next     model.py (who asks), configuration.py (`Experts`: how many)
Source   Shazeer et al. 2017; Jiang et al. 2024 (Mixtral); Qwen Team 2024 (shared experts)

The weights of the experts that a token takes are found by their numbers in the kernel that multiplies: the others are
not read, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.frontend.more.llm.configuration import Experts
from hcq.frontend.tensor import Tensor


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
