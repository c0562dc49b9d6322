"""The one file of hw_check: any Python from 3.10 on runs it, isolated, with no package and an empty home."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hcq.tools import hw_check_file

PACKAGES = ("numpy", "cffi", "_cffi_backend", "llvmlite", "capstone", "elftools", "ioctl_opt", "torch")
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("carried") / "hw_check.pyz"
    assert hw_check_file.main([str(target)]) == 0
    return target


def run(carried: Path, folder: Path, *words: str, python: str = sys.executable) -> tuple[int, str]:
    """The program in an environment of nothing: its status, and what it printed."""
    blocked, temporary = folder / "blocked", folder / "temporary"
    for made in (blocked, temporary, folder / "home"):
        made.mkdir(exist_ok=True)
    for name in PACKAGES:
        (blocked / f"{name}.py").write_text(f'raise ImportError("no {name} here", name="{name}")\n')
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "TMPDIR": str(temporary),
        "PYTHONPATH": str(blocked),
    }
    ended = subprocess.run(
        [python, "-I", str(carried), *words, "-o", str(folder / "report")],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert not list(temporary.iterdir()), "what it unpacks into goes with it"
    return ended.returncode, ended.stdout + ended.stderr


def test_it_is_small_whole_and_the_same_each_time(carried: Path, tmp_path: Path):
    assert carried.stat().st_size < 5_000_000 and os.access(carried, os.X_OK)
    with zipfile.ZipFile(carried) as archive:
        names = set(archive.namelist())
    assert {
        "__main__.py",
        "hcq/tools/hw/kernels.tar.xz",
        "hcq/nv/kernels/sm_90.cubin",
        "hcq/amd/device.py",
        "hcq/ir/__init__.py",
    } <= names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    again = tmp_path / "again.pyz"
    hw_check_file.make(again)
    assert again.read_bytes() == carried.read_bytes()


def test_it_lists_its_checks(carried: Path, tmp_path: Path):
    status, said = run(carried, tmp_path, "--list", "--device", "AMD")
    assert status == 0 and "ladder" in said


@pytest.mark.sampled(1)
@pytest.mark.deadline(120)
@pytest.mark.parametrize("kind, file", [("NV", "/dev/nvidiactl"), ("AMD", "/dev/kfd")])
def test_without_any_package_each_check_comes_as_far_as_the_drivers_file(
    carried: Path, tmp_path: Path, kind: str, file: str
):
    if Path(file).exists():
        pytest.skip(f"{file} is here: the checks would go on")
    status, said = run(
        carried, tmp_path, "--device", kind, "--only", "host,facts,doctor,opening,ladder,try-plain"
    )
    assert status == 1, said
    found = {
        one["name"]: one for one in json.loads((tmp_path / "report" / "report.json").read_text())["checks"]
    }
    assert found["host"]["status"] == "ok"
    for name in ("facts", "opening", "ladder", "try-plain"):
        assert file in found[name]["text"], found[name]
    assert "No module" not in said and "ImportError" not in said
    assert (tmp_path / "report.zip").exists()


@pytest.mark.deadline(120)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_python_runs_it(carried: Path, tmp_path: Path, version: str):
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"no python{version} is here")
    status, said = run(carried, tmp_path, "--device", "NV", "--only", "host,opening", python=python)
    assert status in (0, 1) and "host" in said and "No module" not in said


def test_one_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(hw_check_file, "LIMIT_BYTES", 1000)
    with pytest.raises(ValueError, match="Leave more out"):
        hw_check_file.make(tmp_path / "large.pyz")
    assert not list(tmp_path.iterdir())
