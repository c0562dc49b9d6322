"""The hardware check against emulated GPUs: every check passes, what is wrong is told, the folder is complete."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hcq.doctor.check import Check, Failure, Skip, Status
from hcq.tools import hw_check
from hcq.tools.hw import checks, cuda, kernels
from hcq.tools.hw_check import comparison, main, names, run_one, verdict
from tests.hcq.emu.nv.shader.running import needs_nvrtc

BLOCKED = ("llvmlite", "capstone", "torch", "tinygrad")


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """An emulated GPU for the children, and an environment with nothing but what the check says it needs."""
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for name in BLOCKED:
        (blocked / f"{name}.py").write_text(f'raise ImportError("{name} is not needed by hw_check")\n')

    def choose(word: str) -> Path:
        monkeypatch.setenv("HCQ_EMULATE", word)
        monkeypatch.setenv("PYTHONPATH", str(blocked))
        return tmp_path / "report"

    return choose


@needs_nvrtc
@pytest.mark.deadline(240)
@pytest.mark.slow
def test_every_check_passes_on_an_emulated_hopper(emulated, capsys):
    folder = emulated("nv:sm_90")
    assert main(["-o", str(folder)]) == 0, capsys.readouterr().out
    report = json.loads((folder / "report.json").read_text())
    found = {one["name"]: one for one in report["checks"]}
    assert set(found) == set(names())
    assert "kernel     triple_plus_index" in found["doctor"]["figures"]["text"]
    assert {one["status"] for name, one in found.items() if name != "cuda"} == {"ok"}
    assert (report["is_emulated"], report["arch"], report["status"]) == (True, "sm_90", "ok")
    assert found["capture"]["figures"]["unnamed_words"] == 0
    assert (folder / "capture.hcqtrace").stat().st_size == found["capture"]["figures"]["size_bytes"]
    assert any((folder / "reports").iterdir())
    text = (folder / "report.txt").read_text()
    assert "emulated (nv:sm_90)" in text
    assert "200 launches in order" in text
    assert "hcq 0." in text


@needs_nvrtc
@pytest.mark.deadline(120)
@pytest.mark.parametrize("word", ["nv:sm_80", "nv:sm_120", "nv:sm_90:seed=3", "nv:sm_86:private"])
def test_launches_features_and_faults_pass_on_other_gpus(emulated, word):
    folder = emulated(word)
    assert main(["-o", str(folder), "--only", "launches,features,copies,fault"]) == 0


@needs_nvrtc
def test_json_is_the_report_and_nothing_else(emulated, capsys):
    folder = emulated("nv:sm_90")
    assert main(["-o", str(folder), "--only", "arguments", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((folder / "report.json").read_text())
    assert [one["name"] for one in report["checks"]] == ["arguments"]


@needs_nvrtc
def test_a_check_that_hangs_ends_at_its_deadline_and_alone(emulated):
    folder = emulated("nv:sm_90")
    folder.mkdir()
    result = run_one("launches", "NV", folder, 0.05)
    assert result.status == "failed"
    assert "took longer than 0.05 s" in result.text


def test_a_process_that_dies_is_told_with_its_last_words(monkeypatch, tmp_path):
    monkeypatch.setenv("HCQ_EMULATE", "nv:sm_nothing")
    result = run_one("opening", "NV", tmp_path, 60)
    assert result.status == "failed"
    assert "sm_nothing" in result.text


def test_a_machine_without_a_gpu_is_told_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.delenv("HCQ_EMULATE", raising=False)
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU here")
    result = run_one("doctor", "NV", tmp_path, 60)
    assert result.status == "failed"
    assert "/dev/nvidia" in result.text


@needs_nvrtc
def test_where_the_device_does_not_open_nothing_after_it_is_tried(monkeypatch, tmp_path):
    monkeypatch.delenv("HCQ_EMULATE", raising=False)
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU here")
    assert main(["-o", str(tmp_path)]) == 1
    report = json.loads((tmp_path / "report.json").read_text())
    assert [(one["name"], one["status"]) for one in report["checks"]] == [
        ("doctor", "failed"),
        ("opening", "failed"),
    ]
    assert "/proc/driver/nvidia/version" in report["checks"][1]["text"]


def test_unknown_checks_are_refused_with_the_known_ones(capsys):
    assert main(["--only", "flying"]) == 2
    assert "'flying' is no check. They are doctor, opening, launches" in capsys.readouterr().err


def test_the_help_teaches_what_it_needs_and_what_to_send(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    page = capsys.readouterr().out
    for words in (
        "pip install cffi",
        "what to send",
        "--skip fault,hang",
        "HCQ_EMULATE=nv:sm_90",
        "exit status",
    ):
        assert words in page
    assert main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(names())


def test_every_check_is_on_the_page():
    page = (Path(__file__).parents[2] / "docs" / "hardware.md").read_text()
    assert not [name for name in names() if f"| `{name}` |" not in page]


# -- what a wrong device looks like


def test_a_wrong_result_says_which_and_what_was_due():
    with pytest.raises(Failure, match=r"10 launches: 1 of 3 results are wrong; number 1 is 7, not 5"):
        checks.same([1, 7, 3], [1, 5, 3], "10 launches")
    with pytest.raises(Failure, match="0 of 3 results are wrong"):
        checks.same([1, 2], [1, 2, 3], "too few")


def test_steps_are_composed_as_they_would_run_one_by_one():
    value = 0
    for count in range(50):
        assert kernels.stepped(count) == value
        value = (value * 1664525 + 1013904223) & kernels.M32


class FakeBench:
    """A device whose kernel that must fault does nothing, or whose message names nothing."""

    def __init__(self, error: Exception | None) -> None:
        self.sizes = checks.EMULATED
        self.device = self
        self.error = error

    def programs(self, *_: str) -> list[object]:
        return [object(), object()]

    def queue(self) -> FakeBench:
        return self

    def dispatch(self, *_: Any) -> FakeBench:
        return self

    def submit(self) -> FakeBench:
        return self

    def wait(self, timeout_ms: float) -> None:
        if self.error is not None:
            raise self.error


def test_a_fault_that_nobody_noticed_or_nobody_named_is_trouble():
    import hcq

    with pytest.raises(Failure, match="stray: nothing was noticed; a page fault was due"):
        checks._must_stop(FakeBench(None), "stray", [], "a page fault")  # type: ignore[arg-type]
    with pytest.raises(Failure, match="does not name the kernel"):
        checks._must_stop(FakeBench(hcq.DeviceFault("something")), "stray", [], "a page fault")  # type: ignore[arg-type]


# -- beside the CUDA driver


class FakeCuda:
    """libcuda's functions in Python: they count, and one may fail."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.calls: dict[str, int] = {}

    def __getitem__(self, name: str) -> Callable[..., int]:
        def call(*given: Any) -> int:
            self.calls[name] = self.calls.get(name, 0) + 1
            if name == "cuDriverGetVersion":
                given[0][0] = 13000
            return 999 if name == self.failing else 0

        return call


def test_the_vendors_figures_have_the_names_of_ours():
    fake = FakeCuda()
    found = cuda.figures(fake, b"\x7fELF", cuda.Work(5, 10, 4096, 2))  # type: ignore[arg-type]
    assert found.figures["cuda"] == 13000
    assert set(cuda.PROTOTYPES) == set(fake.calls)
    for pairs in hw_check.COMPARED.values():
        assert all(their in found.figures for their in pairs.values())


def test_a_call_of_the_vendors_driver_that_fails_is_named():
    with pytest.raises(Failure, match="cuModuleLoadData -> CUDA error 999"):
        cuda.figures(FakeCuda("cuModuleLoadData"), b"", cuda.Work(1, 1, 4096, 1))  # type: ignore[arg-type]


def test_without_libcuda_its_figures_are_left_out(monkeypatch):
    monkeypatch.setattr(cuda, "NAMES", ("libnothing.so.1",))
    with pytest.raises(Skip, match="libcuda is not installed"):
        cuda.library()


def test_ratios_say_how_many_times_faster_we_are():
    results = [
        Check("latency", Status.OK, "", figures={"latency_us": 5.0, "best_us": 4.0}),
        Check("bandwidth", Status.OK, "", figures={"copy_gb_per_s": 100.0}),
        Check("cuda", Status.OK, "", figures={"latency_us": 10.0, "best_us": 8.0, "copy_gb_per_s": 50.0}),
    ]
    table = "\n".join(comparison(results))
    assert "latency_us" in table
    assert table.count("2.00 x") == 3
    assert comparison(results[:2]) == []
    assert verdict([*results, Check("hang", Status.FAILED, "")]) == "3 ok, 1 failed, 0 skipped; failed: hang"


def test_a_result_found_is_a_line():
    (line, fix) = hw_check.lines(Check("copies", Status.FAILED, "wrong", "do this"))
    assert line.split() == ["FAILED", "copies", "wrong"]
    assert fix.strip() == "fix: do this"
