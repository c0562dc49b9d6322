"""Elements whose places are known only when the work runs: joined, padded, turned around, cut out in the middle.

The law: what NumPy gives at each number; at once, from a recording, and for gradients. Beyond a size memory is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcq import Tensor, Variable, jit, load_program, save_program
from hcq.errors import UsageError
from tests.compiler.emulated_gpus import machine_of, name_of

pytestmark = pytest.mark.own_devices

ROOM, WIDTH = 6, 4
GPUS = {"AMD": "amd:gfx1100", "NV": "nv:sm_90", "METAL": "metal:m3"}
machine = machine_of(*GPUS.values())
gpu = name_of({"CPU": "cpu", **GPUS}, thorough=tuple(GPUS.values()))
QUICK = ("two sizes", "a convolution", "padded by numbers")

Laws = dict[str, tuple[Callable[..., Any], Callable[..., Any]]]

# of the first n rows of x, the first m of y, all of z, and n and m: of tensors, and of arrays
LAWS: Laws = {
    "joined behind": (lambda x, y, z, n, m: x.cat(z), lambda x, y, z, n, m: np.concatenate([x, z])),
    "joined in front": (lambda x, y, z, n, m: z.cat(x), lambda x, y, z, n, m: np.concatenate([z, x])),
    "two sizes": (lambda x, y, z, n, m: x.cat(y, z), lambda x, y, z, n, m: np.concatenate([x, y, z])),
    "joined and summed": (
        lambda x, y, z, n, m: Tensor.cat([x, y]).softmax(0).square().sum(0),
        lambda x, y, z, n, m: (softmax(np.concatenate([x, y])) ** 2).sum(0),
    ),
    "columns": (lambda x, y, z, n, m: x.T.cat(z.T, dim=1), lambda x, y, z, n, m: np.concatenate([x, z]).T),
    "up to a fixed size": (
        lambda x, y, z, n, m: (x + 1).pad((0, 0, 0, ROOM - n)),
        lambda x, y, z, n, m: np.pad(x + 1, ((0, ROOM - n), (0, 0))),
    ),
    "padded by ints": (
        lambda x, y, z, n, m: x.pad((1, 0, 2, 1), value=7.0),
        lambda x, y, z, n, m: np.pad(x, ((2, 1), (1, 0)), constant_values=7),
    ),
    "padded by numbers": (
        lambda x, y, z, n, m: z.pad((n, 0, m, n)),
        lambda x, y, z, n, m: np.pad(z, ((m, n), (n, 0))),
    ),
    "cropped": (
        lambda x, y, z, n, m: z.pad((0, 0, -m, 1)),
        lambda x, y, z, n, m: np.pad(z, ((0, 1), (0, 0)))[m:],
    ),
    "turned around": (lambda x, y, z, n, m: x.flip(0, 1), lambda x, y, z, n, m: x[::-1, ::-1]),
    "in the middle": (
        lambda x, y, z, n, m: x[n - 1 : n] + z[m : m + 2],
        lambda x, y, z, n, m: x[-1:] + z[m : m + 2],
    ),
    "the last ones": (lambda x, y, z, n, m: z[m:] * 2, lambda x, y, z, n, m: z[m:] * 2),
    "the last row": (lambda x, y, z, n, m: x.narrow(0, n - 1, 1), lambda x, y, z, n, m: x[n - 1 :]),
    "windows": (
        lambda x, y, z, n, m: x.pad((0, 0, 1, 1)).unfold(0, 3, 2).sum(-1),
        lambda x, y, z, n, m: windows(np.pad(x, ((1, 1), (0, 0)))),
    ),
    "a convolution": (
        lambda x, y, z, n, m: x.T[None].conv1d(z[None, :3].transpose(1, 2), padding=1, stride=2)[0].T,
        lambda x, y, z, n, m: convolved(np.pad(x, ((1, 1), (0, 0))), z[:3]),
    ),
    "reshaped across two sizes": (
        lambda x, y, z, n, m: (x @ z.T[:, :n]).cumsum(1)[: n // 2 + 1].T.reshape(n // 2 + 1, n) * 2,
        lambda x, y, z, n, m: (x @ z.T[:, :n]).cumsum(1)[: n // 2 + 1].T.reshape(n // 2 + 1, n) * 2,
    ),
    "columns in a row": (
        lambda x, y, z, n, m: x.T.reshape(-1) + 1,
        lambda x, y, z, n, m: x.T.reshape(-1) + 1,
    ),
    "flattened": (lambda x, y, z, n, m: x[:, None].T.flatten(1), lambda x, y, z, n, m: x.T),
    "below a diagonal": (lambda x, y, z, n, m: z.tril(m - 1), lambda x, y, z, n, m: np.tril(z, m - 1)),
    "above a diagonal": (lambda x, y, z, n, m: (z @ x.T).triu(m), lambda x, y, z, n, m: np.triu(z @ x.T, m)),
}


def windows(x: Any) -> Any:
    return np.stack([x[at : at + 3].sum(0) for at in range(0, len(x) - 2, 2)])


def convolved(x: Any, w: Any) -> Any:
    return np.stack([np.sum(x[at : at + 3] * w, keepdims=True)[0] for at in range(0, len(x) - 2, 2)])


def softmax(x: Any) -> Any:
    weights = np.exp(x - x.max(0))
    return weights / weights.sum(0)


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def with_junk(array: Any, device: str = "CPU") -> Tensor:
    rest = np.full((ROOM - len(array), *array.shape[1:]), np.nan, np.float32)
    return Tensor(np.concatenate([array, rest]), device=device).realize()


def close(actual: Any, expected: Any) -> None:
    found = actual.numpy()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def test_one_recording_puts_every_number_of_elements_in_their_places(machine: None, gpu: str) -> None:
    n, m, calls = Variable("n", 1, ROOM), Variable("m", 0, ROOM - 2), []

    @jit
    def step(x: Tensor, y: Tensor, z: Tensor, n: Any, m: Any) -> Any:
        calls.append(1)
        return [of_tensors(x[:n], y[:m], z, n, m) for of_tensors, _ in LAWS.values()]

    z = numbers(ROOM, WIDTH, seed=9)
    for rows, more in [(1, 0), (3, 2), (6, 4), (2, 1)][: 4 if gpu == "CPU" else 3]:
        x, y = numbers(rows, WIDTH, seed=rows), numbers(more, WIDTH, seed=more)
        found = step(
            with_junk(x, gpu), with_junk(y, gpu), Tensor(z, device=gpu).realize(), n.bind(rows), m.bind(more)
        )
        for actual, (_, of_arrays) in zip(found, LAWS.values(), strict=True):
            close(actual, of_arrays(x, y, z, rows, more))
    assert len(calls) == 2


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.thorough) for name in LAWS]
)
def test_gradients_are_those_of_the_same_computation_with_ints(name: str) -> None:
    compute, _ = LAWS[name]
    n, m = Variable("n", 1, ROOM), Variable("m", 0, ROOM - 2)
    for rows, more in ((2, 1), (5, 4)):
        arrays = numbers(rows, WIDTH, seed=1), numbers(more, WIDTH, seed=2), numbers(ROOM, WIDTH, seed=3)
        plain = [Tensor(array, requires_grad=True) for array in arrays]
        compute(*plain, rows, more).square().sum().backward()
        whole = [with_junk(array).requires_grad_() for array in arrays]
        sizes = n.bind(rows), m.bind(more)
        x, y, z = whole
        compute(x[: sizes[0]], y[: sizes[1]], z, *sizes).square().sum().backward()
        for one, cut in zip(plain, whole, strict=True):
            assert (one.grad is None) == (cut.grad is None)
            if one.grad is not None and cut.grad is not None:
                close(cut.grad[: one.shape[0]], one.grad.numpy())
                assert not cut.grad[one.shape[0] :].numpy().any()


def test_counting_from_a_number_to_a_number_by_a_number() -> None:
    start, end, step = Variable("start", 0, 5), Variable("end", 5, 20), Variable("step", 1, 3)
    for numbers in ((0, 5, 1), (2, 14, 3), (5, 20, 2), (5, 5, 3)):
        bound = [each.bind(number) for each, number in zip((start, end, step), numbers, strict=True)]
        assert Tensor.arange(*bound).tolist() == list(range(*numbers))
        assert Tensor.arange(bound[0], 20, bound[2]).tolist() == list(range(numbers[0], 20, numbers[2]))
        assert Tensor.arange(bound[1], bound[0], -2).tolist() == list(range(numbers[1], numbers[0], -2))


def test_products_and_quotients_of_variables_are_counted_with() -> None:
    n, m = Variable("n", 2, 5).bind(4), Variable("m", 1, 3).bind(3)
    for bound, value in (
        (n * m, 12),
        (n // m, 1),
        (n % m, 1),
        ((n - 5) // m, -1),
        ((n * m + 1) % (m + 1), 1),
    ):
        assert bound.now == value == Tensor(bound).item()
        assert bound.low <= value <= bound.high
    assert n * m == m * n and n // n == 1 and str((n + 1) * m) == "m * (n + 1)"


# -- a part has to be inside for the numbers that are bound -----------------------------------------------------------


def test_a_part_is_asked_to_be_inside_at_each_call_before_anything_is_submitted(
    machine: None, gpu: str
) -> None:
    n, array, ran = Variable("n", 1, 100), numbers(ROOM, WIDTH), []
    x = Tensor(array, device=gpu).realize()
    total = Tensor.zeros(1, device=gpu).realize()

    @jit
    def rows(x: Tensor, n: Any) -> tuple[Tensor, Tensor, Tensor]:
        ran.append(1)
        total.assign(total + 1).realize()
        return x[:n].sum(0), x[n - 1], x[n : n + 2]

    for size in (2, 3, 4, 1):
        first, last, two = rows(x, n.bind(size))
        close(first, array[:size].sum(0))
        close(last, array[size - 1])
        close(two, array[size : size + 2])
    for size in (5, 100):
        with pytest.raises(UsageError, match=rf"n:n \+ 2 .* axis 0.* n = {size}|0:n .* axis 0.* n = {size}"):
            rows(x, n.bind(size))
    assert len(ran) == 2 and total.item() == 4
    close(rows(x, n.bind(2))[1], array[1])


def test_a_part_that_is_not_inside_is_refused_by_variable_number_and_axis() -> None:
    n, x = Variable("n", 0, 100), Tensor(numbers(ROOM, WIDTH)).realize()
    for program in (
        lambda m: x[:m],
        lambda m: x[m],
        lambda m: x[m - 60 : m],
        lambda m: x.shrink(((0, m), None)),
        lambda m: x.narrow(0, m, 1),
        lambda m: x[: n.bind(6)][:m],
        lambda m: x.pad((0, 0, -m, 0)),
    ):
        with pytest.raises(UsageError, match=r"axis 0.* n = 50"):
            program(n.bind(50))
    with pytest.raises(UsageError, match=r"axis 0.* n = 50"):
        x[: n.bind(50)] = 1.0
    assert np.isfinite(x.numpy()).all()


def test_a_cut_axis_is_sliced_by_ints_where_the_numbers_allow_it() -> None:
    n, array = Variable("n", 1, ROOM), numbers(ROOM, WIDTH)
    x = Tensor(array).realize()
    step = jit(lambda x, n: (x[:n][1:3], x[:n][-2:] + 1, x[:n][2]))
    for size in (3, 5, 4, 6):
        a, b, c = step(x, n.bind(size))
        close(a, array[1:3])
        close(b, array[size - 2 : size] + 1)
        close(c, array[2])
    with pytest.raises(UsageError, match=r"axis 0.* n = 2"):
        step(x, n.bind(2))


def test_a_variable_may_have_a_wider_range_than_the_axis_that_it_cuts() -> None:
    n, array = Variable("n", 0, 9), numbers(ROOM, WIDTH)
    for size in (0, 2, 6):
        x = Tensor(array).realize()
        cut = x[: n.bind(size)]
        close(cut.sum(0), array[:size].sum(0))
        close(cut + Tensor(numbers(9, WIDTH))[: n.bind(size)], array[:size] + numbers(9, WIDTH)[:size])
        cut.add_(1.0)
        close(x, np.concatenate([array[:size] + 1, array[size:]]))
        x[: n.bind(size)] = 0.0
        close(x, np.concatenate([array[:size] * 0, array[size:]]))
    one = Tensor(numbers(1, WIDTH))
    for size in (0, 1):
        close(one[: Variable("m", 0, 1).bind(size)], numbers(1, WIDTH)[:size])


def test_a_reshape_that_does_not_keep_the_number_of_elements_is_refused() -> None:
    n, m = Variable("n", 1, ROOM).bind(3), Variable("m", 1, ROOM).bind(2)
    x = Tensor(numbers(ROOM, ROOM)).realize()
    for program in (
        lambda: x[:n].reshape(ROOM, ROOM),
        lambda: x[:n, :m].reshape(m, m),
        lambda: x.reshape(n, ROOM),
    ):
        with pytest.raises(UsageError, match=r"keep the number of elements.* n = 3"):
            program()
    with pytest.raises(UsageError, match="Give each size"):
        x[:n].T.reshape(m, -1)


def test_a_saved_program_takes_the_numbers_for_which_parts_are_inside(tmp_path: Path) -> None:
    n, array = Variable("n", 0, 100), numbers(ROOM, WIDTH)
    step = jit(lambda x, n: (x[:n].sum(0), x[n - 2 : n].sum(0)))
    for size in (2, 3):
        step(Tensor(array).realize(), n.bind(size))
    save_program(tmp_path / "step.hcqprog", step)
    program = load_program(tmp_path / "step.hcqprog")
    assert [tuple(one[:3]) for one in program.parameters] == [("n", 2, ROOM)]
    found = [memoryview(out.read()).cast("f").tolist() for out in program(array, 5)]
    np.testing.assert_allclose(found, [array[:5].sum(0), array[3:5].sum(0)], rtol=1e-5)
    with pytest.raises(UsageError, match="n = 7"):
        program(array, 7)
    with pytest.raises(UsageError, match=r"\[save_program\].*not so for all numbers"):
        two = jit(lambda x, n, m: x[n : n + m].sum(0))
        for size in (2, 3):
            two(Tensor(array).realize(), n.bind(size), Variable("m", 1, 3).bind(1))
        save_program(tmp_path / "two.hcqprog", two)


def test_attention_and_writes_of_no_tokens_are_of_no_elements() -> None:
    n = Variable("n", 0, ROOM)
    cache = Tensor(numbers(2, ROOM, WIDTH)).realize()
    weight = Tensor(numbers(WIDTH, WIDTH), requires_grad=True)
    before = cache.numpy().copy()
    for place in (0, 3):
        token = Tensor.zeros(1, 0, WIDTH)
        keys = cache[:, : n.bind(place)]
        assert token.scaled_dot_product_attention(keys[:1], keys[1:]).numpy().shape == (1, 0, WIDTH)
        part = cache[:, n.bind(place) : n.bind(place) + 0]
        part.copy_(Tensor.zeros(2, 0, WIDTH) @ weight)
        np.testing.assert_array_equal(cache.numpy(), before)


def test_numbers_beyond_32_bits_are_computed_with() -> None:
    n, m = Variable("n", 1, 1000), Variable("m", 0, 2**50)
    x = Tensor(numbers(ROOM, WIDTH)).realize()
    step = jit(
        lambda x, n, m: (Tensor(n + 3 * m) - m * 2, x[m // 2**40], Tensor(n * m // 2**20), Tensor(m % n))
    )
    for small, large in ((3, 2**42), (1000, 2**41 + 5), (7, 0), (999, 2**40 - 1)):
        a, b, c, d = step(x, n.bind(small), m.bind(large))
        assert (a.item(), c.item(), d.item()) == (small + large, small * large // 2**20, large % small)
        close(b, x.numpy()[large // 2**40])
    with pytest.raises(UsageError, match="narrower range"):
        Tensor(m.bind(3) * m.bind(3))


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x.T[None].max_pool1d(2),
        lambda x: x.T[None].avg_pool1d(2, 1, 1),
        lambda x: x.roll(1, 0),
        lambda x: x.repeat(2, 1),
        lambda x: Tensor.einsum("ij,kj->ik", x, x * 2),
        lambda x: x.zeros_like() + x.argmax(0),
        lambda x: x.argmax(1).isnan(),
        lambda x: x.log_softmax(1).kl_div(x.softmax(0), reduction="batchmean"),
    ],
)
def test_what_asks_for_sizes_asks_for_those_of_the_elements_that_count(compute: Any) -> None:
    n = Variable("n", 3, ROOM)
    for size in (3, 5):
        array = numbers(size, WIDTH)
        close(compute(with_junk(array)[: n.bind(size)]), compute(Tensor(array)).numpy())


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x.T[None].max_pool1d(2, ceil_mode=True),
        lambda x: x.T[None].avg_pool1d(3, 2, 1, count_include_pad=False),
        lambda x: x.T[None].adaptive_max_pool1d(2),
        lambda x: x.T[None].interpolate(scale_factor=2),
        lambda x: x.T.cov(),
        lambda x: x.pdist(),
        lambda x: x[:, 0].diag(),
    ],
)
def test_what_takes_sizes_that_are_ints_is_refused_by_axis(compute: Any) -> None:
    with pytest.raises(UsageError, match=r"\[\w+\] axis \d has the size n.* ints"):
        compute(with_junk(numbers(4, WIDTH))[: Variable("n", 3, ROOM).bind(4)])


def test_a_tensor_keeps_its_size_when_it_is_written_to() -> None:
    n = Variable("n", 1, ROOM).bind(3)
    array = numbers(ROOM, WIDTH)
    whole, cut = Tensor(array) * 1, Tensor(array)[:n] * 1
    assert cut.zero_().shape == (n, WIDTH)
    for write in (lambda: whole.copy_(cut), lambda: cut.copy_(whole), lambda: cut.copy_(cut.normal_())):
        with pytest.raises(UsageError, match="axis 0 is of another size"):
            write()
    assert whole.shape == (ROOM, WIDTH) and cut.shape == (n, WIDTH)
    with pytest.raises(UsageError, match=r"Tensor\(n\)"):
        n / 2
    with pytest.raises(UsageError, match=r"combinations.* size n"):
        cut[:, 0].combinations()
