"""explain --trace: which buffer of a trace holds an address, for how long, and who touched it last."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hcq
from hcq.command import Signal, Wait
from hcq.errors import HcqError
from hcq.tools.trace import address
from hcq.tools.trace.color import Color
from hcq.trace.file import Trace
from tests.tools.trace.conftest import Done
from tests.tools.trace.making import CELL, TIMELINE, Maker

PROGRAM_ON_GPU = """
import hcq
dev = hcq.open("{kind}")
first, second = dev.alloc(4096, "first"), dev.alloc(8192, "second")
dev.queue().fill(first, 7).copy(second, first, 256, dst_offset=64).submit().wait()
print(first.address, second.address)
"""


def story(path: Path) -> Trace:
    """A buffer that is set, freed, waited for when it is gone, and another one in its place."""
    maker = Maker()
    maker.device()
    maker.alloc(CELL, 64, "cell").alloc(CELL + 0x1000, 256, "far")
    maker.submit(Signal(CELL + 8, 5))
    maker.free(CELL)
    maker.submit(Wait(CELL + 8, 5))
    maker.alloc(CELL, 16, "young")
    maker.submit(Wait(CELL + 0x1000, 1))
    maker.submit(Signal(CELL, 1))
    return Trace.read(str(maker.write(path)))


def shown(found: list[address.Finding]) -> str:
    return "\n".join(address.lines(found, Color(False)))


def test_an_address_is_a_buffer_and_an_offset(tmp_path: Path) -> None:
    (found,) = address.find(story(tmp_path / "t"), CELL + 0x1010)
    assert (found.state, found.name, found.offset, found.size_bytes) == ("live", "far", 0x10, 256)
    (touch,) = found.touches
    assert (touch.submission, touch.packet, touch.how, touch.is_exact) == (3, "Wait", ["waits for it"], False)
    assert "(elsewhere in the buffer)" in shown([found]) and "x.py:3 in f" in shown([found])


def test_what_is_asked_about_an_earlier_submission_is_as_it_was_then(tmp_path: Path) -> None:
    trace = story(tmp_path / "t")
    (then,) = address.find(trace, CELL + 8, "#1")
    assert (then.state, then.name, then.offset) == ("live", "cell", 8)
    assert [touch.submission for touch in then.touches] == [1] and then.touches[0].is_exact
    (later,) = address.find(trace, CELL + 8, "2")
    assert (later.state, later.name) == ("freed", "cell")
    assert later.touches[0].note == "after the buffer was freed"
    (now,) = address.find(trace, CELL + 8)
    assert (now.state, now.name) == ("live", "young")
    assert [life.name for life in now.lives] == ["cell", "young"]
    assert now.lives[0].freed_after == "#1 of CPU" and now.lives[1].after == "#2 of CPU"
    assert [touch.submission for touch in now.touches] == [4, 2, 1]
    assert now.touches[-1].note == "before this buffer was made"


def test_an_address_in_no_buffer_has_neighbours(tmp_path: Path) -> None:
    (found,) = address.find(story(tmp_path / "t"), CELL + 0x800)
    assert found.state == "unknown" and found.before is not None and found.behind is not None
    assert (found.before["name"], found.before["bytes_away"]) == ("young", 0x7F0)
    assert (found.behind["name"], found.behind["bytes_away"]) == ("far", 0x800)
    assert "no packet of the trace touched it" in shown([found])


def test_a_timeline_is_named(tmp_path: Path) -> None:
    (found,) = address.find(story(tmp_path / "t"), TIMELINE)
    assert found.state == "timeline" and len(found.touches) == 4


def test_arguments_of_kernels_and_blocks_of_graphs_are_touches(capsule: Path) -> None:
    trace = Trace.read(str(capsule))
    out = next(one for one in trace.memory_at(trace.submissions[0]).ranges if one.name == "out")
    (found,) = address.find(trace, out.start + 4)
    hows = {how for touch in found.touches for how in touch.how}
    assert any("argument 0" in how for how in hows) and "copies to it" in hows
    assert any("in block twice" in touch.note for touch in found.touches)
    assert any("step(out" in touch.text for touch in found.touches)


@pytest.mark.parametrize("kind", ["amd:gfx1100", "nv:sm_90"])
def test_packets_of_gpus_are_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "run.hcqtrace"
    name = kind.partition(":")[0].upper()
    environment = {**os.environ, "HCQ_EMULATE": kind, "HCQ_TRACE": str(path)}
    command = [sys.executable, "-c", PROGRAM_ON_GPU.format(kind=name)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=50, env=environment)
    first, second = map(int, done.stdout.split())
    trace = Trace.read(str(path))
    (found,) = address.find(trace, second + 100, "1")
    assert (found.name, found.offset) == ("second", 100)
    assert found.touches[0].how == ["copies to it"] and found.touches[0].is_exact
    hows = {how for touch in address.find(trace, first)[0].touches for how in touch.how}
    assert hows >= {"fills it", "copies from it"}


def test_the_verb_prints_lines_and_json(trace: Callable[..., Done], tmp_path: Path) -> None:
    path = tmp_path / "t"
    story(path)
    done = trace("explain", hex(CELL + 8), "--trace", path, "--at", "#1")
    assert done.status == 0 and "cell+0x8: byte 0x8 of 64" in done.out and "sets it" in done.out
    (data,) = json.loads(trace("explain", hex(CELL + 8), "--trace", path, "--json").out)
    assert data["name"] == "young" and data["touches"][0]["how"] == ["sets it"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--at", "99"), "no such submission; its last is #4"),
        (("--at", "x"), "takes a submission by its number"),
        (("--device", "NV"), "no one device 'NV'"),
    ],
)
def test_what_is_not_in_the_trace_is_refused(
    arguments: tuple[str, ...], said: str, trace: Callable[..., Done], tmp_path: Path
) -> None:
    path = tmp_path / "t"
    story(path)
    done = trace("explain", "0x1000", "--trace", path, *arguments)
    assert done.status == 2 and said in done.err
    assert "Name it with --trace" in trace("explain", "0x1000", "--at", "1").err


def test_two_devices_with_one_number_are_told_apart(tmp_path: Path) -> None:
    maker = Maker()
    one, two = maker.device(), maker.device("CPU:1")
    maker.alloc(CELL, 64, "cell")
    maker.submit(Signal(CELL, 1), device=one)
    maker.submit(Signal(CELL, 2), device=two)
    trace = Trace.read(str(maker.write(tmp_path / "t")))
    with pytest.raises(hcq.UsageError, match="Say whose with --device"):
        address.find(trace, CELL, "1")
    (found,) = address.find(trace, CELL, "1", "CPU")
    assert [touch.device for touch in found.touches] == ["CPU"]


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_trace_is_refused_or_read(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    path = tmp_path / "t"
    story(path)
    content = bytearray(path.read_bytes())
    for _ in range(rng.randrange(1, 6)):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content[: rng.randrange(40, len(content))])
    try:
        shown(address.find(Trace.read(str(path)), CELL + 8))
    except HcqError:
        pass
