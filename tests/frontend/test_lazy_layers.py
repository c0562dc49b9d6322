"""Lazy layers: what they become, when, and what is refused before; beside PyTorch's."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import hcq
from hcq import Tensor, UsageError, nn

KINDS = [
    ("LazyLinear", (3,), (2, 5)),
    ("LazyConv1d", (4, 3), (2, 6, 8)),
    ("LazyConv2d", (4, 3), (2, 6, 8, 7)),
    ("LazyConv3d", (4, 2), (1, 3, 4, 4, 4)),
    ("LazyConvTranspose1d", (4, 3), (2, 6, 5)),
    ("LazyConvTranspose2d", (4, 3), (2, 6, 5, 4)),
    ("LazyConvTranspose3d", (4, 2), (1, 3, 2, 2, 2)),
    ("LazyBatchNorm1d", (), (4, 6)),
    ("LazyBatchNorm2d", (), (2, 3, 4, 4)),
    ("LazyBatchNorm3d", (), (2, 3, 2, 2, 2)),
    ("LazyInstanceNorm1d", (), (2, 3, 4)),
    ("LazyInstanceNorm2d", (), (2, 3, 4, 4)),
    ("LazyInstanceNorm3d", (), (2, 3, 2, 2, 2)),
]


@pytest.mark.torch
@pytest.mark.parametrize(("name", "args", "shape"), KINDS, ids=[kind[0] for kind in KINDS])
def test_a_lazy_layer_prints_as_pytorchs_and_becomes_the_layer_of_the_shorter_name(name, args, shape):
    torch = pytest.importorskip("torch")
    ours, theirs = getattr(nn, name)(*args), getattr(torch.nn, name)(*args)
    assert repr(ours) == repr(theirs)
    assert ours.has_uninitialized_params()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    theirs(torch.tensor(x))
    ours(Tensor(x))
    assert type(ours).__name__ == type(theirs).__name__ == name.replace("Lazy", "")
    assert repr(ours) == repr(theirs)
    ours.load_state_dict(theirs.state_dict())
    np.testing.assert_allclose(
        ours(Tensor(x)).numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", ["Conv2d", "ConvTranspose2d"])
def test_a_lazy_layer_takes_the_shapes_of_a_state(name, groups):
    made = getattr(nn, name)(6, 4, 3, groups=groups)
    lazy = getattr(nn, f"Lazy{name}")(4, 3, groups=groups)
    net = nn.Sequential(lazy, nn.LazyBatchNorm2d())
    net.load_state_dict(nn.Sequential(made, nn.BatchNorm2d(4)).state_dict())
    assert type(lazy) is type(made)
    assert (lazy.in_channels, net[1].num_features) == (6, 4)
    x = Tensor.randn(1, 6, 5, 5)
    assert hcq.allclose(lazy(x), made(x), atol=1e-5)


def test_parameters_are_the_same_objects_before_and_after_and_keep_their_flags_and_formats():
    layer = nn.LazyLinear(2).to(hcq.float64)
    layer.bias.requires_grad_(False)
    before = list(layer.parameters())
    layer(Tensor.ones(3, 4, dtype=hcq.float64)).sum().backward()
    assert [a is b for a, b in zip(before, layer.parameters())] == [True, True]
    assert [parameter.dtype for parameter in before] == [hcq.float64] * 2
    assert (layer.weight.requires_grad, layer.bias.requires_grad) == (True, False)
    assert layer.weight.grad.tolist() == [[3.0] * 4] * 2
    assert layer.weight.abs().max().item() > 0  # drawn, and not left at zero


def test_a_lazy_network_trains_after_its_first_batch():
    net = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1))
    with pytest.raises(UsageError, match="Call the model on one batch first"):
        hcq.optim.SGD(net.parameters(), lr=0.1)
    x = Tensor.randn(8, 3)
    net(x)
    optimizer = hcq.optim.SGD(net.parameters(), lr=0.01)
    (net(x) ** 2).sum().backward()
    optimizer.step()


def test_copies_of_what_has_no_shape_have_none_and_go_their_own_way():
    lazy = nn.LazyConv1d(2, 3)
    twin = copy.deepcopy(lazy)
    twin(Tensor.ones(1, 5, 6))
    assert (twin.in_channels, lazy.in_channels) == (5, 0)
    assert lazy.has_uninitialized_params()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: nn.LazyLinear(2).weight.shape, r"\[UninitializedParameter\] its shape is known once"),
        (lambda: nn.LazyLinear(2).weight * 2.0, r"\[UninitializedParameter\] its shape is known once"),
        (lambda: nn.LazyBatchNorm1d().running_mean.sum(), r"\[UninitializedBuffer\]"),
        (lambda: nn.LazyLinear(0), r"\[LazyLinear\] out_features 0"),
        (lambda: nn.LazyConv2d(4, 3)(Tensor.ones(4)), r"\[LazyConv2d\] \(4,\): it has no features to count"),
        (lambda: nn.LazyConv2d(4, 3, groups=2)(Tensor.ones(1, 3, 5, 5)), r"3 channels do not divide into 2 groups"),
    ],
    ids=range(6),
)  # fmt: skip
def test_what_has_no_shape_yet_says_what_to_do(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
