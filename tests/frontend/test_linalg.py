"""Matrices taken apart: what was taken apart makes the matrix again, and gradients are those of finite differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hcq
from hcq import Tensor
from hcq.errors import UsageError

L = hcq.torch.linalg
THOROUGH = pytest.mark.thorough
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
SIZES = [(1, 1), (3, 3), (2, 19, 19), pytest.param((70, 70), marks=THOROUGH)]


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


@pytest.mark.parametrize(
    "shape", [*SIZES, (2, 9, 5), (3, 5), (18, 40), pytest.param((50, 33), marks=THOROUGH)], ids=str
)
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


@pytest.mark.parametrize("shape", [(3, 3), pytest.param((2, 1, 20, 20), marks=THOROUGH)], ids=str)
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
        pytest.param(lambda a, b: L.solve_triangular(a, b, upper=False), [(4, 4), (2, 4, 3)], marks=THOROUGH),
        (lambda a, b: L.solve(a, b), [(2, 4, 4), (4, 3)]),
        pytest.param(lambda a: L.inv(a), [(3, 3)], marks=THOROUGH),
        (lambda a: L.det(a), [(2, 3, 3)]),
        pytest.param(lambda a: L.slogdet(a).logabsdet, [(4, 4)], marks=THOROUGH),
        (lambda a: Tensor.cat(list(L.lu(a)[1:]), dim=-1), [(4, 4)]),
        pytest.param(lambda a: L.matrix_power(a, -2), [(3, 3)], marks=THOROUGH),
    ],
)
def test_gradients_are_finite_differences(of, shapes):
    arrays = [some(*shape) for shape in shapes]
    arrays[0] += 3 * np.eye(shapes[0][-1], dtype=np.float32)
    slopes_agree(of, *arrays)


def test_a_gradient_has_a_gradient():
    def slope(a: Tensor) -> Tensor:
        x = a if a._requires_grad else a.requires_grad_()
        (found,) = hcq.frontend.grad.gradient.grad(
            L.solve(x, Tensor([1.0, 2.0, 3.0])).sum(), x, create_graph=True
        )
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
        (
            lambda: L.det(hcq.tensor([[1, 2], [3, 4]])),
            r"\[det\] A is int64: float32 and float64 are computed",
        ),
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


@THOROUGH
@pytest.mark.parametrize("n", [130, 257])
def test_large_matrices_are_taken_apart(n):
    a = some(n, n)
    P, lower, upper = (part.numpy() for part in L.lu(Tensor(a)))
    close(P @ lower @ upper, a, 1e-4)
    spd = positive(n, n)
    factor = L.cholesky(Tensor(spd)).numpy()
    close(factor @ factor.T, spd, 1e-4)


# -- columns at right angles ------------------------------------------------------------------------------------------


def turned_alike(ours: np.ndarray, n: int) -> None:
    close(
        np.swapaxes(ours, -1, -2) @ ours,
        np.broadcast_to(np.eye(n, dtype=np.float32), (*ours.shape[:-2], n, n)),
    )


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 7, 3), (3, 20)], ids=str)
def test_q_has_right_angles_and_q_times_r_is_the_matrix(shape):
    a = some(*shape)
    for mode in ("reduced", "complete"):
        Q, upper = (part.numpy() for part in L.qr(Tensor(a), mode=mode))
        close(Q @ upper, a)
        turned_alike(Q, Q.shape[-1])
        assert np.array_equal(upper, np.triu(upper))
        assert Q.shape[-1] == (shape[-2] if mode == "complete" else min(shape[-2:]))
    close(L.qr(Tensor(a), mode="r").R, L.qr(Tensor(a)).R.numpy())


def test_the_reflections_of_geqrf_make_q():
    a, c = Tensor(some(6, 4)), Tensor(some(6, 3))
    packed, tau = a.geqrf()
    Q = L.qr(a, mode="complete").Q
    close(packed.orgqr(tau), Q.numpy()[:, :4])
    close(packed.ormqr(tau, c), Q.matmul(c).numpy())
    close(packed.ormqr(tau, c, transpose=True), Q.mT.matmul(c).numpy())
    close(packed.ormqr(tau, c.mT, left=False), c.mT.matmul(Q).numpy())


@pytest.mark.parametrize("shape", [(1, 1), (2, 2, 2), (9, 9)], ids=str)
def test_eigenvectors_are_only_stretched(shape):
    a = some(*shape)
    a = a + np.swapaxes(a, -1, -2)
    values, V = (part.numpy() for part in L.eigh(Tensor(a)))
    close(a @ V, V * values[..., None, :])
    turned_alike(V, shape[-1])
    assert (np.diff(values) >= 0).all()
    close(L.eigvalsh(Tensor(np.triu(a)), UPLO="U"), np.linalg.eigvalsh(a))


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 6, 3), (2, 5)], ids=str)
def test_singular_values_and_vectors_make_the_matrix(shape):
    a = some(*shape)
    m, n = shape[-2:]
    U, S, Vh = (part.numpy() for part in L.svd(Tensor(a)))
    turned_alike(U, m)
    turned_alike(np.swapaxes(Vh, -1, -2), n)
    k = min(m, n)
    close((U[..., :k] * S[..., None, :]) @ Vh[..., :k, :], a)
    assert (np.diff(S) <= 0).all() and (S >= 0).all()
    close(L.svdvals(Tensor(a)), np.linalg.svd(a, compute_uv=False))


def test_small_singular_values_are_as_exact_as_large_ones():
    scales = np.array([1.0, 1e-3, 1e-6, 1e-9], np.float32)
    a = np.linalg.qr(some(6, 4))[0] * scales
    np.testing.assert_allclose(L.svdvals(Tensor(a)).numpy(), scales, rtol=1e-5)


def test_where_singular_values_are_zero_vectors_are_at_right_angles():
    a = some(6, 2) @ some(2, 4)
    U, S, Vh = (part.numpy() for part in L.svd(Tensor(a), full_matrices=False))
    turned_alike(U, 4)
    turned_alike(Vh.T, 4)
    close((U * S) @ Vh, a)
    assert L.matrix_rank(Tensor(a)).item() == 2
    U, S, Vh = L.svd(Tensor.zeros(3, 2))
    assert S.tolist() == [0.0, 0.0] and np.array_equal(np.abs(U.numpy()), np.eye(3))


def test_the_pseudo_inverse_is_numpys():
    for a in (some(5, 3), some(2, 5), some(5, 2) @ some(2, 4)):
        close(Tensor(a).pinverse(1e-4), np.linalg.pinv(a, 1e-4), 1e-4)
    a = positive(3, 3)
    close(L.pinv(Tensor(a), hermitian=True), np.linalg.inv(a), 1e-4)


@pytest.mark.parametrize("driver", [None, "gels", pytest.param("gelsd", marks=THOROUGH)])
def test_least_squares_leave_nothing_along_the_columns(driver):
    for shape in ((6, 3), (3, 5)):
        a, b = some(*shape), some(shape[0], 2)
        X, residuals, rank, values = L.lstsq(Tensor(a), Tensor(b), driver=driver)
        expected, left, *_ = np.linalg.lstsq(a, b, rcond=None)
        close(X, expected, 1e-4)
        if driver and shape[0] > shape[1]:
            close(residuals, left, 1e-4)
        assert driver == "gels" or rank.item() == 3
        assert (values.numel() > 0) == (driver == "gelsd")


def test_norms_and_conditions_by_singular_values_are_numpys():
    a = some(2, 3, 4)
    for order in (2, -2, "nuc"):
        close(L.matrix_norm(Tensor(a), order), np.linalg.norm(a, order, (-2, -1)))
        moved = L.matrix_norm(Tensor(np.moveaxis(a, 0, 1)), order, dim=(0, 2), keepdim=True)
        close(moved, np.linalg.norm(a, order, (-2, -1)).reshape(1, 2, 1))
    close(Tensor(a[0]).norm("nuc"), np.linalg.norm(a[0], "nuc"))
    b = some(3, 3)
    for p in (None, 1, "fro", -2):
        close(L.cond(Tensor(b), p), np.linalg.cond(b, p), 1e-3)
    assert L.cond(Tensor.ones(2, 2), 1).item() == np.inf


def test_the_exponential_undoes_its_inverse_and_turns():
    for size in (0.1, 3.0):
        a = size * some(2, 3, 3)
        forth, back = Tensor(a).matrix_exp().numpy(), Tensor(-a).matrix_exp().numpy()
        close(forth @ back, np.stack([np.eye(3)] * 2), 2e-6 * np.abs(forth).max() * np.abs(back).max())
    angle = Tensor([[0.0, -40.0], [40.0, 0.0]]).matrix_exp()
    close(angle, np.array([[np.cos(40), -np.sin(40)], [np.sin(40), np.cos(40)]]), 1e-4)


@THOROUGH
def test_a_few_singular_values_are_found_of_a_matrix_that_has_no_more():
    a = some(30, 3) @ some(3, 20)
    U, S, V = Tensor(a).svd_lowrank(4)
    close((U * S).matmul(V.mT), a, 1e-4)
    U, S, V = Tensor(a + 7).pca_lowrank(4)
    close((U * S).matmul(V.mT), a - a.mean(0), 1e-4)


@pytest.mark.parametrize(
    "of, shapes",
    [
        (lambda a: Tensor.cat(list(L.qr(a)), dim=-2), [(3, 3)]),
        pytest.param(lambda a: L.qr(a).R, [(2, 3, 4)], marks=THOROUGH),
        pytest.param(lambda a: L.eigh(a + a.mT).eigenvalues, [(3, 3)], marks=THOROUGH),
        (lambda a: L.eigh(a + a.mT).eigenvectors.square(), [(3, 3)]),
        (lambda a: (lambda U, S, Vh: Tensor.cat([U.abs(), S.unsqueeze(0), Vh.abs()]))(*L.svd(a)), [(3, 3)]),
        pytest.param(lambda a: L.svdvals(a), [(2, 4, 3)], marks=THOROUGH),
        (lambda a: L.pinv(a), [(4, 3)]),
        pytest.param(lambda a, b: L.lstsq(a, b, driver="gels").solution, [(4, 3), (4, 2)], marks=THOROUGH),
        pytest.param(lambda a: (a * 0.3).matrix_exp(), [(3, 3)], marks=THOROUGH),
    ],
)
def test_gradients_of_what_has_right_angles_are_finite_differences(of, shapes):
    arrays = [some(*shape) for shape in shapes]
    n = min(shapes[0][-2:])
    arrays[0][..., range(n), range(n)] += 2.0 * np.arange(1, n + 1, dtype=np.float32)
    slopes_agree(of, *arrays)


@THOROUGH
@pytest.mark.parametrize("shape", [(33, 33), (2, 70, 40), (40, 130), (150, 150)], ids=str)
def test_large_matrices_have_eigenvalues_and_singular_values(shape):
    a = some(*shape)
    U, S, Vh = (part.numpy() for part in L.svd(Tensor(a), full_matrices=False))
    close((U * S[..., None, :]) @ Vh, a, 1e-4)
    turned_alike(U, min(shape[-2:]))
    both = a @ np.swapaxes(a, -1, -2)
    values, V = (part.numpy() for part in L.eigh(Tensor(both)))
    close(V * values[..., None, :] @ np.swapaxes(V, -1, -2), both, 1e-4)
    Q, upper = (part.numpy() for part in L.qr(Tensor(a)))
    close(Q @ upper, a, 1e-4)


@pytest.mark.parametrize("shape", [(2, 2), (2, 7, 7), pytest.param((40, 40), marks=THOROUGH)], ids=str)
@pytest.mark.parametrize("diagonal", [0.0, 1.0])
def test_indefinite_systems_are_solved_by_blocks_of_one_and_two(shape, diagonal):
    a = some(*shape)
    a = a + np.swapaxes(a, -1, -2)
    a[..., range(shape[-1]), range(shape[-1])] *= diagonal  # without a diagonal there is no pivot of one row
    b = some(shape[-1], 3)
    LD, pivots = L.ldl_factor(Tensor(np.tril(a)))
    assert diagonal or (pivots.numpy() < 0).any()
    close(a @ L.ldl_solve(LD, pivots, Tensor(b)).numpy(), np.broadcast_to(b, (*shape[:-1], 3)), 1e-4)


def test_a_block_of_zeros_is_named():
    a = Tensor([[2.0, 0.0], [0.0, 0.0]])
    assert L.ldl_factor_ex(a).info.item() == 2
    with pytest.raises(UsageError, match=r"\[ldl_factor_ex\] info 2: block 2 of D is zero"):
        L.ldl_factor_ex(a, check_errors=True)


def test_nan_in_an_indefinite_matrix_gives_nan_and_touches_nothing_else():
    a = np.stack([np.full((4, 4), np.nan, np.float32), np.eye(4, dtype=np.float32)])
    LD, pivots = L.ldl_factor(Tensor(a))
    assert np.isnan(LD.numpy()[0]).any()
    np.testing.assert_array_equal(LD.numpy()[1], np.eye(4))
    np.testing.assert_array_equal(pivots.numpy()[1], [1, 2, 3, 4])
