"""Ranks and spans: what a process says of itself and of its stretches of time, and that a trace holds it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import hcq
from hcq import config, ranks, spans
from hcq.errors import UsageError
from hcq.observe import trace_writer
from hcq.ranks import Place
from hcq.trace.file import Trace


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has said which rank this is."""
    monkeypatch.setattr(ranks, "_here", None)


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "run.hcqtrace"
    config.use(replace(config.current(), trace=str(path), threads=1))
    yield path
    config.use(None)
    writer = trace_writer._writers.pop(str(path), None)
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


def test_a_trace_holds_the_place_of_before_it_was_opened_and_those_of_later(traced: Path) -> None:
    first, second = Place(1, 4, "node7", 10**9, 800), Place(1, 4, "node7", 10**9 + 40, 500)
    ranks.set_here(first)
    with closing(hcq.open("CPU")):
        before = time.monotonic_ns()
        ranks.set_here(second)
        assert [seen.place for seen in Trace.read(str(traced)).places] == [first, second]
        assert before <= Trace.read(str(traced)).places[1].time_ns <= time.monotonic_ns()


def test_a_trace_says_which_clock_its_times_are_of(traced: Path) -> None:
    hcq.open("CPU").close()
    (process,) = Trace.read(str(traced)).processes
    assert process.fields["clock"] == ranks.clock_name()
    assert process.fields["host"] == ranks.host_name()


def test_a_span_is_as_long_as_the_body_it_is_around(traced: Path) -> None:
    with closing(hcq.open("CPU")) as device:
        before = time.monotonic_ns()
        with spans.during(device, "all_reduce", 4096, (0, 1)):
            time.sleep(0.002)
        after = time.monotonic_ns()
        with pytest.raises(ValueError), spans.during(device, "save", lane="files"):
            raise ValueError
    reduce, save = [seen.span for seen in Trace.read(str(traced)).spans]
    assert (reduce.name, reduce.size_bytes, reduce.peers, reduce.lane) == (
        "all_reduce",
        4096,
        (0, 1),
        "communication",
    )
    assert before <= reduce.started_ns <= reduce.ended_ns - 2_000_000 <= after - 2_000_000
    assert (save.name, save.peers, save.lane) == ("save", (), "files")


def test_spans_of_a_device_that_nobody_watches_go_nowhere() -> None:
    with closing(hcq.open("CPU")) as device, spans.during(device, "all_reduce"):
        pass
    spans.report(device, spans.Span("late", 1, 2))
