"""What hcq-trace record --foreign sees of AMD's unmodified programs from outside is what the emulated GPU saw inside.

On emulated GPUs the tracer stands where it stands on real ones: between the program and its kernel driver.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hcq.amd.abi import kfd
from hcq.observe.lint import lint
from hcq.trace.file import Trace
from tests.programs.conftest import Compiled, Emulate

pytestmark = pytest.mark.deadline(600)


def rings(trace: Trace) -> dict[str, list[int]]:
    """Every word that each queue was given, in order."""
    found: dict[str, list[int]] = {}
    for made in trace.submissions:
        found.setdefault(made.queue, []).extend(made.words)
    return found


def work(trace: Trace) -> Counter[Any]:
    """What was launched and copied, with arguments, on which queue."""
    return Counter(
        (made.queue, repr(command)) for made in trace.submissions for command in made.all_commands()
    )


def calls(trace: Trace) -> Counter[Any]:
    """Calls to /dev/kfd with everything that went in and came out; not waits: the end of a process cuts one short."""
    return Counter(
        (call.fields["arguments"][1], call.fields.get("errno"), call.data)
        for call in trace.calls
        if call.fields["path"] == "/dev/kfd" and call.fields["arguments"][1] & 0xFF != kfd.WAIT_EVENTS.number
    )


@pytest.mark.parametrize("name", ["vector_add", "streams"])
def test_the_tracer_sees_what_the_gpu_is_given_nothing_missing_and_nothing_added(
    name: str,
    arch: str,
    compiled: Compiled,
    emulate: Emulate,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inside, outside = tmp_path / "inside.hcqtrace", tmp_path / "outside.hcqtrace"
    monkeypatch.setenv("HCQ_TRACE", str(inside))
    record = [sys.executable, "-m", "hcq.tools.hcq_trace", "record", "--foreign", "-o", str(outside), "--"]
    done = emulate(f"amd:{arch}", *record, compiled(f"{name}.hip", arch))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{name}: 0 wrong" in done.stdout
    seen, known = Trace.read(str(outside)), Trace.read(str(inside))
    assert rings(seen) == rings(known)
    assert work(seen) == work(known)
    assert sum(work(seen).values())
    assert calls(seen) == calls(known)
    assert {(code.name, code.image) for code in seen.code} == {(code.name, code.image) for code in known.code}
    assert lint(seen) == lint(known) == []


def test_what_ends_a_traced_program_ends_the_tracer_in_the_same_way(
    arch: str, compiled: Compiled, emulate: Emulate, tmp_path: Path
) -> None:
    record = [
        sys.executable,
        "-m",
        "hcq.tools.hcq_trace",
        "record",
        "--foreign",
        "-o",
        str(tmp_path / "out"),
        "--",
    ]
    done = emulate(f"amd:{arch}", *record, compiled("faults.hip", arch), "pointer")
    assert done.returncode == 128 + 6, done.stderr  # AMD's runtime aborts
    assert [code.name for code in Trace.read(str(tmp_path / "out")).code if "stores" in code.name]


def test_kernels_of_a_hip_program_are_counted_under_their_names(
    arch: str, compiled: Compiled, emulate: Emulate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.hcqtrace"
    monkeypatch.setenv("HCQ_TRACE", str(path))
    monkeypatch.setenv("HCQ_PROFILE", "counters")
    done = emulate(f"amd:{arch}", compiled("reduction.hip", arch))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "what kernels did" in done.stderr
    found = {made.kernel: made for _, made in Trace.read(str(path)).counters}
    sums = next(made for name, made in found.items() if "sums" in name)
    assert sums.arch == arch
    assert sums.barriers
    assert sums.shared_passes
    assert sums.bank_conflicts == 0
