"""The tutorial "From nothing to a doorbell": its blocks are one program, which runs as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "doorbell.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)


def test_every_step_runs_with_those_before_it() -> None:
    done = run("\n\n".join(BLOCKS))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_is_short_and_needs_nothing_but_python() -> None:
    program = "\n".join(BLOCKS)
    assert len(BLOCKS) >= 9
    assert len(program.splitlines()) < 500
    assert re.findall(r"^(?:import|from) (\w+)", program, re.MULTILINE) == [
        "struct", "threading", "time", "dataclasses"
    ]  # fmt: skip


def test_a_queue_whose_doorbell_does_not_ring_is_a_hang_that_the_deadline_ends() -> None:
    broken = "\n\n".join(BLOCKS).replace("        device.doorbell.ring()\n", "")
    done = run(broken)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "TimeoutError: waited 1000 ms for 1, saw 0"
