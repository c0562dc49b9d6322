"""Schedules: what all schedules of the learning rate share.

In       an optimizer; then `step()` after each epoch or batch
Out      `LRScheduler`, and how a rate is read and a recording refused
Changes  the options of the optimizer's groups
Next     lr_scheduler.py (all of them), groups.py (how a new rate reaches kernels and recordings)
"""

from __future__ import annotations

from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.core.base import thread_modes, watcher
from hcq.frontend.optim.optimizer import Optimizer
from hcq.frontend.tensor import Tensor


def rate_of(group: Any) -> float:
    """The rate of a group now, as a number."""
    rate = group["lr"]
    return float(rate.item()) if isinstance(rate, Tensor) else rate


class _Kept:
    """What sets rates, and can be saved: the rates of each group that it set last, and its state."""

    _last_lr: list[float]

    def get_last_lr(self) -> list[float]:
        """The rates that were set last, of each group.

        >>> optimizer = hcq.optim.SGD([{"params": [Tensor([1.0], requires_grad=True)], "lr": 0.5}], lr=1.0)
        >>> hcq.optim.lr_scheduler.StepLR(optimizer, 2).get_last_lr()
        [0.5]
        """
        return list(self._last_lr)

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


class LRScheduler(_Kept):
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
                group.setdefault("initial_lr", rate_of(group))
                group["initial_lr"] = rate_of(group) if "initial_lr" not in group else group["initial_lr"]
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

    def step(self, epoch: int | None = None) -> None:
        """Go on by one, or to a time, and set the rates. Raises UsageError inside of a recorded function.

        >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> schedule = hcq.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        >>> schedule.step()
        >>> optimizer.param_groups[0]["lr"]
        0.5
        """
        refuse_recording(type(self).__name__)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        groups = self.optimizer.param_groups
        for place, group in enumerate(groups):
            if epoch is None:
                group["lr"] = self.rate(place, rate_of(group), self.last_epoch)
            else:
                group["lr"] = self.rate_at(place, self.last_epoch)
        self.after()
        self._last_lr = [rate_of(group) for group in groups]

    def after(self) -> None:
        """What else is set once the rates are, for a subclass to say."""


def _holds_callables(value: Any) -> bool:
    return isinstance(value, list) and any(callable(each) or isinstance(each, LRScheduler) for each in value)


def refuse_recording(call: str) -> None:
    """Raises UsageError inside of a recorded function: a replay would not go on."""
    watching = watcher() if thread_modes else None
    if watching is not None:
        watching.forbids(
            f"{call}.step()", "a replay would not do it again. Call it outside of the recorded function"
        )
