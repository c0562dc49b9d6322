"""Lint: the rules over a trace that was written without validation find what went wrong, and nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hcq import config
from hcq.cpu import packets
from hcq.cpu.device import CpuDevice
from hcq.device import POLL_MS
from hcq.errors import WaitTimeout
from hcq.graph import Symbol
from hcq.observe.lint import lint
from hcq.observe.trace import TraceWriter
from hcq.rules.rule import Finding
from hcq.tools.trace.color import Color
from hcq.tools.trace.lint import lines
from hcq.trace.file import Trace

Two = tuple[CpuDevice, CpuDevice]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "file.hcqtrace"


@pytest.fixture
def two(trace: Path) -> Iterator[Two]:
    """Two devices that are traced and do not validate."""
    settings = dataclasses.replace(config.current(), trace=str(trace), validate=False, threads=1)
    first, second = CpuDevice("CPU:8", config=settings), CpuDevice("CPU:9", config=settings)
    yield first, second
    # each may wait for a signal in the other's memory: nothing is unmapped before both have stopped
    for device in (first, second):
        if device.timeline.value < device.timeline.submitted:
            device.reset()
    for device in (first, second):
        device.close()


def findings(path: Path) -> list[Finding]:
    TraceWriter.of(str(path)).flush()
    return lint(Trace.read(str(path)))


# ---------------------------------------------------------------- seeded bugs


def wait_for_nobody(two: Two, image: bytes) -> None:
    device = two[0]
    gate = device.signal("gate")
    device.queue().wait(gate, 3).submit()
    device.queue().wait(device.timeline, 1).submit()  # a consequence, not reported
    gate.set(2)


def circle(two: Two, image: bytes) -> None:
    ping, pong = two[0].signal("ping"), two[1].signal("pong")
    two[0].queue().wait(pong, 1).signal(ping, 1).submit()
    two[1].queue().wait(ping, 1).signal(pong, 1).submit()


def backwards(two: Two, image: bytes) -> None:
    gate = two[0].signal("gate")
    two[0].queue().signal(gate, 5).submit()
    two[0].queue().signal(gate, 4).submit().wait()


def freed(two: Two, image: bytes) -> None:
    device = two[0]
    out = device.alloc(64, "out")
    words = device.queue().fill(out, 1).words
    device.submit([words], []).wait()
    out.free()
    device.submit([words], []).wait()


def beyond(two: Two, image: bytes) -> None:
    device = two[0]
    out = device.alloc(64, "out")
    words = packets.Fill(dst=out.address, size_bytes=out.capacity + 8).to_bytes()
    device.submit([words], []).wait()


def unordered(two: Two, image: bytes) -> None:
    a, b = two[0].alloc(64, "a"), two[1].alloc(64, "b")
    two[0].queue().fill(a, 1).submit()
    two[1].submit([packets.Copy(dst=b.address, src=a.address, size_bytes=64).to_bytes()], [])


def own_timeline(two: Two, image: bytes) -> None:
    device = two[0]
    words = packets.Signal(signal=device.timeline.va, value=1).to_bytes()
    device.submit([words], []).wait()


def argument(two: Two, image: bytes) -> None:
    device = two[0]
    program = device.load(image, "functions", args=("buffer", "int"), name="quadruple")
    out = device.alloc(64, "out")
    words = bytearray(device.queue().dispatch(program, [out, 1]).words)
    out.free()
    device.submit([bytes(words)], []).wait()


SEEDED = [
    (wait_for_nobody, "wait-never-signalled", "to 3; it gets no further than 2"),
    (circle, "wait-cycle", "CPU:8 main -> CPU:9 main -> CPU:8 main"),
    (backwards, "signal-backwards", "is 5 by then, and it sets it to 4"),
    (freed, "address-freed", "lies in out (64 bytes"),
    (beyond, "range-beyond-buffer", "ends 8 bytes behind out"),
    (unordered, "unordered-access", "a (64 bytes"),
    (own_timeline, "timeline-reused", "sets the timeline of CPU:8 to 1"),
    (argument, "address-freed", "argument 0 "),
]


@pytest.mark.parametrize(("bug", "rule", "what"), SEEDED, ids=[bug.__name__ for bug, _, _ in SEEDED])
def test_lint_names_the_rule_that_a_traced_program_breaks(
    two: Two, trace: Path, llvm_object: bytes, bug: Callable[[Two, bytes], None], rule: str, what: str
) -> None:
    bug(two, llvm_object)
    found = findings(trace)
    assert {finding.rule for finding in found} == {rule}
    assert what in str(found[0])
    assert f"{Path(__file__).name}:" in found[0].site
    assert found[0].site.endswith(f"in {bug.__name__}")


# ---------------------------------------------------------------- correct programs


def test_a_correct_program_has_no_findings(two: Two, trace: Path, llvm_object: bytes) -> None:
    first, second = two
    program = first.load(llvm_object, "step", args=("buffer", "int"))
    out, kept = first.alloc(8, "out"), second.alloc(8, "kept")
    out.write(bytes(8))
    graph = first.graph("steps").dispatch(program, [Symbol("out"), Symbol("k", "int")])
    ping, pong = first.signal("ping"), second.signal("pong")
    for turn in range(1, 20):
        graph.replay({"out": out, "k": turn})
        first.queue().signal(ping, turn).wait(pong, turn).submit()
        words = second.queue().wait(ping, turn).words
        copy = packets.Copy(dst=kept.address, src=out.address, size_bytes=8).to_bytes()
        second.submit([words, copy, second.queue().signal(pong, turn).words], [])
        first.alloc(1000 * turn, "passing").write(b"x")
    first.synchronize()
    second.synchronize()
    gate = first.signal("gate")
    done = first.queue().wait(gate, 1).submit()
    with pytest.raises(WaitTimeout):
        done.wait(timeout_ms=5)
    gate.set(1)
    done.wait()
    assert out.read() == kept.read()
    assert findings(trace) == []  # so short a wait is a question


def test_work_that_failed_promises_nothing_and_its_wait_is_found(two: Two, trace: Path) -> None:
    device = two[0]
    gate, s = device.signal("gate"), device.signal("s")
    device.queue().wait(gate, 1).signal(s, 9).submit()
    device.reset()
    device.queue().signal(s, 1).submit().wait()
    gate.set(1)
    device.queue().wait(gate, 1).wait(s, 1).submit().wait()
    assert [(one.rule, one.submission) for one in findings(trace)] == [
        ("recorded-fault", 1),
        ("wait-never-signalled", 1),
    ]


def test_a_time_out_that_nothing_ended_is_an_error(two: Two, trace: Path) -> None:
    device = two[0]
    gate = device.signal("gate")
    done = device.queue().wait(gate, 1).submit()
    with pytest.raises(WaitTimeout):
        done.wait(timeout_ms=POLL_MS)
    found = findings(trace)
    assert ("recorded-timeout", "error", 1) in [(one.rule, one.level, one.submission) for one in found]
    gate.set(1)
    done.wait()
    device.queue().signal(gate, 2).submit().wait()  # the times of what went before are written down
    (late,) = findings(trace)
    assert (late.rule, late.level, late.submission) == ("recorded-timeout", "warning", 1)


def test_lint_never_calls_a_trace_with_a_recorded_fault_clean(two: Two, trace: Path) -> None:
    device = two[0]
    device.queue().wait(device.signal("gate"), 1).submit()
    device.reset()
    TraceWriter.of(str(trace)).flush()
    made = Trace.read(str(trace))
    shown = list(lines([one for one in lint(made) if one.rule == "recorded-fault"], made, Color(False), 9))
    assert shown[0].startswith("CPU:8 #1 [recorded-fault] ")
    assert shown[-1].startswith("1 error, 0 warnings: ")


def test_a_submission_that_never_reached_the_device_is_not_judged(two: Two, trace: Path) -> None:
    device = two[0]
    with pytest.raises(Exception, match="do not fit the ring"):
        device.submit([packets.Fill(dst=0x1000, size_bytes=64).to_bytes() * (1 << 16)], [])
    device.queue().fill(device.alloc(64), 1).submit().wait()
    assert findings(trace) == []
