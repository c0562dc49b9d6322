"""Clocks of devices in a trace: those that drift are found out, and moments are moved to the host's clock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.trace.clocks import device_clock
from hcq.trace.file import Trace
from tests.tools.trace.test_join import joined, of_devices, work

SECOND = 10**9

PROGRAM = """
import time, hcq
devices = [hcq.open(name) for name in ("AMD", "NV", "CPU")]
buffers = [device.alloc(4096, "b") for device in devices]
for value in range(3):
    for device, buffer in zip(devices, buffers):
        device.queue().fill(buffer, value).submit().wait()
    time.sleep(0.02)
for device in devices:
    device.close()
"""


@given(
    drift_ppm=st.integers(-200_000, 200_000),
    skew=st.integers(-(10**9), 10**9),
    moments=st.lists(st.integers(0, 100 * SECOND), min_size=2, max_size=6, unique=True),
    asked=st.integers(0, 100 * SECOND),
    errors=st.lists(st.integers(-500, 500), min_size=6, max_size=6),
)
def test_a_clock_of_even_speed_is_corrected_as_well_as_it_was_compared(
    drift_ppm: int, skew: int, moments: list[int], asked: int, errors: list[int]
) -> None:
    def device_ns(host_ns: int) -> int:
        return 10**12 + skew + host_ns + host_ns * drift_ppm // 1_000_000

    compared = [(device_ns(at), 10**12 + at + error, 500) for at, error in zip(moments, errors)]
    found = device_clock(compared)
    if found is None:
        assert len({device for device, _, _ in compared}) < 2
        return
    asked = min(max(asked, min(moments)), max(moments))
    moved = device_ns(asked) if found.correction is None else found.correction(device_ns(asked))
    slack = 500 if found.correction is None else 0  # then the clocks agree as far as that can be said
    assert abs(moved - (10**12 + asked)) <= found.error_ns + slack + 2


def test_clocks_that_agree_as_far_as_they_could_be_compared_are_left_alone() -> None:
    found = device_clock([(SECOND, SECOND + 40, 50), (2 * SECOND, 2 * SECOND - 50, 50)])
    assert found is not None
    assert found.correction is None
    assert device_clock([(5, 5, 1)]) is None


def test_after_the_last_comparison_a_clock_goes_on_as_it_went() -> None:
    found = device_clock([(0, 0, 1), (SECOND, SECOND + 1000, 1)])
    assert found is not None
    assert found.correction is not None
    assert found.correction(3 * SECOND) == 3 * SECOND + 3000
    assert found.drift_ppm == pytest.approx(-1, rel=1e-3)


@pytest.mark.deadline(120)
def test_devices_whose_clocks_drift_are_on_the_hosts_clock_in_one_trace(tmp_path: Path) -> None:
    """A GPU that gains a tenth and one that loses a tenth: still nothing begins before it is submitted, or ends after
    the host saw its end."""
    path = tmp_path / "t"
    environment = {
        **os.environ,
        "HCQ_TRACE": str(path),
        "HCQ_EMULATE": "amd:gfx1100:drift=100000,nv:sm_90:drift=-100000",
    }
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, timeout=100)
    trace = Trace.read(str(path))
    assert {device.kind for device in trace.devices} == {"AMD", "NV", "CPU"}
    assert trace.clocks["AMD"].drift_ppm == pytest.approx(100_000, rel=0.2)
    assert trace.clocks["NV"].drift_ppm == pytest.approx(-100_000, rel=0.2)
    assert "CPU" not in trace.clocks  # it has the host's
    raw = Trace([record for record in trace.records if record.name != "CLOCK"])
    is_moved = False
    for made, before in zip(trace.submissions, raw.submissions):
        clock = trace.clocks.get(made.device.key)
        error = clock.error_ns if clock is not None else 0
        seen = min(
            one.time_ns
            for one in trace.signals
            if one.device is made.device
            and one.va == made.device.facts["timeline"]
            and one.value >= made.value
        )
        assert made.started_ns is not None
        assert made.finished_ns is not None
        assert made.time_ns - error <= made.started_ns <= made.finished_ns <= seen + error, made
        is_moved |= abs(made.finished_ns - (before.finished_ns or 0)) > 1_000_000
    assert is_moved
    content = path.read_bytes()  # cut in three by device, and joined, it is the same
    assert work(joined(*(of_devices(content, [number]) for number in (2, 0, 1)))) == work(trace)


def test_a_drift_that_no_clock_has_is_refused() -> None:
    from hcq.emu.amd import spec as amd
    from hcq.emu.nv import spec as nv
    from hcq.errors import UsageError

    assert amd.parse("amd:gfx1100:drift=-50").drift_ppm == -50
    for parse, word in ((amd.parse, "amd:gfx1100"), (nv.parse, "nv:sm_90")):
        for drift in ("", "=", "=x", "=500001", "=--5"):
            with pytest.raises(UsageError, match="unknown option"):
                parse(f"{word}:drift{drift}")
