"""Routines against Python: what statements say is what is computed."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.emu.compiled import assemble
from hcq.emu.compiled.routine import Routine
from hcq.system import native

pytestmark = pytest.mark.skipif(not assemble.is_installed(), reason="llvmlite is not installed")

RESULT, COUNT, NUMBERS = 1, 2, 3


def run(routine: Routine, numbers: np.ndarray) -> tuple[int, int]:
    """(what it leaves with, what it puts into RESULT)."""
    routine.leave(0)
    table = np.array([-1, 0, len(numbers), numbers.__array_interface__["data"][0]], np.int64)
    assemble.Assembled(routine.text()).run(native.address_of(table.data))
    return int(table[0]), int(table[RESULT])


@pytest.mark.parametrize(("kind", "dtype"), [("i8", "b"), ("i16", "h"), ("i32", "i"), ("i64", "q")])
def test_a_loop_goes_over_numbers_of_every_size_with_their_signs(kind: str, dtype: str) -> None:
    numbers = np.arange(-50, 60, dtype=dtype)
    r = Routine()
    total = r.variable(0)
    with r.loop(r.field(COUNT)) as number:
        value = r.array(NUMBERS, kind)[number]
        with r.when(value.gt(3) | value.lt(-7)):
            total.set(total.get() + value * 2)
    r.put(RESULT, total.get())
    assert run(r, numbers) == (0, sum(2 * int(one) for one in numbers if one > 3 or one < -7))


def test_a_loop_may_go_down_and_what_is_stored_is_there_afterwards() -> None:
    numbers = np.zeros(9, np.int32)
    r = Routine()
    place = r.variable(0)
    with r.loop(r.field(COUNT), down=True) as number:
        r.array(NUMBERS, "i32")[number] = place.get()
        place.set(place.get() + 1)
    run(r, numbers)
    assert numbers.tolist() == list(range(8, -1, -1))


def test_what_is_skipped_is_not_done_and_leaving_ends_the_routine() -> None:
    numbers = np.arange(10, dtype=np.int64)
    r = Routine()
    with r.loop(r.field(COUNT)) as number, r.once() as done:
        with r.when((number & 1).eq(0)):
            r.skip(done)
        r.put(RESULT, r.field(RESULT) + number)
        with r.when(number.eq(7)):
            r.leave(5)
    assert run(r, numbers) == (5, 1 + 3 + 5 + 7)
