"""The notebooks run from top to bottom, and are kept with what they print."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
# what a reader is to see somewhere in what a notebook prints
SHOWN = {
    "1-first-steps": (
        "dtype=float32, device=CPU, lazy",
        "kernels in one submission",
        "[jit] item while <lambda>",
    ),
    "2-tensor-to-packets": ("dot_64x10_from_64", "EM_X86_64", "Dispatch(", "timeline = ", "sum_64_from_10:"),
    "3-digits": ("test accuracy", "<svg", "<polyline"),
    "4-transforms": ("[1.0, 1.0]", "'weight': (5, 1, 3)", "[vmap] the function needs values"),
    "5-a-fault": (
        "gfx1100",
        "DispatchDirect",
        "page fault: write of 16 bytes",
        "live buffers",
        "cannot be used",
    ),
    "6-a-race": (
        "shared-race in turn",
        "with no barrier between",
        "right: False",
        "right: [True, True] findings: []",
    ),
    "7-the-debugger": (
        "by div.rn.f32 %f5, %f2, %f3",
        "by setp.eq.u32 %p1, %r3, 70",
        "(in the past): warp 2 of softmax",
    ),
}


def name(path: Path) -> str:
    return path.stem


def cells(path: Path, kind: str) -> list[Any]:
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == kind]


def test_every_notebook_is_known_and_in_the_list() -> None:
    assert [path.stem for path in NOTEBOOKS] == [*SHOWN]
    listed = re.findall(r"\]\(([\w-]+)\.ipynb\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert listed == [*SHOWN]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_notebook_is_kept_with_its_outputs_and_its_links_lead_somewhere(path: Path) -> None:
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]  # tools/notebooks.py
    for cell in code:
        ast.parse("".join(cell["source"]))
    shown = json.dumps([cell["outputs"] for cell in code], ensure_ascii=False)
    assert [text for text in SHOWN[path.stem] if json.dumps(text)[1:-1] not in shown] == []
    assert str(FOLDER.parent.parent) not in shown
    links = re.findall(r"\]\(([^)]+)\)", "".join("".join(cell["source"]) for cell in cells(path, "markdown")))
    assert [link for link in links if not (FOLDER / link).exists()] == []


@pytest.mark.thorough
@pytest.mark.own_devices
@pytest.mark.deadline(300)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_notebook_runs_and_shows_what_it_speaks_of(path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="runs notebooks: make notebooks")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel", reason="runs notebooks: make notebooks")
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    ).execute()
    shown = json.dumps([cell.get("outputs", []) for cell in book.cells], ensure_ascii=False)
    assert [text for text in SHOWN[path.stem] if json.dumps(text)[1:-1] not in shown] == []
