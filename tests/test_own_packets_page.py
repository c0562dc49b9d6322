"""The programs of the page on packets of one's own run as printed, and say what they should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "own-packets.md").read_text(encoding="utf-8")
WRITTEN = "2800000002000000"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SAYS = [
    [WRITTEN + " WriteData(dst_sel=MEMORY, address=0x", "data=[00000028 00000002])"],
    [WRITTEN],
    [WRITTEN],
    [WRITTEN],
    [WRITTEN],
    [WRITTEN],
    ["packets AtomicMem on the compute ring", "1", "True"],
    ["SetShReg(MyControl(enable=1, depth=3))"],
    [],  # of a rule: below
    [WRITTEN],
    [WRITTEN],
]
A_RULE = 8


def test_every_program_of_the_page_is_run() -> None:
    assert len(BLOCKS) == len(SAYS)


@pytest.mark.parametrize("validate", ["0", "1"])
@pytest.mark.parametrize("number", range(len(SAYS)))
def test_a_program_of_the_page_says_what_it_should(number: int, validate: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HCQ_CACHE_DIR": str(tmp_path),
        "HCQ_EMULATE": "amd:gfx1100,nv:sm_90",
        "HCQ_VALIDATE": validate,
    }
    words = [sys.executable, "-c", BLOCKS[number]]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    says = [*SAYS[number]]
    if number == A_RULE:
        refused = (
            "[write-data-aligned] submission #1 of AMD",
            "is no multiple of 8. Align the address. Word 0: WriteData(",
        )
        says += refused if validate == "1" else ["HCQ_VALIDATE is not set"]
    assert [text for text in says if text not in done.stdout] == [], done.stdout
