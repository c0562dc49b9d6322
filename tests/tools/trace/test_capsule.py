"""capsule: a dump becomes a trace that marks the same packet, and whose replay stops at the same packet."""

from __future__ import annotations

import json
import re

import pytest

from hcq.errors import UsageError
from hcq.tools.trace import capsule, capsule_replay, devcoredump
from hcq.tools.trace.edit import assemble, edit
from hcq.tools.trace.views import all_packets, submission_view
from hcq.trace.file import Trace
from tests.tools.trace.hanging import ARCHITECTURES, HANGS, UNMAPPED, hang


@pytest.fixture(
    params=[("a wait in a buffer", "gfx1100"), ("a fault", "gfx942"), ("a copy queue", "gfx1201")]
)
def made(request, tmp_path):
    """The file of a dump, and that of its capsule."""
    name, arch = request.param
    path, out = tmp_path / "x.devcoredump", tmp_path / "x.hcqtrace"
    path.write_bytes(hang(name, arch).text)
    return path, out


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", HANGS)
def test_the_capsule_marks_the_packet_of_the_dump_and_its_replay_stops_there(name, arch):
    text = hang(name, arch).text
    stuck = devcoredump.as_json(devcoredump.read(text))["stuck"]
    trace = Trace.parse(capsule.capsule(text).content)
    (marked,) = (
        packet
        for submission in trace.submissions
        for packet in all_packets(submission_view(submission))
        if "stuck" in packet
    )
    assert marked["words"] == stuck["packet"]["words"]
    stand = capsule_replay.replay(trace)
    assert stand.is_same, stand.lines()
    if stuck["buffer_va"] is not None:
        assert (stand.block, stand.block_word) == (stuck["buffer_va"], stuck["buffer_at"])
    else:
        assert (stand.word, stand.block) == (0, None)
    assert stuck["packet"]["packet"] in stand.packet


def test_show_lint_and_replay_take_a_capsule(made, trace):
    path, out = made
    done = trace("capsule", path, "-o", out)
    assert done.status == 0
    assert "missing:" in done.out
    assert "the code of kernels" in done.out
    shown = trace("show", out)
    assert shown.status == 0
    assert len(re.findall(r"^ +=> ", shown.out, re.M)) == 1
    assert "it hangs here" in shown.out
    found = trace("lint", out)
    assert found.status == 1
    assert "recorded-fault" in found.out
    replayed = trace("replay", out)
    assert replayed.status == 0
    assert replayed.out.startswith("stops at the same packet")
    assert json.loads(trace("replay", out, "--json").out)["same"] is True


def test_lint_finds_the_memory_of_a_fault_that_is_not_there(tmp_path, trace):
    path, out = tmp_path / "x", tmp_path / "y"
    path.write_bytes(hang("a fault", "gfx1100").text)
    trace("capsule", path, "-o", out)
    whole = Trace.read(str(out))
    assert whole.memory_at(whole.records[-1]).find(UNMAPPED).state == "unknown"
    assert f"{UNMAPPED:#x}" in trace("lint", out).out


def test_a_replay_says_what_it_took_memory_to_hold():
    content = capsule.capsule(hang("a wait that zeros would end", "gfx1100").text).content
    assert "is taken to hold" in capsule_replay.replay(Trace.parse(content)).assumed
    content = capsule.capsule(hang("a wait", "gfx1100").text).content
    assert capsule_replay.replay(Trace.parse(content)).assumed == ""


def test_a_replay_that_goes_past_the_mark_says_so(tmp_path, trace):
    text = "\n".join(edit(capsule.capsule(hang("a fault", "gfx1100").text).content))
    mapped = re.sub(r'"fault_page": ?\d+', '"fault_page":0', text)
    assert mapped != text
    out = tmp_path / "y"
    out.write_bytes(assemble(mapped))
    done = trace("replay", out)
    assert done.status == 1
    assert done.out.startswith("does not stop where the dump says")


def test_packets_before_the_mark_that_cannot_be_done_here_are_passed_over():
    text = hang("a fault in a buffer", "gfx1100").text.decode()
    # one of the two packets before it becomes a wait for what is not in the dump
    wait = [0xC0053C00, 0x13, 0x100040, 0, 5, 0xFFFFFFFF, 0]
    rows = text.splitlines()
    at = next(n for n, row in enumerate(rows) if row.startswith("IB #0")) + 1
    rows[at : at + 7] = [f"0x{word:08x}" for word in wait]
    stand = capsule_replay.replay(Trace.parse(capsule.capsule("\n".join(rows).encode()).content))
    assert stand.is_same
    assert "waits for memory" in stand.passed[0]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"HCQTRACE 2\n", "a trace already"),
        (b"---- hcq report: timeout\n", "no words of rings"),
        (b"anything", "no devcoredump"),
        (b"**** AMDGPU Device Coredump ****\nversion: 1\n", "nothing can be run again"),
    ],
)
def test_what_is_no_dump_of_a_hang_is_refused_with_what_to_do(content, says):
    with pytest.raises(UsageError, match=says):
        capsule.capsule(content)


def test_a_gpu_of_rdna1_stands_in_the_row_of_rdna2_and_one_that_is_not_emulated_is_refused():
    text = hang("a wait", "gfx1100").text.replace(b"v11.0.0", b"v10.1.10").replace(b"gfx_v11_0", b"gfx_v10_0")
    trace = Trace.parse(capsule.capsule(text).content)
    assert trace.devices[0].arch == "gfx1030"
    with pytest.raises(UsageError, match=r"^replay: no GPU .* can be shown and linted only"):
        capsule_replay.replay(trace, "amd:gfx803")
