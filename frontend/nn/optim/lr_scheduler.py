"""Schedules: the learning rate, and at times the momentum, as functions of how many steps or epochs there were.

In       an optimizer; then `step()` after each epoch or batch
Out      `StepLR`, `CosineAnnealingLR`, `OneCycleLR` and others, under PyTorch's names
Changes  the options of the optimizer's groups
Next     groups.py (how a new rate reaches kernels and recordings)
Source   PyTorch's torch.optim.lr_scheduler, for names, arguments and values; Loshchilov and Hutter 2017; Smith 2017

step() belongs outside of a recorded function (jit): a replay runs no Python, and the rate it reads is the one that is
set when it runs. Inside, it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hcq.checks import is_whole, shown
from hcq.errors import UsageError
from hcq.frontend.core import thread_modes, watcher
from hcq.frontend.nn.optim.optimizer import Optimizer
from hcq.frontend.tensor import Tensor


def _rate(group: Any) -> float:
    rate = group["lr"]
    return float(rate.item()) if isinstance(rate, Tensor) else rate


class LRScheduler:
    """What all schedules share. A subclass says in `rate` what a group's rate is at a time.

    last_epoch   the time to go on from, for an optimizer whose groups have initial_lr; -1 starts

    >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> class Halving(hcq.optim.lr_scheduler.LRScheduler):
    ...     def rate(self, place, now, time):
    ...         return self.base_lrs[place] / 2**time
    >>> schedule = Halving(optimizer)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(schedule.get_last_lr()[0])
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.25, 0.125]
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if not isinstance(optimizer, Optimizer):
            raise UsageError(f"[{type(self).__name__}] {shown(optimizer)}: give an optimizer.")
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group.setdefault("initial_lr", _rate(group))
                group["initial_lr"] = _rate(group) if "initial_lr" not in group else group["initial_lr"]
            elif "initial_lr" not in group:
                raise UsageError(
                    f"[{type(self).__name__}] last_epoch {last_epoch}: the optimizer's groups have no 'initial_lr'. "
                    "Load the optimizer's state first."
                )
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.begin()
        self.step()

    def begin(self) -> None:
        """What is done before the first rate is set, for a subclass to say."""

    def rate(self, place: int, now: float, time: int) -> float:
        """The rate of a group at a time, where it was `now` at the time before; at the first time `now` is its own."""
        raise UsageError(f"[{type(self).__name__}] has no rate(): define it as rate(self, place, now, time).")

    def rate_at(self, place: int, time: int) -> float:
        """The rate of a group at a time, whatever there was before."""
        return self.rate(place, self.base_lrs[place], time)

    def get_last_lr(self) -> list[float]:
        """The rates that were set last, of each group.

        >>> optimizer = hcq.optim.SGD([{"params": [Tensor([1.0], requires_grad=True)], "lr": 0.5}], lr=1.0)
        >>> hcq.optim.lr_scheduler.StepLR(optimizer, 2).get_last_lr()
        [0.5]
        """
        return list(self._last_lr)

    def step(self, epoch: int | None = None) -> None:
        """Go on by one, or to a time, and set the rates. Raises UsageError inside of a recorded function.

        >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> schedule = hcq.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        >>> schedule.step()
        >>> optimizer.param_groups[0]["lr"]
        0.5
        """
        _refuse_recording(type(self).__name__)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        groups = self.optimizer.param_groups
        for place, group in enumerate(groups):
            if epoch is None:
                group["lr"] = self.rate(place, _rate(group), self.last_epoch)
            else:
                group["lr"] = self.rate_at(place, self.last_epoch)
        self.after()
        self._last_lr = [_rate(group) for group in groups]

    def after(self) -> None:
        """What else is set once the rates are, for a subclass to say."""

    def state_dict(self) -> dict[str, Any]:
        """Plain values: all that the next step depends on besides the optimizer.

        >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> hcq.optim.lr_scheduler.StepLR(optimizer, 2).state_dict()["last_epoch"]
        0
        """
        return {
            name: value
            for name, value in vars(self).items()
            if name != "optimizer" and not callable(value) and not _holds_callables(value)
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what state_dict gave.

        >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> first, second = (hcq.optim.lr_scheduler.StepLR(optimizer, 2) for _ in range(2))
        >>> first.step()
        >>> second.load_state_dict(first.state_dict())
        >>> second.last_epoch
        1
        """
        vars(self).update(state_dict)


def _holds_callables(value: Any) -> bool:
    return isinstance(value, list) and any(callable(each) or isinstance(each, LRScheduler) for each in value)


def _refuse_recording(call: str) -> None:
    watching = watcher() if thread_modes else None
    if watching is not None:
        watching.forbids(
            f"{call}.step()", "a replay would not do it again. Call it outside of the recorded function"
        )


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


class _Cycle(LRScheduler):
    """A schedule that moves the momentum, too: "momentum" where a group has it, else betas[0]."""

    cycles = False

    def _set_momentum(self, momentums: list[float]) -> None:
        for group, momentum in zip(self.optimizer.param_groups, momentums):
            if "betas" in group:
                group["betas"] = (momentum, *group["betas"][1:])
            else:
                group["momentum"] = momentum

    def _refuse_without(self, optimizer: Optimizer, call: str) -> None:
        if not all("momentum" in group or "betas" in group for group in optimizer.param_groups):
            raise UsageError(f"[{call}] the optimizer has no momentum. Pass cycle_momentum=False.")

    def _each(self, value: Any) -> list[float]:
        count = len(self.optimizer.param_groups)
        found = list(value) if isinstance(value, (list, tuple)) else [value] * count
        if len(found) != count:
            raise UsageError(
                f"[{type(self).__name__}] {shown(value)}: give one number, or one for each of {count} groups."
            )
        return found


class OneCycleLR(_Cycle):
    """Up from max_lr / div_factor to max_lr, and far down; momentum goes the other way.

    total_steps       of the whole cycle; or epochs * steps_per_epoch
    pct_start         the share of them that goes up
    anneal_strategy   "cos" or "linear"
    three_phase       goes down to where it began first
    Source            Smith and Topin 2018

    >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.1, momentum=0.9)
    >>> schedule = hcq.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=5, pct_start=0.4)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(schedule.get_last_lr()[0])
    ...     schedule.step()
    >>> [round(rate, 4) for rate in rates]
    [0.04, 1.0, 0.75, 0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ):
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise UsageError("[OneCycleLR] give total_steps, or epochs and steps_per_epoch.")
        self.total_steps = total_steps or (epochs or 0) * (steps_per_epoch or 0)
        if not is_whole(self.total_steps) or self.total_steps < 1 or not 0.0 <= pct_start <= 1.0:
            raise UsageError(
                f"[OneCycleLR] {self.total_steps} steps, pct_start {pct_start}: give 1 or more, and 0 to 1."
            )
        if anneal_strategy not in ("cos", "linear"):
            raise UsageError(f"[OneCycleLR] anneal_strategy {shown(anneal_strategy)}: use 'cos' or 'linear'.")
        self.anneal_strategy, self.cycles = anneal_strategy, cycle_momentum
        self.optimizer = optimizer
        top, low, high = self._each(max_lr), self._each(base_momentum), self._each(max_momentum)
        first = [each / div_factor for each in top]
        last = [each / final_div_factor for each in first]
        up = float(pct_start * self.total_steps) - 1
        end = self.total_steps - 1
        self.phases = [(up, first, top, high, low)]
        if three_phase:
            self.phases += [(2 * up + 0.0, top, first, low, high), (end, first, last, high, high)]
        else:
            self.phases += [(end, top, last, low, high)]
        if cycle_momentum:
            self._refuse_without(optimizer, "OneCycleLR")
        if last_epoch == -1:
            for group, each in zip(optimizer.param_groups, first):
                group.setdefault("initial_lr", each)
                group["initial_lr"] = each
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "linear":
            return start + (end - start) * share
        return end + (start - end) / 2.0 * (1 + math.cos(math.pi * share))

    def _at(self, time: int, place: int) -> tuple[float, float]:
        if time > self.total_steps:
            raise UsageError(
                f"[OneCycleLR] step {time} of {self.total_steps}: the cycle is over. Make it longer."
            )
        begin = 0.0
        for number, (end, lr_from, lr_to, m_from, m_to) in enumerate(self.phases):
            if time <= end or number == len(self.phases) - 1:
                share = (time - begin) / (end - begin) if end != begin else 1.0
                return (
                    self._between(lr_from[place], lr_to[place], share),
                    self._between(m_from[place], m_to[place], share),
                )
            begin = end
        raise AssertionError("the last phase has no end")

    def rate(self, place: int, now: float, time: int) -> float:
        return self._at(time, place)[0]

    def after(self) -> None:
        if self.cycles:
            places = range(len(self.optimizer.param_groups))
            self._set_momentum([self._at(self.last_epoch, place)[1] for place in places])


class CyclicLR(_Cycle):
    """Between base_lr and max_lr, up in step_size_up steps and down in step_size_down; momentum goes the other way.

    mode       "triangular"; "triangular2" halves the height each cycle; "exp_range" multiplies it by gamma each step
    scale_fn   a height of one's own, of the cycle (scale_mode "cycle") or of the step ("iterations")
    Source     Smith 2017

    >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0, momentum=0.9)
    >>> schedule = hcq.optim.lr_scheduler.CyclicLR(optimizer, 0.5, 1.0, step_size_up=2)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(schedule.get_last_lr()[0])
    ...     schedule.step()
    >>> [round(rate, 6) for rate in rates]
    [0.5, 0.75, 1.0, 0.75, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.8,
        max_momentum: Any = 0.9,
        last_epoch: int = -1,
    ):
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise UsageError(
                f"[CyclicLR] mode {shown(mode)}: use 'triangular', 'triangular2' or 'exp_range'."
            )
        self.optimizer = optimizer
        self.low, self.high = self._each(base_lr), self._each(max_lr)
        self.momentums = self._each(base_momentum), self._each(max_momentum)
        self.up = float(step_size_up)
        self.total = self.up + float(step_size_up if step_size_down is None else step_size_down)
        self.mode, self.gamma, self.scale_fn = mode, gamma, scale_fn
        self.scale_mode = "iterations" if scale_fn is None and mode == "exp_range" else scale_mode
        self.cycles = cycle_momentum
        if cycle_momentum:
            self._refuse_without(optimizer, "CyclicLR")
        for group, low in zip(optimizer.param_groups, self.low):
            if last_epoch == -1:
                group["lr"] = low
                group["initial_lr"] = low
        super().__init__(optimizer, last_epoch)

    def _height(self, time: float) -> float:
        """How far up between low and high."""
        cycle = math.floor(1 + time / self.total)
        within = 1.0 + time / self.total - cycle
        ratio = self.up / self.total
        share = within / ratio if within <= ratio else (within - 1) / (ratio - 1)
        argument = cycle if self.scale_mode == "cycle" else time
        return share * self._scale(argument)

    def _scale(self, at: float) -> float:
        if self.scale_fn is not None:
            return self.scale_fn(at)
        if self.mode == "triangular":
            return 1.0
        return 0.5 ** (at - 1) if self.mode == "triangular2" else self.gamma**at

    def rate(self, place: int, now: float, time: int) -> float:
        return self.low[place] + (self.high[place] - self.low[place]) * self._height(time)

    def after(self) -> None:
        if self.cycles:
            height = self._height(self.last_epoch)
            self._set_momentum([high - (high - low) * height for low, high in zip(*self.momentums)])


class SequentialLR:
    """One schedule after the other: the next one begins at each of the milestones.

    >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> warm = hcq.optim.lr_scheduler.ConstantLR(optimizer, 0.5, 9)
    >>> fall = hcq.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    >>> schedule = hcq.optim.lr_scheduler.SequentialLR(optimizer, [warm, fall], [2])
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(schedule.get_last_lr()[0])
    ...     schedule.step()
    >>> rates
    [0.5, 0.5, 1.0, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[Any],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ):
        if not schedulers or len(milestones) != len(schedulers) - 1:
            raise UsageError(
                f"[SequentialLR] {len(schedulers)} schedules and {len(milestones)} milestones: give one fewer of these."
            )
        if any(getattr(each, "optimizer", None) is not optimizer for each in schedulers):
            raise UsageError(
                "[SequentialLR] the schedules are of another optimizer. Make all of the same one."
            )
        self.optimizer = optimizer
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:  # where each schedule left it when it was made
            group["lr"] = group["initial_lr"]
        for each in self._schedulers:
            each.last_epoch -= 1
        self._schedulers[0].step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def step(self) -> None:
        """Go on by one."""
        self.last_epoch += 1
        number = sum(milestone <= self.last_epoch for milestone in self._milestones)
        scheduler = self._schedulers[number]
        if number and self._milestones[number - 1] == self.last_epoch:
            scheduler.step(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def get_last_lr(self) -> list[float]:
        """The rates that were set last, of each group."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """Plain values, and those of the schedules."""
        return {"last_epoch": self.last_epoch, "schedulers": [each.state_dict() for each in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what state_dict gave."""
        self.last_epoch = state_dict["last_epoch"]
        for each, state in zip(self._schedulers, state_dict["schedulers"]):
            each.load_state_dict(state)


class ChainedScheduler:
    """Several schedules at once, each of which multiplies what the others made.

    >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> halve = lambda: hcq.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    >>> schedule = hcq.optim.lr_scheduler.ChainedScheduler([halve(), halve()])
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        if not schedulers:
            raise UsageError("[ChainedScheduler] the list is empty. Give schedules.")
        self._schedulers = list(schedulers)
        self.optimizer = optimizer or self._schedulers[0].optimizer
        if any(each.optimizer is not self.optimizer for each in self._schedulers):
            raise UsageError(
                "[ChainedScheduler] the schedules are of several optimizers. Make all of the same one."
            )

    def step(self) -> None:
        """Go on by one, with all of them."""
        for each in self._schedulers:
            each.step()

    def get_last_lr(self) -> list[float]:
        """The rates that were set last, of each group."""
        return self._schedulers[-1].get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """Those of the schedules."""
        return {"schedulers": [each.state_dict() for each in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what state_dict gave."""
        for each, state in zip(self._schedulers, state_dict["schedulers"]):
            each.load_state_dict(state)


class ReduceLROnPlateau:
    """Times factor once a measure has not become better for `patience` epochs; step() is given the measure.

    mode        "min" or "max": what better is
    threshold   how much better counts, relative ("rel") or as it is ("abs")
    cooldown    epochs after a change that do not count

    >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = hcq.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     schedule.step(loss)
    >>> optimizer.param_groups[0]["lr"]
    0.5
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: Any = 0.0,
        eps: float = 1e-8,
    ):
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs") or not factor < 1.0:
            raise UsageError(
                f"[ReduceLROnPlateau] mode {mode!r}, threshold_mode {threshold_mode!r}, factor {factor}: use 'min' or "
                "'max', 'rel' or 'abs', and a factor below 1."
            )
        self.optimizer = optimizer
        self.mode, self.factor, self.patience, self.cooldown = mode, factor, patience, cooldown
        self.threshold, self.threshold_mode, self.eps = threshold, threshold_mode, eps
        count = len(optimizer.param_groups)
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * count
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0
        self._last_lr = [_rate(group) for group in optimizer.param_groups]

    def step(self, metrics: Any) -> None:
        """Go on by one, with the measure of this epoch; a tensor is read."""
        _refuse_recording("ReduceLROnPlateau")
        now = float(metrics.item() if hasattr(metrics, "item") else metrics)
        self.last_epoch += 1
        if self._is_better(now):
            self.best, self.num_bad_epochs = now, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs):
                new = max(_rate(group) * self.factor, least)
                if _rate(group) - new > self.eps:
                    group["lr"] = new
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [_rate(group) for group in self.optimizer.param_groups]

    def _is_better(self, now: float) -> bool:
        sign = 1.0 if self.mode == "min" else -1.0
        if self.threshold_mode == "rel":
            return sign * now < sign * self.best * (1.0 - sign * self.threshold)
        return sign * now < sign * self.best - self.threshold

    def get_last_lr(self) -> list[float]:
        """The rates that were set last, of each group."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """Plain values: all that the next step depends on besides the optimizer."""
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what state_dict gave."""
        vars(self).update(state_dict)
