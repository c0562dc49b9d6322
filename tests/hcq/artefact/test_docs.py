"""The page of the format says what the code does: each field, its place, and the program that it shows."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

from hcq.artefact import file as format

ROOT = Path(__file__).parent.parent.parent.parent
PAGE = (ROOT / "docs" / "artefact.md").read_text(encoding="utf-8")


def rows(title: str) -> list[str]:
    """The words in backquotes of the first column, of the table under a heading."""
    table = PAGE[PAGE.index(f"| {title} |") :].split("\n\n")[0]
    return [word for line in table.splitlines()[2:] for word in re.findall(r"`(\w+)`", line.split("|")[1])]


def test_the_page_has_every_field_of_the_head_at_its_place() -> None:
    letters = format.HEAD.format.lstrip("<")
    starts = [struct.calcsize("<" + letters[:at]) for at in (0, 2, 3, 4, 5)]
    assert letters == "8sIIQ32s"
    said = [int(start) for start in re.findall(r"^\| (\d+)\.\.", PAGE, re.MULTILINE)]
    assert said == [*starts, format.HEAD.size]
    assert f"`{format.MAGIC.decode().strip()}\\n`" in PAGE
    assert f"| version | {format.VERSION};" in PAGE


def test_the_page_has_every_key() -> None:
    assert rows("key") == ["name", "made_by", "parameters", "inputs", "outputs", "variants", "blobs"]
    assert sorted(rows("key of a variant")) == sorted(format.Variant._fields)
    assert sorted(rows("key of a launch")) == sorted(format.Launch._fields)


def test_the_programs_of_the_page_run(tmp_path: Path) -> None:
    saving, loading = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for program in (saving, loading):
        path = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        done = subprocess.run([sys.executable, "-c", path + program], cwd=tmp_path, capture_output=True, text=True,
                              timeout=50, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(Spec(name='x', dtype='float32', shape=(8, 4)),)\n")
