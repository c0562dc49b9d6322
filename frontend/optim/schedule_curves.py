"""Schedule curves: the learning rate as a function of the time alone.

In       an optimizer, and the numbers of a curve
Out      `StepLR`, `CosineAnnealingLR`, `LambdaLR` and others
Next     schedules.py (what they share), schedule_cycles.py (rates that rise and fall, with momentum)
Source   PyTorch's torch.optim.lr_scheduler, for names, arguments and values; Loshchilov and Hutter 2017
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hcq.checks import is_whole, shown
from hcq.errors import UsageError
from hcq.frontend.optim.optimizer import Optimizer
from hcq.frontend.optim.schedules import LRScheduler


class _Curve(LRScheduler):
    """A schedule that multiplies the rate there was, so that several of them multiply each other's."""

    least = 0.0  # what the curve goes above

    def curve(self, time: int) -> float:
        """The rate at a time, as a share of the first one."""
        raise NotImplementedError

    def rate(self, place: int, now: float, time: int) -> float:
        base = self.base_lrs[place]
        if time <= 0:
            return self.least + (now - self.least) * self.curve(0)
        before, after = self.curve(time - 1), self.curve(time)
        if before == after:
            return now
        if before == 0.0:
            return self.least + (base - self.least) * after
        return self.least + (now - self.least) * (after / before)

    def rate_at(self, place: int, time: int) -> float:
        return self.least + (self.base_lrs[place] - self.least) * self.curve(max(0, time))


class StepLR(_Curve):
    """Times gamma every step_size epochs.

    >>> optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = nn.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(optimizer.param_groups[0]["lr"])
    ...     schedule.step()
    >>> rates
    [1.0, 1.0, 0.5, 0.5]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        if not is_whole(step_size) or step_size < 1:
            raise UsageError(f"[StepLR] step_size {shown(step_size)}: give an int, 1 or more.")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def curve(self, time: int) -> float:
        return self.gamma ** (time // self.step_size)


class MultiStepLR(_Curve):
    """Times gamma at each of the milestones.

    >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = hcq.optim.lr_scheduler.MultiStepLR(optimizer, [1, 3], gamma=0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(schedule.get_last_lr()[0])
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1
    ):
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def curve(self, time: int) -> float:
        return self.gamma ** sum(milestone <= time for milestone in self.milestones)


class ExponentialLR(_Curve):
    """Times gamma every epoch.

    >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = hcq.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(schedule.get_last_lr()[0])
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.25, 0.125]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def curve(self, time: int) -> float:
        return self.gamma**time


class ConstantLR(_Curve):
    """Times factor for total_iters epochs, then whole.

    >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = hcq.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(schedule.get_last_lr()[0])
    ...     schedule.step()
    >>> rates
    [0.5, 0.5, 1.0, 1.0]
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ):
        if not 0.0 <= factor <= 1.0:
            raise UsageError(f"[ConstantLR] factor {shown(factor)}: give a number from 0 to 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def curve(self, time: int) -> float:
        return self.factor if time < self.total_iters else 1.0


class LinearLR(_Curve):
    """Along a line from start_factor to end_factor, in total_iters epochs.

    >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = hcq.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(schedule.get_last_lr()[0])
    ...     schedule.step()
    >>> rates
    [0.5, 0.75, 1.0, 1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ):
        if not 0.0 < start_factor <= 1.0 or not 0.0 <= end_factor <= 1.0:
            raise UsageError(f"[LinearLR] factors {start_factor} and {end_factor}: give numbers from 0 to 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def curve(self, time: int) -> float:
        share = min(time, self.total_iters) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * share


class PolynomialLR(_Curve):
    """(1 - time / total_iters) ** power, then zero.

    >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = hcq.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(schedule.get_last_lr()[0])
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.0, 0.0]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def curve(self, time: int) -> float:
        return (1.0 - min(time, self.total_iters) / self.total_iters) ** self.power


class CosineAnnealingLR(_Curve):
    """Down to eta_min and up again along a cosine of half period T_max.

    Source  Loshchilov and Hutter 2017

    >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = hcq.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(schedule.get_last_lr()[0])
    ...     schedule.step()
    >>> [round(rate, 6) for rate in rates]
    [1.0, 0.5, 0.0, 0.5, 1.0]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        self.least = eta_min
        super().__init__(optimizer, last_epoch)

    def curve(self, time: int) -> float:
        if time % (2 * self.T_max) == self.T_max:
            return 0.0
        return (1.0 + math.cos(math.pi * time / self.T_max)) / 2.0


class CosineAnnealingWarmRestarts(LRScheduler):
    """Down to eta_min along a cosine, and from the start again: after T_0 epochs, then T_mult times as many, ...

    step() may be given a time with a fraction. Source: Loshchilov and Hutter 2017

    >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = hcq.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(schedule.get_last_lr()[0])
    ...     schedule.step()
    >>> [round(rate, 6) for rate in rates]
    [1.0, 0.5, 1.0, 0.5, 1.0]
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ):
        if not is_whole(T_0) or T_0 < 1 or not is_whole(T_mult) or T_mult < 1:
            raise UsageError(
                f"[CosineAnnealingWarmRestarts] T_0 {T_0}, T_mult {T_mult}: give ints, 1 or more."
            )
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, place: int, now: float, time: float) -> float:
        period: float = self.T_0
        if self.T_mult == 1:
            time = time % period
        while time >= period:
            time -= period
            period *= self.T_mult
        base = self.base_lrs[place]
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * time / period)) / 2


class LambdaLR(LRScheduler):
    """The first rate times a function of the time, or one function for each group.

    >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=2.0)
    >>> schedule = hcq.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))
    >>> rates = []
    >>> for _ in range(2):
    ...     rates.append(schedule.get_last_lr()[0])
    ...     schedule.step()
    >>> rates
    [2.0, 1.0]
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1):
        self.lr_lambdas = _functions("LambdaLR", optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def rate(self, place: int, now: float, time: int) -> float:
        return self.base_lrs[place] * self.lr_lambdas[place](time)


class MultiplicativeLR(LRScheduler):
    """The rate there was times a function of the time, or one function for each group.

    >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = hcq.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
    >>> rates = []
    >>> for _ in range(3):
    ...     rates.append(schedule.get_last_lr()[0])
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1):
        self.lr_lambdas = _functions("MultiplicativeLR", optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def rate(self, place: int, now: float, time: int) -> float:
        return now * self.lr_lambdas[place](time) if time > 0 else now

    def rate_at(self, place: int, time: int) -> float:
        rate = self.base_lrs[place]
        for each in range(1, time + 1):
            rate *= self.lr_lambdas[place](each)
        return rate


def _functions(call: str, optimizer: Optimizer, given: Any) -> list[Callable[[int], float]]:
    count = len(optimizer.param_groups) if isinstance(optimizer, Optimizer) else 1
    found = list(given) if isinstance(given, (list, tuple)) else [given] * count
    if len(found) != count or not all(callable(each) for each in found):
        raise UsageError(
            f"[{call}] lr_lambda {shown(given)}: give a function, or one for each of {count} groups."
        )
    return found
