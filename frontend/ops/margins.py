"""Margins: losses that ask for a distance, of pairs and triplets, and the distances themselves.

In       predictions and targets, pairs of vectors
Out      lazy tensors: of shape () for "mean" and "sum", of the elements' shape for "none"
Next     loss.py (squares and cross entropies)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import iota
from hcq.frontend.ops.base import Methods, Self, in_float_together


class Margins(Methods):
    """pairwise_distance, cdist, pdist; margin, hinge, triplet, Poisson and Gaussian losses."""

    __slots__ = ()

    # -- distances --

    @in_float_together
    def pairwise_distance(
        self, other: Self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
    ) -> Self:
        """The norm of self - other + eps along the last axis.

        >>> print(Tensor([[0.0, 0.0]]).pairwise_distance(Tensor([[3.0, 4.0]])))
        tensor([5.0000])
        """
        return (self - other + eps).norm(p, -1, keepdim)

    @in_float_together
    def cdist(self, other: Self, p: float = 2.0, compute_mode: str = "") -> Self:
        """The distance of every row of one matrix and every row of another: (..., n, d), (..., m, d) -> (..., n, m).

        compute_mode   may be given, and has no effect: differences are taken before they are squared

        >>> Tensor([[0.0, 0.0]]).cdist(Tensor([[3.0, 4.0], [0.0, 1.0]])).tolist()
        [[5.0, 1.0]]
        """
        a, b = self.node.shape, other.node.shape
        if len(a) < 2 or len(b) < 2 or a[-1] != b[-1]:
            raise UsageError(f"[cdist] {a} and {b}: give matrices whose rows are of one size.")
        return (self.unsqueeze(-2) - other.unsqueeze(-3)).norm(p, -1)

    @in_float_together
    def pdist(self, p: float = 2.0) -> Self:
        """The distance of every pair of rows of a matrix, in the order of the pairs: (n, d) -> (n (n - 1) / 2,).

        >>> Tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 4.0]]).pdist().tolist()
        [5.0, 4.0, 3.0]
        """
        if len(self.node.shape) != 2:
            raise UsageError(f"[pdist] shape {self.node.shape}: give a matrix.")
        self._refuse_cut("pdist")
        n = self.node.shape[0]
        pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
        if not pairs:
            return self._part(0, 0, 0).sum(1)
        left, right = ([pair[side] for pair in pairs] for side in (0, 1))
        return (self[left] - self[right]).norm(p, -1)

    # -- of one prediction --

    @in_float_together
    def soft_margin_loss(self, target: Self, reduction: str = "mean") -> Self:
        """log(1 + exp(-target * x)), for targets 1 and -1.

        >>> print(Tensor([0.0, 2.0]).soft_margin_loss(Tensor([1.0, -1.0]), reduction="none"))
        tensor([0.6931, 2.1269])
        """
        return (-(target * self).logsigmoid())._reduced("soft_margin_loss", reduction)

    @in_float_together
    def hinge_embedding_loss(self, target: Self, margin: float = 1.0, reduction: str = "mean") -> Self:
        """x where the target is 1, and max(0, margin - x) where it is -1.

        >>> Tensor([0.25, 0.25]).hinge_embedding_loss(hcq.tensor([1, -1]), reduction="none").tolist()
        [0.25, 0.75]
        """
        far = (target != 1).where((margin - self).clamp(min=0.0), 0.0)
        near = (target != -1).where(self, 0.0)
        return (far + near)._reduced("hinge_embedding_loss", reduction)

    @in_float_together
    def poisson_nll_loss(
        self,
        target: Self,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-8,
        reduction: str = "mean",
    ) -> Self:
        """exp(x) - target * x, or x - target * log(x + eps); `full` adds Stirling's term for targets above 1.

        >>> Tensor([0.0]).poisson_nll_loss(Tensor([3.0])).item()
        1.0
        """
        points = self.exp() - target * self if log_input else self - target * (self + eps).log()
        if full:
            stirling = target * target.log() - target + 0.5 * (2.0 * math.pi * target).log()
            points = points + (target > 1).where(stirling, 0.0)
        return points._reduced("poisson_nll_loss", reduction)

    @in_float_together
    def gaussian_nll_loss(
        self, target: Self, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
    ) -> Self:
        """(log(var) + (x - target) ** 2 / var) / 2; var is never less than eps. `full` adds log(2 pi) / 2.

        >>> Tensor([1.0]).gaussian_nll_loss(Tensor([3.0]), Tensor([1.0])).item()
        2.0
        """
        spread = self._operand("gaussian_nll_loss", var)
        if spread.node.shape and spread.node.shape != self.node.shape:
            if spread.node.shape == self.node.shape[:-1]:
                spread = spread.unsqueeze(-1)
        bounded = spread + (spread.clamp(min=eps) - spread).detach()
        points = 0.5 * (bounded.log() + (self - target).square() / bounded)
        if full:
            points = points + 0.5 * math.log(2.0 * math.pi)
        return points._reduced("gaussian_nll_loss", reduction)

    @in_float_together
    def multilabel_soft_margin_loss(
        self, target: Self, weight: Self | None = None, reduction: str = "mean"
    ) -> Self:
        """The mean over classes of the cross entropy of each class and its target, 0 or 1.

        >>> print(Tensor([[0.0, 0.0]]).multilabel_soft_margin_loss(Tensor([[1.0, 0.0]])))
        tensor(0.6931)
        """
        points = -(target * self.logsigmoid() + (1.0 - target) * (-self).logsigmoid())
        points = points if weight is None else points * weight
        return points.mean(-1)._reduced("multilabel_soft_margin_loss", reduction)

    @in_float_together
    def multi_margin_loss(
        self,
        target: Self,
        p: int = 1,
        margin: float = 1.0,
        weight: Self | None = None,
        reduction: str = "mean",
    ) -> Self:
        """The mean over the other classes of max(0, margin - x[target] + x) ** p: (batch, classes) and (batch,).

        >>> Tensor([[0.5, 2.0, 0.25, 0.0]]).multi_margin_loss(hcq.tensor([1])).item()
        0.0
        """
        x = self if len(self.node.shape) == 2 else self._reshape((1, self.numel()))
        if p not in (1, 2):
            raise UsageError(f"[multi_margin_loss] p={p}: use 1 or 2.")
        if target.numel() != x.node.shape[0]:
            raise UsageError(
                f"[multi_margin_loss] target {target.shape} for {self.shape}: give each of "
                f"{x.node.shape[0]} rows one class."
            )
        places = target._reshape((x.node.shape[0], 1))
        size = x.node.shape[1]
        points = (margin - x.gather(1, places) + x).clamp(min=0.0)
        points = points if p == 1 else points.square()
        points = points if weight is None else points * weight[target.flatten()].unsqueeze(1)
        others = self._like(iota(size, 1, x.node.shape)) != places
        points = others.where(points, 0.0).sum(1) / size
        points = points if len(self.node.shape) == 2 else points._reshape(())
        return points._reduced("multi_margin_loss", reduction)

    # -- of two or three --

    @in_float_together
    def margin_ranking_loss(
        self, other: Self, target: Self, margin: float = 0.0, reduction: str = "mean"
    ) -> Self:
        """max(0, margin - target * (self - other)): target 1 asks for self to be the greater.

        >>> Tensor([2.0]).margin_ranking_loss(Tensor([1.0]), hcq.tensor([-1]), margin=0.5).item()
        1.5
        """
        return (margin - target * (self - other)).clamp(min=0.0)._reduced("margin_ranking_loss", reduction)

    @in_float_together
    def cosine_embedding_loss(
        self, other: Self, target: Self, margin: float = 0.0, reduction: str = "mean"
    ) -> Self:
        """1 - cosine where the target is 1, and max(0, cosine - margin) where it is -1.

        >>> x, y = Tensor([[1.0, 0.0], [1.0, 0.0]]), Tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> x.cosine_embedding_loss(y, hcq.tensor([1, -1]), reduction="none").tolist()
        [0.0, 1.0]
        """
        product = (self * other).sum(-1)
        lengths = ((self.square().sum(-1) + 1e-12) * (other.square().sum(-1) + 1e-12)).sqrt()
        cosine = product / lengths
        near = (target == 1).where(1.0 - cosine, 0.0)
        far = (target == -1).where((cosine - margin).clamp(min=0.0), 0.0)
        return (near + far)._reduced("cosine_embedding_loss", reduction)

    @in_float_together
    def triplet_margin_loss(
        self,
        positive: Self,
        negative: Self,
        margin: float = 1.0,
        p: float = 2,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
    ) -> Self:
        """max(0, margin + distance to the positive - distance to the negative).

        swap   the negative's distance to the positive counts, where it is the lesser

        >>> print(Tensor([[0.0]]).triplet_margin_loss(Tensor([[2.0]]), Tensor([[1.0]])))
        tensor(2.)
        """
        near = self.pairwise_distance(positive, p, eps)
        far = self.pairwise_distance(negative, p, eps)
        if swap:
            far = far.minimum(positive.pairwise_distance(negative, p, eps))
        return (margin + near - far).clamp(min=0.0)._reduced("triplet_margin_loss", reduction)

    def triplet_margin_with_distance_loss(
        self,
        positive: Self,
        negative: Self,
        *,
        distance_function: Callable[[Any, Any], Any] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> Self:
        """`triplet_margin_loss` of a distance of one's own.

        >>> near = lambda a, b: (a - b).abs().sum(-1)
        >>> x, same, other = Tensor([[0.0]]), Tensor([[2.0]]), Tensor([[1.0]])
        >>> x.triplet_margin_with_distance_loss(same, other, distance_function=near).item()
        2.0
        """
        distance = distance_function or (lambda a, b: a.pairwise_distance(b))
        if not callable(distance):
            raise UsageError(
                f"[triplet_margin_with_distance_loss] distance_function={shown(distance)}: give a function of two "
                "tensors."
            )
        near, far = distance(self, positive), distance(self, negative)
        if swap:
            far = far.minimum(distance(positive, negative))
        points: Self = (margin + near - far).clamp(min=0.0)
        return points._reduced("triplet_margin_with_distance_loss", reduction)
