"""Every arithmetic op, over every dtype it works on and the numbers where it could go wrong, means the same to single
numbers (meaning.py) and to arrays (evaluate.py)."""

from __future__ import annotations

import doctest
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.ir.dtype import ALL, FLOATS, INTEGERS, DType, Scalar, dtypes, from_bits
from hcq.ir.meaning import MEANING, apply
from hcq.ir.node import Node, const
from hcq.ir.op import ARITHMETIC, BINARY, COMPARE, UNARY, Op
from tests.interpreter.arrays import numpy_dtype
from tests.interpreter.evaluate import evaluate

TRANSCENDENTAL = (Op.EXP, Op.EXP2, Op.LOG, Op.LOG2, Op.SIN, Op.COS)
COMPUTING = tuple(dtype for dtype in ALL if not dtype.is_storage_only)
FLOATING_ONLY = {Op.SQRT, Op.TRUNC, Op.DIV, *TRANSCENDENTAL}
INTEGER_ONLY = {Op.FLOORDIV, Op.MOD, Op.SHL, Op.SHR}
BITWISE = {Op.NOT, Op.AND, Op.OR, Op.XOR}


def edges(dtype: DType) -> list[Scalar]:
    """Numbers of a dtype where ops go wrong: zeros, ones, the ends and their neighbours, infinities, NaN."""
    if dtype.is_bool:
        return [False, True]
    if dtype.is_integer:
        bits, low, high = dtype.bits, int(dtype.min), int(dtype.max)
        chosen = {0, 1, 2, 3, 7, bits - 1, bits, bits + 1, low, low + 1, high - 1, high, high // 2, high // 3}
        chosen |= set() if dtype.is_unsigned else {-1, -2, -3, -7, -bits, low // 2, low // 3}
        return sorted(value for value in chosen if low <= value <= high)
    exponent_bits = {"float16": 5, "bfloat16": 8, "float32": 8, "float64": 11, "fp8e4m3": 4, "fp8e5m2": 5}[
        dtype.name
    ]
    mantissa_bits = dtype.bits - 1 - exponent_bits
    top = (1 << exponent_bits) - 1 << mantissa_bits
    one = ((1 << (exponent_bits - 1)) - 1) << mantissa_bits
    patterns = [
        0,
        1,
        2,
        (1 << mantissa_bits) - 1,
        1 << mantissa_bits,
        top - 1,
        top,
        one - 1,
        one,
        one + 1,
        one + 2,
    ]
    values = [from_bits(pattern, dtype) for pattern in patterns]
    values += [apply(Op.CAST, dtype, [value], dtypes.float64) for value in (0.5, 1.5, 3.0, 7.25, 100.0, 0.1)]
    return [*values, *(-value for value in values), math.nan]


def agree(actual: Scalar, expected: Scalar) -> bool:
    """The same number; for floats also the same sign of zero, and NaN is NaN."""
    if isinstance(expected, float):
        if math.isnan(expected):
            return math.isnan(actual)
        return actual == expected and math.copysign(1.0, actual) == math.copysign(1.0, expected)
    return actual == expected


def computed(op: Op, dtype: DType, sources: list[tuple[Scalar, DType]]) -> Scalar:
    node = Node(op, dtype, tuple(const(value, source) for value, source in sources))
    return evaluate([node], no_leaves)[0].item()


def no_leaves(leaf: Node) -> np.ndarray:
    raise AssertionError("the graph has no leaves")


def test_every_arithmetic_op_has_a_meaning():
    assert MEANING.keys() == ARITHMETIC


def cases() -> list[tuple[Op, DType]]:
    found = []
    for op in sorted(ARITHMETIC - {Op.CAST, Op.BITCAST, Op.WHERE}, key=lambda op: op.name):
        for dtype in COMPUTING:
            if op in FLOATING_ONLY and not dtype.is_float:
                continue
            if (op in INTEGER_ONLY and not dtype.is_integer) or (op in BITWISE and dtype.is_float):
                continue
            found.append((op, dtype))
    return [*found, *((op, dtypes.index) for op in (Op.ADD, Op.MUL, Op.FLOORDIV, Op.MOD))]


def in_one_go(op: Op, result: DType, dtype: DType, rows: list[tuple[Scalar, ...]]) -> list[Scalar]:
    """The interpreter on all argument rows at once, by leaves."""
    leaves = [Node(Op.PARAM, dtype, (), place) for place in range(len(rows[0]))]
    columns = [np.array([row[place] for row in rows], numpy_dtype(dtype)) for place in range(len(rows[0]))]
    return evaluate([Node(op, result, tuple(leaves))], lambda leaf: columns[leaf.arg])[0].tolist()


@pytest.mark.parametrize(("op", "dtype"), cases(), ids=lambda case: getattr(case, "name", str(case)))
def test_a_number_and_an_array_of_it_mean_the_same(op: Op, dtype: DType):
    values = [v for v in edges(dtype) if dtype is not dtypes.index or abs(v) < 1 << 31]
    rows = [(v,) for v in values] if op in UNARY else list(itertools.product(values, values))
    result = dtypes.bool if op in COMPARE else dtype
    for row, actual in zip(rows, in_one_go(op, result, dtype, rows), strict=True):
        expected = apply(op, result, row, dtype)
        if op in (Op.MAX, Op.MIN) and expected == 0:
            assert actual == 0  # which zero is left open
        elif op in TRANSCENDENTAL and dtype is dtypes.float64 and math.isfinite(expected):
            assert math.isclose(actual, expected, rel_tol=2**-51, abs_tol=2**-1073), (row, actual, expected)
        else:
            assert agree(actual, expected), (row, actual, expected)


@pytest.mark.parametrize("dtype", ALL, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("source", ALL, ids=lambda dtype: dtype.name)
def test_a_cast_means_the_same_to_numbers_and_arrays(source: DType, dtype: DType):
    values = edges(source)
    for value, actual in zip(values, in_one_go(Op.CAST, dtype, source, [(v,) for v in values]), strict=True):
        assert agree(actual, apply(Op.CAST, dtype, [value], source)), (value, actual)


@pytest.mark.parametrize(
    ("source", "dtype"),
    [(a, b) for a in ALL for b in ALL if a.itemsize == b.itemsize and not (b.is_bool or a.is_bool)],
    ids=lambda dtype: dtype.name,
)
def test_a_bitcast_means_the_same_to_numbers_and_arrays(source: DType, dtype: DType):
    values = [value for value in edges(source) if value == value]
    for value, actual in zip(
        values, in_one_go(Op.BITCAST, dtype, source, [(v,) for v in values]), strict=True
    ):
        assert agree(actual, apply(Op.BITCAST, dtype, [value], source)), (value, actual)


@pytest.mark.parametrize("dtype", ALL, ids=lambda dtype: dtype.name)
def test_where_takes_the_side_that_the_condition_says(dtype: DType):
    a, b = edges(dtype)[:2]
    assert agree(apply(Op.WHERE, dtype, [True, a, b], dtypes.bool), a)
    assert agree(computed(Op.WHERE, dtype, [(False, dtypes.bool), (a, dtype), (b, dtype)]), b)


@pytest.mark.parametrize(
    ("op", "dtype", "args", "expected"),
    [
        (Op.FLOORDIV, dtypes.int32, (7, 0), 0),
        (Op.MOD, dtypes.int32, (7, 0), 0),
        (Op.FLOORDIV, dtypes.int32, (-(2**31), -1), -(2**31)),
        (Op.MOD, dtypes.int32, (-(2**31), -1), 0),
        (Op.FLOORDIV, dtypes.int32, (-7, 2), -4),
        (Op.MOD, dtypes.int32, (-7, 2), 1),
        (Op.MOD, dtypes.int32, (7, -2), -1),
        (Op.SHL, dtypes.int32, (1, 32), 0),
        (Op.SHL, dtypes.int32, (1, -1), 0),
        (Op.SHR, dtypes.int32, (-5, 99), -1),
        (Op.SHR, dtypes.uint32, (5, 99), 0),
        (Op.ADD, dtypes.int8, (127, 1), -128),
        (Op.MUL, dtypes.int64, (2**62, 3), -(2**62)),
        (Op.NEG, dtypes.uint8, (1,), 255),
        (Op.ADD, dtypes.float32, (1.0, 2**-24), 1.0),
        (Op.ADD, dtypes.float32, (1.0, 3 * 2**-25), 1 + 2**-23),
        (Op.MUL, dtypes.bfloat16, (3e38, 2.0), math.inf),
        (Op.DIV, dtypes.float32, (1.0, -0.0), -math.inf),
        (Op.LOG, dtypes.float32, (0.0,), -math.inf),
        (Op.TRUNC, dtypes.float32, (-0.5,), -0.0),
    ],
)
def test_the_meaning_of_the_corner_cases_is_the_written_one(
    op: Op, dtype: DType, args: tuple, expected: Scalar
):
    assert agree(apply(op, dtype, args), expected)
    assert agree(computed(op, dtype, [(value, dtype) for value in args]), expected)


@pytest.mark.parametrize(
    ("value", "source", "dtype", "expected"),
    [
        (math.nan, dtypes.float32, dtypes.int32, 0),
        (1e30, dtypes.float32, dtypes.int64, 2**63 - 1),
        (-1e30, dtypes.float32, dtypes.int64, -(2**63)),
        (-1.0, dtypes.float32, dtypes.uint8, 0),
        (math.inf, dtypes.float64, dtypes.uint64, 2**64 - 1),
        (-2.7, dtypes.float64, dtypes.int8, -2),
        (math.nan, dtypes.float32, dtypes.bool, True),
        (300, dtypes.int32, dtypes.uint8, 44),
        (
            2**60 + 2**36 + 1,
            dtypes.int64,
            dtypes.float32,
            float(2**60 + 2**37),
        ),  # float64 on the way would lose the 1
        (1e-8, dtypes.float32, dtypes.float16, 0.0),
        (
            1 + 2**-8 + 2**-40,
            dtypes.float64,
            dtypes.bfloat16,
            1 + 2**-7,
        ),  # float32 on the way would lose the 2**-40
        (464.0, dtypes.float32, dtypes.fp8e4m3, 448.0),
        (465.0, dtypes.float32, dtypes.fp8e4m3, math.nan),
        (65000.0, dtypes.float32, dtypes.fp8e5m2, math.inf),
    ],
)
def test_casts_saturate_wrap_and_round_once(value: Scalar, source: DType, dtype: DType, expected: Scalar):
    assert agree(apply(Op.CAST, dtype, [value], source), expected)
    assert agree(computed(Op.CAST, dtype, [(value, source)]), expected)


@given(st.sampled_from(INTEGERS), st.sampled_from(FLOATS), st.data())
def test_any_integer_becomes_the_same_float_either_way(source: DType, dtype: DType, data: st.DataObject):
    value = data.draw(st.integers(int(source.min), int(source.max)))
    assert agree(computed(Op.CAST, dtype, [(value, source)]), apply(Op.CAST, dtype, [value], source))


@given(
    st.sampled_from(sorted(BINARY - FLOATING_ONLY, key=lambda op: op.name)),
    st.sampled_from(INTEGERS),
    st.data(),
)
def test_any_two_integers_give_the_same_either_way(op: Op, dtype: DType, data: st.DataObject):
    numbers = st.integers(int(dtype.min), int(dtype.max))
    a, b = data.draw(numbers), data.draw(numbers)
    result = dtypes.bool if op in COMPARE else dtype
    assert computed(op, result, [(a, dtype), (b, dtype)]) == apply(op, result, [a, b], dtype)


def test_an_op_without_a_meaning_is_refused_by_name():
    with pytest.raises(ValueError, match=r"RESHAPE is not arithmetic"):
        apply(Op.RESHAPE, dtypes.float32, [1.0])
    with pytest.raises(ValueError, match=r"CAST needs source_dtype"):
        apply(Op.CAST, dtypes.float32, [1.0])


def test_arithmetic_in_a_storage_only_format_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"cast to float32, compute, and cast back"):
        apply(Op.ADD, dtypes.fp8e4m3, [1.0, 1.0])
    with pytest.raises(ValueError, match=r"cast to float32, compute, and cast back"):
        computed(Op.ADD, dtypes.fp8e4m3, [(1.0, dtypes.fp8e4m3)] * 2)


def test_the_examples_of_the_semantics_page_are_true():
    page = Path(__file__).parents[2] / "docs" / "semantics.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried > 10
    assert failed == 0
