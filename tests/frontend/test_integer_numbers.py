"""Integers, bools, casts and empty axes at their edges: against Python's own integers and the written rules.

In       docs/semantics.md (the rules), ir/meaning.py (what a cast is)
Next     test_numbers.py (floats)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hcq
from hcq import Tensor, dtypes
from hcq.errors import UsageError
from hcq.ir.dtype import ALL, FLOATS, INTEGERS, DType, from_bits, to_bits, truncate
from hcq.ir.meaning import apply
from hcq.ir.op import Op


def edges(dtype: DType) -> list[int]:
    """Where integers of a dtype go wrong."""
    found = [0, 1, 2, 3, 7, dtype.bits - 1, dtype.max, dtype.max - 1, dtype.max // 2 + 1]
    if not dtype.is_unsigned:
        found += [-1, -2, -3, -7, dtype.min, dtype.min + 1]
    return found


def floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def mod(a: int, b: int) -> int:
    return a % b if b else 0


def fmod(a: int, b: int) -> int:
    """The rest has the sign of the dividend."""
    return 0 if b == 0 else int(math.copysign(1, a)) * (abs(a) % abs(b))


def power(a: int, b: int) -> int:
    """Negative exponents are 1 / a rounded towards zero."""
    if b >= 0:
        return pow(a, b, 1 << 64)
    return {1: 1, -1: 1 - 2 * (b & 1)}.get(a, 0)


BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = {
    "+": (operator.add, operator.add),
    "-": (operator.sub, operator.sub),
    "*": (operator.mul, operator.mul),
    "//": (operator.floordiv, floordiv),
    "%": (operator.mod, mod),
    "fmod": (lambda x, y: x.fmod(y), fmod),
    "**": (operator.pow, power),
    "&": (operator.and_, operator.and_),
    "|": (operator.or_, operator.or_),
    "^": (operator.xor, operator.xor),
    "maximum": (lambda x, y: x.maximum(y), max),
    "minimum": (lambda x, y: x.minimum(y), min),
    "lt": (lambda x, y: (x < y).cast(x.dtype), lambda a, b: int(a < b)),
    "le": (lambda x, y: (x <= y).cast(x.dtype), lambda a, b: int(a <= b)),
    "eq": (lambda x, y: (x == y).cast(x.dtype), lambda a, b: int(a == b)),
    "ne": (lambda x, y: (x != y).cast(x.dtype), lambda a, b: int(a != b)),
}
UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[int], int]]] = {
    "neg": (operator.neg, operator.neg),
    "abs": (abs, abs),
    "invert": (operator.invert, operator.invert),
    "square": (lambda x: x.square(), lambda a: a * a),
    "sign": (lambda x: x.sign(), lambda a: (a > 0) - (a < 0)),
    "floor": (lambda x: x.floor(), lambda a: a),
    "** 3": (lambda x: x**3, lambda a: a**3),
    "** 0": (lambda x: x**0, lambda a: 1),
    "- 1": (lambda x: x - 1, lambda a: a - 1),
    "1 -": (lambda x: 1 - x, lambda a: 1 - a),
    "// 2": (lambda x: x // 2, lambda a: a // 2),
    "% 3": (lambda x: x % 3, lambda a: a % 3),
    "clamp": (lambda x: x.clamp(1, 3), lambda a: min(max(a, 1), 3)),
    "relu": (lambda x: x.relu(), lambda a: max(a, 0)),
}


def tensor(values: list[Any], dtype: DType) -> Tensor:
    return Tensor(values, dtype=dtype).realize()


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_integers_wrap_and_divide_as_written(dtype):
    pairs = [(a, b) for a in edges(dtype) for b in edges(dtype)]
    x, y = (tensor([pair[side] for pair in pairs], dtype) for side in (0, 1))
    line = tensor(edges(dtype), dtype)
    found = {name: ours(x, y) for name, (ours, _) in BINARY.items()}
    found |= {name: ours(line) for name, (ours, _) in UNARY.items()}
    first, *others = found.values()
    first.realize(*others)
    for name, (_, theirs) in BINARY.items():
        want = [truncate(theirs(a, b), dtype) for a, b in pairs]
        assert dict(zip(pairs, found[name].tolist())) == dict(zip(pairs, want)), name
    for name, (_, theirs) in UNARY.items():
        want = [truncate(theirs(a), dtype) for a in edges(dtype)]
        assert dict(zip(edges(dtype), found[name].tolist())) == dict(zip(edges(dtype), want)), name


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_a_shift_by_the_width_or_more_moves_everything_out(dtype):
    counts = [0, 1, dtype.bits - 1, dtype.bits, dtype.bits + 1, min(200, int(dtype.max))]
    counts += [] if dtype.is_unsigned else [-1]
    pairs = [(a, c) for a in edges(dtype) for c in counts]
    x, y = (tensor([pair[side] for pair in pairs], dtype) for side in (0, 1))
    left, right = x << y, x >> y
    left.realize(right)
    is_inside = [0 <= c < dtype.bits for _, c in pairs]
    assert left.tolist() == [
        truncate(a << c, dtype) if inside else 0 for (a, c), inside in zip(pairs, is_inside)
    ]
    assert right.tolist() == [a >> c if inside else -(a < 0) for (a, c), inside in zip(pairs, is_inside)]
    for count in (0, 1, dtype.bits - 1, dtype.bits, 300):
        line = tensor(edges(dtype), dtype)
        assert (line << count).tolist() == [truncate(a << count, dtype) for a in edges(dtype)]
        assert (line >> count).tolist() == [a >> count for a in edges(dtype)]


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_sums_extremes_and_orders_of_integers(dtype):
    values = edges(dtype)
    x = tensor(values, dtype)
    wide = dtypes.uint64 if dtype is dtypes.uint64 else dtypes.int64
    assert x.sum().item() == truncate(sum(values), wide)
    assert x.prod().item() == truncate(math.prod(values), wide)
    assert x.cumsum(0).tolist() == [truncate(sum(values[: n + 1]), wide) for n in range(len(values))]
    assert (x.amax().item(), x.amin().item()) == (max(values), min(values))
    assert (x.argmax().item(), x.argmin().item()) == (values.index(max(values)), values.index(min(values)))
    assert x.sort().values.tolist() == sorted(values)
    assert x.any().item()
    assert not x.all().item()


def of_every_kind(dtype: DType) -> list[Any]:
    """Numbers of a dtype where casts go wrong."""
    if dtype.is_bool:
        return [False, True]
    if not dtype.is_float:
        return sorted(
            {
                *edges(dtype),
                *[a for a in (255, 256, 65535, 2**24 + 1, 2**53 + 1, 2**62 + 1) if a <= dtype.max],
            }
        )
    sizes = [
        0.0,
        0.5,
        0.99,
        1.0,
        1.5,
        2.5,
        126.5,
        127.5,
        128.0,
        255.5,
        256.0,
        448.0,
        464.0,
        480.0,
        32767.5,
        32768.0,
    ]
    sizes += [
        57344.0,
        61440.0,
        65504.0,
        65519.0,
        65520.0,
        2.0**31,
        2.0**32,
        2.0**53,
        2.0**63,
        2.0**64,
        1e30,
        3.4e38,
    ]
    sizes += [1e300, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25, 2.0**-133, 2.0**-149, 2.0**-150, 5e-324, math.inf]
    every = [truncate(value, dtype) for size in sizes for value in (size, -size)]
    return [*every, math.nan]


@pytest.mark.deadline(120)
@pytest.mark.parametrize("source", ALL, ids=lambda d: d.name)
def test_every_cast_is_the_one_that_is_written_down(source):
    values = of_every_kind(source)
    x = tensor(values, source)
    results = {dtype: x.cast(dtype) for dtype in ALL}
    first, *others = results.values()
    first.realize(*others)
    for dtype, result in results.items():
        want = [apply(Op.CAST, dtype, [value], source) for value in values]
        got = [from_bits(to_bits(value, dtype), dtype) for value in result.tolist()]
        for value, a, b in zip(values, got, want, strict=True):
            same = a == b and math.copysign(1, a) == math.copysign(1, b)
            assert same or (a != a and b != b), f"{value!r} as {dtype.name} is {b!r}, not {a!r}"


@pytest.mark.parametrize("dtype", [d for d in FLOATS if not d.is_storage_only], ids=lambda d: d.name)
def test_reductions_of_nothing(dtype):
    x = Tensor(np.zeros((2, 0))).cast(dtype)
    assert x.sum(1).tolist() == [0.0, 0.0]
    assert x.prod(1).tolist() == [1.0, 1.0]
    for name in ("mean", "var", "std"):
        assert all(map(math.isnan, getattr(x, name)(1).tolist()))
    assert x.norm(2, 1).tolist() == [0.0, 0.0]
    assert x.any(1).tolist() == [False, False]
    assert x.all(1).tolist() == [True, True]
    assert x.count_nonzero(1).tolist() == [0, 0]
    for name in ("cumsum", "cumprod", "argsort"):
        assert getattr(x, name)(1).shape == (2, 0)
    for name in ("softmax", "log_softmax"):
        assert getattr(x, name)(1).tolist() == [[], []]
    assert x.logsumexp(1).tolist() == [-math.inf, -math.inf]
    for name in ("amax", "amin", "argmax", "argmin"):
        with pytest.raises(UsageError, match="nothing to choose from"):
            getattr(x, name)(1)


def test_bools_are_counted_and_not_computed_with():
    x = hcq.tensor([True, False, True])
    assert x.sum().item() == 2
    assert x.sum().dtype is dtypes.int64
    assert (x & True).tolist() == [True, False, True]
    assert (x ^ x).tolist() == [False, False, False]
    assert (x**2).tolist() == [1, 0, 1]
    for wrong in (lambda: -x, lambda: x - x, lambda: x // x, lambda: x % x):
        with pytest.raises(UsageError):
            wrong()
