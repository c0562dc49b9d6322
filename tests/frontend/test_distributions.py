"""Distributions: densities, entropies and divergences beside PyTorch's; draws have the shares that densities say."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hcq
import hcq.torch.distributions as ours
from hcq import Tensor, UsageError, dtypes

LOC, SCALE = [0.5, -1.0, 2.0], [0.7, 1.5, 0.2]
CHANCES = [[0.2, 0.3, 0.5], [0.0, 0.9, 0.1]]
TRIANGLE = [[1.0, 0.0, 0.0], [0.5, 0.8, 0.0], [-0.3, 0.2, 1.2]]
COVARIANCE = (np.array(TRIANGLE) @ np.array(TRIANGLE).T).astype(np.float32).tolist()

# a distribution, by its name and arguments; others of its kind; values
CASES = {
    "Normal": ((LOC, SCALE), (SCALE, LOC[::2] + [1.0]), [0.1, -2.0, 3.0]),
    "LogNormal": ((LOC, SCALE), None, [0.1, 2.0, 3.0]),
    "HalfNormal": ((SCALE,), None, [0.1, 2.0, 3.0]),
    "Uniform": (([0.0, -1.0, 2.0], [1.0, 3.0, 2.5]), ([-1.0, -1.0, 3.0], [1.0, 3.0, 4.5]), [0.5, 1.0, 2.1]),
    "Exponential": ((SCALE,), ([1.0, 2.0, 0.1],), [0.1, 2.0, 3.0]),
    "Laplace": ((LOC, SCALE), ([0.0, 0.0, 1.0], [1.0, 2.0, 0.5]), [0.1, -2.0, 3.0]),
    "Cauchy": ((LOC, SCALE), None, [0.1, -2.0, 3.0]),
    "Gumbel": ((LOC, SCALE), None, [0.1, -2.0, 3.0]),
    "Bernoulli": (([0.2, 0.5, 0.9],), ([0.4, 0.1, 0.8],), [0.0, 1.0, 1.0]),
    "Geometric": (([0.2, 0.5, 0.9],), ([0.4, 0.1, 0.8],), [0.0, 1.0, 4.0]),
    "Categorical": ((CHANCES,), ([[0.3, 0.3, 0.4], [0.1, 0.8, 0.1]],), [2, 1]),
    "OneHotCategorical": ((CHANCES,), None, [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]),
    "Poisson": (([0.3, 5.0, 40.0],), ([1.0, 4.0, 50.0],), [0.0, 4.0, 37.0]),
    "Gamma": (([0.5, 3.0, 20.0], SCALE), ([1.5, 2.0, 10.0], [1.0, 2.0, 0.3]), [0.2, 2.0, 90.0]),
    "Chi2": (([0.5, 3.0, 20.0],), None, [0.2, 2.0, 19.0]),
    "Beta": (([0.5, 3.0, 1.0], [2.0, 0.7, 1.0]), ([1.0, 2.0, 3.0], [1.0, 1.0, 2.0]), [0.2, 0.9, 0.4]),
    "Dirichlet": (([[0.5, 3.0, 1.0], [2.0, 2.0, 2.0]],), ([1.0, 2.0, 3.0],), [[0.2, 0.7, 0.1], [0.3, 0.3, 0.4]]),
    "MultivariateNormal": ((LOC, COVARIANCE), (SCALE, np.eye(3).tolist()), [[0.1, -2.0, 3.0], [0.0, 0.0, 0.0]]),
}  # fmt: skip
OFTEN = ("Normal", "Categorical", "Gamma", "MultivariateNormal")
KINDS = [kind if kind in OFTEN else pytest.param(kind, marks=pytest.mark.thorough) for kind in sorted(CASES)]
FLAGS = ("mean", "mode", "variance", "stddev")


@pytest.fixture(autouse=True)
def start_over():
    Tensor.manual_seed(1234)
    yield
    Tensor.manual_seed(0)


def made(kind, arguments, library=hcq.torch, **named):
    return getattr(library.distributions, kind)(*[library.tensor(one, **named) for one in arguments])


def asked(call):
    try:
        return call()
    except (UsageError, NotImplementedError):
        return None


@pytest.mark.torch
@pytest.mark.parametrize("kind", KINDS)
def test_densities_and_moments_are_those_of_pytorch(kind):
    torch = pytest.importorskip("torch")
    arguments, others, values = CASES[kind]
    both = [made(kind, arguments, library) for library in (hcq.torch, torch)]
    found = {}
    for which, library in enumerate((hcq.torch, torch)):
        one, x = both[which], library.tensor(values)
        asks = {name: (lambda name=name, one=one: getattr(one, name)) for name in FLAGS}
        asks |= {"entropy": one.entropy, "log_prob": lambda one=one, x=x: one.log_prob(x)}
        if kind not in ("Beta", "Dirichlet", "MultivariateNormal"):
            asks["cdf"] = lambda one=one, x=x: one.cdf(x)
        if kind in (
            "Normal",
            "HalfNormal",
            "LogNormal",
            "Laplace",
            "Cauchy",
            "Exponential",
            "Uniform",
            "Gumbel",
        ):
            asks["icdf"] = lambda one=one, library=library: one.icdf(library.tensor([0.1, 0.5, 0.8]))
        if others:
            other = made(kind, others, library)
            asks["kl"] = lambda one=one, other=other, library=library: library.distributions.kl_divergence(
                one, other
            )
        assert one.batch_shape == both[1].batch_shape and one.event_shape == both[1].event_shape
        for name, call in asks.items():
            found.setdefault(name, []).append(asked(call))
    for name, (mine, theirs) in found.items():
        assert (mine is None) <= (theirs is None), name
        if mine is not None and theirs is not None:
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=3e-5, atol=3e-6, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_drawn_has_its_mean_and_variance(kind):
    one = made(kind, CASES[kind][0])
    drawn = one.sample((4000,))
    assert drawn.shape == (4000, *one.batch_shape, *one.event_shape) and not drawn.requires_grad
    if kind in ("Cauchy", "Categorical"):
        return
    mean, deviation = one.mean.numpy(), one.stddev.numpy()
    assert (np.abs(drawn.numpy().mean(0) - mean) <= 5 * deviation / math.sqrt(4000) + 1e-6).all()
    if kind != "LogNormal":  # whose squares have none to speak of
        np.testing.assert_allclose(drawn.numpy().std(0), deviation, rtol=0.15, atol=1e-6)


@pytest.mark.parametrize(
    "kind",
    ["Normal", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in
                 ("LogNormal", "Uniform", "Exponential", "Laplace", "Cauchy", "Gumbel", "Gamma", "Chi2"))],
)  # fmt: skip
def test_what_is_drawn_spreads_as_the_density_says(kind):
    """Kolmogorov and Smirnov: the share that is drawn below x is near the share below x, everywhere."""
    if hcq.tensor([1]).device == "METAL" and kind in ("Gamma", "Chi2"):
        pytest.skip("their shares are computed in float64")
    one = made(kind, CASES[kind][0])
    count = 200 if kind in ("Gamma", "Chi2") else 1000  # whose shares take long
    drawn = one.sample((count,)).sort(0).values
    apart = np.abs(one.cdf(drawn).numpy() - (np.arange(count)[:, None] + 0.5) / count).max()
    assert apart < 1.95 / math.sqrt(count)  # exceeded once in 1000


def test_whole_numbers_are_drawn_as_often_as_they_are_likely():
    for kind in ("Poisson", "Geometric", "Categorical", "Bernoulli"):
        one = made(kind, CASES[kind][0])
        drawn = one.sample((4000,)).numpy().astype(int).reshape(4000, -1)
        count = min(drawn.max() + 1, 80)
        x = hcq.tensor(list(range(count))).reshape(count, 1).float()
        chances = one.log_prob(x).exp().numpy().reshape(count, -1)
        seen = np.stack([np.bincount(column, minlength=count)[:count] for column in drawn.T], 1)
        spread = np.sqrt(4000 * chances * (1 - chances)) + 1
        assert (np.abs(seen - 4000 * chances) < 5 * spread).all(), kind


def test_draws_have_gradients_to_their_parameters():
    for kind in ("Normal", "Uniform", "Exponential", "Laplace", "Gumbel"):
        one = made(kind, CASES[kind][0], requires_grad=True)
        parameters = [getattr(one, name) for name in one.parameters]
        Tensor.manual_seed(1)
        drawn = one.rsample()
        slopes = hcq.func.grad(lambda *p, one=one, kind=kind: again(kind, p))(*parameters)
        assert drawn.shape == (3,) and np.isfinite(slopes.numpy()).all()
    with pytest.raises(UsageError, match=r"\[Poisson.rsample\] what is drawn does not move"):
        made("Poisson", CASES["Poisson"][0]).rsample()


def again(kind, parameters):
    Tensor.manual_seed(1)
    return getattr(ours, kind)(*parameters).rsample().sum()


@pytest.mark.skipif(hcq.tensor([1]).device == "METAL", reason="it has no float64")
def test_a_draw_of_gamma_moves_with_its_shape_as_its_share_says():
    shape = Tensor([0.05, 0.5, 1.0, 3.0, 40.0], dtype=dtypes.float64, requires_grad=True)
    drawn = ours.Gamma(shape, 1.0).rsample((5,))
    drawn.sum().backward()
    mean = shape.grad.numpy() / 5
    assert np.isfinite(mean).all()
    assert abs(mean[-1] - 1.0) < 0.3  # the mean is the shape
    x, a = drawn.detach(), shape.detach()
    wide = Tensor(a.numpy(), requires_grad=True)
    Tensor.manual_seed(7)
    value = ours.Gamma(wide, 1.0).rsample()
    value.sum().backward()
    moved = value.detach() + 1e-4 * a * wide.grad
    shares = a.igamma(value.detach()), (a + 1e-4 * a).igamma(moved)
    np.testing.assert_allclose(shares[0].numpy(), shares[1].numpy(), atol=1e-6)
    assert (x > 0).all()


def test_independent_axes_are_one_event():
    base = made("Normal", CASES["Normal"][0])
    one = ours.Independent(base, 1)
    x = Tensor([0.1, -2.0, 3.0])
    assert (one.batch_shape, one.event_shape) == ((), (3,))
    assert one.log_prob(x).item() == pytest.approx(base.log_prob(x).sum().item(), rel=1e-5)
    assert ours.kl_divergence(one, one).item() == 0.0
    assert one.expand((4,)).sample((2,)).shape == (2, 4, 3)
    assert made("Dirichlet", CASES["Dirichlet"][0]).expand((5, 2)).sample().shape == (5, 2, 3)


def test_mistakes_are_answered_with_a_sentence():
    for call, sentence in (
        (lambda: ours.Bernoulli(), "give probs or logits, one of them"),
        (lambda: ours.Categorical(probs=0.5), "give at least a vector"),
        (lambda: ours.Cauchy(0.0, 1.0).enumerate_support(), "has none in closed form"),
        (lambda: ours.kl_divergence(ours.Cauchy(0.0, 1.0), ours.Normal(0.0, 1.0)), "nothing is known"),
        (lambda: ours.MultivariateNormal(Tensor([0.0]), Tensor([[1.0, 0.0], [0.0, 1.0]])), "of 1 by 1"),
    ):
        with pytest.raises(UsageError, match=sentence):
            call()
