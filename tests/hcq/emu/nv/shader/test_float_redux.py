"""redux.sync of floats: NaN, zeros of both signs, sizes, and who takes part."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.hcq.emu.nv.shader.running import instructions

NAN = 0x7FFFFFFF  # the one that PTX names


def meaning(numbers: list[float], what: str, by_size: bool, propagate: bool) -> int:
    """The bits of the least or largest; of NaN and a number the number, unless NaN is to stay; -0 is below +0."""
    if by_size:
        numbers = [abs(x) for x in numbers]
    known = [x for x in numbers if not math.isnan(x)]
    if not known or (propagate and len(known) < len(numbers)):
        return NAN
    choose = min if what == "min" else max
    return int(np.float32(choose(known, key=lambda x: (x, math.copysign(1, x)))).view(np.uint32))


@pytest.mark.parametrize("propagate", [False, True])
@pytest.mark.parametrize("by_size", [False, True])
@pytest.mark.parametrize("what", ["min", "max"])
def test_the_least_and_the_largest_of_a_warps_floats(what: str, by_size: bool, propagate: bool) -> None:
    """Even and odd threads are two groups; each row of the table is a warp."""
    rng = np.random.default_rng(1)
    rows = [rng.standard_normal(32), np.zeros(32), np.full(32, np.nan), np.full(32, -np.inf)]
    rows.append(np.where(rng.random(32) < 0.5, 0.0, -0.0))
    rows.append(np.where(np.arange(32) % 2, np.nan, -0.0))
    rows.append(np.where(rng.random(32) < 0.3, np.nan, rng.standard_normal(32)))
    rows.append(np.where(rng.random(32) < 0.5, np.inf, np.nan))
    table = np.array(rows, np.float32)
    words = "".join([".abs" if by_size else "", ".NaN" if propagate else ""])
    line = f"""and.b32 %t0, %thread, 1; setp.eq.u32 %p, %t0, 1; selp.b32 %t1, 0xAAAAAAAA, 0x55555555, %p;
    redux.sync.{what}{words}.f32 %x, %a, %t1;"""
    (found,) = instructions(line, [table.reshape(-1).view(np.uint32)], "32")
    for row, bits in zip(table, found.reshape(-1, 32)):
        for odd in (0, 1):
            expected = meaning(row[odd::2].tolist(), what, by_size, propagate)
            assert set(bits[odd::2].tolist()) == {expected}, (row[odd::2], hex(expected))
