"""Numbers and slopes of every public method, at the numbers where conventions differ, against PyTorch and C.

In       number_table.py (the table), PyTorch
Next     numbers_on_two_machines.py (the same on GPUs), campaigns/numbers.py (random expressions of the same functions)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcq import Tensor, dtypes
from hcq.frontend.core import device as devices
from hcq.frontend.grad.gradient import grad
from tests.conftest import NO_FLOAT64
from tests.frontend import number_cases as points
from tests.frontend import number_table
from tests.frontend.number_cases import Case

FORMATS = ["float32", "float64", "float16", "bfloat16"]
OFTEN = [
    *("float32", "float16"),
    *(pytest.param(name, marks=pytest.mark.thorough) for name in ("float64", "bfloat16")),
]


# -- the table ---------------------------------------------------------------------------------------------------------


def public_methods() -> set[str]:
    """What a user may call or write as an operator."""
    plain = set(dir(object)) | {
        "__module__",
        "__slots__",
        "__weakref__",
        "__annotations__",
        "__array_ufunc__",
    }
    own = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}
    return {
        name
        for name in dir(Tensor)
        if not name.startswith("_") or name in own or (name.startswith("__") and name not in plain)
    }


def test_every_public_method_is_compared_or_has_a_reason_not_to_be():
    named = set(number_table.TABLE) | set(number_table.NOT_COMPARED)
    assert public_methods() - named == set()
    assert named - public_methods() == set()
    assert set(number_table.TABLE) & set(number_table.NOT_COMPARED) == set()


# -- floats against PyTorch and C --------------------------------------------------------------------------------------


def arguments(over: str, dtype: str) -> tuple[np.ndarray, ...]:
    if over == "one":
        return (points.numbers(dtype),)
    return points.pairs(dtype) if over == "two" else (points.rows(dtype),)


def has_float64() -> bool:
    """Whether the device that computes here has numbers of that size."""
    return devices.target(Tensor([1.0]).device).has_float64


def tensor_of(array: np.ndarray) -> Tensor:
    """The numbers of an array in the widest format there is; those of narrower formats stay what they are."""
    return Tensor(array if has_float64() else array.astype(np.float32))


def ours(case: Case, arrays: tuple[np.ndarray, ...], dtype: str) -> list[Tensor | None]:
    """The value and the gradient of each argument, not computed yet."""
    leaves = [tensor_of(array).cast(dtypes.named(dtype)).realize() for array in arrays]
    value = case.ours(*leaves)
    if not (case.slope and value.dtype.is_float):
        return [value]
    return [
        value,
        *grad(value, leaves, weights_of(value.shape, tensor_of).cast(value.dtype), allow_unused=True),
    ]


def weights_of(shape: tuple[int, ...], make: Any) -> Any:
    """What gradients start from: ones, and in rows different numbers."""
    array = np.ones(shape) if len(shape) < 2 else np.broadcast_to([1.0, -2.0, 4.0][: shape[-1]], shape)
    return make(np.ascontiguousarray(array))


def theirs(case: Case, arrays: tuple[np.ndarray, ...], dtype: str) -> list[np.ndarray | None]:
    import torch

    leaves = [torch.from_numpy(array).to(getattr(torch, dtype)).requires_grad_() for array in arrays]
    value = case.theirs(*leaves) if case.slope else case.theirs(*[leaf.detach() for leaf in leaves])
    found = [value]
    if case.slope and value.is_floating_point():
        if value.requires_grad:
            value.backward(weights_of(tuple(value.shape), torch.from_numpy).to(value.dtype))
        found += [leaf.grad for leaf in leaves]
    return [None if one is None else one.detach().double().numpy() for one in found]


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """float64 rounded to a format."""
    import torch

    return torch.from_numpy(np.asarray(values)).to(getattr(torch, dtype)).double().numpy()


def wrong_points(case: Case, dtype: str, found: list[np.ndarray | None]) -> list[str]:
    """What of a case differs from every reference."""
    arrays = arguments(case.over, dtype)
    asked_at = np.stack(arrays, -1) if case.over != "rows" else arrays[0]
    native, wide = theirs(case, arrays, dtype), theirs(case, arrays, "float64")
    problems = []
    asked = np.array([case.where is None or case.where(*point) for point in asked_at])
    for place, (got, first, second) in enumerate(zip(found, native, wide, strict=True)):
        if first is None or got is None:
            if place and (got is None or (got != 0).any()) and not (got is None and first is None):
                problems.append(
                    f"{case.name}: gradient {place} is {'missing' if got is None else 'not zero'}"
                )
            continue
        wants = [first, rounded(second, dtype) if first.dtype.kind == "f" else second]
        if place == 0 and case.c is not None:
            wants = [rounded(np.array([case.c(*point) for point in asked_at]), dtype)]
        if place and case.c_slope is not None:
            wants = [rounded(np.array([case.c_slope(*point) for point in asked_at]), dtype)]
        right = np.zeros(got.shape, bool)
        for want in wants:
            units = case.slope_units if place else case.units
            right |= points.agree(
                got, want, dtype, units, case.zero_sign and not place, case.scale, case.floor
            )
        skip = ~asked | (np.isnan(asked_at).any(-1) if place else False)
        right |= skip.reshape(skip.shape + (1,) * (right.ndim - 1))
        if place == 0 and case.instead is not None:
            for i, point in enumerate(asked_at):
                if (value := case.instead(*point)) is not None:
                    right[i] = points.agree(got[i : i + 1], np.array([value]), dtype, 0, True)[0]
        for i in np.argwhere(~right)[:6]:
            where = tuple(i)
            what = "value" if place == 0 else f"gradient {place}"
            problems.append(
                f"{case.name} {what} at {asked_at[where[0]].tolist()} {where[1:]}: "
                f"{got[where]!r}, not {' or '.join(repr(want[where]) for want in wants)}"
            )
    return problems


def computed(results: list[list[Tensor | None]]) -> list[list[np.ndarray | None]]:
    """All of them in one schedule."""
    wide = dtypes.float64 if has_float64() else dtypes.float32
    tensors = [
        tensor.cast(wide) if tensor.dtype.is_float else tensor
        for found in results
        for tensor in found
        if tensor is not None
    ]
    tensors[0].realize(*tensors[1:])
    values = iter([tensor.numpy().astype(np.float64) for tensor in tensors])
    return [[None if tensor is None else next(values) for tensor in found] for found in results]


@pytest.mark.torch
@pytest.mark.deadline(300)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("over", ["one", "two", "rows"])
@pytest.mark.parametrize("dtype", OFTEN)
def test_functions_and_their_slopes_are_pytorchs_and_cs(dtype, over):
    cases = [case for case in number_table.cases(over) if case.narrow or dtype in ("float32", "float64")]
    arrays = arguments(over, dtype)
    if dtype == "float64" and not has_float64():
        pytest.skip(NO_FLOAT64)
    problems: list[str] = []
    left_out = 0
    for start in range(0, len(cases), 24):
        some = cases[start : start + 24]
        if not has_float64():  # a case that computes in it is refused
            some = [case for case in some if is_computed(case, arrays, dtype)]
            left_out += len(cases[start : start + 24]) - len(some)
        results = computed([ours(case, arrays, dtype) for case in some]) if some else []
        for case, found in zip(some, results, strict=True):
            problems += wrong_points(case, dtype, found)
    assert problems == []
    assert left_out <= len(cases) // 4, f"{left_out} of {len(cases)} cases need float64"


def is_computed(case: Case, arrays: tuple[np.ndarray, ...], dtype: str) -> bool:
    """Whether a case needs no float64, on a device that has none and says so."""
    try:
        computed([ours(case, arrays, dtype)])
    except ValueError as error:
        if not str(error).startswith(NO_FLOAT64):
            raise
        return False
    return True


# -- GPUs against the CPU ----------------------------------------------------------------------------------------------

MACHINES = [  # the others compare with PyTorch under --emulate, too
    pytest.param("amd:gfx1100", "float32", marks=pytest.mark.thorough),
    pytest.param("amd:gfx942", "float16", marks=pytest.mark.thorough),
    pytest.param("amd:gfx1201", "bfloat16", marks=pytest.mark.thorough),
    pytest.param("nv:sm_90", "float32", marks=pytest.mark.thorough),
    pytest.param("nv:sm_80", "float64", marks=pytest.mark.thorough),
]


@pytest.mark.own_devices
@pytest.mark.deadline(400)
@pytest.mark.parametrize("emulate, dtype", MACHINES)
def test_functions_and_their_slopes_are_on_an_emulated_gpu_what_they_are_on_the_cpu(emulate, dtype):
    script = Path(__file__).with_name("numbers_on_two_machines.py")
    root = script.parent.parent.parent
    run = subprocess.run(
        [sys.executable, script, emulate, emulate.partition(":")[0].upper(), dtype],
        capture_output=True,
        text=True,
        timeout=380,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["problems"] == []
    assert found["cases"] > 150
