"""AMD's unmodified programs are traced, judged and reported on while they run on emulated GPUs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hcq.observe.lint import lint
from hcq.trace.file import Trace
from tests.programs.conftest import Compiled, Emulate

pytestmark = pytest.mark.deadline(600)


def test_a_trace_has_the_programs_kernels_arguments_copies_and_calls(
    arch: str, compiled: Compiled, emulate: Emulate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.hcqtrace"
    monkeypatch.setenv("HCQ_TRACE", str(path))
    monkeypatch.setenv("HCQ_VALIDATE", "1")
    done = emulate(f"amd:{arch}", compiled("vector_add.hip", arch))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hcq:" not in done.stderr  # the rules find nothing while it runs,
    trace = Trace.read(str(path))
    assert not lint(trace)  # and nothing afterwards
    launches = [
        (command["kernel"], [arg["value"] for arg in command["args"]], command["grid"], command["block"])
        for made in trace.submissions
        for command in made.all_commands()
        if command["verb"] == "dispatch" and "add" in command["kernel"]
    ]
    ((name, args, grid, block),) = launches
    assert name == "_Z3addPfPKfS1_i"
    assert (args[3], grid, block) == (10007, [40, 1, 1], [256, 1, 1])
    (launch,) = [made for made in trace.submissions if name in made.kernels]
    assert all(launch.memory().find(va).state == "live" for va in args[:3])
    sources = {
        command["src"]: command["size_bytes"]
        for made in trace.submissions
        for command in made.all_commands()
        if command["verb"] == "copy"
    }
    assert sources.get(args[0]) == 4 * 10007  # the result's way back
    assert all(made.finished_ns for made in trace.submissions)
    assert {call.fields["arguments"][1] & 0xFF for call in trace.calls} >= {0x02, 0x16, 0x18}
    for verb in ("show", "stats", "lint"):
        told = subprocess.run(
            [sys.executable, "-m", "hcq.tools.hcq_trace", verb, str(path)], capture_output=True, text=True
        )
        assert told.returncode == 0, told.stderr


def test_a_page_fault_names_kernel_argument_and_source_line(
    arch: str, compiled: Compiled, emulate: Emulate
) -> None:
    done = emulate(f"amd:{arch}", compiled("faults.hip", arch, ("-g",)), "pointer")
    assert done.returncode != 0
    page = done.stderr.partition("---- hcq report: page fault")[2]
    assert "kernel    _Z6storesPi" in page, done.stderr
    assert re.search(r"source    .*faults\.hip:\d+: .*where\[threadIdx\.x\] = 1", page)
    assert re.search(r"argument  0.* is 0x123456000 \(not mapped.*: the very address", page)
    assert "write of 4 bytes at 0x123456000" in page


def test_a_kernel_that_does_not_end_is_told_while_it_runs_and_when_it_is_stopped(
    arch: str, compiled: Compiled
) -> None:
    program = compiled("faults.hip", arch, ("-g",))
    command = [sys.executable, "-m", "hcq", "emulate", f"amd:{arch}", "--", str(program), "endless"]
    settings = {**os.environ, "HCQ_TIMEOUT_MS": "500"}
    running = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=settings
    )
    assert running.stderr is not None
    said: list[str] = []
    try:
        for line in running.stderr:
            said.append(line)
            if line.startswith("saved as") and any("_Z5spins" in one for one in said):
                break
        process = next(found[1] for one in said if (found := re.search(r"process (\d+)", one)))
        os.kill(int(process), signal.SIGINT)
        said += running.stderr.readlines()
        assert running.wait(60) == -signal.SIGINT
    finally:
        running.kill()
        running.wait()
        running.stderr.close()
    text = "".join(said)
    assert re.search(r"submission #\d+ has run for", text), text
    assert "next to finish" in text and "kernel _Z5spinsPVi" in text
