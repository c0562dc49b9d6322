"""A program that sees emulated GPUs starts, behaves and ends as it does without."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hcq.emu.supervisor.conftest import Program, is_running

Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -SEGV $$", -signal.SIGSEGV),
        ("kill -KILL $$", -signal.SIGKILL),
    ],
)
def test_the_exit_status_is_the_programs(emulate: Program, line: str, status: int) -> None:
    assert emulate(line).returncode == status


@pytest.mark.parametrize(
    ("program", "status", "says"),
    [("/nonexistent", 127, "No such file"), ("/etc/passwd", 126, "Permission denied")],
)
def test_a_program_that_cannot_start_is_told_as_a_shell_does(
    emulate: Program, program: str, status: int, says: str
) -> None:
    done = emulate([program])
    assert done.returncode == status
    assert f"{program}: {says}" in done.stderr


def test_input_output_and_arguments_are_the_programs(emulate: Program) -> None:
    done = emulate(["sh", "-c", "cat; echo $1 $HSA_USERPTR_FOR_PAGED_MEM >&2", "-", "a b"], given="in\n")
    assert (done.stdout, done.stderr) == ("in\n", "a b 0\n")


def test_the_file_system_shows_the_gpus_and_is_the_real_one_elsewhere(emulate: Program) -> None:
    done = emulate(
        """
        import stat
        assert sorted(os.listdir("/dev/dri")) == ["card0", "renderD128"]
        for path, major, minor in (("/dev/dri/renderD128", 226, 128), ("/dev/dri/card0", 226, 0)):
            fd = os.open(path, os.O_RDWR)
            for found in (os.stat(path), os.lstat(path), os.fstat(fd)):
                assert stat.S_ISCHR(found.st_mode), found
                assert (os.major(found.st_rdev), os.minor(found.st_rdev)) == (major, minor), found
        root = "/sys/devices/virtual/kfd/kfd/topology"
        with open(f"{root}/nodes/1/gpu_id") as file:
            gpu_id = int(file.read())
        assert gpu_id
        assert sorted(os.listdir(f"{root}/nodes")) == ["0", "1"]
        folder = os.open(f"{root}/nodes", os.O_RDONLY)  # a real folder: calls relative to it are the kernel's
        with open(os.open("1/gpu_id", os.O_RDONLY, dir_fd=folder)) as file:
            assert int(file.read()) == gpu_id
        assert os.stat(f"{root}/nodes/../nodes/./1/gpu_id").st_size
        for path, number in ((f"{root}/nodes/7", errno.ENOENT), (f"{root}/generation_id", errno.EACCES)):
            try:
                os.open(path, os.O_WRONLY)
            except OSError as error:
                assert error.errno == number, (path, error)
            else:
                raise AssertionError(path)
        assert os.access("/dev/kfd", os.R_OK | os.W_OK) and not os.access("/dev/kfd0", os.F_OK)
        assert os.stat("/dev/null").st_rdev == os.makedev(1, 3)
        assert b"MemTotal" in open("/proc/meminfo", "rb").read()
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_sysfs_shows_a_gpu_from_every_side(emulate: Program) -> None:
    """As on Linux: by its class, by its numbers, by its place on the bus. All ways lead to one folder."""
    done = emulate(
        """
        def text(path):
            with open(path) as file:
                return file.read().strip()
        nodes = "kfd/kfd/topology/nodes"
        assert os.listdir(f"/sys/class/{nodes}") == os.listdir(f"/sys/devices/virtual/{nodes}")
        assert sorted(os.listdir("/sys/class/drm")) == ["card0", "card1", "renderD128", "renderD129", "version"]
        for number, (device_id, name) in enumerate([("0x744c", "0000:03:00.0"), ("0x74a1", "0000:04:00.0")]):
            ways = [f"/sys/class/drm/card{number}/device", f"/sys/class/drm/renderD{128 + number}/device"]
            ways += [f"/sys/dev/char/226:{number}/device", f"/sys/dev/char/226:{128 + number}/device"]
            ways += [f"/sys/bus/pci/devices/{name}", f"/sys/class/pci_bus/{name[:7]}/../../{name}"]
            ways += [f"/sys/class/hwmon/hwmon{number + 1}/device", f"/sys/bus/pci/drivers/amdgpu/{name}"]
            (device,) = {os.path.realpath(way) for way in ways}
            assert os.path.basename(device) == name
            for way in ways:
                assert (text(f"{way}/vendor"), text(f"{way}/device")) == ("0x1002", device_id), way
                assert os.listdir(f"{way}/drm/"), way
            (monitor,) = os.listdir(f"{device}/hwmon")
            assert text(f"{device}/hwmon/{monitor}/name") == "amdgpu"
            location = int(name[5:7], 16) << 8
            assert f"location_id {location}" in text(f"/sys/class/{nodes}/{number + 1}/properties").splitlines()
        """,
        "amd:gfx1100,amd:gfx942",
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_memory_that_a_program_takes_is_shown_in_sysfs_while_it_has_it(emulate: Program) -> None:
    done = emulate(
        """
        import hcq
        def used():
            with open("/sys/class/drm/card0/device/mem_info_vram_used") as file:
                return int(file.read())
        before = used()
        device = hcq.open("AMD")
        opened = used()
        buffer = device.alloc(1 << 26)
        assert used() - opened >= 1 << 26
        del buffer
        device.close()
        assert before == used() == 0
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100"])
def test_rocm_smi_lists_the_gpu(emulate: Program, arch: str) -> None:
    if shutil.which("rocm-smi") is None:
        pytest.skip("rocm-smi is not installed")
    done = emulate(["rocm-smi", "--showbus", "--showmeminfo", "vram", "--showuse"], f"amd:{arch}")
    assert done.returncode == 0, done.stderr
    assert "PCI Bus: 0000:03:00.0" in done.stdout
    assert f"VRAM Total Memory (B): {16 << 30}" in done.stdout


def test_ctrl_c_reaches_the_program_and_the_supervisor_ends_after_it(start: Start) -> None:
    one = start("trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done")
    assert one.stdout is not None
    assert one.stdout.readline() == "ready\n"
    os.killpg(one.pid, signal.SIGINT)  # as a terminal does
    out, _ = one.communicate(timeout=60)
    assert (one.returncode, out) == (5, "caught\n")


def test_a_program_that_ctrl_c_ends_takes_the_supervisor_along(start: Start) -> None:
    one = start("echo ready; exec sleep 60")
    assert one.stdout is not None
    one.stdout.readline()
    os.killpg(one.pid, signal.SIGINT)
    one.communicate(timeout=60)
    assert one.returncode == -signal.SIGINT


def test_sigterm_is_passed_on(start: Start) -> None:
    one = start("trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done")
    assert one.stdout is not None
    one.stdout.readline()
    one.terminate()
    assert one.wait(timeout=60) == 9


def test_what_the_program_leaves_running_is_served_and_waited_for(emulate: Program) -> None:
    done = emulate("(sleep 0.3; test -e /dev/kfd && echo late) & exit 3")
    assert (done.returncode, done.stdout) == (3, "late\n")


def test_a_second_interrupt_ends_what_was_left_running(start: Start) -> None:
    one = start("sleep 600 & echo $!; exit 3")
    assert one.stdout is not None
    left = int(one.stdout.readline())
    time.sleep(0.2)
    one.send_signal(signal.SIGINT)
    assert one.wait(timeout=60) == 3
    assert not is_running(left)


@pytest.mark.parametrize(
    "program",
    ["echo $$; exec sleep 600", "sh -c 'echo $$; exec sleep 600'; echo", "setsid sleep 600 & echo $!; wait"],
)
def test_a_supervisor_that_is_killed_takes_along_what_it_supervised(start: Start, program: str) -> None:
    one = start(program)
    assert one.stdout is not None
    child = int(one.stdout.readline())
    one.kill()
    one.wait(timeout=60)
    end = time.monotonic() + 60
    while is_running(child) and time.monotonic() < end:
        time.sleep(0.01)
    assert not is_running(child)


def test_files_go_with_a_supervisor_however_it_dies(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    numbers = (signal.SIGKILL, signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV)
    running = [start("echo ready; exec sleep 600") for _ in numbers]
    for one, number in zip(running, numbers):
        assert one.stdout is not None
        one.stdout.readline()
        one.send_signal(number)
    for one in running:
        one.wait(timeout=60)
    end = time.monotonic() + 60
    while (left := list(tmp_path.iterdir())) and time.monotonic() < end:
        time.sleep(0.01)
    assert not left


@pytest.mark.parametrize("status", ["exit 9", "trap - TERM; kill -TERM $$"])
def test_further_signals_while_it_ends_are_quiet(start: Start, status: str) -> None:
    one = start(f"trap '{status}' TERM; echo ready; while :; do sleep 0.01; done")
    assert one.stdout is not None
    one.stdout.readline()
    while one.poll() is None:
        one.terminate()
        time.sleep(0.002)
    _, err = one.communicate()
    assert (one.returncode, err) == (9 if status == "exit 9" else -signal.SIGTERM, "")


def test_variables_with_our_prefix_are_the_programs_unless_the_supervisor_obeys_them(
    emulate: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"HCQ_OF_SOMEBODY": "x y", "HCQ_DEVICE": "none", "HCQ_AMD_QUEUE": "?", "HCQ_REPORT": "off"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    done = emulate(" ".join(["echo", *(f'"${name}"' for name in given)]))
    assert (done.returncode, done.stdout) == (0, "x y none ? off\n")
    monkeypatch.setenv("HCQ_REPORT", "of")
    assert "HCQ_REPORT='of'" in emulate("true").stderr


def test_a_second_supervisor_below_the_first_is_refused_with_the_way_out(emulate: Program) -> None:
    import sys

    done = emulate([sys.executable, "-m", "hcq", "emulate", "amd:gfx1100", "--", "true"])
    assert done.returncode == 2
    assert "EBUSY" in done.stderr
    assert "hcq.emu.attach" in done.stderr


def test_a_trace_that_cannot_be_written_is_refused_before_the_program_starts(
    emulate: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("HCQ_TRACE", str(tmp_path / "nowhere" / "run.hcqtrace"))
    done = emulate("echo started")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be written (No such file or directory)" in done.stderr
    assert "Traceback" not in done.stderr
    monkeypatch.setenv("HCQ_TRACE", str(tmp_path / "run.hcqtrace"))
    assert emulate("echo started").stdout == "started\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("words", ["amd:gfx1100", "amd:gfx942", "nv:sm_89"])
def test_a_program_that_cuts_or_fills_its_devices_files_harms_nobody_else(
    emulate: Program, words: str
) -> None:
    """Their memory is mapped here, too: a file that becomes shorter would end the supervisor (SIGBUS)."""
    done = emulate(
        """
        import hcq
        device = hcq.open(words[0])
        device.alloc(1 << 22).write(bytes(1 << 22))
        def refused(act):
            try:
                act()
            except OSError:
                return
            raise AssertionError("it was done")
        for fd in map(int, os.listdir("/proc/self/fd")):
            path = f"/proc/self/fd/{fd}"
            try:
                is_file = os.readlink(path).startswith(("/memfd:", "/dev/kfd", "/dev/dri", "/dev/nvidia"))
            except OSError:
                continue
            if not is_file:
                continue
            has_memory = os.lseek(os.open(path, os.O_RDONLY), 0, os.SEEK_END) > 0
            for size in (0, 1 << 50) if has_memory else (1 << 50,):
                refused(lambda: os.ftruncate(fd, size))
                refused(lambda: os.truncate(path, size))
            if has_memory:
                refused(lambda: os.close(os.open(path, os.O_RDWR | os.O_TRUNC)))
            refused(lambda: os.posix_fallocate(fd, 0, 1 << 24))
            refused(lambda: os.write(fd, b"x"))
        again = device.alloc(1 << 16)
        again.write(b"7" * (1 << 16))
        assert again.read() == b"7" * (1 << 16)
        """.replace("words[0]", repr(words.partition(":")[0].upper())),
        words,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_files_are_left(emulate: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    emulate("true")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["amd:gfx1100"], "no program is named"),
        (["amd:gfx1", "--", "true"], "unknown architecture 'gfx1'"),
        ([",", "--", "true"], "no GPU is named"),
        (["nv:sm_1", "--", "true"], "sm_1"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(arguments: list[str], says: str) -> None:
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "hcq", "emulate", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert says in done.stderr


def test_a_switch_says_how_often_a_program_whose_faults_are_looked_for_is_run(
    emulate: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCQ_SANITIZE_SCHEDULES", "2")
    assert "orders" not in emulate("true").stderr
    monkeypatch.setenv("HCQ_SANITIZE", "race")
    done = emulate("true")
    assert (done.returncode, done.stderr) == (0, "hcq emulate: 0 findings in 2 orders\n")
