"""Prepared launches: they do what Device.launch does, with the same words in the ring, and refuse what it refuses."""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Iterator

import pytest

from hcq import config
from hcq.cpu.device import RING_WORDS, CpuDevice
from hcq.errors import DeviceFault, UsageError
from hcq.events.observer import Observer
from hcq.memory import Buffer
from hcq.queue import ONE
from tests.hcq.conftest import assemble
from tests.hcq.work.test_interrupted_submission import is_whole_or_nothing


@pytest.fixture
def cpu() -> Iterator[CpuDevice]:
    """A device that nobody observes."""
    plain = dataclasses.replace(
        config.current(), validate=False, trace=None, profile=False, debug=frozenset()
    )
    device = CpuDevice("CPU:plain", config=plain)
    assert not device.observers
    yield device
    device.close()


def int64(buffer: Buffer) -> int:
    return int(struct.unpack_from("<q", buffer.read(0, 8))[0])


def sum_of(count: int) -> bytes:
    """A kernel that adds up what `count` buffers hold, and puts it into the first."""
    arguments = ", ".join(f"ptr %a{i}" for i in range(count))
    lines = ["  %s0 = load i64, ptr %a0"]
    for i in range(1, count):
        lines += [f"  %v{i} = load i64, ptr %a{i}", f"  %s{i} = add i64 %s{i - 1}, %v{i}"]
    text = "\n".join(lines)
    return assemble(
        f"define void @add({arguments}, ptr %group) {{\n{text}\n  store i64 %s{count - 1}, ptr %a0\n  ret void\n}}"
    )


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 9])
def test_a_prepared_launch_leaves_the_words_in_the_ring_that_a_launch_leaves(
    cpu: CpuDevice, count: int
) -> None:
    program = cpu.load(sum_of(count), "add", args=["buffer"] * count)
    buffers = [cpu.alloc(8) for _ in range(count)]
    launch = cpu.prepare(program, (2, 1, 1), ONE)
    words, records = [], []
    for act in (lambda: cpu.launch(program, buffers, (2, 1, 1)), lambda: launch(buffers)):
        for number, buffer in enumerate(buffers):
            buffer.write(struct.pack("<q", 10**number))
        start = 4 * cpu._put
        act()
        value = cpu.timeline.submitted
        assert int64(buffers[0]) == int("1" * count) + int("1" * count) - 1  # twice: a grid of two
        assert [buffer.last for buffer in buffers] == [value] * count
        words.append(bytes(cpu._ring[start : 4 * cpu._put - 8]))  # all but the timeline's value
        assert struct.unpack("<Q", cpu._ring[4 * cpu._put - 8 : 4 * cpu._put])[0] == value
        records.append(cpu.recent[-1][1])
    assert words[0] == words[1]
    assert records[0] == records[1]


def test_a_prepared_launch_is_whole_or_nothing_when_a_signal_interrupts_it(
    cpu: CpuDevice, llvm_object: bytes
) -> None:
    out = cpu.alloc(16)
    launch = cpu.prepare(cpu.load(llvm_object, "static_data", args=["buffer"]), ONE, ONE)
    is_whole_or_nothing(lambda: int64(out), lambda: launch([out]), stride=1)


def test_prepared_launches_go_round_the_ring(cpu: CpuDevice) -> None:
    program = cpu.load(sum_of(2), "add", args=["buffer"] * 2)
    total, one = cpu.alloc(8), cpu.alloc(8)
    total.write(struct.pack("<q", 0))
    one.write(struct.pack("<q", 1))
    launch = cpu.prepare(program, ONE, ONE)
    start, count = cpu._put, 0
    while cpu._put - start < 2 * RING_WORDS:
        launch([total, one])
        count += 1
    assert int64(total) == count


def test_what_a_launch_refuses_a_prepared_one_refuses_in_the_same_words(cpu: CpuDevice) -> None:
    program = cpu.load(sum_of(2), "add", args=["buffer"] * 2)
    launch = cpu.prepare(program, ONE, ONE)
    kept, freed, other = cpu.alloc(8), cpu.alloc(8), CpuDevice("other")
    freed.free()
    try:
        for buffers in ([kept, freed], [kept], [kept, kept, kept], [kept, other.alloc(8)]):
            refusals = []
            for act in (functools.partial(cpu.launch, program), launch):
                with pytest.raises(UsageError) as refusal:
                    act(buffers)
                refusals.append(str(refusal.value))
            assert refusals[0] == refusals[1]
        with pytest.raises(UsageError, match="grid"):
            cpu.prepare(program, (0, 1, 1), ONE)
    finally:
        other.close()


def test_a_prepared_launch_reads_no_memory_that_a_failed_submission_should_have_written(
    cpu: CpuDevice,
) -> None:
    launch = cpu.prepare(cpu.load(sum_of(2), "add", args=["buffer"] * 2), ONE, ONE)
    kept = cpu.alloc(8)
    kept.poison = "It was not computed."
    failure = (1, 1, kept.poison)
    cpu.failures.append(failure)
    try:
        with pytest.raises(DeviceFault, match="holds no result"):
            launch([kept, kept])
    finally:
        cpu.failures.remove(failure)


def test_observers_see_prepared_launches(cpu: CpuDevice) -> None:
    class Counting(Observer):
        seen = 0

        def sent(self, value: int) -> None:
            self.seen += 1

    program = cpu.load(sum_of(2), "add", args=["buffer"] * 2)
    launch = cpu.prepare(program, ONE, ONE)
    counting = Counting()
    cpu.observers = (counting,)
    launch([cpu.alloc(8), cpu.alloc(8)])
    cpu.observers = ()
    launch([cpu.alloc(8), cpu.alloc(8)])
    assert counting.seen == 1
