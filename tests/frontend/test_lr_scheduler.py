"""Schedules: thirty values of each beside PyTorch's, of chains and sequences of them too, and states of schedules."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hcq import Tensor
from hcq.errors import UsageError
from hcq.frontend import optim
from hcq.frontend.optim import lr_scheduler

EPOCHS = 30

SCHEDULES = {
    "StepLR": lambda s, o: s.StepLR(o, 4, gamma=0.7),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, [3, 3, 11, 20], gamma=0.5),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, 0.9),
    "ConstantLR": lambda s, o: s.ConstantLR(o, 0.3, 6),
    "LinearLR": lambda s, o: s.LinearLR(o, 0.2, 0.8, 9),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o, 12, 2.0),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, 8, eta_min=0.01),
    "CosineAnnealingWarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, eta_min=0.01),
    "LambdaLR": lambda s, o: s.LambdaLR(o, [lambda t: 0.9**t, lambda t: 1 / (1 + t)]),
    "MultiplicativeLR": lambda s, o: s.MultiplicativeLR(o, lambda t: 0.95),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, [1.0, 2.0], total_steps=EPOCHS),
    "OneCycleLR-three": lambda s, o: s.OneCycleLR(
        o, 1.0, epochs=5, steps_per_epoch=6, three_phase=True, anneal_strategy="linear"
    ),
    "CyclicLR": lambda s, o: s.CyclicLR(o, 0.1, [0.5, 0.7], 4, 6),
    "CyclicLR-2": lambda s, o: s.CyclicLR(o, 0.1, 0.5, 3, mode="triangular2"),
    "CyclicLR-exp": lambda s, o: s.CyclicLR(o, 0.1, 0.5, 3, mode="exp_range", gamma=0.9, cycle_momentum=False),
    "SequentialLR": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, 1.0, 5), s.CosineAnnealingLR(o, 10), s.ExponentialLR(o, 0.9)], [5, 16]
    ),
    "ChainedScheduler": lambda s, o: s.ChainedScheduler(
        [s.ExponentialLR(o, 0.95), s.ConstantLR(o, 0.5, 7), s.CosineAnnealingLR(o, 40)]
    ),
}  # fmt: skip


def values(schedules, optimizer, make):
    scheduler, found = make(schedules, optimizer), []
    for _ in range(EPOCHS):
        found.append([(group["lr"], group["momentum"]) for group in optimizer.param_groups])
        if len(found) < EPOCHS:
            scheduler.step()
    return found


def groups(tensor):
    return [{"params": [tensor([1.0], requires_grad=True)], "lr": rate} for rate in (1.0, 0.3)]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SCHEDULES)
def test_thirty_rates_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    mine = values(lr_scheduler, optim.SGD(groups(Tensor), momentum=0.9), SCHEDULES[name])
    other = torch.optim.SGD(groups(torch.tensor), momentum=0.9)
    np.testing.assert_allclose(
        mine, values(torch.optim.lr_scheduler, other, SCHEDULES[name]), rtol=1e-9, atol=1e-12
    )


@pytest.mark.torch
@pytest.mark.parametrize(
    "options",
    [{"patience": 2, "cooldown": 1}, {"mode": "max", "threshold_mode": "abs", "patience": 0, "min_lr": 0.05}],
)
def test_a_plateau_lowers_the_rate_as_pytorch_does(options):
    torch = pytest.importorskip("torch")
    mine, other = optim.SGD(groups(Tensor)), torch.optim.SGD(groups(torch.tensor))
    a = lr_scheduler.ReduceLROnPlateau(mine, factor=0.5, **options)
    b = torch.optim.lr_scheduler.ReduceLROnPlateau(other, factor=0.5, **options)
    for measure in np.random.default_rng(1).standard_normal(EPOCHS).cumsum():
        a.step(Tensor(float(measure)))
        b.step(float(measure))
        np.testing.assert_allclose(a.get_last_lr(), [group["lr"] for group in other.param_groups])


def test_a_schedule_goes_on_from_its_state():
    first = optim.SGD(groups(Tensor))
    schedule = lr_scheduler.CosineAnnealingLR(first, 8)
    for _ in range(3):
        schedule.step()
    second = optim.SGD(groups(Tensor))
    again = lr_scheduler.CosineAnnealingLR(second, 8)
    again.load_state_dict(schedule.state_dict())
    second.load_state_dict(first.state_dict())
    for each in (schedule, again):
        each.step()
    assert schedule.get_last_lr() == again.get_last_lr()
    assert math.isclose(again.get_last_lr()[0], (1 + math.cos(math.pi / 2)) / 2)


def test_the_last_step_of_a_cycle_in_straight_lines_passes_0_as_pytorchs_does():
    optimizer = optim.SGD(groups(Tensor))
    schedule = lr_scheduler.OneCycleLR(
        optimizer, 1.0, total_steps=10, anneal_strategy="linear", cycle_momentum=False
    )
    for _ in range(10):
        optimizer.param_groups[0]["params"][0].sum().backward()
        optimizer.step()
        schedule.step()
    # from the peak at step 2, down to almost 0 at step 9, and as far again
    peak, low = 1.0, 1.0 / 25 / 1e4
    assert math.isclose(optimizer.param_groups[0]["lr"], low - (peak - low) / 7, rel_tol=1e-9)
    with pytest.raises(UsageError, match="lr -1: give a number"):
        optim.SGD([Tensor([1.0], requires_grad=True)], lr=-1)
    with pytest.raises(UsageError, match="lr nan: give a number"):
        optimizer.param_groups[0]["lr"] = math.nan


def test_a_cycle_that_is_over_and_mistakes_are_answered_with_sentences():
    optimizer = optim.SGD(groups(Tensor))
    with pytest.raises(UsageError, match=r"\[OneCycleLR\] the optimizer has no momentum|give total_steps"):
        lr_scheduler.OneCycleLR(optimizer, 1.0)
    schedule = lr_scheduler.OneCycleLR(optim.SGD(groups(Tensor)), 1.0, total_steps=2, cycle_momentum=False)
    schedule.step()
    schedule.step()
    with pytest.raises(UsageError, match=r"\[OneCycleLR\] step 3 of 2: the cycle is over"):
        schedule.step()
    with pytest.raises(UsageError, match=r"\[StepLR\] step_size 0"):
        lr_scheduler.StepLR(optimizer, 0)


@pytest.mark.torch
def test_averages_of_weights_are_pytorchs():
    torch = pytest.importorskip("torch")
    from hcq import nn
    from hcq.frontend.optim import swa_utils

    mine, other = nn.Linear(2, 1, bias=False), torch.nn.Linear(2, 1, bias=False)
    pairs = [
        (swa_utils.AveragedModel(mine), torch.optim.swa_utils.AveragedModel(other)),
        (
            swa_utils.AveragedModel(mine, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9)),
            torch.optim.swa_utils.AveragedModel(
                other, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
            ),
        ),
    ]
    for step in range(4):
        value = np.array([[1.0 + step, step * step]], np.float32)
        mine.weight.assign(Tensor(value)).realize()
        other.weight.data = torch.tensor(value)
        for a, b in pairs:
            a.update_parameters(mine)
            b.update_parameters(other)
    for a, b in pairs:
        np.testing.assert_allclose(a.module.weight.numpy(), b.module.weight.detach().numpy(), rtol=1e-6)
        assert list(a.state_dict()) == ["n_averaged", "module.weight"] == list(b.state_dict())


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_swalr_goes_to_its_rate_as_pytorchs_does():
    torch = pytest.importorskip("torch")
    from hcq.frontend.optim import swa_utils

    for strategy in ("cos", "linear"):
        make = lambda s, o, kind=strategy: s.SWALR(o, 0.05, anneal_epochs=6, anneal_strategy=kind)  # noqa: E731
        mine = values(swa_utils, optim.SGD(groups(Tensor), momentum=0.9), make)
        other = values(torch.optim.swa_utils, torch.optim.SGD(groups(torch.tensor), momentum=0.9), make)
        np.testing.assert_allclose(mine, other, rtol=1e-9)
