"""An unmodified HIP program with a race ends with the finding and a status of its own; its right twin is left alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hcq.emu.supervisor.command import FOUND_STATUS
from tests.programs.conftest import SECONDS, Compiled

pytestmark = pytest.mark.deadline(600)


def run(words: str, *line: str | Path, look: str = "race") -> subprocess.CompletedProcess[str]:
    """A program on these emulated GPUs, whose races are looked for. line: options, --, and the program."""
    return subprocess.run(
        [sys.executable, "-m", "hcq", "emulate", words, "--sanitize", look, *map(str, line)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def test_a_race_is_named_with_both_lines_and_ends_a_program_that_ended_well_with_a_status_of_its_own(
    arch: str, compiled: Compiled, tmp_path: Path
) -> None:
    program, kept = compiled("race.hip", arch, ("-g",)), tmp_path / "findings.jsonl"
    done = run(f"amd:{arch}", "--findings", kept, "--", program, "wrong", "0")
    assert done.returncode == FOUND_STATUS == 86
    assert "[shared-race] kernel _Z4turnILb0EEvPi" in done.stderr
    assert done.stderr.count("race.hip:9]") == 1 and done.stderr.count("race.hip:11]") == 1
    (found,) = [json.loads(line) for line in kept.read_text().splitlines()]
    assert found["rule"] == "shared-race" and found["times"] > 1
    assert [Path(site["line"]).name for site in found["sites"]] == ["race.hip:9", "race.hip:11"]


@pytest.mark.parametrize(("what", "own", "status"), [("right", 0, 0), ("right", 5, 5), ("wrong", 5, 5)])
def test_any_other_status_is_the_programs(
    arch: str, compiled: Compiled, what: str, own: int, status: int
) -> None:
    done = run(f"amd:{arch}", "--", compiled("race.hip", arch, ("-g",)), what, str(own))
    assert done.returncode == status
    assert ("shared-race" in done.stderr) == (what == "wrong")


def test_workgroups_that_wait_for_each_other_come_after_each_other(arch: str, compiled: Compiled) -> None:
    done = run(f"amd:{arch}", "--", compiled("cooperative.hip", arch, ("-g",)))
    assert done.returncode == 0 and "race" not in done.stderr


def test_what_a_file_ignores_is_counted_and_changes_no_status(
    arch: str, compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignored = tmp_path / "ignored"
    ignored.write_text(
        '# the old kernel\nshared-race _Z4turn* "*race.hip:9"  # is being rewritten\nshared-race other\n'
    )
    monkeypatch.setenv("HCQ_SANITIZE_IGNORE", str(ignored))
    done = run(f"amd:{arch}", "-v", "--", compiled("race.hip", arch, ("-g",)), "wrong", "0")
    assert done.returncode == 0
    assert f"1 finding was ignored: {ignored}" in done.stderr
    assert f"{ignored}:3: shared-race other ignored nothing" in done.stderr


def test_other_orders_show_a_race_that_the_usual_one_hides_and_name_the_seed_that_repeats_it(
    arch: str, compiled: Compiled
) -> None:
    program = compiled("race.hip", arch, ("-g",))
    assert run(f"amd:{arch}", "--", program, "sometimes", "0").returncode == 0
    done = run(f"amd:{arch}", "--schedules", "8", "--", program, "sometimes", "0")
    assert done.returncode == FOUND_STATUS, done.stderr
    words = next(
        line.split()[5].rstrip(",") for line in done.stderr.splitlines() if "which repeats it" in line
    )
    assert words.startswith(f"amd:{arch}:seed=")
    again = run(words, "--", program, "sometimes", "0")
    assert again.returncode == FOUND_STATUS and "kernel _Z11first_fillsPi" in again.stderr


@pytest.mark.parametrize(
    ("what", "rule"),
    [
        ("right", ""),
        ("neighbour", "buffer-overrun"),
        ("behind", "buffer-overrun"),
        ("freed", "use-after-free"),
    ],
)
def test_small_allocations_of_hip_are_told_from_each_other(
    arch: str, compiled: Compiled, what: str, rule: str
) -> None:
    done = run(f"amd:{arch}", "--", compiled("overrun.hip", arch, ("-g",)), what, look="memory")
    found = [line for line in done.stderr.splitlines() if "warning [" in line]
    assert [f"[{rule}] kernel _Z4fillPii" in line for line in found[:1]] == ([True] if rule else []), (
        done.stderr
    )
    assert (done.returncode == 0) == (what == "right")


@pytest.mark.parametrize(("what", "times"), [("right", 0), ("part", 1), ("wrong", 4096)])
@pytest.mark.parametrize("host", ["", ":private"])
def test_new_memory_that_nobody_has_written_is_found_where_it_is_used(
    arch: str, compiled: Compiled, host: str, what: str, times: int, tmp_path: Path
) -> None:
    program, kept = compiled("unwritten.hip", arch, ("-g",)), tmp_path / "findings.jsonl"
    done = run(f"amd:{arch}{host}", "--findings", kept, "--", program, what, look="init")
    found = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [one["rule"] for one in found] == ["uninitialised-read"] * bool(times), done.stderr
    assert [one["times"] for one in found] == [times] * bool(times)
    assert done.returncode == (FOUND_STATUS if times else 0)


WHERE = ("device", "pitch", "managed", "host", "async", "pool")
LATE = [("freed", "use-after-free"), ("synchronised", "use-after-free"), ("again", "")]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("where", "what", "rule"),
    [
        *(
            (where, what, rule)
            for where in WHERE
            for what, rule in (("right", ""), ("behind", "buffer-overrun"))
        ),
        *((where, what, rule) for where in ("async", "pool") for what, rule in LATE),
    ],
)
def test_memory_of_each_allocator_of_hip_has_an_end_and_is_gone_when_it_was_freed(
    arch: str, compiled: Compiled, where: str, what: str, rule: str
) -> None:
    done = run(f"amd:{arch}", "--", compiled("allocators.hip", arch, ("-g",)), where, what, look="memory")
    found = [line for line in done.stderr.splitlines() if "warning [" in line]
    assert f"[{rule}] kernel _Z4fillPii" in found[0] if rule else not found, done.stderr
    assert (done.returncode == 0) == (not rule)


def test_a_program_that_logs_for_itself_is_left_alone(
    arch: str, compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMD_LOG_LEVEL", "3")
    program = compiled("allocators.hip", arch, ("-g",))
    done = run(f"amd:{arch}", "--", program, "async", "freed", look="memory")
    assert done.returncode == 0 and "hipFreeAsync" in done.stderr and "warning [" not in done.stderr


@pytest.mark.sampled(6)
@pytest.mark.parametrize("what", ["event", "early", "memcpy", "memset", "null", "graph", "behind"])
@pytest.mark.parametrize("side", ["wrong", "right"])
def test_works_of_streams_that_nothing_orders_are_found(
    arch: str, compiled: Compiled, what: str, side: str
) -> None:
    done = run(f"amd:{arch}", "--", compiled("unordered.hip", arch, ("-g",)), what, side)
    found = [line for line in done.stderr.splitlines() if "warning [" in line]
    assert [line.partition("warning ")[2].partition(" ")[0] for line in found] == (
        ["[unordered-launches]"] if side == "wrong" else []
    ), done.stderr
