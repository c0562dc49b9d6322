"""Values share memory only where they cannot meet, and never take more than all of them apart."""

from __future__ import annotations

import random

from hcq.frontend.run.memory_plan import share


def drawn(draw: random.Random) -> tuple[list[list[int]], dict[int, int]]:
    """Launches that each make a value, and read some of the values of the last few."""
    launches: list[list[int]] = []
    for number in range(draw.randrange(1, 25)):
        recent = list(range(max(0, number - 6), number))
        launches.append([*draw.sample(recent, min(len(recent), draw.randrange(3))), number])
    return launches, {number: draw.choice((0, 64, 100, 4096, 5000)) for number in range(len(launches))}


def users(launches: list[list[int]], value: int) -> list[int]:
    return [number for number, values in enumerate(launches) if value in values]


def alive(launches: list[list[int]], value: int) -> range:
    found = users(launches, value)
    return range(found[0], found[-1] + 1)


def test_two_values_in_one_memory_are_never_needed_at_the_same_time():
    draw = random.Random(1)
    for _ in range(200):
        launches, sizes = drawn(draw)
        places, made = share(launches, sizes)
        for a in sizes:
            assert made[places[a]] >= sizes[a]
            for b in range(a):
                if places[a] == places[b]:
                    assert not set(alive(launches, a)) & set(alive(launches, b))


def test_all_memory_lies_between_what_is_needed_at_once_and_all_values_apart():
    draw = random.Random(2)
    for _ in range(200):
        launches, sizes = drawn(draw)
        _, made = share(launches, sizes)
        at_once = max(
            sum(sizes[v] for v in sizes if number in alive(launches, v)) for number in range(len(launches))
        )
        assert at_once <= sum(made) <= sum(sizes.values())


def test_a_chain_of_values_of_one_size_needs_two_memories_however_long_it_is():
    chain = [[n - 1, n] if n else [0] for n in range(50)]
    places, made = share(chain, dict.fromkeys(range(50), 4096))
    assert made == [4096, 4096]
    assert [places[n] for n in range(4)] in ([0, 1, 0, 1], [1, 0, 1, 0])


def test_branches_that_run_side_by_side_do_not_share_what_would_make_one_wait_for_the_other():
    # 0 -> 1 and 2 -> 3, then 4 reads both ends; every value is 64 bytes
    launches = [[0], [0, 1], [2], [2, 3], [1, 3, 4]]
    behind = [0, 0b1, 0, 0b100, 0b1111]
    sizes = dict.fromkeys(range(4), 64)
    places, made = share(launches, sizes)
    assert len(made) == 3  # in order, 2 or 3 takes the memory of 0
    places, made = share(launches, sizes, behind)
    assert len(made) == 4
    assert len(set(places.values())) == 4


def test_a_value_that_nobody_stores_needs_no_bytes():
    assert share([[0]], {0: 64, 1: 4096}) == ({0: 0, 1: 1}, [64, 0])
