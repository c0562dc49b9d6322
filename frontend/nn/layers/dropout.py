"""Dropout: in training, some elements or channels become zero; in evaluation, nothing happens.

In       a probability, then tensors
Out      `Dropout`, `Dropout1d` to `Dropout3d` (whole channels), `AlphaDropout`, `FeatureAlphaDropout`
Changes  nothing but the device's random counter
Next     ../functional_random.py (what they compute)
Source   Srivastava et al. 2014; Klambauer et al. 2017
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.frontend.nn import functional_random as F
from hcq.frontend.nn.layers.sizes import probability
from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor


class _Dropout(Module):
    """p is how likely an element, or a channel, becomes zero; a subclass names the function that does it."""

    _drop: Callable[..., Tensor]

    def __init__(self, p: float = 0.5, inplace: bool = False):
        self.p, self.inplace = probability(type(self).__name__, p), inplace

    def forward(self, x: Tensor) -> Tensor:
        """The same shape; in evaluation, x itself."""
        return self._drop(x, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """In training, each element becomes zero with probability p and the others grow by 1 / (1 - p).

    >>> layer = nn.Dropout(0.5)
    >>> set(layer(Tensor.ones(100)).tolist()) <= {0.0, 2.0}, layer.eval()(Tensor.ones(2)).tolist()
    (True, [1.0, 1.0])
    """

    _drop = staticmethod(F.dropout)


class Dropout1d(_Dropout):
    """Whole channels of (n, channels, length); n may be left out.

    >>> y = nn.Dropout1d(0.5)(Tensor.ones(4, 3, 50))
    >>> set(y.mean(-1).flatten().tolist()) <= {0.0, 2.0}
    True
    """

    _drop = staticmethod(F.dropout1d)


class Dropout2d(_Dropout):
    """Whole channels of (n, channels, h, w); n may be left out.

    >>> nn.Dropout2d(1.0)(Tensor.ones(1, 1, 1, 2)).tolist()
    [[[[0.0, 0.0]]]]
    """

    _drop = staticmethod(F.dropout2d)


class Dropout3d(_Dropout):
    """Whole channels of (n, channels, d, h, w); n may be left out.

    >>> nn.Dropout3d().eval()(Tensor.ones(1, 2, 1, 1, 1)).sum().item()
    2.0
    """

    _drop = staticmethod(F.dropout3d)


class AlphaDropout(_Dropout):
    """Dropout that keeps mean 0 and deviation 1, as SELU does: what is dropped takes SELU's lowest value.

    >>> nn.AlphaDropout().eval()(Tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    _drop = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """AlphaDropout of whole channels.

    >>> nn.FeatureAlphaDropout().eval()(Tensor([[[1.0, 2.0]]])).tolist()
    [[[1.0, 2.0]]]
    """

    _drop = staticmethod(F.feature_alpha_dropout)
