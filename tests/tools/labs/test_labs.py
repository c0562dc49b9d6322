"""Each lab is wrong as it begins, in words that lead on; half a solution is still wrong, and a whole one is right."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import pytest

from hcq.tools.labs.command import EXERCISES, main
from hcq.tools.labs.labs import LABS

Change = tuple[str, str]
# of each lab: what the checker says at first; half a solution, and what is said then; the rest of it
SOLVED: dict[int, tuple[str, Sequence[Change], str, Sequence[Change]]] = {
    1: (
        "waits for signal ready of NV to be 2, which is 1",
        [("signal(ready, 1)", "signal(ready, 0)")],
        "the queue hangs",
        [("signal(ready, 0)", "signal(ready, 2)")],
    ),
    2: (
        "with no s_waitcnt vmcnt(0) between",
        [("    v_mul_lo_u32", "    s_waitcnt lgkmcnt(0)\n    v_mul_lo_u32")],
        "[missing-wait] v2 is used before its load is done",
        [("    s_waitcnt lgkmcnt(0)\n    v_mul_lo_u32", "    s_waitcnt vmcnt(0)\n    v_mul_lo_u32")],
    ),
    3: (
        "[shared-race] a race on byte 512",
        [("        __syncthreads();\n    }", "    }"), ("        if (", "        __syncthreads();\n        if (")],
        "sum.cu:10]",
        [("    out[t]", "    __syncthreads();\n    out[t]")],
    ),
    4: (
        "992 of the 1056 visits to shared memory",
        [("tile[32][32]", "tile[32][40]")],
        "visits to shared memory are there because two words lie in one bank",
        [("tile[32][40]", "tile[32][33]")],
    ),
    5: (
        "n=1: [buffer-overrun]",
        [("max(n // 256, 1)", "(n + 255) // 256")],
        "[buffer-overrun]",
        [("i <= n", "i < n")],
    ),
    6: (
        "the kernel's descriptor asks for 8 vector registers",
        [("next_free_vgpr 8", "next_free_vgpr 13"), ("accum_offset 8", "accum_offset 16")],
        "[shared-beyond]",
        [("fixed_size 256", "fixed_size 1024")],
    ),
}  # fmt: skip


def needs(number: int) -> None:
    """Skip a lab whose compiler is not here."""
    from hcq.compiler.assemble import comgr

    if LABS[number].needs.startswith("nvrtc") and importlib.util.find_spec("nvidia") is None:
        pytest.skip(LABS[number].needs)
    if LABS[number].needs.startswith("comgr") and not (
        comgr.available() and "gfx90a" in comgr.architectures()
    ):
        pytest.skip(LABS[number].needs)


@pytest.mark.parametrize("number", LABS)
@pytest.mark.sampled(3)
def test_a_lab_is_wrong_at_first_and_with_half_a_solution_and_right_with_a_whole_one(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needs(number)
    monkeypatch.chdir(tmp_path)
    first, half, second, rest = SOLVED[number]
    assert main(["start", str(number)]) == 0
    file = tmp_path / LABS[number].file
    for changes, wanted, status in (((), first, 1), (half, second, 1), (rest, LABS[number].learned, 0)):
        text = file.read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        file.write_text(text)
        capsys.readouterr()
        assert main(["check", str(number)]) == status
        said = capsys.readouterr().out
        assert wanted in said and said.startswith("still wrong: " if status else "right. ")


def test_a_file_that_breaks_says_how_and_start_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "hang.py"
    for text, wanted in (
        (
            "def run(dev, a, b, c):\n    a.nothing()",
            "AttributeError: 'Buffer' object has no attribute 'nothing'",
        ),
        ("", "the file defines no run"),
        ("def run(dev, a, b, c):\n    pass", "b: 255 of 256 numbers are wrong; number 1 is 0, not 1"),
        ("def run(", "SyntaxError"),
    ):
        file.write_text(text)
        assert main(["check", "1"]) == 1
        assert wanted in capsys.readouterr().out
    assert main(["start", "1"]) == 2 and file.read_text() == "def run("
    assert main(["check", "1", "none.py"]) == 2
    assert main([]) == 0
    assert {path.name for path in EXERCISES.glob("[!_]*.py")} == {lab.file for lab in LABS.values()}


# of lab 1, which a device in a good mood runs rightly all the same: what changes, and what is said of it
LUCKY: dict[str, tuple[Sequence[Change], str]] = {
    "no wait": ([(".wait(ready, 2)", "")], "nothing makes the second copy wait"),
    "a value that it has at first": ([("wait(ready, 2)", "wait(ready, 0)")], "nothing makes the second copy wait"),
    "set before the copy": (
        [(".copy(b, a, a.size_bytes).signal(ready, 1)", ".signal(ready, 2).copy(b, a, a.size_bytes)")],
        "nothing makes the second copy wait",
    ),
    "waited for behind the copy": (
        [(".wait(ready, 2).copy(c, b, b.size_bytes)", ".copy(c, b, b.size_bytes).wait(ready, 1)")],
        "nothing makes the second copy wait",
    ),
    "one queue": (
        [
            (".submit()\n    done = dev.queue().wait(ready, 2)", ".wait(ready, 1)"),
            ("dev.queue().copy(b", "done = dev.queue().copy(b"),
        ],
        "both copies are in one queue",
    ),
    "the host waits": ([("    done = dev.queue().wait(ready, 2)", "    ready.wait(1)\n    done = dev.queue()")], ""),
    "higher values": ([("signal(ready, 1)", "signal(ready, 5)"), ("wait(ready, 2)", "wait(ready, 3)")], ""),
}  # fmt: skip


@pytest.mark.parametrize("answer", LUCKY)
def test_a_queue_that_is_not_made_to_wait_is_wrong_however_the_copies_come_out(
    answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, wanted = LUCKY[answer]
    text = (EXERCISES / "hang.py").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "mine.py").write_text(text)
    assert main(["check", "1", str(tmp_path / "mine.py")]) == bool(wanted)
    assert (f"still wrong: {wanted}" if wanted else "right. ") in capsys.readouterr().out


@pytest.mark.parametrize("end", ["sys.exit(0)", "raise SystemExit", "print('[]', flush=True) or os._exit(0)"])
def test_a_file_that_ends_its_check_is_wrong(
    end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(f"import os, sys\ndef run(dev, a, b, c):\n    {end}\n")
    assert main(["check", "1", str(tmp_path / "mine.py")]) == 1
    assert "still wrong: " in capsys.readouterr().out


def test_a_sum_with_twice_the_barriers_is_told_how_few_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs(3)
    text = (
        (EXERCISES / "race.py").read_text().replace("        if (", "        __syncthreads();\n        if (")
    )
    (tmp_path / "mine.py").write_text(text)
    assert main(["check", "3", str(tmp_path / "mine.py")]) == 1
    assert "each warp comes to 16 barriers; 9 do" in capsys.readouterr().out


def test_numbers_that_are_not_loaded_are_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs(2)
    text = (EXERCISES / "wait.py").read_text().replace("v_mul_lo_u32 v3, v2, 3", "v_mul_lo_u32 v3, v0, 3")
    (tmp_path / "mine.py").write_text(text)
    assert main(["check", "2", str(tmp_path / "mine.py")]) == 1
    assert "out: 256 of 256 numbers are wrong" in capsys.readouterr().out
