"""Windows of signals are NumPy's and PyTorch's; short-time spectra are those of windows, and give the signal back."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
from hcq import Tensor, dtypes
from hcq.errors import UsageError

RNG = np.random.default_rng(8)
windows = hcq.torch.signal.windows


@pytest.mark.parametrize("size", [0, 1, 2, 7, 16])
def test_windows_that_numpy_has_are_numpys(size):
    beta = 7.5
    pairs = [
        (windows.bartlett(size), np.bartlett(size)),
        (windows.blackman(size), np.blackman(size)),
        (windows.hamming(size), np.hamming(size)),
        (windows.hann(size), np.hanning(size)),
        (windows.kaiser(size, beta=beta), np.kaiser(size, beta)),
    ]
    for got, expected in pairs:
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6, atol=1e-7)
    periodic = windows.hann(size, sym=False, dtype=dtypes.float64)
    np.testing.assert_allclose(periodic.numpy(), np.hanning(size + 1)[:size] if size > 1 else np.ones(size))
    assert hcq.hann_window(size).tolist() == windows.hann(size, sym=False).tolist()


@pytest.mark.torch
def test_every_window_is_pytorchs():
    torch = pytest.importorskip("torch")
    cases = {
        "bartlett": {}, "blackman": {}, "cosine": {}, "exponential": {"tau": 2.5}, "gaussian": {"std": 3.0},
        "general_cosine": {"a": [0.5, 0.3, 0.2]}, "general_hamming": {"alpha": 0.6}, "hamming": {}, "hann": {},
        "kaiser": {"beta": 5.0}, "nuttall": {},
    }  # fmt: skip
    assert sorted(cases) == sorted(windows.NAMES)
    for name, options in cases.items():
        for sym in (True, False):
            expected = getattr(torch.signal.windows, name)(9, sym=sym, **options)
            np.testing.assert_allclose(
                getattr(windows, name)(9, sym=sym, **options), expected, atol=5e-7, err_msg=name
            )


WRONG_WINDOWS = {
    "M": lambda: windows.hann(-1),
    "sym": lambda: windows.hann(4, sym=3),
    "dtype": lambda: windows.hann(4, dtype=dtypes.int64),
    "word": lambda: windows.hann(4, size=3),
    "std": lambda: windows.gaussian(4, std=0.0),
    "tau": lambda: windows.exponential(4, tau=-1.0),
    "center": lambda: windows.exponential(4, center=1.0),
    "beta": lambda: windows.kaiser(4, beta=-1.0),
    "a": lambda: windows.general_cosine(4, a=[]),
}


@pytest.mark.parametrize("name", WRONG_WINDOWS)
def test_a_wrong_window_is_refused(name):
    with pytest.raises(UsageError, match=r"^\[\w+\] "):
        WRONG_WINDOWS[name]()


def test_short_time_spectra_are_transforms_of_the_windows_of_a_signal():
    x = RNG.normal(size=(2, 100)).astype("float32")
    shape = np.hamming(16).astype("float32")
    got = hcq.stft(Tensor(x), 16, 5, window=Tensor(shape), center=False, return_complex=True).numpy()
    frames = np.stack([x[:, start : start + 16] for start in range(0, 100 - 15, 5)], 1) * shape
    np.testing.assert_allclose(got, np.fft.rfft(frames).transpose(0, 2, 1), rtol=1e-4, atol=1e-5)
    centered = hcq.stft(Tensor(x[0]), 16, 5, 12, return_complex=True, onesided=False, normalized=True).numpy()
    padded = np.pad(x[0], 8, mode="reflect")
    middle = np.pad(np.ones(12), 2)
    frames = np.stack([padded[start : start + 16] for start in range(0, 116 - 15, 5)]) * middle
    np.testing.assert_allclose(centered, np.fft.fft(frames, norm="ortho").T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hop", [4, 5])
def test_a_signal_comes_back_from_its_short_time_spectra(hop):
    x = RNG.normal(size=(2, 97)).astype("float32")
    window = hcq.hann_window(16)
    spectra = hcq.stft(Tensor(x), 16, hop, window=window, return_complex=True)
    back = hcq.istft(spectra, 16, hop, window=window, length=97).numpy()
    reached = hop * (97 // hop)
    np.testing.assert_allclose(back[:, :reached], x[:, :reached], atol=1e-5)
    z = Tensor(x) * (1 + 2j)
    both = hcq.istft(hcq.stft(z, 16, hop, window=window), 16, hop, window=window, return_complex=True).numpy()
    np.testing.assert_allclose(both, (x * np.complex64(1 + 2j))[:, : both.shape[1]], atol=1e-5)


def test_gradients_flow_through_spectra_and_back():
    x = Tensor(RNG.normal(size=40).astype("float32"), requires_grad=True)
    window = hcq.hann_window(8)
    spectra = hcq.stft(x, 8, 4, window=window, return_complex=True)
    (hcq.istft(spectra, 8, 4, window=window, length=40) * Tensor.arange(40)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.arange(40), atol=1e-3)  # there and back is the identity


WRONG_CALLS = {
    "return_complex": lambda x: hcq.stft(x, 8),
    "long": lambda x: hcq.stft(x, 64, center=False, return_complex=True),
    "reflected": lambda x: hcq.stft(x, 96, return_complex=True),
    "window": lambda x: hcq.stft(x, 8, window=hcq.hann_window(4), return_complex=True),
    "hop": lambda x: hcq.stft(x, 8, 0, return_complex=True),
    "one side": lambda x: hcq.stft(x * 1j, 8, onesided=True),
    "real": lambda x: hcq.istft(x, 8),
    "bins": lambda x: hcq.istft(hcq.stft(x, 8, return_complex=True), 10),
    "gap": lambda x: hcq.istft(hcq.stft(x, 8, 8, window=hcq.hann_window(8), return_complex=True, center=False), 8, 8,
                               window=hcq.hann_window(8), center=False),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_a_wrong_call_of_a_short_time_transform_is_refused(name):
    with pytest.raises(UsageError, match=r"^\[i?stft\] "):
        WRONG_CALLS[name](Tensor(np.ones(40, "float32")))
