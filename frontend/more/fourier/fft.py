"""Fourier transforms under PyTorch's names: `hcq.torch.fft.fft(x)`, `hcq.torch.fft.rfft2(x, norm="ortho")`.

In       tensors, real or complex; sizes `n` and `s`, axes `dim`, a word for `norm`
Out      lazy tensors: complex spectra, real signals
Next     planes.py (the transform of one axis), ../complex/ (complex tensors), short_time.py (stft)

norm     "backward": the inverse is divided by the size; "ortho": both by its root; "forward": the other one
n, s     the sizes that axes are cut or padded with zeros to first; of a real result, its size
dim      the axes, the last one or all unless given

Integers become float32; float64 gives complex128.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.complex.pair import Pair
from hcq.frontend.more.complex.tensor import Complex
from hcq.frontend.more.fourier.planes import of_real, to_real, transformed
from hcq.frontend.ops.arguments import checked
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes

FORWARD, INVERSE = -1, 1  # the sign of the angles
_NORMS = ("backward", "ortho", "forward")
Dims = int | Sequence[int] | None


def _scale(call: str, norm: str | None, size: int, sign: int) -> float:
    """What the sum is multiplied with."""
    norm = norm or "backward"
    if norm not in _NORMS:
        raise UsageError(f"[{call}] norm={norm!r}: use 'backward', 'ortho' or 'forward'.")
    if norm == "ortho":
        return 1.0 / math.sqrt(size)
    return 1.0 / size if (norm == "forward") is (sign == FORWARD) else 1.0


def _numbers(call: str, x: Any) -> Any:
    """A tensor in float32, float64, or complex."""
    if not isinstance(x, Tensor):
        raise UsageError(f"[{call}] {shown(x)}: give a tensor. Make one: hcq.tensor(...).")
    if isinstance(x, Pair) or x.dtype in (dtypes.float32, dtypes.float64):
        return x
    if x.dtype.is_float:
        raise UsageError(f"[{call}] {x.dtype.name} has no complex numbers of its own. Cast first: x.float().")
    return x.cast(dtypes.float32)


def _real(call: str, x: Any) -> Any:
    x = _numbers(call, x)
    if isinstance(x, Pair):
        raise UsageError(
            f"[{call}] {x.dtype.name}: takes real numbers. Take z.real, or use the transform of complex ones."
        )
    return x


def _sized(x: Any, axis: int, size: int) -> Any:
    """Cut, or padded with zeros, to that size."""
    have = x.shape[axis]
    if size < have:
        return x.narrow(axis, 0, size)
    return x.pad([0, 0] * (x.ndim - 1 - axis) + [0, size - have]) if size > have else x


def _check_size(call: str, size: Any) -> int:
    if not isinstance(size, int):
        raise UsageError(
            f"[{call}] size {size} is known only when the work runs. Transform the whole tensor."
        )
    if size < 1:
        raise UsageError(f"[{call}] {size} points: a transform has 1 point at least. Give n of 1 or more.")
    return size


def _lines(x: Tensor, axis: int) -> tuple[Tensor, tuple[int, ...]]:
    """One axis as the last of two, and the shape of the others."""
    moved = x.movedim(axis, -1)
    rest = moved.shape[:-1]
    return moved.reshape(math.prod(rest), moved.shape[-1]), rest


def _planes(z: Any, axis: int) -> tuple[Tensor, tuple[int, ...]]:
    """(batch, 2, n) of a complex tensor, (batch, 1, n) of a real one."""
    if not isinstance(z, Pair):
        lines, rest = _lines(z, axis)
        return lines.unsqueeze(1), rest
    (real, rest), (imag, _) = (_lines(part, axis) for part in z.parts)
    return real.stack(imag, dim=1), rest


def _complex(planes: Tensor, rest: tuple[int, ...], axis: int) -> Any:
    """Planes as a complex tensor, the last axis where it was."""
    whole = planes.permute(1, 0, 2).contiguous()  # in memory, both parts are parts of it
    parts = [whole[which].reshape(*rest, planes.shape[2]).movedim(-1, axis) for which in (0, 1)]
    return Complex.of(*parts)


def _over(call: str, x: Any, n: int | None, dim: int, norm: str | None, sign: int) -> Any:
    """The transform of one axis, complex or real numbers to complex ones."""
    axis = x._axis_of(call, dim)
    size = _check_size(call, x.shape[axis] if n is None else n)
    planes, rest = _planes(_sized(x, axis, size), axis)
    return _complex(transformed(planes, sign, _scale(call, norm, size, sign)), rest, axis)


def _half(call: str, x: Any, n: int | None, dim: int, norm: str | None, sign: int) -> Any:
    """Half the spectrum of one axis of real numbers."""
    axis = x._axis_of(call, dim)
    size = _check_size(call, x.shape[axis] if n is None else n)
    lines, rest = _lines(_sized(x, axis, size), axis)
    return _complex(of_real(lines, sign, _scale(call, norm, size, sign)), rest, axis)


def _whole(call: str, z: Any, n: int | None, dim: int, norm: str | None, sign: int) -> Tensor:
    """Real numbers from half their spectrum."""
    axis = z._axis_of(call, dim)
    have = z.shape[axis]
    size = _check_size(call, 2 * (have - 1) if n is None else n)
    if not isinstance(z, Pair):
        z = Complex.of(z)
    planes, rest = _planes(_sized(z, axis, size // 2 + 1), axis)
    line = to_real(planes, size, sign, _scale(call, norm, size, sign))
    return line.reshape(*rest, size).movedim(-1, axis)


def _sizes(
    call: str, x: Any, s: Any, dim: Any, default: tuple[int, ...] | None
) -> list[tuple[int, int | None]]:
    """Axes with the sizes they are to have, None where they stay."""
    wanted = None if s is None else [s] if isinstance(s, int) else list(s)
    if dim is None:
        dim = default
        if dim is None:
            count = x.ndim if wanted is None else len(wanted)
            if count > x.ndim:
                raise UsageError(
                    f"[{call}] s={shown(s)} has {count} sizes, the tensor {x.ndim} axes. Give as many or fewer."
                )
            dim = tuple(range(x.ndim - count, x.ndim))
    dims = [dim] if isinstance(dim, int) else list(dim)
    if wanted is not None and len(wanted) != len(dims):
        raise UsageError(f"[{call}] s={shown(s)} and dim={shown(dim)}: give one size for each axis.")
    axes = [x._axis_of(call, axis) for axis in dims]
    if len(set(axes)) != len(axes):
        raise UsageError(f"[{call}] dim={shown(dim)} names an axis twice. Name each once.")
    sizes = [None] * len(axes) if wanted is None else [None if size == -1 else size for size in wanted]
    return list(zip(axes, sizes))


# -- one axis ---------------------------------------------------------------------------------------------------------


@checked
def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The discrete Fourier transform of an axis: complex, of the input's shape.

    >>> hcq.torch.fft.fft(Tensor([1.0, 0.0, 0.0, 0.0])).tolist()
    [(1+0j), (1+0j), (1+0j), (1+0j)]
    """
    return _over("fft", _numbers("fft", input), n, dim, norm, FORWARD)  # type: ignore[no-any-return]


@checked
def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `fft`.

    >>> hcq.torch.fft.ifft(hcq.torch.fft.fft(Tensor([1.0, 2.0, 3.0]))).real.round().tolist()
    [1.0, 2.0, 3.0]
    """
    return _over("ifft", _numbers("ifft", input), n, dim, norm, INVERSE)  # type: ignore[no-any-return]


@checked
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The first half, n // 2 + 1 numbers, of the spectrum of real numbers; the others are their conjugates.

    >>> hcq.torch.fft.rfft(Tensor([1.0, 0.0, 0.0, 0.0])).tolist()
    [(1+0j), (1+0j), (1+0j)]
    """
    return _half("rfft", _real("rfft", input), n, dim, norm, FORWARD)  # type: ignore[no-any-return]


@checked
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `rfft`: n real numbers, 2 (m - 1) of m unless given.

    >>> hcq.torch.fft.irfft(hcq.torch.fft.rfft(Tensor([1.0, 2.0, 3.0, 4.0]))).round(decimals=4).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    return _whole("irfft", _numbers("irfft", input), n, dim, norm, INVERSE)


@checked
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The spectrum, n real numbers, of a signal of which the first half is given and the other is its conjugate.

    >>> hcq.torch.fft.hfft(Tensor([1.0, 2.0, 3.0])).tolist()
    [8.0, -2.0, 0.0, -2.0]
    """
    return _whole("hfft", _numbers("hfft", input), n, dim, norm, FORWARD)


@checked
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `hfft`: the first half of the signal with that real spectrum.

    >>> x = Tensor([4.0, 2.0, 0.0, 2.0])
    >>> hcq.torch.fft.ihfft(x).shape, hcq.torch.fft.hfft(hcq.torch.fft.ihfft(x), 4).round().tolist()
    ((3,), [4.0, 2.0, 0.0, 2.0])
    """
    return _half("ihfft", _real("ihfft", input), n, dim, norm, INVERSE)  # type: ignore[no-any-return]


# -- several axes -----------------------------------------------------------------------------------------------------


def _all(
    call: str, x: Any, s: Any, dim: Any, norm: str | None, sign: int, default: tuple[int, ...] | None
) -> Any:
    x = _numbers(call, x)
    for axis, size in _sizes(call, x, s, dim, default):
        x = _over(call, x, size, axis, norm, sign)
    return x if isinstance(x, Pair) else Complex.of(x)


def _half_of_all(call: str, x: Any, s: Any, dim: Any, norm: str | None, sign: int, default: Any) -> Any:
    x = _real(call, x)
    *others, last = _some(call, _sizes(call, x, s, dim, default))
    for axis, size in others:  # cut or padded before anything is summed
        x = x if size is None else _sized(x, axis, _check_size(call, size))
    z = _half(call, x, last[1], last[0], norm, sign)
    for axis, size in others:
        z = _over(call, z, size, axis, norm, sign)
    return z


def _whole_of_all(call: str, z: Any, s: Any, dim: Any, norm: str | None, sign: int, default: Any) -> Tensor:
    z = _numbers(call, z)
    *others, last = _some(call, _sizes(call, z, s, dim, default))
    for axis, size in others:
        z = _over(call, z, size, axis, norm, sign)
    return _whole(call, z, last[1], last[0], norm, sign)


def _some(call: str, sizes: list[Any]) -> list[Any]:
    if not sizes:
        raise UsageError(f"[{call}] no axis is named. Name one at least.")
    return sizes


TWO = (-2, -1)


def fftn(input: Tensor, s: Dims = None, dim: Dims = None, norm: str | None = None) -> Tensor:
    """`fft` of several axes, all unless given.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> hcq.torch.fft.fftn(x, dim=0).real.tolist()
    [[4.0, 6.0], [-2.0, -2.0]]
    """
    return _all("fftn", input, s, dim, norm, FORWARD, None)  # type: ignore[no-any-return]


def ifftn(input: Tensor, s: Dims = None, dim: Dims = None, norm: str | None = None) -> Tensor:
    """`ifft` of several axes, all unless given.

    >>> hcq.torch.fft.ifftn(Tensor.ones(2, 2)).real.round().abs().tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    return _all("ifftn", input, s, dim, norm, INVERSE, None)  # type: ignore[no-any-return]


def rfftn(input: Tensor, s: Dims = None, dim: Dims = None, norm: str | None = None) -> Tensor:
    """`rfft` of the last of several axes, `fft` of the others.

    >>> hcq.torch.fft.rfftn(Tensor.ones(4, 6), dim=(1, 0)).shape
    (3, 6)
    """
    return _half_of_all("rfftn", input, s, dim, norm, FORWARD, None)  # type: ignore[no-any-return]


def irfftn(input: Tensor, s: Dims = None, dim: Dims = None, norm: str | None = None) -> Tensor:
    """The inverse of `rfftn`: real numbers.

    >>> hcq.torch.fft.irfftn(Tensor.ones(2, 3)).shape, hcq.torch.fft.irfftn(Tensor.ones(2, 3), s=(2, 5)).shape
    ((2, 4), (2, 5))
    """
    return _whole_of_all("irfftn", input, s, dim, norm, INVERSE, None)


def hfftn(input: Tensor, s: Dims = None, dim: Dims = None, norm: str | None = None) -> Tensor:
    """`hfft` of the last of several axes, `fft` of the others: real numbers.

    >>> hcq.torch.fft.hfftn(Tensor.ones(2, 3), s=(2, 5)).shape
    (2, 5)
    """
    return _whole_of_all("hfftn", input, s, dim, norm, FORWARD, None)


def ihfftn(input: Tensor, s: Dims = None, dim: Dims = None, norm: str | None = None) -> Tensor:
    """The inverse of `hfftn`.

    >>> hcq.torch.fft.ihfftn(Tensor.ones(2, 4)).shape
    (2, 3)
    """
    return _half_of_all("ihfftn", input, s, dim, norm, INVERSE, None)  # type: ignore[no-any-return]


def fft2(input: Tensor, s: Dims = None, dim: Dims = TWO, norm: str | None = None) -> Tensor:
    """`fft` of two axes, the last ones unless given.

    >>> hcq.torch.fft.fft2(Tensor([[1.0, 2.0], [3.0, 4.0]])).real.round().abs().tolist()
    [[10.0, 2.0], [4.0, 0.0]]
    """
    return _all("fft2", input, s, dim, norm, FORWARD, TWO)  # type: ignore[no-any-return]


def ifft2(input: Tensor, s: Dims = None, dim: Dims = TWO, norm: str | None = None) -> Tensor:
    """`ifft` of two axes, the last ones unless given.

    >>> hcq.torch.fft.ifft2(Tensor([[4.0, 0.0], [0.0, 0.0]])).real.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return _all("ifft2", input, s, dim, norm, INVERSE, TWO)  # type: ignore[no-any-return]


def rfft2(input: Tensor, s: Dims = None, dim: Dims = TWO, norm: str | None = None) -> Tensor:
    """`rfftn` of two axes, the last ones unless given.

    >>> hcq.torch.fft.rfft2(Tensor.ones(4, 6)).shape
    (4, 4)
    """
    return _half_of_all("rfft2", input, s, dim, norm, FORWARD, TWO)  # type: ignore[no-any-return]


def irfft2(input: Tensor, s: Dims = None, dim: Dims = TWO, norm: str | None = None) -> Tensor:
    """`irfftn` of two axes, the last ones unless given.

    >>> x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> hcq.torch.fft.irfft2(hcq.torch.fft.rfft2(x), s=x.shape).round().tolist()
    [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    """
    return _whole_of_all("irfft2", input, s, dim, norm, INVERSE, TWO)


def hfft2(input: Tensor, s: Dims = None, dim: Dims = TWO, norm: str | None = None) -> Tensor:
    """`hfftn` of two axes, the last ones unless given.

    >>> hcq.torch.fft.hfft2(Tensor.ones(2, 3)).shape
    (2, 4)
    """
    return _whole_of_all("hfft2", input, s, dim, norm, FORWARD, TWO)


def ihfft2(input: Tensor, s: Dims = None, dim: Dims = TWO, norm: str | None = None) -> Tensor:
    """`ihfftn` of two axes, the last ones unless given.

    >>> hcq.torch.fft.ihfft2(Tensor.ones(2, 4)).shape
    (2, 3)
    """
    return _half_of_all("ihfft2", input, s, dim, norm, INVERSE, TWO)  # type: ignore[no-any-return]


# -- frequencies ------------------------------------------------------------------------------------------------------


@checked
def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of the n numbers of a spectrum, of samples `d` apart: 0, 1, ..., then the negative ones.

    >>> hcq.torch.fft.fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    whole = [*range((n + 1) // 2), *range(-(n // 2), 0)]
    return Tensor([place / (n * d) for place in whole], device, dtype or dtypes.float32, requires_grad)


@checked
def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of the n // 2 + 1 numbers of half a spectrum.

    >>> hcq.torch.fft.rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    return Tensor(
        [place / (n * d) for place in range(n // 2 + 1)], device, dtype or dtypes.float32, requires_grad
    )


def fftshift(input: Tensor, dim: Dims = None) -> Tensor:
    """Half of each axis rolled on, so that frequency 0 is in the middle.

    >>> hcq.torch.fft.fftshift(hcq.torch.fft.fftfreq(4)).tolist()
    [-0.5, -0.25, 0.0, 0.25]
    """
    return _rolled("fftshift", input, dim, 0)


def ifftshift(input: Tensor, dim: Dims = None) -> Tensor:
    """The inverse of `fftshift`.

    >>> x = Tensor.arange(5)
    >>> hcq.torch.fft.fftshift(x).tolist(), hcq.torch.fft.ifftshift(hcq.torch.fft.fftshift(x)).tolist()
    ([3, 4, 0, 1, 2], [0, 1, 2, 3, 4])
    """
    return _rolled("ifftshift", input, dim, 1)


def _rolled(call: str, x: Any, dim: Dims, rest: int) -> Any:
    if not isinstance(x, Tensor):
        raise UsageError(f"[{call}] {shown(x)}: give a tensor. Make one: hcq.tensor(...).")
    axes = x._axes(call, dim if dim is None or isinstance(dim, int) else list(dim))
    return x.roll([(x.shape[axis] + rest) // 2 for axis in axes], axes) if axes else x
