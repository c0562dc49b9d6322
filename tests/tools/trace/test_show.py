"""show: a person, or a program, reads what was submitted."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hcq.command import Signal, Wait
from hcq.errors import UsageError
from hcq.tools.trace.color import Color, clean
from hcq.tools.trace.show import submission_range
from hcq.trace.records import Kind
from tests.tools.trace.making import CELL, TIMELINE, Maker


def test_kernels_buffers_arguments_and_numbers_are_named(trace, capsule):
    text = trace("show", capsule).out
    assert "device CPU: " in text
    assert "Fill      4096 bytes at out with 0x0000000000000000" in text
    assert "Dispatch  one step(out, -3) grid=(1,1,1)" in text
    assert "Dispatch  mixed(other, 1.5, 2, 3.5, 4, 5, 6, 7, 88, 9.25) grid=(1,1,1)" in text
    assert "Signal    timeline = 1" in text
    assert "Indirect  twice: 48 words" in text
    assert "    0 Dispatch  one step(other, 5)" in text
    assert "   24 Dispatch  one step(out, 6)" in text
    assert "Wait      gate >= 1" in text
    assert "Copy      16 bytes other -> out+0x20" in text
    assert "the host set gate = 1" in text
    assert "<string>:" in text  # the line of the program


def test_a_graphs_second_replay_shows_its_own_arguments(trace, capsule):
    text = trace("show", capsule, "--submission", "4").out
    assert "one step(out, 5)" in text
    assert "one step(out, 7)" in text


def headers(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line.startswith("#")]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--device", "CPU"], ["#1", "#2", "#3", "#4"]),
        (["--device", "cpu", "--queue", "MAIN"], ["#1", "#2", "#3", "#4"]),
        (["--device", "AMD"], []),
        (["--queue", "copy"], []),
        (["--kernel", "step"], ["#1", "#2", "#4"]),
        (["--kernel", "mixed"], ["#1"]),
        (["--kernel", "nothing"], []),
        (["--submission", "3"], ["#3"]),
        (["--submission", "2..3"], ["#2", "#3"]),
        (["--submission", "3.."], ["#3", "#4"]),
        (["--submission", "..2"], ["#1", "#2"]),
        (["--last", "1"], ["#4"]),
        (["--kernel", "step", "--last", "2"], ["#2", "#4"]),
    ],
)
def test_filters_leave_what_was_asked_for(trace, capsule, options, shown):
    done = trace("show", capsule, *options)
    assert done.status == 0
    assert headers(done.out) == shown


@pytest.mark.parametrize("text", ["", "x", "5..3", "..", "1..2..3", "1.5"])
def test_a_range_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match=r"takes a timeline value or a range"):
        submission_range(text)


def test_calls_memory_and_words_come_when_asked_for(trace, capsule):
    assert "mmap(" not in trace("show", capsule).out
    assert "mmap(" in trace("show", capsule, "--ioctls").out
    assert "alloc 4096 bytes" not in trace("show", capsule).out
    text = trace("show", capsule, "--memory").out
    assert "alloc 4096 bytes" in text
    assert "contents of other, 64 bytes: HOST_WROTE" in text
    assert "00080003" in trace("show", capsule, "--hex").out


def test_json_is_one_object_a_line_with_documented_keys(trace, capsule):
    views = [json.loads(line) for line in trace("show", capsule, "--json").out.splitlines()]
    submissions = [view for view in views if view["kind"] == "submission"]
    assert [view["submission"] for view in submissions] == [1, 2, 3, 4]
    first = submissions[0]
    assert first["device"] == "CPU"
    assert first["queue"] == "main"
    assert first["kernels"] == ["mixed", "one step"]
    assert first["finished"] > first["started"] > 0
    assert first["packets"][0]["fields"]["opcode"] == "FILL"
    assert first["packets"][1]["command"] == 1
    assert first["commands"][1]["kernel"] == "one step"
    assert first["commands"][1]["arguments"] == ["out", "-3"]
    page = (Path(__file__).parents[3] / "docs" / "trace.md").read_text(encoding="utf-8")
    for key in first:
        assert f"`{key}`" in page


def test_equal_packets_in_a_row_are_one_line_unless_their_words_are_wanted(trace, tmp_path):
    made = Maker()
    made.device()
    barrier = (7 | 2 << 16).to_bytes(4, "little") + bytes(4)
    made.submit(words=40 * barrier)
    path = made.write(tmp_path / "t")
    (line,) = [line for line in trace("show", path).out.splitlines() if "Barrier" in line]
    assert line.endswith("(40 of them, to word 78)")
    assert trace("show", path, "--hex").out.count("Barrier") == 40


def test_a_freed_buffer_and_an_unknown_address_say_so(trace, tmp_path):
    made = Maker()
    made.device()
    made.alloc(CELL, name="gate").free(CELL)
    made.submit(Wait(CELL, 1), Signal(0x777000, 1))
    text = trace("show", made.write(tmp_path / "t")).out
    assert "gate (freed) >= 1" in text
    assert "unknown@0x777000 = 1" in text


def test_words_that_are_no_packet_are_shown_and_stray_bits_too(trace, tmp_path):
    made = Maker()
    made.device()
    made.submit(words=(0xABCD00FF).to_bytes(4, "little") + bytes(8))
    words = bytearray(Maker().content[:0])
    # a Barrier with bits in word 1
    words += (7 | 2 << 16).to_bytes(4, "little") + (0xF0).to_bytes(4, "little")
    made.submit(words=bytes(words))
    text = trace("show", made.write(tmp_path / "t")).out
    assert "Header" in text
    assert "not decoded" in text
    assert "unclaimed bits of word 1: 0x000000f0" in text


def test_a_device_of_a_later_version_is_shown_without_packets(trace, tmp_path):
    made = Maker()
    made.device("QPU", "qpu1")
    made.submit(Signal(TIMELINE, 1))
    text = trace("show", made.write(tmp_path / "t")).out
    assert "QPU: this version decodes" in text
    assert "Signal timeline = 1" in text


def test_a_record_of_a_later_version_is_passed_over(trace, tmp_path):
    made = Maker()
    made.device()
    made.raw(99, b"{}", b"1234")
    done = trace("show", made.write(tmp_path / "t"))
    assert done.status == 0
    assert "kind_99" in done.out


def test_a_fault_is_shown(trace, tmp_path):
    made = Maker()
    made.device()
    made.text(Kind.FAULT, {"device": 0, "what": "timeout", "why": "gate never came"})
    assert "fault: timeout: gate never came" in trace("show", made.write(tmp_path / "t")).out


def test_a_file_that_is_cut_off_is_shown_up_to_the_cut(trace, capsule, tmp_path):
    cut = tmp_path / "cut"
    cut.write_bytes(capsule.read_bytes()[:-5])
    done = trace("show", cut)
    assert headers(done.out) == ["#1", "#2", "#3", "#4"]
    assert "The file ends here: " in done.err


def test_names_cannot_drive_a_terminal(trace, tmp_path):
    made = Maker()
    made.device()
    made.alloc(CELL, name="\x1b]0;owned\x07")
    made.submit(Wait(CELL, 1))
    path = made.write(tmp_path / "t")
    for verb in ("show", "graph", "lint"):
        assert "\x1b" not in trace(verb, path).out
    assert "\\x1b]0;owned\\x07" in trace("show", path).out
    assert clean("a\rb\x9bc") == "a\\x0db\\x9bc"


def test_colours_are_for_terminals_that_want_them(monkeypatch):
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Color.for_stdout()("add", "kernel") == "\x1b[1;36madd\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Color.for_stdout()("add", "kernel") == "add"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert Color.for_stdout()("add", "kernel") == "add"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["--kernel", "absent"],
            "no submission has a kernel with 'absent' in its name. There are: mixed, one step.",
        ),
        (["--device", "AMD"], "no submission has a device 'AMD'. There are: CPU."),
        (["--queue", "copy"], "no submission has a queue 'copy'. There are: main."),
        (["--submission", "40.."], "none of the 4 submissions passes all of these filters."),
        (
            ["--submission", "4", "--kernel", "mixed"],
            "none of the 4 submissions passes all of these filters.",
        ),
    ],
)
def test_where_nothing_is_left_it_says_what_there_is(trace, capsule, words, says):
    shown = trace("show", capsule, *words)
    assert (shown.status, shown.out) == (0, "")
    assert shown.err == f"hcq-trace: {says}\n"
