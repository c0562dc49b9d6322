"""Every optimizer beside PyTorch's or its formula; groups, options that change, states both ways, skipped steps."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from hcq import Tensor, dtypes, jit, nn
from hcq.errors import UsageError
from hcq.frontend import optim

STEPS = 5
R = np.random.default_rng(4)
START = [R.standard_normal((4, 3)), R.standard_normal(3)]
GRADIENTS = [[R.standard_normal(start.shape) for start in START] for _ in range(STEPS)]

KINDS = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "weight_decay": 0.1}), ("AdamW", {"lr": 0.1, "amsgrad": True}),
    ("Adam", {"lr": 0.1, "betas": (0.0, 0.9)}),
    ("Adamax", {"weight_decay": 0.1}), ("NAdam", {"weight_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "momentum_decay": 0.1}), ("RAdam", {}),
    ("RAdam", {"betas": (0.8, 0.9), "weight_decay": 0.1, "decoupled_weight_decay": True}), ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.8, "centered": True, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("ASGD", {"lr": 0.1, "lambd": 0.2, "t0": 2.0, "weight_decay": 0.1}), ("ASGD", {"maximize": True}),
    ("Rprop", {"lr": 0.1, "etas": (0.4, 1.3), "step_sizes": (0.05, 0.15)}), ("Rprop", {"maximize": True}),
    ("Adadelta", {"weight_decay": 0.1, "rho": 0.8}), ("Adafactor", {"lr": 0.1, "weight_decay": 0.1}),
]  # fmt: skip


def ours(dtype=dtypes.float64):
    return [nn.Parameter(Tensor(start, dtype=dtype)) for start in START]


def run(optimizer, params, make, steps=range(STEPS)):
    for step in steps:
        for parameter, g in zip(params, GRADIENTS[step]):
            parameter.grad = make(g)
        optimizer.step()


@pytest.mark.torch
@pytest.mark.parametrize("name, options", KINDS, ids=str)
def test_five_steps_are_pytorchs_and_so_are_their_states_both_ways(name, options):
    torch = pytest.importorskip("torch")
    params, theirs = ours(), [torch.tensor(start, requires_grad=True) for start in START]
    optimizer = getattr(optim, name)(params, **options)
    other = getattr(torch.optim, name)(theirs, **options)
    run(optimizer, params, Tensor)
    run(other, theirs, torch.tensor)
    for a, b in zip(params, theirs):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-8, atol=1e-9)
    # each goes on from the state of the other
    again, back = getattr(optim, name)(params, **options), getattr(torch.optim, name)(theirs, **options)
    again.load_state_dict(other.state_dict())

    def theirs_of(key, value):
        return torch.tensor(value.numpy(), dtype=torch.float32 if key == "step" else torch.float64)

    state = {
        place: {key: theirs_of(key, value) for key, value in own.items() if key != "started"}
        for place, own in optimizer.state_dict()["state"].items()
    }
    back.load_state_dict({"state": state, "param_groups": other.state_dict()["param_groups"]})
    run(again, params, Tensor, range(2))
    run(back, theirs, torch.tensor, range(2))
    for a, b in zip(params, theirs):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-8, atol=1e-9)


@pytest.mark.torch
@pytest.mark.parametrize("options", [{}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}], ids=str)
def test_muon_steps_as_pytorch_does_and_rounds_to_bfloat16_where_it_does(options):
    torch = pytest.importorskip("torch")
    params = [nn.Parameter(Tensor(START[0], dtype=dtypes.float32))]
    theirs = [torch.tensor(START[0].astype(np.float32), requires_grad=True)]
    run(optim.Muon(params, lr=0.1, **options), params, lambda g: Tensor(g, dtype=dtypes.float32))
    run(torch.optim.Muon(theirs, lr=0.1, **options), theirs, lambda g: torch.tensor(g.astype(np.float32)))
    np.testing.assert_allclose(params[0].numpy(), theirs[0].detach().numpy(), atol=1e-5)


def norm(x):
    return np.sqrt((x * x).sum())


def lamb(p, g, m, v, t, lr=0.1, b1=0.9, b2=0.999, eps=1e-6, decay=0.1):
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    step = m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps) + decay * p
    return p - lr * norm(p) / norm(step) * step, m, v


def lars(p, g, m, v, t, lr=0.1, momentum=0.9, trust=0.01, eps=1e-8, decay=0.1):
    m = momentum * m + (g + decay * p) * trust * norm(p) / (norm(g) + decay * norm(p) + eps)
    return p - lr * m, m, v


def lion(p, g, m, v, t, lr=0.1, b1=0.9, b2=0.99, decay=0.1):
    return p * (1 - lr * decay) - lr * np.sign(b1 * m + (1 - b1) * g), b2 * m + (1 - b2) * g, v


@pytest.mark.parametrize(
    "kind, formula, options",
    [
        (optim.LAMB, lamb, {}), (optim.Lion, lion, {}),
        (optim.LARS, lars, {"momentum": 0.9, "trust_coefficient": 0.01}),
    ],
    ids=["LAMB", "Lion", "LARS"],
)  # fmt: skip
def test_those_that_pytorch_lacks_follow_their_formulas(kind, formula, options):
    params = ours()
    run(kind(params, lr=0.1, weight_decay=0.1, **options), params, Tensor)
    for place, parameter in enumerate(params):
        p, m, v = START[place], np.zeros_like(START[place]), np.zeros_like(START[place])
        for step in range(STEPS):
            p, m, v = formula(p, GRADIENTS[step][place], m, v, step + 1)
        np.testing.assert_allclose(parameter.numpy(), p, rtol=1e-10)


def test_groups_have_options_of_their_own_and_can_be_added_to():
    a, b, c = (nn.Parameter(Tensor([1.0])) for _ in range(3))
    optimizer = optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.5}], lr=0.1)
    optimizer.add_param_group({"params": c, "weight_decay": 1.0})
    for parameter in (a, b, c):
        parameter.grad = Tensor([1.0])
    optimizer.step()
    np.testing.assert_allclose([a.item(), b.item(), c.item()], [0.9, 0.5, 0.8], rtol=1e-6)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5, 0.1]
    with pytest.raises(UsageError, match=r"a group has no option 'speed'"):
        optimizer.add_param_group({"params": [Tensor([1.0], requires_grad=True)], "speed": 1})


def test_a_step_first_calls_its_closure():
    w = nn.Parameter(Tensor([2.0]))
    optimizer = optim.SGD([w], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4.0 and w.tolist() == [0.0]


def test_options_that_change_between_calls_reach_a_recorded_step_and_compile_nothing_more():
    results = []
    for wrap in (lambda f: f, jit):
        w = nn.Parameter(Tensor([1.0, -2.0]))
        optimizer = optim.Adam([w], lr=0.1)
        schedule = optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=12)  # moves betas, too

        @wrap
        def step(x, w=w, optimizer=optimizer):
            optimizer.zero_grad()
            (w * x).square().sum().backward()
            optimizer.step()

        for number in range(10):
            step(Tensor([1.0, number + 1.0]))
            schedule.step()
        results.append(w.numpy().copy())
    np.testing.assert_array_equal(*results)


def test_another_weight_decay_is_seen_by_a_recorded_step():
    w = nn.Parameter(Tensor([1.0]))
    optimizer = optim.SGD([w], lr=1.0, weight_decay=0.5)

    @jit
    def step():
        w.grad = w.detach() * 0.0
        optimizer.step()

    for _ in range(4):
        step()
    optimizer.param_groups[0]["weight_decay"] = 1.0
    step()
    assert w.tolist() == [0.0]


def test_a_schedule_inside_of_a_recorded_function_is_refused():
    w = nn.Parameter(Tensor([1.0]))
    optimizer = optim.SGD([w], lr=1.0)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    @jit
    def step():
        w.grad = w.detach() * 0.0
        optimizer.step()
        schedule.step()

    step()
    with pytest.raises(
        UsageError, match=r"ExponentialLR.step\(\) while .* is recorded: .* outside of the recorded"
    ):
        step()


def test_a_rate_that_is_a_tensor_is_read_at_every_step():
    w, rate = nn.Parameter(Tensor([1.0])), Tensor(0.5).clone().realize()
    optimizer = optim.SGD([w], lr=rate)
    w.grad = Tensor([1.0])
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.25  # written into the tensor
    optimizer.step()
    assert w.tolist() == [0.25] and rate.item() == 0.25


@pytest.mark.parametrize("name", [name for names in optim.LATE.values() for name in names.split()])
def test_the_options_of_an_optimizer_are_its_arguments(name: str):
    kind = getattr(optim, name)
    found = kind([Tensor.ones(2, 2).requires_grad_()]).defaults
    arguments = inspect.signature(kind).parameters
    taken = set(arguments) - {"params", "further", *kind.ignored}
    assert taken <= set(found) and set(found) - taken <= {"decoupled_weight_decay"}
    computed = {"max_eval"}  # from another option, unless it is given
    given = {word: value.default for word, value in arguments.items() if word in taken - computed}
    assert {word: found[word] for word in given} == given
