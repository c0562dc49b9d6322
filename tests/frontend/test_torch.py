"""Our operations against PyTorch's of the same name: values, shapes and dtypes, over many shapes and options."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hcq.frontend.tensor import Tensor

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.torch

R = np.random.default_rng(11)
X = R.standard_normal((2, 4, 6)).astype(np.float32)
IMAGE = R.standard_normal((2, 4, 9, 7)).astype(np.float32)
WEIGHT = R.standard_normal((6, 2, 3, 3)).astype(np.float32)
INTS = R.integers(-5, 6, (3, 4))
CLASSES = R.integers(0, 4, (2, 6))


def t(array):
    return torch.from_numpy(np.array(array))


def close(ours, theirs, tolerance=2e-5):
    assert ours.shape == tuple(theirs.shape)
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=tolerance, atol=tolerance)


# one source, called the same way on both sides: name, arguments
METHODS = [
    *[(name, ()) for name in "exp log2 sin cos tanh sigmoid relu erf sqrt rsqrt square abs sign neg".split()],
    *[(name, ()) for name in "floor ceil trunc round frac isnan expm1 log1p sinh cosh reciprocal".split()],
    *[(name, ()) for name in "sum mean prod std var amax argmax argmin any all T mT".split()],
    *[
        (name, (1,))
        for name in "sum mean prod std var amax argmax argmin any all cumsum cumprod softmax".split()
    ],
    *[(name, (-1, True)) for name in "sum mean prod argmax logsumexp any".split()],
    *[
        ("log_softmax", (0,)),
        ("logsumexp", ((0, 2),)),
        ("norm", (2, 1)),
        ("norm", (1, 0)),
        ("count_nonzero", (1,)),
    ],
    *[("clamp", (-0.5, 0.5)), ("clip", (None, 0.3)), ("maximum", (X * 0.5,)), ("lerp", (X * 2, 0.3))],
    *[
        ("reshape", (4, -1)),
        ("permute", (2, 0, 1)),
        ("transpose", (0, 2)),
        ("flatten", (1,)),
        ("movedim", (0, 2)),
    ],
    *[("unflatten", (2, (2, 3))), ("unsqueeze", (-1,)), ("expand", (3, 2, 4, 6)), ("repeat", (2, 1, 3))],
    *[
        ("flip", ((0, 2),)),
        ("roll", (2, 1)),
        ("roll", ((1, -2), (0, 2))),
        ("unfold", (2, 3, 2)),
        ("tile", (2, 2)),
    ],
    *[
        ("repeat_interleave", (2, 1)),
        ("narrow", (2, 1, 3)),
        ("select", (1, -1)),
        ("tril", (1,)),
        ("triu", (-1,)),
    ],
    *[("bool", ()), ("int", ()), ("double", ()), ("half", ())],
]


@pytest.mark.parametrize("name, args", METHODS, ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.filterwarnings("ignore")
def test_methods_are_pytorchs(name, args):
    ours, theirs = getattr(Tensor(X), name), getattr(t(X), name)
    if not callable(ours):
        return close(ours, theirs if name == "mT" else t(X).permute(2, 1, 0))
    array = lambda make: [make(a) if isinstance(a, np.ndarray) else a for a in args]  # noqa: E731
    close(ours(*array(Tensor)), theirs(*array(t)))


FUNCTIONS = (
    "gelu silu mish softplus elu selu leaky_relu hardswish hardsigmoid logsigmoid relu6 softsign hardtanh"
)


@pytest.mark.parametrize("name", FUNCTIONS.split())
def test_activations_are_pytorchs(name):
    close(getattr(Tensor(X * 4), name)(), getattr(F, name)(t(X * 4)))


@pytest.mark.parametrize("source", ["bool", "uint8", "int16", "int64", "float16", "float32"])
@pytest.mark.parametrize("number", [True, 2, 0.5])
def test_numbers_promote_as_in_pytorch(source, number):
    x = np.array([0, 1, 1]).astype(source)
    close(Tensor(x) * number, t(x) * number)
    close(Tensor(x) + number, t(x) + number)
    close(Tensor(x) / number, t(x) / number)


@pytest.mark.parametrize("a", ["bool", "uint8", "int8", "int32", "int64", "float16", "float64"])
@pytest.mark.parametrize("b", ["bool", "uint8", "int16", "int64", "float16", "float32"])
def test_tensors_promote_as_in_pytorch(a, b):
    x, y = np.array([0, 1, 3]).astype(a), np.array([1, 1, 2]).astype(b)
    close(Tensor(x) + Tensor(y), t(x) + t(y))
    close(Tensor(x) / Tensor(y), t(x) / t(y), 1e-3)
    close(Tensor(x) >= Tensor(y), t(x) >= t(y))


@pytest.mark.parametrize("divisor", [2, -3, 0.7, -1.5])
def test_division_with_rest_is_pytorchs(divisor):
    for x in (INTS, X):
        close(Tensor(x) // divisor, t(x) // divisor)
        close(Tensor(x) % divisor, t(x) % divisor)
        close(Tensor(x).fmod(divisor), t(x).fmod(divisor))


@pytest.mark.parametrize("exponent", [0, 1, 3, -2, 0.5, 2.5, -0.7])
def test_powers_are_pytorchs(exponent):
    x = np.abs(X) + 0.1 if exponent != int(exponent) else X
    close(Tensor(x) ** exponent, t(x) ** exponent, 1e-4)
    close(Tensor(x) ** Tensor(X), t(x) ** t(X), 1e-4)


INDICES = [
    (0,),
    (slice(None), -1, slice(1, 5, 2)),
    (Ellipsis, [0, 3]),
    ([1, 0], [0, 3]),
    ([1, 0], slice(None), [0, 3]),
    (0, slice(None), [1, 2]),
    (slice(None), [0, 1], 2),
    (None, [[0], [1]], Ellipsis, None),
]


@pytest.mark.parametrize("key", INDICES, ids=str)
def test_indexing_is_pytorchs(key):
    close(Tensor(X)[key], t(X)[key])


def test_sorting_is_pytorchs():
    for descending in (False, True):
        ours, theirs = Tensor(X).sort(1, descending), t(X).sort(1, descending)
        close(ours.values, theirs.values)
        close(ours.indices, theirs.indices)
    close(Tensor(X).topk(3).values, t(X).topk(3).values)
    close(Tensor(X).max(1).indices, t(X).max(1).indices)


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1}, {"padding": 2, "dilation": 2}, {"padding": "same"}], ids=str
)
def test_convolutions_are_pytorchs(options):
    close(
        Tensor(IMAGE).conv2d(Tensor(WEIGHT), groups=2, **options),
        F.conv2d(t(IMAGE), t(WEIGHT), groups=2, **options),
        1e-4,
    )


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"dilation": 2}], ids=str
)
def test_transposed_convolutions_are_pytorchs(options):
    w = WEIGHT[:4]
    close(
        Tensor(IMAGE).conv_transpose2d(Tensor(w), **options),
        F.conv_transpose2d(t(IMAGE), t(w), **options),
        1e-4,
    )


@pytest.mark.parametrize("size, stride, padding", [(2, None, 0), (3, 2, 1), ((3, 2), (1, 2), (1, 0))])
def test_pooling_is_pytorchs(size, stride, padding):
    close(Tensor(IMAGE).max_pool2d(size, stride, padding), F.max_pool2d(t(IMAGE), size, stride, padding))
    close(Tensor(IMAGE).avg_pool2d(size, stride, padding), F.avg_pool2d(t(IMAGE), size, stride, padding))
    ours = Tensor(IMAGE).avg_pool2d(size, stride, padding, count_include_pad=False)
    close(ours, F.avg_pool2d(t(IMAGE), size, stride, padding, count_include_pad=False))


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_padding_is_pytorchs(mode):
    close(Tensor(IMAGE).pad((1, 2, 3, 1), mode), F.pad(t(IMAGE), (1, 2, 3, 1), mode))


def test_normalisations_are_pytorchs():
    w, b = X[0, :, 0], X[1, :, 1]
    tw, tb = t(w), t(b)
    close(Tensor(X).layer_norm(6), F.layer_norm(t(X), (6,)))
    close(Tensor(X).group_norm(2, Tensor(w), Tensor(b)), F.group_norm(t(X), 2, tw, tb))
    close(
        Tensor(X).batch_norm(None, None, Tensor(w), Tensor(b)), F.batch_norm(t(X), None, None, tw, tb, True)
    )
    close(Tensor(X).rms_norm(6), F.rms_norm(t(X), (6,)))
    close(Tensor(X).normalize(dim=-1), F.normalize(t(X), dim=-1))
    q, k, v = (R.standard_normal((2, 3, 5, 4)).astype(np.float32) for _ in range(3))
    ours = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=True)
    close(ours, F.scaled_dot_product_attention(t(q), t(k), t(v), is_causal=True))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_are_pytorchs(reduction):
    a, b = X, X[::-1].copy()
    options = {"reduction": reduction}
    for name in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss"):
        close(getattr(Tensor(a), name)(Tensor(b), **options), getattr(F, name)(t(a), t(b), **options))
    weight = np.float32([0.5, 1, 2, 3])
    for extra in ({}, {"label_smoothing": 0.2}, {"ignore_index": 1}):
        ours = Tensor(a).cross_entropy(Tensor(CLASSES), Tensor(weight), **options, **extra)
        close(ours, F.cross_entropy(t(a), t(CLASSES), t(weight), **options, **extra))
    both = {"label_smoothing": 0.2, "ignore_index": 1, **options}
    close(Tensor(a).cross_entropy(Tensor(CLASSES), **both), F.cross_entropy(t(a), t(CLASSES), **both))
    soft = np.exp(b) / np.exp(b).sum(1, keepdims=True)
    close(Tensor(a).cross_entropy(Tensor(soft), **options), F.cross_entropy(t(a), t(soft), **options))
    weighed = Tensor(a).cross_entropy(Tensor(soft), Tensor(weight), **options, label_smoothing=0.1)
    close(weighed, F.cross_entropy(t(a), t(soft), t(weight), **options, label_smoothing=0.1))
    zero_one = (b > 0).astype(np.float32)
    close(
        Tensor(a).binary_cross_entropy_with_logits(Tensor(zero_one), pos_weight=Tensor(weight[0]), **options),
        F.binary_cross_entropy_with_logits(t(a), t(zero_one), pos_weight=t(weight[0]), **options),
    )


def test_gather_and_scatter_are_pytorchs():
    index = R.integers(0, 4, (2, 3, 6))
    close(Tensor(X).gather(1, Tensor(index)), t(X).gather(1, t(index)))
    src = X[:, :3]
    close(Tensor(X).scatter_add(1, Tensor(index), Tensor(src)), t(X).scatter_add(1, t(index), t(src)))


def test_narrow_matmuls_are_as_precise_as_pytorchs():
    a, b = X[0].astype(np.float16), X[1].astype(np.float16).T.copy()
    close(Tensor(a) @ Tensor(b), t(a) @ t(b), 2e-3)
    bf = torch.from_numpy(X[0]).bfloat16() @ torch.from_numpy(X[1].T.copy()).bfloat16()
    ours = Tensor(X[0]).bfloat16() @ Tensor(X[1].T.copy()).bfloat16()
    np.testing.assert_allclose(ours.float().numpy(), bf.float().numpy(), rtol=2e-2, atol=math.ulp(1.0))
