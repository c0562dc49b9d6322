"""vmap: for every example what the function gives for it alone, and one call for all."""

from __future__ import annotations

import numpy as np
import pytest

from hcq import Tensor, UsageError, func, jit, nn, vmap
from tests.frontend.more.transforms.functions import Function
from tests.frontend.more.transforms.test_derivatives import numbers, table

SIZE = 3


@table
def test_each_example_is_as_if_alone(function: Function, shape: tuple[int, ...]):
    batch = numbers(SIZE, *shape)
    found = vmap(function)(batch).numpy()
    alone = np.stack([function(batch[number]).numpy() for number in range(SIZE)])
    np.testing.assert_allclose(found, alone, rtol=1e-5, atol=1e-6)


@table
def test_the_gradient_of_each_example_and_the_gradient_of_all_together_agree(
    function: Function, shape: tuple[int, ...]
):
    batch = numbers(SIZE, *shape)
    one = lambda x: function(x).sin().sum()  # noqa: E731
    each = vmap(func.grad(one))(batch).numpy()
    together = func.grad(lambda batch: vmap(one)(batch).sum())(batch).numpy()
    np.testing.assert_allclose(each, together, rtol=1e-4, atol=1e-5)


def test_the_axis_of_examples_may_be_any_on_both_sides():
    a, b = numbers(2, SIZE, 4), numbers(4, 5)
    product = vmap(lambda a, b: a @ b, in_dims=(1, None), out_dims=-1)(a, b)
    np.testing.assert_allclose(product.numpy(), np.einsum("inj,jk->ikn", a.numpy(), b.numpy()), rtol=1e-5)


def test_arguments_may_be_nested_and_so_are_their_axes():
    def function(pair: tuple[Tensor, Tensor], scale: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sum": (pair[0] + pair[1]) * scale["by"], "by": scale["by"]}

    a, b, by = numbers(SIZE, 2), numbers(2, SIZE), numbers(2)
    found = vmap(function, in_dims=((0, 1), {"by": None}))((a, b), {"by": by})
    np.testing.assert_allclose(found["sum"].numpy(), (a.numpy() + b.numpy().T) * by.numpy(), rtol=1e-6)
    assert np.array_equal(found["by"].numpy(), np.stack([by.numpy()] * SIZE))


def test_batches_of_batches():
    a, b = numbers(4), numbers(5)
    table = vmap(vmap(lambda a, b: a * b + a, in_dims=(None, 0)), in_dims=(0, None))(a, b)
    np.testing.assert_allclose(table.numpy(), a.numpy()[:, None] * b.numpy() + a.numpy()[:, None], rtol=1e-6)


def test_pieces_of_a_batch_give_what_the_batch_gives():
    batch = numbers(7, 3)
    whole, pieces = (vmap(lambda x: x.softmax(0), chunk_size=size)(batch).numpy() for size in (None, 3))
    assert np.array_equal(whole, pieces)


def test_random_numbers_are_each_examples_own_or_the_same_or_refused():
    batch = Tensor.zeros(SIZE, 16)

    def function(x: Tensor) -> Tensor:
        return x + Tensor.rand(16)

    own = vmap(function, randomness="different")(batch).numpy()
    assert len({row.tobytes() for row in own}) == SIZE
    same = vmap(function, randomness="same")(batch).numpy()
    assert len({row.tobytes() for row in same}) == 1
    with pytest.raises(UsageError, match=r"\[vmap\] the function draws random numbers"):
        vmap(function)(batch)
    nested = vmap(vmap(function, randomness="same"), randomness="different")(
        Tensor.zeros(2, SIZE, 16)
    ).numpy()
    assert len({row.tobytes() for row in nested.reshape(2 * SIZE, 16)}) == 2


def test_an_ensemble_is_each_of_its_modules():
    nets = [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)) for _ in range(SIZE)]
    state = func.stack_module_state(nets)
    x = numbers(5, 4)
    found = vmap(lambda *state: func.functional_call(nets[0], state, x))(*state)
    alone = np.stack([net(x).numpy() for net in nets])
    np.testing.assert_allclose(found.numpy(), alone, rtol=1e-4, atol=1e-6)


def test_a_module_has_its_own_parameters_again_after_a_call_that_fails():
    net = nn.Linear(2, 1)
    weight = net.weight.numpy()
    with pytest.raises(UsageError):
        func.functional_call(net, {"weight": Tensor([[1.0, 2.0]])}, Tensor([1.0, 2.0, 3.0]))
    assert np.array_equal(net.weight.numpy(), weight)
    assert net.weight.requires_grad
    with pytest.raises(UsageError, match=r"Linear has no 'wieght'. Its names: weight, bias"):
        func.functional_call(net, {"wieght": Tensor([[1.0, 2.0]])}, Tensor([1.0, 2.0]))


def test_gradients_of_single_examples_are_one_recording():
    net = nn.Linear(3, 1)
    state = net.state_dict()

    def loss(state: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return ((func.functional_call(net, state, x) - y) ** 2).sum()

    each = jit(lambda x, y: vmap(func.grad(loss), in_dims=(None, 0, 0))(state, x, y))
    for seed in range(4):
        x, y = numbers(5, 3, seed=seed), numbers(5, 1, seed=seed + 1)
        found = each(x, y)["weight"].numpy()
        error = 2 * (x.numpy() @ net.weight.numpy().T + net.bias.numpy() - y.numpy())
        np.testing.assert_allclose(found, error[:, :, None] * x.numpy()[:, None, :], rtol=1e-4, atol=1e-5)
    assert each.kernels > 0


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: x * x.sum().item(), "values of one example"),
        (lambda x: x if x.sum() > 0 else -x, "values of one example"),
        (lambda x: Tensor(x.numpy()), "values of one example"),
        (lambda x: (x * 2.0).realize(), "values of one example"),
        (lambda x: 3.0, "has to return tensors"),
    ],
)
def test_a_function_that_looks_at_values_is_refused(function, says):
    with pytest.raises(UsageError, match=says):
        vmap(function)(Tensor.ones(SIZE, 2))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: vmap(lambda a, b: a + b)(Tensor.ones(2), Tensor.ones(3)), r"batches of \[2, 3\] examples"),
        (lambda: vmap(lambda a: a, in_dims=1)(Tensor.ones(2)), r"shape \(2,\), and no axis 1"),
        (lambda: vmap(lambda a: a, in_dims=None)(Tensor.ones(2)), r"no argument is mapped"),
        (lambda: vmap(lambda a: a, in_dims=(0, 0))(Tensor.ones(2)), r"one for each of the 1 arguments"),
        (lambda: vmap(lambda a: a, out_dims=2)(Tensor.ones(2)), r"axis 2 is not from -1 to 0"),
        (lambda: vmap(lambda a: a, randomness="some")(Tensor.ones(2)), r"randomness='some'"),
        (lambda: vmap(lambda a: a, chunk_size=0)(Tensor.ones(2)), r"chunk_size=0"),
    ],
)
def test_wrong_axes_are_refused_with_the_shapes(call, says):
    with pytest.raises(UsageError, match=says):
        call()
