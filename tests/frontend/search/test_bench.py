"""Bench: a candidate's time counts when it has computed the same, everywhere, and has written nothing else."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hcq.base import Grid
from hcq.compiler.code_object import CodeObject
from hcq.compiler.compile import compile_kernel
from hcq.compiler.target import cpu_target
from hcq.frontend.search.bench import (
    GUARD_BYTES,
    Bench,
    Wrong,
    agree,
    argument_bytes,
    ask_one,
    ask_several,
    random_bytes,
    times_of,
)
from hcq.ir.dtype import ALL, DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from tests.compiler.building import kernel, matmul, out, param, reduce
from tests.compiler.loops.test_loop_nest import product

if TYPE_CHECKING:
    from hcq.device import Device


class Counted:
    """A clock that runs what it is asked to time, and gives the times it was made with."""

    by = "timeline"

    def __init__(self, device: Any, times: Sequence[float]) -> None:
        self.device, self.times = device, list(times)
        self.seen: list[bytes] = []

    def time(self, program: Any, buffers: Sequence[Any], grid: Grid, block: Grid) -> float:
        self.seen.append(buffers[0].read()[:4])
        self.device.run(program, list(buffers), grid=grid, block=block)
        return self.times.pop(0) if len(self.times) > 1 else self.times[0]

    def runs(self, wanted: int) -> int:
        return wanted


def compiled(sink: Node, schedule: str | None = None) -> CodeObject:
    return compile_kernel(sink, cpu_target(), schedule=schedule)


def as_if(other: Node, sink: Node) -> CodeObject:
    """The code of one kernel, which says that it is another's."""
    return dataclasses.replace(compiled(other), args=compiled(sink).args)


def test_a_right_candidate_has_the_fastest_of_its_times(device: Device) -> None:
    sink = product()
    bench = Bench(device, sink, compiled(sink), Counted(device, [5e6, 3e6, 4e6, 6e6, 7e6, 1e6]))
    code = compiled(sink, "split r1 8; vectorize r1.1")
    assert times_of(bench.answer(ask_one(code))) == [3e6]


def test_several_take_turns_and_the_fastest_run_of_each_counts(device: Device) -> None:
    sink = product()
    clock = Counted(device, [7e6, 2e6] * 4 + [1e6, 3e6] + [9e6, 2e6] * 10)
    bench = Bench(device, sink, compiled(sink), clock)
    codes = [compiled(sink), compiled(sink, "split r1 8; vectorize r1.1")]
    assert times_of(bench.answer(ask_several(codes))) == [1e6, 2e6]
    assert len(clock.seen) == 30


def test_a_hopeless_candidate_runs_once(device: Device) -> None:
    sink = product()
    clock = Counted(device, [1e6, 1e6, 1e6, 1e6, 1e6, 9e6])
    bench = Bench(device, sink, compiled(sink), clock)
    assert bench.one(compiled(sink)) == 1e6
    assert bench.one(compiled(sink, "")) == 9e6
    assert len(clock.seen) == 6


def test_short_candidates_run_more_often(device: Device) -> None:
    sink = product()
    clock = Counted(device, [1e5])
    bench = Bench(device, sink, compiled(sink), clock)
    bench.one(compiled(sink))
    assert len(clock.seen) == 30
    bench.side_by_side([compiled(sink)])
    assert len(clock.seen) == 30 + 30 * 15


@pytest.mark.parametrize(
    "lie",
    [
        lambda: kernel((out(0, (40,)), param(1, (40,)) + 1.5)),
        lambda: kernel((out(0, (40,)), param(1, (40,)))),
        lambda: kernel((out(0, (39,)), param(1, (39,)) + 1.0)),  # the last one is not written
    ],
    ids=["other values", "a copy", "one too few"],
)
def test_a_candidate_that_computes_something_else_is_wrong(device: Device, lie: Any) -> None:
    sink = kernel((out(0, (40,)), param(1, (40,)) + 1.0))
    bench = Bench(device, sink, compiled(sink), Counted(device, [10]))
    with pytest.raises(Wrong, match="argument 0 has other values"):
        bench.one(as_if(lie(), sink))


def test_a_candidate_that_writes_behind_its_result_is_wrong(device: Device) -> None:
    sink = kernel((out(0, (40,)), param(1, (40,)) + 1.0))
    bench = Bench(device, sink, compiled(sink), Counted(device, [10]))
    with pytest.raises(Wrong, match="memory behind argument 0 was written"):
        bench.one(as_if(kernel((out(0, (48,)), param(1, (48,)) + 1.0)), sink))


def test_a_candidate_that_writes_what_it_should_read_is_wrong(device: Device) -> None:
    sink = kernel((out(0, (40,)), param(1, (40,)) + 1.0))
    bench = Bench(device, sink, compiled(sink), Counted(device, [10]))
    place = out(1, (40,))
    both = kernel((out(0, (40,)), place + 1.0), (place, place + 1.0))
    with pytest.raises(Wrong, match="argument 1 is read only"):
        bench.one(as_if(both, sink))


def test_a_kernel_that_reads_what_it_writes_finds_its_input_each_time(device: Device) -> None:
    place = out(0, (40,))
    sink = kernel((place, place * 2.0))
    clock = Counted(device, [10])
    bench = Bench(device, sink, compiled(sink), clock)
    assert bench.is_in_place
    bench.one(compiled(sink))
    assert len(set(clock.seen)) == 1


def test_a_sum_in_another_order_is_right(device: Device) -> None:
    x = param(1, (3, 1000))
    sink = kernel((out(0, (3, 1)), reduce(Node(Op.EXP, x.dtype, (x,)), (1,))))
    bench = Bench(device, sink, compiled(sink), Counted(device, [10]))
    assert bench.one(compiled(sink, "")) == 10


def test_the_memory_of_a_kernel_is_that_of_its_arguments() -> None:
    sink = kernel((out(0, (3, 1, 5)), matmul(param(1, (3, 4)), param(2, (4, 5)))))
    assert argument_bytes(sink) == 4 * (15 + 12 + 20)
    assert GUARD_BYTES % 8 == 0


@pytest.mark.parametrize("dtype", [one for one in ALL if one is not dtypes.index], ids=lambda one: one.name)
def test_random_numbers_are_held_exactly_and_are_the_same_again(dtype: DType) -> None:
    data = random_bytes(dtype, 100_000, 3)
    assert len(data) == 100_000 * dtype.itemsize
    assert data == random_bytes(dtype, 100_000, 3) != random_bytes(dtype, 100_000, 4)
    assert agree(data, data, dtype)
    if dtype.is_bool:
        assert set(data) == {0, 1}


def test_floats_agree_within_rounding_and_nothing_else_does() -> None:
    want = np.array([1.0, -2.0, 1e-9, np.nan, np.inf], np.float32)
    near = want * np.float32(1 + 2e-6)
    assert agree(near.tobytes(), want.tobytes(), dtypes.float32)
    for place, value in ((0, 1.01), (2, 0.01), (3, 1.0), (4, -np.inf), (1, np.nan)):
        other = want.copy()
        other[place] = value
        assert not agree(other.tobytes(), want.tobytes(), dtypes.float32)
    ints = np.array([5, 6], np.int32)
    assert not agree((ints + [0, 1]).astype(np.int32).tobytes(), ints.tobytes(), dtypes.int32)


def test_a_request_is_read_back_as_it_was_made(device: Device) -> None:
    sink = product()
    code = compiled(sink)
    head, _, blobs = ask_several([code, code]).partition(b"\n")
    assert json.loads(head) == {"together": True, "sizes": [len(code.to_bytes())] * 2}
    assert CodeObject.from_bytes(blobs[: len(blobs) // 2]) == code
