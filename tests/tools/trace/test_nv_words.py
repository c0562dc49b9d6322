"""Words of NVIDIA's channels: launch descriptions and ring entries are recognised in every form of hex."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hcq.amd.abi import pm4
from hcq.nv.abi.gpfifo import GpControl, GpEntry, GpOpcode
from hcq.nv.abi.qmd import versions
from hcq.tools.trace import hex_text, nv_words, readers
from hcq.tools.trace.color import Color
from tests.tools.trace.conftest import Done

ARCHES = ("sm_80", "sm_90", "sm_100")
ENTRIES = [
    *GpEntry(get=0x7F2000000000 & (1 << 40) - 1, length=0x120).words,
    *GpEntry(get=0x2000000480, length=12).words,
    *GpControl(opcode=GpOpcode.NOP).words,
    *GpEntry(get=0x2000000500, length=4).words,
]


def description(version: int, **more: int) -> list[int]:
    layout = versions()[version]
    values = {"grid_width": 8, "grid_height": 1, "grid_depth": 1, "register_count": 40,
              "qmd_major_version": layout.version, "cta_thread_dimension0": 64,
              "cta_thread_dimension1": 1, "cta_thread_dimension2": 1}  # fmt: skip
    return list(layout.launch(**{**values, **more}).words)


def hexdump(words: Sequence[int]) -> str:
    data = b"".join(word.to_bytes(4, "little") for word in words)
    return "\n".join(f"{at:08x}  {data[at : at + 16].hex(' ')}" for at in range(0, len(data), 16))


FORMS: list[Callable[[Sequence[int]], str]] = [
    lambda words: "\n".join(
        " ".join(f"{word:08x}" for word in words[at : at + 4]) for at in range(0, len(words), 4)
    ),
    lambda words: ", ".join(f"0x{word:x}" for word in words),
    hexdump,
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("version", range(3))
def test_a_launch_description_is_recognised_in_every_form(
    version: int, form: Callable[[Sequence[int]], str], tmp_path: Path, trace: Callable[..., Done]
) -> None:
    path = tmp_path / "qmd.txt"
    path.write_text(form(description(version)))
    done = trace("decode", path)
    assert done.status == 0 and f"; qmd of {ARCHES[version]}; by the look of it" in done.out
    data = json.loads(trace("decode", path, "--json").out)
    assert (data["form"], data["arch"]) == ("qmd", ARCHES[version])
    assert data["packets"][0]["packet"] == versions()[version].__name__


@pytest.mark.parametrize("words", [description(0) * 2, description(1) * 3])
def test_several_launch_descriptions_are_read_one_behind_the_other(words: list[int]) -> None:
    reading = readers.find(FORMS[0](words).encode(), readers.Wanted())
    assert reading is not None
    packets = reading.as_json()["packets"]
    assert len(packets) == (2 if len(words) == 128 else 3)


@pytest.mark.parametrize("form", FORMS)
def test_entries_of_a_ring_are_recognised_in_every_form(form: Callable[[Sequence[int]], str]) -> None:
    reading = readers.find(form(ENTRIES).encode(), readers.Wanted())
    assert reading is not None
    data = reading.as_json()
    assert data["form"] == "gpfifo"
    assert [one["packet"] for one in data["packets"]] == ["GpEntry", "GpEntry", "GpControl", "GpEntry"]
    assert data["packets"][1]["fields"]["get"] == 0x2000000480


def test_what_is_named_is_taken_whatever_it_looks_like(trace: Callable[..., Done], tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("00000000 00000000 00000004 00000008 1")
    assert "GpControl" in trace("decode", path, "--form", "gpfifo").out
    path.write_text(FORMS[0](description(1, register_count=0)))
    assert "QmdV4" in trace("decode", path, "--form", "qmd").out
    path.write_text("20018000 0000c8b5")
    assert "SET_OBJECT" in trace("decode", path, "--form", "pushbuffer").out
    path.write_text("nothing here")
    failed = trace("decode", path, "--form", "qmd")
    assert failed.status == 2 and "no words in this text" in failed.err


def test_an_entry_that_is_cut_is_shown_as_such(trace: Callable[..., Done], tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text(FORMS[0](ENTRIES[:5]))
    assert "no whole packet" in trace("decode", path, "--form", "gpfifo").out


@pytest.mark.parametrize(
    "words",
    [
        list(pm4.WriteData(address=0x7F0000001000, data=[1, 2]).words) * 2,
        [0] * 64,
        [0x20018000, 0x1234],  # of no class that is known
        [0x20018000, 0xC8B5, 0x20032000, 0xCBC0],  # a push that is cut
        [0x20022010, 1],
        [*ENTRIES, 0x80000000, 0x80000001],
        description(0)[:-1],
        description(0, register_count=0),
    ],
)
def test_other_words_are_not_taken_for_those_of_a_channel(words: list[int]) -> None:
    assert nv_words.find(words) is None


@pytest.mark.parametrize(
    ("words", "arch"),
    [
        ([0x20018000, 0xC8B5, 0x20012000, 0xCBC0], "sm_90"),
        ([0x20012000, 0xC7C0], "sm_86"),
        ([0x20012000, 0xCEC0, 0x80000100], "sm_120"),
        ([0x20050017, 0x1000, 0, 1, 0, 0x1001, 0x80010009], "sm_90"),  # semaphores of the host: all are known
    ],
)
def test_a_pushbuffer_is_known_by_the_classes_that_it_sets_or_by_its_methods(
    words: list[int], arch: str
) -> None:
    assert nv_words.find(words) == nv_words.Found("pushbuffer", arch, True)
    reading = readers.find(" ".join(f"{word:08x}" for word in words).encode(), readers.Wanted())
    assert reading is not None and reading.as_json()["form"] == "pushbuffer"


@pytest.mark.parametrize("seed", range(60))
def test_damaged_words_are_read_or_left_to_others(seed: int) -> None:
    rng = random.Random(seed)
    words = list(rng.choice((ENTRIES, description(seed % 3))))
    for _ in range(rng.randrange(1, 9)):
        words[rng.randrange(len(words))] ^= 1 << rng.randrange(32)
    text = FORMS[seed % 3](words)
    text = text[: rng.randrange(len(text))] if seed % 2 else text
    wanted = readers.Wanted(rng.choice(("", "qmd", "gpfifo", "pushbuffer")))
    if not hex_text.read(text.encode()).words:
        return
    reading = readers.find(text.encode(), wanted)
    if reading is not None:
        assert list(reading.lines(Color(False)))
        json.loads(json.dumps(reading.as_json()))
