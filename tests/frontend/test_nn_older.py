"""Names of nn that older programs use, and what has no row in the table of layers."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
from hcq import Tensor, UsageError, nn


def test_a_buffer_is_kept_where_it_is_set_and_not_trained():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.mask = nn.Buffer(Tensor([1.0, 0.0]))
            self.seen = nn.Buffer(hcq.tensor([3]), persistent=False)

    net = Net()
    assert list(net.state_dict()) == ["mask"]
    assert [name for name, _ in net.named_buffers()] == ["mask", "seen"]
    assert list(net.parameters()) == []
    assert net.half().mask.dtype is hcq.float16
    net.mask = Tensor([2.0])  # another tensor in its place is a buffer, too
    assert [name for name, _ in net.named_buffers()] == ["mask", "seen"]


def test_bases_say_what_recurrent_layers_are():
    assert isinstance(nn.GRU(2, 3), nn.RNNBase) and not isinstance(nn.GRUCell(2, 3), nn.RNNBase)
    assert isinstance(nn.LSTMCell(2, 3), nn.RNNCellBase)
    assert [nn.RNN(2, 3, nonlinearity="relu").mode, nn.LSTM(2, 3).mode] == ["RNN_RELU", "LSTM"]
    layer, base = nn.LSTM(2, 3, proj_size=2), nn.RNNBase("LSTM", 2, 3, proj_size=2)
    base.load_state_dict(layer.state_dict())
    x = Tensor.randn(4, 1, 2)
    assert hcq.equal(layer(x)[0], base(x)[0])
    with pytest.raises(UsageError, match=r"\[RNNBase\] mode 'lstm': use one of"):
        nn.RNNBase("lstm", 2, 3)
    with pytest.raises(UsageError, match=r"\[RNNCellBase\] has no forward"):
        nn.RNNCellBase(2, 3, True, 4)(Tensor.zeros(2))


def test_batch_norms_become_synchronised_ones_wherever_they_are_held():
    net = nn.Sequential(
        nn.Conv2d(1, 2, 1), nn.ModuleList([nn.BatchNorm2d(2), nn.ReLU()]), nn.InstanceNorm2d(2)
    )
    state = {name: tensor.tolist() for name, tensor in net.state_dict().items()}
    made = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert made is net and type(net[1][0]) is nn.SyncBatchNorm and type(net[2]) is nn.InstanceNorm2d
    assert {name: tensor.tolist() for name, tensor in net.state_dict().items()} == state
    x = Tensor.randn(3, 2, 4, 4)
    other = nn.BatchNorm2d(2)
    assert hcq.equal(net[1][0](x), other(x)) and hcq.equal(net[1][0].running_var, other.running_var)


@pytest.mark.torch
def test_an_adaptive_softmax_has_pytorchs_probabilities_of_all_classes():
    torch = pytest.importorskip("torch")
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(6, 10, [2, 5], div_value=1.5)
    ours = nn.AdaptiveLogSoftmaxWithLoss(6, 10, [2, 5], div_value=1.5)
    ours.load_state_dict(theirs.state_dict())
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    expected = theirs.log_prob(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(ours.log_prob(Tensor(x)).numpy(), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(ours.predict(Tensor(x)).numpy(), theirs.predict(torch.tensor(x)).numpy())
    one = ours(Tensor(x[0]), hcq.tensor(7))
    assert one.output.shape == () and one.loss.item() == pytest.approx(-expected[0, 7], rel=1e-5)
    assert np.isnan(ours(Tensor(x[:1]), hcq.tensor([10])).loss.item())
    with pytest.raises(UsageError, match=r"cutoffs \(5, 2\): give ascending numbers"):
        nn.AdaptiveLogSoftmaxWithLoss(6, 10, (5, 2))


@pytest.mark.torch
def test_a_convolution_with_the_time_first_is_pytorchs():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((7, 2, 3), (3, 3, 4), (4,)))
    expected = torch.nn.functional.conv_tbc(torch.tensor(x), torch.tensor(w), torch.tensor(b), 1).numpy()
    found = nn.functional.conv_tbc(Tensor(x), Tensor(w), Tensor(b), 1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)
    assert hcq.equal(hcq.conv_tbc(Tensor(x), Tensor(w), Tensor(b), 1), found)


@pytest.mark.torch
def test_fractional_pools_with_indices_say_where_pytorchs_do():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    x, at = rng.standard_normal((2, 3, 7, 6)).astype(np.float32), rng.random((2, 3, 2), np.float32)
    kept = {"output_size": (3, 2)}
    theirs = torch.nn.functional.fractional_max_pool2d_with_indices(
        torch.tensor(x), 2, **kept, _random_samples=torch.tensor(at)
    )
    ours = nn.functional.fractional_max_pool2d_with_indices(Tensor(x), 2, **kept, _random_samples=Tensor(at))
    for a, b in zip(ours, theirs):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_a_randomised_relu_writes_its_tensor():
    x = Tensor([-8.0, 1.0]).realize()
    assert nn.functional.rrelu_(x, training=True) is x
    assert -8.0 / 3.0 - 1e-5 <= x[0].item() <= -1.0 and x[1].item() == 1.0


def test_a_matrix_that_is_not_what_it_should_be_raises_pytorchs_error():
    with pytest.raises(hcq.torch.linalg.LinAlgError, match=r"\[cholesky_ex\].*not positive"):
        hcq.torch.linalg.cholesky_ex(Tensor([[-1.0]]), check_errors=True)
    assert issubclass(hcq.torch.linalg.LinAlgError, RuntimeError)


def test_batch_norms_without_statistics_go_through_vmap():
    net = hcq.func.replace_all_batch_norm_modules_(nn.Sequential(nn.Conv1d(1, 2, 1), nn.BatchNorm1d(2)))
    x = Tensor.randn(3, 4, 1, 5)
    found = hcq.vmap(net)(x)
    for one, row in zip(found, x):
        np.testing.assert_allclose(one.numpy(), net(row).numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(UsageError, match=r"give a module"):
        hcq.func.replace_all_batch_norm_modules_([net])


@pytest.mark.torch
@pytest.mark.parametrize(
    ("left", "right", "ends"),
    [((6, 8), (3, 8, 4), [2, 2, 6]), ((2, 6, 8), (2, 8, 4), None), ((8, 8), (8, 4), [1, 5]),
     ((2, 6, 8), (8, 8), [3, 8])],
    ids=str,
)  # fmt: skip
def test_products_of_groups_are_pytorchs(left, right, ends):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in (left, right))
    offs = {} if ends is None else {"offs": ends}
    theirs = {name: torch.tensor(value, dtype=torch.int32) for name, value in offs.items()}
    expected = torch.nn.functional.grouped_mm(torch.tensor(a), torch.tensor(b), **theirs).numpy()
    x, y = Tensor(a, requires_grad=True), Tensor(b)
    found = nn.functional.grouped_mm(x, y, **{name: hcq.tensor(value) for name, value in offs.items()})
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)
    found.sum().backward()
    assert x.grad.shape == left
    with pytest.raises(UsageError, match=r"\[grouped_mm\] .*: give offs, unless"):
        nn.functional.grouped_mm(x, y, **({"offs": hcq.tensor([1, 2])} if ends is None else {}))


@pytest.mark.torch
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_norm_of_torchs_older_kind_is_pytorchs_and_its_gradient_that_of_what_it_computes(size):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((2, 5, 2, 1)).astype(np.float32)
    ours, theirs = nn.CrossMapLRN2d(size, alpha=0.5), torch.nn.CrossMapLRN2d(size, alpha=0.5)
    assert repr(ours) == repr(theirs)
    np.testing.assert_allclose(ours(Tensor(x)).numpy(), theirs(torch.tensor(x)).numpy(), rtol=1e-5)
    leaf = Tensor(x, requires_grad=True)
    (ours(leaf) * Tensor(x)).sum().backward()
    step = np.zeros_like(x)
    step[1, 2, 0, 0] = 1e-2
    above, below = ((ours(Tensor(x + way * step)) * Tensor(x)).sum().item() for way in (1.0, -1.0))
    assert leaf.grad[1, 2, 0, 0].item() == pytest.approx((above - below) / 2e-2, rel=1e-2, abs=1e-3)
