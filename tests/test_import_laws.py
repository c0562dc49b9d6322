"""The laws of imports are enforced: one that goes up, or sideways, or in a circle, is found and named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def lint(tmp_path: Path, **modules: str) -> subprocess.CompletedProcess[str]:
    """Check a package `hcq` of these modules (`ir_node` is hcq/ir/node.py) against our contracts."""
    pytest.importorskip("importlinter", reason="checks the import checker: make lint installs it")
    for name, text in modules.items():
        path = tmp_path / "hcq" / (name.replace("_", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
        for folder in path.parents:
            if folder.is_relative_to(tmp_path / "hcq"):
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
        frontend_tensor="import hcq.compiler.linear.linearize, hcq.queue, hcq.ir.op",
        tools_show="import hcq.frontend.tensor, hcq.queue",
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_driver_and_its_emulation_stand_side_by_side_on_what_the_vendor_declares(tmp_path: Path) -> None:
    done = lint(
        tmp_path,
        queue="",
        gpu_graph="import hcq.queue",
        nv_abi_qmd="import hcq.queue",
        nv_rings="import hcq.gpu.graph, hcq.nv.abi.qmd",
        emu_nv_gpu="import hcq.nv.abi.qmd",
        metal_queue="import hcq.gpu.graph, hcq.queue",
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("hidden", ["import hcq.checks", "def f():\n    import hcq.checks"])
def test_three_files_that_import_each_other_in_a_circle_are_named(tmp_path: Path, hidden: str) -> None:
    done = lint(tmp_path, checks="import hcq.config", config="import hcq.private", private="")
    assert done.returncode == 0, done.stdout + done.stderr
    done = lint(tmp_path, private=hidden, cache="import hcq.elf", elf="import hcq.cache")
    assert done.returncode == 1
    assert "3 files import each other in a circle" in done.stdout
    assert "hcq.private imports hcq.checks" in done.stdout
    assert "hcq.elf" not in done.stdout


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
        ("queue", "nv_rings"),
        ("queue", "observe_report"),
        ("queue", "emu_backing"),
        ("queue", "metal_queue"),
        ("nv_rings", "amd_rings"),
        ("nv_rings", "emu_backing"),
        ("nv_rings", "rules_launches"),
        ("amd_rings", "doctor_checks"),
        ("nv_abi_qmd", "nv_rings"),
        ("emu_nv_gpu", "nv_rings"),
        ("emu_nv_gpu", "amd_abi_pm4"),
        ("metal_queue", "cpu_encode"),
        ("gpu_graph", "nv_rings"),
    ],
)
def test_an_import_that_the_law_does_not_allow_is_named(tmp_path: Path, importer: str, imported: str) -> None:
    target = "hcq." + imported.replace("_", ".")
    done = lint(tmp_path, **{imported: "", importer: f"import {target}"})
    assert done.returncode == 1
    assert f"hcq.{importer.replace('_', '.')}:1 imports {target}" in done.stdout
