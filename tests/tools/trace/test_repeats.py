"""Groups of what repeats: they cover everything once, and what they say is equal is equal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hcq.tools.trace.repeats import Group, groups


@given(st.lists(st.integers(0, 3), max_size=60))
def test_groups_put_together_are_the_sequence(work: list[int]) -> None:
    found = list(groups(work))
    assert [
        one for group in found for one in work[group.first : group.first + group.period] * group.repetitions
    ] == work
    assert [group.first for group in found] == [
        sum(g.period * g.repetitions for g in found[:at]) for at in range(len(found))
    ]


def test_a_step_that_repeats_is_one_group_between_what_comes_before_and_after() -> None:
    work = [9, 8, *[1, 2, 2, 3] * 200, 7]
    assert list(groups(work)) == [Group(0, 1, 1), Group(1, 1, 1), Group(2, 4, 200), Group(802, 1, 1)]


def test_two_of_the_same_are_no_group() -> None:
    assert list(groups([1, 1, 2])) == [Group(0, 1, 1), Group(1, 1, 1), Group(2, 1, 1)]


def test_the_longer_repetition_wins_over_the_shorter_inside_it() -> None:
    assert list(groups([1, 1, 1, 2] * 3)) == [Group(0, 4, 3)]


def test_a_hundred_thousand_submissions_without_any_order_are_groups_of_few() -> None:
    work = [(at * at) % 7919 for at in range(100_000)]
    assert sum(group.period * group.repetitions for group in groups(work)) == len(work)
