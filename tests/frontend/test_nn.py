"""Modules: what they hold, their state, their modes, and layers against plain NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from hcq import Tensor, dtypes, nn
from hcq.errors import UsageError


@pytest.fixture(autouse=True)
def start_over():
    Tensor.manual_seed(7)
    yield
    Tensor.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        self.first = nn.Linear(4, 3)
        self.blocks = nn.Sequential(nn.ReLU(), nn.Linear(3, 3, bias=False), nn.BatchNorm1d(3))
        self.extra = {"scale": Tensor([2.0], requires_grad=True)}

    def forward(self, x):
        return self.blocks(self.first(x)) * self.extra["scale"]


# -- what a module holds --------------------------------------------------------------------------------------------


def test_parameters_and_buffers_have_dotted_names_in_the_order_they_were_set():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == [
        "extra.scale",
        "first.weight",
        "first.bias",
        "blocks.1.weight",
        "blocks.2.weight",
        "blocks.2.bias",
    ]
    assert [name for name, _ in net.named_buffers()] == [
        "blocks.2.running_mean",
        "blocks.2.running_var",
        "blocks.2.num_batches_tracked",
    ]
    assert list(net.state_dict()) == [n for n, _ in net.named_parameters()] + [
        n for n, _ in net.named_buffers()
    ]


def test_a_parameter_held_twice_is_listed_once():
    first = nn.Linear(2, 2)
    assert len(list(nn.Sequential(first, first).parameters())) == 2


def test_two_layers_never_share_the_memory_of_their_constants():
    first, second = nn.LayerNorm(3), nn.LayerNorm(3)
    first.bias.assign(first.bias + 1).realize()
    np.testing.assert_array_equal(second.bias.numpy(), np.zeros(3))


def test_training_mode_reaches_every_module_inside():
    net = Net()
    assert all(module.training for module in net.modules())
    net.eval()
    assert not any(module.training for module in net.modules())
    net.train()
    assert all(module.training for module in net.modules())


def test_freezing_reaches_every_parameter():
    net = Net().requires_grad_(False)
    assert not any(parameter.requires_grad for parameter in net.parameters())


def test_state_moves_from_one_model_to_another():
    a, b = Net(), Net()
    x = Tensor(np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32))
    a(x).numpy()  # running statistics move
    b.load_state_dict({name: tensor.clone() for name, tensor in a.state_dict().items()})
    np.testing.assert_array_equal(a.eval()(x).numpy(), b.eval()(x).numpy())


def test_loading_refuses_names_and_shapes_that_differ_and_then_writes_nothing():
    net = nn.Linear(2, 2)
    before = net.weight.numpy().copy()
    with pytest.raises(UsageError, match=r"missing: bias; unknown: shift"):
        net.load_state_dict({"weight": Tensor.zeros(2, 2), "shift": Tensor.zeros(2)})
    with pytest.raises(UsageError, match=r"bias has shape \(2,\), the saved one \(3,\)"):
        net.load_state_dict({"weight": Tensor.zeros(2, 2), "bias": Tensor.zeros(3)})
    np.testing.assert_array_equal(net.weight.numpy(), before)
    net.load_state_dict({"bias": Tensor.ones(2), "other": Tensor.ones(2)}, strict=False)
    np.testing.assert_array_equal(net.bias.numpy(), np.ones(2))


def test_a_module_prints_what_is_in_it():
    assert repr(nn.Linear(2, 3)) == "Linear(in_features=2, out_features=3, bias=True)"
    assert "  (1): Linear(in_features=3, out_features=3, bias=False)" in repr(Net().blocks)


def test_a_module_without_forward_says_so():
    with pytest.raises(UsageError, match=r"\[Module\] has no forward\(\)"):
        nn.Module()(1)


# -- layers against NumPy -------------------------------------------------------------------------------------------


def numbers(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def test_linear_multiplies_by_its_transposed_weight_and_adds_its_bias():
    layer, x = nn.Linear(4, 3), numbers(2, 5, 4)
    expected = x @ layer.weight.numpy().T + layer.bias.numpy()
    np.testing.assert_allclose(layer(Tensor(x)).numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layer", [nn.Linear(100, 50), nn.Conv2d(4, 50, 5)], ids=repr)
def test_weights_start_uniform_within_one_over_the_root_of_the_inputs(layer):
    bound = 0.1
    for parameter in layer.parameters():
        start = parameter.numpy()
        assert np.abs(start).max() <= bound
        assert np.abs(start).max() > 0.85 * bound
    assert abs(layer.weight.numpy().std() - bound / np.sqrt(3)) < 0.003


def test_batch_norm_normalises_the_batch_and_remembers_it():
    layer, x = nn.BatchNorm2d(3), numbers(4, 3, 5, 5) * 2 + 1
    y = layer(Tensor(x)).numpy()
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    expected = (x - mean[:, None, None]) / np.sqrt(var[:, None, None] + 1e-5)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    count = x.size / 3
    np.testing.assert_allclose(layer.running_mean.numpy(), 0.1 * mean, rtol=1e-5)
    np.testing.assert_allclose(layer.running_var.numpy(), 0.9 + 0.1 * var * count / (count - 1), rtol=1e-5)
    assert layer.num_batches_tracked.item() == 1
    layer.eval()
    before = layer.running_mean.numpy().copy()
    y = layer(Tensor(x)).numpy()
    expected = (x - before[:, None, None]) / np.sqrt(layer.running_var.numpy()[:, None, None] + 1e-5)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(layer.running_mean.numpy(), before)


def test_batch_norm_without_momentum_keeps_the_plain_average():
    layer = nn.BatchNorm1d(2, momentum=None)
    batches = [numbers(6, 2) + i for i in range(3)]
    for batch in batches:
        layer(Tensor(batch)).realize()
    np.testing.assert_allclose(
        layer.running_mean.numpy(), np.mean([b.mean(0) for b in batches], 0), rtol=1e-5
    )


def test_layer_norm_normalises_the_last_axes():
    x = numbers(4, 3, 5)
    expected = (x - x.mean((1, 2), keepdims=True)) / np.sqrt(x.var((1, 2), keepdims=True) + 1e-5)
    np.testing.assert_allclose(nn.LayerNorm((3, 5))(Tensor(x)).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_embedding_reads_rows_and_trains_those_it_read():
    layer = nn.Embedding(6, 4, padding_idx=0)
    index = np.array([[1, 0, 5], [1, 1, 0]])
    table = layer.weight.numpy()
    np.testing.assert_array_equal(table[0], np.zeros(4))
    y = layer(Tensor(index))
    np.testing.assert_array_equal(y.numpy(), table[index])
    y.sum().backward()
    expected = np.zeros((6, 4))
    expected[1], expected[5] = 3, 1
    np.testing.assert_array_equal(layer.weight.grad.numpy(), expected)


def test_dropout_drops_in_training_only_and_keeps_the_mean():
    layer, x = nn.Dropout(0.25), Tensor.ones(20000)
    y = layer(x).numpy()
    assert abs((y == 0).mean() - 0.25) < 0.02
    np.testing.assert_allclose(y[y != 0], 1 / 0.75, rtol=1e-6)
    assert layer.eval()(x) is x


def test_the_gradient_of_dropout_uses_the_mask_of_the_forward_pass_even_after_it_was_read():
    x = Tensor.ones(1000, requires_grad=True)
    y = nn.Dropout(0.5)(x)
    seen = y.numpy()
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), seen)


def test_dropout_in_a_recording_draws_a_new_mask_each_time():
    from hcq import jit

    layer = nn.Dropout(0.5)
    step = jit(lambda x: layer(x))
    masks = [step(Tensor.ones(64)).numpy().tobytes() for _ in range(6)]
    assert len(set(masks)) == 6


def test_a_recorded_training_step_updates_statistics_and_draws_masks_as_an_eager_one():
    from hcq import jit

    rng = np.random.default_rng(0)
    batches = [
        (rng.standard_normal((16, 1, 4, 4)).astype(np.float32), rng.integers(0, 3, 16)) for _ in range(6)
    ]
    results = []
    for wrap in (lambda f: f, jit):
        Tensor.manual_seed(11)
        norm = nn.BatchNorm2d(4)
        net = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), norm, nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, 3)
        )
        optimizer = nn.optim.Adam(net.parameters(), lr=0.01)

        @wrap
        def step(x, y, net=net, optimizer=optimizer):
            optimizer.zero_grad()
            loss = net(x).cross_entropy(y)
            loss.backward()
            optimizer.step()
            return loss

        losses = [step(Tensor(x), Tensor(y)).item() for x, y in batches]
        results.append(
            (losses, norm.running_mean.numpy(), norm.running_var.numpy(), norm.num_batches_tracked.item())
        )
    eager, recorded = results
    assert eager[0] == recorded[0]
    assert recorded[3] == len(batches)
    np.testing.assert_array_equal(eager[1], recorded[1])
    np.testing.assert_array_equal(eager[2], recorded[2])


def test_training_holds_on_to_no_graphs_and_no_tensors():
    from hcq.frontend.core.base import live
    from hcq.ir import node

    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
    optimizer = nn.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    counts = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = net(Tensor.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
        counts.append((len(live), node.sweep()))
    assert max(counts[3:]) <= max(counts[:3])


def test_pooling_takes_windows():
    x = numbers(2, 3, 6, 6)
    windows = x.reshape(2, 3, 3, 2, 3, 2)
    np.testing.assert_array_equal(nn.MaxPool2d(2)(Tensor(x)).numpy(), windows.max((3, 5)))
    np.testing.assert_allclose(nn.AvgPool2d(2)(Tensor(x)).numpy(), windows.mean((3, 5)), rtol=1e-5, atol=1e-6)


# -- layers against PyTorch -----------------------------------------------------------------------------------------

LAYERS = {
    "Linear": ((5, 3), {}, (4, 5)),
    "Conv2d": ((4, 6, 3), {"padding": 1, "stride": 2, "groups": 2}, (2, 4, 7, 8)),
    "BatchNorm2d": ((4,), {}, (3, 4, 5, 5)),
    "BatchNorm1d": ((4,), {}, (6, 4)),
    "LayerNorm": (((4, 5),), {}, (3, 4, 5)),
    "GroupNorm": ((2, 4), {}, (3, 4, 5)),
    "RMSNorm": ((5,), {}, (3, 4, 5)),
    "MaxPool2d": ((3,), {"stride": 2, "padding": 1}, (2, 3, 8, 8)),
    "AvgPool2d": ((3,), {"stride": 2, "padding": 1}, (2, 3, 8, 8)),
    "GELU": ((), {}, (4, 5)),
    "ReLU": ((), {}, (4, 5)),
    "SiLU": ((), {}, (4, 5)),
    "Softmax": ((), {"dim": 1}, (4, 5)),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_and_its_gradients_agree_with_pytorch(name):
    torch = pytest.importorskip("torch")
    args, options, shape = LAYERS[name]
    theirs = getattr(torch.nn, name)(*args, **options).double()
    ours = getattr(nn, name)(*args, **options)
    for own, other in zip(ours.parameters(), theirs.parameters()):
        values = np.random.default_rng(own.numel()).standard_normal(own.shape)
        other.data = torch.tensor(values)
    for parameter in list(ours.named_parameters()):
        module_name, tensor = parameter
        tensor.assign(Tensor(theirs.get_parameter(module_name).detach().numpy().astype(np.float32))).realize()
    values, weights = numbers(*shape), None
    x, y = Tensor(values, requires_grad=True), torch.tensor(values, dtype=torch.float64, requires_grad=True)
    out, expected = ours(x), theirs(y)
    np.testing.assert_allclose(out.numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-4)
    weights = np.random.default_rng(3).standard_normal(out.shape).astype(np.float32)
    (out * Tensor(weights)).sum().backward()
    (expected * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-3, atol=1e-4)
    for own, other in zip(ours.parameters(), theirs.parameters()):
        np.testing.assert_allclose(own.grad.numpy(), other.grad.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.torch
def test_losses_as_modules_agree_with_pytorch():
    torch = pytest.importorskip("torch")
    x, target = numbers(6, 4), np.array([0, 3, 1, 2, 2, 0])
    for name, args in {"CrossEntropyLoss": {"label_smoothing": 0.1}, "NLLLoss": {}}.items():
        ours = getattr(nn, name)(**args)(Tensor(x), Tensor(target)).item()
        theirs = getattr(torch.nn, name)(**args)(torch.tensor(x), torch.tensor(target)).item()
        assert ours == pytest.approx(theirs, rel=1e-5)
    other = numbers(6, 4) * 0.5 + 0.1
    for name in ("MSELoss", "L1Loss"):
        ours = getattr(nn, name)()(Tensor(x), Tensor(other)).item()
        theirs = getattr(torch.nn, name)()(torch.tensor(x), torch.tensor(other)).item()
        assert ours == pytest.approx(theirs, rel=1e-5)


# -- initial values and functions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fill", "std"),
    [
        (lambda t: nn.init.kaiming_uniform_(t, nonlinearity="relu"), (2 / 60) ** 0.5),
        (lambda t: nn.init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"), (2 / 120) ** 0.5),
        (lambda t: nn.init.xavier_uniform_(t), (2 / 180) ** 0.5),
        (lambda t: nn.init.xavier_normal_(t, gain=2.0), 2 * (2 / 180) ** 0.5),
        (lambda t: nn.init.normal_(t, std=0.3), 0.3),
        (lambda t: nn.init.ones_(t), 0.0),
    ],
    ids=range(6),
)
def test_initial_values_have_the_deviation_they_promise(fill, std):
    tensor = Tensor.zeros(120, 60).contiguous().realize()
    assert fill(tensor) is tensor
    assert tensor.numpy().std() == pytest.approx(std, rel=0.05)


@pytest.mark.parametrize(
    ("draw", "std"),
    [
        (lambda: Tensor.kaiming_uniform(120, 60), (2 / 60) ** 0.5),
        (lambda: Tensor.kaiming_normal(120, 60, a=1.0), (1 / 60) ** 0.5),
        (lambda: Tensor.xavier_uniform(120, 20, 3), (2 / 420) ** 0.5),
        (lambda: Tensor.xavier_normal(120, 60), (2 / 180) ** 0.5),
    ],
    ids=range(4),
)
def test_initial_values_can_be_drawn_as_tensors(draw, std):
    assert draw().numpy().std() == pytest.approx(std, rel=0.05)


@pytest.mark.torch
@pytest.mark.parametrize("norm", [2.0, float("inf"), 1.0])
def test_clipping_gradients_by_their_norm_agrees_with_pytorch(norm):
    torch = pytest.importorskip("torch")
    ours = [Tensor(numbers(3, 4), requires_grad=True), Tensor(numbers(5), requires_grad=True)]
    theirs = [torch.tensor(parameter.numpy(), requires_grad=True) for parameter in ours]
    for parameter in [*ours, *theirs]:
        (parameter**3).sum().backward()
    before = nn.utils.clip_grad_norm_(ours, 1.5, norm)
    expected = torch.nn.utils.clip_grad_norm_(theirs, 1.5, norm)
    assert before.item() == pytest.approx(expected.item(), rel=1e-5)
    for own, other in zip(ours, theirs):
        np.testing.assert_allclose(own.grad.numpy(), other.grad.numpy(), rtol=1e-5)


def test_clipping_gradients_by_value():
    w = Tensor([1.0, -5.0], requires_grad=True)
    (w * w).sum().backward()
    nn.utils.clip_grad_value_(w, 3.0)
    np.testing.assert_array_equal(w.grad.numpy(), [2, -3])
    with pytest.raises(UsageError, match="none of the parameters has a gradient"):
        nn.utils.clip_grad_norm_([Tensor([1.0])], 1.0)


def test_functions_are_the_methods_of_tensor():
    x = Tensor([[-1.0, 2.0]])
    np.testing.assert_array_equal(nn.functional.relu(x).numpy(), [[0, 2]])
    assert all(hasattr(nn.functional, name) for name in nn.functional.METHODS)
    with pytest.raises(AttributeError, match="no function 'no_such'"):
        nn.functional.no_such  # noqa: B018


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: nn.Linear(0, 2), r"\[Linear\] in_features 0: give an int, 1 or more"),
        (
            lambda: nn.Conv2d(3, 4, 3, groups=2),
            r"\[Conv2d\] 3 in and 4 out channels: both must divide into 2",
        ),
        (lambda: nn.Dropout(1.5), r"\[Dropout\] p 1.5"),
        (
            lambda: nn.BatchNorm2d(3)(Tensor.zeros(2, 4, 5, 5)),
            r"\[BatchNorm2d\] .* axis 1 must have 3 channels",
        ),
        (lambda: nn.BatchNorm2d(3)(Tensor.zeros(2, 3)), r"\[BatchNorm2d\] .* it needs 4 axes"),
        (lambda: nn.BatchNorm1d(3)(Tensor.zeros(1, 3)), r"\[BatchNorm1d\] .* one value per channel"),
        (lambda: nn.Embedding(4, 2)(Tensor([1.0])), r"float32"),
        (lambda: nn.init.kaiming_uniform_(Tensor.zeros(3)), r"\[init\] shape \(3,\): fan in"),
        (lambda: nn.init.calculate_gain("sine"), r"'sine' is not known"),
    ],
    ids=range(9),
)
def test_a_mistake_is_answered_with_a_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()


def test_a_small_network_learns():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 2)).astype(np.float32)
    target = (x[:, :1] * x[:, 1:] > 0).astype(np.float32)
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = nn.optim.Adam(net.parameters(), lr=0.05)
    data, wanted = Tensor(x), Tensor(target)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = net(data).binary_cross_entropy_with_logits(wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.35 * losses[0]


def test_parameters_keep_their_dtype():
    layer = nn.Linear(3, 2, dtype=dtypes.float64)
    assert layer.weight.dtype is dtypes.float64
    assert layer(Tensor(np.ones((1, 3)))).dtype is dtypes.float64
