"""What loads cost in a unit's first-level cache is what was measured on an A100 and an MI210, by stride."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.emu.shader.traffic import Tally
from hcq.performance.model import l1_path

# stride in floats -> clocks of a unit for a load of 32 threads: github.com/te42kyfo/gpu-benches@1c36d50, gpu-strides
A100 = {
    1: 1.02, 2: 2, 3: 1.63, 4: 4, 5: 2.2, 6: 2.36, 7: 2.67, 8: 8, 9: 3.03, 10: 3.31, 12: 4, 15: 4.45, 16: 16, 17: 5.1,
    20: 5.3, 24: 8, 31: 8.5, 32: 32, 33: 8.8,
}  # fmt: skip
A100_DOUBLES = {0: 2.01, 1: 2.01, 2: 4, 4: 8, 8: 16, 9: 5.1, 16: 32, 17: 8.9, 24: 16, 32: 32, 33: 9}
MI210 = {0: 2.18, 1: 2.18, 2: 16.1, 3: 8.1, 4: 32.2, 5: 14.1, 6: 16.1, 7: 14.1, 8: 32.2, 9: 14.1, 10: 16.1, 15: 24.2,
         16: 32.2, 17: 24.2, 31: 24.2, 32: 32.2, 33: 24.2}  # fmt: skip
MI210_DOUBLES = {
    0: 8.1,
    1: 8.1,
    2: 8.1,
    3: 8.1,
    4: 16.1,
    5: 8.1,
    7: 8.1,
    8: 32.2,
    9: 8.1,
    12: 16.1,
    16: 32.2,
    17: 16.1,
}
CLOSE = 0.16


def clocks(arch: str, stride: int, size: int) -> float:
    """Of one load by 32 threads."""
    tally = Tally(arch, 0, "k", (1, 1, 1), (32, 1, 1), 64 if arch == "gfx90a" else 32, 32, 0, 0)
    at = np.uint64(1 << 30) + np.arange(32, dtype=np.uint64) * np.uint64(stride * size)
    zeros = np.zeros(32, np.int64)
    tally.memory("load", zeros, zeros, at, size)
    assert tally.record.l1_requests == 1
    return tally.record.l1_clocks


@pytest.mark.parametrize(
    ("arch", "size", "measured"),
    [("sm_80", 4, A100), ("sm_80", 8, A100_DOUBLES), ("gfx90a", 4, MI210), ("gfx90a", 8, MI210_DOUBLES)],
)
def test_a_load_takes_the_clocks_that_were_measured(arch: str, size: int, measured: dict[int, float]) -> None:
    for stride, expected in measured.items():
        assert clocks(arch, stride, size) == pytest.approx(expected, rel=CLOSE), stride


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "gfx90a", "gfx1100"])
def test_no_load_is_cheaper_than_one_of_neighbours(arch: str) -> None:
    near = clocks(arch, 1, 4)
    assert all(clocks(arch, stride, 4) >= near for stride in range(1, 70))


def test_the_place_among_a_groups_elements_begins_anew_in_each() -> None:
    assert l1_path.rank_in(np.array([3, 3, 3, 7, 9, 9])).tolist() == [0, 1, 2, 0, 0, 1]
