"""export and stats: the numbers of a trace, for other programs."""

from __future__ import annotations

import csv
import io
import json

import pytest

from hcq.command import Signal, Wait
from hcq.tools.trace.perfetto import encode
from hcq.tools.trace.stats import collect, duration
from hcq.trace.file import Trace
from tests.tools.trace.making import CELL, PROGRAM, Maker, record


def timed() -> Trace:
    """Two submissions of ten seconds with a gap of five, the second of another device waiting for the first."""
    made = Maker()
    made.device("CPU")
    made.device("CPU:1")
    made.alloc(CELL, name="gate")
    made.submit(Signal(CELL, 1), device=0)
    made.submit(device=0)
    made.submit(Wait(CELL, 1), device=1)
    second = 10**9
    made.times((1, 100 * second, 110 * second), (2, 115 * second, 125 * second), device=0)
    made.times((1, 110 * second, 111 * second), device=1)
    return Trace.parse(made.content)


def test_occupancy_is_busy_time_over_span_and_gaps_are_named():
    queue = collect(timed())["devices"][0]
    assert queue["span_s"] == 25
    assert queue["busy_s"] == 20
    assert queue["occupancy"] == 0.8
    assert queue["gap_count"] == 1
    assert queue["gaps"] == [{"seconds": 5.0, "after": 1, "before": 2}]


def test_submissions_that_overlap_are_busy_once():
    made = Maker()
    made.device()
    for _ in range(3):
        made.submit()
    made.times((1, 0, 100), (2, 50, 200), (3, 150, 180))
    queue = collect(Trace.parse(made.content))["devices"][0]
    assert queue["busy_s"] == queue["span_s"] == 200e-9
    assert queue["gap_count"] == 0


def test_a_kernel_alone_in_its_submission_has_its_time(trace, kernels, tmp_path):
    script = """
import sys, hcq
dev = hcq.open("CPU")
step = dev.load(open(sys.argv[1], "rb").read(), "step", args=("buffer", "int"))
out = dev.alloc(4096, "out")
for k in range(7):
    dev.queue().dispatch(step, [out, k]).submit().wait()
dev.queue().copy(out, out, 64).submit().wait()
"""
    path = record(script, tmp_path / "t", str(kernels), options="")
    work = {row["name"]: row for row in json.loads(trace("stats", path, "--json").out)["work"]}
    assert work["step"]["count"] == work["step"]["timed"] == 7
    assert work["step"]["total_s"] >= 7 * work["step"]["min_s"] > 0
    assert work["step"]["bytes"] == 7 * 4096
    assert work["copy"]["bytes"] == 128
    text = trace("stats", path).out
    assert "8 submissions, 8 commands" in text
    assert "memory: at most" in text


def test_profiling_gives_kernels_that_share_a_submission_their_times(trace, kernels, tmp_path):
    plain = record(PROGRAM, tmp_path / "plain", str(kernels), options="")
    assert "HCQ_PROFILE=1 times every kernel" in trace("stats", plain).out
    path = record(PROGRAM, tmp_path / "t", str(kernels), options="", environment=["HCQ_PROFILE=1"])
    work = {row["name"]: row for row in json.loads(trace("stats", path, "--json").out)["work"]}
    assert work["mixed"]["timed"] == 1
    assert work["one step"]["timed"] == work["one step"]["count"] == 5


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (2.5, "2.50 s"), (2e-3, "2.00 ms"), (3e-6, "3.00 us"), (4e-9, "4 ns")]
)
def test_times_are_said_as_people_say_them(seconds, text):
    assert duration(seconds) == text


def test_csv_has_a_row_for_each_command(trace, capsule):
    rows = list(csv.DictReader(io.StringIO(trace("export", capsule, "--csv").out)))
    assert [row["verb"] for row in rows] == [
        "fill", "dispatch", "dispatch", "dispatch", "dispatch", "wait", "copy", "dispatch", "dispatch"
    ]  # fmt: skip
    assert rows[1]["kernel"] == "one step"
    assert (rows[1]["grid_x"], rows[1]["submission"]) == ("1", "1")
    assert float(rows[1]["finished_s"]) >= float(rows[1]["started_s"]) >= float(rows[1]["submitted_s"])


def test_json_holds_what_show_shows(trace, capsule, tmp_path):
    path = tmp_path / "t.json"
    assert trace("export", capsule, "--json", "-o", path).status == 0
    whole = json.loads(path.read_text())
    assert whole["schema"] == 1
    assert whole["devices"][0]["name"] == "CPU"
    shown = [json.loads(line) for line in trace("show", capsule, "--json").out.splitlines()]
    submissions = [view for view in whole["records"] if view["kind"] == "submission"]
    assert submissions == [view for view in shown if view["kind"] == "submission"]


# ------------------------------------------------------------ Perfetto; test_perfetto.py opens it with the real thing


def events(content: bytes):
    """The file, read with Perfetto's own schema."""
    protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    whole = protos.Trace()
    whole.ParseFromString(content)
    assert whole.SerializeToString()
    return whole.packet


def test_perfetto_reads_tracks_slices_and_counters(capsule):
    packets = events(encode(Trace.read(str(capsule))))
    assert packets[0].clock_snapshot.primary_trace_clock == 3  # CLOCK_MONOTONIC
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in packets if p.HasField("track_descriptor")}
    assert {"CPU main", "CPU live bytes", "host MainThread"} <= {track.name for track in tracks.values()}
    made = [p for p in packets if p.HasField("track_event")]
    assert all(p.track_event.track_uuid in tracks for p in made)
    assert all(p.timestamp_clock_id == 3 for p in made)
    queue = next(uuid for uuid, track in tracks.items() if track.name == "CPU main")
    slices = [p for p in made if p.track_event.track_uuid == queue]
    kinds = [p.track_event.type for p in slices]
    assert kinds.count(1) == kinds.count(2) == 4  # SLICE_BEGIN, SLICE_END
    times = [p.timestamp for p in slices]
    assert times == sorted(times)
    notes = {note.name: note for note in slices[0].track_event.debug_annotations}
    assert notes["submission"].int_value == 1
    assert notes["command 1"].string_value == "dispatch one step(out, -3) grid=(1,1,1)"
    counters = [p.track_event.counter_value for p in made if p.track_event.type == 4]
    assert max(counters) >= 4096 + 64


def test_perfetto_draws_arrows_from_the_host_to_the_device_and_from_signals_to_waits():
    made = [p.track_event for p in events(encode(timed())) if p.HasField("track_event")]
    begun = [flow for event in made for flow in event.flow_ids]
    ended = [flow for event in made for flow in event.terminating_flow_ids]
    assert sorted(begun) == sorted(ended)
    assert len(begun) == 4  # three submissions and one wait


def test_perfetto_nests_kernels_in_their_submission_when_they_have_times(kernels, tmp_path):
    path = record(PROGRAM, tmp_path / "t", str(kernels), options="", environment=["HCQ_PROFILE=1"])
    depth, names = 0, []
    for packet in events(encode(Trace.read(str(path)))):
        event = packet.track_event
        if event.type == 1:
            depth += 1
            names.append((depth, event.name))
        elif event.type == 2:
            depth -= 1
            assert depth >= 0
    assert depth == 0
    assert (2, "mixed") in names
