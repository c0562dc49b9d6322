"""The four failures of bring-up, on every kind of device: each is a report that names kernel, argument and line within
the deadline, and the process goes on to compute correctly on the same device."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hcq import config
from hcq.errors import DeviceFault, UsageError, WaitTimeout
from hcq.graph import Symbol
from hcq.trace.file import Trace

DEADLINE_MS = 200
HERE = r"test_four_failures\.py:\d+"


@dataclasses.dataclass
class Bench:
    """A device that checks nothing, a kernel that never ends, one that counts, and where reports and the trace are."""

    device: Any
    forever: Any
    count: Callable[[Any], Any]  # a queue with one launch on a buffer of 64 zeroed words
    counted: bytes
    reports: Path
    trace: Path
    words: list[Any]  # what kernels that never end look at on the CPU: they end with the test

    def word(self, name: str) -> Any:
        """A zeroed buffer for a kernel that never ends."""
        made = self.device.alloc(256, name)
        made.write(bytes(256))
        if self.device.name.startswith("CPU"):
            self.words.append(made.host)
        return made

    def report(self) -> str:
        (path,) = self.reports.glob("*.txt")
        return path.read_text()

    def works(self) -> None:
        """The same device computes, and copies."""
        out, copy = self.device.alloc(256, "after"), self.device.alloc(256, "copy")
        out.write(bytes(256))
        self.count(out).copy(copy, out).submit().wait(10_000)
        assert copy.read() == self.counted

    def end_trace(self) -> Trace:
        self.device.close()
        return Trace.read(str(self.trace))


def cpu_bench(settings: config.Config, llvm_object: bytes) -> tuple[Any, Any, Callable[[Any], Any], bytes]:
    from hcq.cpu.device import CpuDevice

    device = CpuDevice("CPU:four", config=dataclasses.replace(settings, threads=2))
    step = device.load(llvm_object, "step", args=("buffer", "int"))
    forever = device.load(llvm_object, "spin", args=("buffer",), name="forever")
    return device, forever, lambda out: device.queue().dispatch(step, [out, 5]), (5).to_bytes(256, "little")


def amd_bench(settings: config.Config, llvm_object: bytes) -> tuple[Any, Any, Callable[[Any], Any], bytes]:
    from hcq.amd.device import AmdDevice
    from tests.hcq.amd.conftest import fresh_port
    from tests.hcq.amd.kernels import image

    device = AmdDevice("AMD", fresh_port("amd:gfx1100"), settings)
    program = device.load(image("gfx1100"), "increment")
    forever = device.load(image("gfx1100"), "forever")
    counted = (1).to_bytes(4, "little") * 64
    return device, forever, lambda out: device.queue().dispatch(program, [out], block=(64, 1, 1)), counted


def nv_bench(settings: config.Config, llvm_object: bytes) -> tuple[Any, Any, Callable[[Any], Any], bytes]:
    from hcq.nv.device import NvDevice
    from tests.hcq.nv.conftest import fresh_port
    from tests.hcq.nv.kernels import image

    device = NvDevice("NV", fresh_port("nv:sm_90"), settings)
    program = device.load(image("sm_90"), "increment")
    forever = device.load(image("sm_90"), "forever")
    counted = (1).to_bytes(4, "little") * 64
    return device, forever, lambda out: device.queue().dispatch(program, [out], block=(64, 1, 1)), counted


@pytest.fixture(params=[cpu_bench, amd_bench, nv_bench], ids=["CPU", "AMD", "NV"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, llvm_object: bytes) -> Iterator[Bench]:
    before = config.current()
    trace = tmp_path / "t.hcqtrace"
    settings = dataclasses.replace(
        before, validate=False, report_dir=tmp_path / "reports", trace=str(trace), trace_data=False
    )
    config.use(settings)
    device, *rest = request.param(settings, llvm_object)
    made = Bench(device, *rest, settings.report_dir, trace, [])
    yield made
    device.close(timeout_ms=2000)
    for word in made.words:
        word[0] = 1
    config.use(before)


def test_a_kernel_that_never_ends(bench: Bench) -> None:
    word = bench.word("word")
    late = bench.device.queue().dispatch(bench.forever, [word]).submit()  # the culprit
    with pytest.raises(WaitTimeout, match=f"waited {DEADLINE_MS} ms for 1.*forever"):
        late.wait(timeout_ms=DEADLINE_MS)
    text = bench.report()
    assert " kernel forever(word) grid=(1, 1, 1)" in text
    assert re.search(rf"#1, submitted at .*{HERE} in .*: late = .*# the culprit", text)
    assert re.search(rf"waiting   MainThread for timeline >= 1 since .*{HERE} in .*: late.wait", text)
    bench.device.reset()
    with pytest.raises(DeviceFault, match="forever"):
        late.wait()
    bench.works()
    faults = [record.fields["what"] for record in bench.end_trace().faults]
    assert faults == ["timeout", "fault"]


def test_a_wait_that_nobody_signals(bench: Bench) -> None:
    gate, out = bench.device.signal("gate"), bench.device.alloc(256, "target")
    late = bench.device.queue().wait(gate, 3).fill(out, 7).submit()  # the culprit
    with pytest.raises(WaitTimeout, match="wait signal@"):
        late.wait(timeout_ms=DEADLINE_MS)
    text = bench.report()
    assert " wait for gate >= 3" in text
    assert "signal    gate is 0, and no submission that is remembered sets it" in text
    assert "fill 256 bytes at target" in text
    assert re.search(rf"#1, submitted at .*{HERE} in .*# the culprit", text)
    bench.device.reset()
    bench.works()


def test_a_signal_written_backwards(bench: Bench) -> None:
    gate = bench.device.signal("gate")
    bench.device.queue().signal(gate, 7).submit()
    bench.device.queue().signal(gate, 3).submit()  # the culprit
    late = bench.device.queue().wait(gate, 5).submit()
    with pytest.raises(WaitTimeout):
        late.wait(timeout_ms=DEADLINE_MS)
    text = bench.report()
    assert re.search(rf"gate is 3: {bench.device.name} #2 sets it to 3 BACKWARDS from 7  \[.*{HERE}", text)
    bench.device.reset()
    bench.works()


def test_a_freed_buffer(bench: Bench) -> None:
    gone = bench.device.alloc(256, "gone")
    late = bench.device.queue().dispatch(bench.forever, [gone])
    gone.free()
    with pytest.raises(
        UsageError, match=r"was freed after it was recorded in: dispatch forever.*Keep it until"
    ):
        late.submit()
    text = bench.report()
    assert "gone" in text and "forever" in text
    bench.works()


def test_the_rules_stop_what_can_be_known_before_the_doorbell(bench: Bench) -> None:
    """The trace of the same mistakes, linted: what HCQ_VALIDATE=1 would have said."""
    from hcq.observe.lint import lint

    device = bench.device
    gate = device.signal("gate")
    device.queue().signal(gate, 7).submit().wait()
    device.queue().signal(gate, 3).submit().wait()
    device.queue().wait(gate, 5).submit()
    with pytest.raises(WaitTimeout):
        device.synchronize(timeout_ms=DEADLINE_MS)
    device.reset()
    bench.works()
    found = {finding.rule for finding in lint(bench.end_trace())}
    assert found == {"signal-backwards", "wait-never-signalled", "recorded-timeout", "recorded-fault"}


def test_a_hang_in_a_replayed_graph_shows_what_that_replay_was_given(bench: Bench) -> None:
    device = bench.device
    first, second = bench.word("first"), bench.word("second")
    graph = device.graph("loop").fill(first, 0).dispatch(bench.forever, [Symbol("where")])
    late = graph.replay({"where": second})
    with pytest.raises(WaitTimeout):
        late.wait(timeout_ms=DEADLINE_MS)
    text = bench.report()
    assert " kernel forever(second) grid=(1, 1, 1)" in text
    assert "stand-in" not in text[: text.index("live buffers")]
    device.reset()
    bench.works()
    commands = bench.end_trace().submissions[0].all_commands()
    assert [command["verb"] for command in commands] == ["fill", "dispatch"]
    assert commands[1]["args"][0]["value"] != commands[0]["dst"]
