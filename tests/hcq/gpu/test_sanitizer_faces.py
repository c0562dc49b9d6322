"""What HCQ_SANITIZE finds is in traces, can be ignored by a file, and is asked for by `hcq.open(sanitize=)`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hcq
from hcq.config import Config
from hcq.emu.machine import kernels_for
from hcq.emu.port import EmulatedPort
from hcq.nv.device import NvDevice
from hcq.observe.ignored import Ignored
from hcq.observe.lint import lint
from hcq.observe.sanitizer import Sanitizer
from hcq.rules.rule import Finding
from hcq.tools.trace import views
from hcq.tools.trace.page_data import PageData
from hcq.trace.file import Trace
from hcq.trace.records import Kind, pack_record
from tests.hcq.gpu.racing_kernels import CASES, THREADS, ptx

pytestmark = pytest.mark.own_devices
RACE = CASES["no barrier between writing a tile and reading it"].wrong


def found(**switches: str) -> list[Finding]:
    """What is said of a kernel with a race, on an emulated GPU with these switches."""
    before = len(Sanitizer.findings)
    settings = Config.read({**os.environ, "HCQ_SANITIZE": "race", "HCQ_VALIDATE": "0", **switches})
    gpu = NvDevice("NV", EmulatedPort(kernels_for(["nv:sm_90"])), settings)
    gpu.run(gpu.load(ptx(RACE), "kernel"), [gpu.alloc(4 * THREADS)], block=(THREADS, 1, 1))
    gpu.close()
    return Sanitizer.findings[before:]


def test_a_finding_is_in_the_trace_with_its_launch_and_lint_the_page_and_show_have_it(tmp_path: Path) -> None:
    path = tmp_path / "run.hcqtrace"
    (said,) = found(HCQ_TRACE=str(path))
    trace = Trace.read(str(path))
    ((_, device, fields),) = trace.found
    assert device.name == "NV" and [site["text"].split()[0] for site in fields["sites"]] == [
        "st.shared.u32",
        "ld.shared.u32",
    ]
    (one,) = lint(trace)
    assert (one.rule, one.what, one.kernel, one.level) == ("shared-race", said.what, "kernel", "warning")
    (launch,) = [made for made in trace.submissions if made.kernels == ["kernel"]]
    assert one.submission == launch.value
    (row,) = PageData(trace).findings["findings"]
    assert (row["rule"], row["number"]) == ("shared-race", launch.number)
    (record,) = [record for record in trace.records if record.name == "FINDING"]
    assert said.what in views.record_view(trace, record)["text"]
    shown = [sys.executable, "-m", "hcq.tools.hcq_trace"]
    done = subprocess.run([*shown, "lint", "--json", str(path)], capture_output=True, text=True)
    assert [one["rule"] for one in json.loads(done.stdout)] == ["shared-race"]
    done = subprocess.run([*shown, "show", str(path), "--kernel", "kernel"], capture_output=True, text=True)
    assert "finding: warning [shared-race] kernel kernel: a race on byte" in done.stdout


def test_a_record_whose_fields_are_missing_is_refused_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "run.hcqtrace"
    found(HCQ_TRACE=str(path))
    record = next(record for record in Trace.read(str(path)).records if record.name == "FINDING")
    text = json.dumps({"device": record.fields["device"], "finding": {"rule": "shared-race"}}).encode()
    damaged = pack_record(Kind.FINDING, record.process, record.time_ns, text, b"")
    path.write_bytes(path.read_bytes().replace(record.raw, damaged))
    with pytest.raises(hcq.UsageError, match=rf"record {record.index}"):
        Trace.read(str(path))


@pytest.mark.parametrize(
    ("lines", "is_said"),
    [
        ("shared-race", False),
        ("shared-*  # all of them", False),
        ("# nothing but a comment\n\n", True),
        ("shared-race kern*", False),
        ("shared-race other", True),
        ('shared-race kernel "ld.shared*"', False),
        ("shared-race * 'line 1'", True),
        ("shared-race * * shared", False),
        ("shared-race * * weights", True),
        ("read-unwritten\nshared-race", False),
    ],
)
def test_a_file_of_globs_says_what_is_ignored(tmp_path: Path, lines: str, is_said: bool) -> None:
    path = tmp_path / "ignored"
    path.write_text(lines)
    assert bool(found(HCQ_SANITIZE_IGNORE=str(path))) == is_said
    ignored = Ignored.read(path)
    assert ignored.count == (not is_said)
    unused = [line for line in ignored.lines if not line.times]
    assert len(ignored.unused()) == len(unused) and all(str(path) in line for line in ignored.unused())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("shard-race", r":2: there is no rule 'shard-race'"),
        ("shared-race a b c d", r":2: 5 words, and a line takes up to 4"),
        ('shared-race "a', r""":2: a quotation mark has no partner in 'shared-race "a'"""),
    ],
)
def test_a_line_that_makes_no_sense_is_refused_with_its_number(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "ignored"
    path.write_text(f"shared-race kernel\n{line}\n")
    with pytest.raises(hcq.UsageError, match=why):
        Ignored.read(path)
    with pytest.raises(hcq.UsageError, match="cannot be read: No such file"):
        Ignored.read(tmp_path / "none")


PROGRAM = """
import hcq
for name, words in (("CPU", "race"), ("NV", "races"), ("NV", 3), ("NV", "race"), ("NV:1", None)):
    try:
        device = hcq.open(name, sanitize=words)
        print(sorted(device.config.sanitize), device is hcq.open(name))
        if words is None:
            hcq.open(name, sanitize="race")
    except hcq.UsageError as error:
        print(error)
"""


def test_a_device_is_opened_to_look_for_what_is_asked_and_others_are_not() -> None:
    environment = {**os.environ, "HCQ_EMULATE": "nv:sm_90,nv:sm_90", "HCQ_SANITIZE": ""}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "open('CPU', sanitize='race'): only emulated GPUs look at what kernels do. Set HCQ_EMULATE=amd:gfx1100.",
        f"open('NV', sanitize='races'): unknown word 'races'. Valid words: {', '.join(hcq.config.SANITIZE_WORDS)}.",
        "open: sanitize=3; takes a string.",
        "['race'] True",
        "[] True",
        (
            "open('NV:1', sanitize='race'): NV:1 is open, and looks for nothing. Say what to look for where it is "
            "opened first, or close it before."
        ),
    ]


def test_what_one_device_looks_for_is_not_looked_for_on_another() -> None:
    opened = []
    others = [word for word in hcq.config.SANITIZE_WORDS if word not in ("race", "unequal")]
    for words in ("race", ",".join(others), ""):
        settings = Config.read({**os.environ, "HCQ_SANITIZE": words, "HCQ_VALIDATE": "0"})
        opened.append(NvDevice("NV", EmulatedPort(kernels_for(["nv:sm_90"])), settings))
    told = []
    for gpu in opened:
        before = len(Sanitizer.findings)
        gpu.run(gpu.load(ptx(RACE), "kernel"), [gpu.alloc(4 * THREADS)], block=(THREADS, 1, 1))
        told.append([one.rule for one in Sanitizer.findings[before:]])
    for gpu in opened:
        gpu.close()
    assert told == [["shared-race"], [], []]
