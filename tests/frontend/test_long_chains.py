"""Long chains of operations: work grows with their length, not faster; counted in calls, never in time."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from hcq import Tensor
from hcq.frontend.run.realize import schedule_of

CHAINS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "numbers": lambda z, i: z + float(i) if i % 2 else z * (1 + i * 1e-7),
    "squares": lambda z, i: z * z + 0.5,
    "turned": lambda z, i: (z + float(i)).T,
    "rows": lambda z, i: z + z.sum(dim=1, keepdim=True) * 1e-3,
}


def chain(name: str, length: int) -> Tensor:
    z = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    for i in range(length):
        z = CHAINS[name](z, i)
    return z


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called, those in C included: a walk over a graph is some for each node."""
    count = 0

    def counting(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counting)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("name", CHAINS)
def test_three_times_the_operations_are_three_times_the_calls(name: str) -> None:
    chain(name, 40).schedule()
    counts = []
    for length in (520, 1560):
        graph = chain(name, length)
        counts.append(calls_of(graph.schedule))
    assert counts[1] < 3.5 * counts[0]


def test_kernels_of_a_long_chain_are_as_long_as_those_of_a_short_one() -> None:
    short, long = (schedule_of([chain("numbers", length)])[0] for length in (600, 1800))
    assert len(long.launches) <= 3 * len(short.launches) + 1
    longest = max(len(launch.image) for launch in short.launches)
    assert max(len(launch.image) for launch in long.launches) < 1.2 * longest
