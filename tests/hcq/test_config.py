"""Switches are words, read in one place; a misspelt one is refused with the valid ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hcq.config import SWITCHES, Config
from hcq.errors import UsageError


def test_an_empty_environment_gives_the_defaults() -> None:
    read = Config.read({"HOME": "/home/someone"})
    assert read.device == "CPU"
    assert read.timeout_ms == 30_000
    assert read.cache_dir == Path("/home/someone/.cache/hcq")
    assert read.threads == len(os.sched_getaffinity(0))
    assert not read.debug
    assert read.trace is None


def test_switches_are_read_as_words() -> None:
    read = Config.read(
        {
            "HCQ_DEBUG": "push, sync",
            "HCQ_EMULATE": "amd:gfx1100,nv:sm_90",
            "HCQ_VALIDATE": "1",
            "HCQ_PROFILE": "off",
            "HCQ_THREADS": "3",
            "HCQ_TIMEOUT_MS": "5",
            "HCQ_VISIBLE": "1,0",
            "HCQ_TRACE": "t.hcqtrace",
            "XDG_CACHE_HOME": "/c",
        }
    )
    assert read.debug == {"push", "sync"}
    assert read.emulate == ("amd:gfx1100", "nv:sm_90")
    assert (read.validate, read.profile, read.threads, read.timeout_ms) == (True, False, 3, 5)
    assert (read.visible, read.trace, read.cache_dir) == ((("", 1), ("", 0)), "t.hcqtrace", Path("/c/hcq"))


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"HCQ_DEBUG": "push,snyc"},
            "unknown word 'snyc'. Valid words: schedule, ir, code, passes, rules, push, sync, alloc",
        ),
        ({"HCQ_DEBG": "push"}, "HCQ_DEBG is not a switch. The switches are HCQ_DEVICE, "),
        ({"HCQ_VALIDATE": "maybe"}, "unknown word. Valid words: 0, 1, off, on, no, yes"),
        ({"HCQ_THREADS": "0"}, "takes a whole number from 1 to 1024"),
        ({"HCQ_TIMEOUT_MS": "soon"}, "HCQ_TIMEOUT_MS='soon': takes a whole number"),
        ({"HCQ_VISIBLE": "AMD:first"}, "'AMD:first' is no device"),
        ({"HCQ_VISIBLE": "-1"}, "'-1' is no device"),
    ],
)
def test_a_misspelt_switch_is_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Config.read(environment)


def test_visible_numbers_are_counted_from_zero_and_unknown_emulators_are_refused() -> None:
    script = """
import hcq
print(hcq.open("CPU").name, hcq.open("CPU:1").name)
try:
    hcq.open("CPU:2")
except hcq.UsageError as error:
    print(error)
"""

    def said(**environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=30,
        )
        return done.stdout + done.stderr

    assert (
        said(HCQ_VISIBLE="3,1")
        == "CPU:3 CPU:1\nopen('CPU:2'): HCQ_VISIBLE shows 2 devices of this kind, 0 is the first.\n"
    )
    assert "HCQ_EMULATE=intel:xe: no emulator for 'intel:xe'" in said(HCQ_EMULATE="intel:xe")


@pytest.mark.parametrize(
    ("text", "cpu", "amd", "nv"),
    [
        (None, None, None, None),
        ("", None, (), ()),
        (" , ", None, (), ()),
        ("1,0", (1, 0), (1, 0), (1, 0)),
        ("amd:1", None, (1,), None),
        ("AMD:3,NV,AMD:0", None, (3, 0), (0,)),
        ("2,AMD:1", (2,), (1,), (2,)),
    ],
)
def test_devices_are_shown_by_kind(text: str | None, cpu: object, amd: object, nv: object) -> None:
    read = Config.read({} if text is None else {"HCQ_VISIBLE": text})
    assert [read.visible_of(kind) for kind in ("CPU", "AMD", "NV")] == [cpu, amd, nv]


def test_words_count_in_upper_case_too() -> None:
    read = Config.read(
        {"HCQ_AMD_QUEUE": "AQL", "HCQ_NV_RENDERER": "Cuda", "HCQ_DEBUG": "Push", "HCQ_REPORT": "OFF",
         "HCQ_INEXACT": "TF32", "HCQ_EMULATE": "AMD:GFX1100", "HCQ_PROFILE": "Counters", "HCQ_VALIDATE": "ON"}
    )  # fmt: skip
    assert (read.amd_queue, read.nv_renderer, read.debug, read.report) == ("aql", "cuda", {"push"}, {"off"})
    assert (read.inexact, read.emulate, read.counters, read.validate) == (
        {"tf32"}, ("amd:gfx1100",), True, True,
    )  # fmt: skip


def test_every_switch_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "environment.md").read_text()
    assert not [name for name in SWITCHES if name not in page]


def test_importing_reads_no_environment() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import hcq, hcq.device, hcq.graph, hcq.cpu.device; print('fine')"],
        env={**os.environ, "HCQ_DEBUG": "nonsense"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout == "fine\n"


def test_cpu_devices_share_the_threads_and_each_has_one_at_least() -> None:
    for cpus, threads in (("1", 7), ("2", 3), ("8", 1)):
        assert Config.read({"HCQ_THREADS": "7", "HCQ_CPUS": cpus}).threads == threads


@pytest.mark.parametrize("name", ["HCQ_VISIBLE", "HCQ_TIMEOUT_MS", "HCQ_THREADS"])
@pytest.mark.parametrize("word", ["9" * 5000, "\u0663", "-1", "1e3", ""])
def test_a_number_that_cannot_be_one_is_refused_and_not_printed_whole(name: str, word: str) -> None:
    if not word and name != "HCQ_VISIBLE":
        assert Config.read({name: word}) == Config.read({})
        return
    if not word:
        return
    with pytest.raises(UsageError, match=name) as refused:
        Config.read({name: word})
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("text", "profile", "counts", "blocks"),
    [
        ("1", True, False, 0),
        ("counters", False, True, 0),
        ("counters:132", False, True, 132),
        ("1,counters", True, True, 0),
        ("Counters:8,1", True, True, 8),
        ("off", False, False, 0),
        ("", False, False, 0),
    ],
)
def test_hcq_profile_takes_a_flag_counters_or_both(
    text: str, profile: bool, counts: bool, blocks: int
) -> None:
    read = Config.read({"HCQ_PROFILE": text})
    assert (read.profile, read.counters, read.counted_blocks) == (profile, counts, blocks)
    assert read.is_observed == (profile or counts)


@pytest.mark.parametrize("text", ["time", "counters:", "counters:0", "counters:x", "counters:-1"])
def test_hcq_profile_refuses_another_word(text: str) -> None:
    with pytest.raises(UsageError, match="counters:NUMBER"):
        Config.read({"HCQ_PROFILE": text})
