"""Losses: how far a prediction is from what it should be, as one number to follow downhill.

In       predictions and targets
Out      lazy tensors: of shape () for "mean" and "sum", of the elements' shape for "none"
Next     grad/gradient.py (the way downhill), optim/ (the step)
"""

from __future__ import annotations

from typing import Any, TypeVar

from hcq.frontend.core.base import Core
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import divided, iota, logarithm, minus, negated
from hcq.frontend.core.sizes import number_of
from hcq.frontend.grad.function import Function
from hcq.frontend.ops.base import Methods, Self, in_float, in_float_together, wide_in_autocast
from hcq.frontend.ops.checked_places import check
from hcq.frontend.special.elementary import log1p, logsigmoid, sigmoid
from hcq.ir.node import Node, const
from hcq.ir.op import Op

T = TypeVar("T", bound="Loss")


class Loss(Methods):
    """Squares, absolutes, cross entropies."""

    __slots__ = ()

    def _reduced(self, call: str, reduction: str) -> Self:
        if reduction == "mean":
            return self.mean()
        if reduction == "sum":
            return self.sum()
        if reduction == "none":
            return self
        raise UsageError(f"[{call}] reduction={reduction!r} is unknown. Use 'mean', 'sum' or 'none'.")

    def _difference(self, call: str, target: Any) -> Self:
        target = self._operand(call, target)
        if target.node.shape != self.node.shape:
            raise UsageError(
                f"[{call}] prediction {self.node.shape}, target {target.node.shape}: the shapes must "
                "be equal. Reshape one."
            )
        return self - target

    @wide_in_autocast
    @in_float_together
    def mse_loss(self, target: Self, reduction: str = "mean") -> Self:
        """(self - target) ** 2: of shape () for "mean" and "sum", of the elements' shape for "none".

        Raises  UsageError for shapes that differ, and for another `reduction`

        >>> Tensor([1.0, 3.0]).mse_loss(Tensor([1.0, 1.0])).item()
        2.0
        """
        return self._difference("mse_loss", target).square()._reduced("mse_loss", reduction)

    @wide_in_autocast
    @in_float_together
    def l1_loss(self, target: Self, reduction: str = "mean") -> Self:
        """|self - target|; reduced as in `mse_loss`.

        >>> Tensor([1.0, 4.0]).l1_loss(Tensor([0.0, 2.0])).item()
        1.5
        """
        return self._difference("l1_loss", target).abs()._reduced("l1_loss", reduction)

    @wide_in_autocast
    @in_float_together
    def huber_loss(self, target: Self, reduction: str = "mean", delta: float = 1.0) -> Self:
        """Half the square of the difference up to delta, a straight line beyond; reduced as in `mse_loss`.

        Source  Huber 1964

        >>> Tensor([0.5, 3.0]).huber_loss(Tensor([0.0, 0.0]), reduction="none").tolist()
        [0.125, 2.5]
        """
        size = self._difference("huber_loss", target).abs()
        near = size.minimum(delta)
        return (near * (size - 0.5 * near))._reduced("huber_loss", reduction)

    @wide_in_autocast
    @in_float_together
    def smooth_l1_loss(self, target: Self, reduction: str = "mean", beta: float = 1.0) -> Self:
        """The Huber loss divided by its delta, here beta; l1_loss for beta 0.

        >>> Tensor([0.5, 3.0]).smooth_l1_loss(Tensor([0.0, 0.0]), beta=2.0, reduction="none").tolist()
        [0.0625, 2.0]
        """
        if beta == 0:
            return self.l1_loss(target, reduction)
        return self.huber_loss(target, reduction, beta) / beta

    @wide_in_autocast
    @in_float_together
    def kl_div(self, target: Self, reduction: str = "mean", log_target: bool = False) -> Self:
        """target * (log(target) - self), where this tensor holds logarithms.

        reduction    as in `mse_loss`, and "batchmean", the sum divided by the first size
        log_target   the target holds logarithms, too

        >>> print(Tensor([0.5, 0.5]).log().kl_div(Tensor([1.0, 0.0]), reduction="sum"))
        tensor(0.6931)
        """
        logs = target if log_target else (target == 0).where(1.0, target).log()
        weights = target.exp() if log_target else target
        points = weights * (logs - self)
        if reduction == "batchmean":
            count = number_of(points.node, (0,), points.node.dtype)
            return points.sum() / (self._like(count) if isinstance(count, Node) else count)
        return points._reduced("kl_div", reduction)

    @wide_in_autocast
    @in_float_together
    def binary_cross_entropy(self, target: Self, weight: Any = None, reduction: str = "mean") -> Self:
        """-(target * log(self) + (1 - target) * log(1 - self)), of probabilities; logarithms stop at -100.

        weight   multiplies the elements; reduced as in `mse_loss`

        >>> Tensor([1.0, 0.0]).binary_cross_entropy(Tensor([1.0, 1.0]), reduction="none").abs().tolist()
        [0.0, 100.0]
        """
        self._difference("binary_cross_entropy", target)
        points = -(target * self.log().maximum(-100.0) + (1.0 - target) * (-self).log1p().maximum(-100.0))
        dtype = points.node.dtype
        points = self._like(PROBABILITIES.of(points.node, self.node.cast(dtype), target.node.cast(dtype)))
        points = points if weight is None else points * weight
        return points._reduced("binary_cross_entropy", reduction)

    @wide_in_autocast
    @in_float_together
    def binary_cross_entropy_with_logits(
        self, target: Self, weight: Any = None, reduction: str = "mean", pos_weight: Any = None
    ) -> Self:
        """`binary_cross_entropy` of sigmoid(self), without overflow.

        pos_weight   multiplies the part of target 1

        >>> x = Tensor([1000.0, -1000.0])
        >>> x.binary_cross_entropy_with_logits(Tensor([0.0, 0.0]), reduction="none").tolist()
        [1000.0, 0.0]
        """
        self._difference("binary_cross_entropy_with_logits", target)
        call = "binary_cross_entropy_with_logits"
        favour = 1.0 if pos_weight is None else (self._operand(call, pos_weight) - 1.0) * target + 1.0
        points = (1.0 - target) * self - favour * self.logsigmoid()
        dtype, weighed = points.node.dtype, self._operand("binary_cross_entropy_with_logits", favour)
        arguments = [argument.node.cast(dtype) for argument in (self, target, weighed)]
        points = self._like(LOGITS.of(points.node, *arguments))
        points = points if weight is None else points * weight
        return points._reduced("binary_cross_entropy_with_logits", reduction)

    @wide_in_autocast
    @in_float_together
    def nll_loss(
        self, target: Self, weight: Self | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> Self:
        """Minus this tensor, of logarithms (batch, classes, ...), at the target classes (batch, ...).

        weight         (classes,): the mean is divided by the sum of the weights at the targets
        ignore_index   a target that counts for nothing
        Raises         UsageError for a target of another shape or of floats

        A target that is neither a class nor ignore_index gives NaN, never a wrong number. A vector is one sample.

        >>> logs = Tensor([[-1.0, -2.0], [-3.0, -4.0]])
        >>> logs.nll_loss(hcq.tensor([1, -100])).item()
        2.0
        """
        axis = self._class_axis("nll_loss", target)
        logs, is_target, scale = self._at_classes(target, weight, ignore_index, axis)
        points = -is_target.where(logs, 0)._reduce(Op.ADD, (axis,), keepdim=False) * scale
        return _weighted("nll_loss", points, scale, reduction)

    @wide_in_autocast
    @in_float
    def cross_entropy(
        self,
        target: Self,
        weight: Self | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Self:
        """nll_loss of log_softmax.

        self             (batch, classes, ...) logits
        target           class indices (batch, ...), or probabilities of the logits' shape
        label_smoothing  this share of the target is spread over all classes evenly

        >>> logits = Tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
        >>> print(logits.cross_entropy(hcq.tensor([0, 2]), reduction="none"))
        tensor([0.2395, 0.0002])
        """
        if not 0.0 <= label_smoothing <= 1.0:
            raise UsageError(f"[cross_entropy] label_smoothing={label_smoothing}: use 0 to 1.")
        target = self._operand("cross_entropy", target)
        if target.node.dtype.is_float:
            return self._soft_cross_entropy(target, weight, reduction, label_smoothing)
        axis = self._class_axis("cross_entropy", target)
        logs = self.log_softmax(axis)
        if label_smoothing == 0.0:
            return logs.nll_loss(target, weight, ignore_index, reduction)
        count = self.node.shape[axis]
        _, is_target, scale = logs._at_classes(target, weight, ignore_index, axis)
        hit = -is_target.where(logs, 0)._reduce(Op.ADD, (axis,), keepdim=False) * scale
        weighted = logs if weight is None else logs * _along(weight, self.ndim, axis)
        # every class gets its share, unless the place is ignored (scale 0) or wrong (scale NaN)
        is_used = (target == ignore_index).where(0.0, 1.0).cast(self.node.dtype)
        spread = -weighted._reduce(Op.ADD, (axis,), keepdim=False) * (1.0 / count) * is_used
        points = hit * (1.0 - label_smoothing) + spread * label_smoothing
        return _weighted("cross_entropy", points, scale, reduction)

    def _soft_cross_entropy(
        self, target: Self, weight: Self | None, reduction: str, smoothing: float
    ) -> Self:
        if target.node.shape != self.node.shape:
            raise UsageError(
                f"[cross_entropy] logits {self.node.shape}, probabilities {target.node.shape}: the shapes "
                "must be equal, or give class indices as integers."
            )
        axis = 0 if self.ndim == 1 else 1
        count = self.node.shape[axis]
        if smoothing:
            target = target * (1.0 - smoothing) + smoothing / count
        logs = self.log_softmax(axis)
        logs = logs if weight is None else logs * _along(weight, self.ndim, axis)
        points = -(logs * target)._reduce(Op.ADD, (axis,), keepdim=False)
        if reduction == "mean":
            return points.sum() / max(1, self.numel() // count)
        return points._reduced("cross_entropy", reduction)

    def _class_axis(self, call: str, target: Any) -> int:
        """Which axis holds the classes; refuses targets of another shape or dtype."""
        shape = self.node.shape
        axis = 0 if len(shape) == 1 else 1
        if not isinstance(target, Core) or not target.node.dtype.is_integer:
            raise UsageError(
                f"[{call}] the target must be a tensor of class indices. Cast it to dtypes.int64."
            )
        self._same_device(call, target)
        if not shape or target.node.shape != shape[:axis] + shape[axis + 1 :]:
            raise UsageError(
                f"[{call}] input {shape}, target {target.node.shape}: the target must have the input's shape "
                f"without the class axis {axis}."
            )
        return axis

    def _at_classes(
        self, target: Self, weight: Self | None, ignore_index: int, axis: int
    ) -> tuple[Self, Self, Self]:
        """This tensor, where the class is the target's, and the weight of each place: 0 if ignored, NaN if no class."""
        shape = self.node.shape
        count = shape[axis]
        check("nll_loss", "label", target, 0, count, ignore_index)
        is_target = self._like(iota(count, axis, shape)) == target.unsqueeze(axis)
        is_class = (target >= 0) & (target < count)
        scale = is_class.where(1.0, float("nan")).cast(self.node.dtype)
        if weight is not None:
            if weight.node.shape != (count,):
                raise UsageError(
                    f"[nll_loss] weight {weight.node.shape} for {count} classes. Give one number each."
                )
            by_class = is_target.where(_along(weight, len(shape), axis), 0)._reduce(
                Op.ADD, (axis,), keepdim=False
            )
            scale = scale * by_class
        return self, is_target, (target == ignore_index).where(0.0, scale).cast(self.node.dtype)


def _weighted(call: str, points: T, scale: T, reduction: str) -> T:
    if reduction == "mean":
        return points.sum() / scale.sum()
    return points._reduced(call, reduction)


def _along(weight: T, rank: int, axis: int) -> T:
    return weight._reshape(tuple(weight.numel() if d == axis else 1 for d in range(rank)))


# -- derivatives of binary cross entropies: taken step by step they would cancel, or divide by zero, where one is sure -


def _at_least(x: Node, least: float) -> Node:
    return Node(Op.MAX, x.dtype, (x, const(least, x.dtype)))


def _slope_of_probability(node: Node, g: Node) -> Node:
    """(p - target) / (p (1 - p)), of which PyTorch keeps the divisor above 1e-12."""
    _, p, target = node.src
    spread = p * (p * -1.0 + 1.0)
    return divided(g * (p + target * -1.0), _at_least(spread, 1e-12))


def _slope_of_truth(node: Node, g: Node) -> Node:
    """log(1 - p) - log(p), both from -100 on."""
    p = node.src[1]
    return g * minus(_at_least(log1p(negated(p)), -100.0), _at_least(logarithm(p), -100.0))


def _slope_of_logits(node: Node, g: Node) -> Node:
    """favour * sigmoid(x) - (favour + target - 1), which is sigmoid(x) - target unless positives weigh more."""
    _, x, target, favour = node.src
    return g * (sigmoid(x) * favour + ((target + favour) * -1.0 + 1.0))


def _slope_of_target(node: Node, g: Node) -> Node:
    return g * (node.src[1] * -1.0)


def _slope_of_favour(node: Node, g: Node) -> Node:
    return g * (logsigmoid(node.src[1]) * -1.0)


PROBABILITIES = Function("binary_cross_entropy", _slope_of_probability, _slope_of_truth)
LOGITS = Function("binary_cross_entropy_with_logits", _slope_of_logits, _slope_of_target, _slope_of_favour)
