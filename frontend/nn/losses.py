"""Losses as modules: one number to make small, from what a model gave and what it should have given.

In       predictions and targets
Out      cross entropies, differences, margins: `CrossEntropyLoss`, `MSELoss`, `TripletMarginLoss`, ...
Next     functional.py (the same as functions), ops/loss.py and ops/margins.py (what they compute)

`reduction` is "mean", "sum" or "none"; a tensor of weights that a loss is given is a buffer, which moves with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.nn import functional as F
from hcq.frontend.nn.layers.linear import Linear
from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType


class _Loss(Module):
    """A method of the prediction, given the targets and the options by name."""

    method = ""
    options: tuple[str, ...] = ()

    def __init__(self, reduction: str = "mean"):
        self._set(reduction)

    def _set(self, reduction: str, **options: Any) -> None:
        allowed = (
            ("mean", "sum", "none", "batchmean") if isinstance(self, KLDivLoss) else ("mean", "sum", "none")
        )
        if reduction not in allowed:
            raise UsageError(
                f"[{type(self).__name__}] reduction={shown(reduction)}: use one of {list(allowed)}."
            )
        self.reduction = reduction
        for name, value in options.items():
            if name in ("weight", "pos_weight"):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The prediction and what it is compared with -> of shape () for "mean" and "sum"."""
        return self._of(input, target)

    def _of(self, first: Tensor, *others: Tensor) -> Tensor:
        options = {name: getattr(self, name) for name in self.options}
        return getattr(first, self.method)(*others, reduction=self.reduction, **options)


class _Pair(_Loss):
    """A loss of two predictions and how they should be to each other."""

    options = ("margin",)

    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        self._set(reduction, margin=margin)

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        """Of shape () for "mean" and "sum"."""
        return self._of(input1, input2, target)


class _Triplet(_Loss):
    """A loss of an anchor, what should be near it and what should be far."""

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:  # type: ignore[override]
        """Of shape () for "mean" and "sum"."""
        return self._of(anchor, positive, negative)


class CrossEntropyLoss(_Loss):
    """Of logits (n, classes, ...) and class numbers (n, ...) or probabilities (n, classes, ...).

    weight, ignore_index, label_smoothing   as in Tensor.cross_entropy

    >>> nn.CrossEntropyLoss()(Tensor([[0.0, 0.0]]), hcq.tensor([1])).item()
    0.6931471824645996
    """

    method, options = "cross_entropy", ("weight", "ignore_index", "label_smoothing")

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ):
        self._set(reduction, weight=weight, ignore_index=ignore_index, label_smoothing=label_smoothing)


class NLLLoss(_Loss):
    """Of logarithms of probabilities (n, classes, ...) and class numbers (n, ...); see Tensor.nll_loss.

    >>> nn.NLLLoss(ignore_index=-1)(Tensor([[-1.0, -2.0], [-3.0, -4.0]]), hcq.tensor([1, -1])).item()
    2.0
    """

    method, options = "nll_loss", ("weight", "ignore_index")

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"):
        self._set(reduction, weight=weight, ignore_index=ignore_index)


class NLLLoss2d(NLLLoss):
    """NLLLoss, under an older name.

    >>> nn.NLLLoss2d()(Tensor([[[[-1.0]], [[-2.0]]]]), hcq.tensor([[[1]]])).item()
    2.0
    """


class MSELoss(_Loss):
    """The squared difference of two tensors of one shape.

    >>> nn.MSELoss()(Tensor([1.0, 4.0]), Tensor([0.0, 2.0])).item()
    2.5
    """

    method = "mse_loss"


class L1Loss(_Loss):
    """The absolute difference of two tensors of one shape.

    >>> nn.L1Loss()(Tensor([1.0, 4.0]), Tensor([0.0, 2.0])).item()
    1.5
    """

    method = "l1_loss"


class SmoothL1Loss(_Loss):
    """A square up to beta, divided by it, and a line beyond.

    >>> nn.SmoothL1Loss(reduction="none", beta=2.0)(Tensor([0.5, 3.0]), Tensor([0.0, 0.0])).tolist()
    [0.0625, 2.0]
    """

    method, options = "smooth_l1_loss", ("beta",)

    def __init__(self, reduction: str = "mean", beta: float = 1.0):
        self._set(reduction, beta=beta)


class HuberLoss(_Loss):
    """Half a square up to delta, and a line beyond.

    >>> nn.HuberLoss(reduction="none")(Tensor([0.5, 3.0]), Tensor([0.0, 0.0])).tolist()
    [0.125, 2.5]
    """

    method, options = "huber_loss", ("delta",)

    def __init__(self, reduction: str = "mean", delta: float = 1.0):
        self._set(reduction, delta=delta)


class BCELoss(_Loss):
    """The cross entropy of probabilities and probabilities of one class, of one shape.

    >>> print(nn.BCELoss()(Tensor([0.5, 0.5]), Tensor([1.0, 0.0])))
    tensor(0.6931)
    """

    method, options = "binary_cross_entropy", ("weight",)

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean"):
        self._set(reduction, weight=weight)


class BCEWithLogitsLoss(_Loss):
    """The cross entropy of logits and probabilities of one class, of one shape; nothing overflows.

    pos_weight   multiplies the part of target 1

    >>> nn.BCEWithLogitsLoss(reduction="sum")(Tensor([1000.0]), Tensor([0.0])).item()
    1000.0
    """

    method, options = "binary_cross_entropy_with_logits", ("weight", "pos_weight")

    def __init__(
        self, weight: Tensor | None = None, reduction: str = "mean", pos_weight: Tensor | None = None
    ):
        self._set(reduction, weight=weight, pos_weight=pos_weight)


class KLDivLoss(_Loss):
    """target * (log(target) - prediction), of logarithms; reduction "batchmean" divides by the first size.

    >>> logs = Tensor([[0.5, 0.5], [0.5, 0.5]]).log()
    >>> print(nn.KLDivLoss(reduction="batchmean")(logs, Tensor([[1.0, 0.0], [0.0, 1.0]])))
    tensor(0.6931)
    """

    method, options = "kl_div", ("log_target",)

    def __init__(self, reduction: str = "mean", log_target: bool = False):
        self._set(reduction, log_target=log_target)


class PoissonNLLLoss(_Loss):
    """How unlikely counts are under Poisson distributions of these rates, or logarithms of rates.

    >>> nn.PoissonNLLLoss()(Tensor([0.0]), Tensor([3.0])).item()
    1.0
    """

    method, options = "poisson_nll_loss", ("log_input", "full", "eps")

    def __init__(
        self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
    ):
        self._set(reduction, log_input=log_input, full=full, eps=eps)


class GaussianNLLLoss(_Loss):
    """How unlikely targets are under normal distributions: prediction, target, variance.

    >>> nn.GaussianNLLLoss()(Tensor([1.0]), Tensor([3.0]), Tensor([1.0])).item()
    2.0
    """

    method, options = "gaussian_nll_loss", ("full", "eps")

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
        self._set(reduction, full=full, eps=eps)

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:  # type: ignore[override]
        """Means, targets and variances -> of shape () for "mean" and "sum"."""
        return self._of(input, target, var)


class HingeEmbeddingLoss(_Loss):
    """The distance where the target is 1, max(0, margin - distance) where it is -1.

    >>> nn.HingeEmbeddingLoss(reduction="none")(Tensor([0.25, 0.25]), hcq.tensor([1, -1])).tolist()
    [0.25, 0.75]
    """

    method, options = "hinge_embedding_loss", ("margin",)

    def __init__(self, margin: float = 1.0, reduction: str = "mean"):
        self._set(reduction, margin=margin)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * x)), of targets 1 and -1.

    >>> print(nn.SoftMarginLoss()(Tensor([0.0]), Tensor([1.0])))
    tensor(0.6931)
    """

    method = "soft_margin_loss"


class MultiMarginLoss(_Loss):
    """max(0, margin - x[target] + x) ** p over the other classes.

    >>> nn.MultiMarginLoss()(Tensor([[0.5, 2.0, 0.25, 0.0]]), hcq.tensor([0])).item()
    0.9375
    """

    method, options = "multi_margin_loss", ("p", "margin", "weight")

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, reduction: str = "mean"
    ):
        if p not in (1, 2):
            raise UsageError(f"[MultiMarginLoss] p={shown(p)}: use 1 or 2.")
        self._set(reduction, p=p, margin=margin, weight=weight)


class MultiLabelSoftMarginLoss(_Loss):
    """The mean over classes of the cross entropy of each class and its target, 0 or 1.

    >>> print(nn.MultiLabelSoftMarginLoss()(Tensor([[0.0, 0.0]]), Tensor([[1.0, 0.0]])))
    tensor(0.6931)
    """

    method, options = "multilabel_soft_margin_loss", ("weight",)

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean"):
        self._set(reduction, weight=weight)


class MultiLabelMarginLoss(_Loss):
    """max(0, 1 - x[target] + x) over the classes that are no targets; a target ends with -1.

    >>> nn.MultiLabelMarginLoss()(Tensor([[0.5, 0.25]]), hcq.tensor([[0, -1]])).item()
    0.375
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """(batch, classes) or (classes,), and classes of that shape -> of shape () for "mean" and "sum"."""
        return F.multilabel_margin_loss(input, target, self.reduction)  # type: ignore[no-any-return]


class CTCLoss(_Loss):
    """Minus the logarithm of the probability of a sequence, summed over all ways to stretch it over time.

    blank           the class that stands between elements
    zero_infinity   a target that does not fit its time costs 0, and not infinity
    Source          Graves et al. 2006

    >>> logits = Tensor.zeros(4, 1, 3)
    >>> print(nn.CTCLoss(reduction="sum")(logits.log_softmax(2), hcq.tensor([[1, 2]]), (4,), (2,)))
    tensor(1.6864)
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False):
        self._set(reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(  # type: ignore[override]
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        """(time, batch, classes), targets (batch, longest) or in one row, and lengths; see functional.ctc_loss."""
        return F.ctc_loss(  # type: ignore[no-any-return]
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )


class LinearCrossEntropyLoss(_Loss):
    """CrossEntropyLoss of a linear layer of its own: (n, in_features) and class numbers (n, *out_features).

    out_features   further axes of the logits: (n, num_classes, *out_features)
    options        says how PyTorch cuts the work; the compiler decides that here

    >>> loss = nn.LinearCrossEntropyLoss(4, 3)
    >>> list(loss.state_dict()), loss(Tensor.ones(2, 4), hcq.tensor([0, 2])).shape
    (['linear.weight'], ())
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: Any = None,
    ):
        self._set(reduction, weight=weight)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing
        self.num_classes, self.out_features = num_classes, tuple(out_features)
        self.linear = Linear(in_features, num_classes * math.prod(self.out_features), bias, device, dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """(n, in_features) or (in_features,), and classes -> of shape () for "mean" and "sum"."""
        shape = (self.num_classes, *self.out_features)
        shift = self.linear.bias
        return F.linear_cross_entropy(  # type: ignore[no-any-return]
            input,
            self.linear.weight.reshape(*shape, -1),
            target,
            linear_bias=None if shift is None else shift.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )


class MarginRankingLoss(_Pair):
    """max(0, margin - target * (x1 - x2)): x1, x2, target.

    >>> nn.MarginRankingLoss(margin=0.5)(Tensor([2.0]), Tensor([1.0]), hcq.tensor([-1])).item()
    1.5
    """

    method = "margin_ranking_loss"


class CosineEmbeddingLoss(_Pair):
    """1 - cosine where the target is 1, max(0, cosine - margin) where it is -1: x1, x2, target.

    >>> x = Tensor([[1.0, 0.0]])
    >>> nn.CosineEmbeddingLoss(margin=0.25)(x, x, hcq.tensor([-1])).item()
    0.75
    """

    method = "cosine_embedding_loss"


class TripletMarginLoss(_Triplet):
    """max(0, margin + distance to the positive - distance to the negative): anchor, positive, negative.

    >>> print(nn.TripletMarginLoss()(Tensor([[0.0]]), Tensor([[2.0]]), Tensor([[1.0]])))
    tensor(2.)
    """

    method, options = "triplet_margin_loss", ("margin", "p", "eps", "swap")

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
    ):
        self._set(reduction, margin=margin, p=p, eps=eps, swap=swap)


class TripletMarginWithDistanceLoss(_Triplet):
    """TripletMarginLoss of a distance of one's own.

    >>> loss = nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: (a - b).abs().sum(-1))
    >>> loss(Tensor([[0.0]]), Tensor([[2.0]]), Tensor([[1.0]])).item()
    2.0
    """

    method, options = "triplet_margin_with_distance_loss", ("distance_function", "margin", "swap")

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ):
        if distance_function is not None and not callable(distance_function):
            raise UsageError(
                f"[TripletMarginWithDistanceLoss] {shown(distance_function)}: give a function of two tensors."
            )
        self._set(reduction, distance_function=distance_function, margin=margin, swap=swap)
