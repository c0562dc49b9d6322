"""16-bit floats: an operator computes inside in float32, and a number beside them is not rounded first."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
from hcq import Tensor

F = hcq.nn.functional
LARGE = (np.random.default_rng(0).standard_normal((4, 8)) * 400).astype(np.float16)
FORMATS = [hcq.float16, hcq.bfloat16]

OPERATORS = {
    "norm": lambda x: x.norm(),
    "norm of order 3": lambda x: x.norm(3, 1),
    "std": lambda x: x.std(-1),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "batch_norm with statistics": lambda x: x.batch_norm(x[0].abs(), x[0].square().clamp(max=6e4)),
    "instance_norm": lambda x: F.instance_norm(x.reshape(1, 4, 8)),
    "group_norm": lambda x: F.group_norm(x, 2),
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "rms_norm": lambda x: F.rms_norm(x, (8,)),
    "local_response_norm": lambda x: F.local_response_norm(x[None], 3),
    "normalize": lambda x: F.normalize(x),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.flip(0)),
    "pairwise_distance": lambda x: F.pairwise_distance(x, -x),
    "cdist": lambda x: hcq.cdist(x, -x),
    "dist": lambda x: hcq.dist(x, -x),
    "renorm": lambda x: hcq.renorm(x, 2, 0, 1.0),
    "avg_pool": lambda x: F.avg_pool1d((x * 40).abs().clamp(max=6e4)[None], 4),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool1d((x * 40).abs().clamp(max=6e4)[None], 3),
    "lp_pool": lambda x: F.lp_pool1d(x.abs()[None], 2.0, 4),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "linear": lambda x: F.linear(x / 8, x / 8, x[:, 0]),
    "addmm": lambda x: hcq.addmm(x[:, :4], x, x.T, alpha=0.001),
    "mse_loss": lambda x: F.mse_loss(x, x.flip(0), reduction="none"),
    "kl_div": lambda x: F.kl_div(x, x.abs()) / 64,
    "triplet_margin_loss": lambda x: F.triplet_margin_loss(x, x.flip(0), -x),
    "cov": lambda x: (x / 8).cov(),
    "corrcoef": lambda x: x.corrcoef(),
    "logsumexp": lambda x: x.logsumexp(1),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_of_large_halves_has_float32s_numbers(name):
    operator = OPERATORS[name]
    half = operator(Tensor(LARGE))
    want = operator(Tensor(LARGE).float()).numpy()
    assert half.dtype is hcq.float16
    fits = abs(want) < 65000
    assert fits.any()
    np.testing.assert_allclose(half.float().numpy()[fits], want[fits], rtol=0.004, atol=0.002)


@pytest.mark.parametrize("name", ["norm", "std", "normalize", "cosine_similarity", "dist", "avg_pool", "cov"])
def test_the_gradient_of_an_operator_of_large_halves_is_finite_and_float32s(name):
    operator = OPERATORS[name]
    x, y = Tensor(LARGE, requires_grad=True), Tensor(LARGE.astype(np.float32), requires_grad=True)
    operator(x).float().sum().backward()
    operator(y).sum().backward()
    want = y.grad.numpy()
    np.testing.assert_allclose(x.grad.float().numpy(), want, rtol=0.01, atol=0.01 * abs(want).max())


def test_gradients_of_halves_are_clipped_by_their_norm_though_its_square_fits_no_half():
    x = Tensor(np.full(4, 300, np.float16), requires_grad=True)
    (x * x).sum().backward()
    assert hcq.nn.utils.clip_grad_norm_([x], 1.0).item() == 1200
    np.testing.assert_allclose(x.grad.float().numpy(), 0.5, rtol=0.002)


@pytest.mark.parametrize("word", ["norm", "std", "normalize", "pairwise_distance", "attention"])
def test_autocast_changes_nothing_of_that(word):
    with hcq.autocast("cpu", dtype=hcq.float16):
        half = OPERATORS[word](Tensor(LARGE)).float().numpy()
    want = OPERATORS[word](Tensor(LARGE).float()).numpy()
    np.testing.assert_allclose(half, want, rtol=0.004, atol=0.4 if word == "attention" else 0.002)


NUMBERS = {
    "x + c": lambda x, y: x + 3.7,
    "c - x": lambda x, y: 3.7 - x,
    "x * c": lambda x, y: x * 3.7,
    "x / c": lambda x, y: x / 3.7,
    "c / x": lambda x, y: 3.7 / x,
    "x ** c": lambda x, y: x.abs() ** 3.7,
    "c ** x": lambda x, y: 3.7**x,
    "x % c": lambda x, y: x % 3.7,
    "x // c": lambda x, y: x // 3.7,
    "fmod": lambda x, y: x.fmod(3.7),
    "a large int": lambda x, y: x * 1001,
    "a NumPy number": lambda x, y: x * np.float64(3.7),
    "a tensor of no axes": lambda x, y: x * hcq.tensor(3.7),
    "one in front": lambda x, y: hcq.tensor(3.7) - x,
    "one as a power": lambda x, y: x.abs() ** hcq.tensor(3.7),
    "add": lambda x, y: x.add(y, alpha=3.7),
    "sub": lambda x, y: x.sub(y, alpha=3.7),
    "rsub": lambda x, y: hcq.rsub(x, y, alpha=0.37),
    "addcmul": lambda x, y: x.addcmul(y, x, value=3.7),
    "addcdiv": lambda x, y: x.addcdiv(y, x, value=3.7),
    "lerp": lambda x, y: x.lerp(y, 0.37),
    "in place": lambda x, y: x.clone().mul_(3.7),
    "leaky_relu": lambda x, y: F.leaky_relu(x, 0.3),
    "elu": lambda x, y: F.elu(x, 0.37),
    "hardswish": lambda x, y: F.hardswish(x),
    "where": lambda x, y: hcq.where(x > 0, x, 3.7),
    "clamp": lambda x, y: x.clamp(-3.7, 3.7),
}


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_beside_16_bits_is_not_rounded_before_the_result_is(name, dtype):
    draw = np.random.default_rng(1)
    x, y = (
        hcq.tensor((draw.standard_normal(900) * 3).astype(np.float32)).to(dtype).realize() for _ in range(2)
    )
    got = NUMBERS[name](x, y)
    want = NUMBERS[name](x.float().realize(), y.float().realize()).realize().to(dtype)
    assert got.dtype is dtype
    # the compiler may fuse a product and a sum, which moves what lies between two numbers of the format
    assert (got.float().numpy() != want.float().numpy()).mean() < 0.004


def test_a_number_is_compared_in_the_tensors_format_as_in_pytorch():
    for dtype in FORMATS:
        x = hcq.tensor([0.1]).to(dtype)
        assert (x == 0.1).item() and (x <= 0.1).item() and not (x < 0.1).item()


def test_a_number_that_the_format_holds_adds_no_casts():
    x = hcq.tensor([1.0, 2.0]).to(hcq.bfloat16).realize()
    assert (x * 0.5).node.dtype is hcq.bfloat16 and (x * 0.5).node.src[0] is x.node


def test_running_statistics_of_halves_are_updated_in_place():
    mean, var = Tensor.zeros(4, dtype=hcq.float16), Tensor.ones(4, dtype=hcq.float16)
    x = Tensor(LARGE.T.copy())
    F.batch_norm(x, mean, var, training=True, momentum=0.01).realize()
    np.testing.assert_allclose(
        mean.float().numpy(), LARGE.astype(np.float32).mean(1) * 0.01, rtol=0.01, atol=0.01
    )
    assert np.isfinite(var.float().numpy()).all() and mean.dtype is hcq.float16
