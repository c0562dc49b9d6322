"""hcq.torch.testing: comparing what was computed with what should have been, under PyTorch's names.

In       tensors, numbers, and lists, tuples and dicts of them
Out      assert_close
Changes  nothing; what is compared is computed
Next     frontend/ops/elementwise.py (isclose)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hcq.frontend.core.base import Core
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType

# dtype -> how far apart numbers may be: of the expected one, and in all
_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    msg: Any = None,
    **others: Any,
) -> None:
    """Raises AssertionError unless each number is within rtol of the expected one, or atol; and dtype and shape agree.

    rtol, atol   both or none; by the dtype unless given: 1.3e-6 and 1e-5 for float32, none for integers

    >>> hcq.torch.testing.assert_close(Tensor([1.0]), Tensor([1.0 + 1e-7]))
    >>> hcq.torch.testing.assert_close(Tensor([1.0, 2.0]), Tensor([1.0, 2.5]))
    Traceback (most recent call last):
        ...
    AssertionError: 1 of 2 elements differ, by up to 0.5 ...
    """
    problem = _differs("", actual, expected, rtol, atol, equal_nan, check_device, check_dtype)
    if problem:
        raise AssertionError(msg(problem) if callable(msg) else msg or problem)


def _differs(
    where: str,
    actual: Any,
    expected: Any,
    rtol: float | None,
    atol: float | None,
    equal_nan: bool,
    check_device: bool,
    check_dtype: bool,
) -> str:
    rest: Any = (rtol, atol, equal_nan, check_device, check_dtype)
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if set(actual) != set(expected):
            return f"{where}keys {sorted(actual)} and {sorted(expected)} differ"
        found = [_differs(f"{where}[{key!r}] ", actual[key], expected[key], *rest) for key in actual]
        return next(filter(None, found), "")
    if _is_row(actual) and _is_row(expected):
        if len(actual) != len(expected):
            return f"{where}{len(actual)} and {len(expected)} things"
        found = [_differs(f"{where}[{n}] ", *pair, *rest) for n, pair in enumerate(zip(actual, expected))]
        return next(filter(None, found), "")
    is_tensor = isinstance(actual, Core), isinstance(expected, Core)
    if is_tensor[0] != is_tensor[1]:
        return f"{where}{type(actual).__name__} and {type(expected).__name__}: one is a tensor"
    pair: list[Any] = [x if isinstance(x, Core) else Tensor(x) for x in (actual, expected)]
    one, two = pair
    if one.shape != two.shape:
        return f"{where}shapes {one.shape} and {two.shape} differ"
    if check_dtype and one.dtype is not two.dtype:
        return f"{where}dtypes {one.dtype.name} and {two.dtype.name} differ"
    if check_device and one.device != two.device:
        return f"{where}devices {one.device} and {two.device} differ"
    near, far = _tolerances(one.dtype, two.dtype)
    near, far = near if rtol is None else rtol, far if atol is None else atol
    ours: Any = two.to(one.device).detach()
    mine: Any = one.detach()
    close = mine.isclose(ours, near, far, equal_nan) if near or far else mine == ours
    wrong = close.numel() - int(close.sum().item())
    if not wrong:
        return ""
    apart = (
        (mine.double() - ours.double()).abs().max().item()
        if not one.is_complex()
        else (mine - ours).abs().max().item()
    )
    return (
        f"{where}{wrong} of {close.numel()} elements differ, by up to {apart:g} (rtol {near:g}, atol {far:g})"
    )


def _is_row(thing: Any) -> bool:
    return isinstance(thing, Sequence) and not isinstance(thing, str)


def _tolerances(one: DType, two: DType) -> tuple[float, float]:
    found = [_TOLERANCES.get(dtype.name, (0.0, 0.0)) for dtype in (one, two)]
    return max(near for near, _ in found), max(far for _, far in found)
