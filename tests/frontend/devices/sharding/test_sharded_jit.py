"""A training step over several devices: recorded, it does what it did, and each channel gets one submission."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hcq import Tensor, jit, nn
from hcq.errors import UsageError
from hcq.frontend.core import device as devices
from hcq.frontend.devices.collectives import cost
from hcq.frontend.devices.collectives.perform import tally

pytestmark = pytest.mark.own_devices

TWO = ["CPU:0", "CPU:1"]


def batches(count: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    return [(rng.standard_normal((8, 6)).astype(np.float32), rng.integers(0, 4, 8)) for _ in range(count)]


class Trainer:
    """A network with its optimizer on some devices, and a step that is recorded or not."""

    def __init__(self, where: list[str], is_recorded: bool) -> None:
        Tensor.manual_seed(1)
        self.where = where
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
        if len(where) > 1:
            self.net.shard(where)
        self.optimizer = nn.optim.Adam(self.net.parameters(), lr=0.01)
        self.step: Any = jit(self._step) if is_recorded else self._step

    def _step(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach().realize()

    def train(self, batches: list[tuple[Any, Any]]) -> list[float]:
        losses = []
        for x, y in batches:
            given = Tensor(x).shard(self.where, 0).realize(), Tensor(y).shard(self.where, 0).realize()
            losses.append(self.step(given[0], given[1]))
        return [loss.item() for loss in losses]

    def weights(self) -> list[Any]:
        return [parameter.numpy() for parameter in self.net.parameters()]


def test_a_recorded_step_on_two_devices_trains_as_one_device_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "bucket_bytes", lambda *_: 1)  # an all-reduce for each gradient
    data = batches(6)
    alone, recorded = Trainer(["CPU"], False), Trainer(TWO, True)
    wanted = alone.train(data)
    np.testing.assert_allclose(recorded.train(data), wanted, rtol=1e-5)
    for one, two in zip(alone.weights(), recorded.weights()):
        np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-6)
    assert recorded.step.kernels > 2 * alone.net[0].weight.ndim
    x, y = (Tensor(each).shard(TWO, 0).realize() for each in data[0])
    before = [devices.get(name).timeline.submitted for name in ("CPU", "CPU:1")]
    collectives = dict(tally.collectives)
    recorded.step(x, y)
    assert [devices.get(name).timeline.submitted for name in ("CPU", "CPU:1")] == [
        before[0] + 1,
        before[1] + 1,
    ]
    assert tally.collectives == collectives  # nothing is decided any more


def test_all_reduces_begin_while_the_backward_pass_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "bucket_bytes", lambda *_: 1)
    trainer = Trainer(TWO, False)
    x, y = (Tensor(each).shard(TWO, 0).realize() for each in batches(1)[0])
    nn.functional.cross_entropy(trainer.net(x), y).backward()
    gradients = [parameter.grad for parameter in trainer.net.parameters() if parameter.grad is not None]
    (plan,) = gradients[0].schedule(*gradients[1:])
    backward = plan.parts[1]  # the first stage counts the labels
    sizes = [bucket.size_bytes for bucket in backward.buckets]
    pairs = [sorted(sizes[at : at + 2]) for at in (0, 2, 4)]
    assert pairs == [[16, 256], [64, 1024], [64, 384]]  # biases and weights, the last layer's first
    begins = [bucket.ready[0] for bucket in backward.buckets]
    total = len(backward.computes[0].plan.launches)
    assert begins == sorted(begins) and begins[0] < total / 2 and begins[-1] == total


def test_what_a_recording_of_a_group_reads_may_change_in_values_and_results_stay() -> None:
    weight = Tensor([1.0, 2.0]).shard(TWO).realize()

    @jit
    def weigh(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x * weight).sum(0).realize(), (x + weight).realize()

    found = []
    for turn in range(5):
        weight.assign(weight + 1.0).realize()
        x = np.full((4, 2), float(turn), np.float32)
        found.append((x, np.array([2.0 + turn, 3.0 + turn]), *weigh(Tensor(x).shard(TWO, 0))))
    for x, w, total, added in found:
        np.testing.assert_allclose(total.numpy(), (x * w).sum(0))
        np.testing.assert_allclose(added.numpy(), x + w)


def test_moving_between_devices_inside_of_a_recording_is_refused() -> None:
    @jit
    def move(x: Tensor) -> Tensor:
        return (x.shard(TWO, 0) * 2.0).realize()

    x = Tensor([1.0, 2.0])
    move(x)
    with pytest.raises(UsageError, match="a recording is of single devices, or of one group of devices"):
        move(x)
