"""Reports and traces of AMD devices: the same pages as for every device, with AMD's packets in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hcq import config
from hcq.amd.device import AmdDevice
from hcq.errors import WaitTimeout
from hcq.trace_file import Trace
from tests.hcq.amd.conftest import QUEUES, settings_with


@pytest.mark.parametrize(("arch", "queue"), QUEUES)
def test_a_hang_names_the_packet_at_get_the_signal_and_the_line(
    open_amd: Callable[..., AmdDevice], tmp_path: Path, arch: str, queue: str
) -> None:
    before = config.current()
    config.use(settings_with(report_dir=tmp_path))
    try:
        device = open_amd(arch, queue=queue, validate=False)
        gate = device.signal("gate")
        buffer = device.alloc(4096, "target")
        late = device.queue().wait(gate, 3).fill(buffer, 7).submit()
        with pytest.raises(WaitTimeout):
            late.wait(timeout_ms=100)
    finally:
        config.use(before)
    (report,) = tmp_path.glob("*.txt")
    text = report.read_text()
    at_get = next(line for line in text.splitlines() if line.strip().startswith("at get: "))
    assert ("WaitRegMem" if queue == "pm4" else "Pm4Ib") in at_get
    assert "signal    gate is 0, and no submission that is remembered sets it" in text
    assert "wait for gate >= 3" in text
    assert "fill 4096 bytes at target" in text
    assert "test_reports.py:" in text
    device.reset()
    device.queue().fill(buffer, 9).submit().wait()
    assert buffer.read(0, 2) == b"\t\t"


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
    assert names[:2] == ["ConstFill", "CopyLinear"]
    assert [str(place) for place in submission.buffers()] == ["a", "b", "gate"]
    assert submission.started_ns is not None and submission.finished_ns is not None
    assert 0 <= submission.finished_ns - submission.started_ns < 60 * 10**9
    assert abs(submission.started_ns - submission.time_ns) < 60 * 10**9
    calls = trace.devices[0].kind, {record.fields["call"] for record in trace.calls}
    assert calls == ("AMD", {"open", "close", "ioctl", "mmap", "munmap", "madvise", "read_file"} & calls[1])
    assert "ioctl" in calls[1]
