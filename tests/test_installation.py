"""What installing gives: one package `hcq` that works without the checkout and puts nothing else beside it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hcq
from hcq.tools import stubs

ROOT = Path(__file__).parent.parent
# of tools/, what looks at submissions and checks a GPU; benchmarks and the makers of pages stay in a checkout
PROGRAMS = ("__init__", "disassembly", "hcq_trace", "hw", "hw_check", "trace")
SOURCES = ("hcq", "ir", "compiler", "frontend", "tools")


def copy_sources(target: Path) -> Path:
    """What setup.py reads, copied as a clone has it."""
    for name in SOURCES:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target)
    return target


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package installed from a copy of the sources, as pip installs it for a user."""
    pytest.importorskip("setuptools")
    copy, target = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("site")
    copy_sources(copy)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-compile",
    ]
    subprocess.run([*pip, "--target", str(target), str(copy)], check=True, timeout=120, cwd=copy)
    return target


def python(installed: Path, program: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", program]
        if sys.version_info >= (3, 11)
        else [sys.executable, "-c", program],
        env=environment,
        cwd=installed,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.deadline(180)
def test_nothing_but_the_package_lands_beside_other_packages(installed: Path) -> None:
    names = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert names <= {"hcq", "bin"}


def test_every_file_of_the_checkout_is_installed_but_for_tools_of_the_checkout(installed: Path) -> None:
    missing = []
    for top in SOURCES:
        base = installed / "hcq" if top == "hcq" else installed / "hcq" / top
        for source in (ROOT / top).rglob("*"):
            if not source.is_file() or source.parent.name == "__pycache__":
                continue
            if top == "tools" and Path(source.relative_to(ROOT / top).parts[0]).stem not in PROGRAMS:
                continue
            if not (base / source.relative_to(ROOT / top)).is_file():
                missing.append(f"{source.relative_to(ROOT)} (does its folder have an __init__.py?)")
    assert missing == []
    assert {path.stem for path in (installed / "hcq" / "tools").iterdir()} - {"__pycache__"} == {*PROGRAMS}


def test_the_programs_that_come_with_it_start(installed: Path) -> None:
    programs = {path.name for path in (installed / "bin").iterdir()}
    assert programs == {"hcq", "hcq-trace", "hcq-hw-check"}
    for module in ("hcq", "hcq.tools.hcq_trace", "hcq.tools.hw_check"):
        asked = f"import sys, runpy; sys.argv = ['x', '--help']; runpy.run_module({module!r}, run_name='__main__')"
        assert "usage" in python(installed, asked)


def test_one_number_names_the_version_everywhere() -> None:
    project, changes = (ROOT / "pyproject.toml").read_text(), (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r'^version = "(.*)"', project, re.MULTILINE) == [hcq.__version__]
    assert re.findall(r"^## ([\d.]+)", changes, re.MULTILINE)[:1] == [hcq.__version__]


def test_type_checkers_are_told_that_the_package_is_typed(installed: Path) -> None:
    assert (installed / "hcq" / "py.typed").is_file()


def test_stubs_of_what_is_found_late_are_written_by_the_installation(installed: Path) -> None:
    written = {path.relative_to(installed / "hcq").as_posix() for path in (installed / "hcq").rglob("*.pyi")}
    assert written == stubs.stubs().keys()
    assert "    def add_(self, other: Any" in (installed / "hcq/frontend/ops/in_place.pyi").read_text()


def test_the_installed_package_does_not_look_for_a_checkout(installed: Path) -> None:
    where = python(
        installed, "import hcq.ir.node, hcq; print(hcq.ir.node.__file__); print(len(hcq.__path__))"
    )
    path, parts = where.splitlines()
    assert Path(path) == installed / "hcq" / "ir" / "node.py"
    assert parts == "1"


def test_an_editable_install_works_from_the_folder_above_the_clone(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    clone = copy_sources(tmp_path / "hcq")
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=120)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install", "--no-deps"]
    site = subprocess.check_output(
        [python, "-c", "import site; print(site.getsitepackages()[0])"], text=True
    ).strip()
    setuptools = importlib.util.find_spec("setuptools")
    assert setuptools is not None and setuptools.origin is not None
    (Path(site) / "setuptools.pth").write_text(f"{Path(setuptools.origin).parent.parent}\n")
    subprocess.run(
        [*pip, "--no-build-isolation", "--editable", str(clone)], check=True, timeout=120, cwd=tmp_path
    )
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    program = "import hcq, hcq.ir.node as node; print(hcq.__file__, node.__file__); import tools"
    for folder in (tmp_path, clone.parent.parent):
        done = subprocess.run(
            [python, "-c", program], cwd=folder, env=bare, capture_output=True, text=True, timeout=60
        )
        assert done.stdout.split() == [f"{clone}/hcq/__init__.py", f"{clone}/ir/node.py"]
        assert "No module named 'tools'" in done.stderr


REPLAY = """
import hcq, hcq.tools
from hcq.system.call_site import where

device = hcq.open()
buffer = device.alloc(64)
graph = device.graph()
graph.fill(buffer, 1)
for _ in range(2):
    graph.replay({})
device.synchronize()
print(where(device.recent[-1][2]))
"""


@pytest.mark.parametrize("emulated", ["", "amd:gfx1100", "nv:sm_90"])
def test_the_line_of_a_replay_is_the_users_in_an_installed_package_too(
    installed: Path, tmp_path: Path, emulated: str
) -> None:
    kind = emulated.partition(":")[0].upper() or "CPU"
    program = tmp_path / "user.py"
    program.write_text(REPLAY.replace("open()", f"open({kind!r})"))
    environment = {**os.environ, "PYTHONPATH": str(installed), "HCQ_EMULATE": emulated}
    line = subprocess.check_output([sys.executable, program], env=environment, text=True, timeout=60)
    assert line == f"{program}:10 in <module>\n"
