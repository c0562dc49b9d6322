"""Uploads: no place is used again before its submission is done, whatever the sizes."""

from __future__ import annotations

import array
import random

import pytest

from hcq.errors import UsageError
from hcq.gpu.uploads import Uploads
from tests.turns import seeds

SIZE = 1 << 14


@pytest.fixture
def memory() -> array.array[int]:
    return array.array("B", bytes(SIZE))


def never(value: int) -> int:
    raise AssertionError("nothing is in flight")


@pytest.mark.parametrize("seed", seeds(3, of=8))
def test_ranges_in_flight_never_overlap(memory: array.array[int], seed: int):
    draw = random.Random(seed)
    uploads = Uploads(memory.buffer_info()[0], SIZE, 256)
    in_flight: list[tuple[int, int, int]] = []  # start, end, submission
    done = 0

    def wait(value: int) -> int:
        nonlocal done
        done = max(done, value)
        return done

    for value in range(1, 300):
        size = draw.choice((4, 256, 1000, 5000))
        at = uploads.take(size, value, done, wait)
        in_flight = [one for one in in_flight if one[2] > done]
        assert at % 256 == 0
        assert at + size <= SIZE
        for start, end, _ in in_flight:
            assert at + size <= start or end <= at
        in_flight.append((at, at + size, value))
        if draw.random() < 0.3:
            done = draw.randrange(done, value + 1)


def test_one_submission_that_does_not_fit_is_refused(memory: array.array[int]):
    uploads = Uploads(memory.buffer_info()[0], SIZE, 256)
    with pytest.raises(UsageError, match=f"do not fit {SIZE} bytes. Submit less at a time"):
        uploads.take(SIZE + 1, 1, 0, never)
    uploads.take(SIZE // 2, 1, 0, never)
    uploads.take(SIZE // 2, 1, 0, never)
    with pytest.raises(UsageError, match="Submit less at a time"):
        uploads.take(256, 1, 0, never)


def test_after_a_fault_all_of_it_is_free(memory: array.array[int]):
    uploads = Uploads(memory.buffer_info()[0], SIZE, 256)
    before = [uploads.take(SIZE // 2, value, 0, never) for value in (1, 2)]
    uploads.clear()
    after = [uploads.take(SIZE // 2, value, 0, never) for value in (3, 4)]
    assert sorted(after) == sorted(before) == [0, SIZE // 2]
