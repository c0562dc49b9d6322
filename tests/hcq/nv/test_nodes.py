"""Device files that nobody has made: they are made, or the command that makes them is said."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from hcq.errors import DriverError
from hcq.nv import nodes
from hcq.nv.nodes import open_node
from hcq.system.port import LinuxPort, refused
from hcq.tools import hw_check
from tests.hcq.nv.conftest import fresh_port

DEVICES = b"""Character devices:
  1 mem
195 nvidia
511 nvidia-uvm

Block devices:
195 nvidia-not-this-one
"""
PARAMS = "DeviceFileUID: 0\nDeviceFileMode: 432\nModifyDeviceFiles: 1\n"


class Machine(LinuxPort):
    """A machine by its files. `there`: device files; opening one gives its place in the list, from 100 on."""

    def __init__(self, *there: str, devices: bytes = DEVICES, params: str = "") -> None:
        self.there, self.texts = list(there), {"/proc/devices": devices}
        if params:
            self.texts[nodes.PARAMS] = params.encode()

    def open(self, path: str, flags: int = 0) -> int:
        if path not in self.there:
            raise refused(f"open({path})", errno.ENOENT)
        return 100 + self.there.index(path)

    def read_file(self, path: str) -> bytes:
        if path not in self.texts:
            raise refused(f"read({path})", errno.ENOENT)
        return self.texts[path]


class Acting(nodes.System):
    """What is done to the machine: `made` are device files, `ran` are programs."""

    def __init__(self, machine: Machine, root: bool, makes: Any = None, has_program: bool = False) -> None:
        self.machine, self.root, self.refusal, self.has_program = machine, root, makes, has_program
        self.made: list[tuple[str, int, int, int]] = []
        self.ran: list[tuple[str, ...]] = []

    def is_root(self) -> bool:
        return self.root

    def make(self, path: str, mode: int, major: int, minor: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.made.append((path, mode, major, minor))
        self.machine.there.append(path)

    def run(self, words: tuple[str, ...]) -> bool:
        self.ran.append(words)
        if self.has_program:
            self.machine.there += ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia3", nodes.UVM]
        return self.has_program


@pytest.mark.parametrize(
    ("path", "number"),
    [("/dev/nvidiactl", (195, 255)), ("/dev/nvidia3", (195, 3)), ("/dev/nvidia-uvm", (511, 0))],
)
def test_as_root_a_missing_file_is_made_with_the_numbers_that_the_kernel_says(path: str, number: Any):
    machine = Machine()
    acting = Acting(machine, root=True)
    assert open_node(machine, path, acting) == 100
    assert acting.made == [(path, 0o666, *number)]
    assert open_node(machine, path, acting) == 100 and len(acting.made) == 1 and not acting.ran


def test_older_modules_are_called_otherwise():
    machine = Machine(devices=b"Character devices:\n195 nvidia-frontend\n")
    assert nodes.is_loaded(machine)
    acting = Acting(machine, root=True)
    open_node(machine, "/dev/nvidiactl", acting)
    assert acting.made == [("/dev/nvidiactl", 0o666, 195, 255)]


def test_a_file_has_the_permissions_that_the_modules_parameters_want():
    machine = Machine(params=PARAMS)
    acting = Acting(machine, root=True)
    open_node(machine, "/dev/nvidia0", acting)
    assert acting.made == [("/dev/nvidia0", 0o660, 195, 0)]


def test_where_files_are_not_to_be_made_none_is():
    machine = Machine(params=PARAMS.replace("Files: 1", "Files: 0"))
    acting = Acting(machine, root=True, has_program=True)
    with pytest.raises(DriverError, match=r"ModifyDeviceFiles is 0.*Run: sudo nvidia-modprobe -c0 -u"):
        open_node(machine, "/dev/nvidiactl", acting)
    assert not acting.made and not acting.ran


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/dev/nvidiactl", ("nvidia-modprobe", "-c0", "-u")),
        ("/dev/nvidia3", ("nvidia-modprobe", "-c3", "-u")),
    ],
)
def test_others_than_root_let_nvidias_program_make_it(path: str, words: tuple[str, ...]):
    machine = Machine()
    acting = Acting(machine, root=False, has_program=True)
    assert open_node(machine, path, acting) >= 100
    assert acting.ran == [words]


def test_where_nothing_makes_it_the_command_is_said():
    machine = Machine()
    with pytest.raises(DriverError) as refusal:
        open_node(machine, "/dev/nvidiactl", Acting(machine, root=False))
    assert "Run: sudo nvidia-modprobe -c0 -u (or: sudo mknod -m 666 /dev/nvidiactl c 195 255)" in str(
        refusal.value
    )
    assert refusal.value.errno == errno.ENOENT


def test_root_of_a_container_that_may_not_make_files_is_told_so():
    machine = Machine()
    acting = Acting(machine, root=True, makes=PermissionError(errno.EPERM, "Operation not permitted"))
    with pytest.raises(DriverError, match=r"may not make the file \(Operation not permitted\)"):
        open_node(machine, "/dev/nvidiactl", acting)


def test_without_the_module_nothing_is_made():
    machine = Machine(devices=b"Character devices:\n  1 mem\n")
    acting = Acting(machine, root=True, has_program=True)
    with pytest.raises(DriverError, match="The kernel driver that makes this file is not loaded"):
        open_node(machine, "/dev/nvidiactl", acting)
    assert not acting.made and not acting.ran and not nodes.is_loaded(machine)


def test_the_module_for_unified_memory_is_loaded_by_nvidias_program():
    machine = Machine(devices=b"Character devices:\n195 nvidia\n")
    acting = Acting(machine, root=True, has_program=True)
    assert open_node(machine, nodes.UVM, acting) >= 100
    assert not acting.made and acting.ran == [("nvidia-modprobe", "-c0", "-u")]


def test_on_an_emulated_machine_no_files_are_made():
    port = fresh_port("nv:sm_90")
    acting = Acting(Machine(), root=True, has_program=True)
    with pytest.raises(DriverError):
        open_node(port, "/dev/nvidia7", acting)
    assert not acting.made and not acting.ran


def test_a_machine_whose_files_nobody_made_is_one_with_a_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HCQ_EMULATE", "")
    monkeypatch.setattr(hw_check, "SIGNS", {"NV": "/no/nvidiactl", "AMD": "/no/kfd"})
    monkeypatch.setattr(hw_check, "LinuxPort", Machine)
    assert hw_check.first_device() == "NV"
    monkeypatch.setattr(hw_check, "LinuxPort", lambda: Machine(devices=b""))
    assert hw_check.first_device() == ""
