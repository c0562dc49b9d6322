"""Random numbers: the published answers of the generator, the statistics of draws, and that draws repeat."""

from __future__ import annotations

import numpy as np
import pytest

from hcq import Tensor, dtypes, jit
from hcq.errors import UsageError
from hcq.frontend.methods.random import MAX_RANKED, threefry2x32
from hcq.ir.node import const
from tests.interpreter.evaluate import evaluate


@pytest.fixture(autouse=True)
def start_over():
    Tensor.manual_seed(1234)
    yield
    Tensor.manual_seed(0)


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [  # Random123, kat_vectors: threefry 2x32, 20 rounds
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_the_generator_gives_the_published_answers(counter, key, answer):
    words = [tuple(const(word, dtypes.uint32) for word in pair) for pair in (key, counter)]
    actual = evaluate(threefry2x32(*words), lambda leaf: None)
    assert tuple(int(word) for word in actual) == answer


def test_draws_use_the_generator_with_the_seed_as_key_and_a_counter_that_goes_on():
    Tensor.manual_seed(0x13198A2E_03707344)
    first, second = Tensor.rand(3).numpy(), Tensor.rand(2).numpy()
    key = tuple(const(word, dtypes.uint32) for word in (0x03707344, 0x13198A2E))
    expected = []
    for place in range(5):
        counter = (const(place, dtypes.uint32), const(0, dtypes.uint32))
        word = evaluate(threefry2x32(key, counter), lambda leaf: None)[0]
        expected.append(np.float32(int(word) >> 8) * np.float32(2.0**-24))
    np.testing.assert_array_equal(np.concatenate([first, second]), np.array(expected, np.float32))


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others():
    first = Tensor.rand(100).numpy()
    Tensor.manual_seed(1234)
    np.testing.assert_array_equal(Tensor.rand(100).numpy(), first)
    Tensor.manual_seed(1235)
    assert not (Tensor.rand(100).numpy() == first).any()


def test_a_shorter_draw_is_the_start_of_a_longer_one():
    longer = Tensor.randn(50).numpy()
    Tensor.manual_seed(1234)
    np.testing.assert_array_equal(Tensor.randn(7).numpy(), longer[:7])


def test_two_draws_differ_and_two_reads_of_one_draw_agree():
    x, y = Tensor.rand(64), Tensor.rand(64)
    first = (x + 0).numpy()
    assert not (x.numpy() == y.numpy()).any()
    np.testing.assert_array_equal((x * 1).numpy(), first)


def test_a_draw_does_not_change_when_the_seed_changes_later():
    x = Tensor.rand(8)
    Tensor.manual_seed(9)
    y = Tensor.rand(8)
    Tensor.manual_seed(1234)
    np.testing.assert_array_equal(Tensor.rand(8).numpy(), x.numpy())
    assert not (x.numpy() == y.numpy()).any()


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64], ids=repr)
def test_uniform_numbers_are_in_range_and_evenly_spread(dtype):
    numbers = Tensor.rand(20000, dtype=dtype).cast(dtypes.float64).numpy()
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts = np.histogram(numbers, bins=16, range=(0, 1))[0]
    chi_squared = float(((counts - 1250) ** 2 / 1250).sum())
    assert chi_squared < 45  # 15 degrees of freedom: exceeded once in 10,000


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32, dtypes.float64], ids=repr)
def test_normal_numbers_have_the_moments_of_the_normal_distribution(dtype):
    numbers = Tensor.randn(40000, dtype=dtype).cast(dtypes.float64).numpy()
    assert abs(numbers.mean()) < 0.02
    assert abs(numbers.std() - 1) < 0.02
    assert abs((numbers**3).mean()) < 0.06
    assert abs((numbers**4).mean() - 3) < 0.15
    assert np.isfinite(numbers).all()


def test_uniform_and_normal_take_their_ranges():
    uniform = Tensor.uniform(10000, low=-3, high=5).numpy()
    assert uniform.min() >= -3
    assert uniform.max() <= 5
    assert abs(uniform.mean() - 1) < 0.1
    normal = Tensor.normal(10000, mean=4, std=0.5).numpy()
    assert abs(normal.mean() - 4) < 0.03
    assert abs(normal.std() - 0.5) < 0.02


def test_neighbouring_draws_are_uncorrelated():
    x, y = Tensor.rand(20000).numpy(), Tensor.rand(20000).numpy()
    assert abs(np.corrcoef(x, y)[0, 1]) < 0.03
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.03


@pytest.mark.parametrize(("low", "high"), [(0, 6), (-7, 4), (5, 6), (0, 1 << 33), (-(1 << 62), 1 << 62)])
def test_random_integers_cover_their_range(low, high):
    numbers = Tensor.randint(low, high, (6000,)).numpy()
    assert numbers.dtype == np.int64
    assert numbers.min() >= low
    assert numbers.max() < high
    if high - low < 20:
        counts = np.bincount(numbers - low, minlength=high - low)
        assert counts.min() > 0.8 * 6000 / (high - low)
    else:
        middle = (low + high) / 2
        assert abs((numbers > middle).mean() - 0.5) < 0.05


def test_random_integers_come_in_the_dtype_asked_for():
    numbers = Tensor.randint(200, 256, (100,), dtype=dtypes.uint8).numpy()
    assert numbers.dtype == np.uint8
    assert numbers.min() >= 200


def test_bernoulli_is_true_as_often_as_asked():
    draw = Tensor.bernoulli(10000, p=0.3)
    assert draw.dtype is dtypes.bool
    assert abs(draw.numpy().mean() - 0.3) < 0.02
    assert not Tensor.bernoulli(100, p=0.0).numpy().any()
    assert Tensor.bernoulli(100, p=1.0).numpy().all()


@pytest.mark.parametrize("n", [0, 1, 2, 7, 500, MAX_RANKED + 5])
def test_a_random_permutation_holds_every_number_once(n):
    order = Tensor.randperm(n).numpy()
    assert order.dtype == np.int64
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    if n > 100:
        assert (order == np.arange(n)).mean() < 0.05


def test_scalars_and_empty_tensors_can_be_drawn():
    assert Tensor.rand(()).shape == ()
    assert Tensor.rand(0, 3).numpy().shape == (0, 3)
    assert 0 <= Tensor.rand(()).item() < 1


def test_a_draw_can_require_a_gradient():
    x = Tensor.randn(3, requires_grad=True)
    (x * x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy(), rtol=1e-6)


def test_like_takes_shape_and_dtype_from_its_tensor():
    x = Tensor.rand(2, 3, dtype=dtypes.float64)
    assert x.rand_like().shape == (2, 3)
    assert x.randn_like().dtype is dtypes.float64


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Tensor.manual_seed(-1), r"\[manual_seed\] -1: a seed is an int from 0"),
        (lambda: Tensor.rand(2, -1), r"\[rand\] shape \(2, -1\): a size is 0 or more"),
        (lambda: Tensor.rand(2, dtype=dtypes.int32), r"\[rand\] dtype int32: give float16"),
        (lambda: Tensor.randint(3, 3), r"\[randint\] \[3, 3\) holds no integer"),
        (lambda: Tensor.randint(0, 300, dtype=dtypes.uint8), r"does not fit uint8"),
        (lambda: Tensor.bernoulli(3, p=1.5), r"\[bernoulli\] p 1.5: a probability"),
        (lambda: Tensor.uniform(3, low=2, high=1), r"\[uniform\] low 2 is above high 1"),
        (lambda: Tensor.normal(3, std=-1), r"\[normal\] std -1"),
        (lambda: Tensor.randperm(-1), r"\[randperm\] -1"),
    ],
    ids=range(9),
)
def test_a_mistake_is_answered_with_a_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()


@pytest.mark.parametrize("shape", [(32,), (4, 8), (2, 2, 8)], ids=str)
def test_numbers_of_any_shape_are_made_by_one_kernel_beside_the_counter(shape):
    draw = jit(lambda: Tensor.rand(*shape))
    for _ in range(3):
        draw()
    assert draw.kernels == 2
