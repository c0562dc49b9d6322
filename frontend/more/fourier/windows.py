"""Windows of signals under PyTorch's names: `hcq.torch.signal.windows.hann(512, sym=False)`, `hcq.hann_window(512)`.

In       the number of samples M and the window's parameters; `sym=False` for spectra: one period of M samples
Out      a vector on the device, float32 unless given
Changes  device memory: the numbers are computed in float64 on the host, and rounded once
Next     short_time.py (who multiplies with them)
Source   Harris 1978 (the windows); Nuttall 1981
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes

COSINES = "blackman cosine general_cosine general_hamming hamming hann nuttall".split()
NAMES = sorted([*COSINES, "bartlett", "exponential", "gaussian", "kaiser"])


def _window(call: str, M: Any, sym: Any, options: dict[str, Any], of: Callable[[Any, int], Any]) -> Tensor:
    """`of(places, count)` for M places, of M samples, or of one more whose last one is left out."""
    import numpy as np

    if not isinstance(M, int) or isinstance(M, bool) or M < 0:
        raise UsageError(f"[{call}] M={M!r}: give a number of samples, 0 or more.")
    if not isinstance(sym, bool):
        raise UsageError(f"[{call}] sym={sym!r}: takes True or False.")
    unknown = options.keys() - {"dtype", "device", "requires_grad", "layout"}
    if unknown:
        raise UsageError(
            f"[{call}] {sorted(unknown)[0]} is not an argument. Use sym, dtype, device, requires_grad."
        )
    dtype: DType = options.get("dtype") or dtypes.float32
    if not isinstance(dtype, DType) or not dtype.is_float:
        raise UsageError(f"[{call}] dtype {dtype!r}: a window is of floats. Use dtypes.float32.")
    count = M if sym else M + 1
    values = np.ones(M) if M <= 1 else np.asarray(of(np.arange(M, dtype="float64"), count))
    window = Tensor(values.tolist(), options.get("device"), dtype)
    return window.requires_grad_() if options.get("requires_grad") else window


def _finite(call: str, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"[{call}] {name}={value!r}: takes a number.")
    return float(value)


def general_cosine(M: int, *, a: Sequence[float], sym: bool = True, **options: Any) -> Tensor:
    """a[0] - a[1] cos(t) + a[2] cos(2 t) - ..., where t goes once round: see `hann` for options.

    >>> print(hcq.torch.signal.windows.general_cosine(5, a=[0.5, 0.5]))
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    import numpy as np

    if not isinstance(a, (list, tuple)) or not a:
        raise UsageError(f"[general_cosine] a={a!r}: give a list of numbers, one at least.")
    weights = [_finite("general_cosine", "a", weight) * (-1) ** place for place, weight in enumerate(a)]
    return _window(
        "general_cosine", M, sym, options,
        lambda k, n: sum(w * np.cos(2 * np.pi * i * k / (n - 1)) for i, w in enumerate(weights)),
    )  # fmt: skip


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Tensor:
    """alpha - (1 - alpha) cos(t), where t goes once round.

    >>> print(hcq.torch.signal.windows.general_hamming(5, alpha=0.5))
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    alpha = _finite("general_hamming", "alpha", alpha)
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, **options)


def hamming(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """0.54 - 0.46 cos(t), where t goes once round.

    >>> print(hcq.torch.signal.windows.hamming(5))
    tensor([0.0800, 0.5400, 1.0000, 0.5400, 0.0800])
    """
    return general_hamming(M, sym=sym, **options)


def hann(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """(1 - cos(t)) / 2, where t goes once round.

    sym      False: a period of M samples, for spectra; True: the last sample is like the first
    options  dtype (float32), device, requires_grad

    >>> hcq.torch.signal.windows.hann(4, sym=False).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return general_hamming(M, alpha=0.5, sym=sym, **options)


def blackman(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """0.42 - 0.5 cos(t) + 0.08 cos(2 t), where t goes once round.

    >>> print(hcq.torch.signal.windows.blackman(5)[1:4])
    tensor([0.3400, 1.0000, 0.3400])
    """
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, **options)


def nuttall(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Nuttall's minimal sum of four cosines.

    >>> print(hcq.torch.signal.windows.nuttall(5))
    tensor([3.6280e-04, 2.2698e-01, 1.0000e+00, 2.2698e-01, 3.6280e-04])
    """
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, **options)


def bartlett(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """A triangle from 0 over 1 to 0.

    >>> hcq.torch.signal.windows.bartlett(5).tolist(), hcq.torch.signal.windows.bartlett(4, sym=False).tolist()
    ([0.0, 0.5, 1.0, 0.5, 0.0], [0.0, 0.5, 1.0, 0.5])
    """
    return _window("bartlett", M, sym, options, lambda k, n: 1.0 - abs(2.0 * k / (n - 1) - 1.0))


def cosine(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """The first half of a sine, sampled in the middle of each place.

    >>> print(hcq.torch.signal.windows.cosine(4))
    tensor([0.3827, 0.9239, 0.9239, 0.3827])
    """
    import numpy as np

    return _window("cosine", M, sym, options, lambda k, n: np.sin(np.pi * (k + 0.5) / n))


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options: Any
) -> Tensor:
    """exp(-|k - center| / tau): the middle is the center; another one may be given with sym=False.

    >>> print(hcq.torch.signal.windows.exponential(4, center=0, sym=False))
    tensor([1.0000, 0.3679, 0.1353, 0.0498])
    """
    import numpy as np

    tau = _finite("exponential", "tau", tau)
    if tau <= 0:
        raise UsageError(f"[exponential] tau={tau}: use a number above 0.")
    if sym and center is not None:
        raise UsageError(
            "[exponential] a center of a symmetric window is its middle. Give sym=False, or no center."
        )

    def decay(k: Any, n: int) -> Any:
        middle = (n - 1) / 2.0 if center is None else _finite("exponential", "center", center)
        return np.exp(-abs(k - middle) / tau)

    return _window("exponential", M, sym, options, decay)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """A bell of that deviation, in samples.

    >>> print(hcq.torch.signal.windows.gaussian(5, std=1.0))
    tensor([0.1353, 0.6065, 1.0000, 0.6065, 0.1353])
    """
    import numpy as np

    std = _finite("gaussian", "std", std)
    if std <= 0:
        raise UsageError(f"[gaussian] std={std}: use a number above 0.")
    return _window("gaussian", M, sym, options, lambda k, n: np.exp(-0.5 * ((k - (n - 1) / 2.0) / std) ** 2))


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options: Any) -> Tensor:
    """Bessel's I0 of an arc: narrow for a large beta, a rectangle for 0.

    >>> hcq.torch.signal.windows.kaiser(4, beta=0.0).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    import numpy as np

    beta = _finite("kaiser", "beta", beta)
    if beta < 0:
        raise UsageError(f"[kaiser] beta={beta}: use 0 or more.")

    def arc(k: Any, n: int) -> Any:
        place = 2.0 * k / (n - 1) - 1.0
        return np.i0(beta * np.sqrt(np.maximum(0.0, 1.0 - place * place))) / np.i0(beta)

    return _window("kaiser", M, sym, options, arc)


# -- torch.hann_window and the other windows: periodic unless said otherwise ---------------------------------------


def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """`hann` of one period, unless `periodic` is False: see there for options.

    >>> hcq.hann_window(4).tolist(), hcq.hann_window(5, periodic=False).tolist()
    ([0.0, 0.5, 1.0, 0.5], [0.0, 0.5, 1.0, 0.5, 0.0])
    """
    return hann(window_length, sym=not periodic, **options)


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: Any
) -> Tensor:
    """alpha - beta cos(t) over one period, unless `periodic` is False.

    >>> print(hcq.hamming_window(4, alpha=0.5, beta=0.5))
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return general_cosine(window_length, a=[alpha, beta], sym=not periodic, **options)


def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """`blackman` of one period, unless `periodic` is False.

    >>> print(hcq.blackman_window(5, periodic=False)[1:4])
    tensor([0.3400, 1.0000, 0.3400])
    """
    return blackman(window_length, sym=not periodic, **options)


def bartlett_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """`bartlett` of one period, unless `periodic` is False.

    >>> hcq.bartlett_window(4).tolist(), hcq.bartlett_window(5, periodic=False).tolist()
    ([0.0, 0.5, 1.0, 0.5], [0.0, 0.5, 1.0, 0.5, 0.0])
    """
    return bartlett(window_length, sym=not periodic, **options)


def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> Tensor:
    """`kaiser` of one period, unless `periodic` is False.

    >>> print(hcq.kaiser_window(4, beta=0.0))
    tensor([1., 1., 1., 1.])
    """
    return kaiser(window_length, beta=beta, sym=not periodic, **options)
