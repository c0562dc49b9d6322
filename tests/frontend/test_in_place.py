"""In place: what ends in _ writes where a tensor is, and whoever views the same elements sees it."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import hcq
from hcq import Tensor, UsageError, Variable, dtypes, jit, no_grad
from hcq.frontend.ops.in_place import NAMES, VIEWS
from hcq.frontend.ops.other_names import OTHER_NAMES
from hcq.frontend.ops.synonyms import Synonyms

START = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def one() -> Tensor:
    return Tensor(START)


def index() -> Tensor:
    return hcq.tensor([[0, 1, 0], [1, 0, 1]])


ARGUMENTS = {
    "addcdiv": lambda: (one(), one()),
    "addcmul": lambda: (one(), one()),
    "addr": lambda: (Tensor([1.0, 2.0]), Tensor([3.0, 4.0, 5.0])),
    "addmm": lambda: (Tensor.ones(2, 4), Tensor.ones(4, 3)),
    "clamp": lambda: (2.0, 4.0),
    "clip": lambda: (2.0, 4.0),
    "clamp_max": lambda: (3.0,),
    "clamp_min": lambda: (3.0,),
    "cumprod": lambda: (1,),
    "cumsum": lambda: (0,),
    "fill": lambda: (7.0,),
    "hardtanh": lambda: (),
    "index_add": lambda: (0, hcq.tensor([1, 0]), one()),
    "index_copy": lambda: (0, hcq.tensor([1, 0]), one()),
    "index_fill": lambda: (1, hcq.tensor([0, 2]), 9.0),
    "index_put": lambda: ((hcq.tensor([0, 1]), hcq.tensor([2, 0])), Tensor([8.0, 9.0])),
    "index_reduce": lambda: (0, hcq.tensor([1, 0]), one(), "prod"),
    "lerp": lambda: (one() * 2, 0.5),
    "masked_fill": lambda: (one() > 2, 0.0),
    "masked_scatter": lambda: (one() > 2, Tensor.arange(6).float()),
    "mvlgamma": lambda: (1,),
    "put": lambda: (hcq.tensor([0, 5]), Tensor([8.0, 9.0])),
    "renorm": lambda: (2, 0, 1.0),
    "scatter": lambda: (0, index(), one()),
    "scatter_add": lambda: (0, index(), one()),
    "scatter_reduce": lambda: (0, index(), one(), "amax"),
    "threshold": lambda: (3.0, 9.0),
    "celu": lambda: (),
    "elu": lambda: (),
    "leaky_relu": lambda: (),
    "logit": lambda: (0.1,),
    "round": lambda: (),
    "nan_to_num": lambda: (),
}
WHOLE = {
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "gcd",
    "lcm",
    "bitwise_not",
}
OTHER_SHAPES = {"addbmm", "addmv", "baddbmm", "polygamma"}


def arguments(name: str) -> tuple[object, ...]:
    if name in ARGUMENTS:
        return ARGUMENTS[name]()
    method = getattr(Tensor, OTHER_NAMES.get(name, name))
    required = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty][1:]
    return tuple(one().cast(dtypes.int64) if name in WHOLE else one() for _ in required)


@pytest.mark.sampled(45)
@pytest.mark.parametrize("name", sorted(set(NAMES) - OTHER_SHAPES))
def test_the_form_with_an_underscore_leaves_what_the_other_gives(name):
    x = one().cast(dtypes.int64) if name in WHOLE else one()
    expected = getattr(x, OTHER_NAMES.get(name, name))(*arguments(name)).cast(x.dtype).numpy()
    view = x.view(6)
    assert getattr(x, f"{name}_")(*arguments(name)) is x
    np.testing.assert_array_equal(x.numpy(), expected)
    np.testing.assert_array_equal(view.numpy(), expected.reshape(6))


def test_products_in_place_have_the_shape_of_the_sum():
    x, batch = Tensor.ones(2, 2), Tensor.ones(3, 2, 2)
    assert x.addbmm_(batch, batch).tolist() == [[7.0, 7.0], [7.0, 7.0]]
    assert batch.baddbmm_(batch, batch).shape == (3, 2, 2)
    assert Tensor([1.0, 1.0]).addmv_(Tensor.ones(2, 2), Tensor.ones(2)).tolist() == [3.0, 3.0]


# a view of a tensor, and the same of an array where NumPy has another name for it
VIEWED = {
    "a row": (lambda x: x[1],),
    "a column": (lambda x: x[:, 0],),
    "a slice with a step": (lambda x: x[:, ::2],),
    "transposed": (lambda x: x.T,),
    "reshaped": (lambda x: x.reshape(3, 2),),
    "a part, reshaped": (lambda x: x[:, 1:].unsqueeze(0), lambda x: x[None, :, 1:]),
    "detached": (lambda x: x.detach(), lambda x: x),
    "narrowed": (lambda x: x.narrow(1, 1, 2), lambda x: x[:, 1:]),
    "unbound": (lambda x: x.unbind(1)[2], lambda x: x[:, 2]),
    "split": (lambda x: x.split(2, 1)[0], lambda x: x[:, :2]),
    "a view of a view": (lambda x: x.T[1:].T[0],),
    "a diagonal": (lambda x: x.diagonal(1), lambda x: x.reshape(6)[1::4]),
    "moved": (lambda x: x.movedim(0, 1)[2], lambda x: x.T[2]),
}
MADE = {"in memory": one, "lazy": lambda: one() * 1, "a constant": lambda: Tensor.full((2, 3), 5.0)}


@pytest.mark.sampled(40)
@pytest.mark.parametrize(
    "read", ["none is read before", "the whole is read before", "the view is read before"]
)
@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("view", VIEWED)
def test_a_write_to_a_view_is_seen_in_the_whole_and_a_write_to_the_whole_in_the_view(view, made, read):
    x = MADE[made]()
    expected = MADE[made]().numpy().copy()
    part, other = VIEWED[view][0](x), VIEWED[view][-1](expected)
    if read != "none is read before":
        (part if "view" in read else x).numpy()
    before = x + 0
    part.mul_(10.0).add_(1.0)
    other *= 10.0
    other += 1.0
    np.testing.assert_array_equal(x.numpy(), expected)
    x.sub_(2.0)
    np.testing.assert_array_equal(part.numpy(), other - 2.0)
    np.testing.assert_array_equal(before.numpy(), MADE[made]().numpy())


def test_what_needs_a_copy_elsewhere_is_a_tensor_of_its_own():
    x = one()
    for copy in (x.T.reshape(6), x.flip(0), x.clone(), x + 0, x.repeat(1, 1), x[[0, 1]], x.abs(), x.floor()):
        copy.zero_()
        assert not copy.numpy().any() and x.tolist() == START
    numbers = hcq.tensor([1, 2])
    for same in (numbers.floor(), numbers.abs() * 1, numbers.round(), numbers.nan_to_num(), numbers.trunc()):
        same.zero_()
        assert numbers.tolist() == [1, 2]


def test_views_of_what_is_gone_and_parts_by_number_see_what_is_written_though_one_was_computed_first():
    y = one() + 1
    row, column, same = y[0], y.T[2], y.detach()
    del y
    assert row.tolist() == [2.0, 3.0, 4.0]
    column.add_(10.0)
    assert row.tolist() == [2.0, 3.0, 14.0] and same.tolist() == [[2.0, 3.0, 14.0], [5.0, 6.0, 17.0]]
    y, n = one() + 1, Variable("n", 1, 2)
    first = y[: n.bind(1)]
    assert first.tolist() == [[2.0, 3.0, 4.0]]
    first.zero_()
    assert y.tolist() == [[0.0, 0.0, 0.0], [5.0, 6.0, 7.0]]


def test_equal_tensors_that_were_made_apart_stay_apart():
    a = one()
    x, y = a + 1, a + 1
    x.realize(y)
    x[0].zero_()
    x.add_(1)
    assert (x.tolist(), y.tolist()) == ([[1.0] * 3, [6.0, 7.0, 8.0]], [[2.0, 3.0, 4.0], [5.0, 6.0, 7.0]])


def test_operators_with_equals_write_in_place_too():
    x = y = hcq.tensor([7, 2])
    x += 1
    x *= 3
    x -= 2
    x //= 2
    x %= 8
    x |= 1
    x <<= 1
    assert y is x and y.tolist() == [
        ((((7 + 1) * 3 - 2) // 2 % 8) | 1) << 1,
        ((((2 + 1) * 3 - 2) // 2 % 8) | 1) << 1,
    ]
    z = Tensor([4.0])
    z /= 8
    z **= 2
    assert z.tolist() == [0.25]


def test_a_result_of_another_dtype_or_shape_is_refused():
    with pytest.raises(
        UsageError, match=r"\[add_\] the result is float32, which a int64 tensor does not hold"
    ):
        hcq.tensor([1]).add_(0.5)
    with pytest.raises(UsageError, match=r"\[mul_\] the result has the shape \(2, 3\), the tensor \(3,\)"):
        Tensor([1.0, 2.0, 3.0]).mul_(one())
    with pytest.raises(UsageError, match="one element in memory"):
        x = Tensor([1.0, 2.0])
        x.expand(3, 2).add_(1)
    with pytest.raises(TypeError, match=r"abs_\(\) takes 1 positional argument"):
        one().abs_(2)
    assert Tensor([1.5]).eq_(1.5).tolist() == [1.0]
    assert Tensor([1.0, 2.0]).copy_(hcq.tensor([3])).tolist() == [3.0, 3.0]


def test_a_leaf_is_changed_under_no_grad_only():
    w = Tensor([1.0, 2.0], requires_grad=True)
    for write in (lambda: w.add_(1), lambda: w[0].zero_(), lambda: w.detach().requires_grad_().mul_(2)):
        with pytest.raises(UsageError, match=r"a leaf of shape \(2,\) that requires a gradient"):
            write()
    with no_grad():
        w.add_(1)
        w[0].mul_(5)
    assert w.tolist() == [10.0, 3.0] and w.requires_grad
    (w * w).sum().backward()
    assert w.grad.tolist() == [20.0, 6.0]


def test_gradients_flow_through_what_was_written():
    w = Tensor([2.0, 3.0], requires_grad=True)
    x = Tensor.zeros(2, 2)
    x[0].copy_(w * 3)
    row = x[1]
    row.add_(w)
    x.mul_(2)
    (x * x).sum().backward()
    assert x.tolist() == [[12.0, 18.0], [4.0, 6.0]] and row.tolist() == [4.0, 6.0]
    assert w.grad.tolist() == [2 * (12 * 6 + 4 * 2), 2 * (18 * 6 + 6 * 2)]


@pytest.mark.parametrize("name", VIEWS)
def test_a_tensor_becomes_its_own_view(name):
    x = Tensor([[1.0, 2.0, 3.0]])
    given = {"squeeze": (0,), "unsqueeze": (1,), "t": (), "detach": ()}.get(name, (0, 1))
    expected, other = getattr(x, OTHER_NAMES.get(name, name))(*given), x.view(3)
    assert getattr(x, f"{name}_")(*given) is x
    assert x.tolist() == expected.tolist()
    x.add_(1)
    assert other.tolist() == [2.0, 3.0, 4.0]


def test_the_diagonal_is_filled_as_numpy_fills_it():
    for shape, wrap in (((3, 3), False), ((7, 3), True), ((7, 3), False), ((3, 7), True), ((2, 2, 2), False)):
        expected = np.zeros(shape, np.float32)
        np.fill_diagonal(expected, 5, wrap)
        np.testing.assert_array_equal(Tensor.zeros(*shape).fill_diagonal_(5, wrap).numpy(), expected)


def test_second_names_are_the_same_methods():
    x = Tensor([3.0, -4.0])
    given = {"swapdims": (0, 0), "narrow_copy": (0, 1, 1), "unsafe_split": (1,), "unsafe_chunk": (2,)}
    for name, first in OTHER_NAMES.items():
        takes_one = len(inspect.signature(getattr(Tensor, name)).parameters) > 1
        args = given.get(name, (2.0,) if takes_one else ())
        assert str(getattr(x, name)(*args)) == str(getattr(x, first)(*args)), name
    assert set(OTHER_NAMES) <= set(vars(Synonyms))


def outside(state, a):
    state.add_(a)
    return state.sum()


def parts(state, a):
    state[1].mul_(2)
    state[0] += a[0]
    return state * 1


def through_a_view(state, a):
    seen = state.view(2, 2)
    seen.t_()
    return seen.add_(a).sum()


def new_memory(state, a):
    z = Tensor.zeros(2, 2)
    z[0].copy_(state[:2])
    z[1, 1] = a[0]
    return z


@pytest.mark.parametrize("body", [outside, parts, through_a_view, new_memory])
def test_a_recording_writes_where_the_function_writes_and_views_outside_see_it(body):
    found = []
    for wrap in (lambda f: f, jit):
        state = Tensor([1.0, 2.0, 3.0, 4.0])
        view = state[0:2]
        function = wrap(lambda a, state=state: body(state, a))
        rows = []
        for _ in range(4):
            result = function(Tensor([1.0]))
            later = state[1:]
            rows.append((state.tolist(), view.tolist(), later.tolist(), result.tolist()))
        found.append(rows)
    assert found[0] == found[1]
