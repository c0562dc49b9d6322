"""An unmodified HIP program under the debugger: its kernel by name, lines of its source, and steps back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.conftest import Compiled

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.deadline(600)
SCRIPT = """break kernel add
break line vector_add.hip:9
continue
where
continue
disasm
reverse-step
origin v2
delete all
"""


def test_a_hip_program_is_stopped_at_a_line_and_walked_back(compiled: Compiled, tmp_path: Path) -> None:
    program = compiled("vector_add.hip", "gfx90a", ("-g",))
    (tmp_path / "script").write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
    words = [
        sys.executable,
        "-m",
        "hcq",
        "debug",
        "-x",
        "script",
        "--batch",
        "amd:gfx90a",
        "--",
        str(program),
    ]
    done = subprocess.run(
        words,
        env={**environment, "PYTHONPATH": str(ROOT), "HCQ_CACHE_DIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    said = done.stdout
    assert "kernel _Z3addPfPKfS1_i begins" in said
    assert "vector_add.hip:9:     if (i < n) out[i] = a[i] + b[i];" in said
    assert "begun by packet" in said
    assert "(in the past)" in said
    assert "v2 = " in said
    assert "vector_add: 0 wrong" in said
