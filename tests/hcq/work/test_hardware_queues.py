"""A split over lanes: right by what its waits say, with no wait that can be left out, taken where it is worth it."""

from __future__ import annotations

import random

from hcq.work.dependences import Dependences, Use
from hcq.work.hardware_queues import (
    COPIES,
    MAIN,
    START,
    Costs,
    Split,
    Step,
    Wait,
    assign,
    choose,
    estimate_ns,
)

CHEAP = Costs(signal_ns=1, wait_ns=1)


def order_of(split: Split) -> list[set[int]]:
    """For each step the steps that surely are done before it starts, by the waits and the lanes alone."""
    before: list[set[int]] = []
    last: dict[int, int] = {}
    reached: dict[tuple[int, int], int] = {}
    for at, step in enumerate(split.steps):
        found: set[int] = set()
        for wait in step.waits:
            if (wait.lane, wait.value) in reached:
                found |= before[reached[wait]] | {reached[wait]}
        if step.lane in last:
            found |= before[last[step.lane]] | {last[step.lane]}
        before.append(found)
        last[step.lane] = at
        if step.signal:
            reached[step.lane, step.signal] = at
    return before


def is_right(dependences: Dependences, split: Split) -> bool:
    """Whether everything comes after what it needs, after the beginning, and before the end."""
    before = order_of(split)
    for number, behind in enumerate(dependences.behind):
        wanted = {0} | {one + 1 for one in range(number) if behind >> one & 1}
        if not wanted <= before[number + 1]:
            return False
    return before[-1] == set(range(len(split.steps) - 1))


def drawn(draw: random.Random) -> Dependences:
    uses = [
        [Use(low := draw.randrange(12), low + 1 + draw.randrange(2), draw.random() < 0.5) for _ in range(2)]
        for _ in range(draw.randrange(1, 14))
    ]
    return Dependences(uses)


def without(split: Split, at: int, wait: Wait) -> Split:
    steps = list(split.steps)
    steps[at] = steps[at]._replace(waits=tuple(one for one in steps[at].waits if one != wait))
    return split._replace(steps=tuple(steps))


def test_every_need_is_met_and_every_wait_is_needed():
    draw = random.Random(3)
    for lanes in (2, 3):
        for _ in range(300):
            dependences = drawn(draw)
            split = assign(dependences, [draw.randrange(lanes) for _ in range(len(dependences))])
            assert is_right(dependences, split), split
            for at, step in enumerate(split.steps):
                for wait in step.waits:
                    assert not is_right(dependences, without(split, at, wait)), (split, at, wait)


def test_signals_of_a_lane_rise_one_by_one_and_each_is_awaited():
    draw = random.Random(4)
    for _ in range(200):
        dependences = drawn(draw)
        split = assign(dependences, [draw.randrange(2) for _ in range(len(dependences))])
        for lane in range(split.lanes):
            sent = [step.signal for step in split.steps if step.lane == lane and step.signal]
            assert sent == list(range(1, len(sent) + 1))
            assert set(sent) == {w.value for s in split.steps for w in s.waits if w.lane == lane}


def test_no_lane_waits_for_itself_and_one_lane_needs_no_signals():
    dependences = drawn(random.Random(5))
    split = assign(dependences, [MAIN] * len(dependences))
    assert (split.lanes, split.waits) == (1, 0)
    split = assign(dependences, [number % 2 for number in range(len(dependences))])
    assert all(wait.lane != step.lane for step in split.steps for wait in step.waits)


def test_a_copy_beside_kernels_waits_for_the_beginning_and_only_the_end_waits_for_it():
    apart = Dependences([[Use(0, 8, True)], [Use(100, 200, True)], [Use(0, 8, True)]])
    assert assign(apart, [MAIN, COPIES, MAIN]).steps == (
        Step(START, MAIN, (), 1),
        Step(0, MAIN, (), 0),
        Step(1, COPIES, (Wait(MAIN, 1),), 1),
        Step(2, MAIN, (), 0),
        Step(3, MAIN, (Wait(COPIES, 1),), 0),
    )


def test_a_copy_between_two_kernels_needs_one_wait_on_each_side_and_none_at_the_ends():
    chain = Dependences([[Use(0, 8, True)]] * 3)
    split = assign(chain, [MAIN, COPIES, MAIN])
    assert [len(step.waits) for step in split.steps] == [0, 0, 1, 1, 0]


def test_a_long_copy_that_nothing_needs_leaves_the_main_lane_and_a_short_one_stays():
    apart = Dependences([[Use(0, 8, True)], [Use(100, 200, True)], [Use(0, 8, True)]])
    costs = Costs(signal_ns=2_000, wait_ns=2_000)
    may = [False, True, False]
    split = choose(apart, [50_000, 40_000, 50_000], may, costs)
    assert split is not None
    assert split.steps[2].lane == COPIES
    assert (split.estimate_ns, split.in_order_ns) == (104_000, 140_000)
    assert choose(apart, [50_000, 3_000, 50_000], may, costs) is None
    assert choose(Dependences([[Use(0, 8, True)]] * 3), [50_000, 40_000, 50_000], may, costs) is None


def test_where_copies_have_a_ring_of_their_own_anyway_changes_of_rings_cost_in_order_too():
    apart = Dependences([[Use(0, 8, True)], [Use(100, 200, True)], [Use(0, 8, True)]])
    costs = Costs(signal_ns=2_000, wait_ns=2_000, is_all_or_none=True)
    split = choose(apart, [5_000, 3_000, 5_000], [False, True, False], costs)
    assert split is not None
    assert split.in_order_ns == 13_000 + 2 * 4_000
    assert choose(Dependences([[Use(0, 8, True)]]), [3_000], [True], costs) is None  # nothing is beside it


def test_the_estimate_is_the_longest_lane_with_its_signals_and_waits():
    chain = Dependences([[Use(0, 8, True)]] * 3)
    split = assign(chain, [MAIN, COPIES, MAIN])
    assert estimate_ns(split, [10, 20, 30], CHEAP) == 10 + 1 + 1 + 20 + 1 + 1 + 30
