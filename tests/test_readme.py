"""The programs of the README and of the page of first programs run as printed and say what they should."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


README, FIRST = "README.md", "docs/first-programs.md"


def blocks(language: str, page: str = FIRST) -> list[str]:
    """A page's code blocks in one language, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
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


def test_the_readmes_trace_is_what_its_program_leaves(tmp_path: Path) -> None:
    (program,) = blocks("python", README)
    (tmp_path / "first.py").write_text(program, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HCQ_CACHE_DIR": str(tmp_path / "cache")}
    environment = {
        name: value for name, value in environment.items() if name not in ("HCQ_EMULATE", "HCQ_DEVICE")
    }
    words = [sys.executable, "first.py"]
    traced = {**environment, "HCQ_TRACE": "first.hcqtrace"}
    done = subprocess.run(words, cwd=tmp_path, env=traced, capture_output=True, text=True, timeout=50)
    assert done.stdout == "[16. 36.]\n", done.stderr
    words = [sys.executable, "-m", "hcq.tools.hcq_trace", "show", "first.hcqtrace"]
    shown = subprocess.check_output(words, cwd=tmp_path, env=environment, text=True, timeout=50)
    (printed,) = blocks("text", README)
    if "device CPU: x86_64" not in shown:
        pytest.skip("the README shows an x86-64 machine")

    def plain(text: str) -> list[str]:
        """Its lines without what differs from run to run, and from machine to machine."""
        text = re.sub(r"model .*?, threads", "model, threads", text.replace(f"{tmp_path}/", ""))
        return re.sub(
            r"\+?\b(0x[0-9a-f]+|[0-9a-f]{16}|\d+\.\d+|process \d+|threads \d+|\d+ bytes)\b", "_", text
        ).splitlines()

    assert plain(printed) == plain(shown)[: len(printed.splitlines())]


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
