"""The parts that ranks are made of, in one process: sums, buckets, schedules, the roll call, what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hcq
from hcq import DriverError, Tensor, UsageError, distributed, nn
from hcq.frontend.jit.function import Jit
from hcq.frontend.more.distributed import job, rollcall, sums
from hcq.frontend.more.distributed.buckets import UNIT, Layout
from hcq.frontend.more.distributed.pipeline import order_of


def written(parts: list[str]) -> str:
    """The order of a sum, as brackets."""
    if len(parts) == 1:
        return parts[0]
    low = 1
    while 2 * low < len(parts):
        low *= 2
    return f"({written(parts[:low])}+{written(parts[low:])})"


@given(st.integers(1, 9))
def test_a_tree_adds_neighbours_first_and_the_ranks_of_a_power_of_two_before_the_rest(count: int) -> None:
    parts = [np.array([str(n)], dtype=object) for n in range(count)]

    def join(a: object, b: object, out: object) -> None:
        out[0] = f"({a[0]}+{b[0]})"  # type: ignore[index]

    sums.tree(parts, join, parts[0])
    assert parts[0][0] == written([str(n) for n in range(count)])


@given(st.integers(0, 500), st.integers(1, 9))
def test_parts_of_an_array_follow_each_other_and_cover_it(length: int, parts: int) -> None:
    edges = sums.bounds(length, parts)
    assert edges[0] == 0 and edges[-1] == length and len(edges) == parts + 1
    assert all(low <= high for low, high in pairwise(edges))


def test_bfloat16_is_added_as_its_numbers_and_rounded_to_nearest() -> None:
    values = np.array([1.0, 1.0078125, 3e38, np.nan, -0.0], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    out = np.zeros_like(bits)
    sums.combine("sum", "bfloat16")(bits, bits, out)
    found = (out.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(found, [2.0, 2.015625, np.inf, np.nan, 0.0])


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("bucket_bytes", [4, 100, 1 << 20])
def test_what_is_joined_into_buckets_comes_apart_again(parts: int, bucket_bytes: int) -> None:
    tensors = [Tensor.arange(n).float().reshape(*shape) for n, shape in ((6, (2, 3)), (1, ()), (40, (40,)))]
    layout = Layout(tensors, bucket_bytes, parts)
    buckets = layout.joined(tensors, Tensor(7.0))
    assert all(bucket.shape[0] % (UNIT * parts) == 0 for bucket in buckets)
    assert layout.loss(buckets).item() == 7.0
    for tensor, found in zip(tensors, layout.apart(buckets)):
        assert found.shape == tensor.shape and found.tolist() == tensor.tolist()
    assert layout.places[0].parameter == 2  # backward comes to the last parameter first


@given(st.sampled_from(["1f1b", "gpipe"]), st.integers(1, 6), st.integers(1, 8))
def test_each_stage_does_every_micro_batch_once_each_way_in_order(
    schedule: str, size: int, count: int
) -> None:
    for rank in range(size):
        order = list(order_of(schedule, rank, size, count))
        for way in ("forward", "backward"):
            assert [number for what, number in order if what == way] == list(range(count))
        kept = most = 0
        for what, number in order:
            kept += 1 if what == "forward" else -1
            most = max(most, kept)
            assert what == "forward" or ("forward", number) in order[: order.index((what, number))]
        assert most <= (count if schedule == "gpipe" else size - rank)


def test_a_row_of_the_roll_call_says_where_a_rank_is_and_how_it_ended() -> None:
    table = rollcall.Table.made(2)
    row = table.rows[1]
    assert row.state == rollcall.ABSENT and row.doing() == "no operation yet"
    row.begin()
    row.post(rollcall.CODES["all_reduce"], 41, 1 << 20, 77, 0)
    seen = rollcall.Table.of_process(os.getpid(), table.descriptor).rows[1]
    assert seen.count(77) == 41 and seen.count(78) == 0
    assert seen.doing() == "all_reduce #41 of 1,048,576 bytes"
    assert seen.state == rollcall.RUNNING and not seen.is_gone()
    seen.set_end(rollcall.KILLED, 9)
    assert row.end() == "was killed by signal 9"


def test_a_row_knows_its_last_operations_by_digest_and_words() -> None:
    row = rollcall.Table.made(1).rows[0]
    row.begin()
    text = "all_reduce sum float32 (4,)"
    for number in range(1, 2 + rollcall.ENTRIES):
        row.post(rollcall.CODES["all_reduce"], number, 16, 77, 0, 0, (1 << 64) - number, text)
    assert row.did(77, 1) is None and row.did(78, 2) is None
    assert row.did(77, 2) == ((1 << 64) - 2, text)
    assert row.last_message() is None
    row.post(rollcall.CODES["send"], 0, 16, 0, -1, 1, 5, "float32 " + "(1)" * 99)
    digest, words = row.last_message() or (0, "")
    assert digest == 5 and words.startswith("float32 (1)(1)") and len(words) == 8 * rollcall.TEXT_WORDS
    copy = rollcall.Table.made(1).rows[0]
    copy.hear(row.words, (rollcall.HEARD,))
    assert copy.did(77, 2) == row.did(77, 2) and copy.words[rollcall.HEARD] == 0
    assert rollcall.ROW_BYTES + 24 <= 1472  # what a datagram holds without being cut


def test_a_process_that_ended_is_gone_whoever_has_its_number_now() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    began = rollcall.start_of(child.pid)
    assert began > 0
    child.communicate(b"\n")
    assert rollcall.start_of(child.pid) != began


def test_before_the_ranks_have_met_everything_says_so() -> None:
    for call in (
        distributed.rank,
        distributed.size,
        distributed.barrier,
        lambda: distributed.all_reduce(hcq.tensor([1])),
    ):
        with pytest.raises(UsageError, match=r"Call hcq\.distributed\.init\(\) first"):
            call()
    distributed.close()  # nothing to leave


def test_without_mpi4py_one_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(DriverError, match=r"mpi4py cannot be imported .*: pip install 'hcq\[mpi\]'"):
        job._initialised()


def test_a_recording_by_result_is_submitted_in_parts_and_gives_the_same() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    params = list(model.parameters())

    def gradients(x: Tensor) -> list[Tensor]:
        from hcq.frontend.grad.gradient import grad

        found = grad(model(x).square().sum(), list(reversed(params)))
        return [each.contiguous().realize() for each in found if each is not None]

    parted, whole = Jit(gradients, by_result=True), Jit(gradients)
    for number in range(4):
        x = Tensor(np.random.default_rng(number).standard_normal((3, 4)).astype("float32"))
        for a, b in zip(parted(x), whole(x)):
            assert a.tolist() == b.tolist()
    assert parted._last is not None and whole._last is not None
    parts = [parted._last.graph, *parted._last.further]
    assert len(parts) > 1 and not whole._last.further
    assert sum(len(part.commands) for part in parts) == len(whole._last.graph.commands)


def test_a_result_of_a_recording_in_parts_can_be_waited_for_before_those_after_it() -> None:
    x = Tensor.ones(64, 64).contiguous().realize()

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = x * 2, x @ x
        return first.realize(), second.realize()

    step = Jit(both, by_result=True)
    for _ in range(3):
        first, second = step(x)
    numbers = [each.node.arg.buffer.last for each in (first, second)]
    assert numbers[0] < numbers[1]
