"""Random layers besides dropout: choices that gradients pass, and slopes that are drawn.

In       tensors
Out      gumbel_softmax, rrelu, rrelu_
Changes  the counter of the device's random numbers; rrelu_, its tensor
Next     functional.py (who asks; dropout)
Source   Jang, Gu and Poole 2016, "Categorical Reparameterization with Gumbel-Softmax"; Xu et al. 2015 (rrelu)
"""

from __future__ import annotations

from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.base import in_float_together
from hcq.frontend.tensor import Tensor


@checked
@in_float_together
def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Shares along an axis that come near one choice, drawn as likely as its logit says, the lower tau is.

    hard   1 for that choice and 0 for others, with the gradient of the shares

    >>> F = nn.functional
    >>> F.gumbel_softmax(Tensor([0.0, 100.0]), hard=True).round().tolist()
    [0.0, 1.0]
    """
    if not tau > 0.0:
        raise UsageError(f"[gumbel_softmax] tau={tau}: it has to be above 0.")
    waits = logits._waits(logits.shape, None)
    shares = ((logits - waits.clamp(2.0**-126).log()) / tau).softmax(dim)
    if not hard:
        return shares
    chosen = shares.detach().argmax(dim, keepdim=True)
    hot = shares.detach().zeros_like().scatter(dim, chosen, 1.0)
    return hot - shares.detach() + shares  # type: ignore[no-any-return]


@checked
def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8.0,
    upper: float = 1.0 / 3.0,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """leaky_relu whose slope below zero is drawn for each element in training, else the middle of both bounds.

    >>> nn.functional.rrelu(Tensor([-24.0, 3.0])).tolist()
    [-5.5, 3.0]
    """
    if not lower <= upper:
        raise UsageError(f"[rrelu] lower={lower}, upper={upper}: give the lower one first.")
    if training:
        slopes = input._numbers("rand", input.shape, None) * (upper - lower) + lower
        y = (input < 0.0).where(input * slopes, input)
    else:
        y = input.leaky_relu((lower + upper) / 2.0)
    return input._written("rrelu_", y) if inplace else y  # type: ignore[no-any-return]


@checked
def rrelu_(
    input: Tensor, lower: float = 1.0 / 8.0, upper: float = 1.0 / 3.0, training: bool = False
) -> Tensor:
    """`rrelu` in place.

    >>> nn.functional.rrelu_(Tensor([-24.0, 3.0])).tolist()
    [-5.5, 3.0]
    """
    return input.copy_(rrelu(input, lower, upper, training))
