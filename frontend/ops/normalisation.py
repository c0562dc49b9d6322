"""Normalisation: softmax and layers that centre and scale.

In       tensors
Out      lazy tensors of a few reductions each; statistics of narrow floats are taken in float32
Next     attention.py, loss.py (log_softmax is half of cross entropy), nn/ (layers that own the weights used here)
"""

from __future__ import annotations

from functools import cache
from typing import TypeVar

from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import expanded, iota, minus, reduced
from hcq.frontend.grad.function import Function
from hcq.frontend.ops.base import Methods, Self, in_float, in_float_together, wide_in_autocast
from hcq.frontend.ops.checked_places import check
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node, Shape
from hcq.ir.op import Op

T = TypeVar("T", bound=Methods)


class Normalisation(Methods):
    """softmax, log_softmax, layer, batch, group and rms norms, one_hot."""

    __slots__ = ()

    def softmax(self, dim: int = -1, dtype: DType | None = None) -> Self:
        """exp(x) / sum(exp(x)) along an axis, without overflow. The shape stays; integers become float32, all `dtype`.

        >>> Tensor([0.0, 0.0]).softmax(0).tolist()
        [0.5, 0.5]
        """
        return (self if dtype is None else self.cast(dtype))._softmax(dim)

    @wide_in_autocast
    @in_float
    def _softmax(self, dim: int) -> Self:
        if 0 in self.node.shape:
            self._axes("softmax", dim)
            return self
        weights, axes = self._exponentials("softmax", dim)
        result = weights / weights._reduce(Op.ADD, axes, keepdim=True)
        return self._like(_softmax(axes).of(result.node, self.node))

    def log_softmax(self, dim: int = -1, dtype: DType | None = None) -> Self:
        """log(softmax(x)) along an axis, without overflow. The shape stays; integers become float32, all `dtype`.

        >>> print(Tensor([0.0, 1000.0]).log_softmax(0))
        tensor([-1000.,     0.])
        """
        return (self if dtype is None else self.cast(dtype))._log_softmax(dim)

    @wide_in_autocast
    @in_float
    def _log_softmax(self, dim: int) -> Self:
        if 0 in self.node.shape:
            self._axes("log_softmax", dim)
            return self
        axes = self._axes("log_softmax", dim)
        shifted = self - self._reduce(Op.MAX, self._not_empty("log_softmax", axes), keepdim=True).detach()
        return shifted - shifted.exp()._reduce(Op.ADD, axes, keepdim=True).log()

    def softmin(self, dim: int = -1, dtype: DType | None = None) -> Self:
        """softmax(-x) along an axis.

        >>> print(Tensor([0.0, 1.0]).softmin(0))
        tensor([0.7311, 0.2689])
        """
        return (-self).softmax(dim, dtype)

    def _exponentials(self, call: str, dim: int) -> tuple[Self, tuple[int, ...]]:
        axes = self._axes(call, dim)
        top = self._reduce(Op.MAX, self._not_empty(call, axes), keepdim=True).detach()
        return (self - top).exp(), axes

    @wide_in_autocast
    @in_float
    def layer_norm(
        self,
        normalized_shape: int | tuple[int, ...],
        weight: Self | None = None,
        bias: Self | None = None,
        eps: float = 1e-5,
    ) -> Self:
        """(x - mean) / sqrt(variance + eps) over the last axes, then * weight + bias, both of normalized_shape.

        Raises  UsageError when normalized_shape is not what the shape ends with
        Source  Ba et al. 2016

        >>> print(Tensor([[1.0, 3.0], [10.0, 20.0]]).layer_norm(2))
        tensor([[-1.0000,  1.0000],
                [-1.0000,  1.0000]])
        """
        axes = self._last_axes("layer_norm", normalized_shape)
        return _scaled(self._normalised(axes, eps), weight, bias)

    @wide_in_autocast
    @in_float
    def rms_norm(
        self, normalized_shape: int | tuple[int, ...], weight: Self | None = None, eps: float | None = None
    ) -> Self:
        """x / sqrt(mean(x * x) + eps) over the last axes, then * weight; eps is the spacing at 1 unless given.

        Source  Zhang and Sennrich 2019

        >>> print(Tensor([[3.0, 4.0]]).rms_norm(2))
        tensor([[0.8485, 1.1314]])
        """
        axes = self._last_axes("rms_norm", normalized_shape)
        if eps is None:
            eps = 2.0**-52 if self.node.dtype is dtypes.float64 else 2.0**-23
        result = self * (self.square().mean(axes, keepdim=True) + eps).rsqrt()
        return _scaled(result, weight, None)

    @wide_in_autocast
    @in_float
    def group_norm(
        self, num_groups: int, weight: Self | None = None, bias: Self | None = None, eps: float = 1e-5
    ) -> Self:
        """(batch, channels, ...): mean 0 and variance 1 over each group of channels, then * weight + bias by channel.

        Raises  UsageError unless the groups divide the channels
        Source  Wu and He 2018

        >>> x = Tensor([[[1.0], [3.0], [10.0], [20.0]]])
        >>> print(x.group_norm(2).flatten())
        tensor([-1.0000,  1.0000, -1.0000,  1.0000])
        """
        shape = self.node.shape
        if len(shape) < 2 or num_groups < 1 or shape[1] % num_groups:
            raise UsageError(
                f"[group_norm] shape {shape} in {num_groups} groups: axis 1 must be a multiple of the groups."
            )
        grouped = self._reshape((shape[0], num_groups, shape[1] // num_groups, *shape[2:]))
        axes = tuple(range(2, len(grouped.node.shape)))
        result = grouped._normalised(axes, eps)._reshape(shape)
        return _scaled(result, _by_channel(weight, shape), _by_channel(bias, shape))

    @in_float
    def instance_norm(self, weight: Self | None = None, bias: Self | None = None, eps: float = 1e-5) -> Self:
        """(batch, channels, ...): mean 0 and variance 1 over each channel of a sample, then * weight + bias.

        >>> print(Tensor([[[1.0, 3.0], [10.0, 20.0]]]).instance_norm()[0])
        tensor([[-1.0000,  1.0000],
                [-1.0000,  1.0000]])
        """
        return self.group_norm(self.node.shape[1] if self.ndim > 1 else 1, weight, bias, eps)

    @in_float
    @in_float_together
    def batch_norm(
        self,
        mean: Self | None = None,
        var: Self | None = None,
        weight: Self | None = None,
        bias: Self | None = None,
        eps: float = 1e-5,
    ) -> Self:
        """(batch, channels, ...): centred and scaled by channel, by the given mean and var or by those of this batch.

        mean, var, weight, bias   (channels,); mean and var both or neither
        Source                    Ioffe and Szegedy 2015

        >>> Tensor([[1.0], [3.0]]).batch_norm(eps=0.0).tolist()
        [[-1.0], [1.0]]
        """
        shape = self.node.shape
        if shape == (0,):
            return self
        if len(shape) < 2:
            raise UsageError(f"[batch_norm] shape {shape}: axis 1 is the channel. Use unsqueeze first.")
        if (mean is None) != (var is None):
            raise UsageError("[batch_norm] give both mean and var, or neither.")
        if mean is None or var is None:
            axes = (0, *range(2, len(shape)))
            result = self._normalised(axes, eps)
        else:
            scale = (var + eps).rsqrt()
            centre, spread = _by_channel(mean, shape), _by_channel(scale, shape)
            result = (self - centre) * spread
        return _scaled(result, _by_channel(weight, shape), _by_channel(bias, shape))

    def _normalised(self, axes: tuple[int, ...], eps: float) -> Self:
        centred = self - self.mean(axes, keepdim=True)
        return centred * (centred.square().mean(axes, keepdim=True) + eps).rsqrt()

    def _last_axes(self, call: str, normalized_shape: int | tuple[int, ...]) -> tuple[int, ...]:
        wanted = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        shape = self.node.shape
        if not wanted or shape[len(shape) - len(wanted) :] != wanted or len(wanted) > len(shape):
            raise UsageError(
                f"[{call}] normalized_shape {wanted} are not the last sizes of {shape}. Match them."
            )
        return tuple(range(len(shape) - len(wanted), len(shape)))

    @in_float_together
    def normalize(self, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Self:
        """Divided by its norm of order p along an axis, or by eps where that is larger.

        >>> Tensor([[3.0, 4.0], [0.0, 0.0]]).normalize().tolist()
        [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
        """
        return self / self.norm(p, dim, keepdim=True).maximum(eps)

    @in_float_together
    def cosine_similarity(self, other: Self, dim: int = 1, eps: float = 1e-8) -> Self:
        """The cosine of the angle between vectors along an axis, which goes away.

        >>> print(Tensor([[1.0, 0.0]]).cosine_similarity(Tensor([[1.0, 1.0]])))
        tensor([0.7071])
        """
        lengths = self.norm(2.0, dim).maximum(eps) * other.norm(2.0, dim).maximum(eps)
        return (self * other).sum(dim) / lengths

    def one_hot(self, num_classes: int = -1) -> Self:
        """A new last axis with 1 at the index and 0 elsewhere: (...) -> (..., num_classes), int64.

        num_classes   -1 reads the greatest index back first

        >>> hcq.tensor([2, 0]).one_hot(3).tolist()
        [[0, 0, 1], [1, 0, 0]]
        """
        if not self.node.dtype.is_integer:
            raise UsageError(f"[one_hot] {self.node.dtype.name} are not indices. Cast to dtypes.int64.")
        if num_classes < 0:
            num_classes = int(self.amax().item()) + 1
        check("one_hot", "label", self, 0, num_classes)
        shape = (*self.node.shape, num_classes)
        places = self._like(iota(num_classes, len(shape) - 1, shape))
        return (self.unsqueeze(-1) == places).cast(dtypes.int64)

    def embedding(
        self, weight: Self, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, sparse: bool = False,
    ) -> Self:  # fmt: skip
        """The rows of a table that these indices name: (...) and (count, width) -> (..., width); see `x[...]`.

        padding_idx   of this row nothing is learned: no gradient flows there
        Raises        UsageError for max_norm, which would write the table, scale_grad_by_freq and sparse

        >>> hcq.tensor([2, 0]).embedding(hcq.tensor([[1, 2], [3, 4], [5, 6]])).tolist()
        [[5, 6], [1, 2]]
        """
        if max_norm is not None or scale_grad_by_freq or sparse:
            raise UsageError(
                "[embedding] max_norm, scale_grad_by_freq and sparse are not here. Keep norms with "
                "weight.copy_(weight.renorm(2, 0, max_norm)) under no_grad()."
            )
        if len(weight.node.shape) != 2 or not self.node.dtype.is_integer:
            raise UsageError(
                f"[embedding] {self.node.dtype.name} indices into a table of shape {weight.node.shape}: give "
                "integers and a (count, width) table."
            )
        if padding_idx is None:
            return weight[self]
        count = weight.node.shape[0]
        if not -count <= padding_idx < count:
            raise UsageError(f"[embedding] padding_idx={padding_idx} of a table of {count} rows.")
        is_padding = (self == padding_idx % count).unsqueeze(-1)
        rows = weight[self]
        return is_padding.where(rows.detach(), rows)  # type: ignore[no-any-return]


def _by_channel(value: T | None, shape: Shape) -> T | None:
    """A vector of one number per channel, in the shape that broadcasts against axis 1."""
    if value is None:
        return None
    if value.numel() != shape[1]:
        raise UsageError(
            f"[norm] {value.node.shape} for the {shape[1]} channels of shape {shape}: give one number for each."
        )
    return value._reshape((1, shape[1], *(1,) * (len(shape) - 2)))


def _scaled(x: T, weight: T | None, bias: T | None) -> T:
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias


@cache
def _softmax(axes: tuple[int, ...]) -> Function:
    """Softmax along axes, whose slope is written in terms of its result y: dx = y * (g - sum(g * y)).

    So nothing but the result is kept for the way back: not the exponentials, not their sum.
    """

    def slope(node: Node, g: Node) -> Node:
        y = node.cast(g.dtype)
        total = reduced(Op.ADD, Node(Op.MUL, g.dtype, (g, y)), axes)
        return Node(Op.MUL, g.dtype, (y, minus(g, expanded(total, g.shape))))

    return Function(f"softmax{list(axes)}", slope)
