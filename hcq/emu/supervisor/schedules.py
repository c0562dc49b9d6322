"""Schedules: the same program several times, each in another order of what nothing orders (--schedules N).

In       the words, the program, how often
Out      what was found in any order, each finding once, with the word that repeats it; the exit status
Changes  nothing that stays; each run is `python -m hcq emulate` with a seed, a process of its own
Next     command.py (one run), hcq/emu/shader/schedule.py (what a seed changes in kernels)

The first run's output is shown. That of the others would be the same again, and is not; the end of it is, when one of
them ends otherwise than the first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hcq.emu.supervisor import command

SHOWN_BYTES = 2000  # of the output of a run that ended otherwise


def run(
    gpus: Sequence[str], arguments: Sequence[str], options: argparse.Namespace, environment: Mapping[str, str]
) -> int:
    """Run it with the seeds from 1 to options.schedules. Returns the exit status of the first run that did not end
    with 0; without one, FOUND_STATUS where something was found."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    first = other = 0
    for seed in range(1, options.schedules + 1):
        words = [_seeded(word, seed) for word in gpus]
        status, said, made = _one(words, arguments, environment, seed == 1, options.verbose and seed == 1)
        if seed == 1:
            first = status
        elif status != first and not other:
            other = status
            command.say(f"with seed {seed} the program ended with {status}, not with {first}:")
            print(said, file=sys.stderr)
        new = [one for one in made if key(one) not in found]
        for one in new:
            one["emulate"] = ",".join(words)
            found[key(one)] = one
            if seed > 1:  # the first run has told its own
                command.say(f"{one['level']} [{one['rule']}] kernel {one['kernel']}: {one['what']}")
        if new:
            command.say(
                f"{command.how_many(new)} with {','.join(words)}, which repeats {'it' if len(new) == 1 else 'them'}"
            )
    if options.findings is not None:
        command.write(options.findings, list(found.values()))
    many = command.how_many(list(found.values()))
    command.say(f"{many} in {options.schedules} orders")
    status = first or other or (command.FOUND_STATUS if found else 0)
    return status if status >= 0 else 128 - status  # of a signal: as a shell says it


def key(one: Mapping[str, Any]) -> tuple[Any, ...]:
    """What makes two findings the same, whatever threads and addresses they met at."""
    sites = sorted((site["text"], site["line"]) for site in one["sites"])
    return one["rule"], one["kernel"], *sites


def _seeded(word: str, seed: int) -> str:
    """A word with this seed, in the place of its own."""
    kept = [part for part in word.split(":") if not part.startswith("seed=")]
    return ":".join((*kept, f"seed={seed}"))


def _one(
    words: Sequence[str],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    shown: bool,
    is_verbose: bool,
) -> tuple[int, str, list[dict[str, Any]]]:
    """One run: the program's own exit status, the end of its output where it is not shown, what was found."""
    with tempfile.TemporaryDirectory() as folder:
        findings = Path(folder) / "findings"
        line = [
            sys.executable,
            "-m",
            "hcq",
            "emulate",
            *(["-v"] if is_verbose else []),
            "--findings",
            str(findings),
        ]
        done = subprocess.run(
            [*line, ",".join(words), "--", *arguments],
            env={**environment, "HCQ_SANITIZE_SCHEDULES": "0"},
            stdout=None if shown else subprocess.PIPE,
            stderr=None if shown else subprocess.STDOUT,
        )
        text = findings.read_text("utf-8") if findings.exists() else ""
    made = [json.loads(one) for one in text.splitlines()]
    status = 0 if made and done.returncode == command.FOUND_STATUS else done.returncode
    said = (done.stdout or b"")[-SHOWN_BYTES:].decode("utf-8", "replace")
    return status, said, made
