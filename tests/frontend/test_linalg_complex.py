"""Eigenvalues of general matrices, and linear algebra of complex matrices."""

from __future__ import annotations

import numpy as np
import pytest

from hcq import Tensor
from hcq.frontend.core.errors import UsageError
from hcq.torch import linalg

L = linalg
RNG = np.random.default_rng(5)


def some(*shape):
    return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(np.complex64)


def close(found, expected, size=2e-5):
    found = found.numpy() if isinstance(found, Tensor) else found
    np.testing.assert_allclose(found, expected, rtol=0, atol=size * max(1.0, np.abs(expected).max()))


def backed(x):
    return np.conj(np.swapaxes(x, -1, -2))


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param((1, 1), marks=pytest.mark.thorough),
        (2, 5, 5),
        pytest.param((24, 24), marks=pytest.mark.thorough),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_complex", [False, True])
def test_a_matrix_takes_its_eigenvectors_to_multiples_of_them(shape, is_complex):
    a = some(*shape) if is_complex else some(*shape).real
    values, V = (part.numpy() for part in L.eig(Tensor(a)))
    close(a @ V, V * values[..., None, :], 5e-5)
    close(np.linalg.norm(V, axis=-2), np.ones(values.shape))
    close(values.sum(-1), np.trace(a, axis1=-2, axis2=-1), 5e-5)
    close(L.eigvals(Tensor(a)), values)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "a", [np.eye(3, k=1), np.roll(np.eye(4), 1, 0), np.zeros((3, 3)), np.diag([1e-30, 1e30])]
)
def test_matrices_with_few_eigenvectors_and_of_great_and_small_numbers_have_eigenvalues(a):
    values, V = L.eig(Tensor(a.astype(np.float32)))
    expected = np.sort_complex(np.round(np.linalg.eigvals(a), 3))
    np.testing.assert_allclose(np.sort_complex(np.round(values.numpy(), 3)), expected, rtol=1e-5, atol=2e-3)
    assert np.isfinite(V.numpy()).all()


def test_nan_has_no_eigenvalues():
    assert np.isnan(L.eigvals(Tensor([[float("nan"), 1.0], [2.0, 3.0]])).numpy()).all()


@pytest.mark.thorough
def test_the_gradient_of_powers_of_eigenvalues_is_that_of_the_trace():
    a = Tensor(np.diag([1.0, 3.0, 6.0]) + some(3, 3).real * 0.3, requires_grad=True)
    values = L.eigvals(a)
    (values * values).sum().real.backward()
    close(a.grad, 2 * a.detach().numpy().T, 1e-4)


def test_complex_systems_are_solved():
    a, b = some(2, 4, 4), some(2, 4, 3)
    close(a @ L.solve(Tensor(a), Tensor(b)).numpy(), b, 1e-4)
    close(L.solve(Tensor(a), Tensor(b[..., 0])), np.linalg.solve(a, b[..., :1])[..., 0], 1e-4)
    close(a @ L.inv(Tensor(a)).numpy(), np.broadcast_to(np.eye(4), a.shape), 1e-4)
    close(L.pinv(Tensor(b)), np.linalg.pinv(b), 1e-4)
    singular = (np.ones((2, 2)) * 1j).astype(np.complex64)
    assert np.isnan(L.solve(Tensor(singular), Tensor(b[0, :2])).numpy()).all()


def test_complex_determinants_are_those_of_numpy():
    a = some(3, 4, 4)
    close(L.det(Tensor(a)), np.linalg.det(a), 1e-4)
    sign, value = L.slogdet(Tensor(a))
    close(sign.numpy() * np.exp(value.numpy()), np.linalg.det(a), 1e-4)


def test_cholesky_looks_at_one_half_of_a_hermitian_matrix():
    a = some(2, 4, 4)
    a = a @ backed(a) + np.eye(4, dtype=np.complex64)
    close(L.cholesky(Tensor(np.tril(a))), np.linalg.cholesky(a))
    close(L.cholesky(Tensor(np.triu(a)), upper=True), backed(np.linalg.cholesky(a)))
    assert L.cholesky_ex(Tensor(-a)).info.tolist() == [1, 1]


@pytest.mark.parametrize(
    "shape",
    [*(pytest.param(shape, marks=pytest.mark.thorough) for shape in ((5, 3), (3, 5))), (2, 4, 4)],
    ids=str,
)
def test_complex_factors_have_unitary_columns_and_make_the_matrix(shape):
    a = some(*shape)
    k = min(shape[-2:])
    Q, R = (part.numpy() for part in L.qr(Tensor(a)))
    close(Q @ R, a)
    close(backed(Q) @ Q, np.broadcast_to(np.eye(k), (*shape[:-2], k, k)))
    assert np.array_equal(np.tril(R, -1), np.zeros_like(R))
    U, S, Vh = (part.numpy() for part in L.svd(Tensor(a)))
    close((U[..., :k] * S[..., None, :]) @ Vh[..., :k, :], a, 5e-5)
    close(backed(U) @ U, np.broadcast_to(np.eye(shape[-2]), U.shape))
    close(S, np.linalg.svd(a, compute_uv=False))
    close(L.svdvals(Tensor(a)), S)


def test_equal_eigenvalues_of_a_hermitian_matrix_have_vectors_at_right_angles():
    turn = np.linalg.qr(some(5, 5))[0]
    a = (turn * np.array([1.0, 2.0, 2.0, 2.0, 5.0])) @ backed(turn)
    values, V = (part.numpy() for part in L.eigh(Tensor(a.astype(np.complex64))))
    close(values, [1.0, 2.0, 2.0, 2.0, 5.0])
    close(backed(V) @ V, np.eye(5))
    close((V * values) @ backed(V), a)


@pytest.mark.parametrize(
    "name",
    [
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in ("cholesky", "inv", "eigvalsh", "solve")
        ),
        "svdvals",
        "det",
    ],
)
def test_slopes_of_complex_functions_are_those_of_small_steps(name):
    a = some(3, 3).astype(np.complex128)
    a = a @ backed(a) + np.eye(3)
    step = some(3, 3).astype(np.complex128)
    step = step + backed(step)
    weights = RNG.standard_normal((3, 3))

    def loss(x):
        y = L.solve(x, Tensor(weights.astype(complex))) if name == "solve" else getattr(L, name)(x)
        shaped = Tensor(
            weights[tuple(slice(0, size) for size in y.shape[::-1])].T
            if y.ndim == 2
            else weights[0, : y.numel()].reshape(y.shape)
        )
        return (y.real * shaped).sum() + ((y.imag * shaped).sum() * 0.5 if y.is_complex() else 0.0)

    x = Tensor(a, requires_grad=True)
    loss(x).backward()
    h = 1e-6
    expected = (loss(Tensor(a + h * step)).item() - loss(Tensor(a - h * step)).item()) / (2 * h)
    assert (np.conj(x.grad.numpy()) * step).sum().real == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_what_there_is_not_for_complex_matrices_is_refused_by_name():
    with pytest.raises(UsageError, match=r"\[lu_factor\] A is complex64: this is for real matrices alone"):
        L.lu_factor(Tensor(some(2, 2)))
    with pytest.raises(UsageError, match=r"\[eig\] A of shape \(2, 3\): give square matrices"):
        L.eig(Tensor(np.zeros((2, 3), np.float32)))
