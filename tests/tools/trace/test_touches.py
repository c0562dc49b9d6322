"""Everything that touched a buffer: each use once, in order, with what it does there."""

from __future__ import annotations

from pathlib import Path

import pytest

from hcq.command import Copy, Fill, Packets, Signal, Wait
from hcq.cpu import packets
from hcq.tools.trace.page_data import PageData
from hcq.tools.trace.touches import touches
from hcq.trace.file import Trace
from tests.tools.trace.making import CELL, TIMELINE, Maker, record


def rows(data: PageData, name: str) -> list[tuple[object, ...]]:
    spans, names = data.memory["spans"], data.memory["names"]
    called = [span for span, number in enumerate(spans["name"]) if names[number] == name]
    span = next(span for span in called if not spans["mapping"][span])
    found = data.buffers.touches(span)
    assert found["complete"]
    told = found["touches"]
    return list(
        zip(told["number"], told["inner"], told["verb"], told["role"], told["access"], told["offset"])
    )


def test_copies_fills_signals_and_arguments_are_found_in_order(capsule: Path) -> None:
    data = PageData(Trace.read(str(capsule)))
    assert rows(data, "other") == [
        (0, None, "dispatch", "argument 0", "read or write", 0),
        (1, 0, "dispatch", "argument 0", "read or write", 0),
        (2, None, "copy", "source of a copy", "read", 0),
    ]
    assert rows(data, "out") == [
        (0, None, "fill", "filled", "write", 0),
        (0, None, "dispatch", "argument 0", "read or write", 0),
        (1, 1, "dispatch", "argument 0", "read or write", 0),
        (2, None, "copy", "destination of a copy", "write", 32),
        (3, 0, "dispatch", "argument 0", "read or write", 0),
        (3, 1, "dispatch", "argument 0", "read or write", 0),
    ]
    assert rows(data, "gate") == [(2, None, "wait", "waited for", "read", 0)]


def test_what_a_loader_says_of_arguments_is_believed(kernels: Path, tmp_path: Path) -> None:
    program = """
import sys, hcq
dev = hcq.open("CPU")
step = dev.load(open(sys.argv[1], "rb").read(), "step", args=("buffer", "int"), access=("read", ""))
dev.queue().dispatch(step, [dev.alloc(64, "data"), 1]).submit().wait()
"""
    path = record(program, tmp_path / "t", str(kernels), options="")
    data = PageData(Trace.read(str(path)))
    assert [row[4] for row in rows(data, "data")] == ["read"]


def test_a_copy_that_only_reaches_into_a_buffer_touches_it() -> None:
    made = Maker()
    made.device()
    made.alloc(0x1000, 64, "first").alloc(0x1040, 64, "second")
    words = packets.Signal(signal=TIMELINE, value=1).to_bytes()
    made.submit(Fill(0x1020, 0, 64), Copy(0x1078, 0x1000, 8), words=words)
    data = PageData(Trace.parse(made.content))
    assert [row[2:] for row in rows(data, "second")] == [
        ("fill", "filled", "write", 0),
        ("copy", "destination of a copy", "write", 0x38),
    ]
    assert [row[2:] for row in rows(data, "first")] == [
        ("fill", "filled", "write", 0x20),
        ("copy", "source of a copy", "read", 0),
    ]


def test_own_packets_say_by_their_words_what_they_do() -> None:
    made = Maker()
    made.device()
    made.alloc(CELL, 16, "gate").alloc(0x1000, 64, "data")
    own = packets.Fill(dst=0x1008, pattern=1, size_bytes=8).to_bytes()
    own += packets.Signal(signal=CELL, value=3).to_bytes()
    words = packets.Wait(signal=CELL, value=2).to_bytes() + own
    words += packets.Signal(signal=TIMELINE, value=1).to_bytes()
    made.submit(Wait(CELL, 2), Packets("main", own, ("Fill", "Signal")), words=words)
    data = PageData(Trace.parse(made.content))
    assert [row[2:] for row in rows(data, "data")] == [("packets", "filled, own packet Fill", "write", 8)]
    assert [row[2:] for row in rows(data, "gate")] == [
        ("wait", "waited for", "read", 0),
        ("packets", "signalled, own packet Signal", "write", 0),
    ]


def test_a_buffer_at_the_same_address_later_is_another_one() -> None:
    made = Maker()
    made.device()
    made.alloc(CELL, 16, "before")
    made.submit(Signal(CELL, 1))
    made.free(CELL).alloc(CELL, 16, "after")
    made.submit(Wait(CELL, 1))
    data = PageData(Trace.parse(made.content))
    assert [row[0] for row in rows(data, "before")] == [0]
    assert [row[0] for row in rows(data, "after")] == [1]


@pytest.mark.parametrize(("most", "most_scanned"), [(3, 100), (100, 3)])
def test_what_was_not_looked_at_is_said(most: int, most_scanned: int) -> None:
    made = Maker()
    made.device()
    made.alloc(CELL, 16, "gate")
    for value in range(1, 10):
        made.submit(Signal(CELL, value))
    trace = Trace.parse(made.content)
    seen = touches(trace, trace.devices[0].process, CELL, 16, (0, len(trace.records)), most, most_scanned)
    assert [one.number for one in seen.found] == [0, 1, 2]
    assert not seen.is_complete
