"""Number formats: bits and numbers turn into each other exactly, and formats meet where PyTorch has them meet."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.ir.dtype import ALL, FLOATS, DType, dtypes, from_bits, promote, promote_scalar, to_bits, truncate

SMALL = [d for d in FLOATS if d.itemsize <= 2]


def by_name(dtype: DType) -> str:
    return dtype.name


@pytest.mark.parametrize("dtype", SMALL, ids=by_name)
def test_every_bit_pattern_of_a_small_float_survives_the_way_to_a_number_and_back(dtype: DType):
    for bits in range(1 << (8 * dtype.itemsize)):
        value = from_bits(bits, dtype)
        assert value != value or to_bits(value, dtype) == bits


@given(st.floats(width=64))
def test_a_float_becomes_the_nearest_of_the_format_as_numpy_rounds_it(value: float):
    with np.errstate(over="ignore"):
        for dtype, kind in ((dtypes.float16, np.float16), (dtypes.float32, np.float32)):
            expected = float(kind(value))
            assert truncate(value, dtype) == expected or expected != expected


@given(st.floats(width=32))
def test_bfloat16_is_the_upper_half_of_float32_rounded_to_even(value: float):
    if value != value:
        assert math.isnan(truncate(value, dtypes.bfloat16))
        return
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    upper, lower = bits >> 16, bits & 0xFFFF
    upper += lower > 0x8000 or (lower == 0x8000 and upper & 1)
    assert to_bits(value, dtypes.bfloat16) == upper


def test_e4m3_has_no_infinity_and_e5m2_has():
    assert from_bits(0x7E, dtypes.fp8e4m3) == 448.0
    assert math.isnan(truncate(math.inf, dtypes.fp8e4m3))
    assert truncate(math.inf, dtypes.fp8e5m2) == math.inf
    assert from_bits(0x7B, dtypes.fp8e5m2) == 57344.0


@given(st.integers(-(1 << 70), 1 << 70))
def test_integers_wrap(value: int):
    assert truncate(value, dtypes.int8) == (value + 128) % 256 - 128
    assert truncate(value, dtypes.uint64) == value % (1 << 64)
    assert from_bits(to_bits(value, dtypes.int32), dtypes.int32) == truncate(value, dtypes.int32)


def test_the_ends_of_a_format():
    assert (dtypes.int8.min, dtypes.int8.max) == (-128, 127)
    assert (dtypes.uint32.min, dtypes.uint32.max) == (0, (1 << 32) - 1)
    assert (dtypes.float16.min, dtypes.float16.max) == (-math.inf, math.inf)
    assert (dtypes.bool.min, dtypes.bool.max) == (False, True)


@pytest.mark.parametrize("a", ALL, ids=by_name)
@pytest.mark.parametrize("b", ALL, ids=by_name)
def test_where_two_formats_meet_does_not_depend_on_their_order(a: DType, b: DType):
    met = promote(a, b)
    assert met is promote(b, a)
    assert promote(met, met) is met
    assert met.is_float or not (a.is_float or b.is_float)


@pytest.mark.parametrize(
    ("a", "b", "met"),
    [
        (dtypes.bool, dtypes.uint8, dtypes.uint8),
        (dtypes.uint8, dtypes.int8, dtypes.int16),
        (dtypes.uint32, dtypes.int32, dtypes.int64),
        (dtypes.uint8, dtypes.int32, dtypes.int32),
        (dtypes.int64, dtypes.float16, dtypes.float16),
        (dtypes.float16, dtypes.bfloat16, dtypes.float32),
        (dtypes.float32, dtypes.float64, dtypes.float64),
        (dtypes.int64, dtypes.uint64, dtypes.float32),
    ],
)
def test_formats_meet_where_the_wider_one_is(a: DType, b: DType, met: DType):
    assert promote(a, b) is met


def test_a_python_number_keeps_the_tensors_format_unless_it_is_of_a_higher_kind():
    assert promote_scalar(dtypes.int8, 3) is dtypes.int8
    assert promote_scalar(dtypes.int8, 0.5) is dtypes.float32
    assert promote_scalar(dtypes.float16, 3) is dtypes.float16
    assert promote_scalar(dtypes.int8, True) is dtypes.int8


def test_vectors_are_made_once_and_know_their_scalar():
    assert dtypes.float32.vec(8) is dtypes.float32.vec(8)
    assert dtypes.float32.vec(8).scalar is dtypes.float32
    assert dtypes.float32.vec(8).vec(1) is dtypes.float32
    assert dtypes.float32.vec(8).name == "float32x8"


def test_names_find_formats_and_an_unknown_one_lists_the_known():
    assert dtypes.named("half") is dtypes.float16
    assert dtypes.named("float8_e4m3fn") is dtypes.fp8e4m3
    with pytest.raises(KeyError, match=r"float33.*bfloat16"):
        dtypes.named("float33")
