"""Random layers: dropouts, choices that gradients pass, slopes that are drawn.

In       tensors
Out      dropout, also of whole channels, alpha_dropout, gumbel_softmax, rrelu, rrelu_
Changes  the counter of the device's random numbers; with `inplace`, and by rrelu_, the tensor
Next     functional.py (who asks)
Source   Jang, Gu and Poole 2016, "Categorical Reparameterization with Gumbel-Softmax"; Xu et al. 2015 (rrelu)
"""

from __future__ import annotations

from hcq.frontend.core.errors import UsageError
from hcq.frontend.grad.function import constant_in
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.base import in_float_together
from hcq.frontend.tensor import Tensor
from hcq.ir.node import Shape


@checked
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, each element becomes zero with probability p and the others grow by 1 / (1 - p); else x itself.

    inplace   x becomes the result
    Raises    UsageError for p outside 0 to 1

    >>> x = Tensor([1.0, 2.0])
    >>> nn.functional.dropout(x, training=False).tolist(), nn.functional.dropout(x, 1.0).tolist()
    ([1.0, 2.0], [0.0, 0.0])
    """
    return _stored(input, _dropped("dropout", input, p, training, input.shape), inplace)


@checked
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of (n, channels, length) or (channels, length).

    >>> y = nn.functional.dropout1d(Tensor.ones(4, 3, 50))
    >>> set(y.mean(-1).flatten().tolist()) <= {0.0, 2.0}
    True
    """
    return _stored(
        input, _dropped("dropout1d", input, p, training, _by_channel("dropout1d", input, 1)), inplace
    )


@checked
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of (n, channels, h, w) or (channels, h, w).

    >>> y = nn.functional.dropout2d(Tensor.ones(4, 3, 5, 5))
    >>> set(y.mean((2, 3)).flatten().tolist()) <= {0.0, 2.0}
    True
    """
    return _stored(
        input, _dropped("dropout2d", input, p, training, _by_channel("dropout2d", input, 2)), inplace
    )


@checked
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of (n, channels, d, h, w) or (channels, d, h, w).

    >>> nn.functional.dropout3d(Tensor.ones(1, 2, 1, 1, 1), p=1.0).sum().item()
    0.0
    """
    return _stored(
        input, _dropped("dropout3d", input, p, training, _by_channel("dropout3d", input, 3)), inplace
    )


@checked
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for selu: what is dropped takes its lowest value, and mean 0 and deviation 1 are kept.

    >>> x = Tensor([1.0, 2.0])
    >>> nn.functional.alpha_dropout(x, 0.5).tolist()
    [1.0, 2.0]
    """
    return _stored(input, _alpha_dropped("alpha_dropout", input, p, training, input.shape), inplace)


@checked
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`alpha_dropout` of whole channels: (n, channels, ...).

    >>> nn.functional.feature_alpha_dropout(Tensor([[[1.0, 2.0]]])).tolist()
    [[[1.0, 2.0]]]
    """
    shape = (*input.shape[:2], *(1,) * (input.ndim - 2))
    return _stored(input, _alpha_dropped("feature_alpha_dropout", input, p, training, shape), inplace)


def _stored(x: Tensor, y: Tensor, inplace: bool) -> Tensor:
    """The result; with `inplace`, x as the result."""
    return x._written("dropout_", y) if inplace and y is not x else y  # type: ignore[no-any-return]


def _by_channel(call: str, x: Tensor, rank: int) -> Shape:
    """The shape of what all elements of a channel share."""
    if x.ndim == 2 and rank > 1:  # as PyTorch does: each element is a channel
        return x.shape
    if x.ndim not in (rank + 1, rank + 2):
        raise UsageError(f"[{call}] a tensor of shape {x.shape}: it needs {rank + 1} or {rank + 2} axes.")
    return (*x.shape[: x.ndim - rank], *(1,) * rank)


def _kept(call: str, x: Tensor, p: float, shape: Shape) -> Tensor:
    return Tensor.bernoulli(shape, p=1.0 - p, device=x.device)


def _refuse_probability(call: str, p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise UsageError(f"[{call}] p {p}: a probability is between 0 and 1.")


def _dropped(call: str, x: Tensor, p: float, training: bool, shape: Shape) -> Tensor:
    _refuse_probability(call, p)
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return constant_in(x, x.zeros_like())
    return _kept(call, x, p, shape).where(x * (1.0 / (1.0 - p)), 0.0)


def _alpha_dropped(call: str, x: Tensor, p: float, training: bool, shape: Shape) -> Tensor:
    _refuse_probability(call, p)
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return constant_in(x, x.zeros_like())
    lowest = -1.0507009873554805 * 1.6732632423543772  # selu far below zero
    scale = ((1.0 - p) * (1.0 + p * lowest**2)) ** -0.5
    return _kept(call, x, p, shape).where(x, lowest) * scale - scale * p * lowest


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
    """x above zero; below, x times a number drawn between lower and upper; their mean if not in training.

    >>> nn.functional.rrelu(Tensor([-8.0, 8.0]), lower=0.25, upper=0.75).tolist()
    [-4.0, 8.0]
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
