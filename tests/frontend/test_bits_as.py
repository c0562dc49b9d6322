"""The same bits in another format: NumPy's `view`, of all sizes; of the same size, the same memory too."""

from __future__ import annotations

import numpy as np
import pytest

from hcq import Tensor, Variable, dtypes

FORMATS = ("int8", "uint8", "int16", "uint16", "float16", "int32", "uint32", "float32", "int64", "uint64")
WRITTEN = ("uint8", "int16", "float32", "int64")


@pytest.mark.parametrize("have", WRITTEN)
def test_the_bits_are_those_of_numpy_in_every_format(have: str) -> None:
    source = np.random.default_rng(0).integers(0, 256, (2, 16), np.uint8).view(have)
    x = Tensor(source).realize()
    for wanted in FORMATS:
        found = x.view(dtypes.named(wanted)).numpy()
        assert found.shape == source.view(wanted).shape
        np.testing.assert_array_equal(found.view(np.uint8), source.view(np.uint8))


def test_a_write_into_the_bits_is_a_write_into_the_number_and_back() -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    bits = x.view(dtypes.int32)
    bits[1:3] = 0
    assert x.tolist() == [1.0, 0.0, 0.0, 4.0]
    x[0] = 2.0
    assert bits.tolist() == [0x40000000, 0, 0, 0x40800000]
    bits.copy_(Tensor([5.0, 6.0, 7.0, 8.0]).view(dtypes.int32))
    bits[: Variable("n", 1, 4).bind(2)].zero_()
    bits[3] |= 0x00400000
    assert x.tolist() == [0.0, 0.0, 7.0, 12.0]
