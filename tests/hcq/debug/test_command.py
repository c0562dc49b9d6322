"""python -m hcq debug: scripts, exit statuses, Ctrl-C, packets and submissions, traces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hcq import config
from hcq.__main__ import main
from tests.hcq.debug.rig import PTX
from tests.hcq.debug.test_dap import PROGRAM

ENDLESS = """.version 8.3
.target sm_90
.address_size 64
.visible .entry matmul(.param .u64 pc, .param .u64 pa, .param .u64 pb)
{
  .reg .b32 %r<4>;
  mov.u32 %r1, 0;
LOOP:
  add.u32 %r1, %r1, 1;
  bra LOOP;
}
"""


def start(folder: Path, script: str, *words: str, ptx: str = PTX, **environ: str) -> subprocess.Popen[str]:
    (folder / "program.py").write_text(PROGRAM)
    (folder / "matmul.ptx").write_text(ptx)
    (folder / "script").write_text(script)
    found = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
    return subprocess.Popen(
        [sys.executable, "-m", "hcq", "debug", "-x", "script", "--batch", *words],
        cwd=folder,
        env={**found, "HCQ_CACHE_DIR": str(folder / "cache"), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(folder: Path, script: str, *words: str, **environ: str) -> tuple[int, str]:
    process = start(folder, script, *words, **environ)
    said, _ = process.communicate(timeout=90)
    return process.returncode, said


OURS = ("nv:sm_90", "--", "program.py", "matmul.ptx")


def test_packets_and_submissions_stop_and_the_status_is_the_programs(tmp_path: Path) -> None:
    script = """break submission 1
break packet *PCAS*
continue
delete 1
continue
packets 3
continue
break kernel *
launches
"""
    status, said = run(tmp_path, script, *OURS)
    assert status == 0, said
    assert "point 1: submission 1, dispatch" in said
    assert "point 2: packet" in said
    assert "-> launch 1" not in said.partition("packets 3")[2].partition("element")[0]
    assert "element 42.0" in said
    assert "1 matmul grid (32, 1, 1) block (32, 1, 1): " in said


def test_a_command_that_is_refused_ends_a_script_with_status_1(tmp_path: Path) -> None:
    status, said = run(tmp_path, "break kernel *\ncontinue\nexpect %r1 == 1\n", *OURS)
    assert status == 1
    assert "! expect %r1 == 1: it does not hold." in said
    assert "element" not in said


def test_an_interrupt_stops_the_kernel_that_runs(tmp_path: Path) -> None:
    script = "break text add\ncontinue\ndelete all\ncontinue\nprint %r1\nreverse-step\nquit 3\n"
    process = start(tmp_path, script, *OURS, ptx=ENDLESS)
    assert process.stdout is not None
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(iter(process.stdout.readline, "")), daemon=True)
    reader.start()
    while process.poll() is None and not any("delete all" in line for line in lines):
        time.sleep(0.1)
    while process.poll() is None and not any("-- interrupted" in line for line in lines):
        process.send_signal(signal.SIGINT)  # one that comes while it is stopped is not heard
        time.sleep(0.5)
    process.wait(90)
    reader.join()
    said = "".join(lines)
    assert process.returncode == 3, said
    assert "-- interrupted" in said
    assert "%r1 = " in said
    assert "(in the past)" in said


LONG = ENDLESS.replace("bra LOOP;", "setp.lt.u32 %p1, %r1, 400000;\n  @%p1 bra LOOP;\n  ret;").replace(
    "mov.u32 %r1, 0;", ".reg .pred %p<2>;\n  mov.u32 %r1, 0;", 1
)


@pytest.mark.parametrize("question", ["reverse-continue", "origin %r1"])
def test_an_interrupt_ends_a_long_way_back_and_the_prompt_goes_on(question: str, tmp_path: Path) -> None:
    script = "break text ret\ncontinue\ndelete all\n"
    if question == "reverse-continue":
        script += "break if %r1 == 1000000\n"
    (tmp_path / "asked").write_text(script)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "matmul.ptx").write_text(LONG)
    found = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "hcq", "debug", "-x", "asked", *OURS],
        cwd=tmp_path,
        env={**found, "HCQ_CACHE_DIR": str(tmp_path / "cache")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    said = ""
    while "=> " not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    process.stdin.write(f"{question}\nprint %r1\nquit 7\n")
    process.stdin.flush()
    while process.poll() is None:
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
    said += process.stdout.read()
    assert process.returncode == 7, said
    assert "interrupted" in said
    assert "%r1 = 400000" in said


def test_a_trace_is_debugged_on_the_gpu_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "matmul.ptx").write_text(PTX)
    found = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
    environment = {**found, "HCQ_EMULATE": "nv:sm_90", "HCQ_TRACE": str(tmp_path / "a.trace") + ",data"}
    subprocess.run(
        [sys.executable, "program.py", "matmul.ptx"], cwd=tmp_path, env=environment, check=True, timeout=60
    )
    status, said = run(
        tmp_path, "break kernel matmul\ncontinue\nstep 3\ndelete all\ncontinue\norigin C+20\n", "a.trace"
    )
    assert status == 0, said
    assert "point 1: kernel matmul begins" in said
    assert "same results, bit for bit" in said
    assert "warp 3, lane 7" in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nv:sm_90"], "no program is named"),
        (["nv:sm_90", "--"], "no program is named"),
        (["nv:sm_90", "--", "missing.py"], "there is no file 'missing.py'"),
        (["gpu", "nv:sm_90", "--", "a.py"], "is too much before"),
        (["gpu", "--", "a.py"], "'gpu' is no GPU"),
        (["nv:sm_90:caches", "--", "a.py"], "cannot be debugged"),
        (["--dap", "99999", "nv:sm_90"], "99999 is no port"),
        (["--", "python"], "no GPU is emulated"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(
    words: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HCQ_EMULATE", "")
    before = config.current()
    config.use(None)
    try:
        assert main(["debug", *([] if "--dap" in words else ["--batch"]), *words]) == 2
    finally:
        config.use(before)
    assert why in capsys.readouterr().err


def test_the_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["debug", "--help"])
    said = capsys.readouterr().out
    assert "--batch" in said
    assert "docs/debugger.md" in said
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "step through kernels on emulated GPUs" in capsys.readouterr().out


def test_ctrl_c_at_the_prompt_says_that_the_program_has_stopped(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "matmul.ptx").write_text(PTX)
    found = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "hcq", "debug", "-e", "break kernel *", "-e", "continue", *OURS],
        cwd=tmp_path,
        env={**found, "HCQ_CACHE_DIR": str(tmp_path / "cache")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("=> "):
            break
    process.send_signal(signal.SIGINT)
    for line in process.stdout:
        if "has stopped already" in line:
            break
    said, _ = process.communicate("print lane\nquit 7\n", timeout=60)
    assert "lane = 0" in said
    assert process.returncode == 7


def test_a_gpu_may_follow_dap_where_a_port_may_stand(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hcq", "debug", "--dap", "nv:sm_90", "--", "program.py"],
        input=b"",
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_packets_of_metal_stop_by_type_and_field(tmp_path: Path) -> None:
    program = """import hcq
device = hcq.open("METAL")
a, b = device.alloc(64, name="a"), device.alloc(64, name="b")
a.write(bytes(64))
device.queue().copy(b, a, 32).fill(a, 7).submit().wait()
print("byte", a.read()[63])
"""
    (tmp_path / "copies.py").write_text(program)
    script = "break packet FillBuffer size_bytes>=64\nbreak packet CopyFromBuffer size_bytes=33\ncontinue\npackets\n"
    status, said = run(tmp_path, script, "metal:m3", "--", "copies.py")
    assert status == 0, said
    assert "point 1: packet 2, FillBuffer(dst=0x" in said
    assert "-- point 2" not in said
    assert "size_bytes=64, pattern=7)" in said
    assert "1 metal CopyFromBuffer(dst=" in said
    assert "byte 7" in said
