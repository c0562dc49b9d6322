"""Overdue work: a tensor that was waited for in vain does not hold up the next one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from hcq import Device, Tensor, jit
from hcq.errors import DeviceFault, WaitTimeout
from hcq.frontend.run import timed_out_work


@contextmanager
def in_a_hurry(device: Any) -> Iterator[None]:
    """A short deadline, for waits that are to be in vain; what is to succeed has all the time it needs."""
    patient = device.config
    device.config = replace(patient, timeout_ms=100)
    try:
        yield
    finally:
        device.config = patient


@pytest.fixture
def stuck() -> Iterator[Any]:
    """The default device, and a signal that its next work waits for."""
    device = Device[None]
    gate = device.signal("gate")
    yield device, gate
    gate.set(1)
    timed_out_work.drop(device)


def held_up(device: Any, gate: Any, x: Tensor) -> Tensor:
    """x + 1, behind a wait for the gate; its first read times out."""
    x.realize()
    device.queue().wait(gate, 1).submit()
    y = (x + 1).realize()
    late = pytest.raises(WaitTimeout, match="other work, when it comes, drops what is late")
    with in_a_hurry(device), late:
        y.tolist()
    return y


def test_after_a_timeout_the_next_tensor_works_and_the_late_one_says_that_it_was_dropped(stuck):
    device, gate = stuck
    y = held_up(device, gate, Tensor([1.0, 2.0]))
    assert (Tensor([3.0]) * 2).tolist() == [6.0]
    with pytest.raises(DeviceFault, match="holds no result"):
        y.tolist()
    assert not timed_out_work.late


def test_a_late_tensor_may_be_read_again(stuck):
    device, gate = stuck
    y = held_up(device, gate, Tensor([1.0, 2.0]))
    with in_a_hurry(device), pytest.raises(WaitTimeout):
        y.tolist()
    gate.set(1)
    assert y.tolist() == [2.0, 3.0]
    assert (Tensor([3.0]) * 2).tolist() == [6.0]


def test_what_is_done_is_read_past_late_work_which_stays(stuck):
    device, gate = stuck
    x = Tensor([1.0, 2.0])
    other = (x * 10).realize()
    assert other.tolist() == [10.0, 20.0]
    y = held_up(device, gate, x)
    assert other.tolist() == [10.0, 20.0]
    gate.set(1)
    assert y.tolist() == [2.0, 3.0]


def test_work_that_needs_the_late_result_waits_for_it(stuck):
    device, gate = stuck
    y = held_up(device, gate, Tensor([1.0, 2.0]))
    z = (y * 2).realize()
    gate.set(1)
    assert z.tolist() == [4.0, 6.0]
    assert y.tolist() == [2.0, 3.0]


def test_a_replay_makes_late_work_give_way(stuck):
    device, gate = stuck
    double = jit(lambda x: x * 2)
    one = Tensor([1.0]).realize()
    for _ in range(3):
        assert double(one).tolist() == [2.0]
    held_up(device, gate, Tensor([1.0, 2.0]))
    assert double(one).tolist() == [2.0]
