"""Arguments of PyTorch's functions: each line means the same in both libraries, values, shapes and dtypes."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
import hcq.nn.functional
from hcq import Tensor, dtypes

LINES = """
m.div(X, Y, rounding_mode="floor")
m.div(X, Y, rounding_mode="trunc")
m.softmax(I, 0, dtype=m.float32)
m.log_softmax(X, dim=1, dtype=m.float64)
F.softmax(X, dim=-1, dtype=m.float64)
m.cumsum(I, 1, dtype=m.float32)
m.cumprod(I, 0, dtype=m.float64)
m.add(X, Y, alpha=2)
m.sub(X, 1, alpha=0.5)
m.rsub(X, Y, alpha=2)
m.addmm(X @ X.T, X, Y.T, alpha=2, beta=0.5)
m.diag(V, 1)
m.diag(X, diagonal=-1)
m.diagonal(C, 1, 0, 2)
m.diagonal(C, offset=-1, dim1=-1, dim2=1)
m.diag_embed(X, 1, 0, 2)
F.scaled_dot_product_attention(C.repeat(1, 2, 1, 1), C, C, enable_gqa=True)
m.topk(X, 2, 1, largest=False, sorted=True)
m.nonzero(I, as_tuple=True)
m.where(I > 0)
m.take_along_dim(X, m.tensor([0, 5, 2]))
m.take_along_dim(X, m.tensor([[1]]), 0)
m.take_along_dim(X, m.tensor([[0], [1], [2]]), dim=1)
m.movedim(C, [0, 1], [2, 3])
m.einsum("...ij,...jk->...ik", C, C.mT)
m.einsum("ii->i", X @ X.T)
m.einsum("...ii", C[..., :2, :2])
m.einsum("b...,b...->...", C, C)
m.einsum("ij,jk,kl->il", X, Y.T, X)
F.pad(X, (-1, -1))
F.pad(X, (1, -2, -1, 3), value=2.0)
F.pad(C, (1, -1, -1, 1), mode="reflect")
m.norm(X, "fro", dim=(0, 1))
m.norm(C, "nuc", (1, 2))
m.norm(X, float("inf"))
F.max_pool1d(C[0], (2,), stride=(1,), padding=(1,), dilation=(2,), ceil_mode=True, return_indices=True)
F.avg_pool1d(C[0], (3,), (2,), (1,))
F.lp_pool1d(C[0], 2.0, 2)
F.lp_pool2d(C.abs(), 3.0, (2, 3), stride=1, ceil_mode=True)
m.repeat_interleave(V, m.tensor([1, 0, 2, 3, 1]))
m.repeat_interleave(X, m.tensor([1, 2, 3]), 0, output_size=6)
m.repeat_interleave(m.tensor([1, 2, 0]))
m.index_select(N, 0, m.tensor([0]))
m.gather(N, 0, m.tensor(0))
m.cummax(N, 0)
m.sort(N, 0)
m.sum(X, ())
m.sum(X, [], True)
m.mean(X, ())
m.amax(X, ())
m.std(X, ())
m.all(I, ())
m.count_nonzero(I, ())
m.flip(X, ())
(X * 9).char()
(X * 9).short()
X.view(m.int32)
X.view(m.int16)
X.view(m.uint8)
I.view(m.int32)
I.short().repeat(1, 4).view(m.int64)
I.byte().repeat(1, 4).view(m.float32)
I.char().repeat(1, 8).view(m.float64).view(m.int64)
F.embedding(I, X, padding_idx=1)
m.clamp(X, m.tensor(-0.5), m.tensor(0.5))
m.round(X, decimals=1)
m.quantile(X, m.tensor([0.1, 0.5]), dim=1, keepdim=True, interpolation="lower")
F.cross_entropy(X, m.tensor([0, 3, -100]), ignore_index=-100, label_smoothing=0.1, reduction="sum")
""".strip().split("\n")

VALUES = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
ARRAYS = {
    "C": VALUES,
    "X": VALUES[0, :, :, 0],
    "Y": VALUES[1, :, :, 1],
    "V": VALUES[0, 0, 0],
    "N": np.float32(3.0),
    "I": np.array([[2, 0, 1], [1, 1, 0]]),
}


def flat(found):
    return [part for one in found for part in flat(one)] if isinstance(found, (tuple, list)) else [found]


@pytest.mark.torch
@pytest.mark.thorough
def test_each_line_means_the_same_in_both_libraries():
    torch = pytest.importorskip("torch")
    ours, theirs = [
        {"m": library, "F": library.nn.functional, **{n: library.tensor(a.copy()) for n, a in ARRAYS.items()}}
        for library in (hcq.torch, torch)
    ]
    for line in LINES:
        found, expected = flat(eval(line, ours)), flat(eval(line, theirs))
        assert len(found) == len(expected), line
        for one, other in zip(found, expected):
            assert one.shape == tuple(other.shape) and str(other.dtype) == f"torch.{one.dtype.name}", line
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=2e-4, atol=2e-5, err_msg=line)


@pytest.mark.parametrize(
    ("have", "want"),
    [(dtypes.float32, dtypes.uint8), (dtypes.uint8, dtypes.int16), (dtypes.int64, dtypes.float16),
     (dtypes.int16, dtypes.int64)],
    ids=str,
)  # fmt: skip
def test_bits_are_read_in_another_size(have, want):
    if hcq.tensor([1]).device == "METAL" and have.itemsize == 8:
        pytest.skip("it has these only emulated")
    array = (VALUES[0, :, :, :4] * 100).astype(have.name)
    np.testing.assert_array_equal(Tensor(array).view(want).numpy(), array.view(want.name))


def test_a_bool_is_read_as_a_byte():
    assert hcq.tensor([True, False]).bitcast(dtypes.int8).tolist() == [1, 0]
    assert hcq.tensor([True, False]).view(dtypes.int16).tolist() == [1]


def test_no_axes_are_all_axes_of_a_sum_and_none_of_all():
    x = Tensor(VALUES)
    for reduce in ("sum", "mean", "amax", "std"):
        assert getattr(x, reduce)(()).shape == () == getattr(x, reduce)([]).shape
    assert x.sum((), keepdim=True).shape == (1, 1, 1, 1)
    assert (x > 0).all(()).shape == x.shape


def test_the_padding_row_of_a_table_has_no_gradient():
    table = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    hcq.tensor([0, 1, 0]).embedding(table, padding_idx=-1).sum().backward()
    assert table.grad.tolist() == [[2.0, 2.0], [0.0, 0.0]]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_8_bit_floats_are_computed_in_float32_and_rounded(name):
    dtype = getattr(hcq, name)
    x, y = (Tensor(VALUES[0, 0, place]).cast(dtype) for place in (0, 1))
    wide = x.float(), y.float()
    for compute in (
        lambda x, y: x + y, lambda x, y: x * 3, lambda x, y: -x.abs(), lambda x, y: x.exp(), lambda x, y: x @ y,
        lambda x, y: x.sum(), lambda x, y: x.sort()[0], lambda x, y: x.square(), lambda x, y: x.maximum(y).mean(),
    ):  # fmt: skip
        found = compute(x, y)
        assert found.dtype is dtype
        np.testing.assert_allclose(
            found.float().numpy(), compute(*wide).cast(dtype).float().numpy(), rtol=0.3
        )
    assert (x < y).tolist() == (wide[0] < wide[1]).tolist()
    leaf = Tensor([1.0, 2.0], requires_grad=True)
    (leaf.cast(dtype) * 2).float().sum().backward()
    assert leaf.grad.tolist() == [2.0, 2.0]
