"""Which recorded commands come before which: against looking at every pair of them, byte by byte."""

from __future__ import annotations

import random

from hcq.command import Barrier, Copy, Fill
from hcq.work.dependences import Dependences, Use, Uses, uses_of


def collide(one: Uses, other: Uses) -> bool:
    """Whether two commands may not change places."""
    if one is None or other is None:
        return True
    return any(
        a.place == b.place
        and (a.is_write or b.is_write)
        and set(range(a.low, a.high)) & set(range(b.low, b.high))
        for a in one
        for b in other
    )


def drawn(draw: random.Random, count: int) -> list[Uses]:
    found: list[Uses] = []
    for _ in range(count):
        if draw.random() < 0.05:
            found.append(None)
            continue
        uses = []
        for _ in range(draw.randrange(4)):
            low = draw.randrange(24)
            high = low + draw.randrange(10)
            uses.append(Use(low, high, draw.random() < 0.4, draw.choice((None, None, "x"))))
        found.append(uses)
    return found


def test_a_command_comes_behind_all_that_it_collides_with_and_those_before_them():
    draw = random.Random(1)
    for _ in range(300):
        uses = drawn(draw, draw.randrange(1, 20))
        found = Dependences(uses)
        for number, own in enumerate(uses):
            behind = 0
            for before in range(number):
                if collide(uses[before], own):
                    behind |= 1 << before | found.behind[before]
            assert found.behind[number] == behind, uses


def test_no_need_is_implied_by_another_one():
    draw = random.Random(2)
    for _ in range(200):
        found = Dependences(drawn(draw, 20))
        for needs in found.needs:
            assert not any(found.behind[a] >> b & 1 for a in needs for b in needs)


def test_copies_and_fills_say_which_bytes_they_use_and_a_barrier_is_ordered_with_everything():
    assert uses_of(Copy(100, 40, 8)) == (Use(40, 48, False), Use(100, 108, True))
    assert uses_of(Fill(16, 0, 4)) == (Use(16, 20, True),)
    assert uses_of(Barrier()) is None
    found = Dependences([uses_of(Fill(0, 0, 4)), uses_of(Fill(8, 0, 4)), None, uses_of(Fill(100, 0, 4))])
    assert found.needs == [(), (), (0, 1), (2,)]


def test_ranges_that_only_touch_do_not_collide_and_views_of_one_buffer_do_where_they_overlap():
    writes = [Use(0, 8, True)], [Use(8, 16, True)], [Use(4, 12, False)], [Use(12, 16, True)]
    assert Dependences(writes).needs == [(), (), (0, 1), (1,)]
