"""Devcoredumps of emulated GPUs: when one is made, where it is found, and that the driver's own hang is in it."""

from __future__ import annotations

import pytest

from hcq import config
from hcq.errors import DriverError, WaitTimeout
from hcq.tools.trace import capsule, capsule_replay, devcoredump
from hcq.trace.file import Trace
from tests.hcq.amd.conftest import fresh_port, settings_with
from tests.hcq.amd.conftest import open_amd as open_amd  # fixtures of the driver's tests
from tests.hcq.amd.conftest import small_rings as small_rings

SYSFS = "/sys/class/drm/card0/device/devcoredump/data"


@pytest.fixture
def dumps(tmp_path):
    """A folder for dumps, that HCQ_DUMP_DIR names."""
    folder = tmp_path / "dumps"
    config.use(settings_with(dump_dir=folder, report=frozenset({"off"})))
    yield folder
    config.use(None)


def hang(device, is_graph: bool) -> None:
    """Work that waits for what never comes, until the device is given up."""
    out, gate = device.alloc(4096, "out"), device.signal("gate")
    device.queue().fill(out, 1).submit().wait()
    if is_graph:
        done = device.graph("waits").fill(out, 2).wait(gate, 5).fill(out, 3).replay({})
    else:
        done = device.queue().fill(out, 2).wait(gate, 5).fill(out, 3).submit()
    with pytest.raises(WaitTimeout):
        done.wait(timeout_ms=50)
    device.reset()


@pytest.mark.parametrize(
    ("arch", "queue", "is_graph"),
    [
        ("gfx1030", "pm4", False),
        ("gfx1100", "pm4", False),
        ("gfx942", "aql", False),
        ("gfx1201", "pm4", True),
        ("gfx1100", "aql", True),
    ],
)
def test_a_queue_that_is_destroyed_before_its_work_is_done_leaves_a_dump_that_replays(
    arch, queue, is_graph, dumps, small_rings, open_amd
):
    port = fresh_port(f"amd:{arch}")
    with pytest.raises(DriverError):
        port.read_file(SYSFS)  # none before there is a hang
    hang(open_amd(arch, queue, port=port, timeout_ms=500), is_graph)
    text = port.read_file(SYSFS)
    (written,) = dumps.iterdir()  # the first queue that was destroyed: the others stood still for it
    assert written.read_bytes() == text
    assert oct(written.stat().st_mode & 0o777) == "0o600"
    found = devcoredump.as_json(devcoredump.read(text))
    assert (found["chip"], found["fault"]) == (arch, None)
    assert found["stuck"]["packet"]["packet"].startswith("WaitRegMem")
    assert {ring["name"] for ring in found["rings"]} == {f"kfd_{queue}_1.0.0", "kfd_sdma0.1"}
    assert any(str(written) in line for line in port.kernel_log())
    stand = capsule_replay.replay(Trace.parse(capsule.capsule(text).content))
    assert stand.is_same, stand.lines()


def test_work_that_ends_leaves_none(dumps, open_amd):
    port = fresh_port("amd:gfx1100")
    device = open_amd(port=port)
    out = device.alloc(4096)
    device.queue().fill(out, 1).submit().wait()
    device.close()
    assert not dumps.exists()
    with pytest.raises(DriverError):
        port.read_file(SYSFS)


def test_a_folder_that_cannot_be_written_is_logged_and_not_the_programs_trouble(
    tmp_path, small_rings, open_amd
):
    file = tmp_path / "file"
    file.write_text("")
    config.use(settings_with(dump_dir=file, report=frozenset({"off"})))
    try:
        port = fresh_port("amd:gfx1100")
        hang(open_amd(port=port, timeout_ms=500), False)
    finally:
        config.use(None)
    assert any("could not be written" in line for line in port.kernel_log())
