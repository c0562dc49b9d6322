"""Ranks and spans: what a process says of itself and of its stretches of time, and that a trace holds it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from hcq import config
from hcq.cpu.device import CpuDevice
from hcq.errors import DriverError, UsageError
from hcq.events import named_spans, ranks
from hcq.events.ranks import Place
from hcq.observe import trace_writer
from hcq.observe.lint import lint
from hcq.observe.trace_paths import files_of, path_of
from hcq.trace.file import Trace


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has said which rank this is."""
    monkeypatch.setattr(ranks, "_here", None)


class Traced:
    """Opens CPU devices that write a trace, to a path that may be a pattern."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pattern = str(folder / "run.hcqtrace")

    def open(self) -> CpuDevice:
        return CpuDevice("CPU:ranks", config=replace(config.current(), trace=self.pattern, threads=1))

    def read(self) -> Trace:
        return Trace.read(self.pattern)


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Traced]:
    made = Traced(tmp_path)
    yield made
    writer = trace_writer._writers.pop(made.pattern, None)
    if writer is not None:
        writer.close()


def test_nobody_is_anywhere_until_it_is_said() -> None:
    assert ranks.here() is None
    ranks.set_here(Place(1, 2, "node7", -5, 3))
    assert ranks.here() == Place(1, 2, "node7", -5, 3)


@pytest.mark.parametrize(
    "place", [Place(2, 2, "a"), Place(-1, 2, "a"), Place(1, 2, "a", 5, -1), Place(0, 2, "a", 5, 1)]
)
def test_a_place_that_cannot_be_is_refused_and_changes_nothing(place: Place) -> None:
    with pytest.raises(UsageError, match="set_here"):
        ranks.set_here(place)
    assert ranks.here() is None


def test_the_number_of_a_rank_is_the_launchers_until_it_is_set() -> None:
    assert ranks.number_here({}) is None
    assert ranks.number_here({"PMI_RANK": "3", "SLURM_PROCID": "0"}) == 3
    assert ranks.number_here({"SLURM_PROCID": "5"}) == 5
    ranks.set_here(Place(1, 2, "a"))
    assert ranks.number_here({"PMI_RANK": "3"}) == 1


def test_a_trace_holds_the_place_of_before_it_was_opened_and_those_of_later(traced: Traced) -> None:
    first, second = Place(1, 4, "node7", 10**9, 800), Place(1, 4, "node7", 10**9 + 40, 500)
    ranks.set_here(first)
    with closing(traced.open()):
        before = time.monotonic_ns()
        ranks.set_here(second)
        assert [seen.place for seen in traced.read().places] == [first, second]
        assert before <= traced.read().places[1].time_ns <= time.monotonic_ns()


def test_a_trace_says_which_clock_its_times_are_of(traced: Traced) -> None:
    traced.open().close()
    (process,) = traced.read().processes
    assert process.fields["clock"] == ranks.clock_name()
    assert process.fields["host"] == ranks.host_name()


def test_a_span_is_as_long_as_the_body_it_is_around(traced: Traced) -> None:
    with closing(traced.open()) as device:
        before = time.monotonic_ns()
        with named_spans.during(device, "all_reduce", 4096, (0, 1)):
            time.sleep(0.002)
        after = time.monotonic_ns()
        with pytest.raises(ValueError), named_spans.during(device, "save", lane="files"):
            raise ValueError
    reduce, save = [seen.span for seen in traced.read().spans]
    assert (reduce.name, reduce.size_bytes, reduce.peers, reduce.lane) == (
        "all_reduce",
        4096,
        (0, 1),
        "communication",
    )
    assert before <= reduce.started_ns <= reduce.ended_ns - 2_000_000 <= after - 2_000_000
    assert (save.name, save.peers, save.lane) == ("save", (), "files")


def test_a_span_of_submissions_lasts_from_the_first_to_the_last(traced: Traced) -> None:
    with closing(traced.open()) as device:
        buffer = device.alloc(64)
        for value in range(4):
            device.queue().fill(buffer, value).submit().wait()
        named_spans.submitted(device, named_spans.Work("all-reduce", 2, 3, 64, ("CPU", "CPU:1")))
        named_spans.submitted(device, named_spans.Work("never", 8, 9))  # nobody knows when that was
    trace = traced.read()
    (seen,) = trace.spans
    assert seen.work == (2, 3)
    second, third = trace.submissions[1:3]
    assert (seen.span.started_ns, seen.span.ended_ns) == (second.started_ns, third.finished_ns)


def test_spans_of_a_device_that_nobody_watches_go_nowhere() -> None:
    with closing(CpuDevice("CPU:ranks")) as device, named_spans.during(device, "all_reduce"):
        pass
    named_spans.report(device, named_spans.Span("late", 1, 2))
    named_spans.submitted(device, named_spans.Work("late", 1, 2))


COLLECTIVE = """
from hcq import Tensor
whole = Tensor([[1.0] * 4096] * 2).shard(("CPU", "CPU:1"), 0)
assert whole.sum(0).tolist() == [2.0] * 4096
"""


def test_collectives_of_devices_are_spans_of_their_submissions(tmp_path: Path) -> None:
    path = tmp_path / "t"
    environment = {**os.environ, "HCQ_TRACE": str(path), "HCQ_THREADS": "1"}
    subprocess.run([sys.executable, "-c", COLLECTIVE], env=environment, check=True, timeout=60)
    trace = Trace.read(str(path))
    assert {(seen.device.name, seen.span.name, seen.span.peers) for seen in trace.spans} == {
        (name, "all-reduce", ("CPU", "CPU:1")) for name in ("CPU", "CPU:1")
    }
    assert all(seen.span.size_bytes == 4096 * 4 for seen in trace.spans)
    assert lint(trace) == []  # where nothing waits, the trace says that the host had seen it done


# ------------------------------------------------------------ which file


def test_a_path_has_the_rank_the_process_and_the_host_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "3")
    assert path_of("run-%r-%p-%h-100%%.t", 77) == f"run-3-77-{ranks.host_name()}-100%.t"
    assert path_of("%p") == str(os.getpid())


@pytest.mark.parametrize("pattern", ["%", "a%b", "100% sure"])
def test_another_percent_sign_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="means nothing"):
        path_of(pattern)


def test_a_rank_that_nobody_knows_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ranks.LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="which rank is this process"):
        path_of("run-%r.t")


def test_the_files_of_a_pattern_are_those_that_a_process_could_have_written(tmp_path: Path) -> None:
    for name in ("run-0.t", "run-12.t", "run-x.t", "run-.t", "run-0.txt"):
        (tmp_path / name).touch()
    assert [one.name for one in files_of(f"{tmp_path}/run-%r.t")] == ["run-0.t", "run-12.t"]


def test_a_device_writes_to_the_file_of_its_rank(traced: Traced) -> None:
    traced.pattern = str(traced.folder / "run-%r.t")
    ranks.set_here(Place(1, 2, "here"))
    traced.open().close()
    assert [one.name for one in traced.folder.iterdir()] == ["run-1.t"]


def test_a_trace_of_another_clock_is_not_added_to(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    traced.open().close()
    trace_writer._writers.pop(traced.pattern).close()
    before = Path(traced.pattern).read_bytes()
    monkeypatch.setattr(ranks, "clock_name", lambda: "another boot")
    with pytest.raises(DriverError, match=r"with another clock: .* HCQ_TRACE=run-%h-%r\.hcqtrace"):
        traced.open()
    assert Path(traced.pattern).read_bytes() == before
    with pytest.raises(DriverError, match="with another clock"):
        trace_writer.TraceWriter.check(traced.pattern)


BEGINNER = """
import sys
from hcq.observe.trace_writer import TraceWriter
sys.stdin.readline()
for _ in range(20):
    TraceWriter(sys.argv[1]).intern("x" * 100_000)
"""


def test_processes_that_begin_one_file_at_the_same_time_write_one_trace(tmp_path: Path) -> None:
    path = tmp_path / "t"
    made = [
        subprocess.Popen([sys.executable, "-c", BEGINNER, str(path)], stdin=subprocess.PIPE) for _ in range(3)
    ]
    for one in made:
        assert one.stdin is not None
        one.stdin.write(b"go\n")
        one.stdin.close()
    assert [one.wait(60) for one in made] == [0, 0, 0]
    trace = Trace.read(str(path))
    assert trace.cut_bytes == 0
    assert sorted(record.process for record in trace.processes) == sorted(
        one.pid for one in made for _ in range(20)
    )
