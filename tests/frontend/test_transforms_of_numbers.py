"""Transforms of numbers and the sets that they map between, beside PyTorch's: results, inverses, stretched space."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
import hcq.torch.distributions as ours
from hcq import Tensor, UsageError
from hcq.torch.distributions import constraints

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
SQUARE = np.random.default_rng(1).standard_normal((2, 3, 3)).astype(np.float32)

# name -> how it is made, of a library's distributions and tensors; what it is called on
CASES = {
    "exp": (lambda d, t: d.ExpTransform(), X), "power": (lambda d, t: d.PowerTransform(t(1.7)), np.abs(X) + 0.1),
    "sigmoid": (lambda d, t: d.SigmoidTransform(), X), "tanh": (lambda d, t: d.TanhTransform(), X),
    "softplus": (lambda d, t: d.SoftplusTransform(), X), "abs": (lambda d, t: d.AbsTransform(), np.abs(X)),
    "affine": (lambda d, t: d.AffineTransform(t([1.0, 2.0, 3.0]), t([0.5, -2.0, 1.5])), X),
    "affine of events": (lambda d, t: d.AffineTransform(1.0, -2.0, event_dim=1), X),
    "compose": (lambda d, t: d.ComposeTransform([d.AffineTransform(1.0, 2.0), d.ExpTransform()]), X),
    "compose vectors": (lambda d, t: d.ComposeTransform([d.TanhTransform(), d.StickBreakingTransform()]), X),
    "independent": (lambda d, t: d.IndependentTransform(d.ExpTransform(), 1), X),
    "reshape": (lambda d, t: d.ReshapeTransform((3,), (3, 1)), X),
    "inverse": (lambda d, t: d.ExpTransform().inv, np.abs(X) + 0.1),
    "softmax": (lambda d, t: d.SoftmaxTransform(), X), "sticks": (lambda d, t: d.StickBreakingTransform(), X),
    "triangle": (lambda d, t: d.LowerCholeskyTransform(), SQUARE),
    "definite": (lambda d, t: d.PositiveDefiniteTransform(), SQUARE),
    "correlation": (lambda d, t: d.CorrCholeskyTransform(), X),
    "cat": (lambda d, t: d.CatTransform([d.ExpTransform(), d.AffineTransform(1.0, 2.0)], dim=1, lengths=[1, 2]), X),
    "stack": (lambda d, t: d.StackTransform([d.ExpTransform(), d.AffineTransform(1.0, 2.0)], dim=0), X),
    "share": (lambda d, t: d.CumulativeDistributionTransform(d.Normal(t(0.0), t(2.0))), X),
}  # fmt: skip
QUICK = ("compose", "sticks", "correlation", "cat")


@pytest.mark.torch
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.thorough) for n in CASES]
)
def test_a_transform_its_inverse_and_its_stretch_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    make, data = CASES[name]
    mine, theirs = make(ours, Tensor), make(torch.distributions, torch.tensor)
    x, y = Tensor(data), torch.tensor(data)
    for ask in (
        lambda t, x: t(x), lambda t, x: t.inv(t(x)), lambda t, x: t.log_abs_det_jacobian(x, t(x)),
    ):  # fmt: skip
        try:
            expected = ask(theirs, y)
        except NotImplementedError:
            with pytest.raises(UsageError):
                ask(mine, x)
            continue
        np.testing.assert_allclose(ask(mine, x).numpy(), expected.numpy(), rtol=2e-4, atol=2e-5)
    assert mine.bijective == theirs.bijective
    assert mine.forward_shape(data.shape) == tuple(theirs.forward_shape(data.shape))
    assert (
        mine.domain.event_dim == theirs.domain.event_dim
        and mine.codomain.event_dim == theirs.codomain.event_dim
    )
    assert bool(mine.codomain.check(mine(x)).all())


def test_a_transform_with_a_memory_gives_back_what_it_was_given():
    t = ours.StickBreakingTransform(cache_size=1)
    x = Tensor(X)
    assert t.inv(t(x)) is x
    assert ours.ComposeTransform([ours.TanhTransform()], cache_size=1).parts[0].cache_size == 1


@pytest.mark.torch
@pytest.mark.parametrize("way", ["biject_to", "transform_to"])
def test_numbers_get_into_every_set_as_pytorchs_do(way):
    torch = pytest.importorskip("torch")
    sets = [
        lambda c: c.positive, lambda c: c.greater_than(2.0), lambda c: c.less_than(-1.0),
        lambda c: c.interval(-1.0, 3.0),
        lambda c: c.unit_interval, lambda c: c.simplex, lambda c: c.real, lambda c: c.corr_cholesky,
        lambda c: c.independent(c.nonnegative, 1), lambda c: c.half_open_interval(0.0, 2.0),
    ]  # fmt: skip
    for of in sets:
        mine = getattr(ours, way)(of(constraints))
        theirs = getattr(torch.distributions, way)(of(torch.distributions.constraints))
        found = mine(Tensor(X))
        np.testing.assert_allclose(found.numpy(), theirs(torch.tensor(X)).numpy(), rtol=1e-4, atol=1e-5)
        assert bool(of(constraints).check(found).all())
    with pytest.raises(UsageError, match="no transform into it is known"):
        ours.biject_to(constraints.boolean)


@pytest.mark.torch
def test_sets_hold_what_pytorchs_hold():
    torch = pytest.importorskip("torch")
    values = [[0.0, 1.0, 0.0], [0.5, 0.25, 0.25], [-1.0, 2.0, 3.0]]
    matrices = [[[1.0, 0.0], [0.6, 0.8]], [[2.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [2.0, 1.0]]]
    numbers = (
        "boolean one_hot real real_vector positive nonnegative unit_interval simplex nonnegative_integer"
    )
    for name in f"{numbers} positive_integer".split():
        expected = getattr(torch.distributions.constraints, name).check(torch.tensor(values))
        found = getattr(constraints, name).check(Tensor(values))
        assert found.tolist() == expected.tolist(), name
    of_matrices = "square symmetric lower_triangular lower_cholesky corr_cholesky positive_definite"
    for name in f"{of_matrices} positive_semidefinite".split():
        mine = getattr(constraints, name).check(Tensor(matrices)).tolist()
        for one, found in zip(matrices, mine):  # together PyTorch says less of them
            expected = getattr(torch.distributions.constraints, name).check(torch.tensor(one))
            assert found == expected.item(), name


@pytest.mark.torch
def test_a_transformed_distribution_is_pytorchs():
    torch = pytest.importorskip("torch")
    found = []
    for library in (hcq.torch, torch):
        d, t = library.distributions, library.tensor
        gumbel = d.TransformedDistribution(
            d.Uniform(t([0.1, 0.0]), t([0.9, 1.0])),
            [d.ExpTransform().inv, d.AffineTransform(t(1.0), t(-2.0))],
        )
        vectors = d.TransformedDistribution(
            d.Normal(t([0.0, 1.0]), t([1.0, 2.0])), [d.StickBreakingTransform()]
        )
        x, y = t([2.0, 3.0]), t([0.2, 0.3, 0.5])
        assert (tuple(vectors.batch_shape), tuple(vectors.event_shape)) == ((), (3,))
        found.append([gumbel.log_prob(x), gumbel.cdf(x), gumbel.icdf(t([0.3, 0.6])), vectors.log_prob(y)])
        if library is hcq.torch:
            assert vectors.expand((4,)).rsample((2,)).shape == (2, 4, 3)
    for mine, theirs in zip(*found):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ours.ExpTransform(cache_size=2), r"cache_size=2: use 0 or 1"),
        (lambda: ours.ReshapeTransform((2,), (3,)), r"the numbers of elements differ"),
        (lambda: ours.CorrCholeskyTransform()(Tensor([1.0, 2.0])), r"2 numbers are no triangle"),
        (lambda: ours.StackTransform([ours.ExpTransform()])(Tensor([1.0, 2.0])), r"give 1 slices"),
        (lambda: ours.CatTransform([ours.ExpTransform()], lengths=[1, 2]), r"2 lengths of 1 transforms"),
        (lambda: ours.AbsTransform().log_abs_det_jacobian(Tensor(1.0), Tensor(1.0)), r"how it stretches"),
        (lambda: constraints.dependent.check(Tensor(1.0)), r"depends on more than the value"),
    ],
    ids=range(7),
)  # fmt: skip
def test_what_means_nothing_is_refused(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()


@pytest.mark.torch
def test_arguments_are_of_the_sets_that_pytorch_says():
    torch = pytest.importorskip("torch")
    compared = 0
    for name in dir(ours):
        kind = getattr(ours, name)
        if (
            not isinstance(kind, type)
            or not issubclass(kind, ours.Distribution)
            or name in ("Distribution", "Uniform")
        ):
            continue
        expected = getattr(torch.distributions, name).arg_constraints
        found = kind.arg_constraints
        if isinstance(expected, dict):
            assert set(found) == set(expected), name
            for argument, of in expected.items():
                mine = found[argument]
                assert (mine.event_dim, mine.is_discrete) == (of.event_dim, of.is_discrete), (name, argument)
                x = np.float32([[0.0, 1.0], [0.5, 0.5]])
                assert bool(mine.check(Tensor(x)).all()) == bool(of.check(torch.tensor(x)).all()), (
                    name,
                    argument,
                )
            compared += 1
    assert compared > 35
    assert ours.transform_to(ours.Normal.arg_constraints["scale"])(Tensor(0.0)).item() == 1.0
