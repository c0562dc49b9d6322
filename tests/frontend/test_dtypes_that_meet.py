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
