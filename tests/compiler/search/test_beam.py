"""Beam: a search is never slower than where it began, by its own measurements, and is the same again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from hcq.compiler.search.beam import PER_MEMBER, Beam, Found


def around(text: str, rng: random.Random) -> Iterator[str]:
    """Neighbours of a number, as text."""
    found = [str(int(text) + step) for step in (-3, -2, -1, 1, 2, 3)]
    rng.shuffle(found)
    yield from found


class Landscape:
    """Times that depend on the candidate alone; some candidates fail."""

    def __init__(self, seed: int, failing: int = 4) -> None:
        self.seed, self.failing = seed, failing
        self.asked: list[str] = []

    def __call__(self, candidates: Sequence[str]) -> Iterator[float | None]:
        for one in candidates:
            self.asked.append(one)
            rng = random.Random(f"{self.seed} {one}")
            fails = one != "0" and rng.randrange(self.failing) == 0
            yield None if fails else 100 + abs(int(one) - 20) + 10 * rng.random()


def run(seed: int, landscape: Landscape, width: int = 2, **rest: object) -> Found:
    found = Beam(["0"], around, landscape, width, seed, **rest).run()  # type: ignore[arg-type]
    assert found is not None
    return found


@given(st.integers(0, 1000), st.integers(1, 4))
def test_what_is_found_is_never_slower_than_the_heuristics(seed: int, width: int) -> None:
    found = run(seed, Landscape(seed), width)
    assert found.ns <= found.heuristic_ns
    assert found.schedule != "0" or found.ns == found.heuristic_ns


@given(st.integers(0, 1000))
def test_the_same_seed_and_measurements_give_the_same_result(seed: int) -> None:
    first, second = Landscape(seed), Landscape(seed)
    assert run(seed, first) == run(seed, second)
    assert first.asked == second.asked


def test_it_climbs_over_several_moves() -> None:
    found = run(0, Landscape(5, failing=100), width=3)
    assert int(found.schedule) >= 15
    assert found.is_whole


def test_nothing_is_measured_twice() -> None:
    landscape = Landscape(2)
    beam = Beam(["0"], around, landscape, 3, compare=Landscape(2))
    beam.run()
    assert len(set(landscape.asked)) == len(landscape.asked)


def test_the_last_word_is_a_comparison_side_by_side() -> None:
    """A candidate that only looked fast is dropped, and the heuristic's schedule stays."""
    found = run(0, Landscape(0), compare=lambda candidates: [100.0, *[150.0 for _ in candidates[1:]]])
    assert found.schedule == "0" and found.ns == 100.0


def test_a_gain_within_the_noise_is_none() -> None:
    found = run(0, Landscape(0), compare=lambda candidates: [100.0, *[99.0 for _ in candidates[1:]]])
    assert found.schedule == "0"


def test_finalists_that_fail_in_the_comparison_do_not_win() -> None:
    found = run(0, Landscape(0), compare=lambda candidates: [None for _ in candidates])
    assert found.schedule == "0"


def test_without_a_time_for_the_heuristics_schedule_there_is_no_search() -> None:
    asked: list[str] = []

    def measure(candidates: Sequence[str]) -> list[float | None]:
        asked.extend(candidates)
        return [None for _ in candidates]

    assert Beam(["0", "1"], around, measure, 4).run() is None
    assert asked == ["0"]


def test_time_that_is_up_ends_it_after_the_measurement_under_way() -> None:
    landscape = Landscape(1)
    beam = Beam(["0"], around, landscape, 2, is_over=lambda: len(landscape.asked) >= 5)
    found = beam.run()
    assert found is not None and not found.is_whole
    # five, and the comparison at the end
    assert found.tried == 5


def test_an_interruption_keeps_what_was_found() -> None:
    landscape = Landscape(3, failing=100)

    def measure(candidates: Sequence[str]) -> Iterator[float | None]:
        for one in candidates:
            if len(landscape.asked) == 9:
                raise KeyboardInterrupt
            yield from landscape([one])

    beam = Beam(["0"], around, measure, 2)
    try:
        beam.run()
        raise AssertionError("it was not interrupted")
    except KeyboardInterrupt:
        pass
    assert beam.found is not None and not beam.found.is_whole
    assert beam.found.ns < beam.found.heuristic_ns
    assert beam.found.tried == 9


def test_a_beam_of_one_measures_few_at_a_time() -> None:
    sizes: list[int] = []

    def measure(candidates: Sequence[str]) -> list[float | None]:
        sizes.append(len(candidates))
        return [100.0 for _ in candidates]

    Beam(["0"], around, measure, 1).run()
    assert max(sizes) <= PER_MEMBER


def test_progress_is_told_with_the_best_and_the_heuristics_time() -> None:
    told: list[tuple[int, float, float]] = []
    run(0, Landscape(0), note=lambda *words: told.append(words))
    assert [tried for tried, _, _ in told] == list(range(1, len(told) + 1))
    assert all(best <= heuristic for _, best, heuristic in told)
