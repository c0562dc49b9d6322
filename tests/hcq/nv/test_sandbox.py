"""Containers and sandboxes: no /proc of the kernel module, and fewer GPUs than the driver lists."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from hcq.emu.kernel import File, Process, Refusal
from hcq.emu.nv.rm import EmulatedRm
from hcq.emu.nv.spec import parse_all
from hcq.emu.port import EmulatedPort
from hcq.errors import DriverError, UsageError
from hcq.nv.abi import ioctls as abi
from hcq.nv.device import NvDevice

Open = Callable[..., NvDevice]


class Sandbox(EmulatedRm):
    """The driver as a sandbox shows it. hidden: nodes that are not there; mute: escapes that the sandbox refuses."""

    hidden: tuple[str, ...] = ()
    mute: tuple[int, ...] = ()
    why = errno.ENOENT

    def files(self) -> dict[str, bytes | str]:
        return {}

    def open(self, path: str, process: Process) -> File | None:
        if path in self.hidden:
            raise Refusal(self.why)
        file = super().open(path, process)
        for number in self.mute:
            self.escapes.pop(number, None)
        return file


def sandbox(*words: str, **fields: Any) -> EmulatedPort:
    made = Sandbox(parse_all(list(words)))
    for name, value in fields.items():
        setattr(made, name, value)
    return EmulatedPort([made])


def works(device: NvDevice) -> bool:
    a, b = device.alloc(64), device.alloc(64)
    a.write(bytes(range(64)))
    device.queue().copy(b, a).submit().wait()
    return b.read() == bytes(range(64))


@pytest.mark.parametrize("version", ["550.163.01", "570.211.01", "580.142", "595.45.04"])
def test_without_proc_the_release_is_asked_of_the_control_node(open_nv: Open, version: str):
    device = open_nv(port=sandbox(f"nv:sm_90:driver={version}"))
    assert device.abi.version == version and works(device)


def test_where_that_is_refused_a_control_says_the_release(open_nv: Open):
    number = abi.CHECK_VERSION_STR.request & 0xFF
    device = open_nv(port=sandbox("nv:sm_90:driver=570.211.01", mute=(number,)))
    assert device.abi.version == "570.211.01" and works(device)


def test_without_the_kernel_module_the_node_that_is_missing_is_named(open_nv: Open):
    with pytest.raises(DriverError, match=r"open\(/dev/nvidiactl\)"):
        open_nv(port=sandbox("nv:sm_90", hidden=("/dev/nvidiactl",)))


@pytest.mark.parametrize("why", [errno.ENOENT, errno.EPERM, errno.EACCES])
def test_a_container_with_one_gpu_of_several_opens_that_one(open_nv: Open, why: int):
    """The list of cards has all of the host's GPUs; the nodes of the others are not given to the container."""
    words = ["nv:sm_90"] * 3  # minors 2, 1, 0
    port = sandbox(*words, hidden=("/dev/nvidia2", "/dev/nvidia0"), why=why)
    device = open_nv(port=port)
    assert device.gpu.path == "/dev/nvidia1" and works(device)
    with pytest.raises(
        UsageError, match=r"NV:1: the driver shows 1 GPU \(0x200\); .* 2 more cannot be opened here"
    ):
        open_nv(port=port, name="NV:1")


def test_where_no_gpu_can_be_opened_the_first_says_why(open_nv: Open):
    with pytest.raises(DriverError, match=r"open\(/dev/nvidia0\) -> EACCES"):
        open_nv(port=sandbox("nv:sm_90", hidden=("/dev/nvidia0",), why=errno.EACCES))


def test_a_gpu_that_fails_to_start_is_not_passed_over(open_nv: Open):
    port = sandbox("nv:sm_90", "nv:sm_90", hidden=("/dev/nvidia1",), why=errno.EIO)
    with pytest.raises(DriverError, match=r"open\(/dev/nvidia1\) -> EIO"):
        open_nv(port=port)
