"""Overlap: intervals, and what of a process's communication is hidden behind its kernels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.command import Copy, Indirect, Signal, Wait
from hcq.events.named_spans import Span, Work
from hcq.frontend.devices.collectives import cost
from hcq.tools.trace import collectives, overlap
from hcq.trace.file import Trace
from tests.tools.trace.making import CELL, Maker

A, B = 0x20000, 0x30000
intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda one: (one[0], one[0] + one[1]))
)


def moments(found: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in found for moment in range(start, end)}


@given(one=intervals, other=intervals)
def test_unions_and_what_they_have_in_common_are_those_of_sets(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    a, b = overlap.union(one), overlap.union(other)
    assert moments(a) == moments(one)
    assert overlap.length(a) == len(moments(one))
    assert moments(overlap.common(a, b)) == moments(one) & moments(other)
    assert overlap.length(overlap.common(a, b)) == len(moments(one) & moments(other))


@given(found=intervals)
def test_rows_hold_no_two_that_overlap_and_are_as_few_as_can_be(found: list[tuple[int, int]]) -> None:
    found.sort()
    rows = overlap.rows_of(found)
    for row in set(rows):
        own = [one for one, at in zip(found, rows) if at == row]
        assert all(before[1] <= after[0] for before, after in zip(own, own[1:]))
    deepest = max((sum(start <= moment < end for start, end in found) for moment in range(80)), default=0)
    if all(end > start for start, end in found):
        assert len(set(rows)) == deepest


def two_devices() -> Maker:
    made = Maker()
    made.device("CPU")
    made.device("CPU:1")
    return made.alloc(A, 64, "a", device=0).alloc(B, 64, "b", device=1).alloc(CELL, name="cell")


def kernels(made: Maker, *times: tuple[int, int], device: int = 0) -> None:
    """Submissions that count as work of kernels: recorded queues, replayed."""
    for start, end in times:
        value = made.submit(Indirect(0x7000, 4, "step"), device=device, words=bytes(16))
        made.times((value, start, end), device=device)


def test_a_span_with_peers_is_hidden_as_far_as_kernels_run_beside_it() -> None:
    made = two_devices()
    kernels(made, (1000, 1500), (1400, 1600))
    kernels(made, (1900, 2500), device=1)
    made.span(Span("all_reduce", 1000, 2000, 4096, (0, 1)))
    made.span(Span("all_reduce", 1500, 2000, 4096, (0, 1)))  # what happens twice at a time counts once
    made.span(Span("save", 2000, 9000))
    (found,) = overlap.talks(Trace.parse(made.content))
    assert (found.spans, found.copies, found.size_bytes) == (2, 0, 8192)
    assert (found.busy_ns, found.hidden_ns, found.share) == (1000, 700, pytest.approx(0.7))


def test_a_copy_between_devices_is_communication_from_when_it_had_what_it_waited_for() -> None:
    made = two_devices()
    kernels(made, (1000, 1800))
    made.times((made.submit(Signal(CELL, 1)), 1800, 2000))
    copying = made.submit(Wait(CELL, 1), Copy(B, A, 64), device=1, words=bytes(16))
    made.times((copying, 1100, 3000), device=1)
    made.times((made.submit(Copy(A, A + 32, 32), words=bytes(16)), 3000, 3500))  # within a device: none
    (found,) = overlap.talks(Trace.parse(made.content))
    assert (found.copies, found.size_bytes, found.busy_ns, found.hidden_ns) == (1, 64, 1000, 0)


def test_kernels_and_copies_of_a_span_of_submissions_are_that_span_and_hide_nothing() -> None:
    made = two_devices()
    kernels(made, (1000, 1500))
    made.times((made.submit(Copy(B, A, 64), words=bytes(16)), 1500, 2000))
    kernels(made, (2000, 2400))
    kernels(made, (1200, 1700), device=1)
    made.work(Work("all-reduce", 1, 3, 64, ("CPU", "CPU:1")))
    (found,) = overlap.talks(Trace.parse(made.content))
    assert (found.spans, found.copies, found.size_bytes) == (1, 0, 64)
    assert (found.busy_ns, found.hidden_ns) == (1400, 500)


def test_a_process_that_tells_nobody_anything_is_not_there() -> None:
    made = two_devices()
    kernels(made, (1000, 1500))
    assert overlap.talks(Trace.parse(made.content)) == []


def test_kernels_of_another_process_hide_nothing() -> None:
    content = b""
    for process in (7, 8):
        made = Maker(process)
        made.device()
        if process == 7:
            made.span(Span("send", 1000, 2000, 8, (1,)))
        else:
            kernels(made, (1000, 2000))
        content += made.content[len(content) and 11 :]
    (found,) = overlap.talks(Trace.parse(content))
    assert (found.process, found.busy_ns, found.hidden_ns) == (7, 1000, 0)


def test_idle_is_the_share_of_the_whole_in_which_a_queue_did_nothing() -> None:
    made = two_devices()
    kernels(made, (1000, 1500), (1250, 2000))
    kernels(made, (4000, 5000), device=1)
    found = overlap.idle(Trace.parse(made.content))
    assert [(one.device, one.busy_ns, one.share) for one in found] == [
        ("CPU", 1000, 0.75),
        ("CPU:1", 1000, 0.75),
    ]


def test_collectives_of_devices_stand_beside_the_model_and_those_of_ranks_beside_nothing() -> None:
    made = two_devices()
    for took in (10_000, 30_000, 20_000):
        made.span(Span("all-reduce", 0, took, 1 << 20, ("CPU", "CPU:1")))
    made.span(Span("all_reduce", 0, 7000, 64, (0, 1)))
    made.span(Span("save", 0, 9000))
    ours, theirs = collectives.rows(Trace.parse(made.content))
    assert (ours["name"], ours["count"], ours["median_s"], ours["min_s"]) == ("all-reduce", 3, 2e-5, 1e-5)
    assert ours["model_s"] == min(
        cost.seconds("all-reduce", way, 2, 1 << 20, cost.SHARED) for way in cost.WAYS
    )
    assert (theirs["name"], theirs["peers"], theirs["model_s"]) == ("all_reduce", 2, None)
    assert collectives.model_seconds("all-reduce", 8, ("AMD", "AMD:1")) == pytest.approx(2 * 8e-6, rel=0.01)
    assert collectives.model_seconds("all-reduce", 8, ("AMD", "NV")) == pytest.approx(2 * 60e-6, rel=0.01)
