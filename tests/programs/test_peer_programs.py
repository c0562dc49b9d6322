"""A peer's drivers in a program of its own, tinygrad's: traced, judged and reported on from below."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hcq.errors import UsageError
from hcq.nv.toolchain import nvrtc
from hcq.observe.lint import lint
from hcq.trace.file import Trace
from tests.hcq.watched import words, work
from tests.programs.conftest import Emulate, run

pytestmark = pytest.mark.deadline(300)
SUM = "[3.0, 4.0, 5.0, 6.0]\n"


@pytest.fixture(scope="module", autouse=True)
def there() -> None:
    pytest.importorskip(
        "tinygrad", reason="tinygrad is not installed: there is no other maker's driver to run"
    )
    tried = run("nv:sm_89", ["true"])
    if tried.returncode:
        pytest.skip(tried.stderr.strip())


def program_for(gpu: str, *arguments: str) -> list[str]:
    """The program on this GPU. NVIDIA's kernels need nvrtc."""
    vendor = gpu.partition(":")[0].upper()
    if vendor == "NV":
        try:
            nvrtc.library()
        except UsageError as error:
            pytest.skip(str(error))
    return [sys.executable, "-m", "tests.programs.peer_program", vendor, *arguments]


@pytest.mark.parametrize("gpu", ["nv:sm_89", "nv:sm_120:caches:seed=5", "amd:gfx1100", "amd:gfx942"])
def test_its_work_is_right_and_traced_with_names_arguments_and_locked_memory(
    gpu: str, emulate: Emulate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.hcqtrace"
    monkeypatch.setenv("HCQ_TRACE", str(path))
    monkeypatch.setenv("HCQ_VALIDATE", "1")
    done = emulate(gpu, *program_for(gpu))
    assert (done.returncode, done.stdout) == (0, SUM), done.stderr
    assert not done.stderr  # no rule is broken, and the kernel driver has nothing to say
    trace = Trace.read(str(path))
    assert not lint(trace)
    commands = [one for made in trace.submissions for one in made.all_commands()]
    (launch,) = [one for one in commands if one["verb"] == "dispatch"]
    (code,) = trace.code
    assert launch["kernel"] == code.name and code.name.encode() in code.image
    result, source = (arg["value"] for arg in launch["args"])
    copies = [
        (one["src"], one["dst"]) for one in commands if one["verb"] == "copy" and one["size_bytes"] == 4000
    ]
    assert [dst for _, dst in copies if dst == source] and [src for src, _ in copies if src == result]
    assert all(made.finished_ns for made in trace.submissions)


@pytest.mark.parametrize("gpu", ["nv:sm_89", "amd:gfx1100"])
def test_a_bad_pointer_is_what_its_driver_reads_and_the_report_names_kernel_and_argument(
    gpu: str, emulate: Emulate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCQ_REPORT_DIR", str(tmp_path))
    done = emulate(gpu, *program_for(gpu, "bad pointer"))
    assert done.returncode == 3, done.stderr
    assert "MMU fault: 0x123456" in done.stdout
    page = done.stderr.partition("---- hcq report: page fault")[2]
    assert re.search(r"^kernel    E_", page, re.MULTILINE), done.stderr
    assert re.search(r"^argument  1 .*is 0x123456000 \(not mapped\): the very address$", page, re.MULTILINE)


@pytest.mark.parametrize("gpu", ["nv:sm_89", "amd:gfx1100"])
def test_the_tracer_sees_what_the_gpu_is_given_also_in_memory_that_the_program_has_not_mapped(
    gpu: str, emulate: Emulate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, outside = tmp_path / "inside.hcqtrace", tmp_path / "outside.hcqtrace"
    monkeypatch.setenv("HCQ_TRACE", str(inside))
    record = [sys.executable, "-m", "hcq.tools.hcq_trace", "record", "--foreign", "-o", str(outside), "--"]
    done = emulate(gpu, *record, *program_for(gpu))
    if done.returncode == 2 and "ptrace" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stdout) == (0, SUM), done.stderr
    seen, known = Trace.read(str(outside)), Trace.read(str(inside))
    submissions = [made for made in known.submissions if made.device.process == seen.devices[0].process]
    for what in (words, work):
        assert what(seen.submissions) == what(submissions)
    assert [(code.name, code.image) for code in seen.code] == [(code.name, code.image) for code in known.code]
    assert not lint(seen)
