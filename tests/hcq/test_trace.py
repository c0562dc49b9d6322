"""The trace: what was submitted can be read back, up to the cut when the process was killed."""

from __future__ import annotations

import os
import random
import re
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcq.cpu import packets
from hcq.errors import UsageError
from hcq.trace.file import Trace, read_records
from hcq.trace.records import MAGIC, Frame, Kind, Why, pack_record
from tests.hcq.conftest import IR, assemble

SCRIPT = """
import hcq, sys
from hcq.graph import Symbol
dev = hcq.open("CPU")
image = open(sys.argv[1], "rb").read()
step = dev.load(image, "step", args=("buffer", "int"), name="one step")
mixed = dev.load(image, "mixed")
out, other = dev.alloc(4096, "out"), dev.alloc(64, "other")
other.write(bytes(64))
q = dev.queue()
q.fill(out, 0).dispatch(step, [out, -3]).dispatch(mixed, [other, 1.5, 2, 3.5, 4, 5, 6, 7, 2**64 - 2, 9.25]).submit()
graph = dev.graph("twice").dispatch(step, [Symbol("where"), 5]).dispatch(step, [out, Symbol("k", "int")])
graph.replay({"where": other, "k": 6}).wait()
graph.replay({"where": out, "k": 7}).wait()
graph.replay({"where": out, "k": -8}).wait()
cell = dev.signal("gate")
done = dev.queue().wait(cell, 4).copy(out, other, 16, dst_offset=32).barrier().signal(cell, 5).submit()
cell.set(4)
done.wait()
print(out.read(0, 8)[0])
other.free()
dev.queue().timestamp(out).submit().wait()
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("kernel") / "k.o"
    path.write_bytes(assemble(IR))
    return str(path)


@pytest.fixture(scope="module")
def content(kernel: str, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A trace of SCRIPT, with buffer contents."""
    path = tmp_path_factory.mktemp("trace") / "run.hcqtrace"
    run_script(SCRIPT, f"{path},data", kernel)
    return path.read_bytes()


@pytest.fixture(scope="module")
def trace(content: bytes) -> Trace:
    return Trace.parse(content)


def run_script(script: str, path: object, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "HCQ_TRACE": str(path)},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )


def test_a_trace_holds_process_device_code_and_every_submission(trace: Trace) -> None:
    assert trace.cut_bytes == 0
    assert [record.name for record in trace.records][:1] == ["PROCESS"]
    assert trace.processes[0].fields["argv"][0] == "-c"
    (device,) = trace.devices
    assert (device.name, device.kind, device.arch) == ("CPU", "CPU", os.uname().machine)
    assert device.closed is not None
    assert [submission.value for submission in trace.submissions] == [1, 2, 3, 4, 5, 6]
    assert [code.name for code in trace.code] == ["one step", "mixed"]
    assert trace.code_named("step")[0].image == assemble(IR)
    times = [record.time_ns for record in trace.records if record.kind == Kind.SUBMIT]
    assert times == sorted(times)


def test_words_decode_to_packets_and_commands_are_data(trace: Trace) -> None:
    first = trace.submissions[0]
    kinds = [type(packet) for packet in first.packets()]
    assert kinds == [packets.Fill, packets.Dispatch, packets.Dispatch, packets.Signal]
    fill, step, mixed = first.commands
    assert (fill["verb"], fill["size_bytes"], fill["pattern"]) == ("fill", 4096, 0)
    assert step["kernel"] == "one step"
    assert step["args"] == [{"kind": "buffer", "value": fill["dst"]}, {"kind": "int", "value": -3}]
    assert step["grid"] == step["block"] == [1, 1, 1]
    assert [arg["value"] for arg in mixed["args"]][1:] == [1.5, 2, 3.5, 4, 5, 6, 7, -2, 9.25]
    assert first.kernels == ["one step", "mixed"]
    verbs = [command["verb"] for command in trace.submissions[4].commands]
    assert verbs == ["wait", "copy", "barrier", "signal"]


def test_a_submission_names_its_line_its_thread_and_its_buffers(trace: Trace) -> None:
    first = trace.submissions[0]
    assert first.site == "<string>:11 in <module>"
    assert first.thread == "MainThread"
    assert [str(place) for place in first.buffers()] == ["out", "other"]
    copy = trace.submissions[4]
    assert [str(place) for place in copy.buffers()] == ["gate", "out+0x20", "other"]


def test_the_blocks_of_a_graph_are_known_as_each_replay_ran_them(trace: Trace) -> None:
    arguments = []
    for submission in trace.submissions[1:4]:
        (block,) = submission.blocks
        assert block.label == "twice"
        memory = submission.memory()
        one, two = block.commands
        arguments.append((str(memory.find(one["args"][0]["value"])), two["args"][1]["value"]))
        decoded = submission.block_packets(block)
        assert all(isinstance(packet, packets.Dispatch) for packet in decoded)
        slots = struct.pack(f"<{len(decoded[1].tail_words)}I", *decoded[1].tail_words)
        assert struct.unpack_from("<q", slots, 8)[0] == two["args"][1]["value"]
    assert arguments == [("other", 6), ("out", 7), ("out", -8)]
    assert [command["kernel"] for command in trace.submissions[3].all_commands()] == ["one step"] * 2


def test_memory_is_known_as_it_was_at_every_submission(trace: Trace) -> None:
    last = trace.submissions[5]
    other = next(place for place in trace.submissions[4].buffers() if place.name == "other")
    assert trace.submissions[4].memory().find(other.start + 8).state == "live"
    assert str(last.memory().find(other.start + 8)) == "other+0x8 (freed)"
    assert str(last.memory().find(16)) == "0x10 (unknown)"
    assert last.memory().find(16).state == "unknown"
    assert trace.submissions[4].memory().find(other.start).state == "live"  # backwards, too
    before, after = last.memory().neighbours(other.start)
    assert before is not None and before.start < other.start
    assert after is None or after.start > other.start


def test_the_device_says_when_each_submission_began_and_ended(trace: Trace) -> None:
    spans = [(submission.started_ns, submission.finished_ns) for submission in trace.submissions]
    flat = [moment for span in spans for moment in span if moment is not None]
    assert len(flat) == 12
    assert flat == sorted(flat)
    assert all(submission.time_ns <= (submission.started_ns or 0) for submission in trace.submissions)


def test_signals_that_the_host_saw_and_set_are_in_it(trace: Trace) -> None:
    (gate,) = [seen for seen in trace.signals if seen.is_set]
    assert gate.value == 4
    seen = [signal.value for signal in trace.signals if not signal.is_set]
    assert 5 in seen
    assert all(signal.timestamp_ns for signal in trace.signals if signal.value)


def test_with_data_the_contents_before_use_and_what_the_host_read_are_in_it(trace: Trace) -> None:
    by_name = {}
    for contents in trace.contents:
        place = trace.memory_at(contents.record).find(contents.va)
        by_name.setdefault((contents.why, place.name), contents.data)
    assert by_name[Why.HOST_WROTE, "other"] == bytes(64)
    assert len(by_name[Why.BEFORE_USE, "out"]) == 4096
    read = [contents.data for contents in trace.contents if contents.why == Why.HOST_READ]
    assert [len(data) for data in read] == [8]
    assert len(by_name[Why.AT_CLOSE, "out"]) == 4096


def test_calls_to_the_operating_system_are_in_it(trace: Trace) -> None:
    calls = [record.fields["call"] for record in trace.calls]
    assert "mmap" in calls
    ring = next(record for record in trace.calls if record.fields["call"] == "mmap")
    assert ring.fields["result"] > 0


def test_the_trace_of_a_killed_process_reads_up_to_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "killed.hcqtrace"
    script = """
import hcq, os, signal
dev = hcq.open("CPU")
out = dev.alloc(64, "out")
for _ in range(5):
    dev.queue().fill(out, 1).submit()
os.kill(os.getpid(), signal.SIGKILL)
"""
    with pytest.raises(subprocess.CalledProcessError) as killed:
        run_script(script, path)
    assert killed.value.returncode == -signal.SIGKILL
    assert path.stat().st_mode & 0o777 == 0o600  # what was in memory is its owner's affair
    whole = Trace.read(str(path))
    assert whole.cut_bytes == 0
    assert len(whole.submissions) == 5
    assert [str(place) for place in whole.submissions[4].buffers()] == ["out"]
    content = path.read_bytes()
    starts = [record.at for record in whole.records] + [len(content)]
    for cut in range(starts[1], len(content), 41):
        part = Trace.parse(content[:cut])
        assert len(part.records) == sum(start <= cut for start in starts) - 1
        assert bool(part.cut_bytes) == (cut not in starts)


def test_a_kernel_that_brings_the_process_down_is_the_last_submission(tmp_path: Path, kernel: str) -> None:
    path = tmp_path / "crash.hcqtrace"
    script = """
import hcq, sys
dev = hcq.open("CPU")
step = dev.load(open(sys.argv[1], "rb").read(), "step", args=("int", "int"))
dev.queue().dispatch(step, [0, 1]).submit().wait()
"""
    with pytest.raises(subprocess.CalledProcessError) as crashed:
        run_script(script, path, kernel)
    assert crashed.value.returncode == -signal.SIGSEGV
    assert Trace.read(str(path)).submissions[-1].kernels == ["step"]


def test_two_processes_may_append_to_one_trace(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "two.hcqtrace"
    path.write_bytes(content)
    run_script("import hcq; dev = hcq.open('CPU'); dev.queue().submit().wait()", path)
    trace = Trace.read(str(path))
    assert len(trace.processes) == 2
    first, second = trace.devices
    assert first.key == "CPU" and second.key == f"CPU@{second.process}"
    assert trace.submissions[-1].device is second
    assert trace.submission(first, 1) is trace.submissions[0]


def test_a_forked_child_writes_under_its_own_number(tmp_path: Path) -> None:
    path = tmp_path / "fork.hcqtrace"
    script = """
import hcq, os
dev = hcq.open("CPU")
dev.queue().submit().wait()
if not os.fork():
    hcq.open("CPU").queue().submit().wait()
    os._exit(0)
os.wait()
dev.queue().submit().wait()
"""
    run_script(script, path)
    trace = Trace.read(str(path))
    assert len({device.process for device in trace.devices}) == 2
    assert sorted(submission.value for submission in trace.submissions) == [1, 2, 2]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not a trace"),
        (b"hello world", "not a trace"),
        (b"HCQTRACE 1\n", "a trace of version 1, and this program reads version 2"),
        (MAGIC + bytes(100), "its first record is damaged"),
        (None, "cannot be read"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes | None, why: str) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=why):
        Trace.read(str(path))


@given(noise=st.binary(max_size=300))
def test_random_bytes_are_one_clear_error_or_an_empty_trace(noise: bytes) -> None:
    for content in (noise, MAGIC + noise):
        try:
            trace = Trace.parse(content)
        except UsageError as error:
            assert "\n" not in str(error)
        else:
            assert content == MAGIC
            assert not trace.records


def test_a_damaged_record_ends_the_trace_before_it(content: bytes) -> None:
    """One bit of one record is turned: everything before it reads, it and the rest are counted as cut."""
    records, _, _ = read_records(content)
    pick = random.Random(5)
    for record in pick.sample(records[1:], 40):
        damaged = bytearray(content)
        at = record.at + pick.randrange(len(record.raw))
        damaged[at] ^= 1 << pick.randrange(8)
        found, cut, why = read_records(bytes(damaged))
        assert len(found) == record.index
        assert cut == len(content) - record.at
        assert "damaged" in why or "cut off" in why


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_records_that_lie_with_a_right_checksum_are_an_error_or_harmless(
    content: bytes, data: st.DataObject
) -> None:
    """A stranger can compute checksums: what a record says is not trusted either."""
    records, _, _ = read_records(content)
    victim = records[data.draw(st.integers(0, len(records) - 1))]
    raw = bytearray(victim.raw)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(4, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw[:4] = zlib.crc32(bytes(raw[4:])).to_bytes(4, "little")
    lying = content[: victim.at] + bytes(raw) + content[victim.at + len(victim.raw) :]
    try:
        trace = Trace.parse(lying)
        for submission in trace.submissions:
            submission.packets()
            submission.buffers()
    except UsageError as error:
        assert str(error)


def test_records_of_unknown_kinds_are_kept(content: bytes) -> None:
    strange = pack_record(999, 1, 2, b'{"hello": 1}', b"data")
    trace = Trace.parse(content + strange)
    assert trace.records[-1].name == "KIND_999"
    assert trace.records[-1].fields == {"hello": 1}
    assert trace.records[-1].raw == strange
    assert trace.cut_bytes == 0


def test_the_frame_is_what_pack_record_writes() -> None:
    raw = pack_record(Kind.CLOSE, 7, 99, b"{}", b"xy")
    frame = Frame.decode(struct.unpack("<7I", raw[:28]))
    assert (frame.kind, frame.process, frame.time_ns) == (Kind.CLOSE, 7, 99)
    assert (frame.text_bytes, frame.data_bytes) == (2, 2)
    assert frame.checksum == zlib.crc32(raw[4:])


def test_a_trace_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    script = "import hcq\ntry:\n    hcq.open('CPU')\nexcept hcq.DriverError as error:\n    print(error)"
    done = run_script(script, tmp_path / "missing" / "file")
    assert "HCQ_TRACE=" in done.stdout
    assert "cannot be written (No such file or directory). Name another file." in done.stdout
    other = tmp_path / "notes.txt"
    other.write_text("my notes")
    done = run_script(script, other)
    assert "holds something else than a trace of this version" in done.stdout
    assert other.read_text() == "my notes"


def test_push_and_alloc_debugging_say_what_happens() -> None:
    script = """
import hcq
dev = hcq.open("CPU")
b = dev.alloc(100, "mine")
dev.queue().fill(b, 1).submit().wait()
b.free()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "HCQ_DEBUG": "push,alloc,sync"},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert "hcq CPU: submit #1, 14 words" in done.stderr
    assert "Fill(opcode=FILL, length=8, dst=0x" in done.stderr
    assert "Signal(opcode=SIGNAL, length=6" in done.stderr
    assert "hcq CPU: alloc 100 bytes 'mine' at 0x" in done.stderr
    assert "hcq CPU: free 128 bytes at 0x" in done.stderr


FULL = """
import resource, signal, sys, hcq
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
dev = hcq.open("CPU")
out = dev.alloc(8, "out")
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
for k in range(300):
    dev.queue().fill(out, k % 256).submit()
    if k % 50 == 0:
        dev.queue().submit().wait()
    dev.alloc(64, f"buffer {k}").write(bytes(64))
assert out.read() == bytes([299 % 256]) * 8
print("went on")
"""


@pytest.mark.parametrize("options", ["", ",data"])
def test_a_full_disk_ends_the_trace_with_one_warning_and_the_program_goes_on(
    tmp_path: Path, options: str
) -> None:
    path = tmp_path / "full"
    done = subprocess.run(
        [sys.executable, "-c", FULL],
        env={**os.environ, "HCQ_TRACE": f"{path}{options}"},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr
    assert done.stderr.count("\n") == 1
    warning = r"hcq: trace .*full ends here \(File too large\); the program goes on without it\n"
    assert re.fullmatch(warning, done.stderr)
    trace = Trace.read(str(path))  # what fitted is whole
    assert path.stat().st_size <= 20_000
    assert len(trace.submissions) > 10
