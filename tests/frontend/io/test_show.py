"""`hcq show` says what is in a file of a stranger, and nothing in the file reaches the terminal but as text."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from hcq.__main__ import main
from tests.frontend.io.test_promise import gguf, pt

KEY = "k\x1b]0;title\x07\x1b[31m"


def safetensors() -> bytes:
    words = {"__metadata__": {KEY: KEY}, KEY: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    header = json.dumps(words).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


FILES = {
    "x.gguf": gguf((KEY.encode(), struct.pack("<II", 4, 1))),
    "x.safetensors": safetensors(),
    "x.pt": pt(b"\x80\2}X" + struct.pack("<I", len(KEY)) + KEY.encode() + b"](K\1X\1\0\0\0\x1bes."),
}


@pytest.mark.parametrize("name", FILES)
def test_control_characters_of_a_file_are_spelled_out(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    assert main(["show", str(tmp_path / name)]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said and "\x07" not in said
    assert r"k\x1b]0;title\x07\x1b[31m" in said


def test_an_integer_of_very_many_digits_is_said_by_its_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.pt").write_bytes(
        pt(b"\x80\2}X\1\0\0\0a\x8b" + struct.pack("<I", 9000) + b"\x7f" * 9000 + b"s.")
    )
    for words in (["show"], ["show", "--json"]):
        assert main([*words, str(tmp_path / "x.pt")]) == 0
        assert "a number of 71,999 bits" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["show", "llm", "run", "onnx"])
def test_a_file_that_is_not_there_is_one_sentence(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "absent.gguf"]) == 2
    said = capsys.readouterr().err
    assert "absent.gguf" in said and len(said.splitlines()) == 1


def test_a_file_that_may_not_be_read_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a" / "b" / "x.npy"
    path.parent.parent.mkdir()
    path.parent.symlink_to("b")  # a link to itself, which root may not follow either
    assert main(["show", str(path)]) == 2
    assert "Too many levels of symbolic links" in capsys.readouterr().err
