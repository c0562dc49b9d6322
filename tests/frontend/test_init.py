"""Initial values: what PyTorch's say of theirs is true of ours, and what is not random is the same."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hcq
from hcq import Tensor, UsageError, nn


def memory(*shape, dtype=None):
    return Tensor.zeros(*shape, dtype=dtype).contiguous().realize()


@pytest.mark.parametrize(
    ("mean", "std", "a", "b"), [(0.0, 1.0, -2.0, 2.0), (0.5, 0.2, 0.4, 1.1), (3.0, 1.0, -1.0, 1.0)]
)
def test_a_truncated_normal_distribution_has_its_bounds_and_its_moments(mean, std, a, b):
    Tensor.manual_seed(1)
    found = nn.init.trunc_normal_(memory(200, 100), mean, std, a, b).numpy().astype(np.float64)
    assert a <= found.min() and found.max() <= b
    x = np.linspace(a, b, 20001)  # the same density, summed
    density = np.exp(-0.5 * ((x - mean) / std) ** 2)
    density /= density.sum()
    expected = (x * density).sum()
    spread = math.sqrt((x * x * density).sum() - expected**2)
    assert found.mean() == pytest.approx(expected, abs=4 * spread / math.sqrt(found.size))
    assert found.std() == pytest.approx(spread, rel=0.03)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 2, 3), (4, 4)])
def test_orthogonal_rows_or_columns_have_the_length_that_was_asked_for(shape):
    found = nn.init.orthogonal_(memory(*shape), gain=2.0).numpy().reshape(shape[0], -1)
    least = min(found.shape)
    product = found @ found.T if found.shape[0] == least else found.T @ found
    np.testing.assert_allclose(product, 4.0 * np.eye(least), atol=1e-5)


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(4, 2, 3), (2, 4, 4, 5), (4, 4, 1, 2, 3)])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_dirac_weight_is_pytorchs(shape, groups):
    torch = pytest.importorskip("torch")
    expected = torch.nn.init.dirac_(torch.ones(shape), groups).numpy()
    np.testing.assert_array_equal(nn.init.dirac_(memory(*shape), groups).numpy(), expected)


def test_an_identity_is_cut_to_its_matrix():
    tensor = memory(3, 5)
    assert nn.init.eye_(tensor) is tensor
    np.testing.assert_array_equal(tensor.numpy(), np.eye(3, 5))


def test_a_sparse_weight_has_as_many_zeros_in_each_column_at_places_of_its_own():
    found = nn.init.sparse_(memory(30, 40), 0.33, std=0.5).numpy()
    assert set((found == 0).sum(0)) == {10}
    assert len({column.tobytes() for column in (found == 0).T}) > 30
    assert found[found != 0].std() == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize(
    "fill", [nn.init.uniform_, nn.init.normal_, nn.init.trunc_normal_, nn.init.xavier_normal_, nn.init.orthogonal_,
             nn.init.kaiming_uniform_, lambda t, generator: nn.init.sparse_(t, 0.5, generator=generator)]
)  # fmt: skip
def test_what_draws_takes_the_numbers_of_a_generator(fill):
    found = [fill(memory(4, 6), generator=hcq.Generator().manual_seed(5)).numpy() for _ in range(2)]
    np.testing.assert_array_equal(*found)
    assert (found[0] != fill(memory(4, 6), generator=hcq.Generator().manual_seed(6)).numpy()).any()


def test_half_precision_is_filled_by_numbers_computed_in_single_precision():
    found = nn.init.orthogonal_(memory(4, 4, dtype=hcq.float16))
    assert found.dtype is hcq.float16
    np.testing.assert_allclose((found.float() @ found.float().T).numpy(), np.eye(4), atol=5e-3)
    assert nn.init.trunc_normal_(memory(8, dtype=hcq.bfloat16), std=0.1).abs().max().item() <= 2.0


@pytest.mark.torch
def test_every_gain_is_pytorchs():
    torch = pytest.importorskip("torch")
    for name in ("linear", "conv1d", "conv_transpose3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert nn.init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert nn.init.calculate_gain("leaky_relu", 0.3) == torch.nn.init.calculate_gain("leaky_relu", 0.3)


def test_the_names_without_an_underscore_fill_too_and_say_what_they_are_called_now():
    with pytest.warns(FutureWarning, match=r"nn\.init\.constant_"):
        assert nn.init.constant(memory(2), 3.0).tolist() == [3.0, 3.0]
    with pytest.warns(FutureWarning, match=r"nn\.init\.xavier_uniform_"):
        nn.init.xavier_uniform(memory(2, 2))
    with pytest.raises(AttributeError, match="no function 'truncated'"):
        nn.init.truncated  # noqa: B018


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: nn.init.orthogonal_(memory(3)), r"\[orthogonal_\] shape \(3,\): give two axes"),
        (lambda: nn.init.eye_(memory(3)), r"\[eye_\] shape \(3,\): give a matrix"),
        (lambda: nn.init.dirac_(memory(3, 3)), r"\[dirac_\] shape \(3, 3\)"),
        (lambda: nn.init.dirac_(memory(3, 3, 3), 2), r"\[dirac_\] 3 channels do not divide into 2 groups"),
        (lambda: nn.init.sparse_(memory(3, 3), 2.0), r"\[sparse_\] .* sparsity=2.0"),
        (lambda: nn.init.trunc_normal_(memory(3), a=2.0, b=1.0), r"\[trunc_normal_\] .* a below b"),
    ],
    ids=range(6),
)  # fmt: skip
def test_what_cannot_be_filled_so_is_refused(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
