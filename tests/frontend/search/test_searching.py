"""Searching: a plan's kernels get the schedules that were found, here or in a file, and only those that fit."""

from __future__ import annotations

import dataclasses
import io
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcq import Tensor, config
from hcq.compiler.assemble.llvm_cpu import assemble
from hcq.compiler.compile import compile_kernel
from hcq.compiler.kernel import kernel_key
from hcq.compiler.search.results import Result, parse, text_of, union
from hcq.compiler.target import cpu_target
from hcq.errors import UsageError
from hcq.frontend.core import above
from hcq.frontend.core import device as devices
from hcq.frontend.run import plan
from hcq.frontend.search import searching, store
from hcq.frontend.search.progress import Progress, shown_ns
from hcq.frontend.search.searching import place_of, schedules_for
from tests.compiler.building import kernel, matmul, out, param
from tests.compiler.loops.test_loop_nest import product

Settings = Callable[..., None]


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """Switches for one test, with a cache folder of its own."""
    before = config.current()
    searching.forget_time()

    def use(**changes: Any) -> None:
        config.use(dataclasses.replace(before, cache_dir=tmp_path / "cache", compilers=1, **changes))

    use()
    yield use
    config.use(before)
    searching.forget_time()


class Modelled(searching.Tester):
    """Candidates are neither compiled nor run: their times depend on their texts."""

    def begin(self) -> bool:
        self.heuristic = "split r0 4"
        self.reference_ns = 5000.0
        return True

    def measure(self, schedules: Sequence[str]) -> Iterator[float | None]:
        for one in schedules:
            if one == self.heuristic:
                yield 6000.0
            else:
                yield None if "stage" in one else 4000.0 + random.Random(one).randrange(2000)

    def compare(self, schedules: Sequence[str]) -> list[float | None]:
        return list(self.measure(schedules))


def result(schedule: str, **changes: Any) -> Result:
    key, target, toolchain, by = place_of("CPU", product(), cpu_target())
    made = Result("dot", key, target, toolchain, by, 4, 10, 500, 1000, schedule)
    return dataclasses.replace(made, **changes)


def write(path: Path, *results: Result) -> Path:
    path.write_text(text_of(union(results)))
    return path


def test_without_the_switches_nobody_looks(settings: Settings) -> None:
    store.add(result("split r0 4"))
    assert schedules_for("CPU", [product()], cpu_target()) == {}


def test_a_file_of_results_serves_without_a_search(settings: Settings, tmp_path: Path) -> None:
    settings(search_results=write(tmp_path / "found.txt", result("split r0 4")))
    assert schedules_for("CPU", [product()], cpu_target()) == {kernel_key(product()): "split r0 4"}


@pytest.mark.parametrize("name", ["target", "toolchain", "key"])
def test_results_for_something_else_are_not_used(settings: Settings, tmp_path: Path, name: str) -> None:
    settings(search_results=write(tmp_path / "found.txt", result("split r0 4", **{name: "other"})))
    assert schedules_for("CPU", [product()], cpu_target()) == {}


def test_where_the_heuristic_was_best_it_chooses(settings: Settings, tmp_path: Path) -> None:
    settings(search_results=write(tmp_path / "found.txt", result("-")))
    assert schedules_for("CPU", [product()], cpu_target()) == {}


def test_a_search_keeps_what_it_found_and_the_next_one_finds_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(searching, "Tester", Modelled)
    settings(search=2)
    found = schedules_for("CPU", [product()], cpu_target())
    (schedule,) = found.values()
    assert "stage" not in schedule
    (kept,) = store.known().values()
    assert kept.schedule == schedule and kept.ns < kept.heuristic_ns and kept.width == 2
    said = capsys.readouterr().err
    assert re.search(r"hcq: search dot_33x70_from_47: \d+ tried, best 4.?\d* us, 1.\d+ times as fast", said)
    assert schedules_for("CPU", [product()], cpu_target()) == found
    assert capsys.readouterr().err == ""  # nothing was searched


def test_the_same_seed_finds_the_same(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(searching, "Tester", Modelled)
    found = []
    for number in range(2):
        settings(search=2, search_seed=5, search_results=tmp_path / f"{number}.txt")
        found.append(schedules_for("CPU", [product()], cpu_target()))
    assert found[0] == found[1]
    assert (tmp_path / "0.txt").read_text() == (tmp_path / "1.txt").read_text()


def test_a_narrower_search_is_done_again_from_where_it_ended(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[list[str]] = []

    class Watched(Modelled):
        def measure(self, schedules: Sequence[str]) -> Iterator[float | None]:
            begun.append(list(schedules))
            return super().measure(schedules)

    monkeypatch.setattr(searching, "Tester", Watched)
    settings(search=2)
    store.add(result("split r0 8; unroll r0.1", width=1))
    schedules_for("CPU", [product()], cpu_target())
    assert begun[0] == ["split r0 4"]
    assert begun[1][0] == "split r0 8; unroll r0.1"


def test_ctrl_c_keeps_what_was_found(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Modelled):
        count = 0

        def measure(self, schedules: Sequence[str]) -> Iterator[float | None]:
            for one in schedules:
                Interrupted.count += 1
                if Interrupted.count == 30:
                    raise KeyboardInterrupt
                yield from super().measure([one])

    monkeypatch.setattr(searching, "Tester", Interrupted)
    settings(search=2)
    with pytest.raises(KeyboardInterrupt):
        schedules_for("CPU", [product()], cpu_target())
    (kept,) = store.known().values()
    assert kept.ns < kept.heuristic_ns
    assert kept.width == 0  # so that the next search goes on


def test_a_kernel_whose_heuristic_schedule_fails_is_left_alone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(searching.Tester):
        def begin(self) -> bool:
            self.why = "DeviceFault: on fire"
            return False

    monkeypatch.setattr(searching, "Tester", Broken)
    settings(search=2)
    assert schedules_for("CPU", [product()], cpu_target()) == {}
    assert "not searched: DeviceFault: on fire" in capsys.readouterr().err


def test_the_budget_is_shared_and_then_over(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings(search=1, search_seconds=100)
    assert searching._share(1) == 25
    assert searching._share(10) == 10
    monkeypatch.setattr(searching, "_spent_s", 99.5)
    assert searching._share(1) == 0.5
    monkeypatch.setattr(searching, "_spent_s", 101.0)
    store._said.clear()
    assert schedules_for("CPU", [product()], cpu_target()) == {}
    assert "HCQ_SEARCH_SECONDS are over" in capsys.readouterr().err


# -- candidates on the device ---------------------------------------------------------------------------------------


@pytest.fixture
def tester(settings: Settings) -> Iterator[searching.Tester]:
    made = searching.Tester("CPU", product(), cpu_target(), float("inf"))
    assert made.begin(), made.why
    yield made
    made.end()


def test_candidates_are_compiled_checked_and_timed(tester: searching.Tester) -> None:
    legal = "split r1 8; vectorize r1.1"
    times = list(tester.measure([legal, "unroll everything", tester.heuristic]))
    assert [ns is None for ns in times] == [False, True, False]
    side_by_side = tester.compare([tester.heuristic, legal])
    assert all(ns is not None and ns > 0 for ns in side_by_side)


def test_a_candidate_that_lies_fails_and_the_next_one_counts(tester: searching.Tester) -> None:
    honest, lie = "split r1 8; vectorize r1.1", "split r1 4; vectorize r1.1"
    assert next(tester.measure([honest])) is not None
    doubled = matmul(param(1, (33, 47)) * 2.0, param(2, (47, 70)))
    tester.codes[lie] = compile_kernel(kernel((out(0, (33, 1, 70)), doubled)), cpu_target())
    first, second = tester.measure([lie, "split r1 16; vectorize r1.1"])
    assert first is None and second is not None


ENDLESS = """
define void @dot_33x70_from_47(ptr %0, ptr %1, ptr %2, ptr %range) {
  br label %again
again:
  call void asm sideeffect "", ""()
  br label %again
}
"""
FAULTY = """
define void @dot_33x70_from_47(ptr %0, ptr %1, ptr %2, ptr %range) {
  store volatile i32 1, ptr inttoptr (i64 8 to ptr)
  ret void
}
"""


@pytest.mark.parametrize("text", [ENDLESS, FAULTY], ids=["hangs", "faults"])
def test_a_candidate_that_hangs_or_faults_costs_a_process_and_the_next_one_counts(
    tester: searching.Tester, text: str
) -> None:
    bad, good = "split r1 4; vectorize r1.1", "split r1 16; vectorize r1.1"
    heuristic = tester.codes[tester.heuristic]
    image = assemble(text, cpu_target(), heuristic.entry)
    tester.codes[bad] = dataclasses.replace(heuristic, image=image)
    assert tester._bench is not None
    starts = tester._bench.starts
    tester._run_s = 0.2  # it never ends by itself
    assert next(tester.measure([bad])) is None
    tester._run_s = 60.0  # this one does, also on a busy machine
    assert next(tester.measure([good])) is not None
    assert tester._bench.starts == starts + 1  # a new process


def test_a_search_on_this_machine_gives_a_right_program(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings(search=1, search_seconds=1, search_results=tmp_path / "found.txt", device="CPU")
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((70, 53), (53, 81)))
    got = (Tensor(a).to("CPU") @ Tensor(b).to("CPU")).numpy()
    np.testing.assert_allclose(got, a @ b, rtol=1e-4, atol=1e-4)
    kept, problems = parse((tmp_path / "found.txt").read_text())
    assert problems == []
    assert any(one.kernel.startswith("dot_70x81") and one.ns <= one.heuristic_ns for one in kept.values())
    assert "hcq: search dot_70x81_from_53" in capsys.readouterr().err


def test_a_schedule_of_another_version_is_passed_over(settings: Settings, tmp_path: Path) -> None:
    sinks: list[Any] = []
    settings(search_results=tmp_path / "found.txt", device="CPU")
    (tmp_path / "found.txt").write_text("")
    looked_up = searching.schedules_for

    def watch(device: str, found: Sequence[Any], target: Any) -> dict[str, str]:
        sinks.extend(found)
        looked_up(device, found, target)
        return {kernel_key(sink): "swirl r0 8" for sink in found}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(above, "schedules_for", watch)
        x = Tensor([float(i) for i in range(43)]).to("CPU")
        assert (x * 3.25 - 1.5).numpy()[42] == 42 * 3.25 - 1.5
    assert sinks


def test_plans_depend_on_the_results_in_use(settings: Settings, tmp_path: Path) -> None:
    assert plan._search_digest() == ""
    settings(search_results=write(tmp_path / "found.txt", result("split r0 4")))
    first = plan._search_digest()
    write(tmp_path / "found.txt", result("split r0 8"))
    assert first != plan._search_digest() != ""
    assert devices.canonical("CPU") == "CPU"


# -- the file -------------------------------------------------------------------------------------------------------


def test_a_damaged_file_that_was_named_is_refused_in_one_sentence(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "found.txt"
    path.write_text("# fine\nkernel=dot\n")
    settings(search_results=path)
    with pytest.raises(
        UsageError, match=r"found\.txt, line 2: 'kernel=dot' is no result: .* Remove the line\.$"
    ):
        schedules_for("CPU", [product()], cpu_target())
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="no search results can be read there"):
        schedules_for("CPU", [product()], cpu_target())


def test_a_named_file_that_is_missing_is_made_by_a_search_and_else_refused(
    settings: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "new.txt"
    settings(search_results=path)
    with pytest.raises(UsageError, match="No such file"):
        schedules_for("CPU", [product()], cpu_target())
    settings(search_results=path, search=1)
    store.add(result("split r0 4"))
    assert path.read_text() == text_of(union([result("split r0 4")]))


def test_a_damaged_line_of_the_cache_is_left_out_with_a_warning(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings(search=1)
    store.add(result("split r0 4"))
    with store.path().open("a") as file:
        file.write("torn")
    store._said.clear()
    assert list(store.known().values()) == [result("split r0 4")]
    assert capsys.readouterr().err.count("'torn' is no result") == 1


def test_results_that_cannot_be_kept_cost_a_warning(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings(search=1, search_results=tmp_path / "nowhere" / "found.txt")
    store._said.clear()
    store.add(result("split r0 4"))
    assert "what a search found is not kept" in capsys.readouterr().err


# -- what is said ---------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_with_a_bar_and_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    now = iter([0.0, 5.0, 10.0])
    stream = Terminal()
    progress = Progress(stream, "dot", 10, lambda: next(now))
    progress.tell(7, 500.0, 1000.0)
    progress.end(9, 400.0, 1000.0)
    first, second = stream.getvalue().strip("\r\n").split("\r")
    assert (
        first
        == "search dot [##########..........] 7 tried, best 500 ns, 2.00 times as fast as the heuristic's"
    )
    assert (
        second.strip()
        == "hcq: search dot: 9 tried, best 400 ns, 2.50 times as fast as the heuristic's, 10.0 s"
    )


def test_a_line_fits_its_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    Progress(stream, "dot", 10).tell(7, 500.0, 1000.0)
    assert len(stream.getvalue().strip("\r")) == 29


def test_a_file_gets_plain_lines() -> None:
    now = iter([0.0, 10.0])
    stream = io.StringIO()
    progress = Progress(stream, "dot", 10, lambda: next(now))
    progress.end(0, 0, 0, "interrupted")
    assert stream.getvalue().splitlines() == [
        "hcq: search dot, at most 10 s",
        "hcq: search dot: interrupted, 10.0 s",
    ]


def test_times_have_three_digits_and_a_unit() -> None:
    assert [shown_ns(ns) for ns in (7, 1234, 5.6e6, 7.89e9)] == ["7 ns", "1.23 us", "5.6 ms", "7.89 s"]


def test_a_kernel_of_nothing_can_be_looked_up() -> None:
    assert len(place_of("CPU", kernel((out(0, ()), param(1, ()))), cpu_target())) == 4
