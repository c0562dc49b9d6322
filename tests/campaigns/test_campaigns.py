"""The short form of every campaign, and the runner's own promises."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.campaigns import _failing, runner
from tests.campaigns.__main__ import main
from tests.campaigns.campaign import Campaign, Case, campaigns, declared_in

# attacks that another campaign makes on the CPU or on a GPU of another kind, and further shares of one: thorough
SECOND = {
    *(
        "faults-amd-gfx942",
        "faults-nv-sm_90",
        "growth-amd",
        "interrupts-amd-gfx1100",
        "life-gfx942",
        "life-sm_90",
    ),
    *("memory-amd", "movement-amd", "numbers-nv", "rings-seed", "threads-gfx1100", "wrong-types-nv"),
    *("right-types-1", "right-types-2"),
}
UNDIVIDED = 4  # a campaign of fewer cases runs them all


def parts() -> Iterator[Any]:
    """Of each campaign's short form the first tenth, and the rest as a thorough test; growth shows in many alone."""
    for campaign in campaigns().values():
        name, count = campaign.name, campaign.short
        is_whole = count < UNDIVIDED or name.startswith("growth")
        first = count if is_whole or name in SECOND else max(count // 10, 2)
        yield pytest.param(campaign, 0, first, id=name, marks=[pytest.mark.thorough] * (name in SECOND))
        if first < count:
            yield pytest.param(campaign, first, count - first, id=f"{name}-rest", marks=pytest.mark.thorough)


@pytest.mark.deadline(900)
@pytest.mark.parametrize(("campaign", "first", "count"), [*parts()])
def test_a_campaign_finds_nothing(campaign: Campaign, first: int, count: int) -> None:
    tally = runner.run(campaign, 0, first=first, count=count)
    assert tally.failures == []
    assert tally.cases == count


def test_a_campaign_that_waits_for_its_turn_is_one_of_those_there_are() -> None:
    assert set(campaigns()) > SECOND


FAILING = declared_in("tests.campaigns._failing")


@functools.cache
def failing() -> tuple[runner.Tally, list[str]]:
    """What it tells of failures of every kind, and their tally: one of them hangs for ten seconds."""
    told: list[str] = []
    return runner.run(FAILING["failing"], 3, count=10, tell=told.append), told


def test_every_kind_of_failure_is_counted_and_the_cases_after_it_still_run() -> None:
    tally, _ = failing()
    assert (tally.right, tally.refused) == (5, 1)
    assert (tally.wrong, tally.crashes, tally.hangs, tally.leaks) == (2, 1, 1, 0)
    assert tally.cases == 10


def test_a_failure_is_told_with_the_line_that_repeats_it_and_what_was_said() -> None:
    _, told = failing()
    lines = [text.splitlines()[0].partition("   # ") for text in told]
    numbers = [_failing.CRASHES, _failing.HANGS, _failing.IS_WRONG, _failing.RAISES]
    assert [command for command, _, _ in lines] == [Case("failing", 3, number).command for number in numbers]
    assert [what for _, _, what in lines] == [
        "the process ended with SIGKILL",
        "hangs for 10 s",
        "wrong",
        "wrong",
    ]
    assert "in fail" in told[1]  # the stack of the case that hangs
    assert "2 + 2 gave 5" in told[2]
    assert "nobody expects this" in told[3]


def test_a_failure_is_explained_by_its_campaign_in_a_process_of_its_own() -> None:
    for number, kind in ((_failing.CRASHES, "SIGKILL"), (_failing.IS_WRONG, "wrong")):
        failures = runner.run(FAILING["explaining"], 3, first=number, count=1).failures
        assert len(failures) == 1
        assert kind in failures[0]
        assert failures[0].endswith(f"the smallest that fails as case {number} does")


def test_a_case_that_is_run_alone_draws_what_it_drew_among_others() -> None:
    both = runner.run(FAILING["drawing"], 7, count=2).failures
    alone = runner.run(FAILING["drawing"], 7, first=1, count=1).failures
    assert both[1] == alone[0]
    assert both[0].splitlines()[1] != both[1].splitlines()[1]


def test_a_descriptor_kept_by_every_case_is_a_leak() -> None:
    tally = runner.run(FAILING["leaking"], 0, count=200)
    assert tally.right == 200
    assert tally.leaks == 1
    assert "descriptors went from" in tally.failures[0]


def test_an_unknown_campaign_is_answered_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["no-such-campaign"])
    told = capsys.readouterr().err
    assert "no campaign 'no-such-campaign'" in told
    assert all(name in told for name in campaigns())


def sample(bytes: int = 1 << 28, maps: int = 100, descriptors: int = 10, threads: int = 3) -> dict[str, int]:
    return {"bytes": bytes, "maps": maps, "descriptors": descriptors, "threads": threads}


def test_what_grows_at_the_start_only_is_no_leak() -> None:
    assert runner.growth([sample(descriptors=min(n, 20)) for n in range(60)]) == ""


@pytest.mark.parametrize("what", ["bytes", "maps", "descriptors", "threads"])
def test_what_grows_for_ever_is_a_leak(what: str) -> None:
    told = runner.growth([sample(**{what: 1000 + n * (8 << 20)}) for n in range(60)])
    assert told.startswith(what)
