"""Reports of GPUs: the same page as for every device, with the vendor's rings and packets in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hcq import config
from hcq.errors import WaitTimeout
from tests.hcq.amd.conftest import settings_with
from tests.hcq.gpu.conftest import Open, each_gpu
from tests.hcq.gpu.vendors import AMD, Vendor


@each_gpu
def test_a_hang_names_the_ring_the_signal_the_command_and_the_line(
    vendor: Vendor, open_gpu: Open, tmp_path: Path, arch: str, queue: str
) -> None:
    before = config.current()
    config.use(settings_with(report_dir=tmp_path))
    try:
        gpu = open_gpu(arch, validate=False, **({"queue": queue} if queue else {}))
        gate = gpu.signal("gate")
        buffer = gpu.alloc(4096, "target")
        late = gpu.queue().wait(gate, 3).fill(buffer, 7).submit()
        with pytest.raises(WaitTimeout):
            late.wait(timeout_ms=100)
    finally:
        config.use(before)
    (report,) = tmp_path.glob("*.txt")
    text = report.read_text()
    if vendor is AMD:
        at_get = next(line for line in text.splitlines() if line.strip().startswith("at get: "))
        assert ("WaitRegMem" if queue == "pm4" else "Pm4Ib") in at_get
        assert "-> wait for gate >= 3" in text
    else:
        assert "ring      main (GPFIFO): " in text
        assert "wait for gate >= 3" in text
    assert "signal    gate is 0, and no submission that is remembered sets it" in text
    assert "fill 4096 bytes at target" in text
    assert "test_reports.py:" in text
    gpu.reset()
    gpu.queue().fill(buffer, 9).submit().wait()
    assert buffer.read(0, 2) == b"\t\t"
