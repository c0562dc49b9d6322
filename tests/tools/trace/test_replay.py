"""replay: a recorded program's work, run again, gives the recorded bytes; and what minimise leaves of a bad trace."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from hcq.errors import UsageError
from hcq.observe import validator
from hcq.tools.trace.edit import assemble, edit
from hcq.tools.trace.minimise import minimise
from hcq.tools.trace.replay import replay
from hcq.trace.file import Trace
from hcq.trace.records import Kind
from tests.tools.trace.making import CELL, PROGRAM, Maker, record


def changed(capsule: Path, pattern: str, to: str, count: int = 1) -> bytes:
    """The capsule with one thing changed in its text."""
    text, times = re.subn(pattern, to, "\n".join(edit(capsule.read_bytes())), count=count, flags=re.M)
    assert times == count
    return assemble(text)


def test_the_results_are_the_recorded_ones_bit_for_bit(trace, capsule):
    done = trace("replay", capsule)
    assert done.status == 0
    assert re.fullmatch(
        r"same results, bit for bit: 4 submissions, 9 commands; compared \d+ results, \d+ bytes\n", done.out
    )
    found = json.loads(trace("replay", capsule, "--json").out)
    assert found["same"] is True
    assert found["compared_bytes"] > 4096
    assert not validator._state.waiting  # the rules know of the signals that the host set


def test_kernels_with_noise_in_memory_and_several_devices_replay(trace, kernels, tmp_path):
    script = """
import sys, hcq
image = open(sys.argv[1], "rb").read()
for name in ("CPU", "CPU:1"):
    dev = hcq.open(name)
    step = dev.load(image, "step", args=("buffer", "int"))
    noise = dev.alloc(256, "noise")
    part = noise.view(64, 64)
    for k in range(5):
        dev.queue().dispatch(step, [part, k]).submit()
    noise.read()
"""
    path = record(script, tmp_path / "t", str(kernels))
    done = trace("replay", path)
    assert done.status == 0, done.out
    assert "10 submissions" in done.out


DROPS_ITS_RESULTS = """
import sys, hcq
dev = hcq.open("CPU")
step = dev.load(open(sys.argv[1], "rb").read(), "step", args=("buffer", "int"))
for k in range(4):
    out = dev.alloc(4096, f"result {k}")
    dev.queue().fill(out, 0).dispatch(step, [out, k]).submit()
    if k == 3:
        out.wait()
        out.free()
    del out
"""


def test_results_that_the_program_never_read_and_dropped_are_compared(trace, kernels, tmp_path):
    path = record(DROPS_ITS_RESULTS, tmp_path / "t", str(kernels))
    found = json.loads(trace("replay", path, "--json").out)
    assert (found["same"], found["compared"], found["compared_bytes"]) == (True, 4, 4 * 4096)
    assert (found["given"], found["unchecked"]) == (4, 0)
    digests = [one for one in Trace.read(str(path)).results if one.value == 2]
    assert [one.size_bytes for one in digests] == [4096]
    digest = digests[0].digest
    other = Trace.parse(
        changed(path, f"digest_low={int.from_bytes(digest[:8], 'little'):#x}", "digest_low=0x5")
    )
    (mismatch,) = replay(other).mismatches
    assert (mismatch.buffer, mismatch.offset, mismatch.after) == ("result 1", None, 2)
    assert str(mismatch).startswith("CPU result 1: its 4096 bytes are not those that were recorded (digest ")


def test_the_capsule_of_a_killed_process_replays_up_to_the_cut(trace, kernels, tmp_path):
    script = DROPS_ITS_RESULTS + "\nimport os\nos.kill(os.getpid(), 9)\n"
    path = tmp_path / "t"
    done = trace("record", "--data", "-o", path, "--", sys.executable, "-c", script, kernels)
    assert done.status == 128 + 9
    found = json.loads(trace("replay", path, "--json").out)
    assert (found["same"], found["submissions"]) == (True, 4)
    assert found["compared"] == 4


def test_a_replay_that_compares_next_to_nothing_says_so(trace, kernels, tmp_path):
    path = record(DROPS_ITS_RESULTS, tmp_path / "t", str(kernels))
    left = re.sub(r"^RESULT .*\n(  .*\n)*", "", "\n".join(edit(path.read_bytes())), count=3, flags=re.M)
    path.write_bytes(assemble(left))
    done = trace("replay", path)
    assert done.status == 0
    assert done.out.startswith("MOST RESULTS WERE NOT COMPARED: of 4 buffers (16384 bytes)")
    assert "same results, bit for bit: 4 submissions, 8 commands; compared 1 result, 4096 bytes" in done.out


def test_buffers_that_hold_times_have_no_digest(trace, kernels, tmp_path):
    script = """
import hcq
dev = hcq.open("CPU")
times, gate = dev.alloc(16, "times"), dev.signal("gate")
dev.queue().timestamp(times).signal(gate, 1).submit().wait()
dev.queue().fill(times, 0, 8).submit().wait()
"""
    path = record(script, tmp_path / "t", str(kernels))
    assert Trace.read(str(path)).results == []
    assert trace("replay", path).status == 0


def test_a_trace_without_contents_is_refused(trace, kernels, tmp_path):
    path = record(PROGRAM, tmp_path / "t", str(kernels), options="")
    done = trace("replay", path)
    assert done.status == 2
    assert "no memory contents" in done.err
    assert "hcq-trace record --data" in done.err


def test_another_result_names_the_buffer_the_byte_and_the_submission(capsule):
    other = Trace.parse(changed(capsule, r"args=\[(0x[0-9a-f]+) 0xf+d\]", r"args=[\1 0x7]"))
    outcome = replay(other)
    assert not outcome.is_same
    first = outcome.mismatches[0]
    assert (first.buffer, first.after) == ("out", 1)
    read = next(one for one in outcome.mismatches if one.offset is not None)  # the trace has its bytes
    assert (read.buffer, read.offset, read.after) == ("out", 0, 4)
    assert re.match(r"CPU out: byte 0 is [0-9a-f]{16}, and was [0-9a-f]{16} when", str(read))
    assert outcome.differing == [1]  # its packet still says -3


def test_code_for_another_machine_is_refused(capsule):
    outcome = replay(Trace.parse(changed(capsule, r'"arch":"x86_64"', '"arch":"rv64"', count=2)))
    assert "CPU was rv64" in outcome.failure


def test_an_address_in_no_buffer_is_refused(capsule):
    outcome = replay(Trace.parse(changed(capsule, r"args=\[0x[0-9a-f]+ ", "args=[0x123000 ")))
    assert "unknown@0x123000 on CPU is no live buffer of the trace" in outcome.failure


def test_a_wait_that_never_ends_stops_the_replay_and_leaves_the_device_usable(capsule, device):
    never = Trace.parse(changed(capsule, r"verb=WAIT(.*)second=0x1", r"verb=WAIT\1second=0x99"))
    outcome = replay(never, timeout_ms=100)
    assert "waited 100 ms" in outcome.failure
    buffer = device.alloc(8)
    device.queue().fill(buffer, 3).submit().wait()
    assert buffer.read() == b"\3" * 8


# ------------------------------------------------------------ minimise


@pytest.fixture
def lossy(capsule: Path) -> Path:
    """The capsule with an argument of its first submission changed."""
    path = capsule.parent / "lossy"
    path.write_bytes(changed(capsule, r"args=\[(0x[0-9a-f]+) 0xf+d\]", r"args=[\1 0x7]"))
    return path


def test_only_the_submissions_of_a_mismatch_are_kept(trace, lossy, tmp_path):
    small = tmp_path / "small"
    done = trace("minimise", lossy, "--mismatch", "-o", small, "--tries", "12")
    assert done.status == 0, done.err
    assert re.match(r"1 of 4 submissions and \d+ of \d+ records still show it", done.out)
    assert small.stat().st_size < lossy.stat().st_size
    assert trace("replay", small).status == 1


def test_only_the_submission_that_breaks_a_rule_is_kept(trace, tmp_path):
    made = Maker()
    made.device()
    made.alloc(CELL, name="x")
    from hcq.command import Signal

    for value in range(1, 20):
        made.submit(Signal(CELL, value))
    made.submit(Signal(0x777000, 1))
    for value in range(20, 30):
        made.submit(Signal(CELL, value))
    small = tmp_path / "small"
    done = trace("minimise", made.write(tmp_path / "t"), "--rule", "address-unmapped", "-o", small)
    assert done.status == 0, done.err
    assert done.out.startswith("1 of 30 submissions")
    left = Trace.read(str(small))
    assert [one.value for one in left.submissions] == [20]
    assert trace("lint", small, "--rule", "address-unmapped").status == 1


def test_a_command_may_be_the_judge(trace, capsule, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    judge = tmp_path / "judge.py"
    judge.write_text(
        "import sys\nfrom hcq.trace.file import Trace\n"
        "sys.exit(any('mixed' in s.kernels for s in Trace.read(sys.argv[1]).submissions))\n"
    )
    small = tmp_path / "small"
    done = trace(
        "minimise", capsule, "--check", f"{sys.executable} {judge} {{}}", "-o", small, "--tries", "40"
    )
    assert done.status == 0, done.err
    assert [one.value for one in Trace.read(str(small)).submissions] == [1]


def test_a_check_that_cannot_run_is_a_sentence(trace, capsule, tmp_path):
    done = trace("minimise", capsule, "--check", "/no/such/program", "-o", tmp_path / "small")
    assert done.status == 2
    assert "/no/such/program cannot be started" in done.err
    assert not (tmp_path / "small").exists()


def test_a_trace_without_the_failure_has_nothing_to_keep(trace, capsule, tmp_path):
    for options in (["--rule", "address-freed"], ["--mismatch"], ["--check", "true"]):
        done = trace("minimise", capsule, *options, "-o", tmp_path / "small")
        assert done.status == 2
        assert "nothing to keep" in done.err or "no failure to keep" in done.err
    done = trace("minimise", capsule, "--rule", "no-such-rule", "-o", tmp_path / "small")
    assert "there is no rule 'no-such-rule'" in done.err


def test_a_check_that_always_fails_is_refused(trace, capsule, tmp_path):
    done = trace("minimise", capsule, "--check", "false", "-o", tmp_path / "small")
    assert done.status == 2
    assert "an empty trace shows this failure, too" in done.err


def has_submissions(content: bytes) -> bool:
    return bool(Trace.parse(content).submissions)


def test_the_search_stops_when_it_was_told_to(capsule):
    whole = Trace.parse(capsule.read_bytes())
    assert minimise(whole, has_submissions, max_tries=3).tries == 3
    with pytest.raises(UsageError, match="does not show this failure"):
        minimise(whole, lambda content: False)


def test_what_nothing_needs_is_left_out(capsule):
    whole = Trace.parse(capsule.read_bytes())
    left = Trace.parse(minimise(whole, has_submissions).content)
    assert len(left.submissions) == 1
    assert [record.kind for record in left.records if record.kind in (Kind.CODE, Kind.DATA)] == []
