"""Steps scaled by the size of gradients so far, by their signs alone, or by their shape as a matrix.

In       parameters and their gradients
Out      `RMSprop`, `Rprop`, `Adagrad`, `Adadelta`, `Adafactor`, `Muon`
Changes  the parameters and their state
Next     adam.py
Source   Tieleman and Hinton 2012; Riedmiller and Braun 1993; Duchi et al. 2011; Zeiler 2012;
         Shazeer and Stern 2018; Jordan et al. 2024
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.nn.constant import constant
from hcq.frontend.optim.groups import Group, not_negative
from hcq.frontend.optim.optimizer import Optimizer, Part, filled, zeros
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


def _with_decay(part: Part) -> Tensor:
    """The gradient with weight decay."""
    g = part.gradient
    return g + part.value * part.number("weight_decay") if part.group.option("weight_decay") else g


class RMSprop(Optimizer):
    """p -= lr * g / (sqrt(v) + eps), with v a running mean of g * g.

    alpha      how much of v stays
    centered   takes the square of the running mean of g away from v
    momentum   steps along a running sum of steps

    >>> x = Tensor([1.0, 100.0], requires_grad=True)
    >>> optimizer = hcq.optim.RMSprop([x], lr=0.1)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> print(x.detach())
    tensor([5.9605e-08, 9.9000e+01])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
        **further: Any,
    ):
        self._begin(locals())

    def state_of(self, group: Group, parameter: Tensor) -> dict[str, Tensor]:
        found = {"square_avg": zeros(parameter)}
        found |= {"momentum_buffer": zeros(parameter)} if group["momentum"] else {}
        return found | ({"grad_avg": zeros(parameter)} if group["centered"] else {})

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        g, square = _with_decay(part), self.slots["square_avg"][part.place]
        rest = part.number("alpha", lambda alpha: 1.0 - alpha, "1 -")
        self.write(square, square * part.number("alpha") + g * g * rest)
        spread = square
        if part.group.option("centered"):
            mean = self.slots["grad_avg"][part.place]
            self.write(mean, mean + (g - mean) * rest)
            spread = square - mean * mean
        step = g / (spread.sqrt() + part.number("eps"))
        buffer = self.slots.get("momentum_buffer", {}).get(part.place)
        if buffer is not None:
            step = self.write(buffer, buffer * part.number("momentum") + step)
        return part.value - step * rate


class Rprop(Optimizer):
    """Steps of a length that each element has for itself: longer while its gradient keeps its sign, else shorter.

    etas         what a length is multiplied by when the sign changes, and when it stays
    step_sizes   the least and the greatest length; the first one is lr

    >>> x = Tensor([1.0, 100.0], requires_grad=True)
    >>> optimizer = hcq.optim.Rprop([x], lr=0.5)
    >>> for _ in range(2):
    ...     optimizer.zero_grad()
    ...     (x * x).sum().backward()
    ...     optimizer.step()
    >>> print(x.detach())
    tensor([-0.1000, 98.9000])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        *,
        maximize: bool = False,
        **further: Any,
    ):
        self._begin(locals())

    def check(self, call: str, key: str, value: Any) -> Any:
        if key not in ("etas", "step_sizes"):
            return super().check(call, key, value)
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise UsageError(f"[{call}] {key} {shown(value)}: give two numbers.")
        least, most = (not_negative(call, key, each) for each in value)
        if key == "etas" and not 0.0 < least < 1.0 < most:
            raise UsageError(f"[{call}] etas {shown(value)}: give one between 0 and 1, and one above 1.")
        return least, most

    def state_of(self, group: Group, parameter: Tensor) -> dict[str, Tensor]:
        return {"prev": zeros(parameter), "step_size": filled(parameter, float(group["lr"]))}

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        g, before, size = part.gradient, *(self.slots[name][part.place] for name in ("prev", "step_size"))
        (shorter, longer), (least, most) = part.group.option("etas"), part.group.option("step_sizes")
        sign = (g * before.detach()).sign()
        has_turned = sign < 0.0
        changed = (sign > 0.0).where(size * longer, has_turned.where(size * shorter, size))
        length = self.write(size, changed.clamp(least, most))
        g = has_turned.where(0.0, g)  # and so the next step neither keeps the sign nor changes it
        self.write(before, g)
        return part.value - g.sign() * length


class Adagrad(Optimizer):
    """p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(sum of g * g) + eps).

    >>> x = Tensor([1.0, 100.0], requires_grad=True)
    >>> optimizer = hcq.optim.Adagrad([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> print(x.detach())
    tensor([ 0.5000, 99.5000])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
        **further: Any,
    ):
        not_negative("Adagrad", "initial_accumulator_value", initial_accumulator_value)
        self._begin(locals())

    def state_of(self, group: Group, parameter: Tensor) -> dict[str, Tensor]:
        return {"sum": filled(parameter, group["initial_accumulator_value"])}

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        g, total = _with_decay(part), self.slots["sum"][part.place]
        self.write(total, total + g * g)
        slower = (self.count("step", part) - 1.0) * part.number("lr_decay") + 1.0
        return part.value - g / (total.sqrt() + part.number("eps")) * (rate / slower)


class Adadelta(Optimizer):
    """p -= lr * sqrt(u + eps) / sqrt(v + eps) * g, with running means u of squared steps and v of g * g.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> optimizer = hcq.optim.Adadelta([x])
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> print(x.detach())
    tensor([0.9968])
    """

    kept = ("square_avg", "acc_delta")

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **further: Any,
    ):
        self._begin(locals())

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        g, eps = _with_decay(part), part.number("eps")
        square, steps = self.slots["square_avg"][part.place], self.slots["acc_delta"][part.place]
        rho, rest = part.number("rho"), part.number("rho", lambda rho: 1.0 - rho, "1 -")
        self.write(square, square * rho + g * g * rest)
        step = (steps.detach() + eps).sqrt() / (square + eps).sqrt() * g
        self.write(steps, steps * rho + step * step * rest)
        return part.value - step * rate


class Adafactor(Optimizer):
    """Adam without momentum, whose squares of a matrix are kept as sums of its rows and columns.

    lr            the most that a step is, relative to the size of the parameter
    beta2_decay   beta2 is 1 - step ** beta2_decay
    eps           the least of squares (None: the dtype's), and the least size of a parameter
    d             steps are no longer than this, as root mean square
    Source        Shazeer and Stern 2018

    >>> w = nn.Parameter(Tensor.ones(30, 20))
    >>> optimizer = hcq.optim.Adafactor([w])
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> kept = optimizer.state_dict()["state"][0]
    >>> kept["row_var"].numel(), kept["col_var"].numel()
    (30, 20)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **further: Any,
    ):
        self._begin(locals())

    def check(self, call: str, key: str, value: Any) -> Any:
        if key == "eps":
            if not isinstance(value, (tuple, list)) or len(value) != 2:
                raise UsageError(
                    f"[{call}] eps {shown(value)}: give two numbers, the first of which may be None."
                )
            return tuple(None if each is None else not_negative(call, key, each) for each in value)
        if key == "d":
            return not_negative(call, key, value)
        return super().check(call, key, value)

    def state_of(self, group: Group, parameter: Tensor) -> dict[str, Tensor]:
        if parameter.ndim < 2:
            return {"variance": zeros(parameter)}
        shape, dtype, device = parameter.shape, parameter.dtype, parameter.device
        return {
            "row_var": constant((*shape[:-1], 1), 0.0, dtype, device),
            "col_var": constant((*shape[:-2], 1, shape[-1]), 0.0, dtype, device),
        }

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        g, value, step = part.gradient, part.value, self.count("step", part)
        least, smallest = part.group.option("eps")
        if least is None:
            least = 2.0**-52 if value.dtype is dtypes.float64 else 2.0**-23
        new = (step.log() * part.number("beta2_decay")).exp()
        alpha = value.square().mean().sqrt().maximum(smallest) * (step.rsqrt().minimum(rate))
        if part.group.option("weight_decay"):
            value = value * (1.0 - rate * part.number("weight_decay"))
        if g.ndim < 2:
            variance = self.slots["variance"][part.place]
            estimate = self.write(variance, variance + (g * g - variance) * new)
        else:
            rows, columns = self.slots["row_var"][part.place], self.slots["col_var"][part.place]
            self.write(rows, rows + (g.square().mean(-1, keepdim=True) - rows) * new)
            self.write(columns, columns + (g.square().mean(-2, keepdim=True) - columns) * new)
            estimate = rows * columns / rows.mean(-2, keepdim=True).maximum(least)
        step_taken = estimate.maximum(least * least).rsqrt() * g
        length = (step_taken.square().mean().sqrt() / part.number("d")).maximum(1.0)
        return value - step_taken * (alpha / length)


class Muon(Optimizer):
    """Steps along momentum whose singular values are all brought near 1. For matrices alone.

    nesterov        looks ahead
    ns_steps        of the Newton-Schulz iteration, with ns_coefficients, in bfloat16
    adjust_lr_fn    "original": lr * sqrt(max(1, rows / columns)); "match_rms_adamw": lr * sqrt(max(rows, columns)) / 5
    Raises          UsageError for parameters that have not two axes: give those to AdamW
    Source          Jordan et al. 2024

    >>> w = Tensor([[1.0, 0.0], [0.0, 100.0]], requires_grad=True)
    >>> optimizer = hcq.optim.Muon([w], lr=0.1, weight_decay=0.0)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> moved = 100.0 - w[1, 1].item()
    >>> 0.05 < moved < 0.15
    True
    """

    kept = ("momentum_buffer",)
    counted: ClassVar[dict[str, float]] = {}

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
        *,
        maximize: bool = False,
        **further: Any,
    ):
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise UsageError(
                f"[Muon] adjust_lr_fn {shown(adjust_lr_fn)}: use 'original' or 'match_rms_adamw'."
            )
        ns_coefficients = tuple(ns_coefficients)  # type: ignore[assignment]
        self._begin(locals())

    def state_of(self, group: Group, parameter: Tensor) -> dict[str, Tensor]:
        if parameter.ndim != 2:
            raise UsageError(
                f"[Muon] a parameter of shape {parameter.shape}: it moves matrices. Give AdamW the others."
            )
        return super().state_of(group, parameter)

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        g, buffer = part.gradient, self.slots["momentum_buffer"][part.place]
        rest = part.number("momentum", lambda momentum: 1.0 - momentum, "1 -")
        self.write(buffer, buffer + (g - buffer) * rest)
        step = g + (buffer - g) * part.number("momentum") if part.group.option("nesterov") else buffer
        step = _orthogonal(
            step,
            part.group.option("ns_coefficients"),
            part.group.option("ns_steps"),
            part.group.option("eps"),
        )
        rows, columns = part.value.shape
        matched = part.group.option("adjust_lr_fn") == "match_rms_adamw"
        scale = 0.2 * math.sqrt(max(rows, columns)) if matched else math.sqrt(max(1.0, rows / columns))
        value = part.value * (1.0 - rate * part.number("weight_decay"))
        return value - step.cast(value.dtype) * (rate * scale)


def _orthogonal(x: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """A matrix of the same singular vectors, whose singular values are near 1.

    Values between steps are bfloat16; a product and what is added to it are rounded once, together, as addmm does.
    """
    a, b, c = coefficients
    tall = x.shape[0] > x.shape[1]
    y = _rounded(x.T if tall else x)
    y = _rounded(y / _rounded(y.norm()).maximum(eps))
    for _ in range(steps):
        gram = _rounded(y @ y.T)
        y = _rounded(y * a + _rounded(gram * b + (gram @ gram) * c) @ y)
    return y.T if tall else y


def _rounded(x: Tensor) -> Tensor:
    """The values that bfloat16 has, as float32 to go on with."""
    return x.cast(dtypes.bfloat16).cast(dtypes.float32)
