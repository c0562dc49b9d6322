"""Arguments that a recorded function writes to: after each call they are as without jit, or it is refused."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

import hcq
from hcq import Tensor, Variable, config, jit
from hcq.errors import UsageError

CALLS = 5


def seen(function, calls):
    """All that can be seen of a function's calls: results, and the tensors around them."""
    found = []
    for arguments, around in calls():
        result = function(*arguments)
        results = result if isinstance(result, (tuple, list)) else [result]
        found.append([each.tolist() for each in (*results, *around) if each is not None])
    return found


def agree(function, calls):
    assert seen(jit(function), calls) == seen(function, calls)


def same_tensor():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    for _ in range(CALLS):
        yield (x,), (x,)


def new_tensors():
    for i in range(CALLS):
        x = Tensor([[1.0, 2.0], [3.0, float(i)]])
        yield (x,), (x,)


def lazy_tensors():
    for i in range(CALLS):
        x = Tensor([[1.0, 2.0], [3.0, 4.0]]) * i
        yield (x,), (x,)


def constants():
    for i in range(CALLS):
        x = Tensor.full((2, 2), float(i))
        yield (x,), (x,)


def parts():
    whole = Tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]).realize()
    for i in range(CALLS):
        part = whole[i % 2]
        yield (part,), (part, whole)


def transposed():
    whole = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    for _ in range(CALLS):
        yield (whole.T,), (whole,)


def reshaped():
    whole = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    for _ in range(CALLS):
        yield (whole.view(2, 2),), (whole,)


def with_others_that_look():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    others = []
    for _ in range(CALLS):
        others += [x * 1.0, x[1], x.T, Tensor(x), x.clone(), x.flip(0)]
        yield (x,), (x, *others)


def add(x):
    x.add_(1.0)


def assign(x):
    return x.assign(x @ x)


def part(x):
    x[0] = x[1] * 2
    return x.sum()


def part_of_a_part(x):
    x[1][0] = 7.0
    x.T[0] += 1.0


def old_and_new(x):
    before = x * 2
    view = x[0]
    x.mul_(3.0)
    return before, view, x + 1, x


def through_a_reshape(x):
    x.view(-1)[1:3].add_(1.0)
    return x.exp()


ARGUMENTS = (
    same_tensor, new_tensors, lazy_tensors, constants, parts, transposed, reshaped, with_others_that_look
)  # fmt: skip
WRITES = add, assign, part, part_of_a_part, old_and_new, through_a_reshape


QUICK = {
    (old_and_new, same_tensor), (part, parts), (add, with_others_that_look), (through_a_reshape, transposed),
    (assign, with_others_that_look), (part, constants),
}  # fmt: skip


@pytest.mark.parametrize(
    "write, calls",
    [
        pytest.param(write, calls, marks=[] if (write, calls) in QUICK else [pytest.mark.thorough])
        for write in WRITES
        for calls in ARGUMENTS
    ],
)
def test_what_is_written_to_an_argument_is_in_it_and_in_its_views_after_every_call(write, calls):
    if (calls, write) == (transposed, through_a_reshape):
        with pytest.raises(UsageError, match="contiguous"):
            agree(write, calls)
    else:
        agree(write, calls)


def test_one_tensor_given_twice_is_one_tensor_inside():
    def both(x, y):
        x.add_(1.0)
        y.mul_(2.0)
        return x - y

    def calls():
        x, y = Tensor([1.0, 2.0]).realize(), Tensor([5.0, 6.0]).realize()
        for i in range(2 * CALLS):
            yield ((x, x) if i % 2 else (x, y)), (x, y)

    agree(both, calls)


def test_another_name_of_an_argument_keeps_the_old_values():
    def calls():
        x = Tensor([1.0, 2.0]).realize()
        names = []
        for _ in range(CALLS):
            names.append(Tensor(x))
            yield (x, names[-1]), (x, *names)

    agree(lambda x, y: (x.add_(1.0), y * 10), calls)


def test_lists_and_dicts_of_weights_are_trained_in_place():
    def step(weights, moments, x):
        for name in weights:
            moments[name].mul_(0.5).add_(weights[name] * x)
            weights[name].sub_(moments[name] * 0.1)
        return sum(weights.values(), Tensor(0.0))

    def calls():
        weights = {"a": Tensor([1.0, 2.0]), "b": Tensor([3.0, 4.0])}
        moments = {name: Tensor.zeros(2) for name in weights}
        for i in range(CALLS):
            yield (weights, moments, Tensor([float(i)])), (*weights.values(), *moments.values())

    agree(step, calls)


def test_several_recordings_and_plain_calls_may_write_to_one_tensor():
    double, more = jit(lambda x: x.mul_(2.0)), jit(lambda x: x.add_(1.0))
    x, value = Tensor([1.0]).realize(), 1.0
    for i in range(3 * CALLS):
        (double(x), more(x), x.sub_(3.0))
        value = value * 2 + 1 - 3
        assert x.item() == value
        if i == CALLS:
            x, value = Tensor([7.0]).realize(), 7.0


def test_numbers_and_integers_are_written_as_well():
    def calls():
        x, y = hcq.tensor([1, 2, 3]).realize(), hcq.tensor([True, False]).realize()
        for _ in range(CALLS):
            yield (x, y), (x, y)

    agree(lambda x, y: (x.__ilshift__(1), y.logical_not_()), calls)


def test_an_argument_has_values_through_which_a_gradient_flows():
    w = Tensor([2.0], requires_grad=True)
    f = jit(lambda x: x.add_(w))
    for i in range(CALLS):
        x = Tensor([float(i)]).realize()
        f(x)
        assert x.tolist() == [i + 2.0]


def test_an_error_inside_leaves_what_was_written_before_it():
    def fail(x):
        x.add_(1.0)
        raise KeyError("inside")

    for make in (lambda: Tensor([1.0]).realize(), lambda: Tensor([[1.0], [2.0]]).realize()[0]):
        plain, recorded, f = make(), make(), jit(fail)
        for function, x in ((fail, plain), (f, recorded)) * 3:
            with pytest.raises(KeyError):
                function(x)
        assert plain.tolist() == recorded.tolist() == [4.0]


def test_a_part_that_a_variable_cuts_is_written_where_it_is():
    n = Variable("n", 1, 4)

    def calls():
        x = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
        for i in range(CALLS):
            yield (x[: n.bind(1 + i % 4)],), (x,)

    agree(lambda part: part.add_(10.0), calls)


def test_views_of_one_another_are_refused_where_one_of_them_is_written():
    x = Tensor([1.0, 2.0, 3.0]).realize()
    for pair in ((x, x[1:]), (x[:2], x[1:]), (x, x.detach())):
        f = jit(lambda a, b: (a.add_(1.0), b.sum()))
        with pytest.raises(UsageError, match="is a view of the same memory"):
            f(*pair)
    f = jit(lambda a, b: a[:2] + b)
    for _ in range(CALLS):  # where nobody writes, all is well
        f(x, x[1:])


def test_a_recording_of_tensors_apart_refuses_views_of_one_another():
    f = jit(lambda a, b: a.add_(b))
    for _ in range(3):
        f(Tensor([1.0, 2.0]), Tensor([3.0, 4.0]))
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    with pytest.raises(UsageError, match="view of the same memory"):
        f(x[0], x[1])
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_memory_that_is_reached_from_outside_too_is_refused():
    x = Tensor([1.0, 2.0]).realize()
    f = jit(lambda a: a.add_(x))
    with pytest.raises(UsageError, match="from outside as well"):
        f(x)
    with pytest.raises(UsageError, match="from outside as well"):
        jit(lambda a: (x * 2).realize() + a.add_(1.0))(x)
    for _ in range(CALLS):
        f(Tensor([1.0, 1.0]))
    with pytest.raises(UsageError, match="from outside as well"):
        f(x)
    with pytest.raises(UsageError, match="from outside as well"):
        f(x[:2])


def test_assigning_after_writing_in_place_is_refused_where_there_are_views():
    def f(x):
        x.add_(1.0)
        x.assign(x * 2)

    agree(f, same_tensor)
    x = Tensor([1.0, 2.0]).realize()
    view = x[:1]
    with pytest.raises(UsageError, match="there are views of it"):
        jit(f)(x)
    assert view.tolist()


def test_a_reshaped_argument_is_written_only_where_its_elements_lie_in_order():
    f, x = jit(through_a_reshape), Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    for _ in range(CALLS):
        f(x)
    with pytest.raises(UsageError, match="contiguous"):
        f(x.T)


def test_an_argument_that_becomes_another_view_is_refused():
    for change in (lambda x: x.t_(), lambda x: x.unsqueeze_(0)):
        with pytest.raises(UsageError, match="another view"):
            jit(change)(Tensor([[1.0, 2.0], [3.0, 4.0]]).realize())


def test_a_checked_recording_may_write_to_its_arguments():
    before = config.current()
    config.use(replace(before, jit_check=True))
    try:
        for calls in (same_tensor, parts, reshaped):
            agree(old_and_new, calls)
    finally:
        config.use(before)


def test_the_recording_writes_to_the_argument_itself():
    f = jit(lambda x: (x.add_(1.0), None)[1])
    x = Tensor([1.0] * 64).realize()
    memory = x.node.arg.buffer
    for _ in range(CALLS):
        f(x)
    assert x.node.arg.buffer is memory and f.kernels == 1


@pytest.mark.parametrize("axis", [0, None])
def test_arguments_on_several_devices_that_compute_together_are_written(axis):
    def calls():
        rows = Tensor([[1.0, 2.0], [3.0, 4.0]])
        x = rows.shard(("CPU:0", "CPU:1"), axis=axis).realize()
        w = rows.shard(("CPU:0", "CPU:1")).realize()
        for _ in range(CALLS):
            yield (x, w), (x, w)

    def f(x, w):
        x.add_(1.0).realize()
        w.sub_(x.sum(0) * 0.1).realize()
        return (x @ w).realize()

    agree(f, calls)


@pytest.mark.thorough
def test_arguments_on_two_devices_are_written_where_they_are():
    def calls():
        x = Tensor([1.0, 2.0]).realize()
        y = Tensor([3.0, 4.0]).to("CPU:1").realize()
        for _ in range(CALLS):
            yield (x, y), (x, y)

    def f(x, y):
        x.add_(y.to(x.device)).realize()
        return y.mul_(x.to(y.device)).realize()

    agree(f, calls)


@pytest.mark.parametrize("donate", [(), 0])
def test_a_recording_keeps_no_memory_of_the_arguments_that_it_was_made_with(donate):
    def step(x):
        x.add_(1.0)
        x[0] = 2.0
        return x * 3.0

    f, held = jit(step, donate=donate), []
    for _ in range(CALLS):
        x = Tensor([1.0, 2.0]).realize()
        held.append(weakref.ref(x.node.arg.buffer))
        f(x)
    del x
    gc.collect()
    assert [ref() for ref in held] == [None] * CALLS
