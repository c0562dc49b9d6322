"""The rarer distributions beside PyTorch's: densities, shares, moments, divergences; draws have the moments."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hcq
import hcq.torch.distributions as ours
from hcq import Tensor, UsageError

SCALE, CHANCES = [0.7, 1.5, 0.4], [0.2, 0.5, 0.93]
FACTOR = [[0.5, 0.2], [-0.3, 0.8], [0.1, 0.1]]
SPREAD = [[1.5, 0.3], [0.3, 0.8]]
LOWER = [[1.0, 0.0], [0.6, 0.8]]
UNIT = [0.1, 0.45, 0.9]

# name -> arguments (lists become tensors), values, what else is asked
CASES = {
    "StudentT": (([1.5, 3.0, 20.0], UNIT, SCALE), [0.3, -2.0, 4.0], ""),
    "FisherSnedecor": (([1.5, 3.0, 6.0], [1.5, 3.0, 9.0]), [0.3, 2.0, 1.0], ""),
    "HalfCauchy": ((SCALE,), [0.3, 2.0, 4.0], "cdf icdf"),
    "InverseGamma": (([0.5, 1.5, 4.0], SCALE), [0.3, 2.0, 4.0], "cdf"),
    "Pareto": ((SCALE, [0.5, 1.5, 4.0]), [1.3, 2.0, 4.0], "cdf icdf"),
    "GeneralizedPareto": ((UNIT, SCALE, [0.0, 0.3, -0.2]), [0.3, 2.0, 1.5], "cdf icdf"),
    "Weibull": ((SCALE, [1.5, 2.0, 4.0]), [0.3, 2.0, 0.4], "cdf icdf"),
    "Kumaraswamy": (([0.5, 1.5, 4.0], [2.0, 1.5, 3.0]), UNIT, "cdf icdf"),
    "ContinuousBernoulli": (([0.2, 0.5, 0.93],), UNIT, "cdf icdf"),
    "VonMises": ((UNIT, [0.4, 3.0, 50.0]), [-0.3, 2.0, 1.0], ""),
    "Binomial": ((12, CHANCES), [0.0, 5.0, 12.0], ""),
    "NegativeBinomial": (([0.5, 3.0, 20.0], CHANCES), [0.0, 5.0, 100.0], ""),
    "Multinomial": ((6, [[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]]), [[1.0, 2.0, 3.0], [0.0, 6.0, 0.0]], ""),
    "OneHotCategoricalStraightThrough": (([0.2, 0.3, 0.5],), [0.0, 0.0, 1.0], ""),
    "RelaxedBernoulli": (([0.7], CHANCES), UNIT, ""),
    "RelaxedOneHotCategorical": (([0.7], [0.2, 0.3, 0.5]), [0.2, 0.7, 0.1], ""),
    "LogisticNormal": ((UNIT, SCALE), [0.2, 0.5, 0.1, 0.2], ""),
    "LowRankMultivariateNormal": ((UNIT, FACTOR, SCALE), [0.3, -2.0, 4.0], ""),
    "Wishart": (([3.5], [SPREAD]), [[2.0, 0.2], [0.2, 3.0]], ""),
    "LKJCholesky": ((2, [0.5, 2.0]), LOWER, ""),
}
QUICK = ("StudentT", "Binomial", "LogisticNormal")
KINDS = [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.thorough) for kind in CASES]
ASKED = ("mean", "mode", "variance", "stddev")


@pytest.fixture(autouse=True)
def start_over():
    Tensor.manual_seed(1234)
    yield
    Tensor.manual_seed(0)


def made(kind, library=hcq.torch):
    arguments = [library.tensor(one) if isinstance(one, list) else one for one in CASES[kind][0]]
    return getattr(library.distributions, kind)(*arguments)


def asked(call):
    try:
        return call()
    except (UsageError, NotImplementedError):
        return None


def close(mine, theirs, name, tolerance=5e-5):
    np.testing.assert_allclose(
        mine.numpy(), theirs.numpy(), rtol=tolerance, atol=tolerance / 10, err_msg=name
    )


@pytest.mark.torch
@pytest.mark.parametrize("kind", KINDS)
def test_densities_shares_and_moments_are_those_of_pytorch(kind):
    torch = pytest.importorskip("torch")
    one, other = made(kind), made(kind, torch)
    assert (one.batch_shape, one.event_shape) == (other.batch_shape, other.event_shape)
    _, values, further = CASES[kind]
    calls = {name: lambda d, x, name=name: getattr(d, name) for name in ASKED}
    calls |= {"entropy": lambda d, x: d.entropy(), "log_prob": lambda d, x: d.log_prob(x)}
    calls |= {name: lambda d, x, name=name: getattr(d, name)(x) for name in further.split() if name != "icdf"}
    for name, call in calls.items():
        mine = asked(lambda call=call: call(one, Tensor(values)))
        theirs = asked(lambda call=call: call(other, torch.tensor(values)))
        assert (mine is None) <= (theirs is None), name
        if (kind, name) == ("Kumaraswamy", "mode"):  # PyTorch's is NaN
            x = np.linspace(0.0, 1.0, 10001)[1:-1]
            highest = x[one.log_prob(Tensor(x[:, None])).numpy().argmax(0)]
            np.testing.assert_allclose(
                mine.numpy(), np.where([True, False, False], np.nan, highest), atol=1e-3
            )
        elif mine is not None and theirs is not None:
            close(mine, theirs, name)
    if "icdf" in further:
        close(one.icdf(Tensor(UNIT)), other.icdf(torch.tensor(UNIT)), "icdf")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_drawn_has_its_mean_and_is_where_it_may_be(kind):
    one = made(kind)
    drawn = one.sample((1000,))
    assert drawn.shape == (1000, *one.batch_shape, *one.event_shape) and not drawn.requires_grad
    if kind not in ("LKJCholesky", "MixtureSameFamily"):
        assert one.support.check(drawn).numpy().mean() > 0.999
    mean, deviation = asked(lambda: one.mean), asked(lambda: one.stddev)
    if mean is None or deviation is None or kind == "VonMises":
        return
    mean, deviation = mean.numpy(), deviation.numpy()
    is_known = np.isfinite(mean) & np.isfinite(deviation) & (deviation < 10 * np.abs(mean) + 10)
    apart = np.abs(drawn.numpy().mean(0) - mean)
    assert (apart <= 6 * deviation / math.sqrt(1000) + 1e-6)[is_known].all()


def test_counts_of_few_and_of_many_trials_are_drawn_as_often_as_they_are_likely():
    for count, chance in ((9, 0.35), (60, 0.8), (2000, 0.3)):
        one = ours.Binomial(count, Tensor(chance))
        drawn = one.sample((1000,)).numpy()
        assert drawn.mean() == pytest.approx(count * chance, abs=5 * one.stddev.item() / math.sqrt(1000))
        assert drawn.std() == pytest.approx(one.stddev.item(), rel=0.12)
        assert drawn.min() >= 0 and drawn.max() <= count and (drawn == np.floor(drawn)).all()
    angles = ours.VonMises(0.5, Tensor([0.2, 2.0, 300.0])).sample((1000,)).numpy()
    lengths = 1.0 - ours.VonMises(0.5, Tensor([0.2, 2.0, 300.0])).variance.numpy()
    np.testing.assert_allclose(np.cos(angles - 0.5).mean(0), lengths, atol=0.06)
    assert (np.abs(angles) <= math.pi).all()


MOVED = "Pareto Weibull Kumaraswamy RelaxedBernoulli LogisticNormal OneHotCategoricalStraightThrough".split()


@pytest.mark.parametrize("kind", ["StudentT", *(pytest.param(k, marks=pytest.mark.thorough) for k in MOVED)])
def test_draws_have_gradients_to_their_parameters(kind):
    parameters = [Tensor(one, requires_grad=True) for one in CASES[kind][0]]
    drawn = getattr(ours, kind)(*parameters).rsample((3,))
    (drawn * Tensor.arange(drawn.numel()).reshape(drawn.shape)).sum().backward()
    found = [parameter.grad for parameter in parameters]
    assert all(slope is not None and np.isfinite(slope.numpy()).all() for slope in found)
    assert any((slope.numpy() != 0).any() for slope in found)


@pytest.mark.torch
def test_a_mixture_is_pytorchs_and_draws_of_its_components():
    torch = pytest.importorskip("torch")
    found = []
    for library in (hcq.torch, torch):
        d, t = library.distributions, library.tensor
        weights = d.Categorical(t([0.3, 0.7]))
        flat = d.MixtureSameFamily(weights, d.Normal(t([-1.0, 2.0]), t([0.5, 1.0])))
        wide = d.MixtureSameFamily(
            weights, d.Independent(d.Normal(t([[-1.0, 0.0], [2.0, 1.0]]), t([[0.5, 1.0], [1.0, 1.0]])), 1)
        )
        x, y = t([0.1, -2.0]), t([0.1, -2.0])
        found.append(
            [
                flat.mean,
                flat.variance,
                flat.log_prob(x),
                flat.cdf(x),
                wide.mean,
                wide.variance,
                wide.log_prob(y),
            ]
        )
        if library is hcq:
            assert wide.sample((4,)).shape == (4, 2) and flat.expand((3,)).sample((2,)).shape == (2, 3)
            assert flat.sample((4000,)).mean().item() == pytest.approx(1.1, abs=0.15)
    for mine, theirs in zip(*found):
        close(mine, theirs, "mixture")


NAMED = {
    "Bernoulli": ([0.3],), "Beta": ([1.5], [2.5]), "Binomial": (5, [0.3]), "Cauchy": ([0.3], [0.8]),
    "ContinuousBernoulli": ([0.3],), "Exponential": ([1.3],), "Gamma": ([1.7], [0.9]), "Gumbel": ([0.3], [1.8]),
    "HalfNormal": ([1.3],), "Laplace": ([0.3], [0.8]), "Normal": ([0.3], [0.8]), "Pareto": ([1.2], [3.5]),
    "Poisson": ([1.3],), "Uniform": ([1.3], [1.9]), "LowRankMultivariateNormal": (UNIT, FACTOR, SCALE),
    "MultivariateNormal": (UNIT, np.diag(SCALE).tolist()), "OneHotCategorical": ([0.2, 0.8],),
}  # fmt: skip
OTHER = {
    "Bernoulli": ([0.6],), "Beta": ([2.0], [1.0]), "Binomial": (5, [0.6]), "Cauchy": ([1.0], [2.0]),
    "ContinuousBernoulli": ([0.8],), "Exponential": ([2.0],), "Gamma": ([2.0], [2.0]), "Gumbel": ([0.5], [1.0]),
    "HalfNormal": ([0.5],), "Laplace": ([1.0], [2.0]), "Normal": ([1.0], [2.0]), "Pareto": ([1.0], [2.0]),
    "Poisson": ([0.5],), "Uniform": ([-1.0], [4.0]), "LowRankMultivariateNormal": (SCALE, FACTOR, UNIT),
    "MultivariateNormal": (SCALE, np.eye(3).tolist()), "OneHotCategorical": ([0.5, 0.5],),
}  # fmt: skip


def pairs():
    from hcq.frontend.more.distributions import kl_pairs

    known = [
        (a.__name__, b.__name__)
        for table in (kl_pairs.FROM, kl_pairs.INFINITE)
        for a in table
        for b in table[a]
    ]
    alone = "Cauchy HalfNormal Pareto Binomial OneHotCategorical LowRankMultivariateNormal".split()
    low, full = "LowRankMultivariateNormal", "MultivariateNormal"
    return [*known, *((name, name) for name in alone), (low, full), (full, low)]


def divergences(names):
    torch = pytest.importorskip("torch")
    for first, second in names:
        found = []
        for library in (hcq.torch, torch):
            p, q = (
                getattr(library.distributions, name)(
                    *[library.tensor(x) if isinstance(x, list) else x for x in table[name]]
                )
                for name, table in ((first, NAMED), (second, OTHER))
            )
            found.append(library.distributions.kl_divergence(p, q))
        close(*found, f"{first} from {second}", 3e-4)


@pytest.mark.torch
def test_a_few_divergences_of_different_families_are_pytorchs():
    divergences(
        [
            ("Normal", "Laplace"),
            ("Beta", "Gamma"),
            ("Gumbel", "Gumbel"),
            ("Gamma", "Uniform"),
            ("Cauchy", "Cauchy"),
        ]
    )


@pytest.mark.torch
@pytest.mark.thorough
def test_every_divergence_is_pytorchs():
    assert len(pairs()) > 60
    divergences(pairs())


def test_what_has_the_same_transforms_is_as_far_apart_as_its_bases():
    def of(loc):
        return ours.TransformedDistribution(
            ours.Normal(loc, 1.0), [ours.AffineTransform(1.0, 2.0), ours.ExpTransform()]
        )

    assert ours.kl_divergence(of(0.0), of(1.0)).item() == pytest.approx(0.5)
    with pytest.raises(UsageError, match="of different transforms nothing is known"):
        ours.kl_divergence(
            of(0.0), ours.TransformedDistribution(ours.Normal(0.0, 1.0), [ours.ExpTransform()])
        )


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ours.Multinomial(2.5, Tensor([0.5, 0.5])), r"total_count=2.5: give an int"),
        (lambda: ours.Binomial(Tensor([1.0, 2.0]), 0.5).entropy(), r"counts of 1 to 2: they have to be alike"),
        (lambda: ours.LKJCholesky(1), r"\[LKJCholesky\] dim=1"),
        (lambda: ours.Wishart(3.0), r"\[Wishart\] give one square matrix"),
        (lambda: ours.MixtureSameFamily(ours.Categorical(Tensor([1.0])), ours.Normal(0.0, 1.0)), "has to end with 1"),
        (lambda: ours.TransformedDistribution(ours.Normal(0.0, 1.0), [3]), "give a transform"),
        (lambda: ours.TransformedDistribution(ours.Normal(0.0, 1.0), ours.SoftmaxTransform()), "take 1 axes"),
    ],
    ids=range(7),
)  # fmt: skip
def test_mistakes_are_answered_with_a_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
