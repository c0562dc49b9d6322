"""backward() and grad() on tensors: what is accumulated, what is refused, and gradients through realized values."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import hcq
from hcq import Tensor, dtypes
from hcq.errors import UsageError
from hcq.frontend.grad.gradient import grad


def leaf(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Tensor:
    values = np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)
    return Tensor(values, requires_grad=True)


def test_backward_fills_the_gradients_of_the_leaves_it_came_from_and_no_others():
    x, y, other = leaf(3), leaf(3, seed=1), leaf(3, seed=2)
    (x * y).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.numpy())
    np.testing.assert_array_equal(y.grad.numpy(), x.numpy())
    assert other.grad is None


def test_backward_twice_adds_up():
    x = leaf(3)
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [5, 5, 5])


def test_a_gradient_given_weighs_the_elements():
    x = leaf(3)
    (x * x).backward(Tensor([1.0, 0.0, 10.0]))
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy() * [1, 0, 10], rtol=1e-6)


def test_a_value_that_was_realized_or_read_still_leads_to_its_leaves():
    x = leaf(3)
    y = (x * x).realize()
    z = y.exp()
    assert z.numpy().shape == (3,)
    loss = z.sum()
    loss.item()
    loss.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy() * np.exp(x.numpy() ** 2), rtol=1e-5)


def test_a_view_of_a_realized_value_leads_to_its_leaves():
    x = leaf(2, 3)
    y = (x * x).realize().transpose(0, 1).reshape(6)
    (y * Tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).sum().backward()
    weights = np.arange(1, 7).reshape(3, 2).T
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy() * weights, rtol=1e-6)


def test_equal_leaves_have_gradients_of_their_own():
    x, y = Tensor.ones(2, requires_grad=True), Tensor.ones(2, requires_grad=True)
    (x * 2 + y * 3).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2, 2])
    np.testing.assert_array_equal(y.grad.numpy(), [3, 3])


def test_a_leaf_made_from_a_computation_is_known_by_its_memory():
    x = (Tensor([1.0, 2.0]) * 3).requires_grad_()
    y = (x * x).realize()
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [6, 12])


def test_gradients_do_not_hold_the_graph_they_came_from():
    x = leaf(3)
    (x * x).sum().backward()
    with pytest.raises(UsageError, match="does not depend on a tensor that requires a gradient"):
        x.grad.sum().backward()


def test_values_overwritten_since_are_refused_and_not_silently_wrong():
    x = leaf(3)
    y = (x * x).sum().realize()
    x.assign(x.detach() * 0).realize()
    with pytest.raises(UsageError, match=r"written in place since \(assign, an optimizer's step\)"):
        y.backward()


def test_values_computed_because_their_source_is_overwritten_are_refused_too():
    x = leaf(3)
    y = (x * x).sum()
    x.assign(x.detach() * 0).realize()
    assert y.item() > 0
    with pytest.raises(UsageError, match="written in place since"):
        y.backward()


def test_scalars_of_every_rank_start_a_gradient():
    x = leaf(2, 2)
    (x * x).sum(dim=(0, 1), keepdim=True).backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy(), rtol=1e-6)


def test_gradients_come_in_the_dtype_of_their_leaf():
    x = Tensor([1.0, 2.0], dtype=dtypes.float16, requires_grad=True)
    (x.cast(dtypes.float32) * 3).sum().backward()
    assert x.grad.dtype is dtypes.float16
    np.testing.assert_array_equal(x.grad.numpy(), [3, 3])


def test_a_rectifier_passes_nothing_at_zero():
    x = Tensor([-1.0, 0.0, 2.0], requires_grad=True)
    x.relu().sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [0, 0, 1])


# -- grad -----------------------------------------------------------------------------------------------------------


def test_grad_returns_gradients_and_changes_nothing():
    x, y = leaf(3), Tensor([1.0, 2.0, 3.0])
    middle = x * y
    found = grad((middle * middle).sum(), [x, y, middle])
    np.testing.assert_allclose(found[0].numpy(), 2 * x.numpy() * y.numpy() ** 2, rtol=1e-6)
    np.testing.assert_allclose(found[1].numpy(), 2 * y.numpy() * x.numpy() ** 2, rtol=1e-6)
    np.testing.assert_allclose(found[2].numpy(), 2 * x.numpy() * y.numpy(), rtol=1e-6)
    assert x.grad is None


def test_grad_sums_over_several_outputs():
    x = leaf(3)
    (found,) = grad([x.sum(), x * x], x, [None, Tensor([1.0, 1.0, 0.0])])
    np.testing.assert_allclose(found.numpy(), 1 + 2 * x.numpy() * [1, 1, 0], rtol=1e-6)


def test_second_and_third_derivatives():
    x = leaf(4, low=0.5)
    (first,) = grad((x**4).sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x, create_graph=True)
    (third,) = grad(second.sum(), x)
    values = x.numpy()
    np.testing.assert_allclose(first.numpy(), 4 * values**3, rtol=1e-5)
    np.testing.assert_allclose(second.numpy(), 12 * values**2, rtol=1e-5)
    np.testing.assert_allclose(third.numpy(), 24 * values, rtol=1e-5)


def test_an_input_that_is_not_used_is_refused_or_none():
    x, y = leaf(3), leaf(3, seed=1)
    with pytest.raises(
        UsageError, match=r"\[grad\] input 1, float32 tensor of shape \(3,\): the outputs do not"
    ):
        grad(x.sum(), [x, y])
    assert grad(x.sum(), [x, y], allow_unused=True)[1] is None
    of_used, of_unused = grad(x.sum(), [x, y], materialize_grads=True)
    assert (of_used.tolist(), of_unused.tolist()) == ([1.0] * 3, [0.0] * 3)
    with pytest.raises(UsageError, match="int64 tensor of shape"):
        grad(x.sum(), hcq.tensor([1, 2]), materialize_grads=True)


# -- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: leaf(3).backward(),
            r"\[backward\] float32 tensor of shape \(3,\): a gradient starts from one",
        ),
        (lambda: (Tensor([1.0]) * 2).sum().backward(), r"requires_grad=True"),
        (
            lambda: hcq.tensor([1]).backward(),
            r"\[backward\] int64 tensor of shape \(1,\): only floating-point",
        ),
        (
            lambda: leaf(3).backward(Tensor([1.0])),
            r"with a gradient of shape \(1,\): the shapes must be equal",
        ),
        (lambda: grad(leaf(1), leaf(1), [None, None]), r"\[grad\] 1 outputs and 2 grad_outputs"),
    ],
    ids=range(5),
)
def test_a_mistake_is_answered_with_a_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()


# -- methods of Tensor against PyTorch ------------------------------------------------------------------------------

CALLS = {
    "exp": lambda x: x.exp(),
    "log": lambda x: x.abs().log(),
    "sqrt": lambda x: (x * x + 1).sqrt(),
    "sin cos": lambda x: x.sin() * x.cos(),
    "tanh sigmoid": lambda x: x.tanh() * x.sigmoid(),
    "pow": lambda x: x**3 + (x * x + 1) ** 0.3,
    "division": lambda x: x / (x * x + 2) + 3 / (x * x + 1),
    "abs": lambda x: x.abs(),
    "relu": lambda x: x.relu(),
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "maximum": lambda x: x.maximum(x * x),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(0),
    "logsumexp": lambda x: x.logsumexp(1),
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(0),
    "amax": lambda x: x.amax(1),
    "prod": lambda x: x.prod(1),
    "cumsum": lambda x: x.cumsum(1),
    "norm": lambda x: x.norm(),
    "reshape": lambda x: x.reshape(6, 2) * 2,
    "transpose": lambda x: x.transpose(0, 1) @ x,
    "expand": lambda x: x.unsqueeze(1).expand(4, 5, 3),
    "flip": lambda x: x.flip(0) * x,
    "slice": lambda x: x[1:, ::2],
    "index": lambda x: x[2] * x[:, 1].sum(),
    "where": lambda x: x * (x > 0),
    "matmul": lambda x: x @ x.transpose(0, 1) @ x,
    "roll": lambda x: x.roll(1, 0) * x,
    "tril": lambda x: x.tril() * x,
    "sort": lambda x: x.sort(1)[0] * x,
    "trunc": lambda x: x.trunc() + x,
    "floor": lambda x: x.floor() * x,
    "unfold": lambda x: x.unfold(0, 2, 1),
    "masked_fill": lambda x: x.masked_fill(x > 0.5, 0.0) * 2,
    "split": lambda x: x.split(2, 0)[1],
    "max along an axis": lambda x: x.max(1)[0],
}


@pytest.mark.torch
@pytest.mark.parametrize("name", CALLS)
def test_the_gradient_of_a_method_agrees_with_pytorch(name):
    torch = pytest.importorskip("torch")
    call = CALLS[name]
    values = np.random.default_rng(3).uniform(-2, 2, (4, 3)).astype(np.float32)
    x, y = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    ours, theirs = call(x), call(y)
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=1e-4, atol=1e-5)
    weights = np.random.default_rng(4).standard_normal(ours.shape).astype(np.float32)
    (ours * Tensor(weights)).sum().backward()
    (theirs * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-4, atol=1e-4)


KINKS = [
    "abs relu relu6 leaky_relu elu selu gelu silu mish softplus softsign hardtanh hardsigmoid hardswish".split(),
    "logsigmoid sigmoid tanh exp exp2 sinh cosh erf expm1 trunc floor ceil round".split(),
]
AT_KINKS = {
    **{name: (name, lambda x, name=name: getattr(x, name)()) for name in KINKS[0] + KINKS[1]},
    "clamp": (None, lambda x: x.clamp(-1, 2)),
    "maximum": (None, lambda x: x.maximum(x * 0 + 1)),
    "base of a power": (None, lambda x: x.abs() ** (x * 0 + 2.5)),
    "exponent": (None, lambda x: 2.0**x),
    "norm of zeros": (None, lambda x: (x * 0).norm()),
    "std of equals": (None, lambda x: (x * 0 + 2).std()),
    "softmax": (None, lambda x: x.softmax(0) * x),
    "logsumexp": (None, lambda x: x.logsumexp(0)),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", AT_KINKS)
def test_the_gradient_at_kinks_zeros_and_far_out_agrees_with_pytorch(name):
    torch = pytest.importorskip("torch")
    function, call = AT_KINKS[name]
    points = [-90.0, -20.0, -3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 6.0, 20.0, 90.0]
    x, y = Tensor(points, requires_grad=True), torch.tensor(points, requires_grad=True)
    ours = call(x)
    if function is None:
        theirs = call(y)
    else:
        theirs = getattr(torch if hasattr(torch, function) else torch.nn.functional, function)(y)
    ours.sum().backward()
    theirs.sum().backward()
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2}, {"groups": 2}], ids=str
)
def test_the_gradients_of_a_convolution_agree_with_pytorch(options):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    values = rng.standard_normal((2, 4, 7, 6)).astype(np.float32)
    kernel = rng.standard_normal((4, 4 // options.get("groups", 1), 3, 3)).astype(np.float32)
    x, w = Tensor(values, requires_grad=True), Tensor(kernel, requires_grad=True)
    a, b = torch.tensor(values, requires_grad=True), torch.tensor(kernel, requires_grad=True)
    ours, theirs = x.conv2d(w, **options), torch.nn.functional.conv2d(a, b, **options)
    (ours * ours).sum().backward()
    (theirs * theirs).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), a.grad.numpy(), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(w.grad.numpy(), b.grad.numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.torch
def test_the_gradients_of_cross_entropy_and_gather_agree_with_pytorch():
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    classes = np.array([0, 3, 1, 1, 2])
    x, y = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    x.cross_entropy(Tensor(classes)).backward()
    torch.nn.functional.cross_entropy(y, torch.tensor(classes)).backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-6)
    x.grad, y.grad = None, None
    index = np.array([[0, 0], [3, 1], [2, 2], [1, 0], [3, 3]])
    (x.gather(1, Tensor(index)) ** 2).sum().backward()
    (y.gather(1, torch.tensor(index)) ** 2).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_nothing_made_inside_no_grad_leads_back():
    from hcq import no_grad

    w = Tensor([1.0, 2.0], requires_grad=True)
    with no_grad():
        inside = (w * 3).realize()
        with no_grad():
            pass
        lazy = w + inside
    assert inside.node.arg.history is None
    (w * inside + lazy).sum().backward()
    assert w.grad.tolist() == [3.0, 6.0]


def test_no_grad_is_of_one_thread_and_ends_with_an_error():
    import threading

    from hcq import no_grad

    w = Tensor([1.0], requires_grad=True)
    found = []

    def work():
        (w * 2).sum().backward()
        found.append(w.grad.item())

    with pytest.raises(ZeroDivisionError), no_grad():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        raise ZeroDivisionError
    assert found == [2.0]
    (w * 2).sum().backward()
    assert w.grad.item() == 4.0


def test_the_grad_of_what_is_no_leaf_warns_and_says_why():
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 2.0
    y.sum().backward()
    with pytest.warns(UserWarning, match=r"no leaf.*retain_grad\(\)"):
        assert y.grad is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert x.grad is not None and Tensor([1.0]).grad is None and (Tensor([1.0]) * 2).grad is None
        z = x * 3.0
        z.retain_grad()
        assert z.grad is None
        z.sum().backward()
        assert z.grad.tolist() == [1.0, 1.0]


def test_a_leaf_that_nobody_holds_is_said_to_be_gone():
    loss = (hcq.ones(3, requires_grad=True) ** 2).sum()
    with pytest.raises(UsageError, match=r"the leaves from which this .* are gone"):
        loss.backward()
    other = Tensor([1.0], requires_grad=True)
    with pytest.raises(UsageError, match="are gone"):
        loss.backward()
    assert other.grad is None


def test_hooks_on_the_way_are_called_though_the_leaf_is_gone():
    y = hcq.ones(3, requires_grad=True) * 2.0
    y.retain_grad()
    (y * y).sum().backward()
    assert y.grad.tolist() == [4.0, 4.0, 4.0]
