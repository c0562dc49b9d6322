"""Adam and its variants: running means of gradients and of their squares, corrected for their start at zero.

In       parameters and their gradients
Out      `Adam`, `AdamW`, `Adamax`, `NAdam`, `RAdam`, `LAMB`, `Lion`
Changes  the parameters and their moments
Next     scaled.py, sgd.py
Source   Kingma and Ba 2015; Loshchilov and Hutter 2019; Dozat 2016; Liu et al. 2020; You et al. 2020; Chen et al. 2023
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar

from hcq.frontend.optim.groups import Group
from hcq.frontend.optim.optimizer import Optimizer, Part, zeros
from hcq.frontend.tensor import Tensor


class _Moments(Optimizer):
    """What keeps exp_avg, a running mean of gradients, and exp_avg_sq, one of their squares."""

    kept: tuple[str, ...] = ("exp_avg", "exp_avg_sq")

    def state_of(self, group: Group, parameter: Tensor) -> dict[str, Tensor]:
        found = super().state_of(group, parameter)
        return {**found, "max_exp_avg_sq": zeros(parameter)} if group.get("amsgrad") else found

    def decayed(self, part: Part, rate: Tensor, decoupled: bool) -> tuple[Tensor, Tensor]:
        """The value and the gradient after weight decay."""
        value, g = part.value, part.gradient
        if not part.group.option("weight_decay"):
            return value, g
        decay = part.number("weight_decay")
        return (value * (1.0 - rate * decay), g) if decoupled else (value, g + value * decay)

    def correction(self, part: Part, place: int) -> Tensor:
        """1 - betas[place] ** step, precise from the first step on."""
        return -(self.count("step", part) * self.log_beta(part, place)).expm1()

    def log_beta(self, part: Part, place: int) -> Any:
        """The logarithm of a beta; of 0, one whose powers are 0."""
        return part.number(
            "betas", lambda betas: math.log(betas[place]) if betas[place] else -1e4, f"log {place}"
        )

    def mean(self, part: Part, g: Tensor) -> Tensor:
        """The running mean of gradients, with this one."""
        mean = self.slots["exp_avg"][part.place]
        return self.write(mean, mean + (g - mean) * part.beta(0)[1])

    def square(self, part: Part, g: Tensor) -> Tensor:
        """The running mean of squares, with this one."""
        square = self.slots["exp_avg_sq"][part.place]
        beta, rest = part.beta(1)
        return self.write(square, square * beta + g * g * rest)


class Adam(_Moments):
    """p -= lr * m / (sqrt(v) + eps), with running means m of g and v of g * g, corrected for their start at zero.

    betas                    how much of m and of v stays from step to step
    weight_decay             adds weight_decay * p to g
    amsgrad                  divides by the greatest v there was
    decoupled_weight_decay   shrinks the parameter itself instead, as AdamW does
    Source                   Kingma and Ba 2015

    >>> x = Tensor([1.0, 100.0], requires_grad=True)
    >>> optimizer = hcq.optim.Adam([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> print(x.detach())
    tensor([ 0.5000, 99.5000])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
        **further: Any,
    ):
        self._begin(locals())

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        value, g = self.decayed(part, rate, part.group.option("decoupled_weight_decay"))
        mean, square = self.mean(part, g), self.square(part, g)
        if part.group.option("amsgrad"):
            greatest = self.slots["max_exp_avg_sq"][part.place]
            square = self.write(greatest, greatest.maximum(square))
        first, second = self.correction(part, 0), self.correction(part, 1)
        return value - (rate / first) * mean / (square.sqrt() / second.sqrt() + part.number("eps"))


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter itself, p -= lr * weight_decay * p, apart from the gradient.

    Source  Loshchilov and Hutter 2019

    >>> x = Tensor([1.0], requires_grad=True)
    >>> optimizer = hcq.optim.AdamW([x], lr=0.5, weight_decay=0.1)
    >>> (x * 0.0).sum().backward()
    >>> optimizer.step()
    >>> print(x.detach())
    tensor([0.9500])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        **further: Any,
    ):
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            decoupled_weight_decay=True,
            **further,
        )


class Adamax(_Moments):
    """p -= lr * m / u, where u = max(beta * u, |g| + eps): Adam with the greatest gradient instead of squares.

    >>> x = Tensor([1.0, 100.0], requires_grad=True)
    >>> optimizer = hcq.optim.Adamax([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> print(x.detach())
    tensor([ 0.5000, 99.5000])
    """

    kept = ("exp_avg", "exp_inf")

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **further: Any,
    ):
        self._begin(locals())

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        value, g = self.decayed(part, rate, False)
        mean, greatest = self.mean(part, g), self.slots["exp_inf"][part.place]
        self.write(greatest, (greatest * part.beta(1)[0]).maximum(g.abs() + part.number("eps")))
        return value - (rate / self.correction(part, 0)) * mean / greatest


class NAdam(_Moments):
    """Adam with Nesterov's look ahead; momentum_decay lets beta rise from half of it.

    Source  Dozat 2016

    >>> x = Tensor([1.0], requires_grad=True)
    >>> optimizer = hcq.optim.NAdam([x], lr=0.1)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> print(x.detach())
    tensor([0.8944])
    """

    counted: ClassVar[dict[str, float]] = {"step": 0.0, "mu_product": 1.0}

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        **further: Any,
    ):
        self._begin(locals())

    def prepare(self, parts: list[Part]) -> None:
        super().prepare(parts)
        steps, products = self.counts["step"], self.counts["mu_product"]
        for group in self.param_groups:
            places = [part.place for part in parts if part.group is group]

            def multiplied(product: Tensor, group: Group = group) -> Tensor:
                return product * self._momentum(group, steps.tensors[product.device])

            products.update(places, multiplied, self.write)

    def _momentum(self, group: Group, step: Tensor) -> Tensor:
        """The share of the running mean at a step; it rises to betas[0]."""
        where = (step.device, step.dtype)
        log = group.number("momentum_decay", *where, lambda decay: decay * math.log(0.96), "log")
        return (1.0 - (step * log).exp() * 0.5) * group.number("betas", *where, lambda betas: betas[0], "0")

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        value, g = self.decayed(part, rate, part.group.option("decoupled_weight_decay"))
        step = self.counts["step"].of(part.place)
        now, ahead = (self._momentum(part.group, each).cast(g.dtype) for each in (step, step + 1.0))
        product = self.count("mu_product", part)
        mean, square = self.mean(part, g), self.square(part, g)
        root = (square / self.correction(part, 1)).sqrt() + part.number("eps")
        value = value - (rate * (1.0 - now) / (1.0 - product)) * g / root
        return value - (rate * ahead / (1.0 - product * ahead)) * mean / root


class RAdam(_Moments):
    """Adam that takes plain steps along m while too few squares were seen to divide by them.

    Source  Liu et al. 2020

    >>> x = Tensor([1.0], requires_grad=True)
    >>> optimizer = hcq.optim.RAdam([x], lr=0.25)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> print(x.detach())
    tensor([0.5000])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        **further: Any,
    ):
        self._begin(locals())

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        value, g = self.decayed(part, rate, part.group.option("decoupled_weight_decay"))
        mean, square = self.mean(part, g), self.square(part, g)
        mean = mean / self.correction(part, 0)
        most = part.number("betas", lambda betas: 2.0 / (1.0 - betas[1]) - 1.0, "most")
        seen = self._seen(part)
        factor = part.number(
            "betas",
            lambda betas: (lambda n: n / ((n - 4.0) * (n - 2.0)))(2.0 / (1.0 - betas[1]) - 1.0),
            "factor",
        )
        rectified = ((seen - 4.0) * (seen - 2.0) * factor / seen).relu().sqrt()
        scale = self.correction(part, 1).sqrt() / (square.sqrt() + part.number("eps"))
        # where most is 5 or less, no step is ever rectified
        return value - rate * mean * ((seen > 5.0) & (seen <= most + 1.0)).where(rectified * scale, 1.0)

    def _seen(self, part: Part) -> Tensor:
        """most - 2 t beta ** t / (1 - beta ** t), without the difference of large numbers that this is.

        With x = -t log(beta), 2 t beta ** t / (1 - beta ** t) is (2 / -log(beta)) * x / (exp(x) - 1).
        """
        x = -(self.count("step", part) * self.log_beta(part, 1))
        rest = part.number("betas", lambda betas: _length(betas[1]) - _scale(betas[1]), "rest")
        near = x * (0.5 - x * (1.0 / 12 - x * x * (1.0 / 720 - x * x * (1.0 / 30240))))
        share = (x < 0.5).where(near, 1.0 - x / x.maximum(0.5).expm1())
        return rest + share * part.number("betas", lambda betas: _scale(betas[1]), "scale")


def _length(beta: float) -> float:
    return 2.0 / (1.0 - beta) - 1.0


def _scale(beta: float) -> float:
    return -2.0 / math.log(beta) if beta else 2e-4


class LAMB(_Moments):
    """AdamW's direction, scaled for each parameter to its own length: p -= lr * (|p| / |r|) * r.

    Where p or r is zero, it is not scaled.
    Source  You et al. 2020

    >>> x = Tensor([3.0, 4.0], requires_grad=True)
    >>> optimizer = hcq.optim.LAMB([x], lr=0.1)
    >>> x.sum().backward()
    >>> optimizer.step()
    >>> print((x.detach() - Tensor([3.0, 4.0])).norm())
    tensor(0.5000)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **further: Any,
    ):
        self._begin(locals())

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        mean, square = self.mean(part, part.gradient), self.square(part, part.gradient)
        root = (square / self.correction(part, 1)).sqrt() + part.number("eps")
        step = mean / self.correction(part, 0) / root + part.value * part.number("weight_decay")
        size, length = part.value.norm(), step.norm()
        trust = ((size > 0) & (length > 0)).where(size / length, 1.0)
        return part.value - step * (rate * trust)


class Lion(_Moments):
    """p -= lr * sign(beta1 * m + (1 - beta1) * g), with one running mean m; weight decay shrinks p itself.

    Source  Chen et al. 2023

    >>> x = Tensor([1.0, -100.0], requires_grad=True)
    >>> optimizer = hcq.optim.Lion([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.tolist()
    [0.5, -99.5]
    """

    kept = ("exp_avg",)
    counted: ClassVar[dict[str, float]] = {}

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **further: Any,
    ):
        self._begin(locals())

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        value, g = self.decayed(part, rate, True)
        mean = self.slots["exp_avg"][part.place]
        beta, rest = part.beta(0)
        direction = (mean * beta + g * rest).sign()
        self.write(mean, mean + (g - mean) * part.beta(1)[1])
        return value - direction * rate
