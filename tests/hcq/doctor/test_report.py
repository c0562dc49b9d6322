"""Reports: for people, for programs, and for bug trackers that everyone can read."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

import hcq
from hcq.__main__ import main
from hcq.doctor import devices, report
from hcq.doctor.check import CHECKS
from hcq.doctor.examine import examine

from .conftest import FakeHost


def broken(host: FakeHost) -> FakeHost:
    host.amd().user(groups="")
    host.refusals["/dev/kfd"] = errno.EACCES
    return host


def test_a_failed_rung_is_followed_by_what_it_asks_and_the_fix(host: FakeHost) -> None:
    text = report.as_text(examine(broken(host), "AMD"))
    lines = text.splitlines()
    at = next(
        index for index, line in enumerate(lines) if line.startswith("  FAILED permission open(/dev/kfd)")
    )
    assert lines[at + 1].split(maxsplit=1) == ["asks", "may this process open it?"]
    assert lines[at + 2].split(maxsplit=1)[1].startswith("sudo usermod -aG render $USER")
    assert "  -      kernel     needs permission" in lines
    assert lines[-1] == "Not well: AMD. Follow the first fix, then run this again."


def test_what_is_not_here_is_said_in_one_line(host: FakeHost) -> None:
    text = report.as_text(examine(host))
    assert "AMD: no /dev/kfd, and no AMD GPU on the PCI bus." in text
    assert text.endswith("All is well: CPU can be used.")


def test_colours_are_for_terminals_alone(host: FakeHost) -> None:
    found = examine(broken(host), "AMD")
    assert "\x1b[31;1mFAILED\x1b[0m" in report.as_text(found, colours=True)
    assert "\x1b" not in report.as_text(found)


def test_the_json_has_these_fields(host: FakeHost) -> None:
    found = json.loads(report.as_json(examine(broken(host))))
    assert list(found) == ["doctor", "status", "hcq", "python", "system", "devices", "absent"]
    assert (found["doctor"], found["status"], found["hcq"]) == (1, "failed", hcq.__version__)
    assert list(found["system"]) == [
        "kernel",
        "machine",
        "container",
        "is_wsl",
        "is_seccomp_filtered",
        "is_selinux_enforcing",
        "memlock_bytes",
        "memory_bytes",
    ]
    cpu, amd = found["devices"]
    assert list(cpu) == ["name", "kind", "is_emulated", "status", "checks"]
    assert [check["name"] for check in cpu["checks"]] == list(CHECKS)
    assert list(cpu["checks"][0]) == ["name", "status", "text", "fix", "figures"]
    assert (cpu["status"], amd["status"]) == ("ok", "failed")
    assert [check["status"] for check in amd["checks"]] == ["ok", "failed"] + ["skipped"] * 8
    assert list(found["absent"]) == ["NV", "METAL"]


def test_neither_report_names_a_user_or_a_home_folder(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/data/people/ada")
    assert report.scrub("open(/data/people/ada/.cache/hcq/x) -> ENOSPC") == "open(~/.cache/hcq/x) -> ENOSPC"
    assert report.scrub("read(/home/grace/t.bin): and /Users/alan/x") == "read(~/t.bin): and ~/x"
    assert (
        report.scrub("/data/people/adam stays, and so does /dev/dri")
        == "/data/people/adam stays, and so does /dev/dri"
    )
    said = report.as_json(examine(broken(host))) + report.as_text(examine(host))
    assert "ada" not in said.replace("loaded", "")


def test_the_list_of_devices_has_arch_memory_queues_and_driver(host: FakeHost) -> None:
    cpu, amd = devices.entries(devices.list_devices(host, ["amd:gfx1100"]))
    assert (cpu["name"], cpu["queues"], cpu["is_emulated"]) == ("CPU", ["main"], False)
    assert cpu["memory_bytes"] == 16384000 << 10
    assert (amd["name"], amd["arch"], amd["queues"], amd["is_emulated"]) == (
        "AMD",
        "gfx1100",
        ["compute", "copy"],
        True,
    )
    assert "KFD interface 1.17" in amd["driver"]


def test_a_device_that_cannot_be_opened_says_why(host: FakeHost) -> None:
    found = devices.list_devices(broken(host))
    _, amd = devices.entries(found)
    assert (amd["name"], amd["check"]) == ("AMD", "permission")
    text = devices.as_text(found)
    assert "AMD: cannot be opened. open(/dev/kfd) -> EACCES" in text
    assert "    fix: sudo usermod -aG render $USER" in text
    assert "NV hardware: none here (no /dev/nvidiactl" in text


def test_the_exit_status_says_whether_all_is_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, host: FakeHost
) -> None:
    monkeypatch.setattr("hcq.doctor.examine.LinuxHost", lambda: host)
    assert main(["doctor"]) == 0
    assert main(["devices"]) == 0
    broken(host)
    assert main(["doctor"]) == 1
    assert main(["doctor", "--device", "CPU"]) == 0
    assert main(["devices"]) == 0
    host.refusals["mprotect"] = errno.EACCES
    assert main(["devices"]) == 1
    assert main(["doctor", "--device", "TPU"]) == 2
    assert "unknown device 'TPU'" in capsys.readouterr().err
    assert main(["doctor", "--emulated", "amd:gfx1"]) == 2
    assert "gfx1" in capsys.readouterr().err


def test_the_help_teaches_the_rungs_and_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "--help"])
    said = capsys.readouterr().out
    assert caught.value.code == 0
    assert not [name for name, question in CHECKS.items() if name not in said or question not in said]
    assert "python -m hcq doctor --device AMD --emulated amd:gfx1100" in said


def test_the_doctor_needs_neither_numpy_nor_llvm(device: object) -> None:
    code = (
        "import sys; sys.modules['numpy'] = sys.modules['llvmlite'] = None\n"
        "from hcq.__main__ import main\n"
        "sys.exit(main(['doctor', '--device', 'CPU', '--json']))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=50,
        env=dict(os.environ),
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["status"] == "ok"


def test_a_reader_that_stops_early_is_no_error(device: object) -> None:
    program = [sys.executable, "-m", "hcq", "doctor", "--device", "CPU", "--json"]
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run(program, stdout=write, stderr=subprocess.PIPE, text=True, timeout=50, check=False)
    os.close(write)
    assert run.stderr == ""
    assert run.returncode == 1
