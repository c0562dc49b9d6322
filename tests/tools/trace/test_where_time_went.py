"""Where the time went: the parts of a queue add up to its span, whatever the trace, and each has the right reason."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.command import Indirect, Signal, Wait
from hcq.tools.trace import overlap, where_time_went
from hcq.tools.trace.color import Color
from hcq.tools.trace.page_data import PageData
from hcq.tools.trace.stats import collect
from hcq.trace.file import Trace
from hcq.trace.records import Kind
from tests.tools.trace.making import CELL, PROGRAM, Maker, record


def went_of(made: Maker) -> where_time_went.Went:
    return where_time_went.where(Trace.parse(made.content))


def load(made: Maker, va: int = 0x5000, name: str = "k") -> None:
    fields = {
        "device": 0,
        "name": name,
        "entry": "k",
        "va": va,
        "args": None,
        "scratch_bytes": 0,
        "facts": {},
    }
    made.text(Kind.CODE, fields, b"\x7fELF")


INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted).map(tuple), max_size=8)


@given(one=INTERVALS, other=INTERVALS)
def test_what_is_left_and_what_is_common_are_the_whole(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    a, b = overlap.union(one), overlap.union(other)
    left = where_time_went.without(a, b)
    moments = {t for start, end in left for t in range(start, end)}
    assert moments == {t for s, e in a for t in range(s, e)} - {t for s, e in b for t in range(s, e)}
    assert overlap.length(left) + overlap.length(overlap.common(a, b)) == overlap.length(a)


@pytest.mark.parametrize("seed", range(20))
def test_the_parts_of_every_queue_add_up_to_its_span(seed: int) -> None:
    chance = random.Random(seed)
    made = Maker()
    for device in range(3):
        made.device(f"CPU:{device}")
    made.alloc(CELL, name="gate")
    for value in range(1, 40):
        device = chance.randrange(3)
        step = Wait(CELL, value // 2) if chance.random() < 0.4 else Signal(CELL, value)
        own = made.submit(step, device=device)
        start = made.at_ns + chance.randrange(-3000, 9000)  # clocks differ, and times may overlap
        if chance.random() < 0.8:
            made.times((own, start, start + chance.randrange(9000)), device=device)
        if chance.random() < 0.2:
            load(made, 0x5000 + 64 * value)
        if chance.random() < 0.2:
            made.host_sets(CELL, value)
        made.at_ns += chance.randrange(9000)
    went = went_of(made)
    assert len(went.queues) == 3
    for queue in went.queues:
        assert set(queue.parts) == {*where_time_went.WORK, *where_time_went.IDLE}
        assert all(ns >= 0 for ns in queue.parts.values())
        assert sum(queue.parts.values()) == queue.span_ns == went.ended_ns - went.started_ns
    assert 0 <= went.before_compiling_ns <= went.before_ns


def test_idle_time_is_compiling_up_to_the_load_and_the_hosts_after_it() -> None:
    made = Maker()
    made.device()
    first = made.submit(Signal(CELL, 1))
    made.times((first, made.at_ns, made.at_ns + 1000))
    done = made.at_ns
    made.raw(Kind.STRING, b"", (99).to_bytes(4, "little") + b"x")
    made.at_ns = done + 50_000
    load(made)
    loaded = made.at_ns
    made.at_ns = loaded + 20_000
    second = made.submit(Signal(CELL, 2))
    submitted = made.at_ns
    made.times((second, submitted + 3000, submitted + 4000))
    (queue,) = went_of(made).queues
    assert queue.parts["compiling"] == loaded - done
    assert queue.parts["host"] == submitted - loaded
    assert queue.parts["late"] == 3000
    assert queue.parts["signals"] == 2000
    assert queue.busy_ns == 2000


def test_compiling_reaches_back_before_the_memory_that_the_program_got() -> None:
    made = Maker()
    made.device()
    made.alloc(0x100, 64, "other")
    since = made.at_ns
    made.at_ns = since + 9000
    made.alloc(0x5000, 64, "code")
    load(made)
    (one,) = where_time_went.compiles(Trace.parse(made.content))
    # the name of the buffer stands in a record of its own, which does not count
    assert (one.started_ns, one.ended_ns, one.name) == (since, made.at_ns, "k")


def test_a_wait_for_another_device_is_no_work() -> None:
    made = Maker()
    made.device("CPU")
    made.device("CPU:1")
    made.alloc(CELL, name="gate")
    waits = made.submit(Wait(CELL, 1), device=1)
    submitted = made.at_ns
    sets = made.submit(Signal(CELL, 1))
    end = submitted + 50_000
    made.times((sets, submitted + 10_000, end))
    made.times((waits, submitted + 500, end + 700), device=1)
    one, two = went_of(made).queues
    by_name = {queue.device: queue.parts for queue in (one, two)}
    assert by_name["CPU:1"]["waiting"] == end - (submitted + 500)
    assert by_name["CPU:1"]["signals"] == 700
    assert by_name["CPU"]["signals"] == 40_000


def test_a_wait_that_the_host_ends_is_the_hosts_time() -> None:
    made = Maker()
    made.device()
    made.alloc(CELL, name="gate")
    value = made.submit(Wait(CELL, 5))
    start = made.at_ns
    made.at_ns += 9000
    made.host_sets(CELL, 5)
    seen = made.at_ns
    made.times((value, start, seen + 100))
    (queue,) = went_of(made).queues
    assert queue.parts["host"] == seen - start
    assert queue.parts["signals"] == 100


def test_nothing_is_known_while_a_submission_without_times_may_have_run() -> None:
    made = Maker()
    made.device()
    first = made.submit(Signal(CELL, 1))
    made.times((first, made.at_ns, made.at_ns + 1000))
    made.at_ns += 5000
    made.submit(Signal(CELL, 2))
    lost = made.at_ns
    made.at_ns += 5000
    third = made.submit(Signal(CELL, 3))
    made.times((third, made.at_ns, made.at_ns + 1000))
    (queue,) = went_of(made).queues
    assert queue.parts["unknown"] == made.at_ns - 1000 - lost


def test_a_replay_whose_packets_the_trace_has_not_is_work_under_its_own_name() -> None:
    made = Maker()
    made.device()
    value = made.submit(Indirect(0x7000, 4, "step"), words=bytes(16))
    made.times((value, made.at_ns, made.at_ns + 700))
    went = went_of(made)
    assert went.queues[0].parts["kernel"] == 700
    assert [(row.kind, row.name, row.look, row.total_ns) for row in went.rows] == [
        ("kernel", "step", "graph", 700)
    ]


def test_names_have_the_times_that_stats_counts(kernels: Path, tmp_path: Path) -> None:
    """A second opinion: the table of `hcq-trace stats`."""
    path = record(PROGRAM, tmp_path / "t", str(kernels), options="", environment=["HCQ_PROFILE=1"])
    trace = Trace.read(str(path))
    went = where_time_went.where(trace)
    theirs = {row["name"]: row for row in collect(trace)["work"]}
    single = [row for row in went.rows if row.kind != "together"]
    assert {row.name for row in single} == set(theirs)
    for row in single:
        assert row.count == theirs[row.name]["count"]
        if theirs[row.name]["total_s"] is not None and row.timed == theirs[row.name]["timed"]:
            assert row.total_ns == pytest.approx(1e9 * theirs[row.name]["total_s"], abs=1)
    kernels_ns = sum(row.total_ns for row in went.rows if row.kind == "kernel")
    assert kernels_ns <= went.busy_ns


def test_names_and_whole_submissions_together_are_all_work_that_is_timed(capsule: Path) -> None:
    """A queue works on one thing at a time, so no moment is in two rows, and none is left out."""
    went = where_time_went.where(Trace.read(str(capsule)))
    assert sum(row.total_ns for row in went.rows) == went.busy_ns > 0
    whole = {row.name: row for row in went.rows if row.kind == "together"}
    assert whole["one step and 2 more"].look == "kernel"
    assert all(row.timed <= row.count for row in went.rows)


def test_a_trace_without_submissions_has_no_time_to_tell_of() -> None:
    made = Maker()
    made.device()
    went = went_of(made)
    assert (went.queues, went.rows, went.busy_ns) == ([], [], 0)
    assert PageData(Trace.parse(made.content)).where_time_went["queues"] == []
    assert list(where_time_went.lines(went, Color(is_on=False))) == []
