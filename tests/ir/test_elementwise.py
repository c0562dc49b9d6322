"""The declarations of elementwise ops: whole, and true where one says what another way of asking can decide."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pytest

from hcq.compiler.render import llvm_arithmetic
from hcq.compiler.render.cuda_arithmetic import CUDA
from hcq.compiler.render.metal_arithmetic import METAL
from hcq.compiler.target import CPU_NATIVE
from hcq.ir.dtype import DType, Kind, Scalar, dtypes
from hcq.ir.elementwise.declaration import Elementwise, Spelling
from hcq.ir.elementwise.table import ELEMENTWISE, KEEPS_FORMAT
from hcq.ir.meaning import apply
from hcq.ir.op import ARITHMETIC, BINARY, COMPARE, TRANSCENDENTAL, UNARY, Op

FORMATS = (
    *(dtypes.bool, dtypes.index, dtypes.float16, dtypes.float32, dtypes.float64),
    *(dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
    *(dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
)


def each(ops: Iterable[Op]) -> pytest.MarkDecorator:
    """The declarations of these."""
    found = [one for op, one in ELEMENTWISE.items() if op in ops]
    return pytest.mark.parametrize("one", found, ids=lambda one: one.op.name)


class Lines:
    """A text being written, whose lines are kept."""

    has_extremes = False
    extremes: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.lines: list[str] = []

    def let(self, text: str) -> str:
        self.lines.append(text)
        return f"%{len(self.lines)}"

    def call(self, result: str, function: str, arguments: list[tuple[str, str]]) -> str:
        return self.let(f"call {result} @{function}({', '.join(' '.join(one) for one in arguments)})")

    def looked_up(self, of: DType, to: DType, name: str) -> None:
        return None

    def before_narrowing(self, dtype: DType, name: str) -> str:
        return name

    def widened(self, of: DType, to: DType, name: str) -> str:
        return self.let(f"fpext {of} {name} to {to}")

    def opaque(self, dtype: DType, name: str) -> str:
        return name

    def helper(self, name: str, text: str) -> str:
        self.lines.append(text)
        return name


def sources_of(one: Elementwise, dtype: DType) -> list[DType]:
    return [dtypes.bool, dtype, dtype] if one.op is Op.WHERE else [dtype] * len(one.slopes)


def result_of(one: Elementwise, dtype: DType) -> DType:
    return dtypes.bool if one.op in COMPARE else dtype


def numbers_of(dtype: DType) -> list[Scalar]:
    if dtype.is_bool:
        return [False, True]
    if dtype.is_float:
        return [0.0, 1.0, -1.5, 0.333251953125, 65504.0, 2.0**-24, float("inf"), -float("inf"), float("nan")]
    return [0, 1, 3, 7, 100, *([] if dtype.is_unsigned else [-1, -100])]


def same(a: Scalar, b: Scalar) -> bool:
    return a == b or (a != a and b != b)


def test_every_arithmetic_op_is_declared_once_and_nothing_else_is() -> None:
    assert ELEMENTWISE.keys() == ARITHMETIC


@each(ARITHMETIC)
def test_it_has_a_slope_for_each_source_that_its_group_has(one: Elementwise) -> None:
    assert len(one.slopes) == (1 if one.op in UNARY else 2 if one.op in BINARY else 3)


def test_every_target_has_what_is_declared_in_each_language_and_no_approximation() -> None:
    assert CPU_NATIVE == ARITHMETIC - TRANSCENDENTAL


@each(CPU_NATIVE)
def test_what_every_target_has_is_written_in_each_language_for_each_format_it_takes(one: Elementwise) -> None:
    for dtype in FORMATS:
        if dtype.kind not in one.takes.kinds or (dtype.is_bool and one.op is Op.NEG):  # of bools there is NOT
            continue
        sources, result = sources_of(one, dtype), result_of(one, dtype)
        operands = list(zip(("%a", "%b", "%c"), sources))
        assert llvm_arithmetic.arithmetic(Lines(), one.op, result, operands, [None] * len(sources))
        for dialect in (CUDA, METAL):
            if dialect is METAL and dtype is dtypes.float64:
                continue
            written = dialect.arithmetic(Lines(), one.op, result, list(zip("abc", sources)))
            assert all(name in written for name, _ in zip("abc", sources)), written


@each(BINARY)
def test_it_commutes_where_it_says_so_and_nowhere_else(one: Elementwise) -> None:
    differs = False
    for dtype in (dtypes.bool, dtypes.int8, dtypes.uint8, dtypes.float32):
        if dtype.kind not in one.takes.kinds:
            continue
        for a, b in itertools.product(numbers_of(dtype), repeat=2):
            result = result_of(one, dtype)
            differs |= not same(apply(one.op, result, [a, b], dtype), apply(one.op, result, [b, a], dtype))
    assert differs is not one.commutes


@each(KEEPS_FORMAT)
def test_it_keeps_the_format_where_it_says_so(one: Elementwise) -> None:
    for sources in itertools.product(numbers_of(dtypes.float16), repeat=len(one.slopes)):
        found = apply(one.op, dtypes.float64, sources)
        assert same(float(np.float16(found)), found)


def test_words_that_are_left_out_are_those_of_the_next_kind() -> None:
    spelling = Spelling(floats="f", integers="i", every="e")
    assert [spelling.of(dtype) for dtype in (dtypes.float64, dtypes.uint8, dtypes.index, dtypes.bool)] == [
        *("f", "i", "i", "e")
    ]
    chosen = Spelling(floats="f", integers="i", bools="b", unsigned="u", indices="x", doubles="d")
    assert [chosen.of(dtype) for dtype in FORMATS] == [*"bxffd", *"iiii", *"uuuu"]


def test_metal_refuses_comparisons_of_doubles_by_name() -> None:
    with pytest.raises(
        llvm_arithmetic.RenderError, match="float64: Metal's GPUs have no numbers of that size"
    ):
        METAL.arithmetic(Lines(), Op.CMPLT, dtypes.bool, [("a", dtypes.float64), ("b", dtypes.float64)])


def test_a_kind_of_numbers_is_taken_by_its_name() -> None:
    words = {one.takes.words: one.takes.kinds for one in ELEMENTWISE.values()}
    assert words["floats"] == {Kind.FLOAT}
    assert Kind.BOOL in words["integers and bools"] - words["integers"]
