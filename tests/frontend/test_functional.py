"""Functions that are no methods: sampling, bags, heads, CTC, fractional pools, histograms, slopes, checksums."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import hcq
from hcq.errors import UsageError
from hcq.frontend.nn import functional as F
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

R = np.random.default_rng(11)


def floats(*shape):
    return R.normal(size=shape).astype(np.float32)


# -- sampling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("align", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_the_grid_of_the_identity_gives_the_image_back(align):
    x = floats(2, 3, 4, 5)
    same = np.tile(np.eye(2, 3, dtype=np.float32), (2, 1, 1))
    grid = F.affine_grid(Tensor(same), (2, 3, 4, 5), align_corners=align)
    for mode in ("bilinear", "nearest", "bicubic"):
        found = F.grid_sample(Tensor(x), grid, mode, "border", align)
        np.testing.assert_allclose(found.numpy(), x, atol=1e-5)


def test_places_outside_are_zero_the_edge_or_reflected():
    x = Tensor([[[[1.0, 2.0, 4.0]]]])
    far = Tensor([[[[3.0, 0.0], [-1.0, 0.0]]]])  # with corners aligned, places 4 and 0
    assert F.grid_sample(x, far, align_corners=True).tolist() == [[[[0.0, 1.0]]]]
    assert F.grid_sample(x, far, padding_mode="border", align_corners=True).tolist() == [[[[4.0, 1.0]]]]
    assert F.grid_sample(x, far, padding_mode="reflection", align_corners=True).tolist() == [[[[1.0, 1.0]]]]


def test_the_gradient_of_a_place_is_the_slope_of_the_image_there():
    x = Tensor([[[[1.0, 2.0, 4.0]]]])
    grid = Tensor([[[[0.5, 0.0]]]], requires_grad=True)
    F.grid_sample(x, grid, align_corners=True).sum().backward()
    assert grid.grad.numpy()[0, 0, 0, 0] == pytest.approx(
        2.0
    )  # 2 from place 1 to 2, and a place is 1 of the grid
    with pytest.raises(UsageError, match=r"\[grid_sample\] input"):
        F.grid_sample(x, Tensor([[1.0]]))


def test_an_image_made_smaller_with_antialias_keeps_its_mean():
    x = floats(1, 2, 12, 8)
    small = Tensor(x).interpolate(size=(4, 2), mode="bilinear", antialias=True)
    inside = Tensor(np.ones((1, 1, 12, 8), np.float32)).interpolate(
        size=(4, 2), mode="bicubic", antialias=True
    )
    assert small.shape == (1, 2, 4, 2)
    np.testing.assert_allclose(inside.numpy(), 1.0, rtol=1e-6)
    plain = Tensor(x).interpolate(size=(4, 2), mode="bilinear")
    assert float(np.abs(small.numpy()).max()) < float(np.abs(plain.numpy()).max())


# -- bags and heads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "reduce"), [("sum", np.sum), ("mean", np.mean), ("max", np.max)])
def test_a_bag_is_the_sum_the_mean_or_the_greatest_of_its_rows(mode, reduce):
    table = floats(6, 3)
    bags = [[1, 4, 4], [0], [], [2, 5]]
    index = [i for bag in bags for i in bag]
    offsets = [0, *itertools.accumulate(len(bag) for bag in bags)][:-1]
    found = F.embedding_bag(hcq.tensor(index), Tensor(table), hcq.tensor(offsets), mode=mode).numpy()
    expected = [reduce(table[bag], axis=0) if bag else np.zeros(3) for bag in bags]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    side = F.embedding_bag(hcq.tensor([[1, 2], [3, 0]]), Tensor(table), mode=mode, padding_idx=0).numpy()
    np.testing.assert_allclose(side, [reduce(table[[1, 2]], axis=0), table[3]], rtol=1e-6)


def test_heads_are_attention_of_slices_side_by_side():
    x, inner, outer = floats(5, 2, 8), floats(24, 8), floats(8, 8)
    found, weights = F.multi_head_attention_forward(
        Tensor(x),
        Tensor(x),
        Tensor(x),
        8,
        2,
        Tensor(inner),
        None,
        None,
        None,
        False,
        0.0,
        Tensor(outer),
        None,
    )
    q, k, v = (Tensor(x).transpose(0, 1) @ part.T for part in Tensor(inner).chunk(3))
    heads = [
        a.scaled_dot_product_attention(b, c)
        for a, b, c in zip(q.split(4, -1), k.split(4, -1), v.split(4, -1))
    ]
    expected = (Tensor.cat(heads, dim=-1) @ Tensor(outer).T).transpose(0, 1)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weights.sum(-1).numpy(), 1.0, rtol=1e-6)


# -- losses -----------------------------------------------------------------------------------------------------------


def collapsed(path, blank):
    return tuple(label for label, _ in itertools.groupby(path) if label != blank)


def test_ctc_is_the_sum_over_all_paths_that_collapse_to_the_target():
    logits = floats(4, 2, 3)
    logs = Tensor(logits).log_softmax(-1)
    shares = np.exp(logs.numpy().astype(np.float64))
    targets, sizes, spans = [[1, 2], [1, 1]], [2, 1], [4, 3]
    expected = []
    for sample in range(2):
        wanted = tuple(targets[sample][: sizes[sample]])
        total = sum(
            math.prod(shares[t, sample, label] for t, label in enumerate(path))
            for path in itertools.product(range(3), repeat=spans[sample])
            if collapsed(path, 0) == wanted
        )
        expected.append(-math.log(total))
    found = F.ctc_loss(logs, hcq.tensor(targets), spans, sizes, reduction="none")
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)
    row = F.ctc_loss(logs, hcq.tensor([1, 2, 1]), spans, sizes, reduction="none")
    np.testing.assert_allclose(row.numpy(), expected, rtol=1e-5)


def test_the_gradient_of_ctc_at_logits_is_that_of_finite_differences():
    logits = floats(4, 2, 3).astype(np.float64)

    def loss(values):
        return F.ctc_loss(
            Tensor(values).log_softmax(-1), hcq.tensor([[1, 2], [1, 1]]), [4, 3], [2, 2], reduction="sum"
        )

    x = Tensor(logits, requires_grad=True)
    F.ctc_loss(x.log_softmax(-1), hcq.tensor([[1, 2], [1, 1]]), [4, 3], [2, 2], reduction="sum").backward()
    for place in ((0, 0, 1), (2, 1, 0), (3, 1, 2)):
        step = np.zeros_like(logits)
        step[place] = 1e-5
        slope = (loss(logits + step).item() - loss(logits - step).item()) / 2e-5
        assert x.grad.numpy()[place] == pytest.approx(slope, abs=1e-6)


def test_a_target_without_a_path_costs_infinity_or_nothing():
    logs = Tensor(floats(2, 1, 3)).log_softmax(-1)
    assert F.ctc_loss(logs, hcq.tensor([[1, 1]]), [2], [2], reduction="sum").item() == math.inf
    assert F.ctc_loss(logs, hcq.tensor([[1, 1]]), [2], [2], reduction="sum", zero_infinity=True).item() == 0.0


def test_margins_of_several_classes_count_the_others_alone():
    x = Tensor([[0.1, 0.2, 0.4, 0.8]])
    # PyTorch's documentation: classes 3 and 0 against 1 and 2
    assert F.multilabel_margin_loss(x, hcq.tensor([[3, 0, -1, 1]])).item() == pytest.approx(0.85)


def test_a_linear_layer_with_its_loss_and_a_product_of_two_inputs():
    x, w, t = floats(5, 3), floats(4, 3), np.array([0, 1, 3, 2, 0])
    both = F.linear_cross_entropy(Tensor(x), Tensor(w), Tensor(t)).item()
    assert both == pytest.approx(Tensor(x @ w.T).cross_entropy(Tensor(t)).item(), rel=1e-5)
    a, b, w = floats(2, 3), floats(2, 4), floats(5, 3, 4)
    np.testing.assert_allclose(
        F.bilinear(Tensor(a), Tensor(b), Tensor(w)).numpy(),
        np.einsum("ni,oij,nj->no", a, w, b),
        rtol=1e-5,
        atol=1e-5,
    )


# -- pools, histograms, slopes, checksums -----------------------------------------------------------------------------


def test_fractional_windows_end_with_the_axis_and_hold_what_they_name():
    x = floats(1, 2, 7, 9)
    values, places = F.fractional_max_pool2d(Tensor(x), 2, output_ratio=0.5, return_indices=True)
    assert values.shape == places.shape == (1, 2, 3, 4)
    picked = np.take_along_axis(x.reshape(1, 2, 63), places.numpy().reshape(1, 2, 12), 2)
    np.testing.assert_array_equal(picked.reshape(1, 2, 3, 4), values.numpy())
    whole = F.fractional_max_pool2d(Tensor(x), (7, 9), output_size=1)
    np.testing.assert_array_equal(whole.numpy()[..., 0, 0], x.max((2, 3)))


def test_histograms_are_those_of_numpy():
    random = np.random.default_rng(3)  # no number is within rounding of an edge
    x, w = random.normal(size=(40, 2)).astype(np.float32), random.random(40).astype(np.float32)
    counts, edges = hcq.histogram(Tensor(x[:, 0]), 7)
    expected, bounds = np.histogram(x[:, 0], 7)
    np.testing.assert_array_equal(counts.numpy(), expected)
    np.testing.assert_allclose(edges.numpy(), bounds, rtol=1e-5)
    counts, edges = hcq.histogramdd(
        Tensor(x), [3, 4], range=[-1.0, 1.0, -2.0, 2.0], weight=Tensor(w), density=True
    )
    expected, _ = np.histogramdd(x, [3, 4], range=[(-1, 1), (-2, 2)], weights=w, density=True)
    np.testing.assert_allclose(counts.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_slopes_between_samples_are_those_of_numpy():
    x, at = floats(5, 4), np.array([0.0, 1.0, 1.5, 3.0], np.float32)
    for order in (1, 2):
        rows, columns = hcq.gradient(Tensor(x), spacing=[2.0, Tensor(at)], edge_order=order)
        expected = np.gradient(x, 2.0, at, edge_order=order)
        np.testing.assert_allclose(rows.numpy(), expected[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(columns.numpy(), expected[1], rtol=1e-4, atol=1e-5)


def test_triangles_and_flat_places_have_the_indices_of_numpy():
    for offset in (-1, 0, 2):
        np.testing.assert_array_equal(hcq.tril_indices(3, 4, offset).numpy(), np.tril_indices(3, offset, 4))
        np.testing.assert_array_equal(hcq.triu_indices(3, 4, offset).numpy(), np.triu_indices(3, offset, 4))
    found = hcq.unravel_index(hcq.tensor([0, 7, 23]), (2, 3, 4))
    np.testing.assert_array_equal([part.numpy() for part in found], np.unravel_index([0, 7, 23], (2, 3, 4)))
    x = hcq.tensor([[0, 5, 0], [7, 0, 9]])
    assert x.nonzero_static(2).tolist() == [[0, 1], [1, 0]]
    assert x.nonzero_static(4, fill_value=-7).tolist() == [[0, 1], [1, 0], [1, 2], [-7, -7]]


def test_a_checksum_is_the_exclusive_or_of_the_bits():
    x = R.integers(-(2**40), 2**40, (3, 5))
    assert hcq.hash_tensor(Tensor(x)).item() == int(np.bitwise_xor.reduce(x.ravel()).astype(np.uint64))
    y = floats(4)
    assert hcq.hash_tensor(Tensor(y)).item() == int(
        np.bitwise_xor.reduce(y.astype(np.float64).view(np.uint64))
    )
    assert hcq.hash_tensor(Tensor(x), dim=1).dtype is dtypes.uint64


def test_segments_are_reduced_each_by_itself():
    x = floats(6, 2)
    lengths = hcq.tensor([1, 0, 5])
    found = hcq.segment_reduce(Tensor(x), "max", lengths=lengths, initial=0.0).numpy()
    np.testing.assert_allclose(found, [np.maximum(x[0], 0), [0, 0], np.maximum(x[1:].max(0), 0)])
    with pytest.raises(UsageError, match=r"they add up to"):
        hcq.segment_reduce(Tensor(x), "sum", lengths=hcq.tensor([1, 2]))


def test_normalisations_tell_their_statistics():
    x = floats(4, 6, 3)
    _, mean, _ = hcq.native_layer_norm(Tensor(x), (3,), None, None, 1e-5)
    np.testing.assert_allclose(mean.numpy()[..., 0], x.mean(-1), rtol=1e-4, atol=1e-6)
    kept, spread = Tensor.zeros(6).clone(), Tensor.ones(6).clone()
    hcq.native_batch_norm(Tensor(x), None, None, kept, spread, True, 0.5, 1e-5)
    np.testing.assert_allclose(kept.numpy(), x.mean((0, 2)) / 2, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(spread.numpy(), 0.5 + x.var((0, 2), ddof=1) / 2, rtol=1e-4)
