"""Graphs of several devices that wait for each other, and devices that wait for each other as they go."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from hcq import config
from hcq.cpu.device import CpuDevice
from hcq.errors import UsageError
from hcq.work.device_track import Track
from hcq.work.multi_device_graph import Ensemble
from hcq.work.peers import PeerQueue, join


@pytest.fixture
def two() -> Iterator[tuple[Any, Any]]:
    """Two CPU devices whose work the rules judge."""
    settings = dataclasses.replace(config.current(), validate=True, threads=1)
    devices = CpuDevice("CPU:8", config=settings), CpuDevice("CPU:9", config=settings)
    yield devices
    for device in devices:
        device.close()


def test_a_read_of_what_another_device_writes_is_refused_unless_it_waits(two: tuple[Any, Any]) -> None:
    one, other = two
    a, b = one.alloc(64, "a"), other.alloc(64, "b")
    written = one.queue().fill(a, 5).submit()
    with pytest.raises(
        UsageError, match=r"\[unordered-access\].*a \(64 bytes.*nothing says that this comes after"
    ):
        PeerQueue(other).copy(b, a).submit()
    done = PeerQueue(other).after(written).copy(b, a).submit()
    with pytest.raises(UsageError, match=r"\[unordered-access\]"):  # it may still be read
        one.queue().fill(a, 6).submit()
    join(one, {other: done.value}, [a])
    one.queue().fill(a, 6).submit()
    assert b.read() == bytes([5]) * 64 and a.read() == bytes([6]) * 64


def test_a_read_that_waits_for_what_is_submitted_later_is_judged_then(two: tuple[Any, Any]) -> None:
    one, other = two
    a, b, gate = one.alloc(64, "a"), other.alloc(64, "b"), other.signal("gate")
    a.write(bytes(64))
    one.queue().wait(gate, 1).fill(a, 5).submit()
    with pytest.raises(
        UsageError,
        match=r"\[unordered-access\] submission #1 of CPU:8.*a \(64 bytes.*comes after or before it",
    ):
        PeerQueue(other).signal(gate, 1).copy(b, a).submit()
    PeerQueue(other).copy(b, a).signal(gate, 1).submit().wait()  # read first, and filled once that is done
    one.synchronize()
    assert a.read() == bytes([5]) * 64


def test_tracks_come_after_each_others_marks_in_every_replay(two: tuple[Any, Any]) -> None:
    one, other = two
    a, b = one.alloc(4, "a"), other.alloc(4, "b")

    def record(tracks: list[Track]) -> None:
        first, second = tracks
        first.graph.fill(a, 1)
        second.after(first.mark()).graph.copy(b, a)
        assert first.mark() == first.mark()  # nothing was recorded in between
        first.after(second.mark()).graph.fill(a, 2)

    both = Ensemble("both", [one, other], record)
    for _ in range(5):
        one.queue().fill(a, 9).submit()
        submitted = one.timeline.submitted, other.timeline.submitted
        found = both.replay()
        assert (one.timeline.submitted, other.timeline.submitted) == (submitted[0] + 1, submitted[1] + 1)
        for done in found:
            done.wait()
        assert a.read() == bytes([2]) * 4 and b.read() == bytes([1]) * 4


def test_signals_of_an_ensemble_stay_until_all_who_wait_for_them_have_seen_them(two: tuple[Any, Any]) -> None:
    one, other = two
    gate, b = other.signal("gate"), other.alloc(4, "b")

    def record(tracks: list[Track]) -> None:
        first, second = tracks
        first.graph.signal(first.signal, 1)
        second.graph.wait(gate, 1).wait(first.signal, 1).fill(b, 3)

    _, done = Ensemble("dropped", [one, other], record).replay()
    one.synchronize()
    others = [one.signal("another") for _ in range(64)]  # whose cells begin with 0
    gate.set(1)
    done.wait(timeout_ms=10_000)
    assert b.read() == bytes([3]) * 4 and len(others) == 64


def test_without_the_mark_the_replay_is_refused(two: tuple[Any, Any]) -> None:
    one, other = two
    a, b = one.alloc(4, "a"), other.alloc(4, "b")

    def record(tracks: list[Track]) -> None:
        tracks[0].graph.fill(a, 1)
        tracks[1].graph.copy(b, a)

    with pytest.raises(UsageError, match=r"\[unordered-access\]"):
        Ensemble("both", [one, other], record).replay()


def test_a_device_waits_for_another_one_by_itself_and_the_host_goes_on(two: tuple[Any, Any]) -> None:
    one, other = two
    gate = one.signal("gate")
    first = one.queue().wait(gate, 1).submit()
    queue = PeerQueue(other).after(first)
    done = queue.submit()
    assert queue.host_waits == 0 and not done.is_done
    gate.set(1)
    done.wait(timeout_ms=5000)
