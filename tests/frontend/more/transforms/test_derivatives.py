"""Derivatives of functions: both directions say the same, every order, and by one argument alone."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
from hcq import Tensor, UsageError, func, jit, no_grad
from tests.frontend.more.transforms.functions import Function, numbers, table


@table
def test_the_two_directions_are_each_others_transpose(function: Function, shape: tuple[int, ...]):
    x, direction = numbers(*shape), numbers(*shape, seed=1)
    y, change = func.jvp(function, (x,), (direction,))
    assert np.array_equal(y.numpy(), function(x).numpy())
    weights = numbers(*y.shape, seed=2)
    _, back = func.vjp(function, x)
    forwards, backwards = (weights * change).sum().item(), (back(weights)[0] * direction).sum().item()
    assert forwards == pytest.approx(backwards, rel=1e-4, abs=1e-5)


@table
def test_a_jacobian_is_the_same_by_rows_and_by_columns(function: Function, shape: tuple[int, ...]):
    x = numbers(*shape)
    rows, columns = func.jacrev(function)(x), func.jacfwd(function)(x)
    assert rows.shape == (*function(x).shape, *shape) == columns.shape
    np.testing.assert_allclose(rows.numpy(), columns.numpy(), rtol=1e-4, atol=1e-5)


@table
def test_a_step_changes_the_result_as_the_derivative_says(function: Function, shape: tuple[int, ...]):
    x, direction = numbers(*shape).double(), numbers(*shape, seed=1).double()
    _, change = func.jvp(function, (x,), (direction,))
    up, down = (function(x + direction * step) for step in (1e-5, -1e-5))
    np.testing.assert_allclose(change.numpy(), ((up - down) / 2e-5).numpy(), rtol=1e-3, atol=2e-4)


def test_the_second_derivatives_of_a_quadratic_form_are_its_matrix():
    matrix = numbers(4, 4)
    found = func.hessian(lambda x: (x @ matrix @ x) / 2)(numbers(4, seed=1))
    np.testing.assert_allclose(found.numpy(), ((matrix + matrix.T) / 2).numpy(), rtol=1e-5)


def test_derivatives_nest_to_any_order():
    third = func.grad(func.grad(func.grad(lambda x: x**5)))
    assert third(Tensor(2.0)).item() == pytest.approx(60 * 4.0)


def test_a_derivative_is_by_the_argument_alone():
    x = Tensor([2.0])
    assert func.grad(lambda y: (x * y).sum())(x).tolist() == [2.0]
    # an inner function's argument of the same value is another argument
    nested = func.grad(lambda x: x.sum() * func.grad(lambda y: (x * y).sum())(Tensor([2.0])).sum())
    assert nested(x).tolist() == [4.0]
    before = func.grad(lambda x: (x**3).sum())(x)
    assert func.grad(lambda x: (x * before).sum())(x).tolist() == [12.0]


def test_nothing_is_written_to_the_grad_of_a_tensor():
    x = Tensor([1.0], requires_grad=True)
    func.grad(lambda x: (x * x).sum())(x)
    assert x.grad is None


def test_arguments_and_results_are_trees():
    def step(parameters: dict[str, Tensor], x: Tensor) -> dict[str, Tensor]:
        return {"sum": (parameters["w"] * x).sum(), "bias": parameters["b"]}

    parameters = {"w": Tensor([1.0, 2.0]), "b": Tensor([3.0])}
    found = func.jacrev(step, argnums=(0, 1))(parameters, Tensor([5.0, 7.0]))
    of_parameters, of_x = found["sum"]
    assert of_parameters["w"].tolist() == [5.0, 7.0]
    assert of_parameters["b"].tolist() == [0.0]
    assert of_x.tolist() == [1.0, 2.0]
    assert found["bias"][0]["b"].tolist() == [[1.0]]


def test_what_is_kept_beside_the_result_is_passed_on():
    x = Tensor([3.0])
    function = lambda x: ((x * x).sum(), x + 1.0)  # noqa: E731
    slope, (value, aux) = func.grad_and_value(function, has_aux=True)(x)
    assert (slope.tolist(), value.item(), aux.tolist()) == ([6.0], 9.0, [4.0])
    assert func.vjp(function, x, has_aux=True)[2].tolist() == [4.0]


def test_what_is_computed_inside_may_be_put_in_memory_there():
    def function(x: Tensor) -> Tensor:
        doubled = (x * 2.0).realize()
        return (doubled.exp().realize() * x).sum()

    x = numbers(3)
    np.testing.assert_allclose(
        func.grad(function)(x).numpy(), ((2 * x + 1) * (2 * x).exp()).numpy(), rtol=1e-5
    )


def test_a_change_of_rows_can_be_taken_in_pieces():
    x = numbers(7)
    whole, pieces = (func.jacrev(lambda x: x.cumprod(0), chunk_size=size)(x).numpy() for size in (None, 3))
    assert np.array_equal(whole, pieces)


def test_a_linear_map_is_kept_without_calling_the_function_again():
    calls = []

    def function(x: Tensor) -> Tensor:
        calls.append(x)
        return x.sin()

    x = numbers(3)
    _, forward = func.linearize(function, x)
    for seed in (1, 2):
        direction = numbers(3, seed=seed)
        np.testing.assert_allclose(forward(direction).numpy(), (x.cos() * direction).numpy(), rtol=1e-6)
    assert len(calls) == 1


def test_a_recording_holds_a_derivative_and_a_derivative_holds_a_recorded_function():
    square = jit(lambda x: (x * x).sum())
    recorded = jit(func.grad(square))
    for value in (1.0, 2.0, 3.0, 4.0):
        assert recorded(Tensor([value])).tolist() == [2 * value]
    assert recorded.kernels == 1


def test_no_grad_inside_cuts_and_around_it_does_not():
    def function(x: Tensor) -> Tensor:
        with no_grad():
            constant = x * 10.0
        return (x * constant).sum()

    x = Tensor([2.0])
    assert func.grad(function)(x).tolist() == [20.0]
    with no_grad():
        assert func.grad(lambda x: (x * x).sum())(x).tolist() == [4.0]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: func.grad(lambda x: x * 2)(Tensor([1.0, 2.0])), r"\[grad\] .* float32 of shape \(2,\)"),
        (lambda: func.grad(lambda x: x.sum())(hcq.tensor([1])), r"\[grad\] argument tensor 0, int64"),
        (lambda: func.grad(lambda x: x.sum(), argnums=1)(Tensor([1.0])), r"argnums=1: .* 1 positional"),
        (lambda: func.grad(lambda x: 3.0)(Tensor([1.0])), r"returned 3.0: it has to return tensors"),
        (
            lambda: func.jvp(lambda x: x, (Tensor([1.0]),), (Tensor([1.0, 2.0]),)),
            r"\[jvp\] tangents of shapes",
        ),
        (
            lambda: func.jvp(lambda x: x, Tensor([1.0]), Tensor([1.0])),
            r"\[jvp\] primals and tangents are tuples",
        ),
        (lambda: func.vjp(lambda x: x, Tensor([1.0]))[1](Tensor([1.0, 2.0])), r"\[vjp\] weights of shapes"),
        (lambda: func.jacrev(lambda x: x > 0)(Tensor([1.0])), r"\[jacrev\] result 0, bool"),
    ],
)
def test_what_has_no_derivative_is_refused_with_its_name(call, says):
    with pytest.raises(UsageError, match=says):
        call()


def test_every_transform_is_a_name_of_the_package():
    assert hcq.func.vmap is hcq.vmap
    assert {"grad", "value_and_grad", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "vmap"} <= set(
        dir(hcq.func)
    )
