"""State flows in and out of a replay as it does of a call: assigns, gradients, modes, threads, variables."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest

from hcq import Tensor, jit, nn
from hcq.errors import UsageError
from hcq.frontend.grad.gradient import no_grad


def test_a_lazy_assign_outside_reaches_the_next_replay():
    c = Tensor([1.0]).realize()
    f = jit(lambda a: a + c)
    seen = []
    for i in range(6):
        seen.append(f(Tensor([0.0])).item())
        c.assign(Tensor([i + 2.0]))
    assert seen == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_a_lazy_assign_inside_happens_in_every_replay():
    norm, same = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    step = jit(lambda x: norm(x))
    rng = np.random.default_rng(0)
    for _ in range(6):
        x = Tensor(rng.standard_normal((4, 3)).astype(np.float32))
        np.testing.assert_allclose(step(x).numpy(), same(x).numpy(), rtol=1e-5)
    assert norm.num_batches_tracked.item() == 6
    np.testing.assert_allclose(norm.running_mean.numpy(), same.running_mean.numpy(), rtol=1e-5)
    np.testing.assert_allclose(norm.running_var.numpy(), same.running_var.numpy(), rtol=1e-5)


def test_a_module_made_in_each_call_is_part_of_the_recording():
    calls = []

    @jit
    def loss(x, labels):
        calls.append(1)
        return nn.CrossEntropyLoss()(nn.ReLU()(x), labels)

    rng = np.random.default_rng(0)
    for _ in range(6):
        x, labels = rng.standard_normal((4, 3)).astype(np.float32), rng.integers(0, 3, 4)
        kept = np.maximum(x, 0).astype(np.float64)
        log = kept - np.log(np.exp(kept).sum(1, keepdims=True))
        np.testing.assert_allclose(
            loss(Tensor(x), Tensor(labels)).item(), -log[range(4), labels].mean(), rtol=1e-5
        )
    assert len(calls) < 6 and loss.kernels > 0  # replayed


def test_threads_on_a_cold_jit_take_turns():
    w = Tensor([0.0]).realize()
    seen = []

    @jit
    def count(x):
        w.assign(w + x)
        return w * 1

    def run():
        seen.extend(count(Tensor([1.0])).item() for _ in range(25))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [i + 1.0 for i in range(75)]
    assert w.item() == 75.0


def test_what_another_thread_makes_meanwhile_is_not_recorded():
    inside, made = threading.Event(), threading.Event()
    calls = []

    @jit
    def f(x):
        calls.append(1)
        if len(calls) < 3:
            inside.set()
            made.wait(30)
            made.clear()
        return x + 1

    kept = []
    base = Tensor([5.0])

    def other():
        for _ in range(2):
            inside.wait(30)
            inside.clear()
            kept.append(base * 2)
            made.set()

    thread = threading.Thread(target=other)
    thread.start()
    for i in range(5):
        assert f(Tensor([float(i)])).item() == i + 1.0
    thread.join()
    base.assign(Tensor([7.0])).realize()
    f(Tensor([0.0]))
    assert [t.item() for t in kept] == [10.0, 10.0]


@pytest.mark.parametrize(
    "values", [(0.0, -0.0), (1, True, 1.0), (np.float32(0.0), np.float32(-0.0)), ((1, 2), (True, 2.0))]
)
def test_plain_values_that_are_equal_and_not_the_same_have_recordings_of_their_own(values):
    seen = []
    f = jit(lambda x, value: seen.append(repr(value)))
    for _ in range(3):
        for value in values:
            f(Tensor([1.0]), value)
    assert seen == [repr(value) for value in values] * 2


def test_not_a_number_is_one_plain_value():
    f = jit(lambda x, y: x * y)
    for _ in range(40):
        assert np.isnan(f(Tensor([1.0]), float("nan")).item())


def test_a_list_may_be_an_index():
    f = jit(lambda x: x[:, [1, 0]])
    for i in range(5):
        assert f(Tensor([[1.0, float(i)]])).tolist() == [[float(i), 1.0]]


def test_a_list_that_is_an_index_and_changes_is_seen():
    order = [0, 1]
    f = jit(lambda x: x[order])
    for _ in range(4):
        assert f(Tensor([1.0, 2.0])).tolist() == [1.0, 2.0]
    order.reverse()
    for _ in range(4):
        assert f(Tensor([1.0, 2.0])).tolist() == [2.0, 1.0]


def test_a_tensor_outside_may_be_lazy_a_view_a_constant_or_a_second_name():
    for make in (
        lambda base: base * 2,
        lambda base: base[1:],
        lambda base: Tensor(3.0),
        lambda base: Tensor(base),
        lambda base: base.detach(),
    ):
        base = Tensor([1.0, 2.0]).realize()
        c, same = make(base), make(base)
        f = jit(lambda x, c=c: x + c)
        for i in range(5):
            np.testing.assert_allclose(f(Tensor([0.0])).numpy(), same.numpy())
            base.assign(base + 1)
            if i == 2:
                c.assign(c * 3) if c.node.op.name != "SHRINK" else c.realize()
                same = c.clone().realize()


def test_what_was_made_before_a_replay_keeps_its_value():
    w = Tensor([1.0]).realize()

    @jit
    def step():
        w.assign(w + 1)

    held = []
    for i in range(6):
        held.append((w * 10, w.detach(), Tensor(w), w[0]))
        step()
        assert w.item() == i + 2.0
    for i, tensors in enumerate(held):
        assert [t.reshape(1).item() for t in tensors] == [10.0 * (i + 1), i + 1.0, i + 1.0, i + 1.0]


def test_a_result_that_is_a_tensor_from_outside_or_an_argument_is_that_tensor():
    c = Tensor([1.0])
    f = jit(lambda x: (x, c, x + c))
    for _ in range(4):
        x = Tensor([2.0])
        a, b, total = f(x)
        assert a is x and b is c and total.item() == 3.0


def test_one_tensor_returned_twice_is_one_tensor():
    @jit
    def f(x):
        y = x + 1
        return y, [y]

    for _ in range(4):
        a, (b,) = f(Tensor([1.0]))
        assert a is b


def test_gradients_add_up_over_replays_as_over_calls():
    w = Tensor([1.0, 2.0], requires_grad=True)

    @jit
    def add(x):
        (w * x).sum().backward()

    for _ in range(3):
        w.grad = None
        for i in range(4):
            add(Tensor([1.0, float(i)]))
            assert w.grad.tolist() == [i + 1.0, sum(range(i + 1))]


def test_an_earlier_gradient_keeps_its_value():
    w = Tensor([1.0, 2.0], requires_grad=True)

    @jit
    def f(x):
        w.grad = None
        (w * x).sum().backward()

    held = []
    for i in range(6):
        f(Tensor([float(i), 1.0]))
        held.append((w.grad, w.grad * 2, w.grad[:1]))
    for i, (gradient, doubled, part) in enumerate(held):
        assert (gradient.tolist(), doubled.tolist(), part.item()) == ([i, 1.0], [2.0 * i, 2.0], i)


def test_a_gradient_that_was_cut_outside_is_what_the_next_step_takes():
    def losses(wrap):
        w = Tensor([1.0, 2.0], requires_grad=True)
        optimizer = nn.optim.SGD([w], lr=0.1, momentum=0.9)
        step = wrap(optimizer.step)
        seen = []
        for i in range(6):
            optimizer.zero_grad()
            (w * w * (i + 1)).sum().backward()
            nn.utils.clip_grad_value_([w], 1.5)
            step()
            seen.append(w.tolist())
        return seen

    np.testing.assert_allclose(losses(jit), losses(lambda f: f), rtol=1e-6)


def test_a_gradient_does_not_vanish_in_a_replay():
    w, v = Tensor([3.0], requires_grad=True), Tensor([5.0], requires_grad=True)
    f = jit(lambda x: (w * x).sum())
    for i in range(4):
        w.grad = v.grad = None
        loss = f(Tensor([2.0])) + v.sum()
        if i < 2:
            loss.backward()
            assert (w.grad.item(), v.grad.item()) == (2.0, 1.0)
        else:
            with pytest.raises(UsageError, match="replay"):
                loss.backward()
    (f(Tensor([2.0])).detach() * v).sum().backward()
    assert v.grad.item() == 6.0


def test_a_module_is_recorded_in_each_of_its_modes():
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    f = jit(lambda x: net(x))
    x = Tensor.ones(8, 2)
    for _ in range(3):
        net.train()
        for _ in range(3):
            f(x)
        net.eval()
        for _ in range(3):
            assert f(x).tolist() == net(x).tolist()


def test_no_grad_has_a_recording_of_its_own():
    w = Tensor([3.0], requires_grad=True)
    f = jit(lambda x: (w * x).sum())
    with no_grad():
        for _ in range(3):
            f(Tensor([2.0]))
    f(Tensor([2.0])).backward()
    assert w.grad.item() == 2.0


def test_a_variable_around_the_function_with_another_value_is_seen():
    factor, c = 2.0, Tensor([1.0])
    f = jit(lambda x: x * factor + c)
    for _ in range(4):
        assert f(Tensor([1.0])).item() == 3.0
    factor = 3.0
    for _ in range(4):
        assert f(Tensor([1.0])).item() == 4.0
    old, c = c, Tensor([10.0])
    for _ in range(4):
        assert f(Tensor([1.0])).item() == 13.0
    assert old.item() == 1.0


def test_state_that_is_replaced_instead_of_assigned_is_refused_and_right_until_then():
    class Hidden:
        def __init__(self):
            self.h = Tensor([0.0])

        @jit
        def step(self, x):
            self.h = self.h * 0.5 + x
            return self.h * 1

    cell, h = Hidden(), 0.0
    with pytest.raises(UsageError, match="write into it instead, with assign"):
        for _ in range(20):
            h = h * 0.5 + 1
            assert cell.step(Tensor([1.0])).item() == pytest.approx(h)


def test_a_number_that_every_call_changes_is_refused_and_right_until_then():
    calls = [0]

    @jit
    def f(x):
        calls[0] += 1
        return x * calls[0]

    with pytest.raises(UsageError, match=r"it computes with 7\.0 in one call and with 8\.0"):
        for i in range(20):
            assert f(Tensor([1.0])).item() == i + 1.0


def test_a_list_of_what_every_call_made_is_refused():
    history = []

    @jit
    def f(x):
        history.append(x * 2)
        return x + 1

    with pytest.raises(UsageError, match="list that grows"):
        for _ in range(20):
            f(Tensor([1.0]))


def test_a_kept_tensor_that_somebody_else_holds_is_not_overwritten():
    kept = {}

    @jit
    def f(x):
        kept["squared"] = x * x

    held = []
    for i in range(6):
        f(Tensor([float(i)]))
        held.append((kept["squared"], kept["squared"] * 2))
    assert [(t.item(), lazy.item()) for t, lazy in held] == [(i * i, 2 * i * i) for i in range(6)]


def test_what_is_kept_is_where_each_call_puts_it():
    class Box:
        pass

    box, items, outer = Box(), [None], None

    @jit
    def f(x, n):
        nonlocal outer
        box.attribute = items[0] = x * n
        outer = x + n

    for i in range(4):
        for n in (1, 2, 3):
            f(Tensor([float(i)]), n)
            assert (box.attribute.item(), items[0].item(), outer.item()) == (i * n, i * n, i + n)
            assert box.attribute is items[0]
        items[0] = box.attribute = outer = None


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_an_error_inside_leaves_no_half_recording(failing):
    w = Tensor([0.0]).realize()
    count = [0]

    @jit
    def f(x):
        count[0] += 1
        w.assign(w + x)
        if count[0] == failing:
            raise ValueError("now")
        return w * 1

    total = 0.0
    for _ in range(8):
        total += 1
        try:
            assert f(Tensor([1.0])).item() == total
        except ValueError:
            pass
        assert w.item() == total


def test_a_function_inside_a_function_and_one_that_calls_itself_are_part_of_the_outer_recording():
    w = Tensor([0.0]).realize()

    @jit
    def inner(x):
        w.assign(w + x)
        return w * 2

    @jit
    def down(x, n):
        return inner(x) if n == 0 else down(x, n - 1) + 1

    for i in range(5):
        assert down(Tensor([1.0]), 2).item() == 2 * (2 * i + 1) + 2
        assert inner(Tensor([1.0])).item() == 2 * (2 * i + 2)


def test_an_argument_given_twice_and_its_view_are_distinguished():
    f = jit(lambda x, y: x * 2 + y)
    for _ in range(4):
        x, y = Tensor([1.0, 2.0]), Tensor([10.0, 20.0])
        assert f(x, x).tolist() == [3.0, 6.0]
        assert f(x, y).tolist() == [12.0, 24.0]
        assert f(x, x.flip(0)).tolist() == [4.0, 5.0]
        assert f(x, x[0].expand(2)).tolist() == [3.0, 5.0]


def test_a_function_without_kernels_and_one_of_nothing_may_be_recorded():
    f, g = jit(lambda x: x.T), jit(lambda x: (x * 2, x.sum()))
    for i in range(4):
        assert f(Tensor([[1.0, float(i)]])).tolist() == [[1.0], [float(i)]]
        empty, total = g(Tensor.zeros(0, 3))
        assert (empty.shape, total.item()) == ((0, 3), 0.0)


@pytest.mark.parametrize("result", [object(), np.ones(2), {1}, (i for i in range(2))])
def test_a_result_that_a_replay_cannot_make_is_refused(result):
    with pytest.raises(UsageError, match="returns a"):
        jit(lambda x: result)(Tensor([1.0]))


def test_changing_a_list_that_is_an_argument_is_refused():
    f = jit(lambda tensors: tensors.append(tensors[0] * 2))
    with pytest.raises(UsageError, match="changes a list"):
        f([Tensor([1.0])])


def test_copies_of_an_object_are_recorded_by_themselves():
    class Scale:
        def __init__(self, by):
            self.by = Tensor([by])

        @jit
        def __call__(self, x):
            return x * self.by

        @jit
        def twice(self, x):
            return x * self.by * 2

    class Loud(Scale):
        @jit
        def twice(self, x):
            return super().twice(x) + 100

    one = Loud(2.0)
    for _ in range(3):
        assert (one(Tensor([1.0])).item(), one.twice(Tensor([1.0])).item()) == (2.0, 104.0)
    for other in (copy.copy(one), copy.deepcopy(one)):
        other.by = Tensor([3.0])
        for _ in range(3):
            assert (other(Tensor([1.0])).item(), other.twice(Tensor([1.0])).item()) == (3.0, 106.0)
    assert one(Tensor([1.0])).item() == 2.0


def test_reset_in_the_middle_only_costs_time():
    w = Tensor([0.0]).realize()

    @jit
    def f(x):
        w.assign(w + x)
        return w * 1

    for i in range(9):
        if i % 4 == 3:
            f.reset()
        assert f(Tensor([1.0])).item() == i + 1.0


def test_an_argument_that_shares_memory_with_a_pending_write_keeps_its_value():
    for calls in range(4):
        c, d = Tensor([1.0]).realize(), Tensor([0.0]).realize()
        f = jit(lambda x, c=c, d=d: (d.assign(x * 2), c + x)[1])
        for _ in range(calls):
            f(Tensor([1.0]))
        name = Tensor(c)
        c.assign(Tensor([5.0]))
        assert f(name).item() == 6.0
        assert (d.item(), name.item(), c.item()) == (2.0, 1.0, 5.0)


def test_a_gradient_that_appears_is_seen_by_a_function_that_only_looks():
    w = Tensor([1.0], requires_grad=True)
    f = jit(lambda x: (x + 1, w.grad))
    for _ in range(4):
        assert f(Tensor([1.0]))[1] is None
    (w * 3).sum().backward()
    for _ in range(4):
        assert f(Tensor([1.0]))[1].item() == 3.0
    w.grad = None
    assert f(Tensor([1.0]))[1] is None


def test_a_gradient_that_the_function_clears_is_cleared_by_every_replay_also_where_there_was_none():
    w = Tensor([1.0, 2.0], requires_grad=True)

    @jit
    def clear(x):
        w.grad = None

    for turn in range(5):
        clear(Tensor([1.0]))
        assert w.grad is None
        if turn > 1:
            (w * 3.0).sum().backward()
            assert w.grad.tolist() == [3.0, 3.0]
