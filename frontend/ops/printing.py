"""Printing: the numbers of a tensor as text, as PyTorch prints them; long ones by their edges.

In       a tensor, which is computed
Out      `text`, what print(x) shows; `set_printoptions`, how it looks
Changes  the options of the process
Next     tensor.py (str(x); repr(x) computes nothing)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from hcq.frontend.core import device as devices
from hcq.frontend.core.errors import UsageError
from hcq.ir.dtype import dtypes

DEFAULTS: dict[str, Any] = {
    "precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None,
}  # fmt: skip
PROFILES: dict[str, dict[str, Any]] = {
    "default": DEFAULTS,
    "short": {**DEFAULTS, "precision": 2, "edgeitems": 2},
    "full": {**DEFAULTS, "threshold": math.inf},
}
options: dict[str, Any] = dict(DEFAULTS)


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """How print(x) shows a tensor; what is not given stays.

    precision  digits after the point
    threshold  a tensor of more elements is shown by its edges
    edgeitems  how many elements, or rows, at each edge
    linewidth  characters in a line
    profile    "default", "short" or "full": all of it at once, and back to what is known of no other option
    sci_mode   always with exponents, or never; by the numbers unless given

    >>> set_printoptions(precision=2); print(Tensor([1.0, 2.345])); set_printoptions(profile="default")
    tensor([1.00, 2.35])
    """
    if profile is not None:
        if profile not in PROFILES:
            raise UsageError(f"[set_printoptions] profile={profile!r}: use one of {', '.join(PROFILES)}.")
        options.update(PROFILES[profile])
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise UsageError(f"[set_printoptions] {name}={value!r}: give a number, 0 or more.")
        options[name] = value if name == "threshold" else int(value)
    if sci_mode is not None:
        options["sci_mode"] = sci_mode


def get_printoptions() -> dict[str, Any]:
    """What `set_printoptions` has set, by name.

    >>> hcq.get_printoptions()["precision"]
    4
    """
    return dict(options)


def text(tensor: Any) -> str:
    """A tensor's numbers, and whatever of dtype, device and gradient is not usual."""
    shown = tensor.detach().realize()
    is_long = math.prod(shown.shape) > options["threshold"]
    values = _edges(shown).tolist() if is_long else shown.tolist()
    numbers = list(_flat(values, len(shown.shape)))
    write, width = _writer(numbers, tensor.dtype)
    suffix = _suffix(tensor, not numbers)
    body = _nested(values, shown.shape, write, width, len("tensor("), is_long)
    return f"tensor({body}{suffix})"


def _suffix(tensor: Any, is_empty: bool) -> str:
    parts = []
    if is_empty and len(tensor.shape) > 1:
        parts.append(f"size={tensor.shape}")
    if tensor.device != devices.canonical(None):
        parts.append(f"device='{tensor.device}'")
    usual = (dtypes.float32,) if is_empty else (dtypes.float32, dtypes.int64, dtypes.bool)
    if tensor.dtype not in usual and tensor.dtype.name != "complex64":
        parts.append(f"dtype={tensor.dtype.name}")
    if tensor._requires_grad:
        parts.append("requires_grad=True")
    return "".join(f", {part}" for part in parts)


def _edges(tensor: Any) -> Any:
    """The first and last elements along each long axis, as one small tensor."""
    edge = max(1, options["edgeitems"])
    for axis, size in enumerate(tensor.shape):
        if size > 2 * edge:
            ends = [tensor.narrow(axis, 0, edge), tensor.narrow(axis, size - edge, edge)]
            tensor = type(tensor).cat(ends, dim=axis)
    return tensor


def _flat(values: Any, rank: int) -> Iterator[Any]:
    if rank == 0:
        yield values
        return
    for value in values:
        yield from _flat(value, rank - 1)


def _writer(numbers: list[Any], dtype: Any) -> tuple[Callable[[Any], str], int]:
    """How a number is written, and in how many characters at most."""
    if any(isinstance(number, complex) for number in numbers):
        real, _ = _float_writer([number.real for number in numbers])
        imaginary, _ = _float_writer([abs(number.imag) for number in numbers])

        def write(z: complex) -> str:
            sign = "-" if math.copysign(1.0, z.imag) < 0 else "+"
            return f"{real(z.real)}{sign}{imaginary(abs(z.imag)).strip()}j"

        return _aligned(write, numbers)
    if any(isinstance(number, float) for number in numbers):
        return _float_writer(numbers)
    return _aligned(str, numbers)


def _aligned(write: Callable[[Any], str], numbers: list[Any]) -> tuple[Callable[[Any], str], int]:
    width = max(map(len, map(write, numbers)), default=1)
    return (lambda number: write(number).rjust(width)), width


def _float_writer(numbers: list[float]) -> tuple[Callable[[float], str], int]:
    """Whole numbers with a point; else that many digits, with an exponent where they differ widely."""
    wide = [number for number in numbers if math.isfinite(number) and number]  # the others may stand out
    finite = [abs(number) for number in numbers if math.isfinite(number) and number]
    precision, by_exponent = options["precision"], options["sci_mode"]
    least, most = min(finite, default=1.0), max(finite, default=1.0)
    is_whole = all(number == math.trunc(number) for number in finite)
    is_wide = most > 1e8 or most / least > 1000.0 or (not is_whole and least < 1e-4)
    if by_exponent if by_exponent is not None else is_wide:
        form = f".{precision}e"
    elif is_whole:
        return _aligned(lambda number: f"{number:.0f}." if math.isfinite(number) else str(number), wide)
    else:
        form = f".{precision}f"
    return _aligned(lambda number: format(number, form), wide)


def _nested(values: Any, shape: tuple[int, ...], write: Any, width: int, indent: int, is_long: bool) -> str:
    if not shape:
        return str(write(values)).strip()
    edge = max(1, options["edgeitems"])
    is_cut = is_long and shape[0] > 2 * edge
    if len(shape) == 1:
        words = [write(value) for value in values]
        if is_cut:
            words.insert(edge, " ...")
        count = max(1, (options["linewidth"] - indent - 1) // (width + 2))
        lines = [", ".join(words[at : at + count]) for at in range(0, len(words), count)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    rows = [_nested(value, shape[1:], write, width, indent + 1, is_long) for value in values]
    if is_cut:
        rows.insert(edge, "...")
    gap = "," + "\n" * (len(shape) - 1) + " " * (indent + 1)
    return "[" + gap.join(rows) + "]"
