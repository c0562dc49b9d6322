"""The tutorial of the debugger's page: its program under the debugger, its commands, and what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.page_programs import ROOT, programs

PAGE = (ROOT / "docs" / "debugger.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```debug\n(.*?)```", PAGE, re.DOTALL)


def test_the_tutorial_says_what_the_debugger_says(tmp_path: Path) -> None:
    (program,) = programs("debugger.md")
    (tmp_path / "matmul.py").write_text(program.text, encoding="utf-8")
    wanted = [line for block in BLOCKS for line in block.splitlines()]
    assert wanted[0] == "$ python -m hcq debug nv:sm_90 -- matmul.py"
    script = [line.removeprefix("(hcq) ") for line in wanted if line.startswith("(hcq) ")]
    assert len(script) > 8
    (tmp_path / "script").write_text("\n".join(script), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
    environment |= {"PYTHONPATH": str(ROOT), "HCQ_CACHE_DIR": str(tmp_path / "cache")}
    words = [sys.executable, "-m", "hcq", "debug", "-x", "script", "--batch", "nv:sm_90", "--", "matmul.py"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=90, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()
    at, may_skip = 0, False
    for line in wanted[1:]:
        if line == "...":
            may_skip = True
            continue
        pattern = re.escape(line).replace(r"0x\.\.\.", "0x[0-9a-f]+")
        while not re.fullmatch(pattern, said[at]):
            assert may_skip or said[at] == "between launches", f"{said[at]!r} instead of {line!r}"
            at += 1
        at, may_skip = at + 1, False


def test_the_page_lists_every_way_to_stop() -> None:
    from hcq.debug.help import TOPICS

    for line in TOPICS["break"].splitlines():
        if line.startswith("break ") and "  " in line:
            assert f"`{' '.join(line.split()[:2])}" in PAGE, line
