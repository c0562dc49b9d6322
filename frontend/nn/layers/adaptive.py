"""Adaptive softmax: the probabilities of very many classes, of which rare ones share small layers.

In       sizes, the numbers at which clusters of classes begin, then tensors
Out      `AdaptiveLogSoftmaxWithLoss`
Next     linear.py (what it is made of)
Source   Grave et al. 2017, "Efficient softmax approximation for GPUs"
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hcq.checks import is_whole, shown
from hcq.errors import UsageError
from hcq.frontend.nn.containers import ModuleList, Sequential
from hcq.frontend.nn.layers.linear import Linear
from hcq.frontend.nn.layers.sizes import positive
from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType


class ASMoutput(NamedTuple):
    """The log-probability of each target, and the mean loss."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of classes that are numbered by how frequent they are: the first ones have a layer, the head.

    cutoffs      where clusters of rarer classes begin, ascending, below n_classes; the head says which cluster
    div_value    each cluster's layer is that many times narrower than the one before
    head_bias    whether the head has a bias

    Every cluster is computed for every row: which rows need which is known on the device alone.

    >>> layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[4, 10], div_value=2.0)
    >>> found = layer(Tensor.ones(3, 8), hcq.tensor([1, 5, 19]))
    >>> found.output.shape, found.loss.shape, layer.log_prob(Tensor.ones(3, 8)).shape
    ((3,), (), (3, 20))
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        call = "AdaptiveLogSoftmaxWithLoss"
        positive(call, in_features=in_features, n_classes=n_classes)
        edges = list(cutoffs)
        if (
            not edges
            or not all(is_whole(n) and 0 < n < n_classes for n in edges)
            or edges != sorted(set(edges))
        ):
            raise UsageError(
                f"[{call}] cutoffs {shown(cutoffs)}: give ascending numbers from 1 to {n_classes - 1}."
            )
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*edges, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = edges[0], len(edges)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for place, (first, end) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            width = int(in_features // div_value ** (place + 1))
            if width < 1:
                raise UsageError(
                    f"[{call}] div_value={div_value}: cluster {place} would have no width. Give a smaller one."
                )
            down = Linear(in_features, width, False, device, dtype)
            self.tail.append(Sequential(down, Linear(width, end - first, False, device, dtype)))

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        for layer in (self.head, *(layer for pair in self.tail for layer in pair)):
            layer.reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> ASMoutput:
        """(n, in_features) and (n,), or (in_features,) and () -> the targets' log-probabilities, and their mean loss.

        A target that is no class has NaN.
        """
        if input.ndim not in (1, 2) or target.ndim != input.ndim - 1 or input.shape[:-1] != target.shape:
            raise UsageError(
                f"[AdaptiveLogSoftmaxWithLoss] {input.shape} and targets {target.shape}: give (n, {self.in_features}) "
                f"and (n,), or ({self.in_features},) and ()."
            )
        rows = input.reshape(-1, input.shape[-1])
        classes = target.reshape(-1, 1)
        head = self.head(rows).log_softmax(1)
        is_short = (classes >= 0) & (classes < self.shortlist_size)
        found = is_short.where(head.gather(1, is_short.where(classes, 0)), float("nan"))
        for place, (first, end) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            is_here = (classes >= first) & (classes < end)
            inside = self.tail[place](rows).log_softmax(1).gather(1, is_here.where(classes - first, 0))
            at = self.shortlist_size + place
            found = is_here.where(head[:, at : at + 1] + inside, found)
        output = found.reshape(target.shape)
        return ASMoutput(output, -output.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes: (n, in_features) -> (n, n_classes).

        >>> layer = nn.AdaptiveLogSoftmaxWithLoss(4, 6, cutoffs=[2], div_value=1.0)
        >>> round(layer.log_prob(Tensor.ones(1, 4)).exp().sum().item(), 4)
        1.0
        """
        head = self.head(input).log_softmax(1)
        parts = [head[:, : self.shortlist_size]]
        for place, cluster in enumerate(self.tail):
            at = self.shortlist_size + place
            parts.append(head[:, at : at + 1] + cluster(input).log_softmax(1))
        return Tensor.cat(parts, dim=1)

    def predict(self, input: Tensor) -> Tensor:
        """The most likely class of each row: (n, in_features) -> (n,).

        >>> layer = nn.AdaptiveLogSoftmaxWithLoss(4, 6, cutoffs=[2], div_value=1.0)
        >>> (layer.predict(Tensor.ones(2, 4)) == layer.log_prob(Tensor.ones(2, 4)).argmax(1)).tolist()
        [True, True]
        """
        return self.log_prob(input).argmax(1)
