"""docs/trace.md, walked line by line: every command runs, in order, in one folder, and prints what the page says."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "trace.md").read_text(encoding="utf-8")
PROGRAMS = ("hcq-trace", "sed", "echo", "printf")
FOUND = ("lint bad.hcqtrace", "diff run.hcqtrace other.hcqtrace", "graph two.hcqtrace")  # exit with 1
ELSEWHERE = (  # tested where what they need is there
    "decode log.txt",  # a log that the page does not make
    "record --foreign -o theirs.hcqtrace -- ./a_hip_program",  # AMD's kernel driver
    "show theirs.hcqtrace",
)


class Step(NamedTuple):
    """A command of the page, and the lines below it that it prints."""

    command: str
    shown: list[str]


def steps() -> list[Step]:
    found: list[Step] = []
    is_output = False
    for line in PAGE.splitlines():
        text = line.removeprefix("    ").removeprefix("$ ")
        words = [word for word in text.split(" ") if not word.startswith("HCQ_")]
        if line.startswith("    ") and words[0] in PROGRAMS:
            found.append(Step(re.split(r"\s{3,}", text)[0], []))
            is_output = line.startswith("    $ ")
        elif line.startswith("    ") and is_output:
            found[-1].shown.append(line[4:])
        else:
            is_output = False
    return [step for step in found if not step.command.endswith(ELSEWHERE)]


def plain(line: str) -> str:
    """A line without what differs from run to run: numbers, folders, units of time."""
    line = re.sub(r"\S*/(?=examples/|small.py)", "", line)
    line = re.sub(r"0x[0-9a-f]+|\b[0-9a-f]{16}\b|\d+(\.\d+)?", "N", line)
    line = re.sub(r"model .*?, threads", "model M, threads", line)
    return re.sub(r"N (ns|us|ms|s)\b", "N s", " ".join(line.split()))


def is_printed(shown: str, lines: list[str]) -> bool:
    start = plain(shown).removesuffix("...").rstrip()
    if shown.endswith("..."):
        return any(line.startswith(start) for line in lines)
    return start in lines


def test_the_page_has_a_command_for_every_verb() -> None:
    from hcq.tools import hcq_trace

    verbs = next(action for action in hcq_trace.parser()._actions if action.dest == "verb")
    used = {
        step.command.split("hcq-trace ")[1].split()[0] for step in steps() if "hcq-trace " in step.command
    }
    assert used == set(verbs.choices)


@pytest.mark.thorough
@pytest.mark.deadline(240)
@pytest.mark.slow
def test_every_command_of_the_page_does_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, what in (
        ("hcq-trace", f"{sys.executable} {ROOT / 'tools' / 'hcq_trace.py'}"),
        ("python", sys.executable),
    ):
        (programs / name).write_text(f'#!/bin/sh\nexec {what} "$@"\n')
        (programs / name).chmod(0o755)
    for name in ("two.py", "both.py", "small.py"):
        (program,) = re.findall(rf"`{name}`:?\n\n```python\n(.*?)```", PAGE, flags=re.S)
        (tmp_path / name).write_text(program)
    # what kernels there are depends on how many threads share the work
    environment = {
        **os.environ,
        "HCQ_THREADS": "2",
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    for step in steps():
        if step.command.startswith("hcq-trace serve"):
            serve(step.command, tmp_path, environment)
            continue
        done = subprocess.run(
            ["sh", "-c", step.command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == int(step.command.endswith(FOUND)), (step.command, done.stdout, done.stderr)
        if platform.machine() != "x86_64" and step.command == "hcq-trace disasm raw.hcqtrace scale":
            continue  # the page shows x86-64's instructions
        lines = [plain(line) for line in done.stdout.splitlines()]
        missing = [line for line in step.shown if line != "..." and not is_printed(line, lines)]
        assert missing == [], (step.command, done.stdout)


def serve(command: str, folder: Path, environment: dict[str, str]) -> None:
    """It prints an address at which a page answers, and goes on until it is stopped."""
    from urllib.request import urlopen

    started = subprocess.Popen(
        shlex.split(command),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None
        (address,) = re.findall(r"http://127\.0\.0\.1:\d+/\S+/", started.stdout.readline())
        with urlopen(address, timeout=10) as answer:
            assert b"hcq-trace" in answer.read()
        time.sleep(0.1)
        assert started.poll() is None
    finally:
        started.terminate()
        started.wait(10)
