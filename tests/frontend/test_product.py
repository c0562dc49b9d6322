"""Products against NumPy: matmul's shapes, einsum, narrow floats."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(math.prod(shape)).standard_normal(shape).astype(np.float32)


def close(actual: Tensor, expected: np.ndarray) -> None:
    expected = np.asarray(expected)
    assert (actual.shape, actual.dtype.name) == (expected.shape, expected.dtype.name)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "left, right",
    [
        ((3, 4), (4, 5)),
        ((1, 1), (1, 1)),
        ((4,), (4,)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((2, 3, 4), (4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((6, 1, 3, 4), (2, 4, 5)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 4, 5)),
        ((17, 33), (33, 9)),
        ((0, 4), (4, 5)),
        ((3, 0), (0, 5)),
    ],
    ids=str,
)
def test_matmul_is_numpys(left, right):
    a, b = random(*left), random(*right)
    close(Tensor(a) @ Tensor(b), a @ b)


def test_integers_are_multiplied_exactly():
    a, b = np.arange(12).reshape(3, 4), np.arange(8).reshape(4, 2) - 3
    assert (Tensor(a) @ Tensor(b)).tolist() == (a @ b).tolist()


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_narrow_products_are_summed_in_float32(dtype):
    ones = Tensor.ones(1, 4000, dtype=dtype)
    product = ones @ ones.T
    assert (product.dtype, product.item()) == (dtype, Tensor(4000.0).cast(dtype).item())


def test_linear_uses_the_weight_as_pytorch_keeps_it():
    x, w, b = random(2, 3, 4), random(5, 4), random(5)
    close(Tensor(x).linear(Tensor(w), Tensor(b)), x @ w.T + b)
    close(Tensor(x).linear(Tensor(w[0])), x @ w[0])


def test_dot_outer_and_mv_are_numpys():
    a, b = random(4), random(5)
    close(Tensor(a).dot(Tensor(a)), np.dot(a, a))
    close(Tensor(a).outer(Tensor(b)), np.outer(a, b))
    close(Tensor(random(3, 4)).mv(Tensor(a)), random(3, 4) @ a)


@pytest.mark.parametrize(
    "formula, shapes",
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("bij,bkj->bik", [(2, 3, 4), (2, 5, 4)]),
        ("ij->ji", [(2, 3)]),
        ("ij->", [(2, 3)]),
        ("ij->j", [(2, 3)]),
        ("i,j->ij", [(2,), (3,)]),
        ("i,i->", [(3,), (3,)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
        ("bhqd,bhkd->bhqk", [(1, 2, 3, 4), (1, 2, 5, 4)]),
    ],
)
def test_einsum_is_numpys(formula, shapes):
    operands = [random(*shape) for shape in shapes]
    close(Tensor.einsum(formula, *map(Tensor, operands)), np.einsum(formula, *operands))


@pytest.mark.parametrize("formula", ["ij,jk->iz", "ij->ij", "ijk,jk->i", "ii,ij->i", "ij,ij->i"])
def test_an_einsum_that_does_not_fit_is_refused(formula):
    with pytest.raises(UsageError, match=r"^\[einsum\]"):
        Tensor.einsum(formula, Tensor(random(2, 3)), Tensor(random(3, 4)))
