"""Meeting: which dtype two operands are computed in, beside PyTorch."""

from __future__ import annotations

import itertools

import pytest

import hcq
from hcq import Tensor, dtypes

MEETINGS = {
    "+": lambda m, a, b: a + b,
    "/": lambda m, a, b: a / b,
    "maximum": lambda m, a, b: m.maximum(a, b),
    "where": lambda m, a, b: m.where(a == a, a, b),
    "fmod": lambda m, a, b: m.fmod(a, b),
    "//": lambda m, a, b: a // b,
    "atan2": lambda m, a, b: m.atan2(a, b),
    "remainder": lambda m, a, b: m.remainder(a, b),
    "clamp": lambda m, a, b: m.clamp(a, b),
    "rsub": lambda m, a, b: m.rsub(a, b),
    "hypot": lambda m, a, b: m.hypot(a, b),
    "&": lambda m, a, b: a & b,
    "<": lambda m, a, b: a < b,
    "result_type": lambda m, a, b: m.result_type(a, b),
}


@pytest.mark.torch
@pytest.mark.parametrize("call", MEETINGS)
def test_operands_of_any_two_dtypes_with_axes_and_without_meet_in_pytorchs_dtype(call):
    torch = pytest.importorskip("torch")
    names = ["bool", "uint8", "int8", "int64", "float16", "bfloat16", "float32", "float64"]
    for x, y, (a, b) in itertools.product(names, names, [((2,), ()), ((), (2,)), ((), ()), ((2,), (2,))]):
        try:
            wanted = MEETINGS[call](
                torch, torch.ones(a, dtype=getattr(torch, x)), torch.ones(b, dtype=getattr(torch, y))
            )
        except RuntimeError:
            continue  # refused there
        found = MEETINGS[call](
            hcq, Tensor.ones(*a, dtype=getattr(dtypes, x)), Tensor.ones(*b, dtype=getattr(dtypes, y))
        )
        have, want = getattr(found, "dtype", found), getattr(wanted, "dtype", wanted)
        assert f"torch.{have.name}" == str(want), f"{x} {a} and {y} {b}"


def true() -> Tensor:
    return hcq.ones(2, dtype=hcq.bool)


def ones() -> Tensor:
    return hcq.ones(2, dtype=hcq.uint8)


SMALL = {
    "add of bools with a weight": (lambda: hcq.add(true(), true(), alpha=2), hcq.bool, [True, True]),
    "add of a bool to int16": (
        lambda: hcq.add(hcq.ones(2, dtype=hcq.int16), true(), alpha=2),
        hcq.int16,
        [3, 3],
    ),
    "add of int16 to a bool": (
        lambda: hcq.add(true(), hcq.ones(2, dtype=hcq.int16), alpha=2),
        hcq.int16,
        [3, 3],
    ),
    "add of an int to a half": (
        lambda: hcq.add(hcq.ones(2, dtype=hcq.float16), hcq.tensor([1, 2]), alpha=0.5),
        hcq.float16,
        [1.5, 2.0],
    ),
    "sub of a bool": (lambda: hcq.sub(hcq.ones(2, dtype=hcq.int8), true(), alpha=3), hcq.int8, [-2, -2]),
    "any of bytes": (lambda: ones().any(), hcq.uint8, 1),
    "all of bytes along an axis": (lambda: ones().all(0), hcq.uint8, 1),
    "any of int16": (lambda: ones().to(hcq.int16).any(), hcq.bool, True),
    "bool ** int": (lambda: true() ** 2, hcq.int64, [1, 1]),
    "bool ** float": (lambda: true() ** 2.0, hcq.float32, [1.0, 1.0]),
    "bool ** integers": (lambda: true() ** hcq.tensor([2, 3]), hcq.int64, [1, 1]),
    "logsumexp of nothing": (lambda: hcq.zeros(2, 0).logsumexp(1), hcq.float32, [float("-inf")] * 2),
    "median of nothing": (lambda: hcq.zeros(0).median(), hcq.float32, float("nan")),
    "nanmedian of nothing": (lambda: hcq.zeros(0).nanmedian(), hcq.float32, float("nan")),
}


@pytest.mark.parametrize("name", SMALL)
def test_bools_bytes_and_nothing_have_pytorchs_dtypes_and_values(name):
    compute, dtype, want = SMALL[name]
    got = compute()
    assert got.dtype is dtype
    assert repr(got.tolist()) == repr(want)


def two() -> Tensor:
    return hcq.tensor(2)


SIZES = {
    "arange": (lambda: hcq.arange(hcq.tensor(3)), [0, 1, 2]),
    "arange of a float": (lambda: hcq.arange(hcq.tensor(0.5), 2), [0.5, 1.5]),
    "zeros": (lambda: hcq.zeros(two(), 2), [[0.0, 0.0], [0.0, 0.0]]),
    "full": (lambda: hcq.full((two(),), 1.5), [1.5, 1.5]),
    "reshape": (lambda: hcq.arange(4).reshape(two(), 2), [[0, 1], [2, 3]]),
    "expand": (lambda: hcq.arange(1).expand(two()), [0, 0]),
    "split": (lambda: hcq.arange(3).split(two())[0], [0, 1]),
    "linspace": (lambda: hcq.linspace(0, 1, hcq.tensor(3)), [0.0, 0.5, 1.0]),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_tensor_of_no_axes_is_a_size(name):
    compute, want = SIZES[name]
    assert compute().tolist() == want


def test_a_tensor_of_fractions_or_of_axes_is_no_size():
    for wrong in (hcq.tensor(2.5), hcq.tensor([2]), hcq.tensor(True)):
        with pytest.raises(hcq.UsageError):
            hcq.zeros(wrong, 2)
