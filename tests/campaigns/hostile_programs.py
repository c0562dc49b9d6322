"""Hostile programs under the supervisor: random calls of kernel drivers, cut files, signals, children that are killed.

In       a word of HCQ_EMULATE, a seed
Out      the program comes to its end; the supervisor ends as it did, has taken little memory, and left nothing behind
Changes  starts `python -m hcq emulate` with the program
Next     _hostile_program.py (the program), hcq/emu/supervisor/ (who answers it)

Where the system allows no supervisor, every case is refused: there is nothing to attack.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

ROOT = Path(__file__).resolve().parent.parent.parent
WORDS = ("amd:gfx1100", "amd:gfx942", "nv:sm_89", "amd:gfx90a,nv:sm_90")
ACTS = 150
MOST_MIB = 150  # that a program may make the supervisor take
SECONDS = 100
FAILURES = ("the supervisor failed", "Traceback")


def run(case: Case) -> Outcome:
    """One program, to its end."""
    rng = case.rng()
    program = [
        sys.executable,
        "-m",
        "tests.campaigns._hostile_program",
        str(case.seed),
        str(case.number),
        str(ACTS),
    ]
    words = rng.choice(WORDS)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TMPDIR": folder, "HCQ_REPORT": "off"}
        if rng.random() < 0.3:  # with an observer, which reads what pointers lead to
            environment["HCQ_VALIDATE"] = "1"
        command = [sys.executable, "-m", "hcq", "emulate", words, "--", *program]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=SECONDS
        )
        left = os.listdir(folder)
    if done.returncode == 2 and "seccomp" in done.stderr:
        return Outcome.REFUSED
    ended = re.search(r"^to its end: (-?\d+) MiB$", done.stdout, re.MULTILINE)
    said = f"{words}: status {done.returncode}: {done.stdout[-300:]}{done.stderr[-3000:]}"
    if done.returncode or not ended or any(text in done.stderr for text in FAILURES):
        raise Wrong(said)
    if int(ended[1]) > MOST_MIB:
        raise Wrong(f"the supervisor has taken {ended[1]} MiB. {said}")
    if left:
        raise Wrong(f"left behind: {left}. {said}")
    return Outcome.RIGHT


CAMPAIGNS = (
    Campaign(
        "hostile-programs",
        "programs under the supervisor that call drivers with random counts and pointers, and cut their files",
        run,
        short=4,
    ),
)
