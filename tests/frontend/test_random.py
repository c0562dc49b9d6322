"""Random numbers: the published answers of the generator, the statistics of draws, and that draws repeat."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hcq
from hcq import Tensor, dtypes, jit
from hcq.errors import UsageError
from hcq.frontend.ops import rejection
from hcq.frontend.ops.random import MAX_RANKED, threefry2x32
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


MEANS = {  # a draw, its mean and its deviation
    "exponential_(2.0)": (0.5, 0.5),
    "geometric_(0.3)": (1 / 0.3, math.sqrt(0.7) / 0.3),
    "log_normal_(0.0, 0.5)": (math.exp(0.125), math.sqrt((math.exp(0.25) - 1) * math.exp(0.25))),
    "normal_(3.0, 2.0)": (3.0, 2.0),
    "uniform_(2.0, 4.0)": (3.0, 2 / math.sqrt(12)),
    "random_(3, 9)": (5.5, math.sqrt(35 / 12)),
    "bernoulli_(0.25)": (0.25, math.sqrt(3 / 16)),
}


@pytest.mark.parametrize("call", MEANS)
def test_a_draw_in_place_has_its_mean_and_deviation_and_is_seen_in_views(call):
    whole = Tensor.zeros(2, 5000)
    part = whole[1]
    assert eval(f"part.{call}", {"part": part}) is part
    drawn = whole.numpy()
    mean, deviation = MEANS[call]
    assert not drawn[0].any()
    assert abs(drawn[1].mean() - mean) < 5 * deviation / math.sqrt(5000)
    assert abs(drawn[1].std() / deviation - 1) < 0.15


def test_half_of_cauchy_lies_within_its_scale():
    drawn = Tensor.zeros(8000).cauchy_(1.0, 2.0).numpy()
    assert abs((np.abs(drawn - 1) < 2).mean() - 0.5) < 0.03
    assert (Tensor.zeros(500, dtype=dtypes.uint8).random_().max() > 200).item()
    assert Tensor.zeros(500, dtype=dtypes.fp8e4m3).random_().cast(dtypes.float32).max().item() == 16


def test_a_tensor_of_probabilities_is_drawn_from():
    chances = Tensor([0.0, 0.25, 1.0]).expand(4000, 3)
    drawn = hcq.bernoulli(chances)
    assert (
        drawn.dtype is dtypes.float32 and drawn[:, 0].sum().item() == 0 and drawn[:, 2].sum().item() == 4000
    )
    assert abs(drawn[:, 1].mean().item() - 0.25) < 0.04
    assert chances.bernoulli(0.5).mean().item() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("rate", [0.0, 0.5, 6.0, 11.9, 12.0, 300.0, 1e6])
def test_counts_of_events_have_the_mean_and_the_variance_of_their_rate(rate):
    drawn = Tensor.full((4000,), rate).poisson().numpy().astype(np.float64)
    assert abs(drawn.mean() - rate) <= 5 * math.sqrt(rate / 4000)
    assert abs(drawn.var() - rate) <= 0.15 * rate
    assert (drawn == np.floor(drawn)).all()


def test_a_seed_means_the_same_numbers_on_every_device():
    def draws(device):
        Tensor.manual_seed(99)
        x = Tensor.zeros(300, device=device)
        found = [
            getattr(x, f"{name}_")().tolist()
            for name in ("normal", "exponential", "cauchy", "bernoulli", "random")
        ]
        return [*found, (x * 0 + 4.0).poisson().tolist(), (x * 0 + 40.0).poisson().tolist(),
                rejection.gamma(x * 0 + 0.7, None).tolist(), (x * 0 + 1.0).multinomial(9).tolist()]  # fmt: skip

    assert draws("CPU") == draws(hcq.tensor([1]).device)


def test_choices_come_as_often_as_they_weigh_and_never_without_weight():
    weights = Tensor([1.0, 0.0, 5.0, 4.0, 0.0])
    counts = np.bincount(weights.multinomial(8000, replacement=True).numpy(), minlength=5)
    np.testing.assert_allclose(counts / 8000, [0.1, 0, 0.5, 0.4, 0], atol=0.03)
    rows = weights.expand(3000, 5).multinomial(3).numpy()
    assert (np.sort(rows, 1) == [0, 2, 3]).all()
    first = np.bincount(rows[:, 0], minlength=5) / 3000
    np.testing.assert_allclose(first, [0.1, 0, 0.5, 0.4, 0], atol=0.04)
    assert Tensor([[0.0, 2.0], [0.0, 0.0]]).multinomial(2).tolist() == [[1, -1], [-1, -1]]


def several(one):
    return [
        Tensor.randn(3, generator=one),
        Tensor.randint(0, 9, (3,), generator=one),
        Tensor.randperm(5, generator=one),
        Tensor.zeros(3).exponential_(generator=one),
        Tensor([1.0, 2.0]).multinomial(1, generator=one),
    ]


def test_a_generator_has_numbers_of_its_own_that_can_be_drawn_again():
    Tensor.manual_seed(5)
    plain = Tensor.rand(4).tolist()
    one, other = (hcq.Generator().manual_seed(5) for _ in range(2))
    assert Tensor.rand(4, generator=one).tolist() == plain
    Tensor.rand(9)
    state = one.get_state()
    draws = several(one)
    one.set_state(state)
    again = several(one)
    assert [x.tolist() for x in draws] == [x.tolist() for x in again]
    assert (
        Tensor.rand(4, generator=other.clone_state()).tolist()
        == plain
        == Tensor.rand(4, generator=other).tolist()
    )
    assert one.initial_seed() == 5 and one.seed() == one.initial_seed()


def test_what_is_drawn_in_a_fork_moves_nothing_outside():
    Tensor.rand(3)
    with hcq.torch.random.fork_rng():
        inside = [Tensor.rand(3).tolist(), Tensor.rand(3).tolist()]
        Tensor.manual_seed(77)
        Tensor.rand(5)
    assert [Tensor.rand(3).tolist(), Tensor.rand(3).tolist()] == inside
    assert hcq.initial_seed() == 1234


def test_a_recorded_draw_of_a_generator_goes_on():
    one = hcq.Generator().manual_seed(3)
    draw = jit(lambda x: x + Tensor.rand(4, generator=one))
    x = Tensor([0.0] * 4)
    found = [draw(x).tolist() for _ in range(5)]
    one.manual_seed(3)
    assert found == [Tensor.rand(4, generator=one).tolist() for _ in range(5)]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Tensor([1.0]).multinomial(2), r"\[multinomial\] num_samples=2 of 1 weights"),
        (lambda: hcq.tensor([1]).multinomial(1), r"\[multinomial\] int64 of shape \(1,\): give floats"),
        (lambda: Tensor([1.0]).exponential_(0.0), r"\[exponential_\] lambd=0.0: it has to be above 0"),
        (lambda: hcq.tensor([1]).bernoulli(), r"\[bernoulli\] int64 holds no probabilities"),
        (lambda: hcq.tensor([1]).poisson(), r"\[poisson\] int64 rates: give floats"),
        (lambda: Tensor([1.0]).uniform_(2.0, 1.0), r"\[uniform_\] from=2.0, to=1.0"),
        (lambda: hcq.normal(0.0, 1.0), r"\[normal\] two numbers: give a size"),
        (lambda: hcq.Generator().set_state(hcq.tensor([1])), r"\[set_state\] .*give what get_state"),
    ],
    ids=range(8),
)
def test_a_wrong_distribution_is_answered_with_a_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()


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


def test_a_draw_takes_generators_alone():
    for draw in (Tensor.rand, Tensor.randn):
        with pytest.raises(UsageError, match=r"generator='seed': give a hcq\.Generator"):
            draw(3, generator="seed")
