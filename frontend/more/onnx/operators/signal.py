"""Signals: Fourier transforms as products with tables of sines, windows, mel scales.

In       tensors whose last axis is real and imaginary part, or only the real one
Out      tensors
Changes  table.py's table
Next     product.py (what a transform is made of)

A transform of n elements is a product with a table of n by n, in float64 where the device has it: exact, and quick
for the hundreds of elements that a frame has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.operators.shape import dtype_of
from hcq.frontend.more.onnx.table import operator
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

MAX_LENGTH = 8192  # of a transform: its table has that many squared numbers


def _number(values: Any) -> Any:
    return np.asarray(values).reshape(-1)[0].item()


def _transformed(
    real: Tensor, imaginary: Tensor | None, want: int, inverse: int, call: Any
) -> tuple[Tensor, Tensor]:
    """Along the last axis."""
    n = real.shape[-1]
    if n > MAX_LENGTH:
        raise UsageError(f"a transform of {n} elements; up to {MAX_LENGTH} are computed")
    angle = 2 * np.pi / n * (np.arange(n)[:, None] * np.arange(want) % n) * (1 if inverse else -1)
    scale = 1 / n if inverse else 1
    wide = dtypes.float64 if call.has_float64 else dtypes.float32
    cosine, sine = (
        call.constant((table * scale).astype(wide.name)) for table in (np.cos(angle), np.sin(angle))
    )
    a = real.cast(wide)
    if imaginary is None:
        return (a @ cosine).cast(real.dtype), (a @ sine).cast(real.dtype)
    b = imaginary.cast(wide)
    return (a @ cosine - b @ sine).cast(real.dtype), (a @ sine + b @ cosine).cast(real.dtype)


def _dft(x: Tensor, length: Any, axis: int, inverse: int, onesided: int, call: Any) -> Tensor:
    axis %= x.ndim
    if axis == x.ndim - 1:
        raise UsageError("the last axis has real and imaginary part: it is not transformed")
    n = x.shape[axis]
    want = n if length is None else int(_number(length))
    is_real = x.shape[-1] == 1
    if inverse and onesided and not is_real:  # the half that a real signal's transform has
        want = 2 * (n - 1) if length is None else want
        mirror = [i if i < n else want - i for i in range(want)]
        sign = np.asarray([1 if i < n else -1 for i in range(want)], np.float32)
        full = x.index_select(axis, call.constant(np.asarray(mirror, np.int32)))
        line = [want if a == axis else 1 for a in range(x.ndim)]
        signs = np.stack([np.ones(want, np.float32), sign], -1).reshape(*line[:-1], 2)
        x = full * call.constant(signs).cast(x.dtype)
        n = want
    if want < n:
        x = x.narrow(axis, 0, want)
    elif want > n:
        x = x.pad([0, 0] * (x.ndim - axis - 1) + [0, want - n])
    x = x.movedim(axis, -2)
    parts = want // 2 + 1 if onesided and not inverse else want
    real = x[..., 0]
    a, b = _transformed(real, None if is_real else x[..., 1], parts, inverse, call)
    found = Tensor.stack([a, b], dim=-1) if not (inverse and onesided) else a.unsqueeze(-1)
    return found.movedim(-2, axis)


@operator("DFT", since=20, host="length axis")
def dft(
    x: Tensor, length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0, call: Any
) -> Any:
    """A Fourier transform along an axis."""
    return _dft(x, length, -2 if axis is None else int(_number(axis)), inverse, onesided, call)


@operator("DFT", since=17, host="length")
def dft_by_attribute(
    x: Tensor, length: Any = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0, call: Any
) -> Any:
    """Before 20: the axis is an attribute."""
    return _dft(x, length, axis, inverse, onesided, call)


@operator("STFT", since=17, host="step length")
def stft(
    x: Tensor, step: Any, window: Tensor | None = None, length: Any = None, *, onesided: int = 1, call: Any
) -> Any:
    """Transforms of frames that begin a step apart."""
    size = int(_number(length)) if length is not None else window.shape[0] if window is not None else 0
    if not size:
        raise UsageError("it has neither a window nor a frame_length")
    real = x[..., 0] if x.ndim == 3 else x
    frames = real.unfold(1, size, int(_number(step)))
    imaginary = x[..., 1].unfold(1, size, int(_number(step))) if x.ndim == 3 and x.shape[-1] == 2 else None
    if window is not None:
        frames = frames * window
        imaginary = None if imaginary is None else imaginary * window
    a, b = _transformed(frames, imaginary, size // 2 + 1 if onesided else size, 0, call)
    return Tensor.stack([a, b], dim=-1)


WINDOWS = {  # the factors of cos(0), -cos(angle), cos(2 angle)
    "HannWindow": (0.5, 0.5),
    "HammingWindow": (25 / 46, 21 / 46),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


def _declare_window(op: str, terms: tuple[float, ...]) -> None:
    @operator(op, since=17, host="size")
    def window(size: Any, *, output_datatype: int = 1, periodic: int = 1, call: Any) -> Any:
        n = int(_number(size))
        angle = 2 * np.pi * np.arange(n) / max(1, n if periodic else n - 1)
        values = sum(a * np.cos(k * angle) * (-1) ** k for k, a in enumerate(terms))
        return call.constant(np.asarray(values, np.float32)).cast(dtype_of(output_datatype))


for _op, _terms in WINDOWS.items():
    _declare_window(_op, _terms)


@operator("MelWeightMatrix", since=17, host="bins length rate low high")
def mel_weight_matrix(
    bins: Any, length: Any, rate: Any, low: Any, high: Any, *, output_datatype: int = 1, call: Any
) -> Any:
    """Triangles over a spectrum, evenly on the mel scale."""
    count, size = int(_number(bins)), int(_number(length))
    spectrum = size // 2 + 1

    def mel(hertz: float) -> float:
        return float(2595 * np.log10(1 + hertz / 700))

    first, last = mel(_number(low)), mel(_number(high))
    edges = first + np.arange(count + 2) * (last - first) / (count + 2)
    places = ((size + 1) * 700 * (10 ** (edges / 2595) - 1) // _number(rate)).astype(int)
    table = np.zeros((spectrum, count), np.float32)
    for i in range(count):
        low_place, middle, high_place = places[i : i + 3]
        for j in range(low_place, middle):
            table[j, i] = (j - low_place) / (middle - low_place)
        table[middle, i] = 1
        for j in range(middle, high_place):
            table[j, i] = (high_place - j) / (high_place - middle)
    return call.constant(table).cast(dtype_of(output_datatype))
