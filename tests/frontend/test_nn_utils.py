"""Tools around modules beside PyTorch's: normed weights, fused norms, pruning, clipping by a norm that is known."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import hcq
from hcq import Tensor, UsageError, jit, nn
from hcq.nn.utils import prune

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*deprecated")]
X = np.random.default_rng(0).standard_normal((4, 3, 6)).astype(np.float32)


def close(ours, theirs, tolerance=1e-5):
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance)


def names(module):
    return (
        list(module.state_dict()),
        [name for name, _ in module.named_parameters()],
        [name for name, _ in module.named_buffers()],
    )


@pytest.mark.parametrize("wrap", ["weight_norm", "spectral_norm"])
@pytest.mark.parametrize("kind", ["Conv1d", "ConvTranspose1d"])
def test_a_normed_weight_computes_and_learns_as_pytorchs(wrap, kind):
    theirs = getattr(torch.nn.utils, wrap)(getattr(torch.nn, kind)(3, 4, 2))
    ours = getattr(nn.utils, wrap)(getattr(nn, kind)(3, 4, 2))
    assert names(ours) == names(theirs)
    ours.load_state_dict(theirs.state_dict())
    for _ in range(2):  # in training, spectral_norm's vectors move on
        found, wanted = ours(Tensor(X)), theirs(torch.tensor(X))
        close(found, wanted)
    (found**2).sum().backward()
    (wanted**2).sum().backward()
    for (_, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters()):
        close(a.grad, b.grad, 1e-4)
    for a, b in zip(ours.eval().buffers(), theirs.eval().buffers()):
        close(a, b)
    close(ours(Tensor(X)), theirs(torch.tensor(X)))
    getattr(nn.utils, f"remove_{wrap}")(ours)
    getattr(torch.nn.utils, f"remove_{wrap}")(theirs)
    assert names(ours) == names(theirs)
    close(ours.weight, theirs.weight)
    close(ours(Tensor(X)), theirs(torch.tensor(X)))


def test_a_normed_weight_has_one_length_or_one_for_each_slice_and_copies_go_their_own_way():
    layer = nn.utils.weight_norm(nn.Linear(3, 2), dim=None)
    assert layer.weight_g.shape == ()
    twin = copy.deepcopy(layer)
    twin.weight_g.assign(twin.weight_g * 2.0).realize()
    x = Tensor(X[0].T.copy())
    assert hcq.allclose(twin(x) - twin.bias, 2.0 * (layer(x) - layer.bias), atol=1e-5)
    with pytest.raises(UsageError, match="'weight' of Linear is computed already"):
        nn.utils.spectral_norm(layer)
    with pytest.raises(UsageError, match="'bias' of Linear is not computed by it"):
        nn.utils.remove_weight_norm(layer, "bias")
    with pytest.raises(UsageError, match="Linear has no parameter 'kernel'"):
        nn.utils.weight_norm(layer, "kernel")


def test_a_recorded_step_trains_a_normed_weight():
    layer = nn.utils.weight_norm(nn.Linear(3, 1))
    other = copy.deepcopy(layer)
    inputs = [Tensor(row.T.copy()) for row in X]

    def trained(model, wrap):
        optimizer = hcq.optim.SGD(model.parameters(), lr=0.05)

        @wrap
        def step(x):
            optimizer.zero_grad()
            loss = (model(x) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss.realize()

        return [step(x).item() for x in inputs]

    assert trained(layer, jit) == pytest.approx(trained(other, lambda f: f), rel=1e-6)


@pytest.mark.parametrize("transpose", [False, True])
def test_a_layer_and_its_norm_become_pytorchs_one_layer(transpose):
    kind = "ConvTranspose1d" if transpose else "Conv1d"
    theirs = [getattr(torch.nn, kind)(3, 4, 2, bias=transpose), torch.nn.BatchNorm1d(4)]
    ours = [getattr(nn, kind)(3, 4, 2, bias=transpose), nn.BatchNorm1d(4)]
    theirs[1](theirs[0](torch.tensor(X)))
    for a, b in zip(ours, theirs):
        a.load_state_dict(b.state_dict())
        a.eval(), b.eval()
    fused = nn.utils.fuse_conv_bn_eval(*ours, transpose=transpose)
    expected = torch.nn.utils.fuse_conv_bn_eval(*theirs, transpose=transpose)
    for name in ("weight", "bias"):
        close(getattr(fused, name), getattr(expected, name))
    close(fused(Tensor(X)), theirs[1](theirs[0](torch.tensor(X))))
    with pytest.raises(UsageError, match=r"Call eval\(\) on both first"):
        nn.utils.fuse_conv_bn_eval(ours[0].train(), ours[1])
    with pytest.raises(UsageError, match="give a layer and a BatchNorm"):
        nn.utils.fuse_linear_bn_eval(*ours)


WAYS = [
    ("l1_unstructured", {"amount": 0.3}), ("l1_unstructured", {"amount": 5}),
    ("ln_structured", {"amount": 0.4, "n": 2, "dim": 1}), ("ln_structured", {"amount": 1, "n": 1, "dim": 0}),
    ("identity", {}),
]  # fmt: skip


@pytest.mark.parametrize(("way", "options"), WAYS, ids=str)
def test_what_is_pruned_once_and_twice_is_pytorchs(way, options):
    theirs, ours = torch.nn.Conv1d(5, 4, 3), nn.Conv1d(5, 4, 3)
    ours.load_state_dict(theirs.state_dict())
    from torch.nn.utils import prune as other

    for _ in range(2):
        getattr(other, way)(theirs, "weight", **options)
        assert getattr(prune, way)(ours, "weight", **options) is ours
        np.testing.assert_array_equal(ours.weight_mask.numpy(), theirs.weight_mask.numpy())
        np.testing.assert_array_equal(ours.weight.numpy(), theirs.weight.detach().numpy())
    assert names(ours) == names(theirs)
    assert prune.is_pruned(nn.Sequential(ours))
    prune.remove(ours, "weight")
    other.remove(theirs, "weight")
    assert names(ours) == names(theirs) and not prune.is_pruned(ours)
    np.testing.assert_array_equal(ours.weight.numpy(), theirs.weight.detach().numpy())


def test_several_parameters_are_pruned_as_pytorchs_are():
    from torch.nn.utils import prune as other

    theirs = [torch.nn.Linear(5, 4), torch.nn.Linear(4, 3)]
    ours = [nn.Linear(5, 4), nn.Linear(4, 3)]
    for a, b in zip(ours, theirs):
        a.load_state_dict(b.state_dict())
    for amount in (0.4, 3):
        other.global_unstructured([(part, "weight") for part in theirs], other.L1Unstructured, amount=amount)
        prune.global_unstructured([(part, "weight") for part in ours], prune.L1Unstructured, amount=amount)
        for a, b in zip(ours, theirs):
            np.testing.assert_array_equal(a.weight_mask.numpy(), b.weight_mask.numpy())


def test_a_pruned_layer_trains_what_is_left():
    layer = prune.random_unstructured(nn.Linear(6, 4), "weight", 0.5)
    optimizer = hcq.optim.SGD(layer.parameters(), lr=0.1)
    (layer(Tensor(X[0])) ** 2).sum().backward()
    before = layer.weight_orig.numpy().copy()
    optimizer.step()
    moved = layer.weight_orig.numpy() != before
    np.testing.assert_array_equal(moved, layer.weight_mask.numpy() == 1)
    assert moved.sum() == 12
    kept = prune.random_structured(nn.Linear(6, 4), "weight", 2, dim=0).weight_mask.numpy()
    assert sorted(kept.sum(1)) == [0, 0, 6, 6]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m: prune.l1_unstructured(m, "weight", 1.5), r"amount=1.5: give a share from 0.0 to 1.0"),
        (lambda m: prune.l1_unstructured(m, "weight", 7), r"amount=7 of 6 that are left"),
        (lambda m: prune.remove(m, "weight"), r"\[remove\] 'weight' of Linear is not computed by it"),
        (lambda m: prune.custom_from_mask(m, "weight", Tensor([1.0])), r"a mask of shape \(1,\)"),
        (lambda m: prune.global_unstructured([(m, "weight")], prune.LnStructured, amount=1, n=2), "prunes elements"),
    ],
    ids=range(5),
)  # fmt: skip
def test_what_cannot_be_pruned_is_refused(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call(nn.Linear(3, 2))


def test_gradients_are_clipped_by_a_norm_that_is_known():
    ours, theirs = Tensor([1.0, 2.0], requires_grad=True), torch.tensor([1.0, 2.0], requires_grad=True)
    for x in (ours, theirs):
        (x**3).sum().backward()
    nn.utils.clip_grads_with_norm_(ours, 1.5, nn.utils.get_total_norm([ours.grad]))
    torch.nn.utils.clip_grads_with_norm_(theirs, 1.5, torch.nn.utils.get_total_norm([theirs.grad]))
    close(ours.grad, theirs.grad)
    with pytest.warns(FutureWarning, match="now called clip_grad_norm_"):
        nn.utils.clip_grad_norm(ours, 1.0)
    with pytest.raises(UsageError, match="the norm is inf"):
        nn.utils.get_total_norm([Tensor([float("inf")])], error_if_nonfinite=True)


def test_a_state_is_used_without_being_loaded():
    layer = nn.Linear(2, 1)
    found = nn.utils.stateless.functional_call(
        layer, {"weight": Tensor([[1.0, 1.0]]), "bias": Tensor([0.5])}, (Tensor([[1.0, 2.0]]),)
    )
    assert found.tolist() == [[3.5]]
    assert nn.utils.skip_init(nn.Linear, 2, 3, device="CPU").weight.shape == (3, 2)
