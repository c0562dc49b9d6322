"""Programs of a page of docs/: each runs in a process of its own, on the device and with the tool that it names.

In       a page; lines `# device: NV` and `# tool: nvrtc` at the top of a block
Out      `programs`; `output`: what one prints, or a skip that names the tool that is not here
Changes  a folder, in which the program runs
Next     test_custom_operations_page.py, test_images_page.py
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```python\n# device: (\S+)\n(?:# tool: (\S+)\n)?(.*?)```", re.DOTALL)
EMULATED = {"AMD": "amd:gfx1100", "NV": "nv:sm_90", "METAL": "metal:m3", "AMD:gfx90a": "amd:gfx90a"}
PACKAGES = {"nvrtc": "nvidia", "triton": "triton"}


class PageProgram(NamedTuple):
    """A block of a page. tool: what must be installed, "" for nothing."""

    device: str
    tool: str
    text: str


def programs(page: str) -> list[PageProgram]:
    """All programs of a page, each of which says its device."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = [PageProgram(*parts) for parts in BLOCK.findall(text)]
    assert len(found) == text.count("```python")
    return found


def output(program: PageProgram, folder: Path) -> str:
    """What it prints. Skips where its tool is not here; fails where it ends with an error."""
    if not _is_here(program.tool):
        pytest.skip(f"{program.tool} is not installed")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
    environment = {
        **kept,
        "PYTHONPATH": str(ROOT),
        "HCQ_CACHE_DIR": str(folder / "cache"),
        "HCQ_VALIDATE": "1",
    }
    environment["TRITON_CACHE_DIR"] = str(folder / "triton")
    if program.device in EMULATED:
        environment["HCQ_EMULATE"] = EMULATED[program.device]
    (folder / "program.py").write_text(program.text, encoding="utf-8")  # Triton reads its kernels from a file
    words = [sys.executable, "program.py"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=90, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _is_here(tool: str) -> bool:
    if not tool:
        return True
    if tool in PACKAGES:
        return importlib.util.find_spec(PACKAGES[tool]) is not None
    if tool == "comgr":
        from hcq.compiler.assemble import comgr

        return comgr.available() and any(name.startswith("gfx90a") for name in comgr.architectures())
    return shutil.which(tool) is not None
