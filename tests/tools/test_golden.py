"""Golden kernels: the command compares, renews and refuses as its help says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hcq import Tensor
from hcq.ir.dtype import dtypes
from hcq.tools import golden
from hcq.tools.golden_programs import PROGRAMS
from hcq.tools.golden_text import EMULATED, TARGETS, texts_of

ONE = ("row_sum", "x86-64-v3", "--no-counters", "--jobs", "1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert golden.main(["update", *ONE, "--folder", str(tmp_path)]) == 0
    return tmp_path


def test_what_was_just_written_is_as_reviewed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert golden.main(["check", *ONE, "--folder", str(folder)]) == 0
    assert "as reviewed" in capsys.readouterr().out


def test_a_kernel_that_changed_is_shown_as_a_diff(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "x86-64-v3" / "row_sum.txt"
    path.write_text(path.read_text().replace("-- schedule\n", "-- schedule\nreverse r0; "))
    assert golden.main(["check", *ONE, "--folder", str(folder)]) == 1
    said = capsys.readouterr().out
    assert "-reverse r0; " in said
    assert "golden.py update" in said


def test_machine_code_of_another_toolchain_is_not_compared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "x86-64-v3" / "row_sum.txt"
    head, _, rest = path.read_text().partition("\n")
    path.write_text(f"toolchain another\n{rest.replace('instructions, ', 'instructions or so, ')}")
    assert golden.main(["check", *ONE, "--folder", str(folder)]) == 0
    assert f"another made them, here it is {head.removeprefix('toolchain ')}" in capsys.readouterr().out
    path.write_text(f"toolchain another\n{rest.replace('groups', 'heaps')}")
    assert golden.main(["check", *ONE, "--folder", str(folder)]) == 1


def test_a_kernel_that_nobody_wrote_down_is_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert golden.main(["check", *ONE, "--folder", str(tmp_path)]) == 1
    assert "does not exist" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["check", "nothing"], ["show", "softmax", "gfx1"]])
def test_unknown_names_are_answered_with_the_known_ones(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert golden.main(words) == 2
    assert "there are" in capsys.readouterr().err


def test_every_target_has_every_program() -> None:
    found = {path.parent.name: set() for path in golden.FOLDER.glob("*/*.txt") if path.parent.name in TARGETS}
    for path in golden.FOLDER.glob("*/*.txt"):
        if path.parent.name in TARGETS:
            found[path.parent.name].add(path.stem)
    assert found == {name: set(PROGRAMS) for name in TARGETS}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "ragged"])
def test_products_keep_everything_in_registers(dtype: str) -> None:
    """The files say what LLVM and ptxas say."""
    for target in EMULATED:
        text = (golden.FOLDER / target / f"matmul_{dtype}.txt").read_text()
        for said in re.findall(
            r"spilled vector registers (\d+)|(\d+) bytes spilled|scratch bytes (\d+)", text
        ):
            assert not any(int(number) for number in said if number), target


def test_a_kernel_of_another_architecture_is_compiled_on_any_machine() -> None:
    (kernel,) = texts_of("transpose", "aarch64", counted=False)
    assert "ret" in kernel.texts["code"].split()


def test_what_a_target_cannot_do_is_written_down_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROGRAMS, "wide", lambda: Tensor.ones(8, dtype=dtypes.float64).contiguous() * 2)
    (kernel,) = texts_of("wide", "apple9", counted=False)
    assert kernel.texts["refused"].startswith("float64: Metal's GPUs have no numbers of that size")
    (kernel,) = texts_of("wide", "x86-64-v3", counted=False)
    assert "refused" not in kernel.texts


def test_the_msl_of_a_program_is_shown_as_it_is() -> None:
    (kernel,) = texts_of("transpose", "apple9", counted=False)
    assert kernel.toolchain == "MSL, for Apple's compiler"
    assert list(kernel.texts) == ["kernel", "schedule", "launch", "source"]
    assert "kernel void copy" in kernel.texts["source"]
