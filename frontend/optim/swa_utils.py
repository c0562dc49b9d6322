"""Averages of weights over steps: plain ones (SWA) and running ones (EMA), and the schedule that goes with them.

In       a model in training
Out      `AveragedModel`, `SWALR`, `update_bn`, `get_ema_multi_avg_fn`
Changes  the averages, in place
Next     lr_scheduler.py
Source   Izmailov et al. 2018; Polyak and Juditsky 1992
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.nn.constant import constant
from hcq.frontend.nn.layers.norm import BatchNorm
from hcq.frontend.nn.module import Module
from hcq.frontend.optim.optimizer import Optimizer
from hcq.frontend.optim.schedules import LRScheduler
from hcq.frontend.run.realize import realize
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

Average = Callable[[Tensor, Tensor, Tensor], Tensor]  # the average, the new value, how many there were


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """decay * average + (1 - decay) * new.

    >>> hcq.optim.swa_utils.get_ema_avg_fn(0.75)(Tensor([4.0]), Tensor([8.0]), 1).tolist()
    [5.0]
    """
    if not 0.0 <= decay <= 1.0:
        raise UsageError(f"[get_ema_avg_fn] decay {shown(decay)}: give a number from 0 to 1.")
    return lambda average, new, count: average * decay + new * (1.0 - decay)


def get_ema_multi_avg_fn(decay: float = 0.999) -> Average:
    """`get_ema_avg_fn`; all parameters are averaged in one schedule either way.

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> half = hcq.optim.swa_utils.get_ema_multi_avg_fn(0.5)
    >>> average = hcq.optim.swa_utils.AveragedModel(layer, multi_avg_fn=half)
    >>> for value in (4.0, 8.0):
    ...     _ = nn.init.constant_(layer.weight, value)
    ...     average.update_parameters(layer)
    >>> average.module.weight.tolist()
    [[6.0]]
    """
    return get_ema_avg_fn(decay)


def get_swa_avg_fn() -> Average:
    """The plain average of all values so far.

    >>> hcq.optim.swa_utils.get_swa_avg_fn()(Tensor([4.0]), Tensor([8.0]), hcq.tensor(3)).tolist()
    [5.0]
    """
    return lambda average, new, count: average + (new - average) / (count + 1).cast(average.dtype)


class AveragedModel(Module):
    """A copy of a model whose parameters are averages: `update_parameters(model)` after each step.

    avg_fn        what the average becomes; `get_ema_multi_avg_fn(decay)` for a running one
    use_buffers   average floats among buffers, too; else they are taken over

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> average = nn.optim.swa_utils.AveragedModel(layer)
    >>> for value in (1.0, 3.0):
    ...     _ = nn.init.constant_(layer.weight, value)
    ...     average.update_parameters(layer)
    >>> average.module.weight.tolist()
    [[2.0]]
    """

    buffers_of_class = ("n_averaged",)

    def __init__(
        self,
        model: Module,
        device: str | None = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Average | None = None,
        use_buffers: bool = False,
    ):
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        where = next((tensor.device for tensor in self.module.parameters()), device)
        self.n_averaged = constant((), 0, dtypes.int64, where)
        self.avg_fn, self.use_buffers = multi_avg_fn or avg_fn or get_swa_avg_fn(), use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the averaged model gives."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take a model's parameters into the averages; the first ones are taken over. It may be part of a recording.

        >>> layer = nn.Linear(1, 1, bias=False)
        >>> average = hcq.optim.swa_utils.AveragedModel(layer)
        >>> for value in (1.0, 2.0, 6.0):
        ...     _ = nn.init.constant_(layer.weight, value)
        ...     average.update_parameters(layer)
        >>> average.module.weight.tolist(), average.n_averaged.item()
        ([[3.0]], 3)
        """
        changed: list[Tensor] = []
        count = self.n_averaged.detach()
        pairs = list(zip(self.module.parameters(), model.parameters()))
        buffers = list(zip(self.module.buffers(), model.buffers()))
        if self.use_buffers:
            pairs += [pair for pair in buffers if pair[0].dtype.is_float]
            buffers = [pair for pair in buffers if not pair[0].dtype.is_float]
        for average, new in pairs:
            value = new.detach().to(average.device)
            before = average.detach()
            first = count.to(average.device)
            average.assign((first == 0).where(value, self.avg_fn(before, value, first)))
            changed.append(average)
        for average, new in buffers:
            average.assign(new.detach().to(average.device))
            changed.append(average)
        self.n_averaged.assign(count + 1)
        realize([*changed, self.n_averaged])


def update_bn(loader: Iterable[Any], model: Module, device: str | None = None) -> None:
    """Take the running statistics of a model's batch norms anew, over all batches of `loader`.

    >>> model = nn.Sequential(nn.BatchNorm1d(1))
    >>> hcq.optim.swa_utils.update_bn([Tensor([[1.0], [3.0]]), Tensor([[5.0], [7.0]])], model)
    >>> model[0].running_mean.tolist()
    [4.0]
    """
    norms = [module for module in model.modules() if isinstance(module, BatchNorm)]
    if not norms:
        return
    momenta, was_training = [norm.momentum for norm in norms], model.training
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    for batch in loader:
        x = batch[0] if isinstance(batch, (tuple, list)) else batch
        model(x if device is None else x.to(device))
        realize([tensor for norm in norms for tensor in norm.buffers()])
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """To swa_lr in anneal_epochs, along a cosine or a line ("cos", "linear"), and then that.

    >>> optimizer = hcq.optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = hcq.optim.swa_utils.SWALR(optimizer, 0.5, anneal_epochs=2, anneal_strategy="linear")
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(optimizer.param_groups[0]["lr"])
    ...     schedule.step()
    >>> rates
    [1.0, 0.75, 0.5, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ):
        if anneal_strategy not in ("cos", "linear"):
            raise UsageError(f"[SWALR] anneal_strategy {shown(anneal_strategy)}: use 'cos' or 'linear'.")
        self.swa_lr, self.anneal_epochs, self.anneal_strategy = swa_lr, anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, time: int) -> float:
        share = max(0.0, min(1.0, time / max(1, self.anneal_epochs))) if self.anneal_epochs else 1.0
        return share if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * share)) / 2

    def rate(self, place: int, now: float, time: int) -> float:
        """Of the rate there was, what it would have been at the beginning, and from there on."""
        before = self._share(time - 1)
        start = (now - before * self.swa_lr) / (1 - before) if before < 1 else now
        share = self._share(time)
        return self.swa_lr * share + start * (1 - share)
