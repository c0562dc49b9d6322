"""NVIDIA's bug reports and text of nvidia-smi: what decode finds in them.

The samples are made here, after the public forms.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hcq.tools.trace import nvidia_report, readers, unpack
from hcq.tools.trace.color import Color
from hcq.tools.trace.nvidia_report.smi import bus_of
from tests.tools.trace.conftest import Done

RULE = "____________________________________________\n"
QUERY = """
==============NVSMI LOG==============

Timestamp                                 : Sat Mar  7 10:15:21 2026
Driver Version                            : 580.142
CUDA Version                              : 13.0

Attached GPUs                             : 2
GPU 00000000:19:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Persistence Mode                      : Enabled
    GPU UUID                              : GPU-11111111-2222-3333-4444-555555555555
    GPU Reset Status
        Reset Required                    : No
        Drain and Reset Recommended       : No
    GPU Recovery Action                   : None
    PCI
        Bus                               : 0x19
        Device Id                         : 0x233010DE
        Bus Id                            : 00000000:19:00.0
    FB Memory Usage
        Total                             : 81559 MiB
        Reserved                          : 551 MiB
        Used                              : 1204 MiB
        Free                              : 79804 MiB
    BAR1 Memory Usage
        Total                             : 131072 MiB
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : 0
            DRAM Correctable              : 177
            DRAM Uncorrectable            : 2
        Aggregate
            DRAM Correctable              : 177
            DRAM Uncorrectable            : 2
    Retired Pages
        Pending Page Blacklist            : N/A
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 2
        Pending                           : Yes
        Remapping Failure Occurred        : No
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4711
            Type                          : C
            Name                          : python train.py
            Used GPU Memory               : 1190 MiB

GPU 00000000:3B:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    PCI
        Device Id                         : 0x233010DE
    FB Memory Usage
        Total                             : 81559 MiB
        Used                              : 0 MiB
    ECC Errors
        Volatile
            DRAM Uncorrectable            : 0
    Remapped Rows
        Pending                           : No
        Remapping Failure Occurred        : No
"""
TABLE = """
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    3 |
| N/A   31C    P0             70W /  400W |     526MiB /  81920MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA A100-SXM4-80GB          On  |   00000000:0B:00.0 Off |                    0 |
| N/A   29C    P0             61W /  400W |       0MiB /  81920MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A            9001      C   ./infer                                 516MiB |
+-----------------------------------------------------------------------------------------+
"""
XID_DMESG = (
    "[  812.100001] NVRM: Xid (PCI:0000:19:00): 63, "
    "Row Remapper: New row marked for remapping, reset gpu to activate.\n"
    "[  812.100200] NVRM: Xid (PCI:0000:19:00): 94, "
    "pid=4711, name=python, Contained: LTC (0x2, 0x1). RST: No, D-RST: Yes\n"
)
XID_JOURNAL = XID_DMESG.replace("[  812.100001]", "Mar 07 10:14:01 box kernel:").replace(
    "[  812.100200]", "Mar 07 10:14:01 box kernel:"
)


def section(heading: str, text: str, is_file: bool = True) -> str:
    listed = (
        f"*** {heading}\n*** ls: -r--r--r-- 1 root root 0 2026-03-07 10:15:00.000000000 +0000 {heading}\n"
    )
    return f"{RULE}\n{listed if is_file else heading + chr(10)}{text}\n\n"


REPORT = (
    f"{RULE}\nStart of NVIDIA bug report log file.  Please include this file, along\nwith a description.\n\n"
    "nvidia-bug-report.sh Version: 35702840\n\nDate: Sat Mar  7 10:15:20 UTC 2026\n"
    "uname: Linux box 6.8.0-60-generic #63 SMP x86_64 GNU/Linux\ncommand line flags: \n\n"
    + section("/proc/driver/nvidia/./version",
              "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.142  Release Build")
    + section("/proc/driver/nvidia/./params",
              'ResmanDebugLevel: 4294967295\nEnableMSI: 1\nNVreg_EnableGpuFirmware: 18\nRegistryDwords: "RMx=1"')
    + section("/proc/driver/nvidia/./gpus/0000:3b:00.0/information",
              "Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-2\nBus Location: \t 0000:3b:00.0")
    + f"{RULE}\n*** /var/log/nvidia-installer.log does not exist\n\n"
    + section("/etc/issue", "Ubuntu 24.04")
    + section("/usr/bin/lspci -nn -vvv",
              "19:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)\n"
              "\tLnkSta: Speed 32GT/s, Width x8 (downgraded)\n"
              "3b:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)\n", False)
    + section("/bin/journalctl -b -0 -k", XID_JOURNAL, False)
    + section("/bin/dmesg", XID_DMESG, False)
    + section("/usr/bin/nvidia-smi --query", QUERY, False)
    + section("/opt/vendor/strange-tool --all", "a text that nobody reads", False)
)  # fmt: skip
LOST = (
    f"{RULE}\nStart of NVIDIA bug report log file.\n\nnvidia-bug-report.sh Version: 1\n\nDate: today\nuname: Linux\n\n"
    + section("/proc/driver/nvidia/./version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23")
    + section("/usr/sbin/lspci -d 10de:* -v -xxx",
              "0a:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev ff)\n"
              "\t!!! Unknown header type 7f", False)
    + section("/var/log/kern.log", "Mar  7 09:00:00 pc kernel: "
              "NVRM: Xid (PCI:0000:0a:00): 79, GPU has fallen off the bus.")
    + section("nvidia-smi", "Unable to determine the device handle for GPU0000:0A:00.0: Unknown Error\n", False)
)  # fmt: skip


def said(name: str, was: str, now: str) -> str:
    """QUERY with another value at a name."""
    return re.sub(rf"({name} *: ){was}", rf"\g<1>{now}", QUERY)


def read(text: str) -> nvidia_report.Report:
    return nvidia_report.read(text.split("\n"))


def test_a_report_says_first_what_went_wrong() -> None:
    shown = list(nvidia_report.lines(read(REPORT), Color(False)))
    assert shown[0] == "what went wrong"
    assert "Xid 63" in shown[1] and "0000:19:00" in shown[1]
    assert "Xid 94" in shown[2] and "train" not in shown[2]
    assert any("waits to be remapped" in line for line in shown[:7])


def test_a_report_names_driver_gpus_and_parameters() -> None:
    report = read(REPORT)
    assert report.module == "580.142" and report.machine.releases["CUDA Version"] == "13.0"
    first, second = report.gpus
    assert (first.bus, first.pci_id, first.memory_mib, first.used_mib) == (
        "0000:19:00",
        "10de:2330",
        81559,
        1204,
    )
    assert first.xids == {63: 1, 94: 1} and first.ecc["Volatile/DRAM Uncorrectable"] == 2
    assert first.processes[0]["Name"] == "python train.py"
    assert (second.bus, second.state["GPU UUID"], second.used_mib) == ("0000:3b:00", "GPU-2", 0)
    assert report.parameters["RegistryDwords"] == "RMx=1" and report.parameters["EnableMSI"] == "1"
    shown = "\n".join(nvidia_report.lines(report, Color(False)))
    assert "NVreg_EnableGpuFirmware=18" in shown and "ResmanDebugLevel=" not in shown


def test_what_dmesg_and_the_journal_both_have_is_counted_once() -> None:
    events = read(REPORT).events
    assert [event.fields["xid"] for event in events] == [63, 94]
    assert all(len(event.copies) == 1 for event in events)
    whole = REPORT.split("\n")
    assert all("NVRM: Xid" in whole[event.line - 1] for event in events)
    assert all("NVRM: Xid" in whole[number - 1] for event in events for number in event.copies)


def test_the_same_xid_twice_in_one_log_is_two() -> None:
    twice = XID_DMESG + XID_DMESG.replace("812.", "900.")
    report = read(section("/bin/dmesg", twice, False) + section("journalctl -k", XID_JOURNAL, False))
    assert len(report.events) == 4


def test_sections_that_are_not_known_are_counted_and_listed() -> None:
    report = read(REPORT)
    assert report.unknown == ["/opt/vendor/strange-tool --all"]
    assert report.absent == ["/var/log/nvidia-installer.log does not exist"]
    assert "/etc/issue" in report.passed
    assert any("1 are not known" in line for line in nvidia_report.lines(report, Color(False)))


def test_states_of_memory_and_links_are_findings_with_their_meaning() -> None:
    kinds = {event.kind: event for event in read(REPORT).findings}
    assert {"row remapping pending", "rows remapped", "ECC errors", "narrow link"} <= kinds.keys()
    assert kinds["ECC errors"].fields["counts"]["Volatile/DRAM Uncorrectable"] == 2
    assert kinds["narrow link"].role == "notice" and "x8" in kinds["narrow link"].sentence
    assert all(event.meaning and event.advice for event in kinds.values())


def test_a_gpu_that_is_lost_is_told_from_three_sides() -> None:
    report = read(LOST)
    assert [gpu.bus for gpu in report.gpus] == ["0000:0a:00"]
    assert {event.kind for event in report.findings} == {"off the bus", "GPU lost"}
    assert report.events[0].fields["xid"] == 79
    assert all(event.device == "0000:0a:00" for event in (*report.findings, *report.events))


def test_plain_nvidia_smi_is_read() -> None:
    report = read(TABLE)
    first, second = report.gpus
    assert (first.bus, first.name, first.memory_mib) == ("0000:07:00", "NVIDIA A100-SXM4-80GB", 81920)
    assert first.ecc == {"Volatile/Uncorrectable": 3} and first.processes[0]["Process ID"] == "9001"
    assert second.used_mib == 0 and report.machine.releases["Driver Version"] == "570.86.15"
    assert [event.kind for event in nvidia_report.read(TABLE.split("\n")).findings] == ["ECC errors"]
    quoted = read("\n".join("> " + line for line in TABLE.split("\n")))
    assert len(quoted.gpus) == 2


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "no driver"),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.142", "no driver"),
        ("Unable to determine the device handle for GPU 0000:0A:00.0: GPU is lost.  Reboot", "GPU lost"),
        (TABLE.replace("31C", "ERR!"), "sensor error"),
        (said("Recovery Action", "None", "Reset"), "recovery action"),
        (said("Remapping Failure Occurred", "No", "Yes"), "row remapping failed"),
        (said("Reset Required", "No", "Yes"), "reset required"),
    ],
)  # fmt: skip
def test_what_nvidia_smi_complains_of_is_a_fault(text: str, kind: str) -> None:
    assert nvidia_report.recognises(text.encode())
    assert kind in {event.kind for event in read(text).findings if event.role == "fault"}


def test_releases_that_differ_are_told() -> None:
    differs = REPORT.replace("x86_64  580.142", "x86_64  575.64.05")
    assert "releases differ" in {event.kind for event in read(differs).findings}


def test_a_healthy_gpu_is_not_said_to_be_ill() -> None:
    healthy = QUERY.replace(": Yes", ": No").replace(": 2\n", ": 0\n")
    report = read(healthy)
    assert report.findings == []
    assert next(iter(nvidia_report.lines(report, Color(False)))).startswith("nothing in this text")


@pytest.mark.parametrize(
    ("text", "bus"),
    [("00000000:0A:00.0", "0000:0a:00"), ("0a:00.0", "0000:0a:00"), ("PCI:0000:0a:00", "0000:0a:00")],
)
def test_a_bus_has_one_name_in_all_sections(text: str, bus: str) -> None:
    assert bus_of(text) == bus


def test_decode_reads_a_report_packed_in_several_parts(trace: Callable[..., Done], tmp_path: Path) -> None:
    half = len(REPORT) // 2
    path = tmp_path / "nvidia-bug-report.log.gz"
    path.write_bytes(gzip.compress(REPORT[:half].encode()) + gzip.compress(REPORT[half:].encode()))
    done = trace("decode", path)
    assert done.status == 0 and done.out.startswith("what went wrong\n")
    data = json.loads(trace("decode", path, "--json").out)
    assert data["gpus"][0]["xids"] == {"63": 1, "94": 1}
    assert data["wrong"][0]["fields"]["xid"] == 63 and data["sections"]["unknown"]


def test_a_packed_file_that_is_cut_or_too_large_is_read_as_far_as_it_goes() -> None:
    packed = gzip.compress(REPORT.encode())
    assert REPORT.encode().startswith(unpack.unpacked(packed[: len(packed) // 2]))
    assert unpack.unpacked(packed[:12]) == packed[:12]  # nothing comes out
    bomb = gzip.compress(bytes(1 << 20)) * 100
    assert len(unpack.unpacked(bomb)) == unpack.MAX_BYTES


WHOLE = REPORT + LOST + TABLE


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_report_is_told_within_bounds_and_never_raises(seed: int) -> None:
    rng = random.Random(seed)
    lines = WHOLE.split("\n")
    for _ in range(rng.randrange(1, 60)):
        at = rng.randrange(len(lines))
        line, cut = lines[at], rng.randrange(len(lines[at]) + 1)
        lines[at] = rng.choice(
            (
                line[:cut],
                line[cut:],
                line[:cut] + rng.choice(("\0", "9" * 500, ":", "|", "\x1b[", "[")) + line[cut:],
                line[:cut] + rng.choice(lines),
                rng.choice(lines),
                "",
            )
        )
    del lines[rng.randrange(len(lines)) :]
    report = nvidia_report.read(lines)
    shown = list(nvidia_report.lines(report, Color(False)))
    assert sum(map(len, shown)) < 12 * len(WHOLE)
    assert not any(ord(char) < 32 and char != "\t" for line in shown for char in line)
    json.loads(json.dumps(nvidia_report.as_json(report)))


def test_bytes_of_any_kind_behind_a_mark_are_read() -> None:
    rng = random.Random(3)
    for _ in range(30):
        content = rng.randbytes(1000) + b"\nNVSMI LOG\nGPU 00000000:0A:00.0\n" + rng.randbytes(3000)
        reading = readers.find(content, readers.Wanted())
        assert reading is not None and list(reading.lines(Color(False)))
        json.loads(json.dumps(reading.as_json()))
