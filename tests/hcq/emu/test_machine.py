"""Paths of emulated hardware: what is at each, and which are the real system's."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hcq.emu.file_stat import of_copy, struct_stat
from hcq.emu.kernel import Refusal
from hcq.emu.machine import Machine, kernels_for

ROOT = "/sys/devices/virtual/kfd/kfd/topology"


@pytest.fixture
def machine() -> Iterator[Machine]:
    one = Machine(kernels_for(["amd:gfx1100"]))
    yield one
    one.close()
    assert not os.path.exists(one.folder)


def test_devices_files_folders_and_nothing(machine: Machine) -> None:
    device, file, folder, nothing = (
        machine.find(path)
        for path in ("/dev/dri/renderD128", f"{ROOT}/generation_id", f"{ROOT}/nodes", f"{ROOT}/nodes/7")
    )
    assert device is not None and device.node is not None
    assert (device.node.major, device.node.minor) == (226, 128)
    assert file is not None and Path(file.copy).read_text()
    assert folder is not None and sorted(os.listdir(folder.copy)) == ["0", "1"]
    assert nothing is not None and not nothing.copy and nothing.node is None


@pytest.mark.parametrize("path", ["/dev/null", "/dev", "/sys", "/proc/self/maps", "/home", "/"])
def test_the_rest_is_the_real_systems(machine: Machine, path: str) -> None:
    assert machine.find(path) is None


@pytest.mark.parametrize("path", ["/dev/./dri//renderD128", "/dev/dri/../dri/renderD128"])
def test_a_path_may_go_astray_on_the_way(machine: Machine, path: str) -> None:
    found = machine.find(path)
    assert found is not None and found.path == "/dev/dri/renderD128"


def test_symbolic_links_are_followed_unless_they_are_what_is_asked_for(machine: Machine) -> None:
    machine._links.update({"/sys/class/here": "../devices/virtual/kfd", "/dev/a": "b", "/dev/b": "a"})
    found = machine.find("/sys/class/here/kfd/topology/generation_id")
    assert found is not None and found.path == f"{ROOT}/generation_id"
    itself = machine.find("/sys/class/here", follow=False)
    assert itself is not None and itself.path == "/sys/class/here"
    with pytest.raises(Refusal) as refused:
        machine.find("/dev/a")
    assert refused.value.number == errno.ELOOP


def test_folders_of_processes_that_were_killed_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    abandoned, new, other = (tmp_path / name for name in ("hcq-emulated-a", "hcq-emulated-b", "elsewhere"))
    for folder in (abandoned, new, other):
        folder.mkdir()
        (folder / "file").touch()
        os.utime(folder, (1, 1))
    os.utime(new)
    living = Machine(kernels_for(["amd:gfx1100"]))
    os.utime(living.folder, (1, 1))
    Machine(kernels_for(["amd:gfx1100"])).close()
    assert sorted(tmp_path.iterdir()) == sorted([new, other, Path(living.folder)])
    living.close()


def test_stat_is_what_the_c_library_reads(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 5000)
    os.utime(file, ns=(5, 5))
    buffer = ctypes.create_string_buffer(256)
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "stat"):
        pytest.skip("this C library has stat only as a macro")
    assert libc.stat(os.fsencode(file), buffer) == 0
    ours = struct_stat(of_copy(os.stat(file)))
    # owner, blocks and times of creation are not told: the head up to them is the same
    assert ours[:24] == buffer.raw[:24]
    assert ours[40:64] == buffer.raw[40:64]
