"""Initial weights: random numbers that spread just so wide that a signal keeps its size on the way through a layer.

In       a weight's shape (out, in, ...), and the nonlinearity behind it
Out      `Initial`, the methods Tensor.kaiming_uniform, ...; the standard deviations that nn.init fills with
Changes  as random.py: each draw advances the device's counter
Next     random.py (the numbers), ../nn/init.py (the same in place, under PyTorch's names)
Source   He et al. 2015 (kaiming), Glorot and Bengio 2010 (xavier)
"""

from __future__ import annotations

import math
from typing import Any

from hcq.frontend.core.base import shape_args
from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.base import Methods, Self
from hcq.ir.node import Shape


class Initial(Methods):
    """kaiming_uniform, kaiming_normal, xavier_uniform, xavier_normal."""

    __slots__ = ()

    @classmethod
    def kaiming_uniform(cls, *shape: Any, a: float = 0.0, **options: Any) -> Self:
        """Uniform numbers that keep a signal's size through a weight (out, in, ...) and a rectifier.

        a        the rectifier's slope below zero
        options  dtype, device, requires_grad
        Source   He et al. 2015: a deviation of sqrt(2 / (1 + a * a) / fan_in), where fan_in = in * prod(...)

        >>> w = Tensor.kaiming_uniform(256, 150)
        >>> w.abs().max().item() <= (6 / 150) ** 0.5
        True
        """
        bound = math.sqrt(3.0) * kaiming_std(shape_args("kaiming_uniform", shape), a)
        return cls.uniform(*shape, low=-bound, high=bound, **options)

    @classmethod
    def kaiming_normal(cls, *shape: Any, a: float = 0.0, **options: Any) -> Self:
        """Normal numbers of the deviation of `kaiming_uniform`.

        >>> Tensor.manual_seed(0)
        >>> w = Tensor.kaiming_normal(256, 128)
        >>> abs(w.std().item() - (2 / 128) ** 0.5) < 0.002
        True
        """
        return cls.normal(*shape, std=kaiming_std(shape_args("kaiming_normal", shape), a), **options)

    @classmethod
    def xavier_uniform(cls, *shape: Any, gain: float = 1.0, **options: Any) -> Self:
        """Uniform numbers that keep the size of signal and gradient alike through a weight (out, in, ...).

        options  dtype, device, requires_grad
        Source   Glorot and Bengio 2010: a deviation of gain * sqrt(2 / (fan_in + fan_out))

        >>> w = Tensor.xavier_uniform(100, 50)
        >>> w.abs().max().item() <= (6 / 150) ** 0.5
        True
        """
        bound = math.sqrt(3.0) * xavier_std(shape_args("xavier_uniform", shape), gain)
        return cls.uniform(*shape, low=-bound, high=bound, **options)

    @classmethod
    def xavier_normal(cls, *shape: Any, gain: float = 1.0, **options: Any) -> Self:
        """Normal numbers of the deviation of `xavier_uniform`.

        >>> Tensor.manual_seed(0)
        >>> w = Tensor.xavier_normal(200, 200)
        >>> abs(w.std().item() - (2 / 400) ** 0.5) < 0.002
        True
        """
        return cls.normal(*shape, std=xavier_std(shape_args("xavier_normal", shape), gain), **options)


_GAINS = {
    **dict.fromkeys(("linear", "sigmoid"), 1.0),
    **dict.fromkeys((f"conv{kind}{axes}d" for kind in ("", "_transpose") for axes in (1, 2, 3)), 1.0),
    "tanh": 5.0 / 3.0,
    "relu": math.sqrt(2.0),
    "selu": 0.75,
}


@checked
def kaiming_std(shape: Shape, a: float, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> float:
    """The deviation that keeps the size of the signal (fan_in) or of the gradient (fan_out).

    >>> nn.init.kaiming_std((100, 50), 0.0) == (2 / 50) ** 0.5
    True
    """
    if mode not in ("fan_in", "fan_out"):
        raise UsageError(f"[kaiming] mode {mode!r}: give 'fan_in' or 'fan_out'.")
    fan_in, fan_out = fan_in_and_fan_out(shape)
    return calculate_gain(nonlinearity, a) / math.sqrt(max(1, fan_in if mode == "fan_in" else fan_out))


@checked
def xavier_std(shape: Shape, gain: float) -> float:
    """The deviation that keeps the size of signal and gradient alike, as far as both can be.

    >>> nn.init.xavier_std((30, 20), 1.0) == (2 / 50) ** 0.5
    True
    """
    return gain * math.sqrt(2.0 / max(1, sum(fan_in_and_fan_out(shape))))


@checked
def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """How much a nonlinearity shrinks a signal, to be made up for.

    param   leaky_relu's slope below zero, 0.01 unless given

    Raises  UsageError for a name that is not known

    >>> nn.init.calculate_gain("tanh"), nn.init.calculate_gain("relu") ** 2 - 2 < 1e-9
    (1.6666666666666667, True)
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1.0 + slope * slope))
    if nonlinearity not in _GAINS:
        known = ", ".join(sorted([*_GAINS, "leaky_relu"]))
        raise UsageError(f"[calculate_gain] {nonlinearity!r} is not known. Known: {known}.")
    return _GAINS[nonlinearity]


def fan_in_and_fan_out(shape: Shape) -> tuple[int, int]:
    """How many inputs each output of a weight (out, in, ...) has, and how many outputs each input."""
    if len(shape) < 2 or min(shape) < 0:
        raise UsageError(
            f"[init] shape {shape}: fan in and fan out need two axes or more, of 0 or more. Use uniform_ or zeros_."
        )
    receptive = math.prod(shape[2:])
    return shape[1] * receptive, shape[0] * receptive
