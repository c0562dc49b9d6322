"""The law of the floors is enforced: an import that goes up, or sideways, is found and named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def lint(tmp_path: Path, **modules: str) -> subprocess.CompletedProcess[str]:
    """Check a package `hcq` of these modules (`ir_node` is hcq/ir/node.py) against our contract."""
    pytest.importorskip("importlinter", reason="checks the import checker: make lint installs it")
    for name, text in modules.items():
        path = tmp_path / "hcq" / (name.replace("_", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
        for folder in (path.parent, tmp_path / "hcq"):
            (folder / "__init__.py").touch()
    program = Path(sys.executable).with_name("lint-imports")
    assert program.is_file() or shutil.which("lint-imports")
    return subprocess.run(
        [str(program), "--config", str(ROOT / "pyproject.toml"), "--no-cache", "--no-logo"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".ci")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_imports_downwards_and_within_a_floor_are_kept(tmp_path: Path) -> None:
    done = lint(
        tmp_path,
        queue="import hcq.memory",
        memory="",
        ir_node="import hcq.ir.op",
        ir_op="",
        compiler_linear="import hcq.ir.node",
        frontend_tensor="import hcq.compiler.linear, hcq.queue, hcq.ir.op",
        tools_show="import hcq.frontend.tensor, hcq.queue",
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("ir_node", "queue"),
        ("ir_node", "compiler_linear"),
        ("queue", "ir_node"),
        ("queue", "frontend_tensor"),
        ("compiler_linear", "queue"),
        ("compiler_linear", "frontend_tensor"),
        ("frontend_tensor", "tools_show"),
    ],
)
def test_an_import_that_the_law_does_not_allow_is_named(tmp_path: Path, importer: str, imported: str) -> None:
    target = "hcq." + imported.replace("_", ".")
    done = lint(tmp_path, **{imported: "", importer: f"import {target}"})
    assert done.returncode == 1
    assert f"hcq.{importer.replace('_', '.')}:1 imports {target}" in done.stdout
