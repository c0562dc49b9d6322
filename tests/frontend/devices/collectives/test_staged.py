"""Copies of a recording between devices that do not reach each other's memory: through the host's, without the program.

GPUs of three vendors and the CPU device, each on an emulated system of its own; the rules judge all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hcq import config
from hcq.cpu.device import CpuDevice
from hcq.errors import DeviceFault, UsageError, WaitTimeout
from hcq.frontend.devices.collectives.staged import Staging, copy_staged
from hcq.graph import Graph
from hcq.metal.device import MetalDevice
from hcq.work import peers
from hcq.work.device_track import Tracks
from hcq.work.multi_device_graph import Ensemble
from tests.hcq.gpu.vendors import AMD, NV
from tests.hcq.metal.conftest import fresh_metal

PAIRS = [("AMD", "NV"), ("AMD", "CPU"), ("CPU", "NV"), ("METAL", "CPU"), ("NV", "METAL")]
SIZE = 5000

Open = Callable[[str], Any]


@pytest.fixture
def open_one() -> Iterator[Open]:
    """open_one("NV"): a device of that kind, closed after the test."""
    opened: list[Any] = []

    def open_kind(kind: str) -> Any:
        if kind == "CPU":
            made: Any = CpuDevice("CPU:7", config=dataclasses.replace(config.current(), threads=1))
        elif kind == "METAL":
            made = MetalDevice(kind, fresh_metal("metal:m3"))
        else:
            vendor = AMD if kind == "AMD" else NV
            made = vendor.open(vendor.fresh_port())
        opened.append(made)
        return made

    yield open_kind
    for device in opened:
        device.close(timeout_ms=1000)


class Exchange:
    """Each of two devices fills a buffer and gets the other's; recorded."""

    def __init__(self, one: Any, other: Any) -> None:
        self.devices = [one, other]
        self.sent = [device.alloc(SIZE, "sent") for device in self.devices]
        self.got = [device.alloc(SIZE, "got") for device in self.devices]
        self.left = [device.alloc(SIZE, "left") for device in self.devices]
        staging = Staging("exchange")

        def record(tracks: Tracks) -> None:
            staging.begin()
            pair = tracks[:2]
            for number, track in enumerate(pair):
                track.graph.fill(self.sent[number], 5 + number)
            for number, track in enumerate(pair):
                sender, source = pair[1 - number], self.sent[1 - number]
                copy_staged(track, self.got[number], sender, source, staging, lambda: tracks.relay)
                track.graph.copy(self.left[number], self.got[number])

        self.ensemble = Ensemble("exchange", self.devices, record)

    def replay(self) -> None:
        for done in self.ensemble.replay():
            done.wait(timeout_ms=30_000)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_bytes_arrive_in_every_replay_with_one_submission_to_each_device(
    open_one: Open, one: str, other: str
) -> None:
    exchange = Exchange(open_one(one), open_one(other))
    taking_part = [*exchange.devices, *([] if "CPU" in (one, other) else [peers.relay()])]
    for _ in range(5):
        for device, buffer in zip(exchange.devices, exchange.left):
            device.queue().fill(buffer, 9).submit().wait()
        before = [device.timeline.submitted for device in taking_part]
        exchange.replay()
        assert [device.timeline.submitted for device in taking_part] == [count + 1 for count in before]
        assert [buffer.read() for buffer in exchange.left] == [bytes([6]) * SIZE, bytes([5]) * SIZE]


@pytest.mark.fires_rules
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_recording_without_any_one_of_its_waits_is_refused(
    open_one: Open, one: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_one(one), open_one(other)
    wait, begin, waits = (
        Graph.wait,
        Staging.begin,
        [0, -1],
    )  # how many of a set there were, and which to leave out

    def begin_set(staging: Staging) -> None:
        waits[0] = 0
        begin(staging)

    def wait_perhaps(graph: Graph, signal: Any, value: int) -> Graph:
        waits[0] += 1
        return graph if waits[0] == waits[1] else wait(graph, signal, value)

    monkeypatch.setattr(Staging, "begin", begin_set)
    monkeypatch.setattr(Graph, "wait", wait_perhaps)
    Exchange(*opened).replay()
    count = waits[0]
    assert count >= 2
    for missing in range(1, count + 1):
        waits[1] = missing
        exchange = Exchange(*opened)
        with pytest.raises(UsageError, match=r"\[unordered-access\]"):
            for _ in range(3):  # the host does not wait in between
                exchange.ensemble.replay()


def test_a_replay_with_a_device_that_is_closed_is_refused_before_anything_is_submitted(
    open_one: Open,
) -> None:
    gpu, cpu = open_one("AMD"), open_one("CPU")
    exchange = Exchange(cpu, gpu)
    exchange.replay()
    gpu.close()
    before = cpu.timeline.submitted
    with pytest.raises(UsageError, match="AMD cannot be used: it was closed"):
        exchange.replay()
    assert cpu.timeline.submitted == before


def test_who_waits_for_a_device_that_failed_is_told_which_signal_and_why(open_one: Open) -> None:
    gpu, cpu = open_one("AMD"), open_one("CPU")
    exchange = Exchange(gpu, cpu)
    gate = gpu.signal("gate")
    gpu.queue().wait(gate, 1).submit()
    first, second = exchange.ensemble.replay()
    gpu.reset()
    with pytest.raises(DeviceFault, match="was abandoned"):
        first.wait(timeout_ms=1000)
    with pytest.raises(
        WaitTimeout,
        match=r"It waits for signal exchange marks of AMD to be 1, which is 0; work of AMD failed: .* abandoned",
    ):
        second.wait(timeout_ms=20)
    cpu.reset()
    again = Exchange(gpu, cpu)  # both go on, with other memory
    again.replay()
    assert again.left[1].read() == bytes([5]) * SIZE


def test_when_a_part_cannot_be_submitted_the_parts_that_wait_for_it_fail_and_nothing_hangs(
    open_one: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, cpu = open_one("NV"), open_one("CPU")
    exchange = Exchange(gpu, cpu)
    exchange.replay()
    replay, sent = Graph.replay, []

    def replay_first(graph: Graph, values: Any = None) -> Any:
        if sent:
            raise KeyboardInterrupt
        sent.append(replay(graph, values))
        return sent[0]

    with monkeypatch.context() as patched:
        patched.setattr(Graph, "replay", replay_first)
        with pytest.raises(KeyboardInterrupt):
            exchange.ensemble.replay()
    with pytest.raises(DeviceFault, match="was abandoned"):
        sent[0].wait(timeout_ms=5000)
    again = Exchange(gpu, cpu)
    again.replay()
    assert again.left[0].read() == bytes([6]) * SIZE
