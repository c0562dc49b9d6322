"""Matrices taken apart: what was taken apart makes the matrix again, and gradients are those of finite differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hcq
from hcq import Tensor
from hcq.errors import UsageError

L = hcq.linalg
R = np.random.default_rng(5)


def some(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    """Symmetric, and far from singular."""
    a = some(*shape)
    return a @ np.swapaxes(a, -1, -2) + 0.1 * shape[-1] * np.eye(shape[-1], dtype=np.float32)


def close(ours, expected, tolerance: float = 2e-5) -> None:
    ours = ours.numpy() if isinstance(ours, Tensor) else ours
    assert ours.shape == np.shape(expected)
    np.testing.assert_allclose(
        ours, expected, rtol=tolerance, atol=tolerance * max(1.0, np.abs(expected).max())
    )


def slopes_agree(of, *arrays: np.ndarray, step: float = 1e-2, tolerance: float = 5e-3) -> None:
    """The gradient of a weighted sum along random directions is the difference that a small step makes."""
    inputs = [Tensor(a, requires_grad=True) for a in arrays]
    result = of(*inputs)
    weights = some(*result.shape)
    (result * Tensor(weights)).sum().backward()
    for place, x in enumerate(inputs):
        way = some(*x.shape)
        ends = []
        for sign in (1, -1):
            moved = [a + sign * step * way if i == place else a for i, a in enumerate(arrays)]
            ends.append((of(*map(Tensor, moved)).numpy().astype(np.float64) * weights).sum())
        found = float((x.grad.numpy().astype(np.float64) * way).sum())
        expected = (ends[0] - ends[1]) / (2 * step)
        size = np.abs(x.grad.numpy()).sum() * np.abs(way).mean()
        assert abs(found - expected) < tolerance * max(size, abs(expected), 0.1), place


# one column, fewer than a vector has lanes, a vector and a rest, strips and a rest; a batch
SIZES = [(1, 1), (3, 3), (2, 19, 19), (70, 70)]


@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_the_factor_of_cholesky_times_its_transpose_is_the_matrix(shape):
    a = positive(*shape)
    lower = L.cholesky(Tensor(a)).numpy()
    close(lower @ np.swapaxes(lower, -1, -2), a)
    assert np.array_equal(lower, np.tril(lower))
    close(L.cholesky(Tensor(a), upper=True), np.swapaxes(lower, -1, -2))


def test_cholesky_looks_at_one_half_alone():
    a = positive(5, 5)
    expected = np.linalg.cholesky(a)
    close(L.cholesky(Tensor(np.tril(a) + 9 * np.triu(some(5, 5), 1))), expected)
    close(L.cholesky(Tensor(np.triu(a) + 9 * np.tril(some(5, 5), -1)), upper=True), expected.T)


def test_what_is_not_positive_definite_gives_nan_and_the_number_of_the_minor():
    a = np.diag([1.0, 2.0, -1.0, 3.0]).astype(np.float32)
    both = Tensor(np.stack([a, np.eye(4, dtype=np.float32)]))
    result = L.cholesky(both).numpy()
    assert np.isnan(result[0]).all() and np.array_equal(result[1], np.eye(4))
    assert L.cholesky_ex(both).info.tolist() == [3, 0]
    with pytest.raises(UsageError, match="matrix 0 of the batch: the leading minor of order 3"):
        L.cholesky_ex(both, check_errors=True)


@pytest.mark.parametrize("shape", [*SIZES, (2, 9, 5), (20, 40)], ids=str)
def test_the_factors_of_lu_make_the_matrix(shape):
    a = some(*shape)
    P, lower, upper = (part.numpy() for part in L.lu(Tensor(a)))
    close(P @ lower @ upper, a)
    assert np.abs(lower).max() <= 1.0 and np.array_equal(upper, np.triu(upper))
    both, pivots = Tensor(a).lu()
    again = both.lu_unpack(pivots)
    for part, expected in zip(again, (P, lower, upper), strict=True):
        assert np.array_equal(part.numpy(), expected)


def test_without_pivots_rows_stay():
    a = positive(6, 6)
    _, lower, upper = L.lu(Tensor(a), pivot=False)
    close(lower.matmul(upper), a)


@pytest.mark.parametrize("upper, left, unit", list(itertools.product((False, True), repeat=3)))
def test_a_triangular_system_is_solved_and_half_of_the_matrix_not_looked_at(upper, left, unit):
    a = some(12, 12) + 6 * np.eye(12, dtype=np.float32)
    b = some(2, 12, 5) if left else some(2, 5, 12)
    x = L.solve_triangular(Tensor(a), Tensor(b), upper=upper, left=left, unitriangular=unit).numpy()
    t = np.triu(a) if upper else np.tril(a)
    if unit:
        t[np.arange(12), np.arange(12)] = 1
    close(t @ x if left else x @ t, b, 2e-4)


def test_more_columns_than_a_group_takes_are_solved():
    a = some(9, 9) + 5 * np.eye(9, dtype=np.float32)
    b = some(9, 150)
    close(np.tril(a) @ L.solve_triangular(Tensor(a), Tensor(b), upper=False).numpy(), b)


@pytest.mark.parametrize("shape", [(3, 3), (2, 1, 20, 20)], ids=str)
def test_solutions_inverses_and_determinants_are_numpys(shape):
    a = some(*shape) + 3 * np.eye(shape[-1], dtype=np.float32)
    b = some(4, shape[-1], 2)
    close(L.solve(Tensor(a), Tensor(b)), np.linalg.solve(a, b))
    close(
        L.solve(Tensor(a), Tensor(np.swapaxes(b, -1, -2)), left=False),
        np.swapaxes(b, -1, -2) @ np.linalg.inv(a),
    )
    close(Tensor(a).inverse(), np.linalg.inv(a))
    close(Tensor(a).det(), np.linalg.det(a), 1e-4)
    for ours, expected in zip(Tensor(a).slogdet(), np.linalg.slogdet(a), strict=True):
        close(ours, expected)
    both, pivots = L.lu_factor(Tensor(a))
    close(L.lu_solve(both, pivots, Tensor(b)), np.linalg.solve(a, b))
    close(L.lu_solve(both, pivots, Tensor(b), adjoint=True), np.linalg.solve(np.swapaxes(a, -1, -2), b))


def test_b_may_be_a_vector_and_a_batch_of_vectors():
    a, b = some(2, 4, 4) + 2 * np.eye(4, dtype=np.float32), some(2, 4)
    close(L.solve(Tensor(a), Tensor(b)), np.linalg.solve(a, b[..., None])[..., 0])
    close(L.solve(Tensor(a), Tensor(b[0])), np.stack([np.linalg.solve(each, b[0]) for each in a]))


def test_a_singular_matrix_gives_nan_and_the_number_of_the_pivot():
    a = Tensor([[1.0, 2.0], [2.0, 4.0]])
    assert np.isnan(L.inv(a).numpy()).all() and np.isnan(L.solve(a, Tensor([1.0, 1.0])).numpy()).all()
    assert a.det().item() == 0.0 and L.inv_ex(a).info.item() == 2
    assert [part.item() for part in L.slogdet(a)] == [0.0, -np.inf]
    with pytest.raises(UsageError, match=r"\[solve_ex\] info 2: pivot 2 is zero"):
        L.solve_ex(a, Tensor([1.0, 1.0]), check_errors=True)


def test_a_matrix_that_is_not_a_number_is_taken_apart_all_the_same():
    a = Tensor(np.full((5, 5), np.nan, np.float32))
    assert np.isnan(L.inv(a).numpy()).all() and np.isnan(L.cholesky(a).numpy()).all()


@pytest.mark.parametrize(
    "of, shapes",
    [
        (lambda a: L.cholesky(a.matmul(a.mT) + Tensor.eye(4)), [(2, 4, 4)]),
        (lambda a, b: L.solve_triangular(a, b, upper=False), [(4, 4), (2, 4, 3)]),
        (lambda a, b: L.solve(a, b), [(2, 4, 4), (4, 3)]),
        (lambda a: L.inv(a), [(3, 3)]),
        (lambda a: L.det(a), [(2, 3, 3)]),
        (lambda a: L.slogdet(a).logabsdet, [(4, 4)]),
        (lambda a: Tensor.cat(list(L.lu(a)[1:]), dim=-1), [(4, 4)]),
        (lambda a: L.matrix_power(a, -2), [(3, 3)]),
    ],
)
def test_gradients_are_finite_differences(of, shapes):
    arrays = [some(*shape) for shape in shapes]
    arrays[0] += 3 * np.eye(shapes[0][-1], dtype=np.float32)
    slopes_agree(of, *arrays)


def test_a_gradient_has_a_gradient():
    def slope(a: Tensor) -> Tensor:
        x = a if a._requires_grad else a.requires_grad_()
        (found,) = hcq.frontend.gradient.grad(L.solve(x, Tensor([1.0, 2.0, 3.0])).sum(), x, create_graph=True)
        return found

    slopes_agree(slope, some(3, 3) + 3 * np.eye(3, dtype=np.float32))


def test_a_jit_takes_matrices_apart():
    @hcq.jit
    def step(a: Tensor, b: Tensor) -> Tensor:
        return L.solve(a, b).realize()

    for _ in range(4):
        a, b = some(7, 7) + 3 * np.eye(7, dtype=np.float32), some(7)
        close(step(Tensor(a), Tensor(b)), np.linalg.solve(a, b), 1e-4)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: L.inv(Tensor.ones(2, 3)), r"\[inv\] A of shape \(2, 3\): the last two sizes must be equal"),
        (lambda: L.det(Tensor([[1, 2], [3, 4]])), r"\[det\] A is int64: float32 and float64 are computed"),
        (lambda: L.cholesky(Tensor([1.0])), r"\[cholesky\] A of shape \(1,\): give a matrix"),
        (lambda: L.solve(Tensor.eye(3), Tensor.ones(2, 2)), r"\[solve\] .* sizes must agree"),
    ],
)
def test_what_is_refused_says_why(call, message):
    with pytest.raises(UsageError, match=message):
        call()


def test_empty_matrices_have_results():
    assert L.det(Tensor.ones(2, 0, 0)).tolist() == [1.0, 1.0]
    assert L.inv(Tensor.ones(0, 3, 3)).shape == (0, 3, 3)
    assert L.solve(Tensor.eye(3), Tensor.ones(3, 0)).shape == (3, 0)
    assert L.lu(Tensor.ones(0, 2))[0].shape == (0, 0)


@pytest.mark.thorough
@pytest.mark.parametrize("n", [130, 257])
def test_large_matrices_are_taken_apart(n):
    a = some(n, n)
    P, lower, upper = (part.numpy() for part in L.lu(Tensor(a)))
    close(P @ lower @ upper, a, 1e-4)
    spd = positive(n, n)
    factor = L.cholesky(Tensor(spd)).numpy()
    close(factor @ factor.T, spd, 1e-4)
