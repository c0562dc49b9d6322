"""Losses as modules: one number to make small, from what a model gave and what it should have given.

In       predictions and targets
Out      `CrossEntropyLoss`, `NLLLoss`, `MSELoss`, `L1Loss`, `BCEWithLogitsLoss`
Changes  nothing
Next     functional.py (the same as functions)
"""

from __future__ import annotations

from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor


class CrossEntropyLoss(Module):
    """Of logits (n, classes, ...) and class numbers (n, ...) or probabilities (n, classes, ...).

    ignore_index, reduction, label_smoothing   as in Tensor.cross_entropy
    """

    def __init__(self, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0):
        self.ignore_index, self.reduction, self.label_smoothing = ignore_index, reduction, label_smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Of shape () for "mean" and "sum", (n, ...) for "none"."""
        return x.cross_entropy(
            target,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(Module):
    """Of logarithms of probabilities (n, classes, ...) and class numbers (n, ...); see Tensor.nll_loss."""

    def __init__(self, ignore_index: int = -100, reduction: str = "mean"):
        self.ignore_index, self.reduction = ignore_index, reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Of shape () for "mean" and "sum", (n, ...) for "none"."""
        return x.nll_loss(target, ignore_index=self.ignore_index, reduction=self.reduction)


class MSELoss(Module):
    """The squared difference of two tensors of one shape."""

    def __init__(self, reduction: str = "mean"):
        self.reduction = reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Of shape () for "mean" and "sum", of the target's shape for "none"."""
        return x.mse_loss(target, reduction=self.reduction)


class L1Loss(Module):
    """The absolute difference of two tensors of one shape."""

    def __init__(self, reduction: str = "mean"):
        self.reduction = reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Of shape () for "mean" and "sum", of the target's shape for "none"."""
        return x.l1_loss(target, reduction=self.reduction)


class BCEWithLogitsLoss(Module):
    """The cross entropy of logits and probabilities of one class, of one shape; nothing overflows."""

    def __init__(self, reduction: str = "mean"):
        self.reduction = reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Of shape () for "mean" and "sum", of the target's shape for "none"."""
        return x.binary_cross_entropy_with_logits(target, reduction=self.reduction)
