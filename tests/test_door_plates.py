"""The law of door plates: a name in the docstring at the top of a file that leads nowhere is found.

`make lint` holds the files of the project to it.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def plates() -> Any:
    """The module of the law."""
    if not (ROOT / ".ci").is_dir():
        pytest.skip("an installed copy has no laws")
    sys.path.insert(0, str(ROOT / ".ci"))
    try:
        return importlib.import_module("plates")
    finally:
        sys.path.remove(str(ROOT / ".ci"))


def names(plates: Any, root: Path) -> list[str]:
    return [name for _, name, _ in plates.missing(root)]


def write(root: Path, **files: str) -> None:
    """`hcq_nv_rings` is hcq/nv/rings.py."""
    for name, text in files.items():
        path = root / (name.replace("_", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def plate(**said: str) -> str:
    return '"""A file.\n\n' + "\n".join(f"{field:8} {text}" for field, text in said.items()) + '\n"""\n'


@pytest.mark.parametrize(
    "name",
    [
        "rings.py",
        "abi/pm4.py",
        "queue.py",
        "hcq/queue.py",
        "../queue.py",
        "ir/op.py",
        "hcq/ir/op.py",
        "abi/",
        "op.py",
    ],
)
def test_a_file_is_found_beside_the_module_above_it_and_on_every_floor(
    plates: Any, tmp_path: Path, name: str
) -> None:
    write(tmp_path, hcq_amd_rings="", hcq_amd_abi_pm4="", hcq_queue="", ir_op="")
    write(tmp_path, hcq_amd_device=plate(In="nothing", Next=f"{name} (what it is)"))
    assert names(plates, tmp_path) == []


@pytest.mark.parametrize("field", ["In", "Out", "Changes", "Next"])
@pytest.mark.parametrize("name", ["pm4.py", "frontend/rings.py", "../rings.py"])
def test_a_file_that_is_not_there_is_named(plates: Any, tmp_path: Path, field: str, name: str) -> None:
    write(
        tmp_path, hcq_amd_rings="", hcq_amd_abi_pm4="", hcq_amd_device=plate(**{field: f"what {name} says"})
    )
    assert names(plates, tmp_path) == [name]


def test_a_folder_has_to_be_there_where_a_plate_leads_to_it_and_nowhere_else(
    plates: Any, tmp_path: Path
) -> None:
    write(tmp_path, hcq_device=plate(Out="reports/ below the current folder", Next="attach/ (who asks)"))
    assert names(plates, tmp_path) == ["attach/"]


def test_a_name_in_backquotes_occurs_in_the_code(plates: Any, tmp_path: Path) -> None:
    write(tmp_path, hcq_queue="class Queue:\n    def submit(self) -> None: ...\n")
    write(tmp_path, hcq_device=plate(In="`Queue.submit`, `x + 1`", Out="`len`, `Walk`, `Queue.later`"))
    assert names(plates, tmp_path) == ["`Walk`", "`Queue.later`"]


def test_mending_writes_where_the_file_is_and_keeps_lines_short(plates: Any, tmp_path: Path) -> None:
    text = plate(Next=f"rings.py (its rings), {'a word ' * 12}and pm4.py")
    write(tmp_path, hcq_amd_device=text + "pm4 = 1  # pm4.py\n", hcq_amd_abi_pm4="", hcq_gpu_rings="")
    for one in plates.missing(tmp_path):
        plates.mend(one)
    assert names(plates, tmp_path) == []
    mended = (tmp_path / "hcq/amd/device.py").read_text()
    assert "hcq/gpu/rings.py (its rings)" in mended and "and abi/pm4.py" in " ".join(mended.split())
    assert max(map(len, mended.splitlines())) <= 120
    assert mended.endswith("pm4 = 1  # pm4.py\n")


def test_a_plate_does_not_say_that_the_file_changes_nothing(plates: Any, tmp_path: Path) -> None:
    write(tmp_path, hcq_ring=plate(Changes="nothing", Next="device.py"), hcq_queue="x = 'Changes  nothing'\n")
    write(tmp_path, hcq_device=plate(Changes="nothing, except that record writes the file"))
    assert list(plates.with_idle_line(tmp_path)) == [tmp_path / "hcq/ring.py"]
    assert plates.IDLE.sub("", plate(Changes="nothing", Next="a.py")) == plate(Next="a.py")


def test_of_two_files_of_one_name_none_is_meant(plates: Any, tmp_path: Path) -> None:
    write(tmp_path, hcq_amd_rings="", hcq_nv_rings="", hcq_queue=plate(Next="rings.py"))
    assert [meant for _, _, meant in plates.missing(tmp_path)] == [""]
