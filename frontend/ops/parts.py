"""Parts: real and imaginary parts, conjugates and angles, of real tensors; the ways to complex ones and spectra.

In       real tensors
Out      themselves, where a real number is its own real part or conjugate; complex tensors
Next     more/complex/ (complex tensors, for which these methods do more), more/fourier/ (stft)
"""

from __future__ import annotations

import math
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.base import Methods, Self
from hcq.frontend.ops.complex_arguments import complex_class
from hcq.frontend.ops.table import above
from hcq.ir.dtype import DType, dtypes


class Parts(Methods):
    """real, imag, conj, angle, H, complex, polar, view_as_complex."""

    __slots__ = ()

    @property
    def real(self) -> Self:
        """The real parts: of real numbers, these.

        >>> Tensor([1 + 2j]).real.tolist()
        [1.0]
        """
        return self

    @property
    def imag(self) -> Self:
        """The imaginary parts of complex numbers. Raises UsageError for real ones, which have none.

        >>> Tensor([1 + 2j]).imag.tolist()
        [2.0]
        """
        raise UsageError(
            f"[imag] a {self.dtype.name} tensor of shape {self.shape} has no imaginary parts. Use x.zeros_like()."
        )

    def conj(self) -> Self:
        """The imaginary parts with the other sign: real numbers are as they are.

        >>> Tensor([1 + 2j]).conj().tolist(), Tensor([1.0]).conj().tolist()
        ([(1-2j)], [1.0])
        """
        return self

    def conj_physical(self) -> Self:
        """As `conj`.

        >>> Tensor([1 + 2j]).conj_physical().tolist()
        [(1-2j)]
        """
        return self.conj()

    def resolve_conj(self) -> Self:
        """Itself: nothing is conjugated later.

        >>> Tensor([1 + 2j]).conj().resolve_conj().tolist()
        [(1-2j)]
        """
        return self

    def resolve_neg(self) -> Self:
        """Itself: nothing is negated later.

        >>> Tensor([1.0]).resolve_neg().tolist()
        [1.0]
        """
        return self

    def is_conj(self) -> bool:
        """False: nothing is conjugated later.

        >>> Tensor([1 + 2j]).is_conj()
        False
        """
        return False

    def angle(self) -> Self:
        """The angle with the positive real axis: pi for negative numbers, 0 for others, NaN for NaN.

        >>> print(Tensor([1j, -1 + 0j, 1 + 0j]).angle())
        tensor([1.5708, 3.1416, 0.0000])
        """
        return 0.0 - self._float().clamp(-1.0, 0.0).floor() * math.pi  # the floor's slope is zero

    @property
    def H(self) -> Self:
        """A matrix transposed and conjugated. Raises UsageError for other than 2 axes, or none.

        >>> Tensor([[1 + 2j, 3j]]).H.tolist()
        [[(1-2j)], [-3j]]
        """
        if self.ndim not in (0, 2):
            raise UsageError(f"[H] shape {self.shape} is no matrix. Use mH for the last two axes.")
        return self.conj().mT if self.ndim else self.conj()

    @property
    def mH(self) -> Self:
        """The last two axes swapped, and conjugated.

        >>> Tensor.zeros(5, 2, 3).mH.shape
        (5, 3, 2)
        """
        return self.conj().mT

    def adjoint(self) -> Self:
        """The last two axes swapped, and conjugated: `mH`.

        >>> Tensor([[1 + 2j, 3j]]).adjoint().tolist()
        [[(1-2j)], [-3j]]
        """
        return self.conj().mT

    def cfloat(self) -> Any:
        """As complex64.

        >>> Tensor([1.0, 2.0]).cfloat().tolist()
        [(1+0j), (2+0j)]
        """
        return self.cast(dtypes.complex64)

    def cdouble(self) -> Any:
        """As complex128.

        >>> Tensor([1.0]).cdouble().dtype
        dtypes.complex128
        """
        return self.cast(dtypes.complex128)

    def view_as_complex(self) -> Any:
        """Pairs of real numbers as complex ones: (..., 2) -> (...). Raises UsageError for another last size.

        >>> Tensor([[1.0, 2.0]]).view_as_complex().tolist()
        [(1+2j)]
        """
        if not self.shape or self.shape[-1] != 2 or _complex_of(self.dtype) is None:
            raise UsageError(
                f"[view_as_complex] {self.dtype.name} of shape {self.shape}: give float32 or float64, (..., 2)."
            )
        return _pair(self[..., 0], self[..., 1])

    def view_as_real(self) -> Self:
        """Complex numbers as pairs of real ones: (...) -> (..., 2). Raises UsageError for real numbers.

        >>> Tensor([1 + 2j]).view_as_real().tolist()
        [[1.0, 2.0]]
        """
        raise UsageError(
            f"[view_as_real] a {self.dtype.name} tensor is real already. Give complex numbers: x.cfloat()."
        )

    @staticmethod
    def complex(real: Any, imag: Any) -> Any:
        """Complex numbers of these parts, both float32 or both float64; shapes broadcast.

        >>> hcq.complex(Tensor([1.0]), Tensor([2.0])).tolist()
        [(1+2j)]
        """
        _check_parts("complex", real, imag)
        real, imag = real.broadcast_tensors(imag)
        return _pair(real, imag)

    @staticmethod
    def polar(abs: Any, angle: Any) -> Any:
        """Complex numbers of these sizes and angles, both float32 or both float64; shapes broadcast.

        >>> hcq.polar(Tensor([2.0]), Tensor([0.0])).tolist()
        [(2+0j)]
        """
        _check_parts("polar", abs, angle)
        return _pair(abs * angle.cos(), abs * angle.sin())

    def stft(
        self,
        n_fft: int,
        hop_length: int | None = None,
        win_length: int | None = None,
        window: Self | None = None,
        center: bool = True,
        pad_mode: str = "reflect",
        normalized: bool = False,
        onesided: bool | None = None,
        return_complex: bool | None = None,
        align_to_window: bool | None = None,
    ) -> Any:
        """Spectra of frames of n_fft samples, hop_length apart: (..., time) -> (..., frequencies, frames), complex.

        window    what each frame is multiplied with, of win_length, in the middle of it; all ones unless given
        center    frame t is around sample t * hop_length, of a signal padded in `pad_mode`; else it begins there
        onesided  n_fft // 2 + 1 frequencies, which say all of a real signal
        Raises    UsageError unless return_complex is given, for real signals

        >>> hcq.stft(Tensor.ones(8), 4, center=False, return_complex=True).shape
        (3, 5)
        """
        return above("short_time").stft(
            self, n_fft, hop_length, win_length, window, center, pad_mode, normalized, onesided, return_complex,
            align_to_window,
        )  # fmt: skip

    def istft(
        self,
        n_fft: int,
        hop_length: int | None = None,
        win_length: int | None = None,
        window: Self | None = None,
        center: bool = True,
        normalized: bool = False,
        onesided: bool | None = None,
        length: int | None = None,
        return_complex: bool = False,
    ) -> Any:
        """The signals of which these are the spectra, by `stft`: (..., frequencies, frames) -> (..., time).

        length  how many samples; what the frames say, unless given
        Raises  UsageError where the windows leave a sample out

        >>> x = Tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
        >>> spectra = x.stft(4, window=hcq.hann_window(4), return_complex=True)
        >>> print(spectra.istft(4, window=hcq.hann_window(4)))
        tensor([1., 2., 3., 4., 5., 6., 7., 8.])
        """
        return above("short_time").istft(
            self, n_fft, hop_length, win_length, window, center, normalized, onesided, length, return_complex
        )


def _pair(real: Any, imag: Any) -> Any:
    return complex_class().of(real, imag)


def _complex_of(dtype: DType) -> DType | None:
    return {dtypes.float32: dtypes.complex64, dtypes.float64: dtypes.complex128}.get(dtype)


def _check_parts(call: str, first: Any, second: Any) -> None:
    for part in (first, second):
        if not isinstance(part, Methods) or _complex_of(part.dtype) is None:
            raise UsageError(f"[{call}] give two tensors of float32, or two of float64.")
    if first.dtype is not second.dtype:
        raise UsageError(
            f"[{call}] {first.dtype.name} and {second.dtype.name} differ. Cast one: x.cast(dtypes.{first.dtype.name})."
        )
    first._same_device(call, second)
