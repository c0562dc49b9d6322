"""Mixed precision: what is computed in which dtype, beside PyTorch; scaled gradients; steps that are not taken."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
from hcq import Tensor, dtypes, jit, nn
from hcq.errors import UsageError
from hcq.frontend.core.base import thread_modes
from hcq.torch.amp import GradScaler

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
HERE = Tensor([0.0]).device

CALLS = {
    "linear": lambda x, f: f.linear(x, x, x[:4, 0]),
    "matmul": lambda x, f: x @ x.T,
    "conv": lambda x, f: f.conv1d(x[None], x[:, None, :2], groups=4),
    "attention": lambda x, f: f.scaled_dot_product_attention(x[None], x[None], x[None]),
    "softmax": lambda x, f: (x @ x.T).softmax(-1),
    "norm": lambda x, f: f.layer_norm(x @ x.T, (4,)),
    "mse": lambda x, f: f.mse_loss(x @ x.T, x @ x.T * 2),
    "relu": lambda x, f: (x @ x.T).relu(),
    "gelu": lambda x, f: f.gelu(x @ x.T),
    "bce": lambda x, f: f.binary_cross_entropy_with_logits(x @ x.T, (x @ x.T).sigmoid()),
    "add": lambda x, f: x + x,
}


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.own_devices
def test_products_are_narrow_and_what_needs_it_is_wide_as_in_pytorch():
    torch = pytest.importorskip("torch")
    for name, call in CALLS.items():
        with hcq.autocast("CPU", dtypes.bfloat16):
            ours = call(Tensor(X, "CPU"), nn.functional)
        with torch.autocast("cpu", torch.bfloat16):
            theirs = call(torch.tensor(X), torch.nn.functional)
        if name not in (
            "norm",
            "softmax",
        ):  # wide by PyTorch's list for GPUs, which ours is; not by its CPU's
            assert ours.dtype.name == str(theirs.dtype).removeprefix("torch."), name
        if name in ("matmul", "mse"):
            np.testing.assert_allclose(ours.float().numpy(), theirs.float().numpy(), rtol=0.05, atol=0.05)


def test_autocast_ends_with_its_block_and_can_be_switched_off_inside():
    x = Tensor(X)
    with hcq.autocast(HERE, dtypes.float16):
        with hcq.autocast(HERE, enabled=False):
            assert (x @ x.T).dtype is dtypes.float32
        assert (x @ x.T).dtype is dtypes.float16
        assert (x.double() @ x.double().T).dtype is dtypes.float64
    assert (x @ x.T).dtype is dtypes.float32 and not thread_modes


def test_weights_keep_their_dtype_and_get_gradients_of_it():
    layer = nn.Linear(6, 2)
    with hcq.autocast(HERE, dtypes.bfloat16):
        loss = layer(Tensor(X)).float().square().mean()
    loss.backward()
    plain = nn.Linear(6, 2)
    plain.load_state_dict(layer.state_dict())
    plain(Tensor(X)).square().mean().backward()
    assert layer.weight.grad.dtype is dtypes.float32
    np.testing.assert_allclose(layer.weight.grad.numpy(), plain.weight.grad.numpy(), rtol=0.05, atol=0.02)


def test_a_recording_is_of_one_precision():
    product = jit(lambda x: (x @ x.T).realize())
    x = Tensor(X).realize()
    for _ in range(3):
        assert product(x).dtype is dtypes.float32
        with hcq.autocast(HERE, dtypes.float16):
            assert product(x).dtype is dtypes.float16


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_a_step_with_infinite_gradients_changes_nothing_but_the_scale(wrap):
    w = nn.Parameter(Tensor([1.0, 2.0]))
    optimizer = nn.optim.Adam([w], lr=0.1)
    scaler = GradScaler(init_scale=8.0, growth_interval=2)

    @wrap
    def step(x):
        optimizer.zero_grad()
        scaler.scale((w * x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    for _ in range(4):
        step(Tensor([1.0, 1.0]))
    before, count = w.numpy().copy(), optimizer.state[w]["step"].item()
    assert scaler.get_scale() == 32.0 and count == 4.0
    step(Tensor([float("inf"), 1.0]))
    np.testing.assert_array_equal(w.numpy(), before)
    assert scaler.get_scale() == 16.0 and optimizer.state[w]["step"].item() == count
    step(Tensor([1.0, 1.0]))
    assert (w.numpy() < before).all()


def test_gradients_are_unscaled_once_and_states_are_pytorchs():
    w = nn.Parameter(Tensor([2.0]))
    optimizer, scaler = nn.optim.SGD([w], lr=1.0), GradScaler(init_scale=4.0)
    scaler.scale((w * 3.0).sum()).backward()
    assert w.grad.tolist() == [12.0]
    scaler.unscale_(optimizer)
    assert w.grad.tolist() == [3.0]
    with pytest.raises(UsageError, match="unscaled already"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [-1.0]
    state = scaler.state_dict()
    assert state == {
        "scale": 4.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 1,
    }
    again = GradScaler()
    again.load_state_dict(state)
    assert again.state_dict() == state


@pytest.mark.own_devices
def test_a_function_of_ones_own_computes_in_what_it_says_and_its_gradient_as_forward_did():
    seen = []

    def made(cast):
        class Product(hcq.torch.autograd.Function):
            @staticmethod
            @hcq.torch.amp.custom_fwd(device_type="cpu", cast_inputs=cast)
            def forward(ctx, x, y):
                ctx.save_for_backward(x, y)
                seen.append((x.dtype.name, (x @ y).dtype.name))
                return x @ y

            @staticmethod
            @hcq.torch.amp.custom_bwd(device_type="cpu")
            def backward(ctx, g):
                x, y = ctx.saved_tensors
                seen.append((g.dtype.name, (x @ y).dtype.name))
                return g.cast(x.dtype) @ y.T, x.T @ g.cast(x.dtype)

        return Product

    x = Tensor(X[:, :4], "CPU", requires_grad=True)
    for cast in (None, dtypes.float32, dtypes.float16):
        with hcq.autocast("cpu", dtypes.bfloat16):
            y = made(cast).apply(x, Tensor(X[:, 2:], "CPU"))
        y.float().sum().backward()
    made(dtypes.float16).apply(
        x, Tensor(X[:, 2:], "CPU")
    ).sum().backward()  # outside of autocast nothing is cast
    assert seen == [
        ("float32", "bfloat16"), ("bfloat16", "bfloat16"), ("float32", "float32"), ("float32", "float32"),
        ("float16", "float16"), ("float16", "float16"), ("float32", "float32"), ("float32", "float32"),
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"put before a function, as @custom_fwd"):
        hcq.torch.amp.custom_fwd(3, device_type="cpu")
