"""Collectives as plain steps: on lists of numbers they do what their names say, whatever the number of ranks."""

from __future__ import annotations

import random
from itertools import accumulate, chain

import pytest

from hcq.errors import UsageError
from hcq.frontend.devices.collectives import cost, steps

pytestmark = pytest.mark.own_devices

RANKS = range(2, 9)
LINKS = (cost.PEER, cost.STAGED, cost.SHARED)


def run(
    rounds: steps.Rounds, sources: list[list[int]], gets: list[int]
) -> tuple[list[list[int]], list[list[int]]]:
    """Do the steps on lists; every round reads what was there before it."""
    big = sum(map(len, sources))
    memory = {
        "source": [list(source) for source in sources],
        "result": [[0] * n for n in gets],
        "transit": [[0] * big for _ in sources],
    }
    for made in rounds:
        taken = [memory[s.peer_space][s.peer][s.peer_at : s.peer_at + s.length] for s in made]
        for step, values in zip(made, taken):
            assert len(values) == step.length
            place = memory[step.space][step.rank]
            for i, value in enumerate(values):
                place[step.at + i] = place[step.at + i] + value if step.adds else value
    return memory["source"], memory["result"]


def numbers(count: int) -> list[int]:
    return [random.randrange(1 << 20) for _ in range(count)]


@pytest.mark.parametrize("way", cost.WAYS)
@pytest.mark.parametrize("n", RANKS)
def test_every_collective_does_what_its_name_says(way: str, n: int) -> None:
    random.seed(n)
    for count in (0, 1, 63, 64 * n, 1000):
        sources = [numbers(count) for _ in range(n)]
        left, _ = run(steps.steps("all-reduce", way, [[count] * n] * n), sources, [0] * n)
        assert left == [[sum(column) for column in zip(*sources)]] * n
        left, _ = run(steps.steps("broadcast", way, [[count] * n] * n, pieces=3), sources, [0] * n)
        assert left == [sources[0]] * n
    sizes = [random.randrange(5) * 64 for _ in range(n)]
    at = [*accumulate(sizes, initial=0)]
    sources = [numbers(sum(sizes)) for _ in range(n)]
    _, found = run(steps.steps("reduce-scatter", way, [sizes] * n), sources, sizes)
    total = [sum(column) for column in zip(*sources)]
    assert found == [total[at[r] : at[r + 1]] for r in range(n)]
    sizes = [random.randrange(7) for _ in range(n)]
    sources = [numbers(size) for size in sizes]
    _, found = run(steps.steps("all-gather", way, [[size] * n for size in sizes]), sources, [sum(sizes)] * n)
    assert found == [[x for source in sources for x in source]] * n
    counts = [[random.randrange(4) for _ in range(n)] for _ in range(n)]
    blocks = [[numbers(count) for count in row] for row in counts]
    gets = [sum(row[r] for row in counts) for r in range(n)]
    _, found = run(steps.steps("all-to-all", way, counts), [[*chain(*row)] for row in blocks], gets)
    assert found == [[*chain(*[blocks[i][j] for i in range(n)])] for j in range(n)]


@pytest.mark.parametrize("way", cost.WAYS)
@pytest.mark.parametrize("n", RANKS)
def test_a_rank_writes_nothing_that_another_reads_in_the_same_round(way: str, n: int) -> None:
    for kind in cost.KINDS:
        for made in steps.steps(kind, way, [[64] * n] * n):
            writes = [(s.rank, s.space, s.at, s.at + s.length) for s in made]
            for s in made:
                reads = (s.peer, s.peer_space, s.peer_at, s.peer_at + s.length)
                assert not any(w[:2] == reads[:2] and w[2] < reads[3] and reads[2] < w[3] for w in writes)


@pytest.mark.parametrize("kind", ["all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all"])
@pytest.mark.parametrize("way", cost.WAYS)
def test_the_cost_model_counts_the_rounds_and_bytes_of_the_steps(kind: str, way: str) -> None:
    for n in (2, 4, 8):
        count = 64 * n * 4
        each = count // n
        counts = [[count if kind in ("all-reduce", "broadcast") else each] * n] * n
        link = cost.Link(1.0, 0.0, 0.0)
        pieces = cost.pieces(n, count, link)
        made = steps.steps(kind, way, counts, pieces)
        between = [[s for s in round_ if s.peer != s.rank] for round_ in made]
        between = [round_ for round_ in between if round_]
        assert len(between) == cost.seconds(kind, way, n, count, link)
        sent = sum(s.length for round_ in between for s in round_)
        if (kind, way) in (("all-gather", "tree"), ("reduce-scatter", "tree")):
            assert sent <= cost.sent_bytes(
                kind, way, n, count
            )  # the inner ranks pass on what is theirs alone
        else:
            assert sent == cost.sent_bytes(kind, way, n, count)


def test_small_collectives_go_by_tree_and_large_ones_by_ring() -> None:
    for link in LINKS:
        for kind in ("all-reduce", "reduce-scatter", "broadcast", "all-to-all"):
            ways = [cost.way(kind, 8, 1 << power, link) for power in range(4, 32)]
            assert ways[0] == "tree" and ways[-1] == "ring"
            assert ways == sorted(ways, reverse=True)  # there is one size at which it changes


def test_buckets_hold_what_comes_in_order_and_close_when_they_are_full() -> None:
    assert cost.buckets([10, 10, 10, 50, 1], 30) == [[0, 1, 2], [3], [4]]
    assert cost.buckets([], 30) == []
    assert cost.bucket_bytes(4, cost.PEER, 0.5) < cost.bucket_bytes(4, cost.PEER, 0.1)


def test_an_unknown_way_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="by 'star': known are"):
        steps.steps("all-reduce", "star", [[1, 1], [1, 1]])
