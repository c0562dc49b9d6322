"""Distances of pairs of vectors, as modules.

In       two tensors
Out      `CosineSimilarity`, `PairwiseDistance`
Next     ops/margins.py (what they compute)
"""

from __future__ import annotations

from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along `dim`.

    >>> print(nn.CosineSimilarity()(Tensor([[1.0, 0.0]]), Tensor([[1.0, 1.0]])))
    tensor([0.7071])
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The shape without `dim`."""
        return x1.cosine_similarity(x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The norm of order p of the difference of vectors along the last axis.

    >>> print(nn.PairwiseDistance()(Tensor([[0.0, 0.0]]), Tensor([[3.0, 4.0]])))
    tensor([5.0000])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The shape without the last axis."""
        return x1.pairwise_distance(x2, self.norm, self.eps, self.keepdim)
