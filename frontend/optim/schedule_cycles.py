"""Schedule cycles: rates that rise and fall, while momentum goes the other way.

In       an optimizer, the least and the greatest rate, how many steps
Out      `OneCycleLR`, `CyclicLR`
Changes  momentum of the optimizer's groups, too
Next     schedules.py (what they share)
Source   PyTorch's torch.optim.lr_scheduler, for names, arguments and values; Smith 2017
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hcq.checks import is_whole, shown
from hcq.errors import UsageError
from hcq.frontend.optim.optimizer import Optimizer
from hcq.frontend.optim.schedules import LRScheduler


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
