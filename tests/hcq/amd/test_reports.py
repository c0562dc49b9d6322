"""Reports and traces of AMD devices: the same pages as for every device, with AMD's packets in them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hcq.amd.abi import aql, pm4, sdma
from hcq.amd.device import AmdDevice
from hcq.observe.lint import lint
from hcq.trace.file import Trace
from tests.hcq.amd.conftest import each_queue
from tests.hcq.amd.kernels import image

UNKNOWN = (pm4.Header, sdma.Header, aql.Header)


def test_a_trace_decodes_packets_and_ioctls_and_its_times_are_the_hosts(
    open_amd: Callable[..., AmdDevice], tmp_path: Path
) -> None:
    path = tmp_path / "amd.hcqtrace"
    device = open_amd("gfx1100", queue="pm4", trace=str(path))
    a, b = device.alloc(4096, "a"), device.alloc(4096, "b")
    gate = device.signal("gate")
    device.queue().fill(a, 7).copy(b, a).signal(gate, 2).submit().wait()
    device.close()
    trace = Trace.read(str(path))
    (submission,) = trace.submissions
    names = [type(packet).__name__ for packet in submission.packets()]
    handed_over = ["AcquireMem", "ReleaseMem", "PollRegmem", "GcrReq"]  # the first inter-ring fence
    ordered = ["Fence", "PollRegmem"] * 2
    assert names[:10] == [*handed_over, "ConstFill", *ordered, "CopyLinear"]
    assert names[-1] == "ReleaseMem"
    assert [str(place) for place in submission.buffers()] == ["a", "b", "gate"]
    assert submission.started_ns is not None and submission.finished_ns is not None
    assert 0 <= submission.finished_ns - submission.started_ns < 60 * 10**9
    assert abs(submission.started_ns - submission.time_ns) < 60 * 10**9
    calls = trace.devices[0].kind, {record.fields["call"] for record in trace.calls}
    assert calls == ("AMD", {"open", "close", "ioctl", "mmap", "munmap", "madvise", "read_file"} & calls[1])
    assert "ioctl" in calls[1]


@each_queue
def test_what_a_trace_holds_is_what_goes_into_the_rings(
    open_amd: Callable[..., AmdDevice], arch: str, queue: str
) -> None:
    device = open_amd(arch, queue=queue)
    a, b, gate = device.alloc(4096, "a"), device.alloc(4096, "b"), device.signal("gate")
    program = device.load(image(arch), "increment")
    for _ in range(2):
        q = device.queue().fill(a, 7).copy(b, a).signal(gate, gate.value + 1).wait(gate, gate.value + 1)
        q.dispatch(program, [a], block=(64, 1, 1)).barrier().copy(a, b).copy(b, a)
        told = device.decode(memoryview(device.ring_words(q._words, device.timeline.submitted + 1)).cast("I"))
        for ring in device.rings.values():
            ring.seen = []
        q.submit().wait()
        written = []
        for ring in device.rings.values():
            written += device.decode(memoryview(b"".join(ring.seen or ())).cast("I"))
        if queue == "aql":  # the blocks that AQL packets run are uploads
            told = [packet for packet in told if not isinstance(packet, pm4.Pm4)]
        assert Counter(map(type, told)) == Counter(map(type, written))


@each_queue
def test_a_trace_has_no_word_that_no_packet_claims_and_breaks_no_rule(
    open_amd: Callable[..., AmdDevice], tmp_path: Path, arch: str, queue: str
) -> None:
    path = tmp_path / "amd.hcqtrace"
    device = open_amd(arch, queue=queue, trace=str(path))
    a, b, gate = device.alloc(4096, "a"), device.alloc(4096, "b"), device.signal("gate")
    program = device.load(image(arch), "increment")
    device.queue().fill(a, 7).copy(b, a).signal(gate, 2).submit().wait()
    device.queue().wait(gate, 2).dispatch(program, [a], block=(64, 1, 1)).barrier().submit().wait()
    graph = device.graph("twice").dispatch(program, [a], block=(64, 1, 1)).copy(b, a).barrier()
    graph.replay().wait()
    device.queue().copy(b, a).submit().wait()
    device.close()
    trace = Trace.read(str(path))
    assert len(trace.submissions) == 4
    streams = [(made.words, made.packets()) for made in trace.submissions]
    streams += [
        (block.words, made.block_packets(block)) for made in trace.submissions for block in made.blocks
    ]
    assert len(streams) == 5
    for words, packets in streams:
        assert not [packet for packet in packets if isinstance(packet, UNKNOWN) or packet.unclaimed]
        assert sum(len(packet.words) for packet in packets) == len(words)
    assert not lint(trace)


def test_a_report_points_at_the_current_command(open_amd: Callable[..., AmdDevice]) -> None:
    device = open_amd("gfx1100", validate=False)
    gate, buffer = device.signal("gate"), device.alloc(4096, "target")
    device.queue().fill(buffer, 1).fill(buffer, 2).wait(gate, 3).fill(buffer, 3).submit()
    end = time.monotonic() + 50
    while device.current_command() != 2 and time.monotonic() < end:
        time.sleep(0.001)
    assert device.current_command() == 2
    gate.set(3)
    device.synchronize()
    assert device.current_command() is None
