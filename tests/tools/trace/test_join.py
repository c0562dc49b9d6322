"""Several traces as one: laws of joining, what is refused, and what people are told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcq.errors import UsageError
from hcq.events.named_spans import Span
from hcq.events.ranks import Place
from hcq.tools.trace.page_data import PageData
from hcq.trace.file import Trace, read_records
from hcq.trace.join import content_of, join, source_of
from hcq.trace.records import MAGIC, Kind, pack_record
from tests.tools.trace.making import CELL, Maker

Run = Callable[..., Any]


def rank(
    number: int,
    ranks: int = 2,
    at_ns: int = 0,
    place: Place | None = None,
    clock: str | None = None,
    **about: object,
) -> Maker:
    """A rank with a device, two submissions that took 100 and 200 ns, and a collective. All ranks have process 7."""
    made = Maker(at_ns=at_ns, clock=clock or f"clock {number}", monotonic_ns=at_ns, **about)
    made.place(place or Place(number, ranks, f"node{number}"))
    made.device()
    made.alloc(CELL, name=f"cell of {number}")
    for took in (100, 200):
        value = made.submit()
        made.times((value, made.at_ns + 50, made.at_ns + 50 + took))
    now = made.at_ns
    return made.span(Span("all_reduce", now - 300, now, 4096, (0, 1)))


def joined(*contents: bytes, offsets: dict[str, int] | None = None) -> Trace:
    sources = [source_of(f"file{at}", content) for at, content in enumerate(contents)]
    found = join(sources, offsets)
    trace = Trace(found.records, found.cut_bytes, found.cut_why)
    assert Trace.parse(content_of(found)).records == trace.records
    return trace


def work(trace: Trace) -> list[tuple[Any, ...]]:
    """What happened and when, in the order of time."""
    found: list[tuple[Any, ...]] = [
        (made.time_ns, trace.process_name(made.device.process), made.device.key, made.queue, made.value,
         made.started_ns, made.finished_ns, made.site)
        for made in trace.submissions
    ]  # fmt: skip
    found += [(seen.span.started_ns, seen.device.key, "", "", 0, *seen.span) for seen in trace.spans]
    return sorted(found, key=repr)


def of_devices(content: bytes, wanted: Sequence[int]) -> bytes:
    """What a trace holds of some devices, and of none in particular."""
    records, _, _ = read_records(content)
    return MAGIC + b"".join(r.raw for r in records if r.fields.get("device", wanted[0]) in wanted)


def shifted(content: bytes, by: int, name: str) -> bytes:
    """The same as if it had been recorded by another clock, which is `by` ahead."""
    sources = [source_of("x", content)]
    moved = join(sources, {"x": by}).records
    records, _, _ = read_records(content)
    places = iter([r for r in records if r.kind == Kind.PLACE])
    made = MAGIC
    for record in moved:
        if record.kind == Kind.JOINED:
            continue
        text = dict(record.fields)
        if record.kind == Kind.PROCESS:
            text["clock"] = name
        elif record.kind == Kind.PLACE:
            text["offset_ns"] = next(places).fields["offset_ns"] - by
        else:
            made += record.raw
            continue
        maker = Maker(at_ns=record.time_ns - 1000)
        made += maker.text(Kind(record.kind), text).parts[-1]
    return made


# ------------------------------------------------------------ laws


def test_a_trace_cut_in_two_by_device_and_joined_is_the_trace() -> None:
    made = Maker(clock="c", monotonic_ns=5)
    made.device("CPU")
    made.device("AMD", "gfx1100")
    made.alloc(CELL, name="a", device=0).alloc(CELL + 64, name="b", device=1)
    for device in (0, 1, 1, 0):
        value = made.submit(device=device)
        made.times((value, made.at_ns + 10, made.at_ns + 20), device=device)
    made.span(Span("copy", 3, 9), device=1)
    whole = Trace.parse(made.content)
    again = joined(of_devices(made.content, [1]), of_devices(made.content, [0]))
    assert work(again) == work(whole)
    assert [r.raw for r in again.records if r.kind != Kind.JOINED] == [r.raw for r in whole.records]
    assert again.submissions[-1].memory().ranges == [
        replace(span, since=span.since + 2) for span in whole.submissions[-1].memory().ranges
    ]
    timelines = [PageData(one).timeline for one in (whole, again)]
    for key in ("submissions", "lanes", "end", "labels"):
        assert timelines[0][key] == timelines[1][key], key


@given(order=st.permutations(range(4)), offsets=st.lists(st.integers(-900, 10**12), min_size=4, max_size=4))
@settings(max_examples=25, deadline=None)
def test_the_order_of_files_does_not_matter(order: list[int], offsets: list[int]) -> None:
    places = [Place(0, 4, "node0")] + [Place(n, 4, f"node{n}", offsets[n], 10) for n in (1, 2, 3)]
    files = {f"rank{n}": rank(n, 4, place=places[n]).content for n in range(4)}
    sources = [source_of(name, content) for name, content in files.items()]
    assert content_of(join([sources[at] for at in order])) == content_of(join(sources))


@given(by=st.integers(-900, 10**15), offset=st.integers(0, 10**15))
@settings(max_examples=25, deadline=None)
def test_another_clock_with_another_offset_is_the_same_timeline(by: int, offset: int) -> None:
    first = rank(0).content
    second = rank(1, at_ns=2000, place=Place(1, 2, "node1", offset, 40)).content
    other = shifted(second, by, "another clock")
    assert work(joined(first, other)) == work(joined(first, second))


def test_joining_what_was_joined_with_nothing_new_changes_no_time() -> None:
    files = [rank(n, 2, place=Place(n, 2, f"node{n}", 500 * n, 10)).content for n in range(2)]
    once = joined(*files)
    assert work(joined(MAGIC + b"".join(record.raw for record in once.records))) == work(once)


def test_a_file_given_twice_counts_once() -> None:
    files = [rank(n).content for n in range(2)]
    assert work(joined(*files, files[0])) == work(joined(*files))


# ------------------------------------------------------------ clocks


def test_processes_of_one_boot_are_not_moved_whatever_was_measured() -> None:
    first, second = (
        rank(n, at_ns=70 * n, clock="same boot", place=Place(n, 2, "here", 77 * n, 90)) for n in range(2)
    )
    trace = joined(first.content, second.content)
    assert {made.started_ns for made in trace.submissions} == {
        made.started_ns for one in (first, second) for made in Trace.parse(one.content).submissions
    }
    assert [record.fields["how"] for record in trace.joined] == ["same", "same"]


def test_a_place_moves_a_process_to_the_clock_of_rank_0_and_says_how_sure_that_is() -> None:
    trace = joined(rank(0).content, rank(1, place=Place(1, 2, "node1", 10**9, 800)).content)
    one, other = ([m for m in trace.submissions if m.device.key == f"CPU@rank{n}"] for n in range(2))
    assert [b.time_ns - a.time_ns for a, b in zip(one, other)] == [10**9] * 2
    assert [b.finished_ns - a.finished_ns for a, b in zip(one, other) if a.finished_ns and b.finished_ns] == [
        10**9
    ] * 2
    assert trace.joined[1].fields["error_ns"] == 800
    assert "give or take 800 ns" in trace.joined[1].fields["text"]
    assert [trace.process_name(device.process) for device in trace.devices] == [
        "rank 0 on node0",
        "rank 1 on node1",
    ]


def test_between_two_places_the_clock_goes_straight() -> None:
    """It loses 1 us in 10 us; what lies halfway is moved by half of it."""
    made = Maker(clock="slow", monotonic_ns=0)
    made.place(Place(1, 2, "node1", 0, 5))  # at 2000
    made.device()
    made.at_ns = 7000 - 5000
    made.alloc(CELL, name="x")
    begin = made.at_ns
    made.times((made.submit(), 7000, 12_000))
    made.at_ns = 11_000
    made.place(Place(1, 2, "node1", 1000, 5))  # at 12000
    trace = joined(rank(0).content, made.content)
    (found,) = [one for one in trace.submissions if one.device.key == "CPU@rank1"]
    assert begin < 7000
    assert (found.started_ns, found.finished_ns) == (7500, 13_000)
    assert "drifts by 100000.0 ppm" in trace.joined[1].fields["text"]


def test_clocks_of_which_nothing_is_known_are_not_aligned_and_that_is_said() -> None:
    files = [
        Maker(at_ns=n * 10**9, clock=f"boot {n}", monotonic_ns=n * 10**9, unix_ns=5000).content
        for n in range(2)
    ]
    trace = joined(*files)
    assert [record.fields["aligned"] for record in trace.joined] == [True, False]
    text = trace.joined[1].fields["text"]
    assert text.startswith("file1: not aligned.")
    assert f"--offset file1={-(10**9)}" in text
    by_hand = joined(*files, offsets={"file1": -(10**9) + 4000})
    assert [record.fields["aligned"] for record in by_hand.joined] == [True, True]
    assert by_hand.processes[1].time_ns - by_hand.processes[0].time_ns == 4000


def test_files_from_before_clocks_had_names_are_read_and_not_aligned() -> None:
    one, other = Maker(), Maker(at_ns=500)
    for made in (one, other):
        made.device()
        made.submit()
    trace = joined(one.content, other.content)
    assert len(trace.submissions) == 2
    assert [record.fields["aligned"] for record in trace.joined] == [True, False]


# ------------------------------------------------------------ processes


def test_processes_of_one_number_on_two_hosts_are_kept_apart() -> None:
    trace = joined(*(rank(n).content for n in range(2)))
    assert len({device.process for device in trace.devices}) == 2
    assert {str(made.memory().find(CELL)) for made in trace.submissions} == {"cell of 0", "cell of 1"}
    assert [device.key for device in trace.devices] == ["CPU@rank0", "CPU@rank1"]


# ------------------------------------------------------------ refusals


def test_an_offset_of_no_file_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"--offset x=\.\.\.: no such file is read here\. Files: file0, file1"
    ):
        joined(rank(0).content, rank(1).content, offsets={"x": 1})


def test_an_offset_to_before_the_clock_began_is_refused() -> None:
    with pytest.raises(UsageError, match=r"file1: record 0 would be at -.* ns, where no clock can be"):
        joined(rank(0).content, rank(1).content, offsets={"file1": -(10**9)})


def test_a_second_file_that_is_cut_off_is_read_up_to_there(trace: Run, tmp_path: Path) -> None:
    paths = [rank(n).write(tmp_path / f"rank{n}") for n in range(2)]
    paths[1].write_bytes(paths[1].read_bytes()[:-5])
    done = trace("show", *paths)
    assert done.status == 0
    assert "rank1: cut off in the middle of a record" in done.err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"HCQTRACE 1\nxx", "a trace of version 1, and this program reads version 2"),
        (b"no trace", "not a trace; it does not start with 'HCQTRACE 2'"),
        (b"", "not a trace"),
    ],
)
@pytest.mark.parametrize("verb", ["show", "stats", "graph", "join"])
def test_a_second_file_that_is_none_is_one_sentence(
    trace: Run, tmp_path: Path, content: bytes, says: str, verb: str
) -> None:
    good, bad = rank(0).write(tmp_path / "good"), tmp_path / "bad"
    bad.write_bytes(content)
    done = trace(verb, good, bad, *(["-o", tmp_path / "out"] if verb == "join" else []))
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"hcq-trace: {bad}: {says}")
    assert done.err.count("\n") == 1


@given(
    kind=st.sampled_from(
        [Kind.PROCESS, Kind.PLACE, Kind.SPAN, Kind.CLOCK, Kind.JOINED, Kind.TIMES, Kind.STAMPS]
    ),
    fields=st.dictionaries(
        st.sampled_from(
            "rank ranks host offset_ns error_ns device name started_ns ended_ns size_bytes peers lane clock pid "
            "monotonic_ns unix_ns device_ns host_ns processes text file".split()
        ),
        st.one_of(
            st.integers(-(2**70), 2**70),
            st.text(max_size=4),
            st.none(),
            st.lists(st.integers(0, 9), max_size=2),
        ),
    ),
    data=st.binary(max_size=60),
    at=st.integers(0, 2**64 - 1),
)
@settings(max_examples=150, deadline=None)
def test_whole_records_of_nonsense_in_a_second_file_are_joined_or_refused_with_its_name(
    kind: Kind, fields: dict[str, Any], data: bytes, at: int
) -> None:
    text = b"" if kind in (Kind.TIMES, Kind.STAMPS) else json.dumps(fields).encode()
    bad = rank(1).content + pack_record(kind, 7, at, text, data)
    try:
        joined(rank(0).content, bad)
    except UsageError as error:
        assert str(error).startswith(("file1: ", "record "))


# ------------------------------------------------------------ two processes


RELAY = """
import sys, hcq
from hcq.events import ranks
number, offset = int(sys.argv[1]), sys.argv[2]
if offset:
    ranks.set_here(ranks.Place(number, 2, f"node{number}", int(offset), 0))
device = hcq.open("CPU")
buffer = device.alloc(64, f"of rank {number}")
for step in range(3):
    sys.stdin.readline()
    device.queue().fill(buffer, step).submit().wait()
    print("done", flush=True)
device.close()
"""
AHEAD_S = 1000
OTHER_CLOCK = ("unshare", "--time", "--monotonic", str(AHEAD_S), "--fork")  # a time namespace of its own


def relay(folder: Path, before: Sequence[str], offset: str) -> list[Path]:
    """Two ranks that take turns, the second started with a command before it: the traces of both."""
    environment = {**os.environ, "HCQ_TRACE": str(folder / "rank-%r.hcqtrace"), "HCQ_THREADS": "1"}
    made = [
        subprocess.Popen(
            [*(before if number else ()), sys.executable, "-c", RELAY, str(number), said],
            env={**environment, "PMI_RANK": str(number)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, said in enumerate(["0" if offset else "", offset])
    ]
    for _ in range(3):
        for one in made:
            assert one.stdin is not None
            assert one.stdout is not None
            one.stdin.write("go\n")
            one.stdin.flush()
            assert one.stdout.readline() == "done\n"
    assert [one.wait() for one in made] == [0, 0]
    return sorted(folder.iterdir())


def is_in_turn(trace: Trace) -> bool:
    """Whether each submission was made after the one before it had ended, which one rank after the other did."""
    made = sorted(trace.submissions, key=lambda one: (one.value, str(one.buffers()[0])))
    return all(
        (before.finished_ns or 0) <= after.time_ns <= (after.started_ns or 0)
        for before, after in zip(made, made[1:])
    )


def test_ranks_of_one_machine_that_take_turns_do_so_on_the_joined_timeline(tmp_path: Path) -> None:
    trace = Trace.read_all([str(one) for one in relay(tmp_path, (), "")])
    assert is_in_turn(trace)
    assert [record.fields["how"] for record in trace.joined] == ["same", "same"]


def test_ranks_with_two_clocks_that_take_turns_do_so_once_their_place_is_known(tmp_path: Path) -> None:
    """The second rank's clock is 1000 s ahead, as on another machine."""
    if subprocess.run([*OTHER_CLOCK, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no time namespace can be made here")
    for folder in ("placed", "lost"):
        (tmp_path / folder).mkdir()
    placed = relay(tmp_path / "placed", OTHER_CLOCK, str(-AHEAD_S * 10**9))
    trace = Trace.read_all([str(one) for one in placed])
    assert is_in_turn(trace)
    assert [record.fields["how"] for record in trace.joined] == ["same", "place"]
    lost = [str(one) for one in relay(tmp_path / "lost", OTHER_CLOCK, "")]
    trace = Trace.read_all(lost)
    assert [record.fields["aligned"] for record in trace.joined] == [True, False]
    assert is_in_turn(Trace.read_all(lost, {lost[1]: -AHEAD_S * 10**9}))


# ------------------------------------------------------------ the program


def test_show_says_who_is_who_and_what_was_done_with_clocks(trace: Run, tmp_path: Path) -> None:
    paths = [
        rank(n, place=Place(n, 2, f"node{n}", 400 * n, 9 * n)).write(tmp_path / f"rank{n}") for n in range(2)
    ]
    out = trace("show", *paths).out
    assert f"{paths[1]}: moved by 400 ns to the clock of rank 0, give or take 9 ns." in out
    assert "is rank 1 of 2 on node1" in out
    assert "CPU@rank1: all_reduce for 0.3 us, 4096 bytes with 0, 1" in out


def test_join_writes_a_file_that_reads_as_the_files_do(trace: Run, tmp_path: Path) -> None:
    paths = [rank(n).write(tmp_path / f"rank{n}") for n in range(2)]
    whole = tmp_path / "whole"
    assert trace("join", *paths, "-o", whole, "--offset", f"{paths[1]}=5000").status == 0
    assert trace("stats", whole).out == trace("stats", *paths, "--offset", f"{paths[1]}=5000").out
    assert trace("lint", whole).status == 0
    assert trace("stats", *paths, "--offset", "rank1").err.startswith(
        "hcq-trace: --offset rank1: takes a file"
    )


def test_a_second_channel_to_a_device_is_called_after_it() -> None:
    made = [Maker(process, clock="c", monotonic_ns=process) for process in (7, 8)]
    for one in made:
        for _ in range(2):
            one.device("AMD", "gfx1100")
    assert [device.key for device in Trace.parse(made[0].content).devices] == ["AMD", "AMD@2"]
    both = joined(*(one.content for one in made))
    assert len({device.key for device in both.devices}) == 4
