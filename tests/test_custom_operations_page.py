"""The programs of the page on custom operations run as printed, and say what they should."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "custom-operations.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n# device: (\S+)\n(?:# needs: (\S+)\n)?(.*?)```", PAGE, re.DOTALL)
SAXPY = "[11.5, 22.0, 32.5]"
SAYS = [
    *[SAXPY] * 7,
    SAXPY,  # of Triton
    "[8.0, 16.0, 24.0]",
    "[1.5]\n[3.5]\n[5.5]\n[7.5]",
    "CPU,CPU:1 [2.0, 4.0, 6.0, 8.0]",
]
EMULATED = {"AMD": "amd:gfx1100", "NV": "nv:sm_90", "METAL": "metal:m3", "AMD:gfx90a": "amd:gfx90a"}


def test_every_program_of_the_page_is_run() -> None:
    assert len(BLOCKS) == len(SAYS) == PAGE.count("```python")


@pytest.mark.parametrize("number", range(len(SAYS)))
def test_a_program_of_the_page_says_what_it_should(number: int, tmp_path: Path) -> None:
    device, needs, text = BLOCKS[number]
    if needs and importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    if device == "NV" and importlib.util.find_spec("nvidia") is None:
        pytest.skip("nvrtc is not installed")
    if "stdint.h" in text and not any(map(shutil.which, ("cc", "clang", "gcc"))):
        pytest.skip("there is no C compiler")
    if device == "AMD:gfx90a":
        comgr = pytest.importorskip("hcq.compiler.assemble.comgr")
        if not comgr.available():
            pytest.skip("comgr is not installed")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HCQ_")},
        "PYTHONPATH": str(ROOT),
        "HCQ_CACHE_DIR": str(tmp_path / "cache"),
        "HCQ_VALIDATE": "1",
    }
    if device in EMULATED:
        environment["HCQ_EMULATE"] = EMULATED[device]
    if needs:  # what inspects its source wants a file
        (tmp_path / "program.py").write_text(text)
        words = [sys.executable, "program.py"]
    else:
        words = [sys.executable, "-c", text]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=90, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == SAYS[number]
