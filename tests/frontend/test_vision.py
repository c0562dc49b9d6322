"""Windows, sizes, distances and products by name: against what defines them, and what undoes them."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
from hcq import dtypes
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor

R = np.random.default_rng(9)
IMAGE = R.standard_normal((1, 2, 7, 5)).astype(np.float32)


def test_values_that_are_put_back_where_they_were_are_the_greatest_of_their_windows():
    values, indices = Tensor(IMAGE).max_pool2d(2, ceil_mode=True, return_indices=True)
    assert values.realize(indices).shape == (1, 2, 4, 3)
    flat = IMAGE.reshape(2, 35)
    assert np.array_equal(
        np.take_along_axis(flat, indices.numpy().reshape(2, 12), 1).ravel(), values.numpy().ravel()
    )
    back = values[:, :, :3, :2].max_unpool2d(indices[:, :, :3, :2], 2, output_size=(7, 5)).numpy()
    assert np.array_equal(back[back != 0], IMAGE[back != 0]) and np.count_nonzero(back) == 12


def test_an_adaptive_window_reaches_from_its_floor_to_its_ceiling():
    found = Tensor(IMAGE).adaptive_avg_pool2d((3, None)).numpy()
    expected = [IMAGE[:, :, i * 7 // 3 : -(-(i + 1) * 7 // 3)].mean(2) for i in range(3)]
    np.testing.assert_allclose(found, np.stack(expected, 2), rtol=1e-5, atol=1e-6)


def test_what_is_counted_is_inside_of_the_padding_not_beyond_it():
    ones = Tensor.ones(1, 1, 5)
    assert ones.avg_pool1d(3, 2, 1, ceil_mode=True).tolist() == [
        [[pytest.approx(2 / 3), 1.0, pytest.approx(2 / 3)]]
    ]
    assert Tensor.ones(1, 1, 4, 4).avg_pool2d(2, divisor_override=3).tolist()[0][0][0][0] == pytest.approx(
        4 / 3
    )


def test_pixels_that_are_shuffled_come_back():
    x = Tensor(R.standard_normal((1, 8, 3, 2)).astype(np.float32))
    assert np.array_equal(x.pixel_shuffle(2).pixel_unshuffle(2).numpy(), x.numpy())


def test_a_straight_line_stays_one_when_it_is_interpolated():
    line = Tensor(np.arange(5, dtype=np.float32).reshape(1, 1, 5))
    found = line.interpolate(9, mode="linear", align_corners=True).numpy()
    np.testing.assert_allclose(found.ravel(), np.arange(9) / 2, rtol=1e-6)
    assert line.interpolate(scale_factor=2.0).tolist() == [[[0, 0, 1, 1, 2, 2, 3, 3, 4, 4]]]
    with pytest.raises(UsageError, match=r"\[interpolate\] mode 'bilinear' is not for 1 axes"):
        line.interpolate(9, mode="bilinear")


def test_distances_are_those_of_the_points():
    a, b = R.standard_normal((4, 3)).astype(np.float32), R.standard_normal((2, 3)).astype(np.float32)
    expected = np.linalg.norm(a[:, None] - b, axis=2)
    np.testing.assert_allclose(Tensor(a).cdist(Tensor(b)).numpy(), expected, rtol=1e-5)
    assert Tensor(a).pdist().shape == (6,)


def test_products_by_name_are_numpys():
    a, b = R.standard_normal((2, 3)).astype(np.float32), R.standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_allclose(Tensor(a).kron(Tensor(b)).numpy(), np.kron(a, b), rtol=1e-6)
    np.testing.assert_allclose(Tensor(a).tensordot(Tensor(b), 1).numpy(), a @ b, rtol=1e-5)
    np.testing.assert_allclose(hcq.torch.linalg.multi_dot([Tensor(a), Tensor(b)]).numpy(), a @ b, rtol=1e-5)
    assert hcq.torch.linalg.vector_norm(Tensor([3.0, 4.0])).item() == 5.0


@pytest.mark.parametrize("formula", ["...ij,...jk->...ik", "...ii->...i", "...ij->...", "bij,bjk", "ii"])
def test_a_formula_with_dots_or_a_letter_twice_is_numpys(formula):
    left = R.standard_normal((2, 3, 3)).astype(np.float32)
    right = R.standard_normal((1 if "..." in formula else 2, 3, 4)).astype(np.float32)
    operands = (left, right) if "," in formula else (left,) if formula != "ii" else (left[0],)
    found = hcq.einsum(formula, *map(Tensor, operands)).numpy()
    np.testing.assert_allclose(found, np.einsum(formula, *operands), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_interpolated_as_the_nearest_of_what_floats_give(mode):
    image = R.integers(0, 256, (1, 2, 9, 7)).astype(np.uint8)
    found = Tensor(image).interpolate((5, 11), mode=mode)
    exact = Tensor(image).float().interpolate((5, 11), mode=mode).clamp(0, 255).numpy()
    assert found.dtype is dtypes.uint8
    assert abs(found.numpy() - exact).max() < (
        2 if mode == "bilinear" else 12
    )  # each axis is rounded and cut
    with pytest.raises(UsageError, match=r"\[interpolate\] mode '.*' of int64: .*x.float\(\)"):
        Tensor(image).long().interpolate((5, 11), mode=mode)


@pytest.mark.torch
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_interpolated_to_the_bit_as_pytorch_does(mode, antialias):
    torch = pytest.importorskip("torch")
    for space, size, align in (((9, 31), (20, 12), False), ((12, 5), (3, 29), True), ((1, 6), (7, 6), False)):
        image = R.integers(0, 256, (2, 3, *space)).astype(np.uint8)
        options = {"size": size, "mode": mode, "align_corners": align, "antialias": antialias}
        expected = torch.nn.functional.interpolate(torch.tensor(image), **options)
        assert np.array_equal(Tensor(image).interpolate(**options).numpy(), expected.numpy())
