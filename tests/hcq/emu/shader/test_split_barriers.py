"""What a barrier orders at which warps arrive and go on."""

from __future__ import annotations

import numpy as np

from hcq.emu.shader.order import Order, Records
from hcq.emu.shader.split_barriers import SplitBarrier

ONE, BOTH = np.array([0]), np.array([0, 1])


def knows(order: Order, who: int, other: int, clock: int) -> bool:
    return bool(order.knows(np.array([who]), np.array([other]), np.array([clock]))[0])


def test_what_was_done_before_arriving_is_known_to_who_waits_and_what_was_done_behind_it_is_not() -> None:
    order = Order(Records(2, 2), 0, 1)
    split = SplitBarrier(order)
    before = int(order.clock[0])
    split.leave(ONE)
    behind = int(order.clock[0])
    split.open(BOTH)
    assert behind > before
    assert knows(order, 1, 0, before) and not knows(order, 1, 0, behind)


def test_who_went_on_knows_the_others_once_it_has_waited() -> None:
    order = Order(Records(2, 2), 0, 1)
    split = SplitBarrier(order)
    theirs = int(order.clock[1])
    split.leave(ONE)
    split.open(BOTH)
    assert not knows(order, 0, 1, theirs)
    split.come_back(ONE)
    assert knows(order, 0, 1, theirs) and not knows(order, 0, 1, int(order.clock[1]))


def test_who_never_waits_learns_nothing() -> None:
    order = Order(Records(2, 2), 0, 1)
    split = SplitBarrier(order)
    theirs = int(order.clock[1])
    split.leave(ONE)
    split.open(BOTH)
    split.forget()
    split.come_back(ONE)
    assert not knows(order, 0, 1, theirs)


def test_a_barrier_at_which_all_wait_is_one_as_ever() -> None:
    order = Order(Records(2, 2), 0, 1)
    clocks = order.clock.tolist()
    SplitBarrier(order).open(BOTH)
    assert knows(order, 0, 1, clocks[1]) and knows(order, 1, 0, clocks[0])
