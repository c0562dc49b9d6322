"""Convolutions backward: the gradients of strided windows multiply no more than forward does, and are PyTorch's."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcq import Tensor
from hcq.compiler.kernel import kernel_flops
from hcq.frontend.core.structure import structure_of
from hcq.frontend.grad.gradient import grad
from hcq.frontend.rewrites.gaps import without_gaps
from hcq.frontend.rewrites.planes import in_planes
from hcq.frontend.schedule.schedule import schedule
from hcq.ir.node import Node, toposort
from hcq.ir.op import Op
from tests.interpreter.evaluate import evaluate

torch = pytest.importorskip("torch")


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape, dtype=np.float32)


def gradients(x, w, seed, **how):
    a, b = Tensor(x), Tensor(w)
    return grad([a.conv2d(b, **how)], [a, b], [Tensor(seed)])


def pytorchs(x, w, seed, **how):
    a, b = (torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in (x, w))
    return torch.autograd.grad(torch.nn.functional.conv2d(a, b, **how), [a, b], torch.tensor(seed).double())


def seed_for(x, w, **how):
    return numbers(*torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(w), **how).shape)


def assert_pytorchs(x, w, **how):
    seed = seed_for(x, w, **how)
    for ours, theirs in zip(gradients(x, w, seed, **how), pytorchs(x, w, seed, **how), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-4)


def input_gradient(size: int, window: int, stride: int, padding: int) -> Node:
    x, w = Tensor(numbers(2, 4, size, size)).realize(), Tensor(numbers(6, 4, window, window)).realize()
    y = x.conv2d(w, stride=stride, padding=padding)
    return grad([y], [x], [Tensor(numbers(*y.shape)).realize()])[0].node


def flops(root: Node) -> int:
    structure = structure_of([root])
    return sum(kernel_flops(kernel.sink) for kernel in schedule([root], structure.storages, 2).kernels)


def test_the_gradient_of_a_strided_convolution_multiplies_each_gradient_once_by_each_weight():
    # an addition for each product; batch, channels, channels, places, window; with gaps it would be four times that
    forward = 2 * 2 * 4 * 6 * 16 * 16 * 9
    assert flops(input_gradient(32, 3, stride=2, padding=1)) <= 2 * forward
    wide = 2 * 2 * 4 * 6 * 16 * 16 * 49
    assert flops(input_gradient(32, 7, stride=2, padding=3)) <= 2 * wide


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_a_convolution_backward_reads_no_gaps(stride):
    root = input_gradient(13, 5, stride, padding=1)
    assert any(node.op is Op.UNWINDOW for node in toposort((root,)))
    assert not any(node.op is Op.UNWINDOW for node in toposort(without_gaps([root])))


def test_pooling_backward_stays_one_sum_over_windows():
    x = Tensor(numbers(2, 3, 9, 9)).realize()
    y = x.max_pool2d(3, 2, 1)
    root = grad([y], [x], [Tensor(numbers(*y.shape)).realize()])[0].node
    assert without_gaps([root]) == [root]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("size", "window", "how"),
    [
        ((9, 9), (3, 3), {"stride": 2, "padding": 1}),
        ((10, 11), (3, 3), {"stride": 2, "padding": 1}),
        ((11, 8), (7, 7), {"stride": 2, "padding": 3}),
        ((8, 8), (3, 3), {"padding": 1}),
        ((12, 13), (3, 2), {"stride": 3, "padding": 1, "groups": 2}),
        ((9, 12), (3, 3), {"stride": 2, "padding": 2, "dilation": 3}),
        ((9, 12), (3, 3), {"stride": 2, "padding": 2, "dilation": 2}),  # no remainder reads every place
        ((7, 7), (7, 7), {}),
        ((3, 3), (3, 3), {"stride": 2}),
        ((9, 9), (5, 5), {"stride": 4, "padding": 2, "groups": 4}),
        ((16, 17), (5, 4), {"stride": (3, 2), "padding": (1, 2)}),
        ((9, 9), (1, 3), {"stride": 2}),
        ((20, 20), (3, 3), {"stride": 2, "dilation": 3}),
    ],
)
def test_gradients_of_convolutions_are_pytorchs(size, window, how):
    assert_pytorchs(numbers(2, 4, *size), numbers(8, 4 // how.get("groups", 1), *window), **how)


def interpreted(root: Node) -> np.ndarray:
    arrays = {node: Tensor(0.0)._like(node).numpy() for node in toposort((root,)) if node.op is Op.BUFFER}
    return evaluate([root], arrays.__getitem__)[0]


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    window=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    padding=st.integers(0, 2),
    dilation=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    groups=st.sampled_from([1, 2]),
)
def test_without_gaps_the_gradient_is_what_it_was(sizes, window, stride, padding, dilation, groups):
    reach = [d * (k - 1) + 1 - 2 * padding for d, k in zip(dilation, window)]
    x, w = Tensor(numbers(2, 4, *map(max, sizes, reach))), Tensor(numbers(2, 4 // groups, *window))
    y = x.realize().conv2d(w.realize(), None, stride, padding, dilation, groups)
    root = grad([y], [x], [Tensor(numbers(*y.shape)).realize()])[0].node
    np.testing.assert_allclose(interpreted(without_gaps([root])[0]), interpreted(root), rtol=1e-4, atol=1e-4)


def test_a_gradient_of_a_gradient_is_pytorchs():
    x, w = numbers(1, 2, 7, 7), numbers(3, 2, 3, 3)
    a, b = Tensor(x), Tensor(w)
    (first,) = grad([a.conv2d(b, stride=2, padding=1).square().sum()], [a], create_graph=True)
    (second,) = grad([first.square().sum()], [b])
    c, d = (torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in (x, w))
    y = torch.nn.functional.conv2d(c, d, stride=2, padding=1).square().sum()
    (inner,) = torch.autograd.grad(y, c, create_graph=True)
    (outer,) = torch.autograd.grad(inner.square().sum(), d)
    np.testing.assert_allclose(second.numpy(), outer.numpy(), rtol=1e-3, atol=1e-2)


def weight_gradient(size: int, **how) -> tuple[Node, list[np.ndarray]]:
    arrays = [numbers(1, 1, size, size), numbers(2, 1, 3, 3)]
    arrays.append(seed_for(*arrays, **how))
    x, w, seed = (Tensor(array).realize() for array in arrays)
    return grad([x.conv2d(w, **how)], [w], [seed])[0].node, arrays


def test_a_long_sum_over_strided_windows_reads_planes_without_a_stride():
    root, arrays = weight_gradient(192, stride=2, padding=1)
    steps = {node.arg[2] for node in toposort(in_planes([root])) if node.op is Op.WINDOW and node.arg[0] == 3}
    assert steps == {1}
    assert_pytorchs(arrays[0], arrays[1], stride=2, padding=1)


@pytest.mark.parametrize(
    "how", [{"stride": 3, "dilation": 2}, {"stride": (1, 2), "padding": 2}, {"stride": 4}]
)
def test_planes_of_any_stride_are_pytorchs(how):
    root, arrays = weight_gradient(400, **how)
    assert in_planes([root]) != [root]
    assert_pytorchs(arrays[0], arrays[1], **how)


def test_a_short_sum_over_strided_windows_is_left_to_the_compiler():
    root, _ = weight_gradient(16, stride=2)
    assert in_planes([root]) == [root]


def test_attention_keeps_one_matrix_of_weights_for_the_way_back():
    q, k, v = (Tensor(numbers(1, 2, 96, 8)).realize() for _ in range(3))
    weights = (q @ k.transpose(-1, -2)).softmax(-1)
    y = weights @ v
    found = grad([y], [q, k, v], [Tensor(numbers(*y.shape)).realize()])
    roots = [y.node, *(part.node for part in found)]
    made = schedule(roots, structure_of(roots).storages, 2)
    squares = [value for value in made.values if prod(value.shape) == 2 * 96 * 96]
    assert len(squares) == 4  # scores, weights, and the gradients of both
