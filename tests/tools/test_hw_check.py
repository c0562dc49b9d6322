"""The hardware check against emulated GPUs: checks pass, what is wrong is told, the archive is there in any case."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import re
import signal
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hcq
from hcq import backends, config
from hcq.doctor.check import Check, Failure, Found, Skip, Status
from hcq.emu.port import EmulatedPort
from hcq.system.port import FaultyPort
from hcq.tools import hw_check
from hcq.tools.hw import (
    archive,
    checks,
    child,
    driver_api,
    evidence,
    fork_server,
    host,
    kernels,
    plan,
    report,
    vendor,
)
from hcq.tools.hw.bench import EMULATED, Bench
from hcq.tools.hw.nv import copy_channel
from hcq.tools.hw.plan import items, of_vendor
from hcq.tools.hw.runner import KernelLog, Runner
from hcq.tools.hw_check import main

BLOCKED = ("llvmlite", "capstone", "torch", "tinygrad", "elftools", "ioctl_opt")
NO_GPU = not any(Path(sign).exists() for sign in hw_check.SIGNS.values())


def thorough(word: str) -> Any:
    """Another GPU for a law that a first one has shown."""
    return pytest.param(word, marks=pytest.mark.thorough)


WORDS = {"NV": "nv:sm_90", "AMD": "amd:gfx1100"}


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """An emulated GPU for the children, and an environment with nothing but what the check says it needs.

    The emulated shader cores need NumPy, as hardware does not.
    """
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for name in BLOCKED:
        (blocked / f"{name}.py").write_text(f'raise ImportError("{name} is not needed by hw_check")\n')

    def choose(word: str) -> Path:
        monkeypatch.setenv("HCQ_EMULATE", word)
        monkeypatch.setenv("PYTHONPATH", str(blocked))
        return tmp_path / "report"

    return choose


def results_of(folder: Path) -> dict[str, dict[str, Any]]:
    data = json.loads((folder / "report.json").read_text())
    return {one["name"]: one for one in data["checks"]}


def archived(folder: Path) -> set[str]:
    with zipfile.ZipFile(folder.with_name(f"{folder.name}.zip")) as found:
        return {name.partition("/")[2] for name in found.namelist()}


# -- everything, on emulated GPUs


@pytest.mark.thorough
@pytest.mark.deadline(300)
@pytest.mark.slow
@pytest.mark.parametrize("word", ["nv:sm_90", "amd:gfx942"])
def test_every_check_passes_on_an_emulated_gpu(emulated, capsys, word):
    folder = emulated(word)
    assert main(["-o", str(folder)]) == 0, capsys.readouterr().out
    found = results_of(folder)
    kind = word.partition(":")[0].upper()
    assert list(found) == [item.name for item in items(kind)]
    data = json.loads((folder / "report.json").read_text())
    assert (data["is_emulated"], data["arch"], data["status"], data["running"]) == (
        True,
        word[len(kind) + 1 :],
        "ok",
        "",
    )
    assert found["capture"]["figures"]["unnamed_words"] == 0
    assert {
        "report.json",
        "report.txt",
        "facts.json",
        "ladder.json",
        "opening.hcqtrace",
        "capture.hcqtrace",
    } <= archived(folder)
    assert any(name.startswith("reports/") for name in archived(folder))
    assert f"emulated ({word})" in (folder / "report.txt").read_text()
    assert folder.with_name("report.zip").stat().st_size < archive.LIMIT_BYTES


@pytest.fixture
def ask(monkeypatch, tmp_path) -> Iterator[Callable[..., Check]]:
    """Items in this process, on an emulated machine of their own: much quicker than a process for each."""
    kept: list[tuple[Any, str, Any]] = []

    def asked(word: str, name: str) -> Check:
        kind = word.partition(":")[0].upper()
        item = next(one for one in items(kind) if one.name == name)
        monkeypatch.setenv("HCQ_EMULATE", word)
        monkeypatch.setenv("HCQ_REPORT", "off")
        monkeypatch.delenv("HCQ_AMD_QUEUE", raising=False)
        for switch, value in item.environment.items():
            monkeypatch.setenv(switch, value)
        for variant in of_vendor(kind, "variants").VARIANTS if item.argument else ():
            for place in variant.constants:
                module = importlib.import_module(place.partition(":")[0])
                kept.append((module, place.partition(":")[2], getattr(module, place.partition(":")[2])))
        config.use(None)
        bench = Bench(kind, tmp_path, item)
        bench.port = EmulatedPort([backends.load(backends.of(kind).emulation)([word])])
        try:
            return child.run(item, bench)
        finally:
            for device in bench.opened:
                if device.is_open:
                    device.close()

    yield asked
    for module, name, value in reversed(kept):
        setattr(module, name, value)
    config.use(None)


RIGHT = ("facts", "ladder", "launches", "arguments", "features", "copies", "timestamps", "graphs", "after")
TRIED = ("code-reuse", "scratch", "odd-fills", "wait64", "long-kernel")


@pytest.mark.parametrize(
    "word",
    [
        "nv:sm_80",
        thorough("nv:sm_90:seed=3"),
        thorough("nv:sm_120:private"),
        "amd:gfx1100",
        thorough("amd:gfx942"),
    ],
)
def test_what_must_be_right_is_right_on_an_emulated_gpu(ask, word):
    found = {name: ask(word, name) for name in RIGHT}
    assert {name: one.text for name, one in found.items() if one.status != Status.OK} == {}


@pytest.mark.parametrize("word", ["nv:sm_86", "amd:gfx1201:seed=3", thorough("amd:gfx90a:private")])
def test_experiments_come_out_as_the_driver_counts_on(ask, word):
    found = {name: ask(word, name) for name in TRIED}
    assert {name: one.text for name, one in found.items() if one.status == Status.FAILED} == {}
    assert found["code-reuse"].figures["again"]


@pytest.mark.parametrize("word", ["nv:sm_90", "amd:gfx1100", thorough("amd:gfx942")])
def test_every_rung_of_the_ladder_holds_and_each_is_in_the_file(ask, word, tmp_path):
    assert ask(word, "ladder").status == Status.OK
    rows = json.loads((tmp_path / "ladder.json").read_text())
    assert len(rows) > 15
    assert {row["result"].partition(":")[0] for row in rows} <= {"ok", "skipped"}


@pytest.mark.deadline(120)
@pytest.mark.parametrize("kind", ["NV", thorough("AMD")])
def test_every_variant_changes_the_driver_of_today_or_says_that_it_does_not(ask, kind):
    """A variant that names something which the driver no longer has must be noticed here and not on somebody's GPU."""
    found = {item.name: ask(WORDS[kind], item.name) for item in items(kind) if item.argument}
    assert {
        name: one.text for name, one in found.items() if one.status == Status.FAILED and "defect" in one.text
    } == {}
    worked = [name for name, one in found.items() if one.status == Status.OK]
    assert (
        len(worked) >= len(found) - 4
    ), {  # of these one changes nothing here: what sm_90 is called, and what RM says
        name: one.text for name, one in found.items() if name not in worked
    }


def test_what_launches_say_of_the_sms_is_tried_otherwise(ask):
    assert ask("nv:sm_120", "try-sass-0").status == Status.OK
    other = ask("nv:sm_120", "try-sass-arch")
    assert other.status == Status.FAILED
    assert "SASS_VERSION is 0xc0; the SMs are of 0xa4" in other.text
    assert ask("nv:sm_90", "try-sass-arch").text.startswith("nothing was changed")


def test_the_counts_of_local_memory_are_those_of_hopper_and_later(ask):
    assert ask("nv:sm_90", "try-local-counts").figures["edited"]
    assert ask("nv:sm_120", "try-local-counts-ff").figures["edited"]
    assert ask("nv:sm_86", "try-local-counts").text.startswith("nothing was changed")


def test_copies_without_gcr_are_a_variant_where_there_is_such_a_packet(ask):
    assert ask("amd:gfx1100", "try-no-gcr").status == Status.OK
    assert ask("amd:gfx942", "try-no-gcr").text.startswith("nothing was changed")


def test_the_experiments_come_in_the_order_of_what_they_cost():
    names = [item.name for item in items("AMD")]
    asked = ["ring-wrap", "scratch", "code-reuse", "long-kernel", "wait64", "odd-fills"]
    assert [name for name in names if name in asked] == asked
    assert names.index("odd-fills") < names.index("try-no-eop") < names.index("fault") < names.index("hang")


def test_a_kernel_outlasts_the_pause_and_keeps_what_its_lanes_had(ask):
    found = ask("amd:gfx942", "long-kernel")
    assert found.status == Status.OK, found.text
    assert found.figures["steps"] >= 1


def test_a_window_variant_registers_that_many_addresses(ask):
    """RM says how many the context buffers need, and the driver takes that: the variant must not."""
    found = ask("nv:sm_90", "try-window-512")
    assert found.figures["window_bytes"] == 512 << 20 > found.figures["by_rm_bytes"]
    small = ask("nv:sm_90", "try-window-64")
    assert small.status == Status.FAILED
    assert "UVM_REGISTER_CHANNEL" in small.text


@pytest.mark.parametrize("word", [thorough("nv:sm_80"), "nv:sm_90", thorough("nv:sm_120")])
def test_a_copy_engine_of_its_own_runlist_copies_on_a_channel_of_its_own(ask, word):
    found = ask(word, "try-copy-channel")
    assert found.status == Status.OK, found.text
    assert found.figures["copy_engine"] == 11  # COPY2: 0 and 1 share the graphics runlist


def test_where_all_copy_engines_share_the_graphics_runlist_that_is_said():
    class AllGraphics:
        gpu = SimpleNamespace(subdevice=1)
        rm = SimpleNamespace(
            control=lambda *given: SimpleNamespace(values={"present": 3, "capstbl": 0x10001})
        )

    with pytest.raises(Skip, match="shares the graphics runlist: present 0x3"):
        copy_channel.own_engine(AllGraphics())


@pytest.mark.parametrize("word", ["nv:sm_80", thorough("nv:sm_86"), "nv:sm_90"])
@pytest.mark.parametrize("name", ["shared", "shared-size-0", "sm-config-own"])
def test_shared_memory_of_every_size_is_right_whatever_says_how_much_there_may_be(ask, word, name):
    found = ask(word, f"try-{name}")
    assert found.status == Status.OK, found.text
    most = {"nv:sm_80": 163, "nv:sm_86": 99, "nv:sm_90": 200}[word]
    assert f"0 KiB, 48 KiB, {most} KiB of shared memory: right" in found.text


def test_what_a_carve_out_does_not_hold_is_told_by_its_size(ask):
    found = ask("nv:sm_90", "try-sm-config-1a")
    assert found.status == Status.FAILED
    assert (
        "0 KiB of shared memory: ok; 48 KiB of shared memory: ok; 200 KiB of shared memory: NV: the GPU"
        in found.text
    )
    assert ask("nv:sm_86", "try-sm-config-1a").text.startswith("nothing was changed")


# -- where things go wrong


def test_a_device_that_does_not_open_still_brings_an_archive(emulated, tmp_path, capsys):
    """The kernel driver's memory is out: opening fails, what needs it is skipped, the rest is asked."""
    folder = emulated("nv:sm_nothing")
    assert main(["-o", str(folder), "--only", "host,facts,doctor,opening,ladder,launches,after"]) == 1
    found = results_of(folder)
    assert {name: one["status"] for name, one in found.items()} == {
        "host": "ok", "facts": "failed", "doctor": "failed", "opening": "failed", "ladder": "failed",
        "launches": "skipped", "after": "skipped",
    }  # fmt: skip
    assert "sm_nothing" in found["opening"]["text"]
    assert found["launches"]["text"] == "needs opening"
    assert {"report.json", "report.txt", "host/facts.json", "stderr/opening.txt"} <= archived(folder)
    capsys.readouterr()


@pytest.mark.parametrize("kind", WORDS)
def test_opening_that_fails_at_any_step_leaves_evidence(monkeypatch, tmp_path, kind):
    """Each call of the bring-up is refused once: what was known of the half-opened device is in the folder."""
    monkeypatch.setenv("HCQ_EMULATE", WORDS[kind])
    config.use(None)
    opening = next(item for item in items(kind) if item.name == "opening")
    seen = set()
    for allowed in range(0, 90, 4):
        folder = tmp_path / str(allowed)
        bench = Bench(kind, folder, opening)
        machine = backends.load(backends.of(kind).emulation)([WORDS[kind]])
        bench.port = FaultyPort(EmulatedPort([machine]), {"ioctl": (allowed, 5)})
        result = child.run(opening, bench)
        if result.status == Status.OK:
            break
        assert "failed" in result.text and "step" in result.text
        known = json.loads((folder / "evidence" / "opening.json").read_text())
        assert {"facts", "timeline", "rings", *of_vendor(kind, "evidence").PARTS} <= set(known)
        seen.add(result.text.partition('"')[2].partition('"')[0])
    else:
        pytest.fail("it never opened")
    config.use(None)
    assert len(seen) >= 3, seen


@pytest.mark.deadline(60)
def test_a_check_that_hangs_is_ended_at_its_deadline_with_its_stacks_and_the_rest_goes_on(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("HCQ_EMULATE", "nv:sm_90")
    monkeypatch.setenv("HCQ_TIMEOUT_MS", "60000")
    runner = Runner("NV", tmp_path)
    late = runner.run(
        replace(next(item for item in items("NV") if item.name == "launches"), deadline_s=0.05), 100.0
    )
    assert late.status == Status.FAILED
    assert "took longer than 0.05 s, and was ended" in late.text
    after = runner.run(next(item for item in items("NV") if item.name == "after"), 100.0)
    assert after.status == Status.OK
    runner.close()


def test_each_item_has_a_process_of_its_own_and_none_is_left(monkeypatch, tmp_path):
    monkeypatch.setenv("HCQ_EMULATE", "nv:sm_90")
    runner = Runner("NV", tmp_path)
    facts = next(item for item in items("NV") if item.name == "facts")
    assert [runner.run(facts, 60.0).status for _ in range(2)] == [Status.OK, Status.OK]
    server = runner.server
    assert server is not None
    server.process.kill()
    server.process.wait(30)  # the next item gets another
    assert runner.run(facts, 60.0).status == Status.OK
    server = runner.server
    runner.close()
    assert server is not None
    assert server.process.wait(30) == 0


def test_a_process_that_ends_itself_is_told_with_its_signal(tmp_path):
    said, heard = os.pipe()
    with (tmp_path / "errors").open("wb") as errors:
        server = fork_server.ForkServer("", dict(os.environ))
        try:
            pid = server.start(["host", "", str(tmp_path), "60"], dict(os.environ), (heard, errors.fileno()))
            fork_server.end(pid)
            assert server.ended(30.0) == -signal.SIGKILL
        finally:
            server.close()
            os.close(said)
            os.close(heard)


def test_a_process_that_dies_is_told_with_its_signal_and_last_words(tmp_path):
    with contextlib.closing(Runner("NV:not", tmp_path)) as runner:
        died = runner.run(next(item for item in items("NV") if item.name == "opening"), 60.0)
    assert died.status == Status.FAILED
    assert died.text


def test_without_time_items_are_skipped_and_say_so(emulated):
    folder = emulated("amd:gfx1100")
    assert main(["-o", str(folder), "--only", "host,after", "--limit", "0"]) == 0
    assert {one["text"] for one in results_of(folder).values()} == {
        "no time was left for it (--limit gives more)"
    }


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU here")
def test_a_machine_without_a_driver_is_described_and_told_so(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("HCQ_EMULATE", raising=False)
    folder = tmp_path / "report"
    assert main(["-o", str(folder)]) == 2
    said = capsys.readouterr().out
    assert "no kernel driver of a GPU is here: neither /dev/nvidiactl nor /dev/kfd exists" in said
    assert list(results_of(folder)) == ["host"]
    assert "host/proc/version" in archived(folder)


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU here")
@pytest.mark.parametrize("kind", WORDS)
def test_a_gpu_that_is_asked_for_and_not_there_is_named_by_the_file_that_is_missing(
    monkeypatch, tmp_path, kind
):
    monkeypatch.delenv("HCQ_EMULATE", raising=False)
    folder = tmp_path / "report"
    assert main(["-o", str(folder), "--device", kind, "--only", "facts,opening,launches"]) == 1
    found = results_of(folder)
    assert found["launches"]["status"] == "skipped"
    assert "/dev/" in found["opening"]["text"]


@pytest.mark.deadline(120)
@pytest.mark.parametrize("word", [thorough("nv:sm_90"), "amd:gfx1100"])
def test_without_cffi_all_is_asked_all_the_same(emulated, tmp_path, word):
    folder = emulated(word)
    (tmp_path / "blocked" / "_cffi_backend.py").write_text('raise ImportError("no cffi", name="cffi")\n')
    (tmp_path / "blocked" / "cffi.py").write_text('raise ImportError("no cffi", name="cffi")\n')
    assert main(["-o", str(folder), "--only", "host,opening,ladder,copies,trap"]) == 0
    assert {one["status"] for one in results_of(folder).values()} == {"ok"}


def test_the_report_names_what_is_running_before_it_runs(tmp_path):
    report.write(tmp_path, "NV", [Check("host", Status.OK, "here")], "opening")
    assert json.loads((tmp_path / "report.json").read_text())["running"] == "opening"
    assert "running opening" in (tmp_path / "report.txt").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.txt"]


# -- the command line


def test_json_is_the_report_and_nothing_else(emulated, capsys):
    folder = emulated("nv:sm_90")
    assert main(["-o", str(folder), "--only", "arguments", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((folder / "report.json").read_text())
    assert [one["name"] for one in printed["checks"]] == ["arguments"]


def test_unknown_checks_and_devices_are_refused_with_the_known_ones(capsys):
    assert main(["--device", "NV", "--only", "flying"]) == 2
    assert "'flying' is no check. They are host, facts, watch, doctor, opening" in capsys.readouterr().err
    assert main(["--device", "CPU"]) == 2
    assert "checks NV and AMD, not 'CPU'" in capsys.readouterr().err


def test_calm_leaves_out_what_may_disturb_others():
    for kind in WORDS:
        options = hw_check.parser().parse_args(["--calm"])
        left = {item.name for item in hw_check.chosen(options, kind)}
        assert not {"fault", "trap", "hang"} & left
        assert "after" in left


def test_the_help_teaches_what_it_needs_and_what_to_send(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    page = capsys.readouterr().out
    for words in (
        "make hw-check",
        "what to send",
        "hw-report.zip",
        "--calm",
        "HCQ_EMULATE=nv:sm_90",
        "exit status",
    ):
        assert words in page
    for kind in WORDS:
        assert main(["--list", "--device", kind]) == 0
        assert len(capsys.readouterr().out.splitlines()) == len(items(kind))


def test_every_check_is_on_the_page():
    page = (Path(__file__).parents[2] / "docs" / "hardware.md").read_text()
    names = {item.name for kind in WORDS for item in items(kind)}
    assert not [name for name in names if f"`{name.removeprefix('try-')}`" not in page]


def test_every_inference_on_the_page_is_settled_by_checks_that_there_are():
    page = (Path(__file__).parents[2] / "docs" / "hardware.md").read_text()
    part = page.partition("### What settles which inference")[2].partition("\n## ")[0]
    tables = part.split("| inference about ")[1:]
    assert [table.partition(" ")[0] for table in tables] == ["NVIDIA", "AMD"]
    for kind, table in zip(("NV", "AMD"), tables):
        names = {item.name.removeprefix("try-") for item in items(kind)}
        rows = [line.split("|")[2] for line in table.splitlines()[2:] if line.startswith("| ")]
        assert len(rows) >= 8
        for row in rows:
            assert set(re.findall(r"`([^`]+)`", row)) <= names, row


def test_every_item_is_a_function_that_there_is():
    for kind in WORDS:
        for item in items(kind):
            assert callable(plan.function_at(item.place)), item.place
        assert (
            sum(
                item.deadline_s
                for item in items(kind)
                if item.needs == "" and not item.name.startswith("try-")
            )
            < 400
        )


# -- kernels


def test_the_kernels_are_made_from_the_sources_that_are_here():
    assert kernels.made_from() == kernels.digest(), "run python -m hcq.tools.hw.make_kernels"


def test_there_are_kernels_for_every_gpu_that_the_drivers_know():
    from hcq.amd.chip import CHIPS
    from hcq.nv.abi.classes import ARCHITECTURES

    made = set(kernels.architectures())
    assert set(ARCHITECTURES) <= made
    assert {chip.arch for chip in CHIPS.values()} <= made
    with pytest.raises(Skip, match="no kernels for sm_75"):
        kernels.image("sm_75")
    assert kernels.machine_code("sm_90")[:4] == b"\x7fELF"


def test_steps_are_composed_as_they_would_run_one_by_one():
    value = 0
    for count in range(50):
        assert kernels.stepped(count) == value
        value = (value * 1664525 + 1013904223) & kernels.M32


# -- what a wrong device looks like


def test_a_wrong_result_says_which_and_what_was_due():
    with pytest.raises(Failure, match=r"10 launches: 1 of 3 results are wrong; number 1 is 7, not 5"):
        checks.same([1, 7, 3], [1, 5, 3], "10 launches")
    with pytest.raises(Failure, match="0 of 3 results are wrong"):
        checks.same([1, 2], [1, 2, 3], "too few")


class FakeBench:
    """A device whose kernel that must fault does nothing, or whose message names nothing."""

    def __init__(self, error: Exception | None) -> None:
        self.sizes = EMULATED
        self.device = self
        self.error = error

    def programs(self, *_: str) -> list[object]:
        return [object(), object()]

    def keep_evidence(self) -> None:
        pass

    def queue(self) -> FakeBench:
        return self

    def dispatch(self, *_: Any) -> FakeBench:
        return self

    def submit(self) -> FakeBench:
        return self

    def reset(self) -> None:
        pass

    def wait(self, timeout_ms: float | None) -> None:
        if self.error is not None:
            raise self.error


def test_a_fault_that_nobody_noticed_or_nobody_named_is_trouble():
    with pytest.raises(Failure, match="stray: nothing was noticed; a page fault was due"):
        checks._must_stop(FakeBench(None), "stray", [], "a page fault")  # type: ignore[arg-type]
    with pytest.raises(Failure, match="does not name the kernel"):
        checks._must_stop(FakeBench(hcq.DeviceFault("something")), "stray", [], "a page fault")  # type: ignore[arg-type]


def test_a_trap_that_only_the_hosts_patience_ends_has_reported_nothing():
    with pytest.raises(Failure, match="an exception was due, and only the host's patience ended"):
        checks._must_stop(FakeBench(hcq.WaitTimeout("trap: waited")), "trap", [], "an exception")  # type: ignore[arg-type]


def test_evidence_that_cannot_be_had_says_why_and_the_rest_is_there():
    def broken(device: object) -> object:
        raise RuntimeError("no channel yet")

    found = evidence.collect(object(), {"ring": broken, "name": lambda device: "x"})
    assert found == {"ring": "not known: RuntimeError: no channel yet", "name": "x"}


# -- the machine


def test_facts_are_those_of_the_gpu_that_was_asked_for():
    """Of two GPUs the second's: what is written down is about what is checked."""
    machine = backends.load(backends.of("NV").emulation)(["nv:sm_90", "nv:sm_86"])
    found: dict[str, Any] = {}
    of_vendor("NV", "host").ask(EmulatedPort([machine]), "NV:1", found)
    assert any("AMPERE_COMPUTE_B" in name for name in found["classes"]), found["classes"]
    assert len(found["cards"]) == 2


def test_the_hosts_files_are_kept_and_nothing_of_users(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    monkeypatch.setenv("HSA_ENABLE_SDMA", "0")
    bench = Bench("", tmp_path, plan.FIRST[0])
    found = host.host(bench)
    assert int(found.figures["files"]) > 5
    everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"hunter2" not in everything
    assert json.loads((tmp_path / "host" / "switches.json").read_text())["HSA_ENABLE_SDMA"] == "0"


def test_processes_are_cut_out_of_what_nvidia_smi_says(tmp_path):
    text = host._output(("printf", "Name: x\n    Processes\n        Process ID : 7\n"), r"^\s+Processes\b")
    assert text == "Name: x\n"
    assert host._output(("no-such-program",), "") == "no-such-program is not installed\n"


def test_the_kernels_log_is_read_from_its_end_and_filtered(tmp_path):
    log = tmp_path / "kmsg"
    os.mkfifo(log)
    reader = KernelLog(str(log))
    writer = os.open(log, os.O_WRONLY)
    os.write(writer, b"4,1,5000000,-;NVRM: Xid (PCI:0000:01:00): 31\n DEVICE=x\n")
    assert reader.fresh() == [] or reader.why  # a pipe cannot be positioned, and is not read
    os.close(writer)
    assert KernelLog(str(tmp_path / "nothing")).fresh() == []


# -- the archive


def test_the_archive_stays_below_its_limit_and_names_what_was_left_out(tmp_path):
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "report.json").write_text("{}")
    (folder / "large.bin").write_bytes(os.urandom(3 << 20))
    (folder / "small.bin").write_bytes(os.urandom(100))
    path, out = archive.make(folder, limit_bytes=1 << 20)
    assert path.stat().st_size < 1 << 20
    assert out == [f"large.bin: {3 << 20} bytes"]
    assert archived(folder) == {"report.json", "small.bin", "left-out.txt"}


# -- beside the vendor's runtime


class FakeLibrary:
    """A driver library in Python: it counts, and one call may fail."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.calls: dict[str, int] = {}

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*given: Any) -> int:
            self.calls[name] = self.calls.get(name, 0) + 1
            if name.endswith("GetVersion"):
                ctypes.cast(given[0], ctypes.POINTER(ctypes.c_int))[0] = 13000
            return 999 if name == self.failing else 0

        return call


@pytest.mark.parametrize("kind", WORDS)
def test_the_vendors_figures_have_the_names_of_ours(kind):
    fake = FakeLibrary()
    api = driver_api.DriverApi(driver_api.API[kind], fake)
    found: Found = vendor.figures(api, b"\x7fELF", vendor.Work(5, 10, 4096, 2))
    assert found.figures["runtime"] == 13000
    assert set(fake.calls) <= set(driver_api.API[kind].calls.values())
    for pairs in report.COMPARED.values():
        assert all(their in found.figures for their in pairs.values())


def test_a_call_of_the_vendors_library_that_fails_is_named():
    api = driver_api.DriverApi(driver_api.API["NV"], FakeLibrary("cuModuleLoadData"))
    with pytest.raises(Failure, match="cuModuleLoadData -> CUDA error 999"):
        vendor.figures(api, b"", vendor.Work(1, 1, 4096, 1))


def test_without_the_vendors_library_its_figures_are_left_out():
    names = driver_api.API["NV"]._replace(libraries=("libnothing.so.1",))
    with pytest.raises(Skip, match=r"libnothing\.so\.1 is not installed"):
        driver_api.DriverApi(names)


def test_ratios_say_how_many_times_faster_we_are():
    results = [
        Check("latency", Status.OK, "", figures={"latency_us": 5.0, "best_us": 4.0}),
        Check("bandwidth", Status.OK, "", figures={"copy_gb_per_s": 100.0}),
        Check("vendor", Status.OK, "", figures={"latency_us": 10.0, "best_us": 8.0, "copy_gb_per_s": 50.0}),
    ]
    table = "\n".join(report.comparison(results))
    assert "latency_us" in table
    assert table.count("2.00 x") == 3
    assert report.comparison(results[:2]) == []
    counted = [*results, Check("hang", Status.FAILED, ""), Check("try-hmm", Status.FAILED, "")]
    assert report.verdict(counted) == "3 ok, 1 failed, 0 skipped; of 1 variants 0 work; failed: hang"


def test_a_result_found_is_a_line():
    (line, fix) = report.lines(Check("copies", Status.FAILED, "wrong", "do this"))
    assert line.split() == ["FAILED", "copies", "wrong"]
    assert fix.strip() == "fix: do this"


# -- what a dead or an unusual GPU teaches


@pytest.mark.parametrize("kind", WORDS)
def test_opening_fails_where_nothing_that_is_submitted_comes_back(ask, monkeypatch, kind):
    """A doorbell that rings nobody: what needs opening is then skipped, and does not wait for its deadline."""
    monkeypatch.setenv("HCQ_TIMEOUT_MS", "300")
    ring = {"NV": "hcq.nv.rings:GpFifo", "AMD": "hcq.amd.rings:Ring"}[kind]
    module, _, name = ring.partition(":")

    def commit(self: Any) -> None:
        self.rung = self.put

    monkeypatch.setattr(getattr(importlib.import_module(module), name), "commit", commit)
    found = ask(WORDS[kind], "opening")
    assert found.status == Status.FAILED
    assert "waited 300 ms" in found.text


@pytest.mark.parametrize("word", ["nv:sm_90:late-get", thorough("nv:sm_120:late-get:seed=2")])
def test_a_gp_get_that_is_late_ends_no_ladder(ask, tmp_path, word):
    found = ask(word, "ladder")
    assert found.status == Status.OK, found.text
    rows = {row["rung"]: row["result"] for row in json.loads((tmp_path / "ladder.json").read_text())}
    assert rows["empty segment"].startswith("skipped: this GPU may write GP_GET back when a channel is saved")
    assert rows["local"] == "ok"
    assert "does not follow" in ask(word, "gp-get").text


@pytest.mark.parametrize("word", ["nv:sm_80", thorough("nv:sm_90"), "nv:sm_120:seed=4"])
@pytest.mark.parametrize(
    "name", ["bare-kernel", "gp-get", "doorbell", "copy-engines", "copy-fault", "fresh-reads"]
)
def test_experiments_with_nvidia_gpus_alone_say_what_they_saw(ask, word, name):
    found = ask(word, name)
    assert found.status == Status.OK, found.text
    wanted = {
        "gp-get": "GP_GET follows",
        "copy-engines": "copy engines [0, 1",
        "copy-fault": "the copy was done by CE0",
    }.get(name, "")
    assert wanted in found.text


def test_what_only_nvidia_gpus_are_asked_others_are_not():
    names = {item.name for item in items("AMD")}
    assert "fresh-reads" in names
    assert not {"bare-kernel", "gp-get", "doorbell", "copy-engines", "copy-fault"} & names


@pytest.mark.parametrize("word", ["amd:gfx1100", "amd:gfx942:mi300x"])
def test_reads_of_a_gpus_memory_are_fresh_and_dies_see_each_other(ask, tmp_path, word):
    found = ask(word, "fresh-reads")
    assert found.status == Status.OK, found.text
    assert ask(word, "ladder").status == Status.OK
    rows = {row["rung"]: row["result"] for row in json.loads((tmp_path / "ladder.json").read_text())}
    assert rows["release seen"] == ("ok" if "gfx942" in word else "skipped: the queue is of one XCC")


def test_opening_says_of_which_version_the_sms_are_and_what_launches_say(ask):
    found = ask("nv:sm_120", "opening")
    assert (found.figures["sm_version"], found.figures["sass_version"]) == ("0xa04", "0xa4")
