"""Transforms of vectors and matrices: onto shares that add up to 1, onto triangles; and of parts of a tensor.

In       tensors
Out      `SoftmaxTransform`, `StickBreakingTransform`, `LowerCholeskyTransform`, `CorrCholeskyTransform`, ...,
         `CatTransform`, `StackTransform`
Next     transforms.py (the base, and those of single numbers)
Source   Betancourt 2012 and the Stan reference manual (sticks that are broken; triangles of correlations)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.distributions import constraints
from hcq.frontend.more.distributions.distribution import formula
from hcq.frontend.more.distributions.transforms import Shape, Transform, summed
from hcq.frontend.tensor import Tensor


class SoftmaxTransform(Transform):
    """softmax along the last axis; log undoes it, up to a constant.

    >>> from hcq.torch.distributions import SoftmaxTransform
    >>> SoftmaxTransform()(Tensor([1.0, 1.0])).tolist()
    [0.5, 0.5]
    """

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class StickBreakingTransform(Transform):
    """n numbers to n + 1 shares of a stick, of which each takes a part of what is left.

    >>> from hcq.torch.distributions import StickBreakingTransform
    >>> print(StickBreakingTransform()(Tensor([0.0, 0.0])))
    tensor([0.3333, 0.3333, 0.3333])
    """

    bijective = True
    domain, codomain = constraints.real_vector, constraints.simplex

    def _offset(self, count: int, like: Tensor) -> Tensor:
        left = Tensor.arange(count, 0, -1, device=like.device).cast(like.dtype)
        return left.log()

    def _call(self, x: Tensor) -> Tensor:
        z = (x - self._offset(x.shape[-1], x)).sigmoid()
        left = (1.0 - z).cumprod(-1)
        return z.pad((0, 1), value=1.0) * left.pad((1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        parts = y[..., :-1]
        left = (1.0 - parts.cumsum(-1)).clamp(1.2e-38)
        return parts.log() - left.log() + self._offset(parts.shape[-1], y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        moved = x - self._offset(x.shape[-1], x)
        return (-moved + moved.logsigmoid() + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        return (*shape[:-1], shape[-1] - 1)


class LowerCholeskyTransform(Transform):
    """A matrix's lower half, with exp of its diagonal.

    >>> from hcq.torch.distributions import LowerCholeskyTransform
    >>> LowerCholeskyTransform()(Tensor([[0.0, 7.0], [2.0, 0.0]])).tolist()
    [[1.0, 0.0], [2.0, 1.0]]
    """

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(0, -2, -1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(0, -2, -1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """A positive definite matrix, of any square one: a lower triangle times its transpose.

    >>> from hcq.torch.distributions import PositiveDefiniteTransform
    >>> PositiveDefiniteTransform()(Tensor([[0.0, 7.0], [2.0, 0.0]])).tolist()
    [[1.0, 2.0], [2.0, 5.0]]
    """

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y: Tensor) -> Tensor:
        from hcq.frontend.more.linalg.factors import cholesky

        return LowerCholeskyTransform().inv(cholesky(y))


class CorrCholeskyTransform(Transform):
    """n (n - 1) / 2 numbers to the lower triangle of a correlation matrix of n by n: rows of length 1.

    >>> from hcq.torch.distributions import CorrCholeskyTransform
    >>> CorrCholeskyTransform()(Tensor([0.0])).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    bijective = True
    domain, codomain = constraints.real_vector, constraints.corr_cholesky

    def _size(self, count: int) -> int:
        size = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != count:
            raise UsageError(f"[CorrCholeskyTransform] {count} numbers are no triangle: give n (n - 1) / 2.")
        return size

    def _rows_of(self, x: Tensor) -> Tensor:
        """Numbers in a row as the part below a diagonal, row by row."""
        size = self._size(x.shape[-1])
        places = [[r * (r - 1) // 2 + c if c < r else 0 for c in range(size)] for r in range(size)]
        index = Tensor._made_of(places, device=x.device)
        return x.index_select(-1, index.flatten()).reshape(*x.shape[:-1], size, size).tril(-1)

    def _row_of(self, y: Tensor) -> Tensor:
        size = y.shape[-1]
        places = [r * size + c for r in range(size) for c in range(r)]
        return y.flatten(-2).index_select(-1, Tensor._made_of(places, device=y.device))

    def _call(self, x: Tensor) -> Tensor:
        eps = 2.0**-23 if x.dtype.itemsize < 8 else 2.0**-52
        r = self._rows_of(x.tanh().clamp(-1.0 + eps, 1.0 - eps))
        left = (1.0 - r.square()).sqrt().cumprod(-1)
        unit = Tensor.eye(r.shape[-1], dtype=x.dtype, device=x.device)
        return (r + unit) * left[..., :-1].pad((1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        left = (1.0 - y.square().cumsum(-1)).pad((1, 0), value=1.0)[..., :-1]
        r = self._row_of(y) / self._row_of(left).sqrt()
        return (r.log1p() - (-r).log1p()) / 2.0

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        below = self._row_of((1.0 - y.square().cumsum(-1)).pad((1, 0), value=1.0)[..., :-1])
        stretched = 0.5 * below.log().sum(-1)
        return stretched - 2.0 * (x + (-2.0 * x).softplus() - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        size = self._size(shape[-1])
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise UsageError(f"[CorrCholeskyTransform] a shape {tuple(shape)}: give square matrices.")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


class CatTransform(Transform):
    """Parts of a tensor along an axis, each by a transform of its own.

    lengths   of the parts; 1 each unless given

    >>> from hcq.torch.distributions import AffineTransform, CatTransform, ExpTransform
    >>> CatTransform([ExpTransform(), AffineTransform(1.0, 2.0)], lengths=[1, 2])(Tensor([0.0, 1.0, 2.0])).tolist()
    [1.0, 3.0, 5.0]
    """

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:  # fmt: skip
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise UsageError(
                f"[CatTransform] {len(self.lengths)} lengths of {len(self.transforms)} transforms: give one for each."
            )
        self.bijective = all(part.bijective for part in self.transforms)

    domain = formula(
        "What it takes.",
        lambda self: constraints.cat([part.domain for part in self.transforms], self.dim, self.lengths),
    )
    codomain = formula(
        "What it gives.",
        lambda self: constraints.cat([part.codomain for part in self.transforms], self.dim, self.lengths),
    )

    def _parts(self, x: Tensor) -> Any:
        if x.shape[self.dim] != sum(self.lengths):
            raise UsageError(
                f"[CatTransform] axis {self.dim} of {x.shape}: its parts have {self.lengths} elements together."
            )
        return x.split(self.lengths, self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return Tensor.cat([part(each) for part, each in zip(self.transforms, self._parts(x))], dim=self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        found = [part._inv_call(each) for part, each in zip(self.transforms, self._parts(y))]
        return Tensor.cat(found, dim=self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        axes = self.domain.event_dim
        found = []
        for part, a, b in zip(self.transforms, self._parts(x), self._parts(y)):
            found.append(summed(part.log_abs_det_jacobian(a, b), axes - part.domain.event_dim))
        place = self.dim if self.dim < 0 else self.dim - x.ndim
        place += axes
        return Tensor.cat(found, dim=place) if place < 0 else sum(found[1:], found[0])


class StackTransform(Transform):
    """Slices of a tensor along an axis, each by a transform of its own.

    >>> from hcq.torch.distributions import AffineTransform, ExpTransform, StackTransform
    >>> StackTransform([ExpTransform(), AffineTransform(1.0, 2.0)])(Tensor([[0.0], [1.0]])).tolist()
    [[1.0], [3.0]]
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.bijective = all(part.bijective for part in self.transforms)

    domain = formula(
        "What it takes.", lambda self: constraints.stack([part.domain for part in self.transforms], self.dim)
    )
    codomain = formula(
        "What it gives.",
        lambda self: constraints.stack([part.codomain for part in self.transforms], self.dim),
    )

    def _slices(self, x: Tensor) -> Any:
        if x.shape[self.dim] != len(self.transforms):
            raise UsageError(
                f"[StackTransform] axis {self.dim} of {x.shape}: give {len(self.transforms)} slices."
            )
        return x.unbind(self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return Tensor.stack([part(each) for part, each in zip(self.transforms, self._slices(x))], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        found = [part._inv_call(each) for part, each in zip(self.transforms, self._slices(y))]
        return Tensor.stack(found, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        found = [
            part.log_abs_det_jacobian(a, b)
            for part, a, b in zip(self.transforms, self._slices(x), self._slices(y))
        ]
        return Tensor.stack(found, self.dim)
