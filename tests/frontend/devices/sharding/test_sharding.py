"""Sharded tensors: what they compute is what one device computes, wherever the values are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hcq
from hcq import Tensor, dtypes, nn
from hcq.errors import UsageError
from hcq.frontend.devices.collectives.perform import tally
from hcq.frontend.grad.gradient import grad
from hcq.ir.op import Op

pytestmark = pytest.mark.own_devices

TWO = ["CPU:0", "CPU:1"]
THREE = ["CPU:0", "CPU:1", "CPU:2"]

Program = Callable[..., Any]


def data(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def exchanged() -> tuple[int, int]:
    return sum(tally.collectives.values()), tally.peer_bytes


def split_of(x: Tensor) -> Any:
    node: Any = x.realize().node
    return node.arg.split


# what keeps the split, what sums over it, what moves it, what cannot keep it; of x (6, 4, 5) and y (6, 4, 5)
PROGRAMS: list[Program] = [
    lambda x, y: (x < y).where(x * 2.0 + y.exp(), x - 1.0),
    lambda x, y: (x.sum(0), x.sum(1), x.sum(2), (x * y).sum()),
    lambda x, y: (x.amax(0), y.amin((0, 1)), x.argmax(0), x.mean(), x.var(0)),
    lambda x, y: (x.softmax(0), y.softmax(2), x.log_softmax(1)),
    lambda x, y: x.reshape(24, 5) @ y.reshape(24, 5).T,
    lambda x, y: x.reshape(6, 20).T @ y.reshape(6, 20),
    lambda x, y: (x @ y.permute(0, 2, 1), x.permute(2, 0, 1).reshape(5, 24), x.reshape(2, 3, 4, 5).sum(1)),
    lambda x, y: (x[1:5], x[::2], x[0], x[3:4] + 1.0, x[:, 1:3, ::2], x.flip(0), x.flip(1)),
    lambda x, y: (x.pad((0, 0, 0, 0, 1, 2)), Tensor.cat(x, y, dim=0), Tensor.cat(x, y, dim=1)),
    lambda x, y: (x.cumsum(0), y.cumsum(1), x.sort(0).values),
    lambda x, y: x.reshape(1, 6, 4, 5).max_pool2d(2) + y.reshape(1, 6, 4, 5).avg_pool2d(2),
    lambda x, y: (x.expand(2, 6, 4, 5).sum(0), x.reshape(6, 1, 20).expand(6, 3, 20), x.half().sum(0)),
]


def flat(results: Any) -> list[Tensor]:
    return list(results) if isinstance(results, tuple) else [results]


@pytest.mark.parametrize(
    "axes",
    [
        (0, 0),
        pytest.param((1, 2), marks=pytest.mark.thorough),
        pytest.param((0, None), marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_over_shards_computes_what_one_device_computes(number: int, axes: tuple[Any, Any]) -> None:
    x, y = data(6, 4, 5), data(6, 4, 5, seed=1)
    program = PROGRAMS[number]
    wanted = flat(program(Tensor(x), Tensor(y)))
    found = flat(program(Tensor(x).shard(TWO, axes[0]), Tensor(y).shard(TWO, axes[1])))
    for want, got in zip(wanted, found):
        assert got.shape == want.shape and got.dtype is want.dtype and got.device == "CPU,CPU:1"
        np.testing.assert_allclose(
            got.numpy(), want.numpy(), rtol=2e-3 if want.dtype is dtypes.float16 else 1e-5, atol=1e-6
        )


@pytest.mark.parametrize(
    ("left", "right"),
    [
        pytest.param(a, b, marks=() if (a, b) in ((0, None), (1, 0), (None, 1)) else pytest.mark.thorough)
        for a in (None, 0, 1)
        for b in (None, 0, 1)
    ],
)
def test_a_product_and_its_gradients_are_the_same_however_the_factors_are_split(
    left: Any, right: Any
) -> None:
    a, b, g = data(5, 7), data(7, 4, seed=1), data(5, 4, seed=2)
    x, y = Tensor(a).shard(THREE, left), Tensor(b).shard(THREE, right)
    out = (x @ y).relu()
    slopes = grad(out, (x, y), Tensor(g).shard(THREE))
    np.testing.assert_allclose(out.numpy(), np.maximum(a @ b, 0), rtol=1e-5, atol=1e-6)
    masked = g * (a @ b > 0)
    np.testing.assert_allclose(slopes[0].numpy(), masked @ b.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(slopes[1].numpy(), a.T @ masked, rtol=1e-5, atol=1e-6)


def test_work_on_what_is_split_alike_stays_where_it_is() -> None:
    x, y = (Tensor(data(7, 4, seed=s)).shard(THREE, 0).realize() for s in (0, 1))
    before = exchanged()
    z = ((x + y).relu() * 2.0).reshape(7, 2, 2).sum(2).permute(1, 0)
    assert split_of(z) == (1, (3, 2, 2))  # seven rows over three devices: the first has one more
    assert exchanged() == before


def test_a_sum_over_the_split_axis_is_one_all_reduce_and_goes_through_what_is_linear() -> None:
    x = Tensor(data(6, 4)).shard(TWO, 0).realize()
    count, sent = exchanged()
    total = (x.sum(0) * 3.0 - (x * x).sum(0) / 2.0).realize()  # terms are added after all of this
    assert split_of(total) is None
    assert exchanged() == (count + 1, sent + 2 * 4 * 4)


def test_rows_of_a_table_are_taken_where_the_numbers_are_and_its_gradient_is_summed() -> None:
    table, rows = data(10, 3), np.array([[1, 9], [0, 1], [4, 4]])
    weight = Tensor(table).shard(TWO).requires_grad_()
    taken = weight[Tensor(rows).shard(TWO, 0)]
    (taken * taken).sum().backward()
    np.testing.assert_array_equal(taken.numpy(), table[rows])
    want = np.zeros_like(table)
    np.add.at(want, rows, 2 * table[rows])
    assert weight.grad is not None
    np.testing.assert_allclose(weight.grad.numpy(), want, rtol=1e-5)


def test_what_is_there_goes_to_another_split_to_one_device_and_back() -> None:
    x = data(5, 7)
    for first in (None, 0, 1):
        for second in (None, 0, 1):
            moved = Tensor(x).shard(THREE, first).shard(THREE, second)
            np.testing.assert_array_equal(moved.numpy(), x)
    there = Tensor(x).shard(TWO, 1).to("CPU:2")
    assert there.device == "CPU:2"
    np.testing.assert_array_equal((there.shard(TWO, 0) + 1.0).cpu().numpy(), x + 1)


@pytest.mark.parametrize("axis", (None, 0))
def test_a_gradient_goes_back_through_moves_whose_values_are_there_already(axis: int | None) -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0]).requires_grad_()
    apart = (x * 2.0).shard(TWO, axis).realize()
    together = (apart * 3.0).to("CPU:2").realize()
    assert together.tolist() == [6.0, 12.0, 18.0, 24.0]
    (together * together).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [72.0, 144.0, 216.0, 288.0]
    cut = (x * 2.0).detach().to("CPU:2").realize()
    with hcq.no_grad():
        kept = (x * 2.0).to("CPU:2").realize()
    for moved in (cut, kept):
        with pytest.raises(UsageError, match="does not depend"):
            moved.sum().backward()


def test_a_write_in_place_keeps_the_split_and_what_was_made_before_keeps_its_value() -> None:
    x = data(6, 2)
    a = Tensor(x).shard(TWO, 0).realize()
    before, total = a * 2.0, a.sum(0)
    a.assign(a + total)  # the sum is exchanged before the memory is written
    assert split_of(a) == (0, (3, 3))
    np.testing.assert_allclose(a.numpy(), x + x.sum(0), rtol=1e-5)
    np.testing.assert_allclose(before.numpy(), x * 2)
    a[:, 0] = 7.0
    np.testing.assert_allclose(a.numpy()[:, 0], 7.0)


def test_two_tensors_of_one_value_have_memory_of_their_own() -> None:
    x = Tensor(data(6, 2)).shard(TWO, 0).realize()
    for y in (x * 2.0, x.sum(0)):
        z, want = y.detach(), y.numpy()
        y, z = y + 0.0, z + 0.0
        y.realize(z)
        y.assign(y * 3.0).realize()
        np.testing.assert_array_equal(z.numpy(), want)
        np.testing.assert_allclose(y.numpy(), want * 3, rtol=1e-6)


def test_a_state_is_saved_whole_and_loaded_into_shards(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(6, 4)).shard(TWO)
    net[0].weight.shard_(TWO, 0)
    want = [tensor.numpy() for tensor in net.state_dict().values()]
    nn.save_file(net.state_dict(), tmp_path / "net.safetensors")
    for tensor in net.parameters():
        tensor.assign(tensor * 0.0).realize()
    net.load_state_dict(nn.load_file(tmp_path / "net.safetensors"))
    assert split_of(net[0].weight) == (0, (2, 2))
    for one, two in zip(want, net.state_dict().values()):
        np.testing.assert_array_equal(two.numpy(), one)


def test_a_group_works_again_after_one_of_its_devices_was_closed() -> None:
    for _ in range(2):
        x = Tensor(data(4, 2)).shard(["CPU:0", "CPU:3"], 0)
        np.testing.assert_allclose((x * 2.0).sum(0).numpy(), data(4, 2).sum(0) * 2, rtol=1e-5)
        hcq.open("CPU:3").close()
    with pytest.raises(UsageError, match="were in the memory of CPU:3, and it was closed"):
        (x + 1.0).realize()


def test_random_numbers_of_a_group_are_those_of_one_device() -> None:
    Tensor.manual_seed(5)
    wanted = [Tensor.randn(3, 4).tolist(), Tensor.rand(5).tolist()]
    Tensor.manual_seed(5)
    assert [
        Tensor.randn(3, 4, device="CPU:0,CPU:1").tolist(),
        Tensor.rand(5, device="CPU,CPU:1").tolist(),
    ] == wanted


@pytest.mark.parametrize(
    ("make", "weights"),
    [
        (lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9), 0),
        pytest.param(lambda p: nn.optim.AdamW(p, lr=0.01), None, marks=pytest.mark.thorough),
        pytest.param(lambda p: nn.optim.AdamW(p, lr=0.01), 0, marks=pytest.mark.thorough),
    ],
)
def test_steps_of_an_optimizer_are_those_of_one_device(make: Any, weights: Any) -> None:
    x, y = data(8, 6), data(8, 4, seed=1)

    def train(where: list[str]) -> list[Any]:
        Tensor.manual_seed(1)
        net = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.BatchNorm1d(6), nn.Dropout(0.25), nn.Linear(6, 4))
        if len(where) > 1:
            net.shard(where, None)
            net[0].weight.shard_(where, weights)
        optimizer = make(net.parameters())
        Tensor.manual_seed(2)  # of what dropout draws: each device, and each group, counts for itself
        for _ in range(3):
            optimizer.zero_grad()
            inputs, wanted = (Tensor(each).shard(where, 0) for each in (x, y))
            ((net(inputs) - wanted) ** 2).mean().backward()
            optimizer.step()
        return [tensor.numpy() for tensor in net.state_dict().values()]

    for one, two in zip(train(["CPU"]), train(TWO)):
        np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-6)


def test_the_plan_of_a_group_says_what_each_device_computes_and_what_is_exchanged() -> None:
    x = Tensor(data(6, 4)).shard(TWO, 0).realize()
    (plan,) = (x.sum(0) + 1.0).schedule()
    text = str(plan)
    assert "stage 0 on CPU\n" in text and "stage 0 on CPU:1\n" in text and "stage 1 on CPU:1\n" in text
    assert "stage 0, after kernels 1, 1: all-reduce of 16 B by" in text
    (plan,) = (x.flip(0) + 0.5).schedule()
    assert "FLIP of (6, 4) split along axis 0: gathered before" in str(plan)


def test_mistakes_are_refused_with_the_way_out() -> None:
    x = Tensor(data(2, 6))
    with pytest.raises(UsageError, match="has 2 elements for 3 devices: one would have none"):
        x.shard(THREE, 0)
    with pytest.raises(UsageError, match="named twice"):
        x.shard(["CPU:0", "cpu"], 0)
    with pytest.raises(UsageError, match="give a list of names"):
        x.shard([], 0)
    with pytest.raises(UsageError, match="one tensor is on CPU,CPU:1, another on CPU"):
        x.shard(TWO) + x
    split = x.shard(TWO, 1).realize()
    with pytest.raises(UsageError, match="the part is not the same rows of every device"):
        split[:, 1:2] = 0.0
        split.realize()


def test_a_lazy_tensor_is_computed_and_then_shared_out():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]) * 2
    x.shard_(["CPU", "CPU:1"], axis=0)
    assert x.node.op is Op.BUFFER
    assert x.tolist() == [[2.0, 4.0], [6.0, 8.0]]


@pytest.mark.parametrize(
    "made",
    [
        lambda: Tensor.zeros(6, 4),
        lambda: Tensor.full((6, 4), 2.5).contiguous(),
        lambda: Tensor.arange(24.0).reshape(6, 4),
        lambda: Tensor.eye(6, 4) + 1,
    ],
)
@pytest.mark.parametrize("axis", [0, 1, None])
def test_what_is_computed_from_constants_is_split_as_asked_and_takes_no_more_memory(made, axis):
    expected = made().numpy()
    x = made().shard(("CPU:1", "CPU:2"), axis).realize()
    split = x.node.arg.split
    assert (None if split is None else split.axis) == axis
    parts = [buffer.size_bytes for buffer in x.node.arg.buffers()]
    assert parts == [expected.nbytes // (1 if axis is None else 2)] * 2
    assert np.array_equal(x.numpy(), expected)
    assert np.array_equal((x * 2 + x.sum()).numpy(), expected * 2 + expected.sum())
    lazy = made().shard(("CPU:1", "CPU:2"), axis)  # read, and moved on, before it is in memory
    assert np.array_equal((lazy + 1).to("CPU").numpy(), expected + 1)
    assert np.array_equal(lazy.numpy(), expected)
    assert np.array_equal(lazy.to("CPU").shard(("CPU:2", "CPU:3"), 0).sum(0).numpy(), expected.sum(0))


@pytest.mark.parametrize("axis", [0, 1, None])
def test_like_another_is_split_as_that_one_is_where_it_is_in_memory(axis):
    x = Tensor(data(6, 4)).shard(("CPU:1", "CPU:2"), axis).realize()
    for made in (x.zeros_like(), x.full_like(2.5), x.detach().ones_like(), x.rand_like(), x.randn_like()):
        split = split_of(made)
        assert (None if split is None else split.axis) == axis
        assert np.allclose((made + x).numpy(), made.numpy() + x.numpy())
    assert x.rand_like(requires_grad=True).requires_grad
