"""Every function of the table on the CPU device and on an emulated GPU; test_numbers.py runs this in a process.

In       argv: what to emulate (amd:gfx1100), the device's name (AMD), a dtype
Out      one line of JSON: how many cases, and what differs

A GPU may take another order of sums, another instruction for a logarithm and either zero of a maximum. So numbers agree
to the case's own units; infinities, NaN and the signs of other zeros agree exactly.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np

os.environ["HCQ_EMULATE"] = sys.argv[1]

from hcq import Tensor, dtypes
from hcq.frontend.grad.gradient import grad
from tests.frontend import number_cases as points
from tests.frontend.number_cases import Case
from tests.frontend.number_table import cases

MOST = 8  # cases of one schedule


def arguments(over: str, dtype: str) -> tuple[np.ndarray, ...]:
    """The numbers of test_numbers.py, but of pairs and rows every third."""
    if over == "one":
        return (points.numbers(dtype),)
    if over == "two":
        return tuple(array[::3].copy() for array in points.pairs(dtype))
    return (points.rows(dtype)[::3].copy(),)


def graphs(case: Case, arrays: tuple[np.ndarray, ...], dtype: str, device: str) -> list[Tensor]:
    """Value and slopes, lazy, in float64 or integers."""
    leaves = [Tensor(array, device=device).cast(dtypes.named(dtype)).realize() for array in arrays]
    value = case.ours(*leaves)
    found = [value]
    if case.slope and value.dtype.is_float:
        seed = (
            value.ones_like()
            if value.ndim < 2
            else value.ones_like() * Tensor([1.0, -2.0, 4.0], device=device)
        )
        found += [g for g in grad(value, leaves, seed.cast(value.dtype), allow_unused=True) if g is not None]
    return [x.double() if x.dtype.is_float else x for x in found]


def differences(some: list[Case], over: str, dtype: str) -> list[str]:
    """What of some cases differs between the two."""
    arrays = arguments(over, dtype)
    results = []
    for device in ("CPU", sys.argv[2]):
        found = [graphs(case, arrays, dtype, device) for case in some]
        tensors = [x for tensors in found for x in tensors]
        tensors[0].realize(*tensors[1:])
        results.append([[x.numpy().astype(np.float64) for x in tensors] for tensors in found])
    problems = []
    for case, want, got in zip(some, *results, strict=True):
        for place, (a, b) in enumerate(zip(want, got, strict=True)):
            units = case.slope_units if place else case.units
            right = points.agree(
                b, a, dtype, units, case.zero_sign and not place, max(case.scale, 0), case.floor
            )
            at = np.stack(arrays, -1) if over != "rows" else arrays[0]
            asked = np.array([case.where is None or case.where(*point) for point in at])
            asked &= ~np.isnan(at).any(-1) if place else True
            right |= ~asked.reshape(asked.shape + (1,) * (right.ndim - 1))
            what = f"{case.name} {'slope' if place else 'value'}"
            for i in np.argwhere(~right)[:3]:
                problems.append(f"{what} at {at[i[0]].tolist()}: {b[tuple(i)]!r}, not {a[tuple(i)]!r}")
    return problems


def main() -> None:
    dtype = sys.argv[3]
    problems, count = [], 0
    for over in ("one", "two", "rows"):
        chosen = [case for case in cases(over) if case.narrow]
        for start in range(0, len(chosen), MOST):
            problems += differences(chosen[start : start + MOST], over, dtype)
        count += len(chosen)
    print(json.dumps({"cases": count, "problems": problems}))


main()
