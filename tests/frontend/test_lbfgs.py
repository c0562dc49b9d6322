"""L-BFGS: the road that PyTorch's takes, with and without a line search; its state; what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from hcq import Tensor, dtypes, jit, nn
from hcq.errors import UsageError
from hcq.frontend.optim import LBFGS

START = np.array([-1.2, 1.0, -0.5, 1.5])
OPTIONS = [
    {"max_iter": 6, "lr": 0.05}, {"max_iter": 8, "line_search_fn": "strong_wolfe"},
    {"max_iter": 12, "history_size": 2, "line_search_fn": "strong_wolfe", "lr": 0.5},
    {"max_iter": 30, "max_eval": 9, "line_search_fn": "strong_wolfe"},
]  # fmt: skip


def valley(x, y):
    """Rosenbrock's, of two pairs."""
    return ((1.0 - x) ** 2 + 10.0 * (y - x * x) ** 2).sum()


def walk(optimizer, x, y, steps):
    """The loss at the start of each step, and where each ends."""
    seen, calls = [], 0

    def closure():
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = valley(x, y)
        loss.backward()
        return loss

    for _ in range(steps):
        loss = optimizer.step(closure)
        seen.append([loss.item(), *x.tolist(), *y.tolist(), float(calls)])
    return np.array(seen)


def ours(options):
    x, y = (Tensor(part, dtype=dtypes.float64, requires_grad=True) for part in (START[:2], START[2:]))
    return LBFGS([x, y], **options), x, y


@pytest.mark.torch
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_three_steps_go_where_pytorchs_go_with_as_many_calls(options):
    torch = pytest.importorskip("torch")
    x, y = (torch.tensor(part, requires_grad=True) for part in (START[:2].copy(), START[2:].copy()))
    other = torch.optim.LBFGS([x, y], **options)
    expected = walk(other, x, y, 3)
    optimizer, *mine = ours(options)
    np.testing.assert_allclose(walk(optimizer, *mine, 3), expected, rtol=1e-6, atol=1e-8)
    state, theirs = optimizer.state_dict(), other.state_dict()
    assert set(theirs["state"][0]) - set(state["state"][0]) <= {"al"}  # which is scratch
    for key in ("func_evals", "n_iter"):
        assert state["state"][0][key] == theirs["state"][0][key]
    assert set(state["param_groups"][0]) == set(theirs["param_groups"][0])


@pytest.mark.torch
def test_a_state_of_pytorchs_goes_on_as_there():
    torch = pytest.importorskip("torch")
    options = {"max_iter": 4, "line_search_fn": "strong_wolfe"}
    x, y = (torch.tensor(part, requires_grad=True) for part in (START[:2].copy(), START[2:].copy()))
    other = torch.optim.LBFGS([x, y], **options)
    walk(other, x, y, 1)
    optimizer, a, b = ours(options)
    a.assign(Tensor(x.detach().numpy())).realize()
    b.assign(Tensor(y.detach().numpy())).realize()
    optimizer.load_state_dict(other.state_dict())
    np.testing.assert_allclose(walk(optimizer, a, b, 1), walk(other, x, y, 1), rtol=1e-6, atol=1e-8)


def test_the_valley_has_its_lowest_point_found_in_single_precision_too():
    x, y = (Tensor(part.astype(np.float32), requires_grad=True) for part in (START[:2], START[2:]))
    optimizer = LBFGS([x, y], max_iter=60, line_search_fn="strong_wolfe")
    walk(optimizer, x, y, 1)
    np.testing.assert_allclose([x.numpy(), y.numpy()], np.ones((2, 2)), atol=1e-2)


def test_what_it_cannot_do_it_says():
    optimizer, x, y = ours({"max_iter": 2})
    with pytest.raises(UsageError, match=r"\[LBFGS\.step\] give a closure"):
        optimizer.step()
    with pytest.raises(UsageError, match=r"one group of parameters"):
        LBFGS([{"params": [x]}, {"params": [y]}])
    with pytest.raises(UsageError, match=r"line_search_fn 'armijo': use"):
        LBFGS([x], line_search_fn="armijo")
    with pytest.raises(UsageError, match=r"Keep state_dict\(\) instead"):
        optimizer.flat_state()

    def step(scale):
        def closure():
            optimizer.zero_grad()
            loss = (valley(x, y) * scale).sum()
            loss.backward()
            return loss

        return optimizer.step(closure)

    recorded = jit(step)
    with pytest.raises(UsageError, match="it reads the loss to see where to go"):
        for _ in range(3):
            recorded(Tensor([1.0], dtype=dtypes.float64))


def test_a_layer_trains_with_it():
    Tensor.manual_seed(0)
    layer, x = nn.Linear(3, 1), Tensor.randn(16, 3)
    wanted = x @ Tensor([[1.0], [-2.0], [0.5]]) + 0.25
    optimizer = LBFGS(layer.parameters(), max_iter=15, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(layer(x), wanted)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert closure().item() < 1e-6
