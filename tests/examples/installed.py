"""Examples that are packages: installed as a package manager does it, for processes that then find them.

In       an example's folder and what its pyproject.toml declares
Out      a function that runs Python with it
Changes  a folder of the test's own
Next     test_custom_device.py, test_webgpu_device.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
Run = Callable[..., str]


def installed(folder: Path, example: Path, package: str, kind: str, place: str, **more: str) -> Run:
    """Install an example into a folder; gives what runs Python there.

    kind, place  its entry point: what the device is called, and where its backend is
    more         switches of the environment for every process
    """
    shutil.copytree(example, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    facts = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[hcq.backends]\n{kind} = {place}\n")

    def run(*words: str, **switches: str) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
        paths = {"PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))), "HCQ_TIMEOUT_MS": "300000"}
        done = subprocess.run(
            [sys.executable, *words],
            env={**kept, "HCQ_CACHE_DIR": str(folder / "cache"), **paths, **more, **switches},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=460,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
        return done.stdout

    return run
