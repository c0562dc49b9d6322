"""The README's programs run as printed and say what they should."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def blocks(language: str) -> list[str]:
    """The README's code blocks in one language, in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def output_of(program: str, folder: Path) -> str:
    path = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", path + program],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tensor_example_computes_and_learns(tmp_path: Path) -> None:
    lines = output_of(blocks("python")[0], tmp_path).splitlines()
    assert lines[0] == "[16. 36.]"  # [1+4 + 3+8, 3+8 + 9+16]
    assert float(lines[-1]) < 0.2  # the mean square of the targets is about 1.2


@pytest.mark.skipif(shutil.which("cc") is None, reason="compiles the README's C function: needs cc")
def test_the_raw_example_runs_the_c_function(tmp_path: Path) -> None:
    (source,) = blocks("c")
    (tmp_path / "scale.c").write_text(source, encoding="utf-8")
    subprocess.run(["cc", "-O2", "-c", "scale.c"], cwd=tmp_path, check=True, timeout=30)
    assert output_of(blocks("python")[1], tmp_path) == "(0.0, 0.5, 1.0, 1.5)\n"


def test_the_raw_example_loads_neither_numpy_nor_a_tensor(tmp_path: Path) -> None:
    opened = 'import hcq, sys; hcq.open("CPU").alloc(64)'
    loaded = 'print([name for name in sys.modules if "numpy" in name or "frontend" in name])'
    assert output_of(f"{opened}\n{loaded}", tmp_path) == "[]\n"


def test_the_saved_training_step_goes_on_where_jit_was(tmp_path: Path) -> None:
    both = "\n".join([blocks("python")[0], blocks("python")[2]])
    lines = output_of(
        f"{both}\nprint(loss.read() == step(inputs, targets).numpy().tobytes())", tmp_path
    ).splitlines()
    assert lines[-1] == "True"
