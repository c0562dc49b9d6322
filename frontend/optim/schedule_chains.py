"""Schedule chains: schedules one after the other or together, and one that looks at a measure.

In       schedules of one optimizer; or a measure at each step
Out      `SequentialLR`, `ChainedScheduler`, `ReduceLROnPlateau`
Changes  the options of the optimizer's groups
Next     schedules.py (what a schedule is)
Source   PyTorch's torch.optim.lr_scheduler, for names, arguments and values
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.optim.optimizer import Optimizer
from hcq.frontend.optim.schedules import LRScheduler, _Kept, rate_of, refuse_recording


class SequentialLR(_Kept):
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
        self, optimizer: Optimizer, schedulers: Sequence[Any], milestones: Sequence[int], last_epoch: int = -1
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


class ReduceLROnPlateau(_Kept):
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
        self._last_lr = [rate_of(group) for group in optimizer.param_groups]

    def step(self, metrics: Any) -> None:
        """Go on by one, with the measure of this epoch; a tensor is read."""
        refuse_recording("ReduceLROnPlateau")
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
                new = max(rate_of(group) * self.factor, least)
                if rate_of(group) - new > self.eps:
                    group["lr"] = new
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [rate_of(group) for group in self.optimizer.param_groups]

    def _is_better(self, now: float) -> bool:
        sign = 1.0 if self.mode == "min" else -1.0
        if self.threshold_mode == "rel":
            return sign * now < sign * self.best * (1.0 - sign * self.threshold)
        return sign * now < sign * self.best - self.threshold
