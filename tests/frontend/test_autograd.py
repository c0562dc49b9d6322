"""What programs of PyTorch ask of gradients: custom functions, hooks, .data, grad_fn, backward's arguments."""

from __future__ import annotations

import pytest

import hcq
from hcq import Tensor, UsageError
from hcq.torch.autograd import Function, Variable, gradcheck


class Exp(Function):
    """A function that keeps its result."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class Both(Function):
    """A function of several arguments and results, one of which has no gradient."""

    @staticmethod
    def forward(ctx, a, b, factor):
        ctx.save_for_backward(a, b)
        ctx.factor = factor
        place = a.argmax()
        ctx.mark_non_differentiable(place)
        return a * b * factor, a + b, place

    @staticmethod
    def backward(ctx, of_product, of_sum, of_place):
        a, b = ctx.saved_tensors
        of_b = of_product * a * ctx.factor + of_sum if ctx.needs_input_grad[1] else None
        return of_product * b * ctx.factor + of_sum, of_b, None


class Cube(Function):
    """A function whose forward takes no ctx."""

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * x * x


def leaf(*numbers: float) -> Tensor:
    return Tensor(list(numbers), requires_grad=True)


def test_the_gradient_of_a_custom_function_is_what_its_backward_says():
    x, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    product, total, place = Both.apply(x, b, 2.0)
    (product.sum() * 2 + (total * total).sum()).backward()
    assert x.grad.tolist() == [20.0, 28.0] and b.grad.tolist() == [12.0, 20.0]
    assert place.item() == 1 and not place.requires_grad
    y = Exp.apply(x)
    assert y.requires_grad and not Exp.apply(x.detach()).requires_grad
    with hcq.no_grad():
        assert not Exp.apply(x).requires_grad


def test_a_custom_functions_gradient_has_a_gradient():
    x = leaf(1.0, 2.0)
    (slope,) = hcq.torch.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
    assert slope.tolist() == [3.0, 12.0]
    assert hcq.torch.autograd.grad(slope.sum(), x)[0].tolist() == [6.0, 12.0]
    (of_exp,) = hcq.torch.autograd.grad(Exp.apply(x).sum(), x, create_graph=True)
    assert hcq.torch.autograd.grad(of_exp.sum(), x)[0].tolist() == Exp.apply(x).tolist()


def test_a_custom_function_is_recorded_with_the_step_that_it_is_in():
    x = leaf(1.0, 2.0)

    @hcq.jit
    def step(scale):
        x.grad = None
        (Cube.apply(x) * scale).sum().backward()
        return x.grad.realize()

    assert [step(Tensor([k])).tolist() for k in (1.0, 2.0, 3.0, 4.0)][-1] == [12.0, 48.0]


def test_a_backward_that_gives_the_wrong_gradients_is_refused():
    class Wrong(Cube):
        @staticmethod
        def backward(ctx, g):
            return g.sum()

    class Few(Both):
        @staticmethod
        def backward(ctx, *gradients):
            return gradients[0]

    x = leaf(1.0, 2.0)
    with pytest.raises(UsageError, match=r"\[Wrong.backward\] gradient 0 is .* an argument of shape \(2,\)"):
        Wrong.apply(x).sum().backward()
    with pytest.raises(UsageError, match="it gives 1 gradients, and forward has an argument 1"):
        Few.apply(x, x, 1.0)[0].sum().backward()
    with pytest.raises(UsageError, match="output 0, element 0, by input 0, element 0: the gradient is 6"):
        gradcheck(lambda x: Doubled.apply(x), Tensor([1.0], dtype=hcq.float64, requires_grad=True))


class Doubled(Cube):
    """A wrong derivative."""

    @staticmethod
    def backward(ctx, g):
        return 2 * Cube.backward(ctx, g)


def test_gradcheck_compares_with_differences_of_values():
    x = Tensor([1.0, 2.0], dtype=hcq.float64, requires_grad=True)
    assert gradcheck(Cube.apply, (x,)) and gradcheck(lambda x: (x.sin(), x * x), (x,))
    assert not gradcheck(Doubled.apply, (x,), raise_exception=False)


def test_a_hook_sees_a_gradient_and_may_change_it():
    x = leaf(1.0, 2.0)
    y = x * 2
    loss, seen = (y * y).sum(), []
    handle = y.register_hook(lambda g: seen.append(g.tolist()) or g * 2)  # after the loss was computed
    y.retain_grad()
    leaf_handle = x.register_hook(lambda g: g + 1)
    loss.backward(retain_graph=True)
    assert seen == [[4.0, 8.0]] and y.grad.tolist() == [8.0, 16.0] and x.grad.tolist() == [17.0, 33.0]
    handle.remove()
    leaf_handle.remove()
    x.grad = None
    loss.backward()
    assert x.grad.tolist() == [8.0, 16.0] and len(seen) == 1
    with pytest.raises(UsageError, match="does not require a gradient gets none"):
        Tensor([1.0]).register_hook(print)


def test_what_is_computed_from_a_leaf_requires_a_gradient():
    x = leaf(1.0, 2.0)
    y = x * 2
    assert y.requires_grad and not y.is_leaf and y.grad_fn.name() == "MulBackward" and x.grad_fn is None
    assert (y.realize() + 1).requires_grad
    flat = (y.detach(), y > 1, (y > 1).float(), y.argmax(), Tensor([1.0]) * 2)
    assert not any(one.requires_grad for one in flat) and all(one.is_leaf for one in flat)
    x.requires_grad_(False)
    assert not (x * 2).requires_grad


def test_data_is_the_same_memory_without_gradients():
    w = leaf(1.0, 2.0)
    w.data.mul_(10.0)
    w.data[0] = 5.0
    w.data -= 1.0
    assert w.tolist() == [4.0, 19.0] and w.requires_grad and w.is_leaf and not w.data.requires_grad
    w.data = Tensor([1.0, 2.0, 3.0])
    assert w.shape == (3,) and w.requires_grad
    (w * w).sum().backward()
    assert w.grad.data.tolist() == [2.0, 4.0, 6.0]
    with pytest.raises(UsageError, match="is not changed in place"):
        w.mul_(2.0)


def test_backward_takes_what_it_takes_in_pytorch():
    x, y = leaf(3.0), leaf(2.0)
    (x * x * y).sum().backward(create_graph=True, inputs=[x])
    assert y.grad is None and x.grad.tolist() == [12.0]
    (second,) = hcq.torch.autograd.grad(x.grad.sum(), x)
    assert second.tolist() == [4.0]
    z = leaf(1.0)
    found = hcq.torch.autograd.grad(x.sum() * 2, (x, z), retain_graph=True, allow_unused=True)
    assert found[0].tolist() == [2.0] and found[1] is None
    assert hcq.torch.autograd.grad(x.sum(), (z,), materialize_grads=True)[0].tolist() == [0.0]


def test_a_variable_is_a_tensor():
    x = Tensor([1.0])
    assert Variable(x) is x and isinstance(x, Variable) and Variable(x, requires_grad=True).requires_grad
    assert not Variable(leaf(1.0), volatile=True).requires_grad
