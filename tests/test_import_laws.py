"""The laws of imports are enforced: one that goes up, or sideways, or in a circle, is found and named."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

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
        queue="import hcq.pool",
        pool="",
        ir_node="import hcq.ir.op",
        ir_op="",
        compiler_linear="import hcq.ir.node",
        frontend_run="import hcq.compiler.linear.linearize, hcq.queue, hcq.ir.op",
        tools_show="import hcq.frontend.run, hcq.queue",
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


@pytest.mark.parametrize("hidden", ["import hcq.signal", "def f():\n    import hcq.signal"])
def test_three_files_that_import_each_other_in_a_circle_are_named(tmp_path: Path, hidden: str) -> None:
    done = lint(tmp_path, signal="import hcq.graph", graph="import hcq.program", program="")
    assert done.returncode == 0, done.stdout + done.stderr
    done = lint(tmp_path, program=hidden, memory="import hcq.device", device="import hcq.memory")
    assert done.returncode == 1
    assert "3 files import each other in a circle" in done.stdout
    assert "hcq.program imports hcq.signal" in done.stdout
    assert "hcq.device" not in done.stdout


@pytest.mark.parametrize(
    "hidden",
    [
        'import importlib\nimportlib.import_module("hcq.signal")',
        'def f():\n    __import__("hcq.signal")',
        'PLACE = "hcq.signal:shown"',
        'import sys\nFOUND = sys.modules.get("hcq.signal")',
        'TABLE = {"shown": "signal"}\n\n\ndef f(name):\n    return import_module(f"hcq.{TABLE[name]}")',
        'WORDS = "a signal b".split()\n\n\ndef f(name):\n    return import_module(f"hcq.{name}")',
    ],
)
def test_an_import_that_is_written_as_a_string_closes_a_circle(tmp_path: Path, hidden: str) -> None:
    done = lint(tmp_path, signal="import hcq.graph", graph="import hcq.program", program=hidden)
    assert done.returncode == 1
    assert "3 files import each other in a circle" in done.stdout
    assert "hcq.program imports hcq.signal" in done.stdout


@pytest.mark.parametrize(
    "said",
    [
        '"""See hcq.signal."""\n\n\ndef f():\n    "hcq.signal"',
        'TEXT = "hcq.signal is a file"',
        'signal = 1\nTEXT = f"hcq.{signal}"',
        'NAME = "hcq.signal.shown"',
    ],
)
def test_a_sentence_that_speaks_of_a_module_is_no_import(tmp_path: Path, said: str) -> None:
    done = lint(tmp_path, signal="import hcq.graph", graph="import hcq.program", program=said)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_string_that_names_a_module_of_another_room_breaks_the_law_of_rooms(tmp_path: Path) -> None:
    done = lint(
        tmp_path, amd_rings="", nv_rings='from hcq.config import load\nload("hcq.amd.rings:Ring")', config=""
    )
    assert done.returncode == 1
    assert "hcq.nv.rings:2 imports hcq.amd.rings" in done.stdout
    assert "nv may not import amd" in done.stdout


def test_the_registry_of_devices_may_name_them_by_string_and_no_other_file_may(tmp_path: Path) -> None:
    table = 'PLACES = {"NV": "hcq.nv.backend:BACKEND"}'
    parts = {"nv_backend": 'DEVICE = "hcq.nv.device:Device"', "nv_device": "import hcq.queue", "queue": ""}
    done = lint(tmp_path, backends=table, **parts)
    assert done.returncode == 0, done.stdout + done.stderr
    done = lint(tmp_path, opening=table)
    assert "hcq.opening:1 imports hcq.nv.backend" in done.stdout


AGAINST_THE_LAW = [
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
]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is said of a package that has all these imports, and no other."""
    modules = {name: "" for pair in AGAINST_THE_LAW for name in pair}
    for importer, imported in AGAINST_THE_LAW:
        modules[importer] += f"import {module(imported)}\n"
    done = lint(tmp_path_factory.mktemp("package"), **modules)
    assert done.returncode == 1
    return done.stdout


@pytest.mark.parametrize(("importer", "imported"), AGAINST_THE_LAW)
def test_an_import_that_the_law_does_not_allow_is_named(told: str, importer: str, imported: str) -> None:
    assert re.search(rf"\b{module(importer)}:\d+ imports {module(imported)}\b", told)


def module(name: str) -> str:
    """`ir_node` is hcq.ir.node."""
    return "hcq." + name.replace("_", ".")


def laws(name: str = "circles") -> object:
    """The module of a law."""
    pytest.importorskip("importlinter", reason="checks the import checker: make lint installs it")
    sys.path.insert(0, str(ROOT / ".ci"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / ".ci"))


def test_a_known_circle_may_shrink_and_may_not_grow() -> None:
    circles: Any = laws()
    known = [circles.known_of("3 in hcq.a hcq.b.c: they are one idea")]
    three, four = {"hcq.a", "hcq.a.x", "hcq.b.c"}, {"hcq.a", "hcq.a.x", "hcq.b.c", "hcq.a.y"}
    assert circles.unknown([three], known) == ([], [])
    assert circles.unknown([four], known)[0] == [four]
    assert circles.unknown([{"hcq.a", "hcq.a.x", "hcq.b"}], known)[0] == [{"hcq.a", "hcq.a.x", "hcq.b"}]
    assert circles.unknown([], known)[1][0][2] == "it is gone; remove the line"


def test_a_line_stands_for_one_circle_only() -> None:
    circles: Any = laws()
    one, other = {"hcq.a", "hcq.b", "hcq.c"}, {"hcq.d", "hcq.e", "hcq.f"}
    rest, _ = circles.unknown([one, other], [circles.known_of("3 in hcq: one of them is known")])
    assert len(rest) == 1


@pytest.mark.parametrize("line", ["3 in hcq.a", "hcq.a: why", "three in hcq.a: why", "3 in hcq.a:"])
def test_a_circle_is_known_only_with_its_size_and_a_reason(line: str) -> None:
    circles: Any = laws()
    with pytest.raises(ValueError, match="write"):
        circles.known_of(line)


def test_a_room_may_not_be_allowed_one_whose_line_stands_below_its_own() -> None:
    rooms: Any = laws("rooms")
    rooms.refuse_disorder(
        {"ir": set(), "frontend.core": {"ir"}, "tools": {"*"}, "frontend.run": {"frontend.core"}}
    )
    with pytest.raises(ValueError, match=r"frontend\.core stands on rooms whose lines are below its own: ir"):
        rooms.refuse_disorder({"frontend.core": {"ir"}, "ir": set()})
