"""Losses against their formulas in NumPy float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hcq
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor

R = np.random.default_rng(5)
P, T = R.standard_normal((4, 3)).astype(np.float32), R.standard_normal((4, 3)).astype(np.float32)
CLASSES = np.array([2, 0, 1, 2])
WEIGHT = np.float32([0.5, 1.0, 2.0])
LOGS = np.log(np.exp(P.astype(np.float64)) / np.exp(P.astype(np.float64)).sum(1, keepdims=True))
PICKED = -LOGS[range(4), CLASSES]


def close(actual: Tensor, expected) -> None:
    assert actual.shape == np.shape(expected)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-5, atol=1e-6)


def huber(d, delta):
    return np.where(np.abs(d) < delta, 0.5 * d * d, delta * (np.abs(d) - 0.5 * delta))


POINTS = {
    "mse_loss": (lambda: Tensor(P).mse_loss, (P - T) ** 2),
    "l1_loss": (lambda: Tensor(P).l1_loss, np.abs(P - T)),
    "huber_loss": (lambda: Tensor(P).huber_loss, huber(P - T, 1.0)),
    "smooth_l1_loss": (lambda: Tensor(P).smooth_l1_loss, huber(P - T, 1.0)),
}


@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_pointwise_losses_are_their_formula(name, reduction):
    make, expected = POINTS[name]
    reduced = {"mean": np.mean, "sum": np.sum, "none": np.asarray}[reduction](expected)
    close(make()(Tensor(T), reduction=reduction), reduced)


def test_the_bend_of_huber_can_be_moved():
    close(Tensor(P).huber_loss(Tensor(T), delta=0.3), huber(P - T, 0.3).mean())
    close(Tensor(P).smooth_l1_loss(Tensor(T), beta=0.3), huber(P - T, 0.3).mean() / 0.3)


def test_cross_entropy_picks_the_logarithm_at_the_class():
    x, t = Tensor(P), Tensor(CLASSES)
    close(x.cross_entropy(t), PICKED.mean())
    close(x.cross_entropy(t, reduction="sum"), PICKED.sum())
    close(x.cross_entropy(t, reduction="none"), PICKED)
    close(x.log_softmax(1).nll_loss(t), PICKED.mean())
    close(x[0].cross_entropy(hcq.tensor(2)), PICKED[0])


def test_classes_are_weighed_and_the_mean_is_weighted():
    weights = WEIGHT[CLASSES]
    close(Tensor(P).cross_entropy(Tensor(CLASSES), Tensor(WEIGHT)), (PICKED * weights).sum() / weights.sum())
    close(Tensor(P).cross_entropy(Tensor(CLASSES), Tensor(WEIGHT), reduction="none"), PICKED * weights)


def test_ignored_places_count_nothing():
    target = np.array([2, -100, 1, -100])
    close(Tensor(P).cross_entropy(Tensor(target)), PICKED[[0, 2]].mean())
    close(Tensor(P).cross_entropy(Tensor(CLASSES), ignore_index=2), PICKED[[1, 2]].mean())


def test_a_class_that_does_not_exist_gives_nan_not_a_wrong_number():
    found = Tensor(P).cross_entropy(hcq.tensor([2, 3, 0, -1]), reduction="none").tolist()
    assert [math.isnan(value) for value in found] == [False, True, False, True]
    assert math.isnan(Tensor(P).cross_entropy(hcq.tensor([0, 0, 0, 3])).item())


def test_label_smoothing_spreads_a_share_over_all_classes():
    expected = 0.9 * PICKED + 0.1 * -LOGS.mean(1)
    close(Tensor(P).cross_entropy(Tensor(CLASSES), label_smoothing=0.1), expected.mean())


def test_probabilities_can_be_the_target():
    soft = np.exp(T) / np.exp(T).sum(1, keepdims=True)
    close(Tensor(P).cross_entropy(Tensor(soft)), -(LOGS * soft).sum(1).mean())


def test_classes_may_stand_before_other_axes():
    x = R.standard_normal((2, 3, 4)).astype(np.float32)
    t = np.array([[0, 1, 2, 0], [2, 2, 1, 0]])
    logs = np.log(np.exp(x) / np.exp(x).sum(1, keepdims=True))
    close(Tensor(x).cross_entropy(Tensor(t)), -np.take_along_axis(logs, t[:, None], 1).mean())


def test_binary_cross_entropy_is_the_same_from_probabilities_and_logits():
    t = (T > 0).astype(np.float32)
    p = 1 / (1 + np.exp(-P.astype(np.float64)))
    expected = -(t * np.log(p) + (1 - t) * np.log(1 - p))
    close(Tensor(P).sigmoid().binary_cross_entropy(Tensor(t)), expected.mean())
    close(Tensor(P).binary_cross_entropy_with_logits(Tensor(t), reduction="none"), expected)
    weighed = -(t * np.log(p) * 3 + (1 - t) * np.log(1 - p))
    close(Tensor(P).binary_cross_entropy_with_logits(Tensor(t), pos_weight=Tensor(3.0)), weighed.mean())


def test_binary_cross_entropy_of_certainty_stays_finite():
    close(Tensor([0.0, 1.0]).binary_cross_entropy(Tensor([1.0, 1.0]), reduction="none"), [100.0, 0.0])
    found = Tensor([1000.0, -1000.0]).binary_cross_entropy_with_logits(Tensor([1.0, 1.0]), reduction="none")
    close(found, [0.0, 1000.0])


def test_divergence_of_distributions():
    soft = np.exp(T) / np.exp(T).sum(1, keepdims=True)
    expected = (soft * (np.log(soft) - LOGS)).sum() / 4
    close(Tensor(LOGS.astype(np.float32)).kl_div(Tensor(soft), "batchmean"), expected)


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda: Tensor(P).mse_loss(Tensor(T[:2])), r"\[mse_loss\] prediction \(4, 3\), target \(2, 3\)"),
        (
            lambda: Tensor(P).cross_entropy(hcq.tensor([1, 2])),
            r"\[cross_entropy\] input \(4, 3\), target \(2,\)",
        ),
        (lambda: Tensor(P).mse_loss(Tensor(T), reduction="avg"), "reduction='avg' is unknown"),
        (lambda: Tensor(P).nll_loss(Tensor([1.0] * 4)), "must be a tensor of class indices"),
    ],
)
def test_targets_that_do_not_fit_are_refused(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
