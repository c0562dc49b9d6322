"""The data of the local page: what it asks for is all there, and only of kinds that a browser can read."""

from __future__ import annotations

import dataclasses
import json
import operator
from pathlib import Path
from typing import Any

import pytest

from hcq.command import Barrier, Signal, Timestamp, Wait
from hcq.cpu import packets
from hcq.errors import UsageError
from hcq.performance import roofline
from hcq.performance.counters import Counters
from hcq.tools.trace.page_data import PageData, plain
from hcq.trace.file import Trace
from hcq.trace.records import Kind, Stamps
from tests.tools.trace.making import CELL, PRODUCT, PROGRAM, TIMELINE, Maker, record


def data_of(made: Maker) -> PageData:
    return PageData(Trace.parse(made.content))


@pytest.fixture(scope="module")
def recorded(capsule: Path) -> PageData:
    return PageData(Trace.read(str(capsule)))


@pytest.fixture
def two() -> Maker:
    """Two devices: the second waits for the first."""
    made = Maker()
    made.device("CPU")
    made.device("CPU:1")
    made.alloc(CELL, name="gate")
    made.submit(Wait(CELL, 2), device=1)
    made.submit(Signal(CELL, 1))
    made.submit(Signal(CELL, 2))
    return made


def test_every_answer_is_json_without_nan(recorded: PageData) -> None:
    answers: list[Any] = [recorded.timeline, recorded.kernels, recorded.memory, recorded.findings]
    answers += [recorded.submission(number) for number in range(len(recorded.trace.submissions))]
    answers += [recorded.kernel(number) for number in range(len(recorded.trace.code))]
    answers += [recorded.buffers.users(0), recorded.buffers.touches(0), recorded.search("o")]
    answers.append(recorded.where_time_went)
    for answer in answers:
        assert json.loads(json.dumps(plain(answer), allow_nan=False)) is not None


def test_the_timeline_has_a_row_for_every_submission(recorded: PageData) -> None:
    columns = recorded.timeline["submissions"]
    assert {len(column) for column in columns.values()} == {len(recorded.trace.submissions)}
    assert [recorded.timeline["work"][work] for work in columns["work"]] == [
        "kernel",
        "graph",
        "copy",
        "graph",
    ]
    labels = [recorded.timeline["labels"][label] for label in columns["label"]]
    assert labels == ["one step and 2 more", "twice", "copy and 1 more", "twice"]
    for begin, end in zip(columns["started"], columns["finished"]):
        assert 0 <= begin <= end <= recorded.timeline["end"]


def test_an_arrow_leads_from_the_signal_to_the_wait(two: Maker) -> None:
    assert data_of(two).timeline["arrows"] == {"from": (2,), "to": (0,), "value": (2,)}


def test_a_wait_for_another_devices_timeline_is_an_arrow_too(two: Maker) -> None:
    two.submit(Wait(TIMELINE, 1), device=1)
    assert data_of(two).timeline["arrows"] == {"from": (2, 1), "to": (0, 3), "value": (2, 1)}


def test_a_wait_that_nobody_ends_is_reported_with_its_submission(two: Maker) -> None:
    two.submit(Wait(CELL, 9), device=1)
    found = data_of(two)
    (stuck,) = found.timeline["stuck"]
    assert stuck["number"] == 3
    assert "gate+0x0 >= 9" in stuck["text"] or "gate >= 9" in stuck["text"]
    (wait,) = found.submission(3)["waits_for"]
    assert wait["number"] is None and wait["by"] == ""


def test_what_the_host_sets_ends_a_wait(two: Maker) -> None:
    two.submit(Wait(CELL, 5), device=1)
    two.host_sets(CELL, 5)
    (wait,) = data_of(two).submission(3)["waits_for"]
    assert wait["by"] == "the host"


def test_a_submission_without_times_has_none(two: Maker) -> None:
    columns = data_of(two).timeline["submissions"]
    assert columns["started"] == columns["finished"] == (None, None, None)


def test_each_packet_of_a_submission_says_where_its_fields_are(recorded: PageData) -> None:
    view = recorded.submission(0)
    assert [packet["packet"] for packet in view["packets"]] == ["Fill", "Dispatch", "Dispatch", "Signal"]
    for packet in view["packets"]:
        declared = view["layouts"][packet["packet"]]["fields"]
        assert set(packet["fields"]) == set(declared)
        for high, low, _ in declared.values():
            assert 0 <= low <= high < 32 * len(packet["words"])


def test_a_graph_shows_the_packets_inside_it_with_the_arguments_of_that_replay(recorded: PageData) -> None:
    first, second = recorded.submission(1)["packets"][0], recorded.submission(3)["packets"][0]
    texts = [[packet["text"] for packet in inside["packets"]] for inside in (first, second)]
    assert texts[0][0].startswith("one step(other")
    assert texts[1][0].startswith("one step(out")
    assert ", 6)" in texts[0][1] and ", 7)" in texts[1][1]


def test_a_kernel_knows_its_launches_inside_graphs_too(recorded: PageData) -> None:
    kernels = {kernel["name"]: kernel for kernel in recorded.kernels["kernels"]}
    assert kernels["one step"]["submissions"] == 3
    detail = recorded.kernel(kernels["one step"]["number"])
    assert detail["submissions"] == [0, 1, 3]
    assert any(line[2].startswith("ret") for line in detail["lines"])


def test_a_kernel_shows_the_text_that_its_loader_gave(kernels: Path, tmp_path: Path) -> None:
    program = """
import sys, hcq
image = open(sys.argv[1], "rb").read()
hcq.open("CPU").load(image, "step", sources={"source": "a[0] = 3 * a[0] + b", "ir": "ret void"})
hcq.open("CPU").load(image, "mixed")
"""
    found = PageData(Trace.read(str(record(program, tmp_path / "t", str(kernels), options=""))))
    assert found.kernel(0)["texts"] == {"source": "a[0] = 3 * a[0] + b", "ir": "ret void"}
    assert found.kernel(0)["facts"] == {}
    assert found.kernel(1)["texts"] == {}


def test_kernels_between_timestamps_have_times_of_their_own(kernels: Path, tmp_path: Path) -> None:
    path = record(PROGRAM, tmp_path / "t", str(kernels), options="", environment=["HCQ_PROFILE=1"])
    found = PageData(Trace.read(str(path)))
    steps = found.timeline["steps"]
    labels = [found.timeline["labels"][label] for label in steps["label"]]
    assert labels.count("one step") == 5 and labels.count("mixed") == 1
    columns = found.timeline["submissions"]
    for number, begin, end in zip(steps["of"], steps["from"], steps["until"]):
        assert columns["started"][number] <= begin <= end <= columns["finished"][number]
    timed = {kernel["name"]: kernel["timed"] for kernel in found.kernels["kernels"]}
    assert timed == {"one step": 5, "mixed": 1}
    dispatches = [packet for packet in found.submission(0)["packets"] if packet["packet"] == "Dispatch"]
    assert all(packet["ns"] > 0 for packet in dispatches)


def test_a_barrier_between_timestamps_is_no_work() -> None:
    made = Maker()
    made.device()
    words = b"".join(packets.Timestamp(address=CELL + at).to_bytes() for at in (0, 8))
    made.submit(Timestamp(CELL), Barrier(), Timestamp(CELL + 8), words=words)
    stamps = b"".join(number.to_bytes(8, "little") for number in (CELL, 5000, CELL + 8, 6000))
    made.raw(Kind.STAMPS, b"", Stamps(device=0, entries_count=2).to_bytes() + stamps)
    assert data_of(made).timeline["steps"]["of"] == ()


def test_memory_spans_end_where_they_are_freed() -> None:
    made = Maker()
    made.device()
    made.alloc(0x1000, 64, "first").free(0x1000).alloc(0x1000, 32, "second").alloc(0x2000, 16)
    found = data_of(made).memory
    rows = list(zip(*found["spans"].values()))
    names = [found["names"][row[2]] for row in rows]
    assert names == ["first", "second", ""]
    assert [row[:2] for row in rows] == [(0x1000, 64), (0x1000, 32), (0x2000, 16)]
    first, second, third = rows
    assert first[5] is not None and first[4] < first[5] <= second[4]
    assert second[5] is None and third[5] is None


def test_a_buffer_knows_the_submissions_that_use_it(recorded: PageData) -> None:
    spans, names = recorded.memory["spans"], recorded.memory["names"]
    called = {names[name]: span for span, name in enumerate(spans["name"])}
    assert recorded.buffers.users(called["other"]) == {"submissions": [0, 1, 2], "complete": True}
    assert recorded.buffers.users(called["gate"])["submissions"] == [2]


@pytest.mark.parametrize(
    ("text", "sort", "found"),
    [
        ("STEP", "kernel", "one step"),
        ("#3", "submission", "CPU #3"),
        ("gate", "buffer", "gate"),
        ("<module>", "line", "<string>"),
    ],
)
def test_search_finds(recorded: PageData, text: str, sort: str, found: str) -> None:
    rows = [one for one in recorded.search(text)["found"] if one["sort"] == sort]
    assert any(one["text"].startswith(found) for one in rows), recorded.search(text)


def test_search_finds_the_buffer_that_holds_an_address(recorded: PageData) -> None:
    spans, names = recorded.memory["spans"], recorded.memory["names"]
    span = next(span for span, name in enumerate(spans["name"]) if names[name] == "out")
    rows = recorded.search(hex(spans["va"][span] + 100))["found"]
    assert "out" in [one["text"] for one in rows if one["sort"] == "buffer"]


def test_a_mapping_is_not_found_in_the_place_of_its_buffer() -> None:
    made = Maker()
    made.device()
    made.text(Kind.MAP, {"device": 0, "va": 0x100000, "size_bytes": 4096, "name": "weights"})
    made.alloc(0x100000, 4096, "weights")
    assert [(one["sort"], one["text"]) for one in data_of(made).search("weights")["found"]] == [
        ("buffer", "weights")
    ]


def test_a_kernels_counters_come_with_bars_for_a_chip() -> None:
    made = Maker()
    made.device("NV", arch="sm_90")
    made.counted(PRODUCT)
    made.counted(PRODUCT, loads=False)
    found = data_of(made).counters(0)
    assert found["chip"] == found["chips"][0]["name"] == "h100"
    assert {one["name"] for one in found["chips"]} >= {"h100", "a100", "rtx4090"}
    times = [one["ns"] for one in found["bounds"]]
    assert times == sorted(times, reverse=True)
    predicted = roofline.predict(PRODUCT, "h100")
    assert times[0] == pytest.approx(1e9 * predicted.floor_seconds)
    assert found["summary"] == predicted.summary()
    assert found["launches"] == 4
    assert "16 of 1024 blocks ran" in found["of"]
    # figures are of one launch, all of its blocks
    assert ("work", "operations of f16 by matrix units", f"{2**33 * 64:,}") in found["figures"]
    other = data_of(made).counters(0, "rtx4090")
    assert other["chip"] == "rtx4090"
    assert other["bounds"][0]["ns"] > times[0]


def test_counters_are_those_of_the_program_at_that_address() -> None:
    made = Maker()
    made.device("NV", arch="sm_90")
    made.counted(PRODUCT)
    made.counted(dataclasses.replace(PRODUCT, entry=0x7000, launches=1))
    assert [data_of(made).counters(number)["launches"] for number in (0, 1)] == [2, 1]


def test_a_kernel_that_nobody_counted_says_how_to_count_it(recorded: PageData) -> None:
    assert "HCQ_PROFILE=counters" in recorded.counters(0)["missing"]


def test_a_chip_of_another_vendor_is_a_sentence() -> None:
    made = Maker()
    made.device("NV", arch="sm_90")
    with pytest.raises(UsageError, match="h100"):
        data_of(made.counted(PRODUCT)).counters(0, "mi300x")


@pytest.mark.parametrize(
    "fields",
    [{"warp_size": 0}, {"blocks": -1}, {"blocks": 10**400}, {"occupancy": float("inf")}, {"grid": [1]}],
)
def test_counters_of_a_damaged_trace_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="counters"):
        Counters.from_fields(fields)


@pytest.mark.parametrize("ask", ["submission", "kernel", "buffers.users", "buffers.touches", "counters"])
def test_a_number_that_does_not_exist_is_a_sentence(recorded: PageData, ask: str) -> None:
    with pytest.raises(UsageError, match="the trace holds"):
        operator.attrgetter(ask)(recorded)(10_000)


def test_numbers_a_browser_cannot_count_become_text() -> None:
    assert plain([2**53, -(2**60), 7, float("nan"), float("inf"), True, None]) == [
        "0x20000000000000",
        "-0x1000000000000000",
        7,
        "nan",
        "inf",
        True,
        None,
    ]


def test_characters_that_hide_or_turn_round_their_neighbours_are_spelled_out() -> None:
    assert plain({"a\u202eb": "x\x00y\u2066"}) == {"a\\u202eb": "x\\u0000y\\u2066"}


def test_times_that_no_clock_can_have_said_do_no_harm() -> None:
    made = Maker()
    made.device()
    made.submit(Signal(CELL, 1))
    made.times((1, 0, 2**64 - 1))
    found = data_of(made).timeline
    assert found["submissions"]["finished"] == (2**53,)
    went = plain(data_of(made).where_time_went)
    assert all(
        isinstance(ns, int) for ns in (went["span"], went["busy"], *went["queues"][0]["parts"].values())
    )


def test_a_trace_without_submissions_has_a_lane_for_each_device() -> None:
    made = Maker()
    made.device("CPU")
    found = data_of(made).timeline
    assert [lane["device"] for lane in found["lanes"]] == ["CPU"]
    assert found["submissions"]["value"] == ()


def test_faults_are_on_the_timeline_with_their_reason() -> None:
    made = Maker()
    made.device()
    made.text(Kind.FAULT, {"device": 0, "what": "timeout", "why": "waited for 3"})
    (fault,) = data_of(made).timeline["faults"]
    assert (fault["what"], fault["why"], fault["device"]) == ("timeout", "waited for 3", "CPU")


def test_a_file_that_is_cut_off_says_so() -> None:
    made = Maker()
    made.device()
    found = PageData(Trace.parse(made.content + b"1234")).timeline
    assert found["cut"].startswith("4 bytes at the end are no record")
