"""Optimizers: against the formulas in NumPy, step by step, against PyTorch, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
from hcq import Tensor, dtypes, jit
from hcq.errors import UsageError
from hcq.frontend.optim import SGD, Adam, AdamW

START = [np.linspace(-1.0, 1.0, 12).reshape(3, 4), np.array([0.5, -0.25, 2.0])]
STEPS = 6


def gradients(step: int) -> list[np.ndarray]:
    rng = np.random.default_rng(step)
    return [rng.standard_normal(start.shape) for start in START]


def parameters(dtype=dtypes.float64) -> list[Tensor]:
    return [Tensor(start, dtype=dtype, requires_grad=True) for start in START]


def run(make, dtype=dtypes.float64, steps=STEPS) -> list[list[np.ndarray]]:
    """The parameters after each step."""
    params = parameters(dtype)
    optimizer = make(params)
    history = []
    for step in range(steps):
        optimizer.zero_grad()
        for parameter, g in zip(params, gradients(step)):
            (parameter * Tensor(g, dtype=dtype)).sum().backward()
        optimizer.step()
        history.append([parameter.numpy().copy() for parameter in params])
    return history


def assert_follows(actual, expected, tolerance=1e-12):
    assert len(actual) == len(expected)
    for mine, other in zip(actual, expected):
        for a, b in zip(mine, other):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def sgd_by_hand(lr, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False):
    params, buffers, history = [p.copy() for p in START], [None] * len(START), []
    for step in range(STEPS):
        for i, g in enumerate(gradients(step)):
            g = g + weight_decay * params[i]
            if momentum:
                buffers[i] = g if buffers[i] is None else momentum * buffers[i] + (1 - dampening) * g
                g = g + momentum * buffers[i] if nesterov else buffers[i]
            params[i] = params[i] - lr * g
        history.append([p.copy() for p in params])
    return history


def adam_by_hand(lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False):
    params, history = [p.copy() for p in START], []
    m, v = [np.zeros_like(p) for p in START], [np.zeros_like(p) for p in START]
    for step in range(STEPS):
        for i, g in enumerate(gradients(step)):
            if decoupled:
                params[i] = params[i] * (1 - lr * weight_decay)
            else:
                g = g + weight_decay * params[i]
            m[i] = betas[0] * m[i] + (1 - betas[0]) * g
            v[i] = betas[1] * v[i] + (1 - betas[1]) * g * g
            mean, square = m[i] / (1 - betas[0] ** (step + 1)), v[i] / (1 - betas[1] ** (step + 1))
            params[i] = params[i] - lr * mean / (np.sqrt(square) + eps)
        history.append([p.copy() for p in params])
    return history


SGD_OPTIONS = [
    {"lr": 0.1},
    {"lr": 0.1, "momentum": 0.9},
    {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    {"lr": 0.1, "momentum": 0.9, "dampening": 0.3},
    {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.02},
    {"lr": 0.1, "weight_decay": 0.02},
]
ADAM_OPTIONS = [
    {"lr": 0.01},
    {"lr": 0.01, "betas": (0.5, 0.9), "eps": 1e-3},
    {"lr": 0.01, "weight_decay": 0.1},
]


@pytest.mark.parametrize("options", SGD_OPTIONS, ids=str)
def test_sgd_follows_its_formula(options):
    assert_follows(run(lambda p: SGD(p, **options)), sgd_by_hand(**options))


@pytest.mark.parametrize("options", ADAM_OPTIONS, ids=str)
def test_adam_follows_its_formula(options):
    assert_follows(run(lambda p: Adam(p, **options)), adam_by_hand(**options))


@pytest.mark.parametrize("options", ADAM_OPTIONS, ids=str)
def test_adamw_follows_its_formula(options):
    options = {"weight_decay": 0.01, **options}
    assert_follows(run(lambda p: AdamW(p, **options)), adam_by_hand(**options, decoupled=True))


def test_adam_is_precise_in_float32_from_the_first_step():
    assert_follows(run(lambda p: Adam(p, lr=0.01), dtypes.float32), adam_by_hand(0.01), tolerance=2e-6)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "ours", "options"),
    [("SGD", SGD, options) for options in SGD_OPTIONS]
    + [("Adam", Adam, options) for options in ADAM_OPTIONS]
    + [("AdamW", AdamW, options) for options in ADAM_OPTIONS],
    ids=str,
)
def test_every_optimizer_follows_pytorch(name, ours, options):
    torch = pytest.importorskip("torch")
    params = [torch.tensor(start, requires_grad=True) for start in START]
    optimizer = getattr(torch.optim, name)(params, **options)
    expected = []
    for step in range(STEPS):
        for parameter, g in zip(params, gradients(step)):
            parameter.grad = torch.tensor(g)
        optimizer.step()
        expected.append([parameter.detach().numpy().copy() for parameter in params])
    assert_follows(run(lambda p: ours(p, **options)), expected)


def test_a_step_uses_a_learning_rate_set_before_it():
    params = parameters()
    optimizer = SGD(params, lr=1.0)
    optimizer.lr = 0.25
    assert optimizer.lr == 0.25
    params[0].sum().backward()
    optimizer.step()
    np.testing.assert_allclose(params[0].numpy(), START[0] - 0.25)


def test_parameters_without_a_gradient_and_frozen_ones_stay_and_do_not_count_the_step():
    params = parameters()
    optimizer = Adam(params, lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        params[0].sum().backward()
        optimizer.step()
    np.testing.assert_array_equal(params[1].numpy(), START[1])
    optimizer.zero_grad()
    params[0].requires_grad_(False)
    before = params[0].numpy().copy()
    params[1].sum().backward()
    optimizer.step()
    np.testing.assert_array_equal(params[0].numpy(), before)
    # its first step is a whole learning rate, whatever the others did
    np.testing.assert_allclose(params[1].numpy(), START[1] - 0.1, rtol=1e-6)


@pytest.mark.parametrize(
    "make",
    [lambda p: Adam(p, lr=0.05), lambda p: SGD(p, lr=0.1, momentum=0.9, dampening=0.2)],
    ids=["Adam", "SGD"],
)
def test_training_goes_on_from_a_saved_state_as_if_it_had_not_stopped(make):
    def steps(params, optimizer, numbers):
        for step in numbers:
            optimizer.zero_grad()
            for parameter, g in zip(params, gradients(step)):
                (parameter * Tensor(g)).sum().backward()
            optimizer.step()

    first = parameters()
    optimizer = make(first)
    steps(first, optimizer, range(3))
    optimizer.lr = 0.01
    second = [Tensor(parameter.numpy(), requires_grad=True) for parameter in first]
    again = make(second)
    again.load_state_dict({name: tensor.clone().realize() for name, tensor in optimizer.flat_state().items()})
    assert again.lr == 0.01
    steps(first, optimizer, range(3, 6))
    steps(second, again, range(3, 6))
    for a, b in zip(first, second):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_loading_a_state_of_another_kind_is_refused():
    with pytest.raises(UsageError, match=r"\[SGD.load_state_dict\] the names do not match; missing: \[\]"):
        SGD(parameters()).load_state_dict(Adam(parameters()).state_dict())
    other = Adam([Tensor([1.0], requires_grad=True), Tensor([1.0], requires_grad=True)])
    with pytest.raises(UsageError, match=r"exp_avg.0 has shape \(3, 4\), the saved one \(1,\)"):
        Adam(parameters()).load_state_dict(other.state_dict())


def test_a_recorded_step_goes_on_as_eager_steps_do():
    results = []
    for wrap in (lambda f: f, jit):
        w = Tensor(START[0], dtype=dtypes.float32, requires_grad=True)
        optimizer = Adam([w], lr=0.05)

        @wrap
        def step(x, w=w, optimizer=optimizer):
            optimizer.zero_grad()
            loss = ((w * x).sum() - 1.0).square()
            loss.backward()
            optimizer.step()
            return loss

        losses = [step(Tensor(START[0] * (i + 1), dtype=dtypes.float32)).item() for i in range(8)]
        results.append((losses, w.numpy().copy()))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_a_new_learning_rate_reaches_a_recorded_step():
    w = Tensor([1.0, 2.0], requires_grad=True)
    optimizer = SGD([w], lr=1.0)

    @jit
    def step():
        optimizer.zero_grad()
        w.sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    optimizer.lr = 0.5
    step()
    np.testing.assert_array_equal(w.numpy(), [-2.5, -1.5])


def test_the_loss_made_before_a_step_keeps_its_value():
    w = Tensor([3.0], requires_grad=True)
    optimizer = SGD([w], lr=1.0)
    loss = (w * w).sum()
    loss.backward()
    optimizer.step()
    assert loss.item() == 9.0
    np.testing.assert_array_equal(w.numpy(), [-3.0])


def test_gradients_can_be_set_to_zero_or_forgotten():
    w = Tensor([3.0], requires_grad=True)
    optimizer = SGD([w], lr=1.0)
    (w * w).sum().backward()
    optimizer.zero_grad(set_to_none=False)
    np.testing.assert_array_equal(w.grad.numpy(), [0.0])
    optimizer.zero_grad()
    assert w.grad is None


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Adam([]), r"\[Adam\] the list of parameters is empty"),
        (lambda: Adam(Tensor([1.0], requires_grad=True)), r"\[Adam\] params is one tensor: give a list"),
        (lambda: Adam([Tensor([1.0])]), r"none of the 1 parameters requires a gradient"),
        (lambda: Adam([Tensor([1.0], requires_grad=True)] * 2), r"parameters 0 and 1 are the same tensor"),
        (lambda: Adam([1.0]), r"parameter 0 is a float"),
        (lambda: Adam([hcq.tensor([1])]), r"parameter 0 is int64"),
        (lambda: Adam(parameters(), lr=-1), r"\[Adam\] lr -1: give a number, 0 or more"),
        (lambda: Adam(parameters(), betas=(1.0, 0.9)), r"\[Adam\] betas\[0\] 1.0"),
        (lambda: SGD(parameters(), nesterov=True), r"\[SGD\] nesterov needs a momentum"),
        (lambda: SGD(parameters()).step(), r"\[SGD.step\] no parameter has a gradient"),
    ],
    ids=range(10),
)
def test_a_mistake_is_answered_with_a_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
