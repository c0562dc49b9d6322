"""What the doctor says before our driver is asked: each broken machine gets the one command that mends it."""

from __future__ import annotations

import errno
import re
import stat
from collections.abc import Callable

import pytest

from hcq.doctor.check import NEEDED, Check, Status
from hcq.doctor.examine import examine
from hcq.doctor.host import FileFacts
from hcq.emu.port import port_for
from hcq.nv.doctor import DOCTOR as NV

from .conftest import AMD_GPU, NV_GPU, RENDER, VIDEO, FakeHost

KFD, RENDER_NODE, NODES = (
    "/dev/kfd",
    "/dev/dri/renderD128",
    ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"),
)


def failure(host: FakeHost, device: str) -> Check:
    """The one check that failed; everything above it was skipped and says so."""
    (run,) = examine(host, device).runs
    failed = [check for check in run.checks if check.status == Status.FAILED]
    assert len(failed) == 1
    assert not run.is_well
    at = run.checks.index(failed[0])
    assert all(check.status == Status.OK for check in run.checks[:at])
    if failed[0].name in NEEDED:
        assert {check.text for check in run.checks[at + 1 :]} == {f"needs {failed[0].name}"}
    return failed[0]


def refuse(host: FakeHost, number: int, *paths: str) -> FakeHost:
    host.refusals.update(dict.fromkeys(paths, number))
    return host


def only_on_the_bus(host: FakeHost, table: dict[str, str], driver: str = "", **files: str) -> FakeHost:
    host.pci(table, driver)
    host.files.update({name.replace("__", "/"): text for name, text in files.items()})
    return host


def strangers(host: FakeHost, listed: bool = False) -> FakeHost:
    host.user(groups="", listed=listed)
    return host


def folder(host: FakeHost, path: str) -> FakeHost:
    host.looks[path] = FileFacts(stat.S_IFDIR | 0o755, 0, 0)
    return host


def wsl(host: FakeHost) -> FakeHost:
    host.files["/proc/sys/kernel/osrelease"] = "5.15.153-microsoft-standard-WSL2"
    return host


def selinux(host: FakeHost) -> FakeHost:
    host.files["/sys/fs/selinux/enforce"] = "1"
    return host


def old_kfd(host: FakeHost) -> FakeHost:
    host.kfd_version = (1, 6)
    return host


def upgraded(host: FakeHost) -> FakeHost:
    host.files["/lib/modules/6.12.9-amd64/modules.dep"] = ""
    return host


def nobody_can(host: FakeHost) -> FakeHost:
    return refuse(host.amd(mode=0o600, gid=0), errno.EACCES, KFD)


# device, machine, the check that fails, a part of what it says, a part of the fix
MACHINES: list[tuple[str, Callable[[FakeHost], FakeHost], str, str, str]] = [
    ("AMD", lambda h: h, "node", "no AMD GPU is on the PCI bus", "lspci -nn | grep -i 1002"),
    ("AMD", lambda h: only_on_the_bus(h, AMD_GPU), "node", "amdgpu is not loaded", "sudo modprobe amdgpu"),
    (
        "AMD",
        lambda h: upgraded(only_on_the_bus(h, AMD_GPU)),
        "node",
        "6.12.0-amd64 are not installed",
        "sudo reboot",
    ),
    (
        "AMD",
        lambda h: only_on_the_bus(h, AMD_GPU, "vfio-pci"),
        "node",
        "kept for a virtual machine",
        "echo 0000:03:00.0 | sudo tee /sys/bus/pci/drivers/vfio-pci/unbind",
    ),
    (
        "AMD",
        lambda h: only_on_the_bus(h, AMD_GPU, __proc__cmdline="quiet nomodeset"),
        "node",
        "started with nomodeset",
        "sudo update-grub",
    ),
    ("AMD", lambda h: wsl(h), "node", "WSL", "start Linux itself"),
    ("AMD", lambda h: h.amd().without(KFD), "node", "though the kernel has amdgpu", "CONFIG_HSA_AMD"),
    ("AMD", lambda h: h.amd().inside("docker").without(KFD), "node", "docker container", "--device /dev/kfd"),
    (
        "AMD",
        lambda h: h.amd().inside("podman").without(KFD),
        "node",
        "podman container",
        "--group-add keep-groups",
    ),
    ("AMD", lambda h: h.amd().inside("kubernetes").without(KFD), "node", "kubernetes", "amd.com/gpu: 1"),
    (
        "AMD",
        lambda h: h.amd().inside("docker").without(RENDER_NODE),
        "node",
        RENDER_NODE,
        "--device /dev/dri",
    ),
    (
        "AMD",
        lambda h: h.inside("docker"),
        "node",
        "has not loaded amdgpu",
        "outside of the container: sudo modprobe",
    ),
    ("AMD:1", lambda h: h.amd(), "node", "1 GPUs", "dmesg"),
    ("AMD", lambda h: folder(h.amd(), KFD), "node", "is a folder, not a device", "sudo rm -r /dev/kfd"),
    (
        "AMD",
        lambda h: refuse(strangers(h.amd()), errno.EACCES, KFD, RENDER_NODE),
        "permission",
        "open(/dev/kfd) -> EACCES",
        "sudo usermod -aG render $USER",
    ),
    (
        "AMD",
        lambda h: refuse(strangers(h.amd(), listed=True), errno.EACCES, KFD),
        "permission",
        "this session is older",
        "newgrp render",
    ),
    (
        "AMD",
        lambda h: refuse(strangers(h.amd()), errno.EACCES, RENDER_NODE),
        "permission",
        "open(/dev/dri/renderD128)",
        "usermod -aG render",
    ),
    (
        "AMD",
        lambda h: refuse(strangers(h.amd()).inside("docker"), errno.EACCES, KFD),
        "permission",
        "not in that group",
        "--group-add 105",
    ),
    (
        "AMD",
        nobody_can,
        "permission",
        "gives no group the right",
        'SUBSYSTEM=="kfd", KERNEL=="kfd", GROUP="render"',
    ),
    (
        "AMD",
        lambda h: refuse(strangers(h.amd(gid=992)), errno.EACCES, KFD),
        "permission",
        "group 992",
        "sudo groupadd -g 992",
    ),
    (
        "AMD",
        lambda h: refuse(h.amd().inside("docker"), errno.EPERM, KFD),
        "permission",
        "not allowed in this docker container",
        "--device /dev/kfd",
    ),
    ("AMD", lambda h: refuse(selinux(h.amd()), errno.EACCES, KFD), "permission", "SELinux", "audit2why"),
    (
        "AMD",
        lambda h: refuse(h.amd(), errno.EPERM, KFD),
        "permission",
        "device cgroup",
        "DeviceAllow=/dev/kfd rw",
    ),
    ("AMD", lambda h: refuse(h.amd(), errno.EMFILE, KFD), "permission", "too many open files", "ulimit -n"),
    (
        "AMD",
        lambda h: refuse(h.amd(), errno.ENODEV, KFD),
        "permission",
        "no working GPU behind",
        "dmesg | grep",
    ),
    ("AMD", lambda h: old_kfd(h.amd()), "driver", "KFD interface 1.6", "sudo apt install linux-image"),
    ("AMD", lambda h: h.amd(), "open", "open amd device: step", "dmesg"),
    ("NV", lambda h: h, "node", "no NVIDIA GPU is on the PCI bus", "lspci -nn | grep -i 10de"),
    (
        "NV",
        lambda h: only_on_the_bus(h, NV_GPU, "nouveau"),
        "node",
        "driven by nouveau",
        "echo blacklist nouveau | sudo tee",
    ),
    ("NV", lambda h: only_on_the_bus(h, NV_GPU), "node", "nvidia is not loaded", "sudo modprobe nvidia"),
    (
        "NV",
        lambda h: h.nv().without(*NODES),
        "node",
        "/dev/nvidiactl does not exist",
        "sudo nvidia-modprobe -c0 -u",
    ),
    (
        "NV",
        lambda h: h.nv().without("/dev/nvidia-uvm"),
        "node",
        "/dev/nvidia-uvm does not",
        "nvidia-modprobe -c0 -u",
    ),
    (
        "NV",
        lambda h: h.nv().inside("docker").without(*NODES),
        "node",
        "docker container",
        "docker run --gpus all",
    ),
    (
        "NV",
        lambda h: h.nv().inside("podman").without(*NODES),
        "node",
        "podman",
        "--device nvidia.com/gpu=all",
    ),
    (
        "NV",
        lambda h: refuse(h.nv(), errno.EIO, "/dev/nvidia0"),
        "permission",
        "EIO",
        "grep -iE 'nvrm|nvidia'",
    ),
    (
        "NV",
        lambda h: h.nv("470.256.02", "x86_64 Kernel Module"),
        "driver",
        "release 470.256.02",
        "nvidia-open",
    ),
]


@pytest.mark.parametrize(("device", "machine", "check", "said", "fix"), MACHINES)
def test_a_broken_machine_gets_the_command_that_mends_it(
    host: FakeHost, device: str, machine: Callable[[FakeHost], FakeHost], check: str, said: str, fix: str
) -> None:
    failed = failure(machine(host), device)
    assert failed.name == check
    assert said in failed.text
    assert fix in failed.fix
    assert "\n" not in failed.fix


def test_a_container_on_a_machine_without_a_gpu_is_told_so(host: FakeHost) -> None:
    assert "no AMD GPU shows on its PCI bus either" in failure(host.inside("docker"), "AMD").text
    host.pci(AMD_GPU)
    assert "PCI bus" not in failure(host, "AMD").text


def test_the_uvm_module_alone_may_be_missing(host: FakeHost) -> None:
    host.nv().without("/dev/nvidia-uvm").modules("nvidia")
    assert "sudo modprobe nvidia_uvm" in failure(host, "NV").fix


def test_an_udev_rule_is_for_the_file_that_needs_it(host: FakeHost) -> None:
    host.amd()
    host.device(RENDER_NODE, 0o600, 0)
    host.refusals[RENDER_NODE] = errno.EACCES
    assert 'KERNEL=="renderD*"' in failure(host, "AMD").fix
    assert "usermod -aG render $USER" in failure(host, "AMD").fix


def test_root_may_open_what_permission_bits_refuse(host: FakeHost) -> None:
    host.amd(mode=0o600, gid=0)
    host.user(uid=0, caps=2)
    (run,) = examine(host, "AMD").runs
    assert [check.status for check in run.checks[:2]] == [Status.OK, Status.OK]


def test_the_interface_version_is_compared_with_our_table(host: FakeHost) -> None:
    for version, relation in (((1, 17), "the same"), ((1, 30), "newer"), ((1, 14), "older, still fine")):
        host.amd().kfd_version = version
        (run,) = examine(host, "AMD").runs
        assert run.checks[2].status == Status.OK
        assert f"table 1.17: {relation}" in run.checks[2].text


def test_an_nvidia_release_is_named_with_the_kind_of_its_module(host: FakeHost) -> None:
    (run,) = examine(host.nv(), "NV").runs
    assert run.checks[2].text == "release 580.65.06, open kernel module"
    (run,) = examine(host.nv(kind="x86_64 Kernel Module"), "NV").runs
    assert run.checks[2].text == "release 580.65.06, proprietary kernel module"


def test_a_file_is_shown_with_its_permissions_and_group(host: FakeHost) -> None:
    (run,) = examine(host.amd(), "AMD").runs
    assert (
        run.checks[0].text
        == "/dev/kfd (crw-rw----, group render), /dev/dri/renderD128 (crw-rw----, group render)"
    )
    assert (RENDER, VIDEO) == (105, 44)


def test_files_opened_to_see_whether_they_open_are_closed(host: FakeHost) -> None:
    closed: list[int] = []
    host.close = closed.append  # type: ignore[method-assign]
    examine(host.nv(), "NV")
    assert len(closed) >= 3
    assert host.opened[:3] == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"]


def test_every_gpu_has_a_walk_of_its_own(host: FakeHost) -> None:
    host.amd().nv()
    host.user(groups=str(RENDER))
    path = "/sys/devices/virtual/kfd/kfd/topology/nodes"
    host.files[f"{path}/2/gpu_id"] = "4712"
    host.files[f"{path}/2/properties"] = host.files[f"{path}/1/properties"].replace("128", "129")
    host.device("/dev/dri/renderD129")
    found = examine(host)
    assert [run.device for run in found.runs] == ["CPU", "AMD", "AMD:1", "NV"]
    assert "renderD129" in found.runs[2].checks[0].text
    assert list(found.absent) == ["METAL"]


def test_the_minor_number_comes_from_the_driver_and_not_from_the_order(host: FakeHost) -> None:
    host.nv().files["/proc/driver/nvidia/gpus/0000:01:00.0/information"] = "Device Minor: 5\n"
    host.device("/dev/nvidia5", 0o666, 0)
    (run,) = examine(host, "NV").runs
    assert "/dev/nvidia5" in run.checks[0].text


def test_every_fix_line_of_the_table_is_a_command_or_says_what_to_do(host: FakeHost) -> None:
    fixes = [failure(machine(FakeHost()), device).fix for device, machine, *_ in MACHINES]
    assert [fix for fix in fixes if not re.match(r"[a-z]", fix) or fix.endswith(".")] == []


def test_without_proc_the_release_is_asked_as_opening_asks_it() -> None:
    class Gvisor(type(port_for(["nv:sm_90"]))):  # type: ignore[misc]
        def read_file(self, path: str) -> bytes:
            return super().read_file(path + ".absent" if path == "/proc/driver/nvidia/version" else path)

    found = NV.driver(Gvisor(port_for(["nv:sm_90"]).kernels), "Linux 6.8")
    assert found.text.startswith("release 580.142, as /dev/nvidiactl says")
    assert found.figures == {"release": "580.142", "is_open_module": "unknown"}
    assert NV.driver(port_for(["nv:sm_90"]), "Linux 6.8").figures["release"] == "580.142"


def test_a_driver_without_proc_and_without_an_answer_is_a_failure(host: FakeHost) -> None:
    del host.nv().files["/proc/driver/nvidia/version"]
    failed = failure(host, "NV")
    assert failed.name == "driver"
    assert "cannot be read, and /dev/nvidiactl says: " in failed.text


def test_a_driver_older_than_open_modules_is_said_to_be(host: FakeHost) -> None:
    assert (
        "older than open kernel modules" in failure(host.nv("470.256.02", "x86_64 Kernel Module"), "NV").text
    )
    younger = failure(host.nv("535.183.01"), "NV")
    assert "older than open kernel modules" not in younger.text
    assert "the oldest release whose interface is known is 550" in younger.text
    assert "NVIDIA's repository" in younger.fix


@pytest.mark.parametrize(("container", "fix"), [("podman", "keep-groups"), ("docker", 'MODE="0666"')])
def test_root_of_a_rootless_container_is_told_whose_group_it_lacks(
    host: FakeHost, container: str, fix: str
) -> None:
    host.amd(mode=0o660, gid=65534, uid=65534).inside(container)
    host.user(uid=0, caps=2)
    host.files["/proc/self/uid_map"] = "         0       1000          1\n         1     100000      65536\n"
    host.refusals["/dev/kfd"] = errno.EACCES
    failed = failure(host, "AMD")
    assert "this rootless container does not map" in failed.text
    assert fix in failed.fix
    host.files["/proc/self/uid_map"] = "         0          0 4294967295\n"
    assert "rootless" not in failure(host, "AMD").text
