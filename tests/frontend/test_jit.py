"""A recorded function gives what the function gives, and refuses what a recording cannot mean."""

from __future__ import annotations

import os

import numpy as np
import pytest

import hcq
from hcq import Tensor, jit, nn
from hcq.errors import UsageError


def test_replays_compute_on_their_own_arguments():
    @jit
    def f(x, y):
        return (x * 2 + y).relu(), x.sum()

    for i in range(6):
        x, y = Tensor([1.0 * i, -2.0 * i, 3.0]), Tensor([0.5, 0.5, 0.5 * i])
        a, b = f(x, y)
        np.testing.assert_allclose(a.numpy(), np.maximum(x.numpy() * 2 + y.numpy(), 0))
        assert b.item() == pytest.approx(x.numpy().sum())
    assert f.kernels == 2


def test_earlier_results_stay_when_later_replays_run():
    @jit
    def f(x):
        return x + 1

    results = [f(Tensor([float(i)])) for i in range(20)]
    assert [r.item() for r in results] == [i + 1.0 for i in range(20)]


def test_a_result_can_be_the_next_argument():
    @jit
    def f(x):
        return x * 2

    x = Tensor([1.0])
    for _ in range(10):
        x = f(x)
    assert x.item() == 1024.0


def test_tensors_from_outside_are_assigned_to_by_every_replay():
    total = Tensor([0.0, 0.0])

    @jit
    def add(x):
        total.assign(total + x)
        return total * 1

    seen = [add(Tensor([1.0, 2.0])).tolist() for _ in range(5)]
    assert seen == [[1.0 * i, 2.0 * i] for i in range(1, 6)]
    assert total.tolist() == [5.0, 10.0]


def test_results_may_be_nested_and_may_be_views():
    @jit
    def f(pair):
        x, y = pair
        return {"turned": (x @ y).T, "same": [x, (x + y)[0]]}

    for i in range(4):
        x = Tensor([[1.0, i], [2.0, 3.0]])
        y = Tensor([[0.0, 1.0], [1.0, i]])
        got = f((x, y))
        np.testing.assert_allclose(got["turned"].numpy(), (x.numpy() @ y.numpy()).T)
        np.testing.assert_allclose(got["same"][0].numpy(), x.numpy())
        np.testing.assert_allclose(got["same"][1].numpy(), (x.numpy() + y.numpy())[0])


def test_each_shape_and_each_plain_value_has_its_own_recording():
    @jit
    def f(x, power=1):
        return x**power

    for _ in range(3):
        assert f(Tensor([2.0, 3.0])).tolist() == [2.0, 3.0]
        assert f(Tensor([2.0, 3.0]), power=2).tolist() == [4.0, 9.0]
        assert f(Tensor([2.0])).tolist() == [2.0]


def test_a_training_step_learns_as_the_same_step_without_jit():
    def losses(wrap):
        Tensor.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
        optimizer = nn.optim.Adam(model.parameters(), lr=0.01)

        def step(x, y):
            optimizer.zero_grad()
            loss = model(x).cross_entropy(y)
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(step)
        rng = np.random.default_rng(0)
        found = []
        for _ in range(8):
            x = Tensor(rng.standard_normal((8, 4)).astype(np.float32))
            found.append(step(x, Tensor(rng.integers(0, 3, 8))).item())
        return found

    eager, recorded = losses(lambda f: f), losses(jit)
    np.testing.assert_allclose(recorded, eager, rtol=1e-4)
    assert recorded[-1] != recorded[0]


def test_random_numbers_differ_from_replay_to_replay():
    @jit
    def f():
        return Tensor.rand(4)

    Tensor.manual_seed(7)
    recorded = [f().tolist() for _ in range(5)]
    Tensor.manual_seed(7)
    eager = [Tensor.rand(4).tolist() for _ in range(5)]
    assert recorded == eager
    assert len({tuple(r) for r in recorded}) == 5


def test_methods_are_recorded_per_object():
    class Scale:
        def __init__(self, by):
            self.by = Tensor([by])

        @jit
        def __call__(self, x):
            return x * self.by

    two, three = Scale(2.0), Scale(3.0)
    for _ in range(4):
        assert (two(Tensor([1.0])).item(), three(Tensor([1.0])).item()) == (2.0, 3.0)


def test_what_the_function_leaves_alive_is_renewed_by_every_replay():
    kept = {}

    @jit
    def f(x):
        kept["squared"] = x * x
        return x + 1

    for i in range(5):
        f(Tensor([float(i)]))
    assert kept["squared"].item() == 16.0


@pytest.mark.parametrize("read", [lambda t: t.item(), lambda t: t.numpy(), lambda t: t.tolist(), bool])
def test_reading_a_value_inside_is_refused(read):
    @jit
    def f(x):
        read(x.sum())
        return x

    f(Tensor([1.0]))  # the first call runs as it is
    with pytest.raises(UsageError, match=r"\[jit\].*recorded"):
        f(Tensor([1.0]))


def test_an_array_made_a_tensor_inside_is_refused():
    @jit
    def f(x):
        return x + Tensor(np.ones(2, np.float32))

    f(Tensor([1.0, 1.0]))
    with pytest.raises(UsageError, match="outside"):
        f(Tensor([1.0, 1.0]))


def test_tensors_of_lists_made_inside_are_part_of_the_recording():
    numbers = [1.0, 2.0]

    def f(x):
        seen = Tensor([[3.0, 4.0], [5.0, 6.0]])
        state = Tensor((0.0, 0.0))
        state.add_(x)
        state[0] = 7.0
        return x + seen, x * Tensor(numbers), state, hcq.tensor([1, 2]), seen

    found = []
    for function in (f, jit(f)):
        numbers[:] = [1.0, 2.0]
        rows = []
        for i in range(9):
            if i == 5:
                numbers[1] = -3.0
            results = function(Tensor([1.0, float(i)]))
            rows.append([each.tolist() for each in results])
            for each in results:
                each.mul_(0)  # the next call does not see it
        found.append(rows)
    assert found[0] == found[1]


def test_a_list_that_changes_from_call_to_call_is_no_recording():
    count = iter(range(100))
    f = jit(lambda x: x * Tensor([float(next(count))]))
    with pytest.raises(UsageError, match="a list that it makes a tensor of"):
        for _ in range(20):
            f(Tensor([1.0]))


def test_an_argument_that_is_also_assigned_to_from_outside_is_refused():
    w = Tensor([1.0])

    @jit
    def f(x):
        w.assign(w + x)
        return w * 1

    f(Tensor([1.0]))
    f(Tensor([1.0]))
    with pytest.raises(UsageError, match="shares memory"):
        f(w)


def test_an_argument_that_requires_a_gradient_is_refused():
    @jit
    def f(x):
        return x * 2

    with pytest.raises(UsageError, match="requires a gradient"):
        f(Tensor([1.0], requires_grad=True))


def test_too_many_different_plain_values_are_refused():
    @jit
    def f(x, n):
        return x + n

    with pytest.raises(UsageError, match="Pass what varies as a Tensor"):
        for n in range(100):
            f(Tensor([1.0]), n)


def test_a_failed_recording_leaves_eager_work_possible():
    @jit
    def f(x):
        return x + 1 if not x.node.arg else x.item()

    with pytest.raises((UsageError, AttributeError)):
        for _ in range(3):
            f(Tensor([1.0]))
    assert (Tensor([1.0]) + 1).item() == 2.0


@pytest.fixture
def checked_replays():
    from dataclasses import replace

    from hcq import config

    before = config.current()
    config.use(replace(before, jit_check=True))
    yield
    config.use(before)


def test_a_checked_replay_of_an_honest_function_passes_and_leaves_the_state_right(checked_replays):
    total = Tensor([0.0])

    @jit
    def add(x):
        total.assign(total + x)
        return total * 2

    assert [add(Tensor([1.0])).item() for _ in range(6)] == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]


def test_a_checked_replay_finds_a_python_value_that_changed(checked_replays, monkeypatch):
    @jit
    def scaled(x):
        return x * float(os.environ["FACTOR"])  # a standard library's object, which is not looked into

    monkeypatch.setenv("FACTOR", "1")
    scaled(Tensor([1.0]))
    scaled(Tensor([1.0]))
    monkeypatch.setenv("FACTOR", "2")
    with pytest.raises(
        UsageError, match=r"result 0 of a replay differs .* computes with 1\.0 in one call and with 2\.0"
    ):
        scaled(Tensor([1.0]))


def test_a_checked_replay_names_what_the_function_changes_in_python(checked_replays):
    counts = {"calls": 0}

    @jit
    def f(x):
        counts["calls"] += 1
        return x * 2

    f(Tensor([1.0]))
    f(Tensor([1.0]))
    with pytest.raises(
        UsageError, match="it changes counts, which are no tensors, in Python; a replay does not"
    ):
        f(Tensor([1.0]))


def test_plans_of_one_recording_share_memory_for_what_they_make_and_drop():
    """Eight steps that each compute two values: two memories are enough, for one is read while the next is made."""
    w = Tensor(np.full((64, 64), 1 / 64, np.float32)).realize()

    @jit
    def steps(x):
        for _ in range(8):
            x = (x @ w).realize()
            x = (x + 1).realize()
        return x.sum()

    x = Tensor(np.ones((64, 64), np.float32))
    results = [steps(x).item() for _ in range(4)]
    assert results == [9 * 64 * 64] * 4
    assert steps._last.planned.sizes == [64 * 64 * 4] * 2
