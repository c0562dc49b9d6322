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
            "unknown word 'snyc'. Valid words: graph, schedule, ir, code, passes, rules, push, sync, alloc",
        ),
        ({"HCQ_DEBG": "push"}, "HCQ_DEBG is not a switch. The switches are HCQ_DEVICE, "),
        ({"HCQ_VALIDATE": "maybe"}, "unknown word. Valid words: 0, 1, off, on, no, yes"),
        ({"HCQ_THREADS": "0"}, "takes a whole number from 1 to 1024"),
        ({"HCQ_TIMEOUT_MS": "soon"}, "HCQ_TIMEOUT_MS='soon': takes a whole number"),
        ({"HCQ_VISIBLE": "first"}, "'first' is not a device number"),
        ({"HCQ_VISIBLE": "AMD:"}, "'AMD:' is not a device number"),
        ({"HCQ_VISIBLE": ":1"}, "':1' is not a device number"),
    ],
)
def test_a_misspelt_switch_is_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Config.read(environment)


def opened(*names: str, **environment: str) -> str:
    """What opening each device says, in a process of this environment: the device's own name, or why not."""
    script = """
import sys, hcq
for name in sys.argv[1:]:
    try:
        print(hcq.open(name).name)
    except hcq.UsageError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, *names],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout + done.stderr


THREE = "amd:gfx1100,amd:gfx1100,nv:sm_90"


@pytest.mark.parametrize(
    ("visible", "names", "said"),
    [
        ("CPU:3,CPU:1", ("CPU", "CPU:1"), ["CPU:3", "CPU:1"]),
        (
            "CPU:3,CPU:1",
            ("CPU:2",),
            ["open('CPU:2'): HCQ_VISIBLE shows 2 devices of CPU, of which 0 is the first."],
        ),
        ("1", ("AMD", "CPU", "CPU:1"), ["AMD:1", "CPU", "CPU:1"]),
        ("AMD:1", ("AMD", "NV"), ["AMD:1", "NV"]),
        ("amd:1,0", ("AMD", "NV"), ["AMD:1", "NV"]),
        ("AMD:1", ("AMD:1",), ["open('AMD:1'): HCQ_VISIBLE shows one device of AMD, which is number 0."]),
        ("AMD:1,AMD:0", ("AMD", "AMD:1"), ["AMD:1", "AMD"]),
        (
            "",
            ("CPU", "NV"),
            ["CPU", "open('NV'): HCQ_VISIBLE is empty, which hides every GPU. Unset it, or name NV:0 in it."],
        ),
        (
            "AMX:0",
            ("CPU",),
            ["HCQ_VISIBLE names AMX, which is no kind of device. Known are CPU, AMD, NV, METAL."],
        ),
    ],
)
def test_visible_devices_are_counted_from_zero_and_for_each_kind(
    visible: str, names: tuple[str, ...], said: list[str]
) -> None:
    assert opened(*names, HCQ_VISIBLE=visible, HCQ_EMULATE=THREE).splitlines() == said


def test_an_unknown_emulator_or_device_is_refused_with_those_that_are_known() -> None:
    assert "HCQ_EMULATE=intel:xe: no emulator for 'intel:xe'" in opened("CPU", HCQ_EMULATE="intel:xe")
    assert "Known are CPU, AMD, NV, METAL; a number may follow, as in CPU:0." in opened("TPU")


def test_words_may_be_written_in_capitals() -> None:
    read = Config.read(
        {"HCQ_AMD_QUEUE": "AQL", "HCQ_NV_RENDERER": "Cuda", "HCQ_DEBUG": "PUSH,Sync", "HCQ_INEXACT": "TF32"}
    )
    assert (read.amd_queue, read.nv_renderer, read.inexact) == ("aql", "cuda", {"tf32"})
    assert read.debug == {"push", "sync"}


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
    if not word:
        assert Config.read({name: word}).timeout_ms == Config.read({}).timeout_ms
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
