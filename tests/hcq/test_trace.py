"""The trace: what was submitted can be read back, up to the cut when the process was killed."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from hcq.errors import UsageError
from hcq.trace import MAGIC, read_trace
from tests.hcq.conftest import IR, assemble

SCRIPT = """
import hcq, sys
from hcq.graph import Symbol
dev = hcq.open("CPU")
image = open(sys.argv[1], "rb").read()
step = dev.load(image, "step", args=("buffer", "int"), name="one step")
mixed = dev.load(image, "mixed")
out, other = dev.alloc(4096, "out"), dev.alloc(64, "other")
dev.queue().fill(out, 0).dispatch(step, [out, -3]).dispatch(mixed, [other, 1.5, 2, 3.5, 4, 5, 6, 7, 88, 9.25]).submit()
graph = dev.graph("twice").dispatch(step, [Symbol("where"), 5]).dispatch(step, [out, Symbol("k", "int")])
graph.replay({"where": other, "k": 6}).wait()
dev.queue().copy(out, other, 16, dst_offset=32).submit().wait()
print(out.read(0, 8)[0])
"""


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """A trace of SCRIPT."""
    kernel = tmp_path / "k.o"
    kernel.write_bytes(assemble(IR))
    path = tmp_path / "run.hcqtrace"
    run_script(SCRIPT, path, str(kernel))
    return path


def run_script(script: str, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "HCQ_TRACE": str(path)},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )


def show(path: Path, *options: str) -> str:
    import contextlib
    import io

    from hcq.tools import hcq_trace

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert hcq_trace.main(["show", str(path), *options]) == 0
    return text.getvalue()


def test_a_trace_holds_device_code_mappings_submissions_and_signals(traced: Path) -> None:
    records = list(read_trace(str(traced)))
    kinds = [record.fields["kind"] for record in records]
    assert kinds[0] == "device"
    assert {"device", "map", "code", "submit", "signal"} <= set(kinds)
    assert [record.fields["value"] for record in records if record.fields["kind"] == "submit"] == [1, 2, 3]
    code = next(record for record in records if record.fields["kind"] == "code")
    assert code.data == assemble(IR)
    times = [record.fields["time_ns"] for record in records]
    assert times == sorted(times)


def test_show_names_kernels_buffers_and_arguments(traced: Path) -> None:
    text = show(traced)
    assert "device CPU: " in text
    assert "Fill      4096 bytes at out+0x0 with 0x0000000000000000" in text
    assert "Dispatch  one step(out+0x0, -3) grid=(1,1,1)" in text
    assert "Dispatch  mixed(other+0x0, 1.5, 2, 3.5, 4, 5, 6, 7, 88, 9.25) grid=(1,1,1)" in text
    assert "Signal    timeline = 1" in text
    assert "Indirect  twice: 48 words" in text
    assert "Dispatch  one step(other+0x0, 5)" in text
    assert "Dispatch  one step(out+0x0, 6)" in text
    assert "Copy      16 bytes other+0x0 -> out+0x20" in text


def test_show_filters_by_queue_kernel_and_submission(traced: Path) -> None:
    assert show(traced, "--queue", "NV") == ""
    assert show(traced, "--kernel", "nothing") == ""
    assert next(
        line for line in show(traced, "--submission", "3").splitlines() if line.startswith("#")
    ).startswith("#3 ")
    headers = [
        line.split()[0] for line in show(traced, "--kernel", "step").splitlines() if line.startswith("#")
    ]
    assert headers == ["#1", "#2"]
    assert [line.split()[0] for line in show(traced, "--last", "1").splitlines() if line[0] == "#"] == ["#3"]
    assert "00080003" in show(traced, "--words")


def test_show_gives_json_for_other_programs(traced: Path) -> None:
    views = [json.loads(line) for line in show(traced, "--json").splitlines()]
    submissions = [view for view in views if view["kind"] == "submit"]
    assert [view["submission"] for view in submissions] == [1, 2, 3]
    assert submissions[0]["packets"][1]["kernel"] == "one step"
    assert submissions[0]["packets"][1]["arguments"] == ["out+0x0", "-3"]
    assert submissions[0]["packets"][0]["fields"]["opcode"] == "FILL"


def test_the_trace_of_a_killed_process_reads_up_to_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "killed.hcqtrace"
    script = """
import hcq, os, signal
dev = hcq.open("CPU")
out = dev.alloc(64, "out")
for _ in range(5):
    dev.queue().fill(out, 1).submit()
os.kill(os.getpid(), signal.SIGKILL)
"""
    with pytest.raises(subprocess.CalledProcessError) as killed:
        run_script(script, path)
    assert killed.value.returncode == -signal.SIGKILL
    assert show(path).count("Fill      64 bytes at out+0x0") == 5
    whole = path.read_bytes()
    for cut in range(len(MAGIC), len(whole), 37):
        path.write_bytes(whole[:cut])
        records = list(read_trace(str(path)))
        starts = list_of_frames(whole)
        assert len(records) == sum(start <= cut for start in [*starts, len(whole)]) - 1
        assert ("cut off" in show(path)) == (cut not in starts)


def list_of_frames(content: bytes) -> list[int]:
    """Where each record starts, read independently of read_trace."""
    starts, at = [], len(MAGIC)
    while at < len(content):
        starts.append(at)
        text, data = struct.unpack_from("<II", content, at)
        at += 8 + text + data
    return starts


def test_two_processes_may_append_to_one_trace(traced: Path) -> None:
    before = len(list(read_trace(str(traced))))
    run_script("import hcq; dev = hcq.open('CPU'); dev.queue().submit().wait()", traced)
    records = list(read_trace(str(traced)))
    assert len(records) > before
    assert len({record.fields["pid"] for record in records if record.fields["kind"] == "device"}) == 2


@pytest.mark.parametrize(
    ("content", "why"), [(b"", "not a trace"), (b"hello world", "not a trace"), (None, "cannot be read")]
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes | None, why: str) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=why):
        list(read_trace(str(path)))
    done = subprocess.run(
        [sys.executable, "-m", "hcq.tools.hcq_trace", "show", str(path)], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert why in done.stderr
    assert done.stdout == ""


def test_the_program_runs_as_a_file_of_a_checkout(traced: Path) -> None:
    program = Path(__file__).parents[2] / "tools" / "hcq_trace.py"
    done = subprocess.run(
        [sys.executable, str(program), "show", str(traced), "--last", "1"],
        capture_output=True,
        text=True,
        cwd=traced.parent,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert done.stdout.startswith("#3 ")
    assert done.stderr == ""


def test_record_runs_a_command_and_passes_its_status_on(tmp_path: Path) -> None:
    path = tmp_path / "r.hcqtrace"
    script = "import hcq; hcq.open('CPU').queue().submit().wait(); raise SystemExit(7)"
    command = [
        sys.executable,
        "-m",
        "hcq.tools.hcq_trace",
        "record",
        "-o",
        str(path),
        "--",
        sys.executable,
        "-c",
        script,
    ]
    assert subprocess.run(command, timeout=50).returncode == 7
    assert [record.fields["kind"] for record in read_trace(str(path))].count("submit") == 1


def test_a_trace_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    script = "import hcq\ntry:\n    hcq.open('CPU')\nexcept hcq.DriverError as error:\n    print(error)"
    done = run_script(script, tmp_path / "missing" / "file")
    assert "HCQ_TRACE=" in done.stdout
    assert "cannot be written (No such file or directory). Name another file." in done.stdout


def test_push_and_alloc_debugging_say_what_happens(tmp_path: Path) -> None:
    script = """
import hcq
dev = hcq.open("CPU")
b = dev.alloc(100, "mine")
dev.queue().fill(b, 1).submit().wait()
b.free()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "HCQ_DEBUG": "push,alloc,sync"},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert "hcq CPU: submit #1, 14 words" in done.stderr
    assert "Fill(opcode=FILL, length=8, dst=0x" in done.stderr
    assert "Signal(opcode=SIGNAL, length=6" in done.stderr
    assert "hcq CPU: alloc Buffer(CPU 'mine' 0x" in done.stderr
    assert "hcq CPU: free 128 bytes at 0x" in done.stderr
