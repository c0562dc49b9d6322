"""Bits of integers against Python's own numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hcq.emu.shader.bits import count_ones, highest_bit, lowest_bit, reversed_bits


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_bits_are_counted_found_and_reversed_as_python_has_them(kind: Any) -> None:
    width = 8 * np.dtype(kind).itemsize
    powers = [1 << place for place in range(width)]
    drawn = np.random.default_rng(0).integers(0, (1 << width) - 1, 200, np.uint64, endpoint=True).tolist()
    numbers = [0, *powers, *(power - 1 for power in powers), (1 << width) - 1, *drawn]
    x = np.array(numbers, kind)
    assert count_ones(x).tolist() == [number.bit_count() for number in numbers]
    assert highest_bit(x).tolist() == [number.bit_length() - 1 for number in numbers]
    assert lowest_bit(x).tolist() == [(number & -number).bit_length() - 1 for number in numbers]
    assert reversed_bits(x).tolist() == [int(f"{number:0{width}b}"[::-1], 2) for number in numbers]


def test_arrays_keep_their_shape() -> None:
    x = np.arange(12, dtype=np.uint32).reshape(3, 4)[:, ::2]
    assert {function(x).shape for function in (count_ones, highest_bit, lowest_bit, reversed_bits)} == {
        (3, 2)
    }
    assert reversed_bits(x).dtype == np.uint32
