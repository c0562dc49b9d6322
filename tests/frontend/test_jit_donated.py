"""Donated arguments: the values are those of the function, in less memory, and what was donated is not used again."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from hcq import Tensor, config, from_dlpack, jit, nn, no_grad
from hcq.errors import UsageError

CALLS = 5


def chain(x, w):
    """Two products, so that x is read long before the result is made."""
    return ((x @ w).tanh() @ w).relu() @ w


def matrix(n, seed):
    return Tensor(np.random.default_rng(seed).normal(size=(n, n)).astype(np.float32)).realize()


def test_a_donated_state_goes_through_many_calls_as_without_jit():
    for n in (2, 5, 16):
        w = matrix(n, 1)
        states = [matrix(n, 2), matrix(n, 2)]
        step = jit(chain, donate="x")
        for _ in range(CALLS):
            states = [chain(states[0], w), step(states[1], w)]
            assert np.allclose(states[0].numpy(), states[1].numpy(), rtol=1e-4, atol=1e-5)


def test_results_and_temporaries_are_in_donated_memory_and_the_recording_needs_less():
    w, needs, results = matrix(16, 1), [], []
    for donate in ((), 0):
        f = jit(chain, donate=donate)
        results.append([f(matrix(16, 10 + seed), w).numpy() for seed in range(CALLS)])
        needs.append(f.memory_bytes)
    assert np.allclose(*results, rtol=1e-4, atol=1e-5)
    assert needs[0] - needs[1] == 16 * 16 * 4


def test_the_result_is_the_donated_memory():
    f, w = jit(chain, donate=0), matrix(16, 1)
    for seed in range(CALLS):
        x = matrix(16, seed)
        place = x.node.arg.buffer.address
        y = f(x, w)
    assert y.node.arg.buffer.address == place


def test_several_arguments_are_donated_at_once_and_lists_and_dicts_of_them_too():
    def step(weights, moments, x):
        made = {name: (weights[name] @ x).tanh() for name in weights}
        kept = [moments[0] * 0.5 + sum(made.values(), Tensor(0.0)), (moments[1] @ x) @ x]
        return {name: made[name] @ x for name in made}, kept

    found = []
    for function in (step, jit(step, donate=(0, "moments"))):
        weights, moments, x = (
            {"a": matrix(4, 1), "b": matrix(4, 2)},
            [matrix(4, 3), matrix(4, 4)],
            matrix(4, 5),
        )
        for _ in range(CALLS):
            weights, moments = function(weights, moments=moments, x=x)
        found.append([each.numpy() for each in (*weights.values(), *moments)])
    assert np.allclose(found[0], found[1], rtol=1e-3, atol=1e-4)


USES = {
    "values": lambda x: x.tolist(), "work": lambda x: x + 1, "operand": lambda x: 1 - x, "shape": lambda x: x.shape,
    "device": lambda x: x.device, "write": lambda x: x.add_(1), "part": lambda x: x[0], "assign": lambda x: x.assign(0),
    "realize": lambda x: x.realize(), "index": lambda x: Tensor([1.0])[x], "copy": copy.copy,
    "deep copy": copy.deepcopy, "pickle": pickle.dumps, "name": Tensor, "array": np.asarray,
    "gradient": lambda x: x.requires_grad_(), "grad": lambda x: x.grad, "setting": lambda x: x.__setitem__(0, 1.0),
    "into": lambda x: Tensor([[1.0]]).add_(x), "again": lambda x: jit(lambda y: y)(x), "move": lambda x: x.to("CPU"),
    "joined": lambda x: Tensor.cat(x, x), "text": str,
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_every_use_of_what_was_donated_says_to_whom(use):
    f, x = jit(chain, donate=0), matrix(2, 1)
    view = x[0]
    f(x, matrix(2, 2))
    for gone in (x, view):
        with pytest.raises(UsageError, match=r"was donated.* to chain at .*test_jit_donated.py:\d+"):
            USES[use](gone)
        assert "donated" in repr(gone)


def test_what_was_made_of_a_donated_tensor_before_is_right():
    f, w = jit(chain, donate=0), matrix(4, 1)
    for seed in range(CALLS):
        x = matrix(4, seed)
        values = x.numpy()
        lazy, name, part = x * 2, Tensor(x), x[1] + 0
        f(x, w)
        assert np.allclose(lazy.numpy(), values * 2)
        assert np.allclose(name.numpy(), values) and np.allclose(part.numpy(), values[1])


def test_a_donated_argument_may_be_returned_written_or_not_read():
    def f(x, y, z):
        x.add_(1.0)
        y[0] = 3.0
        return x, y[1], z.exp() @ z

    found = []
    for function in (f, jit(f, donate=(0, 1, 2))):
        rows = []
        for seed in range(CALLS):
            results = function(matrix(3, seed), matrix(3, seed + 1), matrix(3, seed + 2))
            rows.append([result.numpy() for result in results])
        found.append(rows)
    for a, b in zip(*found):
        assert all(np.allclose(x, y, rtol=1e-4, atol=1e-5) for x, y in zip(a, b))


def test_a_tensor_donated_twice_is_donated_once_and_one_that_is_another_argument_is_refused():
    f = jit(lambda x, y: (x @ y) @ x, donate=(0, 1))
    for seed in range(CALLS):
        x = matrix(3, seed)
        values = x.numpy()
        assert np.allclose(f(x, x).numpy(), values @ values @ values, rtol=1e-3, atol=1e-4)
        with pytest.raises(UsageError, match="was donated"):
            x.tolist()
    g, x = jit(chain, donate=0), matrix(3, 1)
    with pytest.raises(UsageError, match="donated and is another argument"):
        g(x, x)
    with pytest.raises(UsageError, match="view of the same memory"):
        g(x, x.T)
    assert x.tolist()


def test_what_is_not_ones_own_to_donate_is_refused_and_stays():
    f, w = jit(chain, donate=0), matrix(3, 1)
    whole = matrix(6, 1)
    for given, why in (
        (whole[:3, :3], "view of another tensor"),
        (nn.Parameter(matrix(3, 2), requires_grad=False), "parameter of a module"),
        (matrix(3, 3).requires_grad_(), "requires a gradient"),
    ):
        with pytest.raises(UsageError, match=why):
            f(given, w)
        assert given.detach().tolist()
    x = matrix(3, 4)
    with pytest.raises(UsageError, match="from outside as well"):
        jit(lambda y: (y @ x) @ y, donate=0)(x)
    leaf = matrix(3, 5).requires_grad_()
    leaf.grad = x
    with pytest.raises(UsageError, match=r"is the \.grad of another"):
        f(x, w)
    with pytest.raises(UsageError, match="a gradient flows"):
        f(leaf @ leaf, w)


def test_memory_of_another_library_is_not_donated():
    lines = np.zeros(9 + 64, np.float32)
    start = -lines.ctypes.data % 64 // 4  # memory that is used where it is
    x = from_dlpack(lines[start : start + 9].reshape(3, 3))
    with pytest.raises(UsageError, match="another library's"):
        jit(chain, donate=0)(x, matrix(3, 1).cpu().realize())


def test_an_error_inside_leaves_what_was_to_be_donated():
    def fail(x):
        raise KeyError("inside")

    x = Tensor([1.0]).realize()
    with pytest.raises(KeyError):
        jit(fail, donate=0)(x)
    assert x.tolist() == [1.0]


def test_positions_and_names_that_a_function_lacks_are_refused():
    for donate in (3, -1, "z", 1.5, ("x", "q"), True):
        with pytest.raises(UsageError, match=r"\[jit\] chain: donate="):
            jit(chain, donate=donate)


def test_a_method_donates_by_the_positions_of_its_signature():
    class Model:
        def __init__(self):
            self.w = matrix(3, 1)

        @jit(donate=1)
        def step(self, x):
            return chain(x, self.w)

    model, x = Model(), matrix(3, 2)
    for _ in range(CALLS):
        before, x = x, model.step(x)
        with pytest.raises(UsageError, match=r"to .*Model\.step at"):
            before.tolist()


def test_gradients_inside_of_a_step_with_donated_weights_are_those_without():
    def step(w, x):
        leaf = w.detach().clone().requires_grad_()
        ((leaf @ x).tanh() ** 2).sum().backward()
        with no_grad():
            return w - leaf.grad * 0.1

    x, found = matrix(4, 1), []
    for function in (step, jit(step, donate="w")):
        w = matrix(4, 2)
        for _ in range(CALLS):
            w = function(w, x)
        found.append(w.numpy())
    assert np.allclose(*found, rtol=1e-4, atol=1e-5)


def test_a_checked_recording_may_use_donated_memory():
    before = config.current()
    config.use(replace(before, jit_check=True))
    try:
        test_a_donated_state_goes_through_many_calls_as_without_jit()
    finally:
        config.use(before)


def test_shapes_that_come_and_go_have_recordings_of_their_own():
    f = jit(chain, donate=0)
    for i in range(3 * CALLS):
        n = 2 + i % 3
        w, x = matrix(n, 1), matrix(n, i)
        wanted = chain(x, w).numpy()
        assert np.allclose(f(x, w).numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_donated_arguments_of_devices_that_compute_together_are_right_and_gone():
    w = matrix(4, 1)
    group = ("CPU:0", "CPU:1")
    f, wide = jit(chain, donate=0), w.shard(group).realize()
    for seed in range(CALLS):
        x = matrix(4, seed)
        wanted, split = chain(x, w).numpy(), x.shard(group, axis=0).realize()
        assert np.allclose(f(split, wide).numpy(), wanted, rtol=1e-4, atol=1e-5)
        with pytest.raises(UsageError, match="was donated"):
            split.tolist()
